//! The reconciler of MPI clusters: makes their objects, lets launchers start, stops workers after the
//! launcher's end, and reports why a cluster does not start.
//!
//! # Objects
//! A Service and a ConfigMap, which the workloads own, and a Secret, which the ConfigMap owns. Nothing reads
//! Secrets: the controller may only create them. So an annotation of the ConfigMap records the state of the
//! Secret's creation, and no write depends on more than that:
//!
//! | ConfigMap | Write | Another Secret with the name |
//! | --- | --- | --- |
//! | missing | the Secret's creation is tried (dry run), then the ConfigMap is created: `making` | is not stowplan's: event |
//! | `making` | the Secret is created, then its UID is recorded | is stowplan's: an earlier attempt made it |
//! | UID | none; while a pod hangs before its first container, the creation is tried at times (dry run) | it is still there |
//!
//! A controller that ends at any point leaves a state from which the next one goes on.
//!
//! [`objects`]: their documents. [`launch`]: the gates of launchers. [`clean_up`]: the end.

mod clean_up;
mod launch;
mod objects;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;

use super::cluster::{Cluster, Problem, Worker, reason};
use super::kinds::workload::Workload;
use super::member::is_allowed;
use super::request::Role;
use crate::systems::View;
use crate::systems::exclusion::Exclusion;
use crate::systems::plan::{Action, Event, Plan, Target, Write};
use crate::systems::policy::Policy;
use crate::view::Name;
use crate::view::resource::POD;
use crate::view::resource::STATEFUL_SET;

/// The reasons of events about states.
const LASTING: &[&str] = &[
    reason::NO_WORKERS,
    reason::WORKERS_DIFFER,
    reason::WORKERS_NOT_AT_ONCE,
    reason::HOSTFILE_TOO_LONG,
    reason::SEVERAL_LAUNCHERS,
    reason::WORKER_LOST,
    reason::NO_DNS_NAMES,
];

/// Plans the changes for all clusters.
pub(super) fn plan(view: &View, policy: &Policy, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    for name in view.mpi_clusters() {
        let cluster = Cluster::new(name, view, policy);
        let of_cluster = plan_cluster(&cluster, now);
        plan.actions.extend(of_cluster.actions);
        of_cluster.recheck_at.into_iter().for_each(|at| plan.recheck_by(at));
    }
    plan
}

/// Plans the changes for one cluster.
pub(super) fn plan_cluster(cluster: &Cluster<'_>, now: Timestamp) -> Plan {
    let mut planner = Planner { cluster, now, plan: Plan::default(), warnings: BTreeMap::new() };
    planner.plan();
    planner.finish()
}

/// A plan for one cluster that is being built.
struct Planner<'c, 'v> {
    cluster: &'c Cluster<'v>,
    now: Timestamp,
    plan: Plan,
    /// Warnings about objects without a write.
    warnings: BTreeMap<Target, BTreeSet<(&'static str, String)>>,
}

impl<'v> Planner<'_, 'v> {
    fn plan(&mut self) {
        let cluster = self.cluster;
        let Cluster { name: Name { namespace, .. }, view, policy, .. } = cluster;
        let is_served = policy.mpi.enabled
            && Exclusion::of_namespace(namespace, view, policy).is_none()
            && is_allowed(namespace, view, policy);
        if !is_served {
            self.lift_all();
            return;
        }
        self.report_launchers();
        self.clean_up();
        let hosts = match cluster.hosts() {
            Ok(hosts) => hosts,
            Err(problem) => return self.report_problem(&problem),
        };
        if !hosts.is_empty() {
            match cluster.files(&hosts) {
                Ok(files) => self.make_objects(&hosts, &files),
                Err(problem) => return self.report_problem(&problem),
            }
        }
        let workers = cluster.workers(&hosts);
        self.report_lost(&workers);
        match cluster.problem() {
            Some(problem) => self.report_problem(&problem),
            None => self.launch(&workers),
        }
    }

    /// Gives the objects with warnings an action without a write.
    fn finish(mut self) -> Plan {
        for (target, warnings) in self.warnings {
            let warnings = warnings.into_iter();
            let events =
                warnings.map(|(reason, note)| Event { warning: true, reason, note }).collect();
            let action = Action::new(target, Write::None, events).with_lasting(LASTING);
            self.plan.actions.push(action);
        }
        self.plan
    }

    fn act(&mut self, action: Action) {
        self.plan.actions.push(action);
    }

    fn warn(&mut self, target: Target, reason: &'static str, note: String) {
        self.warnings.entry(target).or_default().insert((reason, note));
    }

    /// Reports why a cluster does not start, at the launchers that have not ended and their pods that wait.
    fn report_problem(&mut self, problem: &Problem) {
        let cluster = self.cluster;
        let Problem { reason, text, remedy } = problem;
        let note = format!("the cluster does not start: {text}; {remedy}");
        let launchers = cluster.of_role(Role::Launcher).filter(|(_, of)| !of.is_over);
        let mut targets: Vec<Target> = launchers.map(target_of).collect();
        // A hostfile that is too long concerns a cluster without a launcher, too.
        if targets.is_empty() {
            targets.extend(cluster.of_role(Role::Worker).map(target_of));
        }
        let gated = cluster.pods.iter().filter(|(_, pod)| pod.gate.is_some());
        targets.extend(gated.map(|(name, pod)| Target::new(POD, name, &pod.identity.uid)));
        targets.sort();
        targets.dedup();
        for target in targets {
            self.warn(target, reason, note.clone());
        }
    }

    /// Two launchers that run at once would share a hostname.
    fn report_launchers(&mut self) {
        let launchers = self.cluster.of_role(Role::Launcher);
        let mut going: Vec<_> = launchers.filter(|(_, of)| !of.is_over).collect();
        going.sort_by_key(|(name, of)| (of.identity.created, *name));
        let Some(((first, _), others)) = going.split_first() else { return };
        for later in others {
            let note = format!(
                "{} is a launcher of the same cluster and has not ended; give each launcher a cluster of its own, or start one after the other",
                first.name
            );
            self.warn(target_of(*later), reason::SEVERAL_LAUNCHERS, note);
        }
    }

    /// A StatefulSet does not replace a pod on a node that is NotReady, and neither does stowplan: only a
    /// person knows whether the node still runs it.
    fn report_lost(&mut self, workers: &[Worker<'_, 'v>]) {
        for worker in workers.iter().filter(|worker| worker.workload.1.resource == STATEFUL_SET) {
            let Some((name, pod)) = worker.pod else { continue };
            let Some(node) = pod.node.as_deref() else { continue };
            if self.cluster.view.is_node_ready(node) {
                continue;
            }
            let note = format!(
                "worker {0} is on node {node}, which is NotReady, and a StatefulSet does not replace it; once the node is certainly off, run: kubectl delete pod {0} -n {1} --force",
                name.name, name.namespace
            );
            self.warn(target_of(worker.workload), reason::WORKER_LOST, note);
        }
    }
}

/// A workload as the object of a write or an event.
fn target_of((name, workload): (&Name, &Workload)) -> Target {
    Target::new(workload.resource, name, &workload.identity.uid)
}
