//! Namespaces and objects that stowplan leaves alone: the one answer for the webhook, the controller and the commands.
//!
//! The chart writes the namespaces that its webhook's selector excludes into the policy, so that all
//! of them know the same namespaces. Conditions that an administrator adds to the webhook are not
//! evaluated here; the policy lists only their names.

use super::policy::Policy;
use crate::systems::View;

/// With the value `true`, this label makes stowplan ignore a pod, or everything in a namespace.
pub const IGNORE: &str = "stowplan.dev/ignore";

/// The reason why stowplan leaves an object alone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Exclusion {
    /// The policy excludes the namespace.
    Policy,
    /// The namespace has the label [`IGNORE`].
    Namespace,
    /// The object has the label [`IGNORE`].
    Object,
}

impl Exclusion {
    /// Returns the reason why everything in a namespace is left alone; `None`: it is not.
    #[must_use]
    pub(crate) fn of_namespace(namespace: &str, view: &View, policy: &Policy) -> Option<Self> {
        if policy.excludes(namespace) {
            return Some(Self::Policy);
        }
        let labels = view.namespace_labels(namespace);
        let label = labels.and_then(|labels| labels.get(IGNORE)).map(AsRef::as_ref);
        is_opted_out(label).then_some(Self::Namespace)
    }

    /// Returns the reason why an object is left alone whose label [`IGNORE`] has this value; `None`: it is not.
    #[must_use]
    pub fn of_object(
        label: Option<&str>,
        namespace: &str,
        view: &View,
        policy: &Policy,
    ) -> Option<Self> {
        let of_object = || is_opted_out(label).then_some(Self::Object);
        Self::of_namespace(namespace, view, policy).or_else(of_object)
    }

    /// The reason as a sentence.
    #[must_use]
    pub fn explain(self, namespace: &str) -> String {
        match self {
            Self::Policy => format!("the policy excludes namespace {namespace}"),
            Self::Namespace => format!("namespace {namespace} has the label {IGNORE}: \"true\""),
            Self::Object => format!("it has the label {IGNORE}: \"true\""),
        }
    }
}

/// Returns true if stowplan ignores an object whose label [`IGNORE`] has this value.
#[must_use]
pub(crate) fn is_opted_out(label: Option<&str>) -> bool {
    label == Some("true")
}

/// Returns true if the label [`IGNORE`] with this value looks like an opt-out and is none.
#[must_use]
pub(crate) fn has_no_effect(label: Option<impl AsRef<str>>) -> bool {
    label.is_some_and(|value| !matches!(value.as_ref(), "true" | "false"))
}
