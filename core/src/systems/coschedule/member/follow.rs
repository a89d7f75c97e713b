//! Decides how a pod follows the placeholder of its group.
//!
//! A member gets one required pod-affinity term to its placeholder. If that is not possible, it gets the
//! placeholder's node by name. While there is no node, it gets a gate.

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm};

use super::{Joined, PodRequest};
use crate::kubernetes::{required_node_terms, required_pod_terms};
use crate::placement::affinity::pinned_node;
use crate::placement::intent::{Change, Enforcement, PodTerm, Selector, on_node};
use crate::placement::merge::takes_pod_term;
use crate::placement::reason::{Finding, Reason, quoted};
use crate::placement::record;
use crate::systems::coschedule::claims::sibling;
use crate::systems::coschedule::owner::owner_of;
use crate::systems::coschedule::policy::{Binding, ControllerAbsent};
use crate::systems::coschedule::{NAME, keys};
use crate::systems::fit::{self, Candidate, PodNeeds, Question};
use crate::systems::pause::KEEPS_NODE;
use crate::view::{ControllerState, Name};

/// The labels of virtual nodes that each have one pod: that of Virtual Kubelet, with which providers run pods outside
/// of nodes, and that of EKS on Fargate.
const VIRTUAL_NODES: [(&str, &str); 2] =
    [("type", "virtual-kubelet"), ("eks.amazonaws.com/compute-type", "fargate")];

/// The label of the pods that EKS runs on Fargate, which it adds at admission.
const ON_FARGATE: &str = "eks.amazonaws.com/fargate-profile";

/// The end of the record's entry for a pod that waits for the node of its placeholder.
const WAITS: &str = ", on the node that it gets";

/// A way in which a pod follows its placeholder.
enum Way<'n> {
    /// By pod affinity to the placeholder, behind a gate until that has a node and no longer holds the pod's room.
    Term { term: PodTerm, is_gated: bool },
    /// By a requirement of the placeholder's node, by its name.
    Node(&'n str),
    /// By a gate. The controller adds the node's name later.
    Gate,
    /// By pod affinity to the other members, because the placeholder cannot be created: the pod runs beside those that
    /// run, and anywhere if none does, as it has the label that its own term selects. That needs no object, and so
    /// nothing of a quota. It also gets the labels of the placeholder's pod, so that members which were admitted
    /// earlier, and have an affinity to that, run beside it.
    BesideOthers(PodTerm),
}

impl<'p> PodRequest<'p> {
    /// Places a pod of a group beside its placeholder.
    pub(super) fn enter(&mut self, joined: &Joined<'_>) {
        let &Joined { key, placeholder, needs_claims, .. } = joined;
        if self.pod.is_controlled_by("DaemonSet") {
            self.outcome.findings.push(Finding::new(
                Reason::DaemonSetPod,
                key,
                "the pod belongs to a DaemonSet, which gives each node one pod",
                "use a Deployment, a StatefulSet or a Job",
            ));
            return;
        }
        // The claims of a placeholder exist only with it.
        let way = match self.virtual_node().filter(|_| !needs_claims) {
            Some(sign) => Err(format!(
                "label {sign} asks for a virtual node, and each pod gets one of its own"
            )),
            None if self.is_held(placeholder) => {
                self.outcome.keeps_record = self.is_settled();
                return self.holds(joined, "");
            }
            None => self.find_way(joined).map_err(ToOwned::to_owned),
        };
        match way {
            Ok(way) => self.follow(joined, way),
            Err(why) => self.warn(key, &format!("not placed with its group: {why}")),
        }
    }

    fn follow(&mut self, joined: &Joined<'_>, way: Way<'_>) {
        let &Joined { key, ref why, placeholder, .. } = joined;
        let value = placeholder.to_owned();
        self.add_change(key, why, Change::Label { key: keys::MEMBER.to_owned(), value });
        self.keep_node(joined);
        match way {
            Way::BesideOthers(_) => self.warn(
                key,
                "the group's placeholder cannot be created: no node is kept for it, and the pod runs beside others of the group",
            ),
            _ => self.warn_about_ephemeral(key),
        }
        if self.pod.node_name.is_some() {
            self.warn(key, "spec.nodeName bypasses the scheduler, so this is not enforced");
            return self.holds(joined, "");
        }
        match way {
            Way::Term { term, is_gated } => {
                self.add_change(key, why, Change::PodAffinity(term));
                if is_gated {
                    self.add_change(key, why, Change::Gate(keys::GATE));
                }
                self.holds(joined, "");
            }
            Way::Node(node) => {
                self.add_change(key, why, Change::NodeAffinity(vec![on_node(node)]));
                self.holds(joined, &format!(", node {node}"));
            }
            Way::Gate => {
                self.add_change(key, why, Change::Gate(keys::GATE));
                self.holds(joined, WAITS);
            }
            Way::BesideOthers(term) => {
                let labels = labels_of(placeholder);
                // Its own labels of these keys are its user's.
                if labels.iter().all(|(key, _)| self.pod.label(key).is_none()) {
                    for (name, value) in labels {
                        let (name, value) = (name.to_owned(), value.to_owned());
                        self.add_change(key, why, Change::Label { key: name, value });
                    }
                }
                self.add_change(key, why, Change::PodAffinity(term));
                self.holds(joined, ", which cannot be created");
            }
        }
    }

