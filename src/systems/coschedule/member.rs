//! The pods of groups: whose pod it is, and what it gets.
//!
//! A pod of Tekton's is known by its controller, and its run by owners' UIDs from there: pod, TaskRun,
//! PipelineRun, and so on up to the root. Labels are hints that its author can set. What a pod of a
//! group gets is one required pod-affinity term toward the group's placeholder; where that cannot be,
//! the placeholder's node by name, or a gate until there is one.

use super::groups::{self, Group, Groups, Membership};
use super::mode::{self, BadMode};
use super::native::NativeGroup;
use super::{NAME, claims, family, keys};
use crate::placement::affinity::{matches_nothing, pinned_node};
use crate::placement::intent::{Enforcement, Intent, PodTerm, Selector, Wish, on_node};
use crate::placement::merge::{required_node_terms, required_pod_terms, takes_pod_term};
use crate::placement::pod::{Metadata, OwnerReference, Pod, Text, TextMap};
use crate::placement::reason::{Finding, Reason, Warning, shorten};
use crate::placement::record;
use crate::placement::toleration::tolerates_cordon;
use crate::policy::{Binding, ControllerAbsent, Policy, Volumes};
use crate::systems::Outcome;
use crate::view::{Key, Name, Owner, PipelineRun, TaskRun, View, selector};

/// Tekton's API group.
pub(super) const TEKTON: &str = "tekton.dev";

/// What a TaskRun's pods belong to.
#[derive(Debug)]
pub enum Belonging<'v> {
    /// To nothing that is known: this is missing.
    Unknown(Key),
    /// To a TaskRun that somebody made by itself: it has no group.
    Alone(&'v TaskRun),
    /// To a run.
    Run(OfRun<'v>),
    /// To a run whose mode is none.
    BadMode(BadMode),
}

/// A TaskRun's place in its run.
#[derive(Debug)]
pub struct OfRun<'v> {
    /// The root run's name.
    pub name: &'v Name,
    /// The root run.
    pub run: &'v PipelineRun,
    /// The pipeline's task, where that is known. In a pipeline inside the pipeline it is that one's, and
    /// the groups know nothing of it.
    pub task: Option<&'v str>,
    /// The run's groups.
    pub groups: Groups,
}

/// What the pods of a TaskRun belong to.
#[must_use]
pub fn belonging<'v>(
    namespace: &str,
    owner: &Owner,
    view: &'v View,
    policy: &Policy,
) -> Belonging<'v> {
    let key = Name::new(namespace, &owner.name);
    let known = view.task_run(&key).filter(|known| known.identity.uid == owner.uid);
    let Some(task_run) = known else { return Belonging::Unknown(Key::TaskRun(key)) };
    let Some(maker) = &task_run.run else { return Belonging::Alone(task_run) };
    let run = view.run_by_uid(&maker.uid).filter(|(name, _)| *name.namespace == *namespace);
    let Some((name, run)) = run else {
        return Belonging::Unknown(Key::PipelineRun(Name::new(namespace, &maker.name)));
    };
    let (root_name, root, missing) = groups::root(name, run, view);
    if let Some(key) = missing {
        return Belonging::Unknown(key);
    }
    match groups::of_run(root_name, root, view, policy) {
        Ok(groups) => Belonging::Run(OfRun {
            name: root_name,
            run: root,
            task: task_run.task.as_deref(),
            groups,
        }),
        Err(bad) => Belonging::BadMode(bad),
    }
}

/// Whether an object that carries no key of ours is of one of Tekton's runs, and Tekton's own affinity
/// assistant leaves it to us.
pub(super) fn concerns(_: &str, metadata: &Metadata<'_>, view: &View) -> bool {
    tekton_owner(metadata).is_some_and(is_run)
        && metadata.annotation(keys::ASSISTANT).is_none()
        && view.has_tekton()
}

fn is_run(owner: &OwnerReference<'_>) -> bool {
    owner.is(TEKTON, "TaskRun") || owner.is(TEKTON, "PipelineRun")
}

/// Whose an object is. The claims of a placeholder are the run's without being controlled by it: the
/// StatefulSet controller sees to them.
fn tekton_owner<'m>(metadata: &'m Metadata<'_>) -> Option<&'m OwnerReference<'m>> {
    let of_placeholder = || {
        metadata.label(keys::PLACEHOLDER)?;
        metadata.owner_references.iter().find(|owner| owner.is(TEKTON, "PipelineRun"))
    };
    metadata.controller().or_else(of_placeholder)
}

