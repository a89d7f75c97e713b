//! Pods that mount the same claim share a node, in a namespace with the label, if one node at a time can mount
//! the claim.
//!
//! A pod gets a label for each such claim, and pod affinity to the pods with the label of its claim. The pod's
//! own label matches that term, so the first pod runs wherever its volumes can be mounted, later ones run
//! beside it, and once all have ended, the next pod is as free as the first.
//!
//! A term selects by one label. So a pod with several claims, or with pod affinity of its own, waits behind a
//! gate until the pods that mount its claims are on one node; the controller then removes the gate, and
//! requires that node where no term does. Until the pod is bound, new pods of its claims wait, too. The
//! controller also labels pods that have no labels yet, because they ran before the namespace had its label,
//! or the webhook did not see them.

use std::collections::BTreeMap;

use super::keys::{self, ONE_NODE, ONE_NODE_CLAIMS};
use super::member::PodRequest;
use super::resources::CLAIM;
use crate::kubernetes::required_node_terms;
use crate::names::is_dns_subdomain;
use crate::placement::affinity::bound_to;
use crate::placement::intent::{
    Change, Enforcement, Operator, PodTerm, Selector, label_requirement,
};
use crate::placement::merge::takes_pod_term;
use crate::placement::reason::shorten;
use crate::systems::coschedule::NAME;
use crate::systems::coschedule::policy::ControllerAbsent;
use crate::systems::vocabulary::find_system;
use crate::systems::{self, SYSTEMS, System, View};
use crate::view::{Key, Name};
use crate::wire::{Text, TextMap};

/// The start of the entry in the record of a pod that shares the node of its claims.
const RECORDED: &str = "one-node-claims";

/// Returns true if pods of this namespace that mount the same claim share a node.
pub(crate) fn is_on(namespace: &str, view: &View) -> bool {
    let labels = view.namespace_labels(namespace);
    labels.and_then(|labels| labels.get(ONE_NODE_CLAIMS)).is_some_and(|value| **value == *"true")
}

/// Returns true if the pods that mount a claim must share a node, in a namespace that asks for it. A claim
/// that is not known is treated as one that a single node mounts.
pub(crate) fn applies_to(claim: &Name, view: &View) -> bool {
    let Some(known) = view.claim(claim) else { return true };
    let class = known.class.as_deref().and_then(|class| view.storage_class(class));
    let of_class = class.and_then(|class| class.one_node.as_deref());
    let value = known.one_node.as_deref().or(of_class);
    known.access.needs_one_node() && value != Some("false")
}

/// The pod-affinity term to the pods that mount a claim.
fn toward(claim: &str) -> PodTerm {
    let requirement = label_requirement(keys::of_claim(claim), Operator::In, keys::MOUNTED);
    PodTerm { enforcement: Enforcement::Required, selector: Selector::by(requirement) }
}

