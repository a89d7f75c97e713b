//! Reconciles HostPools: chooses the nodes that are their members, sets the labels by which pods
//! find the members and the taints that keep other pods off exclusive pools, and writes the status
//! of the pools.
//!
//! # Order of writes
//! The status of a pool is written first. It records which nodes are reserved, so
//! that no other pool, and no controller that takes over, chooses the same nodes. Then the nodes
//! are marked, then the status records the members as Ready.
//!
//! - Shared pools: status (Reserving), one patch per node (label), status (Ready).
//! - Exclusive pools: status (Reserving), one patch per node (taint), a wait of
//!   [`node_marks::SETTLE`], a check for pods that were bound meanwhile, one patch per node
//!   (label), status (Ready).
//!
//! All state is read back from statuses and nodes, so a controller may stop after any write.
//!
//! # Files
//! - [`accept`]: which pools may have nodes.
//! - [`inventory`]: the nodes, their pods and their pools.
//! - [`members`]: which members a pool keeps, loses and gets; [`choose`]: which nodes it gets, and which
//!   members it lacks; [`obstacle`](crate::systems::streams::obstacle): why it cannot have other nodes;
//!   [`waiting`]: which nodes waiting pods need.
//! - [`status`]: the status of a pool and the events about it.
//! - [`node_marks`]: the patches of nodes; [`release`]: the confirmation of those that remove
//!   marks.
//! - This file: the order of all this, and which marks of nodes are missing or stale.

mod accept;
mod choose;
mod inventory;
mod members;
mod node_marks;
mod release;
mod status;
#[cfg(test)]
mod tests;
mod waiting;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use json_patch::PatchOperation;
use k8s_openapi::jiff::Timestamp;

use super::placements::{Hold, Placements, Share};
use crate::systems::View;
use crate::systems::check::words::LISTED;
use crate::systems::plan::{Action, Plan, Target, Write};
use crate::systems::policy::Policy;
use crate::systems::streams::api::host_pool::MemberState;
use crate::systems::streams::kinds::{Form, Host, HostPool, PodDetails};
use crate::view::Name;
use crate::view::resource::NODE;
use accept::Verdict;
use inventory::{Inventory, NodeState};
use members::{Draft, Slot};
use node_marks::{SETTLE, Wanted, trusted_since};

/// A pool that exists and is not being deleted.
#[derive(Debug)]
struct Pool<'v> {
    name: &'v Name,
    pool: &'v HostPool,
    hash: &'v str,
    /// The part of it in the placement of its whole job; `None`: the pool chooses by itself.
    share: Option<&'v Share<'v>>,
    /// Undecided until all pools are judged together.
    verdict: Verdict,
}

/// The nodes that a pool lacks.
#[derive(Debug)]
pub(super) struct PoolLack<'v> {
    pub(super) name: &'v Name,
    pub(super) pool: &'v HostPool,
    /// The number of nodes that would have to be added to the cluster.
    pub(super) missing: usize,
}

impl<'v> Pool<'v> {
    /// The nodes of its members as the placement of its whole job has them, by index.
    fn planned(&self) -> Option<&'v BTreeMap<u32, &'v str>> {
        self.share?.as_ref().ok()
    }

