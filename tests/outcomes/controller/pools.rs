//! Pools whose members the controller picks: the marks on nodes, and where pods land.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use stowplan::testing::systems::streams::api::HostPool;
use testbed::control_plane::NodeSpec;

use crate::controller::nodes::{Marks, marks, of_tag, tagged, unmarked};
use crate::controller::pool::{self, members, ready, unready};
use crate::world::{World, element, same};

pub(crate) async fn a_sized_exclusive_pool_has_its_nodes_alone(world: Arc<World>) -> Result<()> {
    let space = world.namespace("exclusive").await?;
    let nodes = tagged(&world, "exclusive", 5).await?;
    let spec = json!({"size": 2, "tags": ["exclusive"], "exclusivity": "Exclusive"});
    space.host_pool("first", spec.clone()).await?;
    let first = ready(&space, "first").await?;
    same(&members(&first), &vec![(0, nodes[0].clone()), (1, nodes[1].clone())])?;
    let hash = pool::hash(&first);
    for (index, node) in nodes.iter().enumerate() {
        let wanted = match index {
            0 | 1 => Marks {
                labels: vec![(hash.clone(), index.to_string())],
                taints: vec![hash.clone()],
            },
            _ => Marks::default(),
        };
        same(&marks(&world, node).await?, &wanted)?;
    }

    // Its pods land there, and others do not.
    let mut landed = BTreeSet::new();
    for name in ["a", "b", "c"] {
        let pod = element("job", name, &[("host-pool", "first")]);
        landed.insert(space.node_of_new(&pod).await?);
    }
    ensure!(landed.iter().all(|node| nodes[..2].contains(node)), "landed on {landed:?}");
    space.host_pool("tag", json!({"tags": ["exclusive"]})).await?;
    let mut elsewhere = BTreeSet::new();
    for name in ["d", "e", "f", "g"] {
        let pod = element("other", name, &[("host-pool", "tag"), ("host-exlocation", "apart")]);
        match elsewhere.len() {
            3 => {
                space.pending(&pod).await?;
            }
            _ => {
                elsewhere.insert(space.node_of_new(&pod).await?);
            }
        }
    }
    ensure!(elsewhere.iter().all(|node| nodes[2..].contains(node)), "landed on {elsewhere:?}");
    space
        .create(&element("other", "h", &[("host", &nodes[0])]))
        .await?
        .refused_with(&["is exclusive to HostPool"])?;
    Ok(())
}

pub(crate) async fn exclusive_pools_share_no_node(world: Arc<World>) -> Result<()> {
    let space = world.namespace("alone").await?;
    let nodes = tagged(&world, "alone", 5).await?;
    let spec = json!({"size": 2, "tags": ["alone"], "exclusivity": "Exclusive"});
    space.host_pool("first", spec.clone()).await?;
    let first = ready(&space, "first").await?;
    space.host_pool("second", spec.clone()).await?;
    let second = ready(&space, "second").await?;
    let names = |pool: &HostPool| members(pool).into_iter().map(|(_, node)| node);
    let both: BTreeSet<String> = names(&first).chain(names(&second)).collect();
    same(&both.len(), &4)?;

    // One node is left, and two are requested: no node is changed.
    space.host_pool("third", spec).await?;
    let third = unready(&space, "third", "InsufficientNodes").await?;
    same(&members(&third), &vec![])?;
    let free: Vec<&String> = nodes.iter().filter(|node| !both.contains(*node)).collect();
    unmarked(&world, free[0]).await?;
    space
        .create(&element("job", "a", &[("host-pool", "third")]))
        .await?
        .refused_with(&["has no members"])?;

    // The first is released, without the taints of others on its nodes; then the third gets them.
    let api: Api<Node> = Api::all(world.client.clone());
    let (_, kept) = members(&first)[0].clone();
    let taint = json!([{"op": "add", "path": "/spec/taints/-", "value":
        {"key": "user", "value": "own", "effect": "PreferNoSchedule"}}]);
    let patch = Patch::Json::<()>(serde_json::from_value(taint)?);
    api.patch(&kept, &PatchParams::default(), &patch).await?;
    pool::delete(&space, "first").await?;
    ready(&space, "third").await?;
    let node = api.get(&kept).await?;
    let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    ensure!(taints.iter().any(|taint| taint.key == "user"), "lost: {taints:?}");
    for name in ["second", "third"] {
        pool::delete(&space, name).await?;
    }
    for node in &nodes {
        unmarked(&world, node).await?;
    }
    let node = api.get(&kept).await?;
    let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    same(&taints.iter().map(|taint| taint.key.as_str()).collect::<Vec<_>>(), &vec!["user"])
}

pub(crate) async fn the_six_forms_of_the_design(world: Arc<World>) -> Result<()> {
    // Untagged pools may take any node, so no other test may run.
    let _alone = world.alone().await?;
    let space = world.namespace("forms").await?;
    let nodes = of_tag(&world, &["ib", "blue"], 4).await?;
    let tags = json!(["ib", "blue"]);
    for (name, spec, has_members) in [
        ("p1", json!({"size": 2, "tags": tags}), true),
        ("p2", json!({"size": 2, "tags": tags, "exclusivity": "Exclusive"}), true),
        ("p3", json!({"tags": tags}), false),
        ("p4", json!({"size": 2}), true),
        ("p6", json!({}), false),
    ] {
        space.host_pool(name, spec).await?;
        let pool = ready(&space, name).await?;
        same(&members(&pool).len(), &(if has_members { 2 } else { 0 }))?;
        let landed = space.node_of_new(&element("job", name, &[("host-pool", name)])).await?;
        if has_members {
            let names: Vec<String> = members(&pool).into_iter().map(|(_, node)| node).collect();
            ensure!(names.contains(&landed), "{name}: {landed} is not of {names:?}");
        }
        if name != "p4" && name != "p6" {
            ensure!(nodes.contains(&landed), "{name}: {landed} has not the tags");
        }
        pool::delete(&space, name).await?;
        space.delete(name).await?;
    }
    Ok(())
}

