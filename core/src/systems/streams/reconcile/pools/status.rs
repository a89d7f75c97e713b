//! Writes the status of a pool, and the events about its changes.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;

use super::Pool;
use super::accept::Verdict;
use super::choose::find_listed_node;
use super::inventory::Inventory;
use super::members::Draft;
use crate::api::condition::{self, ACCEPTED, READY, Status, find};
use crate::systems::check::words::{LISTED, counted};
use crate::systems::plan::{Action, Event, Target, Write};
use crate::systems::streams::api::host_pool::{HostPoolStatus, Member, MemberState};
use crate::systems::streams::keys::{EXCLUSIVE_EFFECT, EXCLUSIVE_TAINT, pool_label};
use crate::systems::streams::kinds::{Form, Host, Tags};
use crate::systems::streams::obstacle::{self, Obstacle};
use crate::systems::streams::owners::unmarked_hosts;
use crate::systems::streams::reasons::PoolReason;
use crate::systems::streams::resources::HOST_POOL;

/// The condition Ready of a pool.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Readiness {
    pub(super) reason: PoolReason,
    pub(super) message: String,
}

impl Readiness {
    pub(super) fn new(reason: PoolReason, message: String) -> Self {
        Self { reason, message }
    }

    fn is_ready(&self) -> bool {
        self.reason == PoolReason::Allocated
    }
}

/// The write of a pool's status; `None` if the status has not changed.
pub(super) fn write<'v>(
    pool: &Pool<'v>,
    draft: &mut Draft<'v>,
    inventory: &Inventory<'v>,
    now: Timestamp,
) -> Option<Action> {
    let old = &pool.pool.status;
    let mut new = HostPoolStatus { conditions: old.conditions.clone(), ..Default::default() };
    let (is_accepted, readiness) = match (&pool.verdict, &pool.pool.form) {
        (Verdict::Undecided, _) => return None,
        (Verdict::Refused(why), _) => (false, why.clone()),
        (Verdict::Accepted { .. }, _) if pool.pool.is_labelled() => {
            new.node_label = Some(pool_label(pool.hash));
            new.exclusive_taint = pool
                .pool
                .exclusive
                .then(|| format!("{EXCLUSIVE_TAINT}={}:{EXCLUSIVE_EFFECT}", pool.hash));
            new.members = draft.members(inventory, now);
            (true, check_labelled(&new.members, draft))
        }
        (Verdict::Accepted { .. }, Ok(Form::Literal(hosts))) => {
            let (members, readiness) = find_listed(pool, hosts, inventory, now);
            new.members = members;
            (true, readiness)
        }
        (Verdict::Accepted { .. }, Ok(Form::Tagged(tags))) => {
            (true, check_tagged(pool, tags, inventory))
        }
        // Only `Form::Any` gets here: sized pools are labelled, and invalid ones are not accepted.
        (Verdict::Accepted { .. }, Ok(Form::Any | Form::Sized(..)) | Err(_)) => {
            let message = "every node belongs to the pool".to_owned();
            (true, Readiness::new(PoolReason::Allocated, message))
        }
    };
    let mut set = |type_, holds, reason: PoolReason, message: &str| {
        let status = if holds { Status::True } else { Status::False };
        let (conditions, generation) = (&mut new.conditions, pool.pool.identity.generation);
        condition::set(conditions, type_, status, reason.as_str(), message, generation, now);
    };
    match is_accepted {
        true => set(ACCEPTED, true, PoolReason::Accepted, "the pool can be served"),
        false => set(ACCEPTED, false, readiness.reason, &readiness.message),
    }
    set(READY, readiness.is_ready(), readiness.reason, &readiness.message);
    // An unchanged condition or member keeps its time, so equality means that nothing has changed.
    if new == *old {
        return None;
    }
    let mut events = limit_events(std::mem::take(&mut draft.events));
    events.extend(find_transition(old, is_accepted, &readiness));
    let target = Target::new(HOST_POOL, pool.name, &pool.pool.identity.uid);
    let write = Write::Status {
        resource_version: pool.pool.identity.resource_version.clone(),
        // This cannot fail: the status has only fields that serialize.
        status: serde_json::to_value(&new).ok()?,
    };
    Some(Action::new(target, write, events).with_volatile(&["since", "lastTransitionTime"]))
}

/// Keeps the first events of each reason, and adds one that counts the others: if a zone fails,
/// many members may be lost at once.
fn limit_events(events: Vec<Event>) -> Vec<Event> {
    let mut counts: BTreeMap<&'static str, (usize, bool)> = BTreeMap::new();
    let mut kept: Vec<Event> = Vec::new();
    for event in events {
        let (count, warning) = counts.entry(event.reason).or_default();
        *count += 1;
        *warning = event.warning;
        if *count <= LISTED {
            kept.push(event);
        }
    }
    let more = counts.into_iter().filter(|(_, (count, _))| *count > LISTED);
    kept.extend(more.map(|(reason, (count, warning))| Event {
        warning,
        reason,
        note: format!("and {} more members", count - LISTED),
    }));
    kept
}

