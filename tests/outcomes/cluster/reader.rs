//! `plan --live` and `check` with the rights of the chart's role for readers, and with those rights in
//! one namespace only.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::world::{Output, Space, World, element};

/// A kubeconfig with a context of the same name for each user, who is impersonated.
fn kubeconfig(world: &World, users: &[&str]) -> Result<tempfile::NamedTempFile> {
    let text = std::fs::read_to_string(world.plane.kubeconfig())?;
    let mut config: Value = serde_saphyr::from_str(&text)?;
    let (context, own) = (config["contexts"][0].clone(), config["users"][0].clone());
    for user in users {
        let mut context = context.clone();
        context["name"] = json!(user);
        context["context"]["user"] = json!(user);
        config["contexts"].as_array_mut().context("contexts")?.push(context);
        let mut of_user = own.clone();
        of_user["name"] = json!(user);
        of_user["user"]["as"] = json!(user);
        config["users"].as_array_mut().context("users")?.push(of_user);
    }
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), config.to_string())?;
    Ok(file)
}

/// Gives a user the reader's rights: everywhere, or in the namespace.
async fn bind(space: &Space, user: &str, everywhere: bool) -> Result<()> {
    let kind = if everywhere { "clusterrolebinding" } else { "rolebinding" };
    let user = format!("--user={user}");
    let mut arguments =
        vec!["create", kind, "stowplan-readers", "--clusterrole=stowplan-reader", &user];
    if !everywhere {
        arguments.extend(["-n", &space.name]);
    }
    space.world.kubectl(&arguments, "").await?.succeeded()?;
    Ok(())
}

pub(crate) async fn the_readers_rights_are_enough_and_none_too_many(
    world: Arc<World>,
) -> Result<()> {
    let space = world.namespace("reader").await?;
    bind(&space, "reader", true).await?;
    bind(&space, "narrow", false).await?;
    let config = kubeconfig(&world, &["reader", "narrow"])?;
    let config = config.path().to_str().context("a path")?;
    let run = async |user: &str, words: &str, input: &str| -> Result<Output> {
        let words = format!("{words} --kubeconfig {config} --context {user}");
        world.stowplan(&words.split_whitespace().collect::<Vec<_>>(), input).await
    };

    let placed = element("job", "placed", &[("host", "node-3")]);
    ensure!(space.node_of_new(&placed).await? == "node-3");
    let mut waits = element("job", "waits", &[("host", "node-2")]);
    waits["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1000"}});
    space.pending(&waits).await?;
    let new = element("job", "new", &[("host", "node-1")]).to_string();
    let plan = format!("plan --live -f - -n {}", space.name);

    // Nothing is missing.
    let said = run("reader", &plan, &new).await?;
    ensure!(said.success && said.err.is_empty(), "{}{}", said.out, said.err);
    ensure!(said.out.contains("metadata.name In [node-1]"), "{}", said.out);
    for words in [
        format!("check pod/placed -n {}", space.name),
        format!("check -n {}", space.name),
        "check -A".to_owned(),
        "check node/node-1".to_owned(),
    ] {
        let said = run("reader", &words, "").await?;
        ensure!(said.err.is_empty(), "{words}: {}", said.err);
    }
    let said = run("reader", &format!("check -n {}", space.name), "").await?;
    let wanted = format!("Pod {}/waits", space.name);
    ensure!(said.out.contains(&wanted) && !said.out.contains("/placed"), "{}", said.out);
    // The policy of the cluster excludes the namespace of the release; the default one does not.
    let own = "plan --live -f - -n stowplan-system";
    let said = run("reader", own, &new).await?;
    ensure!(said.out.contains("left alone: the policy excludes"), "{}{}", said.out, said.err);

    // With rights in one namespace the commands work there, and say what is missing.
    let said = run("narrow", &plan, &new).await?;
    for word in [
        "nodes cannot be listed: nodes is forbidden",
        "which hosts, tags and members of pools exist is not known",
        "mutatingwebhookconfigurations cannot be listed",
        "the default policy is assumed",
        &format!("read in namespace {} only", space.name),
    ] {
        ensure!(said.err.contains(word), "{word}\n{}", said.err);
    }
    ensure!(said.out.contains("(nodes cannot be listed: "), "{}", said.out);
    let said = run("narrow", &format!("check pod/waits -n {}", space.name), "").await?;
    ensure!(said.out.contains("scheduler  Unschedulable since"), "{}{}", said.out, said.err);
    ensure!(!said.out.contains("refused"), "{}", said.out);
    let said = run("narrow", &format!("check -n {}", space.name), "").await?;
    ensure!(said.out.contains(&wanted), "{}{}", said.out, said.err);

    // Nothing else can be read, and nothing written.
    for verb in ["get secrets", "list configmaps", "create pods", "patch nodes", "delete hostpools"]
    {
        let question = format!("auth can-i {verb} --as reader -n {}", space.name);
        let said = world.kubectl(&question.split(' ').collect::<Vec<_>>(), "").await?;
        ensure!(said.out.trim() == "no", "{verb}: {}{}", said.out, said.err);
    }
    Ok(())
}
