//! Checks objects of stowplan's own kinds by their definitions, as the API server does before it
//! asks the webhook, and finds fields that the definitions do not have. kubectl refuses an object
//! with such a field, and the API server drops the field for a client that does not ask for that,
//! so that a misspelt constraint would be lost.

use std::collections::HashSet;
use std::sync::LazyLock;

use serde_json::Value;

use crate::cli::input::{Item, describe};
use stowplan_core::api;
use stowplan_core::api::rules::{Holds, PATTERNS, Rule};
use stowplan_core::placement::reason::{Finding, Reason, quoted};
use stowplan_core::policy::suggest;
use stowplan_core::systems::{self, VALIDATIONS};

/// The fields at the top of every object, which a definition need not list.
const OF_EVERY_OBJECT: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// The definitions of stowplan's kinds.
static DEFINITIONS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let definitions = systems::definitions();
    definitions.iter().filter_map(|it| serde_json::to_value(it).ok()).collect()
});

/// The definition of a kind.
#[derive(Debug)]
pub(super) struct Definition {
    schema: &'static Value,
    /// The reason for an object that does not have its form.
    malformed: Reason,
    /// The kind as `kubectl explain` knows it.
    name: String,
}

/// Changes an object of stowplan's kinds to the one that the API server reads: fields that are null
/// get their defaults or are absent, and absent ones get their defaults.
pub(super) fn complete(object: &mut Value) {
    let text = |key: &str| object[key].as_str();
    if let (Some(version), Some(kind)) = (text("apiVersion"), text("kind"))
        && let Some(schema) = find_schema(version, kind)
    {
        complete_value(object, schema);
    }
}

/// Finds the schema of a kind, if it is one of stowplan's.
fn find_schema(version: &str, kind: &str) -> Option<&'static Value> {
    let (group, version) = version.split_once('/').filter(|(group, _)| *group == api::GROUP)?;
    let is_its = |of: &&Value| of["spec"]["group"] == group && of["spec"]["names"]["kind"] == kind;
    let versions = DEFINITIONS.iter().find(is_its)?["spec"]["versions"].as_array()?;
    versions.iter().find(|of| of["name"] == version)?.pointer("/schema/openAPIV3Schema")
}

impl Definition {
    /// Finds the definition of an object, if its kind is one of stowplan's.
    pub(super) fn find(item: &Item<'_>) -> Option<Self> {
        let schema = find_schema(&item.version, &item.kind)?;
        let validation = VALIDATIONS.iter().find(|of| of.resource.kind == item.kind)?;
        Some(Self { schema, malformed: validation.unreadable, name: item.kind.to_lowercase() })
    }

    /// Returns a finding for each unknown field of an object, and for each rule of the definition
    /// that it breaks in place of `old`; both are [completed](complete). Rules between fields are
    /// not checked while fields are wrong, as by the API server.
    pub(super) fn check(&self, object: &Value, old: Option<&Value>) -> Vec<Finding> {
        let old = old.unwrap_or(&Value::Null);
        let mut check = Check { definition: self, findings: Vec::new(), broken: Vec::new() };
        check.required("", object, self.schema);
        for (key, value) in object.as_object().into_iter().flatten() {
            if !OF_EVERY_OBJECT.contains(&&**key) {
                check.member("", key, value, &old[key], self.schema);
            }
            if key == "status" {
                // The API server takes the status from the controller alone.
                check.findings.retain(|finding| finding.reason == Reason::UnknownKey);
            }
        }
        let is_malformed = |finding: &Finding| finding.reason == self.malformed;
        if !check.findings.iter().any(is_malformed) {
            check.findings.append(&mut check.broken);
        }
        check.findings
    }

    /// Adds what the webhook says about an object to what is wrong with its form, without what that
    /// says already.
    pub(super) fn join(&self, form: Vec<Finding>, of_webhook: Vec<Finding>) -> Vec<Finding> {
        let is_said = |finding: &Finding| {
            let is_of_form = [self.malformed, Reason::ImmutableSpec].contains(&finding.reason);
            is_of_form && form.iter().any(|of| of.reason == finding.reason)
        };
        let more: Vec<Finding> = of_webhook.into_iter().filter(|of| !is_said(of)).collect();
        [form, more].concat()
    }
}

