//! The administrator's policy: one YAML file, typed, with a JSON schema.
//!
//! Every key has a default, so that an empty file is a policy. A key that is not known is an error:
//! a misspelt restriction would be no restriction.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The storage class of claims that must never be bound, because a placeholder's own claims take their
/// place (`volumes: provision`). No other class may become it.
pub const PARKED: &str = "stowplan-parked";

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
    /// Coscheduling of Tekton runs and of other groups.
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
    /// Storage classes to use instead of others, by name: for claims of groups whose class binds
    /// Immediately and has no sibling that waits for the first pod.
    #[serde(deserialize_with = "class_map")]
    pub class_map: BTreeMap<String, String>,
    /// How far an isolated placeholder keeps others away.
    pub isolation_scope: IsolationScope,
    /// How long members may be unschedulable before their placeholder moves; at least a second.
    #[serde(deserialize_with = "grace_period")]
    pub grace_period: Period,
    /// How long a native group outlives its last member.
    #[serde(rename = "groupTTL")]
    pub group_ttl: Period,
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

/// Resource requests.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Requests {
    /// Processor time.
    pub cpu: Quantity,
    /// Memory.
    pub memory: Quantity,
}

/// A length of time: a whole number and its unit, as `500ms`, `30s`, `5m` or `1h`.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Period(Duration);

impl Period {
    /// How it is written, for people.
    const FORM: &str = "a whole number and a unit, as 500ms, 30s or 5m";

    /// The units, the smallest first, in milliseconds.
    const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

    /// This long.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// Its length.
    #[must_use]
    pub const fn length(self) -> Duration {
        self.0
    }
}

impl FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(unit_at);
        let unit = Self::UNITS.iter().find(|(name, _)| *name == unit);
        number
            .parse::<u64>()
            .ok()
            .zip(unit)
            .and_then(|(number, (_, unit))| number.checked_mul(*unit))
            .map(|milliseconds| Self(Duration::from_millis(milliseconds)))
            .ok_or_else(|| format!("write {}", Self::FORM))
    }
}

impl fmt::Display for Period {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = self.0.as_millis();
        let mut units = Self::UNITS.iter().rev();
        let whole = units.find(|(_, unit)| milliseconds.is_multiple_of(u128::from(*unit)));
        match whole.filter(|_| milliseconds > 0) {
            Some((name, unit)) => write!(formatter, "{}{name}", milliseconds / u128::from(*unit)),
            None => formatter.write_str("0s"),
        }
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = deserializer.deserialize_str(Text(Self::FORM))?;
        text.parse().map_err(|_| de::Error::invalid_value(de::Unexpected::Str(&text), &Self::FORM))
    }
}

impl Serialize for Period {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for Period {
    fn schema_name() -> Cow<'static, str> {
        "Period".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A length of time: a whole number and its unit, as `500ms`, `30s`, `5m` or `1h`.",
            "type": "string",
            "pattern": "^[0-9]+(ms|s|m|h)$",
        })
    }
}

/// An amount of a resource as Kubernetes writes it, not below zero: `10m`, `0.5`, `16Mi`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Quantity(String);

impl Quantity {
    /// How it is written, for people.
    const FORM: &str = "an amount of a resource, as 10m, 0.5 or 16Mi";

    /// As it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Quantity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const SUFFIXES: [&str; 15] =
            ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi"];
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        let is_number = number.parse::<f64>().is_ok() && number.len() <= 20;
        match is_number && (SUFFIXES.contains(&suffix) || suffix == "Ei") {
            true => Ok(Self(text.to_owned())),
            false => Err(format!("write {}", Self::FORM)),
        }
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = deserializer.deserialize_any(Text(Self::FORM))?;
        text.parse().map_err(|_| de::Error::invalid_value(de::Unexpected::Str(&text), &Self::FORM))
    }
}

impl JsonSchema for Quantity {
    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "An amount of a resource as Kubernetes writes it: `10m`, `0.5`, `16Mi`.",
            "type": ["string", "number"],
            "pattern": r"^([0-9]+\.?[0-9]*|\.[0-9]+)([numkMGTPE]|[KMGTPE]i)?$",
            "minimum": 0,
        })
    }
}

/// Reads a text, or a number as it would be written; otherwise says what was expected.
struct Text(&'static str);

impl de::Visitor<'_> for Text {
    type Value = String;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<String, E> {
        Ok(number.to_string())
    }
}

/// A grace period of nothing would move a placeholder before the scheduler has looked at its members.
fn grace_period<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Period, D::Error> {
    let period = Period::deserialize(deserializer)?;
    match period >= Period::from_secs(1) {
        true => Ok(period),
        false => Err(de::Error::custom(format!("gracePeriod is {period}; give it at least 1s"))),
    }
}

