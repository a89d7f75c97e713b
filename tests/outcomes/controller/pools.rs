//! Pools whose members the controller picks: the marks on nodes, and where pods land. Pools choose the
//! nodes that waiting pods need.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use stowplan_core::systems::streams::kinds::host_pool::EXCLUSIVE_TAINT;
use testbed::control_plane::NodeSpec;

use crate::controller::nodes::{Marks, all_unmarked, marks, one_tagged, space_on, unmarked};
use crate::controller::pool::{self, exclusive, grow, nodes as nodes_of, ready, ready_on, unready};
use crate::world::{World, element, node, pod, same, settled, with_policy, workload_of};

pub(crate) async fn a_sized_exclusive_pool_has_its_nodes_alone(world: Arc<World>) -> Result<()> {
    let (space, nodes) = space_on(&world, "exclusive", 5).await?;
    space.host_pool("first", exclusive(2, "exclusive")).await?;
    let hash = pool::hash(&ready_on(&space, "first", &[&nodes[0], &nodes[1]]).await?);
    for (index, node) in nodes.iter().enumerate() {
        let labels = vec![(hash.clone(), index.to_string())];
        let of_pool = Marks { labels, taints: vec![hash.clone()] };
        let wanted = if index < 2 { of_pool } else { Marks::default() };
        same(&marks(&world, node).await?, &wanted)?;
    }

    // Its pods land there, and others do not.
    for name in ["a", "b", "c"] {
        let node = space.node_of_new(&element("job", name, &[("host-pool", "first")])).await?;
        ensure!(nodes[..2].contains(&node), "{name} is on {node}");
    }
    space.host_pool("tag", json!({"tags": ["exclusive"]})).await?;
    let other =
        |name: &str| element("other", name, &[("host-pool", "tag"), ("host-exlocation", "apart")]);
    for name in ["d", "e", "f"] {
        let node = space.node_of_new(&other(name)).await?;
        ensure!(nodes[2..].contains(&node), "{name} is on {node}");
    }
    space.pending(&other("g")).await?;
    let there = element("other", "h", &[("host", &nodes[0])]);
    space.create(&there).await?.refused_with(&["is exclusive to HostPool"])?;

    // What docs/faq.md gives to DaemonSets.
    let tolerations =
        [EXCLUSIVE_TAINT, FORMER_TAINT].map(|key| json!({"key": key, "operator": "Exists"}));
    let agent = pod(
        "agent",
        &json!({"spec": {
            "tolerations": tolerations, "nodeSelector": {"kubernetes.io/hostname": nodes[0]},
        }}),
    );
    same(&space.node_of_new(&agent).await?, &nodes[0])?;

    // An earlier release, to which an administrator went back, sets its own taint beside this one.
    world.plane.taint(&nodes[0], FORMER_TAINT, &hash, "NoSchedule").await?;
    let taints = async || -> Result<Vec<String>> {
        let spec = world.plane.node(&nodes[0]).await?.spec.unwrap_or_default();
        Ok(spec.taints.into_iter().flatten().map(|taint| taint.key).collect())
    };
    settled("only the present taint", taints, |keys| *keys == [EXCLUSIVE_TAINT]).await.map(drop)
}

/// The key of the taint in earlier releases.
const FORMER_TAINT: &str = "stowplan.dev/exclusive";

pub(crate) async fn exclusive_pools_share_no_node(world: Arc<World>) -> Result<()> {
    let (space, nodes) = space_on(&world, "alone", 5).await?;
    let mut both = BTreeSet::new();
    for name in ["first", "second"] {
        space.host_pool(name, exclusive(2, "alone")).await?;
        both.extend(nodes_of(&ready(&space, name).await?));
    }
    same(&both.len(), &4)?;

    // One node is left, and two are requested: no node is changed.
    space.host_pool("third", exclusive(2, "alone")).await?;
    same(&nodes_of(&unready(&space, "third", "InsufficientNodes", "").await?).len(), &0)?;
    for free in nodes.iter().filter(|node| !both.contains(*node)) {
        unmarked(&world, free).await?;
    }
    let pod = element("job", "a", &[("host-pool", "third")]);
    space.create(&pod).await?.refused_with(&["has no members"])?;

    // The first is released, without the taints of others on its nodes; then the third gets them.
    let kept = nodes_of(&pool::get(&space, "first").await?).remove(0);
    world.plane.taint(&kept, "user", "own", "PreferNoSchedule").await?;
    pool::delete(&space, "first").await?;
    ready(&space, "third").await?;
    let users = async || -> Result<Vec<String>> {
        let node = world.plane.node(&kept).await?;
        let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
        Ok(taints.into_iter().map(|taint| taint.key).collect())
    };
    ensure!(users().await?.contains(&"user".to_owned()), "it is lost");
    for name in ["second", "third"] {
        pool::delete(&space, name).await?;
    }
    all_unmarked(&world, &nodes).await?;
    same(&users().await?, &vec!["user".to_owned()])
}

