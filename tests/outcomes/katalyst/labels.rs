//! The labels of nodes.

use std::sync::Arc;

use anyhow::Result;
use serde_json::json;

use crate::katalyst::rig::{EMPTY, Rig, has};
use crate::world::{World, same};

pub(crate) async fn the_label_follows_the_report(world: Arc<World>) -> Result<()> {
    let rig = Rig::start(&world, "label", 1).await?;
    rig.report(0, &[(0, 0, &[]), (0, 1, &[]), (1, 2, &[]), (1, 3, &[])]).await?;
    rig.labelled(0, Some("4")).await?;
    rig.report(0, EMPTY).await?;
    rig.labelled(0, Some("2")).await?;
    let no_agent = json!({"conditions": [{"type": "AgentReady", "status": "False"}]});
    testbed::katalyst::report_status(&world.client, &rig.nodes[0], no_agent).await?;
    rig.labelled(0, None).await?;
    rig.report(0, EMPTY).await?;
    rig.labelled(0, Some("2")).await?;
    // What a user sets is corrected.
    world.plane.label(&rig.nodes[0], crate::katalyst::rig::NUMA_ZONES, Some("8")).await?;
    rig.labelled(0, Some("2")).await?;
    rig.withdraw(0).await?;
    rig.labelled(0, None).await
}

pub(crate) async fn a_node_that_loses_its_report_is_not_chosen(world: Arc<World>) -> Result<()> {
    let rig = Rig::start(&world, "lost", 2).await?;
    for node in 0..2 {
        rig.report(node, EMPTY).await?;
        rig.labelled(node, Some("2")).await?;
    }
    rig.withdraw(1).await?;
    rig.labelled(1, None).await?;
    for name in ["a", "b", "c"] {
        rig.create_gated(name, "worker", &[], &["ps"]).await?;
    }
    for name in ["a", "b", "c"] {
        same(&rig.runs(name).await?.1, &rig.nodes[0])?;
    }
    // One that needs this node waits for its report.
    let mut pod = rig.pod("d", "worker", &[], &["ps"]);
    pod["spec"]["nodeSelector"]["kubernetes.io/hostname"] = json!(rig.nodes[1]);
    rig.space.pod(&pod).await?;
    has(&rig.event("NumaWaiting", "d").await?, &["no NUMA node is feasible yet"])?;
    same(&rig.is_waiting("d").await?, &true)?;
    rig.report(1, EMPTY).await?;
    same(&rig.runs("d").await?.1, &rig.nodes[1])?;
    rig.withdraw(0).await?;
    rig.withdraw(1).await
}

pub(crate) async fn rubbish_in_a_report_is_reported(world: Arc<World>) -> Result<()> {
    let rig = Rig::start(&world, "rubbish", 1).await?;
    let node = &rig.nodes[0];
    let zones = json!([
        {"type": "Numa", "name": "x"}, 7, {"type": "Numa", "name": "99"},
        {"type": "Numa", "name": "1", "allocations": [{"consumer": "no/pod"}, {"consumer": null}, []]},
    ]);
    let socket = json!([{"type": "Socket", "name": "0", "children": zones}, "é", null]);
    let status = json!({"topologyZone": socket, "conditions": {"type": []}});
    testbed::katalyst::report_status(&world.client, node, status).await?;
    rig.labelled(0, Some("1")).await?;
    let note = rig.event("UnreadableNodeResource", node).await?;
    has(&note, &["its CustomNodeResource is read without"])?;
    let rubbish = json!({"topologyZone": "rubbish", "conditions": null});
    testbed::katalyst::report_status(&world.client, node, rubbish).await?;
    rig.labelled(0, None).await?;
    rig.report(0, EMPTY).await?;
    rig.labelled(0, Some("2")).await?;
    rig.withdraw(0).await
}
