//! Builds the pod of a TaskRun.

use serde_json::{Value, json};

use super::{Kind, claim, items, names, owner_reference, text};

/// The Tekton release whose pods were recorded.
const RELEASE: &str = "70f7308";

/// Builds the pod that Tekton creates for an `attempt` of `task_run` (0 for the first, then one
/// more for each retry). `task` is the specification that it runs, and `labels` are those of the
/// Task object.
///
/// It has what placement depends on. Tekton's own volumes, mounts and init containers are
/// missing, and so are the API server's additions.
pub(super) fn pod(task_run: &Value, task: &Value, labels: &Value, attempt: usize) -> Value {
    let metadata = &task_run["metadata"];
    let template = &task_run["spec"]["podTemplate"];
    let mut spec = json!({
        "restartPolicy": "Never",
        "serviceAccountName": task_run["spec"]["serviceAccountName"],
        "containers": items(&task["steps"]).enumerate().map(container).collect::<Vec<_>>(),
    });
    for (key, value) in template.as_object().into_iter().flatten() {
        if key != "env" {
            spec[key] = value.clone();
        }
    }
    let own = workspaces(task_run, task);
    let volumes = items(&task["volumes"]).chain(&own).chain(items(&template["volumes"]));
    spec["volumes"] = volumes.cloned().collect();
    let mut labels = labels.as_object().cloned().unwrap_or_default();
    labels.extend(metadata["labels"].as_object().cloned().unwrap_or_default());
    // Set last, so that no author can change them.
    labels.insert("app.kubernetes.io/managed-by".to_owned(), json!("tekton-pipelines"));
    labels.insert("tekton.dev/taskRun".to_owned(), metadata["name"].clone());
    labels.insert("tekton.dev/taskRunUID".to_owned(), metadata["uid"].clone());
    if let Some(name) = task_run["spec"]["taskRef"]["name"].as_str() {
        labels.insert("tekton.dev/task".to_owned(), json!(name));
    }
    let mut annotations = metadata["annotations"].as_object().cloned().unwrap_or_default();
    annotations.insert("pipeline.tekton.dev/release".to_owned(), json!(RELEASE));
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name(task_run, attempt),
            "namespace": metadata["namespace"],
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner_reference(Kind::TaskRun, task_run)],
        },
        "spec": spec,
    })
}

/// The name of the pod for an attempt of a TaskRun.
pub(super) fn name(task_run: &Value, attempt: usize) -> String {
    let suffix = match attempt {
        0 => "-pod".to_owned(),
        retry => format!("-pod-retry{retry}"),
    };
    names::child(text(&task_run["metadata"]["name"]), &suffix)
}

fn container((index, step): (usize, &Value)) -> Value {
    let name = step["name"].as_str().map_or_else(|| format!("unnamed-{index}"), str::to_owned);
    json!({
        "name": format!("step-{name}"), "image": step["image"],
        // A real node runs it.
        "command": step["command"], "args": step["args"],
        "resources": step["computeResources"],
    })
}

/// The volumes of the task's workspaces. Those of the same claim share one.
fn workspaces(task_run: &Value, task: &Value) -> Vec<Value> {
    let mut volumes: Vec<Value> = Vec::new();
    for workspace in items(&task["workspaces"]) {
        let name = text(&workspace["name"]);
        let bound = items(&task_run["spec"]["workspaces"]).find(|it| it["name"] == name);
        let Some(bound) = bound else { continue };
        // Only a TaskRun without a run has a template: a run passes its claims to its TaskRuns.
        let claim = claim::name(bound, task_run).map(|claim| json!({"claimName": claim}));
        let kinds = ["emptyDir", "configMap", "secret", "projected", "csi"];
        let (kind, source) = match claim.as_ref().unwrap_or_else(|| &bound["persistentVolumeClaim"])
        {
            Value::Null => match kinds.into_iter().find(|kind| !bound[kind].is_null()) {
                Some(kind) => (kind, &bound[kind]),
                None => continue,
            },
            claim => ("persistentVolumeClaim", claim),
        };
        let is_same = |it: &Value| {
            kind == "persistentVolumeClaim" && it[kind]["claimName"] == source["claimName"]
        };
        if !volumes.iter().any(is_same) {
            let is_taken = |name: &str| volumes.iter().any(|it| it["name"] == name);
            let name = names::volume(name, &is_taken);
            volumes.push(json!({"name": name, kind: source}));
        }
    }
    volumes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tekton::recorded;

    /// Panics unless `seen` contains all of `made`.
    fn assert_contains(path: &str, made: &Value, seen: &Value) {
        match (made, seen) {
            (Value::Null, _) => {}
            (Value::Object(made), Value::Object(_)) => {
                for (key, value) in made {
                    assert_contains(&format!("{path}.{key}"), value, &seen[key]);
                }
            }
            (Value::Array(made), Value::Array(seen)) => {
                assert_eq!(made.len(), seen.len(), "{path}: {made:?}, not {seen:?}");
                for (index, (made, seen)) in made.iter().zip(seen).enumerate() {
                    assert_contains(&format!("{path}[{index}]"), made, seen);
                }
            }
            _ => assert_eq!(made, seen, "{path}"),
        }
    }

    #[test]
    fn pods_have_the_shape_of_recorded_ones() {
        for (case, task_run) in &recorded::task_runs() {
            let mut seen = recorded::review(&format!("{case}-pod"));
            // What the driver leaves out, and the API server's token.
            for (list, prefixes) in [
                ("volumes", &["tekton-", "kube-api-access"][..]),
                ("containers", &["sidecar-"][..]),
                ("tolerations", &["node.kubernetes.io/"][..]),
            ] {
                let is_added = |it: &Value| {
                    let names = [&it["name"], &it["key"]].map(text);
                    names.iter().any(|name| prefixes.iter().any(|of| name.starts_with(of)))
                };
                if let Some(list) = seen["spec"][list].as_array_mut() {
                    list.retain(|it| !is_added(it));
                }
            }
            let made = pod(task_run, &task_run["spec"]["taskSpec"], &Value::Null, 0);
            assert_contains(case, &made, &seen);
            for key in ["labels", "annotations", "ownerReferences", "name", "namespace"] {
                assert_eq!(made["metadata"][key], seen["metadata"][key], "{case}: {key}");
            }
            for key in ["affinity", "nodeSelector", "securityContext"] {
                let is_set = |pod: &Value| {
                    pod["spec"][key].as_object().is_some_and(|fields| !fields.is_empty())
                };
                assert_eq!(is_set(&made), is_set(&seen), "{case}: {key}");
            }
        }
    }
}
