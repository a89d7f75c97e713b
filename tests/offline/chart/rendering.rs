//! What the chart renders as a whole: reviewed snapshots, valid objects, names, notes.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ResourceQuota, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::helm::{CA, CHART, IMAGE, NO_CONTROLLER, Render, SIDECAR, helm, stdout};

#[test]
fn helm_finds_nothing_to_complain_about() {
    for values in [
        &[][..],
        &["--values", "ci/full-values.yaml"],
        &["--values", "values-strict.yaml"],
        &["--values", "values-openshift.yaml"],
    ] {
        let text = stdout(helm().current_dir(CHART).args(["lint", "--strict", "."]).args(values));
        assert!(text.contains("1 chart(s) linted, 0 chart(s) failed"), "{text}");
        assert!(!text.contains("[WARNING]") && !text.contains("[ERROR]"), "{text}");
    }
}

/// Compares a text with `tests/offline/chart/snapshots/<name>.snap`.
fn assert_snapshot(name: &str, text: &str) {
    insta::with_settings!({ prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!(name, text);
    });
}

#[test]
fn the_chart_renders_as_reviewed() {
    let full = Render::file("ci/full-values.yaml").release("other").namespace("placement");
    for (name, render) in [("defaults", Render::defaults()), ("every_value_changed", full)] {
        // Without the CustomResourceDefinitions, which are another command's to show, and without
        // the dashboard, which is a file of its own.
        let is_file = |document: &&str| {
            ["crds", "dashboard"]
                .iter()
                .any(|name| document.contains(&format!("# Source: stowplan/templates/{name}.yaml")))
        };
        let documents = render.text().split_inclusive("\n---\n");
        assert_snapshot(name, &documents.filter(|it| !is_file(it)).collect::<String>());
        assert_eq!(render.text(), stdout(&mut render.command()), "another time other bytes");
    }
    // What the controller gets to keep the certificate, beyond the defaults above, which are those of
    // the mode provided.
    let provided: BTreeSet<_> = Render::defaults().text().lines().collect();
    let own = Render::bare().text().lines();
    let added: Vec<_> = own.filter(|line| !provided.contains(line)).collect();
    assert_snapshot("mode_self_adds", &format!("{}\n", added.join("\n")));
}

