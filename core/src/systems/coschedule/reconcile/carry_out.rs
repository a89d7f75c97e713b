//! Turns decisions into the actions of a plan, without deciding anything.

use std::collections::{BTreeMap, HashSet};

use json_patch::PatchOperation;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::gate::ungate;
use super::group_pod::GroupPod;
use super::next::{Aside, Decision, Next, Step, Trouble};
use super::state::{Facts, State};
use super::{Why, reason};
use crate::systems::View;
use crate::systems::coschedule::keys::{FAILED, IDLE_SINCE, MISSING_SINCE};
use crate::systems::coschedule::kinds::{PipelineRun, Placeholder, PlaceholderPod};
use crate::systems::coschedule::placeholder::resources;
use crate::systems::coschedule::resources::{PIPELINE_RUN, TASK_RUN};
use crate::systems::pause::KEEPS_NODE;
use crate::systems::plan::operation::{add, remove, test, test_uid};
use crate::systems::plan::{Action, Event, Plan, Refusal, Target, Write};
use crate::systems::wake;
use crate::view::resource::STATEFUL_SET;
use crate::view::resource::{POD, Resource};
use crate::view::{Identity, Name};

/// The annotations whose values can be times.
pub(super) const TIMES: &[&str] = &[FAILED, IDLE_SINCE, MISSING_SINCE];

/// A plan that is being built.
pub(super) struct PlanBuilder<'t, 'v> {
    pub(super) facts: &'t Facts<'v>,
    plan: Plan,
    /// The objects that already have an action.
    taken: HashSet<Target>,
    /// The namespaces in which a placeholder steps aside.
    aside: HashSet<Box<str>>,
    /// Events about objects, those of one in the order in which they are reported.
    events: BTreeMap<Target, Vec<Event>>,
}

impl<'t, 'v> PlanBuilder<'t, 'v> {
    pub(super) fn new(facts: &'t Facts<'v>) -> Self {
        Self {
            facts,
            plan: Plan::default(),
            taken: HashSet::new(),
            aside: HashSet::new(),
            events: BTreeMap::new(),
        }
    }

