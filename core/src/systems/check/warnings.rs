//! The warnings of stowplan's controller, read from its events.

use k8s_openapi::api::core::v1::Event;
use k8s_openapi::jiff::Timestamp;

use super::autoscaler::{source, time};
use crate::view::Name;

/// The controller, as its events name it.
pub const CONTROLLER: &str = "stowplan";

/// The warnings of stowplan's controller, about any objects.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    all: Vec<Warning>,
}

#[derive(Debug)]
struct Warning {
    namespace: String,
    reason: String,
    at: Option<Timestamp>,
    text: String,
}

impl Warnings {
    /// Adds an event, if it is a warning of stowplan's controller.
    pub(crate) fn add(&mut self, event: &Event) {
        if source(event) == CONTROLLER && event.type_.as_deref() == Some("Warning") {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            self.all.push(Warning {
                namespace: text(&event.involved_object.namespace),
                reason: text(&event.reason),
                at: time(event),
                text: text(&event.message),
            });
        }
    }

    /// Returns the text of the last warning with this reason that names an object of its namespace.
    pub(crate) fn naming(&self, object: &Name, reason: &str) -> Option<&str> {
        let is_of = |of: &&Warning| {
            of.namespace == *object.namespace
                && of.reason == reason
                && of.text.contains(&*object.name)
        };
        let last = self.all.iter().filter(is_of).max_by_key(|of| (of.at, &of.text));
        last.map(|of| of.text.as_str())
    }
}
