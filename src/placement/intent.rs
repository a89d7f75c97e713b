//! Intents: the only way in which a system touches a pod or a claim.
//!
//! An intent is a typed wish with its cause. Systems say what an object should have; how that is joined
//! with what it already has is [`merge`](super::merge)'s business, and how it is written is
//! [`patch`](super::patch)'s.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::api::core::v1::PodAffinityTerm;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use super::affinity::{Requirement, Requirements};
use super::json::{Json, list, members};

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

/// What a pod, or a claim, should have.
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
    NodeAffinity(Vec<NodeTerm>),
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
    /// Held by this scheduling gate until somebody lifts it. Never beside a node name: Kubernetes
    /// refuses such a pod.
    Gate(&'static str),
    /// Every volume that is the claim `from` is the claim `to`. Of several wishes for one claim the
    /// first counts.
    ClaimName {
        /// The name of the claim that the pod asks for.
        from: String,
        /// The name of the claim that it gets.
        to: String,
    },
    /// This storage class: the one wish for a claim, and none for a pod.
    StorageClass(String),
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

/// What a term asks of a label or a field: the operators that we write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Operator {
    /// Its value is among these.
    In,
    /// Its value is not among these, or it is not there.
    NotIn,
    /// It is there.
    Exists,
}

impl Operator {
    /// The word of the Kubernetes API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::In => "In",
            Self::NotIn => "NotIn",
            Self::Exists => "Exists",
        }
    }
}

/// A node selector term of ours.
///
/// Not the type of the Kubernetes API, which holds five strings in three lists for the name of one
/// node: most placements are this and little more.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NodeTerm {
    /// The node of this name. `matchFields` takes exactly one value, so several nodes are several
    /// terms.
    Named(String),
    /// Nodes with all of these labels.
    Labelled(Vec<NodeLabel>),
}

/// A label that a node must have.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NodeLabel {
    /// The label's key.
    pub key: String,
    /// The label's value; `None` for any.
    pub value: Option<String>,
}

impl Requirements for NodeTerm {
    fn fields(&self) -> impl Iterator<Item = Requirement<'_>> {
        let name = match self {
            Self::Named(name) => Some(name),
            Self::Labelled(_) => None,
        };
        name.into_iter().map(|name| Requirement {
            key: "metadata.name",
            operator: Operator::In.as_str(),
            values: std::slice::from_ref(name),
        })
    }

    fn expressions(&self) -> impl Iterator<Item = Requirement<'_>> {
        let labels = match self {
            Self::Named(_) => &[],
            Self::Labelled(labels) => labels.as_slice(),
        };
        labels.iter().map(|NodeLabel { key, value }| Requirement {
            key,
            operator: if value.is_some() { Operator::In } else { Operator::Exists }.as_str(),
            values: value.as_slice(),
        })
    }
}

/// A pod (anti-)affinity term on one node, and how to know it again.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PodTerm {
    /// Required or preferred.
    pub enforcement: Enforcement,
    /// Which pods it is about.
    pub selector: Selector,
}

/// The label selector of a pod term.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Selector {
    /// Written as `matchExpressions`.
    Expressions {
        /// The requirements, in the order in which they are written.
        requirements: Vec<LabelRequirement>,
        /// A term is ours if it holds so many of these, from the first …
        marks: usize,
        /// … and has no requirement on any key but theirs and these. Both forms of a term (default and
        /// `compat: upstream`) are known again in this way, whatever the policy says by now.
        other_keys: &'static [&'static str],
    },
    /// Written as `matchLabels`, in this order. A term is ours if it selects by these labels and by
    /// nothing else.
    Labels(Vec<(&'static str, String)>),
}

/// What a pod term asks of a label: one value, as all of ours do.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LabelRequirement {
    /// The label's key.
    pub key: Cow<'static, str>,
    /// Whether it must have the value or must not.
    pub operator: Operator,
    /// The value.
    pub value: String,
}

impl LabelRequirement {
    fn is(&self, other: &LabelSelectorRequirement) -> bool {
        self.key == other.key
            && self.operator.as_str() == other.operator
            && other.values.as_deref() == Some(std::slice::from_ref(&self.value))
    }
}

impl PodTerm {
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
            || is_set(&term.namespaces)
            || term.namespace_selector.is_some()
        {
            return false;
        }
        self.selector.is_own_mark(selector)
    }
}