    pub(super) fn view(&self) -> &'v View {
        self.facts.view
    }

    /// Adds an action, unless its object already has one: that is left to the next plan.
    pub(super) fn act(&mut self, action: Action) {
        if self.taken.insert(action.target.clone()) {
            self.plan.actions.push(action);
        }
    }

    pub(super) fn write(&mut self, resource: Resource, name: &Name, uid: &str, write: Write) {
        let action = Action::new(Target::new(resource, name, uid), write, Vec::new());
        self.act(action.with_volatile(TIMES));
    }

    /// Patches the StatefulSet of a placeholder. Its pod is not affected until it is deleted.
    fn change(
        &mut self,
        name: &Name,
        placeholder: &Placeholder,
        mut operations: Vec<PatchOperation>,
    ) {
        let uid = &placeholder.identity.uid;
        operations.insert(0, test_uid(uid));
        self.write(STATEFUL_SET, name, uid, Write::Patch(operations));
    }

    fn delete(&mut self, name: &Name, placeholder: &Placeholder) {
        let write = Write::Delete { grace: None, version: None };
        self.write(STATEFUL_SET, name, &placeholder.identity.uid, write);
    }

    pub(super) fn recheck_by(&mut self, at: Timestamp) {
        self.plan.recheck_by(at);
    }

    pub(super) fn report(&mut self, target: Target, event: Event) {
        let events = self.events.entry(target).or_default();
        if !events.contains(&event) {
            events.push(event);
        }
    }

    /// Reports to waiting pods, their TaskRuns and their run why they wait. Pods that only gates of others hold do not
    /// wait for stowplan.
    pub(super) fn report_waiting(
        &mut self,
        run: Option<(&Name, &PipelineRun)>,
        waiting: &[GroupPod<'_>],
        why: &Why,
    ) {
        let waits = |pod: &&GroupPod<'_>| pod.is_gated() || pod.member.other_gate().is_none();
        let waiting = waiting.iter().filter(waits);
        for target in target_of_run(run).into_iter().chain(with_task_runs(waiting)) {
            self.report(target, why.event());
        }
    }

    /// The plan. Objects with events but without an action get an action without a write.
    pub(super) fn finish(self) -> Plan {
        let Self { mut plan, taken, events, .. } = self;
        for (target, events) in events.into_iter().filter(|(target, _)| !taken.contains(target)) {
            let action = Action::new(target, Write::None, events);
            plan.actions.push(action.with_lasting(Why::REASONS));
        }
        plan
    }

    /// Adds the actions of a decision about a placeholder.
    pub(super) fn carry_out(&mut self, state: &State<'_>, decision: Decision<'_>) {
        let Decision { next, keeps_node, members, waits, recheck_at } = decision;
        recheck_at.into_iter().for_each(|at| self.recheck_by(at));
        waits.iter().for_each(|why| self.report_waiting(state.run, &state.waiting, why));
        for (pod, step) in members {
            self.carry_out_step(pod, step);
        }
        let (name, placeholder) = (state.name, state.placeholder);
        match next {
            Next::Nothing => {}
            Next::Delete => self.delete(name, placeholder),
            Next::Unmark(marks) => {
                let remove = |mark| remove(&["metadata", "annotations", mark]);
                self.change(name, placeholder, marks.into_iter().map(remove).collect());
            }
            Next::Mark(mark, value) => {
                self.change(name, placeholder, annotate(state.placeholder, mark, value));
            }
            Next::Scale => {
                self.change(name, placeholder, vec![add(&["spec", "replicas"], 1)]);
            }
            Next::Rewrite(plan) => {
                let requests = &self.facts.policy.coschedule.placeholder.requests;
                let desired = state.desired.into_iter();
                let mut operations = vec![test_uid(&placeholder.identity.uid)];
                operations.extend(desired.flat_map(|of| of.rewrite(placeholder, &plan, requests)));
                let target = Target::new(STATEFUL_SET, name, &placeholder.identity.uid);
                let aside = Write::Patch(self.stepped_aside(placeholder));
                let aside = Action::new(target.clone(), aside, Vec::new()).with_volatile(TIMES);
                let refusal = Refusal {
                    reason: reason::PLACEHOLDER_STEPPED_ASIDE,
                    note: format!(
                        "the pod template of placeholder {} cannot be changed: the placeholder is deleted, and the pods of its group run beside each other; the API server says",
                        name.name
                    ),
                    waiting: self.group_of(state),
                    instead: vec![aside],
                };
                let action = Action::new(target, Write::Patch(operations), Vec::new());
                self.act(action.with_volatile(TIMES).with_refusal(refusal));
            }
            Next::Resize(room) => {
                let Some(pod) = state.pod else { return };
                let requests = &self.facts.policy.coschedule.placeholder.requests;
                let mut requested = resources(Some(&room), requests)["requests"].take();
                let container = pod.container.to_string();
                let mut amount = |of: &str| {
                    let path = ["spec", "containers", &container, "resources", "requests", of];
                    add(&path, requested[of].take())
                };
                // Other requests cannot be changed, and webhooks may have added some.
                let operations = vec![test_uid(&pod.identity.uid), amount("cpu"), amount("memory")];
                let target = Target::new(POD, &state.pod_name(), &pod.identity.uid);
                let kept = requests.amounts();
                let note = match pod.requests.covers(&kept.plus(&room)) {
                    true => {
                        "it goes on requesting room that pods of its group wait for, and is created again without it once none of them runs"
                    }
                    false => {
                        "it does not reserve room for later pods of its group: pods of others may take that, and the group may move"
                    }
                };
                let refusal = Refusal {
                    reason: reason::ROOM_NOT_CHANGED,
                    note: note.to_owned(),
                    waiting: vec![target.clone()],
                    instead: Vec::new(),
                };
                let write = Write::Part("resize", operations);
                let action = Action::new(target, write, Vec::new()).with_volatile(TIMES);
                self.act(action.with_refusal(refusal));
            }
            Next::Wake => {
                let Some(pod) = state.pod else { return };
                let pod_name = state.pod_name();
                let now = self.facts.now;
                self.act(wake::call(&pod_name, &pod.identity.uid, now, "placeholder"));
            }
            // One for each namespace and plan: the next plan sees when it stepped aside.
            Next::StepAside(Aside::Quota) if !self.aside.insert(name.namespace.clone()) => {}
            Next::StepAside(why) => {
                let mut operations = self.stepped_aside(placeholder);
                if why == Aside::Quota {
                    operations.push(add(&["spec", "replicas"], 0));
                }
                self.write(STATEFUL_SET, name, &placeholder.identity.uid, Write::Patch(operations));
                let why = match why {
                    Aside::Quota => {
                        format!(
                            "a ResourceQuota has no room for a pod of the run beside placeholder {}",
                            name.name
                        )
                    }
                    Aside::Queue => format!(
                        "a queue holds placeholder {} by its gate, or pods of its group while it counts the placeholder",
                        name.name
                    ),
                };
                let note = format!(
                    "{why}: the placeholder is deleted, and the pods of its group run beside each other"
                );
                let reason = reason::PLACEHOLDER_STEPPED_ASIDE;
                for target in self.group_of(state) {
                    self.report(target, Event { warning: true, reason, note: note.clone() });
                }
            }
            Next::LetIn => {
                let Some(desired) = state.desired else { return };
                let only = match self.facts.follow(desired) {
                    Ok(only) => only,
                    Err(why) => return self.report_waiting(state.run, &state.waiting, &why),
                };
                let (actions, _) = self.let_in(desired, &state.waiting, only.as_deref(), true);
                if actions.is_empty() && state.details.replicas != Some(0) {
                    // A queue may count a StatefulSet that has been scaled down, until it is deleted. A pod that runs
                    // without it says that it is not to be made again.
                    match state.has_left() {
                        true => self.delete(name, placeholder),
                        false => {
                            self.change(name, placeholder, vec![add(&["spec", "replicas"], 0)]);
                        }
                    }
                }
                actions.into_iter().for_each(|action| self.act(action));
            }
            Next::Recreate { why } => {
                let Some(pod) = state.pod else { return };
                let is_forced = why.as_ref().is_some_and(Trouble::is_lost);
                // Do not delete a pod that was bound after the decision.
                let version = pod.node.is_none().then(|| pod.identity.resource_version.clone());
                let write = Write::Delete { grace: is_forced.then_some(0), version };
                self.write(POD, &state.pod_name(), &pod.identity.uid, write);
                if let Some(why) = why {
                    let note = format!("placeholder {} leaves its node: {why}", name.name);
                    let event = Event { warning: false, reason: reason::PLACEHOLDER_MOVED, note };
                    if let Some(run) = target_of_run(state.run) {
                        self.report(run, event);
                    }
                }
            }
        }
        if let Some((keeps, pod)) = keeps_node.zip(state.pod) {
            let operations = keep_node(pod, keeps);
            if operations.len() > 1 {
                self.write(POD, &state.pod_name(), &pod.identity.uid, Write::Patch(operations));
            }
        }
    }

    /// Returns the operations that record that a placeholder steps aside. It goes once its group runs without it.
    fn stepped_aside(&self, placeholder: &Placeholder) -> Vec<PatchOperation> {
        let mut operations = vec![test_uid(&placeholder.identity.uid)];
        operations.extend(annotate(placeholder, FAILED, self.facts.now_text()));
        operations
    }

    /// Returns the objects that learn what becomes of a placeholder: its run, else the waiting pods of its group.
    fn group_of(&self, state: &State<'_>) -> Vec<Target> {
        match target_of_run(state.run) {
            Some(run) => vec![run],
            None => with_task_runs(state.waiting.iter()).collect(),
        }
    }

    fn carry_out_step(&mut self, pod: GroupPod<'_>, step: Step) {
        let (name, uid) = (pod.name, &pod.member.identity.uid);
        match step {
            Step::Admit(node) => {
                let action = ungate(pod, node.as_deref(), &[]);
                action.into_iter().for_each(|action| self.act(action));
            }
            Step::Wake => self.act(wake::call(name, uid, self.facts.now, "coscheduled group")),
            Step::Nominate(node) => {
                let nominated =
                    add(&["status", "nominatedNodeName"], node.as_deref().unwrap_or_default());
                let write = Write::Part("status", vec![test_uid(uid), nominated]);
                self.write(POD, name, uid, write);
            }
            Step::Recreate(why) => self.recreate_member(pod, &why),
            Step::Strand(reason, note) => {
                let event = Event { warning: true, reason, note };
                self.report(Target::new(POD, name, uid), event);
            }
        }
    }

    /// Deletes a waiting member that its owner recreates.
    pub(super) fn recreate_member(
        &mut self,
        GroupPod { name, member, .. }: GroupPod<'_>,
        why: &str,
    ) {
        let owner = if member.task_run.is_some() { "TaskRun" } else { "owner" };
        self.act(recreate(name, &member.identity, owner, why));
    }
}

