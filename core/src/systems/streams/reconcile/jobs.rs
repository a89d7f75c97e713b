//! Reconciles StreamsJobs: creates the HostPools that they own, and writes their status.
//!
//! A job is Accepted if all of its constraints can be satisfied together. Once accepted, it stays
//! so until its spec or the policy makes it invalid. The deletion of a node does not revoke
//! Accepted: otherwise the restart of one element would be refused because of a problem of another.
//! Problems of the cluster are reported in the condition Ready, and by the pools and pods
//! concerned.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::controlled_by;
use super::placements::{Placement, Placements, has_verdict};
use crate::api;
use crate::api::condition::{self, ACCEPTED, READY, Status};
use crate::placement::reason::{Finding, Reason, Stage, shorten};
use crate::systems::View;
use crate::systems::plan::operation::{replace, test_uid};
use crate::systems::plan::{Action, Event, Plan, Target, Write};
use crate::systems::policy::Policy;
use crate::systems::streams::api::streams_job::{
    self, Group, JobPlacement, OwnedPool, ReservedNode, StreamsJobSpec, StreamsJobStatus,
};
use crate::systems::streams::job::placement::{Found, needs_placement};
use crate::systems::streams::keys;
use crate::systems::streams::kinds::{
    Closure, Form, HostPool, JobPool, StreamsJob, host_pool_spec,
};
use crate::systems::streams::reasons::JobReason;
use crate::systems::streams::resources::{HOST_POOL, STREAMS_JOB};
use crate::view::{Identity, Name};

/// The longest message of a condition, in characters, so that it stays readable. The API allows
/// 32,768.
const LONGEST_MESSAGE: usize = 4096;

// Reasons of the condition Ready that are not the reason of a finding.
const WAITING_FOR_POOLS: &str = JobReason::WaitingForPools.as_str();
const NOT_ACCEPTED: &str = JobReason::NotAccepted.as_str();

/// Plans the changes for all StreamsJobs.
pub(crate) fn plan(
    view: &View,
    policy: &Policy,
    placements: &Placements<'_>,
    now: Timestamp,
) -> Plan {
    let mut plan = Plan::default();
    // Under a policy that turns Streams off no job is judged: Kubernetes deletes the pools of a deleted
    // job, and the controller creates nothing else for jobs.
    for (name, (job, placement)) in placements.jobs(view) {
        // Never skips a job: only jobs whose spec can be decoded have a placement.
        let Ok(spec) = &job.spec else { continue };
        let mut reconciler = JobReconciler {
            name,
            job,
            spec,
            placement,
            view,
            now,
            status: StreamsJobStatus {
                conditions: job.status.conditions.clone(),
                creation_order: find_creation_order(spec, &job.closure),
                ..StreamsJobStatus::default()
            },
            events: Vec::new(),
        };
        reconciler.plan(policy, &mut plan);
    }
    plan
}

/// The state of reconciling one job.
struct JobReconciler<'j> {
    name: &'j Name,
    job: &'j StreamsJob,
    spec: &'j StreamsJobSpec,
    placement: &'j Placement<'j>,
    view: &'j View,
    now: Timestamp,
    /// The new status, as far as it is known.
    status: StreamsJobStatus,
    events: Vec<Event>,
}

impl<'j> JobReconciler<'j> {
    fn plan(&mut self, policy: &Policy, plan: &mut Plan) {
        self.status.groups = self.build_groups();
        let accepted = self.set_accepted();
        let mut waits = Vec::new();
        let mut taken = Vec::new();
        for (written, pool) in self.spec.pools.iter().zip(&self.job.closure.pools) {
            let wait = |state| format!("{}: HostPool {} {state}", written.name, pool.host_pool);
            match self.find_pool(pool) {
                Found::Foreign => taken.push(&*pool.host_pool),
                Found::Nothing if accepted => {
                    plan.actions.push(self.create_pool(written, pool));
                    waits.push(wait("is being created"));
                }
                Found::Nothing => {}
                Found::Own(HostPool { identity: Identity { deleting: true, .. }, .. })
                | Found::Leaving(_) => {
                    waits.push(wait("still belongs to an earlier job of this name"));
                }
                Found::Own(found) => {
                    plan.actions.extend(self.grow_pool(pool, found).filter(|_| accepted));
                    let problem = find_problem(found);
                    waits.extend(problem.map(|problem| format!("{}: {problem}", written.name)));
                    let host_pool = pool.host_pool.to_string();
                    self.status.pools.push(OwnedPool { name: written.name.clone(), host_pool });
                }
            }
        }
        self.set_ready(accepted, &taken, &waits);
        self.status.witness = self.find_placement(accepted, policy);
        if self.status == self.job.status {
            return;
        }
        let write = Write::Status {
            resource_version: self.job.identity.resource_version.clone(),
            status: serde_json::to_value(&self.status).unwrap_or(Value::Null),
        };
        let events = std::mem::take(&mut self.events);
        let target = Target::new(STREAMS_JOB, self.name, &self.job.identity.uid);
        let action = Action::new(target, write, events);
        plan.actions.push(action.with_volatile(&["lastTransitionTime", "since"]));
    }

