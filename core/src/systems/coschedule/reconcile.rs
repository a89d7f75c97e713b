//! The reconciler: creates, moves and deletes placeholders, removes gates, wakes members, deletes
//! claims, and reports why members wait.
//!
//! # Order of writes
//! A change that needs several writes is done in steps, each based on the cluster after the previous
//! one. To move a placeholder, its template is changed if it would come back to its node; then its pod
//! is deleted, and its StatefulSet creates another. A placeholder does not move while a member is
//! bound to its node.
//!
//! # Modules
//! `desired`: the placeholders that should exist. `state`: a placeholder that exists, with its members. `group_pod`: a
//! member, and whether a node could take a group. `next`: decides the next step for a placeholder, and finds out why
//! members wait. `carry_out`: turns decisions into actions. `gate`: removes the gates of members. `gc`: deletes objects
//! that are no longer needed, or of no use. `one_node`: pods that share the node of their claims.

mod carry_out;
mod desired;
mod gate;
mod gc;
mod group_pod;
mod next;
pub(crate) mod one_node;
mod state;
#[cfg(test)]
mod tests;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::family;
use super::groups::{Leader, Leaders};
use crate::policy::Period;
use crate::systems::View;
use crate::systems::coschedule::keys::FAILED;
use crate::systems::coschedule::placeholder::Desired;
use crate::systems::plan::{Action, Plan, Refusal, Target, Write};
use crate::systems::policy::Policy;
use crate::view::Name;
use crate::view::resource::STATEFUL_SET;
use carry_out::{PlanBuilder, target_of_run, with_task_runs};
use desired::Sources;
use group_pod::GroupPod;
pub(crate) use group_pod::joining;
use next::Decision;
pub(crate) use next::{Next, Step, Trouble, Why};
use state::{Facts, State};

/// The reasons of events, except those of refused pods.
pub(crate) mod reason {
    /// Tekton's own affinity assistant is on for the run.
    pub(crate) const ASSISTANT_IS_ON: &str = "AffinityAssistantIsOn";
    /// Two requirements of a run contradict each other.
    pub(crate) const GROUP_CONFLICT: &str = "GroupConflict";
    /// A claim keeps a class that binds at once, perhaps on a node that others cannot use.
    pub(crate) const CLASS_BINDS_AT_ONCE: &str = "ClassBindsAtOnce";
    /// An earlier run or group also uses a claim.
    pub(crate) const SHARED_CLAIM: &str = "SharedClaim";
    /// The StatefulSet of a placeholder has no pod.
    pub(crate) const PLACEHOLDER_NOT_MADE: &str = "PlaceholderNotMade";
    /// The scheduler finds no node for a placeholder.
    pub(crate) const PLACEHOLDER_NOT_PLACED: &str = "PlaceholderNotPlaced";
    /// A placeholder was deleted, because a quota or a queue has no room for the pods of its group beside it, or its
    /// template cannot be changed.
    pub(crate) const PLACEHOLDER_STEPPED_ASIDE: &str = "PlaceholderSteppedAside";
    /// The API server refuses to let a placeholder request more or less on its node.
    pub(crate) const ROOM_NOT_CHANGED: &str = "RoomNotChanged";
    /// A placeholder leaves its node.
    pub(crate) const PLACEHOLDER_MOVED: &str = "PlaceholderMoved";
    /// Members wait on a full or closed node until running ones have ended.
    pub(crate) const WAITS_FOR_MEMBERS: &str = "WaitsForMembers";
    /// Only one node can mount a volume.
    pub(crate) const VOLUME_PINS_NODE: &str = "VolumePinsNode";
    /// The scheduler refuses members on the node of their group.
    pub(crate) const MEMBERS_UNSCHEDULABLE: &str = "MembersUnschedulable";
    /// A member requires a node that its group has left.
    pub(crate) const BOUND_ELSEWHERE: &str = "BoundElsewhere";
    /// A waiting member was deleted, so that its owner recreates it.
    pub(crate) const RECREATED: &str = "Recreated";
    /// The gate of a member without a placeholder was removed.
    pub(crate) const GATE_LIFTED: &str = "GateLifted";
}

/// Computes the actions of coscheduling for the current state of the cluster.
pub(crate) fn plan(view: &View, policy: &Policy, now: Timestamp) -> Plan {
    let sources = Sources::new(view, policy);
    let desired = sources.desired();
    let facts = Facts::new(view, policy, now);
    let mut builder = PlanBuilder::new(&facts);
    for (target, event) in &sources.events {
        builder.report(target.clone(), event.clone());
    }
    // First, because each pod gets only one action.
    builder.recreate_pods_with_parked_claims(&desired);
    // Then, because others have to act on a new placeholder: meanwhile gates are removed.
    let missing = |desired: &&Desired<'_>| view.placeholder(&desired.name).is_none();
    for desired in desired.values().filter(missing) {
        builder.create(desired);
    }
    let mut placeholders: Vec<_> = view.placeholders().collect();
    placeholders.sort_unstable_by_key(|(name, _)| *name);
    for (name, placeholder) in placeholders {
        if let Some(state) = State::new(name, placeholder, desired.get(name), view) {
            let decision = gc::end(&state, &facts);
            builder.carry_out(&state, decision.unwrap_or_else(|| next::decide(&state, &facts)));
        }
    }
    builder.lift_forgotten_gates(&desired);
    builder.share_claims();
    builder.clean_up(&sources);
    builder.finish()
}

