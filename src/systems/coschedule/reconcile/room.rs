//! Where there is room: which nodes could take the pods of a group that wait.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{NodeSelectorTerm, Toleration};

use crate::placement::toleration::tolerates;
use crate::view::estate::{NodeEstate, Taint};
use crate::view::member::MemberEstate;
use crate::view::{Name, Placeholder, View, selector};

/// The label of nodes that pods of a group share.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// What a node must be for a group.
#[derive(Debug)]
pub(super) struct Demand<'v> {
    /// The pods that wait, each of which it must be able to take alone.
    pub(super) waiting: Vec<&'v MemberEstate>,
    /// The terms of the volumes that the placeholder mounts, of each of which one must be met.
    pub(super) volumes: Vec<&'v [NodeSelectorTerm]>,
    /// What the placeholder tolerates.
    pub(super) tolerations: Vec<Toleration>,
}

impl<'v> Demand<'v> {
    /// What a placeholder and those who wait for it ask for.
    pub(super) fn of(
        name: &Name,
        placeholder: &'v Placeholder,
        waiting: Vec<&'v MemberEstate>,
        view: &'v View,
    ) -> Self {
        let terms = |claim: &str| {
            let claim = view.claim(&Name::new(&name.namespace, claim))?;
            let volume = view.volume(claim.volume.as_deref()?)?;
            Some(&*volume.terms).filter(|terms| !terms.is_empty())
        };
        let made = placeholder
            .templates
            .iter()
            .map(|template| -> Box<str> { format!("{template}-{}-0", name.name).into() });
        let made: Vec<Box<str>> = made.collect();
        Self {
            waiting,
            volumes: placeholder
                .claims
                .iter()
                .chain(&made)
                .filter_map(|claim| terms(claim))
                .collect(),
            tolerations: tolerations(placeholder),
        }
    }

    /// The same, with nobody waiting.
    pub(super) fn without_waiting(&self) -> Self {
        Self {
            waiting: Vec::new(),
            volumes: self.volumes.clone(),
            tolerations: self.tolerations.clone(),
        }
    }

    /// The taint of a node that keeps the placeholder out.
    pub(super) fn barred_by<'n>(&self, node: &'n NodeEstate) -> Option<&'n Taint> {
        barred_by(&self.tolerations, node)
    }

    /// Whether the volumes can be mounted on a node.
    pub(super) fn can_mount(&self, name: &str, node: &NodeEstate) -> bool {
        self.volumes.iter().all(|terms| selector::selects(terms, name, &node.labels))
    }

    /// Whether a node could take the placeholder and any of those who wait. `has_placeholder`: it is
    /// there already.
    pub(super) fn suits(&self, name: &str, view: &View, has_placeholder: bool) -> bool {
        let Some(node) = view.node(name).and_then(|node| node.estate.as_deref()) else {
            return false;
        };
        let usage = view.node_usage(name);
        let pods = usage.map_or(0, |usage| usage.pods);
        let further = usize::from(!self.waiting.is_empty()) + usize::from(!has_placeholder);
        let is_open = node.ready
            && !node.cordoned
            && !node.identity.deleting
            && node.labels.contains_key(HOSTNAME)
            && self.barred_by(node).is_none()
            && pods + further <= node.pod_limit;
        let free = || match usage {
            Some(usage) => node.allocatable.minus(&usage.requested),
            None => node.allocatable.clone(),
        };
        is_open
            && self.can_mount(name, node)
            && (self.waiting.is_empty() || {
                let free = free();
                self.waiting
                    .iter()
                    .all(|pod| free.covers(&pod.requests) && may_be_on(pod, name, node))
            })
    }

    /// The nodes that suit, but for `but`, in the order of their names.
    pub(super) fn suitable(&self, view: &'v View, but: &str) -> Vec<&'v str> {
        let names = view.nodes().map(|(name, _)| name).filter(|name| *name != but);
        let mut names: Vec<&str> = names.filter(|name| self.suits(name, view, false)).collect();
        names.sort_unstable();
        names
    }

    /// Whether no node but `node` can mount the volumes.
    pub(super) fn is_pinned_to(&self, node: &str, view: &View) -> bool {
        let others = view.nodes().filter(|(name, _)| *name != node);
        !self.volumes.is_empty()
            && !others
                .filter_map(|(name, other)| Some((name, other.estate.as_deref()?)))
                .any(|(name, other)| self.can_mount(name, other))
    }
}

/// Whether a pod may be on a node, as far as its own node selector, node affinity and tolerations say.
fn may_be_on(pod: &MemberEstate, name: &str, node: &NodeEstate) -> bool {
    pod.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
        && pod.terms.as_ref().is_none_or(|terms| selector::selects(terms, name, &node.labels))
        && barred_by(&pod.tolerations, node).is_none()
}

fn barred_by<'n>(tolerations: &[Toleration], node: &'n NodeEstate) -> Option<&'n Taint> {
    let keeps_out = |taint: &&Taint| matches!(&*taint.effect, "NoSchedule" | "NoExecute");
    node.taints.iter().filter(keeps_out).find(|taint| {
        let covers = |toleration: &Toleration| {
            tolerates(toleration, &taint.key, &taint.value, &taint.effect)
        };
        !tolerations.iter().any(covers)
    })
}

fn tolerations(placeholder: &Placeholder) -> Vec<Toleration> {
    let spec = placeholder.estate.as_ref().map(|estate| &estate.spec);
    let list = spec.map(|spec| spec["template"]["spec"]["tolerations"].clone());
    list.and_then(|list| serde_json::from_value(list).ok()).unwrap_or_default()
}

/// All nodes but those in `suitable`.
pub(super) fn others<'v>(view: &'v View, suitable: &[&str]) -> std::collections::BTreeSet<&'v str> {
    let suitable: HashSet<&str> = suitable.iter().copied().collect();
    view.nodes().map(|(name, _)| name).filter(|name| !suitable.contains(name)).collect()
}
