//! Diagnoses for `check`: what a pod's NUMA affinity asks for and whether a NUMA node is feasible, and the
//! NUMA nodes of a node.

use k8s_openapi::api::core::v1::Pod;

use super::explain::{BUILDS, Shown, draw_pods, first_pod};
use super::keys::LEADER_OF;
use super::machines::find_unusable;
use super::policy::KatalystMode;
use crate::kubernetes::annotation;
use crate::systems::check::{Context, NodeReport, PodReport};
use crate::view::Name;

/// Diagnoses the NUMA affinity of a pod.
pub(super) fn check_pod(context: &Context<'_>, name: &Name, pod: &Pod) -> PodReport {
    let mut report = PodReport::default();
    let view = &context.cluster.view;
    let policy = &context.policy.katalyst;
    let Some(own) = view.numa_pod(name).filter(|_| policy.mode != KatalystMode::Disabled) else {
        return report;
    };
    let decided = &mut report.unfinished.decided;
    if let Some(affinity) = annotation(&pod.metadata, LEADER_OF) {
        decided.push(format!("first pod of its group: it started without its affinity {affinity}"));
    }
    if !own.has_selectors() || !own.qos.takes_part() {
        return report;
    }
    decided.push(match policy.mode {
        KatalystMode::Enforced => {
            "the policy says that the nodes enforce its NUMA affinity".to_owned()
        }
        _ => format!("the nodes may not enforce its NUMA affinity: {BUILDS}"),
    });
    if own.node.is_some() {
        return report;
    }
    if view.topologies().is_empty() {
        report.pending.report(
            "no node has a CustomNodeResource, so it is not known which NUMA nodes are feasible",
            "see that Katalyst's agents run: kubectl get customnoderesources",
        );
        return report;
    }
    let shown = Shown::new(view, policy, own);
    report.pending.decided.extend(shown.lines());
    let first = first_pod(policy, own);
    let starts = shown.feasible() > 0 || (first.is_some() && shown.is_open_to_the_first());
    report.pending.decided.extend(first);
    if !starts {
        let what = "no NUMA node is feasible for it";
        let remedy = match shown.lacks_only_mates() {
            true => "start a pod that its affinity asks for",
            false => {
                "end the pods that are named, or create it again with another NUMA affinity; a pod that Katalyst's agents have not reported yet is not counted here"
            }
        };
        match policy.mode {
            KatalystMode::Enforced => report.pending.report(what, remedy),
            _ => report.pending.decided.push(what.to_owned()),
        }
    }
    report
}

/// The NUMA nodes of a node, with the pods on each.
pub(super) fn check_node(context: &Context<'_>, node: &str) -> NodeReport {
    let view = &context.cluster.view;
    let policy = &context.policy.katalyst;
    let mut report = NodeReport::default();
    let topology = view.topology(node).filter(|_| policy.mode != KatalystMode::Disabled);
    let Some(topology) = topology else { return report };
    report.decided.extend(draw_pods(view, topology));
    if let Some(why) = find_unusable(topology, policy) {
        report.decided.push(format!("not for pods with a NUMA affinity: {why}"));
    } else if !topology.is_strict() {
        report.decided.push(
            "its kubelet admits a pod for which no NUMA node is feasible (topology policy)"
                .to_owned(),
        );
    }
    if let Some(problem) = &topology.problem {
        report.decided.push(format!("its CustomNodeResource is read without {problem}"));
    }
    report
}
