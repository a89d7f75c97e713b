//! The section `katalyst` of the policy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policy::form;

/// Katalyst NUMA affinity.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Katalyst {
    /// How far the node is trusted to enforce it.
    pub mode: KatalystMode,
    /// The label keys that the node agent is configured to keep.
    #[schemars(schema_with = "form::label_keys")]
    pub declared_labels: Vec<String>,
}

/// How far the node is trusted to enforce NUMA affinity.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum KatalystMode {
    /// Validated and made canonical; nothing is claimed of the node.
    #[default]
    Advisory,
    /// The node's agent enforces it.
    Enforced,
    /// Left alone.
    Disabled,
}
