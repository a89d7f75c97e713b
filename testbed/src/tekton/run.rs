//! Reconciles one PipelineRun: its claims, its children in the order of the pipeline, and its
//! status.

mod child;

use std::collections::BTreeMap;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use kube::api::DynamicObject;
use kube::runtime::controller::Action;
use serde_json::{Value, json};

use super::{
    Context, Error, Kind, claim, condition, is_done, is_of, items, names, now, succeeded, text,
};

/// The time before a retry while another run's child with the same name is being deleted.
const PAUSE: Duration = Duration::from_millis(300);

pub(super) async fn reconcile(
    object: Arc<DynamicObject>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    let run = serde_json::to_value(&*object)?;
    if is_done(&run) || object.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let Some(pipeline) = pipeline(&context, &run).await? else {
        let conditions = succeeded(&run, "False", "CouldntGetPipeline", "no such Pipeline");
        let status = json!({"conditions": conditions, "completionTime": now()});
        context.status(Kind::PipelineRun, &object, status).await?;
        return Ok(Action::await_change());
    };
    let tasks = Tasks::read(&context, &run, &pipeline).await?;
    claim::create(&context, Kind::PipelineRun, &run).await?;

    let namespace = text(&run["metadata"]["namespace"]);
    for child in tasks.due(&run) {
        context.create(child.0, namespace, &child.1).await?;
    }
    let (status, reason, message) = tasks.verdict();
    let mut status = json!({
        "conditions": succeeded(&run, status, reason, &message),
        "childReferences": tasks.references(),
        "pipelineSpec": pipeline,
    });
    if run["status"]["startTime"].is_null() {
        status["startTime"] = now();
    }
    if is_done(&json!({"status": status})) {
        status["completionTime"] = now();
    }
    context.status(Kind::PipelineRun, &object, status).await?;
    Ok(if tasks.taken { Action::requeue(PAUSE) } else { Action::await_change() })
}

/// The specification of the run's pipeline; `None`: there is no such Pipeline.
async fn pipeline(context: &Context, run: &Value) -> Result<Option<Value>, Error> {
    let spec = &run["spec"];
    if spec["pipelineSpec"].is_object() {
        return Ok(Some(spec["pipelineSpec"].clone()));
    }
    let reference = &spec["pipelineRef"];
    let by_resolver = items(&reference["params"]).find(|parameter| parameter["name"] == "name");
    let name = reference["name"].as_str().or_else(|| by_resolver?["value"].as_str());
    let namespace = text(&run["metadata"]["namespace"]);
    let pipeline = context.get(Kind::Pipeline, namespace, name.unwrap_or_default()).await?;
    Ok(pipeline.map(|mut pipeline| pipeline["spec"].take()))
}

/// The state of a task of the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not all of its children exist.
    Waiting,
    Running,
    Succeeded,
    Failed,
}

/// A task of the pipeline, with its existing children.
struct Task {
    document: Value,
    member_of: &'static str,
    kind: Kind,
    /// The names of its children in order: one, or one for each combination of the matrix.
    names: Vec<String>,
    children: BTreeMap<String, Value>,
    state: State,
}

/// The tasks of the pipeline, in its order.
#[derive(Default)]
struct Tasks {
    tasks: Vec<Task>,
    /// Another run's child still has the name of one of this run's children.
    taken: bool,
}

impl Tasks {
    /// Reads the present children of the pipeline's tasks.
    async fn read(context: &Context, run: &Value, pipeline: &Value) -> Result<Self, Error> {
        let mut planned: Vec<_> = ["tasks", "finally"]
            .into_iter()
            .flat_map(|member_of| {
                items(&pipeline[member_of]).map(move |task| Task::new(run, task, member_of))
            })
            .collect();
        let namespace = text(&run["metadata"]["namespace"]);
        let mut this = Self::default();
        for kind in [Kind::TaskRun, Kind::PipelineRun] {
            let of_kind = || planned.iter().filter(|task| task.kind == kind);
            let names: Vec<_> = of_kind().flat_map(|task| task.names.clone()).collect();
            let mut found = context.all_of(kind, namespace, &names).await?;
            for task in planned.iter_mut().filter(|task| task.kind == kind) {
                for name in &task.names {
                    match found.remove(name) {
                        Some(child) if is_of(&child, run) => {
                            task.children.insert(name.clone(), child);
                        }
                        Some(_) => this.taken = true,
                        None => {}
                    }
                }
                task.state = task.compute_state();
            }
        }
        this.tasks = planned;
        Ok(this)
    }

    fn of(&self, member_of: &str) -> impl Iterator<Item = &Task> {
        self.tasks.iter().filter(move |task| task.member_of == member_of)
    }

    fn has_failed(&self) -> bool {
        self.tasks.iter().any(|task| task.state == State::Failed)
    }

    /// Returns true if no task, except those of `finally`, is running or will run.
    fn have_ended(&self) -> bool {
        let has_started = |task: &Task| task.state == State::Running || !task.children.is_empty();
        self.of("tasks").all(|task| match task.state {
            State::Succeeded | State::Failed => true,
            State::Waiting | State::Running => self.has_failed() && !has_started(task),
        })
    }

