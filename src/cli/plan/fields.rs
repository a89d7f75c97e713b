//! Finds fields of stowplan's own objects that their definition does not have. kubectl refuses such an
//! object, and the API server drops the fields for a client that does not ask for that, so that a
//! misspelt constraint would be lost.

use std::sync::LazyLock;

use serde_json::Value;

use crate::cli::input::Item;
use crate::placement::reason::{Finding, Reason, quoted};
use crate::policy::suggest;
use crate::systems;

/// The fields at the top of every object, which a definition need not list.
const OF_EVERY_OBJECT: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// The definitions of stowplan's kinds.
static DEFINITIONS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let definitions = systems::definitions();
    definitions.iter().filter_map(|it| serde_json::to_value(it).ok()).collect()
});

/// Returns a finding for each unknown field of an object of stowplan's kinds.
pub(super) fn find_unknown(item: &Item<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let (Some(schema), Value::Object(members)) = (find_schema(item), item.value) {
        for (key, value) in members.iter().filter(|(key, _)| !OF_EVERY_OBJECT.contains(&&***key)) {
            walk_member("", key, value, schema, &mut findings);
        }
    }
    findings
}

/// The schema of an object, if its kind is one of stowplan's.
fn find_schema(item: &Item<'_>) -> Option<&'static Value> {
    let (group, version) = item.version.split_once('/')?;
    let is_its = |of: &&Value| {
        of["spec"]["group"] == group && of["spec"]["names"]["kind"] == item.kind.as_str()
    };
    let versions = DEFINITIONS.iter().find(is_its)?["spec"]["versions"].as_array()?;
    versions.iter().find(|of| of["name"] == version)?.pointer("/schema/openAPIV3Schema")
}

fn walk(path: &str, value: &Value, schema: &Value, findings: &mut Vec<Finding>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                walk_member(path, key, value, schema, findings);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                walk(&format!("{path}[{index}]"), item, &schema["items"], findings);
            }
        }
        _ => {}
    }
}

fn walk_member(path: &str, key: &str, value: &Value, schema: &Value, findings: &mut Vec<Finding>) {
    let dot = if path.is_empty() { "" } else { "." };
    let field = format!("{path}{dot}{key}");
    let properties = schema["properties"].as_object();
    if let Some(property) = properties.and_then(|properties| properties.get(key)) {
        return walk(&field, value, property, findings);
    }
    match &schema["additionalProperties"] {
        of_all @ Value::Object(_) => walk(&field, value, of_all, findings),
        Value::Bool(true) => {}
        // A value of another type than the schema's is reported by whoever reads it.
        _ if schema["x-kubernetes-preserve-unknown-fields"] == true
            || schema["type"] != "object" => {}
        _ => {
            let known: Vec<&str> =
                properties.into_iter().flat_map(|of| of.keys().map(String::as_str)).collect();
            findings.push(Finding::new(
                Reason::UnknownKey,
                field,
                format!("there is no field {} here", quoted(key)),
                suggest(key, &known),
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn maps_and_lists_are_walked_and_what_is_preserved_is_not() {
        let text = json!({"type": "string"});
        let named = json!({"type": "object", "properties": {"name": text, "size": text}});
        let schema = json!({"type": "object", "properties": {
            "one": named,
            "list": {"type": "array", "items": {"type": "array", "items": named}},
            "map": {"type": "object", "additionalProperties": named},
            "free": {"type": "object", "additionalProperties": true},
            "kept": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"inside": named}},
            "text": text,
        }});
        for (object, expected) in [
            (json!({"one": {"name": "a", "sise": "b"}}), &["one.sise: did you mean size?"][..]),
            (json!({"one": {"colour": "b"}}), &["one.colour: there are name, size"]),
            (
                json!({"list": [[{"name": "a"}, {"Name": "b"}]]}),
                &["list[0][1].Name: did you mean name?"],
            ),
            (json!({"map": {"x": {"siz": 1}}}), &["map.x.siz: did you mean size?"]),
            (json!({"free": {"x": {"y": 1}}}), &[]),
            (
                json!({"kept": {"x": {"y": 1}, "inside": {"y": 1}}}),
                &["kept.inside.y: there are name, size"],
            ),
            (json!({"text": {"x": 1}, "one": [1], "list": {"x": 1}}), &[]),
        ] {
            let mut findings = Vec::new();
            walk("", &object, &schema, &mut findings);
            let found: Vec<String> =
                findings.iter().map(|it| format!("{}: {}", it.subject, it.remedy)).collect();
            assert_eq!(found, expected, "{object}");
        }
    }
}
