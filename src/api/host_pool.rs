//! HostPool: hosts that pods can ask for by one name (Streams design, "Hostpools").

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, ValidationRule,
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most hosts that a pool can list. Each is a node selector term of its own in a pod.
pub const MAX_HOSTS: usize = 256;

/// What hosts a pool has: a list of them, or what they must be like.
#[derive(
    Clone, CustomResource, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize,
)]
#[kube(
    group = "stowplan.dev",
    version = "v1alpha1",
    kind = "HostPool",
    namespaced,
    shortname = "hp",
    category = "stowplan",
    doc = "Hosts that pods can ask for by one name: a list of them, or what they must be like.",
    printcolumn = r#"{"name":"Size","type":"integer","jsonPath":".spec.size"}"#,
    printcolumn = r#"{"name":"Tags","type":"string","jsonPath":".spec.tags"}"#,
    printcolumn = r#"{"name":"Hosts","type":"string","jsonPath":".spec.hosts","priority":1}"#,
    printcolumn = r#"{"name":"Exclusivity","type":"string","jsonPath":".spec.exclusivity"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct HostPoolSpec {
    /// The hosts by name or IP address. Their order is meaning: `pool[0]` is the first. Excludes
    /// size and tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
    /// How many hosts the pool has. Without it, every node that carries the tags belongs to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u32>,
    /// What a host must carry, all of it: one tag is the node label
    /// `streams.ibm.com/hostpool=<tag>`, several are one node label `hostpool.streams.ibm.com/<tag>`
    /// each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    /// Whether other jobs may use the hosts.
    #[serde(default)]
    pub exclusivity: Exclusivity,
}

/// Whether other jobs may use a pool's hosts.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Exclusivity {
    /// They may.
    #[default]
    Shared,
    /// They may not. Needs size or hosts.
    Exclusive,
}

/// The definition, with what a Rust type cannot say: bounds, and rules between fields.
#[must_use]
pub(super) fn definition(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut definition.spec.versions {
        let schema = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut());
        let spec = schema.and_then(|schema| schema.properties.as_mut()?.get_mut("spec"));
        if let Some(spec) = spec {
            constrain(spec);
        }
    }
    definition
}

fn constrain(spec: &mut JSONSchemaProps) {
    let properties = spec.properties.get_or_insert_default();
    if let Some(hosts) = properties.get_mut("hosts") {
        hosts.nullable = None;
        hosts.min_items = Some(1);
        hosts.max_items = i64::try_from(MAX_HOSTS).ok();
        // The API server itself finds duplicates in a set; a rule that compares each with each
        // exceeds its budget for 256 long names.
        hosts.x_kubernetes_list_type = Some("set".to_owned());
        items(hosts, 1, 253);
    }
    if let Some(size) = properties.get_mut("size") {
        size.nullable = None;
        size.format = Some("int32".to_owned());
        size.minimum = Some(1.0);
        size.maximum = Some(5000.0);
    }
    if let Some(tags) = properties.get_mut("tags") {
        tags.nullable = None;
        tags.min_items = Some(1);
        tags.max_items = Some(16);
        tags.x_kubernetes_list_type = Some("set".to_owned());
        items(tags, 1, 63);
        if let Some(item) = item_schema(tags) {
            item.pattern = Some("^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$".to_owned());
        }
    }
    spec.x_kubernetes_validations = Some(vec![
        rule(
            "!has(self.hosts) || (!has(self.size) && !has(self.tags))",
            "hosts excludes size and tags: a list of hosts has its own length",
        ),
        rule(
            "self.exclusivity != 'Exclusive' || has(self.size) || has(self.hosts)",
            "Exclusive needs size or hosts: a pool without an end cannot be reserved",
        ),
        // These stand on `spec`: a transition rule on an optional field is skipped when the field
        // comes or goes.
        // Order is meaning, and sets compare without it: `map` makes plain lists of them.
        rule(
            "has(self.hosts) == has(oldSelf.hosts) && (!has(self.hosts) || self.hosts.map(h, h) == oldSelf.hosts.map(h, h))",
            "hosts is immutable: make a new pool",
        ),
        rule(
            "has(self.tags) == has(oldSelf.tags) && (!has(self.tags) || self.tags == oldSelf.tags)",
            "tags is immutable: make a new pool",
        ),
        rule(
            "self.exclusivity == oldSelf.exclusivity",
            "exclusivity is immutable: make a new pool",
        ),
        rule(
            "has(self.size) == has(oldSelf.size) && (!has(self.size) || self.size >= oldSelf.size)",
            "size can only grow: make a new pool",
        ),
    ]);
}

fn items(list: &mut JSONSchemaProps, shortest: i64, longest: i64) {
    if let Some(item) = item_schema(list) {
        item.min_length = Some(shortest);
        item.max_length = Some(longest);
    }
}

fn item_schema(list: &mut JSONSchemaProps) -> Option<&mut JSONSchemaProps> {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaPropsOrArray;
    match list.items.as_mut() {
        Some(JSONSchemaPropsOrArray::Schema(item)) => Some(item),
        _ => None,
    }
}

fn rule(rule: &str, message: &str) -> ValidationRule {
    ValidationRule {
        rule: rule.to_owned(),
        message: Some(message.to_owned()),
        ..ValidationRule::default()
    }
}
