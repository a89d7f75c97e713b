//! The definitions of HostPool and StreamsJob only grow: an object that an older release accepted is
//! accepted, and keeps all of its fields (docs/upgrades.md, "API versions").

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::helm::{Objects, read};

/// The definitions of the oldest chart that can be upgraded, and of each release.
const OLDER: &[(&str, &str)] = &[("9cdd524", include_str!("definitions/9cdd524.yaml"))];

/// Everything in definitions that objects depend on, by its path. Items of lists are in the path by
/// their names or as they are, because their order and number mean nothing.
type Parts = BTreeMap<Vec<String>, Value>;

fn collect(path: &[String], value: &Value, parts: &mut Parts) {
    let below = |name: &str| [path, &[name.to_owned()]].concat();
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let is_schema = path.last().is_none_or(|it| it != "properties");
            for (field, value) in fields {
                let is_text =
                    ["description", "message", "additionalPrinterColumns"].contains(&&**field);
                if !is_schema || !is_text {
                    collect(&below(field), value, parts);
                }
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                let name =
                    item["name"].as_str().or_else(|| item["rule"].as_str()).or(item.as_str());
                collect(&below(&name.map_or_else(|| item.to_string(), str::to_owned)), item, parts);
            }
        }
        _ => _ = parts.insert(path.to_vec(), value.clone()),
    }
}

fn parse(definitions: &Objects) -> Parts {
    let mut parts = Parts::new();
    for ((_, name, _), definition) in &definitions.0 {
        collect(std::slice::from_ref(name), &definition["spec"], &mut parts);
    }
    parts
}

fn present() -> Objects {
    Objects::parse(&read("files/crds.yaml"))
}

/// Returns true if all objects stay valid and complete when this part changes. A part that is missing is `None`.
fn is_growth(path: &[String], old: &Parts, new: &Parts) -> bool {
    let has = |parts: &Parts, path: &[String]| parts.keys().any(|it| it.starts_with(path));
    let has_been = |path: &[String]| has(old, path);
    // A field or a version that is new, with all that is below it.
    let is_named = |at: &usize| matches!(&*path[at - 1], "properties" | "versions");
    if (1..path.len()).filter(is_named).any(|at| !has_been(&path[..=at])) {
        return true;
    }
    let (before, after) = (old.get(path), new.get(path));
    let words: Vec<&str> = path.iter().map(String::as_str).collect();
    let parent = &path[..path.len() - 1];
    match (&words[..], before, after) {
        ([.., "pattern"] | [.., "required", _], Some(_), None) => true,
        ([.., "nullable"], _, after) => after == Some(&Value::Bool(true)),
        ([.., "enum", _], None, Some(_)) => has_been(parent),
        ([.., "enum", _], Some(_), None) => !has(new, parent),
        ([.., "maximum" | "maxLength" | "maxItems" | "maxProperties"], Some(before), after) => {
            after.is_none_or(|after| after.as_f64() >= before.as_f64())
        }
        ([.., "minimum" | "minLength" | "minItems" | "minProperties"], Some(before), after) => {
            after.is_none_or(|after| after.as_f64() <= before.as_f64())
        }
        ([.., "x-kubernetes-validations", _, _], Some(_), None) => true,
        // An object that leaves a new field out is not concerned.
        ([schema @ .., "x-kubernetes-validations", rule, _], None, Some(_)) => {
            let field = rule.strip_prefix("!has(self.").and_then(|rest| rest.split_once(") || "));
            field.is_some_and(|(field, _)| {
                let place = [&path[..schema.len()], &["properties".into(), field.into()]].concat();
                !has_been(&place)
            })
        }
        _ => false,
    }
}

/// The changes that keep objects of the old definitions from being valid and complete in the new ones.
fn narrowed(old: &Parts, new: &Parts) -> Vec<String> {
    let paths: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let show = |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), Value::to_string);
    let mut narrowed = Vec::new();
    for path in paths {
        let (before, after) = (old.get(path), new.get(path));
        if before != after && !is_growth(path, old, new) {
            narrowed.push(format!("{}: {} → {}", path.join("/"), show(before), show(after)));
        }
    }
    narrowed
}

