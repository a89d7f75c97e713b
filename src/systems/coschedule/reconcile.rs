//! What coscheduling wants changed in the cluster: placeholders made, moved and removed, gates lifted,
//! forgotten members woken, claims cleaned up, and everybody told why he waits.
//!
//! # Steps
//! What takes several writes is read back from the cluster between them. A placeholder moves so: its
//! template is changed where it must not come back to its node, then its pod is deleted, and its
//! StatefulSet makes another. It never moves while one of its members runs or starts.
//!
//! # Rooms
//! `sources`: whom placeholders stand for, and what they are made of. `tend`: one that stands.
//! `room`: which nodes could take a group. `parked`: pods whose claim is never bound. `ends`: what
//! outlived its cause. Here: who is made.

mod ends;
mod gate;
mod parked;
mod room;
mod sources;
mod tend;
#[cfg(test)]
mod tests;

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashSet};

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::groups::Leader;
use super::placeholder::Bounds;
use crate::policy::{Period, Policy};
use crate::systems::plan::{Action, Event, Kind, Plan, Target, Write};
use crate::view::{Member, Name, PipelineRun, PlaceholderPod, View};
use ends::Standing;
use room::Room;
use sources::{Sources, Wanted};
use tend::{Stand, Users};

/// The words of events, besides those of refusals.
pub mod reason {
    /// Tekton's own affinity assistant is on for the run.
    pub const ASSISTANT_IS_ON: &str = "AffinityAssistantIsOn";
    /// What a run asks for contradicts itself.
    pub const GROUP_CONFLICT: &str = "GroupConflict";
    /// A claim keeps a class that puts its volume where it likes.
    pub const CLASS_BINDS_AT_ONCE: &str = "ClassBindsAtOnce";
    /// A claim is used by an earlier run or group, too.
    pub const SHARED_CLAIM: &str = "SharedClaim";
    /// The StatefulSet of a placeholder has no pod.
    pub const PLACEHOLDER_NOT_MADE: &str = "PlaceholderNotMade";
    /// No node for a placeholder.
    pub const PLACEHOLDER_NOT_PLACED: &str = "PlaceholderNotPlaced";
    /// A placeholder goes to another node.
    pub const PLACEHOLDER_MOVED: &str = "PlaceholderMoved";
    /// Members wait until others have ended, because the node takes no more.
    pub const WAITS_FOR_MEMBERS: &str = "WaitsForMembers";
    /// A volume can be mounted on no other node.
    pub const VOLUME_PINS_NODE: &str = "VolumePinsNode";
    /// No node has room for what waits.
    pub const NO_NODE_FITS: &str = "NoNodeFits";
    /// Members wait, and nothing is known of why.
    pub const MEMBERS_UNSCHEDULABLE: &str = "MembersUnschedulable";
    /// A member was bound to a node where its group is not any more.
    pub const BOUND_ELSEWHERE: &str = "BoundElsewhere";
    /// A waiting member was deleted, so that its TaskRun makes it again.
    pub const RECREATED: &str = "Recreated";
    /// A gate was lifted that nobody else would have.
    pub const GATE_LIFTED: &str = "GateLifted";
}

/// How long the StatefulSet controller may take for a pod.
const MAKING: SignedDuration = SignedDuration::from_secs(30);

/// What is to be done now.
#[must_use]
pub fn plan(view: &View, policy: &Policy, now: Timestamp) -> Plan {
    let sources = Sources::new(view, policy);
    let wanted = sources.wanted();
    let mut turn = Turn {
        view,
        policy,
        now,
        plan: Plan::default(),
        taken: HashSet::new(),
        told: BTreeMap::new(),
        users: OnceCell::new(),
        room: OnceCell::new(),
    };
    for note in &sources.notes {
        turn.tell_run(note.name, note.run, note.reason, &note.text);
    }
    // Before anything else is done to them.
    turn.make_again_what_mounts_parked(&wanted);
    let mut standing: Vec<_> = view.placeholders().collect();
    standing.sort_unstable_by_key(|(name, _)| *name);
    for (name, placeholder) in standing {
        match turn.standing_of(name, placeholder, wanted.contains_key(name)) {
            Standing::Lives(run) => {
                let estate = placeholder.estate.as_deref();
                let stand = estate.map(|estate| Stand::new(name, placeholder, estate, run, view));
                if let Some(stand) = stand {
                    turn.tend(&stand, wanted.get(name));
                }
            }
            Standing::Rests => {}
            Standing::Ended => turn.remove_placeholder(name, placeholder),
        }
    }
    for wanted in
        wanted.values().filter(|wanted| view.placeholder(&wanted.blueprint.name).is_none())
    {
        turn.make(wanted);
    }
    turn.lift_forgotten_gates(&wanted);
    turn.clean_up(&sources);
    turn.finish()
}

/// Where a placeholder must be because of another that began earlier.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Follow<'v> {
    /// Anywhere.
    Nobody,
    /// That is not known yet.
    Waits,
    /// On this node.
    On(&'v str),
}

