//! Tekton Pipelines: which task uses which workspaces.

use std::collections::BTreeSet;

use super::task::TaskRequests;
use super::tekton;
use crate::kubernetes::annotation;
use crate::systems::coschedule::keys::MODE;
use crate::systems::coschedule::resources::PIPELINE;
use crate::view::document::{Document, Field, Foreign, Members, Part, Reader, Shape, Shaped};
use crate::view::rows::{Rows, TableRow};
use crate::view::{Identity, Kind, Scope};

/// A Pipeline of the cluster.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct NamedPipeline {
    pub identity: Identity,
    /// The unparsed annotation [`MODE`], which Tekton copies to the Pipeline's runs.
    pub mode: Option<Box<str>>,
    pub pipeline: Pipeline,
    /// The first field that could not be read, and why.
    pub problem: Option<Box<str>>,
}

/// The spec of a pipeline, from a Pipeline or from inside a run.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Pipeline {
    /// Its tasks in order, then those of `finally`.
    pub tasks: Box<[PipelineTask]>,
    /// Whether one of its tasks is itself a pipeline.
    pub nested: bool,
}

/// A task of a pipeline.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct PipelineTask {
    pub name: Box<str>,
    /// The workspaces that it uses, by their names in the pipeline, each once.
    pub workspaces: Box<[Box<str>]>,
    /// The claims that the volumes of an inline task mount, besides its workspaces. Each once.
    pub mounted: Box<[Box<str>]>,
    /// The Task of the namespace that it refers to; `None`: it is inline, or only Tekton can find it.
    pub task: Option<Box<str>>,
    /// The requests of an inline task.
    pub requests: TaskRequests,
}

/// The fields of a pipeline's spec that are read.
pub(super) const SPEC: Shape = Shape::Object(&[("tasks", TASKS), ("finally", TASKS)]);

const TASKS: Shape = Shape::List(&Shape::Object(&[
    ("name", Shape::Scalar),
    ("pipelineRef", Shape::Scalar),
    ("pipelineSpec", Shape::Scalar),
    ("taskRef", TASK_REF),
    ("taskSpec", Shape::Computed(reduce)),
    (
        "workspaces",
        Shape::List(&Shape::Object(&[("name", Shape::Scalar), ("workspace", Shape::Scalar)])),
    ),
]));

const TASK_REF: Shape = Shape::Object(&[
    ("bundle", Shape::Scalar),
    ("kind", Shape::Scalar),
    ("name", Shape::Scalar),
    ("resolver", Shape::Scalar),
]);

/// The key of the workspaces that an inline task refers to and does not declare.
const UNDECLARED: &str = "undeclaredWorkspaces";

/// The key of the claims that the volumes of an inline task mount.
const MOUNTED: &str = "mountedClaims";

/// The key of what the containers of an inline task request.
const REQUESTS: &str = "requests";

impl Shaped for NamedPipeline {
    const FIELDS: &'static [Field] = &[("spec", SPEC)];
}

impl NamedPipeline {
    /// Reads a Pipeline of any API version.
    #[must_use]
    pub(crate) fn read(object: &Foreign<Self>) -> Self {
        let metadata = &object.metadata;
        let mut reader = Reader::default();
        let document = reader.whole(&object.document);
        let spec = document.and_then(|document| reader.part(&document, "spec"));
        let pipeline = spec.map(|spec| Pipeline::read(&mut reader, &spec)).unwrap_or_default();
        Self {
            identity: Identity::from(metadata),
            mode: annotation(metadata, MODE).map(Into::into),
            pipeline,
            problem: reader.problem(),
        }
    }
}

