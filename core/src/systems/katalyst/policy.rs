//! The section `katalyst` of the policy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policy::{Period, form};

/// Katalyst NUMA affinity.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Katalyst {
    /// How far the nodes enforce it.
    pub mode: KatalystMode,
    /// The label keys that Katalyst's agents keep: those of their flag
    /// `--qos-inter-pod-affinity-labels`. Empty: not known, so selectors are not checked against them.
    #[schemars(schema_with = "form::label_keys")]
    pub declared_labels: Vec<String>,
    /// Whether a selector may have several labels.
    pub match_semantics: MatchSemantics,
    /// Whether only nodes count that reject a pod for which no NUMA node is feasible: those whose
    /// topology policy is Restricted or SingleNUMANode.
    pub require_strict_topology: bool,
    /// Whether a required affinity becomes a pod-affinity term over all namespaces, where that is sound.
    /// A ResourceQuota of the scope CrossNamespacePodAffinity may refuse pods with such a term.
    pub pod_affinity_term: bool,
    /// How long a pod may wait for a feasible NUMA node, under the mode enforced; at least a second.
    #[schemars(schema_with = "form::second")]
    pub gate_deadline: Period,
    /// How long a pod that has started counts on all NUMA nodes of its node until Katalyst reports
    /// on which it is; at least a second.
    #[schemars(schema_with = "form::second")]
    pub report_deadline: Period,
}

impl Default for Katalyst {
    fn default() -> Self {
        Self {
            mode: KatalystMode::default(),
            declared_labels: Vec::new(),
            match_semantics: MatchSemantics::default(),
            require_strict_topology: false,
            pod_affinity_term: true,
            gate_deadline: Period::from_secs(600),
            report_deadline: Period::from_secs(120),
        }
    }
}

impl Katalyst {
    /// Whether Katalyst's agents keep labels with this key, as far as the policy says.
    pub(in crate::systems::katalyst) fn is_declared(&self, key: &str) -> bool {
        self.declared_labels.is_empty() || self.declared_labels.iter().any(|own| own == key)
    }

    /// Why the fields contradict each other.
    pub(in crate::systems) fn find_problem(&self) -> Option<&'static str> {
        (self.mode == KatalystMode::Enforced && self.declared_labels.is_empty()).then_some(
            "katalyst.mode is enforced, and katalyst.declaredLabels is empty: agents without declared \
             labels enforce nothing; list the keys of the agents' flag --qos-inter-pod-affinity-labels, \
             or set the mode to advisory",
        )
    }
}

/// How far the nodes enforce NUMA affinity.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum KatalystMode {
    /// Checked, made canonical, and given to the scheduler as far as it can follow it. Nothing is
    /// claimed about the nodes.
    #[default]
    Advisory,
    /// The nodes' agents enforce it: pods wait until a NUMA node is feasible.
    Enforced,
    /// Left alone.
    Disabled,
}

/// Whether a selector may have several labels. For Katalyst one of them is enough; for Kubernetes, all
/// must match.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum MatchSemantics {
    /// Refused: the author may expect that all must match.
    #[default]
    Strict,
    /// Accepted: one of them is enough.
    Any,
}
