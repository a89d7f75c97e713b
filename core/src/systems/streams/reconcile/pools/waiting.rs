//! The nodes on which waiting pods must run, whichever members a pool chooses: they name the node, or must
//! be on the node of pods that run there or name it. A pool takes such nodes first, so that the pods that
//! wait for it can run, and an exclusive pool takes those of other pods last. This is an order among the
//! eligible nodes, and nothing else.
//!
//! Built only if a pool chooses members, once for each plan.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use super::Pool;
use super::inventory::Inventory;
use crate::kubernetes::HOSTNAME;
use crate::systems::streams::kinds::streams_pod::{Named, PendingPod, PodDetails};
use crate::systems::streams::policy::Compat;
use crate::systems::streams::reconcile::pending_pods;
use crate::view::Name;

/// The most nodes of a colocation group that count. A group is on one node, or on few while it moves.
const MAX_NODES: usize = 4;

/// The pods of a namespace with one colocation label (key and value); only those of a job, if it is given.
type Group<'v> = (&'v str, &'v str, &'v str, Option<&'v str>);

/// A waiting pod that must run on one of a few nodes.
#[derive(Debug)]
struct Waiter<'v> {
    name: &'v Name,
    pod: &'v PodDetails,
    /// The indices of the nodes in the inventory.
    nodes: Rc<[usize]>,
}

/// The waiting pods that must run on certain nodes.
#[derive(Debug)]
pub(super) struct Waiting<'v> {
    pods: Vec<Waiter<'v>>,
    /// The indices of the pods that ask for each pool, by its hash.
    by_pool: HashMap<&'v str, BTreeSet<usize>>,
}

impl<'v> Waiting<'v> {
    pub(super) fn new(inventory: &Inventory<'v>) -> Self {
        let mut places = Places::new(inventory);
        let (mut pods, mut by_pool) = (Vec::new(), HashMap::<&str, BTreeSet<usize>>::new());
        for (name, pod, pending) in pending_pods(inventory.view) {
            let nodes = places.of(name, pod, pending);
            if !nodes.is_empty() {
                for (hash, _) in &pod.pools {
                    by_pool.entry(hash).or_default().insert(pods.len());
                }
                pods.push(Waiter { name, pod, nodes });
            }
        }
        Self { pods, by_pool }
    }

    /// Sorts the eligible nodes of a pool: those that a waiting pod of the pool needs come first, the
    /// node of more pods before that of fewer. Of an exclusive pool, those on which other pods must be
    /// come last. Nodes of equal rank keep their order. Returns the nodes for which the pods of one
    /// member wait, by its index, if the member is among the `open` ones, which get nodes now.
    ///
    /// Such a node stands at the very end, so that no other member takes it unless it is the last.
    pub(super) fn sort(
        &self,
        pool: &Pool<'_>,
        open: &BTreeSet<u32>,
        eligible: &mut [usize],
    ) -> BTreeMap<u32, usize> {
        let mut any: BTreeMap<usize, usize> = BTreeMap::new();
        let mut one: BTreeMap<u32, BTreeMap<usize, usize>> = BTreeMap::new();
        // An exclusive pool would keep these pods off the node on which they must run.
        let is_other = |of: &&Waiter<'_>| pool.exclusive() && !pool.has_pod(of.name, of.pod);
        let others = self.pods.iter().filter(is_other);
        let in_the_way: BTreeSet<usize> = others.flat_map(|of| &*of.nodes).copied().collect();
        for waiter in self.by_pool.get(pool.hash).into_iter().flatten().map(|pod| &self.pods[*pod])
        {
            if waiter.name.namespace != pool.name.namespace {
                continue;
            }
            let asked = waiter.pod.pools.iter().filter(|(hash, _)| **hash == *pool.hash);
            for (_, index) in asked {
                let counts = match index {
                    None => &mut any,
                    Some(index) if open.contains(index) => one.entry(*index).or_default(),
                    Some(_) => continue,
                };
                waiter.nodes.iter().for_each(|node| *counts.entry(*node).or_default() += 1);
            }
        }
        let members = distribute(one, eligible);
        if any.is_empty() && members.is_empty() && in_the_way.is_empty() {
            return members;
        }
        let taken: BTreeSet<usize> = members.values().copied().collect();
        eligible.sort_by_cached_key(|node| {
            let pods = any.get(node).copied().unwrap_or_default();
            (taken.contains(node), Reverse(pods), in_the_way.contains(node))
        });
        members
    }
}

