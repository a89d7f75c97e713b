//! Finds out if a StreamsJob can be placed as a whole, and how (Streams design: the submission fails if a host
//! constraint cannot be met).
//!
//! [`Frame`] writes a job and the nodes as a problem of the search; [`judge`] solves it. The answer is a
//! [`Plan`] (the members of the job's pools and the nodes that are reserved for elements), or a finding
//! that names constraints which contradict each other, or that the search has ended without an answer.
//!
//! The resources of nodes, and what the pods require beside their job, are not looked at.

mod fixed;
mod frame;
mod words;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use k8s_openapi::api::core::v1::NodeSelectorTerm;

use super::sites::Sites;
use crate::placement::affinity::{bound_to, excluded_nodes};
use crate::placement::reason::{Finding, Reason};
use crate::systems::streams::api::streams_job::{Enforcement, StreamsJobSpec};
use crate::systems::streams::kinds::{Closure, Location, StreamsJob, Unit};
use crate::systems::streams::witness::{Budget, Exhausted, Place, find_contended, solve};
pub(crate) use fixed::{Fixed, Found, PodNodes, named_hosts};
pub(crate) use frame::Frame;

/// The steps of one search: some tens of milliseconds at most.
pub(crate) const STEPS: u64 = 1_000_000;

/// The answer about a job.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Judged<'v> {
    /// All of it can run.
    Possible(Plan<'v>),
    /// Not all of it can run now: why, and the nodes that have to be added before it can. None if more nodes
    /// would not help, or if that was not found out.
    Impossible(Finding, Vec<MissingNode>),
    /// The search has ended without an answer.
    Unknown,
}

/// How a job can be placed as a whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Plan<'v> {
    /// The members of each pool of the job that the controller marks, by the pool's index in the spec and
    /// the member's index.
    pub(crate) pools: BTreeMap<usize, BTreeMap<u32, &'v str>>,
    /// The nodes that are reserved for elements, by the index of the element. The others may go to any
    /// node that their constraints allow.
    pub(crate) reserved: BTreeMap<usize, &'v str>,
}

/// Returns true if the pods of a job depend on each other for their nodes, so that they must not be created before
/// it is known which nodes are reserved.
pub(crate) fn needs_placement(job: &StreamsJob) -> bool {
    let Ok(spec) = &job.spec else { return false };
    let closure = &job.closure;
    let is_required = spec.enforcement == Enforcement::Required;
    (is_required && closure.units.len() > 1 && is_separated(closure))
        || closure.pools.iter().any(|pool| pool.exclusive)
}

/// Returns true if units must be apart from each other.
fn is_separated(closure: &Closure) -> bool {
    let mut tokens: HashSet<&str> = HashSet::new();
    closure.units.iter().any(|unit| {
        let mut own = unit.exlocations.iter();
        unit.isolated.is_some() || own.any(|exlocation| !tokens.insert(&exlocation.token))
    })
}

/// Returns true if a unit names its host, or a member of a pool: no placement of the others changes its node.
pub(crate) fn names_host(unit: &Unit) -> bool {
    unit.claims.iter().any(|claim| match claim.location {
        Location::Host(_) => true,
        Location::Pool { index, .. } => index.is_some(),
    })
}

