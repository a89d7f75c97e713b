//! The table of Streams pods: their colocation labels, their job and their node.

mod pending;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::jiff::Timestamp;

pub(crate) use self::pending::{Named, PendingPod};
use super::host_pool::{EXCLUSIVE_TAINT, FORMER_EXCLUSIVE_TAINT, POOL_LABEL_PREFIX};
use crate::kubernetes;
use crate::systems::wake::woken;
use crate::view::index::Texts;
use crate::view::pod::{PODS, all_for_controller};
use crate::view::rows::TableRow;
use crate::view::table::Watch;
use crate::view::{Identity, Kind, Name, Scope, Table};

/// The label that names a pod's job.
pub const JOB: &str = "streams.ibm.com/job";
/// The label of every Streams pod; its value is [`APP_VALUE`].
pub(crate) const APP: &str = "app";
/// The value of [`APP`] on a Streams pod.
pub(crate) const APP_VALUE: &str = "streams";
/// The prefix of the label key of a colocation token; its SHA-1 follows.
pub const COLOCATION_PREFIX: &str = "streams.ibm.com/hostcolocation.";

/// The label of the pods that a StreamsJob puts on one host; its value names the group.
pub(crate) const GROUP: &str = "stowplan.dev/colocation-group";
/// The label that names a pod's processing element.
pub(crate) const PROCESSING_ELEMENT: &str = "streams.ibm.com/pe";

/// Returns true if a label of this key puts pods on one node.
pub(crate) fn is_colocation_key(key: &str) -> bool {
    key.starts_with(COLOCATION_PREFIX) || key == GROUP
}

/// The colocation labels of a pod (key and value): of tokens, and of the group of a StreamsJob.
fn find_colocation_labels(pod: &core::Pod) -> Box<[(Box<str>, Box<str>)]> {
    let labels = pod.metadata.labels.iter().flatten();
    labels
        .filter(|(key, _)| is_colocation_key(key))
        .map(|(key, value)| (key.as_str().into(), value.as_str().into()))
        .collect()
}

fn is_streams_pod(pod: &core::Pod) -> bool {
    let label = |key: &str| kubernetes::label(&pod.metadata, key);
    label(JOB).is_some() || label(APP) == Some(APP_VALUE)
}

/// The fields of a Streams pod, and of any other pod that asks for the hosts of a pool. Only the
/// controller needs all of them; elsewhere the table keeps the job, the node and the groups.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PodDetails {
    /// True if all fields were read, so that the table keeps them.
    is_complete: bool,
    pub identity: Identity,
    /// True if it is a Streams pod: no other pods prevent a node from becoming exclusive.
    pub streams: bool,
    /// The label `streams.ibm.com/job`.
    pub job: Option<Box<str>>,
    /// The label `streams.ibm.com/pe`.
    pub element: Option<Box<str>>,
    /// The node it is bound to.
    pub node: Option<Box<str>>,
    /// True if its containers have ended, so that it uses none of its node's resources.
    pub finished: bool,
    /// The fields that matter while it has no node.
    pub pending: Option<Box<PendingPod>>,
    /// The pool members that its required node affinity asks for: the pool's hash, and the index if
    /// it asks for one member.
    pub pools: Box<[(Box<str>, Option<u32>)]>,
    /// The hashes of the pools whose taint it tolerates by key and value.
    pub tolerates: Box<[Box<str>]>,
    /// The hashes of the pools whose taint it tolerates by the former key alone, because an earlier release
    /// admitted it.
    pub tolerates_former: Box<[Box<str>]>,
    /// Its colocation labels (key and value): of tokens, and of the group of a StreamsJob.
    pub groups: Box<[(Box<str>, Box<str>)]>,
    /// When it became unschedulable; `None` if it is not.
    pub unschedulable_since: Option<Timestamp>,
    /// The label `stowplan.dev/wake`: when the controller last woke it, in seconds since 1970.
    pub woken: Option<i64>,
}

impl PodDetails {
    /// Returns true if the pod tolerates the taint of the pool with this hash by key and value.
    pub(crate) fn tolerates(&self, hash: &str) -> bool {
        self.tolerates.iter().any(|tolerated| **tolerated == *hash)
    }

    /// Reads the fields that the table keeps everywhere.
    fn read_common(pod: &core::Pod) -> Self {
        Self {
            streams: is_streams_pod(pod),
            job: kubernetes::label(&pod.metadata, JOB).map(Into::into),
            node: kubernetes::node_name(pod).map(Into::into),
            finished: kubernetes::is_finished(pod),
            groups: find_colocation_labels(pod),
            ..Self::default()
        }
    }

