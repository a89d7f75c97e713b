//! Plans: the changes that the systems want to make in the cluster, as data.
//!
//! A plan is a pure function of the View, the policy and the time. It is made again whenever one of
//! them changes. It contains all changes to be made now, including those of an earlier plan that
//! the cluster does not show yet. So no change is lost when a controller process ends: the next one
//! makes the same plan. `controller` carries plans out.

pub mod operation;

use std::borrow::Cow;
use std::collections::HashSet;

use json_patch::PatchOperation;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use crate::view::Name;
use crate::view::resource::Resource;

/// Changes to the cluster.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// At most one action for each object.
    pub actions: Vec<Action>,
    /// When to make the next plan even if nothing changes.
    pub recheck_at: Option<Timestamp>,
}

impl Plan {
    /// Adds the actions of another plan. If both have an action for the same object, this plan's
    /// action is kept: the other one is planned again after it is done.
    pub fn extend(&mut self, other: Self) {
        let own: HashSet<Target> = match other.actions.is_empty() {
            true => HashSet::new(),
            false => self.actions.iter().map(|action| action.target.clone()).collect(),
        };
        let others = other.actions.into_iter().filter(|action| !own.contains(&action.target));
        self.actions.extend(others);
        if let Some(at) = other.recheck_at {
            self.recheck_by(at);
        }
    }

    /// Requests the next plan no later than `at`.
    pub fn recheck_by(&mut self, at: Timestamp) {
        self.recheck_at = Some(self.recheck_at.map_or(at, |earlier| earlier.min(at)));
    }
}

/// One write to one object, with everything that the executor needs to carry it out.
#[derive(Clone, Debug)]
pub struct Action {
    pub target: Target,
    pub write: Write,
    /// Recorded about the object after the write has succeeded.
    pub events: Vec<Event>,
    /// Names of fields, labels or annotations in the write, such as times, whose values may differ
    /// between two plans with the same purpose.
    pub volatile: &'static [&'static str],
    /// The reasons of events about states. Without a write, such an event is recorded once the state
    /// has lasted for a moment; every other event is about a step, and is recorded at once.
    pub lasting: &'static [&'static str],
    /// A precondition to be confirmed before the write.
    pub confirmation: Option<Confirmation>,
    /// The consequences if the API server refuses the write.
    pub refusal: Option<Refusal>,
}

impl Action {
    /// A write whose only precondition is the target's UID.
    #[must_use]
    pub const fn new(target: Target, write: Write, events: Vec<Event>) -> Self {
        let (volatile, lasting): (&[_], &[_]) = (&[], &[]);
        Self { target, write, events, volatile, lasting, confirmation: None, refusal: None }
    }

    /// Returns the action with volatile fields: [`Action::repeats`] ignores them.
    #[must_use]
    pub fn with_volatile(self, fields: &'static [&'static str]) -> Self {
        Self { volatile: fields, ..self }
    }

    /// Returns the action with lasting reasons: events with them are about states.
    #[must_use]
    pub fn with_lasting(self, reasons: &'static [&'static str]) -> Self {
        Self { lasting: reasons, ..self }
    }

    /// Returns the action with a confirmation: it is sent if the precondition is confirmed.
    #[must_use]
    pub fn with_confirmation(self, confirmation: Confirmation) -> Self {
        Self { confirmation: Some(confirmation), ..self }
    }

    /// Returns this action, with consequences if it is refused.
    #[must_use]
    pub fn with_refusal(self, refusal: Refusal) -> Self {
        Self { refusal: Some(refusal), ..self }
    }

    /// Returns true if this action has the same write as an `earlier` one to the same object. Volatile
    /// fields and the versions in preconditions are ignored: they differ between plans, and a pause
    /// after a failure must not end because of them.
    #[must_use]
    pub fn repeats(&self, earlier: &Self) -> bool {
        let volatile = self.volatile;
        match (&self.write, &earlier.write) {
            (Write::Patch(a), Write::Patch(b)) => are_same_operations(a, b, volatile),
            (Write::Part(a, one), Write::Part(b, other)) => {
                a == b && are_same_operations(one, other, volatile)
            }
            (Write::Status { status: a, .. }, Write::Status { status: b, .. })
            | (Write::Create(a), Write::Create(b)) => is_same_value(a, b, volatile),
            (Write::Delete { grace: a, .. }, Write::Delete { grace: b, .. }) => a == b,
            (a, b) => a == b,
        }
    }

    /// The verb in logs, metrics and events.
    #[must_use]
    pub fn verb(&self) -> &'static str {
        match (&self.write, &self.confirmation) {
            (Write::Patch(_), Some(Confirmation::List(listed))) => listed.verb,
            (Write::Patch(_), _) => "patch",
            (Write::Part(subresource, _), _) => subresource,
            (Write::Status { .. }, _) => "status",
            (Write::Create(_), _) => "create",
            (Write::Delete { .. }, _) => "delete",
            (Write::None, _) => "none",
        }
    }
}

