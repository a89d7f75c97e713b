//! Removes the scheduling gates of members. Members wait until their placeholder has a node, and those that cannot
//! follow it by pod affinity then require that node by name. If the API server refuses the placeholder, or it has
//! stepped aside, the members run without it.
//!
//! While a pod is gated, the API server allows requirements to be added to its required node terms.
//! So one patch adds them and removes the gate. It tests the version of the pod, because the indexes
//! of the gate and of the terms are those of that version.

use std::collections::{BTreeMap, HashSet};
use std::iter;

use json_patch::PatchOperation;
use k8s_openapi::api::core::v1::NodeSelectorTerm;
use serde_json::json;

use super::carry_out::PlanBuilder;
use super::group_pod::GroupPod;
use super::reason;
use super::state::is_open;
use crate::kubernetes::AboveNodeTerms;
use crate::systems::coschedule::family;
use crate::systems::coschedule::keys::{
    COMPONENT, COMPONENT_VALUE, FAILED, GATE, INSTANCE, provisioned,
};
use crate::systems::coschedule::kinds::PlaceholderPod;
use crate::systems::coschedule::placeholder::Desired;
use crate::systems::exclusion::Exclusion;
use crate::systems::plan::operation::{add, remove_gate, require_nodes, test_uid};
use crate::systems::plan::{Action, Event, Target, Write};
use crate::view::Name;
use crate::view::resource::POD;

impl PlanBuilder<'_, '_> {
    /// Returns the actions that let the waiting members of a group run without its placeholder, which would have been
    /// on the node `only`, if given; and whether some need it all the same. The first of them runs where the
    /// scheduler likes, the others beside it: by their pod affinity, or else by the node's name. `is_aside`: it has
    /// stepped aside, and is not created again.
    pub(super) fn let_in(
        &self,
        desired: &Desired<'_>,
        waiting: &[GroupPod<'_>],
        only: Option<&str>,
        is_aside: bool,
    ) -> (Vec<Action>, bool) {
        let (view, own) = (self.view(), &*desired.name.name);
        let labels = labels(own, is_aside);
        let made = desired.templates.iter().map(|(claim, _)| provisioned(claim, own));
        let made: HashSet<String> = made.collect();
        let run = desired.run();
        let uid = run.map(|run| &*run.run.identity.uid);
        let of_group: Vec<_> = GroupPod::living(&desired.name, view)
            .filter(|pod| family::belongs(pod.name, pod.member, own, uid, view))
            .filter(|pod| !pod.member.identity.deleting && !pod.details.ignored)
            .collect();
        // The pods of a native group may leave a node that takes no new ones.
        let is_there = |pod: &&GroupPod<'_>| {
            let node = pod.member.place();
            node.is_some_and(|node| run.is_some() || is_open(node, &pod.details.tolerations, view))
        };
        let running: Vec<_> = of_group.iter().filter(is_there).collect();
        // Those that run come first: the scheduler takes another node as soon as a pod selects itself alone.
        if waiting.iter().any(|pod| pod.details.follows_placeholder) {
            let is_admitted_beside = |pod: &&GroupPod<'_>| {
                let GroupPod { member, details, .. } = pod;
                member.node.is_none() && details.is_beside_others && !details.follows_placeholder
            };
            let admitted = of_group.iter().filter(is_admitted_beside);
            let unmarked = running.iter().copied().chain(admitted);
            let unmarked = unmarked.filter(|pod| !pod.details.stands_in && !pod.keeps_labels());
            let marks: Vec<_> = unmarked.map(|pod| mark(*pod, &labels)).collect();
            if !marks.is_empty() {
                return (marks, false);
            }
        }
        let is_marked = running.iter().any(|pod| pod.details.stands_in);
        let beside = running.iter().filter_map(|pod| pod.member.place()).min();
        let mut waiting = waiting.to_vec();
        waiting.sort_unstable_by_key(|pod| (!pod.details.follows, pod.name));
        let mut has_first = beside.is_some() || waiting.iter().any(|pod| !pod.is_gated());
        let (mut actions, mut is_needed) = (Vec::new(), false);
        for pod in waiting {
            let details = pod.details;
            let is_missing = |claim: &str| {
                made.contains(claim) && view.claim(&Name::new(&pod.name.namespace, claim)).is_none()
            };
            let keeps_labels = pod.needs_labels() && pod.keeps_labels();
            if details.claims.iter().any(|claim| is_missing(claim)) || keeps_labels {
                is_needed = true;
                continue;
            }
            let node = only.or_else(|| beside.filter(|_| !details.follows || !is_marked));
            // Without a gate it cannot be bound to a node by name; and while gates of others hold it, that node may be
            // removed.
            let is_bindable = match details.follows {
                true => pod.is_gated() || beside.is_none() || is_marked || only.is_some(),
                false => pod.member.other_gate().is_none(),
            };
            if !is_bindable {
                continue;
            }
            let is_next = match node {
                Some(node) => is_open(node, &details.tolerations, view),
                None => details.follows || !has_first,
            };
            if is_next {
                let labels: &[_] = if details.follows { &labels } else { &[] };
                actions.extend(ungate(pod, node, labels));
                has_first = true;
            }
        }
        (actions, is_needed)
    }

    /// Removes the gates of members whose placeholder will not be created, or exists without a node and gets none.
    pub(super) fn lift_forgotten_gates(&mut self, desired: &BTreeMap<Name, Desired<'_>>) {
        let (view, policy) = (self.view(), self.facts.policy);
        let pods = view.members().filter_map(GroupPod::new);
        for pod in pods.filter(GroupPod::is_gated) {
            let GroupPod { name, member, details } = pod;
            let placeholder = member.placeholder.as_deref();
            // Where the policy or the namespace opts out, a placeholder keeps the node that it has and gets no other.
            let will_place = |of: &Name| {
                let is_off = !policy.coschedule.enabled
                    || Exclusion::of_namespace(&of.namespace, view, policy).is_some();
                !is_off || view.placeholder_pod(of).and_then(PlaceholderPod::place).is_some()
            };
            let is_expected =
                placeholder.map(|of| Name::new(&name.namespace, of)).is_some_and(|of| {
                    desired.contains_key(&of) || view.placeholder(&of).is_some() && will_place(&of)
                });
            if is_expected {
                continue;
            }
            let Some(action) = ungate(pod, None, &[]) else { continue };
            let effect = match details.follows {
                true => "it requires one: delete it, so that it is created without",
                false => "so it may run on any node",
            };
            let note = format!("its group has no placeholder, and {effect}");
            let event = Event { warning: true, reason: reason::GATE_LIFTED, note };
            self.act(Action { events: vec![event], ..action });
        }
    }
}

