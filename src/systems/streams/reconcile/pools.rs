//! HostPools: which nodes are their members, the labels by which pods find the members, the taints
//! that keep others off exclusive ones, and what the pools' statuses say.
//!
//! # Order of writes
//! A pool's status is written first: it records which nodes are reserved, so that no other pool, and
//! no controller that takes over, chooses them too. Then the nodes are marked, then the status says
//! so. Shared: status (Reserving), one patch a node (label), status (Ready). Exclusive: status, a
//! patch a node (taint), [`node_marks::SETTLE`], another look at the nodes, a patch a node (label),
//! status. Everything in between is read back from statuses and nodes, so that it does not matter
//! after which write a controller ends.
//!
//! # Rooms
//! [`accept`]: which pools may have nodes. [`inventory`]: what there is. [`members`]: which places
//! of a pool stand and which are filled; [`choose`]: with what. [`status`]: what is said of it.
//! [`node_marks`]: the patches. What is to be taken back from nodes is found here: marks that no
//! pool answers for.

mod accept;
mod choose;
mod inventory;
mod members;
mod node_marks;
mod status;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};

use k8s_openapi::jiff::Timestamp;

use crate::api::host_pool::MemberState;
use crate::policy::Policy;
use crate::systems::plan::{Action, Kind, Plan, Target, Write};
use crate::view::host_pool::Form;
use crate::view::{HostPool, Name, View};
use accept::Verdict;
use inventory::{Inventory, NodeState};
use members::{Draft, Place};
use node_marks::{SETTLE, Wanted, standing_since};

/// The most items of a kind that one message names.
const MOST_TOLD: usize = 5;

/// A pool that lives.
#[derive(Debug)]
struct Pool<'v> {
    name: &'v Name,
    pool: &'v HostPool,
    hash: &'v str,
}

impl Pool<'_> {
    fn exclusive(&self) -> bool {
        self.pool.exclusive
    }

    fn is_labelled(&self) -> bool {
        self.pool.form.is_ok() && self.pool.is_labelled()
    }

    /// How many members it is to have; 0 for one whose nodes are not marked.
    fn wanted(&self) -> u32 {
        match &self.pool.form {
            Ok(Form::Sized(size, _)) => *size,
            Ok(Form::Literal(hosts)) if self.exclusive() => {
                u32::try_from(hosts.len()).unwrap_or(u32::MAX)
            }
            Ok(Form::Literal(_) | Form::Tagged(_) | Form::Any) | Err(_) => 0,
        }
    }

    /// How many places of it are recorded.
    fn held(&self) -> u32 {
        let members = self.pool.status.members.iter();
        let held = members.filter(|member| member.index < self.wanted()).count();
        u32::try_from(held).unwrap_or(u32::MAX)
    }

    /// Whether the nodes that are recorded are the pool's first.
    fn is_first_allocation(&self) -> bool {
        let members = &self.pool.status.members;
        members.iter().all(|member| member.state == MemberState::Reserving)
    }
}

/// What is to be done for HostPools now.
pub(super) fn plan(view: &View, policy: &Policy, now: Timestamp) -> Plan {
    let pools = in_order(view);
    let mut inventory = Inventory::new(view, policy);
    let verdicts = accept::judge(&pools, view, policy);
    let mut drafts = allocate(&pools, &verdicts, &mut inventory);

    let mut plan = Plan::default();
    let mut wanted: BTreeMap<usize, Wanted<'_>> = BTreeMap::new();
    for (pool, draft) in pools.iter().zip(&mut drafts) {
        if let Some(at) = want_marks(pool, draft, &inventory, &mut wanted, now) {
            plan.recheck_by(at);
        }
    }
    for ((pool, verdict), draft) in pools.iter().zip(&verdicts).zip(&mut drafts) {
        plan.actions.extend(status::write(pool, verdict, draft, &inventory, now));
    }
    let answers = Answers::new(&pools, &verdicts, &drafts);
    for (place, node) in inventory.nodes.iter().enumerate() {
        plan.actions.extend(write_node(place, node, wanted.get(&place), &answers, now));
    }
    plan
}

