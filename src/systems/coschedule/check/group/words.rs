//! Puts what keeps pods of a group out of nodes into sentences, each with its remedy.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;

use super::Facts;
use super::ask::{NodeWhy, Outside, Unplaced};
use super::explain::wait_a_moment;
use crate::kubernetes::{is_finished, node_name};
use crate::systems::check::words::{counted, node_remedy, nodes, of_pod, some};
use crate::systems::check::{Diagnosis, gates};
use crate::systems::coschedule::kinds::placeholder::FIRST;
use crate::systems::coschedule::reconcile::{Step, Why};
use crate::systems::coschedule::resources::TASK_RUN;
use crate::view::{Name, Owner};

const UNKNOWN: &str = "could take it as far as stowplan can see: see what the scheduler says";

impl NodeWhy<'_> {
    pub(super) fn predicate(&self, several: bool) -> String {
        let (be, exist) = if several { ("are", "do not exist") } else { ("is", "does not exist") };
        match self {
            Self::Missing => exist.to_owned(),
            Self::Isolated => format!("{be} used by another run alone"),
            Self::Obstacle(obstacle) => obstacle.predicate(several),
        }
    }

    pub(super) fn remedy(&self, node: &str) -> String {
        match self {
            Self::Missing => format!("kubectl describe node {node}"),
            Self::Isolated => {
                "wait until one of those runs has ended, or add a node (runs are isolated)"
                    .to_owned()
            }
            Self::Obstacle(obstacle) if obstacle.is_lack_of_capacity() => {
                "free or add a node".to_owned()
            }
            Self::Obstacle(obstacle) => node_remedy(obstacle, node),
        }
    }

    /// What helps instead of waiting until a member on the node has ended.
    pub(super) fn instead(&self, node: &str) -> String {
        match self {
            Self::Isolated => String::new(),
            Self::Obstacle(obstacle) if obstacle.is_lack_of_capacity() => {
                format!(", or free room on node {node}")
            }
            Self::Missing | Self::Obstacle(_) => format!(", or {}", self.remedy(node)),
        }
    }
}

