//! Cases of this suite alone: the release, and the chart's admission policies on it.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use testbed::tools::Kubernetes;

use crate::world::{World, has, kubeconfig_as, pod, requesting, same, settled};

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
    let all = async || Ok(policies.list(&ListParams::default()).await?.items);
    let is_checked = |policy: &ValidatingAdmissionPolicy| {
        policy.status.as_ref().is_some_and(|status| status.type_checking.is_some())
    };
    let found = settled("all to be checked", all, |found| found.iter().all(is_checked)).await?;
    ensure!(found.len() >= 5, "the chart has installed {} policies", found.len());
    for policy in found {
        let checked = policy.status.and_then(|status| status.type_checking);
        let warnings = checked.and_then(|checked| checked.expression_warnings);
        ensure!(warnings.iter().flatten().count() == 0, "{:?}: {warnings:?}", policy.metadata.name);
    }
    Ok(())
}

/// One that refuses, one that warns, and two that hold the controller's account.
pub(crate) async fn the_policies_of_the_chart_hold(world: Arc<World>) -> Result<()> {
    let running = world.installation.read().await;
    let space = world.namespace("policies").await?;
    space.created(&pod("plain", &json!({}))).await?;
    let toleration = json!({"key": "stowplan.dev/exclusive", "operator": "Exists"});
    let add = json!([{"op": "add", "path": "/spec/tolerations/-", "value": toleration}]);
    let added = space.patch("pod/plain", "json", &add).await?;
    added.refused_with(&["ValidatingAdmissionPolicy 'stowplan-tolerations'"])?;

    let key = ["-n", &*space.name, "annotate", "pod", "plain", "streams.ibm.com/host=east"];
    let annotated = world.kubectl(&key, "").await?;
    ensure!(annotated.success, "{}", annotated.err);
    has(&annotated.err, &["Warning: "])?;

    let account = format!("--as=system:serviceaccount:{}:stowplan-controller", running.namespace());
    let label = ["label", "node", "east", "owner=controller", &account];
    let labelled = world.kubectl(&label, "").await?;
    labelled.refused_with(&["ValidatingAdmissionPolicy 'stowplan-controller-nodes'"])?;

    // kubectl reads the subresource first, which the account may not.
    let account = format!("system:serviceaccount:{}:stowplan-controller", running.namespace());
    let kubeconfig = Kubeconfig::read_from(kubeconfig_as(&world.plane, &account)?)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let pods: Api<Pod> = Api::namespaced(Client::try_from(config)?, &space.name);
    let gates = json!({"spec": {"schedulingGates": [{"name": "example.com/gate"}]}});
    space.pod(&requesting(pod("held", &gates), "1m")).await?;
    let path = "/spec/containers/0/resources/requests/cpu";
    let more = serde_json::from_value(json!([{"op": "replace", "path": path, "value": "2m"}]))?;
    let more = Patch::<()>::Json(more);
    let resized = pods.patch_subresource("resize", "held", &PatchParams::default(), &more).await;
    let error = resized.err().context("it may resize every pod")?.to_string();
    has(&error, &["ValidatingAdmissionPolicy 'stowplan-controller-resizes'"])?;

    // Of the status, a field of pods of groups that wait.
    let mut member = pod("member", &gates);
    member["metadata"]["labels"] = json!({"stowplan.dev/coschedule-member": "none"});
    space.pod(&member).await?;
    let status = async |name: &str, field: &str, value: Value| {
        let add = json!([{"op": "add", "path": format!("/status/{field}"), "value": value}]);
        let patch = Patch::<()>::Json(serde_json::from_value(add)?);
        anyhow::Ok(pods.patch_subresource("status", name, &PatchParams::default(), &patch).await)
    };
    let nominated = status("member", "nominatedNodeName", json!("east")).await??;
    ensure!(nominated.status.is_some_and(|of| of.nominated_node_name.as_deref() == Some("east")));
    status("member", "nominatedNodeName", json!("")).await??;
    for (name, field, value) in [
        ("held", "nominatedNodeName", json!("east")),
        ("member", "phase", json!("Succeeded")),
        ("member", "message", json!("ended")),
    ] {
        let error = status(name, field, value).await?.err().context(field)?.to_string();
        has(&error, &["ValidatingAdmissionPolicy 'stowplan-controller-nominations'"])?;
    }
    Ok(())
}