/// The pools that live, the oldest first.
///
/// Of those made within one second the one whose name comes first. Not the one whose version does: that
/// changes with every write, and who comes first must not.
fn in_order(view: &View) -> Vec<Pool<'_>> {
    let mut pools: Vec<Pool<'_>> = view
        .host_pools()
        .filter(|(_, pool)| !pool.identity.deleting)
        .filter_map(|(name, pool)| Some(Pool { name, pool, hash: pool.hash.as_deref()? }))
        .collect();
    pools.sort_unstable_by_key(|pool| (pool.pool.identity.created, pool.name));
    pools
}

/// Which nodes the pools have, one after the other: each sees what the ones before it have taken.
fn allocate<'v>(
    pools: &[Pool<'v>],
    verdicts: &[Verdict],
    inventory: &mut Inventory<'v>,
) -> Vec<Draft<'v>> {
    let mut drafts: Vec<Draft<'v>> = pools.iter().map(|_| Draft::default()).collect();
    let served = |verdict: &Verdict| matches!(verdict, Verdict::Accepted { .. });
    for (pool, verdict) in pools.iter().zip(verdicts) {
        if served(verdict) && pool.is_labelled() {
            continue;
        }
        // Whatever else is recorded is taken until its status says otherwise.
        for member in &pool.pool.status.members {
            let place = member.node.as_deref().and_then(|node| inventory.place(node));
            match place.filter(|_| member.state != MemberState::Vacant) {
                Some(place) if pool.pool.is_labelled() => inventory.claim(place, pool),
                Some(place) => inventory.nodes[place].pools += 1,
                None => {}
            }
        }
    }
    for state in [MemberState::Ready, MemberState::Reserving, MemberState::Vacant] {
        for ((pool, verdict), draft) in pools.iter().zip(verdicts).zip(&mut drafts) {
            if served(verdict) && pool.is_labelled() {
                draft.stand(pool, state, inventory);
            }
        }
    }
    for ((pool, verdict), draft) in pools.iter().zip(verdicts).zip(&mut drafts) {
        if let Verdict::Accepted { limit } = verdict
            && pool.is_labelled()
        {
            draft.fill(pool, limit.as_deref(), inventory);
        }
    }
    drafts
}