fn complete_value(value: &mut Value, schema: &Value) {
    match value {
        Value::Object(members) => {
            let properties = schema["properties"].as_object();
            for (key, property) in properties.into_iter().flatten() {
                let default = property.get("default");
                let is_nullable = property["nullable"] == true;
                match (members.get(key), default) {
                    (None, Some(default)) => _ = members.insert(key.clone(), default.clone()),
                    (Some(Value::Null), Some(default)) if !is_nullable => {
                        members.insert(key.clone(), default.clone());
                    }
                    (Some(Value::Null), None) if !is_nullable => _ = members.remove(key),
                    _ => {}
                }
                members.get_mut(key).into_iter().for_each(|value| complete_value(value, property));
            }
        }
        Value::Array(items) => {
            items.iter_mut().for_each(|item| complete_value(item, &schema["items"]))
        }
        // kubectl sends a number without a fraction as an integer.
        Value::Number(number) if schema["type"] == "integer" => {
            let whole = number.as_f64().filter(|of| of.fract() == 0.0 && of.abs() < 1e15);
            if let (false, Some(whole)) = (number.is_i64() || number.is_u64(), whole) {
                *value = Value::from(whole as i64);
            }
        }
        _ => {}
    }
}

/// The check of one object.
struct Check<'d> {
    definition: &'d Definition,
    findings: Vec<Finding>,
    /// The rules between fields that are broken.
    broken: Vec<Finding>,
}

impl Check<'_> {
    fn finding(&self, reason: Reason, path: &str, problem: String) -> Finding {
        let fields: String =
            path.split('[').map(|part| part.split(']').next_back().unwrap_or_default()).collect();
        let dot = if path.is_empty() { "" } else { "." };
        let remedy = format!("see `kubectl explain {}{dot}{fields}`", self.definition.name);
        let subject = if path.is_empty() { &*self.definition.name } else { path };
        Finding::new(reason, subject, problem, remedy)
    }

    fn report(&mut self, path: &str, problem: String) {
        let finding = self.finding(self.definition.malformed, path, problem);
        self.findings.push(finding);
    }

    /// Checks a value. What an earlier object has at the same place stays allowed.
    fn value(&mut self, path: &str, value: &Value, old: &Value, schema: &Value) {
        if !old.is_null() && value == old {
            return;
        }
        if !has_type(value, schema) {
            let wanted = schema["type"].as_str().unwrap_or_default();
            return self
                .report(path, format!("is {}, and must be of type {wanted}", describe(value)));
        }
        for problem in find_problems(value, schema) {
            self.report(path, problem);
        }
        match value {
            Value::Object(members) => {
                self.required(path, value, schema);
                for (key, value) in members {
                    self.member(path, key, value, &old[key], schema);
                }
            }
            Value::Array(items) => {
                let keys = schema["x-kubernetes-list-map-keys"].as_array();
                for (index, item) in items.iter().enumerate() {
                    // Items of other lists have no earlier ones.
                    let has_keys = |old: &&Value| {
                        let keys = keys.into_iter().flatten().filter_map(Value::as_str);
                        keys.clone().next().is_some()
                            && keys.into_iter().all(|key| old[key] == item[key])
                    };
                    let before = old.as_array().into_iter().flatten().find(has_keys);
                    let before = before.unwrap_or(&Value::Null);
                    self.value(&format!("{path}[{index}]"), item, before, &schema["items"]);
                }
            }
            _ => {}
        }
        for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
            let old = Some(old).filter(|old| !old.is_null());
            let known = find_rule(rule).filter(|known| !known.is_kept(value, old));
            if let Some(known) = known {
                let message = rule["message"].as_str().unwrap_or_default().to_owned();
                let reason = match known.holds {
                    Holds::Alone(_) => self.definition.malformed,
                    Holds::Since(_) => Reason::ImmutableSpec,
                };
                let finding = self.finding(reason, path, message);
                self.broken.push(finding);
            }
        }
    }

    fn required(&mut self, path: &str, object: &Value, schema: &Value) {
        for key in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if object.get(key).is_none() {
                self.report(path, format!("has no {key}"));
            }
        }
    }

    fn member(&mut self, path: &str, key: &str, value: &Value, old: &Value, schema: &Value) {
        let dot = if path.is_empty() { "" } else { "." };
        let field = format!("{path}{dot}{key}");
        let properties = schema["properties"].as_object();
        if let Some(property) = properties.and_then(|properties| properties.get(key)) {
            return self.value(&field, value, old, property);
        }
        match &schema["additionalProperties"] {
            of_all @ Value::Object(_) => self.value(&field, value, old, of_all),
            Value::Bool(true) => {}
            _ if schema["x-kubernetes-preserve-unknown-fields"] == true
                || schema["type"] != "object" => {}
            _ => {
                let known: Vec<&str> =
                    properties.into_iter().flat_map(|of| of.keys().map(String::as_str)).collect();
                self.findings.push(Finding::new(
                    Reason::UnknownKey,
                    field,
                    format!("there is no field {} here", quoted(key)),
                    suggest(key, &known),
                ));
            }
        }
    }
}

