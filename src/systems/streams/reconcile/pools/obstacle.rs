//! Why a pool cannot have a node.

/// Why a pool cannot have a node. Messages list obstacles in this order.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Obstacle {
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
    /// It belongs to an exclusive pool.
    Exclusive,
    /// It belongs to another pool, so it cannot become exclusive.
    Shared,
    /// It runs Streams pods that do not belong to the pool, so it cannot become exclusive.
    Occupied,
    /// It has as many pools as the policy's `hostPools.maxPoolsPerNode` allows.
    Full,
}

impl Obstacle {
    /// The end of a sentence that begins with one node or, if `several`, with a number of nodes.
    pub(super) fn describe(self, several: bool) -> &'static str {
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
            (Self::Full, false) => {
                "has as many pools as the policy's hostPools.maxPoolsPerNode allows"
            }
            (Self::Full, true) => {
                "have as many pools as the policy's hostPools.maxPoolsPerNode allows"
            }
        }
    }
}
