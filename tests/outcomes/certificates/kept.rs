use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use crate::world::{NAMESPACE, Space, World, element, has, same, settled, succeeds};

const NAME: &str = "stowplan";
const CA: &str = "stowplan-ca";
const SERVING: &str = "stowplan-tls";

fn secrets(world: &World) -> Api<Secret> {
    Api::namespaced(world.client.clone(), NAMESPACE)
}

/// A key of a Secret; empty if there is none.
async fn data(world: &World, secret: &str, key: &str) -> Result<String> {
    let secret = secrets(world).get_opt(secret).await?;
    let data = secret.and_then(|secret| secret.data?.remove(key)).unwrap_or_default();
    Ok(String::from_utf8(data.0)?)
}

/// The caBundles of all webhooks.
async fn bundles(world: &World) -> Result<BTreeSet<String>> {
    let mut bundles = BTreeSet::new();
    for kind in ["mutating", "validating"] {
        let words = format!("get {kind}webhookconfiguration {NAME} -o json");
        let configuration: Value = serde_json::from_str(&world.run(&words).await?)?;
        for webhook in configuration["webhooks"].as_array().into_iter().flatten() {
            let bundle = webhook["clientConfig"]["caBundle"].as_str().unwrap_or_default();
            bundles.insert(String::from_utf8(BASE64.decode(bundle)?)?);
        }
    }
    Ok(bundles)
}

/// Creates a trial pod. It has to be placed: the webhook was called, and was verified.
async fn try_pod(world: &Arc<World>) -> Result<()> {
    let space = Space { world: Arc::clone(world), name: "default".to_owned() };
    let pod = space.admitted(&element("job", "pe", &[("host-exlocation", "alone")])).await?;
    ensure!(pod.spec.is_some_and(|spec| spec.affinity.is_some()), "it was not placed");
    Ok(())
}

/// Waits until pods are placed again, and the Secrets and the caBundles belong together.
async fn recovered(world: &Arc<World>) -> Result<()> {
    succeeds("the certificate to be trusted", async || {
        // A replica serves the last one even if the Secret is gone.
        has(&data(world, SERVING, "tls.crt").await?, &["BEGIN CERTIFICATE"])?;
        let ca = data(world, CA, "ca.crt").await?;
        ensure!(!ca.is_empty(), "there is no CA");
        for bundle in bundles(world).await? {
            ensure!(bundle.contains(&ca), "a caBundle does not have the CA");
        }
        try_pod(world).await
    })
    .await?;
    world.plane.check()
}

async fn delete(world: &World, secret: &str) -> Result<()> {
    secrets(world).delete(secret, &DeleteParams::default()).await?;
    Ok(())
}

pub(crate) async fn from_nothing_to_a_verified_pod(world: Arc<World>) -> Result<()> {
    // The chart rendered no certificate, and the testbed has made none.
    recovered(&world).await?;
    let kinds = [(CA, "authority", "Opaque"), (SERVING, "serving", "kubernetes.io/tls")];
    for (name, role, kind) in kinds {
        let secret = secrets(&world).get(name).await?;
        let labels = secret.metadata.labels.context("labels")?;
        same(&labels.get("stowplan.dev/tls").map(String::as_str), &Some(role))?;
        same(&secret.type_.as_deref(), &Some(kind))?;
    }
    Ok(())
}

pub(crate) async fn a_rotation_loses_no_pod(world: Arc<World>) -> Result<()> {
    recovered(&world).await?;
    let first = data(&world, CA, "ca.crt").await?;
    let leaf = data(&world, SERVING, "tls.crt").await?;
    let (mut pods, mut had_two) = (0, false);
    let all = async || {
        // Each of them: a failure is an error, not a reason to wait.
        try_pod(&world).await.with_context(|| format!("after {pods} pods"))?;
        pods += 1;
        let now = bundles(&world).await?;
        had_two |= now.iter().any(|bundle| bundle.matches("BEGIN").count() == 2);
        Ok((data(&world, CA, "ca.crt").await?, now))
    };
    let is_alone = |(ca, bundles): &(String, BTreeSet<String>)| {
        *ca != first && *bundles == BTreeSet::from([ca.clone()])
    };
    settled("the CA to be replaced", all, is_alone).await?;
    ensure!(had_two, "the new CA was not beside the old one");
    ensure!(data(&world, SERVING, "tls.crt").await? != leaf, "the certificate is the old one");
    Ok(())
}

