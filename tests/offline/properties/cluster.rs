//! Clusters and policies of any shape, and the nodes that a pod's annotations mean in a cluster.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Map, Value, json};
use stowplan_core::systems::View;
use stowplan_core::systems::policy::Policy;

use super::pod::{HOSTNAME, REQUIRED};
use crate::pods::view_of;

/// A node with its labels and addresses; it is named for its index.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    name: String,
    labels: Map<String, Value>,
    address: String,
    host_name: Option<&'static str>,
}

#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    nodes: Vec<Node>,
    /// The hosts of the pool `literal`.
    literal: Vec<&'static str>,
    /// Where a pod of job `j` with colocation token `together` runs.
    group: Option<&'static str>,
}

pub(crate) fn cluster() -> impl Strategy<Value = Cluster> {
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
                    Node { name, labels, address, host_name }
                });
            Cluster { nodes: nodes.collect(), literal, group }
        },
    )
}

impl Cluster {
    pub(crate) fn view(&self) -> View {
        view_of(self.objects())
    }

    pub(crate) fn objects(&self) -> Vec<Value> {
        let nodes = self.nodes.iter().map(|node| {
            let mut addresses = vec![json!({"type": "InternalIP", "address": node.address})];
            addresses.extend(
                node.host_name.iter().map(|name| json!({"type": "Hostname", "address": name})),
            );
            json!({
                "apiVersion": "v1", "kind": "Node",
                // With a UID: what it has no label for, it lacks.
                "metadata": {"name": node.name, "uid": node.name, "labels": node.labels},
                "status": {"addresses": addresses},
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
        nodes.chain(pools).chain(group).collect()
    }

    fn names(&self, holds: impl Fn(&Node) -> bool) -> BTreeSet<&str> {
        self.nodes.iter().filter(|node| holds(node)).map(|node| node.name.as_str()).collect()
    }

    /// The nodes that a host of the upstream design refers to: by address, else by name, else by
    /// host name.
    fn hosts(&self, text: &str) -> BTreeSet<&str> {
        let address = |text: &str| {
            text.parse::<std::net::IpAddr>().ok().map(|address| address.to_canonical())
        };
        if let Some(wanted) = address(text) {
            return self.names(|node| address(&node.address) == Some(wanted));
        }
        let by_name = self.names(|node| node.name == text);
        match by_name.is_empty() {
            true => self
                .names(|node| node.host_name.is_some_and(|name| name.eq_ignore_ascii_case(text))),
            false => by_name,
        }
    }

    /// The nodes that the annotations of an admitted pod permit.
    pub(crate) fn meant(&self, pod: &Value) -> BTreeSet<&str> {
        let annotations = &pod["metadata"]["annotations"];
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
                    Some(self.hosts(self.literal[index.parse::<usize>().unwrap()]))
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
    pub(crate) fn allowed(&self, pod: &Value) -> BTreeSet<&str> {
        let terms =
            pod.pointer(&format!("/spec/affinity/nodeAffinity/{REQUIRED}/nodeSelectorTerms"));
        match terms.and_then(Value::as_array) {
            None => self.names(|_| true),
            Some(terms) => self.names(|node| terms.iter().any(|term| matches(term, node))),
        }
    }
}

/// Returns true if a node selector term selects a node (Kubernetes API, `NodeSelectorTerm`).
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

pub(crate) fn policy() -> impl Strategy<Value = Policy> {
    policy_text().prop_map(|text| Policy::from_yaml(&text).unwrap())
}

pub(crate) fn policy_text() -> impl Strategy<Value = String> {
    let pools = prop::bool::weighted(0.9);
    (select(vec!["refuse", "warn"]), any::<bool>(), select(vec!["none", "upstream"]), pools)
        .prop_map(|(on_invalid, record, compat, pools)| {
            format!(
                "onInvalid: {on_invalid}\nrecordPlacement: {record}\nstreams: {{compat: {compat}}}\nhostPools: {{enabled: {pools}}}"
            )
        })
}
