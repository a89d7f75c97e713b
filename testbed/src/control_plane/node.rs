//! Nodes that exist for the scheduler only.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use crate::volumes::ZONE;

/// The label that "one host" means to the scheduler.
const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// A node to be: a plain object that kwok keeps Ready.
///
/// [`NodeSpec::new`] gives what a kubelet would: the hostname label and address, 16 CPUs, 64 GiB,
/// 110 pods.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSpec {
    /// `metadata.name`.
    pub name: String,
    labels: BTreeMap<String, String>,
    addresses: Vec<Value>,
    /// Beside those that Kubernetes sets itself.
    taints: Vec<Value>,
    /// All of it is allocatable.
    capacity: BTreeMap<String, String>,
}

impl NodeSpec {
    /// A node as a kubelet would register it.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let pairs = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
        };
        Self {
            name: name.to_owned(),
            labels: pairs(&[
                (HOSTNAME_LABEL, name),
                ("kubernetes.io/arch", "amd64"),
                ("kubernetes.io/os", "linux"),
            ]),
            addresses: Vec::new(),
            taints: Vec::new(),
            capacity: pairs(&[("cpu", "16"), ("memory", "64Gi"), ("pods", "110")]),
        }
        .address("Hostname", name)
    }

    /// `node-1` … `node-<count>` with internal addresses 10.4.40.81 and on.
    #[must_use]
    pub fn numbered(count: u16) -> Vec<Self> {
        (0..count)
            .map(|index| {
                let number = u32::from(index) + 80;
                let address = format!("10.4.{}.{}", 40 + number / 254, number % 254 + 1);
                Self::new(&format!("node-{}", index + 1)).address("InternalIP", &address)
            })
            .collect()
    }

    /// With one more address, of the type `InternalIP`, `ExternalIP`, `Hostname`, `InternalDNS`, …
    #[must_use]
    pub fn address(mut self, kind: &str, address: &str) -> Self {
        self.addresses.push(json!({"type": kind, "address": address}));
        self
    }

    /// With a label, in place of one with this key.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// In a zone: where the volumes of [`volumes`](crate::volumes) are.
    #[must_use]
    pub fn zone(self, zone: &str) -> Self {
        self.label(ZONE, zone)
    }

    /// Without `kubernetes.io/hostname`: the scheduler's rules about hosts pass such a node by.
    #[must_use]
    pub fn without_hostname_label(mut self) -> Self {
        self.labels.remove(HOSTNAME_LABEL);
        self
    }

    /// With a taint; `effect` is `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    #[must_use]
    pub fn taint(mut self, key: &str, value: &str, effect: &str) -> Self {
        self.taints.push(json!({"key": key, "value": value, "effect": effect}));
        self
    }

    /// With this much of a resource, such as `("pods", "3")`.
    #[must_use]
    pub fn capacity(mut self, resource: &str, quantity: &str) -> Self {
        self.capacity.insert(resource.to_owned(), quantity.to_owned());
        self
    }

    pub(super) fn to_node(&self) -> serde_json::Result<Node> {
        serde_json::from_value(json!({
            "metadata": {"name": self.name, "labels": self.labels},
            "spec": {"taints": self.taints},
            "status": {
                "addresses": self.addresses, "allocatable": self.capacity, "capacity": self.capacity,
            },
        }))
    }
}