    /// The children to be created now.
    fn due(&self, run: &Value) -> Vec<(Kind, Value)> {
        let results = |text: &str| self.resolved(text);
        self.tasks
            .iter()
            .filter(|task| task.state == State::Waiting && self.may_start(task))
            .flat_map(|task| {
                let combinations = combinations(&task.document);
                let missing = task.names.iter().enumerate();
                missing
                    .filter(|(_, name)| !task.children.contains_key(*name))
                    .map(move |(index, name)| {
                        let parameters = combinations.get(index).map_or(&[][..], Vec::as_slice);
                        (task.kind, task.child(run, name, parameters, &results))
                    })
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    fn may_start(&self, task: &Task) -> bool {
        if task.member_of == "finally" {
            return self.have_ended();
        }
        let after = |name: &str| {
            self.of("tasks").any(|it| it.document["name"] == name && it.state == State::Succeeded)
        };
        !self.has_failed()
            && items(&task.document["runAfter"]).all(|name| after(text(name)))
            && referred(&task.document).iter().all(|name| after(name))
    }

    /// Replaces the references to task results in a text.
    fn resolved(&self, text: &str) -> String {
        let mut resolved = text.to_owned();
        for task in &self.tasks {
            for result in
                task.children.values().flat_map(|child| items(&child["status"]["results"]))
            {
                let name = format!(
                    "$(tasks.{}.results.{})",
                    self::text(&task.document["name"]),
                    self::text(&result["name"]),
                );
                resolved = resolved.replace(&name, self::text(&result["value"]));
            }
        }
        resolved
    }

    /// The status, reason and message of the run's condition.
    fn verdict(&self) -> (&'static str, &'static str, String) {
        let count = |state| self.tasks.iter().filter(|task| task.state == state).count();
        let (done, failed) = (count(State::Succeeded) + count(State::Failed), count(State::Failed));
        let completed = format!("Tasks Completed: {done} (Failed: {failed}, Cancelled 0)");
        let ended = |task: &Task| matches!(task.state, State::Succeeded | State::Failed);
        if !self.have_ended() || !self.of("finally").all(ended) {
            let left = self.tasks.len() - done;
            return ("Unknown", "Running", format!("{completed}, Incomplete: {left}, Skipped: 0"));
        }
        let skipped = self.tasks.len() - done;
        let message = format!("{completed}, Skipped: {skipped}");
        if failed > 0 { ("False", "Failed", message) } else { ("True", "Succeeded", message) }
    }

    fn references(&self) -> Vec<Value> {
        self.tasks
            .iter()
            .flat_map(|task| {
                task.children.keys().map(|name| {
                    json!({
                        "apiVersion": "tekton.dev/v1", "kind": task.kind.to_string(),
                        "name": name, "pipelineTaskName": task.document["name"],
                    })
                })
            })
            .collect()
    }
}

impl Task {
    /// A task of the pipeline, before its children are read.
    fn new(run: &Value, task: &Value, member_of: &'static str) -> Self {
        let nested = task["pipelineSpec"].is_object() || task["pipelineRef"].is_object();
        let parent = text(&run["metadata"]["name"]);
        let suffix = format!("-{}", text(&task["name"]));
        let names = match combinations(task).len() {
            0 => vec![names::child(parent, &suffix)],
            count => (0..count).map(|it| names::child(parent, &format!("{suffix}-{it}"))).collect(),
        };
        Self {
            document: task.clone(),
            member_of,
            kind: if nested { Kind::PipelineRun } else { Kind::TaskRun },
            names,
            children: BTreeMap::new(),
            state: State::Waiting,
        }
    }

    fn compute_state(&self) -> State {
        if self.children.len() < self.names.len() {
            State::Waiting
        } else if self.children.values().all(|child| condition(child)["status"] == "True") {
            State::Succeeded
        } else if self.children.values().all(is_done) {
            State::Failed
        } else {
            State::Running
        }
    }
}

/// The combinations of a task's matrix in Tekton's order: the parameters of each child.
fn combinations(task: &Value) -> Vec<Vec<Value>> {
    let mut combinations: Vec<Vec<Value>> = Vec::new();
    for parameter in items(&task["matrix"]["params"]) {
        let grown: Vec<_> = items(&parameter["value"])
            .flat_map(|value| {
                let one = json!({"name": parameter["name"], "value": value});
                let before =
                    if combinations.is_empty() { &[Vec::new()][..] } else { &combinations };
                before
                    .iter()
                    .map(|it| [it.as_slice(), slice::from_ref(&one)].concat())
                    .collect::<Vec<_>>()
            })
            .collect();
        combinations = grown;
    }
    combinations
}

/// The names of the tasks to whose results this task refers.
fn referred(task: &Value) -> Vec<String> {
    let text = task.to_string();
    text.split("$(tasks.")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once(".results.")?.0.to_owned()))
        .collect()
}
