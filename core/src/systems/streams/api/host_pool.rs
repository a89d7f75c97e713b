//! HostPool: hosts that pods can ask for by one name (Streams design, "Hostpools").

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::condition::Condition;
use crate::api::rules::{Holds, LABEL_NAME, Rule, validations};

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
    crates(kube_core = "kube_core"),
    shortname = "hp",
    category = "stowplan",
    status = "HostPoolStatus",
    doc = "Hosts that pods can ask for by one name: a list of them, or what they must be like.",
    printcolumn = r#"{"name":"Size","type":"integer","jsonPath":".spec.size"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].reason"}"#,
    printcolumn = r#"{"name":"Tags","type":"string","jsonPath":".spec.tags","priority":1}"#,
    printcolumn = r#"{"name":"Hosts","type":"string","jsonPath":".spec.hosts","priority":1}"#,
    printcolumn = r#"{"name":"Exclusivity","type":"string","jsonPath":".spec.exclusivity"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[schemars(extend("x-kubernetes-validations" = validations(RULES)))]
#[serde(rename_all = "camelCase")]
pub struct HostPoolSpec {
    /// The hosts by name or IP address. Their order is meaning: `pool[0]` is the first. Excludes
    /// size and tags.
    // The API server itself finds duplicates in a set; a rule that compares each with each exceeds its
    // budget for 256 long names.
    #[schemars(
        with = "Vec<String>",
        length(min = 1, max = MAX_HOSTS),
        inner(length(min = 1, max = 253)),
        extend("x-kubernetes-list-type" = "set")
    )]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
    /// How many hosts the pool has. Without it, every node that carries the tags belongs to it.
    #[schemars(with = "i32", range(min = 1, max = 5000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u32>,
    /// What a host must carry, all of it: one tag is the node label
    /// `streams.ibm.com/hostpool=<tag>`, several are one node label `hostpool.streams.ibm.com/<tag>`
    /// each.
    #[schemars(
        with = "Vec<String>",
        length(min = 1, max = 16),
        inner(length(min = 1, max = 63), regex(pattern = LABEL_NAME.regex)),
        extend("x-kubernetes-list-type" = "set")
    )]
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

/// What the controller has made of a pool.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostPoolStatus {
    /// Accepted: the pool can be served. Ready: its members are there.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The hosts of a pool that has a size or a list, by index.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["index"]))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Member>,
    /// The key of the node label by which pods find the members; its value is the index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_label: Option<String>,
    /// The taint that keeps other pods off the node, as `key=value:effect`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclusive_taint: Option<String>,
}

impl HostPoolStatus {
    /// Returns the members that have a node: the index of each, and the node.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (u32, &str)> {
        let members = self.members.iter().filter(|member| member.state != MemberState::Vacant);
        members.filter_map(|member| Some((member.index, member.node.as_deref()?)))
    }
}

/// One host of a pool.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// Its place in the pool, from 0. It never moves while the member lives.
    #[schemars(extend("format" = "int32"))]
    pub index: u32,
    /// The node's name. A vacant place keeps the name of the node that it lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The node's UID: a node that is made again under its old name is another node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Whether pods can find it.
    pub state: MemberState,
    /// Since when.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub since: Time,
}

/// Whether pods can find a member.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum MemberState {
    /// The node carries the pool's label.
    Ready,
    /// The node was lost, and no other has taken its place.
    Vacant,
    /// The node is chosen, and not ready for the pool yet.
    Reserving,
}

/// The rules between the fields of a spec, and for its changes. They are on `spec`: a transition
/// rule on an optional field is skipped when the field is added or removed.
pub(crate) const RULES: &[Rule] = &[
    Rule {
        cel: "!has(self.hosts) || (!has(self.size) && !has(self.tags))",
        message: "hosts excludes size and tags: a list of hosts has its own length",
        holds: Holds::Alone(|pool| {
            !has(pool, "hosts") || !(has(pool, "size") || has(pool, "tags"))
        }),
    },
    Rule {
        cel: "self.exclusivity != 'Exclusive' || has(self.size) || has(self.hosts)",
        message: "Exclusive needs size or hosts: they limit how many nodes it reserves",
        holds: Holds::Alone(|pool| {
            pool["exclusivity"] != "Exclusive" || has(pool, "size") || has(pool, "hosts")
        }),
    },
    // Order is meaning, and sets compare without it: `map` makes plain lists of them.
    Rule {
        cel: "has(self.hosts) == has(oldSelf.hosts) && (!has(self.hosts) || self.hosts.map(h, h) == oldSelf.hosts.map(h, h))",
        message: "hosts is immutable: make a new pool",
        holds: Holds::Since(|pool, old| pool["hosts"] == old["hosts"]),
    },
    Rule {
        cel: "has(self.tags) == has(oldSelf.tags) && (!has(self.tags) || self.tags == oldSelf.tags)",
        message: "tags is immutable: make a new pool",
        holds: Holds::Since(|pool, old| {
            let tags = |pool: &Value| {
                let mut tags: Vec<String> =
                    pool["tags"].as_array().into_iter().flatten().map(Value::to_string).collect();
                tags.sort_unstable();
                tags
            };
            tags(pool) == tags(old)
        }),
    },
    Rule {
        cel: "self.exclusivity == oldSelf.exclusivity",
        message: "exclusivity is immutable: make a new pool",
        holds: Holds::Since(|pool, old| pool["exclusivity"] == old["exclusivity"]),
    },
    Rule {
        cel: "has(self.size) == has(oldSelf.size) && (!has(self.size) || self.size >= oldSelf.size)",
        message: "size can only grow: make a new pool",
        holds: Holds::Since(|pool, old| {
            let size = |pool: &Value| pool["size"].as_i64();
            size(pool).is_some() == size(old).is_some() && size(pool) >= size(old)
        }),
    },
];

fn has(object: &Value, field: &str) -> bool {
    object.get(field).is_some()
}
