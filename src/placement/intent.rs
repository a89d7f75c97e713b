//! Intents: the only way in which a system touches a pod.
//!
//! An intent is a typed wish with its cause. Systems say what a pod should have; how that is joined
//! with what the pod already has is [`merge`](super::merge)'s business, and how it is written is
//! [`patch`](super::patch)'s.

use std::fmt;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, PodAffinityTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;
use serde_json::{Value, json};

/// The topology that every pod (anti-)affinity of ours is about: one node.
pub const HOSTNAME: &str = "kubernetes.io/hostname";

/// A wish, and whose it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Intent {
    /// The system that asks.
    pub system: &'static str,
    /// The annotation that the wish comes from: what a conflict is reported about.
    pub key: &'static str,
    /// The annotation and its value in short, for people.
    pub why: String,
    /// The wish.
    pub wish: Wish,
}

/// What a pod should have.
#[derive(Clone, Debug, PartialEq)]
pub enum Wish {
    /// This label with this value.
    Label {
        /// The label's key.
        key: String,
        /// The label's value.
        value: String,
    },
    /// Required node affinity: at least one of these alternatives holds. Never empty.
    NodeAffinity(Vec<NodeSelectorTerm>),
    /// Pod affinity.
    PodAffinity(PodTerm),
    /// Pod anti-affinity.
    PodAntiAffinity(PodTerm),
    /// Tolerates a taint with this key, value and effect, as nothing more than that.
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
    /// Handed back to the scheduler. Only beside the node affinity that says the same.
    ReleaseNodeName,
}

/// Whether a pod (anti-)affinity must hold or is only preferred.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Enforcement {
    /// The pod waits until it holds.
    #[default]
    Required,
    /// The scheduler favours it with the highest weight, 100.
    Preferred,
}

/// A pod (anti-)affinity term on one node, and how to know it again.
#[derive(Clone, Debug, PartialEq)]
pub struct PodTerm {
    /// Required or preferred.
    pub enforcement: Enforcement,
    /// The selector's requirements, in the order in which they are written.
    pub requirements: Vec<LabelSelectorRequirement>,
    /// A term is ours if it holds all of these …
    pub mark: Vec<LabelSelectorRequirement>,
    /// … and has no requirement on any other key than these. Both forms of a term (default and
    /// `compat: seed`) are known again in this way, whatever the policy says by now.
    pub vocabulary: Vec<String>,
}

impl PodTerm {
    /// The term as the API writes it: a `PodAffinityTerm`.
    #[must_use]
    pub fn to_document(&self) -> Value {
        json!({
            "labelSelector": {"matchExpressions": self.requirements},
            "topologyKey": HOSTNAME,
        })
    }

    /// Whether `term` is this very wish, written by us in an earlier round.
    #[must_use]
    pub fn is_own_mark(&self, term: &PodAffinityTerm) -> bool {
        let Some(selector) = &term.label_selector else {
            return false;
        };
        // Our terms never name namespaces or label keys to match: one that does is about other pods.
        let is_set =
            |keys: &Option<Vec<String>>| keys.as_ref().is_some_and(|keys| !keys.is_empty());
        if term.topology_key != HOSTNAME
            || is_set(&term.match_label_keys)
            || is_set(&term.mismatch_label_keys)
            || term.namespaces.as_ref().is_some_and(|names| !names.is_empty())
            || term.namespace_selector.is_some()
            || selector.match_labels.as_ref().is_some_and(|labels| !labels.is_empty())
        {
            return false;
        }
        let requirements = selector.match_expressions.as_deref().unwrap_or_default();
        self.mark.iter().all(|marked| requirements.contains(marked))
            && requirements.iter().all(|r| self.vocabulary.contains(&r.key))
    }
}

/// `key operator values` of a label selector.
#[must_use]
pub fn label_requirement(key: &str, operator: &str, values: &[&str]) -> LabelSelectorRequirement {
    LabelSelectorRequirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values: Some(values.iter().map(|&value| value.to_owned()).collect()),
    }
}

/// A node selector term that names one node. `matchFields` takes exactly one value, so several
/// nodes are several terms.
#[must_use]
pub fn on_node(name: &str) -> NodeSelectorTerm {
    NodeSelectorTerm {
        match_fields: Some(vec![NodeSelectorRequirement {
            key: "metadata.name".to_owned(),
            operator: "In".to_owned(),
            values: Some(vec![name.to_owned()]),
        }]),
        match_expressions: None,
    }
}

/// A node selector term that asks for labels: `(key, None)` for any value, `(key, Some(value))` for
/// that value.
#[must_use]
pub fn on_labels(labels: &[(&str, Option<&str>)]) -> NodeSelectorTerm {
    let requirement = |&(key, value): &(&str, Option<&str>)| NodeSelectorRequirement {
        key: key.to_owned(),
        operator: if value.is_some() { "In" } else { "Exists" }.to_owned(),
        values: value.map(|value| vec![value.to_owned()]),
    };
    NodeSelectorTerm {
        match_expressions: Some(labels.iter().map(requirement).collect()),
        match_fields: None,
    }
}

impl fmt::Display for Wish {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label { key, value } => write!(formatter, "label {key}: {value}"),
            Self::NodeAffinity(alternatives) => {
                formatter.write_str("required node affinity ")?;
                for (index, term) in alternatives.iter().take(4).enumerate() {
                    if index > 0 {
                        formatter.write_str(" or ")?;
                    }
                    write_node_term(formatter, term)?;
                }
                match alternatives.len().saturating_sub(4) {
                    0 => Ok(()),
                    more => write!(formatter, " or {more} more"),
                }
            }
            Self::PodAffinity(term) => write_pod_term(formatter, "affinity", term),
            Self::PodAntiAffinity(term) => write_pod_term(formatter, "anti-affinity", term),
            Self::Toleration { key, value, effect } => {
                write!(formatter, "toleration {key}={value}:{effect}")
            }
            Self::SetNodeName(node) => write!(formatter, "nodeName {node}"),
            Self::ReleaseNodeName => formatter.write_str("nodeName released to the scheduler"),
        }
    }
}

fn write_node_term(formatter: &mut fmt::Formatter<'_>, term: &NodeSelectorTerm) -> fmt::Result {
    let fields = term.match_fields.iter().flatten();
    let expressions = term.match_expressions.iter().flatten();
    for (index, requirement) in fields.chain(expressions).enumerate() {
        if index > 0 {
            formatter.write_str(" and ")?;
        }
        write!(formatter, "{} {}", requirement.key, requirement.operator)?;
        if let Some(values) = &requirement.values {
            write!(formatter, " [{}]", values.join(", "))?;
        }
    }
    Ok(())
}

fn write_pod_term(formatter: &mut fmt::Formatter<'_>, kind: &str, term: &PodTerm) -> fmt::Result {
    let strength = match term.enforcement {
        Enforcement::Required => "required",
        Enforcement::Preferred => "preferred",
    };
    write!(formatter, "{strength} pod {kind} on one node with pods where ")?;
    for (index, requirement) in term.requirements.iter().enumerate() {
        if index > 0 {
            formatter.write_str(" and ")?;
        }
        let values = requirement.values.as_deref().unwrap_or_default().join(", ");
        write!(formatter, "{} {} [{values}]", requirement.key, requirement.operator)?;
    }
    Ok(())
}
