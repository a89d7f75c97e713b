//! HostPools and StreamsJobs in the API server.

use std::sync::Arc;

use anyhow::Result;
use serde_json::{Value, json};

use crate::world::{World, element, has, job, same};

fn pool(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "stowplan.dev/v1alpha1", "kind": "HostPool", "metadata": {"name": name}, "spec": spec})
}

pub(crate) async fn the_schema_of_host_pools_and_its_rules(world: Arc<World>) -> Result<()> {
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
        let patch = ["-n", &space.name, "patch", "hostpool", name, "--type=merge", "-p", &patch];
        world.kubectl(&patch, "").await
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
    patched("p4", json!({"size": 11})).await?.succeeded()?;
    has(&space.kubectl("get hp p1").await?, &["SIZE", "EXCLUSIVITY", "Shared"])
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

pub(crate) async fn the_schema_of_streams_jobs_and_its_rules(world: Arc<World>) -> Result<()> {
    let space = world.namespace("job-schema").await?;
    let elements = |operator: Value| json!([{"name": "pe", "operators": [operator]}]);
    let good = json!({
        "pools": [
            {"name": "P2", "size": 3},
            {"name": "NamesPool", "hosts": ["node-1", "10.4.40.82"]},
            {"name": "P3", "tags": ["ib", "blue"]},
        ],
        "processingElements": elements(json!({
            "name": "Source", "host": {"pool": "P2", "index": 0}, "hostColocation": ["together"],
        })),
    });
    space.created(&job("good", &good)).await?;
    let operator =
        |host: Value| json!({"processingElements": elements(json!({"name": "O", "host": host}))});
    for (spec, why) in [
        (operator(json!({})), "exactly one of name, address and pool"),
        (operator(json!({"name": "a", "pool": "P"})), "exactly one of name, address and pool"),
        (operator(json!({"name": "a", "index": 1})), "index is allowed only beside pool"),
        (operator(json!({"pool": "P", "index": -1})), "greater than or equal to 0"),
        (json!({"pools": [{"name": "P"}, {"name": "P"}]}), "Duplicate value"),
        (json!({"pools": [{"name": "1P"}]}), "should match"),
        (json!({"pools": [{"name": "P", "size": 0}]}), "greater than or equal to 1"),
        (json!({"pools": [{"name": "P", "hosts": ["a"], "size": 1}]}), "hosts excludes size"),
        (json!({"pools": [{"name": "P", "exclusivity": "Exclusive"}]}), "Exclusive needs size"),
        (json!({"processingElements": [{"name": "a"}, {"name": "a"}]}), "Duplicate value"),
        (json!({"processingElements": [{"name": "a b"}]}), "should match"),
        (json!({"enforcement": "perhaps"}), "Unsupported value"),
    ] {
        space.create(&job("bad", &spec)).await?.refused_with(&[why])?;
    }
    let patched = async |operations: Value| {
        let operations = operations.to_string();
        let patch = ["-n", &space.name, "patch", "sj", "good", "--type=json", "-p", &operations];
        world.kubectl(&patch, "").await
    };
    let replaced =
        |path: &str, value: Value| json!([{"op": "replace", "path": path, "value": value}]);
    for (operations, why) in [
        (replaced("/spec/enforcement", json!("Preferred")), "enforcement is immutable"),
        (replaced("/spec/pools/0/size", json!(2)), "size can only grow"),
        (replaced("/spec/pools/2/tags", json!(["ib"])), "tags is immutable"),
        (replaced("/spec/pools/1/hosts", json!(["10.4.40.82", "node-1"])), "hosts is immutable"),
        (replaced("/spec/pools", json!([])), "pools neither come nor go"),
        (replaced("/spec/processingElements", json!([])), "neither come nor go"),
    ] {
        patched(operations.clone()).await?.refused_with(&[why])?;
    }
    patched(replaced("/spec/pools/0/size", json!(4))).await?.succeeded().map(drop)
}
