//! What holds for every pod, claim, View and policy: the patch applies, a second round changes nothing,
//! nothing of the user's is lost, and the nodes that are left are those that the constraint means.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "how a helper of tests fails; clippy.toml frees only the tests"
)]

#[path = "common/pods.rs"]
mod pods;

use std::collections::BTreeSet;

use pods::{
    Kind, decide_bytes, decide_pod, keeps, patch_of, patched, review_of, touched_by_others, typed,
    view_of,
};
use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};
use serde_json::{Map, Value, json};
use stowplan::admission::{Decision, Review};
use stowplan::placement::claim::{self, CLASS_ANNOTATION, Claim};
use stowplan::placement::intent::{Enforcement, Intent, PodTerm, Selector, Wish, on_node};
use stowplan::placement::merge::{merge, takes_pod_term};
use stowplan::placement::pod::{Object, Pod};
use stowplan::placement::reason::{Finding, Reason};
use stowplan::policy::Policy;
use stowplan::view::View;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const HOSTNAME: &str = "kubernetes.io/hostname";

// ---- Clusters ------------------------------------------------------------------------------------

/// A node, as its labels and addresses; the name is its place in the list.
#[derive(Clone, Debug)]
struct Node {
    name: String,
    labels: Map<String, Value>,
    address: String,
    host_name: Option<String>,
}

#[derive(Clone, Debug)]
struct Cluster {
    nodes: Vec<Node>,
    /// The hosts of the pool `literal`.
    literal: Vec<String>,
    /// Where a pod of job `j` with colocation token `together` runs.
    group: Option<String>,
}

fn cluster() -> impl Strategy<Value = Cluster> {
    let node = (
        prop::option::weighted(0.1, select(vec!["10.0.0.1", "2001:db8::1"])),
        of(select(vec!["Alias", "n1", "other.example.com"])),
        of(select(vec!["a", "b"])),
        any::<[bool; 4]>(),
    );
    let hosts =
        vec!["n0", "n1", "n2", "10.0.0.3", "::ffff:10.0.0.4", "n1", "n9", "2001:DB8::1", "alias"];
    let hosts = (1..4_usize, any::<bool>()).prop_flat_map(move |(count, odd)| {
        subsequence(hosts[..if odd { hosts.len() } else { 5 }].to_vec(), count)
    });
    (vec(node, 1..6), hosts.prop_shuffle(), of(select(vec!["n0", "n1"]))).prop_map(
        |(nodes, literal, group)| {
            let nodes =
                nodes.into_iter().enumerate().map(|(index, (address, host_name, zone, has))| {
                    let name = format!("n{index}");
                    let mut labels = Map::new();
                    if has[0] || index == 0 {
                        labels.insert(HOSTNAME.to_owned(), json!(name));
                    }
                    labels.extend(zone.map(|zone| ("zone".to_owned(), json!(zone))));
                    for (has, key, value) in [
                        (has[1], "streams.ibm.com/hostpool", "ib"),
                        (has[2], "hostpool.streams.ibm.com/ib", ""),
                        (has[3], "hostpool.streams.ibm.com/blue", "yes"),
                    ] {
                        if has {
                            labels.insert(key.to_owned(), json!(value));
                        }
                    }
                    let address = address.map_or_else(|| format!("10.0.0.{index}"), str::to_owned);
                    Node { name, labels, address, host_name: host_name.map(str::to_owned) }
                });
            Cluster {
                nodes: nodes.collect(),
                literal: literal.into_iter().map(str::to_owned).collect(),
                group: group.map(str::to_owned),
            }
        },
    )
}

