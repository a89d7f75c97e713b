//! The values: each has an effect, a default, a schema and a line in the chart's README.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::helm::{Render, read};
use super::rendering::{assert_snapshot, changes};

/// `path=JSON` of each leaf of a document; an empty map or list is a leaf.
pub(crate) fn leaves(value: &Value) -> BTreeMap<String, Value> {
    let Some(map) = value.as_object().filter(|map| !map.is_empty()) else {
        return BTreeMap::from([(String::new(), value.clone())]);
    };
    let mut found = BTreeMap::new();
    for (key, value) in map {
        // The path of a leaf within itself is empty.
        let path = |leaf: String| format!("{key}.{leaf}").trim_end_matches('.').to_owned();
        found.extend(leaves(value).into_iter().map(|(leaf, value)| (path(leaf), value)));
    }
    found
}

pub(crate) fn values(name: &str) -> Value {
    serde_saphyr::from_str(&read(name)).expect("YAML")
}

/// The values of the oldest chart that can be upgraded with `--reuse-values`.
pub(crate) fn older() -> Value {
    serde_saphyr::from_str(include_str!("values/9cdd524.yaml")).expect("YAML")
}

/// Each by itself: as the reviewed changes have it, or as `ci/full-values.yaml` has it.
#[test]
fn every_value_has_an_effect() {
    let changes = changes();
    let full = values("ci/full-values.yaml");
    for path in leaves(&values("values.yaml")).keys() {
        let is_changed = |(row, before, after): &(String, Render, Render)| {
            let values = row.split(" with ").next().expect("values");
            let is_alone = !values.contains(" + ");
            let is_set = values.strip_prefix(&**path).is_some_and(|rest| rest.starts_with('='));
            is_alone && is_set && before.text() != after.text()
        };
        if changes.iter().any(is_changed) {
            continue;
        }
        // A label's key has dots of its own.
        let pointer = format!("/{}", path.replace('.', "/")).replace("s/io/os", "s.io~1os");
        let other = full.pointer(&pointer).map(ToString::to_string).unwrap_or_default();
        let path = path.replace("kubernetes.io", r"kubernetes\.io");
        let after = Render::defaults().set(&format!("{path}={other}"));
        assert_ne!(Render::defaults().text(), after.text(), "{path}={other} changes nothing");
    }
}

/// Unknown keys are refused at every level, and missing ones unless they are newer than the oldest
/// chart whose values are reused; the schema knows exactly the values that there are.
#[test]
fn the_schema_knows_every_value_and_no_other() {
    fn walk(path: &str, schema: &Value, definitions: &Value, values: &Value, older: &Value) {
        // All its keys are optional; policy.rs compares it with stowplan's own schema.
        if path == ".policy" {
            return;
        }
        let definition = schema["$ref"]
            .as_str()
            .map(|place| &definitions[place.strip_prefix("#/definitions/").expect("a definition")]);
        let schema = definition.unwrap_or(schema);
        let Some(properties) = schema["properties"].as_object() else { return };
        assert_eq!(schema["additionalProperties"], false, "{path} is open");
        let known: BTreeSet<_> =
            properties.keys().map(|key| &**key).filter(|key| *key != "global").collect();
        let there: BTreeSet<_> =
            values.as_object().expect("a map").keys().map(|key| &**key).collect();
        assert_eq!(known, there, "values.schema.json and values.yaml at {path:?}");
        // Requests and limits may be removed.
        if !path.ends_with(".resources") {
            let required = schema["required"].as_array().into_iter().flatten();
            let required: BTreeSet<_> = required.filter_map(Value::as_str).collect();
            let keys = older.as_object().into_iter().flatten().map(|(key, _)| &**key);
            assert_eq!(required, keys.collect(), "required at {path:?}");
        }
        for key in known {
            let path = format!("{path}.{key}");
            walk(&path, &properties[key], definitions, &values[key], &older[key]);
        }
    }
    let schema: Value = serde_json::from_str(&read("values.schema.json")).expect("JSON");
    walk("", &schema, &schema["definitions"], &values("values.yaml"), &older());
}

/// Values that are refused, one set in each row.
const REFUSED: &str = include_str!("values/refused.txt");

/// With the messages that were reviewed: they name the value, say what would not work, and what to set.
#[test]
fn values_that_cannot_work_are_refused_with_a_remedy() {
    let mut shown = String::new();
    for row in REFUSED.trim().lines() {
        let refusal = Render::defaults().set_all(&row.split(" + ").collect::<Vec<_>>()).refusal();
        // A schema's, or a template's without its place in the file.
        let message = |line: &'static str| {
            if line.starts_with("- at ") { Some(line) } else { Some(line.split_once("): ")?.1) }
        };
        let messages: Vec<_> = refusal.lines().filter_map(message).collect();
        assert!(!messages.is_empty(), "{row}: {refusal}");
        shown += &format!("## {row}\n{}\n\n", messages.join("\n"));
    }
    assert_snapshot("refusals", &shown);
}

#[test]
fn the_readme_lists_every_value_with_its_default() {
    let readme = read("README.md");
    let listed: BTreeMap<_, _> = readme
        .lines()
        .skip_while(|line| *line != "## Values")
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| `")?.split("` | `");
            let path = cells.next()?.to_owned();
            let default = cells.next()?.split("` |").next()?;
            Some((path, serde_json::from_str(default).expect("a default in JSON")))
        })
        .collect();
    assert_eq!(listed, leaves(&values("values.yaml")));
}

#[test]
fn the_readme_shows_the_profiles() {
    let profile = read("values-strict.yaml");
    let (_, profile) = profile.split_once("\nreplicas:").expect("comments, then values");
    assert!(read("README.md").contains(&format!("```yaml\nreplicas:{profile}```\n")));
    assert!(read("README.md").contains("[`values-openshift.yaml`](values-openshift.yaml)"));
}
