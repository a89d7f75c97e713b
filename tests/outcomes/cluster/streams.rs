//! Each Streams constraint, by the node on which the pod lands.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::world::{Space, World, element, has, one_of, same, workload_of};

/// `pod`, on the first three nodes only.
fn on_trio(mut pod: Value) -> Value {
    pod["spec"]["nodeSelector"] = json!({"trio": "yes"});
    pod
}

/// A pod's name, its annotations, and the node on which it must land.
type Row<'r> = (&'r str, &'r [(&'r str, &'r str)], &'r str);

/// Creates a pod for each row, with these constraints, and compares its node.
async fn land(space: &Space, rows: &[Row<'_>]) -> Result<()> {
    for &(name, constraints, wanted) in rows {
        let node = space.node_of_new(&element("job", name, constraints)).await?;
        ensure!(node == wanted, "{name}, {constraints:?}: on {node}, not on {wanted}");
    }
    Ok(())
}

/// Creates pods with equal constraints, and returns their nodes.
async fn spread(
    space: &Space,
    names: &[&str],
    constraints: &[(&str, &str)],
) -> Result<BTreeSet<String>> {
    let mut nodes = BTreeSet::new();
    for name in names {
        nodes.insert(space.node_of_new(&on_trio(element("job", name, constraints))).await?);
    }
    Ok(nodes)
}

pub(crate) async fn host_by_name_and_address(world: Arc<World>) -> Result<()> {
    let space = world.namespace("host").await?;
    let rows: &[Row<'_>] = &[
        ("name", &[("host", "node-5")], "node-5"),
        ("v4", &[("host", "10.4.40.83")], "node-3"),
        ("mapped", &[("host", "::ffff:10.4.40.83")], "node-3"),
        ("dns", &[("host", "foo.watson.ibm.com")], "node-5"),
    ];
    land(&space, rows).await?;
    let set = workload_of("ReplicaSet", "set", 2, &element("job", "pe", &[("host", "node-6")]));
    space.created(&set).await?;
    same(&space.nodes_of_all("streams.ibm.com/pe=pe", 2).await?, &vec!["node-6".to_owned(); 2])
}

pub(crate) async fn tagged_pools(world: Arc<World>) -> Result<()> {
    let space = world.namespace("tagged").await?;
    space.host_pool("one", json!({"tags": ["source"]})).await?;
    // node-3 has one of the two tags: tags are conjunctive.
    space.host_pool("two", json!({"tags": ["ib", "blue"]})).await?;
    for name in ["a", "b", "c"] {
        land(&space, &[(name, &[("host-pool", "one")], "node-2")]).await?;
        land(&space, &[(&format!("{name}-two"), &[("host-pool", "two")], "node-4")]).await?;
    }
    Ok(())
}

pub(crate) async fn literal_pool_and_index(world: Arc<World>) -> Result<()> {
    let space = world.namespace("literal").await?;
    space.host_pool("p", json!({"hosts": ["node-6", "10.4.40.81"]})).await?;
    // At once: a watch that is a moment behind is no reason to refuse it.
    land(&space, &[("first", &[("host-pool", "p[0]")], "node-6")]).await?;
    land(&space, &[("second", &[("host-pool", "p[1]")], "node-1")]).await?;
    // Kept apart, so that both members are needed.
    let any = |name: &str| element("job", name, &[("host-pool", "p"), ("host-exlocation", "any")]);
    let nodes = [space.node_of_new(&any("any-1")).await?, space.node_of_new(&any("any-2")).await?];
    same(&BTreeSet::from(nodes), &BTreeSet::from(["node-1", "node-6"].map(str::to_owned)))?;
    space.pending(&any("any-3")).await.map(drop)
}

pub(crate) async fn colocation_of_three(world: Arc<World>) -> Result<()> {
    let space = world.namespace("together").await?;
    let together = &[("host-colocation", "together")];
    one_of(spread(&space, &["a", "b", "c"], together).await?).map(drop)
}

pub(crate) async fn exlocation_of_three_and_a_fourth(world: Arc<World>) -> Result<()> {
    let space = world.namespace("apart").await?;
    let apart = &[("host-exlocation", "apart")];
    same(&spread(&space, &["a", "b", "c"], apart).await?.len(), &3)?;
    has(&space.pending(&on_trio(element("job", "d", apart))).await?, &["anti-affinity"])?;
    // It was the constraint that kept it: once a place is free it is taken.
    let freed = space.node_of("b").await?;
    space.delete("b").await?;
    same(&space.node_of("d").await?, &freed)
}

pub(crate) async fn preferred_exlocation_gives_way(world: Arc<World>) -> Result<()> {
    let space = world.namespace("preferred").await?;
    let rather = &[("host-exlocation", "apart"), ("host-enforcement", "preferred")];
    same(&spread(&space, &["a", "b", "c", "d"], rather).await?.len(), &3)
}

pub(crate) async fn isolation_when_the_isolated_comes_first(world: Arc<World>) -> Result<()> {
    let space = world.namespace("isolated-first").await?;
    let alone = one_of(spread(&space, &["sink"], &[("host-isolation", "Sink")]).await?)?;
    // Plain pods of the job, which carry no constraint and are not changed: more than the other two
    // nodes would get by spreading alone.
    let others = spread(&space, &["a", "b", "c", "d", "e", "f"], &[]).await?;
    ensure!(!others.contains(&alone), "one is on the isolated pod's node {alone}");
    // Another job may go there.
    let guest = element("other", "guest", &[("host", &alone)]);
    same(&space.node_of_new(&guest).await?, &alone)
}

pub(crate) async fn isolation_when_the_isolated_comes_last(world: Arc<World>) -> Result<()> {
    let space = world.namespace("isolated-last").await?;
    land(&space, &[("a", &[("host", "node-1")], "node-1")]).await?;
    land(&space, &[("b", &[("host", "node-2")], "node-2")]).await?;
    let isolated = &[("host-isolation", "Sink")];
    // The others have pods of its job.
    same(&one_of(spread(&space, &["sink"], isolated).await?)?.as_str(), &"node-3")?;
    space.delete("sink").await?;
    land(&space, &[("c", &[("host", "node-3")], "node-3")]).await?;
    has(&space.pending(&on_trio(element("job", "sink", isolated))).await?, &["anti-affinity"])
}

pub(crate) async fn node_name_is_released(world: Arc<World>) -> Result<()> {
    let space = world.namespace("node-name").await?;
    let mut pod = element("job", "pe", &[("host", "node-1")]);
    pod["spec"]["nodeName"] = json!("node-1");
    let stored = space.pod(&pod).await?.spec.unwrap_or_default();
    ensure!(stored.node_name.is_none(), "the scheduler is still bypassed");
    same(&&*space.node_of("pe").await?, &"node-1")?;
    pod["metadata"]["name"] = json!("other");
    pod["spec"]["nodeName"] = json!("node-2");
    space.create(&pod).await?.refused_with(&["spec.nodeName is \"node-2\""])
}
