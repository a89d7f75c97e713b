//! The labels of nodes.

use std::sync::Arc;

use anyhow::Result;
use serde_json::json;

use crate::katalyst::rig::{EMPTY, FOUR, NUMA_ZONES, Rig};
use crate::world::{Space, World, has};

pub(crate) async fn the_label_follows_the_report(world: Arc<World>) -> Result<()> {
    let rig = Rig::reported(&world, "label", 1, FOUR).await?;
    rig.report(0, EMPTY).await?;
    rig.labelled(0, Some("2")).await?;
    let no_agent = json!({"conditions": [{"type": "AgentReady", "status": "False"}]});
    testbed::katalyst::report_status(&world.client, &rig.nodes[0], no_agent).await?;
    rig.labelled(0, None).await?;
    rig.report(0, EMPTY).await?;
    rig.labelled(0, Some("2")).await?;
    // What a user sets is corrected.
    world.plane.label(&rig.nodes[0], NUMA_ZONES, Some("8")).await?;
    rig.labelled(0, Some("2")).await?;
    rig.withdraw(0).await?;
    rig.labelled(0, None).await
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
    // Nodes are in no namespace.
    let events = Space { world: Arc::clone(&world), name: "default".to_owned() };
    let note = events.event(&format!("Node/{node} "), "UnreadableNodeResource").await?;
    has(&note, &["its CustomNodeResource is read without"])?;
    let rubbish = json!({"topologyZone": "rubbish", "conditions": null});
    testbed::katalyst::report_status(&world.client, node, rubbish).await?;
    rig.labelled(0, None).await?;
    rig.report(0, EMPTY).await?;
    rig.labelled(0, Some("2")).await?;
    rig.cleared().await
}