pub(crate) async fn the_six_forms_of_the_design(world: Arc<World>) -> Result<()> {
    // Untagged pools may take any node, so no other test may run.
    let _alone = world.alone().await?;
    let space = world.namespace("forms").await?;
    let nodes = ["ib-blue-0", "ib-blue-1", "ib-blue-2", "ib-blue-3"].map(str::to_owned);
    let [ib, blue] = ["hostpool.streams.ibm.com/ib", "hostpool.streams.ibm.com/blue"];
    let specs = nodes.each_ref().map(|name| NodeSpec::new(name).label(ib, "").label(blue, ""));
    world.plane.add_nodes(&specs).await?;
    let tags = json!(["ib", "blue"]);
    for (name, spec, has_members, has_tags) in [
        ("p1", json!({"size": 2, "tags": tags}), true, true),
        ("p2", json!({"size": 2, "tags": tags, "exclusivity": "Exclusive"}), true, true),
        ("p3", json!({"tags": tags}), false, true),
        ("p4", json!({"size": 2}), true, false),
        ("p5", json!({"size": 2, "exclusivity": "Exclusive"}), true, false),
        ("p6", json!({}), false, false),
    ] {
        space.host_pool(name, spec).await?;
        let ready = ready(&space, name).await?;
        let (hash, members) = (pool::hash(&ready), nodes_of(&ready));
        same(&members.len(), &(if has_members { 2 } else { 0 }))?;
        let landed = space.node_of_new(&element("job", name, &[("host-pool", name)])).await?;
        ensure!(!has_members || members.contains(&landed), "{name}: {landed} not of {members:?}");
        ensure!(!has_tags || nodes.contains(&landed), "{name}: {landed} has not the tags");
        space.delete(name).await?;
        pool::delete(&space, name).await?;
        // The marks of other pools may stay: those of earlier tests have some of these nodes, too.
        let is_left = |marks: &Marks| !marks.has(&hash);
        for node in members.iter().chain([&landed]) {
            settled(node, async || marks(&world, node).await, is_left).await?;
        }
    }
    Ok(())
}

pub(crate) async fn an_index_stays_with_its_node(world: Arc<World>) -> Result<()> {
    let (space, nodes) = space_on(&world, "index", 3).await?;
    let [lost, wanted, third] = [0, 1, 2].map(|index| nodes[index].as_str());
    space.host_pool("p", json!({"size": 2, "tags": ["index"]})).await?;
    ready_on(&space, "p", &[lost, wanted]).await?;
    let lands = async |name: &str| {
        let node = space.node_of_new(&element("job", name, &[("host-pool", "p[1]")])).await?;
        same(&&*node, &wanted)
    };
    lands("before").await?;

    // The node of the other member is deleted and the third node replaces it; index 1 keeps its
    // node.
    world.plane.delete_node(lost).await?;
    ready_on(&space, "p", &[third, wanted]).await?;
    lands("between").await?;
    // A node that is created again under its old name is another node.
    one_tagged(&world, lost, "index").await?;
    lands("after").await?;
    same(&nodes_of(&pool::get(&space, "p").await?), &vec![third.to_owned(), wanted.to_owned()])?;
    unmarked(&world, lost).await?;

    // Growing adds a member, and moves none.
    grow(&space, "p", 3).await?;
    ready_on(&space, "p", &[third, wanted, lost]).await?;
    let beyond = element("job", "x", &[("host-pool", "p[3]")]);
    let why = "has no index 3: it has 3 hosts, with the indices 0 to 2";
    space.create(&beyond).await?.refused_with(&[why])
}

