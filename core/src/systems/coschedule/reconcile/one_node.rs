//! Labels the pods that mount claims of one node, removes the gates of those that waited for others, and wakes
//! those whose other pods have all ended.
//!
//! The scheduler compares labels of bound pods. So a pod that must be where two other pods are keeps its gate
//! until all pods that mount its claims have a node, and it is the same one. Of several pods with such gates
//! only one is released at a time, and the next one once that is bound.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::iter;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, json};

use super::carry_out::{PlanBuilder, recreate};
use super::gate::require_node;
use super::state::{PATIENCE, in_use, is_lost, is_open};
use super::{Why, reason};
use crate::placement::affinity::bound_to;
use crate::systems::View;
use crate::systems::coschedule::keys::{CLAIMS_GATE, MOUNTED, of_claim};
use crate::systems::coschedule::kinds::{Mounted, MountedClaim, Waiting};
use crate::systems::coschedule::one_node;
use crate::systems::exclusion::Exclusion;
use crate::systems::plan::operation::{add, remove_gate, test, test_uid};
use crate::systems::plan::{Action, Event, Target, Write};
use crate::systems::policy::Policy;
use crate::systems::wake;
use crate::view::Name;
use crate::view::resource::POD;

/// A pod that mounts claims in a namespace that asks for one node.
#[derive(Clone, Copy)]
pub(crate) struct ClaimPod<'v> {
    pub(crate) name: &'v Name,
    pub(crate) mounted: &'v Mounted,
}

/// A pod without a node, and what happens to it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fate {
    /// Its gate is removed, and it requires this node, if given.
    Released(Option<Box<str>>),
    /// It waits for this reason.
    Waits(Why),
    /// At this time the scheduler should try it again, or its state is looked at again.
    Woken(Timestamp),
    /// It is deleted, so that its controller creates it again, because it requires a node that the pods of its
    /// claims have left, and that does not take it.
    Recreated(String),
    /// Nothing: the scheduler places it, or gates of others hold it.
    Left,
}

/// The pods that mount claims in the namespaces that ask for one node, and who uses each claim.
pub(crate) struct Sharing<'v> {
    view: &'v View,
    /// The oldest first.
    pub(crate) pods: Vec<ClaimPod<'v>>,
    /// The pods that mount a claim of a namespace and have a node, or may be bound to one at any time.
    users: HashMap<(&'v str, &'v str), Users<'v>>,
    /// The placeholders that mount a claim and have no pod: it may be bound to any node.
    absent: HashMap<Name, &'v Name>,
}

/// The users of a claim, and what is asked of them for each pod that mounts it.
#[derive(Default)]
struct Users<'v> {
    all: Vec<ClaimPod<'v>>,
    /// One of them on each node.
    by_node: BTreeMap<&'v str, ClaimPod<'v>>,
    /// The first that is being deleted on a node that is NotReady or gone.
    lost: Option<ClaimPod<'v>>,
}

impl<'v> Sharing<'v> {
    pub(crate) fn new(view: &'v View, policy: &Policy) -> Self {
        let has_label = |namespace: &&str| {
            one_node::is_on(namespace, view)
                && Exclusion::of_namespace(namespace, view, policy).is_none()
        };
        let mut sharing =
            Self { view, pods: Vec::new(), users: HashMap::new(), absent: HashMap::new() };
        let namespaces: BTreeSet<&str> = view.namespaces().filter(has_label).collect();
        if namespaces.is_empty() || !policy.coschedule.enabled {
            return sharing;
        }
        let pods = view.mounted().filter(|(name, _)| namespaces.contains(&*name.namespace));
        sharing.pods = pods.map(|(name, mounted)| ClaimPod { name, mounted }).collect();
        for (name, placeholder) in view.placeholders() {
            let has_pod = view.placeholder_pod(name).is_some_and(|pod| !pod.finished);
            if !has_pod && !placeholder.failed && namespaces.contains(&*name.namespace) {
                sharing.absent.extend(placeholder.mounted(name).map(|claim| (claim, name)));
            }
        }
        sharing.pods.sort_unstable_by_key(|pod| (pod.mounted.identity.created, pod.name));
        for pod in sharing.pods.clone() {
            // A pod that is held follows the others, or waits for them.
            if pod.mounted.waiting.as_ref().is_none_or(|of| !of.is_held()) {
                sharing.add(pod);
            }
        }
        sharing
    }