fn are_same_operations(a: &[PatchOperation], b: &[PatchOperation], volatile: &[&str]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same_operation(a, b, volatile))
}

fn is_same_operation(a: &PatchOperation, b: &PatchOperation, volatile: &[&str]) -> bool {
    let (a_value, b_value) = match (a, b) {
        (PatchOperation::Test(a), PatchOperation::Test(b)) => (&a.value, &b.value),
        (PatchOperation::Add(a), PatchOperation::Add(b)) => (&a.value, &b.value),
        (PatchOperation::Replace(a), PatchOperation::Replace(b)) => (&a.value, &b.value),
        (a, b) => return a == b,
    };
    let is_volatile = || {
        let last = a.path().back().map(|token| token.decoded().into_owned());
        last.is_some_and(|last| volatile.contains(&last.as_str()))
    };
    a.path() == b.path() && (is_same_value(a_value, b_value, volatile) || is_volatile())
}

fn is_same_value(a: &Value, b: &Value, volatile: &[&str]) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same_value(a, b, volatile))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter().all(|(key, a)| {
                    let same =
                        |b| volatile.contains(&key.as_str()) || is_same_value(a, b, volatile);
                    b.get(key).is_some_and(same)
                })
        }
        (a, b) => a == b,
    }
}

/// The object of a write.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Target {
    pub resource: Resource,
    /// Empty for a cluster-scoped object.
    pub namespace: Box<str>,
    /// `metadata.name`.
    pub name: Box<str>,
    /// `metadata.uid`; empty for an object to be created.
    pub uid: Box<str>,
}

impl Target {
    #[must_use]
    pub fn new(resource: Resource, name: &Name, uid: &str) -> Self {
        let Name { namespace, name } = name.clone();
        Self { resource, namespace, name: (*name).into(), uid: uid.into() }
    }
}

/// A change to an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// A JSON patch. Its first operation is a `test` of the object's UID. If a test fails, the API
    /// server answers 422; the watch will show the present object, and another plan is made.
    Patch(Vec<PatchOperation>),
    /// Such a patch of a subresource: `resize` of a pod for what it requests, `status` for where it is
    /// nominated.
    Part(&'static str, Vec<PatchOperation>),
    /// Replaces the status if the object still has this version.
    Status {
        /// `metadata.resourceVersion`.
        resource_version: Box<str>,
        /// The complete status.
        status: Value,
    },
    /// Creates the object; the complete document.
    Create(Value),
    /// Deletes the object if it still has the target's UID.
    Delete {
        /// The grace period in seconds; `None`: the object's own. With 0 the API server does not
        /// wait for the node to report the end of the pod, so it is only for nodes that are
        /// NotReady.
        grace: Option<u32>,
        /// The required `metadata.resourceVersion`; `None`: any.
        version: Option<Box<str>>,
    },
    /// No change: the action only records events.
    None,
}

/// A precondition that the View cannot confirm.
#[derive(Clone, Debug)]
pub enum Confirmation {
    /// A fresh list: a watch may lag.
    List(Listed),
    /// The creation of another object, or a trial of it: the View does not know all objects.
    Creation(Box<Creation>),
}

/// The executor reads a fresh list of a resource from the API server and omits the operations that the
/// list contradicts.
#[derive(Clone, Copy, Debug)]
pub struct Listed {
    /// The verb of such a patch in logs, metrics and events.
    pub verb: &'static str,
    /// The resource to be listed, in all namespaces.
    pub resource: Resource,
    /// Omits the operations that the listed objects contradict.
    pub reduce: Reduce,
}

/// Given the listed objects, the target and the operations of a patch, returns the operations that
/// may be sent. `None`: none.
pub type Reduce = fn(&[Value], &Target, &[PatchOperation]) -> Option<Vec<PatchOperation>>;

/// An object that the executor creates before the write, in the namespace of the target.
#[derive(Clone, Debug)]
pub struct Creation {
    pub resource: Resource,
    /// The complete document, but for its content.
    pub object: Value,
    /// The content that the executor adds right before it sends the document, because no plan may contain it.
    pub content: Option<Content>,
    /// True for a dry run: the API server checks the creation and keeps nothing.
    pub is_trial: bool,
    /// The consequence of another object with the same name.
    pub if_taken: IfTaken,
    /// Adapts the operations of a patch to the object that was created; `None`: there is one with this
    /// name already.
    pub record: Option<Record>,
}

