//! The places of a pool: which members stand, which are lost, and which nodes take the places that
//! are open.

use std::collections::{BTreeMap, HashSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::choose::{Choice, Obstacle, Refusal};
use super::inventory::{Inventory, NodeState};
use super::{Pool, accept, few, join};
use crate::api::host_pool::{Member, MemberState};
use crate::systems::plan::Event;

/// A place of a pool.
#[derive(Debug)]
pub(super) enum Place<'v> {
    /// The status records its node, which lives.
    Stands {
        /// Where the inventory has it.
        node: usize,
        /// As recorded.
        member: &'v Member,
    },
    /// Nobody has it.
    Open {
        /// As recorded: Vacant, or lost just now.
        member: &'v Member,
    },
    /// This plan gives it a node.
    Chosen {
        /// Where the inventory has it.
        node: usize,
    },
}

/// Why a pool does not have all of its members.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Shortfall {
    /// The stable word.
    pub(super) reason: &'static str,
    /// For people.
    pub(super) message: String,
}

/// What becomes of a pool's members.
#[derive(Debug, Default)]
pub(super) struct Draft<'v> {
    /// By index.
    pub(super) places: BTreeMap<u32, Place<'v>>,
    /// What is wrong, if something is.
    pub(super) shortfall: Option<Shortfall>,
    /// What is told of it.
    pub(super) events: Vec<Event>,
    /// Whether all that stood are marked, so that pods find them.
    pub(super) promoted: bool,
}

/// Nodes are too few, or not able.
pub(super) const INSUFFICIENT_NODES: &str = "InsufficientNodes";
/// A host of a list is no node, or not one.
pub(super) const UNKNOWN_HOST: &str = "UnknownHost";

impl<'v> Draft<'v> {
    /// The places as the status records them. Nothing is chosen yet.
    ///
    /// Who comes first keeps a node that two pools record, which only an edited status can say.
    pub(super) fn stand(
        &mut self,
        pool: &Pool<'v>,
        state: MemberState,
        inventory: &mut Inventory<'v>,
    ) {
        let mut own: HashSet<usize> = self.nodes().collect();
        let recorded = pool.pool.status.members.iter();
        for member in recorded.filter(|member| member.state == state) {
            if member.index >= pool.wanted() || self.places.contains_key(&member.index) {
                continue;
            }
            let place = if state == MemberState::Vacant {
                Place::Open { member }
            } else {
                match standing(pool, member, &own, inventory) {
                    Ok(node) => {
                        own.insert(node);
                        inventory.claim(node, pool);
                        Place::Stands { node, member }
                    }
                    Err(loss) => {
                        self.lose(member, loss);
                        Place::Open { member }
                    }
                }
            };
            self.places.insert(member.index, place);
        }
    }

    fn lose(&mut self, member: &Member, loss: Loss) {
        let why = match loss {
            Loss::Gone => "is gone",
            Loss::MadeAgain => "was deleted and made again",
            // It was never more than reserved.
            Loss::Taken(_) if member.state == MemberState::Reserving => return,
            Loss::Taken(obstacle) => obstacle.words(false),
        };
        let node = member.node.as_deref().unwrap_or("?");
        let note = format!("node {node}, member {}, {why}", member.index);
        self.events.push(Event { warning: true, reason: "MemberLost", note });
    }

    /// Gives nodes to the places that are open and to those that the pool never had; to the latter
    /// only if there are enough for all of them.
    pub(super) fn fill(
        &mut self,
        pool: &Pool<'v>,
        limit: Option<&str>,
        inventory: &mut Inventory<'v>,
    ) {
        let open = self.places.iter().filter(|(_, place)| matches!(place, Place::Open { .. }));
        let open: Vec<u32> = open.map(|(index, _)| *index).collect();
        let all = 0..if limit.is_some() { 0 } else { pool.wanted() };
        let fresh: Vec<u32> = all.filter(|index| !self.places.contains_key(index)).collect();
        let mut lack = Lack::default();
        if !open.is_empty() || !fresh.is_empty() {
            let mut own = vec![false; inventory.nodes.len()];
            self.nodes().for_each(|node| own[node] = true);
            let mut choice = Choice::new(inventory, pool, &own);
            self.refill(pool, &open, &mut choice, &mut own, &mut lack, inventory);
            let kept = self.nodes().count();
            if lack.vacant.is_empty() || !pool.is_first_allocation() {
                self.extend(pool, &fresh, &mut choice, &mut own, &mut lack, inventory);
                lack.tell(&choice, kept, 0);
            } else {
                // A pool that has never had all of its members holds none up for others.
                self.nodes().collect::<Vec<_>>().into_iter().for_each(|node| {
                    inventory.disclaim(node, pool);
                });
                self.places.clear();
                self.events.retain(|event| event.reason != "MemberReplaced");
                lack.vacant.clear();
                lack.fresh = pool.wanted() as usize;
                lack.tell(&choice, 0, kept);
            }
        }
        self.shortfall = lack.into_shortfall(limit);
    }

