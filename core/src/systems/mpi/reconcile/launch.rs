//! The gates of launchers. A launcher starts when its files exist and all workers are Ready and have DNS
//! names: ssh to any of them then works at its first attempt. Each new pod of a launcher is gated again, so
//! retries and resumed Jobs wait, too.

use super::{Cluster, Planner, reason};
use crate::systems::mpi::cluster::Worker;
use crate::systems::mpi::keys::GATE;
use crate::systems::mpi::kinds::pod::MpiPod;
use crate::systems::mpi::request::Role;
use crate::systems::plan::operation::remove_gate;
use crate::systems::plan::{Action, Event, Target, Write};
use crate::view::Name;
use crate::view::resource::POD;

impl<'v> Planner<'_, 'v> {
    /// Removes the gates of launchers if all workers can be reached.
    pub(super) fn launch(&mut self, workers: &[Worker<'_, 'v>]) {
        if !self.has_objects() || !workers.iter().all(Worker::is_reachable) {
            return self.report_names(workers);
        }
        let note = match workers.len() {
            0 => "the launcher is the only host".to_owned(),
            1 => "the worker is Ready and has a DNS name".to_owned(),
            count => format!("all {count} workers are Ready and have DNS names"),
        };
        for (name, pod) in gated(self.cluster) {
            if !self.has_predecessor(pod) {
                let reason = reason::WORKERS_READY;
                self.lift(name, pod, Event { warning: false, reason, note: note.clone() });
            }
        }
    }

    /// Returns true if the Service exists, and the ConfigMap, which the launcher mounts. Where the API server
    /// refuses one of them, the launcher waits with an event instead of hanging on its node.
    fn has_objects(&self) -> bool {
        let Cluster { name, view, .. } = self.cluster;
        let files = self.cluster.config_map();
        view.cluster_service(name).is_some() && view.cluster_config_map(&files).is_some()
    }

    /// Reports workers that are Ready and have no DNS name: their own Service is missing or selects others.
    fn report_names(&mut self, workers: &[Worker<'_, 'v>]) {
        let mut nameless = workers.iter().filter(|worker| !worker.has_record);
        let Some(first) = nameless.next().filter(|_| workers.iter().all(Worker::is_ready)) else {
            return;
        };
        let note = format!(
            "{} has no DNS name in Service {}, although all workers are Ready; {}",
            first.host.hostname,
            first.host.service,
            self.cluster.record_remedy(first)
        );
        for (name, pod) in gated(self.cluster) {
            let target = Target::new(POD, name, &pod.identity.uid);
            self.warn(target, reason::NO_DNS_NAMES, note.clone());
        }
    }

    /// A pod of the same workload that still runs: a Job may create the next pod while the last one
    /// terminates, and both have the same hostname. One on a node that is NotReady does not count, because
    /// it may never end.
    fn has_predecessor(&self, pod: &MpiPod) -> bool {
        let Cluster { pods, view, .. } = self.cluster;
        pods.iter().any(|(_, other)| {
            other.role == Role::Launcher
                && other.identity.uid != pod.identity.uid
                && other.owner.is_some()
                && other.owner == pod.owner
                && !other.finished
                && other.gate.is_none()
                && other.node.as_deref().is_some_and(|node| view.is_node_ready(node))
        })
    }

    /// Removes all gates of a cluster that stowplan does not serve any more.
    pub(super) fn lift_all(&mut self) {
        for (name, pod) in gated(self.cluster) {
            let note = "MPI clusters are not served here any more, so it starts without waiting for its workers";
            let note = note.to_owned();
            self.lift(name, pod, Event { warning: true, reason: reason::GATE_LIFTED, note });
        }
    }

    fn lift(&mut self, name: &Name, pod: &MpiPod, event: Event) {
        let Some(gate) = pod.gate else { return };
        let operations = remove_gate(&pod.identity, gate, GATE, None);
        let target = Target::new(POD, name, &pod.identity.uid);
        self.act(Action::new(target, Write::Patch(operations), vec![event]));
    }
}

fn gated<'v>(cluster: &Cluster<'v>) -> impl Iterator<Item = (&'v Name, &'v MpiPod)> {
    let pods = cluster.pods.iter().copied();
    pods.filter(|(_, pod)| pod.gate.is_some() && !pod.identity.deleting)
}
