//! Obstacles, in the words of Kubernetes.

use std::fmt;

use crate::kubernetes::HOSTNAME;
use crate::view::node::Taint;

/// The reason why a pod does not fit on a node. [`ALL`](super::ALL) checks them in this order.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Obstacle<'n> {
    /// `metadata.deletionTimestamp` is set.
    BeingDeleted,
    /// The condition Ready is not True.
    NotReady,
    /// `spec.unschedulable` is set, and the pod does not tolerate it.
    Cordoned,
    /// A taint NoSchedule or NoExecute that the pod does not tolerate.
    Taint(&'n Taint),
    /// There is no label `kubernetes.io/hostname`, so pod affinity and anti-affinity do not work on
    /// it.
    NoHostname,
    /// The pod's node selector does not match the node.
    NodeSelector,
    /// No required node affinity term of the pod matches the node.
    NodeAffinity,
    /// The node affinity of a volume of the pod excludes the node.
    Volume {
        /// The claim.
        claim: &'n str,
        /// The volume.
        volume: &'n str,
    },
    /// The node has its maximum number of pods.
    TooManyPods {
        /// The maximum number of pods.
        limit: usize,
    },
    /// The node has too little free of these resources.
    Insufficient(Vec<Shortage<'n>>),
}

/// A resource of which a node has too little free.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Shortage<'n> {
    pub resource: &'n str,
    /// The free amount: thousandths of a core for `cpu`, bytes for `memory`.
    pub free: i64,
    /// The requested amount in the same unit.
    pub requested: i64,
    /// The amount that the node has for pods, in the same unit.
    pub allocatable: i64,
}

impl Shortage<'_> {
    /// True if the node is too small: there is nothing to free.
    fn is_final(&self) -> bool {
        self.requested > self.allocatable
    }
}

impl Obstacle<'_> {
    /// Returns true if the pod itself excludes the node, by its node selector or node affinity.
    #[must_use]
    pub fn is_chosen_by_pod(&self) -> bool {
        matches!(self, Self::NodeSelector | Self::NodeAffinity)
    }

    /// Returns true if the node lacks capacity, which can change when other pods finish.
    #[must_use]
    pub(crate) fn is_lack_of_capacity(&self) -> bool {
        matches!(self, Self::TooManyPods { .. } | Self::Insufficient(_))
    }

    /// Returns true if the node is too small for the pod, so that nothing on it can be freed.
    #[must_use]
    pub fn is_too_small(&self) -> bool {
        matches!(self, Self::Insufficient(lacks) if lacks.iter().any(Shortage::is_final))
    }

    /// The predicate of a sentence whose subject is one node, or several nodes.
    #[must_use]
    pub(crate) fn predicate(&self, several: bool) -> String {
        let [are, have, lack, not] = match several {
            true => ["are", "have", "lack", "do not"],
            false => ["is", "has", "lacks", "does not"],
        };
        match self {
            Self::BeingDeleted => format!("{are} being deleted"),
            Self::NotReady => format!("{are} NotReady"),
            Self::Cordoned => format!("{are} cordoned"),
            Self::Taint(Taint { key, value, effect, .. }) => {
                format!("{have} the taint {key}={value}:{effect}")
            }
            Self::NoHostname => format!("{lack} the label {HOSTNAME}"),
            Self::NodeSelector => format!("{not} match the node selector"),
            Self::NodeAffinity => format!("{not} match the node affinity"),
            Self::Volume { claim, volume } => {
                format!("{have} a volume node affinity conflict with {volume} of claim {claim}")
            }
            Self::TooManyPods { limit } => format!("{have} too many pods (the limit is {limit})"),
            Self::Insufficient(shortages) => {
                let each: Vec<String> = shortages.iter().map(ToString::to_string).collect();
                format!("{have} insufficient {}", each.join(" and "))
            }
        }
    }
}

/// The predicate of a sentence whose subject is the node.
impl fmt::Display for Obstacle<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.predicate(false))
    }
}

impl fmt::Display for Shortage<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, free, requested, allocatable } = *self;
        // With nothing on it, a node that is too small has no more than that.
        let (have, whole) = match self.is_final() {
            true => (allocatable.max(0), ", with no pod on it"),
            false => (free.max(0), ""),
        };
        match resource {
            "cpu" => write!(formatter, "cpu ({have}m of {requested}m{whole})"),
            "memory" => {
                // Rounded in opposite directions, so that the free amount always looks smaller.
                let (have, requested) = (have >> 20, requested.saturating_add((1 << 20) - 1) >> 20);
                write!(formatter, "memory ({have} MiB of {requested} MiB{whole})")
            }
            _ => write!(formatter, "{resource} ({have} of {requested}{whole})"),
        }
    }
}
