//! The nodes on which the cases of this folder place their pods.

use testbed::control_plane::NodeSpec;

/// Nodes `node-1` to `node-6` with addresses from 10.4.40.81 on. The first three carry `trio=yes`;
/// `node-2` is tagged `source`, `node-3` `ib`, `node-4` `ib` and `blue`. `bare` has no hostname
/// label.
pub(crate) fn nodes() -> Vec<NodeSpec> {
    let mut nodes = NodeSpec::numbered(6);
    for node in &mut nodes[..3] {
        *node = node.clone().label("trio", "yes");
    }
    nodes[1] = nodes[1].clone().label("streams.ibm.com/hostpool", "source");
    nodes[2] = nodes[2].clone().label("hostpool.streams.ibm.com/ib", "");
    nodes[3] = nodes[3]
        .clone()
        .label("hostpool.streams.ibm.com/ib", "")
        .label("hostpool.streams.ibm.com/blue", "");
    nodes[4] = nodes[4].clone().address("InternalDNS", "foo.watson.ibm.com");
    nodes.push(NodeSpec::new("bare").label("bare", "yes").without_hostname_label());
    nodes
}