pub(crate) async fn deleted_secrets_are_made_again(world: Arc<World>) -> Result<()> {
    recovered(&world).await?;
    for (secret, key) in [(SERVING, "tls.crt"), (CA, "ca.crt")] {
        let before = data(&world, secret, key).await?;
        delete(&world, secret).await?;
        let again = async || {
            // The present certificate is trusted all the time.
            try_pod(&world).await?;
            data(&world, secret, key).await
        };
        let what = format!("another {secret}");
        settled(&what, again, |now| !now.is_empty() && *now != before).await?;
    }
    delete(&world, CA).await?;
    delete(&world, SERVING).await?;
    recovered(&world).await
}

pub(crate) async fn an_emptied_bundle_is_filled_again(world: Arc<World>) -> Result<()> {
    recovered(&world).await?;
    let patch = r#"[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]"#;
    world.run(&format!("patch mutatingwebhookconfiguration {NAME} --type=json -p {patch}")).await?;
    recovered(&world).await
}

/// The rights of the controller's account allow its writes, and its admission policies refuse others.
pub(crate) async fn the_account_is_held_to_its_two_secrets(world: Arc<World>) -> Result<()> {
    recovered(&world).await?;
    let account = "--as=system:serviceaccount:stowplan-system:stowplan-controller";
    let own = Space { world: Arc::clone(&world), name: NAMESPACE.to_owned() };
    let mut changed = own.get(&format!("secret {CA}")).await?;
    // Whatever the controller has written meanwhile.
    changed["metadata"].as_object_mut().context("metadata")?.remove("resourceVersion");
    changed["metadata"]["labels"]["stowplan.dev/tls"] = json!("serving");
    let mut owned = changed.clone();
    owned["metadata"]["labels"]["stowplan.dev/tls"] = json!("authority");
    owned["metadata"]["finalizers"] = json!(["example.com/kept"]);
    let other = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "other", "namespace": NAMESPACE},
    });
    for (verb, object, sentence) in [
        ("replace", &changed, "the controller writes only Secrets with its labels"),
        ("replace", &owned, "the controller gives the Secrets of the webhook no owners"),
        ("create", &other, "the controller changes nothing in this namespace"),
    ] {
        let said = world.kubectl(&[verb, account, "-f", "-"], &object.to_string()).await?;
        said.refused_with(&[sentence])?;
    }
    // By its rights alone: it cannot read another Secret, nor delete its own.
    for [verb, secret] in [["get", "secret/other"], ["delete", "secret/stowplan-ca"]] {
        let said = world.kubectl(&[verb, secret, "-n", NAMESPACE, account], "").await?;
        said.refused_with(&["cannot"])?;
    }
    Ok(())
}

pub(crate) async fn a_foreign_secret_is_reported_and_left_alone(world: Arc<World>) -> Result<()> {
    recovered(&world).await?;
    world.alone().await?.stop_controller(0).await?;
    delete(&world, SERVING).await?;
    let foreign: Secret = serde_json::from_value(json!({
        "metadata": {"name": SERVING}, "type": "kubernetes.io/tls",
        "stringData": {"tls.crt": "mine", "tls.key": "mine"},
    }))?;
    let foreign = secrets(&world).create(&PostParams::default(), &foreign).await?;
    world.installation.write().await.start_controller(0).await?;
    let own = Space { world: Arc::clone(&world), name: NAMESPACE.to_owned() };
    own.event("", "ForeignSecret").await?;
    let now = secrets(&world).get(SERVING).await?;
    same(&now.metadata.resource_version, &foreign.metadata.resource_version)?;
    // The remedy.
    delete(&world, SERVING).await?;
    recovered(&world).await
}

pub(crate) async fn two_controllers_at_once_make_one_ca(world: Arc<World>) -> Result<()> {
    recovered(&world).await?;
    let mut installation = world.alone().await?;
    installation.stop_controller(0).await?;
    delete(&world, CA).await?;
    delete(&world, SERVING).await?;
    installation.start_controller(1).await?;
    installation.start_controller(2).await?;
    let outcome = async {
        recovered(&world).await?;
        let ca = data(&world, CA, "ca.crt").await?;
        same(&data(&world, SERVING, "ca.crt").await?, &ca)?;
        let logs = [1, 2].map(|index| std::fs::read_to_string(installation.controller_log(index)));
        let mut made = 0;
        for log in logs {
            made += log?.matches("making a new CA").count();
        }
        same(&made, &1)
    };
    let outcome = outcome.await;
    installation.stop_controller(1).await?;
    installation.stop_controller(2).await?;
    installation.start_controller(0).await?;
    outcome
}
