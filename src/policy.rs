//! The administrator's policy: one YAML file, typed, with a JSON schema.
//!
//! Every key has a default, so that an empty file is a policy. A key that is not known is an error:
//! a misspelt restriction would be no restriction.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the administrator decides.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Policy {
    /// What becomes of a pod that cannot be placed as it asks. `warn` admits it without our
    /// placement and with a warning.
    pub on_invalid: OnInvalid,
    /// Whether a pod gets the annotation `stowplan.dev/placement`, which says what holds.
    pub record_placement: bool,
    /// Namespaces whose pods are never touched. The webhook's own namespace always belongs to them.
    pub excluded_namespaces: BTreeSet<String>,
    /// What becomes of pods that were admitted while the webhook was away. Read by the controller.
    pub repair: Repair,
    /// Who may use HostPools.
    pub host_pools: HostPools,
    /// IBM Streams host constraints.
    pub streams: Streams,
    /// Coscheduling. Not served by this release yet.
    pub coschedule: Coschedule,
    /// MPI clusters. Not served by this release yet.
    pub mpi: Mpi,
    /// Katalyst NUMA affinity. Not served by this release yet.
    pub katalyst: Katalyst,
}

/// What becomes of a pod that cannot be placed as it asks.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum OnInvalid {
    /// It is not created; its author reads why.
    #[default]
    Refuse,
    /// It is created without our placement; its author reads a warning.
    Warn,
}

/// What becomes of pods that were admitted while the webhook was away.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Repair {
    /// They are reported.
    #[default]
    Report,
    /// They are reported, and those still pending are created again.
    RecreatePending,
}

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

/// IBM Streams host constraints.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Streams {
    /// Whether the annotations are acted on. Otherwise a pod with one is admitted with a warning.
    pub enabled: bool,
    /// `seed` writes the literal form of the Streams design (2021): node names, and selectors
    /// without the job.
    pub compat: Compat,
}

/// In which form Streams constraints are written.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Compat {
    /// Ours.
    #[default]
    None,
    /// The literal form of the Streams design.
    Seed,
}

/// Coscheduling of Tekton runs and other groups.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Coschedule {
    /// Whether any group is coscheduled.
    pub enabled: bool,
    /// What of a Tekton run shares a node, where neither run nor namespace says.
    pub mode: CoscheduleMode,
    /// How a member follows its placeholder.
    pub binding: Binding,
    /// What becomes of the claims of a run.
    pub volumes: Volumes,
    /// Storage classes to use instead of others, by name.
    pub class_map: BTreeMap<String, String>,
    /// How far an isolated placeholder keeps others away.
    pub isolation_scope: IsolationScope,
    /// How long members may be unschedulable before their placeholder moves, as `30s` or `5m`.
    pub grace_period: String,
    /// How long a group outlives its last member, as `30s` or `5m`.
    #[serde(rename = "groupTTL")]
    pub group_ttl: String,
    /// What becomes of members while no controller is there.
    pub controller_absent: ControllerAbsent,
    /// The placeholder pods.
    pub placeholder: Placeholder,
}

/// What of a Tekton run shares a node (TEP-0135).
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CoscheduleMode {
    /// Nothing.
    Disabled,
    /// Tasks that share a workspace.
    #[default]
    Workspaces,
    /// The whole run; TEP-0135 writes it without a hyphen.
    #[serde(rename = "pipelineruns")]
    PipelineRuns,
    /// The whole run, alone on its node.
    IsolatePipelinerun,
}

/// How a member follows its placeholder.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Binding {
    /// By pod affinity.
    #[default]
    Affinity,
    /// By node affinity to the placeholder's node.
    Node,
    /// By node affinity while a member runs there, else by pod affinity.
    Auto,
}

/// What becomes of the claims of a run.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Volumes {
    /// They keep their names and owners.
    #[default]
    Adopt,
    /// The placeholder's own claims take their place (the literal form of TEP-0135).
    Provision,
}

/// How far an isolated placeholder keeps others away.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum IsolationScope {
    /// In the whole cluster.
    #[default]
    Cluster,
    /// In its namespace.
    Namespace,
}

/// What becomes of members while no controller is there.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ControllerAbsent {
    /// They are admitted without their group.
    #[default]
    Admit,
    /// They wait.
    Wait,
}

/// The placeholder pods.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Placeholder {
    /// Their image; empty: stowplan's own.
    pub image: String,
    /// What they request.
    pub requests: Requests,
    /// Their priority class; empty: that of the run.
    pub priority_class_name: String,
}

/// Resource requests, as Kubernetes quantities.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Requests {
    /// Processor time.
    pub cpu: String,
    /// Memory.
    pub memory: String,
}

