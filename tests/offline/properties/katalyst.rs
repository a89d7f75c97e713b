//! Pods with a NUMA affinity of any shape.

use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::pod::pod;

/// Values of the two annotations: valid in several forms, without selectors, and invalid.
fn value() -> impl Strategy<Value = &'static str> {
    select(vec![
        r#"{"required":[{"matchLabels":{"role":"ps"},"zone":"numa"}]}"#,
        r#"{ "required": [{"matchLabels":{"role":"worker"}},{"zone":"socket","matchLabels":{"role":"ps"}}] }"#,
        r#"{"required":[{"matchLabels":{"role":"ps"}},{"matchLabels":{"app":"cache"},"zone":""}]}"#,
        r#"{"required":[{"matchLabels":{"role":"ps","app":"cache"}}]}"#,
        r#"{"required":[{"matchLabels":{"team":"a"}}],"preferred":[{"matchLabels":{"role":"ps"}}]}"#,
        r#"{"preferred":[{"matchLabels":{"role":"ps"},"zone":"socket"}]}"#,
        r#"{"required":[{"matchLabels":{}}]}"#,
        r#"{"required":[],"preferred":null}"#,
        "{}",
        "",
        "null",
        r#"{"Required":[]}"#,
        "role=ps",
    ])
}

/// A pod of any shape with the annotations of Katalyst.
pub(crate) fn numa_pod() -> impl Strategy<Value = Value> {
    let level = weighted(0.95, select(vec!["dedicated_cores", "dedicated_cores", "shared_cores"]));
    let memory = weighted(
        0.95,
        select(vec![
            r#"{"numa_binding":"true"}"#,
            r#"{"numa_binding":"true"}"#,
            r#"{"numa_binding":"true","numa_exclusive":"true"}"#,
            r#"{"numa_binding":true}"#,
        ]),
    );
    let role = weighted(0.5, select(vec!["ps", "worker"]));
    (pod(), weighted(0.7, value()), weighted(0.7, value()), level, memory, role).prop_map(
        |(mut pod, affinity, anti_affinity, level, memory, role)| {
            let metadata = &mut pod["metadata"];
            for (parent, key, value) in [
                ("annotations", "katalyst.kubewharf.io/microtopology_affinity", affinity),
                ("annotations", "katalyst.kubewharf.io/microtopology_antiaffinity", anti_affinity),
                ("annotations", "katalyst.kubewharf.io/qos_level", level),
                ("annotations", "katalyst.kubewharf.io/memory_enhancement", memory),
                ("labels", "role", role),
            ] {
                let Some(value) = value else { continue };
                if !metadata[parent].is_object() {
                    metadata[parent] = json!({});
                }
                metadata[parent][key] = value.into();
            }
            pod
        },
    )
}
