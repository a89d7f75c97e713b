//! The marks of pools on nodes, and the patches that add and remove them.
//!
//! A mark is a label `<prefix><hash>=<index>` or a taint `<key>=<hash>:NoSchedule`, with one of the
//! keys [`EXCLUSIVE_TAINTS`]. The controller writes nothing else to nodes. Patches
//! are JSON patches (RFC 6902), because a merge patch would replace the whole list of taints. Each
//! patch `test`s its preconditions, so that an outdated one fails and changes nothing.

use std::ops::Bound;

use json_patch::PatchOperation;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::systems::plan::operation::{add, remove, replace, test, test_uid};
use crate::systems::streams::keys::{
    EXCLUSIVE_EFFECT, EXCLUSIVE_TAINTS, POOL_LABEL_PREFIX, pool_label,
};
use crate::view::NodeDetails;
use crate::view::node::Taint;

/// The field of a taint that says when it was added.
pub(super) const TIME_ADDED: &str = "timeAdded";

/// How long a new taint must have existed before the pods on its node are checked. Until a
/// scheduler has seen the taint it may bind other pods there, and the controller's watch must have
/// reported them.
pub(super) const SETTLE: SignedDuration = SignedDuration::from_secs(2);

/// The marks of pools on a node.
#[derive(Debug, Default)]
pub(super) struct Marks<'v> {
    /// The hash of the pool and the value of each label.
    pub(super) labels: Vec<(&'v str, &'v str)>,
    /// Each taint, with its position in the node's list.
    pub(super) taints: Vec<(usize, &'v Taint)>,
}

impl<'v> Marks<'v> {
    pub(super) fn of(details: &'v NodeDetails) -> Self {
        let labels = details
            .labels
            .range::<str, _>((Bound::Included(POOL_LABEL_PREFIX), Bound::Unbounded))
            .map_while(|(key, value)| Some((key.strip_prefix(POOL_LABEL_PREFIX)?, &**value)));
        let taints = details.taints.iter().enumerate();
        Self {
            labels: labels.collect(),
            taints: taints.filter(|(_, taint)| EXCLUSIVE_TAINTS.contains(&&*taint.key)).collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.taints.is_empty()
    }

    /// Returns true if the node has the label of the pool with this index.
    pub(super) fn has_label(&self, hash: &str, index: u32) -> bool {
        // Compared as text, as node affinity does: 00 is not 0.
        self.labels.iter().any(|(of, value)| *of == hash && **value == *index.to_string())
    }

    /// The taints of the pool, each with its position: at most one of each key.
    pub(super) fn taints_of<'m>(
        &'m self,
        hash: &'m str,
    ) -> impl Iterator<Item = (usize, &'v Taint)> + 'm {
        let own = |taint: &Taint| *taint.value == *hash && *taint.effect == *EXCLUSIVE_EFFECT;
        self.taints.iter().copied().filter(move |(_, taint)| own(taint))
    }

    /// The hash of a pool other than this one that has tainted the node.
    pub(super) fn tainted_by_another(&self, hash: &str) -> Option<&'v str> {
        self.taints.iter().map(|(_, taint)| &*taint.value).find(|of| *of != hash)
    }

    /// The hash of a pool other than this one that has labelled the node.
    pub(super) fn labelled_by_another(&self, hash: &str) -> Option<&'v str> {
        self.labels.iter().map(|(of, _)| *of).find(|of| *of != hash)
    }

    /// Returns true if the node may get the taint of a pool: it has one at a time, and the API server
    /// refuses a second one with the same key and effect.
    pub(super) fn accepts_taint(&self) -> bool {
        !self.taints.iter().any(|(_, taint)| *taint.effect == *EXCLUSIVE_EFFECT)
    }
}

/// When a taint was added. `None` if the time is missing, or is further in the future than rounding
/// and the clock of another leader can explain.
pub(super) fn trusted_since(taint: &Taint, now: Timestamp) -> Option<Timestamp> {
    taint.since.filter(|since| since.duration_since(now) <= SETTLE)
}

