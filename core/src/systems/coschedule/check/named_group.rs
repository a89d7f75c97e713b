//! Explains why the pods of a group that an annotation names wait.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;

use super::group::CheckedGroup;
use crate::kubernetes::{annotation, is_finished, label, node_name};
use crate::systems::check::words::counted;
use crate::systems::check::{Cluster, Context, Diagnosis};
use crate::systems::coschedule::keys;
use crate::systems::coschedule::native::parse_group;
use crate::view::Name;

/// The kind of the diagnosis: a group is no object of Kubernetes.
const KIND: &str = "Group";

/// Finds the groups that pods name, or that have a placeholder.
pub(super) fn find_all(context: &Context<'_>) -> BTreeSet<Name> {
    let Cluster { pods, view, .. } = context.cluster;
    let members = pods.iter().filter(|pod| label(&pod.metadata, keys::MEMBER).is_some());
    let of_pods = members.filter_map(|Pod { metadata, .. }| {
        Some(Name::new(metadata.namespace.as_deref()?, annotation(metadata, keys::GROUP)?))
    });
    let of_placeholders = view
        .placeholders()
        .filter_map(|(name, made)| Some(Name::new(&name.namespace, made.group.as_deref()?)));
    of_pods.chain(of_placeholders).collect()
}

/// Explains why the pods of a group wait. `None`: no pod names it, and it has no placeholder.
pub(super) fn diagnose(context: &Context<'_>, key: &Name) -> Option<Diagnosis> {
    let Name { namespace, name } = key;
    let cluster = context.cluster;
    let placeholder = Name::new(namespace, &parse_group(namespace, name).ok()?);
    let is_named = |pod: &&Pod| annotation(&pod.metadata, keys::GROUP) == Some(&**name);
    let mut pods: Vec<&Pod> = cluster.in_namespace(namespace).filter(is_named).collect();
    pods.sort_by_key(|pod| pod.metadata.name.as_deref());
    let checked = CheckedGroup::new(context, &placeholder, None);
    if pods.is_empty() && !checked.is_made() {
        return None;
    }
    let mut diagnosis = Diagnosis::new(KIND, key);
    diagnosis.asked.push(format!("one node for {}", counted(pods.len(), "pod")));
    let mut part = checked.placeholder();
    let is_waiting = |pod: &&&Pod| node_name(pod).is_none() && !is_finished(pod);
    let waiting = pods.iter().find(is_waiting).and_then(|pod| pod.metadata.name.as_deref());
    let creates = checked.explained.as_ref().is_some_and(|explained| explained.creates);
    if let Some(waiting) = waiting.filter(|_| creates && !checked.is_made()) {
        checked.report_missing(&mut part, "pod", waiting);
    }
    part.parts.extend(checked.claim_parts());
    diagnosis.placed.clone_from(&part.placed);
    diagnosis.parts.push(part);
    for pod in pods {
        let is_member = label(&pod.metadata, keys::MEMBER) == Some(&*placeholder.name);
        let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
        diagnosis.parts.push(match is_member {
            true => checked.diagnose_member(pod),
            // It was admitted without the group, or has its node for another reason.
            false => (context.pods.diagnose)(context, &Name::new(namespace, pod_name), pod),
        });
    }
    Some(diagnosis)
}
