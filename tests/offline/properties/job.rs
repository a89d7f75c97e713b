//! StreamsJobs of any shape.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};

/// The spec of a job of a few elements, which may well contradict itself.
pub(crate) fn job() -> impl Strategy<Value = Value> {
    let host = prop::option::weighted(
        0.3,
        select(vec![
            json!({"name": "n0"}),
            json!({"address": "10.0.0.0"}),
            json!({"name": "n1"}),
            json!({"pool": "Listed"}),
            json!({"pool": "Listed", "index": 1}),
            json!({"pool": "Tagged"}),
            json!({"pool": "Any_host"}),
            json!({"pool": "Sized"}),
            json!({"pool": "Sized", "index": 0}),
        ]),
    );
    let tokens = || subsequence(vec!["x", "a token"], 0..=2);
    let operator = (host, tokens(), tokens(), prop::bool::weighted(0.1));
    let enforcement = select(vec!["Required", "Preferred"]);
    (vec(vec(operator, 0..3), 1..5), enforcement, any::<bool>()).prop_map(
        |(elements, enforcement, exclusive)| {
            let elements = elements.into_iter().enumerate().map(|(element, operators)| {
                let operators = operators.into_iter().enumerate().map(
                    |(index, (host, together, apart, alone))| {
                        let mut operator = json!({
                            "name": format!("Op[{element}].{index}"),
                            "hostColocation": together, "hostExlocation": apart,
                            "hostIsolation": alone,
                        });
                        if let Some(host) = host {
                            operator["host"] = host;
                        }
                        operator
                    },
                );
                json!({"name": format!("e{element}"), "operators": operators.collect::<Vec<_>>()})
            });
            let exclusivity = if exclusive { "Exclusive" } else { "Shared" };
            json!({
                "enforcement": enforcement,
                "pools": [
                    {"name": "Listed", "hosts": ["n0", "n1"]},
                    {"name": "Tagged", "tags": ["ib"]},
                    {"name": "Any_host"},
                    {"name": "Sized", "size": 2, "exclusivity": exclusivity},
                ],
                "processingElements": elements.collect::<Vec<_>>(),
            })
        },
    )
}

/// The objects of a job `j`: itself, and the HostPool that the controller makes for `Sized`.
pub(crate) fn job_objects(spec: &Value) -> [Value; 2] {
    let version = "stowplan.dev/v1alpha1";
    let owner = json!({"apiVersion": version, "kind": "StreamsJob", "name": "j", "uid": "u", "controller": true});
    let name = stowplan::testing::systems::streams::kinds::streams_job::closure::host_pool_name(
        "j", "Sized",
    );
    [
        json!({
            "apiVersion": version, "kind": "StreamsJob",
            "metadata": {"name": "j", "namespace": "default", "uid": "u"}, "spec": spec,
        }),
        json!({
            "apiVersion": version, "kind": "HostPool",
            "metadata": {"name": name, "namespace": "default", "uid": "p", "ownerReferences": [owner]},
            "spec": {"size": 2, "exclusivity": spec["pools"][3]["exclusivity"]},
        }),
    ]
}
