//! The sections `streams` and `hostPools` of the policy.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policy::{Period, form};

/// Who may use HostPools, and which nodes may belong to them.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct HostPools {
    /// Whether `streams.ibm.com/host-pool` may be used at all.
    pub enabled: bool,
    /// Labels of the nodes that sized and exclusive pools may take. Read by the controller.
    #[schemars(schema_with = "form::labels")]
    pub node_selector: BTreeMap<String, String>,
    /// Labels of the namespaces whose pods may use pools. Empty: all.
    #[schemars(schema_with = "form::labels")]
    pub namespaces: BTreeMap<String, String>,
    /// The most exclusive nodes that a namespace may hold. Read by the controller.
    pub max_exclusive_nodes_per_namespace: u32,
    /// The most pools that a namespace may have. Read by the controller and by the check of pools.
    pub max_pools_per_namespace: u32,
    /// The most pools whose members a node may be, by the controller's choice.
    pub max_pools_per_node: u32,
}

impl Default for HostPools {
    fn default() -> Self {
        Self {
            enabled: true,
            node_selector: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            max_exclusive_nodes_per_namespace: 8,
            max_pools_per_namespace: 256,
            max_pools_per_node: 64,
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
    pub compat: Compat,
    /// What becomes of a StreamsJob, or of a pod in a HostPool, that only lacks nodes.
    pub unmet: Unmet,
    /// The most pods by which the controller asks an autoscaler for the nodes of one StreamsJob or HostPool that
    /// waits for nodes (`unmet: wait`); 0: it does not ask.
    pub max_scaling_pods: u32,
    /// How long a pod may be unschedulable on the node that its job reserves for it before the controller
    /// looks for another node; at least a second.
    #[schemars(schema_with = "form::second")]
    pub grace_period: Period,
}

/// What becomes of a StreamsJob, or of a pod in a HostPool, that could be placed if there were more nodes.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Unmet {
    /// It is refused, as the Streams design says of a host that cannot be resolved.
    #[default]
    Refuse,
    /// It is accepted, and waits until there are nodes: for clusters that grow.
    Wait,
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

impl Default for Streams {
    fn default() -> Self {
        Self {
            enabled: true,
            compat: Compat::default(),
            unmet: Unmet::default(),
            max_scaling_pods: 32,
            grace_period: Period::from_secs(30),
        }
    }
}
