//! What the chart renders as a whole: reviewed snapshots, valid objects, names, notes.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, PodSpec, ResourceQuota, Service, ServiceAccount};
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

/// The text without the CustomResourceDefinitions, which are another command's to show, and
/// without the dashboard, which is a file of its own.
fn without_files(text: &str) -> String {
    let is_file = |document: &&str| {
        ["crds", "dashboard"]
            .iter()
            .any(|name| document.contains(&format!("# Source: stowplan/templates/{name}.yaml")))
    };
    text.split_inclusive("\n---\n").filter(|document| !is_file(document)).collect()
}

/// Compares a text with `tests/chart/snapshots/<name>.snap`.
fn assert_snapshot(name: &str, text: &str) {
    insta::with_settings!({ prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!(name, text);
    });
}

#[test]
fn defaults_render_as_reviewed() {
    assert_snapshot("defaults", &without_files(&Render::defaults().text()));
}

/// What the controller gets to keep the certificate, beyond the snapshot above, which is one of the
/// mode provided.
#[test]
fn the_mode_self_renders_as_reviewed() {
    let provided = Render::defaults().text();
    let lines: std::collections::BTreeSet<_> = provided.lines().collect();
    let own = Render::bare().text();
    let added: Vec<_> = own.lines().filter(|line| !lines.contains(line)).collect();
    assert_snapshot("mode_self_adds", &format!("{}\n", added.join("\n")));
}

#[test]
fn every_value_changed_renders_as_reviewed() {
    let text = Render::file("ci/full-values.yaml").release("other").namespace("placement").text();
    assert_snapshot("every_value_changed", &without_files(&text));
}

