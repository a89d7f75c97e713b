//! What the pools are planned upon: nodes, the pods on them, and which pools have which nodes. Made
//! once a plan, so that no pool has to look through all pods, and no node through all pools.

use std::collections::HashMap;

use super::Pool;
use super::choose::Obstacle;
use super::node_marks::{Marks, NO_SCHEDULE};
use crate::placement::intent::HOSTNAME;
use crate::policy::Policy;
use crate::systems::streams::keys::EXCLUSIVE_TAINT;
use crate::view::{Name, Node, NodeEstate, PodEstate, View};

/// The labels of control-plane nodes; the second is that of clusters older than 1.20.
const CONTROL_PLANE: [&str; 2] =
    ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// A node as pools see it.
#[derive(Debug)]
pub(super) struct NodeState<'v> {
    /// Its name.
    pub(super) name: &'v str,
    /// What everybody knows of it.
    pub(super) node: &'v Node,
    /// What its writer knows of it.
    pub(super) estate: &'v NodeEstate,
    /// The marks that it carries.
    pub(super) marks: Marks<'v>,
    /// Why no pool may have it.
    pub(super) barred: Option<Obstacle>,
    /// Why no pool that chooses for itself would have it.
    pub(super) unfit: Option<Obstacle>,
    /// The pods on it that have not ended.
    pub(super) pods: Vec<&'v PodEstate>,
    /// How many pools that mark nodes have it.
    pub(super) claims: usize,
    /// Whether one of them is exclusive.
    pub(super) exclusive: bool,
    /// How many pools of all kinds have it.
    pub(super) pools: usize,
}

impl NodeState<'_> {
    /// Whether a pod of somebody else runs here: a Streams pod that neither tolerates the pool's
    /// taint by name nor asks for the pool. Who tolerates everything would be here by accident.
    pub(super) fn has_foreign_pod(&self, hash: &str) -> bool {
        self.pods.iter().any(|pod| {
            pod.streams
                && !pod.tolerates.iter().any(|tolerated| **tolerated == *hash)
                && !pod.pools.iter().any(|(asked, _)| **asked == *hash)
        })
    }

    /// Whether a pod here tolerates the pool's taint by name.
    pub(super) fn has_pod_of(&self, hash: &str) -> bool {
        self.pods.iter().any(|pod| pod.tolerates.iter().any(|tolerated| **tolerated == *hash))
    }
}

/// A pod that is bound: the name of its node, and its own.
pub(super) type Bound<'v> = (&'v str, &'v Name);

/// All nodes, by name.
#[derive(Debug)]
pub(super) struct Inventory<'v> {
    pub(super) view: &'v View,
    pub(super) nodes: Vec<NodeState<'v>>,
    places: HashMap<&'v str, usize>,
    /// Pods that are bound and asked for one member: by pool and index.
    bound: HashMap<&'v str, HashMap<u32, Vec<Bound<'v>>>>,
}

impl<'v> Inventory<'v> {
    pub(super) fn new(view: &'v View, policy: &Policy) -> Self {
        let mut nodes: Vec<NodeState<'v>> = view
            .nodes()
            .filter_map(|(name, node)| {
                let estate = node.estate.as_deref()?;
                Some(NodeState {
                    name,
                    node,
                    estate,
                    marks: Marks::of(estate),
                    barred: barred(estate, policy),
                    unfit: unfit(estate),
                    pods: Vec::new(),
                    claims: 0,
                    exclusive: false,
                    pools: 0,
                })
            })
            .collect();
        nodes.sort_unstable_by_key(|node| node.name);
        let places: HashMap<&str, usize> =
            nodes.iter().enumerate().map(|(place, node)| (node.name, place)).collect();
        let mut bound: HashMap<&str, HashMap<u32, Vec<Bound<'v>>>> = HashMap::new();
        for (name, pod) in view.pods().filter(|(_, pod)| !pod.finished) {
            let Some(node) = pod.node.as_deref() else { continue };
            if let Some(place) = places.get(node) {
                nodes[*place].pods.push(pod);
            }
            for (hash, index) in &pod.pools {
                if let Some(index) = index {
                    let of_pool = bound.entry(hash).or_default();
                    of_pool.entry(*index).or_default().push((node, name));
                }
            }
        }
        // The pods that messages name must not depend on the order of a map.
        bound.values_mut().flat_map(HashMap::values_mut).for_each(|pods| pods.sort_unstable());
        Self { view, nodes, places, bound }
    }

    /// The place of the node of this name.
    pub(super) fn place(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }

    /// The bound pods that asked for this member, by the name of their node.
    pub(super) fn bound(&self, hash: &str, index: u32) -> &[Bound<'v>] {
        let of_pool = self.bound.get(hash);
        of_pool.and_then(|of_pool| of_pool.get(&index)).map_or(&[], Vec::as_slice)
    }

    /// Whether a pool may have a node, as far as other pools are concerned.
    pub(super) fn is_free_for(&self, place: usize, pool: &Pool<'_>) -> bool {
        let node = &self.nodes[place];
        !node.exclusive && (node.claims == 0 || !pool.exclusive())
    }

    /// Notes that a pool has a node.
    pub(super) fn claim(&mut self, place: usize, pool: &Pool<'_>) {
        let node = &mut self.nodes[place];
        node.claims += 1;
        node.pools += 1;
        node.exclusive |= pool.exclusive();
    }

    /// Notes that a pool has a node no more.
    pub(super) fn disclaim(&mut self, place: usize, pool: &Pool<'_>) {
        let node = &mut self.nodes[place];
        node.claims = node.claims.saturating_sub(1);
        node.pools = node.pools.saturating_sub(1);
        node.exclusive &= !pool.exclusive();
    }
}

fn barred(estate: &NodeEstate, policy: &Policy) -> Option<Obstacle> {
    let selected = policy.host_pools.node_selector.iter().all(|(key, value)| {
        estate.labels.get(key.as_str()).is_some_and(|present| **present == **value)
    });
    if estate.identity.deleting {
        Some(Obstacle::Deleted)
    } else if CONTROL_PLANE.iter().any(|label| estate.labels.contains_key(*label)) {
        Some(Obstacle::ControlPlane)
    } else {
        (!selected).then_some(Obstacle::NotSelected)
    }
}

fn unfit(estate: &NodeEstate) -> Option<Obstacle> {
    let keeps_away = |effect: &str| matches!(effect, NO_SCHEDULE | "NoExecute");
    let mut taints = estate.taints.iter();
    if !estate.ready {
        Some(Obstacle::NotReady)
    } else if estate.cordoned {
        Some(Obstacle::Cordoned)
    } else if taints.any(|taint| *taint.key != *EXCLUSIVE_TAINT && keeps_away(&taint.effect)) {
        Some(Obstacle::Tainted)
    } else {
        (!estate.labels.contains_key(HOSTNAME)).then_some(Obstacle::Nameless)
    }
}
