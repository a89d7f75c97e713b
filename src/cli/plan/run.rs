//! What would become of a PipelineRun: its groups, its claims, and the pods of its tasks.
//!
//! Tekton's part is done here as far as placement can see it: the claims of the templates, a TaskRun and
//! a pod for each task. Those then go the way that they go in a cluster.

use std::fmt::Write as _;

use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{class, template};
use crate::admission::stored::{CLAIMS, PODS, decide_creation};
use crate::admission::{Decision, ParseError, Pass};
use crate::placement::reason::Warning;
use crate::policy::{CoscheduleMode, Policy};
use crate::systems::coschedule::groups::{self, Group, Groups, Leader};
use crate::systems::coschedule::{keys, mode};
use crate::view::pipeline_run::{PipelineSource, WorkspaceSource};
use crate::view::task_run::PIPELINE_TASK;
use crate::view::{Name, Object, PipelineRun, View};

/// Stands for the end of a placeholder's name where that follows from a UID that nobody knows yet.
const TO_COME: &str = "<of the run's UID>";

/// A run, as it would go.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct Run {
    mode: &'static str,
    /// The native group that its annotation puts all its pods into, in place of groups of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    native_group: Option<String>,
    groups: Vec<OneNode>,
    claims: Vec<Claim>,
    /// `None`: they are not known here.
    tasks: Option<Vec<Task>>,
    /// Why they are not.
    #[serde(skip)]
    unread: String,
    conflicts: Vec<String>,
    /// Why there are no groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// A group.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct OneNode {
    key: String,
    /// Absent where it follows from a UID that the run does not have yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    placeholder: Option<String>,
    claims: Vec<String>,
    /// Absent where they are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    tasks: Option<Vec<String>>,
    isolated: bool,
    /// What of an earlier run decides where it goes, and when.
    #[serde(skip_serializing_if = "Option::is_none")]
    follows: Option<String>,
    /// Where its tasks are not known: what a pod gets that mounts its claims.
    #[serde(skip_serializing_if = "Option::is_none")]
    any_pod: Option<Task>,
}

/// A claim that Tekton makes for the run.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Claim {
    workspace: String,
    name: String,
    /// What is changed in it.
    changes: Vec<String>,
    warnings: Vec<String>,
    /// What is not known of its class, where that could change it.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown: Option<String>,
}

/// A task, and what its pod gets.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Task {
    name: String,
    allowed: bool,
    changes: Vec<String>,
    warnings: Vec<String>,
    /// Why its pod would be refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

/// A run that is planned, and the decision that stands for all of its pods: a refusal if there is one.
pub(in crate::cli) struct Planned {
    pub(in crate::cli) run: Run,
    pub(in crate::cli) decision: Decision,
}

/// What a run is planned from, beside the View.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given<'d> {
    /// What the run was read from.
    pub(super) document: &'d Value,
    /// Whether that says its UID.
    pub(super) has_uid: bool,
    /// Whether the View is of a cluster.
    pub(super) has_cluster: bool,
}

