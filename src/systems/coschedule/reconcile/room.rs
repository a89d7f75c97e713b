//! Where there is room: which nodes could take the pods of a group that wait.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Toleration};

use crate::placement::affinity::bound_to;
use crate::placement::toleration::{tolerates, tolerates_cordon};
use crate::systems::coschedule::placeholder::Blueprint;
use crate::view::estate::{NodeEstate, Taint};
use crate::view::member::MemberEstate;
use crate::view::placeholder::PlaceholderEstate;
use crate::view::{Name, Node, Placeholder, Resources, View, selector};

/// The label of nodes that pods of a group share.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// What a node must be for a group.
#[derive(Debug)]
pub(super) struct Demand<'v> {
    /// The pods that wait, each of which it must be able to take alone.
    waiting: Vec<&'v MemberEstate>,
    /// The volumes that the placeholder mounts and that are not everywhere.
    volumes: Vec<Pin<'v>>,
    /// The placeholder's pod.
    placeholder: &'v PlaceholderEstate,
    /// The node terms of which the placeholder must meet one, besides its bounds.
    terms: Option<Vec<NodeSelectorTerm>>,
}

/// A volume that is not everywhere.
#[derive(Debug)]
struct Pin<'v> {
    claim: Box<str>,
    volume: &'v str,
    /// The terms of which a node must meet one.
    terms: &'v [NodeSelectorTerm],
}

impl Pin<'_> {
    fn can_be_on(&self, name: &str, node: &NodeEstate) -> bool {
        selector::selects(self.terms, name, &node.labels)
    }
}

/// What keeps a pod from being placed on a node.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bar<'n> {
    Cordon,
    Taint(&'n Taint),
}

impl<'n> Bar<'n> {
    /// A cordon is a taint to whoever tolerates that.
    pub(super) fn of(tolerations: &[Toleration], node: &'n NodeEstate) -> Option<Self> {
        if node.cordoned && !tolerates_cordon(tolerations) {
            return Some(Self::Cordon);
        }
        let is_tolerated = |Taint { key, value, effect, .. }: &Taint| {
            tolerations.iter().any(|toleration| tolerates(toleration, key, value, effect))
        };
        let keeps_out = |taint: &&Taint| matches!(&*taint.effect, "NoSchedule" | "NoExecute");
        let mut taints = node.taints.iter().filter(keeps_out);
        let taint = taints.find(|taint| !is_tolerated(taint))?;
        Some(Self::Taint(taint))
    }
}

impl fmt::Display for Bar<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cordon => write!(formatter, "is cordoned"),
            Self::Taint(Taint { key, value, effect, .. }) => {
                write!(formatter, "has the taint {key}={value}:{effect}")
            }
        }
    }
}

/// What a node has left.
#[derive(Debug)]
pub(super) struct Room<'v> {
    node: &'v str,
    milli_cpu: i64,
    memory: i64,
    /// How many pods more it takes.
    pods: usize,
}

impl<'v> Room<'v> {
    /// What all nodes have left, in the order of their names. In a full cluster every group that waits looks
    /// at every node: nearly all of them are told by these numbers, and need no closer look.
    pub(super) fn of_all(view: &'v View) -> Vec<Self> {
        let of = |(node, known): (&'v str, &'v Node)| {
            let estate = known.estate.as_deref()?;
            let usage = view.node_usage(node);
            let left = |amount: fn(&Resources) -> i64| {
                let taken = usage.map_or(0, |usage| amount(&usage.requested));
                amount(&estate.allocatable).saturating_sub(taken)
            };
            Some(Self {
                node,
                milli_cpu: left(|of| of.milli_cpu),
                memory: left(|of| of.memory),
                pods: estate.pod_limit.saturating_sub(usage.map_or(0, |usage| usage.pods)),
            })
        };
        let mut all: Vec<Self> = view.nodes().filter_map(of).collect();
        all.sort_unstable_by_key(|room| room.node);
        all
    }
}

