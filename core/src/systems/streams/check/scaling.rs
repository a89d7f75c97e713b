//! The scaling pods of a StreamsJob or a HostPool that waits for nodes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;

use crate::kubernetes::{is_finished, label, node_name};
use crate::systems::check::words::{counted, scheduler};
use crate::systems::check::{Context, Diagnosis};
use crate::systems::streams::keys::{SCALES_FOR, SCALING};
use crate::view::Name;
use crate::view::resource::STATEFUL_SET;

/// Diagnoses the scaling pods of the object with this UID: a part for each of their StatefulSets.
pub(super) fn diagnose(context: &Context<'_>, namespace: &str, uid: &str) -> Vec<Diagnosis> {
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