impl Cluster {
    fn view(&self) -> View {
        let nodes = self.nodes.iter().map(|node| {
            let mut addresses = vec![json!({"type": "InternalIP", "address": node.address})];
            addresses.extend(node.host_name.iter().map(|name| json!({"type": "Hostname", "address": name})));
            json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": node.name, "labels": node.labels}, "status": {"addresses": addresses},
            })
        });
        let pools = [
            ("literal", json!({"hosts": self.literal})),
            ("tagged", json!({"tags": ["ib"]})),
            ("tags", json!({"tags": ["ib", "blue"]})),
            ("any", json!({})),
            ("sized", json!({"size": 2})),
            ("broken", json!({"exclusivity": "Exclusive"})),
        ];
        let pools = pools.into_iter().map(|(name, spec)| {
            json!({
                "apiVersion": "stowplan.dev/v1alpha1", "kind": "HostPool",
                "metadata": {"name": name, "namespace": "default"}, "spec": spec,
            })
        });
        let group = self.group.iter().map(|node| {
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "member", "namespace": "default", "labels": {
                    "streams.ibm.com/job": "j",
                    "streams.ibm.com/hostcolocation.9034FF9E2B8F00B47A44DFAF3C2A37176C101E2A": "together",
                }},
                "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
            })
        });
        view_of(nodes.chain(pools).chain(group))
    }

    fn names(&self, holds: impl Fn(&Node) -> bool) -> BTreeSet<&str> {
        self.nodes.iter().filter(|node| holds(node)).map(|node| node.name.as_str()).collect()
    }

    /// The nodes that a host of the design means: by address, else by name, else by host name.
    fn hosts(&self, text: &str) -> BTreeSet<&str> {
        let address = |text: &str| {
            text.parse::<std::net::IpAddr>().ok().map(|address| address.to_canonical())
        };
        if let Some(wanted) = address(text) {
            return self.names(|node| address(&node.address) == Some(wanted));
        }
        let by_name = self.names(|node| node.name == text);
        match by_name.is_empty() {
            true => self.names(|node| {
                node.host_name.as_ref().is_some_and(|name| name.eq_ignore_ascii_case(text))
            }),
            false => by_name,
        }
    }

    /// The nodes that the annotations of an admitted pod mean.
    fn meant(&self, annotations: &Value) -> BTreeSet<&str> {
        let value = |key: &str| annotations[format!("streams.ibm.com/{key}")].as_str();
        let mut meant = self.names(|_| true);
        if let Some(host) = value("host") {
            meant = &meant & &self.hosts(host);
        }
        let pool =
            match value("host-pool") {
                None | Some("any") => None,
                Some("literal") => {
                    Some(self.literal.iter().flat_map(|host| self.hosts(host)).collect())
                }
                Some("tagged") => Some(self.names(|node| {
                    node.labels.get("streams.ibm.com/hostpool") == Some(&json!("ib"))
                })),
                Some("tags") => Some(self.names(|node| {
                    ["ib", "blue"].iter().all(|tag| {
                        node.labels.contains_key(&format!("hostpool.streams.ibm.com/{tag}"))
                    })
                })),
                Some(member) => {
                    let index = member
                        .strip_prefix("literal[")
                        .and_then(|rest| rest.strip_suffix(']'))
                        .expect("a member");
                    Some(self.hosts(&self.literal[index.parse::<usize>().unwrap()]))
                }
            };
        if let Some(pool) = pool {
            meant = &meant & &pool;
        }
        let apart = value("host-exlocation").is_some() || value("host-isolation").is_some();
        if apart && value("host-enforcement") != Some("preferred") {
            meant = &meant & &self.names(|node| node.labels.contains_key(HOSTNAME));
        }
        meant
    }

    /// The nodes that a scheduler would take by the pod's required node affinity.
    fn allowed(&self, pod: &Value) -> BTreeSet<&str> {
        let terms =
            pod.pointer(&format!("/spec/affinity/nodeAffinity/{REQUIRED}/nodeSelectorTerms"));
        match terms.and_then(Value::as_array) {
            None => self.names(|_| true),
            Some(terms) => self.names(|node| terms.iter().any(|term| matches(term, node))),
        }
    }
}

/// Whether a node selector term selects a node (Kubernetes API, `NodeSelectorTerm`).
fn matches(term: &Value, node: &Node) -> bool {
    let list = |member: &str| term[member].as_array().cloned().unwrap_or_default();
    let (fields, expressions) = (list("matchFields"), list("matchExpressions"));
    let name = Map::from_iter([("metadata.name".to_owned(), json!(node.name))]);
    !(fields.is_empty() && expressions.is_empty())
        && fields.iter().all(|requirement| holds(requirement, &name))
        && expressions.iter().all(|requirement| holds(requirement, &node.labels))
}

fn holds(requirement: &Value, labels: &Map<String, Value>) -> bool {
    let present = labels.get(requirement["key"].as_str().unwrap());
    let listed = requirement["values"]
        .as_array()
        .is_some_and(|values| present.is_some_and(|p| values.contains(p)));
    match requirement["operator"].as_str().unwrap() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => present.is_some(),
        "DoesNotExist" => present.is_none(),
        operator => panic!("{operator}"),
    }
}

// ---- Policies ------------------------------------------------------------------------------------

fn policy() -> impl Strategy<Value = Policy> {
    (select(vec!["refuse", "warn"]), any::<bool>(), select(vec!["none", "seed"]), prop::bool::weighted(0.9)).prop_map(
        |(on_invalid, record, compat, pools)| {
            let text = format!(
                "onInvalid: {on_invalid}\nrecordPlacement: {record}\nstreams: {{compat: {compat}}}\nhostPools: {{enabled: {pools}}}"
            );
            Policy::from_yaml(&text).unwrap()
        },
    )
}

// ---- Pods ----------------------------------------------------------------------------------------

/// The value, or one of the ways in which it may be missing: absent, null, empty.
fn perhaps(
    value: impl Strategy<Value = Value> + 'static,
    empty: Value,
) -> impl Strategy<Value = Option<Value>> {
    prop_oneof![1 => Just(None), 1 => Just(Some(Value::Null)), 1 => Just(Some(empty)), 4 => value.prop_map(Some)]
}

fn object(members: Vec<(&str, Option<Value>)>) -> Value {
    let present = members.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    Value::Object(present.collect())
}

