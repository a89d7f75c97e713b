//! Decides which pools may have nodes, by the policy and by the limit of exclusive nodes per
//! namespace.

use std::collections::HashMap;

use super::Pool;
use super::status::Readiness;
use crate::systems::View;
use crate::systems::policy::Policy;
use crate::systems::streams::guard::find_refusal;
use crate::systems::streams::reasons::PoolReason;

/// The decision about a pool.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    /// It may have nodes.
    Accepted {
        /// The reason why it keeps the nodes that it has but gets no more, if that is so.
        limit: Option<String>,
    },
    /// It may not have nodes, and loses those that it has.
    Refused(Readiness),
    /// Not enough is known for a decision, so neither the pool nor its nodes change.
    Undecided,
}

impl Verdict {
    fn refuse(reason: PoolReason, message: String) -> Self {
        Self::Refused(Readiness::new(reason, message))
    }
}

/// Decides about all pools, which must be in the order of their creation.
/// `lingering`: how many nodes of each namespace are still tainted for a pool that has lost them.
pub(super) fn judge(
    pools: &mut [Pool<'_>],
    lingering: &HashMap<&str, u32>,
    view: &View,
    policy: &Policy,
) {
    for pool in &mut *pools {
        pool.verdict = judge_alone(pool, view, policy);
    }
    refuse_too_many(pools, policy.host_pools.max_pools_per_namespace);
    let limit = policy.host_pools.max_exclusive_nodes_per_namespace;
    let mut totals: HashMap<&str, u32> = HashMap::new();
    // The nodes that pools hold are counted before those that pools ask for, so that an older pool
    // that grows takes nothing from a younger one that is in use.
    for holding in [true, false] {
        // Pools that have nodes do not lose them because a node is still tainted beside them.
        if !holding {
            for (namespace, nodes) in lingering {
                let total = totals.entry(namespace).or_default();
                *total = total.saturating_add(*nodes);
            }
        }
        for pool in pools.iter_mut().filter(|pool| pool.pool.exclusive && pool.is_accepted()) {
            let held = pool.held();
            let asked = if holding { held } else { pool.wanted().saturating_sub(held) };
            if asked == 0 {
                continue;
            }
            let namespace = &*pool.name.namespace;
            let total = totals.entry(namespace).or_default();
            if let Some(sum) = total.checked_add(asked).filter(|sum| *sum <= limit) {
                *total = sum;
                continue;
            }
            let grows = held > 0 && !holding;
            let by_earlier = lingering.get(namespace).filter(|_| !holding).map(|nodes| format!(
                ", {nodes} of them by pods of earlier pools: delete these pods, or wait until they end"
            ));
            let message = format!(
                "asks for {asked}{} exclusive {}; namespace {namespace} may have {limit}, and {total} {} taken{}",
                if grows { " more" } else { "" },
                if asked == 1 { "node" } else { "nodes" },
                if *total == 1 { "is" } else { "are" },
                by_earlier.unwrap_or_default(),
            );
            pool.verdict = match grows {
                true => Verdict::Accepted { limit: Some(message) },
                false => Verdict::refuse(PoolReason::TooManyExclusiveNodes, message),
            };
        }
    }
}

/// Refuses the youngest pools of each namespace that has more than `limit`.
fn refuse_too_many(pools: &mut [Pool<'_>], limit: u32) {
    let mut counts: HashMap<&str, u32> = HashMap::new();
    for pool in pools.iter_mut().filter(|pool| pool.is_accepted()) {
        let namespace = &*pool.name.namespace;
        let count = counts.entry(namespace).or_default();
        if *count < limit {
            *count += 1;
            continue;
        }
        let message = format!(
            "namespace {namespace} may have {limit} host {}, and has older ones; delete one that is not needed, or ask the cluster's administrator (hostPools.maxPoolsPerNamespace)",
            if limit == 1 { "pool" } else { "pools" },
        );
        pool.verdict = Verdict::refuse(PoolReason::TooManyPools, message);
    }
}

/// Decides about a pool by itself, without the limit of its namespace.
fn judge_alone(pool: &Pool<'_>, view: &View, policy: &Policy) -> Verdict {
    if !pool.pool.readable {
        return Verdict::Undecided;
    }
    let is_new = pool.pool.status.conditions.is_empty();
    if is_new && pool.hold().is_some_and(|hold| hold.is_incomplete) {
        // A pool without a status lets pods come, which wait; one that is not Ready refuses them.
        return Verdict::Undecided;
    }
    if let Err(problem) = &pool.pool.form {
        return Verdict::refuse(
            PoolReason::InvalidPool,
            format!("the pool {problem}; create a new one"),
        );
    }
    if !policy.streams.enabled {
        return Verdict::refuse(PoolReason::NotAllowed, "the policy turns Streams off".to_owned());
    }
    let namespace = &*pool.name.namespace;
    let is_selective = policy.host_pools.enabled && !policy.host_pools.namespaces.is_empty();
    if is_selective && view.namespace_labels(namespace).is_none() {
        // The watch of namespaces may lag behind that of pools.
        return Verdict::Undecided;
    }
    match find_refusal(namespace, view, policy) {
        None => Verdict::Accepted { limit: None },
        Some(problem) => Verdict::refuse(PoolReason::NotAllowed, problem),
    }
}
