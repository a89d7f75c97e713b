//! Pods that wait for a feasible NUMA node.

use std::sync::Arc;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::katalyst::rig::{AFFINITY, ANTI_AFFINITY, EMPTY, LET_GO, Rig, annotation, has};
use crate::world::{World, same};

/// Two parameter servers on the node, which avoid nothing and wait for nothing.
pub(crate) async fn two_servers(rig: &Rig) -> Result<[Pod; 2]> {
    let mut servers = Vec::new();
    for name in ["ps-0", "ps-1"] {
        let pod = rig.create(name, "ps", &[], &[]).await?;
        same(&crate::katalyst::rig::is_gated(&pod), &false)?;
        servers.push(rig.runs(name).await?.0);
    }
    servers.try_into().map_err(|_| anyhow::anyhow!("two pods"))
}

pub(crate) async fn a_pod_waits_until_a_numa_node_is_feasible(world: Arc<World>) -> Result<()> {
    let rig = Rig::start(&world, "waits", 1).await?;
    rig.report(0, EMPTY).await?;
    rig.labelled(0, Some("2")).await?;
    let [first, second] = two_servers(&rig).await?;
    rig.report(0, &[(0, 0, &[&first]), (1, 1, &[&second])]).await?;
    rig.create_gated("worker", "worker", &[], &["ps"]).await?;
    let note = rig.event("NumaWaiting", "worker").await?;
    let space = &rig.space.name;
    let is_there = format!("2, such as: the pod avoids {space}/ps-0, which is there, by role=ps");
    has(&note, &[&is_there, "it waits until"])?;
    same(&rig.is_waiting("worker").await?, &true)?;
    // The report still names the pod.
    rig.space.delete("ps-1").await?;
    let pod = rig.let_go("worker").await?;
    ensure!(annotation(&pod, LET_GO).is_some(), "{:?}", pod.metadata.annotations);
    ensure!(annotation(&pod, ANTI_AFFINITY).is_some(), "{:?}", pod.metadata.annotations);
    let note = rig.event("NumaFeasible", "worker").await?;
    has(&note, &[&format!("NUMA node 1 of node {} is feasible", rig.nodes[0])])?;
    same(&rig.runs("worker").await?.1, &rig.nodes[0])?;
    rig.withdraw(0).await
}

/// The default scheduler knows nothing of NUMA nodes.
pub(crate) async fn the_scheduler_is_left_the_feasible_nodes(world: Arc<World>) -> Result<()> {
    let rig = Rig::start(&world, "left", 2).await?;
    rig.report(0, EMPTY).await?;
    rig.labelled(0, Some("2")).await?;
    let [first, second] = two_servers(&rig).await?;
    rig.report(0, &[(0, 0, &[&first]), (1, 1, &[&second])]).await?;
    rig.report(1, EMPTY).await?;
    rig.labelled(1, Some("2")).await?;
    for worker in ["a", "b", "c", "d"] {
        rig.create(worker, "worker", &[], &["ps"]).await?;
    }
    for worker in ["a", "b", "c", "d"] {
        same(&rig.runs(worker).await?.1, &rig.nodes[1])?;
    }
    rig.withdraw(0).await?;
    rig.withdraw(1).await
}

pub(crate) async fn conflicting_pods_start_one_after_the_other(world: Arc<World>) -> Result<()> {
    let rig = Rig::start(&world, "apart", 1).await?;
    rig.report(0, EMPTY).await?;
    rig.labelled(0, Some("2")).await?;
    for name in ["a", "b", "c"] {
        rig.create_gated(name, "server", &[], &["server"]).await?;
    }
    let (first, _) = rig.runs("a").await?;
    let space = &rig.space.name;
    // Wherever the first one is, another beside it would be rejected.
    let note = rig.event("NumaWaiting", "b").await?;
    has(&note, &[&format!("{space}/a is there")])?;
    for name in ["b", "c"] {
        same(&rig.is_waiting(name).await?, &true)?;
    }
    rig.report(0, &[(0, 0, &[]), (1, 1, &[&first])]).await?;
    let (second, _) = rig.runs("b").await?;
    has(&rig.event("NumaFeasible", "b").await?, &["NUMA node 0 of node"])?;
    rig.report(0, &[(0, 0, &[&second]), (1, 1, &[&first])]).await?;
    rig.event("NumaWaiting", "c").await?;
    same(&rig.is_waiting("c").await?, &true)?;
    rig.space.delete("a").await?;
    rig.runs("c").await?;
    has(&rig.event("NumaFeasible", "c").await?, &["NUMA node 1 of node"])?;
    rig.withdraw(0).await
}

pub(crate) async fn a_pod_with_another_uid_is_ignored(world: Arc<World>) -> Result<()> {
    let rig = Rig::start(&world, "uid", 2).await?;
    rig.create("ps", "ps", &[], &[]).await?;
    let (server, node) = rig.runs("ps").await?;
    let of_server = usize::from(node == rig.nodes[1]);
    let mut earlier = server.clone();
    earlier.metadata.uid = Some("11111111-2222-3333-4444-555555555555".to_owned());
    // The node of the server has one NUMA node, and the other one's report names an earlier pod.
    rig.report(of_server, &[(0, 0, &[&server])]).await?;
    rig.report(1 - of_server, &[(0, 0, &[&earlier])]).await?;
    rig.create_gated("worker", "worker", &[], &["ps"]).await?;
    rig.let_go("worker").await?;
    let other = &rig.nodes[1 - of_server];
    let note = rig.event("NumaFeasible", "worker").await?;
    has(&note, &[&format!("NUMA node 0 of node {other} is feasible")])?;
    // An affinity is not met by it either.
    let mut mate = rig.pod("mate", "worker", &["ps"], &[]);
    mate["spec"]["nodeSelector"]["kubernetes.io/hostname"] = json!(other);
    rig.space.pod(&mate).await?;
    has(&rig.event("NumaWaiting", "mate").await?, &["no pod that the affinity asks for is there"])?;
    rig.withdraw(0).await?;
    rig.withdraw(1).await
}

pub(crate) async fn null_is_refused(world: Arc<World>) -> Result<()> {
    let rig = Rig::start(&world, "null", 0).await?;
    for (key, level) in [
        (AFFINITY, "dedicated_cores"),
        (ANTI_AFFINITY, "dedicated_cores"),
        // It crashes them on every pod.
        (AFFINITY, "shared_cores"),
    ] {
        let mut pod = rig.pod("p", "worker", &[], &[]);
        pod["metadata"]["annotations"][key] = json!(" null ");
        pod["metadata"]["annotations"]["katalyst.kubewharf.io/qos_level"] = json!(level);
        let said = rig.space.create(&pod).await?;
        ensure!(!said.success, "{}", said.out);
        has(&said.err, &["stowplan: ", key, "null crashes Katalyst's agents and schedulers"])?;
    }
    same(&rig.space.pods().list(&Default::default()).await?.items.len(), &0)
}
