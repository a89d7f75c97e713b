//! Explains why a pod of a group is not on the node of its placeholder.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::Pod;

use super::{CheckedGroup, wait_a_moment};
use crate::kubernetes::{is_finished, node_name, workload};
use crate::systems::check::cluster::first_obstacle;
use crate::systems::check::words::{counted, of_pod, some};
use crate::systems::check::{Diagnosis, gates};
use crate::systems::coschedule::keys;
use crate::systems::coschedule::kinds::Member;
use crate::systems::coschedule::reconcile::{self, Next, Step, Why};
use crate::systems::coschedule::resources::TASK_RUN;
use crate::systems::fit::{self, Before, Candidate, Joining, Obstacle, PodNeeds, Question};
use crate::view::{Name, Owner, Resources};

impl CheckedGroup<'_> {
    /// A pod of the group.
    pub(crate) fn diagnose_member(&self, pod: &Pod) -> Diagnosis {
        let mut diagnosis = of_pod(pod, &self.name.namespace, self.cluster);
        if node_name(pod).is_none() && !is_finished(pod) {
            gates::report_foreign(&mut diagnosis, pod, self.cluster);
            self.report_outside(&mut diagnosis, pod);
        }
        diagnosis
    }

    /// Reports why a waiting pod is not beside the placeholder, and what the controller does with it.
    /// Reports nothing if the pod waits for the placeholder.
    pub(crate) fn report_outside(&self, diagnosis: &mut Diagnosis, pod: &Pod) {
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
            Some(Step::Recreate(why)) => {
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
            let mut what = format!("node {node}, where its group is, {found}");
            let mut remedy = self.remedy_for_full(node);
            // The pods of a group whose work ends need not run at once.
            if let Some(scale) = self.scale_down(node, pod) {
                remedy = scale;
                match self.find_home() {
                    Err(whole) => what += &format!("; {whole}"),
                    Ok(home) => remedy += &self.move_to(home, node),
                }
            }
            diagnosis.report(what, remedy);
        } else {
            diagnosis.report(
                format!("node {node}, where its group is, {found}, which it does not tolerate"),
                format!("give the same tolerations {}", for_all_pods(pod)),
            );
        }
    }

    /// Reports that members keep the group on a node. `instead`: what else helps.
    pub(super) fn report_members(
        &self,
        note: &str,
        node: &str,
        instead: &str,
        diagnosis: &mut Diagnosis,
    ) {
        let lasting = self.lasting(node);
        let Name { namespace, name } = self.name;
        let names: Vec<&str> =
            lasting.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect();
        let (pods, are) = match &*names {
            [] => (None, ""),
            [pod] => (Some((*pod).to_owned()), "it is"),
            [..] if names.len() <= MOST_NAMED => (Some(names.join(" ")), "they are"),
            _ => (Some(format!("-l {}={name}", keys::MEMBER)), "they are"),
        };
        let remedy = match pods {
            None => "wait until that pod has ended".to_owned(),
            Some(pods) => format!(
                "kubectl delete pod {pods} -n {namespace}, so that {are} created again where the group goes"
            ),
        };
        diagnosis.report(note, format!("{remedy}{instead}"));
    }

    /// The pods of the group on a node that do not end by themselves.
    fn lasting(&self, node: &str) -> Vec<&Pod> {
        let view = &self.cluster.view;
        let lasting = view.members_of(self.name).filter(|(_, member)| {
            let details = member.details.as_deref();
            member.place() == Some(node) && details.is_some_and(|details| details.runs_for_ever)
        });
        lasting.filter_map(|(name, _)| self.cluster.pod(&name.namespace, &name.name)).collect()
    }

    /// Says that no node can take the whole group, even with no other pods on it, or else returns another
    /// node that can take it now.
    fn find_home(&self) -> Result<Option<&str>, String> {
        let members = self.cluster.view.members_of(self.name);
        let members: Vec<&Member> =
            members.map(|(_, member)| member).filter(|member| !member.finished).collect();
        let details = members.iter().filter_map(|member| member.details.as_deref());
        let sum = details.fold(Resources::default(), |sum, of| sum.plus(&of.requests));
        let needs = PodNeeds { requests: Some(Cow::Owned(sum)), ..self.needs.clone() };
        let before = Before { pods: members.len().saturating_sub(1), requests: None };
        let (mut lacks, mut home, mut is_possible) = (Vec::new(), None, false);
        for candidate in self.cluster.candidates() {
            let question = Question {
                before,
                volumes: Some(&self.volumes),
                ..Question::new(candidate, &needs)
            };
            if fit::first_obstacle(&question, fit::CHOICE).is_some() {
                continue;
            }
            let empty = Candidate { usage: None, ..candidate };
            match first_obstacle(&Question { candidate: empty, ..question }, fit::ROOM) {
                Some(lack) => lacks.push(format!("{} {lack}", candidate.name)),
                None => is_possible = true,
            }
            let is_elsewhere = self.node() != Some(candidate.name);
            if is_elsewhere && first_obstacle(&question, fit::ALL).is_none() {
                home = home.or(Some(candidate.name));
            }
        }
        if is_possible || lacks.is_empty() {
            return Ok(home);
        }
        let pods = counted(members.len(), "pod");
        Err(format!("no node can take all {pods} of the group: {}", some(&lacks)))
    }

    /// How to make room on a node where pods of the group run that do not end by themselves: of their first
    /// workload only so many as fit beside the pod.
    fn scale_down(&self, node: &str, pod: &Pod) -> Option<String> {
        let lasting = self.lasting(node);
        let mut workloads = lasting.iter().filter_map(|of| workload(&of.metadata));
        // Nothing scales a DaemonSet.
        let first = workloads.find(|(kind, _)| *kind != "DaemonSet")?;
        let of_first = lasting.iter().filter(|of| workload(&of.metadata) == Some(first)).count();
        let is_own = workload(&pod.metadata) == Some(first);
        let fitting = of_first.saturating_sub(usize::from(!is_own));
        let (kind, name) = first;
        Some(format!(
            "kubectl scale {} {name} -n {} --replicas={fitting}, or free room on node {node}",
            kind.to_lowercase(),
            self.name.namespace
        ))
    }

    /// How to move the group, of which pods run until they are deleted, to another node or to a new one.
    fn move_to(&self, home: Option<&str>, node: &str) -> String {
        let Name { namespace, name } = self.name;
        let home =
            home.map_or_else(|| "a node that you add".to_owned(), |home| format!("node {home}"));
        format!(
            ", or move the group to {home}, which takes all of it: kubectl cordon {node}; kubectl delete pods -n {namespace} -l {}={name}; and kubectl uncordon {node} when it has moved",
            keys::MEMBER
        )
    }

    /// Finds what helps a member that does not fit where the placeholder is.
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
            self.context.policy.coschedule.grace_period
        )
    }
}

/// The most pods that a command names.
const MOST_NAMED: usize = 5;

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