/// Gives each member the eligible node for which most of its pods wait, unless a lower member has it.
fn distribute(
    wanted: BTreeMap<u32, BTreeMap<usize, usize>>,
    eligible: &[usize],
) -> BTreeMap<u32, usize> {
    if wanted.is_empty() {
        return BTreeMap::new();
    }
    let mut free: BTreeSet<usize> = eligible.iter().copied().collect();
    let mut members = BTreeMap::new();
    for (index, counts) in wanted {
        let mut nodes: Vec<(usize, usize)> = counts.into_iter().collect();
        nodes.sort_by_key(|(_, pods)| Reverse(*pods));
        if let Some((node, _)) = nodes.into_iter().find(|(node, _)| free.remove(node)) {
            members.insert(index, node);
        }
    }
    members
}

/// Finds the nodes on which pods must run.
struct Places<'i, 'v> {
    inventory: &'i Inventory<'v>,
    /// The nodes by their hostname label. Made when the first pod names one.
    hostnames: Option<HashMap<&'v str, Vec<usize>>>,
    /// The nodes that waiting pods of each group name.
    named: HashMap<Group<'v>, BTreeSet<usize>>,
    /// The nodes of each group: those that its pods run on or name.
    groups: HashMap<Group<'v>, Rc<[usize]>>,
}

impl<'i, 'v> Places<'i, 'v> {
    fn new(inventory: &'i Inventory<'v>) -> Self {
        let (named, groups) = (HashMap::new(), HashMap::new());
        let mut places = Self { inventory, hostnames: None, named, groups };
        for (name, pod, pending) in pending_pods(inventory.view) {
            if pod.groups.is_empty() {
                continue;
            }
            let Some(nodes) = places.named_by(pending) else { continue };
            for (key, value) in &pod.groups {
                // Once for those who ask for the pods of the job, and once for those who ask for all.
                for job in BTreeSet::from([None, pod.job.as_deref()]) {
                    let group = (&*name.namespace, &**key, &**value, job);
                    places.named.entry(group).or_default().extend(nodes.iter());
                }
            }
        }
        places
    }

    /// The nodes of which a pod must run on one; none if it may run on others, too.
    fn of(&mut self, name: &'v Name, pod: &'v PodDetails, pending: &'v PendingPod) -> Rc<[usize]> {
        if let Some(nodes) = self.named_by(pending) {
            return nodes;
        }
        if !pending.is_near {
            return Rc::default();
        }
        // Under `compat: upstream` the groups of a token reach across jobs.
        let is_of_job = self.inventory.policy.streams.compat == Compat::None;
        let job = pod.job.as_deref().filter(|_| is_of_job);
        // The pods of a group have the same node, by whichever label they are found.
        let groups = pod.groups.iter();
        let found = groups.map(|(key, value)| self.of_group((&name.namespace, key, value, job)));
        found.max_by_key(|nodes| nodes.len()).unwrap_or_default()
    }

    /// The nodes that a pod names; `None`: it names no node.
    fn named_by(&mut self, pending: &'v PendingPod) -> Option<Rc<[usize]>> {
        match pending.named()? {
            Named::Node(node) => Some(self.inventory.index_of(node).into_iter().collect()),
            Named::Hostname(name) => {
                let hostnames = self.hostnames.get_or_insert_with(|| hostnames(self.inventory));
                let nodes = hostnames.get(name).into_iter().flatten();
                Some(nodes.take(MAX_NODES).copied().collect())
            }
        }
    }

    fn of_group(&mut self, group: Group<'v>) -> Rc<[usize]> {
        if let Some(known) = self.groups.get(&group) {
            return Rc::clone(known);
        }
        let (namespace, key, value, job) = group;
        let running = self.inventory.view.streams_pods.nodes_of_group(namespace, (key, value), job);
        let running: BTreeSet<usize> =
            running.into_iter().filter_map(|node| self.inventory.index_of(node)).collect();
        // Where a group runs, it stays: what others of it name is then of no use to the pod.
        let named = self.named.get(&group).filter(|_| running.is_empty());
        let nodes: Rc<[usize]> =
            running.iter().chain(named.into_iter().flatten()).take(MAX_NODES).copied().collect();
        self.groups.insert(group, Rc::clone(&nodes));
        nodes
    }
}

/// The indices of the nodes with each hostname label.
fn hostnames<'v>(inventory: &Inventory<'v>) -> HashMap<&'v str, Vec<usize>> {
    let mut hostnames: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, node) in inventory.nodes.iter().enumerate() {
        if let Some(name) = node.details.labels.get(HOSTNAME) {
            hostnames.entry(name).or_default().push(index);
        }
    }
    hostnames
}