    /// Counts a pod among the users of its claims, as when its gate is removed.
    pub(crate) fn add(&mut self, pod: ClaimPod<'v>) {
        for claim in pod.claims(self.view).filter(|_| !pod.mounted.of_daemon_set) {
            let users = self.users.entry((&pod.name.namespace, &claim.name)).or_default();
            users.all.push(pod);
            if let Some(node) = pod.node() {
                users.by_node.entry(node).or_insert(pod);
                let is_lost = pod.mounted.identity.deleting && is_lost(node, self.view);
                users.lost = users.lost.or_else(|| is_lost.then_some(pod));
            }
        }
    }

    /// Returns the fate of a pod while it has no node.
    pub(crate) fn fate(&self, pod: ClaimPod<'v>, now: Timestamp) -> Fate {
        let Some(waiting) = pod.mounted.waiting.as_deref() else { return Fate::Left };
        if pod.mounted.identity.deleting || pod.is_left_alone() || waiting.has_foreign_gate {
            return Fate::Left;
        }
        match waiting.gate {
            Some(_) => match self.node_to_join(pod, waiting) {
                Ok(node) => Fate::Released(node),
                Err(note) => Fate::Waits(Why::SharedClaim(note)),
            },
            None if waiting.is_gated => Fate::Left,
            None => self.fate_at_scheduler(pod, waiting, now),
        }
    }

