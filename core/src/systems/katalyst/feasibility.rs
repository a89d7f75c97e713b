//! The NUMA nodes of a machine that a pod can use: a pure function of the pods on each.
//!
//! For each NUMA node, with the pods that Katalyst gives CPUs there:
//!
//! | Condition | A match counts on |
//! | --- | --- |
//! | E: the anti-affinity of a pod there selects a label of the new pod | the other pod's zone |
//! | X: a pod there has the NUMA node alone | its NUMA node |
//! | N: the new pod's anti-affinity selects a label of a pod there | the new pod's zone |
//! | A: the new pod's affinity selects a label of a pod there | the new pod's zone |
//!
//! E, X or N: not feasible. Otherwise feasible if the new pod has no affinity, or A. A zone is one NUMA
//! node, or all of its socket. For a pod that wants NUMA nodes alone, only free CPUs count, which the node
//! knows. (Katalyst's pull request 347, agent: the scheduler plugin differs, where it is wrong.)

use std::fmt;
use std::mem::{Discriminant, discriminant};

use super::kinds::pod::NumaPod;
use super::policy::Katalyst;
use super::selector::{Selector, Zone};
use crate::view::Name;

/// A pod that is to be placed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Newcomer<'p> {
    pub pod: &'p NumaPod,
    /// The policy that says which labels of pods count.
    pub policy: &'p Katalyst,
    /// True if its affinity is ignored: it is the first pod of its group.
    pub leads: bool,
}

/// A pod on a NUMA node, or one that may be on any NUMA node of a machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Occupant<'v> {
    pub name: &'v Name,
    pub pod: &'v NumaPod,
}

/// The pods on the NUMA nodes of a machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Machine<'v> {
    /// Sorted by socket.
    pub sockets: Vec<Socket<'v>>,
    /// The pods that are on the machine, or may be, and whose NUMA nodes are not known. They count on
    /// each where they exclude the new pod, and on none where it needs them.
    pub anywhere: Vec<Occupant<'v>>,
}

/// A socket with its NUMA nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Socket<'v> {
    /// Its name; empty if the report does not name it.
    pub name: &'v str,
    /// The number of each NUMA node, and the pods on it.
    pub zones: Vec<(u8, Vec<Occupant<'v>>)>,
}

/// The reason why a NUMA node is not feasible.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Obstacle<'v> {
    /// E: this selector of the pod's anti-affinity selects the new pod.
    AvoidedBy(Occupant<'v>, &'v Selector),
    /// X: the pod has the NUMA node alone.
    Exclusive(Occupant<'v>),
    /// N: this selector of the new pod's anti-affinity selects the pod.
    Avoids(Occupant<'v>, &'v Selector),
    /// Not A: no pod is there that the affinity selects.
    NoMate,
    /// It wants its NUMA nodes alone, and to share them.
    Contradiction,
}

/// A NUMA node with the reason why it is not feasible. `None`: it is feasible.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Verdict<'v> {
    pub socket: &'v str,
    pub zone: u8,
    pub obstacle: Option<Obstacle<'v>>,
}

impl<'v> Machine<'v> {
    /// Decides about each NUMA node, in the order of sockets and numbers.
    pub(crate) fn verdicts<'m>(
        &'m self,
        newcomer: Newcomer<'v>,
    ) -> impl Iterator<Item = Verdict<'v>> + 'm
    where
        'v: 'm,
    {
        let everywhere = self.find_obstacle_anywhere(newcomer);
        self.sockets.iter().flat_map(move |socket| {
            socket.zones.iter().map(move |(zone, _)| Verdict {
                socket: socket.name,
                zone: *zone,
                obstacle: everywhere.or_else(|| find_obstacle(socket, *zone, newcomer)),
            })
        })
    }

    /// The first feasible NUMA node.
    pub(crate) fn find_feasible(&self, newcomer: Newcomer<'v>) -> Option<u8> {
        let is_free = self.find_obstacle_anywhere(newcomer).is_none();
        is_free.then(|| self.find_feasible_later(newcomer)).flatten()
    }

    /// The first NUMA node that only pods forbid whose NUMA nodes are not known.
    pub(crate) fn find_feasible_later(&self, newcomer: Newcomer<'v>) -> Option<u8> {
        self.sockets.iter().find_map(|socket| {
            let mut zones = socket.zones.iter().map(|(zone, _)| *zone);
            zones.find(|zone| find_obstacle(socket, *zone, newcomer).is_none())
        })
    }

    /// Finds what the pods forbid whose NUMA nodes are not known: all NUMA nodes, or none.
    fn find_obstacle_anywhere(&self, newcomer: Newcomer<'v>) -> Option<Obstacle<'v>> {
        if newcomer.pod.qos.is_exclusive {
            return None;
        }
        let pods = || self.anywhere.iter();
        pods()
            .find_map(|occupant| newcomer.is_avoided_by(occupant, Zone::Numa))
            .or_else(|| pods().find_map(Occupant::has_it_alone))
            .or_else(|| {
                let mut selectors = newcomer.pod.anti_affinity.iter();
                selectors.find_map(|selector| newcomer.avoids(pods(), selector))
            })
    }
}

