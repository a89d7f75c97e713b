//! Tekton Pipelines: which task uses which workspaces.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::LazyLock;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::task::TaskRequests;
use super::tekton::{self, claim_of};
use super::variables::{ParamValues, known_value};
use crate::kubernetes::annotation;
use crate::systems::coschedule::keys::MODE;
use crate::systems::coschedule::resources::PIPELINE;
use crate::view::document::{Foreign, ForeignRow, filled, items, objects, problem};
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
    /// True if one of its tasks is itself a pipeline.
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

/// The most tasks that Tekton makes of one matrix by default.
const MOST_COPIES: usize = 256;

/// The types of the fields of a pipeline's spec.
pub(super) static SPEC: LazyLock<Value> = LazyLock::new(|| {
    let tasks = json!([{
        "name": "", "runAfter": [""], "taskRef": {"name": ""},
        "workspaces": [{"name": "", "workspace": ""}],
    }]);
    json!({"tasks": tasks, "finally": tasks})
});

impl ForeignRow for NamedPipeline {
    fn read(metadata: &ObjectMeta, spec: Value, _: Value) -> Self {
        let problem = problem("spec", &spec, &SPEC);
        Self {
            identity: Identity::from(metadata),
            mode: annotation(metadata, MODE).map(Into::into),
            pipeline: Pipeline::read(&spec),
            problem,
        }
    }
}

impl Pipeline {
    /// Reads the spec of a pipeline.
    pub(super) fn read(spec: &Value) -> Self {
        let all = || objects(&spec["tasks"]).chain(objects(&spec["finally"]));
        let nested =
            all().any(|task| !task["pipelineSpec"].is_null() || !task["pipelineRef"].is_null());
        let mut tasks: Box<[PipelineTask]> = all().map(PipelineTask::read).collect();
        let earlier = objects(&spec["tasks"]).map(earlier);
        set_levels(&mut tasks, &earlier.collect::<Vec<_>>());
        Self { tasks, nested, defaults: defaults(&spec["params"]) }
    }
}

impl PipelineTask {
    fn read(task: &Value) -> Self {
        // By default the pipeline's workspace has the same name as the task's.
        let named = items(&task["workspaces"]);
        let named = named.filter_map(|of| filled(&of["workspace"]).or_else(|| filled(&of["name"])));
        let mut workspaces: BTreeSet<Box<str>> = named.map(Into::into).collect();
        // An inline task gets the workspaces that its steps refer to, even those that it does not
        // declare (Tekton, "Propagated Workspaces").
        workspaces.extend(undeclared_workspaces(&task["taskSpec"]));
        let (copies, of_matrix) = read_matrix(&task["matrix"]);
        Self {
            name: filled(&task["name"]).unwrap_or_default().into(),
            workspaces: workspaces.into_iter().collect(),
            mounted: mounted_claims(&task["taskSpec"]).into_iter().collect(),
            task: task_of_namespace(&task["taskRef"]).map(Into::into),
            requests: TaskRequests::of_task(&task["taskSpec"]),
            level: usize::MAX,
            copies,
            own_params: own_params(&task["params"]).chain(of_matrix).collect(),
        }
    }
}

/// Returns the tasks that a task names, and those whose results it uses, as `$(tasks.NAME.results.RESULT)`.
fn earlier(task: &Value) -> BTreeSet<Box<str>> {
    let named = items(&task["runAfter"]).filter_map(Value::as_str).map(Into::into);
    let parts = ["params", "when", "matrix"];
    named.chain(parts.iter().flat_map(|part| names_after(&task[part], "$(tasks."))).collect()
}

/// Returns the name of the Task that a task refers to, if it is in the namespace.
fn task_of_namespace(reference: &Value) -> Option<&str> {
    let is_task = reference["kind"].as_str().is_none_or(|kind| kind == "Task");
    let is_elsewhere = !reference["resolver"].is_null() || !reference["bundle"].is_null();
    filled(&reference["name"]).filter(|_| is_task && !is_elsewhere)
}