    /// Reads all fields of a pod. `None` if it is not a Streams pod and does not ask for a pool's hosts.
    pub(crate) fn read(pod: &core::Pod) -> Option<Self> {
        let common = Self::read_common(pod);
        let pools = find_pools(pod);
        let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_ref());
        let tolerated = |key: &'static str| {
            let tolerations = tolerations.into_iter().flatten();
            tolerations
                .filter(move |toleration| toleration.key.as_deref() == Some(key))
                .filter_map(|toleration| toleration.value.as_deref())
        };
        let current: BTreeSet<&str> = tolerated(EXCLUSIVE_TAINT).collect();
        let former: BTreeSet<&str> = tolerated(FORMER_EXCLUSIVE_TAINT).collect();
        let tolerates: Box<[Box<str>]> =
            current.union(&former).map(|hash| (*hash).into()).collect();
        if !common.streams && pools.is_empty() && tolerates.is_empty() {
            return None;
        }
        let unschedulable = kubernetes::condition(pod, "PodScheduled").filter(|condition| {
            condition.status == "False" && condition.reason.as_deref() == Some("Unschedulable")
        });
        let is_pending = common.node.is_none() && (common.streams || !pools.is_empty());
        Some(Self {
            is_complete: true,
            identity: Identity::from(&pod.metadata),
            element: kubernetes::label(&pod.metadata, PROCESSING_ELEMENT).map(Into::into),
            pending: is_pending.then(|| Box::new(PendingPod::read(pod))),
            pools,
            tolerates,
            tolerates_former: former.difference(&current).map(|hash| (*hash).into()).collect(),
            unschedulable_since: unschedulable
                .and_then(|condition| condition.last_transition_time.as_ref().map(|time| time.0)),
            woken: woken(pod),
            ..common
        })
    }
}

/// The pool members that the pod's required node affinity asks for: the pool's hash, and the index
/// if it asks for one member.
fn find_pools(pod: &core::Pod) -> Box<[(Box<str>, Option<u32>)]> {
    let terms = kubernetes::required_node_terms(kubernetes::affinity(pod));
    let mut pools: Vec<(Box<str>, Option<u32>)> = Vec::new();
    for term in terms.unwrap_or_default() {
        for requirement in term.match_expressions.iter().flatten() {
            let Some(hash) = requirement.key.strip_prefix(POOL_LABEL_PREFIX) else { continue };
            let mut add = |index| {
                let member = (hash.into(), index);
                if !pools.contains(&member) {
                    pools.push(member);
                }
            };
            match requirement.operator.as_str() {
                "Exists" => add(None),
                "In" => requirement
                    .values
                    .iter()
                    .flatten()
                    .filter_map(|value| value.parse().ok())
                    .for_each(|index| add(Some(index))),
                _ => {}
            }
        }
    }
    pools.into()
}

/// The pods of a namespace with one label, key and value, that puts them on one node.
#[derive(Debug, Eq, Hash, PartialEq)]
pub(super) struct Group {
    namespace: Box<str>,
    key: Box<str>,
    value: Box<str>,
}

impl Group {
    pub(super) fn new(namespace: &str, (key, value): (&str, &str)) -> Self {
        Self { namespace: namespace.into(), key: key.into(), value: value.into() }
    }
}

/// The number of pods of one group and one job that run on a node.
#[derive(Debug)]
struct Count {
    job: Option<Arc<str>>,
    node: Arc<str>,
    pods: usize,
}

/// The pod as the table keeps it: its contribution to the counts of its groups, so that it can be
/// subtracted.
#[derive(Debug)]
struct Contribution {
    job: Option<Arc<str>>,
    /// `None` if the pod is not bound yet or has ended.
    node: Option<Arc<str>>,
    groups: Box<[Arc<Group>]>,
    /// All fields, if they were read.
    details: Option<Box<PodDetails>>,
}

/// The table of Streams pods, and the nodes of each colocation group.
#[derive(Debug, Default)]
pub(crate) struct StreamsPods {
    pods: HashMap<Name, Contribution>,
    /// The pods on each node, by colocation group. A group without pods has no entry.
    groups: HashMap<Arc<Group>, Vec<Count>>,
    texts: Texts,
}

impl StreamsPods {
    /// The pods whose details are kept.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Name, &PodDetails)> {
        self.pods.iter().filter_map(|(name, pod)| Some((name, pod.details.as_deref()?)))
    }

    /// The bound Streams pods that have not ended: the name, the job, and the node.
    pub(crate) fn running(&self) -> impl Iterator<Item = (&Name, Option<&str>, &str)> {
        self.pods.iter().filter_map(|(name, pod)| {
            let is_streams = pod.details.as_deref().is_none_or(|details| details.streams);
            let node = pod.node.as_deref().filter(|_| is_streams)?;
            Some((name, pod.job.as_deref(), node))
        })
    }

    /// The nodes that run pods of a colocation group: pods with this label (key and value) and, if
    /// `job` is given, of this job. As for the scheduler, finished pods do not count.
    pub(crate) fn nodes_of_group(
        &self,
        namespace: &str,
        label: (&str, &str),
        job: Option<&str>,
    ) -> BTreeSet<&str> {
        let counts = self.groups.get(&Group::new(namespace, label)).into_iter().flatten();
        counts
            .filter(|count| job.is_none_or(|job| count.job.as_deref() == Some(job)))
            .map(|count| &*count.node)
            .collect()
    }
}

