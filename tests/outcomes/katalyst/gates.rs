//! Pods that wait for a feasible NUMA node, groups whose affinity selects themselves (Katalyst has no
//! exception for the first pod), and what `plan` and `check` show of them.

use std::sync::Arc;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use crate::katalyst::rig::{
    AFFINITY, ANTI_AFFINITY, EMPTY, FOUR, LEADER_OF, LET_GO, Rig, annotation, is_gated, selector,
};
use crate::world::{World, has, same, settled};

/// Two parameter servers on the node, which avoid nothing and wait for nothing.
async fn two_servers(rig: &Rig) -> Result<[Pod; 2]> {
    let mut servers = Vec::new();
    for name in ["ps-0", "ps-1"] {
        let pod = rig.space.pod(&rig.pod(name, "ps", &[], &[])).await?;
        ensure!(!is_gated(&pod), "{name} is gated");
        servers.push(rig.runs(name).await?.0);
    }
    servers.try_into().map_err(|_| anyhow::anyhow!("two pods"))
}

pub(crate) async fn a_pod_waits_until_a_numa_node_is_feasible(world: Arc<World>) -> Result<()> {
    let rig = Rig::reported(&world, "waits", 1, EMPTY).await?;
    let [first, second] = two_servers(&rig).await?;
    rig.report(0, &[(0, 0, &[&first]), (1, 1, &[&second])]).await?;
    rig.create_gated(rig.pod("worker", "worker", &[], &["ps"])).await?;
    let note = rig.event("NumaWaiting", "worker").await?;
    let space = &rig.space.name;
    let is_there = format!("2, such as: the pod avoids {space}/ps-0, which is there, by role=ps");
    has(&note, &[&is_there, "it waits until"])?;
    same(&rig.is_waiting("worker").await?, &true)?;
    // The report still names the pod.
    rig.space.delete("ps-1").await?;
    let pod = rig.let_go("worker").await?;
    for key in [LET_GO, ANTI_AFFINITY] {
        ensure!(annotation(&pod, key).is_some(), "{:?}", pod.metadata.annotations);
    }
    let note = rig.event("NumaFeasible", "worker").await?;
    has(&note, &[&format!("NUMA node 1 of node {} is feasible", rig.nodes[0])])?;
    rig.run_on(&["worker"], 0).await?;
    rig.cleared().await
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
        rig.space.pod(&rig.pod(worker, "worker", &[], &["ps"])).await?;
    }
    rig.run_on(&["a", "b", "c", "d"], 1).await?;
    rig.cleared().await
}

/// The pods that are not gated.
async fn free(rig: &Rig) -> Result<Vec<String>> {
    let pods = rig.space.living("").await?;
    Ok(pods.iter().filter(|pod| !is_gated(pod)).map(|pod| pod.name_any()).collect())
}

/// Waits until one of the pods is not gated; returns its name.
async fn leader(rig: &Rig) -> Result<String> {
    let mut free = settled("a leader", async || free(rig).await, |free| !free.is_empty()).await?;
    same(&free.len(), &1)?;
    Ok(free.remove(0))
}

/// The pod is the first of its group, with its affinity put aside.
async fn is_leader(rig: &Rig, name: &str) -> Result<()> {
    let pod = rig.space.pods().get(name).await?;
    let own = selector(&rig.role("peer"), "numa");
    same(&annotation(&pod, LEADER_OF), &Some(&*own))?;
    same(&annotation(&pod, AFFINITY), &None)?;
    let note = rig.event("NumaLeader", name).await?;
    has(&note, &["it starts first, without the affinity", &rig.role("peer")])
}

pub(crate) async fn the_leader_of_three_starts_first(world: Arc<World>) -> Result<()> {
    let rig = Rig::reported(&world, "group", 2, FOUR).await?;
    let names = ["a", "b", "c"];
    for name in names {
        rig.space.pod(&rig.pod(name, "peer", &["peer"], &[])).await?;
    }
    let leader = leader(&rig).await?;
    is_leader(&rig, &leader).await?;
    let (pod, first) = rig.runs(&leader).await?;
    let others: Vec<_> = names.into_iter().filter(|name| *name != leader).collect();
    for name in &others {
        let note = rig.event("NumaWaiting", name).await?;
        has(&note, &["no pod that the affinity asks for is there"])?;
    }
    same(&free(&rig).await?, &vec![leader])?;
    let of_leader = rig.nodes.iter().position(|node| *node == first).unwrap_or_default();
    rig.report(of_leader, &[(0, 0, &[]), (0, 1, &[]), (1, 2, &[&pod]), (1, 3, &[])]).await?;
    for name in &others {
        let (pod, node) = rig.runs(name).await?;
        same(&node, &first)?;
        has(&rig.event("NumaFeasible", name).await?, &["NUMA node 2 of node"])?;
        same(&annotation(&pod, AFFINITY), &Some(&*selector(&rig.role("peer"), "numa")))?;
        same(&annotation(&pod, LEADER_OF), &None)?;
    }
    rig.cleared().await
}

pub(crate) async fn plan_and_check_show_the_numa_nodes(world: Arc<World>) -> Result<()> {
    let rig = Rig::start(&world, "a-picture", 1).await?;
    let (space, node) = (&rig.space.name, &rig.nodes[0]);
    let [first, second] = two_servers(&rig).await?;
    rig.report(0, &[(0, 0, &[&first]), (0, 1, &[&second]), (1, 2, &[&first])]).await?;
    rig.labelled(0, Some("3")).await?;
    rig.create_gated(rig.pod("worker", "worker", &[], &["ps"])).await?;
    rig.event("NumaWaiting", "worker").await?;

    let avoided =
        |pod: &str| format!("no: the pod avoids {space}/{pod}, which is there, by role=ps");
    let zones = [
        format!("node {node} (topology policy SingleNUMANodeContainerLevel)"),
        format!("socket 0  | NUMA 0  | {}", avoided("ps-0")),
        format!("          | NUMA 1  | {}", avoided("ps-1")),
        format!("socket 1  | NUMA 2  | {}", avoided("ps-0")),
    ];
    let zones: Vec<&str> = zones.iter().map(String::as_str).collect();

    let said = rig.space.stowplan("check pod/worker").await?;
    ensure!(!said.success, "{}", said.out);
    has(&said.out, &zones)?;
    has(&said.out, &["no NUMA node is feasible for it", "the nodes enforce its NUMA affinity"])?;

    let pod = rig.pod("next", "worker", &[], &["ps"]).to_string();
    let plan = ["plan", "--live", "-n", space, "-f", "-"];
    let said = world.stowplan(&plan, &pod).await?.succeeded()?;
    has(&said, &zones)?;

    let said = world.stowplan(&["check", &format!("node/{node}")], "").await?;
    let first = format!("socket 0  | NUMA 0  | {space}/ps-0\n");
    let second = format!("          | NUMA 1  | {space}/ps-1\n");
    let policy = "NUMA nodes (topology policy SingleNUMANodeContainerLevel)";
    has(&said.out, &[policy, &first, &second])?;

    rig.space.delete("ps-1").await?;
    rig.runs("worker").await?;
    let said = world.stowplan(&plan, &pod).await?.succeeded()?;
    has(&said, &["          | NUMA 1  | yes"])?;
    ensure!(!said.contains("0 of "), "{said}");
    rig.cleared().await
}
