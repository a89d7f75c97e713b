//! Chooses the nodes of a pool, counts the obstacles of the nodes that it cannot have, and says which members
//! it lacks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::inventory::{Holder, Inventory, NodeState};
use super::status::Readiness;
use super::{Pool, truncate};
use crate::systems::View;
use crate::systems::check::words::counted;
use crate::systems::streams::kinds::host_pool::{Form, Host};
use crate::systems::streams::kinds::in_other_form;
use crate::systems::streams::kinds::node_marks::{has_tags, tag_keys};
use crate::systems::streams::obstacle::{self, Obstacle, join};
use crate::systems::streams::owners::Owner;
use crate::systems::streams::reasons::PoolReason;
use crate::systems::streams::resolve::{Resolved, format_host, meant, resolve};

impl<'v> Obstacle<'v> {
    /// Finds out why other pools, or pods that do not belong to `pool`, keep it from `node`.
    pub(super) fn of_others(
        node: &NodeState<'v>,
        pool: &Pool<'_>,
        inventory: &Inventory<'v>,
    ) -> Option<Self> {
        let owner = |name| Owner::new(name, &pool.name.namespace);
        let marked = |hash: Option<&str>| hash.map(|hash| inventory.owner(hash));
        let has = |holder: Option<&Holder<'v>>| holder.map(|(name, _)| Some(*name));
        let tainted = || marked(node.marks.tainted_by_another(pool.hash));
        let mut exclusive = node.claims.iter().filter(|(_, of)| of.exclusive);
        if let Some(name) = has(exclusive.next()).or_else(tainted) {
            return Some(Self::Exclusive(owner(name)));
        }
        if !pool.exclusive() {
            return None;
        }
        // A job is placed as a whole, so its own pools leave each other what its elements need.
        let mut unmarked = node.hosts_of.iter().filter(|(_, of)| !of.is_of_job_of(pool.pool));
        let labelled = || marked(node.marks.labelled_by_another(pool.hash));
        let shared = has(node.claims.first().or_else(|| unmarked.next())).or_else(labelled);
        match shared {
            Some(name) => Some(Self::Shared(owner(name))),
            None => node.has_foreign_pod(pool).then_some(Self::Occupied),
        }
    }
}

/// The reason why no node was chosen for a member.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Refusal {
    /// No node is eligible; `Choice::Free` counts the obstacles.
    NoneEligible,
    /// The listed host is not exactly one node, for this reason.
    Unknown(String),
    /// The listed host is a node that the pool cannot have, for this reason.
    Ineligible(String),
}

/// The nodes that a pool can have.
#[derive(Debug)]
pub(super) enum Choice<'v> {
    /// The controller chooses them.
    Free {
        /// The indices of the eligible nodes that are left, in the order of preference.
        eligible: VecDeque<usize>,
        /// The eligible nodes for which the pods of one member wait, by its index.
        members: BTreeMap<u32, usize>,
        /// The number of eligible nodes at first.
        count: usize,
        /// The number of nodes with each obstacle, among the other nodes that have the tags.
        obstacles: BTreeMap<Obstacle<'v>, usize>,
        /// The tags that the nodes must have.
        tags: &'v [Box<str>],
    },
    /// The author lists them.
    Listed(&'v [Host]),
}

impl<'v> Choice<'v> {
    /// The nodes that `pool` can have for its `open` members, in addition to those that it has.
    pub(super) fn new(inventory: &Inventory<'v>, pool: &Pool<'v>, open: &BTreeSet<u32>) -> Self {
        if let Ok(Form::Literal(hosts)) = &pool.pool.form {
            return Self::Listed(hosts);
        }
        let tags: &'v [Box<str>] = pool.pool.form.as_ref().map(Form::tags).unwrap_or_default();
        let wanted = tag_keys(tags);
        let mut eligible: Vec<usize> = Vec::with_capacity(inventory.nodes.len());
        let mut obstacles = BTreeMap::new();
        for (index, node) in inventory.nodes.iter().enumerate() {
            if node.is_claimed_by(pool) || !has_tags(node.site.tags, &wanted) {
                continue;
            }
            let full = || (node.claims.len() >= inventory.max_pools).then_some(Obstacle::Full);
            let others = || Obstacle::of_others(node, pool, inventory);
            let obstacle = node.site.unfit().or_else(others).or_else(full);
            match obstacle {
                Some(obstacle) => *obstacles.entry(obstacle).or_default() += 1,
                None => eligible.push(index),
            }
        }
        // The sort is stable, so nodes with as many pools stay in the order of their names.
        eligible.sort_by_key(|index| inventory.nodes[*index].count_pools());
        let members = match pool.planned {
            None => inventory.waiting().sort(pool, open, &mut eligible),
            Some(_) => BTreeMap::new(),
        };
        let count = eligible.len();
        Self::Free { eligible: eligible.into(), members, count, obstacles, tags }
    }