/// Both sides are names of StorageClasses, and not the same.
fn class_map<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    let map = BTreeMap::<String, String>::deserialize(deserializer)?;
    for (from, to) in &map {
        if let Some(name) = [from, to].into_iter().find(|name| !is_object_name(name)) {
            return Err(de::Error::custom(format!(
                "classMap: {name:?} cannot be the name of a StorageClass; write lower-case letters, digits, '-' and '.', at most 253"
            )));
        }
        if from == to {
            return Err(de::Error::custom(format!(
                "classMap: {from} stands for itself; name another class, or leave it out"
            )));
        }
        if to == PARKED {
            return Err(de::Error::custom(format!(
                "classMap: claims of class {PARKED} are never bound; name another class for {from}"
            )));
        }
    }
    Ok(map)
}

/// Whether an object can have this name (RFC 1123, a subdomain).
fn is_object_name(name: &str) -> bool {
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        let is_edge =
            |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        is_edge(bytes.first())
            && is_edge(bytes.last())
            && bytes.iter().all(|b| is_edge(Some(b)) || *b == b'-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
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
            grace_period: Period::from_secs(30),
            group_ttl: Period::from_secs(300),
            controller_absent: ControllerAbsent::default(),
            placeholder: Placeholder::default(),
        }
    }
}

impl Default for Requests {
    fn default() -> Self {
        Self { cpu: Quantity("10m".to_owned()), memory: Quantity("16Mi".to_owned()) }
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
            ("streams: {compat: seed}", "compat: write `upstream`; `seed` was its name"),
            ("streams: {enabled: maybe}", "maybe"),
            ("hostPools: []", ""),
            ("- a", ""),
            ("onInvalid: refuse\nonInvalid: warn", ""),
            ("{", ""),
            ("coschedule: {gracePeriod: soon}", "500ms, 30s or 5m"),
            ("coschedule: {gracePeriod: 30}", "500ms, 30s or 5m"),
            ("coschedule: {gracePeriod: -1s}", "500ms, 30s or 5m"),
            ("coschedule: {gracePeriod: 999ms}", "gracePeriod is 999ms; give it at least 1s"),
            ("coschedule: {groupTTL: ~}", "null"),
            ("coschedule: {groupTTL: 1m30s}", "500ms, 30s or 5m"),
            ("coschedule: {groupTTL: 99999999999999999999h}", "500ms, 30s or 5m"),
            ("coschedule: {placeholder: {requests: {cpu: much}}}", "10m, 0.5 or 16Mi"),
            ("coschedule: {placeholder: {requests: {cpu: -1}}}", "10m, 0.5 or 16Mi"),
            ("coschedule: {placeholder: {requests: {memory: 16MB}}}", "10m, 0.5 or 16Mi"),
            ("coschedule: {placeholder: {requests: {memory: []}}}", "10m, 0.5 or 16Mi"),
            ("coschedule: {placeholder: {requests: {memory: é}}}", "10m, 0.5 or 16Mi"),
            ("coschedule: {classMap: {Fast: slow}}", "Fast"),
            ("coschedule: {classMap: {fast: \"\"}}", "StorageClass"),
            ("coschedule: {classMap: {fast: fast}}", "stands for itself"),
            ("coschedule: {classMap: {fast: stowplan-parked}}", "never bound"),
            ("coschedule: {mode: pipeline-runs}", "pipeline-runs"),
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

    #[test]
    fn lengths_of_time_and_amounts_are_kept_as_they_are_written() {
        let text = "coschedule: {gracePeriod: 90s, groupTTL: 0ms, classMap: {a.b: c-d}, placeholder: {requests: {cpu: 0.5, memory: 1e}}}";
        assert!(Policy::from_yaml(text).is_err(), "1e is no amount");
        let policy = Policy::from_yaml(&text.replace("1e", "1Gi")).unwrap().coschedule;
        assert_eq!(policy.grace_period.length(), Duration::from_secs(90));
        assert_eq!(policy.group_ttl.length(), Duration::ZERO);
        assert_eq!(policy.placeholder.requests.cpu.as_str(), "0.5");
        assert_eq!(policy.placeholder.requests.memory.as_str(), "1Gi");
        for (text, written) in [
            ("0h", "0s"),
            ("500ms", "500ms"),
            ("1000ms", "1s"),
            ("90s", "90s"),
            ("300s", "5m"),
            ("60m", "1h"),
        ] {
            assert_eq!(text.parse::<Period>().unwrap().to_string(), written);
        }
        let whole = serde_json::to_value(Policy::default()).unwrap();
        assert_eq!(whole["coschedule"]["gracePeriod"], "30s");
        assert_eq!(whole["coschedule"]["groupTTL"], "5m");
        assert_eq!(whole["coschedule"]["placeholder"]["requests"]["cpu"], "10m");
        assert_eq!(serde_json::from_value::<Policy>(whole).unwrap(), Policy::default());
    }
}
