//! HostPool objects in the API server.

use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::world::{Space, World, element, same};

fn pool(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "stowplan.dev/v1alpha1", "kind": "HostPool", "metadata": {"name": name}, "spec": spec})
}

pub(crate) async fn the_schema_and_its_rules(world: Arc<World>) -> Result<()> {
    let space = world.namespace("schema").await?;
    let hosts = |count: usize| (0..count).map(|i| format!("{i:0>253}")).collect::<Vec<_>>();
    for (name, spec) in [
        ("p1", json!({"size": 10, "tags": ["ib", "blue"]})),
        ("p2", json!({"size": 4, "tags": ["ib", "blue"], "exclusivity": "Exclusive"})),
        ("p3", json!({"tags": ["ib", "blue"]})),
        ("p4", json!({"size": 10})),
        ("p5", json!({"size": 4, "exclusivity": "Exclusive"})),
        ("p6", json!({})),
        ("literal", json!({"hosts": ["foo", "10.8.5.6"]})),
        ("longest", json!({"hosts": hosts(256)})),
    ] {
        space.created(&pool(name, &spec)).await?;
    }
    for (spec, why) in [
        (json!({"hosts": []}), "at least 1"),
        (json!({"hosts": hosts(257)}), "256"),
        (json!({"hosts": ["a", "b", "a"]}), "Duplicate value: \"a\""),
        (json!({"hosts": ["a"], "size": 1}), "hosts excludes size and tags"),
        (json!({"hosts": ["a"], "tags": ["x"]}), "hosts excludes size and tags"),
        (json!({"hosts": [""]}), "at least 1 chars"),
        (json!({"size": 0}), "greater than or equal to 1"),
        (json!({"size": -1}), "greater than or equal to 1"),
        (json!({"size": "ten"}), "integer"),
        (json!({"tags": ["not a label"]}), "should match"),
        (json!({"tags": ["x", "x"]}), "Duplicate value"),
        (json!({"tags": []}), "at least 1"),
        (json!({"exclusivity": "Exclusive"}), "Exclusive needs size or hosts"),
        (json!({"exclusivity": "Exclusive", "tags": ["x"]}), "Exclusive needs size or hosts"),
        (json!({"exclusivity": "exclusive"}), "Unsupported value"),
        (json!({"sise": 3}), "unknown field"),
    ] {
        space.create(&pool("bad", &spec)).await?.refused_with(&[why])?;
    }
    let patched = async |name: &str, spec: Value| {
        let patch = json!({"spec": spec}).to_string();
        world
            .kubectl(
                &["-n", &space.name, "patch", "hostpool", name, "--type=merge", "-p", &patch],
                "",
            )
            .await
    };
    for (name, spec, why) in [
        ("literal", json!({"hosts": ["10.8.5.6", "foo"]}), "hosts is immutable"),
        ("literal", json!({"hosts": null}), "hosts is immutable"),
        ("p6", json!({"hosts": ["a"]}), "hosts is immutable"),
        ("p3", json!({"tags": ["ib"]}), "tags is immutable"),
        ("p3", json!({"tags": null}), "tags is immutable"),
        ("p4", json!({"size": 9}), "size can only grow"),
        ("p4", json!({"size": null}), "size can only grow"),
        ("p6", json!({"size": 1}), "size can only grow"),
        ("p4", json!({"exclusivity": "Exclusive"}), "exclusivity is immutable"),
    ] {
        patched(name, spec.clone()).await?.refused_with(&[why])?;
    }
    let reordered = pool("literal", &json!({"hosts": ["10.8.5.6", "foo"]})).to_string();
    let apply = ["-n", &space.name, "apply", "--server-side", "--force-conflicts", "-f", "-"];
    world.kubectl(&apply, &reordered).await?.refused_with(&["hosts is immutable"])?;
    let grown = patched("p4", json!({"size": 11})).await?;
    ensure!(grown.success, "{}", grown.err);
    let said = world.kubectl(&["-n", &space.name, "get", "hp", "p1"], "").await?;
    ensure!(
        said.out.contains("SIZE")
            && said.out.contains("EXCLUSIVITY")
            && said.out.contains("Shared"),
        "{}",
        said.out
    );
    Ok(())
}

pub(crate) async fn a_pool_made_just_before_its_pod(world: Arc<World>) -> Result<()> {
    let space = world.namespace("just-before").await?;
    // Both in one file: the pod is created milliseconds after the pool, and must not be refused
    // because the watch is a moment behind.
    for round in 0..10 {
        let name = format!("p{round}");
        let both = json!({"apiVersion": "v1", "kind": "List", "items": [
            pool(&name, &json!({"hosts": ["node-1"]})),
            element("job", &name, &[("host-pool", &name)]),
        ]});
        space.create(&both).await?.succeeded()?;
        same(&space.node_of(&name).await?, &"node-1".to_owned())?;
    }
    Ok(())
}

pub(crate) async fn a_missing_pool_is_refused(world: Arc<World>) -> Result<()> {
    let space = world.namespace("missing").await?;
    let other = world.namespace("other").await?;
    other.host_pool("p", json!({"hosts": ["node-1"]})).await?;
    // A pool of another namespace does not count.
    refused(&space, "p", "has no HostPool \"p\"").await
}

/// No controller runs beside these tests: pods of pools that need one are admitted, and wait for
/// its label.
pub(crate) async fn pods_of_sized_pools_wait_for_the_controller(world: Arc<World>) -> Result<()> {
    let space = world.namespace("managed").await?;
    space.host_pool("sized", json!({"size": 2})).await?;
    space.host_pool("exclusive", json!({"hosts": ["node-1"], "exclusivity": "Exclusive"})).await?;
    for (pod, pool) in [("a", "sized"), ("b", "exclusive"), ("c", "exclusive[0]")] {
        let why = space.pending(&element("job", pod, &[("host-pool", pool)])).await?;
        ensure!(why.contains("node affinity"), "{why}");
    }
    Ok(())
}

async fn refused(space: &Space, pool: &str, why: &str) -> Result<()> {
    space.create(&element("job", "pe", &[("host-pool", pool)])).await?.refused_with(&[why])?;
    Ok(())
}