/// Plans the run of this name, which the View has.
///
/// # Errors
/// A pod that Tekton would make of it is no valid pod.
pub(super) fn plan(
    name: &Name,
    run: &PipelineRun,
    Given { document, has_uid, has_cluster }: Given<'_>,
    view: &mut View,
    policy: &Policy,
) -> Result<Planned, ParseError> {
    let made = groups::of_run(name, run, view, policy);
    let mut told = Run::default();
    let shown = Shown::new(made.as_ref().ok(), run, has_uid);
    told.native_group = run.group.as_deref().map(ToOwned::to_owned);
    told.problem = made.as_ref().err().map(|bad| bad.finding().to_string());
    if let Ok(groups) = &made {
        told.mode = mode::word(groups.mode);
        let leader = |group: &Group| groups::leader(name, run, group, view, policy);
        let told_of = groups.groups.iter().map(|group| shown.group(group, leader(group)));
        told.groups = told_of.collect();
        told.conflicts = groups.conflicts.iter().map(ToString::to_string).collect();
    }
    for workspace in &run.workspaces {
        if let WorkspaceSource::Template(template) = &workspace.source {
            let mut claim = claim(name, run, &template.claim, document, &workspace.name);
            class::complete(&mut claim, view);
            let decision = decide_creation(CLAIMS, &name.namespace, &claim, view, policy)?;
            let (changes, warnings) = (shown.changes(&decision), shown.warnings(&decision));
            let may_move = made.as_ref().is_ok_and(|of| of.mode != CoscheduleMode::Disabled)
                && matches!(decision, Decision::Admit(_));
            let unknown = (may_move && changes.is_empty() && warnings.is_empty())
                .then(|| class::unknown(&claim, view, has_cluster));
            told.claims.push(Claim {
                workspace: workspace.name.to_string(),
                name: shown.text(&template.claim),
                changes,
                warnings,
                unknown: unknown.flatten(),
            });
        }
    }
    // Of a run without tasks, too, what it says of itself is judged.
    let tasks = match tasks(name, run, view) {
        Ok(tasks) if tasks.is_empty() && made.is_err() => Err(String::new()),
        tasks => tasks,
    };
    told.tasks = tasks.is_ok().then(Vec::new);
    // Where nobody here knows the tasks, a pod that mounts the claims of a group stands for all of it.
    let stand_ins = stand_ins(made.as_ref().ok().filter(|_| run.group.is_none()));
    let planned = tasks.as_deref().unwrap_or(&stand_ins);
    let mut any = None;
    let mut placed = None;
    let mut refused = None;
    for (number, task) in planned.iter().enumerate() {
        let (of_task, pod) = pod(name, run, task, number, document);
        // The TaskRun comes first, as Tekton makes it.
        if let Ok(Some(object)) = Object::from_document(of_task) {
            view.apply(object);
        }
        let decision = decide_creation(PODS, &name.namespace, &pod, view, policy)?;
        let told_of = shown.task(&task.name, &decision);
        match (&tasks, told.groups.get_mut(number)) {
            (Ok(_), _) => told.tasks.get_or_insert_default().push(told_of),
            (Err(_), Some(group)) => group.any_pod = Some(told_of),
            (Err(_), None) => {}
        }
        let kept = match &decision {
            Decision::Refuse(_) => &mut refused,
            Decision::Admit(admission) if !admission.intents.is_empty() => &mut placed,
            _ => &mut any,
        };
        kept.get_or_insert(decision);
    }
    told.unread = tasks.err().unwrap_or_default();
    let nothing = Decision::Pass(Pass::NoKeys);
    let decision = refused.or(placed).or(any).unwrap_or(nothing);
    if matches!(decision, Decision::Pass(_)) {
        // Whatever its groups would be: nobody asks for them.
        told.groups.clear();
        told.conflicts.clear();
    }
    Ok(Planned { run: told, decision })
}

/// For each group a pod that mounts its claims; where there are none because the run's mode is none or
/// its pods are a native group's, a pod that shows that.
fn stand_ins(groups: Option<&Groups>) -> Vec<OfPipeline> {
    let any = |claims| OfPipeline { name: "any".to_owned(), claims };
    let Some(groups) = groups else { return vec![any(Vec::new())] };
    let claims = |group: &Group| group.claims.iter().map(|claim| claim.name.to_string()).collect();
    groups.groups.iter().map(|group| any(claims(group))).collect()
}

/// Gives a run that was not made yet what the API server would give it.
pub(super) fn complete(
    metadata: &mut Map<String, Value>,
    document: &Value,
    number: usize,
    pointer: &str,
) {
    metadata.insert("name".to_owned(), name(document).into());
    // Runs that are there come before it.
    let created = metadata.entry("creationTimestamp").or_insert(Value::Null);
    if created.is_null() {
        *created = Timestamp::now().to_string().into();
    }
    // Several runs of one input are told apart by where they stand in it.
    let item = pointer.rsplit('/').next().unwrap_or_default();
    let uid = format!("{number}-{item}");
    if !metadata.get("uid").is_some_and(Value::is_string) {
        metadata.insert("uid".to_owned(), uid.into());
    }
}

/// The name of a run; where the API server will make it, one that it could make.
pub(super) fn name(document: &Value) -> String {
    match template::name(document) {
        Some((name, true)) => name.to_owned(),
        Some((prefix, false)) => format!("{prefix}00000"),
        None => String::new(),
    }
}

