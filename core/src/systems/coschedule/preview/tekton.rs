//! Builds the objects that Tekton creates for a PipelineRun, with the fields that placement reads: the
//! claims of the workspaces' templates, and for each task a TaskRun and its pod. Tests compare them with
//! recorded objects of Tekton.

use serde_json::{Map, Value, json};

use crate::systems::View;
use crate::systems::coschedule::keys::PIPELINE_TASK;
use crate::systems::coschedule::kinds::{PipelineRun, PipelineSource, Template};
use crate::systems::coschedule::resources::TASK_RUN;
use crate::systems::preview::Completion;
use crate::view::Name;

/// Adds to a run from a file the fields that the API server sets: a creation time and a UID.
pub(super) fn complete(metadata: &mut Map<String, Value>, completion: &Completion<'_>) {
    // Runs of the cluster are older than those of the input.
    let created = metadata.entry("creationTimestamp").or_insert(Value::Null);
    if created.is_null() {
        *created = completion.now.to_string().into();
    }
    if !metadata.get("uid").is_some_and(Value::is_string) {
        metadata.insert("uid".to_owned(), completion.position.into());
    }
}

/// The fields of a pipeline's task that its pod depends on.
pub(super) struct PipelineTask {
    pub(super) name: String,
    /// The claims that its pod mounts, sorted.
    pub(super) claims: Vec<String>,
}

/// The tasks of a run.
///
/// # Errors
/// The reason why they are not known, as it is shown to users.
pub(super) fn tasks(
    name: &Name,
    run: &PipelineRun,
    view: &View,
) -> Result<Vec<PipelineTask>, String> {
    let pipeline = match &run.pipeline {
        PipelineSource::Inline(pipeline) => pipeline,
        PipelineSource::Named(named) => {
            let known = view.pipeline(&Name::new(&name.namespace, named));
            let unknown =
                || format!("Pipeline {named} is not known here, and so its tasks are not");
            &known.ok_or_else(unknown)?.pipeline
        }
        PipelineSource::Resolver => {
            return Err("its tasks come from a resolver, and are not known here".to_owned());
        }
        PipelineSource::Absent => return Err("it has no pipeline, and so no tasks".to_owned()),
    };
    // Tekton creates a child run for a nested pipeline.
    if pipeline.nested {
        let text = "its pipeline has nested pipelines, whose tasks are not known here";
        return Err(text.to_owned());
    }
    let claim = |workspace: &str| {
        let mut workspaces = run.workspaces.iter();
        workspaces.find(|known| *known.name == *workspace)?.claim().map(ToOwned::to_owned)
    };
    let tasks = pipeline.tasks.iter().map(|task| {
        let of_workspaces = task.workspaces.iter().filter_map(|of| claim(of));
        let own = task.mounted.iter().map(ToString::to_string);
        let mut claims: Vec<String> = of_workspaces.chain(own).collect();
        claims.sort_unstable();
        claims.dedup();
        PipelineTask { name: task.name.to_string(), claims }
    });
    Ok(tasks.collect())
}

fn owner(kind: &str, name: &str, uid: &str) -> Value {
    json!([{"apiVersion": "tekton.dev/v1", "kind": kind, "name": name, "uid": uid,
        "controller": true, "blockOwnerDeletion": true}])
}

/// Builds the claim that Tekton creates from a workspace's template.
pub(super) fn claim(name: &Name, run: &PipelineRun, template: &Template) -> Value {
    let part = |key: &str| template.document.as_ref()?.get(key).cloned();
    let mut metadata = match part("metadata") {
        Some(Value::Object(metadata)) => metadata,
        _ => Map::new(),
    };
    metadata.insert("name".to_owned(), (*template.claim).into());
    metadata.insert("namespace".to_owned(), (*name.namespace).into());
    metadata
        .insert("ownerReferences".to_owned(), owner("PipelineRun", &name.name, &run.identity.uid));
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": metadata, "spec": part("spec").unwrap_or_else(|| json!({})),
    })
}

/// Builds the TaskRun of a task, and its pod.
pub(super) fn pod(
    name: &Name,
    run: &PipelineRun,
    task: &PipelineTask,
    number: usize,
    document: &Value,
) -> (Value, Value) {
    let task_run = format!("{}-{}", name.name, task.name);
    let uid = format!("{}-{number}", run.identity.uid);
    let of_task = json!({
        "apiVersion": "tekton.dev/v1", "kind": "TaskRun",
        "metadata": {
            "name": task_run, "namespace": name.namespace, "uid": uid,
            "labels": {(PIPELINE_TASK): task.name},
            "ownerReferences": owner("PipelineRun", &name.name, &run.identity.uid),
        },
    });
    let own = run.task_overrides.iter().find(|of| *of.task == *task.name);
    let own = own.and_then(|of| of.template.document.as_ref());
    let mut spec = Map::new();
    // Fields of a task's own template replace those of the run's.
    for template in run.template.document.iter().chain(own) {
        for key in ["nodeSelector", "affinity", "tolerations", "volumes", "schedulerName"] {
            if let Some(value) = template.get(key) {
                spec.insert(key.to_owned(), value.clone());
            }
        }
    }
    let labels = [("tekton.dev/pipelineRun", &*name.name), (PIPELINE_TASK, &task.name)];
    let claims = task.claims.iter().map(|claim| json!({"claimName": claim}));
    let task_run = Name::new(&name.namespace, &task_run);
    let mut pod = pod_of_task_run(&task_run, &uid, document, spec, claims);
    labels.into_iter().for_each(|(key, value)| pod["metadata"]["labels"][key] = value.into());
    (of_task, pod)
}

/// Builds the pod of a TaskRun. It has the labels and annotations of `maker`, the document of the TaskRun or of its run, and
/// mounts claims beside the volumes of its template `spec`.
pub(super) fn pod_of_task_run(
    name: &Name,
    uid: &str,
    maker: &Value,
    mut spec: Map<String, Value>,
    claims: impl Iterator<Item = Value>,
) -> Value {
    let metadata = |key: &str| match maker.pointer(&format!("/metadata/{key}")) {
        Some(Value::Object(members)) => members.clone(),
        _ => Map::new(),
    };
    let mut labels = metadata("labels");
    labels.insert("tekton.dev/taskRun".to_owned(), (*name.name).into());
    let mut volumes = match spec.remove("volumes") {
        Some(Value::Array(volumes)) => volumes,
        _ => Vec::new(),
    };
    volumes.extend(claims.enumerate().map(
        |(number, claim)| json!({"name": format!("ws-{number}"), "persistentVolumeClaim": claim}),
    ));
    spec.insert("volumes".to_owned(), volumes.into());
    spec.insert("containers".to_owned(), json!([{"name": "step", "image": "step"}]));
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("{}-pod", name.name), "namespace": name.namespace, "labels": labels,
            "annotations": metadata("annotations"),
            "ownerReferences": owner(TASK_RUN.kind, &name.name, uid),
        },
        "spec": spec,
    })
}
