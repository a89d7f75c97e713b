//! Chooses the nodes of a pool, counts the obstacles of the nodes that it cannot have, and says which members
//! it lacks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::inventory::{Inventory, NodeState};
use super::status::Readiness;
use super::{Pool, truncate};
use crate::systems::View;
use crate::systems::check::words::counted;
use crate::systems::streams::kinds::{Form, Host, to_usize};
use crate::systems::streams::obstacle::{self, Obstacle, join};
use crate::systems::streams::reasons::PoolReason;
use crate::systems::streams::resolve::{Resolved, format_host, resolve, suggest_node};

impl<'v> Obstacle<'v> {
    /// Finds out why other pools, or pods that do not belong to `pool`, keep it from `node`.
    pub(super) fn of_others(
        node: &NodeState<'v>,
        pool: &Pool<'_>,
        inventory: &Inventory<'v>,
    ) -> Option<Self> {
        let claims = || node.claims.iter();
        let exclusive = claims().find(|(_, of)| of.exclusive).map(|(hash, _)| *hash);
        if let Some(of) = exclusive.or_else(|| node.marks.tainted_by_another(pool.hash)) {
            return Some(Self::Exclusive(inventory.owner(of, pool)));
        }
        if !pool.pool.exclusive {
            return None;
        }
        // A job is placed as a whole, so its own pools leave each other what its elements need.
        let is_of_job =
            |of: &&str| inventory.pool(of).is_some_and(|(_, of)| of.is_of_job_of(pool.pool));
        let unmarked = || node.hosts_of.iter().copied().find(|of| !is_of_job(of));
        let labelled = || node.marks.labelled_by_another(pool.hash);
        let claimed = claims().next().map(|(hash, _)| *hash);
        match claimed.or_else(unmarked).or_else(labelled) {
            Some(of) => Some(Self::Shared(inventory.owner(of, pool))),
            None => node.has_foreign_pod(pool).then_some(Self::Occupied),
        }
    }
}

/// The problem of a listed host that the pool does not get; `None`: there is nothing to say beside the counts
/// of obstacles.
pub(super) type Refusal = Option<(PoolReason, String)>;

/// The nodes that a pool can have in addition to those that it has, and the members that it lacks.
pub(super) struct Choice<'f, 'v> {
    /// The pool that needs members.
    pub(super) pool: &'f Pool<'v>,
    /// The nodes, and what pools have of them.
    pub(super) inventory: &'f mut Inventory<'v>,
    /// The indices of the eligible nodes that are left, in the order of preference; none if the author lists
    /// the hosts.
    pub(super) eligible: VecDeque<usize>,
    /// The eligible nodes for which the pods of one member wait, by its index.
    awaited: BTreeMap<u32, usize>,
    /// The number of eligible nodes at first.
    count: usize,
    /// The number of nodes with each obstacle, among the other nodes that have the tags.
    obstacles: BTreeMap<Obstacle<'v>, usize>,
    /// Messages about members that wait for a pod on another node to end.
    pub(super) blocked: Vec<String>,
    /// The indices of lost members that got no node.
    pub(super) vacant: Vec<u32>,
    /// The number of members that are not recorded yet and got no node.
    pub(super) fresh: usize,
    /// Messages about listed hosts: UnknownHost if the host is not exactly one node, or is the node of another
    /// listed host; InsufficientNodes if the pool cannot have it.
    problems: Vec<(PoolReason, String)>,
}