/// A task as its pod needs it.
struct OfPipeline {
    name: String,
    claims: Vec<String>,
}

/// The tasks of a run, or why they are not known.
fn tasks(name: &Name, run: &PipelineRun, view: &View) -> Result<Vec<OfPipeline>, String> {
    let pipeline = match &run.pipeline {
        PipelineSource::Inline(pipeline) => pipeline,
        PipelineSource::Named(named) => {
            let known = view.pipeline(&Name::new(&name.namespace, named));
            let unknown =
                || format!("Pipeline {named} is not known here, and so its tasks are not");
            &known.ok_or_else(unknown)?.pipeline
        }
        PipelineSource::Resolver => {
            return Err("its tasks are known to a resolver, and not here".to_owned());
        }
        PipelineSource::Absent => return Err("it says no pipeline, and so no tasks".to_owned()),
    };
    // Those of a pipeline in it are made by a run of their own.
    if pipeline.nested {
        let text = "it has pipelines in its pipeline, whose tasks are not told apart here";
        return Err(text.to_owned());
    }
    let claim = |workspace: &str| {
        let workspace = run.workspaces.iter().find(|known| *known.name == *workspace)?;
        match &workspace.source {
            WorkspaceSource::Template(template) => Some(template.claim.to_string()),
            WorkspaceSource::Claim(claim) => Some(claim.to_string()),
            WorkspaceSource::Unresolved | WorkspaceSource::Free => None,
        }
    };
    let tasks = pipeline.tasks.iter().map(|task| {
        let of_workspaces = task.workspaces.iter().filter_map(|of| claim(of));
        let own = task.mounted.iter().map(ToString::to_string);
        let mut claims: Vec<String> = of_workspaces.chain(own).collect();
        claims.sort_unstable();
        claims.dedup();
        OfPipeline { name: task.name.to_string(), claims }
    });
    Ok(tasks.collect())
}

fn owner(kind: &str, name: &str, uid: &str) -> Value {
    json!([{"apiVersion": "tekton.dev/v1", "kind": kind, "name": name, "uid": uid,
        "controller": true, "blockOwnerDeletion": true}])
}

/// The claim that Tekton makes of a workspace's template.
fn claim(name: &Name, run: &PipelineRun, claim: &str, document: &Value, workspace: &str) -> Value {
    let workspaces = document.pointer("/spec/workspaces").and_then(Value::as_array);
    let template = workspaces
        .into_iter()
        .flatten()
        .find(|known| known["name"] == workspace)
        .and_then(|known| known.get("volumeClaimTemplate"));
    let part = |key: &str| template.and_then(|template| template.get(key)).cloned();
    let mut metadata = match part("metadata") {
        Some(Value::Object(metadata)) => metadata,
        _ => Map::new(),
    };
    metadata.insert("name".to_owned(), claim.into());
    metadata.insert("namespace".to_owned(), (*name.namespace).into());
    metadata
        .insert("ownerReferences".to_owned(), owner("PipelineRun", &name.name, &run.identity.uid));
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": metadata, "spec": part("spec").unwrap_or_else(|| json!({})),
    })
}

