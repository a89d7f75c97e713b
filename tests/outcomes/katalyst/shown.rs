//! What `plan` and `check` show of a cluster.

use std::sync::Arc;

use anyhow::{Result, ensure};

use crate::katalyst::gates::two_servers;
use crate::katalyst::rig::{Rig, has};
use crate::world::{World, same};

pub(crate) async fn plan_and_check_show_the_numa_nodes(world: Arc<World>) -> Result<()> {
    let rig = Rig::start(&world, "a-picture", 1).await?;
    let (space, node) = (&rig.space.name, &rig.nodes[0]);
    let [first, second] = two_servers(&rig).await?;
    rig.report(0, &[(0, 0, &[&first]), (0, 1, &[&second]), (1, 2, &[&first])]).await?;
    rig.labelled(0, Some("3")).await?;
    rig.create_gated("worker", "worker", &[], &["ps"]).await?;
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

    let said = world.stowplan(&["check", "pod/worker", "-n", space], "").await?;
    same(&said.success, &false)?;
    has(&said.out, &zones)?;
    has(&said.out, &["no NUMA node is feasible for it", "the nodes enforce its NUMA affinity"])?;

    let pod = rig.pod("next", "worker", &[], &["ps"]).to_string();
    let plan = ["plan", "--live", "-n", space, "-f", "-"];
    let said = world.stowplan(&plan, &pod).await?.succeeded()?;
    has(&said, &zones)?;

    let said = world.stowplan(&["check", &format!("node/{node}")], "").await?;
    has(&said.out, &["NUMA nodes (topology policy SingleNUMANodeContainerLevel)"])?;
    has(&said.out, &[&format!("socket 0  | NUMA 0  | {space}/ps-0\n")])?;
    has(&said.out, &[&format!("          | NUMA 1  | {space}/ps-1\n")])?;

    rig.space.delete("ps-1").await?;
    rig.runs("worker").await?;
    let said = world.stowplan(&plan, &pod).await?.succeeded()?;
    has(&said, &["          | NUMA 1  | yes"])?;
    ensure!(!said.contains("0 of "), "{said}");
    rig.withdraw(0).await
}
