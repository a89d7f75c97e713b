//! StreamsJobs of any shape.

use proptest::prelude::*;
use serde_json::{Value, json};
use stowplan_core::systems::streams::kinds::streams_job::closure::host_pool_name;

use crate::streams_cases::{any_model, job_spec, node_labels, node_name};

/// The spec of a job, which may well contradict itself, and the objects of its cluster: nodes, the job `j`,
/// and the HostPools that the controller makes for its sized pools.
pub(crate) fn job() -> impl Strategy<Value = (Value, Vec<Value>)> {
    let version = "stowplan.dev/v1alpha1";
    let enforcement = proptest::sample::select(vec!["Required", "Preferred"]);
    (any_model(), enforcement).prop_map(move |(model, enforcement)| {
        let mut spec = job_spec(&model, node_name);
        spec["enforcement"] = json!(enforcement);
        let nodes = model.nodes.iter().enumerate().map(|(number, node)| {
            let metadata = json!({"name": node_name(number), "labels": node_labels(node)});
            json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        });
        let mut objects: Vec<Value> = nodes.collect();
        objects.push(json!({
            "apiVersion": version, "kind": "StreamsJob",
            "metadata": {"name": "j", "namespace": "default", "uid": "u"}, "spec": spec,
        }));
        let owner = json!({"apiVersion": version, "kind": "StreamsJob", "name": "j", "uid": "u", "controller": true});
        let pools = spec["pools"].as_array().into_iter().flatten();
        objects.extend(pools.filter(|pool| pool["size"].is_number() || pool["exclusivity"] == "Exclusive").map(|pool| {
            let name = host_pool_name("j", pool["name"].as_str().unwrap());
            let mut spec = pool.clone();
            spec.as_object_mut().unwrap().remove("name");
            json!({
                "apiVersion": version, "kind": "HostPool",
                "metadata": {"name": name, "namespace": "default", "uid": name, "ownerReferences": [owner]},
                "spec": spec,
            })
        }));
        (spec, objects)
    })
}
