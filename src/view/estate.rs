//! What the controller keeps of nodes and pods beyond what a decision asks for: what it writes, what
//! keeps it from writing, and the versions by which an old answer is told from a new one.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeMap;

use super::host_pool::{EXCLUSIVE_TAINT, POOL_LABEL_PREFIX};
use super::resources::{Resources, thousandths};
use super::streams_pod::{
    APP, APP_VALUE, COLOCATION_PREFIX, GROUP, JOB, PROCESSING_ELEMENT, woken,
};

/// Who an object is, and which version of it this is.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Identity {
    /// `metadata.uid`. Empty where the object comes from a file that has none.
    pub uid: Box<str>,
    /// `metadata.resourceVersion` as it is: what a write that must not be late is bound to.
    pub resource_version: Box<str>,
    /// `metadata.generation`, 0 where it has none.
    pub generation: i64,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// Whether it is about to go.
    pub deleting: bool,
}

impl Identity {
    /// Whether `other` is the same object in a later version. Versions are compared as numbers
    /// (Kubernetes 1.35 promises that they are); ones that are none are taken as they come.
    #[must_use]
    pub fn is_older_than(&self, other: &Self) -> bool {
        let version = |identity: &Self| identity.resource_version.parse::<u64>().ok();
        self.uid == other.uid
            && match (version(self), version(other)) {
                (Some(own), Some(other)) => own < other,
                _ => false,
            }
    }
}

impl From<&ObjectMeta> for Identity {
    fn from(metadata: &ObjectMeta) -> Self {
        Self {
            uid: metadata.uid.as_deref().unwrap_or_default().into(),
            resource_version: metadata.resource_version.as_deref().unwrap_or_default().into(),
            generation: metadata.generation.unwrap_or_default(),
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
            deleting: metadata.deletion_timestamp.is_some(),
        }
    }
}

/// A node as who writes it must know it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NodeEstate {
    /// Who it is.
    pub identity: Identity,
    /// All of its labels.
    pub labels: BTreeMap<Box<str>, Box<str>>,
    /// Its taints, in order: a patch names them by their place.
    pub taints: Box<[Taint]>,
    /// `spec.unschedulable`.
    pub cordoned: bool,
    /// Whether its condition Ready is True.
    pub ready: bool,
    /// Since when its condition Ready is what it is.
    pub ready_since: Option<Timestamp>,
    /// What pods may take of it.
    pub allocatable: Resources,
    /// How many pods it may have.
    pub pod_limit: usize,
}

/// A taint.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Taint {
    /// Its key.
    pub key: Box<str>,
    /// Its value; empty where it has none.
    pub value: Box<str>,
    /// NoSchedule, PreferNoSchedule or NoExecute.
    pub effect: Box<str>,
    /// When it was added, where that was written.
    pub since: Option<Timestamp>,
}

impl From<&core::Node> for NodeEstate {
    fn from(node: &core::Node) -> Self {
        let spec = node.spec.as_ref();
        let taints = spec.and_then(|spec| spec.taints.as_ref()).into_iter().flatten();
        let status = node.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
        let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready");
        let allocatable = status.and_then(|status| status.allocatable.as_ref());
        let pods = allocatable.and_then(|amounts| amounts.get("pods"));
        let pods = pods.and_then(|amount| thousandths(&amount.0)).map(|amount| amount / 1000);
        Self {
            identity: Identity::from(&node.metadata),
            labels: node
                .metadata
                .labels
                .iter()
                .flatten()
                .map(|(key, value)| (key.as_str().into(), value.as_str().into()))
                .collect(),
            taints: taints
                .map(|taint| Taint {
                    key: taint.key.as_str().into(),
                    value: taint.value.as_deref().unwrap_or_default().into(),
                    effect: taint.effect.as_str().into(),
                    since: taint.time_added.as_ref().map(|time| time.0),
                })
                .collect(),
            cordoned: spec.and_then(|spec| spec.unschedulable).unwrap_or_default(),
            ready: ready.is_some_and(|condition| condition.status == "True"),
            ready_since: ready
                .and_then(|condition| condition.last_transition_time.as_ref())
                .map(|time| time.0),
            allocatable: Resources::read(allocatable),
            pod_limit: pods.and_then(|pods| usize::try_from(pods).ok()).unwrap_or_default(),
        }
    }
}

