//! Pods that were admitted while the webhook was stopped, and unschedulable groups that the scheduler would
//! not look at again for minutes.

use std::sync::Arc;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use serde_json::json;
use testbed::workload;

use crate::controller::nodes::space_on;
use crate::world::{World, appears, element, one_of, requesting, settled, workload_of};

pub(crate) async fn pods_admitted_meanwhile_are_reported_and_recreated(
    world: Arc<World>,
) -> Result<()> {
    let mut installation = world.alone().await?;
    let (space, nodes) = space_on(&world, "repair", 2).await?;
    installation.stop_webhook().await?;
    // It already has a node: an event reports it, and it is not deleted.
    let mut running = element("job", "running", &[("host", &nodes[0])]);
    running["spec"]["nodeSelector"] = json!({"streams.ibm.com/hostpool": "repair"});
    space.node_of_new(&running).await?;
    // It was placed, and then another webhook took the affinity away.
    let mut stripped = requesting(element("job", "stripped", &[("host", &nodes[0])]), "1000");
    let record = json!({"v": 1, "streams": [format!("host={0}: node {0}", nodes[0])], "more": 0});
    stripped["metadata"]["annotations"]["stowplan.dev/placement"] = json!(record.to_string());
    space.pod(&stripped).await?;
    // It is unschedulable, and its owner creates another pod when it is deleted.
    let waiting = requesting(element("job", "waiting", &[("host", &nodes[1])]), "1000");
    space.created(&workload_of("ReplicaSet", "waiting", 1, &waiting)).await?;
    let of_set = async || space.living("streams.ibm.com/pe=waiting").await;
    let first = appears("the set's pod", async || Ok(of_set().await?.pop())).await?.name_any();
    installation.start_webhook().await?;
    drop(installation);

    let lacking = "lacks: required node affinity metadata.name In [repair-0]";
    space.expect_event(&["Pod/running NotPlaced ", lacking]).await?;
    space.expect_event(&["Pod/stripped PlacementRemoved ", "spec."]).await?;
    // Not before it has been pending for a minute.
    appears("the waiting pod to be made again, placed", async || {
        let pods = of_set().await?.into_iter().filter(|pod| pod.name_any() != first);
        Ok(pods.into_iter().find(|pod| pod.annotations().contains_key("stowplan.dev/placement")))
    })
    .await?;
    space.event(&format!("Pod/{first} "), "Recreated").await?;
    let still = space.pods().get("running").await?;
    ensure!(still.metadata.deletion_timestamp.is_none(), "a pod with a node must not be deleted");
    Ok(())
}

const FINALIZER: &str = "test.stowplan.dev/slow";

/// The replacements of a drained group wait for pods that are still ending; when those are gone,
/// the scheduler would not look at them for five minutes.
pub(crate) async fn a_drained_group_runs_again(world: Arc<World>) -> Result<()> {
    let (space, _) = space_on(&world, "drain", 2).await?;
    for name in ["a", "b", "c"] {
        let mut pod = element("job", name, &[("host-colocation", "together")]);
        pod["spec"]["nodeSelector"] = json!({"streams.ibm.com/hostpool": "drain"});
        pod["metadata"]["finalizers"] = json!([FINALIZER]);
        space.created(&workload_of("Deployment", name, 1, &pod)).await?;
    }
    let group = "app=streams";
    let before = one_of(space.nodes_of_all(group, 3).await?)?;
    world.plane.cordon(&before).await?;
    let living = async || {
        let pods = space.living(group).await?;
        Ok(pods.iter().map(|pod| pod.name_any()).collect::<Vec<_>>())
    };
    let old = living().await?;
    for pod in &old {
        space.pods().delete(pod, &DeleteParams::default()).await?;
    }
    let are_new = |pods: &Vec<String>| pods.len() == 3 && pods.iter().all(|pod| !old.contains(pod));
    for pod in settled("three new pods", living, are_new).await? {
        workload::unschedulable(&world.client, &space.name, &pod).await?;
    }
    for pod in &old {
        space.change::<Pod>(pod, json!({"metadata": {"finalizers": null}})).await?;
    }
    // The scheduler alone takes 300 s.
    let after = one_of(space.nodes_of_all(group, 3).await?)?;
    ensure!(after != before, "on {after} still");
    Ok(())
}