/// Finds the function of a rule. A list of a job is plain, and its rule needs no `map` for that.
fn find_rule(rule: &Value) -> Option<&'static Rule> {
    let plain = |cel: &str| cel.replace(".map(h, h)", "");
    let cel = plain(rule["rule"].as_str()?);
    systems::rules().find(|known| plain(known.cel) == cel)
}

fn has_type(value: &Value, schema: &Value) -> bool {
    match schema["type"].as_str() {
        _ if value.is_null() && schema["nullable"] == true => true,
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        _ => true,
    }
}

/// Finds the problems of a value by its schema, without its parts: the ends of sentences about the value.
fn find_problems(value: &Value, schema: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        let allowed: Vec<String> = allowed.iter().map(Value::to_string).collect();
        problems.push(format!("is {}, and may be {}", shown(value), allowed.join(", ")));
    }
    let limit = |key: &str| schema[key].as_f64();
    let count = |count: usize, unit: &str, limits: [&str; 2]| {
        let range = find_missed_range(count as f64, limits.map(limit))?;
        Some(format!("has {count} {unit}, and {range} are allowed"))
    };
    match value {
        Value::String(text) => {
            let wrong = count(text.chars().count(), "characters", ["minLength", "maxLength"]);
            let regex = schema["pattern"].as_str().filter(|_| wrong.is_none());
            let pattern = regex.and_then(|regex| PATTERNS.iter().find(|of| of.regex == regex));
            problems.extend(wrong);
            if let Some(pattern) = pattern.filter(|pattern| !(pattern.matches)(text)) {
                problems.push(format!("is {}, and must match {}", quoted(text), pattern.regex));
            }
        }
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or_default();
            let of_format = (schema["format"] == "int32").then_some(f64::from(i32::MAX));
            let limits = [limit("minimum"), limit("maximum").or(of_format)];
            let missed = find_missed_range(number, limits);
            problems.extend(missed.map(|range| format!("is {number}, and must be {range}")));
        }
        Value::Array(items) => {
            problems.extend(count(items.len(), "items", ["minItems", "maxItems"]));
            problems.extend(find_duplicate(items, schema));
        }
        _ => {}
    }
    problems
}

/// Returns the allowed range of a number that is outside of it.
fn find_missed_range(number: f64, [least, most]: [Option<f64>; 2]) -> Option<String> {
    if least.is_none_or(|least| number >= least) && most.is_none_or(|most| number <= most) {
        return None;
    }
    let least = least.map(|least| format!("at least {least}"));
    let most = most.map(|most| format!("at most {most}"));
    let limits: Vec<String> = [least, most].into_iter().flatten().collect();
    Some(limits.join(" and "))
}

