//! Conditions in the status of stowplan's objects, in the common form of Kubernetes (API
//! conventions, "Typical status properties").

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
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

/// Adds to the schema of a list of conditions what its Rust type does not express.
pub(crate) fn constrain(conditions: &mut JSONSchemaProps) {
    conditions.x_kubernetes_list_type = Some("map".to_owned());
    conditions.x_kubernetes_list_map_keys = Some(vec!["type".to_owned()]);
    if let Some(item) = item_schema(conditions) {
        let properties = item.properties.get_or_insert_default();
        if let Some(time) = properties.get_mut("lastTransitionTime") {
            time.format = Some("date-time".to_owned());
        }
    }
}

pub(crate) fn item_schema(list: &mut JSONSchemaProps) -> Option<&mut JSONSchemaProps> {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaPropsOrArray;
    match list.items.as_mut() {
        Some(JSONSchemaPropsOrArray::Schema(item)) => Some(item),
        _ => None,
    }
}
