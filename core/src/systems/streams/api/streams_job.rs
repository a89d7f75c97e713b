//! StreamsJob: what the submission of a Streams job says of hosts: its pools and, for each
//! processing element, its operators with their host constraints (Streams design, "Host
//! Constraints").

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::ValidationRule;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::host_pool::{self, Exclusivity, MAX_HOSTS};
use crate::api::condition::Condition;
use crate::api::rules::{Holds, IDENTIFIER, LABEL_NAME, Rule, length, validations};

/// The most pools of a job.
pub const MAX_POOLS: usize = 64;
/// The most processing elements of a job.
pub const MAX_ELEMENTS: usize = 1000;
/// The most operators of a processing element.
pub const MAX_OPERATORS: usize = 200;
/// The most tokens of one kind on an operator.
pub const MAX_TOKENS: usize = 16;

/// A job: its host pools, and what its processing elements ask for.
#[derive(
    Clone, CustomResource, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize,
)]
#[kube(
    group = "stowplan.dev",
    version = "v1alpha1",
    kind = "StreamsJob",
    namespaced,
    crates(kube_core = "kube_core"),
    shortname = "sj",
    category = "stowplan",
    status = "StreamsJobStatus",
    doc = "A Streams job: its host pools, and the host constraints of its processing elements.",
    printcolumn = r#"{"name":"Accepted","type":"string","jsonPath":".status.conditions[?(@.type=='Accepted')].status"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].reason"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[schemars(extend("x-kubernetes-validations" = validations(RULES)))]
#[serde(rename_all = "camelCase")]
pub struct StreamsJobSpec {
    /// Whether colocation, exlocation and isolation must hold or are only preferred.
    #[serde(default)]
    pub enforcement: Enforcement,
    /// The job's pools. Each becomes a HostPool that this job owns.
    #[schemars(
        length(max = MAX_POOLS),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<Pool>,
    /// The job's processing elements. One is one pod, labelled `streams.ibm.com/pe`.
    #[schemars(
        length(max = MAX_ELEMENTS),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processing_elements: Vec<ProcessingElement>,
}

/// Whether constraints between pods must hold.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Enforcement {
    /// A pod waits until they hold.
    #[default]
    Required,
    /// The scheduler favours them.
    Preferred,
}

/// A pool of the job: a list of hosts, or what they must be like (`createPool`).
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(extend("x-kubernetes-validations" = pool_rules()))]
#[serde(rename_all = "camelCase")]
pub struct Pool {
    /// Its SPL name.
    #[schemars(length(min = 1, max = 253), regex(pattern = IDENTIFIER.regex))]
    pub name: String,
    /// The hosts by name or IP address, in order. Excludes size and tags.
    #[schemars(
        with = "Vec<String>",
        length(min = 1, max = MAX_HOSTS),
        inner(length(min = 1, max = 253)),
        extend("x-kubernetes-list-type" = "atomic")
    )]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
    /// How many hosts the pool has.
    #[schemars(with = "i32", range(min = 1, max = 5000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u32>,
    /// What a host must carry, all of it.
    #[schemars(
        with = "Vec<String>",
        length(min = 1, max = 16),
        inner(length(min = 1, max = 63), regex(pattern = LABEL_NAME.regex)),
        extend("x-kubernetes-list-type" = "atomic")
    )]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    /// Whether other jobs may use the hosts.
    #[serde(default)]
    pub exclusivity: Exclusivity,
}

/// A processing element: what runs as one pod.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessingElement {
    /// Its name, the value of the pod's label `streams.ibm.com/pe`.
    #[schemars(length(min = 1, max = 63), regex(pattern = LABEL_NAME.regex))]
    pub name: String,
    /// The operators that were fused into it. Its constraints are the union of theirs.
    #[schemars(
        length(max = MAX_OPERATORS),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operators: Vec<Operator>,
}

/// An operator and its host constraints (SPL, `placement`).
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Operator {
    /// Its name in the job.
    #[schemars(length(min = 1, max = 1024))]
    pub name: String,
    /// `host(...)`.
    #[schemars(with = "Host")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// `hostColocation(...)`: one host for all operators with an equal token.
    #[schemars(length(max = MAX_TOKENS), inner(length(min = 1, max = 1024)))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_colocation: Vec<String>,
    /// `hostExlocation(...)`: pairwise different hosts for all operators with an equal token.
    #[schemars(length(max = MAX_TOKENS), inner(length(min = 1, max = 1024)))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_exlocation: Vec<String>,
    /// `hostIsolation`: a host without any other processing element of the job.
    #[serde(default)]
    pub host_isolation: bool,
}

