//! Small random StreamsJobs and clusters, as models of the oracle and as documents.

#![allow(dead_code, reason = "each suite uses its own part")]

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, subsequence};
use serde_json::{Value, json};

use crate::streams_oracle::{Element, Form, Host, Model, Node, Others, Pool, Set};

/// The tags, by their bits in a [`Set`]. A node has one value for the label of a pool's only tag, so only
/// the first tag is ever alone.
pub(crate) const TAGS: [&str; 2] = ["ib", "blue"];

/// Labels of the node of a shared pool of others, which no pool of the job asks for.
pub(crate) const OTHERS_TAGS: [&str; 2] = ["other", "team"];

pub(crate) fn node_name(node: usize) -> String {
    format!("hh{}", node + 1)
}

pub(crate) fn pool_name(pool: usize) -> String {
    format!("S{pool}")
}

pub(crate) fn element_name(element: usize) -> String {
    format!("e{element}")
}

fn any_node() -> impl Strategy<Value = Node> {
    let tags = prop_oneof![3 => Just(0b01), 3 => Just(0b11), 3 => Just(0)];
    let others = prop_oneof![
        12 => Just(Others::Nobody),
        1 => Just(Others::Pod),
        1 => Just(Others::SharedPool),
        1 => Just(Others::ExclusivePool),
    ];
    (tags, others).prop_map(|(tags, others)| Node { tags, others, is_lost: false })
}

fn any_pool(nodes: usize) -> impl Strategy<Value = Pool> {
    let tags = || prop_oneof![3 => Just(0), 3 => Just(0b01), 1 => Just(0b11)];
    let listed = subsequence((0..nodes).collect::<Vec<_>>(), 1..=3).prop_shuffle();
    let size = prop_oneof![4 => Just(1_usize), 4 => Just(2), 1 => Just(3)];
    prop_oneof![
        2 => (listed, prop::bool::weighted(0.3))
            .prop_map(|(nodes, is_exclusive)| Pool { form: Form::Listed(nodes), is_exclusive }),
        1 => tags().prop_map(|tags| Pool { form: Form::Tagged(tags), is_exclusive: false }),
        5 => (size, tags(), prop::bool::weighted(0.4))
            .prop_map(|(size, tags, is_exclusive)| Pool { form: Form::Sized(size, tags), is_exclusive }),
    ]
}

/// A host before it is known how many nodes and pools there are.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Node(Index),
    Pool(Index),
    Member(Index, Index),
}

impl Asked {
    fn host(self, nodes: usize, pools: &[Pool]) -> Host {
        let of = |pool: Index| match pools {
            [] => None,
            pools => Some(pool.index(pools.len())),
        };
        match self {
            Self::Node(node) => Host::Node(node.index(nodes)),
            Self::Pool(pool) => of(pool).map_or(Host::Node(0), |pool| Host::Any { pool }),
            Self::Member(pool, index) => of(pool).map_or(Host::Node(nodes - 1), |pool| {
                let size = match &pools[pool].form {
                    Form::Listed(nodes) => nodes.len(),
                    Form::Sized(size, _) => *size,
                    Form::Tagged(_) => return Host::Any { pool },
                };
                Host::Member { pool, index: index.index(size) }
            }),
        }
    }
}

fn any_hosts() -> impl Strategy<Value = Vec<Asked>> {
    let host = prop_oneof![
        3 => any::<Index>().prop_map(Asked::Node),
        4 => any::<Index>().prop_map(Asked::Pool),
        2 => any::<(Index, Index)>().prop_map(|(pool, index)| Asked::Member(pool, index)),
    ];
    prop_oneof![
        6 => Just(0_usize),
        5 => Just(1),
        1 => Just(2),
    ]
    .prop_flat_map(move |count| vec(host.clone(), count))
}

fn any_tokens(tokens: u32, probability: f64) -> impl Strategy<Value = Set> {
    vec(prop::bool::weighted(probability), tokens as usize)
        .prop_map(|has| has.iter().enumerate().map(|(token, has)| Set::from(*has) << token).sum())
}

fn any_element() -> impl Strategy<Value = (Vec<Asked>, Set, Set, bool)> {
    (any_hosts(), any_tokens(3, 0.11), any_tokens(3, 0.15), prop::bool::weighted(0.04))
}

