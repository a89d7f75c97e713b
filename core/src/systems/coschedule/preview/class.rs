//! Previews claims. The API server adds the default storage class to a claim without one before it calls
//! webhooks, so the preview adds it to claims from files.

use serde_json::Value;
use std::cmp::Reverse;

use crate::systems::View;
use crate::systems::coschedule::keys;
use crate::systems::coschedule::kinds::storage::BETA_CLASS;
use crate::systems::coschedule::resources::CLAIM;
use crate::systems::policy::Policy;
use crate::systems::preview::{Decide, Given, NO_CLUSTER, Preview, Verdict};

/// The class that a claim names; empty if it requests a volume without a class.
fn named(claim: &Value) -> Option<&str> {
    let of_annotation = claim.pointer("/metadata/annotations").and_then(|all| all.get(BETA_CLASS));
    let class = of_annotation.or_else(|| claim.pointer("/spec/storageClassName"));
    class.and_then(Value::as_str)
}

/// The default class: of several the newest, then the first by name, as the API server chooses.
fn default(view: &View) -> Option<&str> {
    let classes = view.storage_classes();
    let defaults = classes.filter_map(|(name, class)| Some((class.default_since?, Reverse(name))));
    defaults.max().map(|(_, Reverse(name))| name)
}

/// Adds the default class to a claim without one.
pub(super) fn complete(claim: &mut Value, view: &View) {
    if named(claim).is_some() {
        return;
    }
    if let (Some(class), Some(Value::Object(spec))) = (default(view), claim.get_mut("spec")) {
        spec.insert("storageClassName".to_owned(), class.into());
    }
}

/// The information about the class of a claim that is missing; `None` if nothing is.
pub(super) fn unknown(claim: &Value, view: &View, has_cluster: bool) -> Option<String> {
    let text = match named(claim) {
        Some("" | keys::PARKED) => return None,
        Some(class) if view.storage_class(class).is_some() => return None,
        Some(class) => format!("class {class} is not known here"),
        // Without a default class the claim has none.
        None if has_cluster => return None,
        None => "the cluster's default class is not known here".to_owned(),
    };
    Some(if has_cluster { text } else { format!("{text} {NO_CLUSTER}") })
}

/// Previews a claim: the decision on the claim itself.
///
/// # Errors
/// The reason why it is not a valid claim.
pub(super) fn preview(
    given: &Given<'_>,
    view: &mut View,
    _: &Policy,
    decide: Decide<'_>,
) -> Result<Preview, String> {
    let mut claim = given.document.clone();
    complete(&mut claim, view);
    let decided = decide(&CLAIM, &claim, view)?;
    let is_unchanged = decided.verdict == Verdict::Admitted && decided.warnings.is_empty();
    let unknown = is_unchanged.then(|| unknown(&claim, view, given.has_cluster));
    Ok(Preview {
        decision: Some(decided.number),
        is_of_object: true,
        unknown: unknown.flatten(),
        ..Preview::default()
    })
}