/// The event if the reason of Ready has changed; none while nodes are being reserved. It also
/// reports a refusal, whose reason both conditions have.
fn find_transition(
    old: &HostPoolStatus,
    is_accepted: bool,
    readiness: &Readiness,
) -> Option<Event> {
    let before = find(&old.conditions, READY).map(|condition| condition.reason.as_str());
    let warning = !readiness.is_ready();
    let is_reported = !is_accepted || readiness.reason != PoolReason::Reserving;
    (is_reported && before != Some(readiness.reason.as_str())).then(|| Event {
        warning,
        reason: readiness.reason.as_str(),
        note: readiness.message.clone(),
    })
}

/// Returns the condition Ready of a pool that marks its nodes.
fn check_labelled(members: &[Member], draft: &Draft<'_>) -> Readiness {
    if let Some(shortfall) = &draft.shortfall {
        return shortfall.clone();
    }
    let reserving = members.iter().filter(|member| member.state == MemberState::Reserving).count();
    let (reason, count, state) = match reserving {
        0 => (PoolReason::Allocated, members.len(), "allocated"),
        some => (PoolReason::Reserving, some, "being reserved"),
    };
    let are = if count == 1 { "is" } else { "are" };
    Readiness::new(reason, format!("{} {are} {state}", counted(count, "node")))
}

/// Returns the condition Ready of a pool that is all nodes with these tags.
fn check_tagged(pool: &Pool<'_>, tags: &Tags, inventory: &Inventory<'_>) -> Readiness {
    let hosts = unmarked_hosts(pool.pool, inventory.view);
    let mut taken = BTreeMap::new();
    for obstacle in hosts.iter().filter_map(|node| find_exclusive(pool, node, inventory)) {
        *taken.entry(obstacle).or_default() += 1;
    }
    if hosts.is_empty() {
        let message = format!(
            "no node has the tags {}{}: label a node with {}",
            tags.keys.join(" and "),
            tags.in_other_form(inventory.view),
            tags.labels()
        );
        return Readiness::new(PoolReason::NoTaggedNode, message);
    }
    let has = "every node that has the tags belongs to the pool".to_owned();
    let left = hosts.len() - taken.values().sum::<usize>();
    check_unmarked((left > 0).then_some(has), "nodes with the tags", &taken)
}

/// The exclusive pool that keeps a pool without marks off one of its hosts. The taint decides, as in
/// admission.
fn find_exclusive<'v>(
    pool: &Pool<'_>,
    node: &str,
    inventory: &Inventory<'v>,
) -> Option<Obstacle<'v>> {
    let hash = inventory.view.node_marks.exclusive_pool(node)?;
    Some(Obstacle::Exclusive(inventory.owner(hash, pool)))
}

/// Checks if a pool without marks has any of its hosts. `has` is the message if it has, `hosts` names its hosts
/// in the other message, and `taken` counts the hosts that are exclusive to other pools.
fn check_unmarked(
    has: Option<String>,
    hosts: &str,
    taken: &BTreeMap<Obstacle<'_>, usize>,
) -> Readiness {
    let taken = obstacle::format_counts(taken);
    let (reason, message) = match has {
        None => {
            let message = format!("the pool has none of the {hosts}: {taken}");
            (PoolReason::InsufficientNodes, message)
        }
        Some(has) if taken.is_empty() => (PoolReason::Allocated, has),
        Some(has) => (PoolReason::Allocated, format!("{has}, but {taken}")),
    };
    Readiness::new(reason, message)
}

/// The members of a shared pool that lists its hosts: the hosts that are nodes, and not exclusive to
/// other pools. They are not reserved.
fn find_listed(
    pool: &Pool<'_>,
    hosts: &[Host],
    inventory: &Inventory<'_>,
    now: Timestamp,
) -> (Vec<Member>, Readiness) {
    let mut members: Vec<Member> = Vec::with_capacity(hosts.len());
    let mut problems = Vec::new();
    let mut taken = BTreeMap::new();
    for (index, host) in (0..).zip(hosts) {
        let node = match find_listed_node(inventory.view, host, index) {
            Ok(node) => inventory.index_of(node),
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        // The View has a node without details, which does not occur in the controller.
        let Some(node) = node.map(|node| &inventory.nodes[node]) else { continue };
        if let Some(first) = members.iter().find(|first| first.node.as_deref() == Some(node.name)) {
            problems.push(format!(
                "hosts[{}] and hosts[{index}] are one node, {}",
                first.index, node.name
            ));
            continue;
        }
        if let Some(obstacle) = find_exclusive(pool, node.name, inventory) {
            *taken.entry(obstacle).or_default() += 1;
            continue;
        }
        let member = node.as_member(index, MemberState::Ready, now);
        let same = |before: &&Member| {
            Member { since: member.since.clone(), ..(*before).clone() } == member
        };
        let old = &pool.pool.status.members;
        members.push(old.iter().find(same).cloned().unwrap_or(member));
    }
    let has = match members.len() {
        0 => None,
        1 => Some("1 host is a node".to_owned()),
        all => Some(format!("{all} hosts are nodes")),
    };
    let readiness = match problems.is_empty() {
        true => check_unmarked(has, "hosts that it lists", &taken),
        false => Readiness::new(PoolReason::UnknownHost, super::truncate(problems).join("; ")),
    };
    (members, readiness)
}
