//! How a system validates objects of its own kinds.

use crate::placement::reason::Reason;
use crate::systems::policy::Policy;
use crate::systems::{Outcome, View};
use crate::view::Name;
use crate::view::resource::Resource;

/// The rules for one kind.
#[derive(Debug)]
pub struct Validation {
    /// The kind.
    pub resource: Resource,
    /// The reason of the refusal if an object does not decode.
    pub unreadable: Reason,
    /// Checks an object. The outcome has findings, or warnings, and nothing else.
    ///
    /// # Errors
    /// The object does not decode.
    pub check: fn(&Incoming<'_>, &View, &Policy) -> Result<Outcome, serde_json::Error>,
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