impl<'v> Demand<'v> {
    /// What a placeholder and those who wait for it ask for.
    pub(super) fn of(
        name: &Name,
        placeholder: &'v Placeholder,
        estate: &'v PlaceholderEstate,
        blueprint: Option<&Blueprint<'_>>,
        waiting: Vec<&'v MemberEstate>,
        view: &'v View,
    ) -> Self {
        let pin = |claim: Box<str>| {
            let known = view.claim(&Name::new(&name.namespace, &claim))?;
            let volume = known.volume.as_deref()?;
            let terms = &*view.volume(volume)?.terms;
            (!terms.is_empty()).then_some(Pin { claim, volume, terms })
        };
        Self {
            waiting,
            volumes: placeholder.mounted(name).map(|claim| claim.name).filter_map(pin).collect(),
            placeholder: estate,
            terms: blueprint.and_then(Blueprint::node_terms),
        }
    }

    /// What of a node keeps the placeholder out.
    pub(super) fn barred_by<'n>(&self, node: &'n NodeEstate) -> Option<Bar<'n>> {
        Bar::of(&self.placeholder.tolerations, node)
    }

    /// Whether the volumes can be mounted on a node.
    fn can_mount(&self, name: &str, node: &NodeEstate) -> bool {
        self.volumes.iter().all(|pin| pin.can_be_on(name, node))
    }

    /// Whether a node could take the placeholder and any of those who wait. `has_placeholder`: it is
    /// there already.
    pub(super) fn suits(&self, name: &str, view: &View, has_placeholder: bool) -> bool {
        self.suits_for(&self.waiting, name, view, has_placeholder)
    }

    /// Whether the node of the placeholder could take this pod.
    pub(super) fn lets_in(&self, pod: &MemberEstate, name: &str, view: &View) -> bool {
        self.suits_for(&[pod], name, view, true)
    }

    /// Whether a node could take the placeholder, whoever waits for it.
    pub(super) fn takes_placeholder(&self, name: &str, view: &View) -> bool {
        self.suits_for(&[], name, view, false)
    }

    fn suits_for(
        &self,
        waiting: &[&MemberEstate],
        name: &str,
        view: &View,
        has_placeholder: bool,
    ) -> bool {
        let Some(node) = view.node(name).and_then(|node| node.estate.as_deref()) else {
            return false;
        };
        let usage = view.node_usage(name);
        let pods = usage.map_or(0, |usage| usage.pods);
        let further = usize::from(!waiting.is_empty()) + usize::from(!has_placeholder);
        let is_open = node.ready
            && !node.identity.deleting
            && node.labels.contains_key(HOSTNAME)
            && self.barred_by(node).is_none()
            && pods + further <= node.pod_limit;
        // It comes first, and takes its part.
        let none = Resources::default();
        let own = if has_placeholder { &none } else { &self.placeholder.requests };
        let used = usage.map_or(&none, |usage| &usage.requested);
        is_open
            && self.can_mount(name, node)
            && (has_placeholder || self.may_be_on(name, node))
            && node.allocatable.covers_beside(&[used], own)
            && waiting.iter().all(|pod| {
                node.allocatable.covers_beside(&[used, own], &pod.requests)
                    && may_be_on(pod, name, node)
            })
    }

    /// Whether the placeholder may be on a node, as far as its own node selector and terms say.
    fn may_be_on(&self, name: &str, node: &NodeEstate) -> bool {
        let mut selector = self.placeholder.node_selector.iter();
        selector.all(|(key, value)| node.labels.get(key) == Some(value))
            && self.terms.as_ref().is_none_or(|terms| selector::selects(terms, name, &node.labels))
    }

    /// The nodes that suit, but for `but`, in the order of their names. `room`: what all nodes have left.
    pub(super) fn suitable(&self, view: &'v View, room: &[Room<'v>], but: &str) -> Vec<&'v str> {
        let further = 1 + usize::from(!self.waiting.is_empty());
        let milli_cpu = self.least(|of| of.milli_cpu);
        let memory = self.least(|of| of.memory);
        let may_suit = |room: &&Room<'_>| {
            room.pods >= further && room.milli_cpu >= milli_cpu && room.memory >= memory
        };
        let names = room.iter().filter(may_suit).map(|room| room.node);
        names.filter(|name| *name != but && self.suits(name, view, false)).collect()
    }

    /// What a node must have left at least for the placeholder and any of those who wait.
    fn least(&self, amount: impl Fn(&Resources) -> i64) -> i64 {
        let own = amount(&self.placeholder.requests);
        let waiting = self.waiting.iter().map(|pod| amount(&pod.requests));
        // What is not wanted does not matter.
        let beside = waiting.filter(|wanted| *wanted > 0).map(|wanted| own.saturating_add(wanted));
        beside.chain(Some(own).filter(|own| *own > 0)).max().unwrap_or(i64::MIN)
    }

    /// Whether no node but `node` can mount the volumes.
    pub(super) fn is_pinned_to(&self, node: &str, view: &View) -> bool {
        !self.volumes.is_empty()
            && !others_than(node, view).any(|(name, other)| self.can_mount(name, other))
    }

    /// What pins the group to `node`, for people: the volume that can be mounted on no other, or else all
    /// of them together.
    pub(super) fn pins(&self, node: &str, view: &View) -> String {
        let is_there_only = |pin: &&Pin<'v>| {
            !others_than(node, view).any(|(name, other)| pin.can_be_on(name, other))
        };
        if let Some(Pin { claim, volume, .. }) = self.volumes.iter().find(is_there_only) {
            return format!(
                "volume {volume} of claim {claim} can be mounted on no node but {node}"
            );
        }
        let volumes = self.volumes.iter();
        let named = volumes.map(|Pin { claim, volume, .. }| format!("{volume} of claim {claim}"));
        let named = named.collect::<Vec<_>>().join(", ");
        format!("the volumes {named} can be mounted together on no node but {node}")
    }
}