impl PodRequest<'_> {
    /// Places a pod beside those that mount its claims. The pod of a group gets only the labels: it runs where
    /// its group is.
    pub(super) fn share_claims(&mut self, is_in_group: bool) {
        let (pod, view) = (self.pod, self.view);
        if !is_on(pod.namespace, view) {
            return;
        }
        // A placeholder may make other claims in place of those of the pod.
        let replaced = self.outcome.intents.iter().filter_map(|intent| match &intent.change {
            Change::ClaimName { from, to } => Some((from.clone(), to.clone())),
            _ => None,
        });
        let replaced: BTreeMap<String, String> = replaced.collect();
        let mounted = pod.claims.iter().map(|of| of.claim.as_str());
        let mut claims: Vec<&str> =
            mounted.map(|claim| replaced.get(claim).map_or(claim, String::as_str)).collect();
        claims.sort_unstable();
        claims.dedup();
        claims.retain(|claim| {
            let claim = Name::new(pod.namespace, claim);
            let applies = applies_to(&claim, view);
            if view.claim(&claim).is_none() {
                self.outcome.awaited.push(Key::new(CLAIM, claim));
            }
            applies
        });
        // The API server refuses a pod with any other name of a claim, and reports that name.
        claims.retain(|claim| is_dns_subdomain(claim));
        // The claims of its ephemeral volumes, which no other pod mounts yet.
        let name = pod.metadata.name.as_ref().map(Text::as_str).filter(|name| !name.is_empty());
        let made = |name: &str| -> Vec<String> {
            pod.ephemeral.iter().map(|volume| format!("{name}-{}", volume.name.as_str())).collect()
        };
        let made = name.map(made).unwrap_or_default();
        let why = |claims: &str| format!("{RECORDED}: {}", shorten(claims, 160));
        let Some(first) = claims.first() else {
            return self.label(made.iter().map(String::as_str), &why(&made.join(", ")));
        };
        let why = why(&claims.join(", "));
        if pod.is_controlled_by("DaemonSet") {
            let text = "no effect: the pod belongs to a DaemonSet, which gives each node one pod; if several nodes can mount the volume, annotate the claim stowplan.dev/one-node: \"false\"";
            return self.warn(ONE_NODE_CLAIMS, text);
        }
        self.label(claims.iter().copied().chain(made.iter().map(String::as_str)), &why);
        if is_in_group || pod.node_name.is_some() {
            return;
        }
        let term = toward(first);
        let takes_term = takes_pod_term(pod, &term) && !self.is_of_other_systems();
        if takes_term {
            self.add_change(ONE_NODE_CLAIMS, &why, Change::PodAffinity(term));
        }
        let mut held = why.clone();
        // It could be bound to another node than the pod that is on its way.
        let has_pod_on_its_way = |claim: &&str| {
            let mut pods = view.mounting(&Name::new(pod.namespace, claim));
            pods.any(|(_, mounted)| mounted.is_on_its_way())
        };
        // A pod that others hold back is placed when they release it.
        let is_held =
            pod.gates.iter().flatten().any(|gate| systems::gate(gate.name.as_str()).is_none());
        if claims.len() > 1 || !takes_term || is_held || claims.iter().any(has_pod_on_its_way) {
            let waits = view.controller_present()
                || self.policy.coschedule.controller_absent == ControllerAbsent::Wait;
            if waits {
                if pod.label(ONE_NODE_CLAIMS).is_none() {
                    let terms = required_node_terms(Some(&pod.affinity)).unwrap_or_default();
                    let value = match bound_to(terms) {
                        None => keys::WAITED,
                        Some(_) => keys::WAITED_PINNED,
                    };
                    let (key, value) = (ONE_NODE_CLAIMS.to_owned(), value.to_owned());
                    self.add_change(ONE_NODE_CLAIMS, &why, Change::Label { key, value });
                }
                self.add_change(ONE_NODE_CLAIMS, &why, Change::Gate(keys::CLAIMS_GATE));
                held.push_str(", gated");
            } else {
                let text = match takes_term {
                    true => format!("no controller leads: the pod follows only the pods of claim {first}"),
                    false => "no controller leads, and the pod has pod affinity of its own: it does not follow the pods of its claims".to_owned(),
                };
                self.warn(ONE_NODE_CLAIMS, &text);
            }
        }
        self.outcome.holds.push(held);
    }

    /// Returns true if another system decides about the pod, too: it may give it pod affinity.
    fn is_of_other_systems(&self) -> bool {
        let (pod, view) = (self.pod, self.view);
        let mut keys = pod.metadata.annotations.iter().flat_map(TextMap::iter);
        let is_concerned = |system: &System| {
            system.concerns.is_some_and(|concerns| concerns(pod.namespace, pod.metadata, view))
        };
        keys.any(|(key, _)| find_system(key).is_some_and(|system| system.name != NAME))
            || SYSTEMS.iter().filter(|system| system.name != NAME).any(is_concerned)
    }

    fn label<'c>(&mut self, claims: impl Iterator<Item = &'c str>, why: &str) {
        for claim in claims {
            let (key, value) = (keys::of_claim(claim), keys::MOUNTED.to_owned());
            self.add_change(ONE_NODE_CLAIMS, why, Change::Label { key, value });
        }
    }

    /// Warns about the annotation for claims on a pod.
    pub(super) fn warn_about_one_node(&mut self) {
        if self.pod.annotation(ONE_NODE).is_some() {
            self.warn(ONE_NODE, "no effect on a pod; annotate the claim or its storage class");
        }
    }
}
