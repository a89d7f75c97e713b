//! The state that a process reports about itself: `/status`, as JSON. `stowplan check` reads it.

use serde::{Deserialize, Serialize};

/// The state of a process.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Status {
    pub(crate) version: String,
    /// The name of the pod; `None`: the process does not know it.
    pub(crate) identity: Option<String>,
    pub(crate) policy: PolicyStatus,
    /// `None` in a process that serves no TLS.
    pub(crate) certificate: Option<ServedCertificate>,
    /// True if the process leads; `None` in a process that competes for no Lease.
    pub(crate) leads: Option<bool>,
    /// The reason why the process is not ready.
    pub(crate) problems: Vec<String>,
}

/// The policy that a process decides by.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub(crate) struct PolicyStatus {
    /// The first 16 hexadecimal digits of the SHA-256 of the text in force. `None`: none is, and the
    /// process is not ready.
    pub(crate) digest: Option<String>,
    /// The reason why the policy that was found last is not in force.
    pub(crate) problem: Option<String>,
}

/// The certificate that is in use.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ServedCertificate {
    /// The chain as PEM, the leaf first; empty: none was read yet.
    pub(crate) chain: String,
    /// When it expires, in seconds since 1970.
    pub(crate) not_after: Option<u64>,
    /// The reason why the API server would not trust it.
    pub(crate) problem: Option<String>,
}
