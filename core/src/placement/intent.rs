//! Intents: the only way in which a system changes a pod or a claim.
//!
//! An intent is a typed change with its cause. A system says what an object should have; how that is
//! combined with what the object already has is decided in [`merge`](super::merge), and how it is
//! written in `patch`.

mod container;
mod mates;
mod text;

use k8s_openapi::api::core::v1::PodAffinityTerm;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use serde_json::{Value, json};

use super::affinity::{Requirement, Requirements};
use crate::kubernetes::HOSTNAME;
pub(crate) use container::ContainerChange;
pub use mates::Mates;
pub(crate) use text::AnyOf;

/// A change, and which system requests it for which reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Intent {
    /// The name of the system that requests it.
    pub system: &'static str,
    /// The annotation that the change comes from; conflicts are reported about it.
    pub key: &'static str,
    /// The annotation and its value in short, for people.
    pub why: String,
    /// The change.
    pub change: Change,
}

/// A change that a pod or a claim should have.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// This annotation with this value, whatever value the pod has; `None`: without the annotation.
    Annotation {
        /// The annotation's key.
        key: &'static str,
        /// The annotation's value.
        value: Option<String>,
    },
    /// This label with this value.
    Label {
        /// The label's key.
        key: String,
        /// The label's value.
        value: String,
    },
    /// Required node affinity: the node matches at least one of these terms. Never empty.
    NodeAffinity(Vec<NodeTerm>),
    /// Pod affinity.
    PodAffinity(PodTerm),
    /// Pod affinity that only narrows the scheduler's choice: a system enforces the rest. Left out
    /// beside another required term.
    PodAffinityHint(Mates),
    /// Pod anti-affinity.
    PodAntiAffinity(PodTerm),
    /// A toleration of exactly this taint.
    Toleration {
        /// The taint's key.
        key: &'static str,
        /// The taint's value.
        value: String,
        /// The taint's effect.
        effect: &'static str,
    },
    /// Bound to this node without the scheduler.
    SetNodeName(String),
    /// No node name, so that the scheduler binds the pod. Only together with a node affinity to the
    /// same node.
    ReleaseNodeName,
    /// This scheduling gate. Never together with a node name: Kubernetes refuses such a pod.
    Gate(&'static str),
    /// Every volume that is the claim `from` becomes the claim `to`. If several changes have the same
    /// `from`, the first counts.
    ClaimName {
        /// The name of the claim in the pod's template.
        from: String,
        /// The name of the claim to use instead.
        to: String,
    },
    /// `spec.hostname`.
    Hostname(String),
    /// A domain in `spec.dnsConfig.searches`, in which the pod looks up short names.
    DnsSearch(String),
    /// `spec.subdomain`: the name of the Service that gives the hostname its DNS name.
    Subdomain(String),
    /// This volume, recognized by its name.
    Volume {
        /// The name.
        name: &'static str,
        /// The other fields of the volume.
        source: Value,
    },
    /// An init container after the pod's own, recognized by its name.
    InitContainer {
        /// The name.
        name: &'static str,
        /// The other fields of the container.
        fields: Value,
    },
    /// A change of one of the pod's containers.
    Container {
        /// The index in `spec.containers`.
        index: usize,
        /// The change.
        change: ContainerChange,
    },
    /// This storage class. The only change for a claim; never one for a pod.
    StorageClass(String),
}

/// The strength of a pod (anti-)affinity.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Enforcement {
    /// The pod stays pending until it holds.
    #[default]
    Required,
    /// The scheduler prefers it, with the highest weight (100).
    Preferred,
}

/// The operators that stowplan writes in node selector terms and label selectors.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Operator {
    /// The label has one of the values.
    In,
    /// The label is absent or has none of the values.
    NotIn,
    /// The label is present.
    Exists,
}

impl Operator {
    /// The operator as the Kubernetes API spells it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::In => "In",
            Self::NotIn => "NotIn",
            Self::Exists => "Exists",
        }
    }
}

/// A node selector term to be written.
///
/// Not the type of the Kubernetes API, which takes five strings in three lists for the name of one
/// node, the most frequent placement.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NodeTerm {
    /// The node of this name. `matchFields` takes exactly one value, so each of several nodes needs a
    /// term.
    Named(String),
    /// All nodes but those of these names.
    NotNamed(Vec<String>),
    /// Nodes with all of these labels.
    Labelled(Vec<NodeLabel>),
}

/// A label that a node must have.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NodeLabel {
    /// The label's key.
    pub key: String,
    /// The values of which it has one; empty: any value.
    pub values: Vec<String>,
}

impl Requirements for NodeTerm {
    fn fields(&self) -> impl Iterator<Item = Requirement<'_>> {
        let (operator, names) = match self {
            Self::Named(name) => (Operator::In, std::slice::from_ref(name)),
            Self::NotNamed(names) => (Operator::NotIn, names.as_slice()),
            Self::Labelled(_) => (Operator::In, &[][..]),
        };
        // The API takes one value for each requirement of a field.
        names.iter().map(move |name| Requirement {
            key: "metadata.name",
            operator: operator.as_str(),
            values: std::slice::from_ref(name),
        })
    }

    fn expressions(&self) -> impl Iterator<Item = Requirement<'_>> {
        let labels = match self {
            Self::Named(_) | Self::NotNamed(_) => &[],
            Self::Labelled(labels) => labels.as_slice(),
        };
        labels.iter().map(|NodeLabel { key, values }| Requirement {
            key,
            operator: if values.is_empty() { Operator::Exists } else { Operator::In }.as_str(),
            values,
        })
    }
}