/// Asks for the marks that the recorded members of a pool lack, and notes where none lacks any.
/// Returns when to look again.
fn want_marks<'p>(
    pool: &'p Pool<'_>,
    draft: &mut Draft<'_>,
    inventory: &Inventory<'_>,
    wanted: &mut BTreeMap<usize, Wanted<'p>>,
    now: Timestamp,
) -> Option<Timestamp> {
    let hash = pool.hash;
    let mut reserving = Vec::new();
    // Since when the last of the reserved nodes is tainted; none if one is not.
    let mut settled = Some(Timestamp::MIN);
    let mut chosen = false;
    for (index, place) in &draft.places {
        let (node, state) = match place {
            Place::Stands { node, member } => (*node, member.state),
            Place::Chosen { .. } => {
                chosen = true;
                continue;
            }
            Place::Open { .. } => continue,
        };
        let marks = &inventory.nodes[node].marks;
        let labelled = marks.has_label(hash, *index);
        let taint = marks.taint(hash);
        if state == MemberState::Reserving {
            reserving.push((*index, node, labelled));
        } else if !labelled {
            wanted.entry(node).or_default().labels.push((hash, *index));
        }
        if !pool.exclusive() {
            continue;
        }
        let since = taint.map(|(_, taint)| standing_since(taint, now));
        match (taint, since.flatten()) {
            (None, _) => wanted.entry(node).or_default().taint = Some(hash),
            (Some((place, _)), None) if state == MemberState::Reserving && !labelled => {
                wanted.entry(node).or_default().timed = Some(place);
            }
            (Some(_), _) => {}
        }
        if state == MemberState::Reserving && !labelled {
            settled = settled.zip(since.flatten()).map(|(last, since)| last.max(since));
        } else if state == MemberState::Reserving && taint.is_none() {
            settled = None;
        }
    }
    if pool.exclusive() && !reserving.is_empty() {
        if chosen {
            // All are to have stood, those of this plan too.
            return None;
        }
        let at = settled?.checked_add(SETTLE).ok()?;
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

/// Which pools answer for which marks.
struct Answers<'p> {
    pools: HashMap<&'p str, usize>,
    /// Pools of which all marks stay.
    open: HashSet<usize>,
    /// Pool and place of node, as this plan has it.
    planned: HashSet<(usize, usize)>,
    /// Pool and name of node, as statuses have it.
    recorded: HashSet<(usize, &'p str)>,
}

impl<'p> Answers<'p> {
    fn new(pools: &'p [Pool<'_>], verdicts: &[Verdict], drafts: &[Draft<'_>]) -> Self {
        let mut answers = Self {
            pools: HashMap::with_capacity(pools.len()),
            open: HashSet::new(),
            planned: HashSet::new(),
            recorded: HashSet::new(),
        };
        for (number, pool) in pools.iter().enumerate() {
            answers.pools.insert(pool.hash, number);
            if verdicts[number] == Verdict::Open {
                answers.open.insert(number);
            }
            answers.planned.extend(drafts[number].nodes().map(|node| (number, node)));
            let members = pool.pool.status.members.iter();
            let members = members.filter(|member| member.state != MemberState::Vacant);
            answers.recorded.extend(members.filter_map(|m| Some((number, m.node.as_deref()?))));
        }
        answers
    }

    fn answers_for(&self, hash: &str, place: usize, node: &str) -> bool {
        self.pools.get(hash).is_some_and(|pool| {
            self.open.contains(pool)
                || self.planned.contains(&(*pool, place))
                || self.recorded.contains(&(*pool, node))
        })
    }
}

/// What is written to a node: what it lacks, or else what it has too much.
fn write_node(
    place: usize,
    node: &NodeState<'_>,
    wanted: Option<&Wanted<'_>>,
    answers: &Answers<'_>,
    now: Timestamp,
) -> Option<Action> {
    // A taint that nobody answers for may have to go first.
    let possible = |wanted: &&Wanted<'_>| wanted.taint.is_none() || node.marks.has_room_for_taint();
    let write = match wanted.filter(possible) {
        Some(wanted) => Write::Patch(node_marks::mark(node.estate, wanted, now)),
        None => sweep(place, node, answers)?,
    };
    Some(Action {
        target: Target {
            kind: Kind::Node,
            namespace: "".into(),
            name: node.name.into(),
            uid: node.estate.identity.uid.clone(),
        },
        write,
        events: Vec::new(),
    })
}

/// Takes back the marks that no pool answers for. A taint stays as long as a pod that tolerates it by
/// name: others must not join it.
fn sweep(place: usize, node: &NodeState<'_>, answers: &Answers<'_>) -> Option<Write> {
    if node.marks.is_empty() {
        return None;
    }
    let stale = |hash: &str| !answers.answers_for(hash, place, node.name);
    let labels: Vec<_> =
        node.marks.labels.iter().copied().filter(|(hash, _)| stale(hash)).collect();
    let taints = node.marks.taints.iter().copied();
    let taints: Vec<_> =
        taints.filter(|(_, taint)| stale(&taint.value) && !node.has_pod_of(&taint.value)).collect();
    let labelled = labels.iter().map(|(hash, _)| (*hash).to_owned());
    let mut hashes: Vec<String> =
        labelled.chain(taints.iter().map(|(_, taint)| taint.value.to_string())).collect();
    hashes.sort_unstable();
    hashes.dedup();
    let operations = node_marks::release(node.estate, &labels, &taints);
    (!hashes.is_empty()).then_some(Write::Release { operations, hashes })
}

/// A list as a sentence has it: `a`, `a and b`, `a, b and c`; what is too much is counted.
fn join(items: Vec<String>) -> String {
    let mut items = items;
    let more = items.len().saturating_sub(MOST_TOLD);
    if more > 0 {
        items.truncate(MOST_TOLD);
        items.push(format!("{more} more"));
    }
    match items.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => items.concat(),
    }
}

/// As many parts as a message can bear.
fn few(mut parts: Vec<String>) -> Vec<String> {
    let more = parts.len().saturating_sub(MOST_TOLD);
    if more > 0 {
        parts.truncate(MOST_TOLD);
        parts.push(format!("and {more} more"));
    }
    parts
}
