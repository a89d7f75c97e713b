//! Roles: what the webhook, the controller and users may do. The reviewed changes (`rendering.rs`) show
//! which rights the values `controller.rbac` take away.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};
use stowplan::testing::check::{Right, of_account};

use super::helm::{CHART, NO_CONTROLLER, Objects, SIDECAR, objects, texts};
use crate::documents::files;

const CONTROLLER: &str = "stowplan-controller";

/// `verb resource.group`, with the name where only one object is meant.
type Rights = BTreeSet<String>;

/// The rights with which `stowplan check` of an installation knows all but what only administrators
/// may read.
const READ_BY_CHECK: &str = "\
list mutatingwebhookconfigurations.admissionregistration.k8s.io
list validatingwebhookconfigurations.admissionregistration.k8s.io
get customresourcedefinitions.apiextensions.k8s.io
get services
list endpointslices.discovery.k8s.io
list deployments.apps
list pods
get leases.coordination.k8s.io stowplan-controller
get configmaps stowplan-policy";

/// The rights of a role's rules.
fn rights(role: &Value) -> Rights {
    let mut all = BTreeSet::new();
    for rule in role["rules"].as_array().expect("rules") {
        assert_eq!(rule["nonResourceURLs"], Value::Null);
        let mut names: Vec<_> =
            texts(&rule["resourceNames"]).iter().map(|name| format!(" {name}")).collect();
        if names.is_empty() {
            names.push(String::new());
        }
        for group in texts(&rule["apiGroups"]) {
            let dot = if group.is_empty() { "" } else { "." };
            for resource in texts(&rule["resources"]) {
                for verb in texts(&rule["verbs"]) {
                    let right = |name| format!("{verb} {resource}{dot}{group}{name}");
                    all.extend(names.iter().map(right));
                }
            }
        }
    }
    all
}

impl Objects {
    /// The rights of a service account of the release: everywhere, and in the release's namespace.
    fn rights(&self, account: &str) -> (Rights, Rights) {
        let mut found = (Rights::new(), Rights::new());
        for kind in ["ClusterRoleBinding", "RoleBinding"] {
            for (name, binding) in self.of_kind(kind) {
                let subjects = binding["subjects"].as_array().expect("subjects");
                for subject in subjects {
                    assert_eq!(subject["kind"], "ServiceAccount", "{name}");
                    assert_eq!(subject["namespace"], "stowplan-system", "{name}");
                }
                // It is for users: for none by itself.
                assert_ne!(binding["roleRef"]["name"], "stowplan-reader", "{name}");
                if !subjects.iter().any(|subject| subject["name"] == account) {
                    continue;
                }
                let [role_kind, role] = ["kind", "name"]
                    .map(|it| binding["roleRef"][it].as_str().expect("text").to_owned());
                let namespace = match &*role_kind {
                    "Role" => binding["metadata"]["namespace"].as_str().expect("a namespace"),
                    _ => "",
                };
                let rights = rights(&self.0[&(role_kind, role, namespace.to_owned())]);
                if kind == "RoleBinding" {
                    // `helm test` tries a pod in a namespace of the user's.
                    let is_own = binding["metadata"]["namespace"] == "stowplan-system";
                    assert!(is_own || account == "stowplan-test", "{binding}");
                    found.1.extend(rights);
                } else {
                    found.0.extend(rights);
                }
            }
        }
        found
    }
}