/// Finds the groups that lead others: those of the active runs, and native ones.
pub(crate) fn leaders(view: &View, policy: &Policy) -> Leaders {
    Sources::new(view, policy).leaders
}

/// Explains the next step for one placeholder: the decision that [`plan`] makes. `None` if its group has
/// ended, or does not exist.
pub(crate) fn explain(
    view: &View,
    policy: &Policy,
    now: Timestamp,
    placeholder: &Name,
) -> Option<Explained> {
    let sources = Sources::new(view, policy);
    let desired = sources.desired();
    let facts = Facts::new(view, policy, now);
    let desired = desired.get(placeholder);
    let leaders = desired.map(|desired| desired.leaders.clone()).unwrap_or_default();
    let Some(known) = view.placeholder(placeholder) else {
        let first_node = facts.first_node(desired?);
        let creates = matches!(first_node, Ok(Some(_)));
        return Some(Explained {
            creates,
            held_by: family::held_by(placeholder, view).map(Into::into),
            waits: first_node.err().into_iter().collect(),
            leaders,
            ..Explained::default()
        });
    };
    let state = State::new(placeholder, known, desired, view)?;
    if gc::end(&state, &facts).is_some() {
        return None;
    }
    let Decision { next, members, waits, .. } = next::decide(&state, &facts);
    Some(Explained {
        next,
        waits,
        members: members.into_iter().map(|(pod, step)| (pod.name.clone(), step)).collect(),
        leaders,
        waiting: state.waiting.iter().map(|pod| pod.name.clone()).collect(),
        has_running: !state.running.is_empty(),
        node_of_members: state.nodes().next().map(Into::into),
        ..Explained::default()
    })
}

/// A decision about a placeholder and the state that it is based on, without references to the View.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Explained {
    /// True if it does not exist and is created now.
    pub(crate) creates: bool,
    /// A scheduling gate of others, if it is not created before they release a pod of its group.
    pub(crate) held_by: Option<Box<str>>,
    /// The next write to its StatefulSet or its pod.
    pub(crate) next: Next,
    /// The reasons that are reported to waiting members.
    pub(crate) waits: Vec<Why>,
    /// The steps for its members.
    pub(crate) members: Vec<(Name, Step)>,
    /// The earlier groups that use its claims, the earliest first.
    pub(crate) leaders: Vec<Leader>,
    /// Its members without a node.
    pub(crate) waiting: Vec<Name>,
    /// True if members run.
    pub(crate) has_running: bool,
    /// The node of one of them that stowplan has placed.
    pub(crate) node_of_members: Option<Box<str>>,
}

impl PlanBuilder<'_, '_> {
    /// Creates a placeholder, once its run has started.
    fn create(&mut self, desired: &Desired<'_>) {
        let run = desired.run().map(|of| (of.name, of.run));
        let members: Vec<_> = GroupPod::living(&desired.name, self.view()).collect();
        let uid = run.map(|(_, run)| &*run.identity.uid);
        let has_left = members.iter().any(|pod| {
            let own = &desired.name.name;
            pod.details.has_left && family::belongs(pod.name, pod.member, own, uid, self.view())
        });
        let waiting: Vec<_> = members.into_iter().filter(|of| of.member.node.is_none()).collect();
        let only = match self.facts.first_node(desired) {
            Ok(Some(only)) => only,
            Ok(None) => return,
            Err(why) => return self.report_waiting(run, &waiting, &why),
        };
        let room = match only {
            Some(_) => None,
            None => next::needed_room(desired, &waiting, self.facts),
        };
        let plan = desired.first_plan(only, room);
        let mut document = desired.document(&plan, &self.facts.policy.coschedule.placeholder);
        if has_left {
            // The annotation shows the webhook that the group runs without its placeholder.
            document["spec"]["replicas"] = 0.into();
            document["metadata"]["annotations"][FAILED] = self.facts.now_text().into();
        }
        let (instead, is_needed) = self.let_in(desired, &waiting, plan.only.as_deref(), has_left);
        let but = match is_needed {
            true => {
                ", but for those that mount a claim which it would make, or have their own label app.kubernetes.io/component or app.kubernetes.io/instance"
            }
            false => "",
        };
        let refusal = Refusal {
            reason: reason::PLACEHOLDER_NOT_MADE,
            note: format!(
                "StatefulSet {}, the placeholder of the group, cannot be created: no node is kept for the group, and its pods run beside each other without it{but}; the API server says",
                desired.name.name
            ),
            waiting: target_of_run(run).into_iter().chain(with_task_runs(waiting.iter())).collect(),
            instead,
        };
        let target = Target::new(STATEFUL_SET, &desired.name, "");
        let action = Action::new(target, Write::Create(document), Vec::new());
        self.act(action.with_volatile(carry_out::TIMES).with_refusal(refusal));
    }
}

fn duration(period: Period) -> SignedDuration {
    SignedDuration::try_from(period.length()).unwrap_or(SignedDuration::MAX)
}