/// A plan in the making.
struct Turn<'v> {
    view: &'v View,
    policy: &'v Policy,
    now: Timestamp,
    plan: Plan,
    /// The objects that have an action.
    taken: HashSet<Target>,
    told: BTreeMap<Target, Vec<Event>>,
    /// Who uses which claim: found once, when it is first asked for.
    users: OnceCell<Users<'v>>,
    /// What all nodes have left: found once, when a group first looks for room.
    room: OnceCell<Vec<Room<'v>>>,
}

impl<'v> Turn<'v> {
    /// Adds an action, unless its object has one already: what is left is planned again.
    fn act(&mut self, action: Action) {
        if self.taken.insert(action.target.clone()) {
            self.plan.actions.push(action);
        }
    }

    fn write(&mut self, kind: Kind, name: &Name, uid: &str, write: Write, events: Vec<Event>) {
        self.act(Action { target: target(kind, name, uid), write, events });
    }

    fn tell(&mut self, target: Target, event: Event) {
        let events = self.told.entry(target).or_default();
        if !events.contains(&event) {
            events.push(event);
        }
    }

    fn tell_run(&mut self, name: &Name, run: &PipelineRun, reason: &'static str, note: &str) {
        let event = Event { warning: true, reason, note: note.to_owned() };
        self.tell(target(Kind::PipelineRun, name, &run.identity.uid), event);
    }

    /// Tells those who wait, their TaskRuns and the run why.
    fn tell_waiting(
        &mut self,
        run: Option<(&Name, &PipelineRun)>,
        waiting: &[(&Name, &Member)],
        reason: &'static str,
        note: &str,
    ) {
        if let Some((name, run)) = run {
            self.tell_run(name, run, reason, note);
        }
        let event = || Event { warning: true, reason, note: note.to_owned() };
        for (name, member) in waiting {
            self.tell(target(Kind::Pod, name, &member.identity.uid), event());
            if let Some(owner) = &member.task_run {
                let of = Name::new(&name.namespace, &owner.name);
                self.tell(target(Kind::TaskRun, &of, &owner.uid), event());
            }
        }
    }

    /// Makes a placeholder, once its time has come.
    fn make(&mut self, wanted: &Wanted<'_>) {
        if !wanted.is_due {
            return;
        }
        let mut blueprint = wanted.blueprint.clone();
        match self.follow(wanted) {
            Follow::Nobody => {}
            Follow::Waits => return,
            Follow::On(node) => blueprint.bounds = Bounds::Only(node),
        }
        let document = blueprint.document(&self.policy.coschedule.placeholder);
        self.write(Kind::StatefulSet, &blueprint.name, "", Write::Create(document), Vec::new());
    }

    /// Where the placeholder of a group must be that shares a claim with one that began earlier.
    fn follow(&mut self, wanted: &Wanted<'_>) -> Follow<'v> {
        let Some(Leader { who, placeholder, claim }) = &wanted.leader else {
            return Follow::Nobody;
        };
        let shared = format!("claim {claim} is also used by the earlier {who}");
        if wanted.blueprint.isolation.required {
            let note =
                format!("{shared}, and runs are isolated: it begins when that one has ended");
            self.tell_follower(wanted, &note);
            return Follow::Waits;
        }
        let placeholder = Name::new(&wanted.blueprint.name.namespace, placeholder);
        match self.view.placeholder_pod(&placeholder).and_then(PlaceholderPod::place) {
            Some(node) => Follow::On(node),
            None => {
                self.tell_follower(wanted, &format!("{shared}, whose placeholder has no node yet"));
                Follow::Waits
            }
        }
    }

    /// Tells a run whom it waits for; of a native group its pods.
    fn tell_follower(&mut self, wanted: &Wanted<'_>, note: &str) {
        let members = self.view.members_of(&wanted.blueprint.name);
        let waiting: Vec<_> =
            members.filter(|(_, member)| !member.finished && member.node.is_none()).collect();
        self.tell_waiting(wanted.run, &waiting, reason::SHARED_CLAIM, note);
    }

    /// The plan, with what is told of objects that have no action.
    fn finish(self) -> Plan {
        let Self { mut plan, taken, told, .. } = self;
        for (target, events) in told {
            if !taken.contains(&target) {
                plan.actions.push(Action { target, write: Write::None, events });
            }
        }
        plan
    }

    /// Whether `since` was longer ago than `patience`; otherwise the plan is made again then.
    fn is_over(&mut self, since: Timestamp, patience: SignedDuration) -> bool {
        match since.checked_add(patience) {
            Ok(due) if due <= self.now => true,
            Ok(due) => {
                self.plan.recheck_by(due);
                false
            }
            // Beyond all times.
            Err(_) => false,
        }
    }

    fn grace(&self) -> SignedDuration {
        length(self.policy.coschedule.grace_period)
    }
}

fn length(period: Period) -> SignedDuration {
    SignedDuration::try_from(period.length()).unwrap_or(SignedDuration::MAX)
}

fn target(kind: Kind, name: &Name, uid: &str) -> Target {
    Target { kind, namespace: name.namespace.clone(), name: name.name.clone(), uid: uid.into() }
}
