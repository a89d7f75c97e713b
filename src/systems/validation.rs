//! How a system validates objects of its own kinds.

use crate::placement::reason::{Finding, Reason};
use crate::systems::policy::Policy;
use crate::view::resource::Resource;
use crate::view::{Name, View};

/// The rules for one kind.
#[derive(Debug)]
pub struct Validation {
    /// The kind.
    pub resource: Resource,
    /// The reason of the refusal if an object does not decode.
    pub unreadable: Reason,
    /// Every rule that an object breaks, the most important first.
    ///
    /// # Errors
    /// The object does not decode.
    pub check: fn(&Incoming<'_>, &View, &Policy) -> Result<Vec<Finding>, serde_json::Error>,
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
