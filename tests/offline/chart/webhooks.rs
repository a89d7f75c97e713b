//! The webhook configurations: for which objects the API server calls the webhook, and how.

use serde_json::Value;

use super::helm::{Objects, Render, objects, read, texts};

/// The values of the one rule of a selector that excludes by this key.
fn excluded<'v>(selector: &'v Value, key: &str) -> Vec<&'v str> {
    let rules = selector["matchExpressions"].as_array().expect("expressions");
    let rules: Vec<_> = rules.iter().filter(|rule| rule["key"] == key).collect();
    assert_eq!(rules.len(), 1, "{selector}");
    assert_eq!(rules[0]["operator"], "NotIn");
    texts(&rules[0]["values"])
}

/// The webhooks' selector, and the policy, which controller and commands read, name the same.
#[test]
fn the_control_plane_and_its_own_namespace_are_excluded_beside_those_of_the_values() {
    const SYSTEM: [&str; 2] = ["kube-system", "kube-node-lease"];
    for (namespace, values, further) in [
        ("stowplan-system", &[][..], &["stowplan-system"][..]),
        ("elsewhere", &[], &["elsewhere"]),
        ("kube-system", &[], &[]),
        (
            "stowplan-system",
            &[r#"webhook.excludedNamespaces=["stowplan-system", "build"]"#],
            &["stowplan-system", "build"],
        ),
        (
            "stowplan-system",
            &[r#"webhook.excludedNamespaces=["build", "kube-system"]"#],
            &["stowplan-system", "build"],
        ),
        (
            "stowplan-system",
            &[r#"policy={"excludedNamespaces": ["infra", "on"]}"#],
            &["stowplan-system", "infra", "on"],
        ),
        (
            "stowplan-system",
            &[
                r#"webhook.excludedNamespaces=["build", "007"]"#,
                r#"policy={"excludedNamespaces": ["infra", "build"], "repair": "recreatePending"}"#,
            ],
            &["stowplan-system", "build", "007", "infra"],
        ),
    ] {
        let render = Render::defaults().namespace(namespace).set_all(values);
        let objects = render.objects();
        let mut expected = [&SYSTEM[..], further].concat();
        expected.sort_unstable();
        let policy = objects.policy_file();
        let selectors = objects.webhooks().iter().map(|webhook| &webhook["namespaceSelector"]);
        let names = selectors.map(|it| excluded(it, "kubernetes.io/metadata.name"));
        for mut names in names.chain([texts(&policy["excludedNamespaces"])]) {
            names.sort_unstable();
            assert_eq!(names, expected, "{values:?}");
        }
        assert!(render.text().contains(&format!("- --namespace={namespace}\n")));
    }
}

/// `stowplan check` looks for these words in the conditions that are installed.
#[test]
fn what_check_looks_for_in_the_conditions_is_there() {
    let conditions = objects(&[]).webhooks()[0]["matchConditions"].to_string();
    for word in stowplan::testing::check::sent_by() {
        assert!(conditions.contains(word), "{word}");
    }
}

#[test]
fn the_opt_out_label_holds_for_namespaces_pods_and_the_webhook_itself() {
    let objects = objects(&[r#"podLabels={"stowplan.dev/ignore": "false"}"#]);
    assert_eq!(objects.webhooks().len(), 2);
    for webhook in objects.webhooks() {
        for selector in ["namespaceSelector", "objectSelector"] {
            assert_eq!(excluded(&webhook[selector], "stowplan.dev/ignore"), ["true"]);
        }
    }
    let pods = objects.templates();
    assert_eq!(pods.len(), 2);
    for pod in pods {
        assert_eq!(pod["metadata"]["labels"]["stowplan.dev/ignore"], "true");
    }
}

/// In every namespace, as the snapshots show: a pool in an excluded one would take nodes all the same.
#[test]
fn own_objects_are_checked_in_every_version_that_is_served() {
    let webhook = objects(&[]).validation();
    for definition in Objects::parse(&read("files/crds.yaml")).0.values() {
        let versions = definition["spec"]["versions"].as_array().expect("versions");
        let versions: Value = versions.iter().map(|it| it["name"].clone()).collect();
        assert_eq!(webhook["rules"][0]["apiVersions"], versions);
    }
}

/// Claims are placed for coscheduling alone, so that a cluster that does without pays nothing for
/// it.
#[test]
fn runs_and_their_claims_are_asked_about_unless_the_policy_turns_coscheduling_off() {
    for (policy, asked) in [
        ("{}", true),
        (r#"{"coschedule": {}}"#, true),
        (r#"{"coschedule": {"enabled": true}}"#, true),
        (r#"{"coschedule": {"mode": "disabled"}}"#, true),
        (r#"{"coschedule": {"enabled": false}}"#, false),
    ] {
        let webhooks = objects(&[&format!("policy={policy}")]).webhooks();
        let names: Vec<_> = webhooks.iter().map(|webhook| &webhook["name"]).collect();
        let all = ["pods.stowplan.dev", "claims.stowplan.dev"];
        assert_eq!(names, all[..if asked { 2 } else { 1 }], "{policy}");
        let condition = webhooks[0]["matchConditions"][0]["expression"].as_str().expect("text");
        assert_eq!(condition.contains("tekton.dev/"), asked, "{policy}");
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
