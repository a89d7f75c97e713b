//! Decides at admission which group a pod belongs to, and how it follows the group's placeholder.
//!
//! The run of a Tekton pod is found by its chain of owners: pod, TaskRun, PipelineRun, up to the root
//! run. Labels are not used, because users can set them. A member gets one required pod-affinity term to
//! its placeholder. If that is not possible, it gets the placeholder's node by name. While there is no
//! node, it gets a gate.

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm};

use super::claims::sibling;
use super::groups::{self, Groups, Membership};
use super::mode;
use super::native::parse_group;
use super::owner::{Belonging, belonging, owner_of};
use super::{NAME, family, keys};
use crate::placement::affinity::pinned_node;
use crate::placement::intent::{Change, Enforcement, Intent, PodTerm, Selector, on_node};
use crate::placement::merge::{required_node_terms, required_pod_terms, takes_pod_term};
use crate::placement::pod::Pod;
use crate::placement::reason::{Finding, Reason, Warning, quoted, shorten};
use crate::placement::record;
use crate::systems::Outcome;
use crate::systems::coschedule::kinds::CoscheduleView as _;
use crate::systems::coschedule::policy::{Binding, ControllerAbsent, Volumes};
use crate::systems::coschedule::resources::CLAIM;
use crate::systems::fit;
use crate::systems::fit::{Candidate, PodNeeds, Question};
use crate::systems::pause::KEEPS_NODE;
use crate::systems::policy::Policy;
use crate::view::{ControllerState, Key, Name, Owner, View};
use crate::wire::{Text, TextMap};

/// The labels of virtual nodes that each have one pod: that of Virtual Kubelet, with which providers run pods outside
/// of nodes, and that of EKS on Fargate.
const VIRTUAL_NODES: [(&str, &str); 2] =
    [("type", "virtual-kubelet"), ("eks.amazonaws.com/compute-type", "fargate")];

/// The label of the pods that EKS runs on Fargate, which it adds at admission.
const ON_FARGATE: &str = "eks.amazonaws.com/fargate-profile";

/// How a pod follows its placeholder that waits for its node, in the record.
const WAITS: &str = ", on the node that it gets";

/// Decides the changes to a pod.
pub(super) fn request(pod: &Pod<'_>, view: &View, policy: &Policy) -> Outcome {
    let mut request = PodRequest { pod, view, policy, outcome: Outcome::default() };
    request.join();
    request.outcome
}

/// The decision about one pod.
struct PodRequest<'p> {
    pod: &'p Pod<'p>,
    view: &'p View,
    policy: &'p Policy,
    outcome: Outcome,
}

/// The group that a pod joins.
struct Joined<'g> {
    /// The annotation that causes the changes.
    key: &'static str,
    /// The cause as it is shown to users.
    why: String,
    placeholder: &'g str,
    /// True if claims of the pod are replaced by those that the placeholder makes.
    needs_claims: bool,
}

/// How a pod follows its placeholder.
enum Way<'n> {
    /// By pod affinity to the placeholder, behind a gate until that has a node and no longer holds the pod's room.
    Term { term: PodTerm, is_gated: bool },
    /// By a requirement of the placeholder's node, by its name.
    Node(&'n str),
    /// By a gate. The controller adds the node's name later.
    Gate,
}

