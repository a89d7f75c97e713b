//! Coscheduling in a cluster whose Tekton is old.

use std::sync::Arc;

use anyhow::Result;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use testbed::tekton;

use crate::coschedule::group::group_of;
use crate::world::{World, object, one_of, owned_by, pod, same, settled};

const VERSION: &str = "tekton.dev/v1beta1";

/// Tekton's kinds are installed while stowplan runs, and only in `v1beta1`, which preceded `v1`.
pub(crate) async fn a_tekton_that_serves_v1beta1_alone(world: Arc<World>) -> Result<()> {
    tekton::install_old(&world.client).await?;
    let space = world.namespace("old-tekton").await?;
    let spec = json!({"pipelineSpec": {"tasks": [{"name": "one"}, {"name": "two"}]}});
    let mut run = object(VERSION, "PipelineRun", "ci", &spec);
    run["metadata"]["annotations"] = json!({"stowplan.dev/coschedule": "pipelineruns"});
    let run = space.created(&run).await?;
    let mut pods = Vec::new();
    for name in ["one", "two"] {
        let mut task_run = object(VERSION, "TaskRun", &format!("ci-{name}"), &json!({}));
        task_run["metadata"]["labels"] = json!({"tekton.dev/pipelineTask": name});
        task_run["metadata"]["ownerReferences"] = owned_by(&run);
        let task_run = space.created(&task_run).await?;
        let owned = json!({"metadata": {"ownerReferences": owned_by(&task_run)}});
        pods.push(pod(&format!("ci-{name}-pod"), &owned));
    }
    let is_member = async || Ok(group_of(&space.admitted(&pods[0]).await?).is_some());
    settled("the pods of the run to be members", is_member, |is_one| *is_one).await?;
    let mut nodes = Vec::new();
    for pod in &pods {
        nodes.push(space.node_of_new(pod).await?);
    }
    one_of(nodes)?;
    same(&space.names::<StatefulSet>().await?.len(), &1)?;
    space.kubectl("delete pipelinerun ci").await?;
    let left =
        async || Ok([space.names::<StatefulSet>().await?, space.names::<Pod>().await?].concat());
    settled("nothing of the run to be left", left, Vec::is_empty).await.map(drop)
}
