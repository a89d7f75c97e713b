//! The preview of a PipelineRun: its groups, its claims, and the pods of its tasks.
//!
//! `tekton` builds the objects that Tekton would create for the run; each claim and pod is then decided
//! as in a cluster. `class` previews claims, and adds the default storage class as the API server does.

pub(super) mod class;
mod task_run;
mod tekton;
mod text;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::groups::{self, Group, Groups, Leader};
use super::{keys, mode, reconcile};
use crate::systems;
use crate::systems::View;
use crate::systems::coschedule::kinds::PipelineRun;
use crate::systems::coschedule::policy::CoscheduleMode;
use crate::systems::coschedule::resources::{CLAIM, PIPELINE_RUN, TASK_RUN};
use crate::systems::policy::Policy;
use crate::systems::preview::{Decide, Decided, Given, Preview, PreviewedKind, Verdict};
use crate::view::resource::POD;
use tekton::PipelineTask;

/// The kinds that coscheduling previews.
pub(super) const KINDS: &[PreviewedKind] = &[
    PreviewedKind {
        resource: PIPELINE_RUN,
        complete: Some(tekton::complete),
        preview: preview_run,
    },
    PreviewedKind { resource: CLAIM, complete: None, preview: class::preview },
    PreviewedKind { resource: TASK_RUN, complete: None, preview: task_run::preview },
];

/// Replaces the suffix of a placeholder's name that depends on a UID which does not exist yet.
const UNKNOWN_SUFFIX: &str = "<of the run's UID>";

/// The preview of a run, as it is written in JSON.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Run {
    mode: &'static str,
    /// The reason why Tekton makes nothing for the run now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    held: Vec<String>,
    /// The native group of all its pods, by the run's annotation. It then has no groups of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    native_group: Option<String>,
    groups: Vec<OneNode>,
    claims: Vec<Claim>,
    /// `None` if they are not known.
    tasks: Option<Vec<Task>>,
    /// The reason why the tasks are not known.
    #[serde(skip)]
    unread: String,
    conflicts: Vec<String>,
    /// The reason why there are no groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// A group: tasks whose pods share one node.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct OneNode {
    key: String,
    /// Absent if it depends on a UID that does not exist yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    placeholder: Option<String>,
    claims: Vec<String>,
    /// Absent if they are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    tasks: Option<Vec<String>>,
    isolated: bool,
    /// How an earlier run with the same claim affects it.
    #[serde(skip_serializing_if = "Option::is_none")]
    follows: Option<String>,
    /// The changes to a pod that mounts its claims, if its tasks are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    any_pod: Option<Task>,
}

/// A claim that Tekton creates for the run.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Claim {
    workspace: String,
    name: String,
    changes: Vec<String>,
    warnings: Vec<String>,
    /// Missing information about its class that could change the decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown: Option<String>,
}

/// A task, and the changes to its pod.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Task {
    name: String,
    allowed: bool,
    changes: Vec<String>,
    warnings: Vec<String>,
    /// The reason why its pod would be refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