    /// Gives nodes to lost and vacant places, each for itself.
    fn refill(
        &mut self,
        pool: &Pool<'v>,
        open: &[u32],
        choice: &mut Choice<'v>,
        own: &mut [bool],
        lack: &mut Lack,
        inventory: &mut Inventory<'v>,
    ) {
        for &index in open {
            let bound = inventory.bound(pool.hash, index);
            // Pods that asked for one member expect each other on one node.
            let only = bound.first().map(|(node, _)| *node);
            let scattered = bound.iter().any(|(node, _)| Some(*node) != only);
            let taken = if scattered {
                Err(Refusal::NoneAble)
            } else {
                choice.take(inventory, pool, index, only).and_then(|node| {
                    let there = only.is_none_or(|only| inventory.nodes[node].name == only);
                    let free = there && !own[node];
                    if free { Ok(node) } else { Err(Refusal::NoneAble) }
                })
            };
            match (taken, bound.first()) {
                (Ok(node), _) => {
                    own[node] = true;
                    self.replace(index, node, inventory);
                    inventory.claim(node, pool);
                }
                (Err(_), Some((node, pod))) => lack.held.push(format!(
                    "member {index} is vacant until pod {}/{}, which asked for it, leaves node {node}",
                    pod.namespace, pod.name
                )),
                (Err(refusal), None) => {
                    lack.vacant.push(index);
                    lack.refused(refusal);
                }
            }
        }
    }

    fn replace(&mut self, index: u32, node: usize, inventory: &Inventory<'v>) {
        let Some(Place::Open { member }) = self.places.insert(index, Place::Chosen { node }) else {
            return;
        };
        let NodeState { name, estate, .. } = &inventory.nodes[node];
        if member.state == MemberState::Reserving
            && member.node.as_deref() == Some(*name)
            && member.uid.as_deref() == Some(&*estate.identity.uid)
        {
            // Another pool's claim on it fell in this very plan. To reserve it anew would change
            // nothing, and be said again for as long as the other's status is not written.
            self.places.insert(index, Place::Stands { node, member });
            return;
        }
        let note = format!(
            "node {name} becomes member {index} in place of node {}",
            member.node.as_deref().unwrap_or("?")
        );
        self.events.push(Event { warning: false, reason: "MemberReplaced", note });
    }

    /// Gives nodes to places that the pool never had: to all of them or to none.
    fn extend(
        &mut self,
        pool: &Pool<'v>,
        fresh: &[u32],
        choice: &mut Choice<'v>,
        own: &mut [bool],
        lack: &mut Lack,
        inventory: &mut Inventory<'v>,
    ) {
        if let Choice::Free { able, .. } = choice
            && able.len() < fresh.len()
        {
            lack.fresh = fresh.len();
            return;
        }
        // Marks may have been taken back under pods that still run: they keep their index.
        let bound = |index: u32| inventory.bound(pool.hash, index).first().map(|(node, _)| *node);
        let (kept, others): (Vec<u32>, Vec<u32>) =
            fresh.iter().partition(|index| bound(**index).is_some());
        let mut chosen = Vec::with_capacity(fresh.len());
        for index in kept.into_iter().chain(others) {
            let taken = match bound(index) {
                Some(node) => choice
                    .take(inventory, pool, index, Some(node))
                    .or_else(|_| choice.take(inventory, pool, index, None)),
                None => choice.take(inventory, pool, index, None),
            };
            match taken {
                Ok(node) if own[node] => lack.refused(Refusal::Unknown(format!(
                    "hosts[{index}] is node {}, as another of them is",
                    inventory.nodes[node].name
                ))),
                Ok(node) => {
                    own[node] = true;
                    chosen.push((index, node));
                }
                Err(refusal) => lack.refused(refusal),
            }
        }
        if chosen.len() < fresh.len() {
            lack.fresh = fresh.len();
            return;
        }
        for (index, node) in chosen {
            self.places.insert(index, Place::Chosen { node });
            inventory.claim(node, pool);
        }
    }

    /// The nodes that stand or are chosen.
    pub(super) fn nodes(&self) -> impl Iterator<Item = usize> {
        self.places.values().filter_map(|place| match place {
            Place::Stands { node, .. } | Place::Chosen { node } => Some(*node),
            Place::Open { .. } => None,
        })
    }

