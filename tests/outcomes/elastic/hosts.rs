//! Host constraints that need more nodes than there are, and MPI clusters.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testbed::karpenter::POOL;

use super::lane::Lane;
use crate::mpi::cluster::{launcher, worker_set};
use crate::world::{World, element, job, of_job, of_operator, requesting, same, settled};

/// An element of the job `job`, which may use the nodes of a lane.
fn of(lane: &str, name: &str, cpu: &str, annotations: &[(&str, &str)]) -> Value {
    let mut pod = requesting(element("job", name, annotations), cpu);
    pod["spec"]["nodeSelector"] = json!({POOL: lane});
    pod
}

/// The job has more elements to keep apart than there are nodes with its tag: none runs before all can.
pub(crate) async fn a_job_that_lacks_nodes(world: Arc<World>) -> Result<()> {
    let lane = Lane::new(&world, "job", &[2000; 2], "Never").await?;
    let names = ["a", "b", "c", "d"];
    let apart = |name: &&str| {
        of_operator(name, json!({"host": {"pool": "Here"}, "hostExlocation": ["apart"]}))
    };
    let elements: Vec<_> = names.iter().map(apart).collect();
    let pools = json!([{"name": "Here", "tags": ["job"]}]);
    lane.space
        .created(&job("trades", &json!({"pools": pools, "processingElements": elements})))
        .await?;
    for name in names {
        lane.space.pod(&requesting(of_job("trades", name), "1500m")).await?;
    }
    let mut nodes = Vec::new();
    for name in names {
        nodes.push(lane.space.node_of(&format!("trades-{name}")).await?);
    }
    nodes.sort();
    nodes.dedup();
    ensure!(nodes.len() == names.len(), "{nodes:?}");
    asks_no_more(&lane).await?;
    same(&lane.grown().await?, &vec!["small".to_owned(); 2])
}

/// A pool with a size gets its nodes, all at once, and one more when its size grows.
pub(crate) async fn a_pool_that_lacks_nodes(world: Arc<World>) -> Result<()> {
    let lane = Lane::new(&world, "pool", &[2000], "Never").await?;
    lane.space.host_pool("fast", json!({"size": 3, "tags": ["pool"]})).await?;
    let names = ["a", "b", "c"];
    for name in names {
        // Of another kind than the others of the lane: they may select no node.
        let pod = element("job", name, &[("host-pool", "fast"), ("host-exlocation", "x")]);
        lane.space.pod(&requesting(pod, "1500m")).await?;
    }
    for name in names {
        lane.space.node_of(name).await?;
    }
    asks_no_more(&lane).await?;
    same(&lane.grown().await?, &vec!["small".to_owned(); 2])?;
    let grows = lane.space.patch("hostpool/fast", "merge", &json!({"spec": {"size": 4}})).await?;
    ensure!(grows.success, "{}", grows.err);
    let pod = element("job", "d", &[("host-pool", "fast"), ("host-exlocation", "x")]);
    lane.space.node_of_new(&requesting(pod, "1500m")).await?;
    asks_no_more(&lane).await?;
    same(&lane.grown().await?, &vec!["small".to_owned(); 3])
}

/// Other pods get nodes when the taint of an exclusive node could have been copied to the template of its node
/// group: cluster-autoscaler does so after a minute.
pub(crate) async fn an_exclusive_pool_and_other_pods(world: Arc<World>) -> Result<()> {
    let lane = Lane::new(&world, "exclusive", &[2000], "Never").await?;
    let spec = json!({"size": 1, "tags": ["exclusive"], "exclusivity": "Exclusive"});
    lane.space.host_pool("mine", spec).await?;
    let pod = requesting(element("job", "a", &[("host-pool", "mine")]), "500m");
    lane.space.node_of_new(&pod).await?;
    tokio::time::sleep(Duration::from_secs(61)).await;
    let node = lane.space.node_of_new(&lane.pod("other", "500m", &json!({}))).await?;
    ensure!(node != "base-exclusive-0", "it is on the node of the pool");
    same(&lane.grown().await?, &vec!["small".to_owned()])
}

/// The pods that asked for nodes are gone.
async fn asks_no_more(lane: &Lane) -> Result<()> {
    let asking = async || Ok(lane.space.living("streams.stowplan.dev/scaling").await?.len());
    settled("no pod asks for a node", asking, |count| *count == 0).await?;
    Ok(())
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
