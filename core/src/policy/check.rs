//! Compares a policy with its schema, and describes each problem by its field and what it takes.
//!
//! A parser would describe the first problem, in its own terms.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use serde::Deserialize as _;
use serde_json::Value;

use super::form::{Form, KEYWORD};
use crate::text::quoted;

/// The problems of `value`, each as a line: the field, what is wrong, and what the field takes.
pub(super) fn find_problems(value: &Value, schema: &Value) -> Vec<String> {
    let mut check = Check { definitions: &schema["$defs"], problems: Vec::new() };
    check.walk("", value, schema);
    check.problems
}

struct Check<'s> {
    definitions: &'s Value,
    problems: Vec<String>,
}

impl<'s> Check<'s> {
    fn report(&mut self, path: &str, value: &Value, takes: &str) {
        let field = if path.is_empty() { "the policy" } else { path };
        self.problems.push(format!("{field}: {} is not {takes}", describe(value)));
    }

    fn walk(&mut self, path: &str, value: &Value, schema: &'s Value) {
        let schema = match schema["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
            Some(name) => &self.definitions[name],
            None => schema,
        };
        let choices = find_choices(schema);
        if !choices.is_empty() {
            if !choices.iter().any(|choice| value.as_str() == Some(choice)) {
                self.report(path, value, &(join(&choices) + hint_about(value)));
            }
            return;
        }
        let expects = |name: &str| match &schema["type"] {
            Value::Array(types) => types.iter().any(|one| one == name),
            one => one == name,
        };
        match value {
            Value::Object(map) if expects("object") => {
                for (key, value) in map {
                    self.walk_property(path, key, value, schema);
                }
            }
            Value::Array(items) if expects("array") => {
                for (index, item) in items.iter().enumerate() {
                    self.walk(&format!("{path}[{index}]"), item, &schema["items"]);
                    if schema["uniqueItems"] == true && items[..index].contains(item) {
                        let item = describe(item);
                        self.problems.push(format!("{path}[{index}]: {item} is there twice"));
                    }
                }
            }
            Value::String(text) if expects("string") => {
                if let Some(form) = form_of(schema).filter(|form| !form.accepts(text)) {
                    match form.find_wrong_part(text).filter(|part| *part != text) {
                        None => self.report(path, value, form.takes()),
                        Some(part) => {
                            let (part, value) = (quoted(part), describe(value));
                            let takes = form.takes();
                            self.problems.push(format!("{path}: {part} in {value} is not {takes}"));
                        }
                    }
                }
            }
            Value::Bool(_) if expects("boolean") => {}
            Value::Number(number) if expects("number") => {
                let is_valid = number.as_f64().is_some_and(|number| number >= 0.0);
                if !is_valid {
                    self.report(path, value, &takes(schema));
                }
            }
            Value::Number(number) if expects("integer") => {
                let fits = number.as_u64().is_some_and(|number| range(schema).contains(&number));
                if !fits {
                    self.report(path, value, &takes(schema));
                }
            }
            Value::Null if expects("null") => {}
            Value::Null => {
                let takes = takes(schema);
                self.problems.push(format!("{path}: has no value; leave it out, or give {takes}"));
            }
            // YAML reads 1 and true as other things than texts.
            Value::Number(_) | Value::Bool(_)
                if form_of(schema).is_some_and(|form| form.accepts(&value.to_string())) =>
            {
                let remedy = "put it in quotation marks";
                self.problems.push(format!("{path}: {value} is not a text; {remedy}"));
            }
            Value::Bool(_) if expects("string") => {
                self.report(path, value, &format!("{}{}", takes(schema), hint_about(value)));
            }
            _ => self.report(path, value, &takes(schema)),
        }
    }

    fn walk_property(&mut self, path: &str, key: &str, value: &Value, schema: &'s Value) {
        let dot = if path.is_empty() { "" } else { "." };
        let path = format!("{path}{dot}{key}");
        if let Some(property) = schema["properties"].get(key) {
            return self.walk(&path, value, property);
        }
        if schema["additionalProperties"] == false {
            let known: Vec<&str> = schema["properties"]
                .as_object()
                .into_iter()
                .flat_map(|properties| properties.keys().map(String::as_str))
                .collect();
            let remedy = suggest(key, &known);
            let key = quoted(key);
            self.problems.push(format!("{path}: there is no key {key} here; {remedy}"));
            return;
        }
        if let Some(form) = form_of(&schema["propertyNames"]).filter(|form| !form.accepts(key)) {
            self.problems.push(format!("{path}: {} is not {}", quoted(key), form.takes()));
        }
        self.walk(&path, value, &schema["additionalProperties"]);
    }
}

/// Suggests the known word that is close to an unknown one, or all of them if none is.
#[must_use]
pub fn suggest(word: &str, known: &[&str]) -> String {
    // Two edits, and more in a long word.
    match nearest(word, known.iter().copied(), (word.len() / 4).max(2)) {
        Some(near) => format!("did you mean {near}?"),
        None if known.is_empty() => "there is none; remove it".to_owned(),
        None => format!("there are {}", known.join(", ")),
    }
}

/// Asks in brackets for the known word that is close to an unknown one, after a space. Empty if none is, or
/// if several are equally close.
#[must_use]
pub fn meant<'k>(word: &str, known: impl Iterator<Item = &'k str>) -> String {
    // One or two edits make another word of a short one: n1 and n2.
    let near = nearest(word, known, (word.len() / 3).min(2));
    near.map(|near| format!(" (did you mean {near}?)")).unwrap_or_default()
}