impl Pipeline {
    /// Reads the spec of a pipeline.
    pub(crate) fn read(reader: &mut Reader, spec: &Part<'_>) -> Self {
        let mut tasks = Vec::new();
        let mut nested = false;
        for key in ["tasks", "finally"] {
            for task in reader.parts(spec, key) {
                nested |= task.has("pipelineSpec") || task.has("pipelineRef");
                let mut workspaces: BTreeSet<Box<str>> = BTreeSet::new();
                for workspace in reader.parts(&task, "workspaces") {
                    // By default the pipeline's workspace has the same name as the task's.
                    let named = reader.text(&workspace, "workspace");
                    let name = named.or_else(|| reader.text(&workspace, "name"));
                    workspaces.extend(name.map(Into::into));
                }
                // An inline task gets the workspaces that its steps refer to, even those that it
                // does not declare (Tekton, "Propagated Workspaces").
                let inline = reader.part(&task, "taskSpec");
                let mut texts = |key: &str| {
                    let texts = inline.as_ref().map(|inline| reader.texts(inline, key));
                    texts.unwrap_or_default().into_iter().map(Into::into)
                };
                workspaces.extend(texts(UNDECLARED));
                let mounted = texts(MOUNTED).collect();
                let requests: Vec<Box<str>> = texts(REQUESTS).collect();
                let reference = reader.part(&task, "taskRef").filter(|reference| {
                    let kind = reference.value("kind").and_then(Document::as_str);
                    !reference.has("resolver")
                        && !reference.has("bundle")
                        && kind.is_none_or(|kind| kind == "Task")
                });
                tasks.push(PipelineTask {
                    name: reader.text(&task, "name").unwrap_or_default().into(),
                    workspaces: workspaces.into_iter().collect(),
                    mounted,
                    task: reference.and_then(|of| Some(reader.text(&of, "name")?.into())),
                    requests: TaskRequests::from_texts(&requests),
                });
            }
        }
        Self { tasks: tasks.into(), nested }
    }
}

/// Reduces the spec of an inline task, which has the scripts of its steps, to the texts under
/// [`UNDECLARED`], [`MOUNTED`] and [`REQUESTS`]. Custom tasks may have a spec of another shape.
fn reduce(task: &Document) -> Document {
    let (undeclared, mounted) = (undeclared_workspaces(task), mounted_claims(task));
    let requests = TaskRequests::of_task(task);
    if undeclared.is_empty() && mounted.is_empty() && requests == TaskRequests::default() {
        return Document::Null;
    }
    let lists = [
        (UNDECLARED, undeclared.into_iter().collect()),
        (MOUNTED, mounted.into_iter().collect()),
        (REQUESTS, requests.texts().into_iter().collect()),
    ];
    Document::Object(Members::new(lists))
}

/// The claims among the volumes of a task, except those whose names have variables.
fn mounted_claims(task: &Document) -> BTreeSet<Box<str>> {
    let claims = task.at(&["volumes"]).items().iter();
    let claims = claims
        .filter_map(|volume| volume.at(&["persistentVolumeClaim", "claimName"]).as_str())
        .filter(|claim| !claim.is_empty() && !claim.contains(tekton::VARIABLE));
    claims.map(Into::into).collect()
}

/// The workspaces that strings in a task refer to as `$(workspaces.NAME.path)`, and that the task
/// does not declare.
fn undeclared_workspaces(task: &Document) -> BTreeSet<Box<str>> {
    const BEGINNING: &str = "$(workspaces.";
    let declared = task.at(&["workspaces"]).items().iter();
    let declared: BTreeSet<&str> =
        declared.filter_map(|workspace| workspace.at(&["name"]).as_str()).collect();
    let mut names = BTreeSet::new();
    for text in task.texts() {
        for (at, _) in text.match_indices(BEGINNING) {
            let rest = &text[at + BEGINNING.len()..];
            let name = rest.split(['.', ')']).next().unwrap_or_default();
            if !name.is_empty() && !declared.contains(name) {
                names.insert(name.into());
            }
        }
    }
    names
}

static PIPELINES: Kind = tekton::kind(PIPELINE);

/// The table of Pipelines.
pub(crate) type Pipelines = Rows<NamedPipeline>;