    /// Returns the node that it must require when its gate is removed now.
    ///
    /// # Errors
    /// The reason why the gate stays.
    fn node_to_join(
        &self,
        pod: ClaimPod<'v>,
        waiting: &Waiting,
    ) -> Result<Option<Box<str>>, String> {
        let view = self.view;
        // The scheduler may bind it to any node.
        let is_unbound = |of: &Mounted| of.waiting.is_some() && !of.identity.deleting;
        if let Some((other, claim)) = self.users(pod).find(|(user, _)| is_unbound(user.mounted)) {
            let other = &other.name.name;
            return Err(format!(
                "claim {claim} is also mounted by pod {other}, which has no node yet"
            ));
        }
        let absent = pod.claims(view).find_map(|claim| {
            let name = Name::new(&pod.name.namespace, &claim.name);
            self.absent.get(&name).map(|placeholder| (placeholder, &claim.name))
        });
        if let Some((placeholder, claim)) = absent {
            return Err(format!(
                "claim {claim} is also mounted by placeholder {}, which has no pod yet",
                placeholder.name
            ));
        }
        if let Some(lost) = self.find_lost(pod) {
            return Err(lost);
        }
        let nodes = self.nodes(pod);
        let used =
            |(node, (pod, claim)): (&&str, &(ClaimPod<'_>, &str))| in_use(claim, pod.name, node);
        let mut all = nodes.iter();
        match (all.next(), all.next()) {
            (None, _) => Ok(None),
            (Some(one), Some(other)) => Err(format!(
                "{}, and {}: the pod starts when they are on one node, or one of them has ended",
                used(one),
                used(other)
            )),
            (Some((_, (other, claim))), None) if self.are_all_ending(pod) => Err(format!(
                "claim {claim} is in use by pod {}, which is being deleted: this pod starts when it has ended",
                other.name.name
            )),
            (Some(one), None) if !is_open(one.0, &waiting.tolerations, view) => Err(format!(
                "{}, which takes no new pods: this pod starts when that one has ended{}",
                used(one),
                pod.remedy_for_update(one.1.0)
            )),
            (Some(one), None) if waiting.excludes(one.0, view) => Err(format!(
                "{}, which this pod's node selector or node affinity excludes: it starts when that one has ended",
                used(one)
            )),
            (Some((node, _)), None) => {
                // Its term holds as long as one pod mounts the claim that it follows.
                let followed = pod.claims(view).find(|claim| claim.is_followed);
                let mounts_it = |other: ClaimPod<'_>| {
                    let mut claims = other.mounted.claims.iter();
                    claims.any(|of| {
                        of.is_labelled && followed.is_some_and(|followed| of.name == followed.name)
                    })
                };
                let is_tied =
                    self.users(pod).all(|(other, _)| other.node().is_none() || mounts_it(other));
                Ok((!is_tied).then(|| (*node).into()))
            }
        }
    }

    /// Returns its fate if the scheduler finds no node for it.
    fn fate_at_scheduler(&self, pod: ClaimPod<'v>, waiting: &Waiting, now: Timestamp) -> Fate {
        let (view, mounted) = (self.view, pod.mounted);
        let Some(unschedulable) = &waiting.unschedulable else { return Fate::Left };
        let is_following = pod.claims(view).any(|claim| claim.is_followed);
        let required = bound_to(&waiting.terms).filter(|_| mounted.has_waited);
        if !is_following && !mounted.has_waited {
            return Fate::Left;
        }
        let since = unschedulable.since;
        match since.checked_add(PATIENCE) {
            Ok(due) if due > now => return Fate::Woken(due),
            _ => {}
        }
        if let Some(lost) = self.find_lost(pod) {
            return Fate::Waits(Why::SharedClaim(lost));
        }
        let nodes = self.nodes(pod);
        let used = nodes.first_key_value();
        let Some((node, (other, claim))) =
            used.filter(|_| required.is_none_or(|node| nodes.contains_key(node)))
        else {
            // The scheduler tries it again by itself if it lacks anything else than a pod beside it. One that requires
            // a node is tried once more before it is created again: its room may be free only now.
            let is_replaceable = required.is_some() && mounted.can_be_recreated;
            let woken = waiting.woken.and_then(|woken| Timestamp::from_second(woken).ok());
            let tried = woken.filter(|woken| *woken >= since && is_replaceable);
            let due = match tried {
                Some(woken) => woken.checked_add(PATIENCE).ok().filter(|due| *due > now),
                None if is_replaceable || unschedulable.lacks_affinity_match() => {
                    wake::due(since, waiting.woken, PATIENCE)
                }
                None => None,
            };
            return match (required, due) {
                (_, Some(due)) if mounted.has_labels => Fate::Woken(due),
                (Some(node), _) if mounted.can_be_recreated => Fate::Recreated(format!(
                    "it requires node {node}, which has no room for it or takes no new pods, and the pods of its claims have left it"
                )),
                (Some(node), _) => Fate::Waits(Why::Unschedulable(format!(
                    "it requires node {node}, which has no room for it or takes no new pods, and the pods of its claims have left it: delete the pod and create it again"
                ))),
                (None, _) => Fate::Left,
            };
        };
        if !is_following && required != Some(node) {
            return Fate::Left;
        }
        let is_open = is_open(node, &waiting.tolerations, view);
        let closed = if is_open { "" } else { ", which takes no new pods" };
        Fate::Waits(Why::Unschedulable(format!(
            "claim {claim} is in use by pod {} on node {node}{closed}, so this pod must run there{}; the scheduler says: {}",
            other.name.name,
            pod.remedy_for_update(*other),
            unschedulable.message
        )))
    }

    /// The users of the claims of a pod, without the pod itself, each with one claim.
    fn users(&self, pod: ClaimPod<'v>) -> impl Iterator<Item = (ClaimPod<'v>, &'v str)> {
        let users = self.by_claim(pod).flat_map(|(users, claim)| {
            let users = users.all.iter();
            users.map(move |user| (*user, claim))
        });
        users.filter(move |(user, _)| user.name != pod.name)
    }

    /// The users of each claim of a pod that has some.
    fn by_claim(&self, pod: ClaimPod<'v>) -> impl Iterator<Item = (&Users<'v>, &'v str)> {
        pod.claims(self.view).filter_map(move |claim| {
            let users = self.users.get(&(&*pod.name.namespace, &*claim.name))?;
            Some((users, &*claim.name))
        })
    }

    /// Returns true if all bound pods that mount the claims of a pod are being deleted.
    fn are_all_ending(&self, pod: ClaimPod<'v>) -> bool {
        let mut bound = self.users(pod).filter(|(user, _)| user.node().is_some());
        bound.all(|(user, _)| user.mounted.identity.deleting)
    }

    /// Returns the nodes of the pods that mount the claims of a pod without a node, each with one pod and its claim.
    fn nodes(&self, pod: ClaimPod<'v>) -> BTreeMap<&'v str, (ClaimPod<'v>, &'v str)> {
        let mut nodes = BTreeMap::new();
        for (users, claim) in self.by_claim(pod) {
            for (node, user) in &users.by_node {
                nodes.entry(*node).or_insert((*user, claim));
            }
        }
        nodes
    }

    /// Describes another pod of the claims of a pod that is being deleted on a node that is NotReady or gone: the
    /// scheduler counts it, and its volumes stay attached, until the node is back or the pod is removed by hand.
    fn find_lost(&self, pod: ClaimPod<'v>) -> Option<String> {
        let mut lost = self.by_claim(pod).filter_map(|(users, claim)| Some((users.lost?, claim)));
        let (user, claim) = lost.next()?;
        let (node, Name { namespace, name }) = (user.node()?, user.name);
        let used = format!("claim {claim} is in use by pod {name}, which is being deleted");
        Some(match self.view.node(node) {
            Some(_) => format!(
                "{used} on node {node}, and the node is NotReady: once you know that the machine is off, kubectl taint node {node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
            ),
            None => format!(
                "{used} on node {node}, which no longer exists: kubectl delete pod {name} -n {namespace} --force"
            ),
        })
    }
}

impl<'v> ClaimPod<'v> {
    /// Returns its claims that one node mounts.
    pub(crate) fn claims(self, view: &'v View) -> impl Iterator<Item = &'v MountedClaim> {
        let namespace = &self.name.namespace;
        let applies =
            move |of: &&MountedClaim| one_node::applies_to(&Name::new(namespace, &of.name), view);
        self.mounted.claims.iter().filter(applies)
    }

    /// Returns the other pods that mount a claim, also those that wait for it, without those of DaemonSets.
    pub(crate) fn users(
        self,
        claim: &MountedClaim,
        view: &'v View,
    ) -> impl Iterator<Item = ClaimPod<'v>> {
        let claim = Name::new(&self.name.namespace, &claim.name);
        let users = view.mounting(&claim).map(|(name, mounted)| ClaimPod { name, mounted });
        users.filter(move |of| of.name != self.name && !of.mounted.of_daemon_set)
    }

    /// Returns true if stowplan does not change it.
    fn is_left_alone(self) -> bool {
        self.mounted.ignored || self.mounted.of_daemon_set
    }

    /// Returns the node that it is bound to.
    fn node(self) -> Option<&'v str> {
        self.mounted.node.as_deref()
    }

    /// The remedy if it replaces another pod of its Deployment, as the end of a sentence.
    fn remedy_for_update(self, other: ClaimPod<'_>) -> String {
        let own = self.mounted.deployment.as_deref();
        match own.filter(|_| own == other.mounted.deployment.as_deref()) {
            Some(deployment) => format!(
                "; both are of Deployment {deployment}: with the strategy Recreate its old pod ends first"
            ),
            None => String::new(),
        }
    }
}

impl PlanBuilder<'_, '_> {
    /// Plans the changes of pods that share the node of their claims.
    pub(super) fn share_claims(&mut self) {
        let (view, now) = (self.view(), self.facts.now);
        let mut sharing = Sharing::new(view, self.facts.policy);
        self.release_forgotten(&sharing.pods);
        for pod in sharing.pods.clone() {
            let ClaimPod { name, mounted } = pod;
            let uid = &mounted.identity.uid;
            let target = Target::new(POD, name, uid);
            let labels = missing_labels(pod, view);
            match sharing.fate(pod, now) {
                Fate::Released(node) => {
                    sharing.add(pod);
                    let operations = release(pod, node.as_deref(), labels);
                    self.act(Action::new(target, Write::Patch(operations), Vec::new()));
                    continue;
                }
                Fate::Waits(why) => self.report(target.clone(), why.event()),
                Fate::Recreated(why) => {
                    self.act(recreate(name, &mounted.identity, "owner", &why));
                    continue;
                }
                Fate::Woken(due) if due > now => self.recheck_by(due),
                Fate::Woken(_) => {
                    self.act(wake::call(name, uid, now, "pod"));
                    continue;
                }
                Fate::Left => {}
            }
            if !labels.is_empty() {
                let operations = label_operations(mounted, labels);
                let operations = iter::once(test_uid(uid)).chain(operations).collect();
                self.act(Action::new(target, Write::Patch(operations), Vec::new()));
            }
        }
    }