pub(crate) async fn an_untagged_exclusive_pool(world: Arc<World>) -> Result<()> {
    // It may take any node, so no other test may run.
    let _alone = world.alone().await?;
    let space = world.namespace("any").await?;
    for index in 0..2 {
        world.plane.add_node(&NodeSpec::new(&format!("any-{index}"))).await?;
    }
    space.host_pool("p5", json!({"size": 1, "exclusivity": "Exclusive"})).await?;
    let pool = ready(&space, "p5").await?;
    let landed = space.node_of_new(&element("job", "a", &[("host-pool", "p5")])).await?;
    same(&vec![landed.clone()], &members(&pool).into_iter().map(|(_, node)| node).collect())?;
    space.delete("a").await?;
    pool::delete(&space, "p5").await?;
    unmarked(&world, &landed).await
}

pub(crate) async fn an_index_stays_with_its_node(world: Arc<World>) -> Result<()> {
    let space = world.namespace("index").await?;
    let nodes = tagged(&world, "index", 3).await?;
    space.host_pool("p", json!({"size": 2, "tags": ["index"]})).await?;
    let before = members(&ready(&space, "p").await?);
    let wanted = before[1].1.clone();
    let lands = async |name: &str| {
        let node = space.node_of_new(&element("job", name, &[("host-pool", "p[1]")])).await?;
        same(&node, &wanted)
    };
    lands("before").await?;

    // The node of the other member is deleted and the third node replaces it; index 1 keeps its
    // node.
    let api: Api<Node> = Api::all(world.client.clone());
    let lost = before[0].1.clone();
    api.delete(&lost, &DeleteParams::default()).await?;
    let third = nodes.iter().find(|node| before.iter().all(|(_, member)| member != *node));
    let third = third.cloned().unwrap_or_default();
    pool::until(&space, "p", "the third node at index 0", |pool| {
        pool::is_ready(pool) && members(pool) == [(0, third.clone()), (1, wanted.clone())]
    })
    .await?;
    lands("between").await?;
    // A node that is created again under its old name is another node.
    let again = NodeSpec::new(&lost).label("streams.ibm.com/hostpool", "index");
    world.plane.add_node(&again).await?;
    lands("after").await?;
    same(&members(&pool::get(&space, "p").await?), &vec![(0, third.clone()), (1, wanted.clone())])?;
    unmarked(&world, &lost).await?;

    // Growing adds a member, and moves none.
    let grown = json!({"spec": {"size": 3}});
    pool::api(&space).patch("p", &PatchParams::default(), &Patch::Merge(&grown)).await?;
    pool::until(&space, "p", "three members", |pool| {
        pool::is_ready(pool)
            && members(pool) == [(0, third.clone()), (1, wanted.clone()), (2, lost.clone())]
    })
    .await?;
    space
        .create(&element("job", "x", &[("host-pool", "p[3]")]))
        .await?
        .refused_with(&["has no index 3: it has 3 hosts, with the indices 0 to 2"])?;
    Ok(())
}

pub(crate) async fn a_pool_that_cannot_be_met_waits_for_nodes(world: Arc<World>) -> Result<()> {
    let space = world.namespace("late").await?;
    let nodes = tagged(&world, "late", 1).await?;
    space.host_pool("p", json!({"size": 2, "tags": ["late"]})).await?;
    let pool = unready(&space, "p", "InsufficientNodes").await?;
    ensure!(pool::message(&pool).contains("needs 2 nodes"), "{}", pool::message(&pool));
    unmarked(&world, &nodes[0]).await?;
    // A node that joins fills it.
    let spec = NodeSpec::new("late-9").label("streams.ibm.com/hostpool", "late");
    world.plane.add_node(&spec).await?;
    same(&members(&ready(&space, "p").await?).len(), &2)
}

pub(crate) async fn a_literal_exclusive_pool_takes_its_hosts(world: Arc<World>) -> Result<()> {
    let space = world.namespace("literal").await?;
    let nodes = tagged(&world, "literal", 3).await?;
    // Another pod already runs there.
    space.node_of_new(&element("early", "a", &[("host", &nodes[1])])).await?;
    let spec = json!({"hosts": [nodes[1], nodes[0]], "exclusivity": "Exclusive"});
    space.host_pool("p", spec).await?;
    let pool = unready(&space, "p", "InsufficientNodes").await?;
    ensure!(pool::message(&pool).contains(&nodes[1]), "{}", pool::message(&pool));
    for node in &nodes {
        unmarked(&world, node).await?;
    }
    space.delete("a").await?;
    let pool = ready(&space, "p").await?;
    same(&members(&pool), &vec![(0, nodes[1].clone()), (1, nodes[0].clone())])?;
    let node = space.node_of_new(&element("job", "b", &[("host-pool", "p[0]")])).await?;
    same(&node, &nodes[1])
}

pub(crate) async fn unknown_hosts_are_reported_in_status(world: Arc<World>) -> Result<()> {
    let space = world.namespace("unknown").await?;
    let nodes = tagged(&world, "unknown", 1).await?;
    space.host_pool("p", json!({"hosts": [nodes[0], "nowhere"]})).await?;
    let pool = unready(&space, "p", "UnknownHost").await?;
    ensure!(pool::message(&pool).contains("nowhere"), "{}", pool::message(&pool));
    // The host that exists is used.
    let node = space.node_of_new(&element("job", "a", &[("host-pool", "p")])).await?;
    same(&node, &nodes[0])
}