/// The TaskRun of a task, and its pod.
fn pod(
    name: &Name,
    run: &PipelineRun,
    task: &OfPipeline,
    number: usize,
    document: &Value,
) -> (Value, Value) {
    let task_run = format!("{}-{}", name.name, task.name);
    let uid = format!("{}-{number}", run.identity.uid);
    let text = |key: &str| document.pointer(&format!("/metadata/{key}")).cloned();
    let of_task = json!({
        "apiVersion": "tekton.dev/v1", "kind": "TaskRun",
        "metadata": {
            "name": task_run, "namespace": name.namespace, "uid": uid,
            "labels": {(PIPELINE_TASK): task.name},
            "ownerReferences": owner("PipelineRun", &name.name, &run.identity.uid),
        },
    });
    let template = |path: &str| document.pointer(path).cloned();
    let template =
        template("/spec/taskRunTemplate/podTemplate").or_else(|| template("/spec/podTemplate"));
    let specs = document.pointer("/spec/taskRunSpecs").and_then(Value::as_array);
    let own = specs.into_iter().flatten().find(|spec| spec["pipelineTaskName"] == *task.name);
    let own = own.and_then(|spec| spec.get("podTemplate").or_else(|| spec.get("taskPodTemplate")));
    let mut spec = Map::new();
    // A task's own template wins field by field.
    for template in template.iter().chain(own).filter_map(Value::as_object) {
        for key in ["nodeSelector", "affinity", "tolerations", "volumes", "schedulerName"] {
            if let Some(value) = template.get(key) {
                spec.insert(key.to_owned(), value.clone());
            }
        }
    }
    let mut volumes = match spec.remove("volumes") {
        Some(Value::Array(volumes)) => volumes,
        _ => Vec::new(),
    };
    volumes.extend(task.claims.iter().enumerate().map(|(index, claim)| {
        json!({"name": format!("ws-{index}"), "persistentVolumeClaim": {"claimName": claim}})
    }));
    spec.insert("volumes".to_owned(), volumes.into());
    spec.insert("containers".to_owned(), json!([{"name": "step", "image": "step"}]));
    let mut labels = match text("labels") {
        Some(Value::Object(labels)) => labels,
        _ => Map::new(),
    };
    for (key, value) in [
        ("tekton.dev/pipelineRun", &*name.name),
        (PIPELINE_TASK, &task.name),
        ("tekton.dev/taskRun", &task_run),
    ] {
        labels.insert(key.to_owned(), value.into());
    }
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("{task_run}-pod"), "namespace": name.namespace, "labels": labels,
            "annotations": text("annotations").unwrap_or_else(|| json!({})),
            "ownerReferences": owner("TaskRun", &task_run, &uid),
        },
        "spec": spec,
    });
    (of_task, pod)
}

/// How a run that may not have a UID yet is told: without the names that follow from it.
struct Shown {
    has_uid: bool,
    /// Names, and what stands for them.
    instead: Vec<(String, String)>,
}

impl Shown {
    fn new(groups: Option<&Groups>, run: &PipelineRun, has_uid: bool) -> Self {
        let mut instead = Vec::new();
        if !has_uid {
            for group in groups.iter().flat_map(|groups| &groups.groups) {
                instead.push((group.name.to_string(), format!("{}{TO_COME}", keys::NAME_PREFIX)));
            }
            for workspace in &run.workspaces {
                if let WorkspaceSource::Template(template) = &workspace.source {
                    let name = format!("<claim of workspace {}>", workspace.name);
                    instead.push((template.claim.to_string(), name));
                }
            }
        }
        Self { has_uid, instead }
    }

    fn text(&self, text: &str) -> String {
        let replace =
            |text: String, (name, instead): &(String, String)| text.replace(name, instead);
        self.instead.iter().fold(text.to_owned(), replace)
    }

    fn group(&self, group: &Group, leader: Option<Leader>) -> OneNode {
        OneNode {
            key: group.key.to_string(),
            placeholder: self.has_uid.then(|| group.name.to_string()),
            claims: group.claims.iter().map(|claim| self.text(&claim.name)).collect(),
            tasks: group.tasks.as_ref().map(|of| of.iter().map(ToString::to_string).collect()),
            isolated: group.isolated,
            follows: leader.map(|leader| {
                let Leader { who, claim, .. } = leader;
                let how = match group.isolated {
                    true => "waits until it has ended",
                    false => "goes to the same node",
                };
                format!("claim {claim} is used by the earlier {who}: {how}")
            }),
            any_pod: None,
        }
    }

    fn changes(&self, decision: &Decision) -> Vec<String> {
        let Decision::Admit(admission) = decision else { return Vec::new() };
        admission.intents.iter().map(|intent| self.text(&intent.wish.to_string())).collect()
    }

    fn warnings(&self, decision: &Decision) -> Vec<String> {
        let warnings = match decision {
            Decision::Admit(admission) => admission.warnings.as_slice(),
            Decision::Refuse(refusal) => refusal.warnings.as_slice(),
            _ => &[],
        };
        warnings.iter().map(Warning::as_str).map(|text| self.text(text)).collect()
    }

