//! Judges every StreamsJob as a whole, once for each plan: what the pools of the job get, which nodes are
//! reserved for its elements, and why not.
//!
//! Older jobs come first: what they name or have is not taken from them by exclusive pools of younger
//! ones. What runs stays where it is; pods on nodes that are lost no longer count.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::api::condition::{ACCEPTED, Status, find};
use crate::placement::affinity::bound_to;
use crate::placement::reason::Finding;
use crate::systems::View;
use crate::systems::exclusion::Exclusion;
use crate::systems::fit::{self, Candidate, Question};
use crate::systems::policy::Policy;
use crate::systems::streams::job::check::check;
use crate::systems::streams::job::placement::{
    Fixed, Judged, MissingNode, Plan, PodNodes, is_searched, judge, lacks_only_nodes, named_hosts,
};
use crate::systems::streams::job::sites::{Site, Sites, State};
use crate::systems::streams::kinds::streams_job::closure::{JobPool, Location};
use crate::systems::streams::kinds::{PodDetails, StreamsJob};
use crate::systems::streams::policy::Unmet;
use crate::systems::streams::resolve::find_node;
use crate::view::Name;

/// The findings about a job, and its placement.
#[derive(Debug, Default)]
pub(super) struct Placement<'v> {
    /// The reasons why not all of it can run now.
    pub(super) findings: Vec<Finding>,
    /// True if only nodes are missing, and the policy lets such a job wait.
    pub(super) may_wait: bool,
    /// How it can be placed. `None`: not at all, not searched for, or not found out.
    pub(super) plan: Option<Plan<'v>>,
    /// True if the search has ended without an answer.
    pub(super) is_unknown: bool,
    /// True if the plan leaves a node because a pod did not fit there.
    pub(super) is_moved: bool,
    /// The nodes that have to be added to the cluster, if the job waits for some.
    pub(super) missing: Vec<MissingNode>,
}

/// The reason why a pool of a job gets no first members now.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    /// True if the job's other pools are about to be created, so a pool without a status gets none yet.
    pub(super) is_incomplete: bool,
    /// The message of the pool's condition Ready.
    pub(super) message: String,
}

/// The part of a pool in the placement of its job: the nodes of its members by index, or the reason why it
/// gets no first members now.
pub(super) type Share<'v> = Result<BTreeMap<u32, &'v str>, Hold>;

/// The placements of all jobs, and of their pools.
#[derive(Debug, Default)]
pub(crate) struct Placements<'v> {
    jobs: HashMap<&'v Name, Placement<'v>>,
    /// The parts of the pools of jobs, by the pool's hash.
    shares: HashMap<&'v str, Share<'v>>,
    /// When a pod will have waited long enough for its node.
    pub(super) recheck_at: Option<Timestamp>,
}

/// The pods of a job: their nodes, and those that are unschedulable, each with its element.
type JobPods<'v> = (PodNodes<'v>, Vec<(usize, &'v PodDetails)>);

impl<'v> Placements<'v> {
    pub(super) fn new(view: &'v View, policy: &Policy, now: Timestamp) -> Self {
        let mut placements = Self::default();
        if !policy.streams.enabled {
            return placements;
        }
        let mut jobs: Vec<(&Name, &StreamsJob)> = view
            .streams_jobs()
            .filter(|(name, job)| {
                let exclusion = Exclusion::of_namespace(&name.namespace, view, policy);
                job.spec.is_ok() && !job.identity.deleting && exclusion.is_none()
            })
            .collect();
        jobs.sort_unstable_by_key(|(name, job)| (job.identity.created, *name));
        // The nodes are looked at only if there is a job that depends on them.
        let (mut sites, mut pods) = (None, HashMap::new());
        if jobs.iter().any(|(_, job)| is_searched(job)) {
            let sites = sites.insert(Sites::new(view, policy));
            for (name, job) in jobs.iter().filter(|(_, job)| !has_verdict(job, Status::False)) {
                name_nodes(name, job, view, sites);
            }
            pods = find_pods(view, &jobs, sites);
        }
        for (name, job) in jobs {
            let of_job = pods.remove(name).unwrap_or_default();
            let mut judging = Judging { view, policy, now, name, job, placements: &mut placements };
            judging.judge(of_job, sites.as_mut());
        }
        placements
    }

    /// Returns the placement of a job; `None`: the job is not served.
    pub(super) fn get(&self, name: &Name) -> Option<&Placement<'v>> {
        self.jobs.get(name)
    }

    /// Returns the jobs that are served, in the order of their names, each with its placement.
    pub(super) fn jobs<'j>(
        &self,
        view: &'j View,
    ) -> BTreeMap<&'j Name, (&'j StreamsJob, &Placement<'v>)> {
        let jobs = view.streams_jobs();
        jobs.filter_map(|(name, job)| Some((name, (job, self.get(name)?)))).collect()
    }

    /// The part of a pool; `None`: the pool chooses its members by itself.
    pub(super) fn share(&self, hash: &str) -> Option<&Share<'v>> {
        self.shares.get(hash)
    }
}