    /// Returns true if an earlier admission has put the pod behind the gate, according to its record. Where its
    /// group has no placeholder any more, the controller removes the gate without a node.
    fn has_waited(&self) -> bool {
        let record = self.pod.annotation(record::KEY).unwrap_or_default();
        let entries = record::entries(record, NAME);
        // Earlier releases recorded ", gated".
        entries.iter().any(|entry| entry.ends_with(WAITS) || entry.ends_with(", gated"))
    }

    /// Returns true if the pod has the label, and the term, the gate, or a required node name.
    fn is_held(&self, placeholder: &str) -> bool {
        let pinned = required_node_terms(Some(&self.pod.affinity)).is_some_and(|terms| {
            !terms.is_empty() && terms.iter().all(|term| pinned_node(term).is_some())
        });
        let marks = [toward(placeholder), toward_members(placeholder)];
        let mut terms = required_pod_terms(Some(&self.pod.affinity)).iter();
        self.pod.label(keys::MEMBER) == Some(placeholder)
            && (pinned
                || self.pod.has_gate(keys::GATE)
                || self.has_waited()
                || terms.any(|term| marks.iter().any(|mark| mark.is_own_mark(term))))
    }

    /// Finds how the pod follows its placeholder.
    ///
    /// # Errors
    /// The reason why it cannot.
    fn find_way(&self, joined: &Joined<'_>) -> Result<Way<'p>, &'static str> {
        let view = self.view;
        let name = Name::new(self.pod.namespace, joined.placeholder);
        let current = view.placeholder_pod(&name).and_then(|pod| pod.place());
        let way = self.way_to(&name, current);
        // Without a controller, a pod can only join a placeholder on an eligible node. A gate always needs the
        // controller. A pod whose claims are replaced cannot run without its placeholder, so it gets the term anyway.
        let is_alone = !view.controller_present()
            && self.policy.coschedule.controller_absent == ControllerAbsent::Admit;
        let waits = match &way {
            Way::Term { .. } => {
                !joined.needs_claims && !current.is_some_and(|node| self.is_eligible(node))
            }
            way => matches!(way, Way::Gate),
        };
        if is_alone && waits {
            return Err(match view.controller() {
                ControllerState::NotYet => "no controller of stowplan has led yet",
                _ => "stowplan's controller has stopped renewing its Lease",
            });
        }
        let has_failed = view.placeholder(&name).is_some_and(|known| known.failed);
        if !has_failed || joined.needs_claims {
            return Ok(way);
        }
        let term = toward_members(joined.placeholder);
        if self.pod.node_name.is_some() || !takes_pod_term(self.pod, &term) {
            return Err("the group's placeholder cannot be created");
        }
        Ok(Way::BesideOthers(term))
    }

