//! The policies for all users: what of a pod stays as it was created, and which keys are warned of.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicySpec,
};
use serde_json::Value;
use stowplan::testing::placement::record;
use stowplan::testing::systems::SYSTEMS;

use super::helm::{NO_CONTROLLER, Objects, Render, SIDECAR};

impl Objects {
    /// The policy of this name, and the actions of its binding.
    fn policy(&self, name: &str) -> Option<(ValidatingAdmissionPolicySpec, Vec<String>)> {
        let policy: Option<ValidatingAdmissionPolicy> =
            self.find("ValidatingAdmissionPolicy", name);
        let binding: Option<ValidatingAdmissionPolicyBinding> =
            self.find("ValidatingAdmissionPolicyBinding", name);
        assert_eq!(policy.is_some(), binding.is_some(), "{name} and its binding");
        let binding = binding?.spec.expect("a spec");
        assert_eq!(binding.policy_name.as_deref(), Some(name));
        Some((policy?.spec.expect("a spec"), binding.validation_actions.expect("actions")))
    }
}

fn numa(values: &[&str]) -> Option<ValidatingAdmissionPolicySpec> {
    let objects = Render::defaults().set_all(values).objects();
    let (spec, actions) = objects.policy("stowplan-numa")?;
    assert_eq!(actions, ["Deny"]);
    Some(spec)
}

/// The label keys that the policy `…-numa-labels` freezes; `None`: there is no such policy.
fn frozen_labels(values: &[&str]) -> Option<Vec<String>> {
    let objects = Render::defaults().set_all(values).objects();
    let (spec, actions) = objects.policy("stowplan-numa-labels")?;
    assert_eq!(actions, ["Deny"]);
    let declared = variable(&spec, "declared");
    Some(serde_json::from_str(&declared).expect("a list in JSON, which CEL reads too"))
}

fn variable(spec: &ValidatingAdmissionPolicySpec, name: &str) -> String {
    let variables = spec.variables.as_ref().expect("variables");
    let variable = variables.iter().find(|variable| variable.name == name);
    variable.unwrap_or_else(|| panic!("no variable {name}")).expression.clone()
}

/// The texts of a list in CEL.
fn list(expression: &str) -> BTreeSet<String> {
    let inner = expression.strip_prefix('[').and_then(|it| it.strip_suffix(']')).expect("a list");
    let texts = inner.split(',').map(|text| {
        let text = text.trim().strip_prefix('\'').and_then(|it| it.strip_suffix('\''));
        text.expect("a text in quotes").to_owned()
    });
    texts.collect()
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
        (&["webhook.numaPolicy.enabled=false", r#"policy.katalyst.declaredLabels=["app"]"#], false),
    ] {
        assert_eq!(numa(values).is_some(), rendered, "{values:?}");
        if !rendered {
            assert_eq!(frozen_labels(values), None, "{values:?}");
        }
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
    let objects = Render::defaults().set(r#"policy.katalyst.declaredLabels=["app"]"#).objects();
    for name in ["stowplan-numa", "stowplan-numa-labels", "stowplan-keys", "stowplan-tolerations"] {
        let (spec, _) = objects.policy(name).unwrap_or_else(|| panic!("no policy {name}"));
        assert_eq!(spec.failure_policy.as_deref(), Some("Ignore"), "{name}");
    }
}

/// The account of the controller, and only if it has the right to write annotations.
#[test]
fn the_controller_alone_is_excepted() {
    let labels = r#"policy.katalyst.declaredLabels=["app"]"#;
    let excepted = |values: &[&str]| {
        let values: Vec<_> = values.iter().copied().chain([labels]).collect();
        let objects = Render::defaults().set_all(&values).objects();
        let [one, other] = ["stowplan-numa", "stowplan-numa-labels"].map(|name| {
            let (spec, _) = objects.policy(name).expect("a policy");
            let conditions = spec.match_conditions.expect("conditions").into_iter();
            let mut by_name = conditions.filter(|it| it.name == "not-by-the-controller");
            by_name.next().map(|condition| condition.expression)
        });
        assert_eq!(one, other);
        one
    };
    let of = |account: &str| {
        let user = format!("system:serviceaccount:stowplan-system:{account}");
        Some(format!("request.userInfo.username != '{user}'"))
    };
    assert_eq!(excepted(&[]), of("stowplan-controller"));
    assert_eq!(excepted(&[SIDECAR]), of("stowplan"));
    assert_eq!(excepted(&[NO_CONTROLLER]), None);
    assert_eq!(excepted(&["controller.rbac.katalyst=false"]), None);
}

/// Both are written in the template, because the chart has no other source.
#[test]
fn the_known_keys_are_those_of_stowplan() {
    let objects = Render::defaults().objects();
    let (spec, actions) = objects.policy("stowplan-keys").expect("by default");
    assert_eq!(actions, ["Warn"]);
    let keys = SYSTEMS.iter().flat_map(|system| system.keys);
    let keys: BTreeSet<_> = keys.map(|&key| key.to_owned()).collect();
    assert_eq!(list(&variable(&spec, "known")), keys);
    let prefixes = SYSTEMS.iter().flat_map(|system| system.prefixes);
    let prefixes = prefixes.map(|prefix| prefix.own).chain(["stowplan.dev/"]);
    let prefixes: BTreeSet<_> = prefixes.map(str::to_owned).collect();
    assert_eq!(list(&variable(&spec, "prefixes")), prefixes);
    assert!(variable(&spec, "unknown").contains(&format!("'{}'", record::KEY)));
    let numa = numa(&[]).expect("by default");
    let text = serde_json::to_string(&numa.validations).expect("JSON");
    let katalyst = SYSTEMS.iter().find(|system| system.name == "katalyst").expect("the system");
    for key in katalyst.keys {
        assert!(text.contains(&format!("[?'{key}']")), "{key} is not frozen");
    }
    let off = Render::defaults().set("webhook.keyPolicy.enabled=false").objects();
    assert!(off.policy("stowplan-keys").is_none());
}

/// A message ends in the remedy, and says which key is meant.
#[test]
fn refusals_name_the_key_and_the_remedy() {
    let spec = numa(&[]).expect("by default");
    for validation in spec.validations.expect("validations") {
        let message = validation.message.expect("a message");
        assert!(message.contains("katalyst.kubewharf.io/microtopology_"), "{message}");
        assert!(message.contains("; create the pod "), "{message}");
        assert_eq!(validation.reason.as_deref(), Some("Forbidden"), "{message}");
    }
    let objects = Render::defaults().set("policy.katalyst.declaredLabels=[\"app\"]").objects();
    let text =
        objects.get::<Value>("ValidatingAdmissionPolicy", "stowplan-numa-labels").to_string();
    assert!(text.contains("'the label ' + variables.changed[0]"), "{text}");
}
