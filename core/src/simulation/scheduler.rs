//! The filters of the Kubernetes scheduler that stowplan relies on: gates, node selector, node affinity,
//! taints, pod affinity and anti-affinity on one node, requests, the limit of pods, and volumes; and preferred
//! node affinity. A claim without a volume gets one when its first pod is bound.
//!
//! Not modelled: terms about pods of other namespaces or of a larger topology than a node, the terms of nominated
//! pods, topology spread, host ports, classes whose volumes are made before a pod needs them, zones that a volume
//! has as labels, how many volumes a node can attach, ResourceClaims, features that nodes declare, resized requests of
//! a pod as a whole, priorities and preemption, other schedulers, and any order of the nodes that take a pod but that
//! preferred node affinity comes first. All else is compared with Kubernetes by the suite `scheduler` of
//! `tests/outcomes`; there, other than here, a node without `status.allocatable` takes no pod.

use std::cell::OnceCell;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};

use super::store::Id;
use super::{Event, Simulation};
use crate::kubernetes::{HOSTNAME, REQUIRED, claims, label, required_node_terms};
use crate::placement::toleration::{tolerates, tolerates_cordon};
use crate::view::{NodeDetails, Resources, selector};

/// The label of nodes that volumes are bound to.
const ZONE: &str = "topology.kubernetes.io/zone";

/// The message about a pod that has to be beside another one, and is not.
const NOT_BESIDE: &str = "2 node(s) didn't match pod affinity rules";

/// A pod with its decoded spec.
pub(super) struct Subject<'s> {
    pub(super) pod: &'s Value,
    spec: core::PodSpec,
    toward: Vec<core::PodAffinityTerm>,
    away: Vec<core::PodAffinityTerm>,
    /// The resources that the scheduler counts of it.
    pub(super) requests: Resources,
    /// The label with the hostname of the node that it is on. `None`: terms about pods do not see it.
    host: Option<&'s str>,
}

impl<'s> Subject<'s> {
    /// `None`: its spec is invalid.
    fn of(pod: &'s Value) -> Option<Self> {
        let has = |list: &str| !pod["status"][list].is_null();
        let is_reported = has("containerStatuses") || has("initContainerStatuses");
        let status = is_reported.then(|| serde_json::from_value(pod["status"].clone()).ok());
        let spec = serde_json::from_value(pod["spec"].clone()).ok()?;
        let typed =
            core::Pod { spec: Some(spec), status: status.flatten(), ..core::Pod::default() };
        let terms = |kind: &str| {
            let terms = pod["spec"]["affinity"][kind][REQUIRED].clone();
            serde_json::from_value(terms).unwrap_or_default()
        };
        Some(Self {
            pod,
            requests: Resources::counted(&typed),
            spec: typed.spec?,
            toward: terms("podAffinity"),
            away: terms("podAntiAffinity"),
            host: None,
        })
    }

    /// Returns `true` if each term of its pod affinity selects `other`.
    pub(super) fn is_toward(&self, other: &Value) -> bool {
        self.toward.iter().all(|term| selects(term, self.pod, other))
    }

    fn is_away(&self, other: &Value) -> bool {
        self.away.iter().any(|term| selects(term, self.pod, other))
    }
}

/// The nodes and placed pods of a cluster, decoded once for all pods that are pending.
pub(super) struct Snapshot<'s> {
    pub(super) nodes: Vec<(core::Node, NodeDetails)>,
    /// The pods that are on nodes.
    pub(super) placed: Vec<Subject<'s>>,
    /// The pods for which room is kept, without a node.
    nominated: Vec<Subject<'s>>,
}

/// The result of an attempt.
struct Found {
    nodes: Vec<String>,
    message: &'static str,
}

impl Simulation {
    pub(super) fn scheduler_events(&self) -> impl Iterator<Item = Event> {
        let pending = self.store.all("Pod").filter(|pod| is_pending(pod));
        let snapshot = OnceCell::new();
        pending.flat_map(move |pod| {
            let id = Id::of(pod);
            let condition = &pod["status"]["conditions"][0];
            let found = self.attempt_pod(pod, snapshot.get_or_init(|| self.take_snapshot()));
            let is_new = found.as_ref().is_some_and(|found| {
                condition["status"] != "False"
                    || condition["message"] != found.message
                    || self
                        .labels_tried(pod)
                        .is_none_or(|labels| *labels != pod["metadata"]["labels"])
            });
            let nodes = found.map(|found| found.nodes).unwrap_or_default();
            let reject = (nodes.is_empty() && is_new).then(|| Event::Reject(id.clone()));
            nodes.into_iter().map(move |node| Event::Bind(id.clone(), node)).chain(reject)
        })
    }

