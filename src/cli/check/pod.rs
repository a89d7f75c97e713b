//! Diagnoses why a pod is where it is, or waits: what all systems have in common, and what each adds.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Pod, PodAffinityTerm};
use kube::core::{Selector, SelectorExt as _};

use stowplan_core::admission::stored::{Lack, find_lack};
use stowplan_core::kubernetes::{
    HOSTNAME, affinity, annotation, is_finished, label, node_name, required_anti_terms,
    required_node_terms, required_pod_terms, scheduler_name,
};
use stowplan_core::placement::affinity::bound_to;
use stowplan_core::placement::reason::Stage;
use stowplan_core::placement::record;
use stowplan_core::systems::check::closed::{Closed, explain};
use stowplan_core::systems::check::cluster::first_obstacle;
use stowplan_core::systems::check::words::{counted, nodes, of_pod, some};
use stowplan_core::systems::check::{CheckedKind, Context, Diagnosis, PodChecks, PodReport, gates};
use stowplan_core::systems::exclusion::{Exclusion, IGNORE};
use stowplan_core::systems::fit::{self, Check, Obstacle, PodNeeds, Question};
use stowplan_core::systems::vocabulary::{Meaning, meaning};
use stowplan_core::systems::{DIAGNOSTICS, SYSTEMS};
use stowplan_core::view::{Name, Owner};

/// Pods, which have a diagnosis of their own if no other one covers them.
pub(super) static KIND: CheckedKind = CheckedKind {
    names: &["pod", "pods", "po"],
    missing: "pod",
    needs_all_pods: true,
    check: |context, name| {
        let pod = context.cluster.pod(&name.namespace, &name.name)?;
        Some(diagnose(context, name, pod))
    },
    // `check -n` lists the pods itself.
    find_all: |_| BTreeSet::new(),
};

/// The diagnosis of pods, for the systems.
pub(super) const CHECKS: PodChecks = PodChecks { diagnose, report_missing_changes };

/// The diagnosis of pods that wait: one with a node does not, whatever the webhook would change in it now.
pub(in crate::cli) const CHECKS_OF_WAITING: PodChecks =
    PodChecks { diagnose: diagnose_waiting, report_missing_changes };

fn diagnose_waiting(context: &Context<'_>, name: &Name, pod: &Pod) -> Diagnosis {
    diagnose_as(context, name, pod, node_name(pod).is_none())
}

/// Diagnoses why a pod is where it is, or waits.
fn diagnose(context: &Context<'_>, name: &Name, pod: &Pod) -> Diagnosis {
    diagnose_as(context, name, pod, true)
}

/// Diagnoses a pod, and with `with_changes` also what the webhook would change in it.
fn diagnose_as(context: &Context<'_>, name: &Name, pod: &Pod, with_changes: bool) -> Diagnosis {
    let checks = DIAGNOSTICS.iter().filter_map(|system| system.check_pod);
    let mut reports: Vec<PodReport> = checks.map(|check| check(context, name, pod)).collect();
    let mut diagnosis = Diagnosis {
        asked: asked(pod),
        decided: decided(pod, name, context),
        ..of_pod(pod, &name.namespace, context.cluster)
    };
    for report in &mut reports {
        diagnosis.asked.append(&mut report.asked);
    }
    if diagnosis.asked.is_empty() {
        diagnosis.asked.push("nothing of stowplan".to_owned());
    }
    if is_finished(pod) {
        return diagnosis;
    }
    if with_changes {
        report_missing_changes(context, name, pod, &mut diagnosis);
    }
    let mut of_pending = Vec::new();
    let mut led: Option<Diagnosis> = None;
    let mut bound_to = None;
    for report in reports {
        bound_to = bound_to.or(report.bound_to);
        diagnosis.extend(report.unfinished);
        of_pending.push(report.pending);
        led = led.or(report.led);
    }
    if node_name(pod).is_some() {
        return diagnosis;
    }
    gates::report_own(&mut diagnosis, pod);
    gates::report_foreign(&mut diagnosis, pod, context.cluster);
    of_pending.into_iter().for_each(|findings| diagnosis.extend(findings));
    let pending = Pending {
        context,
        pod,
        name,
        needs: pod.spec.as_ref().map(PodNeeds::of_spec).unwrap_or_default(),
        bound_to,
    };
    let nodes = pending.report_eligible_nodes(&mut diagnosis);
    match led {
        Some(led) => diagnosis.extend(led),
        None => pending.report_colocation(&mut diagnosis),
    }
    let nodes = pending.report_exlocation(&mut diagnosis, nodes);
    if !diagnosis.has_obstacle() {
        pending.report_rest(&mut diagnosis, nodes);
    }
    diagnosis
}

