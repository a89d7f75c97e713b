//! What a request creates, as far as a decision tells pods from claims.

use super::ParseError;
use super::review::{Request, brief};
use crate::placement::claim::{self, Claim};
use crate::placement::intent::Intent;
use crate::placement::merge::merge;
use crate::placement::patch::Patch;
use crate::placement::pod::{Object, Pod};
use crate::placement::reason::Finding;
use crate::policy::Policy;
use crate::systems::{Outcome, System};
use crate::view::View;

/// The kinds on whose creation is decided.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Pod,
    Claim,
}

impl Kind {
    /// What the request creates; `None` where it is none of our business.
    pub(super) fn created_by(request: &Request<'_>) -> Option<Self> {
        match request.creates("")? {
            "pods" => Some(Self::Pod),
            "persistentvolumeclaims" => Some(Self::Claim),
            _ => None,
        }
    }

    /// Whether a system does something for objects of this kind.
    pub(super) fn is_served_by(self, system: &System) -> bool {
        match self {
            Self::Pod => system.request.is_some(),
            Self::Claim => system.claim.is_some(),
        }
    }

    /// Whether what holds is written down in the object.
    pub(super) fn has_record(self) -> bool {
        self == Self::Pod
    }

    /// What people call an object of this kind.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::Claim => "PersistentVolumeClaim",
        }
    }
}

/// An object that is created, decoded.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one a request, on the stack: a box would be dearer")]
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

    /// What a system makes of it; `None` where it does not serve the kind.
    pub(super) fn ask(&self, system: &System, view: &View, policy: &Policy) -> Option<Outcome> {
        match self {
            Self::Pod(pod) => system.request.map(|request| request(pod, view, policy)),
            Self::Claim(claim) => system.claim.map(|request| request(claim, view, policy)),
        }
    }

    /// The operations that give it what `intents` ask for and, where its kind has one, this record.
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
