//! Diagnoses for `check`: why a StreamsJob or a HostPool is not ready, and what Streams adds to the diagnosis of
//! a pod, of a pod that asks an autoscaler for a node, and of a node: the pools that have it, and their taints.

mod conditions;
mod job;
mod pod;
mod pool;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, Toleration};

use super::api::host_pool::MemberState;
use super::keys::{EXCLUSIVE_EFFECT, EXCLUSIVE_TAINTS, SCALES_FOR, SCALING};
use crate::kubernetes::{is_finished, label, node_name};
use crate::systems::check::words::{counted, scheduler};
use crate::systems::check::{CheckedKind, Context, Diagnosis, NodeReport};
use crate::view::Name;
use crate::view::node::Taint;
use crate::view::resource::STATEFUL_SET;
pub(super) use pod::check as check_pod;

/// The kinds of objects that Streams diagnoses.
pub(super) const KINDS: &[CheckedKind] = &[
    CheckedKind {
        names: &["job", "streamsjob", "streamsjobs", "sj"],
        missing: "StreamsJob",
        needs_all_pods: false,
        check: job::diagnose,
        find_all: job::find_all,
    },
    CheckedKind {
        names: &["pool", "hostpool", "hostpools", "hp"],
        missing: "HostPool",
        needs_all_pods: false,
        check: pool::diagnose,
        find_all: pool::find_all,
    },
];

/// Returns the command that checks a HostPool.
fn check_pool(pool: &Name) -> String {
    format!("stowplan check pool/{} -n {}", pool.name, pool.namespace)
}

/// Reports the pools that have a node, each with the index of the member, and the taints that keep the pods
/// of others off it.
pub(super) fn check_node(context: &Context<'_>, node: &str) -> NodeReport {
    let view = &context.cluster.view;
    let pools: BTreeMap<_, _> = view.host_pools().collect();
    let mut report = NodeReport::default();
    for (key, pool) in pools {
        let Name { namespace, name } = key;
        for member in &pool.status.members {
            if member.node.as_deref() != Some(node) || member.state == MemberState::Vacant {
                continue;
            }
            let exclusive = if pool.exclusive { ", exclusive" } else { "" };
            let (index, state) = (member.index, member.state);
            report.decided.push(format!(
                "member {index} of HostPool {namespace}/{name}{exclusive}, {state:?}"
            ));
            let Some(hash) = pool.hash.as_deref().filter(|_| pool.exclusive) else { continue };
            let details = view.node(node).and_then(|node| node.details.as_deref());
            let mut taints = details.into_iter().flat_map(|details| &details.taints);
            let own = taints.find(|of| *of.value == *hash && EXCLUSIVE_TAINTS.contains(&&*of.key));
            report.decided.extend(own.map(|Taint { key, .. }| {
                format!(
                    "taint {key}={hash}:{EXCLUSIVE_EFFECT}: only pods of HostPool {namespace}/{name} run here"
                )
            }));
            report.reserved_for = Some((format!("HostPool {namespace}/{name}"), check_pool(key)));
            report.tolerations.extend(EXCLUSIVE_TAINTS.map(|key| Toleration {
                key: Some(key.to_owned()),
                operator: Some("Equal".to_owned()),
                value: Some(hash.to_owned()),
                effect: Some(EXCLUSIVE_EFFECT.to_owned()),
                ..Toleration::default()
            }));
        }
    }
    report
}

/// Diagnoses the scaling pods of the object with this UID: a part for each of their StatefulSets.
fn diagnose_scaling(context: &Context<'_>, namespace: &str, uid: &str) -> Vec<Diagnosis> {
    let mut sets: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    for pod in context.cluster.in_namespace(namespace).filter(|pod| !is_finished(pod)) {
        let set = label(&pod.metadata, SCALING);
        if let Some(set) = set.filter(|_| label(&pod.metadata, SCALES_FOR) == Some(uid)) {
            sets.entry(set).or_default().push(pod);
        }
    }
    let of_set = |(set, mut pods): (&str, Vec<&Pod>)| {
        pods.sort_by_key(|pod| pod.metadata.name.as_deref());
        let mut diagnosis = Diagnosis::new(STATEFUL_SET.kind, &Name::new(namespace, set));
        diagnosis
            .placed
            .extend(pods.iter().copied().filter_map(node_name).map(|node| format!("node {node}")));
        let waiting: Vec<&Pod> = pods.into_iter().filter(|pod| node_name(pod).is_none()).collect();
        if let Some(first) = waiting.first() {
            let pods = counted(waiting.len(), "scaling pod");
            let asks = if waiting.len() == 1 { "asks" } else { "ask" };
            let nodes = if waiting.len() == 1 { "a node" } else { "nodes" };
            diagnosis.decided.push(format!("{pods} {asks} an autoscaler for {nodes}"));
            diagnosis.scheduler = scheduler(first);
            diagnosis.autoscaler = context.cluster.autoscaler(first);
        }
        diagnosis
    };
    sets.into_iter().map(of_set).collect()
}