fn others_than<'v>(node: &str, view: &'v View) -> impl Iterator<Item = (&'v str, &'v NodeEstate)> {
    let others = view.nodes().filter(move |(name, _)| *name != node);
    others.filter_map(|(name, other)| Some((name, other.estate.as_deref()?)))
}

/// Whether a pod may be on a node, as far as its own node selector, node affinity and tolerations say.
fn may_be_on(pod: &MemberEstate, name: &str, node: &NodeEstate) -> bool {
    pod.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
        && own_terms(pod).is_none_or(|terms| selector::selects(&terms, name, &node.labels))
        && Bar::of(&pod.tolerations, node).is_none()
}

/// The node that a pod was bound to by name, in the place of the pod-affinity term.
pub(super) fn bound_by_name(pod: &MemberEstate) -> Option<&str> {
    let terms = pod.terms.as_deref().filter(|_| pod.gate.is_none() && !pod.follows);
    bound_to(terms?)
}

/// What a pod itself says of nodes: its terms without the node that it was bound to, which is the last
/// one in each.
pub(super) fn own_terms(pod: &MemberEstate) -> Option<Cow<'_, [NodeSelectorTerm]>> {
    let terms = pod.terms.as_deref()?;
    if bound_by_name(pod).is_none() {
        return Some(Cow::Borrowed(terms));
    }
    let mut terms = terms.to_vec();
    for term in &mut terms {
        let names = |field: &NodeSelectorRequirement| field.operator == "In";
        let mut fields = term.match_fields.take().unwrap_or_default();
        if let Some(binding) = fields.iter().rposition(names) {
            fields.remove(binding);
        }
        if fields.is_empty() && term.match_expressions.as_ref().is_none_or(Vec::is_empty) {
            return None;
        }
        term.match_fields = Some(fields);
    }
    Some(Cow::Owned(terms))
}

/// All nodes but those in `suitable`, in the order of their names.
pub(super) fn others<'v>(view: &'v View, suitable: &[&str]) -> Vec<&'v str> {
    let suitable: HashSet<&str> = suitable.iter().copied().collect();
    let others = view.nodes().map(|(name, _)| name).filter(|name| !suitable.contains(name));
    let mut others: Vec<&str> = others.collect();
    others.sort_unstable();
    others
}
