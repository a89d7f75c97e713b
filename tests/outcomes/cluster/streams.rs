//! Each Streams constraint, by the node on which the pod lands.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use serde_json::{Value, json};
use testbed::wait::{Seen, until};

use crate::world::{Space, World, element, same};

/// `pod`, on the first three nodes only.
fn on_trio(mut pod: Value) -> Value {
    pod["spec"]["nodeSelector"] = json!({"trio": "yes"});
    pod
}

/// Creates a pod with one constraint for each row, and compares its node.
async fn land(space: &Space, rows: &[(&str, (&str, &str), &str)]) -> Result<()> {
    for &(name, constraint, wanted) in rows {
        let node = space.node_of_new(&element("job", name, &[constraint])).await?;
        ensure!(node == wanted, "{name}, {constraint:?}: on {node}, not on {wanted}");
    }
    Ok(())
}

pub(crate) async fn host_by_name_and_address(world: Arc<World>) -> Result<()> {
    let space = world.namespace("host").await?;
    let rows = [
        ("name", ("host", "node-5"), "node-5"),
        ("v4", ("host", "10.4.40.83"), "node-3"),
        ("mapped", ("host", "::ffff:10.4.40.83"), "node-3"),
        ("dns", ("host", "foo.watson.ibm.com"), "node-5"),
    ];
    land(&space, &rows).await
}

pub(crate) async fn tagged_pools(world: Arc<World>) -> Result<()> {
    let space = world.namespace("tagged").await?;
    space.host_pool("one", json!({"tags": ["source"]})).await?;
    // node-3 has one of the two tags: tags are conjunctive.
    space.host_pool("two", json!({"tags": ["ib", "blue"]})).await?;
    for name in ["a", "b", "c"] {
        let other = format!("{name}-two");
        let rows = [
            (name, ("host-pool", "one"), "node-2"),
            (other.as_str(), ("host-pool", "two"), "node-4"),
        ];
        land(&space, &rows).await?;
    }
    Ok(())
}

pub(crate) async fn literal_pool_and_index(world: Arc<World>) -> Result<()> {
    let space = world.namespace("literal").await?;
    space.host_pool("p", json!({"hosts": ["node-6", "10.4.40.81"]})).await?;
    let first = space.node_of_new(&element("job", "first", &[("host-pool", "p[0]")])).await?;
    let second = space.node_of_new(&element("job", "second", &[("host-pool", "p[1]")])).await?;
    same(&(first.as_str(), second.as_str()), &("node-6", "node-1"))?;
    // Kept apart, so that both members are needed.
    let mut nodes = BTreeSet::new();
    for name in ["any-1", "any-2"] {
        let pod = element("job", name, &[("host-pool", "p"), ("host-exlocation", "any")]);
        nodes.insert(space.node_of_new(&pod).await?);
    }
    same(&nodes, &BTreeSet::from(["node-1".to_owned(), "node-6".to_owned()]))?;
    space
        .pending(&element("job", "any-3", &[("host-pool", "p"), ("host-exlocation", "any")]))
        .await?;
    Ok(())
}

pub(crate) async fn untagged_pool_changes_nothing(world: Arc<World>) -> Result<()> {
    let space = world.namespace("untagged").await?;
    space.host_pool("p", json!({})).await?;
    let pod = space.pod(&element("job", "pe", &[("host-pool", "p")])).await?;
    let spec = pod.spec.unwrap_or_default();
    ensure!(spec.affinity.is_none(), "{:?}", spec.affinity);
    same(&pod.metadata.annotations.unwrap_or_default().len(), &1)?;
    space.node_of("pe").await?;
    Ok(())
}

pub(crate) async fn colocation_of_three(world: Arc<World>) -> Result<()> {
    let space = world.namespace("together").await?;
    let mut nodes = BTreeSet::new();
    for name in ["a", "b", "c"] {
        let pod = element("job", name, &[("host-colocation", "together")]);
        nodes.insert(space.node_of_new(&pod).await?);
    }
    ensure!(nodes.len() == 1, "three colocated pods are on {nodes:?}");
    Ok(())
}

