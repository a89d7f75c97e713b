//! What a pool's status says, and what its users are told when that changes.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::accept::Verdict;
use super::choose::one_node;
use super::inventory::Inventory;
use super::members::{Draft, UNKNOWN_HOST};
use super::{MOST_TOLD, Pool, node_marks};
use crate::api::condition::{self, ACCEPTED, READY, Status, find};
use crate::api::host_pool::{HostPoolStatus, Member, MemberState};
use crate::systems::plan::{Action, Event, Kind, Target, Write};
use crate::systems::streams::keys::EXCLUSIVE_TAINT;
use crate::view::host_pool::{Form, Host};

/// What there is to say of whether a pool is ready.
struct Readiness {
    ready: bool,
    reason: &'static str,
    message: String,
}

impl Readiness {
    fn allocated(message: String) -> Self {
        Self { ready: true, reason: "Allocated", message }
    }

    fn not(reason: &'static str, message: String) -> Self {
        Self { ready: false, reason, message }
    }
}

/// Writes the status of a pool, if it says something else than before.
pub(super) fn write<'v>(
    pool: &Pool<'v>,
    verdict: &Verdict,
    draft: &mut Draft<'v>,
    inventory: &Inventory<'v>,
    now: Timestamp,
) -> Option<Action> {
    let old = &pool.pool.status;
    let mut new = HostPoolStatus { conditions: old.conditions.clone(), ..Default::default() };
    let (accepted, readiness) = match verdict {
        Verdict::Open => return None,
        Verdict::Refused { reason, message } => {
            ((Status::False, *reason, &**message), Readiness::not(reason, message.clone()))
        }
        Verdict::Accepted { .. } => {
            let accepted = (Status::True, "Accepted", "the pool can be served");
            let readiness = match &pool.pool.form {
                _ if pool.is_labelled() => {
                    new.node_label = Some(node_marks::label(pool.hash));
                    new.exclusive_taint = pool.exclusive().then(|| {
                        format!("{EXCLUSIVE_TAINT}={}:{}", pool.hash, node_marks::NO_SCHEDULE)
                    });
                    new.members = draft.members(inventory, now);
                    labelled(&new.members, draft)
                }
                Ok(Form::Literal(hosts)) => {
                    let (members, readiness) = listed(hosts, &old.members, inventory, now);
                    new.members = members;
                    readiness
                }
                Ok(Form::Tagged(_)) => Readiness::allocated(
                    "every node that carries the tags belongs to the pool".to_owned(),
                ),
                Ok(Form::Any | Form::Sized(..)) | Err(_) => {
                    Readiness::allocated("every node belongs to the pool".to_owned())
                }
            };
            (accepted, readiness)
        }
    };
    let generation = pool.pool.identity.generation;
    let mut set = |type_, (status, reason, message)| {
        condition::set(&mut new.conditions, type_, status, reason, message, generation, now);
    };
    set(ACCEPTED, accepted);
    let ready = if readiness.ready { Status::True } else { Status::False };
    set(READY, (ready, readiness.reason, &readiness.message));
    // Times move only with what they are the times of.
    if new == *old {
        return None;
    }
    let mut events = few_of_each(std::mem::take(&mut draft.events));
    events.extend(transition(old, accepted.0, &readiness));
    Some(Action {
        target: Target {
            kind: Kind::HostPool,
            namespace: pool.name.namespace.clone(),
            name: pool.name.name.clone(),
            uid: pool.pool.identity.uid.clone(),
        },
        write: Write::Status {
            resource_version: pool.pool.identity.resource_version.clone(),
            // Plain fields, none of which fails.
            status: serde_json::to_value(&new).ok()?,
        },
        events,
    })
}

/// The first events of each reason, and how many more there are: a zone may take many members along.
fn few_of_each(events: Vec<Event>) -> Vec<Event> {
    let mut counts: BTreeMap<&'static str, (usize, bool)> = BTreeMap::new();
    let mut told: Vec<Event> = Vec::new();
    for event in events {
        let (count, warning) = counts.entry(event.reason).or_default();
        *count += 1;
        *warning = event.warning;
        if *count <= MOST_TOLD {
            told.push(event);
        }
    }
    let more = counts.into_iter().filter(|(_, (count, _))| *count > MOST_TOLD);
    told.extend(more.map(|(reason, (count, warning))| Event {
        warning,
        reason,
        note: format!("and {} more members", count - MOST_TOLD),
    }));
    told
}

/// What is told of a change of Ready, or of Accepted, which Ready follows.
fn transition(old: &HostPoolStatus, accepted: Status, readiness: &Readiness) -> Option<Event> {
    let before = find(&old.conditions, READY).map(|condition| condition.reason.as_str());
    let warning = !readiness.ready;
    let told = accepted == Status::False || readiness.reason != RESERVING;
    (told && before != Some(readiness.reason)).then(|| Event {
        warning,
        reason: readiness.reason,
        note: readiness.message.clone(),
    })
}

const RESERVING: &str = "Reserving";

fn labelled(members: &[Member], draft: &Draft<'_>) -> Readiness {
    if let Some(shortfall) = &draft.shortfall {
        return Readiness::not(shortfall.reason, shortfall.message.clone());
    }
    let reserving = members.iter().filter(|member| member.state == MemberState::Reserving).count();
    match (reserving, members.len()) {
        (0, 1) => Readiness::allocated("1 node is the pool's".to_owned()),
        (0, all) => Readiness::allocated(format!("{all} nodes are the pool's")),
        (1, _) => Readiness::not(RESERVING, "1 node is being reserved".to_owned()),
        (some, _) => Readiness::not(RESERVING, format!("{some} nodes are being reserved")),
    }
}

/// The members of a list that nobody reserves: the hosts that are nodes.
fn listed(
    hosts: &[Host],
    old: &[Member],
    inventory: &Inventory<'_>,
    now: Timestamp,
) -> (Vec<Member>, Readiness) {
    let mut members: Vec<Member> = Vec::with_capacity(hosts.len());
    let mut problems = Vec::new();
    for (index, host) in (0..).zip(hosts) {
        let found = one_node(inventory.view, host, index)
            .map(|node| inventory.place(node).map(|place| &inventory.nodes[place]));
        let node = match found {
            Ok(Some(node)) => node,
            // Known by name only: the controller knows every node as a whole.
            Ok(None) => continue,
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        if let Some(first) = members.iter().find(|first| first.node.as_deref() == Some(node.name)) {
            problems.push(format!(
                "hosts[{}] and hosts[{index}] are one node, {}",
                first.index, node.name
            ));
            continue;
        }
        let member = Member {
            index,
            node: Some(node.name.to_owned()),
            uid: Some(node.estate.identity.uid.to_string()),
            state: MemberState::Ready,
            since: Time(now),
        };
        let same = |before: &&Member| {
            Member { since: member.since.clone(), ..(*before).clone() } == member
        };
        members.push(old.iter().find(same).cloned().unwrap_or(member));
    }
    let readiness = if problems.is_empty() {
        Readiness::allocated(match members.len() {
            1 => "1 host is a node".to_owned(),
            all => format!("{all} hosts are nodes"),
        })
    } else {
        Readiness::not(UNKNOWN_HOST, super::few(problems).join("; "))
    };
    (members, readiness)
}