/// The owner of an object, if it is one of Tekton's of this kind.
pub(super) fn owner_of(metadata: &Metadata<'_>, kind: &str) -> Option<Owner> {
    let owner = tekton_owner(metadata).filter(|owner| owner.is(TEKTON, kind))?;
    let text = |text: &Option<Text<'_>>| text.as_ref().map_or("", Text::as_str).into();
    Some(Owner { name: text(&owner.name), uid: text(&owner.uid) })
}

/// What a pod gets.
pub(super) fn request(pod: &Pod<'_>, view: &View, policy: &Policy) -> Outcome {
    let mut joining = Joining { pod, view, policy, outcome: Outcome::default() };
    joining.join();
    joining.outcome
}

/// One pod on its way into its group.
struct Joining<'p> {
    pod: &'p Pod<'p>,
    view: &'p View,
    policy: &'p Policy,
    outcome: Outcome,
}

/// A group, as far as a pod that joins it is asked.
struct Joined<'g> {
    /// The annotation that the wishes come from.
    key: &'static str,
    /// What it is, for people.
    why: String,
    placeholder: &'g str,
    /// The claims that take the place of others.
    renamed: Vec<(String, String)>,
}

/// How a pod comes to its placeholder.
enum Way<'n> {
    /// By pod affinity: the scheduler puts it where the placeholder is then.
    Term(PodTerm),
    /// By the name of the node where the placeholder is.
    Node(&'n str),
    /// By name too, but not yet.
    Gate,
}