/// A job of 3 to 8 elements, on 3 to 6 nodes.
pub(crate) fn any_model() -> impl Strategy<Value = Model> {
    (3..=6_usize)
        .prop_flat_map(|nodes| {
            let pools = prop_oneof![2 => Just(0_usize), 4 => Just(1), 3 => Just(2), 1 => Just(3)]
                .prop_flat_map(move |count| vec(any_pool(nodes), count));
            (vec(any_node(), nodes), pools, vec(any_element(), 3..=8))
        })
        .prop_map(|(nodes, pools, elements)| {
            let elements = elements.into_iter().map(|(hosts, together, apart, is_isolated)| {
                let mut own: Vec<Host> = Vec::new();
                for host in hosts.into_iter().map(|asked| asked.host(nodes.len(), &pools)) {
                    if !own.contains(&host) {
                        own.push(host);
                    }
                }
                Element { hosts: own, together, apart, is_isolated }
            });
            Model { elements: elements.collect(), nodes: nodes.clone(), pools: pools.clone() }
        })
}

/// The labels of a node, except its hostname.
pub(crate) fn node_labels(node: &Node) -> Value {
    let mut labels = json!({});
    for (tag, name) in TAGS.iter().enumerate().filter(|(tag, _)| node.tags & 1 << tag != 0) {
        labels[format!("hostpool.streams.ibm.com/{name}")] = json!("");
        if tag == 0 {
            labels["streams.ibm.com/hostpool"] = json!(name);
        }
    }
    if node.others == Others::SharedPool {
        for name in OTHERS_TAGS {
            labels[format!("hostpool.streams.ibm.com/{name}")] = json!("");
        }
    }
    labels
}

/// The spec of the job, on nodes with these names.
pub(crate) fn job_spec(model: &Model, node_name: impl Fn(usize) -> String) -> Value {
    let tags = |of: Set| -> Vec<&str> {
        let tags = TAGS.iter().enumerate().filter(|(tag, _)| of & 1 << tag != 0);
        tags.map(|(_, name)| *name).collect()
    };
    let pools = model.pools.iter().enumerate().map(|(number, pool)| {
        let mut spec = match &pool.form {
            Form::Listed(nodes) => {
                json!({"hosts": nodes.iter().map(|node| node_name(*node)).collect::<Vec<_>>()})
            }
            Form::Tagged(of) => json!({"tags": tags(*of)}),
            Form::Sized(size, of) => json!({"size": size, "tags": tags(*of)}),
        };
        if spec["tags"].as_array().is_some_and(Vec::is_empty) {
            spec.as_object_mut().expect("an object").remove("tags");
        }
        spec["name"] = json!(pool_name(number));
        if pool.is_exclusive {
            spec["exclusivity"] = json!("Exclusive");
        }
        spec
    });
    let elements = model.elements.iter().enumerate().map(|(number, element)| {
        let tokens = |prefix: &str, of: Set| -> Vec<String> {
            (0..16)
                .filter(|token| of & 1 << token != 0)
                .map(|token| format!("{prefix}{token}"))
                .collect()
        };
        let hosts = element.hosts.iter().map(|host| match *host {
            Host::Node(node) => json!({"name": node_name(node)}),
            Host::Any { pool } => json!({"pool": pool_name(pool)}),
            Host::Member { pool, index } => json!({"pool": pool_name(pool), "index": index}),
        });
        let hosts: Vec<Value> = hosts.collect();
        let operators = (0..hosts.len().max(1)).map(|index| {
            let mut operator = json!({"name": format!("Op{number}_{index}")});
            if index == 0 {
                operator["hostColocation"] = json!(tokens("with", element.together));
                operator["hostExlocation"] = json!(tokens("apart", element.apart));
                operator["hostIsolation"] = json!(element.is_isolated);
            }
            if let Some(host) = hosts.get(index) {
                operator["host"] = host.clone();
            }
            operator
        });
        json!({"name": element_name(number), "operators": operators.collect::<Vec<_>>()})
    });
    json!({
        "pools": pools.collect::<Vec<_>>(),
        "processingElements": elements.collect::<Vec<_>>(),
    })
}

/// Returns true if a job that is impossible must be refused when it is created. One is accepted, and its pods or
/// pools wait, if only a node is in the way that others have, and nothing in the job depends on anything else;
/// or if two exclusive pools list one host.
pub(crate) fn must_be_refused(model: &Model) -> bool {
    let is_apart = |(number, element): (usize, &Element)| {
        let others = &model.elements[..number];
        element.is_isolated || others.iter().any(|other| other.apart & element.apart != 0)
    };
    let depends = model.elements.iter().enumerate().any(is_apart)
        || (0..model.pools.len()).any(|pool| model.is_marked(pool))
        || model.nodes.iter().all(|node| node.others != Others::ExclusivePool);
    let mut listed = BTreeSet::new();
    let mut exclusive = model.pools.iter().filter(|pool| pool.is_exclusive);
    let is_listed_once = exclusive.all(|pool| match &pool.form {
        Form::Listed(nodes) => nodes.iter().all(|node| listed.insert(*node)),
        Form::Tagged(_) | Form::Sized(..) => true,
    });
    depends && is_listed_once
}
