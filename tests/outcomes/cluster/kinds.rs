//! HostPools and StreamsJobs in the API server.

use std::sync::Arc;

use anyhow::Result;
use serde_json::{Value, json};

use crate::world::{World, has, host_pool, job};

pub(crate) async fn the_schema_of_host_pools_and_its_rules(world: Arc<World>) -> Result<()> {
    let space = world.namespace("schema").await?;
    let hosts = |count: usize| (0..count).map(|i| format!("{i:0>253}")).collect::<Vec<_>>();
    for (name, spec) in [
        ("p1", json!({"size": 10, "tags": ["ib", "blue"]})),
        ("p3", json!({"tags": ["ib", "blue"]})),
        ("p4", json!({"size": 10})),
        ("p6", json!({})),
        ("literal", json!({"hosts": ["foo", "10.8.5.6"]})),
        ("longest", json!({"hosts": hosts(256)})),
    ] {
        space.host_pool(name, spec).await?;
    }
    for (spec, why) in [
        (json!({"hosts": []}), "at least 1"),
        (json!({"hosts": hosts(257)}), "256"),
        (json!({"hosts": ["a", "b", "a"]}), "Duplicate value: \"a\""),
        (json!({"hosts": ["a"], "size": 1}), "hosts excludes size and tags"),
        (json!({"hosts": ["a"], "tags": ["x"]}), "hosts excludes size and tags"),
        (json!({"hosts": [""]}), "at least 1 chars"),
        (json!({"size": 0}), "greater than or equal to 1"),
        (json!({"size": "ten"}), "integer"),
        (json!({"tags": ["not a label"]}), "should match"),
        (json!({"tags": ["x", "x"]}), "Duplicate value"),
        (json!({"tags": []}), "at least 1"),
        (json!({"exclusivity": "Exclusive", "tags": ["x"]}), "Exclusive needs size or hosts"),
        (json!({"exclusivity": "exclusive"}), "Unsupported value"),
        (json!({"sise": 3}), "unknown field"),
    ] {
        space.create(&host_pool("bad", &spec)).await?.refused_with(&[why])?;
    }
    let patched = async |name: &str, spec: &Value| {
        space.patch(&format!("hostpool/{name}"), "merge", &json!({"spec": spec})).await
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
        patched(name, &spec).await?.refused_with(&[why])?;
    }
    let reordered = host_pool("literal", &json!({"hosts": ["10.8.5.6", "foo"]})).to_string();
    let apply = ["-n", &space.name, "apply", "--server-side", "--force-conflicts", "-f", "-"];
    world.kubectl(&apply, &reordered).await?.refused_with(&["hosts is immutable"])?;
    patched("p4", &json!({"size": 11})).await?.succeeded()?;
    has(&space.kubectl("get hp p1").await?, &["SIZE", "EXCLUSIVITY", "Shared"])
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
    let replaced = async |path: &str, value: &Value| {
        let operations = json!([{"op": "replace", "path": path, "value": value}]);
        space.patch("streamsjob/good", "json", &operations).await
    };
    for (path, value, why) in [
        ("/spec/enforcement", json!("Preferred"), "enforcement is immutable"),
        ("/spec/pools/0/size", json!(2), "size can only grow"),
        ("/spec/pools/2/tags", json!(["ib"]), "tags is immutable"),
        ("/spec/pools/1/hosts", json!(["10.4.40.82", "node-1"]), "hosts is immutable"),
        ("/spec/pools", json!([]), "pools neither come nor go"),
        ("/spec/processingElements", json!([]), "neither come nor go"),
    ] {
        replaced(path, &value).await?.refused_with(&[why])?;
    }
    replaced("/spec/pools/0/size", &json!(4)).await?.succeeded().map(drop)
}
