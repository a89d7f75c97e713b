//! The nodes that pools choose from: the pods on them, the pools that have them, and the obstacles
//! that exclude them. Built once for each plan, so that no pool has to search all pods.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::Pool;
use super::node_marks::Marks;
use super::waiting::Waiting;
use crate::systems::View;
use crate::systems::policy::Policy;
use crate::systems::streams::api::host_pool::{Member, MemberState};
use crate::systems::streams::job::sites::Site;
use crate::systems::streams::keys::{EXCLUSIVE_TAINT, FORMER_EXCLUSIVE_TAINT};
use crate::systems::streams::kinds::{HostPool, PodDetails, to_usize};
use crate::systems::streams::owners::{Owner, unmarked_hosts};
use crate::view::{Name, NodeDetails};

/// A node, and the state that decides whether a pool may have it.
#[derive(Debug)]
pub(super) struct NodeState<'v> {
    pub(super) name: &'v str,
    pub(super) details: &'v NodeDetails,
    pub(super) site: Site<'v>,
    /// The marks of pools on it.
    pub(super) marks: Marks<'v>,
    /// The pods on it that have not ended.
    pub(super) pods: Vec<(&'v Name, &'v PodDetails)>,
    /// The pools that have it and mark their nodes, each with its hash.
    pub(super) claims: Vec<(&'v str, &'v HostPool)>,
    /// The hashes of the pools without marks that count it as one of their hosts.
    pub(super) hosts_of: Vec<&'v str>,
}

impl<'v> NodeState<'v> {
    /// Returns true if the pool has it and marks its nodes.
    pub(super) fn is_claimed_by(&self, pool: &Pool<'_>) -> bool {
        self.claims.iter().any(|(hash, _)| *hash == pool.hash)
    }

    /// Returns true if a member is this very node, and not an earlier one of its name.
    pub(super) fn is_of(&self, member: &Member) -> bool {
        member.node.as_deref() == Some(self.name)
            && member.uid.as_deref() == Some(&*self.details.identity.uid)
    }

    /// Returns it as a member of a pool.
    pub(super) fn as_member(&self, index: u32, state: MemberState, now: Timestamp) -> Member {
        Member {
            index,
            node: Some(self.name.to_owned()),
            uid: Some(self.details.identity.uid.to_string()),
            state,
            since: Time(now),
        }
    }

    /// The number of all pools that have it.
    pub(super) fn count_pools(&self) -> usize {
        self.claims.len() + self.hosts_of.len()
    }

    /// Returns true if the node runs a Streams pod that does not belong to the pool.
    pub(super) fn has_foreign_pod(&self, pool: &Pool<'_>) -> bool {
        self.pods.iter().any(|(name, pod)| pod.streams && !pool.has_pod(name, pod))
    }
}

/// A bound pod: the name of its node, and its own name.
pub(super) type Bound<'v> = (&'v str, &'v Name);

/// All nodes, in the order of their names.
#[derive(Debug)]
pub(super) struct Inventory<'v> {
    pub(super) view: &'v View,
    pub(super) nodes: Vec<NodeState<'v>>,
    /// The index of each node in `nodes`, by name.
    indices: HashMap<&'v str, usize>,
    /// The bound pods that asked for one member, by the hash of the pool and the index of the
    /// member.
    bound: HashMap<(&'v str, u32), Vec<Bound<'v>>>,
    /// Each pool by its hash. Pools that are being deleted are included.
    pools: HashMap<&'v str, (&'v Name, &'v HostPool)>,
    /// The hashes of the pools for which a pod waits that tolerates only the former taint.
    former: HashSet<&'v str>,
    pub(super) policy: &'v Policy,
    waiting: OnceCell<Waiting<'v>>,
}

