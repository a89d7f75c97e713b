//! Reads the pods without a node: their requirements, and how the controller may change them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::core::v1::{NodeSelectorTerm, Toleration};

use super::listed::{self, Listed};
use super::named;
use crate::kubernetes::{self, AboveNodeTerms};
use crate::placement::record;
use crate::systems::fit::{self, PodNeeds};
use crate::systems::streams::NAME;
use crate::systems::streams::keys::{EXLOCATED, GATE, ISOLATED, RESERVED};
use crate::view::Resources;

/// A pod without a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PendingPod {
    /// The index of [`GATE`] among its scheduling gates.
    pub gate: Option<usize>,
    /// True if a controller of Kubernetes creates it again when it is deleted.
    pub is_created_again: bool,
    /// True if the webhook would hold it to the present nodes of its job, as it has held it to earlier ones
    /// according to its record.
    pub is_held: bool,
    /// True if its record says that it is kept apart from others, but it may run on a node without the label
    /// `kubernetes.io/hostname`, where the scheduler does not keep pods apart.
    pub may_be_nameless: bool,
    /// True if it must be on the node of a colocation group.
    pub is_near: bool,
    /// The terms of its required node affinity, without the hostnames of pool members.
    pub terms: Option<Box<[NodeSelectorTerm]>>,
    /// The hostnames of pool members that its required node affinity names.
    pub listed: Box<[Listed]>,
    /// The object below which a patch gives it its first term.
    pub above_terms: AboveNodeTerms,
    pub(super) node_selector: BTreeMap<Box<str>, Box<str>>,
    tolerations: Box<[Toleration]>,
    requests: Resources,
}

/// Returns whether the record of a pod has an entry with one of these beginnings.
fn has_entry(pod: &core::Pod, beginnings: &[&str]) -> bool {
    let record = kubernetes::annotation(&pod.metadata, record::KEY).unwrap_or_default();
    let entries = record::entries(record, NAME);
    entries.iter().any(|entry| beginnings.iter().any(|begin| entry.starts_with(begin)))
}

impl PendingPod {
    pub(super) fn read(pod: &core::Pod) -> Self {
        let spec = pod.spec.as_ref();
        let selector = spec.and_then(|spec| spec.node_selector.as_ref()).into_iter().flatten();
        let tolerations = spec.and_then(|spec| spec.tolerations.as_deref());
        let terms = kubernetes::required_node_terms(kubernetes::affinity(pod));
        let mut terms: Option<Box<[NodeSelectorTerm]>> = terms.map(Into::into);
        let listed = listed::take(terms.as_deref_mut().unwrap_or_default());
        Self {
            gate: kubernetes::gates(pod).position(|gate| gate == GATE),
            is_created_again: kubernetes::is_created_again(&pod.metadata),
            is_held: has_entry(pod, &[RESERVED]),
            may_be_nameless: named::may_be_nameless(pod) && has_entry(pod, &[EXLOCATED, ISOLATED]),
            is_near: named::is_near(pod),
            terms,
            listed,
            above_terms: AboveNodeTerms::from(pod),
            node_selector: selector
                .map(|(key, value)| (key.as_str().into(), value.as_str().into()))
                .collect(),
            tolerations: tolerations.unwrap_or_default().into(),
            requests: spec.map(Resources::requested).unwrap_or_default(),
        }
    }

    /// The sum of its requests.
    pub(crate) fn requests(&self) -> &Resources {
        &self.requests
    }

    /// Returns the requirements on its node, without the name of a node in its required node affinity.
    pub(crate) fn needs(&self) -> PodNeeds<'_> {
        let selector = self.node_selector.iter();
        PodNeeds {
            node_selector: selector.map(|(key, value)| (&**key, &**value)).collect(),
            node_terms: self.terms.as_deref().and_then(fit::unbound_terms),
            tolerations: &self.tolerations,
            requests: Some(Cow::Borrowed(&self.requests)),
        }
    }
}
