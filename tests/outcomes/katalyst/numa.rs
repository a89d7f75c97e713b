//! The labels of nodes, pods that wait for a feasible NUMA node, groups whose affinity selects themselves
//! (Katalyst has no exception for the first pod), what `plan` and `check` show of them, and deadlines and modes
//! of the policy, which hold for the cluster.

use std::sync::Arc;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::json;

use crate::katalyst::rig::{
    AFFINITY, ANTI_AFFINITY, EMPTY, FOUR, LEADER_OF, LET_GO, NUMA_ZONES, Rig, annotation, is_gated,
    selector,
};
use crate::world::{Space, World, has, one_of, same, settled, with_policy};

/// Also one that cannot be read as a whole, which an event says.
pub(crate) async fn the_label_follows_the_report(world: Arc<World>) -> Result<()> {
    let rig = Rig::reported(&world, "label", 1, FOUR).await?;
    let node = &rig.nodes[0];
    let zones = json!([
        {"type": "Numa", "name": "x"}, 7, {"type": "Numa", "name": "99"},
        {"type": "Numa", "name": "1", "allocations": [{"consumer": "no/pod"}, {"consumer": null}, []]},
    ]);
    let socket = json!([{"type": "Socket", "name": "0", "children": zones}, "é", null]);
    let recovers = async || {
        rig.report(0, EMPTY).await?;
        rig.labelled(0, Some("2")).await
    };
    recovers().await?;
    let reports = async |status, label| {
        testbed::katalyst::report_status(&world.client, node, status).await?;
        rig.labelled(0, label).await
    };
    reports(json!({"conditions": [{"type": "AgentReady", "status": "False"}]}), None).await?;
    recovers().await?;
    reports(json!({"topologyZone": socket, "conditions": {"type": []}}), Some("1")).await?;
    // Nodes are in no namespace.
    let events = Space { world: Arc::clone(&world), name: "default".to_owned() };
    let note = events.event(&format!("Node/{node} "), "UnreadableNodeResource").await?;
    has(&note, &["its CustomNodeResource is read without"])?;
    reports(json!({"topologyZone": "rubbish", "conditions": null}), None).await?;
    recovers().await?;
    // What a user sets is corrected.
    world.plane.label(node, NUMA_ZONES, Some("8")).await?;
    rig.labelled(0, Some("2")).await?;
    rig.withdraw(0).await?;
    rig.labelled(0, None).await
}

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

pub(crate) async fn the_leader_of_three_starts_first(world: Arc<World>) -> Result<()> {
    let rig = Rig::reported(&world, "group", 2, FOUR).await?;
    let names = ["a", "b", "c"];
    for name in names {
        rig.space.pod(&rig.pod(name, "peer", &["peer"], &[])).await?;
    }
    let free = async || {
        let mut pods = rig.space.living("").await?;
        pods.retain(|pod| !is_gated(pod));
        Ok(pods.iter().map(|pod| pod.name_any()).collect::<Vec<_>>())
    };
    let leader = one_of(settled("a leader", free, |free| !free.is_empty()).await?)?;
    // It is the first of its group, with its affinity put aside.
    let pod = rig.space.pods().get(&leader).await?;
    let own = selector(&rig.role("peer"), "numa");
    same(&annotation(&pod, LEADER_OF), &Some(&*own))?;
    same(&annotation(&pod, AFFINITY), &None)?;
    let note = rig.event("NumaLeader", &leader).await?;
    has(&note, &["it starts first, without the affinity", &rig.role("peer")])?;
    let (pod, first) = rig.runs(&leader).await?;
    let others: Vec<_> = names.into_iter().filter(|name| *name != leader).collect();
    for name in &others {
        let note = rig.event("NumaWaiting", name).await?;
        has(&note, &["no pod that the affinity asks for is there"])?;
    }
    same(&free().await?, &vec![leader])?;
    let of_leader = rig.nodes.iter().position(|node| *node == first).unwrap_or_default();
    rig.report(of_leader, &[(0, 0, &[]), (0, 1, &[]), (1, 2, &[&pod]), (1, 3, &[])]).await?;
    for name in &others {
        let (pod, node) = rig.runs(name).await?;
        same(&node, &first)?;
        has(&rig.event("NumaFeasible", name).await?, &["NUMA node 2 of node"])?;
        same(&annotation(&pod, AFFINITY), &Some(&*own))?;
        same(&annotation(&pod, LEADER_OF), &None)?;
    }
    rig.cleared().await
}

