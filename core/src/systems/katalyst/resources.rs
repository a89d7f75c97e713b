//! The resource that NUMA affinity reads.

use crate::view::resource::Resource;

/// A CustomNodeResource: what Katalyst's agent reports about a node. Its name is that of the node.
pub(crate) const CUSTOM_NODE_RESOURCE: Resource = Resource {
    group: "node.katalyst.kubewharf.io",
    version: "v1alpha1",
    kind: "CustomNodeResource",
    plural: "customnoderesources",
    namespaced: false,
};
