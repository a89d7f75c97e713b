//! The webhook configurations and the policies for all users: what the templates write themselves is what
//! stowplan has.

use std::collections::BTreeSet;

use serde_json::Value;
use stowplan_core::placement::record;
use stowplan_core::systems::SYSTEMS;

use super::helm::{Objects, Render, objects, read, texts};

/// In another namespace, and with the names that the values add: the snapshots (`rendering.rs`).
#[test]
fn the_namespace_of_the_control_plane_is_excluded_once() {
    let objects = Render::defaults().namespace("kube-system").objects();
    let expected = ["kube-system", "kube-node-lease"];
    assert_eq!(texts(&objects.policy_file()["excludedNamespaces"]), expected);
    for webhook in objects.webhooks() {
        let rules = webhook["namespaceSelector"]["matchExpressions"].as_array();
        let is_named = |rule: &&Value| rule["key"] == "kubernetes.io/metadata.name";
        let rule = rules.expect("rules").iter().find(is_named).expect("a rule of names");
        assert_eq!(rule["operator"], "NotIn");
        assert_eq!(texts(&rule["values"]), expected);
    }
    // Everybody may use the priority class there.
    assert!(objects.of_kind("ResourceQuota").is_empty());
}

/// `stowplan check` looks for these words in the conditions that are installed.
#[test]
fn what_check_looks_for_in_the_conditions_is_there() {
    let conditions = objects(&[]).webhooks()[0]["matchConditions"].to_string();
    let systems = stowplan_core::systems::DIAGNOSTICS.iter();
    for word in systems.flat_map(|system| system.installation.sent_by) {
        assert!(conditions.contains(word), "{word}");
    }
}

/// In every namespace, as the snapshots show: a pool in an excluded one would take nodes all the same.
#[test]
fn own_objects_are_checked_in_every_version_that_is_served() {
    let configuration = objects(&[]).get("ValidatingWebhookConfiguration", "stowplan");
    let rules = &configuration["webhooks"][0]["rules"];
    for definition in Objects::parse(&read("files/crds.yaml")).0.values() {
        let versions = definition["spec"]["versions"].as_array().expect("versions");
        let versions: Value = versions.iter().map(|it| it["name"].clone()).collect();
        assert_eq!(rules[0]["apiVersions"], versions);
    }
}

/// An expression that fails to evaluate counts as a failed call: each field is asked for first.
#[test]
fn match_conditions_guard_every_optional_field() {
    let mine = r#"webhook.matchConditions=[{"name": "mine", "expression": "true"}]"#;
    let webhooks = objects(&[mine]).webhooks();
    let conditions = |webhook: &'static Value| webhook["matchConditions"].as_array().unwrap();
    let names: Vec<_> = conditions(&webhooks[0]).iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["has-a-known-key", "not-a-mirror-pod", "mine"]);
    for condition in webhooks.iter().flat_map(conditions) {
        let expression = condition["expression"].as_str().expect("text");
        for field in ["annotations", "labels", "ownerReferences"] {
            let guard = format!("has(object.metadata.{field}) && ");
            let uses = expression.matches(&format!("object.metadata.{field}")).count();
            assert_eq!(uses, expression.matches(&guard).count() * 2, "{expression}");
        }
    }
}

/// Both are written in the template, because the chart has no other source.
#[test]
fn the_known_keys_are_those_of_stowplan() {
    let policy = |name| &objects(&[]).get("ValidatingAdmissionPolicy", name)["spec"];
    let spec = policy("stowplan-keys");
    let variable = |name: &str| {
        let variables = spec["variables"].as_array().expect("variables");
        let found = variables.iter().find(|it| it["name"] == name).expect("a variable");
        found["expression"].as_str().expect("text")
    };
    let list = |name| -> BTreeSet<&str> {
        let inner = variable(name).trim_matches(['[', ']']).split(',');
        inner.map(|text| text.trim().trim_matches('\'')).collect()
    };
    let keys = SYSTEMS.iter().flat_map(|system| system.keys.iter().copied());
    assert_eq!(list("known"), keys.collect::<BTreeSet<_>>());
    let prefixes = SYSTEMS.iter().flat_map(|system| system.prefixes);
    let prefixes = prefixes.map(|prefix| prefix.own).chain(["stowplan.dev/"]);
    assert_eq!(list("prefixes"), prefixes.collect::<BTreeSet<_>>());
    assert!(variable("unknown").contains(&format!("'{}'", record::KEY)));
    let frozen = policy("stowplan-numa")["validations"].to_string();
    let katalyst = SYSTEMS.iter().find(|system| system.name == "katalyst").expect("the system");
    for key in katalyst.keys {
        assert!(frozen.contains(&format!("[?'{key}']")), "{key} is not frozen");
    }
}
