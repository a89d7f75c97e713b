//! Changes as texts for people.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;

use super::{Change, Enforcement, Mates, PodTerm, Selector};
use crate::placement::affinity::Requirements;

impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label { key, value } => write!(formatter, "label {key}: {value}"),
            Self::Annotation { key, value: Some(value) } => {
                write!(formatter, "annotation {key}: {value}")
            }
            Self::Annotation { key, value: None } => write!(formatter, "annotation {key} removed"),
            Self::NodeAffinity(terms) => {
                write!(formatter, "required node affinity {}", AnyOf(terms))
            }
            Self::PodAffinity(term) => write_pod_term(formatter, "affinity", term),
            Self::PodAffinityHint(Mates { key, values }) => {
                formatter.write_str(
                    "required pod affinity on one node with pods of all namespaces where ",
                )?;
                write!(formatter, "{key} In [{}]", values.join(", "))
            }
            Self::PodAntiAffinity(term) => write_pod_term(formatter, "anti-affinity", term),
            Self::Toleration { key, value, effect } => {
                write!(formatter, "toleration {key}={value}:{effect}")
            }
            Self::SetNodeName(node) => write!(formatter, "nodeName {node}"),
            Self::ReleaseNodeName => formatter.write_str("nodeName released to the scheduler"),
            Self::Gate(name) => write!(formatter, "scheduling gate {name}"),
            Self::ClaimName { from, to } => write!(formatter, "claim {to} instead of {from}"),
            Self::Hostname(name) => write!(formatter, "hostname {name}"),
            Self::Subdomain(name) => write!(formatter, "subdomain {name}"),
            Self::DnsSearch(domain) => write!(formatter, "DNS search {domain}"),
            Self::Volume { name, .. } => write!(formatter, "volume {name}"),
            Self::InitContainer { name, .. } => write!(formatter, "init container {name}"),
            Self::Container { change, .. } => write!(formatter, "{change}"),
            Self::StorageClass(class) => write!(formatter, "storage class {class}"),
        }
    }
}

/// Node terms of which a node has to match one, as a text.
pub(crate) struct AnyOf<'t, T>(pub(crate) &'t [T]);

impl<T: Requirements> fmt::Display for AnyOf<'_, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, term) in self.0.iter().take(4).enumerate() {
            if index > 0 {
                formatter.write_str(" or ")?;
            }
            write_node_term(formatter, term)?;
        }
        match self.0.len().saturating_sub(4) {
            0 => Ok(()),
            more => write!(formatter, " or {more} more"),
        }
    }
}

fn write_node_term(formatter: &mut fmt::Formatter<'_>, term: &impl Requirements) -> fmt::Result {
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
    let requirements: Vec<String> = match &term.selector {
        Selector::Expressions { identity, further, .. } => {
            let requirements = identity.iter().chain(further);
            let text = |of: &LabelSelectorRequirement| {
                let values = of.values.as_deref().unwrap_or_default();
                format!("{} {} [{}]", of.key, of.operator, values.join(", "))
            };
            requirements.map(text).collect()
        }
        Selector::Labels(labels) => {
            labels.iter().map(|(key, value)| format!("{key} In [{value}]")).collect()
        }
    };
    formatter.write_str(&requirements.join(" and "))
}