/// Returns the known word that is closest to an unknown one, within this number of edits. `None` if there
/// is none, or if several are equally close.
fn nearest<'k>(word: &str, known: impl Iterator<Item = &'k str>, edits: usize) -> Option<&'k str> {
    let distance = |name: &'k str| (strsim::damerau_levenshtein(name, word), name);
    let mut near: Vec<_> = known.map(distance).filter(|(distance, _)| *distance <= edits).collect();
    near.sort_unstable();
    match near.as_slice() {
        [(_, name)] => Some(name),
        [(first, name), (second, _), ..] if first < second => Some(name),
        _ => None,
    }
}

fn form_of(schema: &Value) -> Option<Form> {
    Form::deserialize(&schema[KEYWORD]).ok()
}

/// The values of a schema that lists them.
fn find_choices(schema: &Value) -> Vec<&str> {
    let listed = schema["enum"].as_array().into_iter().flatten();
    let described = schema["oneOf"].as_array().into_iter().flatten().map(|one| &one["const"]);
    listed.chain(described).filter_map(Value::as_str).collect()
}

fn join(choices: &[&str]) -> String {
    match choices {
        [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => choices.join(""),
    }
}

/// Explains a boolean where a text is taken, such as the level `off`.
fn hint_about(value: &Value) -> &'static str {
    match value {
        Value::Bool(_) => {
            " (YAML reads y, n, on and off as booleans: put texts in quotation marks)"
        }
        _ => "",
    }
}

/// Describes what a field with this schema takes.
fn takes(schema: &Value) -> Cow<'static, str> {
    if let Some(form) = form_of(schema) {
        return form.takes().into();
    }
    let types = schema["type"].as_array().into_iter().flatten().chain([&schema["type"]]);
    let mut types = types.filter_map(Value::as_str).filter(|name| *name != "null");
    match types.next() {
        Some("object") => "a map of keys and values".into(),
        Some("array") => "a list, as [a, b]".into(),
        Some("string") => "a text".into(),
        Some("boolean") => "true or false, without quotes".into(),
        Some("integer") => {
            let range = range(schema);
            format!("a whole number from {} to {}", range.start(), range.end()).into()
        }
        _ => "a value of this field".into(),
    }
}

/// The numbers that a field with this schema takes.
fn range(schema: &Value) -> RangeInclusive<u64> {
    let bound = |key: &str, otherwise| schema[key].as_u64().unwrap_or(otherwise);
    bound("minimum", 0)..=bound("maximum", u32::MAX.into())
}

/// A value in a message.
fn describe(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a map".to_owned(),
        Value::Null => "an empty value".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_problem_names_its_field_and_what_it_takes() {
        let schema = json!({
            "type": "object", "additionalProperties": false,
            "$defs": {"Mode": {"oneOf": [{"const": "on"}, {"const": "off"}]}},
            "properties": {
                "mode": {"$ref": "#/$defs/Mode"},
                "enabled": {"type": "boolean"},
                "most": {"type": "integer"},
                "port": {"type": ["integer", "null"], "minimum": 1, "maximum": 65535},
                "where": {
                    "type": "object", "propertyNames": Form::LabelKey.schema(),
                    "additionalProperties": Form::LabelValue.schema(),
                },
                "spaces": {
                    "type": "array", "uniqueItems": true, "items": Form::Namespace.schema(),
                },
            },
        });
        let hint = " (YAML reads y, n, on and off as booleans: put texts in quotation marks)";
        let most = "a whole number from 0 to 4294967295";
        let port = "a whole number from 1 to 65535";
        let unknown = "wherever: there is no key \"wherever\" here; \
                       there are enabled, mode, most, port, spaces, where";
        for (value, problem) in [
            (json!({"mode": "maybe"}), "mode: \"maybe\" is not on or off"),
            (json!({"mode": true}), &format!("mode: true is not on or off{hint}")),
            (json!({"most": true}), &format!("most: true is not {most}")),
            (json!({"enabled": "no"}), "enabled: \"no\" is not true or false, without quotes"),
            (json!({"most": -1}), &format!("most: -1 is not {most}")),
            (json!({"most": null}), &format!("most: has no value; leave it out, or give {most}")),
            (json!({"port": 0}), &format!("port: 0 is not {port}")),
            (json!({"port": 70000}), &format!("port: 70000 is not {port}")),
            (json!({"port": "ssh"}), &format!("port: \"ssh\" is not {port}")),
            (json!({"mots": 1}), "mots: there is no key \"mots\" here; did you mean most?"),
            (json!({"wherever": 1}), unknown),
            (json!({"where": {"a": 1}}), "where.a: 1 is not a text; put it in quotation marks"),
            (json!({"spaces": "a"}), "spaces: \"a\" is not a list, as [a, b]"),
            (json!({"spaces": ["a", "a"]}), "spaces[1]: \"a\" is there twice"),
            (json!([]), "the policy: a list is not a map of keys and values"),
        ] {
            assert_eq!(find_problems(&value, &schema), [problem], "{value}");
        }
        let all = json!({"mode": "on", "where": {"a/b": ""}, "spaces": ["a"], "most": 0});
        for valid in [all, json!({"port": null}), json!({"port": 65535})] {
            assert_eq!(find_problems(&valid, &schema), [""; 0], "{valid}");
        }
        let value = json!({"where": {"a b": "!"}, "spaces": ["Foo_Bar"]});
        let problems = find_problems(&value, &schema);
        let begins = [
            "spaces[0]: \"Foo_Bar\" is not the name of a namespace",
            "where.a b: \"a b\" is not the key of a label",
            "where.a b: \"!\" is not the value of a label",
        ];
        assert_eq!(problems.len(), begins.len(), "{problems:?}");
        for (problem, begin) in problems.iter().zip(begins) {
            assert!(problem.starts_with(begin), "{problem}");
        }
    }
}
