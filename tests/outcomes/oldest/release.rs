//! What is particular to this suite: the release, and the chart's admission policies on it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;
use testbed::tools::Kubernetes;
use testbed::wait::{Seen, until};

use crate::world::{World, same};

/// Otherwise the other cases would show nothing.
pub(crate) async fn the_api_server_is_the_oldest(world: Arc<World>) -> Result<()> {
    let version = world.client.apiserver_version().await?.git_version;
    same(&version.as_str(), &Kubernetes::Oldest.version())?;
    ensure!(version.starts_with("v1.33."), "the documents say 1.33, and it is {version}");
    Ok(())
}

/// The controller manager checks the types of every expression, and writes what it finds to the status.
pub(crate) async fn no_expression_of_the_chart_has_a_warning(world: Arc<World>) -> Result<()> {
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(world.client.clone());
    let found = until("the policies to be checked", Duration::from_secs(60), async || {
        let found = policies.list(&ListParams::default()).await?.items;
        let unchecked: Vec<_> = found
            .iter()
            .filter(|policy| {
                let status = policy.status.as_ref();
                status.and_then(|status| status.type_checking.as_ref()).is_none()
            })
            .filter_map(|policy| policy.metadata.name.clone())
            .collect();
        Ok(if unchecked.is_empty() {
            Seen::Done(found)
        } else {
            Seen::NotYet(unchecked.join(", "))
        })
    })
    .await?;
    ensure!(found.len() >= 5, "the chart has installed {} policies", found.len());
    for policy in found {
        let checked = policy.status.and_then(|status| status.type_checking);
        let warnings = checked.and_then(|checked| checked.expression_warnings);
        ensure!(warnings.iter().flatten().count() == 0, "{:?}: {warnings:?}", policy.metadata.name);
    }
    Ok(())
}

/// One that refuses, one that warns, and one that holds the controller's account.
pub(crate) async fn the_policies_of_the_chart_hold(world: Arc<World>) -> Result<()> {
    let running = world.installation.read().await;
    let space = world.namespace("policies").await?;
    space
        .created(&json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain"},
            "spec": {"containers": [{"name": "main", "image": "main"}]},
        }))
        .await?;
    let toleration = r#"[{"op": "add", "path": "/spec/tolerations/-", "value": {"key": "stowplan.dev/exclusive", "operator": "Exists"}}]"#;
    let pod = ["-n", &*space.name, "patch", "pod", "plain", "--type=json", "-p", toleration];
    let added = world.kubectl(&pod, "").await?;
    ensure!(
        !added.success && added.err.contains("ValidatingAdmissionPolicy 'stowplan-tolerations'"),
        "{}",
        added.err
    );

    let key = ["-n", &*space.name, "annotate", "pod", "plain", "streams.ibm.com/host=east"];
    let annotated = world.kubectl(&key, "").await?;
    ensure!(annotated.success && annotated.err.contains("Warning: "), "{}", annotated.err);

    let account = format!("--as=system:serviceaccount:{}:stowplan-controller", running.namespace());
    let label = ["label", "node", "east", "owner=controller", &account];
    let labelled = world.kubectl(&label, "").await?;
    ensure!(
        !labelled.success
            && labelled.err.contains("ValidatingAdmissionPolicy 'stowplan-controller-nodes'"),
        "{}",
        labelled.err
    );
    Ok(())
}
