//! The sections `streams` and `hostPools` of the policy.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

/// Who may use HostPools, and which nodes may belong to them.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct HostPools {
    /// Whether `streams.ibm.com/host-pool` may be used at all.
    pub enabled: bool,
    /// Labels of the nodes that sized and exclusive pools may take. Read by the controller.
    pub node_selector: BTreeMap<String, String>,
    /// Labels of the namespaces whose pods may use pools. Empty: all.
    pub namespaces: BTreeMap<String, String>,
    /// The most exclusive nodes that a namespace may hold. Read by the controller.
    pub max_exclusive_nodes_per_namespace: u32,
}

impl Default for HostPools {
    fn default() -> Self {
        Self {
            enabled: true,
            node_selector: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            max_exclusive_nodes_per_namespace: 8,
        }
    }
}

/// IBM Streams host constraints.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Streams {
    /// Whether the annotations are acted on. Otherwise a pod with one is admitted with a warning.
    pub enabled: bool,
    /// `upstream` writes the literal form of the Streams design (2021): node names, and selectors
    /// without the job.
    #[serde(deserialize_with = "parse_compat")]
    pub compat: Compat,
}

/// In which form Streams constraints are written.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Compat {
    /// Stowplan's own form.
    #[default]
    None,
    /// The literal form of the Streams design.
    Upstream,
}

/// Parses [`Compat`], and names the new word to those who write the old one.
fn parse_compat<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Compat, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "none" => Ok(Compat::None),
        "upstream" => Ok(Compat::Upstream),
        "seed" => Err(de::Error::custom(
            "compat: write `upstream`; `seed` was its name before the first release",
        )),
        other => Err(de::Error::unknown_variant(other, &["none", "upstream"])),
    }
}

impl Default for Streams {
    fn default() -> Self {
        Self { enabled: true, compat: Compat::default() }
    }
}

#[cfg(test)]
mod tests {
    use crate::systems::policy::Policy;

    #[test]
    fn an_error_names_what_is_wrong() {
        for (text, part) in [
            ("streams: {compat: wiki}", "wiki"),
            ("streams: {compat: seed}", "write `upstream`"),
            ("streams: {enabled: maybe}", "maybe"),
            ("hostPools: {maxExclusiveNodesPerNamespace: -1}", ""),
        ] {
            let error = Policy::from_yaml(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
