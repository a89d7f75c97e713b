//! Groups of StreamsJobs whose pods are created in any order, and the pools of a job.

use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use stowplan_core::systems::streams::api::HostPool;

use crate::controller::nodes::{all_unmarked, space_on};
use crate::controller::pool;
use crate::world::{Space, World, element, job, of_job, of_operator, one_of, same, workload_of};

/// A pod of a job's element on the nodes of one tag.
fn pod(job: &str, element: &str, tag: &str) -> Value {
    let mut pod = of_job(job, element);
    pod["spec"]["nodeSelector"] = json!({"streams.ibm.com/hostpool": tag});
    pod
}

/// The permutation with this number.
fn order(mut number: usize, names: &[&'static str]) -> Vec<&'static str> {
    let mut left = names.to_vec();
    let mut order = Vec::new();
    while !left.is_empty() {
        order.push(left.remove(number % left.len()));
        number /= left.len() + 1;
    }
    order
}

/// Creates the pods of `job` in this order, and returns their nodes.
async fn arrive(space: &Space, job: &str, order: &[&str], tag: &str) -> Result<Vec<String>> {
    for element in order {
        space.pod(&pod(job, element, tag)).await?;
    }
    let mut nodes = Vec::new();
    for element in order {
        nodes.push(space.node_of(&format!("{job}-{element}")).await?);
    }
    Ok(nodes)
}

async fn leave(space: &Space, job: &str, order: &[&str]) -> Result<()> {
    for element in order {
        space.delete(&format!("{job}-{element}")).await?;
    }
    Ok(())
}

/// With the token on only one member of each group, 16 of these 24 orders would wait for ever.
pub(crate) async fn two_groups_keep_apart_in_every_order(world: Arc<World>) -> Result<()> {
    let (space, _) = space_on(&world, "apart", 2).await?;
    let spec = json!({"processingElements": [
        of_operator("a1", json!({"hostColocation": ["a"], "hostExlocation": ["apart"]})),
        of_operator("a2", json!({"hostColocation": ["a"]})),
        of_operator("b1", json!({"hostColocation": ["b"], "hostExlocation": ["apart"]})),
        of_operator("b2", json!({"hostColocation": ["b"]})),
    ]});
    for number in 0..24 {
        let order = order(number, &["a1", "a2", "b1", "b2"]);
        let name = format!("apart-{number}");
        space.created(&job(&name, &spec)).await?;
        let nodes = arrive(&space, &name, &order, "apart").await?;
        let on = |group: &str| {
            let members = order.iter().zip(&nodes).filter(|(member, _)| member.starts_with(group));
            one_of(members.map(|(_, node)| node))
        };
        ensure!(on("a")? != on("b")?, "{order:?} on {nodes:?}");
        leave(&space, &name, &order).await?;
    }
    Ok(())
}

pub(crate) async fn a_jobs_pools_are_its_own(world: Arc<World>) -> Result<()> {
    let (space, nodes) = space_on(&world, "own", 3).await?;
    let spec = json!({
        "pools": [{"name": "My_Pool", "size": 2, "tags": ["own"], "exclusivity": "Exclusive"}],
        "processingElements": [
            of_operator("one", json!({"host": {"pool": "My_Pool", "index": 1}})),
            of_operator("any", json!({"host": {"pool": "My_Pool"}})),
        ],
    });
    space.created(&job("owner", &spec)).await?;
    let landed = arrive(&space, "owner", &["one", "any"], "own").await?;
    let name = one_of(space.names::<HostPool>().await?)?;
    ensure!(name.starts_with("owner-my-pool-"), "{name}");
    let members = pool::nodes(&pool::ready(&space, &name).await?);
    same(&landed[0], &members[1])?;
    ensure!(members.contains(&landed[1]), "{landed:?}");
    // Other pods may not use it.
    let other = element("other", "x", &[("host-pool", &name)]);
    space.create(&other).await?.refused_with(&["serves StreamsJob owner only"])?;
    // A contradiction is refused.
    let mut other = pod("owner", "one", "own");
    other["metadata"]["annotations"] = json!({"streams.ibm.com/host": nodes[0]});
    other["metadata"]["name"] = json!("contradicts");
    space.create(&other).await?.refused_with(&["streams.ibm.com/host"])?;
    // With the job its pool is deleted, and the marks of the pool on nodes.
    leave(&space, "owner", &["one", "any"]).await?;
    space.kubectl("delete streamsjob owner").await?;
    all_unmarked(&world, &nodes).await
}

/// An element's old pod does not repel its new one.
pub(crate) async fn exlocated_elements_roll_out_on_as_many_nodes(world: Arc<World>) -> Result<()> {
    let (space, _) = space_on(&world, "rollout", 2).await?;
    let spec = json!({"processingElements": [
        of_operator("x", json!({"hostExlocation": ["t"]})),
        of_operator("y", json!({"hostExlocation": ["t"]})),
    ]});
    space.created(&job("rollout", &spec)).await?;
    for name in ["x", "y"] {
        let pod = pod("rollout", name, "rollout");
        space.created(&workload_of("Deployment", name, 1, &pod)).await?;
    }
    for name in ["x", "y"] {
        let rolled = format!("rollout status deployment/{name} --timeout=60s");
        space.kubectl(&rolled).await?;
        space.kubectl(&format!("rollout restart deployment/{name}")).await?;
        space.kubectl(&rolled).await?;
    }
    Ok(())
}
