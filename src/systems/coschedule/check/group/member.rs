//! Why a pod of a group is not on the node of its placeholder.

use k8s_openapi::api::core::v1::Pod;

use super::{Facts, wait_a_moment};
use crate::kubernetes::{is_finished, node_name};
use crate::systems::check::cluster::first_obstacle;
use crate::systems::check::words::of_pod;
use crate::systems::check::{Diagnosis, gates};
use crate::systems::coschedule::kinds::CoscheduleView as _;
use crate::systems::coschedule::reconcile::{self, Next, Step, Why};
use crate::systems::coschedule::resources::TASK_RUN;
use crate::systems::fit::{self, Joining, Obstacle, Question};
use crate::view::{Name, Owner};

impl Facts<'_> {
    /// A pod of the group.
    pub(in crate::systems::coschedule::check) fn diagnose_member(&self, pod: &Pod) -> Diagnosis {
        let mut diagnosis = of_pod(pod, &self.name.namespace, self.cluster);
        if node_name(pod).is_none() && !is_finished(pod) {
            gates::report_foreign(&mut diagnosis, pod);
            self.report_outside(&mut diagnosis, pod);
        }
        diagnosis
    }

    /// Reports why a waiting pod is not beside the placeholder, and what the controller does with it.
    /// Reports nothing if the pod waits for the placeholder.
    pub(super) fn report_outside(&self, diagnosis: &mut Diagnosis, pod: &Pod) {
        let namespace = &self.name.namespace;
        let name = Name::new(namespace, pod.metadata.name.as_deref().unwrap_or_default());
        let mut steps = self.explained.iter().flat_map(|explained| &explained.members);
        match steps.find(|(member, _)| *member == name).map(|(_, step)| step) {
            Some(Step::Admit(Some(node))) => diagnosis
                .decided
                .push(format!("the controller lifts its gate and binds it to node {node}")),
            Some(Step::Admit(None)) => {
                diagnosis.decided.push("the controller lifts its gate".to_owned());
            }
            Some(Step::Wake) => diagnosis
                .decided
                .push("the controller lets the scheduler look at it again".to_owned()),
            Some(Step::Nominate(Some(node))) => diagnosis.decided.push(format!(
                "the controller keeps room for it on node {node}, and its placeholder gives up as much"
            )),
            Some(Step::Nominate(None)) => diagnosis.decided.push(
                "the controller gives up the room that the scheduler keeps for it elsewhere".to_owned(),
            ),
            Some(Step::Release(why)) => {
                let owner = Owner::of_any(&pod.metadata);
                let owner = owner.map_or_else(|| "owner".to_owned(), |(kind, _)| kind.to_string());
                return diagnosis.report(
                    format!("{why}: the controller deletes it, and its {owner} creates it again"),
                    wait_a_moment(),
                );
            }
            Some(Step::Strand(_, why)) => {
                let delete = format!("kubectl delete pod {} -n {namespace}", name.name);
                let remedy = match Owner::of_any(&pod.metadata) {
                    Some((kind, _)) => format!("{delete}: its {kind} creates it again"),
                    None => format!("{delete}, and create it again: it has no controller"),
                };
                return diagnosis.report(why, remedy);
            }
            None => {}
        }
        let Some(candidate) = self.node().and_then(|node| self.cluster.candidate(node)) else {
            return;
        };
        let member = self.cluster.view.member(&name);
        let details = member.and_then(|member| member.details.as_deref());
        let of = |pod| reconcile::joining(pod, &name.namespace, &[], &self.cluster.view);
        let Joining { needs, volumes } = details.map(of).unwrap_or_default();
        let node = candidate.name;
        let question = Question { volumes: Some(&volumes), ..Question::new(candidate, &needs) };
        let found = first_obstacle(&question, fit::JOIN);
        let Some(found) = found.filter(|_| self.closed(node).is_none()) else { return };
        if found.is_chosen_by_pod() {
            diagnosis.report(
                format!("its own node selector or node affinity does not match node {node}, where its group is"),
                format!("ask for nodes {}", for_all_pods(pod)),
            );
        } else if let Obstacle::Volume { claim, .. } = found {
            diagnosis.report(
                format!("node {node}, where its group is, {found}"),
                format!("use a claim instead of {claim} whose volume the group's other claims share a node with, or leave {claim} to another task"),
            );
        } else if found.is_lack_of_capacity() {
            let what = format!("node {node}, where its group is, {found}");
            diagnosis.report(what, self.remedy_for_full(node));
        } else {
            diagnosis.report(
                format!("node {node}, where its group is, {found}, which it does not tolerate"),
                format!("give the same tolerations {}", for_all_pods(pod)),
            );
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
            _ => None,
        };
        if let Some(remedy) = waits.filter_map(of_wait).next() {
            return remedy;
        }
        let leaves = match self.explained.as_ref().map(|explained| &explained.next) {
            Some(Next::Rewrite(plan)) => plan.is_to_leave(self.plan(), node),
            Some(Next::Recreate { .. }) => true,
            _ => false,
        };
        if !leaves {
            return format!("free room on node {node}, or let it request less");
        }
        format!(
            "wait: after {} the controller moves the group to a node with room; if there is none, free or add one",
            self.policy.coschedule.grace_period
        )
    }
}

/// Where to write the requirements of all pods of a group.
fn for_all_pods(pod: &Pod) -> String {
    let alike = "for all pods of the group alike";
    match Owner::of_any(&pod.metadata) {
        Some((kind, _)) if &*kind == TASK_RUN.kind => {
            "for all tasks of the group alike, in the run's pod template".to_owned()
        }
        // As a rule it has the template of a Deployment.
        Some((kind, owner)) if &*kind == "ReplicaSet" => {
            format!("{alike}, in the pod template of what made {kind} {}", owner.name)
        }
        Some((kind, owner)) => format!("{alike}, in the pod template of {kind} {}", owner.name),
        None => alike.to_owned(),
    }
}
