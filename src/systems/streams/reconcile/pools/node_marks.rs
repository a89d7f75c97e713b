//! The marks of pools on nodes, and the patches that set them and take them back.
//!
//! A mark is a label `<prefix><hash>=<index>` or a taint `stowplan.dev/exclusive=<hash>:NoSchedule`.
//! Nothing else of a node is ever written. Patches are JSON patches (RFC 6902) and never strategic
//! merges, which would replace the whole list of taints; each `test`s what it relies on, so that one
//! which comes too late fails and changes nothing.

use std::ops::Bound;

use json_patch::PatchOperation;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::systems::plan::operation::{add, remove, test, test_uid};
use crate::systems::streams::keys::{EXCLUSIVE_TAINT, POOL_LABEL_PREFIX};
use crate::view::NodeEstate;
use crate::view::estate::Taint;

/// The effect of the taint: pods that are there stay.
pub(super) const NO_SCHEDULE: &str = "NoSchedule";

/// How long a new taint must have stood before a node is looked at again: a scheduler that had not
/// heard of the taint may still bind a pod there, and the watch must tell of it.
pub(super) const SETTLE: SignedDuration = SignedDuration::from_secs(2);

/// The marks that a node carries.
#[derive(Debug, Default)]
pub(super) struct Marks<'v> {
    /// Hash and value of each label.
    pub(super) labels: Vec<(&'v str, &'v str)>,
    /// Place in the node's list, and the taint.
    pub(super) taints: Vec<(usize, &'v Taint)>,
}

impl<'v> Marks<'v> {
    pub(super) fn of(estate: &'v NodeEstate) -> Self {
        let labels = estate
            .labels
            .range::<str, _>((Bound::Included(POOL_LABEL_PREFIX), Bound::Unbounded))
            .map_while(|(key, value)| Some((key.strip_prefix(POOL_LABEL_PREFIX)?, &**value)));
        let taints = estate.taints.iter().enumerate();
        Self {
            labels: labels.collect(),
            taints: taints.filter(|(_, taint)| *taint.key == *EXCLUSIVE_TAINT).collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.taints.is_empty()
    }

    /// Whether the label of the pool is there with this index.
    pub(super) fn has_label(&self, hash: &str, index: u32) -> bool {
        // As text: pods ask for the index as it is written, and 00 is not 0.
        self.labels.iter().any(|(of, value)| *of == hash && **value == *index.to_string())
    }

    /// The taint of the pool, with its place.
    pub(super) fn taint(&self, hash: &str) -> Option<(usize, &'v Taint)> {
        let own = |taint: &Taint| *taint.value == *hash && *taint.effect == *NO_SCHEDULE;
        self.taints.iter().copied().find(|(_, taint)| own(taint))
    }

    /// Whether a pool other than this one has tainted the node.
    pub(super) fn is_tainted_by_another(&self, hash: &str) -> bool {
        self.taints.iter().any(|(_, taint)| *taint.value != *hash)
    }

    /// Whether a pool other than this one has marked the node.
    pub(super) fn is_marked_by_another(&self, hash: &str) -> bool {
        self.is_tainted_by_another(hash) || self.labels.iter().any(|(of, _)| *of != hash)
    }

    /// Whether the API server would take a taint of the pool: it takes no second one of a key and
    /// effect.
    pub(super) fn has_room_for_taint(&self) -> bool {
        !self.taints.iter().any(|(_, taint)| *taint.effect == *NO_SCHEDULE)
    }
}

/// Since when a taint has stood, as far as that can be believed: a time that somebody removed, or
/// that lies ahead by more than rounding and a change of leader explain, says nothing.
pub(super) fn standing_since(taint: &Taint, now: Timestamp) -> Option<Timestamp> {
    taint.since.filter(|since| since.duration_since(now) <= SETTLE)
}

/// What a node is to get.
#[derive(Debug, Default)]
pub(super) struct Wanted<'p> {
    /// Hash and index of each label.
    pub(super) labels: Vec<(&'p str, u32)>,
    /// The pool whose taint is added.
    pub(super) taint: Option<&'p str>,
    /// The place of a taint of ours whose time is to be written anew.
    pub(super) timed: Option<usize>,
}

/// The patch that gives a node its marks.
pub(super) fn mark(
    estate: &NodeEstate,
    wanted: &Wanted<'_>,
    now: Timestamp,
) -> Vec<PatchOperation> {
    let mut operations = vec![test_uid(&estate.identity.uid)];
    if let Some(place) = wanted.timed {
        let taint = &estate.taints[place];
        operations.extend(test_taint(place, taint));
        let place = place.to_string();
        operations.push(add(&["spec", "taints", &place, "timeAdded"], whole_seconds(now)));
    }
    if let Some(hash) = wanted.taint {
        let taint = json!({
            "key": EXCLUSIVE_TAINT,
            "value": hash,
            "effect": NO_SCHEDULE,
            "timeAdded": whole_seconds(now),
        });
        if estate.taints.is_empty() {
            // Null where it is absent. Without the test a taint that somebody added meanwhile would
            // be lost with the list.
            operations.push(test(&["spec", "taints"], Value::Null));
            operations.push(add(&["spec", "taints"], json!([taint])));
        } else {
            operations.push(add(&["spec", "taints", "-"], taint));
        }
    }
    let labels = wanted.labels.iter().map(|(hash, index)| (label(hash), index.to_string()));
    if estate.labels.is_empty() && !wanted.labels.is_empty() {
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

/// The patch that takes marks back: the labels of these pools, and the taints at these places.
pub(super) fn release(
    estate: &NodeEstate,
    labels: &[(&str, &str)],
    taints: &[(usize, &Taint)],
) -> Vec<PatchOperation> {
    let mut operations = vec![test_uid(&estate.identity.uid)];
    // From the last one down: the others keep their places.
    let mut taints = taints.to_vec();
    taints.sort_unstable_by_key(|(place, _)| std::cmp::Reverse(*place));
    for (place, taint) in taints {
        operations.extend(test_taint(place, taint));
        operations.push(remove(&["spec", "taints", &place.to_string()]));
    }
    for (hash, value) in labels {
        let key = label(hash);
        operations.push(test(&["metadata", "labels", &key], Value::from(*value)));
        operations.push(remove(&["metadata", "labels", &key]));
    }
    operations
}

/// The key of a pool's label.
pub(super) fn label(hash: &str) -> String {
    [POOL_LABEL_PREFIX, hash].concat()
}

/// The next whole second: the API server keeps no parts of one, and a taint must not look older than
/// it is.
fn whole_seconds(now: Timestamp) -> Value {
    let up = i64::from(now.subsec_nanosecond() > 0);
    let rounded = Timestamp::from_second(now.as_second().saturating_add(up)).unwrap_or(now);
    Value::String(rounded.to_string())
}

/// What tells this taint from another one in its place. A field that is absent tests as null.
fn test_taint(place: usize, taint: &Taint) -> [PatchOperation; 3] {
    let place = place.to_string();
    let field = |name: &str, value: &str| {
        let value = if value.is_empty() { Value::Null } else { Value::from(value) };
        test(&["spec", "taints", &place, name], value)
    };
    [field("key", &taint.key), field("value", &taint.value), field("effect", &taint.effect)]
}