/// Until then `plan` and `check` show why none is.
pub(crate) async fn a_pod_waits_until_a_numa_node_is_feasible(world: Arc<World>) -> Result<()> {
    let rig = Rig::start(&world, "waits", 1).await?;
    let (space, node) = (&rig.space.name, &rig.nodes[0]);
    let [first, second] = two_servers(&rig).await?;
    rig.report(0, &[(0, 0, &[&first]), (0, 1, &[&second]), (1, 2, &[&first])]).await?;
    rig.labelled(0, Some("3")).await?;
    rig.create_gated(rig.pod("worker", "worker", &[], &["ps"])).await?;
    let note = rig.event("NumaWaiting", "worker").await?;
    let is_there = format!("3, such as: the pod avoids {space}/ps-0, which is there, by role=ps");
    has(&note, &[&is_there, "it waits until"])?;
    same(&rig.is_waiting("worker").await?, &true)?;

    let avoided =
        |pod: &str| format!("no: the pod avoids {space}/{pod}, which is there, by role=ps");
    let zones = [
        format!("node {node} (topology policy SingleNUMANodeContainerLevel)"),
        format!("socket 0  | NUMA 0  | {}", avoided("ps-0")),
        format!("          | NUMA 1  | {}", avoided("ps-1")),
        format!("socket 1  | NUMA 2  | {}", avoided("ps-0")),
    ];
    let zones: Vec<&str> = zones.iter().map(String::as_str).collect();

    let said = rig.space.stowplan("check pod/worker", "").await?;
    ensure!(!said.success, "{}", said.out);
    has(&said.out, &zones)?;
    has(&said.out, &["no NUMA node is feasible for it", "the nodes enforce its NUMA affinity"])?;

    let pod = rig.pod("next", "worker", &[], &["ps"]).to_string();
    let plan = async || rig.space.stowplan("plan --live -f -", &pod).await?.succeeded();
    has(&plan().await?, &zones)?;

    let check = format!("check node/{node}");
    let said = world.stowplan_with(world.plane.kubeconfig(), &check, "").await?;
    let first = format!("socket 0  | NUMA 0  | {space}/ps-0\n");
    let second = format!("          | NUMA 1  | {space}/ps-1\n");
    let policy = "NUMA nodes (topology policy SingleNUMANodeContainerLevel)";
    has(&said.out, &[policy, &first, &second])?;

    // The report still names the pod.
    rig.space.delete("ps-1").await?;
    let worker = rig.let_go("worker").await?;
    for key in [LET_GO, ANTI_AFFINITY] {
        ensure!(annotation(&worker, key).is_some(), "{:?}", worker.metadata.annotations);
    }
    let note = rig.event("NumaFeasible", "worker").await?;
    has(&note, &[&format!("NUMA node 1 of node {node} is feasible")])?;
    rig.run_on(&["worker"], 0).await?;
    let said = plan().await?;
    has(&said, &["          | NUMA 1  | yes"])?;
    ensure!(!said.contains("0 of "), "{said}");
    rig.cleared().await
}

pub(crate) async fn deadlines_end_the_wait(world: Arc<World>) -> Result<()> {
    let quick = json!({"katalyst": {"gateDeadline": "6s", "reportDeadline": "4s"}});
    with_policy(&world, quick, async || {
        let rig = Rig::reported(&world, "late", 1, EMPTY).await?;
        rig.create_gated(rig.pod("a", "server", &[], &["server"])).await?;
        rig.runs("a").await?;
        rig.create_gated(rig.pod("lonely", "worker", &["nobody"], &[])).await?;
        rig.create_gated(rig.pod("b", "server", &[], &["server"])).await?;
        // No report names a.
        rig.let_go("b").await?;
        rig.let_go("lonely").await?;
        let note = rig.event("NumaDeadline", "lonely").await?;
        let wanted = ["within 6s (katalyst.gateDeadline)", "no pod that the affinity asks for"];
        has(&note, &wanted)?;
        rig.cleared().await
    })
    .await
}

pub(crate) async fn a_mode_that_does_not_enforce_removes_the_gates(
    world: Arc<World>,
) -> Result<()> {
    let rig = Rig::reported(&world, "mode", 1, EMPTY).await?;
    rig.create_gated(rig.pod("before", "worker", &["nobody"], &[])).await?;
    rig.event("NumaWaiting", "before").await?;
    ensure!(rig.is_waiting("before").await?, "it does not wait");
    with_policy(&world, json!({"katalyst": {"mode": "advisory"}}), async || {
        rig.let_go("before").await?;
        has(&rig.event("GateLifted", "before").await?, &["not enforced here any more"])?;
        let after = rig.space.pod(&rig.pod("after", "worker", &["nobody"], &[])).await?;
        ensure!(!is_gated(&after), "{:?}", after.spec);
        rig.labelled(0, Some("2")).await
    })
    .await?;
    let disabled = json!({"katalyst": {"mode": "disabled"}});
    with_policy(&world, disabled, async || rig.labelled(0, None).await).await?;
    rig.labelled(0, Some("2")).await?;
    rig.cleared().await
}