    /// The node that the placement of its whole job has for a member.
    fn planned_node(&self, index: u32) -> Option<&'v str> {
        self.planned()?.get(&index).copied()
    }

    /// The reason why it gets no first members now.
    fn hold(&self) -> Option<&'v Hold> {
        self.share?.as_ref().err()
    }

    /// The hosts that its author lists.
    fn hosts(&self) -> Option<&'v [Host]> {
        match &self.pool.form {
            Ok(Form::Literal(hosts)) => Some(hosts),
            _ => None,
        }
    }

    /// The reason why it keeps the nodes that it has but gets no more, if that is so.
    fn limit(&self) -> Option<&str> {
        match &self.verdict {
            Verdict::Accepted { limit } => limit.as_deref(),
            Verdict::Refused(_) | Verdict::Undecided => None,
        }
    }

    /// The nodes that its status records, each with the hash of the pool.
    fn recorded(&self) -> impl Iterator<Item = (&'v str, &'v str)> + use<'v> {
        let hash = self.hash;
        self.pool.status.nodes().map(move |(_, node)| (hash, node))
    }

    /// Returns true if it may have nodes.
    fn is_accepted(&self) -> bool {
        matches!(self.verdict, Verdict::Accepted { .. })
    }

    /// Returns true if the controller chooses and marks its nodes now.
    fn is_served(&self) -> bool {
        self.is_accepted() && self.pool.is_labelled()
    }

    /// Returns true if a pod belongs to the pool, so that it may run on the members of an exclusive one: it is
    /// of the same namespace, and tolerates the pool's taint by key and value or asks for the pool. A pod that
    /// tolerates every taint does not belong to the pool for that reason: it may run there by chance.
    fn has_pod(&self, name: &Name, pod: &PodDetails) -> bool {
        let asks = pod.pools.iter().any(|(asked, _)| **asked == *self.hash);
        (asks || pod.tolerates(self.hash)) && name.namespace == self.name.namespace
    }

    /// The number of members that it should have; 0 for a pool whose nodes are not marked.
    fn wanted(&self) -> u32 {
        if self.pool.is_labelled() { self.pool.size() } else { 0 }
    }

    /// The number of members that its status records, including vacant ones.
    fn held(&self) -> u32 {
        let members = self.pool.status.members.iter();
        let held = members.filter(|member| member.index < self.wanted()).count();
        u32::try_from(held).unwrap_or(u32::MAX)
    }

    /// Returns true if the pool has not had all of its members Ready yet.
    fn is_first_allocation(&self) -> bool {
        let members = &self.pool.status.members;
        members.iter().all(|member| member.state == MemberState::Reserving)
    }
}

/// Plans the changes for all HostPools, and for the marks of nodes. Returns also the nodes that pools
/// without a job lack.
pub(super) fn plan<'v>(
    view: &'v View,
    policy: &'v Policy,
    placements: &'v Placements<'v>,
    now: Timestamp,
) -> (Plan, Vec<PoolLack<'v>>) {
    let mut pools = find_live_pools(view, placements);
    let mut inventory = Inventory::new(view, policy);
    let lingering = find_lingering_nodes(&pools, &inventory);
    accept::judge(&mut pools, &lingering, view, policy);
    let mut drafts = allocate(&pools, &mut inventory);

    let mut plan = Plan::default();
    let mut wanted: BTreeMap<usize, Wanted<'_>> = BTreeMap::new();
    for (pool, draft) in pools.iter().zip(&mut drafts) {
        if let Some(at) = request_marks(pool, draft, &inventory, &mut wanted, now) {
            plan.recheck_by(at);
        }
    }
    for (pool, draft) in pools.iter().zip(&mut drafts) {
        plan.actions.extend(status::write(pool, draft, &inventory, now));
    }
    let owned = find_owned_marks(&pools, &drafts, &inventory);
    for (index, node) in inventory.nodes.iter().enumerate() {
        plan.actions.extend(plan_node(node, wanted.get(&index), &owned, &inventory, now));
    }
    let of_no_job = pools.iter().zip(&drafts).filter(|(pool, _)| pool.pool.job.is_none());
    let lack = |(pool, draft): (&Pool<'v>, &Draft<'_>)| PoolLack {
        name: pool.name,
        pool: pool.pool,
        missing: draft.missing,
    };
    (plan, of_no_job.map(lack).collect())
}

/// The number of nodes of each namespace that keep the taint of a pool that no longer has them: the
/// pool was deleted or has lost the node, and its pods still run there. These pods are all that is
/// known of a deleted pool, so the node counts for each of their namespaces.
fn find_lingering_nodes<'v>(
    pools: &[Pool<'v>],
    inventory: &Inventory<'v>,
) -> HashMap<&'v str, u32> {
    // Only exclusive pools write taints.
    let held: HashSet<(&str, &str)> =
        pools.iter().filter(|pool| pool.pool.exclusive).flat_map(Pool::recorded).collect();
    let mut lingering: HashMap<&str, u32> = HashMap::new();
    for node in &inventory.nodes {
        let taints = node.marks.taints.iter().map(|(_, taint)| &*taint.value);
        let namespaces: BTreeSet<&str> = taints
            .filter(|hash| !held.contains(&(*hash, node.name)))
            .flat_map(|hash| inventory.namespaces_on(node, hash))
            .collect();
        for namespace in namespaces {
            *lingering.entry(namespace).or_default() += 1;
        }
    }
    lingering
}