impl TableRow for NamedPipeline {
    type Object = Foreign<Self>;
    type Index = ();
    const KIND: &'static Kind = &PIPELINES;
    const COUNTED_AS: Option<&'static str> = Some("pipelines");

    fn from_object(object: &Foreign<Self>, _: Scope) -> Option<Self> {
        Some(Self::read(object))
    }

    fn identity(&self) -> Option<&Identity> {
        Some(&self.identity)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(spec: &Value) -> NamedPipeline {
        NamedPipeline::read(&serde_json::from_value(json!({"spec": spec})).unwrap())
    }

    /// The names that `of` finds in each task, joined.
    fn each(found: &NamedPipeline, of: impl Fn(&PipelineTask) -> &[Box<str>]) -> Vec<String> {
        found.pipeline.tasks.iter().map(|task| of(task).join(" ")).collect()
    }

    #[test]
    fn tasks_use_the_pipelines_workspaces() {
        let step = json!({"script": "cd $(workspaces.extra.path) && ls $(workspaces.own.path)"});
        let found = read(&json!({
            "tasks": [
                {"name": "a", "workspaces": [{"name": "source", "workspace": "ws"}, {"name": "ws"}]},
                {"name": "b", "workspaces": [{"name": "cache"}], "pipelineSpec": null},
                {"name": "c", "workspaces": [{"name": "own", "workspace": "ws"}],
                 "taskSpec": {"steps": [step], "workspaces": [{"name": "own"}]}},
            ],
            "finally": [{"name": "z", "workspaces": [{"name": "x", "workspace": "ws"}]}],
        }));
        let names: Vec<&str> = found.pipeline.tasks.iter().map(|task| &*task.name).collect();
        assert_eq!(names, ["a", "b", "c", "z"]);
        assert_eq!(each(&found, |task| &task.workspaces), ["ws", "cache", "extra ws", "ws"]);
        assert!(!found.pipeline.nested && found.problem.is_none());
    }

    #[test]
    fn an_inline_task_may_mount_claims_itself() {
        let claim = |name: &str| json!({"name": "v", "persistentVolumeClaim": {"claimName": name}});
        let found = read(&json!({
            "tasks": [
                {"name": "a", "taskSpec": {"volumes": [claim("c2"), {"name": "e", "emptyDir": {}}, claim("c1"), claim("c2")]}},
                {"name": "b", "taskSpec": {"volumes": [claim("$(params.claim)")]}},
                {"name": "c", "taskRef": {"name": "t"}},
                {"name": "d", "taskSpec": null},
                // Custom tasks may have a spec of another shape.
                {"name": "e", "taskSpec": {"volumes": {"a": "b"}}},
            ],
            "finally": [{"name": "z", "taskSpec": {"volumes": [claim("c1")]}}],
        }));
        assert_eq!(found.problem, None);
        assert_eq!(each(&found, |task| &task.mounted), ["c1 c2", "", "", "", "", "c1"]);
    }

    #[test]
    fn a_field_of_the_wrong_type_is_reported_and_the_rest_is_read() {
        let unnamed = json!([{"name": "é", "workspaces": [{"name": []}]}, {"name": "b"}]);
        let of_tasks = |tasks: Value| json!({"tasks": tasks});
        for (spec, problem, tasks) in [
            (json!([]), Some("spec: is not an object"), 0),
            (json!(null), None, 0),
            (of_tasks(json!({})), Some("spec.tasks: is not a list"), 0),
            (of_tasks(json!([7, {"name": "a"}])), Some("spec.tasks[0]: is not an object"), 1),
            (of_tasks(json!([{"name": 7}])), Some("spec.tasks[0].name: is not a string"), 1),
            (of_tasks(unnamed), Some("spec.tasks[0].workspaces[0].name: is not a string"), 2),
        ] {
            let found = read(&spec);
            assert_eq!(found.problem.as_deref(), problem, "{spec}");
            assert_eq!(found.pipeline.tasks.len(), tasks, "{spec}");
        }
    }
}
