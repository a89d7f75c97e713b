//! Decides about the members of a pool: which it keeps, which are lost, and which nodes become
//! members.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::choose::{Choice, at_limit};
use super::inventory::Inventory;
use super::status::Readiness;
use super::{Hold, Pool};
use crate::systems::plan::Event;
use crate::systems::streams::api::host_pool::{Member, MemberState};
use crate::systems::streams::kinds::to_usize;
use crate::systems::streams::obstacle::Obstacle;
use crate::systems::streams::owners::Owner;
use crate::systems::streams::reasons::PoolReason;

/// The decision about one member of a pool.
#[derive(Debug)]
pub(super) enum Slot<'v> {
    /// The member keeps the node that the status records.
    Kept {
        /// The node's index in the inventory.
        node: usize,
        /// As the status records it.
        member: &'v Member,
    },
    /// The member has no node.
    Empty {
        /// As the status records it: Vacant, or with a node that it has lost since.
        member: &'v Member,
    },
    /// This plan chooses a node for the member.
    Chosen {
        /// The node's index in the inventory.
        node: usize,
    },
}

/// The decisions about the members of a pool.
#[derive(Debug, Default)]
pub(super) struct Draft<'v> {
    /// By the index of the member.
    pub(super) slots: BTreeMap<u32, Slot<'v>>,
    /// The reason why members are missing, if any are.
    pub(super) shortfall: Option<Readiness>,
    /// The events about lost and replaced members.
    pub(super) events: Vec<Event>,
    /// True if the nodes of all reserved members are marked, so that the members become Ready.
    pub(super) promoted: bool,
    /// The number of nodes that would have to be added to the cluster.
    pub(super) missing: usize,
}

impl<'v> Draft<'v> {
    /// Adds the members that the status records in this state: kept if their node still qualifies,
    /// otherwise empty.
    ///
    /// If two pools record the same node, which only happens if a status was edited, the pool that
    /// is visited first keeps it.
    pub(super) fn keep_recorded(
        &mut self,
        pool: &Pool<'v>,
        state: MemberState,
        inventory: &mut Inventory<'v>,
    ) {
        let recorded = pool.pool.status.members.iter();
        for member in recorded.filter(|member| member.state == state) {
            if member.index >= pool.wanted() || self.slots.contains_key(&member.index) {
                continue;
            }
            let slot = if state == MemberState::Vacant {
                Slot::Empty { member }
            } else {
                match find_kept_node(pool, member, inventory) {
                    Ok(node) => {
                        inventory.claim(node, pool);
                        Slot::Kept { node, member }
                    }
                    Err(why) => {
                        let node = member.node.as_deref().unwrap_or("?");
                        self.events.extend(why.map(|why| {
                            let note = format!("node {node}, member {}, {why}", member.index);
                            Event { warning: true, reason: "MemberLost", note }
                        }));
                        Slot::Empty { member }
                    }
                }
            };
            self.slots.insert(member.index, slot);
        }
    }

    /// Chooses nodes for empty slots, and for the members that the status does not record yet. The
    /// latter get nodes only if there are enough for all of them.
    pub(super) fn fill(&mut self, pool: &Pool<'v>, inventory: &mut Inventory<'v>) {
        let limit = pool.limit();
        let empty = self.slots.iter().filter(|(_, slot)| matches!(slot, Slot::Empty { .. }));
        let empty: Vec<u32> = empty.map(|(index, _)| *index).collect();
        let all = 0..if limit.is_some() { 0 } else { pool.wanted() };
        let fresh: Vec<u32> = all.filter(|index| !self.slots.contains_key(index)).collect();
        let open: BTreeSet<u32> = empty.iter().chain(&fresh).copied().collect();
        if open.is_empty() {
            self.shortfall = at_limit(limit);
            return;
        }
        let mut choice = Choice::new(pool, &open, inventory);
        self.refill(empty, &mut choice);
        let (mut kept, mut released) = (self.nodes().count(), 0);
        let hold = pool.hold().filter(|_| !fresh.is_empty());
        if hold.is_some() {
            choice.fresh = fresh.len();
        } else if choice.vacant.is_empty() || !pool.is_first_allocation() {
            self.extend(&fresh, &mut choice);
        } else {
            // A pool that has never had all of its members does not block nodes for others.
            self.nodes().for_each(|node| choice.inventory.disclaim(node, pool));
            self.slots.clear();
            self.events.retain(|event| event.reason != "MemberReplaced");
            choice.vacant.clear();
            choice.fresh = to_usize(pool.wanted());
            (kept, released) = (0, kept);
        }
        // All pools of a job get their first members together, or none of them.
        if let Some(Hold { message, .. }) = hold
            && choice.has_candidates(fresh.len())
        {
            self.shortfall = Some(Readiness::new(PoolReason::WaitingForJob, message.clone()));
            return;
        }
        (self.missing, self.shortfall) = choice.explain(kept, released, limit);
    }

