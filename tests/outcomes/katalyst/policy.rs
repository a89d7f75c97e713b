//! Deadlines and modes of the policy, which hold for the cluster: each test has the installation alone.

use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::katalyst::rig::{EMPTY, Rig, is_gated};
use crate::world::{World, has, with_policy};

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
