//! The class of a claim, as it is when the webhook is asked.
//!
//! The API server gives a claim that names no class the cluster's default before it asks any webhook. So
//! what is decided here has it, too.

use serde_json::Value;
use std::cmp::Reverse;

use crate::cli::report::NO_CLUSTER;
use crate::systems::coschedule::keys;
use crate::view::View;
use crate::view::storage::BETA_CLASS;

/// The class that a claim names; empty where it wants a volume without one.
fn named(claim: &Value) -> Option<&str> {
    let of_annotation = claim.pointer("/metadata/annotations").and_then(|all| all.get(BETA_CLASS));
    let class = of_annotation.or_else(|| claim.pointer("/spec/storageClassName"));
    class.and_then(Value::as_str)
}

/// The class of claims that name none: of several the newest, then the first by name, as for the API
/// server.
fn default(view: &View) -> Option<&str> {
    let classes = view.storage_classes();
    let defaults = classes.filter_map(|(name, class)| Some((class.default_since?, Reverse(name))));
    defaults.max().map(|(_, Reverse(name))| name)
}

/// Gives a claim that names no class the default one.
pub(super) fn complete(claim: &mut Value, view: &View) {
    if named(claim).is_some() {
        return;
    }
    if let (Some(class), Some(Value::Object(spec))) = (default(view), claim.get_mut("spec")) {
        spec.insert("storageClassName".to_owned(), class.into());
    }
}

/// What is not known here of the class of a claim, for people, if anything is not.
pub(super) fn unknown(claim: &Value, view: &View, has_cluster: bool) -> Option<String> {
    let text = match named(claim) {
        Some("" | keys::PARKED) => return None,
        Some(class) if view.storage_class(class).is_some() => return None,
        Some(class) => format!("class {class} is not known here"),
        // A cluster without a default leaves it without a class.
        None if has_cluster => return None,
        None => "the cluster's default class is not known here".to_owned(),
    };
    Some(if has_cluster { text } else { format!("{text} {NO_CLUSTER}") })
}