impl Creation {
    /// Adapts the write to the object that was created; `None`: there is one with its name already.
    pub fn adapt<'w>(&self, created: Option<&Value>, write: &'w Write) -> Cow<'w, Write> {
        match (self.record, write) {
            (Some(record), Write::Patch(operations)) => {
                Cow::Owned(Write::Patch(record(created, operations)))
            }
            _ => Cow::Borrowed(write),
        }
    }
}

/// Given the object that was created, or none, and the operations of a patch, returns the operations to
/// be sent.
pub type Record = fn(Option<&Value>, &[PatchOperation]) -> Vec<PatchOperation>;

/// The content of an object that is generated and in no plan, log or event.
#[derive(Clone, Copy, Debug)]
pub enum Content {
    /// An Ed25519 key pair in the fields `ssh-privatekey` and `ssh-publickey` of a Secret's `stringData`, in
    /// the formats of OpenSSH.
    SshKeys,
}

/// The consequence of another object with the name of a [`Creation`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum IfTaken {
    /// The write is sent: an earlier attempt has created the object.
    Send,
    /// The write is refused: the object is not stowplan's.
    Refuse,
    /// The write is not needed.
    Keep,
}

/// The consequences of a refused write: events on the objects that wait for it, in addition to the event on the
/// target or its owner, and actions.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The reason of the event, a stable word.
    pub reason: &'static str,
    /// The note for people; the API server's message is appended.
    pub note: String,
    /// The objects that wait for the write; the target itself if nobody has to act on a refusal.
    pub waiting: Vec<Target>,
    /// The actions that are carried out only while the write is refused. The plan's own action for the same
    /// object comes first.
    pub instead: Vec<Action>,
}

/// An event for the users of an object.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Event {
    /// True if the type is Warning: a person may have to act.
    pub warning: bool,
    /// A stable word.
    pub reason: &'static str,
    /// The text for people.
    pub note: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::view::resource::POD;

    fn action(write: Write) -> Action {
        let target = Target::new(POD, &Name::new("ns", "p"), "u");
        Action::new(target, write, Vec::new()).with_volatile(&["since", "example.com/woken"])
    }

    #[test]
    fn actions_that_differ_only_in_volatile_fields_are_repetitions() {
        let status = |version: &str, since: &str, state: &str| {
            let status = json!({"members": [{"since": since, "state": state}]});
            action(Write::Status { resource_version: version.into(), status })
        };
        let patch = |key: &str, value: &str| {
            let add = operation::add(&["metadata", "labels", key], value);
            action(Write::Patch(vec![operation::test_uid("u"), add]))
        };
        let shorter = || action(Write::Patch(vec![operation::test_uid("u")]));
        let create = |object: Value| action(Write::Create(object));
        let delete =
            |grace, version: &str| action(Write::Delete { grace, version: Some(version.into()) });
        for (one, other, repeats) in [
            (status("1", "t1", "a"), status("2", "t2", "a"), true),
            (status("1", "t1", "a"), status("1", "t1", "b"), false),
            (patch("example.com/woken", "1"), patch("example.com/woken", "2"), true),
            (patch("x", "1"), patch("x", "1"), true),
            (patch("x", "1790000000"), patch("x", "1790000001"), false),
            (patch("x", "1"), patch("y", "1"), false),
            (patch("x", "1"), shorter(), false),
            (shorter(), patch("x", "1"), false),
            (create(json!({"since": 1})), create(json!({"since": 2})), true),
            (create(json!({"since": 1})), create(json!({})), false),
            (create(json!({"a": 1})), create(json!({"a": 1, "b": 2})), false),
            (create(json!({"a": [1]})), create(json!({"a": [1, 1]})), false),
            (delete(None, "1"), delete(None, "2"), true),
            (delete(None, "1"), delete(Some(0), "1"), false),
            (delete(None, "1"), patch("x", "1"), false),
        ] {
            assert_eq!(one.repeats(&other), repeats, "{one:?} {other:?}");
        }
    }

    #[test]
    fn each_object_has_one_action() {
        let plan = |names: &[&str], note: &str, recheck_at| {
            let action = |name: &&str| {
                let event = Event { warning: false, reason: "Test", note: note.to_owned() };
                let target = Target::new(POD, &Name::new("ns", name), "u");
                Action::new(target, Write::None, vec![event])
            };
            Plan { actions: names.iter().map(action).collect(), recheck_at }
        };
        let at = Timestamp::from_second(7).ok();
        let mut plan_of_all = plan(&["a"], "first", None);
        plan_of_all.extend(plan(&["a", "b"], "second", at));
        let notes: Vec<_> =
            plan_of_all.actions.iter().map(|it| it.events[0].note.as_str()).collect();
        assert_eq!((notes, plan_of_all.recheck_at), (vec!["first", "second"], at));
    }
}
