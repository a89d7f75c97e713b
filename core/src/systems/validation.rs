//! How a system validates objects of its own kinds.

use crate::placement::reason::{Finding, Reason, Warning};
use crate::systems::View;
use crate::systems::policy::Policy;
use crate::view::Name;
use crate::view::resource::Resource;

/// The rules for one kind.
#[derive(Debug)]
pub struct Validation {
    /// The kind.
    pub resource: Resource,
    /// The reason of the refusal if an object does not decode.
    pub unreadable: Reason,
    /// Checks an object.
    ///
    /// # Errors
    /// The object does not decode.
    pub check: fn(&Incoming<'_>, &View, &Policy) -> Result<Verdict, serde_json::Error>,
}

/// The findings of the rules about an object.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Every rule that the object breaks, the most important first.
    pub findings: Vec<Finding>,
    /// Texts for the author of an object that breaks no rule.
    pub warnings: Vec<Warning>,
}

impl From<Vec<Finding>> for Verdict {
    fn from(findings: Vec<Finding>) -> Self {
        Self { findings, warnings: Vec::new() }
    }
}

/// An object that is created or changed.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'o> {
    /// Its namespace and name; the name is empty if the API server generates it later.
    pub name: &'o Name,
    /// The object as JSON.
    pub object: &'o str,
    /// The stored object, if this one replaces it.
    pub old: Option<&'o str>,
}