/// The marks that a node lacks.
#[derive(Debug, Default)]
pub(super) struct Wanted<'p> {
    /// The hash of the pool and the index of the member for each label.
    pub(super) labels: Vec<(&'p str, u32)>,
    /// The taint that is added: its key, and the hash of its pool.
    pub(super) taint: Option<(&'static str, &'p str)>,
    /// The position of a pool's taint that gets this key. It is removed if the node already has such
    /// a taint, as after a rollback and another upgrade.
    pub(super) renamed: Option<(usize, &'static str)>,
    /// The position of a pool's taint whose time must be set again, because it cannot be trusted.
    pub(super) retimed: Option<usize>,
}

/// The patch that adds the marks that a node lacks.
pub(super) fn build_mark_patch(
    details: &NodeDetails,
    wanted: &Wanted<'_>,
    now: Timestamp,
) -> Vec<PatchOperation> {
    let mut operations = vec![test_uid(&details.identity.uid)];
    if let Some(position) = wanted.retimed {
        let taint = &details.taints[position];
        operations.extend(test_taint(position, taint));
        let position = position.to_string();
        operations.push(add(&["spec", "taints", &position, TIME_ADDED], whole_seconds(now)));
    }
    if let Some((key, hash)) = wanted.taint {
        let taint = json!({
            "key": key,
            "value": hash,
            "effect": EXCLUSIVE_EFFECT,
            TIME_ADDED: whole_seconds(now),
        });
        if details.taints.is_empty() {
            // An absent list tests as null. Without the test, the new list would replace a taint
            // that was added in the meantime.
            operations.push(test(&["spec", "taints"], Value::Null));
            operations.push(add(&["spec", "taints"], json!([taint])));
        } else {
            operations.push(add(&["spec", "taints", "-"], taint));
        }
    }
    // The last change of taints, because a removal changes the positions of those behind it.
    if let Some((position, key)) = wanted.renamed {
        let taint = &details.taints[position];
        operations.extend(test_taint(position, taint));
        let is_same =
            |of: &Taint| *of.key == *key && of.value == taint.value && of.effect == taint.effect;
        let position = position.to_string();
        operations.push(match details.taints.iter().any(is_same) {
            true => remove(&["spec", "taints", &position]),
            false => replace(&["spec", "taints", &position, "key"], key),
        });
    }
    let labels = wanted.labels.iter().map(|(hash, index)| (pool_label(hash), index.to_string()));
    if details.labels.is_empty() && !wanted.labels.is_empty() {
        operations.push(test(&["metadata", "labels"], Value::Null));
        let labels = labels.map(|(key, index)| (key, Value::String(index))).collect();
        operations.push(add(&["metadata", "labels"], Value::Object(labels)));
    } else {
        operations.extend(
            labels.map(|(key, index)| add(&["metadata", "labels", &key], Value::String(index))),
        );
    }
    operations
}

/// The patch that removes marks: labels (hash and value), and taints with their positions.
pub(super) fn build_release_patch(
    details: &NodeDetails,
    labels: &[(&str, &str)],
    taints: &[(usize, &Taint)],
) -> Vec<PatchOperation> {
    let mut operations = vec![test_uid(&details.identity.uid)];
    // From the last to the first, so that no removal changes the positions of the others.
    let mut taints = taints.to_vec();
    taints.sort_unstable_by_key(|(position, _)| std::cmp::Reverse(*position));
    for (position, taint) in taints {
        operations.extend(test_taint(position, taint));
        operations.push(remove(&["spec", "taints", &position.to_string()]));
    }
    for (hash, value) in labels {
        let key = pool_label(hash);
        operations.push(test(&["metadata", "labels", &key], Value::from(*value)));
        operations.push(remove(&["metadata", "labels", &key]));
    }
    operations
}

/// The time, rounded up to whole seconds: the API server stores no fractions, and a taint must not
/// look older than it is.
fn whole_seconds(now: Timestamp) -> Value {
    let up = i64::from(now.subsec_nanosecond() > 0);
    let rounded = Timestamp::from_second(now.as_second().saturating_add(up)).unwrap_or(now);
    Value::String(rounded.to_string())
}

/// The operations that test that this taint is at this position. An absent field tests as null.
fn test_taint(position: usize, taint: &Taint) -> [PatchOperation; 3] {
    let position = position.to_string();
    let field = |name: &str, value: &str| {
        let value = if value.is_empty() { Value::Null } else { Value::from(value) };
        test(&["spec", "taints", &position, name], value)
    };
    [field("key", &taint.key), field("value", &taint.value), field("effect", &taint.effect)]
}
