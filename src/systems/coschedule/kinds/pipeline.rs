//! Tekton Pipelines: which task uses which workspaces.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::task::TaskRequests;
use super::tekton;
use super::variables::{ParamValues, known_value};
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
    /// The params that have a value if the run gives none.
    pub defaults: Box<[ParamValues]>,
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
    /// How many tasks run one after another before it; all of `finally` are last.
    pub level: usize,
    /// How many of it run at the same time, by its matrix, if that is known.
    pub copies: usize,
    /// Its params, those of its matrix too, that may have another value than the run's of the same name.
    pub own_params: Box<[ParamValues]>,
}

/// The fields of a pipeline's spec that are read.
pub(super) const SPEC: Shape = Shape::Object(&[
    ("tasks", TASKS),
    ("finally", TASKS),
    ("params", Shape::Computed(reduce_defaults)),
]);

const TASKS: Shape = Shape::List(&Shape::Object(&[
    ("matrix", Shape::Computed(reduce_matrix)),
    ("name", Shape::Scalar),
    ("params", Shape::Computed(reduce_params)),
    ("pipelineRef", Shape::Scalar),
    ("pipelineSpec", Shape::Scalar),
    ("runAfter", Shape::List(&Shape::Scalar)),
    ("taskRef", TASK_REF),
    ("taskSpec", Shape::Computed(reduce)),
    ("when", Shape::Computed(reduce_to_earlier)),
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

/// The key of the tasks whose results a task uses.
const EARLIER: &str = "earlierTasks";

/// The key of the params that may have another value than the run's of the same name, each a list of its
/// name and its values, and of the defaults of a pipeline.
const OWN: &str = "ownParams";

/// The key of the number of tasks that a matrix makes.
const COPIES: &str = "copies";

/// The most tasks that Tekton makes of one matrix by default.
const MOST_COPIES: usize = 256;

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
        let mut earlier: Vec<Vec<&str>> = Vec::new();
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
                if key == "tasks" {
                    let mut of_task = reader.texts(&task, "runAfter");
                    for part in ["params", "when", "matrix"] {
                        let part = reader.part(&task, part);
                        of_task.extend(part.iter().flat_map(|of| reader.texts(of, EARLIER)));
                    }
                    earlier.push(of_task);
                }
                let parts = ["params", "matrix"].map(|part| reader.part(&task, part));
                let own_params = parts.iter().flatten().flat_map(param_values).collect();
                let matrix = reader.part(&task, "matrix");
                let copies = matrix.and_then(|matrix| reader.text(&matrix, COPIES)?.parse().ok());
                tasks.push(PipelineTask {
                    name: reader.text(&task, "name").unwrap_or_default().into(),
                    workspaces: workspaces.into_iter().collect(),
                    mounted,
                    task: reference.and_then(|of| Some(reader.text(&of, "name")?.into())),
                    requests: TaskRequests::from_texts(&requests),
                    level: usize::MAX,
                    copies: copies.unwrap_or(1),
                    own_params,
                });
            }
        }
        set_levels(&mut tasks, &earlier);
        let defaults = reader.part(spec, "params");
        let defaults = defaults.iter().flat_map(param_values).collect();
        Self { tasks: tasks.into(), nested, defaults }
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

/// Sets the levels of the tasks that have `earlier` ones. Those of a cycle, which Tekton refuses, are on the first.
fn set_levels(tasks: &mut [PipelineTask], earlier: &[Vec<&str>]) {
    let tasks = &mut tasks[..earlier.len()];
    let by_name: HashMap<String, usize> =
        tasks.iter().enumerate().map(|(index, task)| (task.name.to_string(), index)).collect();
    let mut later: Vec<Vec<usize>> = vec![Vec::new(); tasks.len()];
    let mut missing = vec![0_usize; tasks.len()];
    for (index, names) in earlier.iter().enumerate() {
        for before in names.iter().filter_map(|name| by_name.get(*name)) {
            later[*before].push(index);
            missing[index] += 1;
        }
    }
    tasks.iter_mut().for_each(|task| task.level = 0);
    let mut ready: Vec<usize> = (0..tasks.len()).filter(|index| missing[*index] == 0).collect();
    while let Some(index) = ready.pop() {
        let next = tasks[index].level + 1;
        for &after in &later[index] {
            tasks[after].level = tasks[after].level.max(next);
            missing[after] -= 1;
            if missing[after] == 0 {
                ready.push(after);
            }
        }
    }
}

/// Reduces a field of a task to the tasks whose results it uses, as `$(tasks.NAME.results.RESULT)`.
fn reduce_to_earlier(field: &Document) -> Document {
    let earlier = names_after(field, "$(tasks.").into_iter().collect();
    Document::Object(Members::new([(EARLIER, earlier)]))
}

/// Reduces the params of a task to the tasks whose results they use, and to those that do not just hand on
/// the run's param of their name.
fn reduce_params(params: &Document) -> Document {
    let earlier = names_after(params, "$(tasks.").into_iter().collect();
    let own = params.items().iter().filter_map(|param| {
        let name = param.at(&["name"]).as_str()?;
        let value = param.at(&["value"]);
        let is_runs = value.as_str() == Some(&format!("$(params.{name})"));
        (!is_runs).then(|| named(name, known_value(value).into_iter()))
    });
    Document::Object(Members::new([(EARLIER, earlier), (OWN, Document::List(own.collect()))]))
}

/// Reduces the params of a pipeline to those with a default.
fn reduce_defaults(params: &Document) -> Document {
    let defaults = params.items().iter().filter_map(|param| {
        let default = known_value(param.at(&["default"]))?;
        Some(named(param.at(&["name"]).as_str()?, std::iter::once(default)))
    });
    Document::Object(Members::new([(OWN, Document::List(defaults.collect()))]))
}

/// Reduces a matrix to the tasks whose results it uses, to the number of tasks that it makes, and to its
/// params.
fn reduce_matrix(matrix: &Document) -> Document {
    let params = matrix.at(&["params"]).items();
    let of_params = params.iter().map(|param| param.at(&["value"]).items().len().max(1));
    let of_params = of_params.fold(1, usize::saturating_mul);
    let included = matrix.at(&["include"]).items();
    let copies = of_params.max(included.len()).min(MOST_COPIES);
    let earlier = names_after(matrix, "$(tasks.").into_iter().collect();
    let copies = Document::Text(copies.to_string().into());
    let mut all: BTreeMap<&str, Vec<Option<Box<str>>>> = BTreeMap::new();
    for param in params {
        let Some(name) = param.at(&["name"]).as_str() else { continue };
        let values = param.at(&["value"]).items();
        // A variable gives the whole list.
        let unknown = values.is_empty().then_some(None);
        let known = values.iter().map(known_value).chain(unknown);
        all.entry(name).or_default().extend(known);
    }
    let listed: BTreeSet<&str> = all.keys().copied().collect();
    let of_includes = included.iter().flat_map(|include| include.at(&["params"]).items());
    for param in of_includes {
        let Some(name) = param.at(&["name"]).as_str() else { continue };
        all.entry(name).or_default().push(known_value(param.at(&["value"])));
    }
    let own = all.into_iter().map(|(name, values)| {
        // One that is only in some of `include` may have another value elsewhere.
        let is_in_all = listed.is_empty() && values.len() == included.len();
        let is_everywhere = listed.contains(name) || is_in_all;
        let values: Option<BTreeSet<Box<str>>> = values.into_iter().collect();
        named(name, values.filter(|_| is_everywhere).into_iter().flatten())
    });
    let own = Document::List(own.collect());
    Document::Object(Members::new([(EARLIER, earlier), (COPIES, copies), (OWN, own)]))
}

/// Builds the list of a param's name and its values.
fn named(name: &str, values: impl Iterator<Item = Box<str>>) -> Document {
    std::iter::once(name.into()).chain(values).collect()
}

/// Reads the lists that [`named`] builds.
fn param_values(reduced: &Part<'_>) -> Vec<ParamValues> {
    let lists = reduced.value(OWN).map(Document::items).unwrap_or_default();
    let texts = |list: &Document| -> Vec<Box<str>> {
        list.items().iter().filter_map(|text| Some(text.as_str()?.into())).collect()
    };
    let lists = lists.iter().map(texts);
    lists.filter_map(|list| Some((list.first()?.clone(), list[1..].into()))).collect()
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
    let declared = task.at(&["workspaces"]).items().iter();
    let declared: BTreeSet<&str> =
        declared.filter_map(|workspace| workspace.at(&["name"]).as_str()).collect();
    let mut names = names_after(task, "$(workspaces.");
    names.retain(|name| !declared.contains(&**name));
    names
}

/// The names that follow this beginning of a variable in strings of a document.
fn names_after(document: &Document, beginning: &str) -> BTreeSet<Box<str>> {
    let mut names = BTreeSet::new();
    for text in document.texts() {
        for (at, _) in text.match_indices(beginning) {
            let rest = &text[at + beginning.len()..];
            let name = rest.split(['.', ')', '[']).next().unwrap_or_default();
            if !name.is_empty() {
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
    fn tasks_run_after_those_that_they_name_and_those_whose_results_they_use() {
        let found = read(&json!({
            "tasks": [
                {"name": "d", "runAfter": ["b", "no-such-task"], "params": [{"name": "p", "value": ["$(tasks.c.results.r[0])"]}]},
                {"name": "a"},
                {"name": "b", "when": [{"input": "$(tasks.a.results.r)", "operator": "in", "values": ["x"]}]},
                {"name": "c", "matrix": {"params": [{"name": "p", "value": ["$(tasks.b.results['r'])", "y"]}, {"name": "q", "value": [1, 2, 3]}]}},
                {"name": "x", "runAfter": ["y"]},
                {"name": "y", "runAfter": ["x"], "matrix": {"include": [{}, {}], "params": "$(params.all)"}},
                {"name": "z", "matrix": {"params": [{"name": "p", "value": vec![0; 1_000]}]}},
            ],
            "finally": [{"name": "f", "params": [{"name": "p", "value": "$(tasks.a.status)"}]}],
        }));
        assert_eq!(found.problem, None);
        let levels: Vec<_> = found.pipeline.tasks.iter().map(|of| (&*of.name, of.level)).collect();
        let last = usize::MAX;
        let first = [("d", 3), ("a", 0), ("b", 1), ("c", 2), ("x", 0), ("y", 0), ("z", 0)];
        assert_eq!(levels, [&first[..], &[("f", last)]].concat());
        let copies: Vec<_> = found.pipeline.tasks.iter().map(|task| task.copies).collect();
        assert_eq!(copies, [1, 1, 1, 6, 1, 2, 256, 1]);
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
