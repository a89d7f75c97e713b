//! The resources that pods use on their nodes. Each system keeps the other fields of its own pods.

use std::collections::HashMap;

use k8s_openapi::api::core::v1 as core;

use super::resource::POD;
use super::rows::{RowIndex, Rows, TableRow};
use super::table::{Kind, Scope, Watch, all_of_kind};
use super::{Name, Resources};
use crate::kubernetes::is_finished;

pub(crate) const PODS: Kind = Kind::built_in(POD);

/// The watches of a table that reads all pods for the controller, and none for admission.
#[must_use]
pub(crate) fn all_for_controller(scope: Scope) -> Vec<Watch> {
    all_of_kind(&PODS, &[Scope::Controller], scope)
}

/// The resources that a bound pod uses.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Usage {
    pub node: Box<str>,
    pub requests: Resources,
}

/// The resources of a node that its unfinished pods use.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NodeUsage {
    /// The number of pods.
    pub pods: usize,
    /// The sum of their requests.
    pub requested: Resources,
}

/// The table of the resources that bound pods use. Only in the controller's View.
pub(crate) type Usages = Rows<Usage, OfNodes>;

/// The resources that the pods on each node use.
#[derive(Debug, Default)]
pub(crate) struct OfNodes(HashMap<Box<str>, NodeUsage>);

impl OfNodes {
    /// The resources that the pods on a node use; `None`: there are no pods.
    #[must_use]
    pub(crate) fn of_node(&self, node: &str) -> Option<&NodeUsage> {
        self.0.get(node)
    }
}

impl TableRow for Usage {
    type Object = core::Pod;
    const KIND: &'static Kind = &PODS;
    const COUNTED_AS: Option<&'static str> = Some("bound pods");
    const WATCHED_IN: &'static [Scope] = &[Scope::Controller];

    fn from_object(pod: &core::Pod, scope: Scope) -> Option<Self> {
        let spec = pod.spec.as_ref().filter(|_| scope == Scope::Controller && !is_finished(pod))?;
        let node = spec.node_name.as_deref()?.into();
        Some(Self { node, requests: Resources::counted(pod) })
    }
}

impl RowIndex<Usage> for OfNodes {
    fn add(&mut self, _: &Name, usage: &Usage) {
        let node = self.0.entry(usage.node.clone()).or_default();
        node.pods += 1;
        node.requested = node.requested.plus(&usage.requests);
    }

    fn remove(&mut self, _: &Name, usage: Usage) {
        let Some(node) = self.0.get_mut(&usage.node) else { return };
        node.pods -= 1;
        node.requested = node.requested.minus(&usage.requests);
        if node.pods == 0 {
            self.0.remove(&usage.node);
        }
    }
}