impl Joining<'_> {
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
            match NativeGroup::read(pod.namespace, group) {
                Ok(native) => {
                    let renamed = task_run.map(|task_run| self.parked_of(&task_run));
                    self.enter(&Joined {
                        key: keys::GROUP,
                        why: format!("coschedule-group={}", native.group),
                        placeholder: &native.placeholder,
                        renamed: renamed.unwrap_or_default(),
                    });
                }
                Err(finding) => self.outcome.findings.push(finding),
            }
            return;
        }
        let Some(task_run) = task_run.filter(|_| self.view.has_tekton()) else {
            if pod.annotation(keys::MODE).is_some() {
                self.warn(keys::MODE, "no effect: the pod is of no Tekton TaskRun");
            }
            return;
        };
        // A copy of the run's, but wrong by itself all the same.
        if let Some(Err(bad)) = pod.annotation(keys::MODE).map(|mode| mode::told(mode, String::new))
        {
            self.outcome.findings.push(bad.finding());
            return;
        }
        self.join_run(&task_run);
    }

    fn join_run(&mut self, task_run: &Owner) {
        let of_run = match belonging(self.pod.namespace, task_run, self.view, self.policy) {
            Belonging::Run(of_run) => of_run,
            Belonging::Alone(_) => return,
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
        let OfRun { name, run, task, groups } = of_run;
        if family::signs(name, run, self.view).is_assisted {
            match self.is_settled() {
                true => self.outcome.keeps_record = true,
                false => self
                    .warn(keys::MODE, "left alone: Tekton's own affinity assistant places its run"),
            }
            return;
        }
        self.outcome.awaited.extend(groups.awaited.iter().cloned());
        let mounted: Vec<&str> =
            self.pod.claims.iter().map(|volume| volume.claim.as_str()).collect();
        let selector: Vec<(&str, &str)> =
            self.pod.node_selector.iter().flat_map(TextMap::iter).collect();
        // Parked claims are bound for nobody, wherever the pod may run.
        let renamed = self.renamed(&groups);
        let why = format!("{} of PipelineRun {}", mode::word(groups.mode), name.name);
        let binds_nobody = groups::binds_nobody(self.pod.namespace, self.view);
        match groups.membership(task, &mounted, &selector, binds_nobody) {
            Membership::Free => self.rename(keys::MODE, &why, &renamed),
            Membership::Several(first, second) => {
                self.rename(keys::MODE, &why, &renamed);
                let text = format!(
                    "not placed: the groups of its claims share no node ({} and {})",
                    said(first),
                    said(second)
                );
                self.warn(keys::MODE, &text);
            }
            Membership::Of(group) => {
                let why = format!("{} {}", mode::word(groups.mode), said(group));
                let why = format!("{} of PipelineRun {}", why.trim_end(), name.name);
                self.enter(&Joined { key: keys::MODE, why, placeholder: &group.name, renamed });
            }
        }
    }

    /// The claims that a pod needs which has left its run's group for another: those of its run, which
    /// the run's placeholder has.
    fn parked_of(&mut self, task_run: &Owner) -> Vec<(String, String)> {
        match belonging(self.pod.namespace, task_run, self.view, self.policy) {
            Belonging::Run(OfRun { groups, .. }) => self.renamed(&groups),
            Belonging::Unknown(key) if self.may_be_parked() => {
                self.outcome.awaited.push(key);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// Whether a claim is parked, or is to be when it comes.
    fn is_parked(&self, claim: &Name) -> bool {
        match self.view.claim(claim) {
            Some(known) => claims::is_parked(known),
            None => self.policy.coschedule.volumes == Volumes::Provision,
        }
    }

    /// Whether a claim of the pod may be parked.
    fn may_be_parked(&self) -> bool {
        let mut mounted = self.pod.claims.iter().map(|volume| volume.claim.as_str());
        mounted.any(|claim| self.is_parked(&Name::new(self.pod.namespace, claim)))
    }

    /// The claims of the pod that are parked, with those that the placeholders of its run have in their
    /// place.
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
                self.outcome.awaited.push(Key::Claim(key));
            }
        }
        renamed
    }

    /// Whether an earlier round placed the pod, as its record and its label say. Who forges both gains
    /// nothing that labels alone would not give him.
    fn is_settled(&self) -> bool {
        let Some(placeholder) = self.pod.label(keys::MEMBER) else { return false };
        let record = self.pod.annotation(record::KEY);
        record.is_some_and(|record| {
            let entries = record::entries(record, NAME);
            entries.iter().any(|entry| placeholder_in(entry) == Some(placeholder))
        })
    }

    /// Whether an own mark holds the pod to its placeholder: the term, the gate, or a node by name.
    fn is_held(&self, term: &PodTerm) -> bool {
        let pinned = required_node_terms(self.pod).is_some_and(|terms| {
            !terms.is_empty() && terms.iter().all(|term| pinned_node(term).is_some())
        });
        pinned
            || self.pod.has_gate(keys::GATE)
            || required_pod_terms(self.pod).iter().any(|present| term.is_own_mark(present))
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
        let term = toward(placeholder);
        let is_marked = pod.label(keys::MEMBER) == Some(placeholder);
        if is_marked && self.is_held(&term) {
            self.outcome.keeps_record = self.is_settled();
            self.holds(joined, "");
            return;
        }
        let name = Name::new(pod.namespace, placeholder);
        let place = view.placeholder_pod(&name).and_then(|pod| pod.place());
        let way = self.way(&name, place, term);
        // What stands on a node that takes the pod needs nobody. A gate always does; a pod without its
        // claims waits for the controller all the same.
        let is_alone = !view.controller_present()
            && self.policy.coschedule.controller_absent == ControllerAbsent::Admit;
        let waits = match &way {
            Way::Node(_) => false,
            Way::Term(_) => {
                joined.renamed.is_empty() && !place.is_some_and(|node| self.may_go_to(node))
            }
            Way::Gate => true,
        };
        if is_alone && waits {
            self.warn(
                key,
                "not placed with its group: stowplan's controller has been away for a while",
            );
            return self.rename(key, &joined.why, &joined.renamed);
        }
        if view.placeholder(&name).is_some_and(|known| known.failed) && joined.renamed.is_empty() {
            self.warn(key, "not placed with its group: the group's placeholder cannot be made");
            return;
        }
        self.wish(
            joined,
            Wish::Label { key: keys::MEMBER.to_owned(), value: placeholder.to_owned() },
        );
        self.rename(key, &joined.why, &joined.renamed);
        if pod.node_name.is_some() {
            self.warn(key, "spec.nodeName bypasses the scheduler, so nobody sees to it");
            return self.holds(joined, "");
        }
        match way {
            Way::Term(term) => {
                self.wish(joined, Wish::PodAffinity(term));
                self.holds(joined, "");
            }
            Way::Node(node) => {
                self.wish(joined, Wish::NodeAffinity(vec![on_node(node)]));
                self.holds(joined, &format!(", node {node}"));
            }
            Way::Gate => {
                self.wish(joined, Wish::Gate(keys::GATE));
                self.holds(joined, ", gated");
            }
        }
    }

    /// How the pod comes to its placeholder, which is on the node `place`.
    fn way<'n>(&self, placeholder: &Name, place: Option<&'n str>, term: PodTerm) -> Way<'n> {
        let stays = || {
            place.is_some_and(|node| {
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
        match place.filter(|node| self.may_go_to(node)) {
            _ if !by_node => Way::Term(term),
            Some(node) => Way::Node(node),
            None => Way::Gate,
        }
    }

    /// Whether a node takes the pod: it is there and not cordoned, and what the pod itself asks of nodes
    /// leaves it this one, as far as its labels are known. Terms that select no node at all are left to
    /// who merges, and tells them.
    fn may_go_to(&self, name: &str) -> bool {
        let Some(node) = self.view.node(name) else { return false };
        let is_open = !node.cordoned || tolerates_cordon(self.pod.tolerations.iter().flatten());
        let mut selector = self.pod.node_selector.iter().flat_map(TextMap::iter);
        is_open
            && selector.all(|(key, value)| node.label(key).is_none_or(|own| own == Some(value)))
            && required_node_terms(self.pod).is_none_or(|terms| {
                selector::may_select(terms, name, |key| node.label(key))
                    || terms.iter().all(matches_nothing)
            })
    }

    /// Points the pod to the claims that its run's placeholders have in the place of its own.
    fn rename(&mut self, key: &'static str, why: &str, renamed: &[(String, String)]) {
        for (from, to) in renamed {
            let wish = Wish::ClaimName { from: from.clone(), to: to.clone() };
            self.outcome.intents.push(Intent { system: NAME, key, why: why.to_owned(), wish });
        }
    }

    fn wish(&mut self, joined: &Joined<'_>, wish: Wish) {
        let why = joined.why.clone();
        self.outcome.intents.push(Intent { system: NAME, key: joined.key, why, wish });
    }

    fn holds(&mut self, joined: &Joined<'_>, how: &str) {
        let why = shorten(&joined.why, 160);
        self.outcome.holds.push(format!("{why}: {}{how}", joined.placeholder));
    }

    fn warn(&mut self, key: &str, text: &str) {
        self.outcome.warnings.push(Warning::new(key, text));
    }
}

/// The term that puts a pod beside a placeholder.
#[must_use]
pub fn toward(placeholder: &str) -> PodTerm {
    let labels = [(keys::COMPONENT, keys::COMPONENT_VALUE), (keys::INSTANCE, placeholder)];
    PodTerm {
        enforcement: Enforcement::Required,
        selector: Selector::Labels(labels.map(|(key, value)| (key, value.to_owned())).into()),
    }
}

/// What a group is called: its key, where it has one.
fn said(group: &Group) -> &str {
    &group.key
}

/// The placeholder that an entry of the record names: `WHY: PLACEHOLDER[, HOW]`.
fn placeholder_in(entry: &str) -> Option<&str> {
    let (_, what) = entry.rsplit_once(": ")?;
    what.split(", ").next()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::placement::pod::Object;
    use crate::view::{Node, Object as Known};

    fn asked(pod: &Value, view: &View, policy: &str) -> Outcome {
        let text = pod.to_string();
        let object: Object<'_> = serde_json::from_str(&text).unwrap();
        let pod = Pod::decode("ci", &object).unwrap();
        request(&pod, view, &Policy::from_yaml(policy).unwrap())
    }

    fn told(outcome: &Outcome) -> (Vec<String>, usize) {
        let wishes = outcome.intents.iter().map(|intent| match &intent.wish {
            Wish::Label { .. } => "label".to_owned(),
            Wish::PodAffinity(_) => "term".to_owned(),
            Wish::NodeAffinity(_) => "node".to_owned(),
            wish => wish.to_string(),
        });
        (wishes.collect(), outcome.warnings.len())
    }

    fn grouped(spec: &Value) -> Value {
        json!({"metadata": {"annotations": {"stowplan.dev/coschedule-group": "g"}}, "spec": spec})
    }

    /// A View without a controller and, where there is one, with the group's placeholder on a node.
    fn abandoned(node: Option<(&str, bool)>) -> View {
        let mut view = View::default();
        view.set_controller_present(false);
        let name = keys::of_native("ci", "g");
        if let Some((node, cordoned)) = node {
            for object in [
                json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}, "spec": {"unschedulable": cordoned}}),
                json!({"apiVersion": "v1", "kind": "Pod",
                    "metadata": {"name": format!("{name}-0"), "namespace": "ci", "labels": {"stowplan.dev/placeholder": name}},
                    "spec": {"nodeName": node, "containers": []}}),
            ] {
                view.apply(Known::from_document(object).unwrap().unwrap());
            }
        }
        view
    }

    #[test]
    fn while_no_controller_is_there_nobody_waits_for_it() {
        let plain = grouped(&json!({}));
        let term = json!({"labelSelector": {}, "topologyKey": "zone"});
        let with_a_term = grouped(&json!({"affinity": {"podAffinity":
            {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}));
        let of_all_nodes = grouped(&json!({"tolerations": [
            {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}]}));
        let elsewhere = grouped(&json!({"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [
                {"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}]}}}}));
        let nothing = (vec![], 1);
        let wishes = |of: &[&str]| (of.iter().map(|&wish| wish.to_owned()).collect(), 0);
        let gate = "scheduling gate stowplan.dev/placeholder";
        for (what, pod, view, policy, expected) in [
            ("no placeholder", &plain, abandoned(None), "", nothing.clone()),
            ("nor a gate", &with_a_term, abandoned(None), "", nothing.clone()),
            ("one that takes no pods", &plain, abandoned(Some(("n1", true))), "", nothing.clone()),
            (
                "one that stands",
                &plain,
                abandoned(Some(("n1", false))),
                "",
                wishes(&["label", "term"]),
            ),
            (
                "by node too",
                &with_a_term,
                abandoned(Some(("n1", false))),
                "",
                wishes(&["label", "node"]),
            ),
            (
                "one that takes no pods but this one",
                &of_all_nodes,
                abandoned(Some(("n1", true))),
                "",
                wishes(&["label", "term"]),
            ),
            (
                "one where the pod may not be, which nobody moves",
                &elsewhere,
                abandoned(Some(("n1", false))),
                "",
                nothing.clone(),
            ),
            (
                "nor is a gate lifted there",
                &elsewhere,
                abandoned(Some(("n1", false))),
                "coschedule: {binding: node}",
                nothing,
            ),
            (
                "told to wait",
                &plain,
                abandoned(None),
                "coschedule: {controllerAbsent: wait}",
                wishes(&["label", "term"]),
            ),
            (
                "gated",
                &with_a_term,
                abandoned(None),
                "coschedule: {controllerAbsent: wait}",
                wishes(&["label", gate]),
            ),
            ("it is there", &with_a_term, View::default(), "", wishes(&["label", gate])),
        ] {
            assert_eq!(told(&asked(pod, &view, policy)), expected, "{what}");
        }
    }

    /// Its own claim is never bound, and that of the placeholder may be there.
    #[test]
    fn a_pod_that_is_not_gated_has_the_claims_it_needs_all_the_same() {
        let mut view = abandoned(None);
        let claim = crate::view::pipeline_run::claim_name(None, "w", "r");
        for object in [
            json!({"apiVersion": "tekton.dev/v1", "kind": "TaskRun", "metadata": {"name": "t", "namespace": "ci", "uid": "t",
                "ownerReferences": [{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "r", "uid": "r", "controller": true}]}}),
            json!({"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "metadata": {"name": "r", "namespace": "ci", "uid": "r"},
                "spec": {"workspaces": [{"name": "w", "volumeClaimTemplate": {}}], "pipelineSpec": {"tasks": []}}}),
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": claim, "namespace": "ci"},
                "spec": {"storageClassName": keys::PARKED}}),
        ] {
            view.apply(Known::from_document(object).unwrap().unwrap());
        }
        let term = json!({"labelSelector": {}, "topologyKey": "zone"});
        let pod = json!({
            "metadata": {"ownerReferences": [
                {"apiVersion": "tekton.dev/v1", "kind": "TaskRun", "name": "t", "uid": "t", "controller": true}]},
            "spec": {
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}],
                "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
            },
        });
        let outcome = asked(&pod, &view, "");
        let [Intent { wish: Wish::ClaimName { from, to }, .. }] = &*outcome.intents else {
            panic!("{:?}", outcome.intents)
        };
        assert_eq!((from, to), (&claim, &keys::provisioned(&claim, &keys::of_run("r", "w"))));
        assert_eq!((outcome.warnings.len(), outcome.holds.len()), (1, 0));
    }

    /// A pod is bound by name only to a node that takes it: else it would wait there for ever, whereas a
    /// gate waits until the placeholder has moved.
    #[test]
    fn by_name_a_pod_goes_only_to_a_node_that_takes_it() {
        let name = keys::of_native("ci", "g");
        let asked_of = |node: Option<Value>, spec: &Value| {
            let mut view = View::default();
            let placeholder = json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": format!("{name}-0"), "namespace": "ci", "labels": {"stowplan.dev/placeholder": name}},
                "spec": {"nodeName": "n1", "containers": []}});
            view.apply(Known::from_document(placeholder).unwrap().unwrap());
            if let Some(node) = node {
                view.apply(Known::whole_node(&serde_json::from_value(node).unwrap()).unwrap());
            }
            let (wishes, warnings) =
                told(&asked(&grouped(spec), &view, "coschedule: {binding: node}"));
            assert_eq!((&*wishes[0], wishes.len(), warnings), ("label", 2, 0));
            wishes[1].clone()
        };
        let node = |cordoned: bool| {
            Some(
                json!({"metadata": {"name": "n1", "labels": {"arch": "amd64"}}, "spec": {"unschedulable": cordoned}}),
            )
        };
        let terms = |terms: &Value| {
            json!({"affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
        };
        let of_arch = |arch: &str| json!({"matchExpressions": [{"key": "arch", "operator": "In", "values": [arch]}]});
        let tolerates = |effect: &str| {
            json!({"tolerations": [
                {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": effect}]})
        };
        let gate = "scheduling gate stowplan.dev/placeholder";
        for (what, node, spec, wanted) in [
            ("open", node(false), json!({}), "node"),
            ("not known", None, json!({}), gate),
            ("cordoned", node(true), json!({}), gate),
            ("cordoned, and it goes there", node(true), tolerates("NoSchedule"), "node"),
            ("cordoned, and it may stay there", node(true), tolerates("NoExecute"), gate),
            ("its node selector", node(false), json!({"nodeSelector": {"arch": "amd64"}}), "node"),
            ("of others", node(false), json!({"nodeSelector": {"arch": "arm64"}}), gate),
            ("of nobody's", node(false), json!({"nodeSelector": {"disk": "ssd"}}), gate),
            (
                "one of its terms",
                node(false),
                terms(&json!([of_arch("arm64"), of_arch("amd64")])),
                "node",
            ),
            ("none of its terms", node(false), terms(&json!([of_arch("arm64")])), gate),
            ("terms that select no node", node(false), terms(&json!([{}])), "node"),
        ] {
            assert_eq!(asked_of(node, &spec), wanted, "{what}");
        }
    }

    /// The webhook keeps no labels of nodes but those of host pools: what it does not know keeps nobody
    /// out.
    #[test]
    fn labels_that_are_not_kept_are_those_that_a_pod_asks_for() {
        let node = json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "n1", "labels": {"streams.ibm.com/hostpool": "fast"}}});
        let Known::Node(_, node) = Known::from_document(node).unwrap().unwrap() else { panic!() };
        assert_eq!(node.label("arch"), None);
        assert_eq!(node.label("streams.ibm.com/hostpool"), Some(Some("fast")));
        assert_eq!(node.label("hostpool.streams.ibm.com/a"), Some(None));
        assert_eq!(Node::default().label("streams.ibm.com/hostpool"), Some(None));
    }

    #[test]
    fn what_was_placed_stays_while_no_controller_is_there() {
        let placeholder = keys::of_native("ci", "g");
        let mut pod = grouped(&json!({"schedulingGates": [{"name": keys::GATE}]}));
        pod["metadata"]["labels"] = json!({keys::MEMBER: placeholder});
        assert_eq!(told(&asked(&pod, &abandoned(None), "")), (vec![], 0));
    }

    #[test]
    fn without_tektons_kinds_nobody_is_of_a_run() {
        let pod = json!({"metadata": {"ownerReferences": [
            {"apiVersion": "tekton.dev/v1", "kind": "TaskRun", "name": "t", "uid": "u", "controller": true}]}});
        let text = pod.to_string();
        let object: Object<'_> = serde_json::from_str(&text).unwrap();
        let mut view = View::default();
        assert!(concerns("ci", &object.metadata, &view));
        assert_eq!(asked(&pod, &view, "").awaited, [Key::TaskRun(Name::new("ci", "t"))]);
        view.set_tekton(false);
        assert!(!concerns("ci", &object.metadata, &view));
        assert!(asked(&pod, &view, "").awaited.is_empty());
    }

    #[test]
    fn an_entry_of_the_record_names_its_placeholder() {
        assert_eq!(placeholder_in("coschedule-group=g: p"), Some("p"));
        assert_eq!(placeholder_in("workspaces a: b of PipelineRun r: p, node n1"), Some("p"));
        for entry in ["", "p", ": ", "é"] {
            assert_ne!(placeholder_in(entry), Some("p"), "{entry}");
        }
    }
}
