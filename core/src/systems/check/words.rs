//! Words that several diagnoses share.

use k8s_openapi::api::core::v1::Pod;

use super::{Cluster, Diagnosis};
use crate::kubernetes::{HOSTNAME, condition, is_finished, label, node_name};
use crate::systems::fit::Obstacle;
use crate::view::node::Taint;

/// The remedy where stowplan's controller has not acted.
pub(crate) const SEE_CONTROLLER: &str =
    "see that stowplan's controller runs: `kubectl get lease -A | grep stowplan`";

/// The most names that a sentence lists.
pub const LISTED: usize = 5;

/// `1 node`, `2 nodes`.
pub fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// The first of several names, and how many more there are.
pub fn some<N: AsRef<str>>(names: &[N]) -> String {
    let listed: Vec<&str> = names.iter().take(LISTED).map(AsRef::as_ref).collect();
    let listed = listed.join(", ");
    match names.len().saturating_sub(LISTED) {
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}

/// `node n1`, `nodes n1, n2`.
pub fn nodes(names: &[&str]) -> String {
    format!("{} {}", if names.len() == 1 { "node" } else { "nodes" }, some(names))
}

/// Returns the remedy for a node that takes no pods, or not those of stowplan.
pub fn node_remedy(obstacle: &Obstacle<'_>, node: &str) -> String {
    match obstacle {
        Obstacle::Cordoned => format!("kubectl uncordon {node}"),
        Obstacle::NoHostname => format!("kubectl label node {node} {HOSTNAME}={node}"),
        Obstacle::Taint(Taint { key, value, effect, .. }) if !is_of_kubernetes(key) => {
            let value = if value.is_empty() { String::new() } else { format!("={value}") };
            format!("kubectl taint node {node} {key}{value}:{effect}-")
        }
        small if small.is_too_small() => {
            "let the pod request less, or add a larger node".to_owned()
        }
        full if full.is_lack_of_capacity() => "free or add a node".to_owned(),
        _ => format!("kubectl describe node {node}"),
    }
}

/// Returns true if Kubernetes sets a taint with this key itself, and removes it with its cause.
pub(super) fn is_of_kubernetes(key: &str) -> bool {
    ["node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"]
        .iter()
        .any(|prefix| key.starts_with(prefix))
}

/// Returns the command that checks the object which a label of the pod names.
pub(crate) fn check_command(kind: &str, key: &str, pod: &Pod) -> String {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    let name = label(&pod.metadata, key).unwrap_or_default();
    format!("stowplan check {kind}/{name} -n {namespace}")
}

/// Returns what the scheduler says of a pod that it has not bound.
pub(crate) fn scheduler(pod: &Pod) -> Option<String> {
    let condition = condition(pod, "PodScheduled").filter(|of| of.status != "True")?;
    let reason = condition.reason.as_deref().unwrap_or_default();
    let message = condition.message.as_deref().unwrap_or_default();
    let since = condition.last_transition_time.as_ref().map(|time| time.0.to_string());
    Some(format!("{reason} since {}: {message}", since.as_deref().unwrap_or("an unknown time")))
}

/// The beginning of the diagnosis of a pod: its node, its end, and what the scheduler and autoscalers say.
pub fn of_pod(pod: &Pod, namespace: &str, cluster: &Cluster) -> Diagnosis {
    let mut diagnosis = Diagnosis {
        kind: "Pod",
        namespace: namespace.to_owned(),
        name: pod.metadata.name.clone().unwrap_or_default(),
        scheduler: scheduler(pod),
        autoscaler: cluster.autoscaler(pod),
        ..Diagnosis::default()
    };
    diagnosis.placed.extend(node_name(pod).map(|node| format!("node {node}")));
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let end = phase.filter(|_| is_finished(pod)).map(|phase| format!("it has ended: {phase}"));
    diagnosis.placed.extend(end);
    diagnosis
}