pub(crate) async fn exlocation_of_three_and_a_fourth(world: Arc<World>) -> Result<()> {
    let space = world.namespace("apart").await?;
    let mut nodes = BTreeSet::new();
    for name in ["a", "b", "c"] {
        let pod = on_trio(element("job", name, &[("host-exlocation", "apart")]));
        nodes.insert(space.node_of_new(&pod).await?);
    }
    ensure!(nodes.len() == 3, "three exlocated pods are on {nodes:?}");
    let why = space.pending(&on_trio(element("job", "d", &[("host-exlocation", "apart")]))).await?;
    ensure!(why.contains("anti-affinity"), "{why}");
    // It was the constraint that kept it: once a place is free it is taken.
    let freed = space.node_of("b").await?;
    space.delete("b").await?;
    same(&space.node_of("d").await?, &freed)
}

pub(crate) async fn isolation_when_the_isolated_comes_first(world: Arc<World>) -> Result<()> {
    let space = world.namespace("isolated-first").await?;
    let alone =
        space.node_of_new(&on_trio(element("ex", "sink", &[("host-isolation", "Sink")]))).await?;
    // Plain pods of the job, which carry no constraint and are not changed: more than the other two
    // nodes would get by spreading alone.
    for name in ["a", "b", "c", "d", "e", "f"] {
        let node = space.node_of_new(&on_trio(element("ex", name, &[]))).await?;
        ensure!(node != alone, "{name} is on the isolated pod's node {alone}");
    }
    // Another job may go there.
    let mut other = element("other", "guest", &[("host", &alone)]);
    other["metadata"]["name"] = json!("guest");
    same(&space.node_of_new(&other).await?, &alone)
}

pub(crate) async fn isolation_when_the_isolated_comes_last(world: Arc<World>) -> Result<()> {
    let space = world.namespace("isolated-last").await?;
    let mut taken = BTreeSet::new();
    for (name, host) in [("a", "node-1"), ("b", "node-2")] {
        taken.insert(space.node_of_new(&element("ex", name, &[("host", host)])).await?);
    }
    let sink = || on_trio(element("ex", "sink", &[("host-isolation", "Sink")]));
    let alone = space.node_of_new(&sink()).await?;
    ensure!(!taken.contains(&alone), "the isolated pod is on {alone}, with others of its job");
    space.delete("sink").await?;
    space.node_of_new(&element("ex", "c", &[("host", "node-3")])).await?;
    let why = space.pending(&sink()).await?;
    ensure!(why.contains("anti-affinity"), "{why}");
    Ok(())
}

pub(crate) async fn equal_tokens_of_two_jobs_do_not_meet(world: Arc<World>) -> Result<()> {
    let space = world.namespace("two-jobs").await?;
    // Colocation: the second job's group is free to go elsewhere, and here it has to.
    let pod = |job: &str, name: &str, host: &str| {
        element(job, name, &[("host-colocation", "together"), ("host", host)])
    };
    same(&space.node_of_new(&pod("one", "one-a", "node-1")).await?, &"node-1".to_owned())?;
    same(&space.node_of_new(&pod("two", "two-a", "node-2")).await?, &"node-2".to_owned())?;
    // Exlocation: the second job's pod may share the first one's node, and here it has to.
    let pod = |job: &str, name: &str| {
        element(job, name, &[("host-exlocation", "apart"), ("host", "node-3")])
    };
    same(&space.node_of_new(&pod("one", "one-b")).await?, &"node-3".to_owned())?;
    same(&space.node_of_new(&pod("two", "two-b")).await?, &"node-3".to_owned())?;
    // While one of the same job may not.
    space.pending(&pod("one", "one-c")).await?;
    Ok(())
}