/// Finds an item that a set, or a list with keys, has twice.
fn find_duplicate(items: &[Value], schema: &Value) -> Option<String> {
    let key_of = |item: &Value| match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => Some(item.to_string()),
        Some("map") => {
            let keys = schema["x-kubernetes-list-map-keys"].as_array()?;
            let values = keys.iter().filter_map(Value::as_str).map(|key| item[key].to_string());
            Some(values.collect::<Vec<_>>().join(" "))
        }
        _ => None,
    };
    let mut seen = HashSet::new();
    let twice = items.iter().filter_map(key_of).find(|key| !seen.insert(key.clone()))?;
    Some(format!("has {twice} twice"))
}

/// A value for people.
fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), quoted)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(schema: &Value, object: &Value, old: Option<&Value>) -> Vec<Finding> {
        let schema: &'static Value = Box::leak(Box::new(schema.clone()));
        let (malformed, name) = (Reason::MalformedPool, "thing".to_owned());
        let definition = Definition { schema, malformed, name };
        let mut object = object.clone();
        complete_value(&mut object, schema);
        definition.check(&object, old)
    }

    /// A rule or a pattern that no function stands for would be passed over.
    #[test]
    fn every_rule_and_every_pattern_of_the_definitions_is_known() {
        fn visit(value: &Value, count: &mut usize) {
            if let Some(regex) = value["pattern"].as_str() {
                assert!(PATTERNS.iter().any(|of| of.regex == regex), "{regex}");
            }
            for rule in value["x-kubernetes-validations"].as_array().into_iter().flatten() {
                assert!(find_rule(rule).is_some(), "{rule}");
                *count += 1;
            }
            match value {
                Value::Object(members) => members.values().for_each(|value| visit(value, count)),
                Value::Array(items) => items.iter().for_each(|value| visit(value, count)),
                _ => {}
            }
        }
        let mut count = 0;
        DEFINITIONS.iter().for_each(|definition| visit(definition, &mut count));
        assert_eq!(count, systems::rules().count() + 6, "the pools of a job have those of a pool");
    }

    #[test]
    fn the_form_of_pools_and_jobs_is_checked_as_by_the_api_server() {
        let check = |kind: &str, spec: &Value, old: Option<&Value>| -> Vec<String> {
            let object = |spec: &Value| json!({"apiVersion": "stowplan.dev/v1alpha1", "kind": kind, "spec": spec});
            let (version, kind) = ("stowplan.dev/v1alpha1".to_owned(), kind.to_owned());
            let mut value = object(spec);
            let item = Item { version, kind, pointer: String::new(), value: &value.clone() };
            let definition = Definition::find(&item).unwrap();
            let mut old = old.map(object);
            [&mut value].into_iter().chain(&mut old).for_each(complete);
            let findings = definition.check(&value, old.as_ref());
            findings.iter().map(|it| format!("{} {}", it.subject, it.problem)).collect()
        };
        let long = "é".repeat(254);
        for (spec, expected) in [
            (json!({"size": 3, "tags": null, "exclusivity": null}), ""),
            (json!({"size": 3.0}), ""),
            (json!({"size": 0}), "spec.size is 0, and must be at least 1 and at most 5000"),
            (json!({"size": "3"}), "spec.size is a text, and must be of type integer"),
            (json!({"size": 3.5}), "spec.size is the number 3.5, and must be of type integer"),
            (
                json!({"hosts": []}),
                "spec.hosts has 0 items, and at least 1 and at most 256 are allowed",
            ),
            (json!({"hosts": ["a", null]}), "spec.hosts[1] is nothing, and must be of type string"),
            (json!({"hosts": ["a", "a"]}), "spec.hosts has \"a\" twice"),
            (
                json!({"hosts": [long]}),
                "spec.hosts[0] has 254 characters, and at least 1 and at most 253 are allowed",
            ),
            (
                json!({"tags": ["ü"]}),
                "spec.tags[0] is \"ü\", and must match ^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$",
            ),
            (
                json!({"exclusivity": "exclusive"}),
                "spec.exclusivity is \"exclusive\", and may be \"Shared\", \"Exclusive\"",
            ),
            (
                json!({"hosts": ["a"], "size": 1}),
                "spec hosts excludes size and tags: a list of hosts has its own length",
            ),
            (
                json!({"exclusivity": "Exclusive"}),
                "spec Exclusive needs size or hosts: they limit how many nodes it reserves",
            ),
            (json!([]), "spec is a list, and must be of type object"),
            (json!("x"), "spec is a text, and must be of type object"),
            (Value::Null, "hostpool has no spec"),
        ] {
            assert_eq!(check("HostPool", &spec, None).join("; "), expected, "{spec}");
        }
        let host = |host: Value| json!({"processingElements": [{"name": "e", "operators": [{"name": "O", "host": host}]}]});
        let at = "spec.processingElements[0].operators[0].host";
        for (spec, expected) in [
            (host(json!({"name": "n1"})), String::new()),
            (host(Value::Null), String::new()),
            (host(json!({})), format!("{at} give exactly one of name, address and pool")),
            (
                host(json!({"pool": "P", "index": 5000})),
                format!("{at}.index is 5000, and must be at least 0 and at most 4999"),
            ),
            (
                host(json!({"name": "n", "index": 1})),
                format!("{at} index is allowed only beside pool"),
            ),
            (
                json!({"pools": [{"name": "P"}, {"name": "P", "size": 1}]}),
                "spec.pools has \"P\" twice".to_owned(),
            ),
            (json!({"pools": [{"size": 1}]}), "spec.pools[0] has no name".to_owned()),
            (
                json!({"pools": [{"name": "1"}]}),
                "spec.pools[0].name is \"1\", and must match ^[A-Za-z_][A-Za-z0-9_]*$".to_owned(),
            ),
        ] {
            assert_eq!(check("StreamsJob", &spec, None).join("; "), expected, "{spec}");
        }
        for (old, new, expected) in [
            (json!({"size": 1, "tags": ["a", "b"]}), json!({"size": 2, "tags": ["b", "a"]}), ""),
            (json!({"size": 2}), json!({"size": 1}), "spec size can only grow: make a new pool"),
            (json!({"size": 2}), json!({}), "spec size can only grow: make a new pool"),
            (
                json!({"hosts": ["a", "b"]}),
                json!({"hosts": ["b", "a"]}),
                "spec hosts is immutable: make a new pool",
            ),
            (
                json!({"size": 2}),
                json!({"size": 2, "tags": ["a"]}),
                "spec tags is immutable: make a new pool",
            ),
            (
                json!({"size": 2}),
                json!({"size": 2, "exclusivity": "Exclusive"}),
                "spec exclusivity is immutable: make a new pool",
            ),
            // A stored value that breaks a later rule stays allowed.
            (json!({"size": 9000}), json!({"size": 9000, "exclusivity": "Shared"}), ""),
        ] {
            assert_eq!(check("HostPool", &new, Some(&old)).join("; "), expected, "{old} {new}");
        }
        let pool = |size: u32| json!({"pools": [{"name": "Q"}, {"name": "P", "size": size}]});
        for (old, new, expected) in [
            (pool(2), pool(3), ""),
            (pool(2), pool(1), "spec.pools[1] size can only grow: make a new job"),
            (pool(2), json!({"pools": []}), "spec pools neither come nor go: make a new job"),
            (pool(2), json!({}), "spec pools neither come nor go: make a new job"),
            (
                json!({}),
                json!({"enforcement": "Preferred"}),
                "spec enforcement is immutable: make a new job",
            ),
        ] {
            assert_eq!(check("StreamsJob", &new, Some(&old)).join("; "), expected, "{old} {new}");
        }
    }

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
            let unknown = check(&schema, &object, None).into_iter();
            let unknown = unknown.filter(|finding| finding.reason == Reason::UnknownKey);
            let found: Vec<String> =
                unknown.map(|it| format!("{}: {}", it.subject, it.remedy)).collect();
            assert_eq!(found, expected, "{object}");
        }
    }
}
