//! The obstacles that keep a pool from having a node.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;

use super::owners::Owner;
use crate::systems::check::words::{LISTED, nodes};

/// A reason why a pool cannot have a node. Messages list obstacles in this order.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Obstacle<'v> {
    /// It is being deleted.
    Deleted,
    /// It runs the control plane.
    ControlPlane,
    /// The policy's `hostPools.nodeSelector` does not select it.
    NotSelected,
    /// Its condition Ready is not True.
    NotReady,
    /// It is cordoned.
    Cordoned,
    /// It has a taint that is not stowplan's, which the pool's pods do not tolerate.
    Tainted,
    /// It has no label `kubernetes.io/hostname`, so affinities between pods do not work there.
    Nameless,
    /// It belongs to this exclusive pool.
    Exclusive(Owner<'v>),
    /// It belongs to this pool, so it cannot become exclusive.
    Shared(Owner<'v>),
    /// It runs Streams pods that do not belong to the pool, so it cannot become exclusive.
    Occupied,
    /// Another StreamsJob names it, or it is reserved for that job, so it cannot become exclusive.
    Named,
    /// It has as many pools as the policy's `hostPools.maxPoolsPerNode` allows.
    Full,
}

impl Obstacle<'_> {
    /// The end of a sentence about one node.
    pub(crate) fn describe(self) -> String {
        self.format(1, self.owner().as_deref().unwrap_or_default())
    }

    /// The pool that has the node.
    fn owner(self) -> Option<String> {
        match self {
            Self::Exclusive(owner) | Self::Shared(owner) => Some(owner.to_string()),
            _ => None,
        }
    }

    /// The end of a sentence that begins with this many nodes, which belong to `owners`.
    fn format(self, nodes: usize, owners: &str) -> String {
        let (one, many) = match self {
            Self::Deleted => ("is being deleted", "are being deleted"),
            Self::ControlPlane => ("is a control-plane node", "are control-plane nodes"),
            Self::NotSelected => (
                "is outside the policy's hostPools.nodeSelector",
                "are outside the policy's hostPools.nodeSelector",
            ),
            Self::NotReady => ("is not Ready", "are not Ready"),
            Self::Cordoned => ("is cordoned", "are cordoned"),
            Self::Tainted => ("has a taint", "have taints"),
            Self::Nameless => {
                ("lacks the label kubernetes.io/hostname", "lack the label kubernetes.io/hostname")
            }
            Self::Exclusive(_) => ("is exclusive to ", "are exclusive to "),
            Self::Shared(_) => ("belongs to ", "belong to "),
            Self::Occupied => {
                ("runs Streams pods outside of the pool", "run Streams pods outside of the pool")
            }
            Self::Named => (
                "is named by another StreamsJob, or reserved for it",
                "are named by other StreamsJobs, or reserved for them",
            ),
            Self::Full => (
                "has as many pools as the policy's hostPools.maxPoolsPerNode allows",
                "have as many pools as the policy's hostPools.maxPoolsPerNode allows",
            ),
        };
        [if nodes == 1 { one } else { many }, owners].concat()
    }
}

/// Formats the number of nodes with each obstacle: `1 is cordoned, 2 belong to HostPool p`.
pub(crate) fn format_counts(obstacles: &BTreeMap<Obstacle<'_>, usize>) -> String {
    let counts: Vec<(Obstacle<'_>, usize)> =
        obstacles.iter().map(|(obstacle, count)| (*obstacle, *count)).collect();
    let alike = counts.chunk_by(|(one, _), (other, _)| discriminant(one) == discriminant(other));
    let parts = alike.map(|alike| {
        let count: usize = alike.iter().map(|(_, count)| count).sum();
        let owners = alike.iter().filter_map(|(obstacle, _)| obstacle.owner()).collect();
        format!("{count} {}", alike[0].0.format(count, &join(owners)))
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// Formats the nodes with each obstacle: `node n1 is cordoned, nodes n2, n3 belong to HostPool p`.
pub(crate) fn format_nodes(obstacles: &BTreeMap<Obstacle<'_>, BTreeSet<&str>>) -> String {
    let parts = obstacles.iter().map(|(obstacle, names)| {
        let names: Vec<&str> = names.iter().copied().collect();
        let owner = obstacle.owner().unwrap_or_default();
        format!("{} {}", nodes(&names), obstacle.format(names.len(), &owner))
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// Formats a list for a sentence: `a`, `a and b`, `a, b and c`, `a, b, c, d, e and 7 more`.
pub(crate) fn join(items: Vec<String>) -> String {
    let mut items = items;
    let more = items.len().saturating_sub(LISTED);
    if more > 0 {
        items.truncate(LISTED);
        items.push(format!("{more} more"));
    }
    match items.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => items.concat(),
    }
}
