//! The nodes with the label of nodes with NUMA nodes, and all nodes in full for explanations.

use k8s_openapi::api::core::v1 as core;

use crate::kubernetes::label;
use crate::systems::katalyst::keys::NUMA_ZONES;
use crate::view::node::NODES;
use crate::view::rows::{Rows, TableRow};
use crate::view::{Kind, Node, NodeDetails, Scope};

/// A node with the label.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NumaNode;

/// The table of these nodes.
pub(crate) type NumaNodes = Rows<NumaNode>;

impl TableRow for NumaNode {
    type Object = core::Node;
    const KIND: &'static Kind = &NODES;

    fn from_object(node: &core::Node, _: Scope) -> Option<Self> {
        label(&node.metadata, NUMA_ZONES).map(|_| Self)
    }
}

/// A node with what only the controller keeps. The command `plan` explains decisions by it; the decisions
/// themselves know no more than the webhook.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeInFull(pub Node);

/// The table of these nodes, from files and for explanations alone.
pub(crate) type NodesInFull = Rows<NodeInFull>;

impl TableRow for NodeInFull {
    type Object = core::Node;
    const KIND: &'static Kind = &NODES;
    const WATCHED_IN: &'static [Scope] = &[Scope::File];

    fn from_object(node: &core::Node, scope: Scope) -> Option<Self> {
        let mut details = NodeDetails::from(node);
        // A file may leave the status out.
        details.ready |= node.status.as_ref().is_none_or(|status| status.conditions.is_none());
        let details = Some(Box::new(details));
        (scope == Scope::File).then(|| Self(Node { details, ..Node::from(node) }))
    }
}
