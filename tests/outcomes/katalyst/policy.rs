//! Deadlines and modes of the policy, which hold for the cluster: each test has the installation alone.

use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testbed::control_plane::Installation;

use crate::katalyst::rig::{EMPTY, Rig, has, is_gated};
use crate::world::{World, same};

/// Changes some keys of the section `katalyst`.
async fn change(installation: &Installation, kept: &str, keys: &Value) -> Result<()> {
    let mut policy: Value = serde_saphyr::from_str(kept)?;
    for (key, value) in keys.as_object().into_iter().flatten() {
        policy["katalyst"][key] = value.clone();
    }
    installation.set_policy(&policy.to_string()).await
}

pub(crate) async fn deadlines_end_the_wait(world: Arc<World>) -> Result<()> {
    let installation = world.alone().await?;
    let kept = installation.policy().await?;
    change(&installation, &kept, &json!({"gateDeadline": "6s", "reportDeadline": "4s"})).await?;
    let outcome = deadlines(&world).await;
    installation.set_policy(&kept).await?;
    outcome
}

async fn deadlines(world: &Arc<World>) -> Result<()> {
    let rig = Rig::start(world, "late", 1).await?;
    rig.report(0, EMPTY).await?;
    rig.labelled(0, Some("2")).await?;
    rig.create_gated("a", "server", &[], &["server"]).await?;
    rig.runs("a").await?;
    rig.create_gated("lonely", "worker", &["nobody"], &[]).await?;
    rig.create_gated("b", "server", &[], &["server"]).await?;
    // No report names a.
    rig.let_go("b").await?;
    rig.let_go("lonely").await?;
    let note = rig.event("NumaDeadline", "lonely").await?;
    has(&note, &["within 6s (katalyst.gateDeadline)", "no pod that the affinity asks for"])?;
    rig.withdraw(0).await
}

pub(crate) async fn a_mode_that_does_not_enforce_removes_the_gates(
    world: Arc<World>,
) -> Result<()> {
    let installation = world.alone().await?;
    let kept = installation.policy().await?;
    let rig = Rig::start(&world, "mode", 1).await?;
    rig.report(0, EMPTY).await?;
    rig.labelled(0, Some("2")).await?;
    rig.create_gated("before", "worker", &["nobody"], &[]).await?;
    rig.event("NumaWaiting", "before").await?;
    same(&rig.is_waiting("before").await?, &true)?;
    change(&installation, &kept, &json!({"mode": "advisory"})).await?;
    let outcome = async {
        rig.let_go("before").await?;
        has(&rig.event("GateLifted", "before").await?, &["not enforced here any more"])?;
        let after = rig.create("after", "worker", &["nobody"], &[]).await?;
        ensure!(!is_gated(&after), "{:?}", after.spec);
        rig.labelled(0, Some("2")).await?;
        change(&installation, &kept, &json!({"mode": "disabled"})).await?;
        rig.labelled(0, None).await
    };
    let outcome = outcome.await;
    installation.set_policy(&kept).await?;
    outcome?;
    rig.labelled(0, Some("2")).await?;
    rig.withdraw(0).await
}