impl Selector {
    fn is_own_mark(&self, selector: &LabelSelector) -> bool {
        let expressions = selector.match_expressions.as_deref().unwrap_or_default();
        let labels = selector.match_labels.iter().flatten();
        match self {
            Self::Expressions { requirements, marks, other_keys } => {
                let marks = &requirements[..*marks];
                let is_ours = |key: &str| {
                    marks.iter().any(|mark| mark.key == key) || other_keys.contains(&key)
                };
                labels.count() == 0
                    && marks.iter().all(|mark| expressions.iter().any(|it| mark.is(it)))
                    && expressions.iter().all(|requirement| is_ours(&requirement.key))
            }
            Self::Labels(own) => {
                let is_ours = |(key, value): (&String, &String)| {
                    own.iter().any(|(own_key, own_value)| key == own_key && value == own_value)
                };
                // Keys of a map are distinct, and ours are: as many, and each of ours, are the same.
                expressions.is_empty()
                    && labels.clone().count() == own.len()
                    && labels.clone().all(is_ours)
            }
        }
    }
}

impl Json for PodTerm {
    /// As an item of the list that its enforcement names: a `PodAffinityTerm`, with a weight where it
    /// is preferred.
    fn write(&self, json: &mut Vec<u8>) {
        let (before, after): (&[u8], &[u8]) = match self.enforcement {
            Enforcement::Required => (b"", b""),
            Enforcement::Preferred => (br#"{"podAffinityTerm":"#, br#","weight":100}"#),
        };
        json.extend_from_slice(before);
        json.extend_from_slice(br#"{"labelSelector":"#);
        self.selector.write(json);
        json.extend_from_slice(br#","topologyKey":"#);
        HOSTNAME.write(json);
        json.push(b'}');
        json.extend_from_slice(after);
    }
}

impl Json for Selector {
    fn write(&self, json: &mut Vec<u8>) {
        match self {
            Self::Expressions { requirements, .. } => {
                json.extend_from_slice(br#"{"matchExpressions":"#);
                list(json, requirements, |LabelRequirement { key, operator, value }, json| {
                    let values = std::slice::from_ref(value);
                    Requirement { key, operator: operator.as_str(), values }.write(json);
                });
            }
            Self::Labels(labels) => {
                json.extend_from_slice(br#"{"matchLabels":"#);
                members(json, labels.iter().map(|(key, value)| (*key, value)));
            }
        }
        json.push(b'}');
    }
}

/// `key operator value` of a label selector.
#[must_use]
pub fn label_requirement(
    key: impl Into<Cow<'static, str>>,
    operator: Operator,
    value: &str,
) -> LabelRequirement {
    LabelRequirement { key: key.into(), operator, value: value.to_owned() }
}

/// A node selector term that names one node.
#[must_use]
pub fn on_node(name: &str) -> NodeTerm {
    NodeTerm::Named(name.to_owned())
}

/// A node selector term that asks for labels: `(key, None)` for any value, `(key, Some(value))` for
/// that value.
#[must_use]
pub fn on_labels(labels: &[(&str, Option<&str>)]) -> NodeTerm {
    let label = |&(key, value): &(&str, Option<&str>)| NodeLabel {
        key: key.to_owned(),
        value: value.map(str::to_owned),
    };
    NodeTerm::Labelled(labels.iter().map(label).collect())
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
            Self::Gate(name) => write!(formatter, "scheduling gate {name}"),
            Self::ClaimName { from, to } => write!(formatter, "claim {to} instead of {from}"),
            Self::StorageClass(class) => write!(formatter, "storage class {class}"),
        }
    }
}

fn write_node_term(formatter: &mut fmt::Formatter<'_>, term: &NodeTerm) -> fmt::Result {
    for (index, requirement) in term.fields().chain(term.expressions()).enumerate() {
        if index > 0 {
            formatter.write_str(" and ")?;
        }
        write!(formatter, "{} {}", requirement.key, requirement.operator)?;
        if !requirement.values.is_empty() {
            write!(formatter, " [{}]", requirement.values.join(", "))?;
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
    let requirements: Vec<(&str, &str, &str)> = match &term.selector {
        Selector::Expressions { requirements, .. } => requirements
            .iter()
            .map(|LabelRequirement { key, operator, value }| (&**key, operator.as_str(), &**value))
            .collect(),
        Selector::Labels(labels) => {
            labels.iter().map(|(key, value)| (*key, Operator::In.as_str(), &**value)).collect()
        }
    };
    for (index, (key, operator, value)) in requirements.into_iter().enumerate() {
        if index > 0 {
            formatter.write_str(" and ")?;
        }
        write!(formatter, "{key} {operator} [{value}]")?;
    }
    Ok(())
}
