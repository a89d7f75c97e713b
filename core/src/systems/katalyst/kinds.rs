//! The kinds of objects that NUMA affinity reads: for each the fields that are kept, and its table.

pub(crate) mod node;
pub(crate) mod pod;
pub(crate) mod topology;

use crate::systems::View;
use crate::view::table::Table as _;
use crate::view::{Name, Node};
use node::NodeInFull;
use pod::NumaPod;
use topology::Topology;

/// The queries of NUMA affinity to a View.
impl View {
    /// Returns true if a node has the label of nodes with NUMA nodes.
    pub(super) fn has_numa_nodes(&self) -> bool {
        self.numa_nodes.count() > 0
    }

    /// A node with all that is known of it.
    pub(super) fn node_in_full(&self, node: &str) -> Option<&Node> {
        let in_full = self.nodes_in_full.get(&Name::cluster_wide(node));
        in_full.map(|NodeInFull(node)| node).or_else(|| self.node(node))
    }

    /// Returns Katalyst's report about a node; `None`: there is none.
    pub(super) fn topology(&self, node: &str) -> Option<&Topology> {
        self.topologies.get(&Name::cluster_wide(node))
    }

    /// Returns Katalyst's reports about nodes, sorted by name.
    pub(super) fn topologies(&self) -> Vec<(&Name, &Topology)> {
        let mut reports: Vec<_> = self.topologies.iter().collect();
        reports.sort_unstable_by_key(|(name, _)| *name);
        reports
    }

    /// A pod that Katalyst binds to NUMA nodes, or with a NUMA affinity.
    pub(super) fn numa_pod(&self, name: &Name) -> Option<&NumaPod> {
        self.numa_pods.get(name)
    }

    /// All such pods, unordered.
    pub(super) fn numa_pods(&self) -> impl Iterator<Item = (&Name, &NumaPod)> {
        self.numa_pods.iter()
    }
}
