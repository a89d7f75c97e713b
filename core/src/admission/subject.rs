//! The object that a request creates, a pod or a claim, with what differs between the two.

use super::ParseError;
use super::review::{Request, brief};
use crate::placement::claim::{self, Claim};
use crate::placement::intent::Intent;
use crate::placement::merge::merge;
use crate::placement::object::Object;
use crate::placement::patch::Patch;
use crate::placement::pod::Pod;
use crate::placement::reason::Finding;
use crate::placement::record;
use crate::systems::policy::Policy;
use crate::systems::{Outcome, System, View};

/// The kinds of objects whose creation stowplan decides on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Pod,
    Claim,
}

impl Kind {
    /// The kind that the request creates; `None` if stowplan does not decide on it.
    pub(super) fn created_by(request: &Request<'_>) -> Option<Self> {
        match request.creates("")? {
            "pods" => Some(Self::Pod),
            "persistentvolumeclaims" => Some(Self::Claim),
            _ => None,
        }
    }

    /// Returns true if `system` places objects of this kind.
    pub(super) fn is_served_by(self, system: &System) -> bool {
        match self {
            Self::Pod => true,
            Self::Claim => system.claim.is_some(),
        }
    }

    /// Returns true if objects of this kind have a record of the constraints that hold.
    pub(super) fn has_record(self) -> bool {
        self == Self::Pod
    }

    /// The name of the kind in messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::Claim => "PersistentVolumeClaim",
        }
    }
}

/// The decoded object that a request creates.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one for each request, on the stack: boxing would cost more"
)]
pub(super) enum Subject<'a> {
    Pod(Pod<'a>),
    Claim(Claim<'a>),
}

impl<'a> Subject<'a> {
    pub(super) fn decode(
        kind: Kind,
        namespace: &'a str,
        object: &'a Object<'a>,
    ) -> Result<Self, ParseError> {
        match kind {
            Kind::Pod => Pod::decode(namespace, object).map(Self::Pod),
            Kind::Claim => Claim::decode(namespace, object).map(Self::Claim),
        }
        .map_err(|error| ParseError::Object { kind: kind.name(), problem: brief(&error) })
    }

    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Pod(_) => Kind::Pod,
            Self::Claim(_) => Kind::Claim,
        }
    }

    /// Returns true for a pod that was placed before, and has neither labels nor a controller.
    pub(super) fn may_be_copy(&self) -> bool {
        let Self::Pod(pod) = self else { return false };
        let has_labels = pod.metadata.labels.as_ref().is_some_and(|of| of.iter().next().is_some());
        pod.annotation(record::KEY).is_some() && !has_labels && pod.metadata.controller().is_none()
    }

    /// Asks `system` for the placement of the object; `None` if it does not place this kind.
    pub(super) fn ask(&self, system: &System, view: &View, policy: &Policy) -> Option<Outcome> {
        match self {
            Self::Pod(pod) => Some((system.request)(pod, view, policy)),
            Self::Claim(claim) => system.claim.map(|request| request(claim, view, policy)),
        }
    }

    /// The operations that give the object the changes in `intents` and, if its kind has one, the
    /// record.
    pub(super) fn merge(
        &self,
        intents: &[Intent],
        record: Option<&str>,
    ) -> Result<Patch, Vec<Finding>> {
        match self {
            Self::Pod(pod) => merge(pod, intents, record),
            Self::Claim(claim) => Ok(claim::merge(claim, intents)),
        }
    }
}