/// A pod (anti-)affinity term with the topology of one node, and how to recognize it.
#[derive(Clone, Debug, PartialEq)]
pub struct PodTerm {
    /// Required or preferred.
    pub enforcement: Enforcement,
    /// The pods that it selects, in the pod's own namespace.
    pub selector: Selector,
}

/// The label selector of a pod term.
#[derive(Clone, Debug, PartialEq)]
pub enum Selector {
    /// Written as `matchExpressions`: first `identity`, then `further`.
    ///
    /// A term of an earlier round is recognized if it has every requirement of `identity`, and all its
    /// other requirements are on keys in `may_also_have`. So every form of a term is recognized (the
    /// default one and that of `compat: upstream`), even if the policy has changed since.
    Expressions {
        /// The requirements that identify the term. Each has one value.
        identity: Vec<LabelSelectorRequirement>,
        /// The requirements that only some forms of the term have, each with one value. Their keys are in `may_also_have`.
        further: Vec<LabelSelectorRequirement>,
        /// The keys that requirements beside `identity` may have in any form of the term.
        may_also_have: &'static [&'static str],
    },
    /// Written as `matchLabels`. A term of an earlier round is recognized if it selects
    /// by exactly these labels.
    Labels(Vec<(&'static str, String)>),
}

impl PodTerm {
    /// Returns true if `term` is this term, as stowplan wrote it in an earlier round.
    #[must_use]
    pub fn is_own_mark(&self, term: &PodAffinityTerm) -> bool {
        let Some(selector) = &term.label_selector else {
            return false;
        };
        // stowplan writes no namespaces and no label keys to match: such a term selects other pods.
        let is_set =
            |keys: &Option<Vec<String>>| keys.as_ref().is_some_and(|keys| !keys.is_empty());
        if term.topology_key != HOSTNAME
            || is_set(&term.match_label_keys)
            || is_set(&term.mismatch_label_keys)
            || is_set(&term.namespaces)
            || term.namespace_selector.is_some()
        {
            return false;
        }
        self.selector.is_own_mark(selector)
    }

    /// Returns the item of the list that its enforcement names: a `PodAffinityTerm`, inside a
    /// `WeightedPodAffinityTerm` if it is preferred.
    pub(crate) fn to_json(&self) -> Value {
        let (field, selected) = match &self.selector {
            Selector::Expressions { identity, further, .. } => {
                let requirements = identity.iter().chain(further);
                ("matchExpressions", requirements.map(|requirement| json!(requirement)).collect())
            }
            Selector::Labels(labels) => {
                let labels = labels.iter().map(|(key, value)| (*key, value.as_str()));
                ("matchLabels", labels.collect::<Value>())
            }
        };
        let mut term = json!({"labelSelector": {}, "topologyKey": HOSTNAME});
        term["labelSelector"][field] = selected;
        match self.enforcement {
            Enforcement::Required => term,
            Enforcement::Preferred => {
                let mut weighted = json!({"weight": 100});
                weighted["podAffinityTerm"] = term;
                weighted
            }
        }
    }
}

impl Selector {
    /// A selector by `requirement` alone, which is also its identity.
    #[must_use]
    pub fn by(requirement: LabelSelectorRequirement) -> Self {
        Self::Expressions { identity: vec![requirement], further: Vec::new(), may_also_have: &[] }
    }

    fn is_own_mark(&self, selector: &LabelSelector) -> bool {
        let expressions = selector.match_expressions.as_deref().unwrap_or_default();
        let labels = selector.match_labels.iter().flatten();
        match self {
            Self::Expressions { identity, may_also_have, .. } => {
                let is_known = |key: &str| {
                    identity.iter().any(|own| own.key == key) || may_also_have.contains(&key)
                };
                labels.count() == 0
                    && identity.iter().all(|own| expressions.contains(own))
                    && expressions.iter().all(|requirement| is_known(&requirement.key))
            }
            Self::Labels(own) => {
                let is_own = |(key, value): (&String, &String)| {
                    own.iter().any(|(own_key, own_value)| key == own_key && value == own_value)
                };
                // The keys of both are distinct: as many labels, all of them in `own`, are the same.
                expressions.is_empty()
                    && labels.clone().count() == own.len()
                    && labels.clone().all(is_own)
            }
        }
    }
}

/// The requirement `key operator value` of a label selector.
#[must_use]
pub(crate) fn label_requirement(
    key: impl Into<String>,
    operator: Operator,
    value: &str,
) -> LabelSelectorRequirement {
    LabelSelectorRequirement {
        key: key.into(),
        operator: operator.as_str().to_owned(),
        values: Some(vec![value.to_owned()]),
    }
}

/// A node selector term for the node of this name.
#[must_use]
pub fn on_node(name: &str) -> NodeTerm {
    NodeTerm::Named(name.to_owned())
}

/// A node selector term for all nodes but those of these names.
#[must_use]
pub(crate) fn off_nodes(names: &[&str]) -> NodeTerm {
    NodeTerm::NotNamed(names.iter().map(|&name| name.to_owned()).collect())
}

/// A node selector term for nodes with all of these labels: `(key, None)` for any value,
/// `(key, Some(value))` for that value.
#[must_use]
pub(crate) fn on_labels(labels: &[(&str, Option<&str>)]) -> NodeTerm {
    let label = |&(key, value): &(&str, Option<&str>)| NodeLabel {
        key: key.to_owned(),
        values: value.map(str::to_owned).into_iter().collect(),
    };
    NodeTerm::Labelled(labels.iter().map(label).collect())
}