    /// Finds how the pod follows its placeholder, which is on the node `current`, if that can be created.
    fn way_to<'n>(&self, placeholder: &Name, current: Option<&'n str>) -> Way<'n> {
        let term = toward(&placeholder.name);
        let has_member_there = || {
            current.is_some_and(|node| {
                let mut members = self.view.members_of(placeholder);
                members.any(|(_, member)| member.place() == Some(node))
            })
        };
        let by_node = match self.policy.coschedule.binding {
            _ if !takes_pod_term(self.pod, &term) => true,
            Binding::Affinity => false,
            Binding::Node => true,
            Binding::Auto => has_member_there(),
        };
        let pod = self.view.placeholder_pod(placeholder);
        let kept = self.policy.coschedule.placeholder.requests.amounts();
        let holds_room = pod.is_some_and(|pod| !pod.room_in(&pod.requests, &kept).is_zero());
        // The scheduler would refuse it while the placeholder holds its room, and then try it again only after a
        // pause. Only a controller removes the gate.
        let is_kept_out = self.view.controller_present() && holds_room;
        if !by_node {
            // The scheduler binds a member beside a placeholder that it has only assumed on a node: it
            // would be alone there if that fails.
            let is_gated = current.is_none() && self.view.controller_present() || is_kept_out;
            return Way::Term { term, is_gated };
        }
        let template = self.view.placeholder(placeholder).and_then(|of| of.plan.as_deref());
        let plan = pod.and_then(|of| of.plan.as_deref());
        // Once the placeholder leaves its node, a pod that requires it could run there, apart from its group.
        let stays = |node: &str| !template.is_some_and(|of| of.is_to_leave(plan, node));
        let is_usable = |node: &&str| !is_kept_out && self.is_eligible(node) && stays(node);
        current.filter(is_usable).map_or(Way::Gate, Way::Node)
    }

    /// Returns the label by which the pod asks for a virtual node: in its node selector, in its required node terms,
    /// or on itself.
    fn virtual_node(&self) -> Option<&'static str> {
        let needs = PodNeeds::of_admitted(self.pod);
        let in_terms = |(key, value): (&str, &str)| {
            let is_in = |of: &NodeSelectorRequirement| {
                let values = of.values.as_deref().unwrap_or_default();
                of.key == key && of.operator == "In" && values.iter().all(|of| of == value)
            };
            let has = |term: &NodeSelectorTerm| term.match_expressions.iter().flatten().any(is_in);
            needs
                .node_terms
                .as_ref()
                .is_some_and(|terms| !terms.is_empty() && terms.iter().all(has))
        };
        let by_node =
            VIRTUAL_NODES.iter().find(|of| needs.node_selector.contains(of) || in_terms(**of));
        let is_on_fargate = || self.pod.label(ON_FARGATE).is_some();
        by_node.map(|(key, _)| *key).or_else(|| is_on_fargate().then_some(ON_FARGATE))
    }

    /// Returns true if a node is eligible for the pod, as far as the webhook's View shows.
    fn is_eligible(&self, name: &str) -> bool {
        let Some(node) = self.view.node(name) else { return false };
        let needs = PodNeeds::of_admitted(self.pod);
        let candidate = Candidate { name, node, view: self.view, usage: None };
        fit::first_obstacle(&Question::new(candidate, &needs), fit::WEBHOOK).is_none()
    }

    /// Warns about claims that are made with the pod and bound at once, perhaps where the group's node cannot
    /// mount them.
    fn warn_about_ephemeral(&mut self, key: &str) {
        let view = self.view;
        for volume in &self.pod.ephemeral {
            let Some(class) = volume.class.as_deref() else { continue };
            if view.storage_class(class).is_none_or(|class| class.waits) {
                continue;
            }
            let other = match sibling(class, view) {
                Some(sibling) => format!("name StorageClass {sibling}"),
                None => "name a class that waits for the first pod".to_owned(),
            };
            let text = format!(
                "volume {} gets a claim of StorageClass {class}, which binds at once: the volume may lie apart from the group's node; {other} in its volumeClaimTemplate",
                quoted(volume.name.as_str())
            );
            self.warn(key, &text);
        }
    }

    /// Keeps autoscalers from evicting the pod of a TaskRun: the TaskRun would fail, and nothing creates
    /// the pod again. An annotation that the pod has already keeps its value.
    fn keep_node(&mut self, joined: &Joined<'_>) {
        let of_task_run = owner_of(self.pod.metadata, "TaskRun").is_some();
        if !of_task_run || self.policy.coschedule.keep_node_for.length().is_zero() {
            return;
        }
        for (key, value) in KEEPS_NODE {
            if self.pod.annotation(key).is_none() {
                let value = Some(value.to_owned());
                self.add_change(joined.key, &joined.why, Change::Annotation { key, value });
            }
        }
    }
}

/// Returns the labels by which the pod of a placeholder is found.
const fn labels_of(placeholder: &str) -> [(&'static str, &str); 2] {
    [(keys::COMPONENT, keys::COMPONENT_VALUE), (keys::INSTANCE, placeholder)]
}

/// Returns the pod-affinity term to a placeholder.
fn toward(placeholder: &str) -> PodTerm {
    PodTerm {
        enforcement: Enforcement::Required,
        selector: Selector::Labels(
            labels_of(placeholder).map(|(key, value)| (key, value.to_owned())).into(),
        ),
    }
}

/// Returns the pod-affinity term to the members of a placeholder.
fn toward_members(placeholder: &str) -> PodTerm {
    let labels = [(keys::MEMBER, placeholder.to_owned())].into();
    PodTerm { enforcement: Enforcement::Required, selector: Selector::Labels(labels) }
}
