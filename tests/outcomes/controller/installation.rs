//! `stowplan check` of an installation that is broken in several ways.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::world::{Output, World, run};

const USER: &str = "inspector";

/// The rights of a reader, of `helm test` to try pods, and to read the certificate of the webhook. Not to
/// send requests to pods, which have no addresses on this control plane.
const RIGHTS: &str = "
kind: ClusterRoleBinding
apiVersion: rbac.authorization.k8s.io/v1
metadata: {name: inspector}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: stowplan-reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: inspector}]
---
kind: ClusterRole
apiVersion: rbac.authorization.k8s.io/v1
metadata: {name: inspector}
rules:
- {apiGroups: [''], resources: [pods], verbs: [create]}
- {apiGroups: [''], resources: [secrets], resourceNames: [stowplan-tls], verbs: [get]}
- {apiGroups: [authorization.k8s.io], resources: [subjectaccessreviews], verbs: [create]}
- {nonResourceURLs: [/metrics], verbs: [get]}
---
kind: ClusterRoleBinding
apiVersion: rbac.authorization.k8s.io/v1
metadata: {name: inspector-more}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: inspector}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: inspector}]
";

/// Runs `check` as a user.
async fn check(world: &World, user: &str, words: &str) -> Result<Output> {
    let mut config: Value = serde_saphyr::from_str(&fs::read_to_string(world.plane.kubeconfig())?)?;
    config["users"][0]["user"]["as"] = json!(user);
    let path: PathBuf = world.plane.dir().join(format!("{user}.kubeconfig"));
    fs::write(&path, config.to_string())?;
    let mut command = world.plane.program(env!("CARGO_BIN_EXE_stowplan"));
    command.env("KUBECONFIG", &path);
    let words: Vec<&str> = ["check"].into_iter().chain(words.split_whitespace()).collect();
    run(command, &words, "").await
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

pub(crate) async fn what_is_broken_is_named(world: Arc<World>) -> Result<()> {
    let mut running = world.alone().await?;
    let kubectl = async |words: &str, input: &str| -> Result<String> {
        world.kubectl(&words.split(' ').collect::<Vec<_>>(), input).await?.succeeded()
    };
    kubectl("apply -f -", RIGHTS).await?;

    let said = check(&world, USER, "--try-in default").await?;
    ensure!(said.success && said.err.is_empty(), "{}{}", said.out, said.err);
    for line in [
        "ok       certificate            3 webhooks trust what the Secret serves, ",
        "ok       controller             controller-0 leads, renewed ",
        "ok       rights                 the accounts have what this version needs: ",
        "ok       trial-pod ",
        "missing: get pods/proxy",
        "\n0 problems, ",
    ] {
        ensure!(said.out.contains(line), "{line}\n{}", said.out);
    }
    check(&world, "stranger", "").await?.refused_with(&["(--installed-in)"])?;

    let excluded = "is created without its placement";
    expect_problem(&world, "--try-in kube-node-lease", "trial-pod", excluded).await?;

    let kind = "mutatingwebhookconfiguration";
    let own = kubectl(&format!("get {kind} stowplan -o json"), "").await?;
    let mut own: Value = serde_json::from_str(&own)?;
    for field in ["resourceVersion", "uid", "generation", "creationTimestamp"] {
        own["metadata"].as_object_mut().context("metadata")?.remove(field);
    }
    // The CA of the control plane is not that of the webhook.
    let authority = fs::read_to_string(world.plane.dir().join("certificates/ca.crt"))?;
    let mut changed = own.clone();
    changed["webhooks"][0]["clientConfig"]["caBundle"] = json!(encode(authority.as_bytes()));
    kubectl("replace -f -", &changed.to_string()).await?;
    expect_problem(&world, "", "certificate", "it was signed by another CA").await?;
    kubectl(&format!("delete {kind} stowplan"), "").await?;
    let gone = "there is no webhook pods.stowplan.dev";
    expect_problem(&world, "", "webhook-configurations", gone).await?;
    kubectl("create -f -", &own.to_string()).await?;

    let policy = kubectl("-n stowplan-system get configmap stowplan-policy -o json", "").await?;
    let patch = r#"-n stowplan-system patch configmap stowplan-policy -p {"data":{"policy.yaml":"onInvald:\u0020warn"}}"#;
    kubectl(patch, "").await?;
    expect_problem(&world, "", "policy", "is invalid: ").await?;
    let mut policy: Value = serde_json::from_str(&policy)?;
    policy["metadata"].as_object_mut().context("metadata")?.remove("resourceVersion");
    kubectl("replace -f -", &policy.to_string()).await?;

    running.stop_controller(0).await?;
    expect_problem(&world, "", "controller", "no controller leads: the Lease was renewed ").await?;
    running.start_controller(0).await?;
    running.leader_known().await?;
    check(&world, USER, "--try-in default --wait 60s").await?.succeeded()?;
    Ok(())
}

/// Base64, as in JSON of the API.
fn encode(bytes: &[u8]) -> String {
    let bytes = k8s_openapi::ByteString(bytes.to_vec());
    json!(bytes).as_str().unwrap_or_default().to_owned()
}