fn requirement() -> impl Strategy<Value = Value> {
    let with_values = (
        select(vec!["zone", HOSTNAME, "streams.ibm.com/hostpool", "rack"]),
        select(vec!["In", "NotIn"]),
        subsequence(vec!["a", "b", "n0", "n1", "ib"], 1..3),
    )
        .prop_map(
            |(key, operator, values)| json!({"key": key, "operator": operator, "values": values}),
        );
    let without = (select(vec!["zone", HOSTNAME, "rack"]), select(vec!["Exists", "DoesNotExist"]))
        .prop_map(|(key, operator)| json!({"key": key, "operator": operator}));
    prop_oneof![with_values, without]
}

fn field() -> impl Strategy<Value = Value> {
    (select(vec!["In", "NotIn"]), select(vec!["n0", "n1", "n2"])).prop_map(
        |(operator, node)| json!({"key": "metadata.name", "operator": operator, "values": [node]}),
    )
}

fn node_term() -> impl Strategy<Value = Value> {
    (
        perhaps(vec(requirement(), 1..3).prop_map(Value::from), json!([])),
        perhaps(vec(field(), 1..3).prop_map(Value::from), json!([])),
        any::<bool>(),
    )
        .prop_map(|(expressions, fields, future)| {
            let is_empty = |list: &Option<Value>| {
                list.as_ref().and_then(Value::as_array).is_none_or(Vec::is_empty)
            };
            let meaningless = is_empty(&expressions) && is_empty(&fields);
            object(vec![
                ("matchExpressions", expressions),
                ("matchFields", fields),
                ("futureMatch", (future && !meaningless).then(|| json!({"any": 1}))),
            ])
        })
}