/// `stowplan check` asks the API server for each right of its tables: they are all that the chart gives,
/// whatever the policy is. When it changes, earlier writes are reverted, so the rights do not depend on
/// it.
#[test]
fn each_account_has_the_rights_that_check_expects_and_no_others() {
    fn named<'r>(rights: impl IntoIterator<Item = &'r Right>) -> Rights {
        rights.into_iter().map(ToString::to_string).collect()
    }
    for values in [
        &[][..],
        &[r#"tls.caBundle="""#],
        &[r#"policy={"repair": "recreatePending"}"#],
        &[r#"policy={"coschedule": {"enabled": false}}"#],
        &[r#"policy={"mpi": {"enabled": false}}"#],
        &[r#"policy={"katalyst": {"mode": "disabled"}}"#],
        &[r#"policy={"katalyst": {"mode": "enforced", "declaredLabels": ["app"]}}"#],
        &[NO_CONTROLLER],
        // The price of the sidecar: the account of the webhook's pods has the rights of both.
        &[SIDECAR],
        &[SIDECAR, r#"tls.caBundle="""#],
    ] {
        let objects = objects(values);
        let mut accounts = BTreeMap::<&str, Vec<Right>>::new();
        for role in ["webhook", "controller"] {
            let Some((pod, _)) = objects.container(role) else { continue };
            let args: Vec<_> = objects.args(role).into_iter().map(str::to_owned).collect();
            let table = of_account(role, &args);
            for right in table.iter().filter(|_| role == "webhook") {
                let reads = ["get", "list", "watch"].contains(&&*right.verb);
                let is_open = ["secrets", "configmaps", "leases"].contains(&&*right.resource);
                assert!(reads && (!is_open || right.is_own && right.name.is_some()), "{right}");
            }
            let account = pod["serviceAccountName"].as_str().expect("an account");
            accounts.entry(account).or_default().extend(table);
        }
        let has_own = !values.iter().any(|value| value.starts_with("controller."));
        assert_eq!(accounts.contains_key(CONTROLLER), has_own, "{values:?}");
        for (account, table) in accounts {
            let (own, everywhere): (Vec<_>, Vec<_>) = table.iter().partition(|it| it.is_own);
            assert_eq!(
                objects.rights(account),
                (named(everywhere), named(own)),
                "{account} {values:?}"
            );
        }
        let mut wanted: Rights = READ_BY_CHECK.lines().map(str::to_owned).collect();
        let reader = rights(objects.get("ClusterRole", "stowplan-reader"));
        assert!(wanted.is_subset(&reader), "{wanted:?} {reader:?}");
        // The account of `helm test` has these, and the trial pod.
        wanted.insert("create pods".to_owned());
        let (everywhere, inside) = objects.rights("stowplan-test");
        assert_eq!(&everywhere | &inside, wanted);
    }
}

/// `helm test --logs` asks for the logs of a pod named as each hook of the test, and fails if there is
/// none.
#[test]
fn the_hooks_of_a_test_have_the_name_of_its_pod() {
    for namespace in ["", "kube-public", "stowplan-system"] {
        let objects = objects(&[&format!("test.namespace={namespace:?}")]);
        let is_hook = |object: &Value| object["metadata"]["annotations"]["helm.sh/hook"] == "test";
        let mut hooks = BTreeSet::new();
        for ((kind, name, _), object) in &objects.0 {
            if is_hook(object) {
                assert_eq!(name, "stowplan-test", "{kind}");
                hooks.insert(&**kind);
            }
        }
        assert!(["Pod", "Role", "RoleBinding"].iter().all(|it| hooks.contains(it)), "{hooks:?}");
        let (_, inside) = objects.rights("stowplan-test");
        assert!(inside.contains("create pods"), "{namespace}: {inside:?}");
    }
}

/// A policy for each kind that the controller writes, other than events, leases and stowplan's own.
#[test]
fn every_kind_that_the_controller_writes_has_a_policy() {
    let objects = objects(&[]);
    let mut held = Rights::new();
    let mut policies = objects.of_kind("ValidatingAdmissionPolicy");
    policies.retain(|(name, _)| name.contains("-controller-"));
    for (_, policy) in policies {
        let mut rule = policy["spec"]["matchConstraints"]["resourceRules"][0].clone();
        rule["verbs"] = rule["operations"].take();
        held.extend(rights(&json!({"rules": [rule]})));
    }
    for right in objects.rights(CONTROLLER).0 {
        let (verb, resource) = right.split_once(' ').unwrap();
        let operation = verb.to_uppercase().replace("PATCH", "UPDATE");
        let is_free = ["get", "list", "watch"].contains(&verb)
            || resource.contains(".stowplan.dev")
            || resource.contains(".events.k8s.io");
        assert!(is_free || held.contains(&format!("{operation} {resource}")), "{right}: {held:?}");
    }
}

/// A rule without a reason is a rule that is never removed.
#[test]
fn every_rule_of_rbac_has_its_reason_above_it() {
    let mut rules = 0;
    for (path, text) in files(&Path::new(CHART).join("templates"), "yaml") {
        let lines: Vec<_> = text.lines().collect();
        // Admission policies have rules too, which are further in.
        for pair in lines.windows(2).filter(|pair| pair[1].starts_with("- apiGroups:")) {
            assert!(pair[0].starts_with("# "), "{}: why? {pair:?}", path.display());
            rules += 1;
        }
    }
    assert!(rules > 40, "{rules}");
}
