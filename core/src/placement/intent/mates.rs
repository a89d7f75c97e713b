//! The term of a pod affinity that only narrows the scheduler's choice.

use k8s_openapi::api::core::v1::PodAffinityTerm;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use super::Operator;
use crate::kubernetes::HOSTNAME;

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
    /// Returns true if `term` is this term, as stowplan wrote it in an earlier round.
    #[must_use]
    pub fn is_own_mark(&self, term: &PodAffinityTerm) -> bool {
        *term == self.term()
    }

    /// Returns the term to be written.
    pub(crate) fn term(&self) -> PodAffinityTerm {
        let requirement = LabelSelectorRequirement {
            key: self.key.clone(),
            operator: Operator::In.as_str().to_owned(),
            values: Some(self.values.clone()),
        };
        PodAffinityTerm {
            label_selector: Some(LabelSelector {
                match_expressions: Some(vec![requirement]),
                match_labels: None,
            }),
            namespace_selector: Some(LabelSelector::default()),
            topology_key: HOSTNAME.to_owned(),
            ..PodAffinityTerm::default()
        }
    }
}
