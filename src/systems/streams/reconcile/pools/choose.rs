//! Which node takes a place of a pool, and what stands in the way where none does.

use std::collections::{BTreeMap, VecDeque};

use super::inventory::{Inventory, NodeState};
use super::{Pool, join};
use crate::systems::streams::resolve::{Resolved, resolve, told};
use crate::view::View;
use crate::view::host_pool::{Form, Host};
use crate::view::node::tag;

/// Why a node cannot be a pool's. The order is that of messages.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Obstacle {
    /// It is about to go.
    Deleted,
    /// It runs the control plane.
    ControlPlane,
    /// The policy's `hostPools.nodeSelector` leaves it out.
    NotSelected,
    /// Its condition Ready is not True.
    NotReady,
    /// It is cordoned.
    Cordoned,
    /// It carries a taint of somebody else, which the pool's pods do not tolerate.
    Tainted,
    /// It has no label `kubernetes.io/hostname`: pods could not be kept apart or together there.
    Nameless,
    /// It belongs to an exclusive pool.
    Exclusive,
    /// It belongs to a pool, so it cannot become exclusive.
    Shared,
    /// Streams pods run there that are not the pool's, so it cannot become exclusive.
    Occupied,
}

impl Obstacle {
    /// The end of a sentence that begins with one node, or with several.
    pub(super) fn words(self, several: bool) -> &'static str {
        match (self, several) {
            (Self::Deleted, false) => "is being deleted",
            (Self::Deleted, true) => "are being deleted",
            (Self::ControlPlane, false) => "is a control-plane node",
            (Self::ControlPlane, true) => "are control-plane nodes",
            (Self::NotSelected, false) => "is outside the policy's hostPools.nodeSelector",
            (Self::NotSelected, true) => "are outside the policy's hostPools.nodeSelector",
            (Self::NotReady, false) => "is not Ready",
            (Self::NotReady, true) => "are not Ready",
            (Self::Cordoned, false) => "is cordoned",
            (Self::Cordoned, true) => "are cordoned",
            (Self::Tainted, false) => "has a taint",
            (Self::Tainted, true) => "have taints",
            (Self::Nameless, false) => "lacks the label kubernetes.io/hostname",
            (Self::Nameless, true) => "lack the label kubernetes.io/hostname",
            (Self::Exclusive, false) => "belongs to an exclusive pool",
            (Self::Exclusive, true) => "belong to exclusive pools",
            (Self::Shared, false) => "belongs to another pool",
            (Self::Shared, true) => "belong to other pools",
            (Self::Occupied, false) => "runs pods of other jobs",
            (Self::Occupied, true) => "run pods of other jobs",
        }
    }

    /// What other pools and their pods have against `pool` having `node`.
    pub(super) fn of_others(node: &NodeState<'_>, pool: &Pool<'_>) -> Option<Self> {
        if node.exclusive || node.marks.is_tainted_by_another(pool.hash) {
            Some(Self::Exclusive)
        } else if !pool.exclusive() {
            None
        } else if node.claims > 0 || node.marks.is_marked_by_another(pool.hash) {
            Some(Self::Shared)
        } else {
            node.has_foreign_pod(pool.hash).then_some(Self::Occupied)
        }
    }
}

/// Why a place stays empty.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Refusal {
    /// No node is able, as `census` counts.
    NoneAble,
    /// The host that stands in this place is no node, or not one.
    Unknown(String),
    /// The host is a node, and cannot be the pool's.
    Unable(String),
}

/// The nodes that a pool can have.
#[derive(Debug)]
pub(super) enum Choice<'v> {
    /// The pool chooses.
    Free {
        /// In order of preference.
        able: VecDeque<usize>,
        /// How many there were at first.
        count: usize,
        /// What stands in the way of the others, as far as they carry the tags.
        census: BTreeMap<Obstacle, usize>,
        /// The tags, as messages name them.
        tags: &'v [Box<str>],
    },
    /// The author has chosen.
    Listed(&'v View, &'v [Host]),
}