/// Parsed and written again nothing is lost: the types know every field, so the API server does
/// too.
#[test]
fn every_object_is_one_that_the_api_knows() {
    fn known<T: DeserializeOwned + Serialize>(object: &Value) {
        let typed = T::deserialize(object).unwrap_or_else(|error| panic!("{error} in {object:#}"));
        let again = serde_json::to_value(typed).expect("JSON");
        assert_eq!(with_floats(&again), with_floats(object));
    }
    /// A schema's `minimum: 1` is written again as `1.0`.
    fn with_floats(value: &Value) -> Value {
        match value {
            Value::Number(number) => json!(number.as_f64()),
            Value::Array(items) => items.iter().map(with_floats).collect(),
            Value::Object(map) => {
                map.iter().map(|(key, value)| (key.clone(), with_floats(value))).collect()
            }
            _ => value.clone(),
        }
    }
    // Names that a YAML reader would take for a number where they are not quoted.
    let numbers = Render::file("ci/full-values.yaml")
        .set_all(&[r#"fullnameOverride="""#, r#"tls.secretName="1e3""#])
        .release("1e3")
        .namespace("123");
    let sidecar = Render::defaults().set_all(&[SIDECAR, "networkPolicy.enabled=true"]);
    for render in [Render::defaults(), Render::file("ci/full-values.yaml"), numbers, sidecar] {
        for ((kind, name), object) in &render.objects().0 {
            let known = match &**kind {
                "ClusterRole" => known::<ClusterRole>,
                "ClusterRoleBinding" => known::<ClusterRoleBinding>,
                "ConfigMap" => known::<ConfigMap>,
                "CustomResourceDefinition" => known::<CustomResourceDefinition>,
                "Deployment" => known::<Deployment>,
                "Job" => known::<Job>,
                "MutatingWebhookConfiguration" => known::<MutatingWebhookConfiguration>,
                "NetworkPolicy" => known::<NetworkPolicy>,
                "Pod" => known::<Pod>,
                "PodDisruptionBudget" => known::<PodDisruptionBudget>,
                // The Prometheus operator's; the snapshot shows them.
                "PodMonitor" | "PrometheusRule" | "ServiceMonitor" => continue,
                "PriorityClass" => known::<PriorityClass>,
                "ResourceQuota" => known::<ResourceQuota>,
                "Role" => known::<Role>,
                "RoleBinding" => known::<RoleBinding>,
                "Service" => known::<Service>,
                "ServiceAccount" => known::<ServiceAccount>,
                "StorageClass" => known::<StorageClass>,
                "ValidatingAdmissionPolicy" => known::<ValidatingAdmissionPolicy>,
                "ValidatingAdmissionPolicyBinding" => known::<ValidatingAdmissionPolicyBinding>,
                "ValidatingWebhookConfiguration" => known::<ValidatingWebhookConfiguration>,
                _ => panic!("{kind} {name}: no type to hold it against"),
            };
            known(object);
        }
    }
}

#[test]
fn names_follow_the_release() {
    for (release, prefix) in [
        ("stowplan", "stowplan"),
        ("my-stowplan", "my-stowplan"),
        ("placement", "placement-stowplan"),
    ] {
        let objects = Render::defaults().release(release).objects();
        let named = |name: &Value| name.as_str().expect("a name").to_owned();
        let called = |kind| {
            let service = &objects.get(kind, prefix)["webhooks"][0]["clientConfig"]["service"];
            named(&service["name"])
        };
        let service = called("MutatingWebhookConfiguration");
        assert_eq!(called("ValidatingWebhookConfiguration"), service);
        let selector = objects.get("Service", &service)["spec"]["selector"].as_object();
        for (component, account) in
            [("webhook", prefix.to_owned()), ("controller", format!("{prefix}-controller"))]
        {
            let name = format!("{prefix}-{component}");
            let pod = &objects.get("Deployment", &name)["spec"]["template"];
            let labels = &pod["metadata"]["labels"];
            let is_called = selector.unwrap().iter().all(|(key, value)| labels[key] == *value);
            assert_eq!(is_called, component == "webhook");
            assert_eq!(pod["spec"]["serviceAccountName"], account);
            objects.get("ServiceAccount", &account);
            let args = &pod["spec"]["containers"][0]["args"];
            let policy = super::helm::texts(args);
            let policy = policy.iter().find_map(|it| it.strip_prefix("--policy-config-map="));
            let policy = policy.expect("a policy");
            objects.get("ConfigMap", policy);
            for (kind, role, name) in [
                ("ClusterRoleBinding", "ClusterRole", &*name),
                ("RoleBinding", "Role", &*name),
                ("RoleBinding", "Role", policy),
            ] {
                let binding = objects.get(kind, name);
                let subjects = binding["subjects"].as_array().expect("subjects");
                assert!(subjects.iter().any(|it| it["name"] == account), "{binding}");
                objects.get(role, &named(&binding["roleRef"]["name"]));
            }
        }
    }
}

#[test]
fn old_and_new_kubernetes_releases() {
    let of = |version| Render::defaults().args(&["--kube-version", version]);
    assert!(of("1.32.9").refusal().contains("kubeVersion: >=1.33.0-0"));
    for version in ["1.33.0", "1.33.4-gke.100", "1.40.0"] {
        of(version).text();
    }
}

#[test]
fn the_notes_tell_how_to_see_that_it_works() {
    let by_default = [
        "kubectl -n here rollout status deployment/stowplan-webhook",
        "kubectl -n here rollout status deployment/stowplan-controller",
        "stowplan check --installed-in here --try-in default --wait 2m",
        "--annotations=streams.ibm.com/host=no-such-host",
        "Pods are then created without placement.",
    ];
    for (values, sentences) in [
        (&[][..], &by_default[..]),
        (&[SIDECAR], &["service account stowplan may change nodes and pods"]),
        (&[NO_CONTROLLER], &["There is no controller (controller.enabled is false)"]),
        (
            &[r#"webhook.failurePolicy="Fail""#, "replicas=1"],
            &["Pods with its keys are then refused.", "use at least two replicas"],
        ),
    ] {
        let mut install = helm();
        install.args(["install", "stowplan", CHART, "--dry-run=client", "--namespace", "here"]);
        install.args(["--values", IMAGE, "--set-json", CA]);
        install.args(values.iter().flat_map(|value| ["--set-json", value]));
        let text = stdout(&mut install);
        let (_, notes) = text.split_once("NOTES:").expect("notes");
        for sentence in sentences {
            assert!(notes.contains(sentence), "{values:?}: {notes}");
        }
    }
}
