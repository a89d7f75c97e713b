//! What is kept of a Tekton Pipeline: which task uses which workspaces.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::document::{Part, Reader};
use super::estate::Identity;
use super::pipeline_run::{MODE, VARIABLE};

/// A Pipeline of the cluster.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NamedPipeline {
    /// Who it is.
    pub identity: Identity,
    /// The annotation `stowplan.dev/coschedule`, as it is: Tekton copies it to its runs.
    pub mode: Option<Box<str>>,
    /// What it does.
    pub pipeline: Pipeline,
    /// What could not be read.
    pub problem: Option<Box<str>>,
}

/// A pipeline, of the cluster or inside a run.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Pipeline {
    /// Its tasks, those of `finally` too, in their order.
    pub tasks: Box<[PipelineTask]>,
    /// Whether one of its tasks is a pipeline.
    pub nested: bool,
}

/// A task of a pipeline.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PipelineTask {
    /// Its name.
    pub name: Box<str>,
    /// The pipeline's workspaces that it uses, by the pipeline's names, each once.
    pub workspaces: Box<[Box<str>]>,
    /// The claims that it mounts itself, besides its workspaces, where it is written out in the pipeline.
    /// Each once.
    pub mounted: Box<[Box<str>]>,
}

impl NamedPipeline {
    /// Reads one, whatever its version.
    #[must_use]
    pub fn read(metadata: &ObjectMeta, document: &Value) -> Self {
        let mut reader = Reader::default();
        let whole = reader.whole(document);
        let spec = whole.and_then(|whole| reader.part(&whole, "spec"));
        let pipeline = spec.map(|spec| Pipeline::read(&mut reader, &spec)).unwrap_or_default();
        let annotations = metadata.annotations.as_ref();
        Self {
            identity: Identity::from(metadata),
            mode: annotations.and_then(|map| map.get(MODE)).map(|mode| mode.as_str().into()),
            pipeline,
            problem: reader.problem(),
        }
    }
}

impl Pipeline {
    /// Reads the spec of a pipeline.
    pub(super) fn read(reader: &mut Reader, spec: &Part<'_>) -> Self {
        let mut tasks = Vec::new();
        let mut nested = false;
        for key in ["tasks", "finally"] {
            for task in reader.parts(spec, key) {
                nested |= task.has("pipelineSpec") || task.has("pipelineRef");
                let mut workspaces: BTreeSet<Box<str>> = BTreeSet::new();
                for workspace in reader.parts(&task, "workspaces") {
                    // The pipeline's workspace is called like the task's unless it says otherwise.
                    let named = reader.text(&workspace, "workspace");
                    let name = named.or_else(|| reader.text(&workspace, "name"));
                    workspaces.extend(name.map(Into::into));
                }
                // A task that is written out in the pipeline is given the workspaces that its steps
                // speak of, whether it declares them or not (Tekton, "Propagated Workspaces").
                let written = task.value("taskSpec");
                workspaces.extend(written.map(spoken_of).unwrap_or_default());
                let mounted = written.map(mounted_by).unwrap_or_default();
                tasks.push(PipelineTask {
                    name: reader.text(&task, "name").unwrap_or_default().into(),
                    workspaces: workspaces.into_iter().collect(),
                    mounted: mounted.into_iter().collect(),
                });
            }
        }
        Self { tasks: tasks.into(), nested }
    }
}

/// The claims among the volumes of a task, but for those whose names come from variables.
fn mounted_by(task: &Value) -> BTreeSet<Box<str>> {
    let volumes = task.get("volumes").and_then(Value::as_array).into_iter().flatten();
    let claims = volumes
        .filter_map(|volume| volume.get("persistentVolumeClaim")?.get("claimName")?.as_str())
        .filter(|claim| !claim.is_empty() && !claim.contains(VARIABLE));
    claims.map(Into::into).collect()
}

