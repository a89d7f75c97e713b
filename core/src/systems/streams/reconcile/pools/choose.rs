//! Chooses the nodes of a pool, and counts the obstacles of the nodes that it cannot have.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Pool;
use super::inventory::{Holder, Inventory, NodeState};
use crate::systems::View;
use crate::systems::streams::kinds::host_pool::{Form, Host};
use crate::systems::streams::kinds::in_other_form;
use crate::systems::streams::kinds::node_marks::{has_tags, tag_keys};
use crate::systems::streams::obstacle::{self, Obstacle, join};
use crate::systems::streams::owners::Owner;
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
    Listed(&'v View, &'v [Host]),
}

impl<'v> Choice<'v> {
    /// The nodes that `pool` can have for its `open` members, in addition to those that it has.
    pub(super) fn new(inventory: &Inventory<'v>, pool: &Pool<'v>, open: &BTreeSet<u32>) -> Self {
        let tags: &'v [Box<str>] = match &pool.pool.form {
            Ok(Form::Literal(hosts)) => return Self::Listed(inventory.view, hosts),
            Ok(Form::Sized(_, tags)) => tags,
            Ok(Form::Tagged(_) | Form::Any) | Err(_) => &[],
        };
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
            Self::Listed(_, hosts) => hosts.len(),
        }
    }

    /// Returns true if pods wait for the member `index` on one of the nodes.
    pub(super) fn is_awaited(&self, index: u32) -> bool {
        matches!(self, Self::Free { members, .. } if members.contains_key(&index))
    }

    /// Takes a node for the member `index`. If `only` is given, takes the node with this name or
    /// none.
    pub(super) fn take(
        &mut self,
        inventory: &Inventory<'v>,
        pool: &Pool<'v>,
        index: u32,
        only: Option<&str>,
    ) -> Result<usize, Refusal> {
        match self {
            Self::Free { eligible, members, .. } => {
                let mut nodes = eligible.iter();
                let position = match only {
                    None => {
                        let awaited = members.get(&index);
                        let awaited =
                            awaited.and_then(|awaited| nodes.position(|of| of == awaited));
                        Some(awaited.unwrap_or(0))
                    }
                    Some(name) => nodes.position(|of| inventory.nodes[*of].name == name),
                };
                let found = position.and_then(|position| eligible.remove(position));
                found.ok_or(Refusal::NoneEligible)
            }
            Self::Listed(view, hosts) => {
                let node_index = Self::find_listed(view, hosts, inventory, index)?;
                let node = &inventory.nodes[node_index];
                // What makes the node unfit does not count: it may pass, and the author asked for the
                // node.
                let obstacle =
                    node.site.barred().or_else(|| Obstacle::of_others(node, pool, inventory));
                match obstacle {
                    Some(obstacle) => Err(Refusal::Ineligible(format!(
                        "hosts[{index}], node {}, {}",
                        node.name,
                        obstacle.describe()
                    ))),
                    None => Ok(node_index),
                }
            }
        }
    }

    /// The index of the node that `hosts[index]` names.
    fn find_listed(
        view: &'v View,
        hosts: &'v [Host],
        inventory: &Inventory<'v>,
        index: u32,
    ) -> Result<usize, Refusal> {
        let host = usize::try_from(index).ok().and_then(|index| hosts.get(index));
        let host = host.ok_or(Refusal::NoneEligible)?;
        let node = find_node(view, host, index).map_err(Refusal::Unknown)?;
        inventory.index_of(node).ok_or_else(|| {
            Refusal::Unknown(format!("no node has the {} (hosts[{index}])", format_host(host)))
        })
    }

    /// Formats the number of eligible nodes and the obstacles of the others. `released` nodes are
    /// counted as eligible, too: the pool has them, and gives them up. Empty if the author lists
    /// the hosts.
    pub(super) fn format_counts(&self, released: usize, view: &View) -> String {
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