/// Previews a run that the View has.
///
/// # Errors
/// The reason why the run, or a pod that Tekton would create for it, is invalid.
fn preview_run(
    given: &Given<'_>,
    view: &mut View,
    policy: &Policy,
    decide: Decide<'_>,
) -> Result<Preview, String> {
    let Given { name, document, has_cluster } = *given;
    // A document that is not a PipelineRun was reported when it was read.
    let Some(run) = view.pipeline_run(name).cloned() else { return Ok(Preview::default()) };
    if let Some(problem) = &run.problem {
        return Err(problem.to_string());
    }
    let groups = groups::of_run(name, &run, view, policy);
    let has_uid = document.pointer("/metadata/uid").is_some_and(Value::is_string);
    let names = Names::new(groups.as_ref().ok(), &run, has_uid);
    let mut preview = Run {
        held: run.holds.iter().map(|of| of.clone().into_string()).collect(),
        native_group: run.group.as_deref().map(ToOwned::to_owned),
        problem: groups.as_ref().err().map(|bad| bad.finding().to_string()),
        ..Run::default()
    };
    if let Ok(groups) = &groups {
        preview.mode = mode::word(groups.mode);
        let leaders = reconcile::leaders(view, policy);
        let shown = |group| names.group(group, &leaders.of_group(name, &run, group));
        preview.groups = groups.groups.iter().map(shown).collect();
        preview.conflicts = groups.conflicts.iter().map(ToString::to_string).collect();
    }
    let is_grouped = groups.as_ref().is_ok_and(|groups| groups.mode != CoscheduleMode::Disabled);
    for workspace in &run.workspaces {
        let Some(template) = workspace.template() else { continue };
        let mut claim = tekton::claim(name, &run, template);
        class::complete(&mut claim, view);
        let decided = decide(&CLAIM, &claim, view)?;
        let (changes, warnings) = (names.texts(&decided.changes), names.texts(&decided.warnings));
        let may_change =
            is_grouped && matches!(decided.verdict, Verdict::Placed | Verdict::Admitted);
        let unknown = (may_change && changes.is_empty() && warnings.is_empty())
            .then(|| class::unknown(&claim, view, has_cluster));
        preview.claims.push(Claim {
            workspace: workspace.name.to_string(),
            name: names.text(&template.claim),
            changes,
            warnings,
            unknown: unknown.flatten(),
        });
    }
    // A run without tasks still needs a decision: its annotations may be invalid.
    let tasks = match tekton::tasks(name, &run, view) {
        Ok(tasks) if tasks.is_empty() && groups.is_err() => Err(String::new()),
        tasks => tasks,
    };
    preview.tasks = tasks.is_ok().then(Vec::new);
    // Without known tasks, one pod that mounts the claims of a group represents all pods of the group.
    let stand_ins = stand_ins(groups.as_ref().ok().filter(|_| run.group.is_none()));
    let mut any: Option<Decided> = None;
    let mut placed = None;
    let mut refused = None;
    for (number, task) in tasks.as_deref().unwrap_or(&stand_ins).iter().enumerate() {
        let (task_run, pod) = tekton::pod(name, &run, task, number, document);
        // Tekton creates the TaskRun before its pod.
        if let Ok(Some(object)) = systems::object(task_run) {
            view.apply(object);
        }
        let decided = decide(&POD, &pod, view)?;
        let shown = names.task(&task.name, &decided);
        match (&tasks, preview.groups.get_mut(number)) {
            (Ok(_), _) => preview.tasks.get_or_insert_default().push(shown),
            (Err(_), Some(group)) => group.any_pod = Some(shown),
            (Err(_), None) => {}
        }
        let kept = match decided.verdict {
            Verdict::Refused => &mut refused,
            Verdict::Placed => &mut placed,
            Verdict::Admitted | Verdict::Passed => &mut any,
        };
        kept.get_or_insert(decided);
    }
    preview.unread = tasks.err().unwrap_or_default();
    let decided = refused.or(placed).or(any);
    if decided.as_ref().is_none_or(|decided| decided.verdict == Verdict::Passed) {
        // No pod is affected by the groups.
        preview.groups.clear();
        preview.conflicts.clear();
    }
    Ok(Preview {
        decision: decided.map(|decided| decided.number),
        verdict: Some(preview.verdict()),
        text: preview.text(),
        fields: Map::from_iter([("run".to_owned(), json!(preview))]),
        ..Preview::default()
    })
}

/// One task for each group, whose pod mounts the group's claims. Without groups (the mode is invalid, or
/// the pods belong to a native group) one task without claims.
fn stand_ins(groups: Option<&Groups>) -> Vec<PipelineTask> {
    let any = |claims| PipelineTask { name: "any".to_owned(), claims };
    let Some(groups) = groups else { return vec![any(Vec::new())] };
    let claims = |group: &Group| group.claims.iter().map(|claim| claim.name.to_string()).collect();
    groups.groups.iter().map(|group| any(claims(group))).collect()
}

/// Replaces names that depend on a UID which the run does not have yet.
struct Names {
    has_uid: bool,
    /// Names, each with its replacement.
    replaced: Vec<(String, String)>,
}

impl Names {
    fn new(groups: Option<&Groups>, run: &PipelineRun, has_uid: bool) -> Self {
        let mut replaced = Vec::new();
        if !has_uid {
            for group in groups.iter().flat_map(|groups| &groups.groups) {
                let name = format!("{}{UNKNOWN_SUFFIX}", keys::NAME_PREFIX);
                replaced.push((group.name.to_string(), name));
            }
            for workspace in &run.workspaces {
                let name = format!("<claim of workspace {}>", workspace.name);
                replaced.extend(workspace.template().map(|of| (of.claim.to_string(), name)));
            }
        }
        Self { has_uid, replaced }
    }

    fn text(&self, text: &str) -> String {
        let replace = |text: String, (name, by): &(String, String)| text.replace(name, by);
        self.replaced.iter().fold(text.to_owned(), replace)
    }

    fn texts(&self, texts: &[String]) -> Vec<String> {
        texts.iter().map(|text| self.text(text)).collect()
    }

    fn group(&self, group: &Group, leaders: &[Leader]) -> OneNode {
        OneNode {
            key: group.key.to_string(),
            placeholder: self.has_uid.then(|| group.name.to_string()),
            claims: group.claims.iter().map(|claim| self.text(&claim.name)).collect(),
            tasks: group
                .tasks
                .as_ref()
                .map(|tasks| tasks.iter().map(ToString::to_string).collect()),
            isolated: group.isolated,
            follows: leaders.first().map(|leader| {
                let how = match group.isolated {
                    true => "waits until it has ended",
                    false => "is placed on the same node",
                };
                format!("{leader}: {how}")
            }),
            any_pod: None,
        }
    }

    fn task(&self, name: &str, decided: &Decided) -> Task {
        let message = decided.refusal.as_deref().map(|message| self.text(message));
        Task {
            name: name.to_owned(),
            allowed: message.is_none(),
            changes: self.texts(&decided.changes),
            warnings: self.texts(&decided.warnings),
            message,
        }
    }
}
