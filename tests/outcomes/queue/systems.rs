//! Pods of the other systems in a queue.

use std::sync::Arc;

use anyhow::Result;
use serde_json::{Value, json};
use testbed::kueue::{self, VERSION};

use super::lane::{Lane, member};
use crate::mpi::cluster::{launcher, worker_set};
use crate::world::{
    World, job, node, object, of_job, one_of, requesting, same, settled, workload_of,
};

/// The launcher's gate and Kueue's add up; workers are a StatefulSet, of which Kueue admits all or none.
pub(crate) async fn workers_and_their_launcher(world: Arc<World>) -> Result<()> {
    let lane = Lane::new(&world, "mpi", "0").await?;
    let space = &lane.space;
    let mut workers = worker_set("pi-worker", "pi", 2, &[]);
    let requests = json!({"requests": {"cpu": "1"}});
    workers["spec"]["template"]["spec"]["containers"][0]["resources"] = requests;
    space.created(&workers).await?;
    space.created(&launcher("pi", "pi", &[])).await?;
    let suspended = async || Ok(space.get("job pi").await?["spec"]["suspend"] == true);
    // A launcher without requests needs no quota.
    settled("the launcher to be admitted", suspended, |suspended| !*suspended).await?;
    space.gated_launcher("pi").await?;
    lane.set_quota("2").await?;
    space.job_succeeded("pi").await
}

/// The elements of a job wait for each other behind stowplan's gate, and for quota behind Kueue's.
pub(crate) async fn a_streams_job(world: Arc<World>) -> Result<()> {
    let lane = Lane::new(&world, "streams", "1500m").await?;
    let space = &lane.space;
    let elements = ["a", "b"].map(|name| json!({"name": name, "operators": []}));
    space.created(&job("j", &json!({"processingElements": elements}))).await?;
    for name in ["a", "b"] {
        space.pod(&requesting(of_job("j", name), "1")).await?;
    }
    let bound = async || {
        let pods = space.living("streams.ibm.com/job=j").await?;
        Ok(pods.iter().filter(|pod| node(pod).is_some()).count())
    };
    settled("one element to run", bound, |bound| *bound == 1).await?;
    lane.set_quota("2").await?;
    settled("both elements to run", bound, |bound| *bound == 2).await.map(drop)
}

/// Kueue chooses a host for each workload. The pods of a group follow the first of them.
pub(crate) async fn hosts_of_a_topology(world: Arc<World>) -> Result<()> {
    let levels = json!({"levels": [{"nodeLabel": "kubernetes.io/hostname"}]});
    let topology = object(VERSION, "Topology", "hosts", &levels);
    let mut flavor = kueue::resource_flavor("by-host", &json!({"kubernetes.io/os": "linux"}));
    flavor["spec"]["topologyName"] = json!("hosts");
    world.plane.apply(&[topology, flavor])?;
    let lane = Lane::with(&world, "topology", "20", "by-host", &json!({})).await?;
    let space = &lane.space;
    let pod: Value = member("many", "1");
    space.created(&workload_of("Deployment", "many", 3, &pod)).await?;
    one_of(space.nodes_of_all("app=many", 3).await?)?;
    let pods = space.living("app=many").await?;
    for pod in &pods {
        let selector = pod.spec.as_ref().and_then(|spec| spec.node_selector.clone());
        let host = selector.and_then(|of| of.get("kubernetes.io/hostname").cloned());
        same(&host, &node(pod))?;
    }
    Ok(())
}
