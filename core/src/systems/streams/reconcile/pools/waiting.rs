//! The nodes on which waiting pods must run, whichever members a pool chooses: they name the node, or must
//! be on the node of pods that run there or name it. A pool takes such nodes first, so that the pods that
//! wait for it can run, and an exclusive pool takes those of other pods last. This is an order among the
//! eligible nodes, and nothing else.
//!
//! Built only if a pool chooses members, once for each plan.

use std::cell::LazyCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Pool;
use super::inventory::Inventory;
use crate::kubernetes::HOSTNAME;
use crate::systems::streams::kinds::{PendingPod, PodDetails, streams_pod::Named};
use crate::systems::streams::policy::Compat;
use crate::systems::streams::reconcile::{Group, groups, pending_pods};
use crate::view::Name;

/// The most nodes of a colocation group that count. A group is on one node, or on few while it moves.
const MAX_NODES: usize = 4;

/// The pods of a colocation group; only those of a job, if it is given.
type Mates<'v> = (Group<'v>, Option<&'v str>);

/// A waiting pod that must run on one of a few nodes.
#[derive(Debug)]
struct Waiter<'v> {
    name: &'v Name,
    pod: &'v PodDetails,
    /// The indices of the nodes in the inventory.
    nodes: Vec<usize>,
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
        let hostnames = LazyCell::new(|| hostnames(inventory));
        // The nodes that a pod names. `None`: it names no node.
        let find_named = |pending: &'v PendingPod| {
            pending.named().map(|named| match named {
                Named::Node(node) => inventory.index_of(node).into_iter().collect(),
                Named::Hostname(name) => {
                    let nodes = hostnames.get(name).into_iter().flatten();
                    nodes.take(MAX_NODES).copied().collect::<Vec<_>>()
                }
            })
        };
        let pending: Vec<_> = pending_pods(inventory.view)
            .map(|(name, pod, pending)| (name, pod, pending.is_near, find_named(pending)))
            .collect();
        let mut named: HashMap<Mates<'v>, BTreeSet<usize>> = HashMap::new();
        for (name, pod, _, nodes) in &pending {
            let Some(nodes) = nodes else { continue };
            // Once for those who ask for the pods of the job, and once for those who ask for all.
            for job in BTreeSet::from([None, pod.job.as_deref()]) {
                groups(name, pod).for_each(|of| named.entry((of, job)).or_default().extend(nodes));
            }
        }
        // Under `compat: upstream` the groups of a token reach across jobs.
        let groups_are_of_jobs = inventory.policy.streams.compat == Compat::None;
        let mut known: HashMap<Mates<'v>, Vec<usize>> = HashMap::new();
        let mut waiting = Self { pods: Vec::new(), by_pool: HashMap::new() };
        for (name, pod, is_near, own) in pending {
            let job = pod.job.as_deref().filter(|_| groups_are_of_jobs);
            // The pods of a group have the same node, by whichever label they are found.
            let of_groups = groups(name, pod).filter(|_| own.is_none() && is_near).map(|of| {
                let of = (of, job);
                known.entry(of).or_insert_with(|| find_nodes(of, &named, inventory)).clone()
            });
            let near = of_groups.max_by_key(Vec::len);
            // The nodes of which a pod must run on one; none if it may run on others, too.
            let nodes = own.or(near).filter(|nodes| !nodes.is_empty());
            let Some(nodes) = nodes else { continue };
            for (hash, _) in &pod.pools {
                waiting.by_pool.entry(hash).or_default().insert(waiting.pods.len());
            }
            waiting.pods.push(Waiter { name, pod, nodes });
        }
        waiting
    }

    /// Sorts the eligible nodes of a pool: those that a waiting pod of the pool needs come first, the
    /// node of more pods before that of fewer. Of an exclusive pool, those on which other pods must be
    /// come last. Nodes of equal rank keep their order. Returns the nodes for which the pods of one
    /// member wait, by its index, if the member is among the `open` ones, which get nodes now.
    ///
    /// Such a node comes last, so that another member takes it only if no other node is left.
    pub(super) fn sort(
        &self,
        pool: &Pool<'_>,
        open: &BTreeSet<u32>,
        eligible: &mut [usize],
    ) -> BTreeMap<u32, usize> {
        let mut any: BTreeMap<usize, usize> = BTreeMap::new();
        let mut one: BTreeMap<u32, BTreeMap<usize, usize>> = BTreeMap::new();
        // An exclusive pool would keep these pods off the node on which they must run.
        let is_other = |of: &&Waiter<'_>| pool.pool.exclusive && !pool.has_pod(of.name, of.pod);
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

/// The nodes of a group: those that its pods run on, or else those that waiting pods of it name. Where a
/// group runs, it stays, so what others of it name is of no use.
fn find_nodes(
    mates: Mates<'_>,
    named: &HashMap<Mates<'_>, BTreeSet<usize>>,
    inventory: &Inventory<'_>,
) -> Vec<usize> {
    let ((namespace, key, value), job) = mates;
    let running = inventory.view.streams_pods.nodes_of_group(namespace, (key, value), job);
    let running: BTreeSet<usize> =
        running.into_iter().filter_map(|node| inventory.index_of(node)).collect();
    let named = named.get(&mates).filter(|_| running.is_empty());
    running.iter().chain(named.into_iter().flatten()).take(MAX_NODES).copied().collect()
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