impl<'v> Newcomer<'v> {
    /// E, for a pod in this zone around the NUMA node.
    fn is_avoided_by(self, occupant: &Occupant<'v>, shared: Zone) -> Option<Obstacle<'v>> {
        let avoids = |selector: &&Selector| {
            selector.zone >= shared && self.pod.is_selected_by(selector, self.policy)
        };
        // Katalyst reads the anti-affinity only of pods that are bound to NUMA nodes.
        let selectors = occupant.pod.qos.is_bound.then_some(&occupant.pod.anti_affinity);
        let mut selectors = selectors.into_iter().flatten();
        selectors.find(avoids).map(|selector| Obstacle::AvoidedBy(*occupant, selector))
    }

    /// N, for these pods.
    fn avoids<'m>(
        self,
        mut pods: impl Iterator<Item = &'m Occupant<'v>>,
        selector: &'v Selector,
    ) -> Option<Obstacle<'v>>
    where
        'v: 'm,
    {
        let found = pods.find(|occupant| occupant.pod.is_selected_by(selector, self.policy))?;
        Some(Obstacle::Avoids(*found, selector))
    }
}

impl<'v> Occupant<'v> {
    /// X.
    fn has_it_alone(&self) -> Option<Obstacle<'v>> {
        self.pod.qos.is_exclusive.then_some(Obstacle::Exclusive(*self))
    }
}

/// Finds what the pods on a socket forbid on one of its NUMA nodes.
fn find_obstacle<'v>(
    socket: &Socket<'v>,
    zone: u8,
    newcomer: Newcomer<'v>,
) -> Option<Obstacle<'v>> {
    let Newcomer { pod, leads, .. } = newcomer;
    if pod.qos.is_exclusive {
        return (!pod.affinity.is_empty()).then_some(Obstacle::Contradiction);
    }
    let on_zone = || {
        let here = socket.zones.iter().filter(move |(number, _)| *number == zone);
        here.flat_map(|(_, pods)| pods)
    };
    let on_socket = || socket.zones.iter().flat_map(|(_, pods)| pods);
    on_zone()
        .find_map(|occupant| newcomer.is_avoided_by(occupant, Zone::Numa))
        .or_else(|| on_socket().find_map(|other| newcomer.is_avoided_by(other, Zone::Socket)))
        .or_else(|| on_zone().find_map(Occupant::has_it_alone))
        .or_else(|| {
            pod.anti_affinity.iter().find_map(|selector| match selector.zone {
                Zone::Numa => newcomer.avoids(on_zone(), selector),
                Zone::Socket => newcomer.avoids(on_socket(), selector),
            })
        })
        .or_else(|| {
            let is_mate = |selector: &Selector| {
                let selects = |of: &Occupant<'_>| of.pod.is_selected_by(selector, newcomer.policy);
                match selector.zone {
                    Zone::Numa => on_zone().any(selects),
                    Zone::Socket => on_socket().any(selects),
                }
            };
            let is_met = leads || pod.affinity.is_empty() || pod.affinity.iter().any(is_mate);
            (!is_met).then_some(Obstacle::NoMate)
        })
}

impl fmt::Display for Occupant<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.name.namespace, self.name.name)
    }
}

impl Obstacle<'_> {
    /// Returns the part that obstacles have in common that differ only in the pod.
    pub(crate) fn kind(&self) -> (Discriminant<Self>, Option<&Selector>) {
        let selector = match self {
            Self::AvoidedBy(_, selector) | Self::Avoids(_, selector) => Some(*selector),
            Self::Exclusive(_) | Self::NoMate | Self::Contradiction => None,
        };
        (discriminant(self), selector)
    }

    /// The obstacle for the users of a namespace: pods of others are not named.
    pub(crate) fn in_namespace(&self, namespace: &str) -> String {
        match self {
            Self::AvoidedBy(pod, _) if *pod.name.namespace != *namespace => {
                "a pod of another namespace avoids the pod".to_owned()
            }
            Self::Exclusive(pod) if *pod.name.namespace != *namespace => {
                "a pod of another namespace has it alone".to_owned()
            }
            Self::Avoids(pod, selector) if *pod.name.namespace != *namespace => {
                format!("the pod avoids a pod of another namespace, by {selector}")
            }
            _ => self.to_string(),
        }
    }
}

/// A sentence about a NUMA node.
impl fmt::Display for Obstacle<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |selector: &Selector| match selector.zone {
            Zone::Numa => "there",
            Zone::Socket => "on the socket",
        };
        match self {
            Self::AvoidedBy(pod, selector) => {
                write!(formatter, "{pod} is {} and avoids {selector}", place(selector))
            }
            Self::Exclusive(pod) => write!(formatter, "{pod} has it alone"),
            Self::Avoids(pod, selector) => {
                write!(
                    formatter,
                    "the pod avoids {pod}, which is {}, by {selector}",
                    place(selector)
                )
            }
            Self::NoMate => formatter.write_str("no pod that the affinity asks for is there"),
            Self::Contradiction => {
                formatter.write_str("the pod wants its NUMA nodes alone, and to share them")
            }
        }
    }
}

#[cfg(test)]
mod tests;