    /// The number of nodes from which the controller chooses; of a pool that lists its hosts, all of them.
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Free { count, .. } => *count,
            Self::Listed(hosts) => hosts.len(),
        }
    }

    /// Returns true if pods wait for the member `index` on one of the nodes.
    pub(super) fn is_awaited(&self, index: u32) -> bool {
        matches!(self, Self::Free { members, .. } if members.contains_key(&index))
    }

    /// Formats the number of eligible nodes and the obstacles of the others. `released` nodes are
    /// counted as eligible, too: the pool has them, and gives them up. Empty if the author lists
    /// the hosts.
    fn format_counts(&self, released: usize, view: &View) -> String {
        let Self::Free { count, obstacles, tags, .. } = self else { return String::new() };
        let eligible = count + released;
        let verb = if eligible == 1 { "is" } else { "are" };
        let mut text = format!("{eligible} {verb} eligible");
        if !obstacles.is_empty() {
            text += "; ";
            text += &obstacle::format_counts(obstacles);
        } else if eligible == 0 && !tags.is_empty() {
            let keys = tag_keys(tags).into_iter().map(String::from);
            text += &format!("; no other node has {}", join(keys.collect()));
        }
        text + &in_other_form(view, tags)
    }
}

/// The node that `hosts[index]`, which is `host`, names.
///
/// # Errors
/// The message if it is not exactly one node.
pub(super) fn find_node<'v>(view: &'v View, host: &'v Host, index: u32) -> Result<&'v str, String> {
    match resolve(view, host) {
        Resolved::Node(node) => Ok(node),
        Resolved::Unknown => {
            let near = meant(view, host);
            Err(format!("no node has the {} (hosts[{index}]){near}", format_host(host)))
        }
        Resolved::Ambiguous(nodes) => {
            let nodes = join(nodes.into_iter().map(str::to_owned).collect());
            Err(format!("several nodes have the {} (hosts[{index}]): {nodes}", format_host(host)))
        }
    }
}

/// The members that a pool lacks, and the reasons.
#[derive(Debug, Default)]
pub(super) struct Lack {
    /// Messages about members that wait for a pod on another node to end.
    pub(super) held: Vec<String>,
    /// The indices of lost members that got no node.
    pub(super) vacant: Vec<u32>,
    /// The number of members that are not recorded yet and got no node.
    pub(super) fresh: usize,
    /// Messages about listed hosts that are not exactly one node.
    unknown: Vec<String>,
    /// Messages about listed hosts that the pool cannot have.
    ineligible: Vec<String>,
}

impl Lack {
    pub(super) fn add(&mut self, refusal: Refusal) {
        match refusal {
            Refusal::NoneEligible => {}
            Refusal::Unknown(problem) => self.unknown.push(problem),
            Refusal::Ineligible(problem) => self.ineligible.push(problem),
        }
    }

    /// Returns the number of nodes that are needed and not eligible, and the reason why members are missing.
    /// `choice` has what is left after all nodes are chosen; the pool keeps `kept` nodes and gives up
    /// `released`.
    pub(super) fn explain(
        self,
        choice: &Choice<'_>,
        kept: usize,
        released: usize,
        limit: Option<&str>,
        view: &View,
    ) -> (usize, Option<Readiness>) {
        let reason = if !self.unknown.is_empty() {
            PoolReason::UnknownHost
        } else if !self.held.is_empty() || !self.vacant.is_empty() || self.fresh > 0 {
            PoolReason::InsufficientNodes
        } else {
            return (0, at_limit(limit));
        };
        let (mut missing, mut needs) = (0, None);
        let need = self.vacant.len() + self.fresh;
        if let (1.., Choice::Free { eligible, .. }) = (need, choice) {
            missing = need.saturating_sub(eligible.len() + released);
            let nodes = counted(need, if kept > 0 { "more node" } else { "node" });
            needs = Some(format!("needs {nodes}, {}", choice.format_counts(released, view)));
        }
        let mut parts = Vec::new();
        if let [index] = self.vacant.as_slice() {
            parts.push(format!("member {index} is vacant"));
        } else if !self.vacant.is_empty() {
            let indices = self.vacant.iter().map(u32::to_string).collect();
            parts.push(format!("members {} are vacant", join(indices)));
        }
        parts.extend(needs);
        parts.extend([self.unknown, self.ineligible, self.held].into_iter().flat_map(truncate));
        parts.extend(limit.map(str::to_owned));
        (missing, Some(Readiness { reason, message: parts.join("; ") }))
    }
}

/// Returns the reason why a pool that lacks no member may get no more: the limit of exclusive nodes.
pub(super) fn at_limit(limit: Option<&str>) -> Option<Readiness> {
    limit.map(|limit| Readiness::new(PoolReason::TooManyExclusiveNodes, limit.to_owned()))
}