pub(crate) async fn a_rollout_of_an_exlocated_element_goes_through(
    world: Arc<World>,
) -> Result<()> {
    let space = world.namespace("rollout").await?;
    let deployment = |version: &str| {
        let mut pod = element("job", "pe-0", &[("host-exlocation", "apart"), ("host", "node-4")]);
        pod["metadata"]["labels"]["version"] = json!(version);
        let selector = json!({"streams.ibm.com/pe": "pe-0"});
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "pe-0"},
            "spec": {
                "replicas": 1, "selector": {"matchLabels": selector},
                "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
                "template": {"metadata": {"labels": pod["metadata"]["labels"], "annotations": pod["metadata"]["annotations"]}, "spec": pod["spec"]},
            },
        })
    };
    for version in ["1", "2"] {
        space
            .world
            .kubectl(&["-n", &space.name, "apply", "-f", "-"], &deployment(version).to_string())
            .await?
            .succeeded()?;
        let deployments: Api<Deployment> = Api::namespaced(world.client.clone(), &space.name);
        until("the rollout", std::time::Duration::from_secs(90), async || {
            let deployment = deployments.get("pe-0").await?;
            let status = deployment.status.unwrap_or_default();
            let current = status.observed_generation == deployment.metadata.generation;
            let done = current
                && status.updated_replicas == Some(1)
                && status.available_replicas == Some(1)
                && status.replicas == Some(1);
            Ok(if done { Seen::Done(()) } else { Seen::NotYet(format!("{status:?}")) })
        })
        .await?;
    }
    Ok(())
}

pub(crate) async fn preferred_exlocation_gives_way(world: Arc<World>) -> Result<()> {
    let space = world.namespace("preferred").await?;
    let mut nodes = BTreeSet::new();
    let constraints = [("host-exlocation", "apart"), ("host-enforcement", "preferred")];
    for name in ["a", "b", "c", "d"] {
        let pod = on_trio(element("job", name, &constraints));
        nodes.insert(space.node_of_new(&pod).await?);
    }
    ensure!(nodes.len() == 3, "four pods that rather keep apart are on {nodes:?}");
    Ok(())
}

pub(crate) async fn exlocation_keeps_off_nodes_without_a_hostname(world: Arc<World>) -> Result<()> {
    let space = world.namespace("bare").await?;
    let mut pod = element("job", "pe", &[("host-exlocation", "apart")]);
    pod["spec"]["nodeSelector"] = json!({"bare": "yes"});
    // Without the requirement any number of them would land there.
    space.pending(&pod).await?;
    Ok(())
}

pub(crate) async fn node_name_is_released(world: Arc<World>) -> Result<()> {
    let space = world.namespace("node-name").await?;
    let mut pod = element("job", "pe", &[("host", "node-1")]);
    pod["spec"]["nodeName"] = json!("node-1");
    let stored = space.pod(&pod).await?;
    ensure!(
        stored.spec.is_some_and(|spec| spec.node_name.is_none()),
        "the scheduler is still bypassed"
    );
    same(&space.node_of("pe").await?, &"node-1".to_owned())?;
    pod["metadata"]["name"] = json!("other");
    pod["spec"]["nodeName"] = json!("node-2");
    space.create(&pod).await?.refused_with(&["spec.nodeName is \"node-2\""])?;
    Ok(())
}

pub(crate) async fn colocation_and_exlocation_under_one_token(world: Arc<World>) -> Result<()> {
    let space = world.namespace("one-token").await?;
    // Two name spaces: each pod is with its own group and apart from its own.
    let a = space
        .node_of_new(&element("job", "a", &[("host-colocation", "x"), ("host-exlocation", "y")]))
        .await?;
    let b = space
        .node_of_new(&element("job", "b", &[("host-colocation", "x"), ("host-exlocation", "x")]))
        .await?;
    let c = space.node_of_new(&element("job", "c", &[("host-exlocation", "x")])).await?;
    same(&a, &b)?;
    ensure!(b != c, "exlocated pods are on {b}");
    Ok(())
}