    /// Chooses nodes for empty slots. Each slot is filled independently of the others.
    fn refill(&mut self, mut empty: Vec<u32>, choice: &mut Choice<'_, 'v>) {
        let pool = choice.pool;
        // No slot takes the node that the pods of another one need, if they can have it.
        empty
            .sort_by_key(|index| (choice.bound_node(*index).is_none(), !choice.is_awaited(*index)));
        for index in empty {
            let bound = choice.inventory.bound(pool.hash, index);
            // All pods that asked for one member must run on one node.
            let first = bound.first().copied();
            let only = first.map(|(node, _)| node);
            let scattered = bound.iter().any(|(node, _)| Some(*node) != only);
            let wanted = only.or_else(|| pool.planned_node(index));
            let taken = if scattered { Err(None) } else { choice.take(index, wanted) };
            let is_there =
                |node: &usize| only.is_none_or(|only| choice.inventory.nodes[*node].name == only);
            match (taken, first) {
                (Ok(node), _) if is_there(&node) => {
                    self.replace(index, node, choice.inventory);
                    choice.inventory.claim(node, pool);
                }
                (_, Some((node, pod))) => choice.blocked.push(format!(
                    "member {index} is vacant until pod {}/{}, which asked for it, leaves node {node}",
                    pod.namespace, pod.name
                )),
                (taken, None) => {
                    choice.vacant.push(index);
                    choice.add_problem(taken.err().flatten());
                }
            }
        }
        choice.vacant.sort_unstable();
    }

    /// Gives an empty slot a new node.
    fn replace(&mut self, index: u32, node: usize, inventory: &Inventory<'v>) {
        let Some(Slot::Empty { member }) = self.slots.insert(index, Slot::Chosen { node }) else {
            return;
        };
        let state = &inventory.nodes[node];
        if member.state == MemberState::Reserving && state.is_of(member) {
            // Another pool gives up this node in the same plan, so the reservation stays. A new one
            // would be the same, and would be written again until the status of the other pool is
            // written.
            self.slots.insert(index, Slot::Kept { node, member });
            return;
        }
        let before = member.node.as_deref().unwrap_or("?");
        let note = format!("node {} becomes member {index} in place of node {before}", state.name);
        self.events.push(Event { warning: false, reason: "MemberReplaced", note });
    }

