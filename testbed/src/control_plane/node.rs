//! Nodes that exist for the scheduler only.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeSpec as Spec, NodeStatus, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::ObjectMeta;

use crate::volumes::ZONE;

/// The label that "one host" means to the scheduler.
const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// A node to be: a plain object that kwok keeps Ready.
///
/// [`NodeSpec::new`] gives what a kubelet would: the hostname label and address, 16 CPUs, 64 GiB,
/// 110 pods. Everything can be changed.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSpec {
    /// `metadata.name`.
    pub name: String,
    /// All labels; `kubernetes.io/hostname` is one of them, and may be taken out.
    pub labels: BTreeMap<String, String>,
    /// Type (`InternalIP`, `ExternalIP`, `Hostname`, `InternalDNS`, …) and value, in order.
    pub addresses: Vec<(String, String)>,
    /// Taints beside those that Kubernetes sets itself.
    pub taints: Vec<Taint>,
    /// Capacity, all of it allocatable.
    pub capacity: BTreeMap<String, String>,
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
            addresses: vec![("Hostname".to_owned(), name.to_owned())],
            taints: Vec::new(),
            capacity: pairs(&[("cpu", "16"), ("memory", "64Gi"), ("pods", "110")]),
        }
    }

    /// `node-1` … `node-<count>` with internal addresses 10.4.40.81 and on.
    #[must_use]
    pub fn numbered(count: u16) -> Vec<Self> {
        (0..count)
            .map(|index| {
                let number = u32::from(index) + 80;
                let address = format!("10.4.{}.{}", 40 + number / 254, number % 254 + 1);
                Self::new(&format!("node-{}", index + 1)).internal_ip(&address)
            })
            .collect()
    }

    /// With an address of type `InternalIP`.
    #[must_use]
    pub fn internal_ip(self, address: &str) -> Self {
        self.address("InternalIP", address)
    }

    /// With one more address.
    #[must_use]
    pub fn address(mut self, kind: &str, address: &str) -> Self {
        self.addresses.push((kind.to_owned(), address.to_owned()));
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
        self.taints.push(Taint {
            key: key.to_owned(),
            value: Some(value.to_owned()),
            effect: effect.to_owned(),
            time_added: None,
        });
        self
    }

    /// With this much of a resource, such as `("pods", "3")`.
    #[must_use]
    pub fn capacity(mut self, resource: &str, quantity: &str) -> Self {
        self.capacity.insert(resource.to_owned(), quantity.to_owned());
        self
    }

    pub(super) fn to_node(&self) -> Node {
        let capacity: BTreeMap<_, _> = self
            .capacity
            .iter()
            .map(|(resource, quantity)| (resource.clone(), Quantity(quantity.clone())))
            .collect();
        Node {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(self.labels.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(Spec {
                taints: (!self.taints.is_empty()).then(|| self.taints.clone()),
                ..Spec::default()
            }),
            status: Some(NodeStatus {
                addresses: Some(
                    self.addresses
                        .iter()
                        .map(|(type_, address)| NodeAddress {
                            type_: type_.clone(),
                            address: address.clone(),
                        })
                        .collect(),
                ),
                allocatable: Some(capacity.clone()),
                capacity: Some(capacity),
                ..NodeStatus::default()
            }),
        }
    }
}