/// How the reserved nodes of a job restrict the pods of a unit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Restriction<'j> {
    /// They must be on this node.
    On(&'j str),
    /// They must not be on these nodes, sorted; there may be none.
    Off(Vec<&'j str>),
}

impl<'j> Restriction<'j> {
    /// The restriction of the unit with this index. A unit that names its host, or a member of a pool, is
    /// bound by that.
    pub(crate) fn of(job: &'j StreamsJob, index: usize) -> Self {
        let Some(unit) = job.closure.units.get(index) else { return Self::Off(Vec::new()) };
        if names_host(unit) {
            return Self::Off(Vec::new());
        }
        if let Some(node) = job.reserved.get(&index) {
            return Self::On(node);
        }
        let is_apart = |other: &Unit| {
            let mut shared = other.exlocations.iter();
            unit.isolated.is_some()
                || other.isolated.is_some()
                || shared.any(|of| unit.exlocations.iter().any(|own| own.token == of.token))
        };
        let reserved = job.reserved.iter();
        let others = reserved.filter(|(other, _)| is_apart(&job.closure.units[**other]));
        let nodes: BTreeSet<&str> = others.map(|(_, node)| &**node).collect();
        Self::Off(nodes.into_iter().collect())
    }

    /// The restriction of an element; `None`: the job does not have it.
    pub(crate) fn of_element(job: &'j StreamsJob, element: Option<&str>) -> Option<Self> {
        let element = job.closure.element(element?)?;
        Some(Self::of(job, job.closure.unit_index(element)?))
    }

    /// How the node affinity of a pod differs; `None`: it does not, or not so that the pod waits for a node
    /// that it need not wait for.
    pub(crate) fn differs_from(&self, terms: &[NodeSelectorTerm]) -> Option<String> {
        let bound = bound_to(terms);
        match self {
            Self::On(node) if bound == Some(node) => None,
            Self::On(node) => {
                let before = bound.map(|before| format!("instead of {before} "));
                Some(format!("its job reserves node {node} {}for it", before.unwrap_or_default()))
            }
            // The node may be that of a host, which no reservation changes.
            Self::Off(_) if bound.is_some() => None,
            Self::Off(nodes) => {
                let own: BTreeSet<&str> = excluded_nodes(terms);
                let first = own.into_iter().find(|node| !nodes.contains(node))?;
                Some(format!("its job reserves node {first} for no other element any more"))
            }
        }
    }
}

/// Returns true if a search can find out more about a job than the check of its parts.
pub(crate) fn is_searched(job: &StreamsJob) -> bool {
    needs_placement(job) || job.closure.pools.iter().any(|pool| pool.is_labelled())
}

/// Decides whether a job, whose parts have been checked, can be placed as a whole.
pub(crate) fn judge<'v>(sites: &Sites<'v>, fixed: &Fixed<'_>) -> Judged<'v> {
    let Ok(spec) = &fixed.job.spec else { return Judged::Unknown };
    let frame = Frame::new(spec, sites, fixed);
    let mut budget = Budget::new(STEPS);
    // What is reserved stays reserved if that is possible: pods wait for these nodes.
    let held = (!fixed.pods.reserved.is_empty()).then(|| frame.problem.with_preferences_held());
    let kept = held.and_then(|held| solve(&held, &mut Budget::new(STEPS)).ok().flatten());
    let found = kept.map_or_else(|| solve(&frame.problem, &mut budget), |kept| Ok(Some(kept)));
    let witness = match found {
        Err(Exhausted) => return Judged::Unknown,
        Ok(None) => {
            let missing = find_missing_nodes(spec, sites, fixed);
            // Without an answer nothing says that nodes would not help.
            let would_help = missing.as_ref().map_or(true, Option::is_some);
            let finding = frame.explain(would_help, &mut budget);
            return Judged::Impossible(finding, missing.ok().flatten().unwrap_or_default());
        }
        Ok(Some(witness)) => witness,
    };
    let node = |place: &Place| frame.node(*place);
    let pools = frame.pools.iter().zip(&witness.pools).map(|(pool, members)| {
        let members = members.iter().filter_map(|(index, place)| Some((*index, node(place)?)));
        (*pool, members.collect())
    });
    let mut reserved = BTreeMap::new();
    let contended = find_contended(&frame.problem, &witness);
    for (unit, elements) in frame.elements.iter().enumerate().filter(|(unit, _)| contended[*unit]) {
        if let Some(node) = node(&witness.units[unit]) {
            reserved.extend(elements.iter().map(|element| (*element, node)));
        }
    }
    Judged::Possible(Plan { pools: pools.collect(), reserved })
}

/// A node that does not exist, and with which a job could be placed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct MissingNode {
    /// The elements on it, by their indices in the spec.
    pub(crate) elements: Vec<usize>,
    /// The pools of which it is a member, by their indices in the spec.
    pub(crate) pools: Vec<usize>,
    /// True if it must have no other pods of jobs.
    pub(crate) is_alone: bool,
}

/// Returns the nodes that have to be added before a job can be placed; `None`: more nodes would not help.
///
/// # Errors
/// The search has ended without an answer.
fn find_missing_nodes(
    spec: &StreamsJobSpec,
    sites: &Sites<'_>,
    fixed: &Fixed<'_>,
) -> Result<Option<Vec<MissingNode>>, Exhausted> {
    let fixed = Fixed { with_more_nodes: true, ..fixed.clone() };
    let frame = Frame::new(spec, sites, &fixed);
    let found = solve(&frame.problem, &mut Budget::new(STEPS))?;
    Ok(found.map(|witness| frame.missing_nodes(&witness)))
}

/// Returns true if a finding is about nodes that the cluster does not have now.
pub(crate) fn lacks_only_nodes(finding: &Finding) -> bool {
    matches!(finding.reason, Reason::InsufficientNodes | Reason::NoTaggedNode | Reason::UnknownHost)
}
