//! Conditions in the status of stowplan's objects, in the common form of Kubernetes (API
//! conventions, "Typical status properties").

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The type of the condition that the object is valid and allowed.
pub const ACCEPTED: &str = "Accepted";
/// The type of the condition that the requested state is reached.
pub const READY: &str = "Ready";

/// One thing that is known of an object.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What is known of: Accepted or Ready.
    #[serde(rename = "type")]
    pub type_: String,
    /// Whether it holds.
    pub status: Status,
    /// Why, in one stable word.
    pub reason: String,
    /// Why, for people.
    pub message: String,
    /// When the status last changed.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub last_transition_time: Time,
    /// The generation of the object that this is said of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Status {
    /// It holds.
    True,
    /// It does not.
    False,
    /// It is not known.
    Unknown,
}

/// Finds the condition of this type.
#[must_use]
pub fn find<'c>(conditions: &'c [Condition], type_: &str) -> Option<&'c Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Sets a condition. The time of the last transition changes only if the status does.
pub fn set(
    conditions: &mut Vec<Condition>,
    type_: &str,
    status: Status,
    reason: &str,
    message: &str,
    generation: i64,
    now: Timestamp,
) {
    let last_transition_time = find(conditions, type_)
        .filter(|present| present.status == status)
        .map_or(Time(now), |present| present.last_transition_time.clone());
    let condition = Condition {
        type_: type_.to_owned(),
        status,
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time,
        observed_generation: Some(generation),
    };
    match conditions.iter_mut().find(|present| present.type_ == type_) {
        Some(present) => *present = condition,
        None => conditions.push(condition),
    }
}
