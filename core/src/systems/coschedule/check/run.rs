//! Explains why a Tekton run waits: its groups, which are those that the webhook and the controller find.
//!
//! Each obstacle is reported once, where it arises: at the run, the placeholder, a claim or a pod.

use std::collections::BTreeMap;

use super::group::CheckedGroup;
use crate::kubernetes::{is_finished, label, node_name};
use crate::systems::View;
use crate::systems::check::words::{SEE_CONTROLLER, of_pod, some};
use crate::systems::check::{Context, Diagnosis};
use crate::systems::coschedule::groups::{self, Conflict, Group, Groups, Leader, Who};
use crate::systems::coschedule::kinds::{
    FIRST, PipelineRun, PipelineSource, PlaceholderPod, TaskRun, WorkspaceSource,
};
use crate::systems::coschedule::owner::{Belonging, belonging};
use crate::systems::coschedule::policy::CoscheduleMode;
use crate::systems::coschedule::reconcile::{Explained, Why};
use crate::systems::coschedule::resources::{PIPELINE, PIPELINE_RUN, TASK_RUN};
use crate::systems::coschedule::{family, keys, mode};
use crate::systems::exclusion::Exclusion;
use crate::view::{Key, Name, Owner};

/// Explains why a run waits. `None`: there is no such run.
pub(super) fn diagnose(context: &Context<'_>, key: &Name) -> Option<Diagnosis> {
    let Context { cluster, policy, .. } = context;
    let view = &cluster.view;
    let run = view.pipeline_run(key)?;
    let mut diagnosis = Diagnosis::new(PIPELINE_RUN.kind, key);
    report_refused(&mut diagnosis, &key.namespace, run, view);
    if run.done {
        diagnosis.decided.push("nothing: it has ended".to_owned());
        return Some(diagnosis);
    }
    let (root_name, root, missing) = family::root(key, run, view);
    if let Some(above) = missing {
        diagnosis.report(
            format!("it is a part of {above}, which is unknown: it is not placed"),
            "see that that run still exists: the groups are those of the topmost run",
        );
        return Some(diagnosis);
    }
    if root_name != key {
        diagnosis
            .asked
            .push(format!("a part of PipelineRun {}, whose groups follow", root_name.name));
    }
    let exclusion = Exclusion::of_namespace(&key.namespace, view, policy);
    let ignored_because = match policy.coschedule.enabled {
        false => Some("the policy has coscheduling disabled".to_owned()),
        true => exclusion.map(|exclusion| exclusion.explain(&key.namespace)),
    };
    if let Some(why) = ignored_because {
        diagnosis.decided.push(format!("nothing: {why}"));
        return Some(diagnosis);
    }
    let groups = match groups::of_run(root_name, root, view, policy) {
        Ok(groups) => groups,
        Err(bad) => {
            let finding = bad.finding();
            diagnosis.report(format!("{}: {}", finding.subject, finding.problem), &finding.remedy);
            return Some(diagnosis);
        }
    };
    if let Some(group) = &root.group {
        diagnosis.decided.push(format!(
            "nothing of its own: by its annotation {} its pods are of group {group}",
            keys::GROUP
        ));
        return Some(diagnosis);
    }
    if let Some(bad) = &groups.unused_mode {
        diagnosis.decided.push(format!("{}: {}", keys::MODE, bad.note(policy)));
    }
    let source = match groups.unused_mode {
        Some(_) => "the policy".to_owned(),
        None => mode_source(root_name, root, view),
    };
    diagnosis.asked.push(format!("mode {}, by {source}", mode::word(groups.mode)));
    if groups.mode == CoscheduleMode::Disabled {
        diagnosis.decided.push("nothing: each of its pods is placed by itself".to_owned());
        return Some(diagnosis);
    }
    Run { context, name: root_name, run: root, groups: &groups }.report(&mut diagnosis);
    Some(diagnosis)
}

/// Returns true if a run, or a run below it, has failed because the webhook refused a pod or a claim of it.
pub(super) fn is_refused(namespace: &str, run: &PipelineRun, view: &View) -> bool {
    refusals(namespace, run, view).next().is_some()
}

/// Returns the webhook's answers, each with the TaskRun whose pod it refused.
fn refusals<'v>(
    namespace: &'v str,
    run: &'v PipelineRun,
    view: &'v View,
) -> impl Iterator<Item = (&'v str, Option<&'v TaskRun>)> {
    family::with_below(run, view).into_iter().flat_map(move |run| {
        let task_runs = view.task_runs_of_run(namespace, &run.identity.uid);
        let of_tasks = task_runs.filter_map(|of| Some((of.refusal.as_deref()?, Some(of))));
        run.refusal.as_deref().map(|refusal| (refusal, None)).into_iter().chain(of_tasks)
    })
}

