//! Enforces the policy about pools: the namespaces that may have them, and how many exclusive hosts
//! a namespace may have.

use crate::api::condition::{ACCEPTED, Condition, Status, find};
use crate::placement::reason::{Finding, Reason};
use crate::systems::View;
use crate::systems::check::words::counted;
use crate::systems::policy::Policy;
use crate::systems::streams::kinds::{HostPool, to_usize};
use crate::view::Name;

/// Returns a finding about `subject` if the policy does not allow pools in a namespace.
pub(crate) fn pools(
    subject: &str,
    namespace: &str,
    view: &View,
    policy: &Policy,
) -> Option<Finding> {
    let problem = find_refusal(namespace, view, policy)?;
    let remedy = "ask the cluster's administrator, or do without pools";
    Some(Finding::new(Reason::PoolNotAllowed, subject, problem, remedy))
}

/// Returns why the policy allows no pools in a namespace.
pub(crate) fn find_refusal(namespace: &str, view: &View, policy: &Policy) -> Option<String> {
    if !policy.host_pools.enabled {
        return Some("the policy turns host pools off".to_owned());
    }
    let labels = view.namespace_labels(namespace);
    let (key, value) = policy.host_pools.namespaces.iter().find(|(key, value)| {
        labels.and_then(|labels| labels.get(key.as_str())).map(AsRef::as_ref)
            != Some(value.as_str())
    })?;
    Some(format!(
        "the policy allows host pools in namespaces labelled {key}={value}, and {namespace} is not"
    ))
}

/// Returns a finding about `subject` if a namespace may have no further pool beside its existing ones
/// without `own`. An invalid pool does not count: the controller serves others in its place.
pub(crate) fn count(subject: &str, own: &Name, view: &View, policy: &Policy) -> Option<Finding> {
    let most = policy.host_pools.max_pools_per_namespace;
    let others = find_valid(&own.namespace, |name, _| *name != *own.name, view).len();
    if others < to_usize(most) {
        return None;
    }
    let namespace = &own.namespace;
    let problem =
        format!("namespace {namespace} has {others} host pools, and the policy allows {most}");
    let remedy = "delete a pool that is not needed, or ask the cluster's administrator (hostPools.maxPoolsPerNamespace)";
    Some(Finding::new(Reason::TooManyPools, subject, problem, remedy))
}

/// Returns a finding about `subject` if a namespace may not have `wanted` exclusive hosts in addition to
/// those of its existing pools for which `counts` is true.
pub(crate) fn exclusive_hosts(
    subject: &str,
    namespace: &str,
    wanted: u32,
    counts: impl Fn(&str, &HostPool) -> bool,
    view: &View,
    policy: &Policy,
) -> Option<Finding> {
    let most = policy.host_pools.max_exclusive_nodes_per_namespace;
    if wanted == 0 {
        return None;
    }
    let others = count_exclusive(find_valid(namespace, counts, view), policy);
    if wanted.saturating_add(others) <= most {
        return None;
    }
    let beside = match others {
        0 => String::new(),
        others => format!(" beside {others} of its other pools"),
    };
    let problem = format!(
        "asks for {}{beside}, and the policy allows namespace {namespace} at most {most}",
        counted(to_usize(wanted), "exclusive host")
    );
    let remedy = "ask for fewer, make the pool Shared, or ask the cluster's administrator";
    Some(Finding::new(Reason::TooManyExclusiveNodes, subject, problem, remedy))
}

/// Finds the pools of a namespace that exist and are valid by themselves, of those for which `counts` is
/// true, the oldest first, as the controller does.
fn find_valid<'v>(
    namespace: &str,
    counts: impl Fn(&str, &HostPool) -> bool,
    view: &'v View,
) -> Vec<&'v HostPool> {
    let pools = view.host_pools().filter(|(name, pool)| {
        *name.namespace == *namespace
            && counts(&name.name, pool)
            && !pool.identity.deleting
            && pool.form.is_ok()
    });
    let mut pools: Vec<_> = pools.collect();
    pools.sort_unstable_by_key(|(name, pool)| (pool.identity.created, *name));
    pools.into_iter().map(|(_, pool)| pool).collect()
}

/// Counts the exclusive hosts of pools, without those of pools to which the controller gives none. The
/// policy may have admitted these with a warning, and their status may not say it yet.
fn count_exclusive(mut pools: Vec<&HostPool>, policy: &Policy) -> u32 {
    pools.truncate(to_usize(policy.host_pools.max_pools_per_namespace));
    pools.retain(|pool| pool.exclusive && !is_refused(pool));
    let has_nodes = |pool: &&HostPool| !pool.status.members.is_empty();
    let (serving, waiting): (Vec<_>, Vec<_>) = pools.into_iter().partition(has_nodes);
    let taken = serving.into_iter().map(HostPool::size).fold(0, u32::saturating_add);
    waiting.into_iter().map(HostPool::size).fold(taken, |taken, wanted| {
        let sum = taken.saturating_add(wanted);
        if sum <= policy.host_pools.max_exclusive_nodes_per_namespace { sum } else { taken }
    })
}

/// Returns true if the controller has refused the pool as it is now.
pub(crate) fn is_refused(pool: &HostPool) -> bool {
    find_current(pool, ACCEPTED).is_some()
}

/// A condition of the pool that is False, and is about the pool as it is now.
pub(crate) fn find_current<'p>(pool: &'p HostPool, type_: &str) -> Option<&'p Condition> {
    find(&pool.status.conditions, type_).filter(|condition| {
        condition.status == Status::False
            && condition.observed_generation == Some(pool.identity.generation)
    })
}
