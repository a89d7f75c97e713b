//! Tekton Tasks: what the pods of their TaskRuns request.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::tekton;
use crate::systems::coschedule::resources::TASK;
use crate::view::document::{Foreign, ForeignRow, items};
use crate::view::rows::{Rows, TableRow};
use crate::view::{Identity, Kind, Resources, Scope};

/// A Task of the cluster.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Task {
    pub identity: Identity,
    pub requests: TaskRequests,
}

/// The requests of the containers of a task. Steps are containers of one pod, so that their requests add up
/// (Tekton, "Compute Resources"). A LimitRange may add requests, which are not known here.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct TaskRequests {
    /// All steps together. Requests at the level of the task replace these.
    pub steps: Resources,
    /// All sidecars together.
    pub sidecars: Resources,
}

impl TaskRequests {
    /// Adds up the requests of a task's spec.
    pub(super) fn of_task(spec: &Value) -> Self {
        let sum = |list: &str, template: &Value| {
            let requests = items(&spec[list]).map(|container| requested(container, template));
            requests.fold(Resources::default(), |sum, one| sum.plus(&one))
        };
        Self { steps: sum("steps", &spec["stepTemplate"]), sidecars: sum("sidecars", &Value::Null) }
    }

    /// Returns what the pod requests if this is requested at the level of the task.
    pub(crate) fn of_pod(&self, of_task: Option<&Resources>) -> Resources {
        self.sidecars.plus(of_task.unwrap_or(&self.steps))
    }
}

/// Returns the requests of a container. What it leaves out is that of `template`, and its limits stand for missing
/// requests. `resources` is the field of v1beta1.
fn requested(container: &Value, template: &Value) -> Resources {
    let mut all = BTreeMap::new();
    for kind in ["limits", "requests"] {
        for of in [template, container] {
            let fields = ["resources", "computeResources"];
            all.extend(fields.into_iter().flat_map(|field| quantities(&of[field][kind])));
        }
    }
    Resources::read(Some(&all))
}

/// Returns what task-level `computeResources` request.
pub(super) fn of_compute_resources(resources: &Value) -> Resources {
    let mut all: BTreeMap<String, Quantity> = quantities(&resources["limits"]).collect();
    all.extend(quantities(&resources["requests"]));
    Resources::read(Some(&all))
}

fn quantities(amounts: &Value) -> impl Iterator<Item = (String, Quantity)> {
    amounts.as_object().into_iter().flatten().filter_map(|(name, amount)| {
        let amount = match amount {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => return None,
        };
        Some((name.clone(), Quantity(amount)))
    })
}

impl ForeignRow for Task {
    fn read(metadata: &ObjectMeta, spec: Value, _: Value) -> Self {
        Self { identity: Identity::from(metadata), requests: TaskRequests::of_task(&spec) }
    }
}

static TASKS: Kind = Kind {
    without: Some("what the tasks of runs request is not known before they begin"),
    ..tekton::kind(TASK)
};

/// The table of Tasks.
pub(crate) type Tasks = Rows<Task>;

impl TableRow for Task {
    type Object = Foreign<Self>;
    const KIND: &'static Kind = &TASKS;
    const COUNTED_AS: Option<&'static str> = Some("tasks");
    // Admission does not depend on what pods will request.
    const WATCHED_IN: &'static [Scope] = &[Scope::Controller, Scope::File];

    fn from_object(task: &Foreign<Self>, scope: Scope) -> Option<Self> {
        (scope != Scope::Admission).then(|| task.row.clone())
    }

    fn identity(&self) -> Option<&Identity> {
        Some(&self.identity)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Thousandths of a core, mebibytes and devices: of the steps, and of the sidecars.
    fn read(spec: &Value) -> [i64; 6] {
        let object = serde_json::from_value(json!({"spec": spec})).unwrap();
        let task = Task::from_object(&object, Scope::Controller).unwrap();
        let TaskRequests { steps, sidecars } = &task.requests;
        let [[a, b, c], [d, e, f]] = [steps, sidecars]
            .map(|of| [of.milli_cpu, of.memory >> 20, of.other("example.com/gpu")]);
        [a, b, c, d, e, f]
    }

    #[test]
    fn the_requests_of_steps_and_sidecars_add_up() {
        let of =
            |field: &str, requests: Value| json!({"script": "x", field: {"requests": requests}});
        let limited = json!({"computeResources": {"limits": {"cpu": 1, "memory": "64Mi"}, "requests": {"memory": "32Mi"}}});
        let none = [0; 6];
        for (spec, expected) in [
            (json!(null), none),
            (json!([]), none),
            (json!({"steps": {"a": "b"}, "sidecars": 7}), none),
            (
                json!({"steps": [7, null, {}, {"computeResources": []}, of("computeResources", json!("é"))]}),
                none,
            ),
            (
                json!({"steps": [of("computeResources", json!({"cpu": "x".repeat(262_144), "memory": []}))]}),
                none,
            ),
            (
                json!({"steps": [
                    of("computeResources", json!({"cpu": "1500m", "memory": "1Gi"})),
                    of("resources", json!({"cpu": 2})),
                ], "sidecars": [of("computeResources", json!({"memory": "16Mi"}))]}),
                [3500, 1024, 0, 0, 16, 0],
            ),
            // A device has a limit alone as a rule.
            (
                json!({"steps": [{"computeResources": {"limits": {"example.com/gpu": 2}}}],
                    "sidecars": [of("computeResources", json!({"example.com/gpu": "1"}))]}),
                [0, 0, 2, 0, 0, 1],
            ),
            // As Kubernetes, a limit is a request where there is none.
            (json!({"steps": [limited]}), [1000, 32, 0, 0, 0, 0]),
            // A step has what it does not say itself from the template.
            (
                json!({"stepTemplate": of("computeResources", json!({"cpu": "1", "memory": "8Mi"})),
                    "steps": [{}, of("computeResources", json!({"cpu": "2"}))], "sidecars": [{}]}),
                [3000, 16, 0, 0, 0, 0],
            ),
        ] {
            assert_eq!(read(&spec), expected, "{spec:.200}");
        }
    }
}