/// The workspaces that the texts of a task speak of and that it does not declare: `$(workspaces.NAME.path)`.
fn spoken_of(task: &Value) -> BTreeSet<Box<str>> {
    const BEGINNING: &str = "$(workspaces.";
    let declared = task.get("workspaces").and_then(Value::as_array).into_iter().flatten();
    let declared: BTreeSet<&str> =
        declared.filter_map(|workspace| workspace.get("name")?.as_str()).collect();
    let mut names = BTreeSet::new();
    let mut open = vec![task];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(members) => open.extend(members.values()),
            Value::Array(items) => open.extend(items),
            Value::String(text) => {
                for (at, _) in text.match_indices(BEGINNING) {
                    let rest = &text[at + BEGINNING.len()..];
                    let name = rest.split(['.', ')']).next().unwrap_or_default();
                    if !name.is_empty() && !declared.contains(name) {
                        names.insert(name.into());
                    }
                }
            }
            _ => {}
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(spec: &Value) -> NamedPipeline {
        NamedPipeline::read(&ObjectMeta::default(), &json!({"spec": spec}))
    }

    #[test]
    fn tasks_use_the_pipelines_workspaces() {
        let step = json!({"script": "cd $(workspaces.extra.path) && ls $(workspaces.own.path)"});
        let found = read(&json!({
            "tasks": [
                {"name": "a", "workspaces": [{"name": "source", "workspace": "ws"}, {"name": "ws"}]},
                {"name": "b", "workspaces": [{"name": "cache"}]},
                {"name": "c", "workspaces": [{"name": "own", "workspace": "ws"}],
                 "taskSpec": {"steps": [step], "workspaces": [{"name": "own"}]}},
            ],
            "finally": [{"name": "z", "workspaces": [{"name": "x", "workspace": "ws"}]}],
        }));
        let tasks: Vec<(String, String)> = found
            .pipeline
            .tasks
            .iter()
            .map(|task| (task.name.to_string(), task.workspaces.join(" ")))
            .collect();
        let expected = [("a", "ws"), ("b", "cache"), ("c", "extra ws"), ("z", "ws")];
        assert_eq!(tasks, expected.map(|(name, of)| (name.to_owned(), of.to_owned())));
        assert!(!found.pipeline.nested && found.problem.is_none());
    }

    #[test]
    fn a_task_that_is_written_out_may_mount_claims_itself() {
        let claim = |name: &str| json!({"name": "v", "persistentVolumeClaim": {"claimName": name}});
        let found = read(&json!({
            "tasks": [
                {"name": "a", "taskSpec": {"volumes": [claim("c2"), {"name": "e", "emptyDir": {}}, claim("c1"), claim("c2")]}},
                {"name": "b", "taskSpec": {"volumes": [claim("$(params.claim)")]}},
                {"name": "c", "taskRef": {"name": "t"}},
                {"name": "d", "taskSpec": null},
            ],
            "finally": [{"name": "z", "taskSpec": {"volumes": [claim("c1")]}}],
        }));
        assert_eq!(found.problem, None);
        let tasks: Vec<_> =
            found.pipeline.tasks.iter().map(|task| task.mounted.join(" ")).collect();
        assert_eq!(tasks, ["c1 c2", "", "", "", "c1"]);
        // Of an unknown kind, a task may be written in another way.
        let found = read(&json!({"tasks": [{"name": "a", "taskSpec": {"volumes": {"a": "b"}}}]}));
        assert_eq!(found.problem, None);
    }

    #[test]
    fn a_task_may_be_a_pipeline() {
        assert!(
            read(&json!({"tasks": [{"name": "a", "pipelineRef": {"name": "p"}}]})).pipeline.nested
        );
        assert!(read(&json!({"finally": [{"name": "a", "pipelineSpec": {}}]})).pipeline.nested);
        assert!(!read(&json!({"tasks": [{"name": "a", "pipelineSpec": null}]})).pipeline.nested);
    }

    #[test]
    fn what_has_the_wrong_type_is_a_problem_and_the_rest_is_read() {
        for (spec, problem, tasks) in [
            (json!([]), Some("spec: is not an object"), 0),
            (json!(null), None, 0),
            (json!({"tasks": {}}), Some("spec.tasks: is not a list"), 0),
            (json!({"tasks": [7, {"name": "a"}]}), Some("spec.tasks[0]: is not an object"), 1),
            (json!({"tasks": [{"name": 7}]}), Some("spec.tasks[0].name: is not a text"), 1),
            (
                json!({"tasks": [{"name": "é", "workspaces": [{"name": []}]}, {"name": "b"}]}),
                Some("spec.tasks[0].workspaces[0].name: is not a text"),
                2,
            ),
        ] {
            let found = read(&spec);
            assert_eq!(found.problem.as_deref(), problem, "{spec}");
            assert_eq!(found.pipeline.tasks.len(), tasks, "{spec}");
        }
    }
}
