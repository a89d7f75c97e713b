//! Which pools may have nodes at all: what the policy says, and what a namespace may hold.

use std::collections::HashMap;

use super::Pool;
use crate::policy::Policy;
use crate::view::View;

/// What is to become of a pool.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    /// It is served.
    Accepted {
        /// Why it keeps what it has and gets no more.
        limit: Option<String>,
    },
    /// It is not, and what it had is taken back.
    Refused {
        /// The stable word.
        reason: &'static str,
        /// Why, for people.
        message: String,
    },
    /// That cannot be said yet: everything stays as it is.
    Open,
}

/// The verdict of each pool. They come in the order in which they were made.
pub(super) fn judge(pools: &[Pool<'_>], view: &View, policy: &Policy) -> Vec<Verdict> {
    let mut verdicts: Vec<Verdict> = pools.iter().map(|pool| alone(pool, view, policy)).collect();
    let limit = policy.host_pools.max_exclusive_nodes_per_namespace;
    let mut totals: HashMap<&str, u32> = HashMap::new();
    // What pools hold counts before what others ask for: an older pool that grows takes nothing from
    // a younger one that is in use.
    for holding in [true, false] {
        for (pool, verdict) in pools.iter().zip(&mut verdicts) {
            let Verdict::Accepted { limit: grows_no_more } = verdict else { continue };
            let held = pool.held();
            let asked = match (pool.exclusive(), holding) {
                (false, _) => continue,
                (true, true) => held,
                (true, false) => pool.wanted().saturating_sub(held),
            };
            if asked == 0 {
                continue;
            }
            let namespace = &*pool.name.namespace;
            let total = totals.entry(namespace).or_default();
            if let Some(sum) = total.checked_add(asked).filter(|sum| *sum <= limit) {
                *total = sum;
                continue;
            }
            let message = format!(
                "asks for {asked}{} exclusive {}; namespace {namespace} may have {limit}, and {total} {} taken",
                if held > 0 && !holding { " more" } else { "" },
                if asked == 1 { "node" } else { "nodes" },
                if *total == 1 { "is" } else { "are" },
            );
            if held > 0 && !holding {
                *grows_no_more = Some(message);
            } else {
                *verdict = Verdict::Refused { reason: TOO_MANY, message };
            }
        }
    }
    verdicts
}

/// The namespace has as many exclusive nodes as the policy allows.
pub(super) const TOO_MANY: &str = "TooManyExclusiveNodes";

fn alone(pool: &Pool<'_>, view: &View, policy: &Policy) -> Verdict {
    let refused = |reason, message| Verdict::Refused { reason, message };
    if !pool.pool.readable {
        return Verdict::Open;
    }
    if let Err(problem) = &pool.pool.form {
        return refused("InvalidPool", format!("the pool {problem}; make a new one"));
    }
    if !policy.streams.enabled {
        return refused("NotAllowed", "the policy turns Streams off".to_owned());
    }
    if !policy.host_pools.enabled {
        return refused("NotAllowed", "the policy turns host pools off".to_owned());
    }
    if policy.host_pools.namespaces.is_empty() {
        return Verdict::Accepted { limit: None };
    }
    let namespace = &*pool.name.namespace;
    let Some(labels) = view.namespace_labels(namespace) else {
        // The watch of namespaces may be behind that of pools.
        return Verdict::Open;
    };
    let missing =
        policy.host_pools.namespaces.iter().find(|(key, value)| {
            labels.get(key.as_str()).is_none_or(|present| **present != **value)
        });
    match missing {
        None => Verdict::Accepted { limit: None },
        Some((key, value)) => refused(
            "NotAllowed",
            format!(
                "the policy allows host pools in namespaces labelled {key}={value}, and {namespace} is not"
            ),
        ),
    }
}