/// A pod that has no node.
struct Pending<'c> {
    context: &'c Context<'c>,
    pod: &'c Pod,
    name: &'c Name,
    needs: PodNeeds<'c>,
    /// The thing that the pod's own request binds it to; then no other node can become eligible.
    bound_to: Option<&'static str>,
}

/// The nodes of a cluster, as a pod sees them. Those that it does not choose are in neither.
struct Nodes<'c> {
    /// The names of the eligible nodes.
    eligible: Vec<&'c str>,
    closed: Closed<'c>,
}

/// The annotations of the pod that are stowplan's.
fn asked(pod: &Pod) -> Vec<String> {
    let annotations = pod.metadata.annotations.iter().flatten();
    annotations
        .filter(|(key, _)| matches!(meaning(key), Meaning::Known(_)))
        .map(|(key, value)| format!("{key}: {value}"))
        .collect()
}

/// Returns what the pod's record says.
fn decided(pod: &Pod, name: &Name, context: &Context<'_>) -> Vec<String> {
    let record = annotation(&pod.metadata, record::KEY);
    let Some(record) = record else {
        let Context { cluster, policy, .. } = context;
        let ignore = label(&pod.metadata, IGNORE);
        let found = Exclusion::of_object(ignore, &name.namespace, &cluster.view, policy);
        let why = found.map(|exclusion| exclusion.explain(&name.namespace));
        let why = why.unwrap_or_else(|| "it has no record".to_owned());
        return vec![format!("nothing: {why}")];
    };
    let mut decided: Vec<String> =
        SYSTEMS.iter().flat_map(|system| record::entries(record, system.name)).collect();
    if decided.is_empty() {
        decided.push(format!("a record that cannot be read: {record}"));
    }
    // The controller names a node where the record was written before that.
    if let Some(node) = required_node_terms(affinity(pod)).and_then(bound_to) {
        let held = format!("node {node}");
        if !decided.iter().any(|entry| entry.contains(&held)) {
            decided.push(format!("{held}: its node affinity requires it"));
        }
    }
    decided
}

/// Reports what the webhook would change in the pod if it were created now.
fn report_missing_changes(
    context: &Context<'_>,
    name: &Name,
    pod: &Pod,
    diagnosis: &mut Diagnosis,
) {
    let Ok(document) = serde_json::to_value(pod) else { return };
    let Context { cluster, policy, .. } = context;
    let Some(lack) = find_lack(&name.namespace, &document, &cluster.view, policy) else { return };
    match lack {
        // Which hosts exist is not known.
        Lack::Refused(refusal)
            if cluster.has_no_nodes() && refusal.first().reason.stage() == Stage::Cluster => {}
        Lack::Refused(refusal) => {
            let first = refusal.first();
            diagnosis.report(
                format!("created now, it would be refused: {}", first.problem),
                &first.remedy,
            );
        }
        Lack::Changes(intents) => {
            let changes = intents.iter().map(|intent| intent.change.to_string());
            let lacks = some(&changes.collect::<Vec<_>>());
            diagnosis.report(
                format!("it was admitted without stowplan, and may lack: {lacks}"),
                match Owner::of_any(&pod.metadata) {
                    Some((kind, _)) => format!("delete the pod: its {kind} creates it again"),
                    None => "delete the pod and create it again".to_owned(),
                },
            );
        }
        // What was removed mattered before it had a node.
        Lack::Removed(_) if node_name(pod).is_some() => {}
        Lack::Removed(field) => diagnosis.report(
            format!("{field} has less than was decided: a later webhook or admission policy removed it"),
            "find it (kubectl get mutatingwebhookconfigurations,mutatingadmissionpolicies), and exclude the pod there",
        ),
    }
}

/// Where to look if stowplan sees no obstacle.
const NOT_SEEN: &str = "see what it says of volumes, ports, topology spread and the like, which \
                        stowplan does not look at";

/// The remedy where the node of a group is gone.
const GONE: &str = "wait: its pods there are deleted with the node, and the group gets another";

impl<'c> Pending<'c> {
    /// The pods of its namespace that a term of its pod affinity is about, and their nodes.
    fn mates(&self, term: &PodAffinityTerm) -> impl Iterator<Item = (&'c str, &'c Pod)> {
        let others = self.context.cluster.others(&self.name.namespace, self.pod);
        let others = others.filter(|other| is_about(term, other));
        others.filter_map(|other| Some((node_name(other)?, other)))
    }