#[test]
fn rendering_twice_gives_the_same_bytes() {
    for render in [Render::defaults(), Render::file("ci/full-values.yaml")] {
        assert_eq!(render.text(), render.text());
    }
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
        .set(r#"fullnameOverride="""#)
        .set(r#"tls.secretName="1e3""#)
        .release("1e3")
        .namespace("123");
    let sidecar = Render::defaults().set_all(&[SIDECAR, "networkPolicy.enabled=true"]);
    for render in [Render::defaults(), Render::file("ci/full-values.yaml"), numbers, sidecar] {
        for ((kind, name), object) in render.objects().0 {
            match &*kind {
                "ClusterRole" => known::<ClusterRole>(&object),
                "ClusterRoleBinding" => known::<ClusterRoleBinding>(&object),
                "ConfigMap" => known::<ConfigMap>(&object),
                "CustomResourceDefinition" => known::<CustomResourceDefinition>(&object),
                "Deployment" => known::<Deployment>(&object),
                "Job" => known::<Job>(&object),
                "MutatingWebhookConfiguration" => known::<MutatingWebhookConfiguration>(&object),
                "NetworkPolicy" => known::<NetworkPolicy>(&object),
                "Pod" => known::<Pod>(&object),
                "PodDisruptionBudget" => known::<PodDisruptionBudget>(&object),
                // The Prometheus operator's; the snapshot shows them.
                "PodMonitor" | "PrometheusRule" | "ServiceMonitor" => {}
                "PriorityClass" => known::<PriorityClass>(&object),
                "ResourceQuota" => known::<ResourceQuota>(&object),
                "Role" => known::<Role>(&object),
                "RoleBinding" => known::<RoleBinding>(&object),
                "Service" => known::<Service>(&object),
                "ServiceAccount" => known::<ServiceAccount>(&object),
                "StorageClass" => known::<StorageClass>(&object),
                "ValidatingAdmissionPolicy" => known::<ValidatingAdmissionPolicy>(&object),
                "ValidatingAdmissionPolicyBinding" => {
                    known::<ValidatingAdmissionPolicyBinding>(&object);
                }
                "ValidatingWebhookConfiguration" => {
                    known::<ValidatingWebhookConfiguration>(&object);
                }
                _ => panic!("{kind} {name}: no type to hold it against"),
            }
        }
    }
}

/// The ConfigMap that the first container of these pods follows.
fn policy_of(spec: &PodSpec) -> &str {
    let arguments = spec.containers[0].args.iter().flatten();
    let mut names = arguments.filter_map(|it| it.strip_prefix("--policy-config-map="));
    names.next().expect("a policy")
}

#[test]
fn names_follow_the_release() {
    for (release, prefix) in [
        ("stowplan", "stowplan"),
        ("my-stowplan", "my-stowplan"),
        ("placement", "placement-stowplan"),
    ] {
        let objects = Render::defaults().release(release).objects();
        let configuration: MutatingWebhookConfiguration =
            objects.get("MutatingWebhookConfiguration", prefix);
        let webhooks = configuration.webhooks.expect("webhooks");
        let called = webhooks[0].client_config.service.as_ref().expect("a Service is called");
        let service: Service = objects.get("Service", &called.name);
        let selector = service.spec.expect("a spec").selector.expect("a selector");
        let deployment: Deployment = objects.get("Deployment", &format!("{prefix}-webhook"));
        let pod = deployment.spec.expect("a spec").template;
        let labels = pod.metadata.expect("metadata").labels.expect("labels");
        assert!(selector.iter().all(|pair| labels.get_key_value(pair.0) == Some(pair)));
        let spec = pod.spec.expect("a spec");
        let account = spec.service_account_name.clone().expect("an account");
        let _: ServiceAccount = objects.get("ServiceAccount", &account);
        let binding: ClusterRoleBinding =
            objects.get("ClusterRoleBinding", &format!("{prefix}-webhook"));
        assert_eq!(binding.subjects.expect("subjects")[0].name, account);
        let _: ClusterRole = objects.get("ClusterRole", &binding.role_ref.name);
        let _: ConfigMap = objects.get("ConfigMap", policy_of(&spec));
        let configuration: ValidatingWebhookConfiguration =
            objects.get("ValidatingWebhookConfiguration", prefix);
        let checks = configuration.webhooks.expect("webhooks");
        assert_eq!(checks[0].client_config.service.as_ref().expect("a Service").name, called.name);

        let controller = format!("{prefix}-controller");
        let deployment: Deployment = objects.get("Deployment", &controller);
        let spec = deployment.spec.expect("a spec").template.spec.expect("a spec");
        assert_eq!(spec.service_account_name, Some(controller.clone()));
        let _: ConfigMap = objects.get("ConfigMap", policy_of(&spec));
        let role: RoleBinding = objects.get("RoleBinding", policy_of(&spec));
        assert_eq!(role.role_ref.name, policy_of(&spec));
        let _: ServiceAccount = objects.get("ServiceAccount", &controller);
        let binding: ClusterRoleBinding = objects.get("ClusterRoleBinding", &controller);
        assert_eq!(binding.subjects.expect("subjects")[0].name, controller);
        let binding: RoleBinding = objects.get("RoleBinding", &controller);
        assert_eq!(binding.subjects.expect("subjects")[0].name, controller);
        let _: Role = objects.get("Role", &binding.role_ref.name);
    }
}

#[test]
fn old_and_new_kubernetes_releases() {
    let mut old = Render::defaults();
    old.args.extend(["--kube-version".to_owned(), "1.32.9".to_owned()]);
    assert!(old.refusal().contains("kubeVersion: >=1.33.0-0"));
    for version in ["1.33.0", "1.33.4-gke.100", "1.40.0"] {
        let mut render = Render::defaults();
        render.args.extend(["--kube-version".to_owned(), version.to_owned()]);
        render.text();
    }
}

#[test]
fn the_notes_tell_how_to_see_that_it_works() {
    let notes = |values: &[&str]| {
        let mut install = helm();
        install.args(["install", "stowplan", CHART, "--dry-run=client", "--namespace", "here"]);
        for value in values {
            install.args(["--set-json", value]);
        }
        install.args(["--values", IMAGE]);
        let text = stdout(install.args(["--set-string", &format!("tls.caBundle={CA}")]));
        text.split_once("NOTES:").expect("notes").1.to_owned()
    };
    let ignore = notes(&[]);
    assert!(ignore.contains("kubectl -n here rollout status deployment/stowplan-webhook"));
    let check = "stowplan check --installed-in here --try-in default --wait 2m";
    assert!(ignore.contains(check), "{ignore}");
    assert!(ignore.contains("--annotations=streams.ibm.com/host=no-such-host"));
    assert!(ignore.contains("Pods are then created without placement."));
    assert!(ignore.contains("kubectl -n here rollout status deployment/stowplan-controller"));
    let sidecar = notes(&[SIDECAR]);
    assert!(sidecar.contains("service account stowplan may change nodes and pods"), "{sidecar}");
    let none = notes(&[NO_CONTROLLER]);
    assert!(none.contains("There is no controller (controller.enabled is false)"), "{none}");
    let fail = notes(&[r#"webhook.failurePolicy="Fail""#, "replicas=1"]);
    assert!(fail.contains("Pods with its keys are then refused."));
    assert!(fail.contains("use at least two replicas"));
}
