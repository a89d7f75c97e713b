//! StreamsJob objects in the API server, and pods that are placed by them.

use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::world::{World, job};

pub(crate) async fn the_schema_and_its_rules(world: Arc<World>) -> Result<()> {
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
    let grown = patched(replaced("/spec/pools/0/size", json!(4))).await?;
    ensure!(grown.success, "{}", grown.err);
    Ok(())
}