/// Returns true if the controller has set the condition Accepted to this for the job as it is now.
pub(super) fn has_verdict(job: &StreamsJob, status: Status) -> bool {
    find(&job.status.conditions, ACCEPTED).is_some_and(|condition| {
        condition.status == status && condition.observed_generation == Some(job.identity.generation)
    })
}

/// Records the nodes that a job names, and those that are reserved for it.
fn name_nodes<'v>(name: &'v Name, job: &'v StreamsJob, view: &'v View, sites: &mut Sites<'v>) {
    job.reserved.values().for_each(|node| sites.name_for(node, name));
    for host in named_hosts(&job.closure) {
        if let Some(node) = find_node(view, host) {
            sites.name_for(node, name);
        }
    }
}

/// The pods of all jobs. A pod on a node that is NotReady or does not exist is lost.
fn find_pods<'v>(
    view: &'v View,
    jobs: &[(&'v Name, &'v StreamsJob)],
    sites: &Sites<'v>,
) -> HashMap<&'v Name, JobPods<'v>> {
    let known: HashMap<&Name, &StreamsJob> = jobs.iter().copied().collect();
    let mut pods: HashMap<&Name, JobPods<'_>> = HashMap::new();
    let mut all: Vec<(&Name, &PodDetails)> =
        view.pods().filter(|(_, pod)| pod.streams && !pod.finished).collect();
    all.sort_unstable_by_key(|(name, _)| *name);
    for (name, pod) in all {
        let Some(job) = pod.job.as_deref() else { continue };
        let Some((name, job)) = known.get_key_value(&Name::new(&name.namespace, job)) else {
            continue;
        };
        let (of_job, waiting) = pods.entry(name).or_default();
        let element = pod.element.as_deref().and_then(|element| job.closure.element(element));
        // A pod that the webhook did not see may run anywhere, and does not fill the place of its element.
        let is_in_place = |element: &usize| !pod.pools.is_empty() || !needs_pool(job, *element);
        let element = element.filter(is_in_place);
        let is_there = |node: &str| {
            sites.state(node).is_some_and(|State { site: Site { limits, .. }, .. }| {
                !limits.not_ready && !limits.deleted
            })
        };
        let deleting = pod.identity.deleting;
        match (pod.node.as_deref(), element) {
            (Some(node), _) if !is_there(node) => {}
            // Of two pods of an element, the one that stays counts.
            (Some(node), Some(element)) if !deleting => {
                of_job.running.insert(element, node);
            }
            (Some(node), Some(element)) => _ = of_job.running.entry(element).or_insert(node),
            (Some(node), None) => _ = of_job.strangers.insert(node),
            (None, Some(element)) if pod.unschedulable_since.is_some() && !deleting => {
                waiting.push((element, pod));
            }
            (None, _) => {}
        }
    }
    pods
}

/// Returns true if the webhook gives the pods of an element the label of a pool as a requirement. Those of a pool
/// with listed hosts require these.
fn needs_pool(job: &StreamsJob, element: usize) -> bool {
    let (Ok(spec), Some(unit)) = (&job.spec, job.closure.unit_of(element)) else { return false };
    let is_labelled = |pool: usize| job.closure.pools.get(pool).is_some_and(JobPool::is_labelled);
    unit.claims_of(element, spec.enforcement).any(|claim| match claim.location {
        Location::Pool { pool, .. } => is_labelled(pool),
        Location::Host(_) => false,
    })
}

/// The state of judging one job.
struct Judging<'w, 'v, 'p> {
    view: &'v View,
    policy: &'p Policy,
    now: Timestamp,
    name: &'v Name,
    job: &'v StreamsJob,
    placements: &'w mut Placements<'v>,
}

impl<'v> Judging<'_, 'v, '_> {
    fn judge(&mut self, (pods, waiting): JobPods<'v>, sites: Option<&mut Sites<'v>>) {
        let (name, job, view) = (self.name, self.job, self.view);
        let mut placement =
            Placement { findings: check(name, job, view, self.policy), ..Placement::default() };
        let wait = self.policy.streams.unmet == Unmet::Wait;
        // A job that was accepted goes on with the nodes that are left.
        let goes_on = (wait || has_verdict(job, Status::True))
            && placement.findings.iter().all(lacks_only_nodes);
        if is_searched(job)
            && (placement.findings.is_empty() || goes_on)
            && let Some(sites) = sites
        {
            let mut fixed = Fixed { pods, ..Fixed::without_pods(name, job, view) };
            for (unit, node) in &job.reserved {
                let elements = job.closure.units[*unit].elements.iter();
                fixed.pods.reserved.extend(elements.map(|element| (*element, &**node)));
            }
            let closed = self.find_closed(&waiting);
            let mut judged = None;
            if !closed.is_empty() {
                let mut elsewhere = fixed.clone();
                elsewhere.pods.closed = closed;
                let elsewhere = judge(sites, &elsewhere);
                // If nothing better is found, what is reserved stays.
                judged = Some(elsewhere).filter(|of| matches!(of, Judged::Possible(_)));
                placement.is_moved = judged.is_some();
            }
            match judged.unwrap_or_else(|| judge(sites, &fixed)) {
                Judged::Possible(plan) => placement.plan = Some(plan),
                Judged::Impossible(finding, missing) => {
                    if wait && lacks_only_nodes(&finding) {
                        placement.missing = missing;
                    }
                    placement.findings.push(finding);
                }
                Judged::Unknown => placement.is_unknown = true,
            }
            self.serve_pools(&placement, &fixed, sites);
        }
        let findings = &placement.findings;
        placement.may_wait = wait && !findings.is_empty() && findings.iter().all(lacks_only_nodes);
        self.placements.jobs.insert(name, placement);
    }