/// A host: exactly one of name, address and pool.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(extend("x-kubernetes-validations" = validations(HOST_RULES)))]
#[serde(rename_all = "camelCase")]
pub struct Host {
    /// `host("foo.watson.ibm.com")`.
    #[schemars(with = "String", length(min = 1, max = 253))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `host("10.4.40.83")`.
    #[schemars(with = "String", length(min = 1, max = 45))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// `host(Pool)`: a pool of the job, by its SPL name.
    #[schemars(with = "String", length(min = 1, max = 253))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// `host(Pool[5])`: the member of that pool, from 0.
    #[schemars(with = "i32", range(min = 0, max = 4999))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
}

/// What the controller has made of a job.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StreamsJobStatus {
    /// Accepted: the job can be placed. Ready: its pools are.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The HostPools of the job, by SPL name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<OwnedPool>,
    /// Processing elements that share a host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Group>,
    /// The order in which to create the pods so that none is stranded: constrained ones first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub creation_order: Vec<String>,
    /// The nodes that are reserved for processing elements, so that none of the job is stranded. Absent
    /// until a placement of the whole job is found; its pods wait for it where they could take nodes
    /// from each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub witness: Option<JobPlacement>,
}

/// The part of a placement of the whole job that its pods are held to.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobPlacement {
    /// The nodes that are reserved. The other processing elements may go to any node that their
    /// constraints allow, but for the reserved nodes of those from which they must be apart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<ReservedNode>,
    /// When the nodes last changed.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub since: Time,
    /// How often they changed because a pod found no room on its node.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub moves: u32,
}

impl JobPlacement {
    /// These nodes, reserved at `now`.
    pub(crate) fn new(nodes: Vec<ReservedNode>, now: Timestamp) -> Self {
        // The API server keeps whole seconds.
        let since = Timestamp::from_second(now.as_second()).unwrap_or(now);
        Self { nodes, since: Time(since), moves: 0 }
    }
}

/// A node that is reserved.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReservedNode {
    /// The node's name.
    pub name: String,
    /// The processing elements that it is reserved for, in the order of the spec.
    pub processing_elements: Vec<String>,
}

impl ReservedNode {
    /// Formats the node and the processing elements that it is reserved for: `node n1 reserved for a, b`.
    pub(crate) fn format(&self) -> String {
        format!("node {} reserved for {}", self.name, self.processing_elements.join(", "))
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A HostPool of a job.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnedPool {
    /// Its SPL name.
    pub name: String,
    /// The HostPool's name.
    pub host_pool: String,
}

/// Processing elements that share a host.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// The value of the label `stowplan.dev/colocation-group` of their pods.
    pub name: String,
    /// The processing elements, in the order of the spec.
    pub processing_elements: Vec<String>,
    /// The node on which they are, once one of them is bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// The rules of a HostPool for a pool of a job. A HostPool's lists are sets; here they stay plain, and the
/// check finds what is there twice: sets compare without their order, and making them lists again for each
/// of 64 pools costs more than the API server spends on a rule.
fn pool_rules() -> Vec<ValidationRule> {
    let mut rules = validations(host_pool::RULES);
    for of in &mut rules {
        of.rule = of.rule.replace(".map(h, h)", "");
        of.message = of.message.take().map(|message| message.replace("a new pool", "a new job"));
    }
    rules
}

/// The cheap rules for changes of a job: only pools may grow, which the rules of each pool check. The
/// contents of elements are too expensive for a rule, so `/validate` compares them.
pub(crate) const RULES: &[Rule] = &[
    Rule {
        cel: "self.enforcement == oldSelf.enforcement",
        message: "enforcement is immutable: make a new job",
        holds: Holds::Since(|job, old| job["enforcement"] == old["enforcement"]),
    },
    Rule {
        cel: "has(self.pools) == has(oldSelf.pools) && (!has(self.pools) || self.pools.size() == oldSelf.pools.size())",
        message: "pools neither come nor go: make a new job",
        holds: Holds::Since(|job, old| length(job, "pools") == length(old, "pools")),
    },
    Rule {
        cel: "has(self.processingElements) == has(oldSelf.processingElements) && (!has(self.processingElements) || self.processingElements.size() == oldSelf.processingElements.size())",
        message: "processing elements neither come nor go: make a new job",
        holds: Holds::Since(|job, old| {
            length(job, "processingElements") == length(old, "processingElements")
        }),
    },
];

/// The rules of the host of an operator. No list and no macro in them: as often as they may be
/// evaluated, for each of 200,000 operators, the API server would refuse the whole definition for
/// the cost.
pub(crate) const HOST_RULES: &[Rule] = &[
    Rule {
        cel: "(has(self.name) ? 1 : 0) + (has(self.address) ? 1 : 0) + (has(self.pool) ? 1 : 0) == 1",
        message: "give exactly one of name, address and pool",
        holds: Holds::Alone(|host| {
            let given = ["name", "address", "pool"].iter().filter(|key| host.get(key).is_some());
            given.count() == 1
        }),
    },
    Rule {
        cel: "!has(self.index) || has(self.pool)",
        message: "index is allowed only beside pool",
        holds: Holds::Alone(|host| host.get("index").is_none() || host.get("pool").is_some()),
    },
];
