//! The definitions of HostPool and StreamsJob only grow: an object that an older release accepted is
//! accepted, and keeps all of its fields (docs/upgrades.md, "API versions").

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::helm::{Objects, read};

/// The definitions of the oldest chart that can be upgraded, and of each release.
const OLDER: &[(&str, &str)] = &[("9cdd524", include_str!("definitions/9cdd524.yaml"))];

/// Definitions by name.
type Definitions = BTreeMap<String, Value>;

fn parse(text: &str) -> Definitions {
    let documents = Objects::parse(text).0.into_iter();
    documents.map(|((_, name), definition)| (name, definition)).collect()
}

fn present() -> Definitions {
    parse(&read("files/crds.yaml"))
}

fn texts(value: &Value) -> BTreeSet<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// What keeps objects of the old definitions from being valid and complete in the new ones.
fn narrowed(old: &Definitions, new: &Definitions) -> Vec<String> {
    let mut found = Vec::new();
    for (name, old) in old {
        match new.get(name) {
            Some(new) => compare_definitions(name, &old["spec"], &new["spec"], &mut found),
            None => found.push(format!("{name}: the definition is missing")),
        }
    }
    found
}

fn compare_definitions(name: &str, old: &Value, new: &Value, found: &mut Vec<String>) {
    for field in ["group", "scope", "preserveUnknownFields"] {
        if old[field] != new[field] {
            found.push(format!("{name}: {field} was changed"));
        }
    }
    for field in ["kind", "plural", "singular", "listKind"] {
        if old["names"][field] != new["names"][field] {
            found.push(format!("{name}: names.{field} was changed"));
        }
    }
    for field in ["shortNames", "categories"] {
        for lost in texts(&old["names"][field]).difference(&texts(&new["names"][field])) {
            found.push(format!("{name}: names.{field} has no {lost:?}"));
        }
    }
    for old in old["versions"].as_array().expect("versions") {
        let version = old["name"].as_str().expect("a name");
        let named = |it: &&Value| it["name"] == old["name"] && it["served"] == true;
        let Some(new) = new["versions"].as_array().into_iter().flatten().find(named) else {
            found.push(format!("{name}: version {version} is not served"));
            continue;
        };
        for kind in old["subresources"].as_object().into_iter().flat_map(|all| all.keys()) {
            if new["subresources"].get(kind).is_none() {
                found.push(format!("{name}: {version} has no subresource {kind}"));
            }
        }
        let [old, new] = [old, new].map(|version| &version["schema"]["openAPIV3Schema"]);
        compare_schemas(&format!("{name}: {version}"), old, new, found);
    }
}

fn compare_schemas(at: &str, old: &Value, new: &Value, found: &mut Vec<String>) {
    let mut report = |problem: String| found.push(format!("{at}: {problem}"));
    // A default is a part of the meaning of the objects that leave the field out.
    for field in [
        "type",
        "format",
        "default",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "uniqueItems",
        "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-map-type",
        "x-kubernetes-int-or-string",
        "x-kubernetes-embedded-resource",
    ] {
        if old[field] != new[field] {
            report(format!("{field} was changed"));
        }
    }
    for flag in ["nullable", "x-kubernetes-preserve-unknown-fields"] {
        if old[flag] == true && new[flag] != true {
            report(format!("{flag} was removed"));
        }
    }
    if new["pattern"] != old["pattern"] && !new["pattern"].is_null() {
        report("the pattern was changed".to_owned());
    }
    for (limit, grows) in [
        ("maximum", true),
        ("maxLength", true),
        ("maxItems", true),
        ("maxProperties", true),
        ("minimum", false),
        ("minLength", false),
        ("minItems", false),
        ("minProperties", false),
    ] {
        let Some(now) = new[limit].as_f64() else { continue };
        let is_wider = |before: f64| if grows { now >= before } else { now <= before };
        if !old[limit].as_f64().is_some_and(is_wider) {
            report(format!("{limit} is narrower"));
        }
    }
    if !new["enum"].is_null() {
        let values = |schema: &Value| schema["enum"].as_array().cloned().unwrap_or_default();
        let kept = values(new);
        let lost: Vec<Value> = values(old).into_iter().filter(|it| !kept.contains(it)).collect();
        if old["enum"].is_null() || !lost.is_empty() {
            report(format!("enum has no {lost:?}"));
        }
    }
    for field in texts(&new["required"]).difference(&texts(&old["required"])) {
        report(format!("{field} is required"));
    }
    for rule in new["x-kubernetes-validations"].as_array().into_iter().flatten() {
        let rule = rule["rule"].as_str().expect("a rule");
        let known = old["x-kubernetes-validations"].as_array().into_iter().flatten();
        let is_known = known.into_iter().any(|old| old["rule"] == rule);
        // An object that leaves a new field out is not concerned.
        let field = rule.strip_prefix("!has(self.").and_then(|rest| rest.split_once(") || "));
        let is_of_new = field.is_some_and(|(field, _)| old["properties"].get(field).is_none());
        if !is_known && !is_of_new {
            report(format!("there is a new rule: {rule}"));
        }
    }
    for (field, old) in old["properties"].as_object().into_iter().flatten() {
        match new["properties"].get(field) {
            Some(new) => compare_schemas(&format!("{at}.{field}"), old, new, found),
            None => found.push(format!("{at}.{field}: the field is missing")),
        }
    }
    for (field, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        match (old.get(field), new.get(field)) {
            (Some(old), Some(new)) => compare_schemas(&format!("{at}{mark}"), old, new, found),
            (None, None) => {}
            _ => found.push(format!("{at}: {field} was changed")),
        }
    }
}