impl<'v> Choice<'v> {
    /// What `pool` can have besides the nodes that it has.
    pub(super) fn new(inventory: &Inventory<'v>, pool: &Pool<'v>, own: &[bool]) -> Self {
        let tags: &'v [Box<str>] = match &pool.pool.form {
            Ok(Form::Literal(hosts)) => return Self::Listed(inventory.view, hosts),
            Ok(Form::Sized(_, tags)) => tags,
            Ok(Form::Tagged(_) | Form::Any) | Err(_) => &[],
        };
        let wanted: Vec<Box<str>> = tags.iter().map(|name| tag(name, tags.len() == 1)).collect();
        let mut able: Vec<usize> = Vec::new();
        let mut census = BTreeMap::new();
        for (place, node) in inventory.nodes.iter().enumerate() {
            if own[place] || !wanted.iter().all(|tag| node.node.tags.contains(tag)) {
                continue;
            }
            let obstacle = node.barred.or(node.unfit).or_else(|| Obstacle::of_others(node, pool));
            match obstacle {
                Some(obstacle) => *census.entry(obstacle).or_default() += 1,
                None => able.push(place),
            }
        }
        // Nodes are in the order of their names.
        able.sort_by_key(|place| inventory.nodes[*place].pools);
        let count = able.len();
        Self::Free { able: able.into(), count, census, tags }
    }

    /// Takes a node for the place `index`; where `only` names one, no other.
    pub(super) fn take(
        &mut self,
        inventory: &Inventory<'v>,
        pool: &Pool<'v>,
        index: u32,
        only: Option<&str>,
    ) -> Result<usize, Refusal> {
        match self {
            Self::Free { able, .. } => {
                let found = match only {
                    None => able.pop_front(),
                    Some(name) => {
                        let at = able.iter().position(|at| inventory.nodes[*at].name == name);
                        at.and_then(|at| able.remove(at))
                    }
                };
                found.ok_or(Refusal::NoneAble)
            }
            Self::Listed(view, hosts) => {
                let place = Self::listed(view, hosts, inventory, index)?;
                let node = &inventory.nodes[place];
                // What keeps others away for the moment is no reason not to reserve what the author
                // names.
                let obstacle = node.barred.or_else(|| Obstacle::of_others(node, pool));
                match obstacle {
                    Some(obstacle) => Err(Refusal::Unable(format!(
                        "hosts[{index}], node {}, {}",
                        node.name,
                        obstacle.words(false)
                    ))),
                    None => Ok(place),
                }
            }
        }
    }

    /// The place of the node that `hosts[index]` is.
    fn listed(
        view: &'v View,
        hosts: &'v [Host],
        inventory: &Inventory<'v>,
        index: u32,
    ) -> Result<usize, Refusal> {
        let host = usize::try_from(index).ok().and_then(|index| hosts.get(index));
        let host = host.ok_or(Refusal::NoneAble)?;
        let node = one_node(view, host, index).map_err(Refusal::Unknown)?;
        inventory
            .place(node)
            .ok_or_else(|| Refusal::Unknown(format!("hosts[{index}], {}, is no node", told(host))))
    }

    /// How many nodes are able, and what stands in the way of the others. `more` are counted too:
    /// the pool has them, and gives them up.
    pub(super) fn tell(&self, more: usize) -> String {
        let Self::Free { count, census, tags, .. } = self else { return String::new() };
        let able = count + more;
        let are = |count: usize| if count == 1 { "is" } else { "are" };
        let mut text = format!("{able} {} able", are(able));
        let obstacles = census
            .iter()
            .map(|(obstacle, count)| format!("{count} {}", obstacle.words(*count != 1)));
        let obstacles: Vec<String> = obstacles.collect();
        if !obstacles.is_empty() {
            text += "; ";
            text += &obstacles.join(", ");
        } else if able == 0 && !tags.is_empty() {
            let keys = tags.iter().map(|name| tag(name, tags.len() == 1).into_string());
            text += &format!("; no other node carries {}", join(keys.collect()));
        }
        text
    }
}

/// The one node that `hosts[index]` is.
///
/// # Errors
/// Why it is not one, for people.
pub(super) fn one_node<'v>(view: &'v View, host: &'v Host, index: u32) -> Result<&'v str, String> {
    match resolve(view, host) {
        Resolved::Node(node) => Ok(node),
        Resolved::Unknown => Err(format!("hosts[{index}], {}, is no node", told(host))),
        Resolved::Ambiguous(nodes) => {
            let nodes = join(nodes.into_iter().map(str::to_owned).collect());
            Err(format!("hosts[{index}], {}, is several nodes: {nodes}", told(host)))
        }
    }
}