fn pod_term() -> impl Strategy<Value = Value> {
    select(vec![
        json!({"labelSelector": {"matchLabels": {"app": "cache"}}, "topologyKey": "zone"}),
        json!({"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}, "topologyKey": HOSTNAME}),
        json!({"topologyKey": HOSTNAME, "namespaceSelector": {}, "futureField": [1]}),
        json!({"topologyKey": HOSTNAME, "labelSelector": {"matchExpressions": [
            {"key": "streams.ibm.com/job", "operator": "In", "values": ["j"]},
            {"key": "streams.ibm.com/pe", "operator": "NotIn", "values": ["j-0"]},
        ]}}),
    ])
}

fn pod_affinity() -> impl Strategy<Value = Option<Value>> {
    let weighted = pod_term().prop_map(|term| json!({"weight": 3, "podAffinityTerm": term}));
    let lists = (
        perhaps(vec(pod_term(), 1..3).prop_map(Value::from), json!([])),
        perhaps(vec(weighted, 1..3).prop_map(Value::from), json!([])),
    )
        .prop_map(|(required, preferred)| {
            object(vec![(REQUIRED, required), (PREFERRED, preferred)])
        });
    perhaps(lists, json!({}))
}

fn affinity() -> impl Strategy<Value = Option<Value>> {
    let selector = prop_oneof![
        1 => Just(None),
        1 => Just(Some(Value::Null)),
        6 => vec(node_term(), 1..4).prop_map(|terms| Some(json!({"nodeSelectorTerms": terms, "futureField": true}))),
    ];
    let preference = json!([{"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}]);
    let node =
        (selector, perhaps(Just(preference), json!([]))).prop_map(|(required, preferred)| {
            object(vec![(REQUIRED, required), (PREFERRED, preferred)])
        });
    let members = (perhaps(node, json!({})), pod_affinity(), pod_affinity(), any::<bool>())
        .prop_map(|(node, pod, anti, future)| {
            object(vec![
                ("nodeAffinity", node),
                ("podAffinity", pod),
                ("podAntiAffinity", anti),
                ("futureAffinity", future.then(|| json!({"x": [null]}))),
            ])
        });
    perhaps(members, json!({}))
}

fn annotations() -> impl Strategy<Value = Map<String, Value>> {
    let value = |often: f64, valid: &[&str], odd: &[&str]| {
        let owned = |values: &[&str]| -> Vec<String> {
            values.iter().map(|&value| value.to_owned()).collect()
        };
        let value =
            prop_oneof![14 => select(owned(valid)), 2 => select(owned(odd)), 1 => ".{0,12}"];
        prop::option::weighted(often, value)
    };
    let ours = (
        value(0.6, &["n0", "n1", "n2"], &["n9", "10.0.0.1", "::ffff:10.0.0.2", "alias", "N1"]),
        value(
            0.6,
            &["literal", "literal", "literal[0]", "tagged", "tags"],
            &["literal[1]", "literal[7]", "any", "any[0]", "sized", "broken", "none"],
        ),
        value(0.3, &["together", "my group/é", "[\"one\"]"], &["[\"a\",\"b\"]"]),
        value(0.3, &["apart", "[\"apart\",\"far\"]", "together"], &["[]"]),
        value(0.15, &["Sink", "Main.Sink[0]"], &["true"]),
        value(0.3, &["preferred", "required"], &["maybe"]),
    );
    let others = btree_map("[a-z]{1,5}(/[a-z~]{1,5})?", ".{0,8}", 0..3);
    let record = of(prop_oneof![
        Just("forged".to_owned()),
        Just(r#"{"v":1,"streams":["host=n1: node n1","host-pool=literal: one of 2 nodes"],"more":0}"#.to_owned()),
    ]);
    // Either a location or a pool, nearly always: both are refused.
    (ours, others, record, 0..20_u8, prop::bool::weighted(0.15), prop::bool::weighted(0.1))
        .prop_map(|(ours, others, record, location, with_record, unknown)| {
            let (host, pool, colocation, exlocation, isolation, enforcement) = ours;
            let (host, pool) = match location {
                0 => (host, pool),
                1..=9 => (host, None),
                _ => (None, pool),
            };
            let named = [
                ("host", host),
                ("host-pool", pool),
                ("host-colocation", colocation),
                ("host-exlocation", exlocation),
                ("host-isolation", isolation),
                ("host-enforcement", enforcement),
            ];
            let mut all: Map<String, Value> =
                others.into_iter().map(|(key, value)| (key, Value::String(value))).collect();
            all.extend(named.into_iter().filter_map(|(key, value)| {
                Some((format!("streams.ibm.com/{key}"), value?.into()))
            }));
            if let (Some(record), true) = (record, with_record) {
                all.insert(pods::RECORD.to_owned(), record.into());
            }
            if unknown {
                all.insert("stowplan.dev/future".to_owned(), "x".into());
            }
            all
        })
}

fn gates() -> impl Strategy<Value = Value> {
    let gate = |name: &str| json!({"name": name, "futureField": 1});
    subsequence(vec![gate("example.com/wait"), gate(GATE), json!({})], 1..3).prop_map(Value::from)
}

fn volumes() -> impl Strategy<Value = Value> {
    let claim = |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": name, "readOnly": true}});
    let volume = select(vec![
        claim("pvc-1"),
        claim("pvc-2"),
        claim(&"p".repeat(63)),
        json!({"name": "other", "emptyDir": {}, "futureField": {"persistentVolumeClaim": {"claimName": "pvc-1"}}}),
        json!({"name": "nothing", "persistentVolumeClaim": null}),
    ]);
    vec(volume, 1..5).prop_map(Value::from)
}

fn pod() -> impl Strategy<Value = Value> {
    let labels = subsequence(
        vec![
            ("streams.ibm.com/job", "j"),
            ("streams.ibm.com/pe", "j-0"),
            ("app", "streams"),
            ("a/b~c", "d"),
            ("streams.ibm.com/hostexlocation.B76ADE163D874CC5BC0F408D70CFC165667EEC5F", "apart"),
        ],
        0..5,
    )
    .prop_map(|labels| {
        labels.into_iter().map(|(key, value)| (key.to_owned(), json!(value))).collect::<Map<_, _>>()
    });
    let both = Just(json!({"streams.ibm.com/job": "j", "streams.ibm.com/pe": "j-0"}));
    let labels = prop_oneof![labels.prop_map(Value::Object), both];
    (
        perhaps(labels, json!({})),
        annotations(),
        affinity(),
        of(select(vec!["n0", "n1", ""])),
        perhaps(gates(), json!([])),
        perhaps(Just(json!([{"key": "k", "operator": "Exists"}])), json!([])),
        perhaps(volumes(), json!([])),
    )
        .prop_map(|(labels, annotations, affinity, node_name, gates, tolerations, volumes)| {
            let metadata = object(vec![
                ("generateName", Some(json!("p-"))),
                ("labels", labels),
                ("annotations", Some(Value::Object(annotations))),
                ("futureField", Some(json!({"a": null}))),
            ]);
            let spec = object(vec![
                ("nodeName", node_name.map(Value::from)),
                ("affinity", affinity),
                ("schedulingGates", gates),
                ("tolerations", tolerations),
                ("volumes", volumes),
                ("containers", Some(json!([{"name": "c", "image": "i", "futureField": 7}]))),
                ("futureField", Some(json!(["x"]))),
            ]);
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        })
}

/// A pod of a literal pool whose author has terms of his own: they are multiplied.
fn crossing_pod() -> impl Strategy<Value = Value> {
    (vec(node_term(), 1..4), any::<bool>()).prop_map(|(terms, apart)| {
        let mut annotations =
            Map::from_iter([("streams.ibm.com/host-pool".to_owned(), json!("literal"))]);
        annotations
            .extend(apart.then(|| ("streams.ibm.com/host-exlocation".to_owned(), json!("apart"))));
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "annotations": annotations},
            "spec": {
                "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}},
                "containers": [{"name": "c", "image": "i"}],
            },
        })
    })
}

fn any_pod() -> impl Strategy<Value = Value> {
    prop_oneof![3 => pod(), 1 => crossing_pod()]
}

// ---- Wishes of coscheduling ----------------------------------------------------------------------

const GATE: &str = "stowplan.dev/placeholder";
const PLACEHOLDER: &str = "affinity-assistant-0123456789";

fn member_term() -> PodTerm {
    let labels = [
        ("app.kubernetes.io/component", "affinity-assistant"),
        ("app.kubernetes.io/instance", PLACEHOLDER),
    ];
    let labels = labels.map(|(key, value)| (key, value.to_owned())).into();
    PodTerm { enforcement: Enforcement::Required, selector: Selector::Labels(labels) }
}

/// The wishes that a member of a group may have, in any combination and order.
fn member_wishes() -> impl Strategy<Value = Vec<Wish>> {
    let renames = ["pvc-1", "pvc-2", "pvc-9"].map(|from| Wish::ClaimName {
        from: from.to_owned(),
        to: format!("{from}-{PLACEHOLDER}-0"),
    });
    let long = Wish::ClaimName {
        from: "p".repeat(63),
        to: format!("{}-0123456789-{PLACEHOLDER}-0", "p".repeat(52)),
    };
    let label = Wish::Label {
        key: "stowplan.dev/coschedule-member".to_owned(),
        value: PLACEHOLDER.to_owned(),
    };
    let others = [
        long,
        label,
        Wish::Gate(GATE),
        Wish::PodAffinity(member_term()),
        Wish::NodeAffinity(vec![on_node("n1")]),
    ];
    let all: Vec<_> = renames.into_iter().chain(others).collect();
    let count = all.len();
    subsequence(all, 0..=count).prop_shuffle()
}

/// `pod` with `wishes`, and whether it took a required pod-affinity term before.
fn merged(pod: &Value, wishes: &[Wish]) -> (Result<Value, Vec<Finding>>, bool) {
    let intent = |wish: &Wish| Intent {
        system: "coschedule",
        key: "stowplan.dev/coschedule-group",
        why: "coschedule-group=g".to_owned(),
        wish: wish.clone(),
    };
    let intents: Vec<_> = wishes.iter().map(intent).collect();
    let text = pod.to_string();
    let object: Object<'_> = serde_json::from_str(&text).unwrap();
    let decoded = Pod::decode("default", &object).unwrap();
    let takes = takes_pod_term(&decoded, &member_term());
    let result = merge(&decoded, &intents, None)
        .map(|patch| patched(pod, &patch.operations()).expect("the patch applies"));
    (result, takes)
}

/// A claim of any shape.
fn claim() -> impl Strategy<Value = Value> {
    let class = || perhaps(select(vec!["fast", "wait"]).prop_map(Value::from), json!(""));
    let owner = json!([{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "run", "uid": "1", "controller": true}]);
    let spec = (
        class(),
        perhaps(Just(json!(["ReadWriteOnce"])), json!([])),
        perhaps(Just(json!("pv-1")), json!("")),
        perhaps(Just(json!({"matchLabels": {"a": "b"}})), json!({})),
        any::<bool>(),
    );
    let spec = spec.prop_map(|(class, modes, volume, selector, future)| {
        object(vec![
            ("storageClassName", class),
            ("accessModes", modes),
            ("volumeName", volume),
            ("selector", selector),
            ("futureField", future.then(|| json!([1]))),
        ])
    });
    let keys = subsequence(vec!["stowplan.dev/coschedul-group", "stowplan.dev/future"], 0..2);
    let annotations = (annotations(), of(select(vec!["fast", "wait", ""])), keys).prop_map(
        |(mut annotations, class, keys)| {
            annotations.extend(class.map(|class| (CLASS_ANNOTATION.to_owned(), json!(class))));
            annotations.extend(keys.into_iter().map(|key| (key.to_owned(), json!("g"))));
            Value::Object(annotations)
        },
    );
    (perhaps(annotations, json!({})), perhaps(Just(owner), json!([])), perhaps(spec, json!({})))
        .prop_map(|(annotations, owners, spec)| {
            let metadata = object(vec![("annotations", annotations), ("ownerReferences", owners)]);
            let mut claim = object(vec![("spec", spec)]);
            claim["metadata"] = metadata;
            claim
        })
}

/// The review of a pod or a claim. Boxed: unoptimised, the strategies of both are too much for a stack.
fn review() -> impl Strategy<Value = Value> {
    prop_oneof![
        pod().prop_map(|pod| review_of("default", &pod)).boxed(),
        claim().prop_map(|claim| Kind::Claim.review_of("default", &claim)).boxed(),
    ]
}

// ---- Jobs ----------------------------------------------------------------------------------------

/// The spec of a job of a few elements, which may well contradict itself.
fn job() -> impl Strategy<Value = Value> {
    let host = prop::option::weighted(
        0.3,
        select(vec![
            json!({"name": "n0"}),
            json!({"address": "10.0.0.0"}),
            json!({"name": "n1"}),
            json!({"pool": "Listed"}),
            json!({"pool": "Listed", "index": 1}),
            json!({"pool": "Tagged"}),
            json!({"pool": "Any_host"}),
            json!({"pool": "Sized"}),
            json!({"pool": "Sized", "index": 0}),
        ]),
    );
    let tokens = || subsequence(vec!["x", "a token"], 0..=2);
    let operator = (host, tokens(), tokens(), prop::bool::weighted(0.1));
    let enforcement = select(vec!["Required", "Preferred"]);
    (vec(vec(operator, 0..3), 1..5), enforcement, any::<bool>()).prop_map(
        |(elements, enforcement, exclusive)| {
            let elements = elements.into_iter().enumerate().map(|(element, operators)| {
                let operators = operators.into_iter().enumerate().map(
                    |(index, (host, together, apart, alone))| {
                        let mut operator = json!({
                            "name": format!("Op[{element}].{index}"),
                            "hostColocation": together, "hostExlocation": apart,
                            "hostIsolation": alone,
                        });
                        if let Some(host) = host {
                            operator["host"] = host;
                        }
                        operator
                    },
                );
                json!({"name": format!("e{element}"), "operators": operators.collect::<Vec<_>>()})
            });
            let exclusivity = if exclusive { "Exclusive" } else { "Shared" };
            json!({
                "enforcement": enforcement,
                "pools": [
                    {"name": "Listed", "hosts": ["n0", "n1"]},
                    {"name": "Tagged", "tags": ["ib"]},
                    {"name": "Any_host"},
                    {"name": "Sized", "size": 2, "exclusivity": exclusivity},
                ],
                "processingElements": elements.collect::<Vec<_>>(),
            })
        },
    )
}

/// The objects of a job `j`: itself, and the HostPool that the controller makes for `Sized`.
fn job_objects(spec: &Value) -> [Value; 2] {
    let version = "stowplan.dev/v1alpha1";
    let owner = json!({"apiVersion": version, "kind": "StreamsJob", "name": "j", "uid": "u", "controller": true});
    let name = stowplan::view::streams_job::closure::host_pool_name("j", "Sized");
    [
        json!({
            "apiVersion": version, "kind": "StreamsJob",
            "metadata": {"name": "j", "namespace": "default", "uid": "u"}, "spec": spec,
        }),
        json!({
            "apiVersion": version, "kind": "HostPool",
            "metadata": {"name": name, "namespace": "default", "uid": "p", "ownerReferences": [owner]},
            "spec": {"size": 2, "exclusivity": spec["pools"][3]["exclusivity"]},
        }),
    ]
}

// ---- Properties ----------------------------------------------------------------------------------

proptest! {
    #[test]
    fn a_patch_applies_keeps_everything_and_is_the_last(pod in any_pod(), cluster in cluster(), policy in policy()) {
        let view = cluster.view();
        let decision = decide_pod("default", &pod, &view, &policy).unwrap();
        let again = decide_pod("default", &pod, &view, &policy).unwrap();
        prop_assert_eq!(format!("{decision:?}"), format!("{again:?}"), "not deterministic");
        let Ok(patch) = patch_of(&decision) else { return Ok(()) };
        let result = patched(&pod, &patch).map_err(TestCaseError::fail)?;
        keeps(&pod, &result).map_err(TestCaseError::fail)?;
        typed(&result).map_err(TestCaseError::fail)?;

        for sent_back in [result.clone(), touched_by_others(&result)] {
            let again = decide_pod("default", &sent_back, &view, &policy).unwrap();
            match patch_of(&again).as_deref() {
                Ok([]) => {}
                outcome => prop_assert!(false, "sent back: {outcome:?}\nfor {sent_back}"),
            }
        }
        let placed = matches!(&decision, Decision::Admit(admission) if admission.findings.is_empty());
        // A pool of any node leaves no mark, so nothing says that it was decided.
        let marked = pod["metadata"]["annotations"]["streams.ibm.com/host-pool"] != "any";
        if placed && marked && policy.record_placement {
            let again = decide_pod("default", &result, &View::default(), &policy).unwrap();
            match patch_of(&again).as_deref() {
                Ok([]) => {}
                outcome => prop_assert!(false, "View moved on: {outcome:?}\nfor {result}"),
            }
        }
    }

    #[test]
    fn the_pods_of_a_job_are_all_placed_once_or_all_refused(spec in job(), policy in policy()) {
        let nodes = (0..3).map(|index| {
            json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": format!("n{index}"), "labels": {"streams.ibm.com/hostpool": "ib"}},
                "status": {"addresses": [{"type": "InternalIP", "address": format!("10.0.0.{index}")}]},
            })
        });
        let view = view_of(nodes.chain(job_objects(&spec)));
        let elements = spec["processingElements"].as_array().unwrap();
        let mut outcomes = BTreeSet::new();
        for element in elements {
            let labels = json!({"app": "streams", "streams.ibm.com/job": "j", "streams.ibm.com/pe": element["name"]});
            let pod = json!({"metadata": {"name": "p", "labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
            let decision = decide_pod("default", &pod, &view, &policy).unwrap();
            outcomes.insert(decision.outcome());
            let Decision::Admit(admission) = &decision else { continue };
            let result = patched(&pod, &admission.patch.operations()).map_err(TestCaseError::fail)?;
            typed(&result).map_err(TestCaseError::fail)?;
            let required = result.pointer(&format!("/spec/affinity/podAffinity/{REQUIRED}"));
            prop_assert!(required.and_then(Value::as_array).is_none_or(|terms| terms.len() == 1), "{result}");
            let mut views = vec![&view];
            let empty = View::default();
            // What was placed stays so when the job is gone; the policy's warning is of the View.
            if policy.record_placement && admission.findings.is_empty() {
                views.push(&empty);
            }
            for view in views {
                for sent_back in [result.clone(), touched_by_others(&result)] {
                    let again = decide_pod("default", &sent_back, view, &policy).unwrap();
                    match patch_of(&again).as_deref() {
                        Ok([]) => {}
                        outcome => prop_assert!(false, "sent back: {outcome:?}\nfor {sent_back}"),
                    }
                }
            }
        }
        let together = outcomes.is_subset(&["placed", "unchanged"].into())
            || outcomes.is_subset(&["refused", "unplaced"].into());
        prop_assert!(together, "{outcomes:?} of {spec}");
    }

    #[test]
    fn what_is_left_is_what_is_meant(pod in any_pod(), cluster in cluster()) {
        let annotations = &pod["metadata"]["annotations"];
        // A forged record beside a forged term stands for a decision of its own.
        prop_assume!(annotations.get(pods::RECORD).is_none());
        let policy = Policy::default();
        let decision = decide_pod("default", &pod, &cluster.view(), &policy).unwrap();
        match patch_of(&decision) {
            Ok(patch) => {
                let result = patched(&pod, &patch).map_err(TestCaseError::fail)?;
                let wanted = &cluster.allowed(&pod) & &cluster.meant(annotations);
                prop_assert_eq!(cluster.allowed(&result), wanted, "{}", result);
            }
            Err(_) => {
                let Decision::Refuse(refusal) = &decision else { panic!("{decision:?}") };
                // Refused for this alone: then no node would have been left.
                if refusal.findings.iter().all(|finding| finding.reason == Reason::NodeAffinityConflict) {
                    let wanted = &cluster.allowed(&pod) & &cluster.meant(annotations);
                    prop_assert!(wanted.is_empty(), "{wanted:?}");
                }
            }
        }
    }

    #[test]
    fn a_members_wishes_are_merged_once_or_found_to_conflict(pod in any_pod(), wishes in member_wishes()) {
        let (result, takes) = merged(&pod, &wishes);
        let wants_term = wishes.contains(&Wish::PodAffinity(member_term()));
        let result = match result {
            Ok(result) => result,
            Err(findings) => {
                for finding in findings {
                    match finding.reason {
                        Reason::PodAffinityConflict => prop_assert!(wants_term && !takes),
                        Reason::NodeNameConflict => prop_assert!(wishes.contains(&Wish::Gate(GATE)) && pod["spec"]["nodeName"].is_string()),
                        Reason::NodeAffinityConflict => {}
                        reason => prop_assert!(false, "{reason}"),
                    }
                }
                return Ok(());
            }
        };
        keeps(&pod, &result).map_err(TestCaseError::fail)?;
        typed(&result).map_err(TestCaseError::fail)?;
        let spec = &result["spec"];
        let has_gate = |pod: &Value| pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| gates.iter().any(|gate| gate["name"] == GATE));
        prop_assert_eq!(has_gate(&result), has_gate(&pod) || wishes.contains(&Wish::Gate(GATE)));
        if has_gate(&result) && !has_gate(&pod) {
            prop_assert!(spec["nodeName"].as_str().is_none_or(str::is_empty), "{}", spec);
        }
        let required = spec["affinity"]["podAffinity"][REQUIRED].as_array().map_or(0, Vec::len);
        let own = pod["spec"]["affinity"]["podAffinity"][REQUIRED].as_array().map_or(0, Vec::len);
        prop_assert_eq!(required, own.max(usize::from(wants_term)));
        for volume in spec["volumes"].as_array().into_iter().flatten() {
            let left = volume["persistentVolumeClaim"]["claimName"].as_str();
            prop_assert!(!wishes.iter().any(|wish| matches!(wish, Wish::ClaimName { from, .. } if left == Some(&**from))), "{}", volume);
        }
        for sent_back in [&result, &touched_by_others(&result)] {
            let (again, _) = merged(sent_back, &wishes);
            prop_assert_eq!(again.as_ref(), Ok(sent_back));
        }
    }

    #[test]
    fn a_claims_class_is_changed_once_and_nothing_else(object in claim(), class in select(vec!["fast", "wait", "other"])) {
        let wish = Wish::StorageClass(class.to_owned());
        let intents = [Intent { system: "coschedule", key: "k", why: String::new(), wish }];
        let moved = |object: &Value| {
            let text = object.to_string();
            let read: Object<'_> = serde_json::from_str(&text).unwrap();
            let claim = Claim::decode("default", &read).unwrap();
            let patch = claim::merge(&claim, &intents).operations();
            (patched(object, &patch).expect("the patch applies"), claim.class().map(str::to_owned))
        };
        let (result, _) = moved(&object);
        keeps(&object, &result).map_err(TestCaseError::fail)?;
        Kind::Claim.check(&result).map_err(TestCaseError::fail)?;
        let (again, counts) = moved(&result);
        prop_assert_eq!(again, result);
        prop_assert_eq!(counts.as_deref(), Some(class));
    }

    #[test]
    fn a_claim_is_refused_for_nothing_but_a_key_on_it(object in claim(), policy in policy()) {
        let decision = Kind::Claim.decide("default", &object, &View::default(), &policy).unwrap();
        if let Decision::Refuse(refusal) = &decision {
            let keys = object["metadata"]["annotations"].as_object().unwrap();
            prop_assert!(refusal.findings.iter().all(|finding| keys.contains_key(&finding.subject)), "{refusal:?}");
            return Ok(());
        }
        let result = patched(&object, &patch_of(&decision).unwrap()).map_err(TestCaseError::fail)?;
        keeps(&object, &result).map_err(TestCaseError::fail)?;
        for sent_back in [&result, &Kind::Claim.touched_by_others(&result)] {
            let again = Kind::Claim.decide("default", sent_back, &View::default(), &policy).unwrap();
            prop_assert_eq!(patch_of(&again).map(|patch| patch.len()), Ok(0));
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..400)) {
        let _ = decide_bytes(&bytes, &View::default(), &Policy::default());
    }

    #[test]
    fn a_spoilt_review_is_read_or_refused(
        review in review(),
        cluster in cluster(),
        cuts in vec((any::<Index>(), 0..6_u8, any::<u8>(), 1..20_usize), 1..4),
    ) {
        let mut bytes = review.to_string().into_bytes();
        for (at, kind, byte, length) in cuts {
            let at = at.index(bytes.len());
            let end = (at + length).min(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => drop(bytes.drain(at..end)),
                2 => bytes.insert(at, byte),
                3 => {
                    let copy = bytes[at..end].to_vec();
                    bytes.splice(at..at, copy).for_each(drop);
                }
                4 => bytes[at] = b"{}[]\",:0n\\"[usize::from(byte) % 10],
                _ => bytes[at..end].rotate_left(1),
            }
            if bytes.is_empty() {
                break;
            }
        }
        let Ok(decision) = decide_bytes(&bytes, &cluster.view(), &Policy::default()) else { return Ok(()) };
        // What we read, an API server can apply the answer to.
        let Ok(document) = serde_json::from_slice::<Value>(&bytes) else { return Ok(()) };
        if let Ok(patch) = patch_of(&decision) {
            patched(&document["request"]["object"], &patch).map_err(TestCaseError::fail)?;
        }
    }

    #[test]
    fn any_object_is_taken_into_a_view_or_refused(pod in pod(), kind in select(vec!["Pod", "Node", "Namespace", "HostPool", "StreamsJob"])) {
        let mut object = pod;
        object["kind"] = json!(kind);
        if matches!(kind, "HostPool" | "StreamsJob") {
            object["apiVersion"] = json!("stowplan.dev/v1alpha1");
        }
        let _ = stowplan::view::Object::from_document(object);
    }
}

#[test]
fn the_clusters_and_pods_reach_every_outcome() {
    // Nothing passes because nothing ran: the generators reach what the properties are about.
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut placed, mut crossed, mut reasons) = (0, 0, BTreeSet::new());
    for _ in 0..3_000 {
        let (pod, cluster) = (any_pod(), cluster()).new_tree(&mut runner).unwrap().current();
        let bytes = review_of("default", &pod).to_string();
        let review = Review::parse(bytes.as_bytes()).unwrap();
        let decision = stowplan::admission::decide(&review, &cluster.view(), &Policy::default())
            .unwrap()
            .at_once();
        match &decision {
            Decision::Refuse(refusal) => {
                reasons.extend(refusal.findings.iter().map(|finding| finding.reason.as_str()))
            }
            Decision::Admit(admission) => {
                placed += usize::from(!admission.patch.is_empty());
                crossed +=
                    usize::from(
                        admission.patch.operations().iter().any(|operation| {
                            operation.path().as_str().ends_with("nodeSelectorTerms")
                        }),
                    );
            }
            _ => {}
        }
    }
    let (mut gated, mut renamed, mut terms, mut conflicts) = (0, 0, 0, 0);
    for _ in 0..1_000 {
        let (pod, wishes) = (any_pod(), member_wishes()).new_tree(&mut runner).unwrap().current();
        let (Ok(result), _) = merged(&pod, &wishes) else {
            conflicts += 1;
            continue;
        };
        let count = |what: &str| {
            result.to_string().matches(what).count() - pod.to_string().matches(what).count()
        };
        gated += count(GATE);
        renamed += count(&format!("-{PLACEHOLDER}-0"));
        terms += count("app.kubernetes.io/instance");
    }
    for (what, count) in
        [("gated", gated), ("renamed", renamed), ("terms", terms), ("conflicts", conflicts)]
    {
        assert!(count > 50, "{count} {what}");
    }
    assert!(placed > 300, "{placed} placed");
    assert!(crossed > 30, "{crossed} crossed");
    for reason in [
        "AmbiguousHost",
        "Contradiction",
        "GroupElsewhere",
        "IndexOutOfRange",
        "InvalidEnforcement",
        "InvalidOperator",
        "InvalidPool",
        "MissingLabel",
        "NoTaggedNode",
        "NodeAffinityConflict",
        "NodeNameConflict",
        "PodAffinityConflict",
        "PoolNotReady",
        "SeveralTokens",
        "UnknownHost",
        "UnknownPool",
    ] {
        assert!(reasons.contains(reason), "{reason} was never reached: {reasons:?}");
    }
}
