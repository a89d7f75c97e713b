//! What a system wants changed in the cluster, as data.
//!
//! A plan is a pure function of the View, the policy and the time. It is made again whenever one of
//! them changes, and says all that is to be done now: what an earlier plan asked for and what the
//! cluster does not show yet is in it again. So nothing is lost when a controller ends, and another
//! one makes the same plan. `controller` carries it out.

use std::collections::HashSet;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, RemoveOperation, ReplaceOperation, TestOperation};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

/// What is to be done.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Each about an object of its own: what is to be done to one object is one action.
    pub actions: Vec<Action>,
    /// When to plan again even if nothing changes.
    pub recheck_at: Option<Timestamp>,
}

impl Plan {
    /// Adds what another plan asks for. Where both have something to do to one object, this one comes
    /// first: the other says it again when the plan is made anew.
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

    /// Asks to be made again at `at` at the latest.
    pub fn recheck_by(&mut self, at: Timestamp) {
        self.recheck_at = Some(self.recheck_at.map_or(at, |earlier| earlier.min(at)));
    }
}

/// One write to one object, and what its users are told of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Action {
    /// The object.
    pub target: Target,
    /// What becomes of it.
    pub write: Write,
    /// What is told once it has.
    pub events: Vec<Event>,
}

/// An object that is written.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Target {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace; empty for a node.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// Its UID; empty for one that is to be made.
    pub uid: Box<str>,
}

/// The kinds that are written.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// A node.
    Node,
    /// A pod.
    Pod,
    /// A HostPool.
    HostPool,
    /// A StreamsJob.
    StreamsJob,
    /// A StatefulSet: the placeholder of a coscheduled group.
    StatefulSet,
    /// A claim of a run.
    PersistentVolumeClaim,
    /// A PipelineRun. Tekton's: it is told of and never written.
    PipelineRun,
    /// A TaskRun. Likewise.
    TaskRun,
}

/// What becomes of an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// These operations, which begin with a `test` of the object's UID. A failed test is the API
    /// server's 422: the object is read again by the watch, and the plan made anew.
    Patch(Vec<PatchOperation>),
    /// The same on a node that may be given back only while the pool's status, read from the API
    /// server itself and not from a watch that may be late, does not name it.
    Release {
        /// The operations.
        operations: Vec<PatchOperation>,
        /// The pools, by hash, whose marks go.
        hashes: Vec<String>,
    },
    /// This status, if the object's version is still this one.
    Status {
        /// `metadata.resourceVersion`.
        resource_version: Box<str>,
        /// The whole status.
        status: Value,
    },
    /// It is made: the whole object.
    Create(Value),
    /// It goes, if it is still the one with the target's UID.
    Delete {
        /// The seconds that it has to end; `None`: its own. 0 does not wait for its node to say that it
        /// has ended, so that only a node that says nothing any more is a reason for it.
        grace: Option<u32>,
        /// Only in this version (`metadata.resourceVersion`); `None`: in any.
        version: Option<Box<str>>,
    },
    /// Nothing: only told of.
    None,
}

/// What the users of an object are told.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Event {
    /// Whether it asks for somebody's attention.
    pub warning: bool,
    /// The stable word.
    pub reason: &'static str,
    /// For people.
    pub note: String,
}

/// The operations of a [`Write::Patch`], by the tokens of their paths.
pub mod operation {
    use super::{
        AddOperation, PatchOperation, PointerBuf, RemoveOperation, ReplaceOperation, TestOperation,
        Value,
    };

    /// What every patch begins with: the object is still the one that was planned for.
    #[must_use]
    pub fn test_uid(uid: &str) -> PatchOperation {
        test(&["metadata", "uid"], uid)
    }

    /// This stands there. What is absent is null.
    #[must_use]
    pub fn test(path: &[&str], value: impl Into<Value>) -> PatchOperation {
        PatchOperation::Test(TestOperation { path: pointer(path), value: value.into() })
    }

    /// This is put there.
    #[must_use]
    pub fn add(path: &[&str], value: impl Into<Value>) -> PatchOperation {
        PatchOperation::Add(AddOperation { path: pointer(path), value: value.into() })
    }

    /// This takes the place of what is there.
    #[must_use]
    pub fn replace(path: &[&str], value: impl Into<Value>) -> PatchOperation {
        PatchOperation::Replace(ReplaceOperation { path: pointer(path), value: value.into() })
    }

    /// What is there goes.
    #[must_use]
    pub fn remove(path: &[&str]) -> PatchOperation {
        PatchOperation::Remove(RemoveOperation { path: pointer(path) })
    }

    fn pointer(path: &[&str]) -> PointerBuf {
        PointerBuf::from_tokens(path.iter().copied())
    }
}