/// The pools that are not being deleted, the oldest first.
///
/// Pools that were created within the same second are ordered by name. The resource version would
/// not do: it changes with every write, and the order of pools must not change.
fn find_live_pools<'v>(view: &'v View, placements: &'v Placements<'v>) -> Vec<Pool<'v>> {
    let read = |(name, pool): (&'v Name, &'v HostPool)| {
        let hash = pool.hash.as_deref()?;
        let share = placements.share(hash);
        Some(Pool { name, pool, hash, share, verdict: Verdict::Undecided })
    };
    let live = view.host_pools().filter(|(_, pool)| !pool.identity.deleting);
    let mut pools: Vec<Pool<'_>> = live.filter_map(read).collect();
    pools.sort_unstable_by_key(|pool| (pool.pool.identity.created, pool.name));
    pools
}

/// Allocates nodes to the pools, one pool after the other: nodes that an earlier pool has taken are
/// not available to later ones.
fn allocate<'v>(pools: &[Pool<'v>], inventory: &mut Inventory<'v>) -> Vec<Draft<'v>> {
    let mut drafts: Vec<Draft<'v>> = pools.iter().map(|_| Draft::default()).collect();
    for pool in pools {
        if !matches!(pool.verdict, Verdict::Refused(_)) {
            inventory.add_hosts_of(pool);
        }
        if !pool.pool.is_labelled() || pool.is_served() {
            continue;
        }
        // The pool occupies the nodes that its status records until the status is rewritten.
        for (_, node) in pool.recorded() {
            let node = inventory.index_of(node);
            node.into_iter().for_each(|node| inventory.claim(node, pool));
        }
    }
    for state in [MemberState::Ready, MemberState::Reserving, MemberState::Vacant] {
        for (pool, draft) in pools.iter().zip(&mut drafts).filter(|(pool, _)| pool.is_served()) {
            draft.keep_recorded(pool, state, inventory);
        }
    }
    for (pool, draft) in pools.iter().zip(&mut drafts).filter(|(pool, _)| pool.is_served()) {
        draft.fill(pool, inventory);
    }
    drafts
}

/// Adds the marks that the recorded members of a pool lack to `wanted`. If no reserved member lacks
/// any, sets `draft.promoted`. Returns when to plan again, if the taints are too new for the
/// labels.
fn request_marks<'p>(
    pool: &'p Pool<'_>,
    draft: &mut Draft<'_>,
    inventory: &Inventory<'_>,
    wanted: &mut BTreeMap<usize, Wanted<'p>>,
    now: Timestamp,
) -> Option<Timestamp> {
    let hash = pool.hash;
    let key = inventory.taint_key(hash);
    let mut reserving = Vec::new();
    // When the last of the reserved nodes was tainted; `None` if one is not tainted yet.
    let mut last_tainted = Some(Timestamp::MIN);
    let chosen = draft.slots.values().any(|slot| matches!(slot, Slot::Chosen { .. }));
    for (index, slot) in &draft.slots {
        let Slot::Kept { node, member } = slot else { continue };
        let (node, is_reserving) = (*node, member.state == MemberState::Reserving);
        let marks = &inventory.nodes[node].marks;
        let labelled = marks.has_label(hash, *index);
        let taint = marks.taints_of(hash).next();
        if is_reserving {
            reserving.push((*index, node, labelled));
        } else if !labelled {
            wanted.entry(node).or_default().labels.push((hash, *index));
        }
        if !pool.pool.exclusive {
            continue;
        }
        let since = taint.map(|(_, taint)| trusted_since(taint, now));
        match (taint, since.flatten()) {
            (None, _) => wanted.entry(node).or_default().taint = Some((key, hash)),
            (Some((position, _)), None) if is_reserving && !labelled => {
                wanted.entry(node).or_default().retimed = Some(position);
            }
            (Some(_), _) => {}
        }
        if let Some((position, _)) = marks.taints_of(hash).find(|(_, taint)| *taint.key != *key) {
            wanted.entry(node).or_default().renamed = Some((position, key));
        }
        if is_reserving && !labelled {
            last_tainted = last_tainted.zip(since.flatten()).map(|(last, since)| last.max(since));
        } else if is_reserving && taint.is_none() {
            last_tainted = None;
        }
    }
    if pool.pool.exclusive && !reserving.is_empty() {
        if chosen {
            // The wait begins when all nodes are tainted, including those that this plan chooses.
            return None;
        }
        let at = last_tainted?.checked_add(SETTLE).ok()?;
        if now < at {
            return Some(at);
        }
    }
    for (index, node, _) in reserving.iter().filter(|(.., labelled)| !labelled) {
        wanted.entry(*node).or_default().labels.push((hash, *index));
    }
    draft.promoted =
        !chosen && !reserving.is_empty() && reserving.iter().all(|(.., labelled)| *labelled);
    None
}

