//! What Streams has decided about a node: the pools that have it.

use crate::systems::check::Context;
use crate::systems::streams::api::host_pool::MemberState;
use crate::systems::streams::kinds::StreamsView as _;
use crate::view::Name;

/// The pools that have a node, each with the index of the member.
pub(in crate::systems::streams) fn check(context: &Context<'_>, node: &str) -> Vec<String> {
    let mut pools: Vec<_> = context.cluster.view.host_pools().collect();
    pools.sort_unstable_by_key(|(name, _)| *name);
    let mut found = Vec::new();
    for (Name { namespace, name }, pool) in pools {
        for member in &pool.status.members {
            if member.node.as_deref() == Some(node) && member.state != MemberState::Vacant {
                let exclusive = if pool.exclusive { ", exclusive" } else { "" };
                let (index, state) = (member.index, member.state);
                found.push(format!(
                    "member {index} of HostPool {namespace}/{name}{exclusive}, {state:?}"
                ));
            }
        }
    }
    found
}