/// So do its pods, and those of tags that no node has, if the policy says so.
pub(crate) async fn a_pool_that_cannot_be_met_waits_for_nodes(world: Arc<World>) -> Result<()> {
    with_policy(&world, json!({"streams": {"unmet": "wait"}}), async || {
        let (space, nodes) = space_on(&world, "late", 1).await?;
        space.host_pool("sized", json!({"size": 2, "tags": ["late"]})).await?;
        space.host_pool("tag", json!({"tags": ["later"]})).await?;
        unready(&space, "sized", "InsufficientNodes", "needs 2 nodes").await?;
        unready(&space, "tag", "NoTaggedNode", "").await?;
        for pool in ["sized", "tag"] {
            space.pending(&element("job", pool, &[("host-pool", pool)])).await?;
        }
        unmarked(&world, &nodes[0]).await?;
        // Nodes that join are what they wait for.
        one_tagged(&world, "late-9", "late").await?;
        one_tagged(&world, "later-9", "later").await?;
        ready_on(&space, "sized", &[&nodes[0], "late-9"]).await?;
        for (pod, wanted) in [("sized", vec![&*nodes[0], "late-9"]), ("tag", vec!["later-9"])] {
            let place = async || Ok(node(&space.found::<Pod>(pod).await?).unwrap_or_default());
            settled(pod, place, |node| wanted.contains(&&**node)).await?;
        }
        Ok(())
    })
    .await
}

/// The pod of a workload names the members that the pool has, so that no autoscaler takes a copy of them for
/// members; it is created again when there is another one.
pub(crate) async fn a_waiting_pod_follows_its_pool_to_a_new_member(
    world: Arc<World>,
) -> Result<()> {
    let (space, nodes) = space_on(&world, "follow", 2).await?;
    space.host_pool("p", json!({"size": 1, "tags": ["follow"]})).await?;
    ready_on(&space, "p", &[&nodes[0]]).await?;
    world.run(&format!("cordon {}", nodes[0])).await?;
    let pod = element("job", "", &[("host-pool", "p")]);
    space.created(&workload_of("Deployment", "follow", 1, &pod)).await?;
    let named = async || {
        let pods = space.living("app=streams").await?;
        let affinity = json!(pods.first())["spec"]["affinity"]["nodeAffinity"].take();
        let term = &affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
        Ok(term[0]["matchExpressions"][1]["values"].clone())
    };
    settled("a pod that names the member", named, |names| *names == json!([nodes[0]])).await?;
    grow(&space, "p", 2).await?;
    ready_on(&space, "p", &[&nodes[0], &nodes[1]]).await?;
    same(&space.nodes_of_all("app=streams", 1).await?, &vec![nodes[1].clone()])?;
    world.run(&format!("uncordon {}", nodes[0])).await?;
    space.kubectl("delete deployment follow").await.map(drop)
}

/// A pod that asks for a host of a pool, and by its own affinity for this node.
fn on_node(name: &str, pool: &str, node: &str) -> Value {
    let mut pod = element("job", name, &[("host-pool", pool)]);
    pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!({
        "nodeSelectorTerms": [{"matchFields":
            [{"key": "metadata.name", "operator": "In", "values": [node]}]}]});
    pod
}

pub(crate) async fn a_pool_grows_by_the_nodes_that_waiting_pods_need(
    world: Arc<World>,
) -> Result<()> {
    let (space, nodes) = space_on(&world, "waiting", 6).await?;
    let on = |indices: &[usize]| indices.iter().map(|index| &*nodes[*index]).collect::<Vec<_>>();
    space.host_pool("p", json!({"size": 1, "tags": ["waiting"]})).await?;
    ready_on(&space, "p", &on(&[0])).await?;

    // One pod must be with another that runs on node 4, and one names node 5.
    let mate = element("job", "mate", &[("host", &nodes[4]), ("host-colocation", "together")]);
    same(&space.node_of_new(&mate).await?, &nodes[4])?;
    let near = element("job", "near", &[("host-pool", "p"), ("host-colocation", "together")]);
    space.pending(&near).await?;
    space.pending(&on_node("named", "p", &nodes[5])).await?;
    grow(&space, "p", 3).await?;
    ready_on(&space, "p", &on(&[0, 4, 5])).await?;
    same(&space.node_of("near").await?, &nodes[4])?;
    same(&space.node_of("named").await?, &nodes[5])?;

    // A member that the pool does not have yet gets the node of the pod that waits for it.
    grow(&space, "p", 7).await?;
    unready(&space, "p", "InsufficientNodes", "").await?;
    space.pending(&on_node("indexed", "p[5]", &nodes[1])).await?;
    one_tagged(&world, "waiting-6", "waiting").await?;
    ready_on(&space, "p", &[on(&[0, 4, 5, 2, 3, 1]), vec!["waiting-6"]].concat()).await?;
    same(&space.node_of("indexed").await?, &nodes[1])
}