    /// Chooses nodes for members that the status does not record yet: for all of them or for none.
    fn extend(&mut self, fresh: &[u32], choice: &mut Choice<'_, 'v>) {
        let pool = choice.pool;
        choice.fresh = fresh.len();
        if pool.hosts().is_none() && choice.eligible.len() < fresh.len() {
            return;
        }
        // If the pool had members before, pods may still run for an index: it gets their node if
        // possible.
        let (kept, others): (Vec<u32>, Vec<u32>) =
            fresh.iter().partition(|index| choice.bound_node(**index).is_some());
        let mut chosen: BTreeMap<usize, u32> = BTreeMap::new();
        for index in kept.into_iter().chain(others) {
            let planned = pool.planned_node(index);
            let bound = choice.bound_node(index).map(|node| choice.take(index, Some(node)));
            let taken = match bound {
                Some(Ok(node)) => Ok(node),
                Some(Err(_)) | None => choice.take(index, planned),
            };
            match taken {
                Ok(node) if chosen.contains_key(&node) => {
                    let name = choice.inventory.nodes[node].name;
                    let problem =
                        format!("hosts[{index}] and another listed host are one node, {name}");
                    choice.add_problem(Some((PoolReason::UnknownHost, problem)));
                }
                Ok(node) => _ = chosen.insert(node, index),
                Err(refusal) => choice.add_problem(refusal),
            }
        }
        if chosen.len() == fresh.len() {
            choice.fresh = 0;
            for (node, index) in chosen {
                self.slots.insert(index, Slot::Chosen { node });
                choice.inventory.claim(node, pool);
            }
        }
    }

    /// The indices of the nodes that are kept or chosen.
    pub(super) fn nodes(&self) -> impl Iterator<Item = usize> {
        self.slots.values().filter_map(|slot| match slot {
            Slot::Kept { node, .. } | Slot::Chosen { node } => Some(*node),
            Slot::Empty { .. } => None,
        })
    }

    /// The members for the status.
    pub(super) fn members(&self, inventory: &Inventory<'v>, now: Timestamp) -> Vec<Member> {
        let members = self.slots.iter().map(|(index, slot)| match slot {
            Slot::Kept { member, .. }
                if self.promoted && member.state == MemberState::Reserving =>
            {
                Member { state: MemberState::Ready, since: Time(now), ..(*member).clone() }
            }
            Slot::Kept { member, .. } => (*member).clone(),
            Slot::Empty { member } if member.state == MemberState::Vacant => (*member).clone(),
            Slot::Empty { member } => {
                let (state, since) = (MemberState::Vacant, Time(now));
                Member { uid: None, state, since, ..(*member).clone() }
            }
            Slot::Chosen { node } => {
                inventory.nodes[*node].as_member(*index, MemberState::Reserving, now)
            }
        });
        members.collect()
    }
}

/// The index of a recorded member's node, if the member can keep it.
///
/// # Errors
/// The text of the event about the node that the member loses; `None`: there is no event, because the pool had
/// only reserved the node, and no pods can have used it.
fn find_kept_node<'v>(
    pool: &Pool<'v>,
    member: &Member,
    inventory: &Inventory<'v>,
) -> Result<usize, Option<String>> {
    let lost = |why: &str| Some(why.to_owned());
    let taken = |by: Obstacle<'v>| (member.state != MemberState::Reserving).then(|| by.describe());
    let index = member.node.as_deref().and_then(|node| inventory.index_of(node));
    let index = index.ok_or_else(|| lost("was deleted"))?;
    let node = &inventory.nodes[index];
    if !node.is_of(member) {
        return Err(lost("was deleted and created again"));
    }
    // The status was edited: it records the node for two members of this pool.
    if node.is_claimed_by(pool) {
        return Err(taken(Obstacle::Shared(Owner::Near(&pool.name.name))));
    }
    // Once the node has the label, it may run pods of the pool.
    let committed =
        member.state == MemberState::Ready || node.marks.has_label(pool.hash, member.index);
    if pool.pool.exclusive
        && !committed
        && let Some(obstacle) = Obstacle::of_others(node, pool, inventory)
    {
        return Err(taken(obstacle));
    }
    // An exclusive pool shares a node with no pool that marks it: the first one visited keeps it.
    let mut claims = node.claims.iter();
    let holder = claims.find(|(_, of)| of.exclusive || pool.pool.exclusive);
    let Some((hash, of)) = holder else { return Ok(index) };
    let obstacle = if of.exclusive { Obstacle::Exclusive } else { Obstacle::Shared };
    Err(taken(obstacle(inventory.owner(hash, pool))))
}
