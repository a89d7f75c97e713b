//! Binds a pod to the members of a pool that the controller labels.

use super::super::super::{Placing, guard, hostnames, keys};
use crate::api::condition::{ACCEPTED, READY, Status, find};
use crate::kubernetes::HOSTNAME;
use crate::placement::intent::{Change, NodeLabel, NodeTerm};
use crate::placement::reason::Reason;
use crate::placement::record;
use crate::placement::toleration::tolerates;
use crate::systems::streams::api::host_pool::MemberState;
use crate::systems::streams::kinds::{HostPool, StreamsJob, format_indices, to_usize};
use crate::systems::streams::reasons::PoolReason;
use crate::view::Name;

impl Placing<'_> {
    /// Binds the pod to a pool whose members the controller labels. Until a node has the label, the
    /// scheduler keeps the pod pending.
    pub(super) fn bind_to_labelled(
        &mut self,
        value: &str,
        name: &str,
        pool: &HostPool,
        size: u32,
        index: Option<u32>,
    ) {
        let key = keys::HOST_POOL;
        let Some(hash) = pool.hash.as_deref() else {
            let problem = format!("HostPool {name} has no UID, so it is not created yet");
            let remedy = "create it, or give it as `kubectl get hostpools -o yaml` prints it";
            return self.report(Reason::PoolNotReady, key, problem, remedy);
        };
        if let Some(index) = index.filter(|index| *index >= size) {
            let problem = format!(
                "HostPool {name} has no index {index}: it has {}",
                format_indices(to_usize(size))
            );
            let remedy = "use an index of the pool; it starts at 0";
            return self.report(Reason::IndexOutOfRange, key, problem, remedy);
        }
        let job = pool.job.as_ref().map(|(job, _)| Name::new(self.pod.namespace, job));
        let job = job.and_then(|job| self.view.streams_job(&job));
        if let Some((reason, problem, lacks_nodes)) = find_problem(pool, job) {
            let problem = format!("HostPool {name} {problem}");
            let remedy = "see its status (`kubectl describe hostpool`)";
            if !(lacks_nodes && self.may_wait(&problem)) {
                return self.report(reason, key, problem, remedy);
            }
        }
        let hostnames = self.hostnames(pool, index);
        self.require_members(value, hash, pool.exclusive, index, &hostnames);
        let which = index.map_or_else(|| "members".to_owned(), |index| format!("member {index}"));
        let exclusive = if pool.exclusive { ", exclusive" } else { "" };
        self.record(key, value, &format!("{which} of pool {hash}{exclusive}"));
        self.warn_about_node_name(key);
    }

    /// The hostnames of the members by which the pod names them. Empty for a pod that nothing creates again
    /// when the pool has other members, and for one that by its own choice waits for other members.
    fn hostnames<'v>(&self, pool: &'v HostPool, index: Option<u32>) -> Vec<&'v str>
    where
        Self: 'v,
    {
        if !self.pod.is_created_again() {
            return Vec::new();
        }
        let members = hostnames::of_members(pool, index, self.view).unwrap_or_default();
        if members.iter().all(|(node, _)| self.own_choice_against(node).is_some()) {
            return Vec::new();
        }
        members.into_iter().map(|(_, hostname)| hostname).collect()
    }

    /// Requires a member of the pool with this hash, with one of these hostnames if there are any, and
    /// tolerates the taint of an exclusive pool.
    pub(in super::super) fn require_members(
        &mut self,
        value: &str,
        hash: &str,
        exclusive: bool,
        index: Option<u32>,
        hostnames: &[&str],
    ) {
        let key = keys::HOST_POOL;
        let mut labels = vec![NodeLabel {
            key: keys::pool_label(hash),
            values: index.map(|index| index.to_string()).into_iter().collect(),
        }];
        if !hostnames.is_empty() {
            let values = hostnames.iter().map(|&name| name.to_owned()).collect();
            labels.push(NodeLabel { key: HOSTNAME.to_owned(), values });
        }
        self.change(key, value, Change::NodeAffinity(vec![NodeTerm::Labelled(labels)]));
        if !exclusive {
            return;
        }
        let effect = keys::EXCLUSIVE_EFFECT;
        let has = |key: &str| {
            let mut own = self.pod.tolerations.iter().flatten();
            own.any(|of| tolerates(of, key, hash, effect))
        };
        // Another release has admitted the pod. It lacks nothing: the nodes of its pool have the taint that
        // it tolerates while it waits.
        let is_recorded = self.pod.annotation(record::KEY).is_some();
        if is_recorded && keys::EXCLUSIVE_TAINTS.into_iter().any(has) {
            return;
        }
        for key in keys::EXCLUSIVE_TAINTS {
            let toleration = Change::Toleration { key, value: hash.to_owned(), effect };
            self.change(keys::HOST_POOL, value, toleration);
        }
    }
}

/// Finds what keeps pods from the members of a pool of this job: the reason, the problem as the end of a sentence
/// about the pool, and true if more nodes would help. `None`: they can be placed, or will be soon.
fn find_problem(pool: &HostPool, job: Option<&StreamsJob>) -> Option<(Reason, String, bool)> {
    if let Some(refused) = guard::find_current(pool, ACCEPTED) {
        let problem = format!("is not accepted: {}", refused.message);
        return Some((Reason::InvalidPool, problem, false));
    }
    // Pods can be placed as long as one member is ready.
    let is_empty = !pool.status.members.iter().any(|member| member.state == MemberState::Ready);
    let unready = guard::find_current(pool, READY).filter(|_| is_empty)?;
    let problem = format!("has no members: {}", unready.message);
    let lacks_nodes = unready.reason == PoolReason::InsufficientNodes.as_str()
        || (unready.reason == PoolReason::WaitingForJob.as_str()
            && job.is_some_and(job_lacks_nodes));
    // While the controller reserves nodes the pod is admitted; it stays pending until they are
    // ready.
    let is_reserving = unready.reason == PoolReason::Reserving.as_str();
    (!is_reserving).then_some((Reason::PoolNotReady, problem, lacks_nodes))
}

/// Returns true if a job waits for nodes. An autoscaler is asked for them once the pods of the job exist.
fn job_lacks_nodes(job: &StreamsJob) -> bool {
    find(&job.status.conditions, READY).is_some_and(|ready| {
        ready.status == Status::False && ready.reason == Reason::InsufficientNodes.as_str()
    })
}