impl<'v> Inventory<'v> {
    pub(super) fn new(view: &'v View, policy: &'v Policy) -> Self {
        // A state is large, so the list must not grow in steps.
        let mut nodes: Vec<NodeState<'v>> = Vec::with_capacity(view.node_count());
        nodes.extend(view.nodes().filter_map(|(name, node)| {
            let details = node.details.as_deref()?;
            Some(NodeState {
                name,
                details,
                site: Site::new(name, view, policy),
                marks: Marks::of(details),
                pods: Vec::new(),
                claims: Vec::new(),
                hosts_of: Vec::new(),
            })
        }));
        nodes.sort_unstable_by_key(|node| node.name);
        let indices: HashMap<&str, usize> =
            nodes.iter().enumerate().map(|(index, node)| (node.name, index)).collect();
        let hashed = view.host_pools().filter_map(|of| Some((of.1.hash.as_deref()?, of)));
        let pools: HashMap<&str, (&Name, &HostPool)> = hashed.collect();
        let is_of = |hash: &str, pod: &Name| {
            pools.get(hash).is_some_and(|(pool, _)| pool.namespace == pod.namespace)
        };
        let mut bound: HashMap<(&str, u32), Vec<Bound<'v>>> = HashMap::new();
        for (name, pod) in view.pods().filter(|(_, pod)| !pod.finished) {
            let Some(node) = pod.node.as_deref() else { continue };
            if let Some(index) = indices.get(node) {
                nodes[*index].pods.push((name, pod));
            }
            for (hash, index) in &pod.pools {
                // A pod of another namespace may name a pool, but is not of it.
                if let Some(index) = index
                    && is_of(hash, name)
                {
                    bound.entry((hash, *index)).or_default().push((node, name));
                }
            }
        }
        let unbound = view.pods().filter(|(_, pod)| pod.node.is_none() && !pod.finished);
        let former = unbound
            .flat_map(|(name, pod)| pod.tolerates_former.iter().map(move |hash| (name, &**hash)))
            .filter(|(name, hash)| is_of(hash, name))
            .map(|(_, hash)| hash)
            .collect();
        // Sorted, because messages name the first, which must not depend on the order of a map.
        bound.values_mut().for_each(|pods| pods.sort_unstable());
        Self { view, nodes, indices, bound, pools, former, policy, waiting: OnceCell::new() }
    }

    /// Returns true if a node has as many pools as the policy allows.
    pub(super) fn is_full(&self, node: &NodeState<'_>) -> bool {
        node.claims.len() >= to_usize(self.policy.host_pools.max_pools_per_node)
    }

    /// The waiting pods that must run on certain nodes.
    pub(super) fn waiting(&self) -> &Waiting<'v> {
        self.waiting.get_or_init(|| Waiting::new(self))
    }

    /// The pool with this hash, if there is such a pool.
    pub(super) fn pool(&self, hash: &str) -> Option<(&'v Name, &'v HostPool)> {
        self.pools.get(hash).copied()
    }

    /// The namespaces of the pods on a node that tolerate a pool's taint by key and value: only that of the
    /// pool, or all of them if the pool was deleted, because its namespace is not known then.
    pub(super) fn namespaces_on<'n>(
        &self,
        node: &'n NodeState<'v>,
        hash: &'n str,
    ) -> impl Iterator<Item = &'v str> + use<'n, 'v> {
        let owner = self.pool(hash).map(|(name, _)| &*name.namespace);
        let of_pool = move |(name, pod): &&(&'v Name, &'v PodDetails)| {
            pod.tolerates(hash) && owner.is_none_or(|owner| *name.namespace == *owner)
        };
        node.pods.iter().filter(of_pool).map(|(name, _)| &*name.namespace)
    }

    /// The owner with this hash, in texts for the users of the pool `reader`.
    pub(super) fn owner(&self, hash: &str, reader: &Pool<'_>) -> Owner<'v> {
        Owner::new(self.pool(hash).map(|(name, _)| name), &reader.name.namespace)
    }

    /// The key of the taint of a pool's nodes: the former one while a pod waits that tolerates no other.
    pub(super) fn taint_key(&self, hash: &str) -> &'static str {
        if self.former.contains(hash) { FORMER_EXCLUSIVE_TAINT } else { EXCLUSIVE_TAINT }
    }

    /// The index of the node with this name.
    pub(super) fn index_of(&self, name: &str) -> Option<usize> {
        self.indices.get(name).copied()
    }

    /// The bound pods that asked for this member, by the name of their node.
    pub(super) fn bound(&self, hash: &'v str, index: u32) -> &[Bound<'v>] {
        self.bound.get(&(hash, index)).map_or(&[], Vec::as_slice)
    }

    /// Records that a pool has a node.
    pub(super) fn claim(&mut self, index: usize, pool: &Pool<'v>) {
        self.nodes[index].claims.push((pool.hash, pool.pool));
    }

    /// Records that a pool no longer has a node.
    pub(super) fn disclaim(&mut self, index: usize, pool: &Pool<'v>) {
        self.nodes[index].claims.retain(|(hash, _)| *hash != pool.hash);
    }

    /// Records the hosts of a pool without marks.
    pub(super) fn add_hosts_of(&mut self, pool: &Pool<'v>) {
        for node in unmarked_hosts(pool.pool, self.view) {
            if let Some(index) = self.index_of(node) {
                self.nodes[index].hosts_of.push(pool.hash);
            }
        }
    }
}
