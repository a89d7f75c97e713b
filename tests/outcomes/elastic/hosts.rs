//! Host constraints that need more nodes than there are, and MPI clusters.

use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testbed::karpenter::POOL;

use super::lane::Lane;
use crate::mpi::cluster::{launcher, worker_set};
use crate::world::{World, element, requesting, same};

/// An element of the job `job`, which may use the nodes of a lane.
fn of(lane: &str, name: &str, cpu: &str, annotations: &[(&str, &str)]) -> Value {
    let mut pod = requesting(element("job", name, annotations), cpu);
    pod["spec"]["nodeSelector"] = json!({POOL: lane});
    pod
}

pub(crate) async fn elements_apart(world: Arc<World>) -> Result<()> {
    let lane = Lane::new(&world, "apart", &[2000; 3], "Never").await?;
    let names = ["a", "b", "c", "d", "e"];
    for name in names {
        lane.space.pod(&of("apart", name, "500m", &[("host-exlocation", "apart")])).await?;
    }
    let mut nodes = Vec::new();
    for name in names {
        nodes.push(lane.space.node_of(name).await?);
    }
    nodes.sort();
    nodes.dedup();
    ensure!(nodes.len() == names.len(), "{nodes:?}");
    same(&lane.grown().await?, &vec!["small".to_owned(); 2])
}

pub(crate) async fn an_element_alone(world: Arc<World>) -> Result<()> {
    let lane = Lane::new(&world, "alone", &[2000; 2], "Never").await?;
    let mut taken = Vec::new();
    for name in ["a", "b"] {
        taken.push(lane.space.node_of_new(&of("alone", name, "1500m", &[])).await?);
    }
    let alone = of("alone", "alone", "500m", &[("host-isolation", "Sink")]);
    let node = lane.space.node_of_new(&alone).await?;
    ensure!(!taken.contains(&node), "{node} is one of {taken:?}");
    same(&lane.grown().await?, &vec!["small".to_owned()])
}

pub(crate) async fn workers_and_their_launcher(world: Arc<World>) -> Result<()> {
    let lane = Lane::new(&world, "mpi", &[100], "Never").await?;
    let here = |mut workload: Value, cpu: &str| {
        let spec = &mut workload["spec"]["template"]["spec"];
        spec["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
        spec["nodeSelector"] = json!({POOL: "mpi"});
        spec["affinity"] = Value::Null;
        workload
    };
    lane.space.created(&here(worker_set("workers", "pi", 4, &[]), "1")).await?;
    lane.space.created(&here(launcher("launch", "pi", &[]), "500m")).await?;
    lane.space.workers_run("pi", 4).await?;
    lane.space.job_succeeded("launch").await?;
    let shapes = lane.grown().await?;
    ensure!(shapes.len() <= 2, "{shapes:?}");
    Ok(())
}
