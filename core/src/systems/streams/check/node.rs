//! Reports the decisions of Streams about a node: the pools that have it, and their taints.

use k8s_openapi::api::core::v1::Toleration;

use super::check_pool;
use crate::systems::check::{Context, NodeReport};
use crate::systems::streams::api::host_pool::MemberState;
use crate::systems::streams::keys::{EXCLUSIVE_EFFECT, EXCLUSIVE_TAINTS};
use crate::view::Name;
use crate::view::node::Taint;

/// Reports the pools that have a node, each with the index of the member, and the taints that keep the pods
/// of others off it.
pub(in crate::systems::streams) fn check(context: &Context<'_>, node: &str) -> NodeReport {
    let view = &context.cluster.view;
    let mut pools: Vec<_> = view.host_pools().collect();
    pools.sort_unstable_by_key(|(name, _)| *name);
    let mut report = NodeReport::default();
    for (key, pool) in pools {
        let Name { namespace, name } = key;
        for member in &pool.status.members {
            if member.node.as_deref() != Some(node) || member.state == MemberState::Vacant {
                continue;
            }
            let exclusive = if pool.exclusive { ", exclusive" } else { "" };
            let (index, state) = (member.index, member.state);
            report.decided.push(format!(
                "member {index} of HostPool {namespace}/{name}{exclusive}, {state:?}"
            ));
            let Some(hash) = pool.hash.as_deref().filter(|_| pool.exclusive) else { continue };
            let details = view.node(node).and_then(|node| node.details.as_deref());
            let mut taints = details.into_iter().flat_map(|details| &details.taints);
            let own = taints.find(|of| *of.value == *hash && EXCLUSIVE_TAINTS.contains(&&*of.key));
            if let Some(Taint { key, .. }) = own {
                report.decided.push(format!(
                    "taint {key}={hash}:{EXCLUSIVE_EFFECT}: only pods of HostPool \
                     {namespace}/{name} run here"
                ));
            }
            report.reserved_for = Some((format!("HostPool {namespace}/{name}"), check_pool(key)));
            report.tolerations.extend(EXCLUSIVE_TAINTS.map(|key| Toleration {
                key: Some(key.to_owned()),
                operator: Some("Equal".to_owned()),
                value: Some(hash.to_owned()),
                effect: Some(EXCLUSIVE_EFFECT.to_owned()),
                ..Toleration::default()
            }));
        }
    }
    report
}
