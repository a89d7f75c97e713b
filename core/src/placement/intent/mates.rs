//! The term of a pod affinity that only narrows the scheduler's choice.

use k8s_openapi::api::core::v1::PodAffinityTerm;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};

use super::{HOSTNAME, Operator};
use crate::placement::affinity::Requirement;

/// Pods of all namespaces whose label `key` has one of `values`. Written as a required pod-affinity
/// term with the topology of one node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mates {
    /// The label's key.
    pub key: String,
    /// The label's values. Never empty.
    pub values: Vec<String>,
}

impl Mates {
    /// Whether `term` is this term, as stowplan wrote it in an earlier round.
    #[must_use]
    pub fn is_own_mark(&self, term: &PodAffinityTerm) -> bool {
        let own = LabelSelectorRequirement {
            key: self.key.clone(),
            operator: Operator::In.as_str().to_owned(),
            values: Some(self.values.clone()),
        };
        let selector =
            LabelSelector { match_expressions: Some(vec![own]), ..LabelSelector::default() };
        let written = PodAffinityTerm {
            label_selector: Some(selector),
            namespace_selector: Some(LabelSelector::default()),
            topology_key: HOSTNAME.to_owned(),
            ..PodAffinityTerm::default()
        };
        *term == written
    }
}

impl Serialize for Mates {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let requirement =
            Requirement { key: &self.key, operator: Operator::In.as_str(), values: &self.values };
        let mut term = serializer.serialize_map(Some(3))?;
        term.serialize_entry("labelSelector", &Expressions { match_expressions: [requirement] })?;
        term.serialize_entry("namespaceSelector", &Empty {})?;
        term.serialize_entry("topologyKey", HOSTNAME)?;
        term.end()
    }
}

/// A label selector with one requirement.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Expressions<'e> {
    match_expressions: [Requirement<'e>; 1],
}

/// A selector that selects everything.
#[derive(Serialize)]
struct Empty {}
