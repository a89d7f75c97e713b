//! The parts that all objects of stowplan's API group share. The types of the objects are in the
//! folders of their systems; `systems` lists the CustomResourceDefinitions.

pub mod condition;
pub mod rules;

/// The API group of stowplan's objects.
pub const GROUP: &str = "stowplan.dev";

/// The version of stowplan's API group.
pub(crate) const VERSION_IN_GROUP: &str = "v1alpha1";

/// The `apiVersion` of stowplan's objects.
pub const VERSION: &str = "stowplan.dev/v1alpha1";

/// Returns true if an `apiVersion` is of stowplan's API group, in whatever version.
#[must_use]
pub(crate) fn is_of_group(api_version: &str) -> bool {
    api_version.split_once('/').is_some_and(|(group, _)| group == GROUP)
}