/// MPI clusters.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Mpi {
    /// Whether the annotations are acted on.
    pub enabled: bool,
    /// The cluster's DNS domain.
    pub cluster_domain: String,
    /// Labels of the namespaces in which MPI clusters may be made. Empty: all.
    pub namespaces: BTreeMap<String, String>,
}

/// Katalyst NUMA affinity.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Katalyst {
    /// How far the node is trusted to enforce it.
    pub mode: KatalystMode,
    /// The label keys that the node agent was told to keep.
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

impl Policy {
    /// The largest policy file that is read, in bytes: a ConfigMap holds no more.
    pub const MAX_BYTES: usize = 1024 * 1024;

    /// Reads a policy file. An empty file is the default policy.
    ///
    /// # Errors
    /// What is wrong, with line and column.
    pub fn from_yaml(text: &str) -> Result<Self, String> {
        if text.len() > Self::MAX_BYTES {
            return Err(format!(
                "{} bytes long, and at most {} are read",
                text.len(),
                Self::MAX_BYTES
            ));
        }
        serde_saphyr::from_str::<Option<Self>>(text)
            .map(Option::unwrap_or_default)
            .map_err(|error| error.to_string())
    }

    /// The JSON schema of a policy file (draft 2020-12).
    #[must_use]
    pub fn schema() -> serde_json::Value {
        schemars::schema_for!(Self).to_value()
    }

    /// Whether pods of this namespace are never touched.
    #[must_use]
    pub fn excludes(&self, namespace: &str) -> bool {
        self.excluded_namespaces.contains(namespace)
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            on_invalid: OnInvalid::default(),
            record_placement: true,
            excluded_namespaces: ["kube-system", "kube-node-lease"].map(String::from).into(),
            repair: Repair::default(),
            host_pools: HostPools::default(),
            streams: Streams::default(),
            coschedule: Coschedule::default(),
            mpi: Mpi::default(),
            katalyst: Katalyst::default(),
        }
    }
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

impl Default for Streams {
    fn default() -> Self {
        Self { enabled: true, compat: Compat::default() }
    }
}

impl Default for Coschedule {
    fn default() -> Self {
        Self {
            enabled: true,
            mode: CoscheduleMode::default(),
            binding: Binding::default(),
            volumes: Volumes::default(),
            class_map: BTreeMap::new(),
            isolation_scope: IsolationScope::default(),
            grace_period: "30s".to_owned(),
            group_ttl: "5m".to_owned(),
            controller_absent: ControllerAbsent::default(),
            placeholder: Placeholder::default(),
        }
    }
}

impl Default for Requests {
    fn default() -> Self {
        Self { cpu: "10m".to_owned(), memory: "16Mi".to_owned() }
    }
}

impl Default for Mpi {
    fn default() -> Self {
        Self {
            enabled: true,
            cluster_domain: "cluster.local".to_owned(),
            namespaces: BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_is_the_default() {
        for text in ["", "\n", "# nothing\n", "{}", "null", "---\n"] {
            assert_eq!(Policy::from_yaml(text), Ok(Policy::default()), "{text:?}");
        }
    }

    #[test]
    fn the_documented_policy_is_the_default() {
        let text = r#"
onInvalid: refuse
recordPlacement: true
excludedNamespaces: [kube-system, kube-node-lease]
repair: report
hostPools: {enabled: true, nodeSelector: {}, namespaces: {}, maxExclusiveNodesPerNamespace: 8}
streams: {enabled: true, compat: none}
coschedule: {enabled: true, mode: workspaces, binding: affinity, volumes: adopt, classMap: {}, isolationScope: cluster,
             gracePeriod: 30s, groupTTL: 5m, controllerAbsent: admit, placeholder: {image: "", requests: {cpu: 10m, memory: 16Mi}, priorityClassName: ""}}
mpi: {enabled: true, clusterDomain: cluster.local, namespaces: {}}
katalyst: {mode: advisory, declaredLabels: []}
"#;
        assert_eq!(Policy::from_yaml(text), Ok(Policy::default()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, part) in [
            ("onInvalid: refuze", "refuze"),
            ("onInvald: refuse", "onInvald"),
            ("streams: {compat: wiki}", "wiki"),
            ("streams: {enabled: maybe}", "maybe"),
            ("hostPools: []", ""),
            ("- a", ""),
            ("onInvalid: refuse\nonInvalid: warn", ""),
            ("{", ""),
            ("recordPlacement: \u{0}", ""),
        ] {
            let error = Policy::from_yaml(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(Policy::from_yaml(&"#".repeat(Policy::MAX_BYTES + 1)).is_err());
    }

    #[test]
    fn a_null_section_is_an_error_or_the_default_but_never_a_panic() {
        let _ = Policy::from_yaml("streams:");
        let _ = Policy::from_yaml("streams: ~\nmpi: null");
    }
}
