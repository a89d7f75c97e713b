//! Pods of any shape.

use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Map, Value, json};

use super::coschedule::GATE;
use crate::pods;

pub(crate) const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub(crate) const HOSTNAME: &str = "kubernetes.io/hostname";

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

pub(crate) fn pod() -> impl Strategy<Value = Value> {
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
    .prop_map(|labels| labels.into_iter().collect::<Value>());
    let both = Just(json!({"streams.ibm.com/job": "j", "streams.ibm.com/pe": "j-0"}));
    let labels = prop_oneof![labels, both];
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

/// A pod of a literal pool with node selector terms of its author, which are multiplied.
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

pub(crate) fn any_pod() -> impl Strategy<Value = Value> {
    prop_oneof![
        6 => pod().boxed(),
        2 => crossing_pod().boxed(),
    ]
}