/// The operations that give a pod the labels of the pod of a placeholder, which has stepped aside or not.
fn labels(own: &str, is_aside: bool) -> Vec<PatchOperation> {
    let left = is_aside.then_some((FAILED, "true"));
    let all = [(COMPONENT, COMPONENT_VALUE), (INSTANCE, own)].into_iter().chain(left);
    all.map(|(key, value)| add(&["metadata", "labels", key], value)).collect()
}

/// Gives a pod that runs the labels of the pod of its placeholder, so that those that wait for that go beside it.
fn mark(GroupPod { name, member, .. }: GroupPod<'_>, labels: &[PatchOperation]) -> Action {
    let uid = &member.identity.uid;
    let operations = iter::once(test_uid(uid)).chain(labels.iter().cloned()).collect();
    Action::new(Target::new(POD, name, uid), Write::Patch(operations), Vec::new())
}

/// Removes the gate of a member, which then requires `node`, if given. With the labels of the pod of its placeholder, the
/// member's own pod affinity selects the member itself. `None`: there is nothing to change.
pub(super) fn ungate(
    GroupPod { name, member, details }: GroupPod<'_>,
    node: Option<&str>,
    labels: &[PatchOperation],
) -> Option<Action> {
    if member.identity.deleting {
        return None;
    }
    let labels = labels.iter().filter(|_| !details.is_beside_others).cloned();
    let operations = match details.gate {
        Some(gate) => {
            let terms = details.terms.as_deref().unwrap_or_default();
            let bound = node.into_iter();
            let bound = bound.flat_map(|node| require_node(terms, details.above_terms, node));
            remove_gate(&member.identity, gate, GATE, bound.chain(labels))
        }
        // It was admitted while no controller led.
        None => iter::once(test_uid(&member.identity.uid)).chain(labels).collect(),
    };
    let target = Target::new(POD, name, &member.identity.uid);
    (operations.len() > 1).then(|| Action::new(target, Write::Patch(operations), Vec::new()))
}

/// The operations that add the node to every required term of a gated pod.
pub(super) fn require_node(
    terms: &[NodeSelectorTerm],
    above: AboveNodeTerms,
    node: &str,
) -> Vec<PatchOperation> {
    let requirement = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    require_nodes(terms, above, "matchFields", &[requirement])
}