/// Deletes a waiting pod that its owner recreates, unless it has changed since the decision: it may have been bound.
pub(super) fn recreate(name: &Name, identity: &Identity, owner: &str, why: &str) -> Action {
    let version = Some(identity.resource_version.clone());
    let note = format!("{why}; deleted, so that its {owner} creates it again");
    let events = vec![Event { warning: false, reason: reason::RECREATED, note }];
    let target = Target::new(POD, name, &identity.uid);
    Action::new(target, Write::Delete { grace: None, version }, events)
}

/// The operations that set an annotation of a StatefulSet.
fn annotate(placeholder: &Placeholder, annotation: &str, value: String) -> Vec<PatchOperation> {
    let is_annotated = placeholder.details.as_ref().is_some_and(|details| details.is_annotated);
    match is_annotated {
        true => vec![add(&["metadata", "annotations", annotation], value)],
        false => vec![
            // Do not replace annotations that were added since.
            test(&["metadata", "resourceVersion"], &*placeholder.identity.resource_version),
            add(&["metadata", "annotations"], json!({annotation: value})),
        ],
    }
}

/// The operations that let autoscalers leave a placeholder's pod and node alone, or no longer. Values that are not
/// stowplan's stay.
fn keep_node(pod: &PlaceholderPod, keeps: bool) -> Vec<PatchOperation> {
    let mut operations = vec![test_uid(&pod.identity.uid)];
    for (value, (key, own)) in pod.keeps_node.iter().zip(KEEPS_NODE) {
        let path = ["metadata", "annotations", key];
        match value.as_deref() {
            None if keeps => operations.push(add(&path, own)),
            Some(present) if !keeps && present == own => {
                operations.extend([test(&path, own), remove(&path)]);
            }
            _ => {}
        }
    }
    operations
}

pub(super) fn target_of_run(run: Option<(&Name, &PipelineRun)>) -> Option<Target> {
    run.map(|(name, run)| Target::new(PIPELINE_RUN, name, &run.identity.uid))
}

/// Pods, each with the TaskRun that created it.
pub(super) fn with_task_runs<'p>(
    pods: impl Iterator<Item = &'p GroupPod<'p>>,
) -> impl Iterator<Item = Target> {
    pods.flat_map(|GroupPod { name, member, .. }| {
        let task_run = member.task_run.as_ref().map(|owner| {
            Target::new(TASK_RUN, &Name::new(&name.namespace, &owner.name), &owner.uid)
        });
        [Target::new(POD, name, &member.identity.uid)].into_iter().chain(task_run)
    })
}
