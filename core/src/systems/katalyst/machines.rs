//! The machines of a cluster: the NUMA nodes that Katalyst reports, with the pods on them.
//!
//! A report names pods by namespace, name and UID, and comes late. A pod that it names and that does not
//! live any more is ignored. A pod that it does not name yet may be on any NUMA node; for how long that
//! counts is in the policy.

use std::collections::{BTreeMap, HashSet};

use k8s_openapi::jiff::Timestamp;

use super::feasibility::{Machine, Newcomer, Occupant, Socket, Verdict};
use super::kinds::pod::NumaPod;
use super::kinds::topology::{Consumer, Topology};
use super::policy::Katalyst;
use crate::systems::View;
use crate::systems::fit::{self, CHOICE, Candidate, PodNeeds, Question, SCHEDULER_BESIDE};
use crate::view::Name;

/// Finds the reason why no pod with a NUMA affinity may be placed on a node, for people; `None`: it may.
pub(super) fn find_unusable(report: &Topology, policy: &Katalyst) -> Option<&'static str> {
    if report.zones().next().is_none() {
        Some("its CustomNodeResource lists no NUMA nodes")
    } else if !report.has_agent {
        Some("its CustomNodeResource says that Katalyst's agent is not ready")
    } else if policy.require_strict_topology && !report.is_strict() {
        Some(
            "its topology policy admits pods for which no NUMA node is feasible (katalyst.requireStrictTopology)",
        )
    } else {
        None
    }
}

/// The machines that pods with a NUMA affinity may use.
#[derive(Debug)]
pub(super) struct Machines<'v> {
    view: &'v View,
    policy: &'v Katalyst,
    machines: BTreeMap<&'v Name, Machine<'v>>,
    /// The pods that the reports of all machines name.
    reported: HashSet<&'v Name>,
    /// The pods that the reports of these machines name.
    present: HashSet<&'v Name>,
}

impl<'v> Machines<'v> {
    /// The machines with the pods that the reports name.
    pub(super) fn new(view: &'v View, policy: &'v Katalyst) -> Self {
        let mut machines = BTreeMap::new();
        let (mut reported, mut present) = (HashSet::new(), HashSet::new());
        for (node, report) in view.topologies() {
            let consumers = report.zones().flat_map(|(_, _, consumers)| consumers);
            let live = consumers.filter_map(|consumer| find_live(view, consumer));
            let names: Vec<&Name> = live.map(|occupant| occupant.name).collect();
            reported.extend(&names);
            if find_unusable(report, policy).is_none() && view.node(&node.name).is_some() {
                present.extend(names);
                machines.insert(node, build(view, report));
            }
        }
        Self { view, policy, machines, reported, present }
    }

    /// Adds the pods that may have started and are not reported yet, until the deadline. Returns when
    /// the next deadline is.
    pub(super) fn add_unreported(&mut self, now: Timestamp) -> Option<Timestamp> {
        let mut next: Option<Timestamp> = None;
        let mut pods: Vec<_> = self.unreported().collect();
        pods.sort_unstable_by_key(|occupant| occupant.name);
        for occupant in pods {
            let Some(until) = self.deadline(occupant.pod, now).filter(|until| *until > now) else {
                continue;
            };
            next = Some(next.map_or(until, |earlier| earlier.min(until)));
            self.add(occupant);
        }
        next
    }

