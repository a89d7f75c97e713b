//! `stowplan check` of an installation: of one that is broken in several ways, and as `helm test` runs
//! it.

use std::fs;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::world::{NAMESPACE, Output, World, has, kubeconfig_as};

const USER: &str = "inspector";

/// Beside those of a reader the rights of `helm test` to try pods, and to read the certificate of the webhook.
/// Not to send requests to pods, which have no addresses on this control plane.
const ROLE: &str = "
kind: ClusterRole
apiVersion: rbac.authorization.k8s.io/v1
metadata: {name: inspector}
rules:
- {apiGroups: [''], resources: [pods], verbs: [create]}
- {apiGroups: [''], resources: [secrets], resourceNames: [stowplan-tls], verbs: [get]}
- {apiGroups: [authorization.k8s.io], resources: [subjectaccessreviews], verbs: [create]}
- {nonResourceURLs: [/metrics], verbs: [get]}
";

/// Runs `check` as a user.
async fn check(world: &World, user: &str, words: &str) -> Result<Output> {
    let config = kubeconfig_as(&world.plane, user)?;
    world.stowplan_with(&config, &format!("check {words}"), "").await
}

/// Expects a problem with this name and text.
async fn expect_problem(world: &World, words: &str, name: &str, text: &str) -> Result<()> {
    let said = check(world, USER, &format!("{words} -o json")).await?;
    let report: Value = serde_json::from_str(&said.out).with_context(|| said.err.clone())?;
    let items = report["items"].as_array().context("items")?;
    let is_it = |item: &&Value| {
        item["name"] == name && item["message"].as_str().is_some_and(|of| of.contains(text))
    };
    let found = items.iter().find(is_it).with_context(|| format!("{name}: {text}: {report:#}"))?;
    ensure!(!said.success && found["state"] == "problem", "{found}");
    ensure!(found["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty()), "{found}");
    Ok(())
}

/// An object to be created again.
async fn recorded(world: &World, words: &str) -> Result<Value> {
    let mut object: Value =
        serde_json::from_str(&world.run(&format!("get {words} -o json")).await?)?;
    for field in ["resourceVersion", "uid", "generation", "creationTimestamp"] {
        object["metadata"].as_object_mut().context("metadata")?.remove(field);
    }
    Ok(object)
}

pub(crate) async fn what_is_broken_is_named(world: Arc<World>) -> Result<()> {
    let mut running = world.alone().await?;
    let write = async |verb: &str, object: &Value| {
        world.kubectl(&[verb, "-f", "-"], &object.to_string()).await?.succeeded()
    };
    world.apply(ROLE).await?;
    for role in [USER, "stowplan-reader"] {
        let binding = format!("clusterrolebinding {role}-{USER} --clusterrole={role}");
        world.run(&format!("create {binding} --user={USER}")).await?;
    }

    let said = check(&world, USER, "--try-in default").await?;
    ensure!(said.success && said.err.is_empty(), "{}{}", said.out, said.err);
    has(
        &said.out,
        &[
            "ok       certificate            4 webhooks trust what the Secret serves, ",
            "ok       controller             controller-0 leads, renewed ",
            "ok       rights                 the accounts have what this version needs: ",
            "ok       trial-pod ",
            "missing: get pods/proxy",
            "\n0 problems, ",
        ],
    )?;
    check(&world, "stranger", "").await?.refused_with(&["(--installed-in)"])?;

    let excluded = "is created without its placement";
    expect_problem(&world, "--try-in kube-node-lease", "trial-pod", excluded).await?;

    let own = recorded(&world, "mutatingwebhookconfiguration stowplan").await?;
    // The CA of the control plane is not that of the webhook.
    let authority = fs::read_to_string(world.plane.dir().join("certificates/ca.crt"))?;
    let mut changed = own.clone();
    let authority = k8s_openapi::ByteString(authority.into_bytes());
    changed["webhooks"][0]["clientConfig"]["caBundle"] = json!(authority);
    write("replace", &changed).await?;
    expect_problem(&world, "", "certificate", "it was signed by another CA").await?;
    world.run("delete mutatingwebhookconfiguration stowplan").await?;
    let gone = "there is no webhook pods.stowplan.dev";
    expect_problem(&world, "", "webhook-configurations", gone).await?;
    write("create", &own).await?;

    let policy = recorded(&world, "configmap stowplan-policy -n stowplan-system").await?;
    let mut changed = policy.clone();
    changed["data"]["policy.yaml"] = json!("onInvald: warn");
    write("replace", &changed).await?;
    expect_problem(&world, "", "policy", "is invalid: ").await?;
    write("replace", &policy).await?;

    running.stop_controller(0).await?;
    expect_problem(&world, "", "controller", "no controller leads: the Lease was renewed ").await?;
    running.start_controller(0).await?;
    running.leader_known().await?;
    check(&world, USER, "--try-in default --wait 60s").await?.succeeded().map(drop)
}

/// Pods do not run here, so the account of the test's pod is given to this process.
pub(crate) async fn the_charts_test_finds_a_working_installation(world: Arc<World>) -> Result<()> {
    let _running = world.installation.read().await;
    let hooks = world.rendered("test", "image.repository=stowplan").await?;
    let (pods, rights): (Vec<&str>, Vec<&str>) =
        hooks.split("\n---\n").partition(|object| object.contains("kind: Pod\n"));
    world.apply(&rights.join("\n---\n")).await?;

    let account = format!("system:serviceaccount:{NAMESPACE}:stowplan-test");
    let kubeconfig = kubeconfig_as(&world.plane, &account)?;
    let mut pod: Value = serde_saphyr::from_str(pods.first().context("the test has no pod")?)?;
    let arguments = pod["spec"]["containers"][0]["args"].take();
    let arguments = serde_json::from_value::<Vec<String>>(arguments)?.join(" ");
    let found = world.stowplan_with(&kubeconfig, &arguments, "").await?.succeeded()?;
    has(
        &found,
        &[
            "ok       webhook-configurations ",
            "ok       service ",
            "ok       versions ",
            "ok       definitions ",
            "ok       controller ",
            "ok       trial-pod              a pod in namespace default gets its placement (dry run)\n",
            // Pods are not asked, because the account may not: see the chart's test.yaml.
            "unknown  certificate ",
            "\n0 problems, 0 warnings, ",
        ],
    )?;
    // It may create pods in that namespace only.
    let elsewhere = format!("check --installed-in {NAMESPACE} --try-in kube-node-lease");
    let output = world.stowplan_with(&kubeconfig, &elsewhere, "").await?;
    ensure!(!output.success, "{}", output.out);
    let refused = "problem  trial-pod              no test pod was created: the right is missing: \
                   create pods in kube-node-lease\n";
    has(&output.out, &[refused])
}