    /// The names of the nodes that a pod may be bound to. `None`: it is not to be scheduled, because it is
    /// bound, has ended or has a gate.
    #[must_use]
    pub fn find_nodes(&self, pod: &Value) -> Option<Vec<String>> {
        let found = is_pending(pod).then(|| self.attempt_pod(pod, &self.take_snapshot()))?;
        Some(found.map(|found| found.nodes).unwrap_or_default())
    }

    /// Returns `true` if this node, which does not exist yet, would take a pod.
    pub(super) fn would_take(&self, node: &Value, pod: &Value) -> bool {
        let Ok(node) = serde_json::from_value::<core::Node>(node.clone()) else { return false };
        let details = NodeDetails::from(&node);
        let mut snapshot = self.take_snapshot();
        snapshot.nodes = vec![(node, details)];
        self.attempt_pod(pod, &snapshot).is_some_and(|found| !found.nodes.is_empty())
    }

    /// The labels that a pod had at the latest attempt.
    fn labels_tried(&self, pod: &Value) -> Option<&Value> {
        self.attempts.get(pod["metadata"]["uid"].as_str()?)
    }

    pub(super) fn take_snapshot(&self) -> Snapshot<'_> {
        let nodes = self.store.all("Node").filter_map(|node| {
            let node: core::Node = serde_json::from_value(node.clone()).ok()?;
            let details = NodeDetails::from(&node);
            Some((node, details))
        });
        let placed = self.store.all("Pod").filter(|pod| !has_ended(pod)).filter_map(|pod| {
            let node = Id::new("Node", "", pod["spec"]["nodeName"].as_str()?);
            let host = self.store.get(&node)?["metadata"]["labels"][HOSTNAME].as_str();
            Some(Subject { host, ..Subject::of(pod)? })
        });
        let is_nominated =
            |pod: &&Value| is_pending(pod) && !pod["status"]["nominatedNodeName"].is_null();
        let nominated = self.store.all("Pod").filter(is_nominated).filter_map(Subject::of);
        Snapshot {
            nodes: nodes.collect(),
            placed: placed.collect(),
            nominated: nominated.collect(),
        }
    }

    /// `None`: the scheduler does not look at the pod.
    fn attempt_pod(&self, pod: &Value, snapshot: &Snapshot<'_>) -> Option<Found> {
        let subject = Subject::of(pod)?;
        let Snapshot { nodes, placed, .. } = snapshot;
        // The first pod of a group has none to be with, and may go anywhere.
        let is_first = !subject.toward.is_empty()
            && subject.is_toward(pod)
            && !placed.iter().any(|other| other.host.is_some() && subject.is_toward(other.pod));
        // kubernetes#141354: a pod that waited for pods that were deleted is not woken by their deletion.
        let was_beside = pod["status"]["conditions"][0]["message"] == NOT_BESIDE;
        let last = self.labels_tried(pod);
        if is_first && was_beside && last.is_some_and(|of| *of == pod["metadata"]["labels"]) {
            return None;
        }
        let is_unnamed = |node: &core::Node| label(&node.metadata, HOSTNAME).is_none();
        let may_begin = is_first && !nodes.iter().any(|(node, _)| is_unnamed(node));
        let fitting = nodes.iter().filter(|node| self.fits(&subject, node, snapshot, is_first));
        let mut fitting: Vec<_> = fitting.collect();
        fitting.sort_by_key(|(node, details)| !is_preferred(&subject.spec, node, details));
        Some(Found {
            nodes: fitting.iter().filter_map(|(node, _)| node.metadata.name.clone()).collect(),
            message: match subject.toward.is_empty() || may_begin {
                true => "no node has room",
                false => NOT_BESIDE,
            },
        })
    }

    pub(super) fn fits(
        &self,
        subject: &Subject<'_>,
        (node, details): &(core::Node, NodeDetails),
        Snapshot { placed, nominated, .. }: &Snapshot<'_>,
        is_first: bool,
    ) -> bool {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let own_label = |key: &str| details.labels.get(key).map(AsRef::as_ref);
        let is_selected_by = |terms: &[core::NodeSelectorTerm]| {
            selector::may_select(terms, Some(name), |key| Some(own_label(key)))
        };
        let may_mount = |terms: &[core::NodeSelectorTerm]| {
            selector::may_select(terms, None, |key| Some(own_label(key)))
        };
        let Subject { spec, .. } = subject;
        let tolerations = spec.tolerations.as_deref().unwrap_or_default();
        let is_tolerated = |(key, value, effect): (&str, &str, &str)| {
            effect == "PreferNoSchedule"
                || tolerations.iter().any(|one| tolerates(one, key, value, effect))
        };
        let mut taints = details.taints.iter().map(|of| (&*of.key, &*of.value, &*of.effect));
        let mut selector = spec.node_selector.iter().flatten();
        let there = || placed.iter().filter(|other| other.pod["spec"]["nodeName"] == *name);
        let is_kept = |other: &&Subject<'_>| {
            let of = |pod: &Value| pod["metadata"]["uid"].clone();
            other.pod["status"]["nominatedNodeName"] == *name && of(other.pod) != of(subject.pod)
        };
        let host = own_label(HOSTNAME);
        let beside = || placed.iter().filter(|other| host.is_some() && other.host == host);
        // A node that is NotReady is recognized by its taints alone.
        (!details.cordoned || tolerates_cordon(tolerations))
            && taints.all(is_tolerated)
            && selector.all(|(key, value)| own_label(key) == Some(value.as_str()))
            && required_node_terms(spec.affinity.as_ref()).is_none_or(is_selected_by)
            && claims(spec).all(|claim| self.can_mount(subject, claim, placed, &may_mount))
            && has_room(node, details, subject, there().chain(nominated.iter().filter(is_kept)))
            && (subject.toward.is_empty()
                || host.is_some()
                    && (is_first || beside().any(|other| subject.is_toward(other.pod))))
            && !beside().any(|other| subject.is_away(other.pod) || other.is_away(subject.pod))
    }

    /// Returns `true` if a pod can mount a claim where a node matches the terms of the claim's volume.
    fn can_mount(
        &self,
        subject: &Subject<'_>,
        name: &str,
        placed: &[Subject<'_>],
        is_selected_by: &dyn Fn(&[core::NodeSelectorTerm]) -> bool,
    ) -> bool {
        let namespace = &subject.pod["metadata"]["namespace"];
        let id = Id::new("PersistentVolumeClaim", namespace.as_str().unwrap_or_default(), name);
        let Some(claim) = self.store.get(&id) else { return false };
        if claim["status"]["phase"] == "Lost" || !claim["metadata"]["deletionTimestamp"].is_null() {
            return false;
        }
        let is_for_one = |modes: &Vec<Value>| modes.iter().any(|mode| mode == "ReadWriteOncePod");
        let mounts = |other: &Subject<'_>| {
            other.pod["metadata"]["uid"] != subject.pod["metadata"]["uid"]
                && other.pod["metadata"]["namespace"] == *namespace
                && claims(&other.spec).any(|of| of == name)
        };
        if claim["spec"]["accessModes"].as_array().is_some_and(is_for_one)
            && placed.iter().any(mounts)
        {
            return false;
        }
        let Some(volume) = claim["spec"]["volumeName"].as_str() else { return true };
        let volume = self.store.get(&Id::new("PersistentVolume", "", volume));
        let Some(volume) = volume else { return false };
        let terms = &volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
        terms.is_null()
            || serde_json::from_value::<Vec<_>>(terms.clone())
                .is_ok_and(|terms| is_selected_by(&terms))
    }

    pub(super) fn bind(&mut self, pod: &Id, node: &str) {
        self.provision(pod, node);
        let now = self.store.timestamp();
        if let Some(mut pod) = self.store.edit(pod) {
            pod["spec"]["nodeName"] = json!(node);
            pod["status"]["phase"] = json!("Pending");
            pod["status"]["conditions"] = json!([{
                "type": "PodScheduled", "status": "True", "lastTransitionTime": now,
            }]);
        }
    }

    /// Makes the volumes of the claims that a pod mounts and that have none, if its node has a zone: in that zone.
    fn provision(&mut self, pod: &Id, node: &str) {
        let zone =
            self.store.get(&Id::new("Node", "", node)).map(|of| &of["metadata"]["labels"][ZONE]);
        let (Some(Value::String(zone)), Some(pod_now)) = (zone, self.store.get(pod)) else {
            return;
        };
        let is_there = json!({"key": ZONE, "operator": "In", "values": [zone]});
        let required = json!({"nodeSelectorTerms": [{"matchExpressions": [is_there]}]});
        let volumes = pod_now["spec"]["volumes"].as_array().cloned().unwrap_or_default();
        for volume in volumes {
            let Some(claim) = volume["persistentVolumeClaim"]["claimName"].as_str() else {
                continue;
            };
            let claim = Id::new("PersistentVolumeClaim", &pod.namespace, claim);
            let Some(mut claim) = self.store.edit(&claim) else { continue };
            if !claim["spec"]["volumeName"].is_null() {
                continue;
            }
            let name = format!("pvc-{}", claim["metadata"]["uid"].as_str().unwrap_or_default());
            claim["spec"]["volumeName"] = json!(name);
            claim["status"]["phase"] = json!("Bound");
            drop(claim);
            // There is none of this name.
            let _ = self.store.create(json!({
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
                "spec": {"nodeAffinity": {"required": required}},
            }));
        }
    }

    pub(super) fn reject(&mut self, id: &Id) {
        let Some(pod) = self.store.get(id) else { return };
        let found = self.attempt_pod(pod, &self.take_snapshot());
        let Some(Found { message, .. }) = found else { return };
        let (uid, labels) = (&pod["metadata"]["uid"], pod["metadata"]["labels"].clone());
        self.attempts.insert(uid.as_str().unwrap_or_default().to_owned(), labels);
        let last = &pod["status"]["conditions"][0];
        // An attempt that fails ends a nomination.
        let is_nominated = !pod["status"]["nominatedNodeName"].is_null();
        if last["status"] == "False" && last["message"] == message && !is_nominated {
            return;
        }
        let since = match last["status"] == "False" {
            true => last["lastTransitionTime"].clone(),
            false => json!(self.store.timestamp()),
        };
        if let Some(mut pod) = self.store.edit(id) {
            pod["status"]["phase"] = json!("Pending");
            pod["status"]["nominatedNodeName"] = Value::Null;
            pod["status"]["conditions"] = json!([{
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": message, "lastTransitionTime": since,
            }]);
        }
    }
}