impl TableRow for PodDetails {
    type Object = core::Pod;
    const KIND: &'static Kind = &PODS;
    const COUNTED_AS: Option<&'static str> = Some("pods");

    fn watches(scope: Scope) -> Vec<Watch> {
        if scope != Scope::Admission {
            return all_for_controller(scope);
        }
        // A label selector has no "or", so two selectors that have no pod in common.
        let without_job = format!("{APP}={APP_VALUE},!{JOB}");
        vec![
            Watch { store: "pods of jobs", selector: JOB.into() },
            Watch { store: "pods without a job", selector: without_job.into() },
        ]
    }

    fn from_object(pod: &core::Pod, scope: Scope) -> Option<Self> {
        match scope {
            Scope::Controller => Self::read(pod),
            _ => is_streams_pod(pod).then(|| Self::read_common(pod)),
        }
    }
}

impl Table for StreamsPods {
    type Row = PodDetails;

    fn put(&mut self, name: Name, pod: PodDetails) {
        let job = pod.job.as_deref().map(|job| self.texts.hold(job));
        let node = pod.node.as_deref().filter(|_| !pod.finished);
        let node = node.map(|node| self.texts.hold(node));
        let groups = pod.groups.iter().map(|(key, value)| {
            let group = Group::new(&name.namespace, (key, value));
            let known = self.groups.get_key_value(&group).map(|(group, _)| Arc::clone(group));
            let group = known.unwrap_or_else(|| Arc::new(group));
            let counts = self.groups.entry(Arc::clone(&group)).or_default();
            if let Some(node) = &node {
                match counts.iter_mut().find(|count| count.node == *node && count.job == job) {
                    Some(count) => count.pods += 1,
                    None => {
                        // Nearly every group is on one node.
                        counts.reserve_exact(1);
                        counts.push(Count { job: job.clone(), node: Arc::clone(node), pods: 1 });
                    }
                }
            }
            group
        });
        let groups = groups.collect();
        let details = pod.is_complete.then(|| Box::new(pod));
        self.pods.insert(name, Contribution { job, node, groups, details });
    }

    fn forget(&mut self, name: &Name) {
        let Some(pod) = self.pods.remove(name) else { return };
        let Contribution { job, node, groups, .. } = pod;
        for group in groups {
            let Some(counts) = self.groups.get_mut(&group) else { continue };
            let is_own = |count: &Count| Some(&count.node) == node.as_ref() && count.job == job;
            if let Some(index) = counts.iter().position(is_own) {
                counts[index].pods -= 1;
                if counts[index].pods == 0 {
                    counts.swap_remove(index);
                }
            }
            // Only the map's key and `group` are left: no other pod is in the group.
            if Arc::strong_count(&group) == 2 {
                self.groups.remove(&group);
            }
        }
        self.texts.release(job);
        self.texts.release(node);
    }

    fn count(&self) -> usize {
        self.pods.len()
    }

    fn shows(&self, name: &Name, pod: Option<&PodDetails>) -> bool {
        match (self.pods.get(name), pod) {
            (None, None) => true,
            (Some(Contribution { details: Some(own), .. }), Some(pod)) => **own == *pod,
            _ => false,
        }
    }

    fn version(&self, name: &Name) -> Option<&Identity> {
        Some(&self.pods.get(name)?.details.as_ref()?.identity)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_table_shows_something_else_only_after_a_change_of_what_is_read() {
        let mut pods = StreamsPods::default();
        let row = |job: &str, phase: &str| {
            let labels = json!({"app": "streams", "streams.ibm.com/job": job});
            let pod = json!({"metadata": {"name": "p", "namespace": "ns", "labels": labels},
                "spec": {"containers": []}, "status": {"phase": phase}});
            PodDetails::from_object(&serde_json::from_value(pod).unwrap(), Scope::Controller)
        };
        for (row, has_changed) in [
            (None, false),
            (row("j", "Pending"), true),
            (row("j", "Pending"), false),
            (row("j", "Failed"), true),
            (row("k", "Failed"), true),
            (None, true),
            (None, false),
        ] {
            let text = format!("{row:?}");
            assert_eq!(pods.replace(&Name::new("ns", "p"), row), has_changed, "{text}");
        }
    }
}