/// The marks that belong on nodes: the hash of the pool, and the node; `None` stands for all nodes. Other marks
/// are stale.
type OwnedMarks<'v> = HashSet<(&'v str, Option<&'v str>)>;

/// Finds the marks of members according to this plan and to the statuses, and of the pools with
/// [`Verdict::Undecided`], whose marks all stay.
fn find_owned_marks<'v>(
    pools: &[Pool<'v>],
    drafts: &[Draft<'_>],
    inventory: &Inventory<'v>,
) -> OwnedMarks<'v> {
    let mut owned = HashSet::new();
    for (pool, draft) in pools.iter().zip(drafts) {
        let planned = draft.nodes().map(|node| inventory.nodes[node].name);
        let members = planned.chain(pool.recorded().map(|(_, node)| node)).map(Some);
        let all = (pool.verdict == Verdict::Undecided).then_some(None);
        owned.extend(members.chain(all).map(|node| (pool.hash, node)));
    }
    owned
}

/// Plans the patch of a node: adds missing marks, or removes stale ones if none can be added.
fn plan_node<'v>(
    node: &NodeState<'v>,
    wanted: Option<&Wanted<'_>>,
    owned: &OwnedMarks<'_>,
    inventory: &Inventory<'v>,
    now: Timestamp,
) -> Option<Action> {
    // A stale taint may have to be removed before another can be added.
    let possible = |wanted: &&Wanted<'_>| wanted.taint.is_none() || node.marks.accepts_taint();
    // A closure, because most nodes need no patch.
    let patch = |operations| {
        let target = Target::new(NODE, &Name::cluster_wide(node.name), &node.details.identity.uid);
        Action::new(target, Write::Patch(operations), Vec::new())
    };
    Some(match wanted.filter(possible) {
        Some(wanted) => patch(node_marks::build_mark_patch(node.details, wanted, now))
            .with_volatile(&[node_marks::TIME_ADDED]),
        None => patch(remove_stale_marks(node, owned, inventory)?)
            .with_confirmation(release::CONFIRMATION),
    })
}

/// The patch that removes the stale marks of a node; `None` if there are none. A stale taint stays
/// while the node runs a pod that tolerates it by key and value, so that no other pods join that
/// pod.
fn remove_stale_marks<'v>(
    node: &NodeState<'v>,
    owned: &OwnedMarks<'_>,
    inventory: &Inventory<'v>,
) -> Option<Vec<PatchOperation>> {
    if node.marks.is_empty() {
        return None;
    }
    let stale =
        |hash: &str| !owned.contains(&(hash, None)) && !owned.contains(&(hash, Some(node.name)));
    let labels: Vec<_> =
        node.marks.labels.iter().copied().filter(|(hash, _)| stale(hash)).collect();
    let taints = node.marks.taints.iter().copied();
    let is_used = |hash: &str| inventory.namespaces_on(node, hash).next().is_some();
    let taints: Vec<_> =
        taints.filter(|(_, taint)| stale(&taint.value) && !is_used(&taint.value)).collect();
    let is_clean = labels.is_empty() && taints.is_empty();
    (!is_clean).then(|| node_marks::build_release_patch(node.details, &labels, &taints))
}

/// Cuts a list for a message; the last part counts the ones that were cut off.
fn truncate(mut parts: Vec<String>) -> Vec<String> {
    let more = parts.len().saturating_sub(LISTED);
    if more > 0 {
        parts.truncate(LISTED);
        parts.push(format!("and {more} more"));
    }
    parts
}