/// Reports what the webhook refused of a run and of those below it. Tekton does not try again.
fn report_refused(diagnosis: &mut Diagnosis, namespace: &str, run: &PipelineRun, view: &View) {
    let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (refusal, task_run) in refusals(namespace, run, view) {
        let task = task_run.and_then(|of| of.task.as_deref());
        found.entry(refusal).or_default().extend(task);
    }
    for (refusal, tasks) in found {
        let subject = match &*tasks {
            [] => "stowplan refused an object of it".to_owned(),
            [task] => format!("stowplan refused the pod of task {task}"),
            tasks => format!("stowplan refused the pods of tasks {}", some(tasks)),
        };
        let remedy = "do that, and create the run again: one that has failed is not continued";
        diagnosis.report(format!("{subject}: {refusal}"), remedy);
    }
}

/// Names the object that sets the mode of a run, for people.
fn mode_source(name: &Name, run: &PipelineRun, view: &View) -> String {
    match mode::source(name, run, view) {
        mode::Source::Placeholder(_) => "what its first placeholder was made for".to_owned(),
        mode::Source::Run(_) => format!("its annotation {}", keys::MODE),
        mode::Source::Pipeline { name, .. } => format!("the annotation of Pipeline {name}"),
        mode::Source::Namespace(_) => {
            format!("the annotation of Namespace {}", name.namespace)
        }
        mode::Source::Policy => "the policy".to_owned(),
    }
}

/// A run that has not ended, and its groups.
struct Run<'c> {
    context: &'c Context<'c>,
    name: &'c Name,
    run: &'c PipelineRun,
    groups: &'c Groups,
}