/// A pod as who reconciles must know it: one of a Streams job, or one that asks for a pool's hosts.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PodEstate {
    /// Who it is.
    pub identity: Identity,
    /// Whether it is a Streams pod: only those count against an exclusive pool.
    pub streams: bool,
    /// The label `streams.ibm.com/job`.
    pub job: Option<Box<str>>,
    /// The label `streams.ibm.com/pe`.
    pub processing_element: Option<Box<str>>,
    /// The node it is bound to.
    pub node: Option<Box<str>>,
    /// Whether it has ended.
    pub finished: bool,
    /// Which members of which pools its required node affinity asks for: the pool's hash, and the
    /// index where it names one.
    pub pools: Box<[(Box<str>, Option<u32>)]>,
    /// The pools, by hash, whose taint it tolerates by name.
    pub tolerates: Box<[Box<str>]>,
    /// Its colocation labels, key and value: tokens, and the group of a StreamsJob.
    pub groups: Box<[(Box<str>, Box<str>)]>,
    /// Since when the scheduler has found no node for it.
    pub unschedulable_since: Option<Timestamp>,
    /// The label `stowplan.dev/wake`: when it was last woken, in seconds since 1970.
    pub woken: Option<i64>,
    /// `spec.schedulerName`.
    pub scheduler: Box<str>,
    /// Its controller: kind and name.
    pub controller: Option<(Box<str>, Box<str>)>,
}

impl PodEstate {
    /// Reads a pod. `None`: it is neither a Streams pod nor asks for a pool's hosts.
    #[must_use]
    pub fn read(pod: &core::Pod) -> Option<Self> {
        let labels = pod.metadata.labels.as_ref();
        let label = |key: &str| labels.and_then(|labels| labels.get(key)).map(String::as_str);
        let streams = label(JOB).is_some() || label(APP) == Some(APP_VALUE);
        let spec = pod.spec.as_ref();
        let pools = spec.map(pools).unwrap_or_default();
        let tolerates: Box<[Box<str>]> = spec
            .and_then(|spec| spec.tolerations.as_ref())
            .into_iter()
            .flatten()
            .filter(|toleration| toleration.key.as_deref() == Some(EXCLUSIVE_TAINT))
            .filter_map(|toleration| toleration.value.as_deref().map(Into::into))
            .collect();
        if !streams && pools.is_empty() && tolerates.is_empty() {
            return None;
        }
        let status = pod.status.as_ref();
        let unschedulable = status
            .and_then(|status| status.conditions.as_ref())
            .into_iter()
            .flatten()
            .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")
            .filter(|condition| condition.reason.as_deref() == Some("Unschedulable"));
        Some(Self {
            identity: Identity::from(&pod.metadata),
            streams,
            job: label(JOB).map(Into::into),
            processing_element: label(PROCESSING_ELEMENT).map(Into::into),
            node: spec.and_then(|spec| spec.node_name.as_deref()).map(Into::into),
            finished: matches!(
                status.and_then(|status| status.phase.as_deref()),
                Some("Succeeded" | "Failed")
            ),
            pools,
            tolerates,
            groups: labels
                .into_iter()
                .flatten()
                .filter(|(key, _)| key.starts_with(COLOCATION_PREFIX) || *key == GROUP)
                .map(|(key, value)| (key.as_str().into(), value.as_str().into()))
                .collect(),
            unschedulable_since: unschedulable
                .and_then(|condition| condition.last_transition_time.as_ref().map(|time| time.0)),
            woken: woken(pod),
            scheduler: spec
                .and_then(|spec| spec.scheduler_name.as_deref())
                .unwrap_or("default-scheduler")
                .into(),
            controller: pod
                .metadata
                .owner_references
                .iter()
                .flatten()
                .find(|owner| owner.controller == Some(true))
                .map(|owner| (owner.kind.as_str().into(), owner.name.as_str().into())),
        })
    }
}

fn pools(spec: &core::PodSpec) -> Box<[(Box<str>, Option<u32>)]> {
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    let terms = required.map(|required| required.node_selector_terms.as_slice());
    let mut pools: Vec<(Box<str>, Option<u32>)> = Vec::new();
    for term in terms.unwrap_or_default() {
        for requirement in term.match_expressions.iter().flatten() {
            let Some(hash) = requirement.key.strip_prefix(POOL_LABEL_PREFIX) else { continue };
            let mut ask = |index| {
                let asked = (hash.into(), index);
                if !pools.contains(&asked) {
                    pools.push(asked);
                }
            };
            match requirement.operator.as_str() {
                "Exists" => ask(None),
                "In" => requirement
                    .values
                    .iter()
                    .flatten()
                    .filter_map(|value| value.parse().ok())
                    .for_each(|index| ask(Some(index))),
                _ => {}
            }
        }
    }
    pools.into()
}
