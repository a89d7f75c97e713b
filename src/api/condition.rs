//! Conditions in the status of our objects, in the form that Kubernetes gives to all of them (API
//! conventions, "Typical status properties").

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The object says something that can be done.
pub const ACCEPTED: &str = "Accepted";
/// What the object asks for is there.
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
    #[schemars(with = "String")]
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

/// The condition of this type.
#[must_use]
pub fn find<'c>(conditions: &'c [Condition], type_: &str) -> Option<&'c Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Sets a condition. The time of the last transition moves only where the status changes.
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

/// What the schema of a list of conditions says beyond its Rust type.
pub(super) fn constrain(conditions: &mut JSONSchemaProps) {
    conditions.x_kubernetes_list_type = Some("map".to_owned());
    conditions.x_kubernetes_list_map_keys = Some(vec!["type".to_owned()]);
    if let Some(item) = super::host_pool::item_schema(conditions) {
        let properties = item.properties.get_or_insert_default();
        if let Some(time) = properties.get_mut("lastTransitionTime") {
            time.format = Some("date-time".to_owned());
        }
    }
}