#[test]
fn the_definitions_only_grow() {
    let present = present();
    for (release, text) in OLDER {
        let found = narrowed(&parse(text), &present);
        assert!(
            found.is_empty(),
            "objects of {release} would be refused or lose fields; such a change needs a second \
             version of the API (docs/upgrades.md, \"API versions\"):\n{}",
            found.join("\n")
        );
    }
}

/// Changes one place of the definition of HostPools.
fn changed(path: &str, value: Value) -> Definitions {
    let mut definitions = present();
    let pools = definitions.get_mut("hostpools.stowplan.dev").expect("HostPools");
    let (parent, field) = path.rsplit_once('/').expect("a path");
    let parent = pools.pointer_mut(parent).unwrap_or_else(|| panic!("{path} does not exist"));
    match (parent, value) {
        (Value::Array(items), value) => items.push(value),
        (Value::Object(fields), Value::Null) => {
            fields.remove(field).unwrap_or_else(|| panic!("{path} does not exist"));
        }
        (parent, value) => parent[field] = value,
    }
    definitions
}

#[test]
fn what_narrows_a_definition_is_named_and_what_needs_no_second_version_is_accepted() {
    const SPEC: &str = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    let rule = |rule: &str| json!({"rule": rule, "message": "small"});
    let optional = json!({"type": "string", "nullable": true});
    let more = json!(["Shared", "Exclusive", "Namespace"]);
    let beta = json!({"name": "v1beta1", "served": true, "storage": false});
    for (path, value, problem) in [
        ("~/properties/size", Value::Null, "~.size: the field is missing"),
        ("~/properties/size/maximum", json!(500), "~.size: maximum is narrower"),
        ("~/properties/size/minimum", json!(2), "~.size: minimum is narrower"),
        ("~/properties/size/format", json!("int64"), "~.size: format was changed"),
        ("~/properties/size/type", json!("string"), "~.size: type was changed"),
        ("~/properties/hosts/maxItems", json!(16), "~.hosts: maxItems is narrower"),
        ("~/properties/hosts/items", Value::Null, "~.hosts: items was changed"),
        ("~/properties/hosts/items/maxLength", json!(63), "~.hosts[]: maxLength is narrower"),
        (
            "~/properties/hosts/items/pattern",
            json!("^[a-z]*$"),
            "~.hosts[]: the pattern was changed",
        ),
        (
            "~/properties/exclusivity/enum",
            json!(["Exclusive"]),
            "~.exclusivity: enum has no [String(\"Shared\")]",
        ),
        (
            "~/properties/exclusivity/default",
            json!("Exclusive"),
            "~.exclusivity: default was changed",
        ),
        ("~/properties/exclusivity/default", Value::Null, "~.exclusivity: default was changed"),
        ("~/properties/tags/enum", json!([]), "~.tags: enum has no []"),
        ("~/required", json!(["size"]), "~: size is required"),
        (
            "~/x-kubernetes-validations/-",
            rule("self.size < 9"),
            "~: there is a new rule: self.size < 9",
        ),
        (
            "~/x-kubernetes-validations/-",
            rule("!has(self.size) || self.size < 9"),
            "~: there is a new rule: !has(self.size) || self.size < 9",
        ),
        ("/spec/versions/0/served", json!(false), "version v1alpha1 is not served"),
        ("/spec/versions/0/name", json!("v1"), "version v1alpha1 is not served"),
        ("/spec/versions/0/subresources", json!({}), "v1alpha1 has no subresource status"),
        ("/spec/names/shortNames", json!([]), "names.shortNames has no \"hp\""),
        ("/spec/names/kind", json!("Pool"), "names.kind was changed"),
        ("/spec/scope", json!("Cluster"), "scope was changed"),
        ("~/nullable", json!(true), ""),
        ("~/properties/zone", optional, ""),
        ("~/properties/size/maximum", json!(10_000), ""),
        ("~/properties/hosts/maxItems", Value::Null, ""),
        ("~/properties/tags/items/pattern", Value::Null, ""),
        ("~/properties/exclusivity/enum", more, ""),
        ("~/x-kubernetes-validations/-", rule("!has(self.zone) || self.zone != ''"), ""),
        ("/spec/versions/-", beta, ""),
    ] {
        let found = narrowed(&present(), &changed(&path.replace('~', SPEC), value));
        let problem = problem.replace('~', "v1alpha1.spec");
        let expected = format!("hostpools.stowplan.dev: {problem}");
        let expected = if problem.is_empty() { vec![] } else { vec![expected] };
        assert_eq!(found, expected, "{path}");
    }
    let mut fewer = present();
    fewer.remove("streamsjobs.stowplan.dev");
    let expected = ["streamsjobs.stowplan.dev: the definition is missing"];
    assert_eq!(narrowed(&present(), &fewer), expected);
}
