//! The section `coschedule` of the policy.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as KubernetesQuantity;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

use super::keys::PARKED;
use crate::policy::{Period, Quantity, form};
use crate::view::Resources;

/// Coscheduling of Tekton runs and other groups.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Coschedule {
    /// Whether any group is coscheduled.
    pub enabled: bool,
    /// What of a Tekton run shares a node, where neither run nor namespace says.
    pub mode: CoscheduleMode,
    /// The modes that runs, Pipelines and namespaces may ask for, besides `mode`.
    pub allowed_modes: BTreeSet<CoscheduleMode>,
    /// How a member follows its placeholder.
    pub binding: Binding,
    /// What becomes of the claims of a run.
    pub volumes: Volumes,
    /// Storage classes to use instead of others, by name: for claims of groups whose class binds
    /// Immediately and has no sibling that waits for the first pod.
    #[serde(deserialize_with = "class_map")]
    #[schemars(schema_with = "form::class_map")]
    pub class_map: BTreeMap<String, String>,
    /// For which of its members a placeholder reserves room.
    pub reserve: Reserve,
    /// How far an isolated placeholder keeps others out of its node.
    pub isolation_scope: IsolationScope,
    /// How long members may be unschedulable before their placeholder moves; at least a second.
    #[schemars(schema_with = "form::second")]
    pub grace_period: Period,
    /// How long a native group outlives its last member.
    #[serde(rename = "groupTTL")]
    pub group_ttl: Period,
    /// How long autoscalers leave alone the node of a group that only waits; 0s: they remove nodes of
    /// placeholders and TaskRuns as they like.
    pub keep_node_for: Period,
    /// What becomes of members while no controller is there.
    pub controller_absent: ControllerAbsent,
    /// The placeholder pods.
    pub placeholder: Placeholder,
}

/// What of a Tekton run shares a node (TEP-0135).
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
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

/// For which of its members a placeholder reserves room.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Reserve {
    /// For the largest that waits or is still to come, until it has a node.
    Place,
    /// The same, and on its node for the largest that is still to come.
    #[default]
    Largest,
    /// For those that may run at the same time, else as `largest`.
    Peak,
}

/// How far an isolated placeholder keeps others out of its node.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum IsolationScope {
    /// In the whole cluster.
    Cluster,
    /// In its namespace.
    #[default]
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
    #[schemars(schema_with = "form::image")]
    pub image: String,
    /// What they request.
    pub requests: Requests,
    /// The priority class of those whose run names none; empty: the cluster's default.
    #[schemars(schema_with = "form::optional_object_name")]
    pub priority_class_name: String,
}

/// Resource requests.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Requests {
    /// Processor time.
    pub cpu: Quantity,
    /// Memory.
    pub memory: Quantity,
}

impl Requests {
    /// The amounts.
    pub(crate) fn amounts(&self) -> Resources {
        let [cpu, memory] =
            [&self.cpu, &self.memory].map(|of| KubernetesQuantity(of.as_str().to_owned()));
        Resources::read(Some(&[("cpu".to_owned(), cpu), ("memory".to_owned(), memory)].into()))
    }
}

impl Default for Coschedule {
    fn default() -> Self {
        Self {
            enabled: true,
            mode: CoscheduleMode::default(),
            allowed_modes: BTreeSet::from([
                CoscheduleMode::Disabled,
                CoscheduleMode::Workspaces,
                CoscheduleMode::PipelineRuns,
                CoscheduleMode::IsolatePipelinerun,
            ]),
            binding: Binding::default(),
            volumes: Volumes::default(),
            class_map: BTreeMap::new(),
            reserve: Reserve::default(),
            isolation_scope: IsolationScope::default(),
            grace_period: Period::from_secs(30),
            group_ttl: Period::from_secs(300),
            keep_node_for: Period::from_secs(3_600),
            controller_absent: ControllerAbsent::default(),
            placeholder: Placeholder::default(),
        }
    }
}

impl Default for Requests {
    fn default() -> Self {
        Self { cpu: Quantity::known("10m"), memory: Quantity::known("16Mi") }
    }
}

/// Rejects a class that is mapped to itself, and the class of parked claims.
fn class_map<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    let map = BTreeMap::<String, String>::deserialize(deserializer)?;
    for (from, to) in &map {
        if from == to {
            return Err(de::Error::custom(format!(
                "coschedule.classMap.{from}: the class is mapped to itself; name another class, or leave it out"
            )));
        }
        if to == PARKED {
            return Err(de::Error::custom(format!(
                "coschedule.classMap.{from}: claims of class {PARKED} are never bound; name another class"
            )));
        }
    }
    Ok(map)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::systems::policy::Policy;

    #[test]
    fn an_error_names_what_is_wrong() {
        for (text, part) in [
            ("coschedule: {gracePeriod: soon}", "coschedule.gracePeriod: \"soon\" is not a whole"),
            ("coschedule: {gracePeriod: 30}", "30s or 5m, at least 1s"),
            ("coschedule: {gracePeriod: 999ms}", "at least 1s"),
            ("coschedule: {groupTTL: ~}", "coschedule.groupTTL: has no value; leave it out"),
            ("coschedule: {keepNodeFor: 0}", "coschedule.keepNodeFor: 0 is not a whole"),
            ("coschedule: {placeholder: {requests: {cpu: much}}}", "10m, 0.5 or 16Mi"),
            ("coschedule: {placeholder: {requests: {memory: []}}}", "10m, 0.5 or 16Mi"),
            ("coschedule: {classMap: {Fast: slow}}", "Fast"),
            ("coschedule: {classMap: {fast: \"\"}}", "the name of an object"),
            (
                "coschedule: {placeholder: {image: a b}}",
                "coschedule.placeholder.image: \"a b\" is not an image",
            ),
            ("coschedule: {placeholder: {priorityClassName: A B}}", "\"A B\" is not the name"),
            ("coschedule: {classMap: {fast: fast}}", "is mapped to itself"),
            ("coschedule: {classMap: {fast: stowplan-parked}}", "never bound"),
            ("coschedule: {mode: pipeline-runs}", "pipeline-runs"),
        ] {
            let error = Policy::from_yaml(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn lengths_of_time_and_amounts_are_read() {
        let text = "coschedule: {gracePeriod: 90s, groupTTL: 0ms, keepNodeFor: 2h, classMap: {a.b: c-d}, placeholder: {requests: {cpu: 0.5, memory: 1Gi}}}";
        let section = Policy::from_yaml(text).unwrap().coschedule;
        assert_eq!(section.grace_period.length(), Duration::from_secs(90));
        assert_eq!(section.group_ttl.length(), Duration::ZERO);
        assert_eq!(section.keep_node_for.length(), Duration::from_secs(7_200));
        assert_eq!(section.placeholder.requests.cpu.as_str(), "0.5");
        assert_eq!(section.placeholder.requests.memory.as_str(), "1Gi");
    }
}