    /// The nodes that are closed to an element whose pod has been unschedulable for the grace period on the
    /// node that is reserved for it: that node, and those on which the pod does not fit either. Also sets
    /// when to plan again for pods whose grace period has not passed.
    fn find_closed(
        &mut self,
        waiting: &[(usize, &PodDetails)],
    ) -> BTreeMap<usize, BTreeSet<&'v str>> {
        let mut closed: BTreeMap<usize, BTreeSet<&str>> = BTreeMap::new();
        let moves = self.job.status.witness.as_ref().map_or(0, |witness| witness.moves);
        for (element, pod) in waiting {
            let Some(unit) = self.job.closure.unit_index(*element) else { continue };
            let Some(reserved) = self.job.reserved.get(&unit) else { continue };
            let Some(pending) = pod.pending.as_deref() else { continue };
            let is_bound_here = pending.terms.as_deref().and_then(bound_to) == Some(reserved)
                && pending.gate.is_none();
            let Some(since) = pod.unschedulable_since.filter(|_| is_bound_here) else { continue };
            // The pauses grow, so that a pod that fits nowhere is not created again and again.
            let pause = grace_period(self.policy) * (1 << moves.min(6));
            match since.checked_add(pause) {
                Ok(due) if due > self.now => {
                    let earlier = self.placements.recheck_at.map_or(due, |at| at.min(due));
                    self.placements.recheck_at = Some(earlier);
                }
                Ok(_) => {
                    let needs = pending.needs();
                    let fits = |node: &str| {
                        let candidate = Candidate::find(node, self.view);
                        candidate.is_some_and(|candidate| {
                            fit::first_obstacle(&Question::new(candidate, &needs), fit::ALL)
                                .is_none()
                        })
                    };
                    let nodes = closed.entry(*element).or_default();
                    let others = self.view.nodes().map(|(node, _)| node);
                    nodes.extend(others.filter(|node| **node == **reserved || !fits(node)));
                }
                Err(_) => {}
            }
        }
        closed
    }

    /// Gives the pools of the job the members of the plan, or holds them until there is one.
    fn serve_pools(&mut self, placement: &Placement<'v>, fixed: &Fixed<'v>, sites: &mut Sites<'v>) {
        let labelled =
            || self.job.closure.pools.iter().enumerate().filter(|(_, of)| of.is_labelled());
        let missing = || labelled().filter(|(pool, _)| !fixed.pools.contains_key(pool));
        let is_complete = missing().next().is_none();
        let exists = |of: &str| self.view.host_pool(&Name::new(&self.name.namespace, of)).is_some();
        let job = &self.name.name;
        let (is_incomplete, message) = if placement.plan.is_none() {
            (false, format!("StreamsJob {job} cannot be placed as a whole now"))
        } else if missing().any(|(_, of)| exists(&of.host_pool)) {
            (false, format!("StreamsJob {job} does not own all of the HostPools it needs"))
        } else {
            (true, format!("the other pools of StreamsJob {job} are being created"))
        };
        let hold = Hold { is_incomplete, message };
        for (pool, of) in labelled() {
            let found = fixed.pools.get(&pool).and_then(|found| found.hash.as_deref());
            let Some(hash) = found else { continue };
            let members = placement.plan.as_ref().and_then(|plan| plan.pools.get(&pool));
            let share = members.filter(|_| is_complete).cloned().ok_or_else(|| hold.clone());
            let nodes = share.iter().flat_map(BTreeMap::values);
            nodes.for_each(|node| sites.give(node, hash, of.exclusive));
            // If the search has ended without an answer, the pool chooses its members by itself.
            if share.is_ok() || !placement.is_unknown {
                self.placements.shares.insert(hash, share);
            }
        }
        if let Some(plan) = &placement.plan {
            plan.reserved.values().for_each(|node| sites.name_for(node, self.name));
        }
    }
}

/// Returns how long a pod may be unschedulable before another node is sought for it.
pub(super) fn grace_period(policy: &Policy) -> SignedDuration {
    SignedDuration::try_from(policy.streams.grace_period.length())
        .unwrap_or(SignedDuration::from_secs(30))
}
