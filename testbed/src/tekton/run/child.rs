//! Builds the TaskRuns of a PipelineRun, and the PipelineRuns of pipelines in its pipeline.

use serde_json::{Map, Value, json};

use super::super::{Kind, claim, items, owner_reference};
use super::Task;

impl Task {
    /// Builds the TaskRun, or the PipelineRun of a pipeline in a pipeline. Its labels, annotations
    /// and templates are those of the run, overridden by those of the task and then of
    /// `taskRunSpecs`.
    pub(super) fn child(
        &self,
        run: &Value,
        name: &str,
        parameters: &[Value],
        results: &dyn Fn(&str) -> String,
    ) -> Value {
        let task = &self.document;
        let metadata = &run["metadata"];
        let overrides = items(&run["spec"]["taskRunSpecs"])
            .find(|it| it["pipelineTaskName"] == task["name"])
            .unwrap_or(&Value::Null);
        let of_task = if self.kind == Kind::TaskRun { "taskSpec" } else { "pipelineSpec" };
        let joined = |key: &str| {
            let mut joined = Map::new();
            for source in [metadata, &task[of_task]["metadata"]] {
                joined.extend(source[key].as_object().cloned().unwrap_or_default());
            }
            joined
        };
        let mut annotations = joined("annotations");
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        let mut labels = joined("labels");
        // A pipeline that is embedded in the run has the run's name.
        let generated = metadata["generateName"].as_str().filter(|prefix| !prefix.is_empty());
        let generated = generated.map(|prefix| prefix.strip_suffix('-').unwrap_or(prefix));
        let pipeline = run["spec"]["pipelineRef"]["name"].as_str().or(generated);
        for (key, value) in [
            ("app.kubernetes.io/managed-by", json!("tekton-pipelines")),
            ("tekton.dev/memberOf", json!(self.member_of)),
            (
                "tekton.dev/pipeline",
                pipeline.map_or_else(|| metadata["name"].clone(), |name| json!(name)),
            ),
            ("tekton.dev/pipelineRun", metadata["name"].clone()),
            ("tekton.dev/pipelineRunUID", metadata["uid"].clone()),
            ("tekton.dev/pipelineTask", task["name"].clone()),
        ] {
            labels.insert(key.to_owned(), value);
        }
        // An author may override all of them.
        for (key, target) in [("labels", &mut labels), ("annotations", &mut annotations)] {
            target.extend(overrides["metadata"][key].as_object().cloned().unwrap_or_default());
        }
        let mut child = json!({
            "apiVersion": "tekton.dev/v1", "kind": self.kind.to_string(),
            "metadata": {
                "name": name, "namespace": metadata["namespace"],
                "labels": labels, "annotations": annotations,
                "ownerReferences": [owner_reference(Kind::PipelineRun, run)],
            },
            "spec": {},
        });
        let spec = &mut child["spec"];
        let workspaces = claim::bindings(run, &task["workspaces"], results);
        if !workspaces.is_empty() {
            spec["workspaces"] = json!(workspaces);
        }
        for key in ["taskSpec", "taskRef", "pipelineSpec", "pipelineRef", "retries"] {
            if !task[key].is_null() {
                spec[key] = task[key].clone();
            }
        }
        if let Some(embedded) = spec[of_task].as_object_mut() {
            embedded.remove("metadata");
            // Defaulting leaves this null in an embedded task.
            if embedded.get("spec").is_some_and(Value::is_null) {
                embedded.remove("spec");
            }
        }
        if !parameters.is_empty() {
            spec["params"] = json!(parameters);
        }
        let (account, template) = templates(run, overrides);
        if self.kind == Kind::PipelineRun {
            spec["taskRunTemplate"] =
                json!({"serviceAccountName": account, "podTemplate": template});
            return child;
        }
        spec["serviceAccountName"] = account;
        let timeout = task["timeout"].as_str().unwrap_or("1h0m0s");
        spec["timeout"] = json!(timeout);
        if !template.is_null() {
            spec["podTemplate"] = template;
        }
        child
    }
}

/// The service account and pod template of a task: those of the run, overridden by `taskRunSpecs`.
fn templates(run: &Value, overrides: &Value) -> (Value, Value) {
    let of_run = &run["spec"]["taskRunTemplate"];
    let accounts = [&overrides["serviceAccountName"], &of_run["serviceAccountName"]];
    let account = accounts.into_iter().find_map(Value::as_str).unwrap_or("default");
    let mut template = of_run["podTemplate"].clone();
    for (key, value) in overrides["podTemplate"].as_object().into_iter().flatten() {
        template[key] = value.clone();
    }
    (json!(account), template)
}

#[cfg(test)]
mod tests {
    use super::super::{combinations, is_of, text};
    use super::*;
    use crate::tekton::recorded;

    #[test]
    fn task_runs_have_the_shape_of_recorded_ones() {
        let runs = recorded::runs();
        let mut compared = 0;
        for (case, seen) in &recorded::task_runs() {
            let Some(run) = runs.values().find(|run| is_of(seen, run)) else { continue };
            let labels = &seen["metadata"]["labels"];
            let member_of = match text(&labels["tekton.dev/memberOf"]) {
                "finally" => "finally",
                _ => "tasks",
            };
            let planned = items(&run["spec"]["pipelineSpec"][member_of])
                .find(|task| task["name"] == labels["tekton.dev/pipelineTask"]);
            let task = Task::new(run, planned.unwrap(), member_of);
            let name = text(&seen["metadata"]["name"]);
            let index = task.names.iter().position(|made| made == name);
            let index = index.unwrap_or_else(|| panic!("{case}: none of {:?}", task.names));
            let combinations = combinations(&task.document);
            let parameters = combinations.get(index).map_or(&[][..], Vec::as_slice);
            let made = task.child(run, name, parameters, &str::to_owned);
            assert_eq!(made["apiVersion"], seen["apiVersion"], "{case}");
            assert_eq!(made["kind"], seen["kind"], "{case}");
            for key in ["name", "namespace", "labels", "ownerReferences"] {
                assert_eq!(made["metadata"][key], seen["metadata"][key], "{case}: {key}");
            }
            let some = |annotations: &Value| annotations.as_object().cloned().unwrap_or_default();
            let (made_of, seen_of) = (&made["metadata"], &seen["metadata"]);
            assert_eq!(some(&made_of["annotations"]), some(&seen_of["annotations"]), "{case}");
            assert_eq!(made["spec"], seen["spec"], "{case}");
            compared += 1;
        }
        assert!(compared > 10, "only {compared} were compared");
    }
}
