//! The policies for all users: what of a pod stays as it was created, and which keys are warned of.

use std::collections::BTreeSet;

use serde_json::Value;
use stowplan::testing::placement::record;
use stowplan::testing::systems::SYSTEMS;

use super::helm::{NO_CONTROLLER, Objects, SIDECAR, objects, texts};

const DECLARED: &str = r#"policy.katalyst.declaredLabels=["app"]"#;

impl Objects {
    /// The admission policy of this name, and the actions of its binding.
    pub(crate) fn policy(&self, name: &str) -> Option<(&Value, Vec<&str>)> {
        let policy = self.find("ValidatingAdmissionPolicy", name);
        let binding = self.find("ValidatingAdmissionPolicyBinding", name);
        assert_eq!(policy.is_some(), binding.is_some(), "{name} and its binding");
        let binding = &binding?["spec"];
        assert_eq!(binding["policyName"], name);
        Some((&policy?["spec"], texts(&binding["validationActions"])))
    }
}

fn numa(values: &[&str]) -> Option<&'static Value> {
    let (spec, actions) = objects(values).policy("stowplan-numa")?;
    assert_eq!(actions, ["Deny"]);
    Some(spec)
}

/// The label keys that the policy `…-numa-labels` freezes; `None`: there is no such policy.
fn frozen_labels(values: &[&str]) -> Option<Vec<String>> {
    let (spec, actions) = objects(values).policy("stowplan-numa-labels")?;
    assert_eq!(actions, ["Deny"]);
    let declared = variable(spec, "declared");
    Some(serde_json::from_str(declared).expect("a list in JSON, which CEL reads too"))
}

/// The expression or the text of the item of a list that has this name.
fn named<'v>(list: &'v Value, name: &str) -> Option<&'v str> {
    let item = list.as_array().expect("a list").iter().find(|item| item["name"] == name)?;
    item["expression"].as_str()
}

fn variable<'v>(spec: &'v Value, name: &str) -> &'v str {
    named(&spec["variables"], name).unwrap_or_else(|| panic!("no variable {name}"))
}

#[test]
fn numa_affinity_is_frozen_unless_the_policy_or_the_value_turns_it_off() {
    for (values, rendered) in [
        (&[][..], true),
        (&[r#"policy={"katalyst": {}}"#], true),
        (&[r#"policy={"katalyst": {"mode": "advisory"}}"#], true),
        (&[r#"policy={"katalyst": {"mode": "enforced", "declaredLabels": ["app"]}}"#], true),
        (&[NO_CONTROLLER], true),
        (&["webhook.admissionPolicy.enabled=false"], true),
        (&["controller.admissionPolicy.enabled=false"], true),
        (&[r#"policy={"katalyst": {"mode": "disabled", "declaredLabels": ["app"]}}"#], false),
        (&["webhook.numaPolicy.enabled=false", DECLARED], false),
    ] {
        assert_eq!(numa(values).is_some(), rendered, "{values:?}");
        assert!(rendered || frozen_labels(values).is_none(), "{values:?}");
    }
}

#[test]
fn declared_labels_are_frozen_and_no_others() {
    assert_eq!(frozen_labels(&[]), None);
    assert_eq!(frozen_labels(&["policy.katalyst.declaredLabels=[]"]), None);
    let keys =
        frozen_labels(&[r#"policy.katalyst.declaredLabels=["b", "example.com/A_b.c", "b"]"#]);
    assert_eq!(keys, Some(vec!["b".to_owned(), "example.com/A_b.c".to_owned()]));
}

/// An expression that fails to evaluate must not keep kubelets from writing the status of pods.
#[test]
fn policies_for_all_users_never_refuse_because_of_an_error() {
    for name in ["stowplan-numa", "stowplan-numa-labels", "stowplan-keys", "stowplan-tolerations"] {
        let (spec, _) = objects(&[DECLARED]).policy(name).expect(name);
        assert_eq!(spec["failurePolicy"], "Ignore", "{name}");
    }
}

/// The account of the controller, and only if it has the right to write annotations.
#[test]
fn the_controller_alone_is_excepted() {
    for (value, account) in [
        (None, Some("stowplan-controller")),
        (Some(SIDECAR), Some("stowplan")),
        (Some(NO_CONTROLLER), None),
        (Some("controller.rbac.katalyst=false"), None),
    ] {
        let values: Vec<_> = value.into_iter().chain([DECLARED]).collect();
        let user = |account| {
            format!(
                "request.userInfo.username != 'system:serviceaccount:stowplan-system:{account}'"
            )
        };
        for name in ["stowplan-numa", "stowplan-numa-labels"] {
            let (spec, _) = objects(&values).policy(name).expect("a policy");
            let excepted = named(&spec["matchConditions"], "not-by-the-controller");
            assert_eq!(excepted, account.map(user).as_deref(), "{name} {value:?}");
        }
    }
}

/// Both are written in the template, because the chart has no other source.
#[test]
fn the_known_keys_are_those_of_stowplan() {
    let (spec, actions) = objects(&[]).policy("stowplan-keys").expect("by default");
    assert_eq!(actions, ["Warn"]);
    let list = |name| -> BTreeSet<&str> {
        let inner = variable(spec, name).trim_matches(['[', ']']).split(',');
        inner.map(|text| text.trim().trim_matches('\'')).collect()
    };
    let keys = SYSTEMS.iter().flat_map(|system| system.keys.iter().copied());
    assert_eq!(list("known"), keys.collect::<BTreeSet<_>>());
    let prefixes = SYSTEMS.iter().flat_map(|system| system.prefixes);
    let prefixes = prefixes.map(|prefix| prefix.own).chain(["stowplan.dev/"]);
    assert_eq!(list("prefixes"), prefixes.collect::<BTreeSet<_>>());
    assert!(variable(spec, "unknown").contains(&format!("'{}'", record::KEY)));
    let frozen = numa(&[]).expect("by default")["validations"].to_string();
    let katalyst = SYSTEMS.iter().find(|system| system.name == "katalyst").expect("the system");
    for key in katalyst.keys {
        assert!(frozen.contains(&format!("[?'{key}']")), "{key} is not frozen");
    }
    assert!(objects(&["webhook.keyPolicy.enabled=false"]).policy("stowplan-keys").is_none());
}