    /// What the status says of the members.
    pub(super) fn members(&self, inventory: &Inventory<'v>, now: Timestamp) -> Vec<Member> {
        let members = self.places.iter().map(|(index, place)| match place {
            Place::Stands { member, .. }
                if self.promoted && member.state == MemberState::Reserving =>
            {
                Member { state: MemberState::Ready, since: Time(now), ..(*member).clone() }
            }
            Place::Stands { member, .. } => (*member).clone(),
            Place::Open { member } if member.state == MemberState::Vacant => (*member).clone(),
            Place::Open { member } => Member {
                index: *index,
                node: member.node.clone(),
                uid: None,
                state: MemberState::Vacant,
                since: Time(now),
            },
            Place::Chosen { node } => {
                let node = &inventory.nodes[*node];
                Member {
                    index: *index,
                    node: Some(node.name.to_owned()),
                    uid: Some(node.estate.identity.uid.to_string()),
                    state: MemberState::Reserving,
                    since: Time(now),
                }
            }
        });
        members.collect()
    }
}

/// How a member is lost.
#[derive(Clone, Copy, Debug)]
enum Loss {
    Gone,
    MadeAgain,
    Taken(Obstacle),
}

/// The node of a member, if it still is the pool's.
fn standing<'v>(
    pool: &Pool<'v>,
    member: &Member,
    own: &HashSet<usize>,
    inventory: &Inventory<'v>,
) -> Result<usize, Loss> {
    let place = member.node.as_deref().and_then(|node| inventory.place(node)).ok_or(Loss::Gone)?;
    let node = &inventory.nodes[place];
    if member.uid.as_deref() != Some(&*node.estate.identity.uid) {
        return Err(Loss::MadeAgain);
    }
    if own.contains(&place) {
        return Err(Loss::Taken(Obstacle::Shared));
    }
    // Once the label is there, pods of the pool may be.
    let committed =
        member.state == MemberState::Ready || node.marks.has_label(pool.hash, member.index);
    if pool.exclusive()
        && !committed
        && let Some(obstacle) = Obstacle::of_others(node, pool)
    {
        return Err(Loss::Taken(obstacle));
    }
    if inventory.is_free_for(place, pool) {
        Ok(place)
    } else {
        Err(Loss::Taken(if node.exclusive { Obstacle::Exclusive } else { Obstacle::Shared }))
    }
}

/// What a pool goes without, collected.
#[derive(Debug, Default)]
struct Lack {
    /// Places that wait for a pod to leave.
    held: Vec<String>,
    /// Places that were lost.
    vacant: Vec<u32>,
    /// How many places the pool never had.
    fresh: usize,
    /// What is wrong with hosts of a list.
    unknown: Vec<String>,
    unable: Vec<String>,
    /// How many nodes are able.
    census: String,
}

impl Lack {
    fn refused(&mut self, refusal: Refusal) {
        match refusal {
            Refusal::NoneAble => {}
            Refusal::Unknown(problem) => self.unknown.push(problem),
            Refusal::Unable(problem) => self.unable.push(problem),
        }
    }

    /// Counts, once all is chosen. The pool keeps `kept` nodes, and gives `more` up.
    fn tell(&mut self, choice: &Choice<'_>, kept: usize, more: usize) {
        let need = self.vacant.len() + self.fresh;
        if need > 0 && matches!(choice, Choice::Free { .. }) {
            let nodes = if need == 1 { "node" } else { "nodes" };
            let other = if kept > 0 { "more " } else { "" };
            self.census = format!("needs {need} {other}{nodes}, {}", choice.tell(more));
        }
    }

    fn into_shortfall(self, limit: Option<&str>) -> Option<Shortfall> {
        let reason = if !self.unknown.is_empty() {
            UNKNOWN_HOST
        } else if !self.held.is_empty() || !self.vacant.is_empty() || self.fresh > 0 {
            INSUFFICIENT_NODES
        } else {
            let message = limit?.to_owned();
            return Some(Shortfall { reason: accept::TOO_MANY, message });
        };
        let mut parts = Vec::new();
        if let [index] = self.vacant.as_slice() {
            parts.push(format!("member {index} is vacant"));
        } else if !self.vacant.is_empty() {
            let indices = self.vacant.iter().map(u32::to_string).collect();
            parts.push(format!("members {} are vacant", join(indices)));
        }
        parts.extend(Some(self.census).filter(|census| !census.is_empty()));
        parts.extend([self.unknown, self.unable, self.held].into_iter().flat_map(few));
        parts.extend(limit.map(str::to_owned));
        Some(Shortfall { reason, message: parts.join("; ") })
    }
}