fn name_of(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

impl Unplaced<'_> {
    /// Reports it in the diagnosis of the placeholder.
    pub(super) fn report(&self, facts: &Facts<'_>, diagnosis: &mut Diagnosis) {
        let Name { namespace, name } = facts.name;
        let describe_pod = || format!("kubectl describe pod {name}{FIRST} -n {namespace}");
        match self {
            Self::NoNodeMatches { nodes } => diagnosis.report(
                format!(
                    "its node selector and node affinity match none of {}",
                    counted(*nodes, "node")
                ),
                format!(
                    "kubectl get statefulset {name} -n {namespace} -o yaml: they are those of {}, without nodes that were full",
                    facts.source()
                ),
            ),
            Self::VolumesApart([(one, on_one), (other, on_other)]) => diagnosis.report(
                format!(
                    "claim {one} can be used on node {}, claim {other} on node {}: no node reaches both",
                    some(&Vec::from_iter(on_one)),
                    some(&Vec::from_iter(on_other))
                ),
                "use claims of a class that binds with its first pod (WaitForFirstConsumer)",
            ),
            // Without any such node the claim reports it.
            Self::VolumesElsewhere { nodes } if nodes.is_empty() => {}
            Self::VolumesElsewhere { nodes } => diagnosis.report(
                format!(
                    "its volumes can be used on node {} only, which its node selector and node affinity do not match",
                    some(nodes)
                ),
                format!(
                    "let {} ask for nodes that reach the volumes, or use other claims",
                    facts.source()
                ),
            ),
            Self::Unknown { node } => diagnosis.report(format!("node {node} {UNKNOWN}"), describe_pod()),
            Self::NoNode { nodes: refused, claim } => {
                let only = claim.map(|claim| format!("; claim {claim} can be used on no other node"));
                let mut reasons: BTreeMap<String, (&NodeWhy<'_>, Vec<&str>)> = BTreeMap::new();
                for (node, why) in refused {
                    let of_reason = reasons.entry(why.predicate(false));
                    of_reason.or_insert_with(|| (why, Vec::new())).1.push(node);
                }
                for (why, names) in reasons.into_values() {
                    let text = format!("{} {}", nodes(&names), why.predicate(names.len() > 1));
                    diagnosis.report(text + only.as_deref().unwrap_or_default(), why.remedy(names[0]));
                }
            }
        }
    }
}

impl Facts<'_> {
    /// A pod of the group.
    pub(in crate::systems::coschedule::check) fn diagnose_member(&self, pod: &Pod) -> Diagnosis {
        let mut diagnosis = of_pod(pod, &self.name.namespace);
        if node_name(pod).is_none() && !is_finished(pod) {
            gates::report_foreign(&mut diagnosis, pod);
            self.report_outside(&mut diagnosis, pod);
        }
        diagnosis
    }

    /// Reports why a pod is not beside the placeholder, and what the controller does with it.
    pub(super) fn report_outside(&self, diagnosis: &mut Diagnosis, pod: &Pod) {
        match self.step(pod) {
            Some(Step::Admit(node)) => diagnosis
                .decided
                .push(format!("the controller lifts its gate and binds it to node {node}")),
            Some(Step::Wake) => diagnosis
                .decided
                .push("the controller lets the scheduler look at it again".to_owned()),
            Some(Step::Release(_) | Step::Strand(_)) | None => {}
        }
        match self.ask_outside(pod) {
            None => {}
            Some(Outside::Released(why)) => diagnosis.report(
                format!("{why}: the controller deletes it, and its TaskRun creates it again"),
                wait_a_moment(),
            ),
            Some(Outside::Stranded(why)) => {
                diagnosis.report(why, recreate(pod, &self.name.namespace));
            }
            Some(Outside::NotChosen(node)) => diagnosis.report(
                format!("its own node selector or node affinity does not match node {node}, where its group is"),
                format!("ask for nodes {}", for_all_pods(pod)),
            ),
            Some(Outside::Closed(node, why)) => diagnosis.report(
                format!("node {node}, where its group is, {why}, which it does not tolerate"),
                format!("give the same tolerations {}", for_all_pods(pod)),
            ),
            Some(Outside::NoCapacity(node, why)) => diagnosis
                .report(format!("node {node}, where its group is, {why}"), self.remedy_for_full(node)),
        }
    }

    /// What helps a member that does not fit where the placeholder is.
    fn remedy_for_full(&self, node: &str) -> String {
        let waits = self.explained.iter().flat_map(|explained| &explained.waits);
        let of_wait = |why: &Why| match why {
            Why::Members(note) => Some(format!("wait: {note}")),
            Why::Pinned(_, pins) => {
                Some(format!("free room on node {node}, or let it request less: {pins}"))
            }
            Why::NoNodeFits { .. } => {
                Some("no node has room for it: free or add one, or let it request less".to_owned())
            }
            _ => None,
        };
        if let Some(remedy) = waits.filter_map(of_wait).next() {
            return remedy;
        }
        let Some(nodes) = self.moves_to(node) else {
            return format!("free room on node {node}, or let it request less");
        };
        let mut others = self.cluster.candidates().map(|other| other.name);
        let example = others.find(|other| *other != node && nodes.allows(other));
        let example = example.map(|other| format!(", as {other}")).unwrap_or_default();
        format!(
            "wait: after {} the controller moves the group to a node with room{example}",
            self.policy.coschedule.grace_period
        )
    }
}

/// How a pod comes to be admitted anew.
fn recreate(pod: &Pod, namespace: &str) -> String {
    let delete = format!("kubectl delete pod {} -n {namespace}", name_of(pod));
    match Owner::of_any(&pod.metadata) {
        Some((kind, _)) => format!("{delete}: its {kind} creates it again"),
        None => format!("{delete}, and create it again: it has no controller"),
    }
}

/// Where to say what all pods of a group ask for.
fn for_all_pods(pod: &Pod) -> String {
    match Owner::of_any(&pod.metadata) {
        Some((kind, _)) if &*kind == TASK_RUN.kind => {
            "for all tasks of the group alike, in the run's pod template".to_owned()
        }
        // As a rule it has the template of a Deployment.
        Some((kind, owner)) if &*kind == "ReplicaSet" => format!(
            "for all pods of the group alike, in the pod template of what made {kind} {}",
            owner.name
        ),
        Some((kind, owner)) => {
            format!("for all pods of the group alike, in the pod template of {kind} {}", owner.name)
        }
        None => "for all pods of the group alike".to_owned(),
    }
}