impl PodRequest<'_> {
    fn join(&mut self) {
        let pod = self.pod;
        let task_run = owner_of(pod.metadata, "TaskRun");
        if task_run.is_some() && pod.annotation(keys::ASSISTANT).is_some() {
            if pod.annotation(keys::GROUP).is_some() {
                self.warn(keys::GROUP, "no effect: Tekton's own affinity assistant places the pod");
            }
            return;
        }
        if let Some(group) = pod.annotation(keys::GROUP) {
            match parse_group(pod.namespace, group) {
                Ok(placeholder) => {
                    let renamed = task_run.map(|task_run| self.run_claims(&task_run));
                    let (key, why) = (keys::GROUP, format!("coschedule-group={group}"));
                    let needs_claims = self.rename(key, &why, renamed.unwrap_or_default());
                    self.enter(&Joined { key, why, placeholder: &placeholder, needs_claims });
                }
                Err(finding) => self.outcome.findings.push(finding),
            }
            return;
        }
        let Some(task_run) = task_run.filter(|_| self.view.has_tekton()) else {
            if pod.annotation(keys::MODE).is_some() {
                self.warn(keys::MODE, "no effect: the pod belongs to no Tekton TaskRun");
            }
            return;
        };
        // Tekton copies the annotation from the run; an invalid one is reported here.
        if let Some(Err(bad)) =
            pod.annotation(keys::MODE).map(|mode| mode::parse(mode, String::new))
        {
            self.outcome.findings.push(bad.finding());
            return;
        }
        self.join_run(&task_run);
    }

    fn join_run(&mut self, task_run: &Owner) {
        let belonging = belonging(self.pod.namespace, task_run, self.view, self.policy);
        let (name, run, task, groups) = match belonging {
            Belonging::Run { name, run, task, groups } => (name, run, task, groups),
            Belonging::Alone => return,
            Belonging::BadMode(bad) => return self.outcome.findings.push(bad.finding()),
            Belonging::Unknown(_) if self.is_settled() => {
                self.outcome.keeps_record = true;
                return;
            }
            Belonging::Unknown(key) => {
                let text = format!("{key} is not known here; the pod is not placed with its run");
                self.warn(keys::MODE, &text);
                self.outcome.awaited.push(key);
                return;
            }
        };
        if family::signs(name, run, self.view).is_assisted {
            if self.is_settled() {
                self.outcome.keeps_record = true;
                return;
            }
            return self
                .warn(keys::MODE, "left alone: Tekton's own affinity assistant places its run");
        }
        if let Some(bad) = &groups.unused_mode {
            self.warn(keys::MODE, &bad.note(self.policy));
        }
        self.outcome.awaited.extend(groups.awaited.iter().cloned());
        let mounted: Vec<&str> =
            self.pod.claims.iter().map(|volume| volume.claim.as_str()).collect();
        let selector: Vec<(&str, &str)> =
            self.pod.node_selector.iter().flat_map(TextMap::iter).collect();
        let needs_no_node = groups::needs_no_node(self.pod.namespace, self.view);
        let membership = groups.membership(task, &mounted, &selector, needs_no_node);
        let why = match &membership {
            Membership::Of(group) if !group.key.is_empty() => {
                format!("{} {} of PipelineRun {}", mode::word(groups.mode), group.key, name.name)
            }
            _ => format!("{} of PipelineRun {}", mode::word(groups.mode), name.name),
        };
        // Parked claims are never bound, so they are replaced whichever group the pod belongs to.
        let renamed = self.renamed(&groups);
        let needs_claims = self.rename(keys::MODE, &why, renamed);
        match membership {
            Membership::Free => {}
            Membership::Several(first, second) => {
                let text = format!(
                    "not placed: the groups of its claims share no node ({} and {})",
                    first.key, second.key
                );
                self.warn(keys::MODE, &text);
            }
            Membership::Of(group) => {
                let (key, placeholder) = (keys::MODE, &*group.name);
                self.enter(&Joined { key, why, placeholder, needs_claims });
            }
        }
    }

    /// The replaced claims of a pod that is in a native group instead of its run's group: it still uses
    /// the claims of its run.
    fn run_claims(&mut self, task_run: &Owner) -> Vec<(String, String)> {
        match belonging(self.pod.namespace, task_run, self.view, self.policy) {
            Belonging::Run { groups, .. } => self.renamed(&groups),
            Belonging::Unknown(key) if self.may_be_parked() => {
                self.outcome.awaited.push(key);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// Whether a claim is parked, or will be when it is created.
    fn is_parked(&self, claim: &Name) -> bool {
        match self.view.claim(claim) {
            Some(known) => known.is_parked(),
            None => self.policy.coschedule.volumes == Volumes::Provision,
        }
    }

    /// Whether a claim of the pod may be parked.
    fn may_be_parked(&self) -> bool {
        let mut mounted = self.pod.claims.iter().map(|volume| volume.claim.as_str());
        mounted.any(|claim| self.is_parked(&Name::new(self.pod.namespace, claim)))
    }

    /// The parked claims of the pod, each with the placeholder's claim that replaces it.
    fn renamed(&mut self, groups: &Groups) -> Vec<(String, String)> {
        let mut renamed = Vec::new();
        for volume in &self.pod.claims {
            let from = volume.claim.as_str();
            let Some(owner) = groups.owner_of(from) else { continue };
            let key = Name::new(self.pod.namespace, from);
            if !self.is_parked(&key) {
                continue;
            }
            renamed.push((from.to_owned(), keys::provisioned(from, &owner.name)));
            if self.view.claim(&key).is_none() {
                self.outcome.awaited.push(Key::new(CLAIM, key));
            }
        }
        renamed
    }

    /// Whether an earlier admission placed the pod, by its record and its label. Forging both has no more effect than
    /// setting the label.
    fn is_settled(&self) -> bool {
        let (label, record) = (self.pod.label(keys::MEMBER), self.pod.annotation(record::KEY));
        let (Some(label), Some(record)) = (label, record) else { return false };
        let entries = record::entries(record, NAME);
        entries.iter().any(|entry| placeholder_in(entry) == Some(label))
    }

    /// Returns true if an earlier admission has put the pod behind the gate, according to its record. Where its
    /// group has no placeholder any more, the controller removes the gate without a node.
    fn has_waited(&self) -> bool {
        let record = self.pod.annotation(record::KEY).unwrap_or_default();
        let entries = record::entries(record, NAME);
        entries.iter().any(|entry| entry.ends_with(WAITS) || entry.ends_with(", gated"))
    }

    /// Whether the pod already has the term, the gate, or a required node name.
    fn is_held(&self, placeholder: &str, term: &PodTerm) -> bool {
        let pinned = required_node_terms(self.pod).is_some_and(|terms| {
            !terms.is_empty() && terms.iter().all(|term| pinned_node(term).is_some())
        });
        pinned
            || self.pod.has_gate(keys::GATE)
            || self.has_waited()
            || required_pod_terms(self.pod).iter().any(|present| {
                term.is_own_mark(present) || toward_members(placeholder).is_own_mark(present)
            })
    }

    fn enter(&mut self, joined: &Joined<'_>) {
        let &Joined { key, placeholder, .. } = joined;
        let (pod, view) = (self.pod, self.view);
        if pod.is_controlled_by("DaemonSet") {
            self.outcome.findings.push(Finding::new(
                Reason::DaemonSetPod,
                key,
                "the pod belongs to a DaemonSet, which gives each node one pod",
                "use a Deployment, a StatefulSet or a Job",
            ));
            return;
        }
        // The claims of a placeholder exist only with it.
        if let Some(sign) = self.virtual_node().filter(|_| !joined.needs_claims) {
            let text = format!(
                "not placed with its group: label {sign} asks for a virtual node, and each pod gets one of its own"
            );
            return self.warn(key, &text);
        }
        let term = toward(placeholder);
        let is_marked = pod.label(keys::MEMBER) == Some(placeholder);
        if is_marked && self.is_held(placeholder, &term) {
            self.outcome.keeps_record = self.is_settled();
            self.holds(joined, "");
            return;
        }
        let name = Name::new(pod.namespace, placeholder);
        let current = view.placeholder_pod(&name).and_then(|pod| pod.place());
        let way = self.way(&name, current, term);
        // Without a controller, a pod can only join a placeholder on an eligible node. A gate always
        // needs the controller, and so does a pod whose claims are replaced.
        let is_alone = !view.controller_present()
            && self.policy.coschedule.controller_absent == ControllerAbsent::Admit;
        let waits = match &way {
            Way::Node(_) => false,
            Way::Term { .. } => {
                !joined.needs_claims && !current.is_some_and(|node| self.is_eligible(node))
            }
            Way::Gate => true,
        };
        if is_alone && waits {
            let why = match view.controller() {
                ControllerState::NotYet => "no controller of stowplan has led yet",
                _ => "stowplan's controller has stopped renewing its Lease",
            };
            return self.warn(key, &format!("not placed with its group: {why}"));
        }
        if view.placeholder(&name).is_some_and(|known| known.failed) && !joined.needs_claims {
            return self.join_others(joined);
        }
        self.add_change(
            joined,
            Change::Label { key: keys::MEMBER.to_owned(), value: placeholder.to_owned() },
        );
        self.keep_node(joined);
        self.warn_about_ephemeral(key);
        if pod.node_name.is_some() {
            self.warn(key, "spec.nodeName bypasses the scheduler, so this is not enforced");
            return self.holds(joined, "");
        }
        match way {
            Way::Term { term, is_gated } => {
                self.add_change(joined, Change::PodAffinity(term));
                if is_gated {
                    self.add_change(joined, Change::Gate(keys::GATE));
                }
                self.holds(joined, "");
            }
            Way::Node(node) => {
                self.add_change(joined, Change::NodeAffinity(vec![on_node(node)]));
                self.holds(joined, &format!(", node {node}"));
            }
            Way::Gate => {
                self.add_change(joined, Change::Gate(keys::GATE));
                self.holds(joined, WAITS);
            }
        }
    }

    /// Without a placeholder the pod runs beside pods of its group that run, and anywhere if none does: it has the
    /// label that its own term selects. That needs no object, and so nothing of a quota.
    fn join_others(&mut self, joined: &Joined<'_>) {
        let &Joined { key, placeholder, .. } = joined;
        let term = toward_members(placeholder);
        if self.pod.node_name.is_some() || !takes_pod_term(self.pod, &term) {
            return self
                .warn(key, "not placed with its group: the group's placeholder cannot be created");
        }
        self.warn(
            key,
            "the group's placeholder cannot be created: no node is kept for it, and the pod runs beside others of the group",
        );
        let value = placeholder.to_owned();
        self.add_change(joined, Change::Label { key: keys::MEMBER.to_owned(), value });
        self.keep_node(joined);
        self.add_change(joined, Change::PodAffinity(term));
        self.holds(joined, ", which cannot be created");
    }

    /// Warns about claims that are made with the pod and bound at once, perhaps where the group's node cannot
    /// mount them.
    fn warn_about_ephemeral(&mut self, key: &str) {
        let view = self.view;
        for volume in &self.pod.ephemeral {
            let Some(class) = volume.class.as_ref().map(Text::as_str) else { continue };
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
                self.add_change(joined, Change::Annotation { key, value });
            }
        }
    }

    /// How the pod follows its placeholder, which is on the node `current`.
    fn way<'n>(&self, placeholder: &Name, current: Option<&'n str>, term: PodTerm) -> Way<'n> {
        let stays = || {
            current.is_some_and(|node| {
                let mut members = self.view.members_of(placeholder);
                members.any(|(_, member)| member.place() == Some(node))
            })
        };
        let by_node = match self.policy.coschedule.binding {
            _ if !takes_pod_term(self.pod, &term) => true,
            Binding::Affinity => false,
            Binding::Node => true,
            Binding::Auto => stays(),
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

    /// The label by which a pod asks for a virtual node: in its node selector, in its required node terms, or on itself.
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

    /// Whether a node is eligible for the pod, as far as the webhook's View shows.
    fn is_eligible(&self, name: &str) -> bool {
        let Some(node) = self.view.node(name) else { return false };
        let needs = PodNeeds::of_admitted(self.pod);
        let candidate = Candidate { name, node, view: self.view, usage: None };
        fit::first_obstacle(&Question::new(candidate, &needs), fit::WEBHOOK).is_none()
    }

    /// Replaces claims of the pod, each by another one. Returns true if there are any.
    fn rename(&mut self, key: &'static str, why: &str, renamed: Vec<(String, String)>) -> bool {
        let has_any = !renamed.is_empty();
        for (from, to) in renamed {
            let (why, change) = (why.to_owned(), Change::ClaimName { from, to });
            self.outcome.intents.push(Intent { system: NAME, key, why, change });
        }
        has_any
    }

    fn add_change(&mut self, joined: &Joined<'_>, change: Change) {
        let why = joined.why.clone();
        self.outcome.intents.push(Intent { system: NAME, key: joined.key, why, change });
    }

    fn holds(&mut self, joined: &Joined<'_>, how: &str) {
        let why = shorten(&joined.why, 160);
        self.outcome.holds.push(format!("{why}: {}{how}", joined.placeholder));
    }

    fn warn(&mut self, key: &str, text: &str) {
        self.outcome.warnings.push(Warning::new(key, text));
    }
}

/// The pod-affinity term to a placeholder.
#[must_use]
pub(crate) fn toward(placeholder: &str) -> PodTerm {
    let labels = [(keys::COMPONENT, keys::COMPONENT_VALUE), (keys::INSTANCE, placeholder)];
    PodTerm {
        enforcement: Enforcement::Required,
        selector: Selector::Labels(labels.map(|(key, value)| (key, value.to_owned())).into()),
    }
}

/// The pod-affinity term to the other members of a placeholder.
fn toward_members(placeholder: &str) -> PodTerm {
    let labels = [(keys::MEMBER, placeholder.to_owned())].into();
    PodTerm { enforcement: Enforcement::Required, selector: Selector::Labels(labels) }
}

/// Parses the placeholder in an entry of the record, `WHY: PLACEHOLDER[, HOW]`.
fn placeholder_in(entry: &str) -> Option<&str> {
    let (_, what) = entry.rsplit_once(": ")?;
    what.split(", ").next()
}

#[cfg(test)]
mod tests;