/// Returns `true` if a node matches each preferred term of the node affinity. The scheduler chooses such a node
/// if all else is equal.
fn is_preferred(spec: &core::PodSpec, node: &core::Node, details: &NodeDetails) -> bool {
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let terms = affinity
        .and_then(|affinity| {
            affinity.preferred_during_scheduling_ignored_during_execution.as_deref()
        })
        .unwrap_or_default();
    let name = node.metadata.name.as_deref().unwrap_or_default();
    terms.iter().all(|term| {
        selector::may_select(std::slice::from_ref(&term.preference), Some(name), |key| {
            Some(details.labels.get(key).map(AsRef::as_ref))
        })
    })
}

/// Returns `true` if the scheduler looks for a node for a pod.
pub(super) fn is_pending(pod: &Value) -> bool {
    let gates = pod["spec"]["schedulingGates"].as_array();
    pod["spec"]["nodeName"].is_null()
        && gates.is_none_or(Vec::is_empty)
        && pod["metadata"]["deletionTimestamp"].is_null()
        && !has_ended(pod)
}

pub(super) fn has_ended(pod: &Value) -> bool {
    let phase = &pod["status"]["phase"];
    phase == "Succeeded" || phase == "Failed"
}

/// Returns `true` if a node has room for a pod beside those that are there. A node that states no allocatable
/// resources always has.
fn has_room<'s>(
    node: &core::Node,
    details: &NodeDetails,
    subject: &Subject<'_>,
    there: impl Iterator<Item = &'s Subject<'s>>,
) -> bool {
    if node.status.as_ref().is_none_or(|status| status.allocatable.is_none()) {
        return true;
    }
    let (mut free, mut count) = (details.allocatable.clone(), 0);
    for other in there {
        free = free.minus(&other.requests);
        count += 1;
    }
    count < details.pod_limit && free.covers(&subject.requests)
}

/// Returns `true` if a term of the affinity or anti-affinity of `owner` selects `other`. stowplan writes only
/// terms about pods of the same namespace on the same node.
fn selects(term: &core::PodAffinityTerm, owner: &Value, other: &Value) -> bool {
    let labels = &other["metadata"]["labels"];
    owner["metadata"]["namespace"] == other["metadata"]["namespace"]
        && term.label_selector.as_ref().is_some_and(|selector| is_selected(selector, labels))
}

fn is_selected(selector: &LabelSelector, labels: &Value) -> bool {
    let mut equal = selector.match_labels.iter().flatten();
    let mut expressions = selector.match_expressions.iter().flatten();
    equal.all(|(key, value)| labels[key] == **value)
        && expressions.all(|of| {
            let own = labels.get(&of.key);
            let is_among = of.values.iter().flatten().any(|value| own == Some(&json!(value)));
            match of.operator.as_str() {
                "In" => is_among,
                "NotIn" => !is_among,
                "Exists" => own.is_some(),
                "DoesNotExist" => own.is_none(),
                _ => false,
            }
        })
}