    /// The nodes of the pods that the pod must be with. `None`: it has no such term, or no such pod has a
    /// node yet.
    fn nodes_of_mates(&self) -> Option<BTreeSet<&'c str>> {
        let terms = required_pod_terms(affinity(self.pod)).iter().filter(|term| is_on_node(term));
        let nodes = terms.map(|term| self.mates(term).map(|(node, _)| node).collect());
        let near = nodes.reduce(|near: BTreeSet<&str>, there| &near & &there);
        near.filter(|near| !near.is_empty())
    }

    /// Returns the checks of the scheduler. Without the label of node names there is no pod affinity.
    fn checks(&self) -> &'static [Check] {
        match required_pod_terms(affinity(self.pod)).iter().any(is_on_node) {
            true => fit::SCHEDULER_BESIDE,
            false => fit::SCHEDULER,
        }
    }

    /// Returns the nodes, and reports why none is eligible if so.
    fn report_eligible_nodes(&self, diagnosis: &mut Diagnosis) -> Nodes<'c> {
        let cluster = self.context.cluster;
        let checks = self.checks();
        let mut eligible = Vec::new();
        let mut closed = Closed::default();
        for candidate in cluster.candidates() {
            let question = Question::new(candidate, &self.needs);
            let mut found: Vec<_> = fit::obstacles(&question, checks).collect();
            if matches!(*found, [Obstacle::NodeAffinity]) && fit::lacks_only_hostname(&question) {
                found = vec![Obstacle::NoHostname];
            }
            match found.first() {
                None => eligible.push(candidate.name),
                Some(first) if !found.iter().any(Obstacle::is_chosen_by_pod) => {
                    closed.add(self.context, candidate.name, first);
                }
                Some(_) => {}
            }
        }
        if !eligible.is_empty() || cluster.has_no_nodes() {
            return Nodes { eligible, closed };
        }
        if closed.is_empty() {
            let count = counted(cluster.candidates().count(), "node");
            diagnosis.report(
                format!("its node selector and node affinity match none of {count}"),
                "see what was decided, and the pod's own nodeSelector and nodeAffinity",
            );
        }
        closed.report(diagnosis);
        Nodes { eligible, closed: Closed::default() }
    }

    /// Reports the pods that the pod must be near to, where their node does not take it.
    fn report_colocation(&self, diagnosis: &mut Diagnosis) {
        for term in required_pod_terms(affinity(self.pod)) {
            for (node, mate) in self.mates(term).collect::<BTreeMap<_, _>>() {
                let Some((why, remedy)) = self.explain_refusal(node) else { continue };
                let mate = mate.metadata.name.as_deref().unwrap_or_default();
                diagnosis.report(
                    format!("its colocation group ({mate}) is on node {node}, which {why}"),
                    remedy,
                );
            }
        }
    }

    /// Explains why the node of a group does not take the pod, with the remedy. `None`: it does.
    fn explain_refusal(&self, node: &str) -> Option<(String, String)> {
        let Some(candidate) = self.context.cluster.candidate(node) else {
            return Some(("does not exist".to_owned(), GONE.to_owned()));
        };
        let question = Question::new(candidate, &self.needs);
        let obstacle = first_obstacle(&question, self.checks())?;
        let (why, _, open) = explain(self.context, node, &obstacle);
        let remedy = match self.bound_to {
            _ if !obstacle.is_chosen_by_pod() => open,
            Some(what) => {
                format!("ask for one {what} in all pods of the group, and create them again")
            }
            None => "ask for nodes for all pods of the group alike".to_owned(),
        };
        Some((why, remedy))
    }

    /// Reports the pods that keep the pod out of every eligible node, and the nodes that are only closed.
    fn report_exlocation(
        &self,
        diagnosis: &mut Diagnosis,
        Nodes { eligible, closed }: Nodes<'c>,
    ) -> Nodes<'c> {
        let from = required_anti_terms(affinity(self.pod));
        let mut taken: BTreeMap<&str, String> = BTreeMap::new();
        for other in self.context.cluster.others(&self.name.namespace, self.pod) {
            let Some(node) = node_name(other) else { continue };
            let others = required_anti_terms(affinity(other));
            if from.iter().any(|term| is_about(term, other))
                || others.iter().any(|term| is_about(term, self.pod))
            {
                taken.insert(node, other.metadata.name.clone().unwrap_or_default());
            }
        }
        // The pods that it must be with may be beside one that it must not be with.
        let near = self.nodes_of_mates();
        let near = near.iter().flatten().filter(|node| eligible.contains(node));
        let beside: Vec<Option<String>> =
            near.map(|node| taken.get(node).map(|pod| format!("{pod} on {node}"))).collect();
        if !beside.is_empty() && beside.iter().all(Option::is_some) {
            let rows: Vec<String> = beside.into_iter().flatten().collect();
            diagnosis.report(
                format!("it must be with the pods of its group, and not with {}", some(&rows)),
                "remove one of the two constraints from these pods, and create them again",
            );
        } else if !eligible.is_empty() && eligible.iter().all(|node| taken.contains_key(node)) {
            let rows: Vec<String> =
                eligible.iter().map(|node| format!("{} on {node}", taken[node])).collect();
            diagnosis.report(
                format!("every eligible node has a pod that it must not be with: {}", some(&rows)),
                match self.bound_to {
                    Some(what) => format!(
                        "ask for another {what}, or remove the constraint that keeps these pods apart"
                    ),
                    None => "add a node, or delete one of those pods".to_owned(),
                },
            );
            closed.report_ways_out(diagnosis, |node| !taken.contains_key(node));
            return Nodes { eligible, closed: Closed::default() };
        }
        Nodes { eligible, closed }
    }

    /// Reports on a pod without an obstacle that stowplan sees: what its constraints leave, which may lack
    /// what only the scheduler looks at.
    fn report_rest(&self, diagnosis: &mut Diagnosis, Nodes { eligible, closed }: Nodes<'_>) {
        let scheduler = scheduler_name(self.pod);
        if diagnosis.scheduler.is_none() {
            let remedy = format!("wait, or see that {scheduler} runs");
            return diagnosis.report("no scheduler has looked at it yet", remedy);
        }
        let near = self.nodes_of_mates();
        let is_near = |node: &&str| near.as_ref().is_none_or(|near| near.contains(node));
        let left: Vec<&str> = eligible.into_iter().filter(is_near).collect();
        if let Some((what, remedy)) = self.lack_of_room(&left) {
            diagnosis.report(what, remedy);
            return closed.report_ways_out(diagnosis, |node| {
                is_near(&node) && self.lack_of_room(&[node]).is_none()
            });
        }
        let is_placed = annotation(&self.pod.metadata, record::KEY).is_some();
        let nodes = nodes(&left);
        if is_placed && !left.is_empty() && left.len() < self.context.cluster.candidates().count() {
            diagnosis.report(
                format!("its constraints leave only {nodes}, which {scheduler} does not take: {NOT_SEEN}"),
                "free there what the scheduler names, or relax what was decided",
            );
        } else {
            diagnosis.report(
                format!("nothing that stowplan looks at keeps it from {nodes}: {NOT_SEEN}"),
                "free on a node what the scheduler names, or add a node",
            );
        }
    }

    /// Returns what the nodes lack, with the remedy, if none of them has room for the pod.
    fn lack_of_room(&self, nodes: &[&str]) -> Option<(String, String)> {
        let mut is_too_small = true;
        let mut lacks = Vec::new();
        for node in nodes {
            let question = Question::new(self.context.cluster.candidate(node)?, &self.needs);
            let found = first_obstacle(&question, fit::ROOM)?;
            is_too_small &= found.is_too_small();
            lacks.push(format!("node {node} {found}"));
        }
        let remedy = match (&*lacks, is_too_small, self.bound_to) {
            ([], ..) => return None,
            (_, true, Some(what)) => {
                format!("let the pod request less, or ask for another {what}")
            }
            (_, true, None) => "let the pod request less, or add a larger node".to_owned(),
            ([_], ..) => "free room on it, add a node, or let the pod request less".to_owned(),
            _ => "free or add a node, or let the pod request less".to_owned(),
        };
        Some((some(&lacks), remedy))
    }
}

/// Returns true if a term of pod (anti-)affinity is about one node.
fn is_on_node(term: &PodAffinityTerm) -> bool {
    term.topology_key == HOSTNAME
}

/// Returns true if a term of pod (anti-)affinity on one node is about `other`, a pod of the same namespace.
fn is_about(term: &PodAffinityTerm, other: &Pod) -> bool {
    let Some(selector) = &term.label_selector else { return false };
    let Ok(selector) = Selector::try_from(selector.clone()) else { return false };
    is_on_node(term) && selector.matches(other.metadata.labels.as_ref().unwrap_or(&BTreeMap::new()))
}