    /// The nodes to reserve. Once recorded, they are kept while there is nothing better: pods are on them,
    /// or wait for them.
    fn find_placement(&mut self, accepted: bool, policy: &Policy) -> Option<JobPlacement> {
        let before = self.job.status.witness.clone();
        if !needs_placement(self.job) {
            return None;
        }
        let Some(plan) = &self.placement.plan else {
            // Without an answer the pods go where their constraints allow, as without a search.
            let is_free = accepted && self.placement.is_unknown;
            return before.or_else(|| is_free.then(|| JobPlacement::new(Vec::new(), self.now)));
        };
        if before.is_none() && !(accepted && self.has_exclusive_nodes()) {
            return None;
        }
        let mut nodes: BTreeMap<&str, ReservedNode> = BTreeMap::new();
        for (element, node) in &plan.reserved {
            let of_node = nodes.entry(node).or_default();
            of_node.name = (*node).to_owned();
            let element = self.spec.processing_elements[*element].name.clone();
            of_node.processing_elements.push(element);
        }
        let nodes: Vec<ReservedNode> = nodes.into_values().collect();
        if before.as_ref().is_some_and(|before| before.nodes == nodes) {
            return before;
        }
        let is_moved = self.placement.is_moved;
        if is_moved {
            let note = format!(
                "a pod found no room on the node that was reserved for it within {}; others are reserved now",
                policy.streams.grace_period
            );
            let reason = JobReason::NodesReservedAnew.as_str();
            self.events.push(Event { warning: false, reason, note });
        }
        let moves = before.map_or(0, |before| before.moves) + u32::from(is_moved);
        Some(JobPlacement { moves, ..JobPlacement::new(nodes, self.now) })
    }

    /// Returns true if the exclusive pools of the job have their nodes, so that no pod that is not of the pool can
    /// go there any more.
    fn has_exclusive_nodes(&self) -> bool {
        let is_ready = |found: &HostPool| !found.identity.deleting && find_problem(found).is_none();
        let mut exclusive = self.job.closure.pools.iter().filter(|pool| pool.exclusive);
        exclusive.all(|pool| matches!(self.find_pool(pool), Found::Own(found) if is_ready(found)))
    }

    /// Sets the condition Accepted. Returns true if it is True.
    fn set_accepted(&mut self) -> bool {
        let placement = self.placement;
        let goes_on = has_verdict(self.job, Status::True) || placement.may_wait;
        // If an accepted job meets a contradiction, its spec is not the cause but what was added to the
        // cluster since. Only the search for a placement of the whole job finds such a contradiction.
        let is_of_cluster = |finding: &&Finding| {
            finding.reason.stage() == Stage::Cluster || finding.reason == Reason::Contradiction
        };
        let counts = |finding: &&Finding| !(goes_on && is_of_cluster(finding));
        let findings: Vec<&Finding> = placement.findings.iter().filter(counts).collect();
        match findings.first() {
            None => {
                let message = match (&placement.plan, placement.findings.is_empty()) {
                    (Some(_), _) => "the job can be placed as a whole",
                    (None, true) if placement.is_unknown => {
                        "no constraint contradicts another by itself; the search for a placement of the whole job ended without an answer"
                    }
                    (None, true) => "the job can be placed",
                    (None, false) => "the job can be placed when there are nodes for it",
                };
                let reason = JobReason::Accepted.as_str();
                self.set(ACCEPTED, Status::True, reason, message);
            }
            Some(first) => {
                let messages: Vec<String> = findings.iter().map(|of| format_finding(of)).collect();
                let reason = first.reason.as_str();
                self.set(ACCEPTED, Status::False, reason, &messages.join(". "));
            }
        }
        findings.is_empty()
    }

    /// Sets the condition Ready. `taken` are the names of HostPools that the job needs and does not
    /// own, `waits` the reasons why its pools are not ready.
    fn set_ready(&mut self, accepted: bool, taken: &[&str], waits: &[String]) {
        let (status, reason, message) = if !accepted {
            (Status::False, NOT_ACCEPTED, "see the condition Accepted".to_owned())
        } else if !taken.is_empty() {
            let message = format!(
                "{} exists and is not owned by the job: delete it, or rename the pool in a new job",
                taken.join(", ")
            );
            (Status::False, JobReason::PoolNameTaken.as_str(), message)
        } else if let Some(first) = self.placement.findings.first() {
            // The job was accepted, but by now it could not be placed.
            (Status::False, first.reason.as_str(), format_finding(first))
        } else if !waits.is_empty() {
            (Status::False, WAITING_FOR_POOLS, waits.join(". "))
        } else {
            (Status::True, JobReason::PoolsReady.as_str(), "the pods can be created".to_owned())
        };
        self.set(READY, status, reason, &message);
    }