    /// The pods that may be on a NUMA node and that no report names.
    fn unreported(&self) -> impl Iterator<Item = Occupant<'v>> {
        let pods = self.view.numa_pods();
        let may_run = |pod: &NumaPod| {
            pod.qos.takes_part() && !pod.finished && pod.gate().is_none() && pod.may_start()
        };
        pods.filter(move |(name, pod)| may_run(pod) && !self.reported.contains(name))
            .map(|(name, pod)| Occupant { name, pod })
    }

    /// Until when a pod counts that is not reported. A time in the future is no time of the controller:
    /// any user can write an annotation.
    fn deadline(&self, pod: &NumaPod, now: Timestamp) -> Option<Timestamp> {
        pod.since(now)?.checked_add(self.policy.report_deadline.length()).ok()
    }

    /// Adds a pod to these machines, without a NUMA node.
    pub(super) fn add_to(&mut self, occupant: Occupant<'v>, nodes: &[&str]) {
        for (node, machine) in &mut self.machines {
            if nodes.contains(&&*node.name) {
                machine.anywhere.push(occupant);
            }
        }
    }

    /// Adds a pod to each machine that it may be on, without a NUMA node.
    pub(super) fn add(&mut self, occupant: Occupant<'v>) {
        let view = self.view;
        let needs = occupant.pod.needs();
        for (node, machine) in &mut self.machines {
            let may_be = match occupant.pod.node.as_deref() {
                Some(own) => *own == *node.name,
                None => check_node(view, &node.name, &needs, CHOICE).is_ok(),
            };
            if may_be {
                machine.anywhere.push(occupant);
            }
        }
    }

    /// Returns a test for machines: true for those that the scheduler may choose for a pod.
    fn choice_of(&self, newcomer: Newcomer<'v>) -> impl Fn(&Name) -> bool + use<'v> {
        let (view, needs) = (self.view, newcomer.pod.needs());
        move |node| check_node(view, &node.name, &needs, SCHEDULER_BESIDE).is_ok()
    }

    /// The machines with a feasible NUMA node that the scheduler may choose, each with the first such NUMA
    /// node; at most `most` of them.
    pub(super) fn find_feasible(&self, newcomer: Newcomer<'v>, most: usize) -> Vec<(&'v str, u8)> {
        let is_allowed = self.choice_of(newcomer);
        // Pods that may use more machines than that do not all get the first ones.
        let first = match self.machines.len() > most {
            true => spread(&newcomer.pod.identity.uid, self.machines.len()),
            false => 0,
        };
        let machines = self.machines.iter().skip(first).chain(self.machines.iter().take(first));
        let feasible = machines.filter_map(|(node, machine)| {
            let zone = machine.find_feasible(newcomer)?;
            is_allowed(node).then_some((&*node.name, zone))
        });
        feasible.take(most).collect()
    }

    /// Returns true if a NUMA node is feasible but for pods that no report names yet.
    pub(super) fn is_feasible_later(&self, newcomer: Newcomer<'v>) -> bool {
        let is_allowed = self.choice_of(newcomer);
        self.machines.iter().any(|(node, machine)| {
            machine.find_feasible_later(newcomer).is_some() && is_allowed(node)
        })
    }

    /// Returns true if a machine without a feasible NUMA node has one but for pods that no report names yet.
    pub(super) fn lacks_reports(&self, newcomer: Newcomer<'v>) -> bool {
        let is_allowed = self.choice_of(newcomer);
        self.machines.iter().any(|(node, machine)| {
            machine.find_feasible(newcomer).is_none()
                && machine.find_feasible_later(newcomer).is_some()
                && is_allowed(node)
        })
    }

    /// The number of machines.
    pub(super) fn count(&self) -> usize {
        self.machines.len()
    }

    /// All machines with what is decided about each NUMA node, and whether the scheduler may choose the
    /// machine.
    pub(super) fn verdicts(
        &self,
        newcomer: Newcomer<'v>,
    ) -> impl Iterator<Item = (bool, Vec<Verdict<'v>>)> {
        let is_allowed = self.choice_of(newcomer);
        self.machines
            .iter()
            .map(move |(node, machine)| (is_allowed(node), machine.verdicts(newcomer).collect()))
    }

    /// Returns true if a pod is or may come to be on a NUMA node of these machines: reported, without a node and in
    /// need of no other pod, or let go or bound for less than the deadline.
    pub(super) fn may_come(&self, name: &Name, pod: &NumaPod, now: Timestamp) -> bool {
        if !pod.qos.is_dedicated || pod.finished {
            return false;
        }
        // One whose own affinity is not met may wait for ever.
        let is_free = pod.node.is_none() && pod.affinity.is_empty();
        let is_unreported = || !self.reported.contains(name);
        self.present.contains(name)
            || is_free
            || (is_unreported() && self.deadline(pod, now).is_some_and(|until| until > now))
    }
}

/// A number below `count` that is another one for most texts, and always the same for one.
fn spread(text: &str, count: usize) -> usize {
    let sum = text
        .bytes()
        .fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(byte)));
    sum % count.max(1)
}

/// # Errors
/// Returns the reason why a pod cannot be on a node: a predicate whose subject is the node.
pub(super) fn check_node(
    view: &View,
    node: &str,
    needs: &PodNeeds<'_>,
    checks: &[fit::Check],
) -> Result<(), String> {
    let missing = || "does not exist".to_owned();
    let known = view.node_in_full(node).ok_or_else(missing)?;
    let candidate = Candidate { name: node, node: known, view, usage: None };
    match fit::first_obstacle(&Question::new(candidate, needs), checks) {
        Some(obstacle) => Err(obstacle.to_string()),
        None => Ok(()),
    }
}

/// The machine of a report.
pub(super) fn build<'v>(view: &'v View, report: &'v Topology) -> Machine<'v> {
    let sockets = report.sockets.iter().map(|(name, zones)| {
        let zones = zones.iter().map(|(zone, consumers)| {
            let live = consumers.iter().filter_map(|consumer| find_live(view, consumer));
            (*zone, live.filter(|occupant| occupant.pod.qos.is_dedicated).collect())
        });
        Socket { name, zones: zones.collect() }
    });
    Machine { sockets: sockets.collect(), anywhere: Vec::new() }
}

/// The pod that a report names, if it lives.
fn find_live<'v>(view: &'v View, consumer: &'v Consumer) -> Option<Occupant<'v>> {
    let pod = view.numa_pod(&consumer.pod)?;
    let is_same = pod.identity.uid == consumer.uid && !pod.finished;
    is_same.then_some(Occupant { name: &consumer.pod, pod })
}