    /// Removes the gates of pods whose namespace no longer asks for one node, and of those that were opted out
    /// since: they run anywhere.
    fn release_forgotten(&mut self, asked: &[ClaimPod<'_>]) {
        let asked: HashSet<&Name> =
            asked.iter().filter(|pod| !pod.mounted.ignored).map(|pod| pod.name).collect();
        let is_gated = |mounted: &Mounted| {
            let waiting = mounted.waiting.as_ref();
            waiting.is_some_and(|of| of.gate.is_some()) && !mounted.identity.deleting
        };
        let gated = self.view().mounted().filter(|(_, mounted)| is_gated(mounted));
        let mut forgotten: Vec<_> = gated.filter(|(name, _)| !asked.contains(name)).collect();
        forgotten.sort_unstable_by_key(|(name, _)| *name);
        for (name, mounted) in forgotten {
            let operations = release(ClaimPod { name, mounted }, None, Vec::new());
            let target = Target::new(POD, name, &mounted.identity.uid);
            let note = "its namespace no longer has the label stowplan.dev/one-node-claims, or the pod or the policy opts out".to_owned();
            let event = Event { warning: false, reason: reason::GATE_LIFTED, note };
            self.act(Action::new(target, Write::Patch(operations), vec![event]));
        }
    }
}

/// Returns the keys of the labels that a pod lacks.
fn missing_labels(pod: ClaimPod<'_>, view: &View) -> Vec<String> {
    if pod.mounted.identity.deleting || pod.is_left_alone() {
        return Vec::new();
    }
    let missing = pod.claims(view).filter(|claim| !claim.is_labelled);
    missing.map(|claim| of_claim(&claim.name)).collect()
}

fn label_operations(mounted: &Mounted, keys: Vec<String>) -> Vec<json_patch::PatchOperation> {
    match mounted.has_labels {
        true => keys.iter().map(|key| add(&["metadata", "labels", key], MOUNTED)).collect(),
        false => {
            let labels: Map<_, _> = keys.into_iter().map(|key| (key, json!(MOUNTED))).collect();
            // Do not replace labels that were added since.
            let version = &*mounted.identity.resource_version;
            vec![
                test(&["metadata", "resourceVersion"], version),
                add(&["metadata", "labels"], labels),
            ]
        }
    }
}

fn release(
    pod: ClaimPod<'_>,
    node: Option<&str>,
    labels: Vec<String>,
) -> Vec<json_patch::PatchOperation> {
    let mounted = pod.mounted;
    let Some((waiting, gate)) = mounted.waiting.as_deref().and_then(|of| Some((of, of.gate?)))
    else {
        return Vec::new();
    };
    let bound = node.into_iter();
    let bound = bound.flat_map(|node| require_node(&waiting.terms, waiting.above_terms, node));
    let labels = if labels.is_empty() { Vec::new() } else { label_operations(mounted, labels) };
    remove_gate(&mounted.identity, gate, CLAIMS_GATE, bound.chain(labels))
}
