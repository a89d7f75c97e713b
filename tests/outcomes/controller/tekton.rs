//! Coscheduling in a cluster whose Tekton is old.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use testbed::tekton;

use crate::world::{Space, World, one_of, pod, same, settled};

const MEMBER: &str = "stowplan.dev/coschedule-member";

fn objects(space: &Space, kind: &str) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("tekton.dev", "v1beta1", kind));
    Api::namespaced_with(space.world.client.clone(), &space.name, &kind)
}

/// Creates an object as Tekton's controller would; returns an owner reference to it.
async fn made(space: &Space, kind: &str, mut object: Value) -> Result<Value> {
    object["apiVersion"] = json!("tekton.dev/v1beta1");
    object["kind"] = json!(kind);
    let object: DynamicObject = serde_json::from_value(object)?;
    let made = objects(space, kind).create(&PostParams::default(), &object).await?;
    let uid = made.uid().context("it has no UID")?;
    Ok(json!([{
        "apiVersion": "tekton.dev/v1beta1", "kind": kind, "name": made.name_any(), "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    }]))
}

/// Tekton's kinds are installed while stowplan runs, and only in `v1beta1`, which preceded `v1`.
pub(crate) async fn a_tekton_that_serves_v1beta1_alone(world: Arc<World>) -> Result<()> {
    tekton::install_old(&world.client).await?;
    let space = world.namespace("old-tekton").await?;
    let run = json!({
        "metadata": {"name": "ci", "annotations": {"stowplan.dev/coschedule": "pipelineruns"}},
        "spec": {"pipelineSpec": {"tasks": [{"name": "one"}, {"name": "two"}]}},
    });
    let run = made(&space, "PipelineRun", run).await?;
    let mut pods = Vec::new();
    for name in ["one", "two"] {
        let metadata = json!({
            "name": format!("ci-{name}"), "ownerReferences": run,
            "labels": {"tekton.dev/pipelineTask": name},
        });
        let task_run = made(&space, "TaskRun", json!({"metadata": metadata, "spec": {}})).await?;
        let owned = json!({"metadata": {"ownerReferences": task_run}});
        pods.push(pod(&format!("ci-{name}-pod"), &owned));
    }
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let trial: Pod = serde_json::from_value(pods[0].clone())?;
    let is_member = async || {
        let admitted = space.pods().create(&dry_run, &trial).await?;
        Ok(admitted.labels().contains_key(MEMBER))
    };
    settled("the pods of the run to be members", is_member, |is_one| *is_one).await?;
    let mut nodes = Vec::new();
    for pod in &pods {
        nodes.push(space.node_of_new(pod).await?);
    }
    one_of(nodes)?;
    let left = async || {
        let sets = space.api::<StatefulSet>().list(&ListParams::default()).await?.items.len();
        Ok((sets, space.pods().list(&ListParams::default()).await?.items.len()))
    };
    same(&left().await?.0, &1)?;
    space.kubectl("delete pipelinerun ci").await?;
    settled("nothing of the run to be left", left, |left| *left == (0, 0)).await?;
    Ok(())
}