impl Run<'_> {
    fn report(&self, diagnosis: &mut Diagnosis) {
        let Name { namespace, name } = self.name;
        if let Some(problem) = &self.run.problem {
            diagnosis.report(
                format!("it cannot be read: {problem}"),
                format!("kubectl get pipelinerun {name} -n {namespace} -o yaml"),
            );
        }
        self.report_pipeline(diagnosis);
        let signs = family::signs(self.name, self.run, &self.context.cluster.view);
        if signs.is_assisted {
            diagnosis.report(
                "Tekton's own affinity assistant places this run, and stowplan leaves it alone",
                "set `coschedule: disabled` in Tekton's ConfigMap feature-flags; stowplan places the runs that are created afterwards",
            );
            return;
        }
        if self.groups.groups.is_empty() {
            diagnosis.decided.push("nothing: none of its claims needs one node".to_owned());
            return;
        }
        let is_managed = self.context.cluster.view.controller_present();
        if !is_managed {
            diagnosis.report(
                "no controller of stowplan renews its Lease, so placeholders are neither created, moved nor removed",
                SEE_CONTROLLER,
            );
        }
        self.report_quota(diagnosis);
        for conflict in &self.groups.conflicts {
            diagnosis.report(conflict.to_string(), remedy_of(conflict));
        }
        let has_nothing = !signs.has_started && !self.has_members();
        if has_nothing && !self.run.holds.is_empty() {
            for hold in &self.run.holds {
                diagnosis.report(
                    hold.as_ref(),
                    format!(
                        "wait, or see who has set that: kubectl get pipelinerun {name} -n {namespace} -o yaml --show-managed-fields"
                    ),
                );
            }
        } else if has_nothing && self.context.cluster.knows(TASK_RUN.kind) {
            diagnosis.report(
                "Tekton has created no TaskRun of it yet, and placeholders are created with the first",
                format!("kubectl describe pipelinerun {name} -n {namespace}"),
            );
        }
        for group in &self.groups.groups {
            let part = self.group(diagnosis, group, is_managed);
            diagnosis.parts.push(part);
        }
        self.report_strays(diagnosis);
    }

    /// The TaskRuns of the run, and of those below it, that a quota refuses a pod.
    fn report_quota(&self, diagnosis: &mut Diagnosis) {
        let mut refused = family::refused(&self.context.cluster.view);
        let own = refused.find(|(_, _, root, _)| *root == self.name);
        let Some((first, ..)) = own else { return };
        diagnosis.report(
            format!("a ResourceQuota refuses TaskRun {} its pod", first.name),
            format!("kubectl describe resourcequota -n {}: free or raise it", self.name.namespace),
        );
    }

    /// Reports what it runs, as far as that shapes the groups.
    fn report_pipeline(&self, diagnosis: &mut Diagnosis) {
        let one_group = "all claims that need one node form one group";
        match &self.run.pipeline {
            PipelineSource::Resolver => {
                diagnosis.decided.push(format!("its pipeline is a resolver's, so {one_group}"));
            }
            PipelineSource::Named(named) if self.context.cluster.knows(PIPELINE.kind) => {
                let awaited = |key: &Key| key.resource == PIPELINE;
                if self.groups.awaited.iter().any(awaited) {
                    diagnosis.report(
                        format!("Pipeline {named} does not exist; until it does, {one_group}"),
                        format!("kubectl get pipeline {named} -n {}", self.name.namespace),
                    );
                }
            }
            PipelineSource::Inline(pipeline) if pipeline.nested => {
                diagnosis.decided.push(format!("it has pipelines in its pipeline, so {one_group}"));
            }
            _ => {}
        }
        for workspace in &self.run.workspaces {
            if workspace.source == WorkspaceSource::Unresolved {
                diagnosis.decided.push(format!(
                    "workspace {}: its claim is the result of a task, and joins when it is known",
                    workspace.name
                ));
            }
        }
    }

    fn has_members(&self) -> bool {
        let view = &self.context.cluster.view;
        self.groups.groups.iter().any(|group| {
            view.members_of(&Name::new(&self.name.namespace, &group.name)).next().is_some()
        })
    }

    /// One group: its placeholder, its claims, its pods. `is_managed`: a controller runs.
    fn group(&self, diagnosis: &mut Diagnosis, group: &Group, is_managed: bool) -> Diagnosis {
        let Name { namespace, name } = self.name;
        let placeholder = Name::new(namespace, &group.name);
        let checked = CheckedGroup::new(self.context, &placeholder, Some(group));
        let mut part = checked.placeholder();
        part.asked.insert(0, asked_by(group));
        let creates = checked.explained.as_ref().is_some_and(|explained| {
            self.report_leaders(diagnosis, group, explained);
            explained.creates
        });
        if is_managed && !checked.is_made() && creates {
            checked.report_missing(&mut part, "pipelinerun", name);
        }
        part.parts.extend(checked.claim_parts());
        for (member, _) in self.context.cluster.view.members_of(&placeholder) {
            let pod = self.context.cluster.pod(namespace, &member.name);
            part.parts.extend(pod.map(|pod| checked.diagnose_member(pod)));
        }
        part
    }

    /// Reports the earlier groups that use claims of this one: they share a node.
    fn report_leaders(&self, diagnosis: &mut Diagnosis, group: &Group, explained: &Explained) {
        let mut waits = explained.waits.iter();
        let wait = waits.find(|why| matches!(why, Why::SharedClaim(_)));
        if let Some(wait) = wait {
            let remedy = match explained.leaders.first() {
                None => "wait until that pod has ended".to_owned(),
                Some(Leader { who, .. }) if group.isolated || explained.leaders.len() > 1 => {
                    format!("wait until {who} has ended, or give each run a claim of its own")
                }
                Some(Leader { who: Who::Run(run), .. }) => {
                    format!("stowplan check pipelinerun/{} -n {}", run.name, run.namespace)
                }
                Some(Leader {
                    who: Who::Group(_), placeholder: Name { namespace, name }, ..
                }) => {
                    format!("kubectl describe pod {name}{FIRST} -n {namespace}")
                }
            };
            return diagnosis.report(wait.to_string(), remedy);
        }
        for leader in &explained.leaders {
            let pod = self.context.cluster.view.placeholder_pod(&leader.placeholder);
            let node = pod.and_then(PlaceholderPod::place);
            let shared = node.map(|node| format!("{leader}: on the same node, {node}"));
            diagnosis.decided.extend(shared);
        }
    }

    /// The run's waiting pods that were admitted to no group.
    fn report_strays(&self, diagnosis: &mut Diagnosis) {
        let namespace = &self.name.namespace;
        for pod in self.context.cluster.in_namespace(namespace).filter(|pod| !is_finished(pod)) {
            let Some(owner) = Owner::of_tekton(&pod.metadata, TASK_RUN.kind) else { continue };
            if label(&pod.metadata, keys::MEMBER).is_some() || node_name(pod).is_some() {
                continue;
            }
            let of = belonging(namespace, &owner, &self.context.cluster.view, self.context.policy);
            if !matches!(of, Belonging::Run { name, .. } if name == self.name) {
                continue;
            }
            let mut part = of_pod(pod, namespace, self.context.cluster);
            let name = Name::new(namespace, &part.name);
            (self.context.pods.report_missing_changes)(self.context, &name, pod, &mut part);
            if part.has_obstacle() {
                diagnosis.parts.push(part);
            }
        }
    }
}

fn remedy_of(conflict: &Conflict) -> &'static str {
    match conflict {
        Conflict::Volumes(_) => {
            "give the run claims of a class that binds with its first pod (WaitForFirstConsumer), or one claim with a subPath for each"
        }
        Conflict::Selectors(_) => {
            "let both ask for the same nodes, or share a claim that several nodes can mount (ReadWriteMany)"
        }
    }
}

fn asked_by(group: &Group) -> String {
    let tasks = match &group.tasks {
        Some(tasks) if tasks.is_empty() => "no task".to_owned(),
        Some(tasks) => {
            let tasks: Vec<String> = tasks.iter().map(ToString::to_string).collect();
            format!("{} {}", if tasks.len() == 1 { "task" } else { "tasks" }, some(&tasks))
        }
        None => "every task".to_owned(),
    };
    let alone = if group.isolated { ", without other runs" } else { "" };
    format!("one node{alone} for {tasks}")
}