impl<'f, 'v> Choice<'f, 'v> {
    /// The choice for the `open` members of `pool`.
    pub(super) fn new(
        pool: &'f Pool<'v>,
        open: &BTreeSet<u32>,
        inventory: &'f mut Inventory<'v>,
    ) -> Self {
        let mut eligible: Vec<usize> = Vec::new();
        let (mut awaited, mut obstacles) = (BTreeMap::new(), BTreeMap::new());
        if let Ok(Form::Sized(_, tags)) = &pool.pool.form {
            eligible.reserve(inventory.nodes.len());
            for (index, node) in inventory.nodes.iter().enumerate() {
                if node.is_claimed_by(pool) || !tags.are_among(node.site.tags) {
                    continue;
                }
                let others = || Obstacle::of_others(node, pool, inventory);
                let full = || inventory.is_full(node).then_some(Obstacle::Full);
                match node.site.obstacle_for(&pool.pool.form).or_else(others).or_else(full) {
                    Some(obstacle) => *obstacles.entry(obstacle).or_default() += 1,
                    None => eligible.push(index),
                }
            }
            // The sort is stable, so nodes with as many pools stay in the order of their names.
            eligible.sort_by_key(|index| inventory.nodes[*index].count_pools());
            if pool.planned().is_none() {
                awaited = inventory.waiting().sort(pool, open, &mut eligible);
            }
        }
        let (count, eligible) = (eligible.len(), eligible.into());
        let (blocked, vacant, problems) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            pool,
            inventory,
            eligible,
            awaited,
            count,
            obstacles,
            blocked,
            vacant,
            fresh: 0,
            problems,
        }
    }

    /// Returns true if at least this many nodes were eligible at first, or are listed.
    pub(super) fn has_candidates(&self, nodes: usize) -> bool {
        nodes <= self.pool.hosts().map_or(self.count, <[Host]>::len)
    }

    /// Returns true if pods wait for the member `index` on one of the nodes.
    pub(super) fn is_awaited(&self, index: u32) -> bool {
        self.awaited.contains_key(&index)
    }

    /// Takes a node for the member `index`. If `only` is given and the controller chooses, takes the node with
    /// this name or none.
    ///
    /// # Errors
    /// The problem of the listed host, if it has one.
    pub(super) fn take(&mut self, index: u32, only: Option<&str>) -> Result<usize, Refusal> {
        let inventory = &*self.inventory;
        let Some(hosts) = self.pool.hosts() else {
            let mut nodes = self.eligible.iter();
            let position = match only {
                None => {
                    let awaited = self.awaited.get(&index);
                    awaited.and_then(|awaited| nodes.position(|of| of == awaited)).or(Some(0))
                }
                Some(name) => nodes.position(|of| inventory.nodes[*of].name == name),
            };
            return position.and_then(|position| self.eligible.remove(position)).ok_or(None);
        };
        let host = hosts.get(to_usize(index)).ok_or(None)?;
        let node = find_listed_node(inventory.view, host, index)
            .map_err(|problem| Some((PoolReason::UnknownHost, problem)))?;
        // The View has a node without details, which does not occur in the controller.
        let found = inventory.index_of(node).ok_or_else(|| {
            let problem = format!("no node has the {} (hosts[{index}])", format_host(host));
            Some((PoolReason::UnknownHost, problem))
        })?;
        let state = &inventory.nodes[found];
        let others = || Obstacle::of_others(state, self.pool, inventory);
        let Some(obstacle) = state.site.obstacle_for(&self.pool.pool.form).or_else(others) else {
            return Ok(found);
        };
        let problem = format!("hosts[{index}], node {node}, {}", obstacle.describe());
        Err(Some((PoolReason::InsufficientNodes, problem)))
    }

    /// Records the problem of a listed host, if there is one.
    pub(super) fn add_problem(&mut self, refusal: Refusal) {
        self.problems.extend(refusal);
    }

    /// The node of the pods that asked for a member.
    pub(super) fn bound_node(&self, index: u32) -> Option<&'v str> {
        self.inventory.bound(self.pool.hash, index).first().map(|(node, _)| *node)
    }

    /// Formats the number of eligible nodes and the obstacles of the others. `released` nodes are
    /// counted as eligible, too: the pool has them, and gives them up. Empty if the author lists the hosts.
    fn format_counts(&self, released: usize) -> String {
        let Ok(Form::Sized(_, tags)) = &self.pool.pool.form else { return String::new() };
        let eligible = self.count + released;
        let verb = if eligible == 1 { "is" } else { "are" };
        let mut text = format!("{eligible} {verb} eligible");
        if !self.obstacles.is_empty() {
            text += "; ";
            text += &obstacle::format_counts(&self.obstacles);
        } else if eligible == 0 && !tags.is_empty() {
            let keys = tags.keys.iter().map(ToString::to_string);
            text += &format!("; no other node has {}", join(keys.collect()));
        }
        text + &tags.in_other_form(self.inventory.view)
    }

    /// Returns the number of nodes that are needed and not eligible, and the reason why members are missing.
    /// The pool keeps `kept` nodes and gives up `released`.
    pub(super) fn explain(
        self,
        kept: usize,
        released: usize,
        limit: Option<&str>,
    ) -> (usize, Option<Readiness>) {
        let need = self.vacant.len() + self.fresh;
        let (mut missing, mut needs) = (0, None);
        if need > 0 && self.pool.hosts().is_none() {
            missing = need.saturating_sub(self.eligible.len() + released);
            let nodes = counted(need, if kept > 0 { "more node" } else { "node" });
            needs = Some(format!("needs {nodes}, {}", self.format_counts(released)));
        }
        let (unknown, ineligible): (Vec<_>, Vec<_>) =
            self.problems.into_iter().partition(|(reason, _)| *reason == PoolReason::UnknownHost);
        let reason = if !unknown.is_empty() {
            PoolReason::UnknownHost
        } else if need > 0 || !self.blocked.is_empty() {
            PoolReason::InsufficientNodes
        } else {
            return (0, at_limit(limit));
        };
        let vacant: Vec<String> = self.vacant.iter().map(u32::to_string).collect();
        let mut parts = Vec::from_iter(match vacant.as_slice() {
            [] => None,
            [index] => Some(format!("member {index} is vacant")),
            _ => Some(format!("members {} are vacant", join(vacant))),
        });
        parts.extend(needs);
        for problems in [unknown, ineligible] {
            parts.extend(truncate(problems.into_iter().map(|(_, problem)| problem).collect()));
        }
        parts.extend(truncate(self.blocked));
        parts.extend(limit.map(str::to_owned));
        (missing, Some(Readiness { reason, message: parts.join("; ") }))
    }
}

/// Finds the node of `host`, which is `hosts[index]` of a pool.
///
/// # Errors
/// The problem, if it is not exactly one node.
pub(super) fn find_listed_node<'v>(
    view: &'v View,
    host: &'v Host,
    index: u32,
) -> Result<&'v str, String> {
    match resolve(view, host) {
        Resolved::Node(node) => Ok(node),
        Resolved::Unknown => {
            let near = suggest_node(view, host);
            Err(format!("no node has the {} (hosts[{index}]){near}", format_host(host)))
        }
        Resolved::Ambiguous(nodes) => {
            let nodes = join(nodes.into_iter().map(str::to_owned).collect());
            Err(format!("several nodes have the {} (hosts[{index}]): {nodes}", format_host(host)))
        }
    }
}

/// Returns the reason why a pool that lacks no member may get no more: the limit of exclusive nodes.
pub(super) fn at_limit(limit: Option<&str>) -> Option<Readiness> {
    limit.map(|limit| Readiness::new(PoolReason::TooManyExclusiveNodes, limit.to_owned()))
}
