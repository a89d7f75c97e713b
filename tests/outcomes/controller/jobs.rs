//! StreamsJobs that are checked as a whole, and groups whose pods are created in any order.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::controller::nodes::tagged;
use crate::controller::pool;
use crate::world::{Space, World, job, same};

/// An element of one operator.
fn element(name: &str, operator: Value) -> Value {
    let mut operator = operator;
    operator["name"] = json!(format!("Op{name}"));
    json!({"name": name, "operators": [operator]})
}

/// A pod of a job's element on the nodes of one tag, without host constraints of its own. It names its job
/// by the annotation: a replica that has not seen the job yet then waits for it, where a label alone could
/// as well be that of a job without a StreamsJob.
fn pod(job: &str, element: &str, tag: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("{job}-{element}"),
            "labels": {"app": "streams", "streams.ibm.com/job": job, "streams.ibm.com/pe": element},
            "annotations": {"stowplan.dev/streams-job": job},
        },
        "spec": {
            "nodeSelector": {"streams.ibm.com/hostpool": tag},
            "containers": [{"name": "pe", "image": "streams-runtime"}],
        },
    })
}

/// All permutations of these.
fn orders(names: &[&'static str]) -> Vec<Vec<&'static str>> {
    if names.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (index, first) in names.iter().enumerate() {
        let rest: Vec<&'static str> =
            names.iter().enumerate().filter(|(i, _)| *i != index).map(|(_, name)| *name).collect();
        for mut order in orders(&rest) {
            order.insert(0, first);
            all.push(order);
        }
    }
    all
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

/// No token is shared by all of them: one term for each token would split the group.
pub(crate) async fn a_chain_of_tokens_is_one_group_in_every_order(world: Arc<World>) -> Result<()> {
    let space = world.namespace("chain").await?;
    tagged(&world, "chain", 3).await?;
    let spec = json!({"processingElements": [
        element("pe1", json!({"hostColocation": ["a"]})),
        element("pe2", json!({"hostColocation": ["a", "b"]})),
        element("pe3", json!({"hostColocation": ["b"]})),
    ]});
    for (number, order) in orders(&["pe1", "pe2", "pe3"]).into_iter().enumerate() {
        let name = format!("chain-{number}");
        space.created(&job(&name, &spec)).await?;
        let nodes = arrive(&space, &name, &order, "chain").await?;
        ensure!(nodes.iter().all(|node| *node == nodes[0]), "{order:?} on {nodes:?}");
        leave(&space, &name, &order).await?;
    }
    Ok(())
}

/// The member without a host must not place the group on another node.
pub(crate) async fn a_group_goes_where_one_of_it_must_go(world: Arc<World>) -> Result<()> {
    let space = world.namespace("host").await?;
    let nodes = tagged(&world, "inherit", 3).await?;
    let spec = json!({
        "pools": [{"name": "One", "hosts": [nodes[2]]}],
        "processingElements": [
            element("free", json!({"hostColocation": ["a"]})),
            element("bound", json!({"hostColocation": ["a"], "host": {"pool": "One"}})),
        ],
    });
    for (number, order) in orders(&["free", "bound"]).into_iter().enumerate() {
        let name = format!("inherit-{number}");
        space.created(&job(&name, &spec)).await?;
        let landed = arrive(&space, &name, &order, "inherit").await?;
        ensure!(landed.iter().all(|node| *node == nodes[2]), "{order:?} on {landed:?}");
        leave(&space, &name, &order).await?;
    }
    Ok(())
}

/// With the token on only one member of each group, 16 of these 24 orders would wait for ever.
pub(crate) async fn two_groups_keep_apart_in_every_order(world: Arc<World>) -> Result<()> {
    let space = world.namespace("apart").await?;
    tagged(&world, "apart", 2).await?;
    let spec = json!({"processingElements": [
        element("a1", json!({"hostColocation": ["a"], "hostExlocation": ["apart"]})),
        element("a2", json!({"hostColocation": ["a"]})),
        element("b1", json!({"hostColocation": ["b"], "hostExlocation": ["apart"]})),
        element("b2", json!({"hostColocation": ["b"]})),
    ]});
    for (number, order) in orders(&["a1", "a2", "b1", "b2"]).into_iter().enumerate() {
        let name = format!("apart-{number}");
        space.created(&job(&name, &spec)).await?;
        let nodes = arrive(&space, &name, &order, "apart").await?;
        let on = |group: &str| -> BTreeSet<&String> {
            let members =
                order.iter().zip(&nodes).filter(|(element, _)| element.starts_with(group));
            members.map(|(_, node)| node).collect()
        };
        let (a, b) = (on("a"), on("b"));
        ensure!(a.len() == 1 && b.len() == 1 && a != b, "{order:?} on {nodes:?}");
        leave(&space, &name, &order).await?;
    }
    Ok(())
}

pub(crate) async fn an_impossible_job_is_refused_at_once(world: Arc<World>) -> Result<()> {
    let space = world.namespace("impossible").await?;
    tagged(&world, "impossible", 2).await?;
    for (spec, why) in [
        (
            json!({"processingElements": [
                element("x", json!({"hostColocation": ["a"], "hostExlocation": ["b"]})),
                element("y", json!({"hostColocation": ["a"], "hostExlocation": ["b"]})),
            ]}),
            vec!["Opx", "Opy"],
        ),
        (
            json!({"processingElements": [element("x", json!({"host": {"name": "nowhere"}}))]}),
            vec!["Opx", "nowhere"],
        ),
        (
            json!({
                "pools": [{"name": "P", "size": 2, "tags": ["impossible"]}],
                "processingElements": [element("x", json!({"host": {"pool": "P", "index": 2}}))],
            }),
            vec!["Opx", "P", "2"],
        ),
        (json!({"pools": [{"name": "P", "size": 3, "tags": ["impossible"]}]}), vec!["P", "3", "2"]),
        (
            json!({
                "pools": [{"name": "P", "size": 2, "tags": ["impossible"]}],
                "processingElements": (0..3).map(|i| element(&format!("e{i}"), json!({"host": {"pool": "P"}, "hostExlocation": ["t"]}))).collect::<Vec<_>>(),
            }),
            vec!["P", "t"],
        ),
        (
            json!({"processingElements": [element("x", json!({"host": {"pool": "P"}}))]}),
            vec!["Opx", "P"],
        ),
    ] {
        let said = space.create(&job("bad", &spec)).await?;
        ensure!(
            !said.success
                && said.err.contains("stowplan: ")
                && why.iter().all(|w| said.err.contains(w)),
            "{spec}: wanted {why:?}, saw {}",
            said.err
        );
    }
    Ok(())
}

pub(crate) async fn a_jobs_pools_are_its_own(world: Arc<World>) -> Result<()> {
    let space = world.namespace("pools").await?;
    let nodes = tagged(&world, "own", 3).await?;
    let spec = json!({
        "pools": [{"name": "My_Pool", "size": 2, "tags": ["own"], "exclusivity": "Exclusive"}],
        "processingElements": [
            element("one", json!({"host": {"pool": "My_Pool", "index": 1}})),
            element("any", json!({"host": {"pool": "My_Pool"}})),
        ],
    });
    space.created(&job("owner", &spec)).await?;
    let landed = arrive(&space, "owner", &["one", "any"], "own").await?;
    let pools = pool::api(&space).list(&Default::default()).await?;
    same(&pools.items.len(), &1)?;
    let name = pools.items[0].metadata.name.clone().unwrap_or_default();
    ensure!(name.starts_with("owner-my-pool-"), "{name}");
    let members = pool::members(&pool::ready(&space, &name).await?);
    same(&landed[0], &members[1].1)?;
    ensure!(members.iter().any(|(_, node)| *node == landed[1]), "{landed:?}");
    // Other pods may not use it.
    space
        .create(&crate::world::element("other", "x", &[("host-pool", &name)]))
        .await?
        .refused_with(&["serves StreamsJob owner only"])?;
    // A contradiction is refused.
    let mut other = pod("owner", "one", "own");
    other["metadata"]["annotations"] = json!({"streams.ibm.com/host": nodes[0]});
    other["metadata"]["name"] = json!("contradicts");
    space.create(&other).await?.refused_with(&["streams.ibm.com/host"])?;
    // With the job its pool is deleted, and the marks of the pool on nodes.
    leave(&space, "owner", &["one", "any"]).await?;
    world.kubectl(&["-n", &space.name, "delete", "streamsjob", "owner"], "").await?.succeeded()?;
    for node in &nodes {
        crate::controller::nodes::unmarked(&world, node).await?;
    }
    Ok(())
}

/// An element's old pod does not repel its new one.
pub(crate) async fn exlocated_elements_roll_out_on_as_many_nodes(world: Arc<World>) -> Result<()> {
    let space = world.namespace("rollout").await?;
    tagged(&world, "rollout", 2).await?;
    let spec = json!({"processingElements": [
        element("x", json!({"hostExlocation": ["t"]})),
        element("y", json!({"hostExlocation": ["t"]})),
    ]});
    space.created(&job("rollout", &spec)).await?;
    for name in ["x", "y"] {
        let pod = pod("rollout", name, "rollout");
        space
            .created(&json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
                "spec": {
                    "replicas": 1,
                    "selector": {"matchLabels": {"streams.ibm.com/pe": name}},
                    "template": {"metadata": {"labels": pod["metadata"]["labels"]}, "spec": pod["spec"]},
                },
            }))
            .await?;
    }
    for name in ["x", "y"] {
        let deployment = format!("deployment/{name}");
        let rolled = ["-n", &space.name, "rollout", "status", &deployment, "--timeout=60s"];
        let said = world.kubectl(&rolled, "").await?;
        ensure!(said.success, "{}", said.err);
        let restart = ["-n", &space.name, "rollout", "restart", &deployment];
        ensure!(world.kubectl(&restart, "").await?.success);
        let said = world.kubectl(&rolled, "").await?;
        ensure!(said.success, "{name}: {}{}", said.out, said.err);
    }
    Ok(())
}
