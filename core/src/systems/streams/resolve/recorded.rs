//! Keeps the location that the pod's record names: a decision of an earlier round.

use super::super::owners::pool_of_hash;
use super::super::{Placing, keys};
use super::{all_terms, is_pinned};
use crate::names::is_short_digest;
use crate::placement::affinity::{implies, pinned_node};
use crate::placement::intent::on_labels;
use crate::placement::reason::Reason;
use crate::systems::streams::kinds::node_marks::term_of_tags;
use crate::systems::streams::resources::HOST_POOL;
use crate::view::{Key, Name};

impl Placing<'_> {
    /// Keeps the decision of an earlier round even if the cluster has changed since then. Both the
    /// pod's record and its node affinity or node name must state the decision. An author who
    /// forges both only constrains the pod further: what a pod gains, a toleration, comes from the
    /// pool as it is now and never from the record.
    ///
    /// `pool` is the name of the HostPool that the pod asks for. If the decision is for an earlier pool
    /// of this name, the pod is refused: it could never run.
    ///
    /// Returns `None` if there is no such decision, otherwise the node if only one is possible.
    pub(super) fn keep_recorded(
        &mut self,
        key: &'static str,
        value: &str,
        pool: Option<&str>,
    ) -> Option<Option<String>> {
        if !self.policy.record_placement {
            // This round removes the record, so it must not use it either.
            return None;
        }
        let decision = &*self.recorded(key, value)?;
        if let Some(node) = decision.strip_prefix("node ") {
            if !is_pinned(self.pod, node) && self.pod.node_name != Some(node) {
                return None;
            }
            self.bind_to_node(key, value, node);
            return Some(Some(node.to_owned()));
        }
        if let Some((index, hash)) = parse_members(decision) {
            let label = [keys::POOL_LABEL_PREFIX, hash].concat();
            let index = index.map(|index| index.to_string());
            let term = on_labels(&[(&label, index.as_deref())]);
            if !all_terms(self.pod, |present| implies(present, &term)) {
                return None;
            }
            if let Some(pool) = pool
                && self.is_of_earlier_pool(key, pool, hash)
            {
                return Some(None);
            }
            let index = index.and_then(|index| index.parse().ok());
            let is_exclusive = pool_of_hash(hash, self.view).is_some_and(|(name, pool)| {
                pool.exclusive && *name.namespace == *self.pod.namespace
            });
            // It names the members that the pool had then.
            self.require_members(value, hash, is_exclusive, index, &[]);
            self.record(key, value, decision);
            self.warn_about_node_name(key);
            return Some(None);
        }
        let is_confirmed = if let Some(tags) = decision.strip_prefix("nodes tagged ") {
            let term = term_of_tags(&tags.split(" and ").collect::<Vec<_>>());
            all_terms(self.pod, |present| implies(present, &term))
        } else {
            all_terms(self.pod, |present| pinned_node(present).is_some())
        };
        if !is_confirmed {
            return None;
        }
        self.record(key, value, decision);
        self.warn_about_node_name(key);
        Some(None)
    }
}

impl Placing<'_> {
    /// Returns true if the pod was bound to an earlier pool of the name `pool`, which is reported. Such a pod
    /// is from a backup: pools are found by a hash of their UID, and a restored pool has another one.
    /// Without any pool of that name the decision is kept, with a warning.
    fn is_of_earlier_pool(&mut self, key: &'static str, pool: &str, hash: &str) -> bool {
        let view = self.view;
        if pool_of_hash(hash, view).is_some() {
            return false;
        }
        let name = Name::new(self.pod.namespace, pool);
        let Some(present) = view.host_pool(&name).and_then(|pool| pool.hash.as_deref()) else {
            let text = format!(
                "no HostPool has the hash {hash} that the pod's node affinity requires; if the pod is \
                 from a backup, delete it, so that its workload creates it again"
            );
            self.warn(key, &text);
            return false;
        };
        // Perhaps the watch has not delivered the pool that another replica has seen.
        self.outcome.awaited.push(Key::new(HOST_POOL, name));
        let problem = format!(
            "the pod's node affinity requires the hash {hash} of an earlier HostPool {pool}, and that \
             of the present one is {present}"
        );
        let remedy = "leave pods out of the backup, so that their workloads create them; or create this \
                      one without its affinity and the annotation stowplan.dev/placement";
        self.report(Reason::NodeAffinityConflict, key, problem, remedy);
        true
    }
}

/// Parses a recorded decision about the members of a labelled pool: the index if it is one member,
/// and the pool's hash.
fn parse_members(decision: &str) -> Option<(Option<u32>, &str)> {
    let (which, pool) = decision.split_once(" of pool ")?;
    let index = match which.strip_prefix("member") {
        Some("s") => None,
        Some(index) => Some(index.trim_start().parse().ok()?),
        None => return None,
    };
    let hash = pool.strip_suffix(", exclusive").unwrap_or(pool);
    is_short_digest(hash).then_some((index, hash))
}