#[test]
fn the_definitions_only_grow() {
    for (release, text) in OLDER {
        let found = narrowed(&parse(&Objects::parse(text)), &parse(&present()));
        assert!(
            found.is_empty(),
            "objects of {release} would be refused or lose fields; such a change needs a second \
             version of the API (docs/upgrades.md, \"API versions\"):\n{}",
            found.join("\n")
        );
    }
}

#[test]
fn what_narrows_a_definition_is_found_and_what_needs_no_second_version_is_accepted() {
    const SPEC: &str = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    let pools = ["CustomResourceDefinition", "hostpools.stowplan.dev", ""];
    let pools: (String, String, String) = pools.map(str::to_owned).into();
    let rule = |rule: &str| json!({"rule": rule, "message": "small"});
    let beta = json!({"name": "v1beta1", "served": true, "storage": false});
    // One place, its new value, null for none, and whether that is accepted.
    for (path, value, is_accepted) in [
        ("~/properties/size", Value::Null, false),
        ("~/properties/size/maximum", json!(500), false),
        ("~/properties/size/minimum", json!(2), false),
        ("~/properties/size/type", json!("string"), false),
        ("~/properties/hosts/maxLength", json!(16), false),
        ("~/properties/hosts/items/maxLength", json!(63), false),
        ("~/properties/hosts/items/pattern", json!("^[a-z]*$"), false),
        ("~/properties/tags/items/pattern", json!("^[a-z]*$"), false),
        ("~/properties/exclusivity/enum", json!(["Exclusive"]), false),
        ("~/properties/exclusivity/default", json!("Exclusive"), false),
        ("~/properties/tags/enum", json!([]), false),
        ("~/properties/tags/enum", json!(["a"]), false),
        ("~/required", json!(["size"]), false),
        ("~/x-kubernetes-validations/-", rule("self.size < 9"), false),
        ("~/x-kubernetes-validations/-", rule("!has(self.size) || self.size < 9"), false),
        ("/spec/versions/0/served", json!(false), false),
        ("/spec/versions/0/name", json!("v1"), false),
        ("/spec/names/kind", json!("Pool"), false),
        ("~/nullable", json!(true), true),
        ("~/properties/zone", json!({"type": "string", "nullable": true}), true),
        ("~/properties/size/description", json!("other"), true),
        ("~/properties/size/maximum", json!(10_000), true),
        ("~/properties/size/minimum", json!(0), true),
        ("~/properties/hosts/maxItems", Value::Null, true),
        ("~/properties/tags/items/pattern", Value::Null, true),
        ("~/properties/exclusivity/enum", json!(["Shared", "Exclusive", "Namespace"]), true),
        ("~/properties/exclusivity/enum", Value::Null, true),
        ("~/x-kubernetes-validations", Value::Null, true),
        ("~/x-kubernetes-validations/-", rule("!has(self.zone) || self.zone != ''"), true),
        ("/spec/versions/-", beta, true),
    ] {
        let mut changed = present();
        let (parent, field) = path.rsplit_once('/').expect("a path");
        let definition = changed.0.get_mut(&pools).expect("HostPools");
        let parent = definition.pointer_mut(&parent.replace('~', SPEC)).expect(path);
        match (parent, value) {
            (Value::Array(items), value) => items.push(value),
            (Value::Object(fields), Value::Null) => _ = fields.remove(field).expect(path),
            (parent, value) => parent[field] = value,
        }
        let found = narrowed(&parse(&present()), &parse(&changed));
        assert_eq!(found.is_empty(), is_accepted, "{path}: {found:?}");
        assert!(found.iter().all(|it| it.starts_with("hostpools.stowplan.dev/")), "{found:?}");
    }
    let mut fewer = present();
    fewer.0.remove(&pools);
    assert!(!narrowed(&parse(&present()), &parse(&fewer)).is_empty());
}