    /// Sets a condition, with an event if its status or reason changes. `NotAccepted` needs none:
    /// the event about Accepted reports the same.
    fn set(&mut self, type_: &str, status: Status, reason: &'static str, message: &str) {
        let conditions = &mut self.status.conditions;
        let message = shorten(message, LONGEST_MESSAGE);
        let is_unchanged = condition::find(conditions, type_)
            .is_some_and(|present| present.status == status && present.reason == reason);
        if !is_unchanged && reason != NOT_ACCEPTED {
            // It is normal that a job waits for its pools.
            let warning = status == Status::False && reason != WAITING_FOR_POOLS;
            self.events.push(Event { warning, reason, note: message.to_string() });
        }
        let generation = self.job.identity.generation;
        condition::set(conditions, type_, status, reason, &message, generation, self.now);
    }

    fn find_pool(&self, pool: &JobPool) -> Found<'j> {
        Found::new(self.name, self.job, pool, self.view)
    }

    fn create_pool(&self, written: &streams_job::Pool, pool: &JobPool) -> Action {
        let (namespace, name) = (&self.name.namespace, &pool.host_pool);
        let object = json!({
            "apiVersion": api::VERSION,
            "kind": "HostPool",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {"app.kubernetes.io/managed-by": "stowplan"},
                "ownerReferences": controlled_by(STREAMS_JOB, self.name, &self.job.identity),
            },
            "spec": host_pool_spec(written),
        });
        let target = Target::new(HOST_POOL, &Name::new(namespace, name), "");
        Action::new(target, Write::Create(object), Vec::new())
    }

    /// Raises the size of the HostPool to that in the job, which can only grow.
    fn grow_pool(&self, pool: &JobPool, found: &HostPool) -> Option<Action> {
        let (Ok(Form::Sized(wanted, _)), Ok(Form::Sized(size, _))) = (&pool.form, &found.form)
        else {
            return None;
        };
        if size >= wanted {
            return None;
        }
        let operations = vec![test_uid(&found.identity.uid), replace(&["spec", "size"], *wanted)];
        let name = Name::new(&self.name.namespace, &pool.host_pool);
        let target = Target::new(HOST_POOL, &name, &found.identity.uid);
        Some(Action::new(target, Write::Patch(operations), Vec::new()))
    }

    /// The groups of elements that share a host, each with its present host.
    fn build_groups(&self) -> Vec<Group> {
        let units = self.job.closure.units.iter();
        units
            .filter_map(|unit| {
                let name = unit.group.as_deref()?;
                let label = (keys::GROUP, name);
                let nodes =
                    self.view.streams_pods.nodes_of_group(&self.name.namespace, label, None);
                let mut nodes = nodes.into_iter();
                let elements = unit.elements.iter();
                Some(Group {
                    name: name.to_owned(),
                    processing_elements: elements
                        .map(|element| self.spec.processing_elements[*element].name.clone())
                        .collect(),
                    // If colocation is only preferred, a group may run on several nodes.
                    host: nodes.next().filter(|_| nodes.next().is_none()).map(str::to_owned),
                })
            })
            .collect()
    }
}

fn format_finding(Finding { problem, remedy, .. }: &Finding) -> String {
    format!("{problem}; {remedy}")
}

/// Finds out why a pool is not ready; `None` if it is ready.
fn find_problem(pool: &HostPool) -> Option<String> {
    let generation = pool.ready_condition().and_then(|ready| ready.observed_generation);
    let is_current = generation == Some(pool.identity.generation);
    let not_yet = || (!is_current).then(|| "the controller has not processed it yet".to_owned());
    pool.unready_reason().or_else(not_yet)
}

/// The names of the elements in an order of creation in which no pod takes the node that a later
/// one needs: first the elements that are bound to hosts or pools, then groups, then elements with
/// exlocation or isolation, then the others.
fn find_creation_order(spec: &StreamsJobSpec, closure: &Closure) -> Vec<String> {
    let mut order: Vec<(u8, usize, usize)> = Vec::with_capacity(spec.processing_elements.len());
    for (number, unit) in closure.units.iter().enumerate() {
        let rank = if !unit.claims.is_empty() {
            0
        } else if unit.group.is_some() {
            1
        } else if !unit.exlocations.is_empty() || unit.isolated.is_some() {
            2
        } else {
            3
        };
        order.extend(unit.elements.iter().map(|element| (rank, number, *element)));
    }
    order.sort_unstable();
    order
        .into_iter()
        .map(|(_, _, element)| spec.processing_elements[element].name.clone())
        .collect()
}

#[cfg(test)]
mod tests;
