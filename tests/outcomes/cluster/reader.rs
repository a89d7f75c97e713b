//! `plan --live` and `check` with the rights of the chart's role for readers, and with those rights in
//! one namespace only.

use std::sync::Arc;

use anyhow::{Result, ensure};

use crate::world::{Output, World, element, has, kubeconfig_as, requesting, same};

pub(crate) async fn the_readers_rights_are_enough_and_none_too_many(
    world: Arc<World>,
) -> Result<()> {
    let space = world.namespace("reader").await?;
    let here = format!("-n {}", space.name);
    // Everywhere, and in the namespace.
    for (kind, user) in [("clusterrolebinding", "reader"), ("rolebinding", "narrow")] {
        let binding = format!("create {kind} stowplan-readers --clusterrole=stowplan-reader");
        space.kubectl(&format!("{binding} --user={user}")).await?;
    }
    let run = async |user: &str, words: &str, input: &str| -> Result<Output> {
        world.stowplan_with(&kubeconfig_as(&world.plane, user)?, words, input).await
    };

    let placed = element("job", "placed", &[("host", "node-3")]);
    same(&&*space.node_of_new(&placed).await?, &"node-3")?;
    space.pending(&requesting(element("job", "waits", &[("host", "node-2")]), "1000")).await?;
    let new = element("job", "new", &[("host", "node-1")]).to_string();
    let plan = format!("plan --live -f - {here}");

    // Nothing is missing.
    let said = run("reader", &plan, &new).await?;
    ensure!(said.success && said.err.is_empty(), "{}{}", said.out, said.err);
    has(&said.out, &["metadata.name In [node-1]"])?;
    for words in [&*format!("pod/placed {here}"), "-A", "node/node-1", &here] {
        let said = run("reader", &format!("check {words}"), "").await?;
        ensure!(said.err.is_empty(), "{words}: {}", said.err);
    }
    let said = run("reader", &format!("check {here}"), "").await?;
    let wanted = format!("Pod {}/waits", space.name);
    ensure!(said.out.contains(&wanted) && !said.out.contains("/placed"), "{}", said.out);
    // The policy of the cluster excludes the namespace of the release; the default one does not.
    let own = "plan --live -f - -n stowplan-system";
    let said = run("reader", own, &new).await?;
    has(&said.out, &["left alone: the policy excludes"])?;

    // With rights in one namespace the commands work there, and say what is missing.
    let said = run("narrow", &plan, &new).await?;
    has(
        &said.err,
        &[
            "nodes cannot be listed: nodes is forbidden",
            "which hosts, tags and members of pools exist is not known",
            "mutatingwebhookconfigurations cannot be listed",
            "the default policy is assumed",
            &format!("read in namespace {} only", space.name),
        ],
    )?;
    has(&said.out, &["(nodes cannot be listed: "])?;
    let said = run("narrow", &format!("check pod/waits {here}"), "").await?;
    has(&said.out, &["scheduler  Unschedulable since"])?;
    ensure!(!said.out.contains("refused"), "{}", said.out);
    has(&run("narrow", &format!("check {here}"), "").await?.out, &[&wanted])?;

    // Nothing else can be read, and nothing written.
    for verb in ["get secrets", "list configmaps", "create pods", "patch nodes", "delete hostpools"]
    {
        let question = format!("auth can-i {verb} --as reader {here}");
        let said = world.kubectl(&question.split(' ').collect::<Vec<_>>(), "").await?;
        ensure!(said.out.trim() == "no", "{verb}: {}{}", said.out, said.err);
    }
    Ok(())
}