/// Sets the levels of the tasks that have `earlier` ones. Those of a cycle, which Tekton refuses, are on the first.
fn set_levels(tasks: &mut [PipelineTask], earlier: &[BTreeSet<Box<str>>]) {
    let tasks = &mut tasks[..earlier.len()];
    let by_name: HashMap<String, usize> =
        tasks.iter().enumerate().map(|(index, task)| (task.name.to_string(), index)).collect();
    let mut later: Vec<Vec<usize>> = vec![Vec::new(); tasks.len()];
    let mut missing = vec![0_usize; tasks.len()];
    for (index, names) in earlier.iter().enumerate() {
        for before in names.iter().filter_map(|name| by_name.get(&**name)) {
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

/// Returns the params of a task that do not just hand on the run's param of their name.
fn own_params(params: &Value) -> impl Iterator<Item = ParamValues> {
    let own = named(params).filter(|(name, param)| param["value"] != format!("$(params.{name})"));
    own.map(|(name, param)| (name.into(), known_value(&param["value"]).into_iter().collect()))
}

/// Returns the params of a pipeline with a default.
fn defaults(params: &Value) -> Box<[ParamValues]> {
    let defaults = named(params)
        .filter_map(|(name, param)| Some((name.into(), [known_value(&param["default"])?].into())));
    defaults.collect()
}

/// Returns the items of a list that have a name, each with it.
fn named(list: &Value) -> impl Iterator<Item = (&str, &Value)> {
    items(list).filter_map(|item| Some((item["name"].as_str()?, item)))
}

/// Returns the number of tasks that a matrix makes, and its params.
fn read_matrix(matrix: &Value) -> (usize, Vec<ParamValues>) {
    let of_params = items(&matrix["params"]).map(|param| items(&param["value"]).count().max(1));
    let of_params = of_params.fold(1, usize::saturating_mul);
    let included = items(&matrix["include"]).count();
    let copies = of_params.max(included).min(MOST_COPIES);
    let mut all: BTreeMap<&str, Vec<Option<Box<str>>>> = BTreeMap::new();
    for (name, param) in named(&matrix["params"]) {
        let values = || items(&param["value"]);
        // A variable gives the whole list.
        let unknown = values().next().is_none().then_some(None);
        all.entry(name).or_default().extend(values().map(known_value).chain(unknown));
    }
    let listed: BTreeSet<&str> = all.keys().copied().collect();
    for (name, param) in items(&matrix["include"]).flat_map(|include| named(&include["params"])) {
        all.entry(name).or_default().push(known_value(&param["value"]));
    }
    let own = all.into_iter().map(|(name, values)| {
        // One that is only in some of `include` may have another value elsewhere.
        let is_in_all = listed.is_empty() && values.len() == included;
        let is_everywhere = listed.contains(name) || is_in_all;
        let values: Option<BTreeSet<Box<str>>> = values.into_iter().collect();
        let values = values.filter(|_| is_everywhere).into_iter().flatten();
        (name.into(), values.collect())
    });
    (copies, own.collect())
}

/// The claims among the volumes of a task, except those whose names have variables.
fn mounted_claims(task: &Value) -> BTreeSet<Box<str>> {
    let claims = items(&task["volumes"]).filter_map(claim_of);
    let is_known = |claim: &&str| !claim.is_empty() && !claim.contains(tekton::VARIABLE);
    claims.filter(is_known).map(Into::into).collect()
}

/// The workspaces that strings in a task refer to as `$(workspaces.NAME.path)`, and that the task
/// does not declare.
fn undeclared_workspaces(task: &Value) -> BTreeSet<Box<str>> {
    let declared: BTreeSet<&str> = named(&task["workspaces"]).map(|(name, _)| name).collect();
    let mut names = names_after(task, "$(workspaces.");
    names.retain(|name| !declared.contains(&**name));
    names
}

/// The names that follow this beginning of a variable in strings of a document.
fn names_after(document: &Value, beginning: &str) -> BTreeSet<Box<str>> {
    match document {
        Value::Object(members) => {
            members.values().flat_map(|member| names_after(member, beginning)).collect()
        }
        Value::Array(items) => items.iter().flat_map(|item| names_after(item, beginning)).collect(),
        Value::String(text) => {
            let after = text.match_indices(beginning).map(|(at, _)| &text[at + beginning.len()..]);
            let names = after.filter_map(|rest| rest.split(['.', ')', '[']).next());
            names.filter(|name| !name.is_empty()).map(Into::into).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => BTreeSet::new(),
    }
}

static PIPELINES: Kind = tekton::kind(PIPELINE);

/// The table of Pipelines.
pub(crate) type Pipelines = Rows<NamedPipeline>;

impl TableRow for NamedPipeline {
    type Object = Foreign<Self>;
    const KIND: &'static Kind = &PIPELINES;
    const COUNTED_AS: Option<&'static str> = Some("pipelines");

    fn from_object(object: &Foreign<Self>, _: Scope) -> Option<Self> {
        Some(object.row.clone())
    }

    fn identity(&self) -> Option<&Identity> {
        Some(&self.identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(spec: &Value) -> NamedPipeline {
        let object = json!({"spec": spec});
        serde_json::from_value::<Foreign<NamedPipeline>>(object).unwrap().row
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