    fn task(&self, name: &str, decision: &Decision) -> Task {
        let message = match decision {
            Decision::Refuse(refusal) => Some(self.text(&refusal.message())),
            _ => None,
        };
        Task {
            name: name.to_owned(),
            allowed: message.is_none(),
            changes: self.changes(decision),
            warnings: self.warnings(decision),
            message,
        }
    }
}

impl Run {
    /// What becomes of it, in short.
    pub(in crate::cli) fn verdict(&self) -> String {
        if let Some(group) = &self.native_group {
            return format!("coscheduled with all pods of group {group}");
        }
        let has_tasks = |group: &&OneNode| group.tasks.as_ref().is_none_or(|of| !of.is_empty());
        match self.groups.iter().filter(has_tasks).count() {
            0 => "unchanged: its pods may run anywhere".to_owned(),
            1 => "coscheduled, 1 group".to_owned(),
            groups => format!("coscheduled, {groups} groups"),
        }
    }

    /// For people, below the line that names the run.
    pub(in crate::cli) fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |indent: usize, line: &str| {
            let _ = writeln!(text, "{:indent$}{line}", "");
        };
        if !self.mode.is_empty() {
            line(2, &format!("mode {}", self.mode));
        }
        for group in &self.groups {
            let who = match &group.tasks {
                Some(tasks) if tasks.is_empty() => "no task".to_owned(),
                Some(tasks) => tasks.join(", "),
                None => "every task".to_owned(),
            };
            let alone = if group.isolated { ", without other runs" } else { "" };
            line(2, &format!("on one node{alone}: {who}"));
            let placeholder = group.placeholder.as_deref();
            let placeholder = placeholder.map_or("a placeholder named after its UID", |name| name);
            let claims = match group.claims.as_slice() {
                [] => String::new(),
                claims => format!(" with {}", claims.join(", ")),
            };
            line(4, &format!("{placeholder}{claims}"));
            group.follows.iter().for_each(|follows| line(4, follows));
            if let Some(pod) = &group.any_pod {
                let who = if claims.is_empty() { "any pod" } else { "a pod that uses them" };
                pod.tell(who, 4, &mut line);
            }
        }
        for Claim { workspace, name, changes, warnings, unknown } in &self.claims {
            let change = match unknown {
                Some(unknown) => unknown.clone(),
                None if changes.is_empty() => "as it is".to_owned(),
                None => changes.join(", "),
            };
            // Without a UID the workspace is all that names it.
            let name = if name.starts_with('<') { String::new() } else { format!("{name} ") };
            line(2, &format!("claim {name}of workspace {workspace}: {change}"));
            warnings.iter().for_each(|warning| line(4, &format!("warning: {warning}")));
        }
        match &self.tasks {
            None if self.problem.is_some() => self.problem.iter().for_each(|told| line(2, told)),
            None if self.unread.is_empty() => {}
            None => line(2, &self.unread),
            Some(tasks) => {
                // Pods that get the same are told once.
                let mut told: Vec<(Vec<&str>, &Task)> = Vec::new();
                for task in tasks {
                    let same = told.iter_mut().find(|(_, of)| of.is_like(task));
                    match same {
                        Some((names, _)) => names.push(&task.name),
                        None => told.push((vec![&task.name], task)),
                    }
                }
                for (names, task) in told {
                    let pods = if names.len() == 1 { "pod" } else { "pods" };
                    task.tell(&format!("{pods} of {}", names.join(", ")), 2, &mut line);
                }
            }
        }
        self.conflicts.iter().for_each(|conflict| line(2, &format!("conflict: {conflict}")));
        text
    }
}

impl Task {
    fn is_like(&self, other: &Self) -> bool {
        (&self.changes, &self.warnings, &self.message)
            == (&other.changes, &other.warnings, &other.message)
    }

    /// Says what `who` gets.
    fn tell(&self, who: &str, indent: usize, line: &mut impl FnMut(usize, &str)) {
        match &self.message {
            Some(message) => line(indent, &format!("{who}: refused: {message}")),
            None if self.changes.is_empty() => line(indent, &format!("{who}: as they are")),
            None => line(indent, &format!("{who}:")),
        }
        self.changes.iter().for_each(|change| line(indent + 2, &format!("+ {change}")));
        self.warnings.iter().for_each(|warning| line(indent + 2, &format!("warning: {warning}")));
    }
}
