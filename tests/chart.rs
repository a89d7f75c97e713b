//! The chart as code: what it renders, refuses and promises. All with the real `helm`; what the API
//! server makes of it is seen in the tests on the control plane.

#![allow(clippy::panic, reason = "how a helper of tests fails; clippy.toml frees only the tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, MutatingWebhookConfiguration, ValidatingWebhook,
    ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, PodSpec, PodTemplateSpec, ResourceQuota, Service, ServiceAccount,
};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stowplan::systems::coschedule::keys;
use testbed::tools::{Tools, to_stderr};

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/stowplan");

const BINARY: &str = env!("CARGO_BIN_EXE_stowplan");

/// The controller in the webhook's pods.
const SIDECAR: &str = "controller.sidecar=true";

/// No controller.
const NO_CONTROLLER: &str = "controller.enabled=false";

/// Base64 of a PEM frame without a certificate in it: the chart looks no further.
const CA: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkxTMHQKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";

// ---- helm ----------------------------------------------------------------------------------------

fn helm() -> Command {
    static HELM: LazyLock<PathBuf> = LazyLock::new(|| {
        let tools = Tools::ensure(&to_stderr).unwrap_or_else(|error| panic!("no helm: {error:#}"));
        tools.program("helm")
    });
    let mut helm = Command::new(&*HELM);
    // Nothing of the user's own Helm: no plugins, no repositories, no defaults.
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("helm");
    for (variable, folder) in
        [("HELM_CACHE_HOME", "cache"), ("HELM_CONFIG_HOME", "config"), ("HELM_DATA_HOME", "data")]
    {
        helm.env(variable, home.join(folder));
    }
    helm.env_remove("HELM_NAMESPACE").env_remove("KUBECONFIG");
    helm
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// What a successful command wrote.
fn stdout(command: &mut Command) -> String {
    let output = run(command);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("text")
}

/// One `helm template` of the chart. Values are given as `path=JSON`.
struct Render {
    release: &'static str,
    namespace: &'static str,
    args: Vec<String>,
}

impl Render {
    /// Nothing but the defaults, which alone are not enough.
    fn bare() -> Self {
        Self { release: "stowplan", namespace: "stowplan-system", args: Vec::new() }
    }

    /// The defaults and a CA.
    fn defaults() -> Self {
        Self::bare().set(&format!("tls.caBundle={CA:?}"))
    }

    fn file(name: &str) -> Self {
        let mut render = Self::bare();
        render.args.extend(["--values".to_owned(), format!("{CHART}/{name}")]);
        render
    }

    fn set(mut self, value: &str) -> Self {
        self.args.extend(["--set-json".to_owned(), value.to_owned()]);
        self
    }

    fn set_all(self, values: &[&str]) -> Self {
        values.iter().fold(self, |render, value| render.set(value))
    }

    fn release(self, release: &'static str) -> Self {
        Self { release, ..self }
    }

    fn namespace(self, namespace: &'static str) -> Self {
        Self { namespace, ..self }
    }

    fn command(&self) -> Command {
        let mut helm = helm();
        helm.args(["template", self.release, CHART, "--namespace", self.namespace]);
        helm.args(&self.args);
        helm
    }

    fn text(&self) -> String {
        stdout(&mut self.command())
    }

    fn objects(&self) -> Objects {
        Objects::parse(&self.text())
    }

    /// The message of a render that is refused.
    fn refusal(&self) -> String {
        let output = run(&mut self.command());
        assert!(!output.status.success(), "rendered in spite of {:?}", self.args);
        String::from_utf8(output.stderr).expect("text")
    }
}

/// The rendered objects, by kind and name.
struct Objects(BTreeMap<(String, String), Value>);

impl Objects {
    fn parse(text: &str) -> Self {
        let documents: Vec<Value> = serde_saphyr::from_multiple(text).expect("YAML");
        let mut objects = BTreeMap::new();
        for object in documents {
            let word = |pointer: &str| {
                let word = object.pointer(pointer).and_then(Value::as_str);
                word.unwrap_or_else(|| panic!("no {pointer} in {object}")).to_owned()
            };
            let key = (word("/kind"), word("/metadata/name"));
            assert!(objects.insert(key.clone(), object).is_none(), "{key:?} is there twice");
        }
        Self(objects)
    }

    fn kinds(&self) -> BTreeSet<&str> {
        self.0.keys().map(|(kind, _)| &**kind).collect()
    }

    fn find<T: DeserializeOwned>(&self, kind: &str, name: &str) -> Option<T> {
        let object = self.0.get(&(kind.to_owned(), name.to_owned()))?;
        Some(T::deserialize(object).unwrap_or_else(|error| panic!("{kind} {name}: {error}")))
    }

    fn get<T: DeserializeOwned>(&self, kind: &str, name: &str) -> T {
        self.find(kind, name)
            .unwrap_or_else(|| panic!("no {kind} {name} among {:?}", self.0.keys()))
    }

    /// The webhooks of the release `stowplan` that place.
    fn webhooks(&self) -> Vec<MutatingWebhook> {
        let configuration: MutatingWebhookConfiguration =
            self.get("MutatingWebhookConfiguration", "stowplan");
        configuration.webhooks.expect("webhooks")
    }

    /// The one of them that places pods.
    fn webhook(&self) -> MutatingWebhook {
        self.webhooks().into_iter().find(|it| it.name == "pods.stowplan.dev").expect("the webhook")
    }

    /// The webhook of the release `stowplan` that checks our own objects.
    fn validation(&self) -> ValidatingWebhook {
        let configuration: ValidatingWebhookConfiguration =
            self.get("ValidatingWebhookConfiguration", "stowplan");
        let [webhook] = configuration.webhooks.expect("webhooks").try_into().expect("one");
        webhook
    }

    /// The webhook's pods of the release `stowplan`.
    fn pod(&self) -> PodTemplateSpec {
        let deployment: Deployment = self.get("Deployment", "stowplan-webhook");
        deployment.spec.expect("a spec").template
    }

    /// The pods of all Deployments.
    fn pods(&self) -> Vec<PodTemplateSpec> {
        let deployments = self.0.iter().filter(|((kind, _), _)| kind == "Deployment");
        let pods: Vec<_> = deployments
            .map(|(_, object)| Deployment::deserialize(object).expect("a Deployment"))
            .map(|deployment| deployment.spec.expect("a spec").template)
            .collect();
        assert!(!pods.is_empty());
        pods
    }

    /// The container of this name, and the pod that it is in, among all Deployments.
    fn container(&self, name: &str) -> Option<(PodSpec, Container)> {
        let mut found = self.pods().into_iter().filter_map(|pod| {
            let spec = pod.spec.expect("a spec");
            let container = spec.containers.iter().find(|it| it.name == name)?.clone();
            Some((spec, container))
        });
        let first = found.next();
        assert!(found.next().is_none(), "{name} runs in two Deployments");
        first
    }

    /// All rules that a service account of the release has, with the namespace where they hold (none:
    /// everywhere).
    fn rights(&self, account: &str) -> Vec<(Option<String>, PolicyRule)> {
        let holds = |subjects: Option<Vec<Subject>>| {
            subjects.expect("subjects").iter().any(|subject| {
                assert_eq!(subject.kind, "ServiceAccount");
                assert_eq!(subject.namespace.as_deref(), Some("stowplan-system"));
                subject.name == account
            })
        };
        let rules = |role: RoleRef| match &*role.kind {
            "Role" => self.get::<Role>("Role", &role.name).rules,
            _ => self.get::<ClusterRole>("ClusterRole", &role.name).rules,
        };
        let mut rights = Vec::new();
        for ((kind, _), object) in &self.0 {
            let (namespace, role) = match &**kind {
                "ClusterRoleBinding" => {
                    let binding = ClusterRoleBinding::deserialize(object).expect("a binding");
                    if !holds(binding.subjects) {
                        continue;
                    }
                    (None, binding.role_ref)
                }
                "RoleBinding" => {
                    let binding = RoleBinding::deserialize(object).expect("a binding");
                    if !holds(binding.subjects) {
                        continue;
                    }
                    (Some(binding.metadata.namespace.expect("a namespace")), binding.role_ref)
                }
                _ => continue,
            };
            let rules = rules(role).expect("rules");
            rights.extend(rules.into_iter().map(|rule| (namespace.clone(), rule)));
        }
        rights
    }
}

/// `verb resource.group` of all rules, with the names where only some are meant.
fn verbs(rules: &[PolicyRule]) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for rule in rules {
        assert_eq!(rule.non_resource_urls, None);
        for group in rule.api_groups.as_ref().expect("groups") {
            for resource in rule.resources.as_ref().expect("resources") {
                for verb in &rule.verbs {
                    let dot = if group.is_empty() { "" } else { "." };
                    let names = rule.resource_names.iter().flatten();
                    let names: String = names.map(|name| format!(" {name}")).collect();
                    all.insert(format!("{verb} {resource}{dot}{group}{names}"));
                }
            }
        }
    }
    all
}

/// The same, of one account everywhere.
fn verbs_everywhere(objects: &Objects, account: &str) -> BTreeSet<String> {
    let rights = objects.rights(account).into_iter();
    verbs(
        &rights
            .filter(|(namespace, _)| namespace.is_none())
            .map(|(_, rule)| rule)
            .collect::<Vec<_>>(),
    )
}

// ---- rendering -----------------------------------------------------------------------------------

#[test]
fn helm_finds_nothing_to_complain_about() {
    for values in
        [&[][..], &["--values", "ci/full-values.yaml"], &["--values", "values-strict.yaml"]]
    {
        let text = stdout(helm().current_dir(CHART).args(["lint", "--strict", "."]).args(values));
        assert!(text.contains("1 chart(s) linted, 0 chart(s) failed"), "{text}");
        assert!(!text.contains("[WARNING]") && !text.contains("[ERROR]"), "{text}");
    }
}

/// The text without the CustomResourceDefinitions, which are another command's to show.
fn without_definitions(text: &str) -> String {
    text.split_inclusive("\n---\n")
        .filter(|document| !document.contains("# Source: stowplan/templates/crds.yaml"))
        .collect()
}

#[test]
fn defaults_render_as_reviewed() {
    insta::assert_snapshot!("defaults", without_definitions(&Render::defaults().text()));
}

#[test]
fn every_value_changed_renders_as_reviewed() {
    let text = Render::file("ci/full-values.yaml").release("other").namespace("placement").text();
    insta::assert_snapshot!("every_value_changed", without_definitions(&text));
}

#[test]
fn rendering_twice_gives_the_same_bytes() {
    for render in [Render::defaults(), Render::file("ci/full-values.yaml")] {
        assert_eq!(render.text(), render.text());
    }
}

/// Parsed and written again nothing is lost: the types know every field, so the API server does too.
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
                "MutatingWebhookConfiguration" => known::<MutatingWebhookConfiguration>(&object),
                "NetworkPolicy" => known::<NetworkPolicy>(&object),
                "PodDisruptionBudget" => known::<PodDisruptionBudget>(&object),
                // The Prometheus operator's; the snapshot shows it.
                "PodMonitor" => {}
                "ResourceQuota" => known::<ResourceQuota>(&object),
                "Role" => known::<Role>(&object),
                "RoleBinding" => known::<RoleBinding>(&object),
                "Service" => known::<Service>(&object),
                "ServiceAccount" => known::<ServiceAccount>(&object),
                "StorageClass" => known::<StorageClass>(&object),
                "ValidatingWebhookConfiguration" => {
                    known::<ValidatingWebhookConfiguration>(&object);
                }
                _ => panic!("{kind} {name}: no type to hold it against"),
            }
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
        let account = spec.service_account_name.expect("an account");
        let _: ServiceAccount = objects.get("ServiceAccount", &account);
        let binding: ClusterRoleBinding =
            objects.get("ClusterRoleBinding", &format!("{prefix}-webhook"));
        assert_eq!(binding.subjects.expect("subjects")[0].name, account);
        let _: ClusterRole = objects.get("ClusterRole", &binding.role_ref.name);
        let policy = spec.volumes.expect("volumes").into_iter().find_map(|it| it.config_map);
        let _: ConfigMap = objects.get("ConfigMap", &policy.expect("a policy volume").name);
        let configuration: ValidatingWebhookConfiguration =
            objects.get("ValidatingWebhookConfiguration", prefix);
        let checks = configuration.webhooks.expect("webhooks");
        assert_eq!(checks[0].client_config.service.as_ref().expect("a Service").name, called.name);

        let controller = format!("{prefix}-controller");
        let deployment: Deployment = objects.get("Deployment", &controller);
        let spec = deployment.spec.expect("a spec").template.spec.expect("a spec");
        assert_eq!(spec.service_account_name, Some(controller.clone()));
        let policy = spec.volumes.expect("volumes").into_iter().find_map(|it| it.config_map);
        let _: ConfigMap = objects.get("ConfigMap", &policy.expect("a policy volume").name);
        let _: ServiceAccount = objects.get("ServiceAccount", &controller);
        let binding: ClusterRoleBinding = objects.get("ClusterRoleBinding", &controller);
        assert_eq!(binding.subjects.expect("subjects")[0].name, controller);
        let binding: RoleBinding = objects.get("RoleBinding", &controller);
        assert_eq!(binding.subjects.expect("subjects")[0].name, controller);
        let _: Role = objects.get("Role", &binding.role_ref.name);
    }
}

// ---- values --------------------------------------------------------------------------------------

/// `path=JSON` of each leaf of a document; an empty map or list is a leaf.
fn leaves(value: &Value) -> BTreeMap<String, Value> {
    fn walk(path: &str, value: &Value, leaves: &mut BTreeMap<String, Value>) {
        match value {
            Value::Object(map) if !map.is_empty() => {
                for (key, value) in map {
                    let dot = if path.is_empty() { "" } else { "." };
                    walk(&format!("{path}{dot}{key}"), value, leaves);
                }
            }
            _ => {
                leaves.insert(path.to_owned(), value.clone());
            }
        }
    }
    let mut found = BTreeMap::new();
    walk("", value, &mut found);
    found
}

fn read(name: &str) -> String {
    fs::read_to_string(format!("{CHART}/{name}")).expect("a file of the chart")
}

fn values(name: &str) -> Value {
    serde_saphyr::from_str(&read(name)).expect("YAML")
}

/// For each value another one, and what else has to be set for it to count.
const OTHER: &[(&str, &str, &[&str])] = &[
    ("affinity", r#"{"nodeAffinity": {}}"#, &[]),
    ("controller.affinity", r#"{"nodeAffinity": {}}"#, &[]),
    ("controller.enabled", "false", &[]),
    ("controller.replicas", "3", &[]),
    ("controller.resources.limits.memory", r#""1Gi""#, &[]),
    ("controller.resources.requests.cpu", "1", &[]),
    ("controller.resources.requests.memory", r#""1Gi""#, &[]),
    ("controller.sidecar", "true", &[]),
    ("crds.install", "false", &[]),
    ("crds.keep", "false", &[]),
    ("fullnameOverride", r#""other""#, &[]),
    (
        "image.digest",
        r#""sha256:0000000000000000000000000000000000000000000000000000000000000000""#,
        &[],
    ),
    ("image.pullPolicy", r#""Never""#, &[]),
    ("image.repository", r#""other""#, &[]),
    ("image.tag", r#""other""#, &[]),
    ("imagePullSecrets", r#"[{"name": "other"}]"#, &[]),
    ("logLevel", r#""debug""#, &[]),
    ("metrics.podMonitor.enabled", "true", &[]),
    ("metrics.podMonitor.labels", r#"{"other": "yes"}"#, &["metrics.podMonitor.enabled=true"]),
    ("networkPolicy.enabled", "true", &[]),
    ("networkPolicy.metricsFrom", r#"[{"podSelector": {}}]"#, &["networkPolicy.enabled=true"]),
    ("nodeSelector", r#"{"other": "yes"}"#, &[]),
    ("podAnnotations", r#"{"other": "yes"}"#, &[]),
    ("podLabels", r#"{"other": "yes"}"#, &[]),
    ("policy", r#"{"onInvalid": "warn"}"#, &[]),
    ("priorityClassName", r#""""#, &[]),
    ("replicas", "3", &[]),
    ("resources.limits.memory", r#""1Gi""#, &[]),
    ("resources.requests.cpu", "1", &[]),
    ("resources.requests.memory", r#""1Gi""#, &[]),
    ("tls.caBundle", r#""LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==""#, &[]),
    (
        "tls.certManager.inject",
        r#""other/ca""#,
        &[r#"tls.caBundle="""#, r#"tls.certManager.inject="stowplan/ca""#],
    ),
    ("tls.secretName", r#""other""#, &[]),
    ("tolerations", r#"[{"operator": "Exists"}]"#, &[]),
    ("webhook.excludedNamespaces", r#"["other"]"#, &[]),
    ("webhook.failurePolicy", r#""Fail""#, &[]),
    ("webhook.matchConditions", r#"[{"name": "other", "expression": "true"}]"#, &[]),
    ("webhook.service.port", "8443", &[]),
    ("webhook.shutdownDelaySeconds", "0", &[]),
    ("webhook.timeoutSeconds", "1", &[]),
];

#[test]
fn every_value_has_an_effect() {
    let defaults = leaves(&values("values.yaml"));
    let known: BTreeSet<_> = OTHER.iter().map(|(path, ..)| *path).collect();
    assert_eq!(known, defaults.keys().map(|path| &**path).collect(), "OTHER and values.yaml");
    for (path, other, context) in OTHER {
        let before = Render::defaults().set_all(context);
        let after = Render::defaults().set_all(context).set(&format!("{path}={other}"));
        assert_ne!(before.text(), after.text(), "{path} changes nothing");
    }
}

#[test]
fn the_full_values_change_every_value() {
    let full = leaves(&values("ci/full-values.yaml"));
    for (path, default) in leaves(&values("values.yaml")) {
        // A map of the user's own has leaves below the path.
        let same = full.get(&path) == Some(&default)
            || !full.keys().any(|key| *key == path || key.starts_with(&format!("{path}.")));
        // Without definitions there is nothing to keep, beside a bundle nothing to inject, and without
        // pods of its own a controller has no replicas.
        let excepted =
            ["controller.enabled", "controller.sidecar", "crds.install", "tls.certManager.inject"];
        let excepted = excepted.contains(&&*path);
        assert_eq!(same, excepted, "{path} in ci/full-values.yaml");
    }
}

/// Unknown keys and missing ones are refused at every level, and the schema knows exactly the values
/// that there are.
#[test]
fn the_schema_knows_every_value_and_no_other() {
    fn walk(path: &str, schema: &Value, definitions: &Value, values: &Value) {
        let schema = match schema["$ref"].as_str() {
            Some(place) => {
                &definitions[place.strip_prefix("#/definitions/").expect("a definition")]
            }
            None => schema,
        };
        let Some(properties) = schema["properties"].as_object() else {
            return;
        };
        assert_eq!(schema["additionalProperties"], false, "{path} is open");
        let known: BTreeSet<_> =
            properties.keys().map(|key| &**key).filter(|key| *key != "global").collect();
        let there: BTreeSet<_> =
            values.as_object().expect("a map").keys().map(|key| &**key).collect();
        assert_eq!(known, there, "values.schema.json and values.yaml at {path:?}");
        // To take a request or a limit away is legitimate.
        if !path.ends_with(".resources") {
            let required: BTreeSet<_> = schema["required"]
                .as_array()
                .unwrap_or_else(|| panic!("nothing is required at {path:?}"))
                .iter()
                .filter_map(Value::as_str)
                .collect();
            assert_eq!(required, known, "required at {path:?}");
        }
        for key in known {
            walk(&format!("{path}.{key}"), &properties[key], definitions, &values[key]);
        }
    }
    let schema: Value = serde_json::from_str(&read("values.schema.json")).expect("JSON");
    walk("", &schema, &schema["definitions"], &values("values.yaml"));
}

#[test]
fn values_that_cannot_work_are_refused_with_a_remedy() {
    let ca = format!("tls.caBundle={CA:?}");
    let key = r#"tls.caBundle="LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tCg==""#;
    let cases: &[(&[&str], &str)] = &[
        (
            &[],
            "tls.caBundle is empty, so the API server would trust no certificate of the webhook: set \
             it to the base64 of the PEM certificate of the CA that signed Secret \"stowplan-tls\"",
        ),
        (
            &[&ca, r#"tls.certManager.inject="stowplan/ca""#],
            "tls.caBundle and tls.certManager.inject are both set",
        ),
        (
            &[r#"tls.caBundle="bm90aGluZw==""#],
            "set it to the output of `openssl base64 -A -in ca.crt`",
        ),
        (&[r#"tls.caBundle="abc""#], "tls.caBundle is not the base64 of a PEM certificate"),
        (
            &[r#"tls.caBundle="-----BEGIN""#],
            "at '/tls/caBundle': '-----BEGIN' does not match pattern",
        ),
        (&[key], "tls.caBundle contains a private key"),
        (&[r#"tls.certManager.inject="ca""#], "at '/tls/certManager/inject': 'ca' does not match"),
        (&[&ca, "tls=null"], "missing property 'tls'"),
        (&[&ca, "replica=3"], "additional properties 'replica' not allowed"),
        (&[&ca, "webhook.port=1"], "at '/webhook': additional properties 'port' not allowed"),
        (&[&ca, r#"replicas="two""#], "at '/replicas': got string, want integer"),
        (&[&ca, "replicas=0"], "at '/replicas': minimum: got 0, want 1"),
        (&[&ca, "controller.replicas=0"], "at '/controller/replicas': minimum: got 0, want 1"),
        (
            &[&ca, r#"controller.resources={"memory": "1Gi"}"#],
            "at '/controller/resources': additional properties 'memory' not allowed",
        ),
        (
            &[&ca, SIDECAR, NO_CONTROLLER],
            "controller.sidecar is true and controller.enabled is false, so there is no controller to \
             run beside the webhook: set enabled to true, or sidecar to false",
        ),
        (&[&ca, "policy=[]"], "at '/policy': got array, want object"),
        (
            &[&ca, "webhook.timeoutSeconds=31"],
            "at '/webhook/timeoutSeconds': maximum: got 31, want 30",
        ),
        (&[&ca, r#"webhook.failurePolicy="ignore""#], "value must be one of 'Ignore', 'Fail'"),
        (&[&ca, r#"image.digest="latest""#], "at '/image/digest': 'latest' does not match pattern"),
        (&[&ca, r#"fullnameOverride="Not_A_Name""#], "at '/fullnameOverride'"),
    ];
    for (values, sentence) in cases {
        let refusal = Render::bare().set_all(values).refusal();
        assert!(refusal.contains(sentence), "{values:?}: {refusal}");
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
fn the_readme_shows_the_strict_profile() {
    let profile = read("values-strict.yaml");
    let (_, profile) = profile.split_once("\nreplicas:").expect("comments, then values");
    assert!(read("README.md").contains(&format!("```yaml\nreplicas:{profile}```\n")));
    let objects = Render::file("values-strict.yaml").set(&format!("tls.caBundle={CA:?}")).objects();
    assert_eq!(objects.webhook().failure_policy.as_deref(), Some("Fail"));
}

// ---- promises ------------------------------------------------------------------------------------

/// Namespaces that `webhook` never sees, whatever their labels.
fn excluded(webhook: &MutatingWebhook) -> Vec<String> {
    let selector = webhook.namespace_selector.as_ref().expect("a namespace selector");
    let rules = selector.match_expressions.as_ref().expect("expressions");
    let [rule] = rules
        .iter()
        .filter(|rule| rule.key == "kubernetes.io/metadata.name")
        .collect::<Vec<_>>()
        .try_into()
        .expect("one rule on names");
    assert_eq!(rule.operator, "NotIn");
    rule.values.clone().expect("names")
}

#[test]
fn the_control_plane_and_its_own_namespace_are_always_excluded() {
    for (namespace, values, expected) in [
        ("stowplan-system", &[][..], &["kube-system", "kube-node-lease", "stowplan-system"][..]),
        ("elsewhere", &[], &["kube-system", "kube-node-lease", "elsewhere"]),
        ("kube-system", &[], &["kube-system", "kube-node-lease"]),
        (
            "stowplan-system",
            &[r#"webhook.excludedNamespaces=["stowplan-system", "build"]"#],
            &["kube-system", "kube-node-lease", "stowplan-system", "build"],
        ),
    ] {
        let render = Render::defaults().namespace(namespace).set_all(values);
        for webhook in render.objects().webhooks() {
            assert_eq!(excluded(&webhook), expected, "{}", webhook.name);
        }
        assert!(render.text().contains(&format!("- --namespace={namespace}\n")));
    }
}

#[test]
fn the_opt_out_label_holds_for_namespaces_pods_and_the_webhook_itself() {
    let objects = Render::defaults().set(r#"podLabels={"stowplan.dev/ignore": "false"}"#).objects();
    let webhooks = objects.webhooks();
    assert_eq!(webhooks.len(), 2);
    for selector in webhooks.into_iter().flat_map(|it| [it.namespace_selector, it.object_selector])
    {
        let rules = selector.expect("a selector").match_expressions.expect("expressions");
        let rule = rules.iter().find(|rule| rule.key == "stowplan.dev/ignore").expect("the label");
        assert_eq!(
            (&*rule.operator, rule.values.as_deref()),
            ("NotIn", Some(&["true".to_owned()][..]))
        );
    }
    let pods = objects.pods();
    assert_eq!(pods.len(), 2);
    for pod in pods {
        let labels = pod.metadata.expect("metadata").labels.expect("labels");
        assert_eq!(labels["stowplan.dev/ignore"], "true");
    }
}

/// A pool of a namespace that is left alone would take nodes all the same: no selector lets it by.
#[test]
fn our_own_objects_are_checked_in_every_namespace_when_their_specification_is_new() {
    let objects = Render::defaults().set(r#"webhook.excludedNamespaces=["build"]"#).objects();
    let webhook = objects.validation();
    assert_eq!(webhook.name, "objects.stowplan.dev");
    assert_eq!(webhook.namespace_selector, None);
    assert_eq!(webhook.object_selector, None);
    assert_eq!(webhook.side_effects, "None");
    let [rule] = webhook.rules.expect("rules").try_into().expect("one rule");
    let words = |words: &[&str]| Some(words.iter().map(|&word| word.to_owned()).collect());
    assert_eq!(rule.operations, words(&["CREATE", "UPDATE"]));
    assert_eq!(rule.api_groups, words(&["stowplan.dev"]));
    // A subresource is one that is named: statuses never come.
    assert_eq!(rule.resources, words(&["hostpools", "streamsjobs"]));
    for definition in Objects::parse(&read("files/crds.yaml")).0.values() {
        let versions = definition["spec"]["versions"].as_array().expect("versions");
        let versions: Vec<_> =
            versions.iter().map(|it| it["name"].as_str().expect("a name").to_owned()).collect();
        assert_eq!(rule.api_versions, Some(versions));
    }
    let [condition] = webhook.match_conditions.expect("conditions").try_into().expect("one");
    // The specification is there: the definitions require it, and the schema is looked at first.
    assert!(condition.expression.contains("request.operation == 'CREATE' ||"));
    assert!(condition.expression.contains("object.spec == oldObject.spec"));
}

/// Claims are placed for coscheduling alone, so that a cluster that does without pays nothing for it.
#[test]
fn runs_and_their_claims_are_asked_about_unless_the_policy_turns_coscheduling_off() {
    for (policy, asked) in [
        ("{}", true),
        (r#"{"coschedule": {}}"#, true),
        (r#"{"coschedule": {"enabled": true}}"#, true),
        (r#"{"coschedule": {"mode": "disabled"}}"#, true),
        (r#"{"coschedule": 7}"#, true),
        (r#"{"coschedule": {"enabled": 7}}"#, true),
        (r#"{"coschedule": {"enabled": false}}"#, false),
    ] {
        let objects = Render::defaults().set(&format!("policy={policy}")).objects();
        let names: Vec<_> = objects.webhooks().into_iter().map(|webhook| webhook.name).collect();
        let all = ["pods.stowplan.dev", "claims.stowplan.dev"];
        assert_eq!(names, all[..if asked { 2 } else { 1 }], "{policy}");
        let conditions = objects.webhook().match_conditions.expect("conditions");
        assert_eq!(conditions[0].expression.contains("tekton.dev/"), asked, "{policy}");
    }
}

/// What places differs in what it is asked about and in nothing else.
#[test]
fn pods_and_claims_are_asked_about_alike() {
    for render in [
        Render::defaults(),
        Render::file("ci/full-values.yaml").release("stowplan").set(r#"fullnameOverride="""#),
    ] {
        let [pods, mut claims] = render.objects().webhooks().try_into().expect("two");
        let resource = |webhook: &mut MutatingWebhook| {
            let rule = &mut webhook.rules.as_mut().expect("rules")[0];
            std::mem::take(&mut rule.resources).expect("resources").remove(0)
        };
        let mut pods = pods;
        assert_eq!(resource(&mut pods), "pods");
        assert_eq!(resource(&mut claims), "persistentvolumeclaims");
        claims.name.clone_from(&pods.name);
        claims.match_conditions.clone_from(&pods.match_conditions);
        assert_eq!(pods, claims);
    }
}

/// The two configurations differ in their path and nothing else that decides whether they are reached.
#[test]
fn both_configurations_are_called_alike() {
    for values in [
        &[][..],
        &[
            r#"webhook.failurePolicy="Fail""#,
            "webhook.timeoutSeconds=7",
            "webhook.service.port=8443",
        ],
        &[r#"tls.caBundle="""#, r#"tls.certManager.inject="stowplan/ca""#],
    ] {
        let objects = Render::defaults().set_all(values).objects();
        let (pods, own) = (objects.webhook(), objects.validation());
        assert_eq!(own.failure_policy, pods.failure_policy);
        assert_eq!(own.timeout_seconds, pods.timeout_seconds);
        assert_eq!(own.client_config.ca_bundle, pods.client_config.ca_bundle);
        let own = own.client_config.service.expect("a Service");
        let mut pods = pods.client_config.service.expect("a Service");
        assert_eq!(pods.path.replace("/validate".to_owned()).as_deref(), Some("/mutate"));
        assert_eq!(own, pods);
        let annotations =
            |kind| objects.get::<Value>(kind, "stowplan")["metadata"]["annotations"].clone();
        assert_eq!(
            annotations("ValidatingWebhookConfiguration"),
            annotations("MutatingWebhookConfiguration"),
        );
    }
}

/// An expression that fails to evaluate counts as a failed call: each field is asked for first.
#[test]
fn match_conditions_guard_every_optional_field() {
    let objects = Render::defaults()
        .set(r#"webhook.matchConditions=[{"name": "mine", "expression": "true"}]"#)
        .objects();
    let conditions = objects.webhook().match_conditions.expect("conditions");
    let names: Vec<_> = conditions.iter().map(|condition| &*condition.name).collect();
    assert_eq!(names, ["has-a-key-of-ours", "not-a-mirror-pod", "mine"]);
    let conditions =
        objects.webhooks().into_iter().flat_map(|it| it.match_conditions.expect("conditions"));
    for condition in conditions {
        for field in ["annotations", "labels", "ownerReferences"] {
            let guard = format!("has(object.metadata.{field}) && ");
            let uses = condition.expression.matches(&format!("object.metadata.{field}")).count();
            let guards = condition.expression.matches(&guard).count();
            assert_eq!(uses, guards * 2, "{}: {}", condition.name, condition.expression);
        }
    }
}

#[test]
fn a_disruption_budget_only_where_it_blocks_no_drain() {
    for (value, name) in
        [("replicas", "stowplan-webhook"), ("controller.replicas", "stowplan-controller")]
    {
        for (replicas, budget) in [(1, false), (2, true), (3, true)] {
            let objects = Render::defaults().set(&format!("{value}={replicas}")).objects();
            let found: Option<PodDisruptionBudget> = objects.find("PodDisruptionBudget", name);
            assert_eq!(found.is_some(), budget, "{value} {replicas}");
            // It counts the pods of its own Deployment and no others.
            if let Some(budget) = found {
                let deployment: Deployment = objects.get("Deployment", name);
                let selector = budget.spec.expect("a spec").selector;
                assert_eq!(selector, Some(deployment.spec.expect("a spec").selector));
            }
        }
    }
}

#[test]
fn a_quota_only_where_the_priority_class_needs_leave() {
    for (class, namespace, quota) in [
        ("system-cluster-critical", "stowplan-system", true),
        ("system-cluster-critical", "kube-system", false),
        ("batch-infrastructure", "stowplan-system", false),
        ("", "stowplan-system", false),
    ] {
        let objects = Render::defaults()
            .namespace(namespace)
            .set(&format!("priorityClassName={class:?}"))
            .objects();
        assert_eq!(objects.kinds().contains("ResourceQuota"), quota, "{class:?} in {namespace}");
        let named = objects.pod().spec.expect("a spec").priority_class_name;
        assert_eq!(named.unwrap_or_default(), class);
    }
}

#[test]
fn a_class_to_park_claims_in_only_where_placeholders_bring_their_own() {
    for (volumes, parked) in [("provision", true), ("adopt", false)] {
        let objects =
            Render::defaults().set(&format!("policy.coschedule.volumes={volumes:?}")).objects();
        let class = ("StorageClass".to_owned(), keys::PARKED.to_owned());
        assert_eq!(objects.0.contains_key(&class), parked, "{volumes}");
    }
    assert!(!Render::defaults().objects().kinds().contains("StorageClass"));
}

/// The rules of the "restricted" Pod Security level that a pod without Windows or host fields can break.
#[test]
fn the_pods_pass_the_restricted_pod_security_level() {
    let renders =
        [Render::defaults(), Render::defaults().set("replicas=1"), Render::defaults().set(SIDECAR)];
    for pod in renders.iter().flat_map(|render| render.objects().pods()) {
        let spec = pod.spec.expect("a spec");
        let PodSpec { host_network, host_pid, host_ipc, .. } = spec;
        assert_eq!([host_network, host_pid, host_ipc], [None; 3]);
        let pod = spec.security_context.expect("a security context");
        assert_eq!(pod.run_as_non_root, Some(true));
        assert!(pod.run_as_user.is_some_and(|user| user > 0));
        assert_eq!(pod.seccomp_profile.expect("seccomp").type_, "RuntimeDefault");
        assert!(pod.sysctls.is_none());
        for volume in spec.volumes.expect("volumes") {
            assert!(volume.secret.is_some() || volume.config_map.is_some(), "{volume:?}");
        }
        assert!(spec.init_containers.is_none());
        for container in spec.containers {
            let context = container.security_context.expect("a security context");
            assert_eq!(context.allow_privilege_escalation, Some(false));
            assert_eq!(context.read_only_root_filesystem, Some(true));
            assert_eq!(context.privileged, None);
            let capabilities = context.capabilities.expect("capabilities");
            assert_eq!(capabilities.drop, Some(vec!["ALL".to_owned()]));
            assert_eq!(capabilities.add, None);
            assert!(container.ports.expect("ports").iter().all(|port| port.host_port.is_none()));
            // A subPath would never see the certificate or the policy change.
            let mounts = container.volume_mounts.expect("mounts");
            assert!(mounts.iter().all(|mount| mount.sub_path.is_none()), "{mounts:?}");
        }
    }
}

#[test]
fn the_grace_period_outlasts_the_shutdown_delay() {
    for (delay, grace) in [(0, 20), (10, 30), (600, 620)] {
        let render = Render::defaults().set(&format!("webhook.shutdownDelaySeconds={delay}"));
        let spec = render.objects().pod().spec.expect("a spec");
        assert_eq!(spec.termination_grace_period_seconds, Some(grace));
        let args = spec.containers[0].args.as_ref().expect("arguments");
        assert!(args.contains(&format!("--shutdown-delay={delay}s")), "{args:?}");
    }
}

#[test]
fn the_webhook_may_read_and_nothing_else() {
    for values in [&[][..], &[NO_CONTROLLER], &[r#"policy={"repair": "recreatePending"}"#]] {
        let objects = Render::defaults().set_all(values).objects();
        let (spec, _) = objects.container("webhook").expect("a webhook");
        assert_eq!(spec.service_account_name.as_deref(), Some("stowplan"));
        let rights = objects.rights("stowplan");
        assert!(!rights.is_empty());
        for (namespace, rule) in rights {
            assert_eq!(rule.verbs, ["get", "list", "watch"], "{rule:?}");
            let resources = rule.resources.expect("resources");
            // Whether the controller is there; the rest it reads everywhere.
            let is_lease = resources == ["leases"];
            assert_eq!(namespace.as_deref(), is_lease.then_some("stowplan-system"));
            let named = is_lease.then(|| vec!["stowplan-controller".to_owned()]);
            assert_eq!(rule.resource_names, named);
            assert!(!resources.iter().any(|it| it == "*" || it == "secrets"), "{resources:?}");
        }
    }
}

/// What the controller may do, whole: a right more is a right to be argued for here.
const CONTROLLER_RIGHTS: &[&str] = &[
    "create events.events.k8s.io",
    "create hostpools.stowplan.dev",
    "create statefulsets.apps",
    "delete persistentvolumeclaims",
    "delete pods",
    "delete statefulsets.apps",
    "get hostpools.stowplan.dev",
    "get namespaces",
    "get nodes",
    "get persistentvolumeclaims",
    "get persistentvolumes",
    "get pipelineruns.tekton.dev",
    "get pipelines.tekton.dev",
    "get pods",
    "get statefulsets.apps",
    "get storageclasses.storage.k8s.io",
    "get streamsjobs.stowplan.dev",
    "get taskruns.tekton.dev",
    "list hostpools.stowplan.dev",
    "list namespaces",
    "list nodes",
    "list persistentvolumeclaims",
    "list persistentvolumes",
    "list pipelineruns.tekton.dev",
    "list pipelines.tekton.dev",
    "list pods",
    "list statefulsets.apps",
    "list storageclasses.storage.k8s.io",
    "list streamsjobs.stowplan.dev",
    "list taskruns.tekton.dev",
    "patch events.events.k8s.io",
    "patch hostpools.stowplan.dev",
    "patch hostpools/status.stowplan.dev",
    "patch nodes",
    "patch persistentvolumeclaims",
    "patch pods",
    "patch statefulsets.apps",
    "patch streamsjobs/status.stowplan.dev",
    "watch hostpools.stowplan.dev",
    "watch namespaces",
    "watch nodes",
    "watch persistentvolumeclaims",
    "watch persistentvolumes",
    "watch pipelineruns.tekton.dev",
    "watch pipelines.tekton.dev",
    "watch pods",
    "watch statefulsets.apps",
    "watch storageclasses.storage.k8s.io",
    "watch streamsjobs.stowplan.dev",
    "watch taskruns.tekton.dev",
];

fn words(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

#[test]
fn the_controller_may_do_what_is_listed_under_an_account_of_its_own() {
    let objects = Render::defaults().objects();
    let (spec, _) = objects.container("controller").expect("a controller");
    assert_eq!(spec.service_account_name.as_deref(), Some("stowplan-controller"));
    assert_eq!(verbs_everywhere(&objects, "stowplan-controller"), words(CONTROLLER_RIGHTS));
    let rights = objects.rights("stowplan-controller").into_iter();
    let inside: Vec<_> = rights.filter(|(namespace, _)| namespace.is_some()).collect();
    assert!(inside.iter().all(|(it, _)| it.as_deref() == Some("stowplan-system")), "{inside:?}");
    let rules: Vec<_> = inside.into_iter().map(|(_, rule)| rule).collect();
    assert_eq!(
        verbs(&rules),
        words(&[
            "create leases.coordination.k8s.io",
            "get leases.coordination.k8s.io stowplan-controller",
            "update leases.coordination.k8s.io stowplan-controller",
        ])
    );
}

/// What the policy says must be taken back when it changes, so that the rights do not depend on it.
#[test]
fn the_controllers_rights_are_the_same_under_every_policy() {
    for policy in
        ["{}", r#"{"repair": "recreatePending"}"#, r#"{"coschedule": {"enabled": false}}"#]
    {
        let objects = Render::defaults().set(&format!("policy={policy}")).objects();
        let rights = verbs_everywhere(&objects, "stowplan-controller");
        assert_eq!(rights, words(CONTROLLER_RIGHTS), "{policy}");
    }
}

/// Placeholders have the image of the release unless the policy names another.
#[test]
fn the_controller_is_told_its_own_image() {
    let render = Render::defaults().set(r#"image.repository="registry.example.com/stowplan""#);
    let objects = render.objects();
    let (_, container) = objects.container("controller").expect("a controller");
    let image = container.image.as_deref().expect("an image");
    assert!(image.starts_with("registry.example.com/stowplan"), "{image}");
    let args = container.args.as_ref().expect("arguments");
    assert!(args.contains(&format!("--image={image}")), "{args:?}");
}

/// The price of the sidecar, exactly: the account of the webhook's pods has the sum of both.
#[test]
fn as_a_sidecar_the_controller_brings_its_rights_to_the_webhooks_account() {
    let own = Render::defaults().objects();
    let objects = Render::defaults().set(SIDECAR).objects();
    let (spec, container) = objects.container("controller").expect("a controller");
    assert_eq!(spec.service_account_name.as_deref(), Some("stowplan"));
    let names: Vec<_> = spec.containers.iter().map(|container| &*container.name).collect();
    assert_eq!(names, ["webhook", "controller"]);
    let sum = &verbs_everywhere(&own, "stowplan") | &verbs_everywhere(&own, "stowplan-controller");
    assert_eq!(verbs_everywhere(&objects, "stowplan"), sum);
    assert_eq!(
        objects.rights("stowplan").len(),
        own.rights("stowplan").len() + own.rights("stowplan-controller").len()
    );
    for kind in ["Deployment", "PodDisruptionBudget", "ServiceAccount"] {
        assert!(objects.find::<Value>(kind, "stowplan-controller").is_none(), "{kind}");
    }
    // Both share one network: no port twice, and none that only one of them opens is probed at the
    // other. The webhook is ready when it is, whatever the controller does.
    let ports: Vec<_> = spec.containers.iter().flat_map(|it| it.ports.iter().flatten()).collect();
    let numbers: BTreeSet<_> = ports.iter().map(|port| port.container_port).collect();
    let named: BTreeSet<_> = ports.iter().map(|port| port.name.as_deref()).collect();
    assert_eq!((numbers.len(), named.len()), (ports.len(), ports.len()), "{ports:?}");
    assert!(container.readiness_probe.is_none());
    assert!(container.liveness_probe.is_some());
    assert!(spec.containers[0].readiness_probe.is_some());
}

#[test]
fn without_a_controller_nothing_of_it_is_left() {
    let text = Render::defaults()
        .set_all(&[NO_CONTROLLER, "networkPolicy.enabled=true", "metrics.podMonitor.enabled=true"])
        .text();
    let objects = Objects::parse(&text);
    assert!(objects.container("controller").is_none());
    assert!(objects.container("webhook").is_some());
    let names: Vec<_> = objects.0.keys().filter(|(_, name)| name.contains("controller")).collect();
    assert!(names.is_empty(), "{names:?}");
    assert!(!objects.kinds().contains("Role") && !objects.kinds().contains("RoleBinding"));
}

/// Each port that is probed, scraped or let through is one that the container has, and that its
/// arguments open.
#[test]
fn the_admin_port_is_the_same_everywhere() {
    for values in [&[][..], &[SIDECAR]] {
        let objects = Render::defaults()
            .set_all(values)
            .set_all(&[
                "networkPolicy.enabled=true",
                r#"networkPolicy.metricsFrom=[{"podSelector": {}}]"#,
                "metrics.podMonitor.enabled=true",
            ])
            .objects();
        let (spec, container) = objects.container("controller").expect("a controller");
        let [port] = container.ports.expect("ports").try_into().expect("one port");
        let name = port.name.expect("a name");
        assert!(name.len() <= 15, "the API server refuses longer names: {name}");
        let listens = format!("--admin-listen=0.0.0.0:{}", port.container_port);
        assert!(container.args.expect("arguments").contains(&listens));
        let liveness = container.liveness_probe.expect("a probe").http_get.expect("HTTP");
        assert_eq!(serde_json::to_value(liveness.port).expect("JSON"), json!(name));
        // Who shows the pods' ports to the outside.
        let of = |container: &str| spec.containers.iter().any(|it| it.name == container);
        let target = if of("webhook") { "stowplan-webhook" } else { "stowplan-controller" };
        let monitor: Value = objects.get("PodMonitor", target);
        let endpoints = monitor["spec"]["podMetricsEndpoints"].as_array().expect("endpoints");
        assert!(endpoints.iter().any(|it| it["port"] == json!(name)), "{endpoints:?}");
        let policy: NetworkPolicy = objects.get("NetworkPolicy", target);
        let rules = policy.spec.expect("a spec").ingress.expect("rules");
        let let_through = rules.iter().filter(|rule| rule.from.is_some()).any(|rule| {
            let ports = rule.ports.iter().flatten();
            ports
                .map(|it| serde_json::to_value(&it.port).expect("JSON"))
                .any(|it| it == json!(name))
        });
        assert!(let_through, "{rules:?}");
    }
}

/// An empty list of rules lets nothing in; a missing one, too, but only to those who know.
#[test]
fn nobody_reaches_a_controller_that_nobody_scrapes() {
    let objects = Render::defaults().set("networkPolicy.enabled=true").objects();
    let policy: NetworkPolicy = objects.get("NetworkPolicy", "stowplan-controller");
    let spec = policy.spec.expect("a spec");
    assert_eq!(spec.policy_types, Some(vec!["Ingress".to_owned()]));
    assert!(spec.ingress.unwrap_or_default().is_empty());
    let deployment: Deployment = objects.get("Deployment", "stowplan-controller");
    assert_eq!(spec.pod_selector, Some(deployment.spec.expect("a spec").selector));
}

#[test]
fn reading_pools_comes_with_view_and_claiming_nodes_with_nothing() {
    let objects = Render::defaults().objects();
    let aggregated = |role: &ClusterRole| {
        let labels = role.metadata.labels.as_ref().expect("labels");
        labels.keys().filter(|key| key.contains("aggregate-to-")).count()
    };
    for kind in ["hostpool", "streamsjob"] {
        let viewer: ClusterRole = objects.get("ClusterRole", &format!("stowplan-{kind}-viewer"));
        assert_eq!(aggregated(&viewer), 3);
        let [rule] = viewer.rules.expect("rules").try_into().expect("one rule");
        assert_eq!(rule.verbs, ["get", "list", "watch"]);
        assert_eq!(rule.resources, Some(vec![format!("{kind}s"), format!("{kind}s/status")]));
        let editor: ClusterRole = objects.get("ClusterRole", &format!("stowplan-{kind}-editor"));
        assert_eq!(aggregated(&editor), 0);
        let [rule] = editor.rules.expect("rules").try_into().expect("one rule");
        assert_eq!(rule.resources, Some(vec![format!("{kind}s")]));
        assert!(rule.verbs.contains(&"create".to_owned()));
    }
}

/// A rule without a reason is a rule that nobody dares to take away.
#[test]
fn every_rule_of_rbac_has_its_reason_above_it() {
    for name in
        ["templates/rbac.yaml", "templates/rbac-controller.yaml", "templates/rbac-users.yaml"]
    {
        let text = read(name);
        let lines: Vec<_> = text.lines().collect();
        let rules: Vec<_> =
            (0..lines.len()).filter(|at| lines[*at].starts_with("- apiGroups:")).collect();
        assert!(!rules.is_empty(), "{name} has no rules");
        for at in rules {
            assert!(lines[at - 1].starts_with("# "), "{name}:{}: why?", at + 1);
        }
    }
}

#[test]
fn the_policy_arrives_as_it_was_given() {
    let policy = json!({
        "onInvalid": "warn",
        "excludedNamespaces": ["kube-system", "on", "007"],
        "hostPools": {"maxExclusiveNodesPerNamespace": 1_000_000, "nodeSelector": {}},
    });
    for policy in [json!({}), policy] {
        let objects = Render::defaults().set(&format!("policy={policy}")).objects();
        let map: ConfigMap = objects.get("ConfigMap", "stowplan-policy");
        let text = &map.data.expect("data")["policy.yaml"];
        assert_eq!(serde_saphyr::from_str::<Value>(text).expect("YAML"), policy);
    }
}

#[test]
fn the_definitions_arrive_unchanged_and_survive_an_uninstall() {
    let file = Objects::parse(&read("files/crds.yaml"));
    assert_eq!(file.kinds(), BTreeSet::from(["CustomResourceDefinition"]));
    for (values, keep) in [(&[][..], true), (&["crds.keep=false"], false)] {
        let rendered = Render::defaults().set_all(values).objects();
        for ((kind, name), original) in &file.0 {
            let definition: Value = rendered.get(kind, name);
            assert_eq!(definition["spec"], original["spec"], "{name}");
            let policy = &definition["metadata"]["annotations"]["helm.sh/resource-policy"];
            assert_eq!(policy.as_str(), keep.then_some("keep"));
        }
    }
    let without = Render::defaults().set("crds.install=false").objects();
    assert!(!without.kinds().contains("CustomResourceDefinition"));
}

#[test]
fn the_definitions_are_those_of_the_binary() {
    let printed = stdout(Command::new(BINARY).arg("crds"));
    assert!(
        read("files/crds.yaml") == printed,
        "stale: cargo run -p stowplan -- crds > charts/stowplan/files/crds.yaml"
    );
}

/// `--help` is reached only once all arguments before it have been read.
#[test]
fn the_binary_takes_the_arguments_of_the_deployments() {
    for render in [Render::defaults(), Render::defaults().set(SIDECAR)] {
        let objects = render.objects();
        for name in ["webhook", "controller"] {
            let (_, container) = objects.container(name).expect("a container");
            let args = container.args.expect("arguments");
            stdout(Command::new(BINARY).args(args).arg("--help"));
        }
    }
}

#[test]
fn cert_manager_injects_into_a_configuration_without_a_bundle() {
    let objects = Render::bare().set(r#"tls.certManager.inject="stowplan/ca""#).objects();
    assert!(objects.webhook().client_config.ca_bundle.is_none());
    assert!(objects.validation().client_config.ca_bundle.is_none());
    let configuration: MutatingWebhookConfiguration =
        objects.get("MutatingWebhookConfiguration", "stowplan");
    let annotations = configuration.metadata.annotations.expect("annotations");
    assert_eq!(annotations["cert-manager.io/inject-ca-from"], "stowplan/ca");
}

#[test]
fn the_notes_tell_how_to_see_that_it_works() {
    let notes = |values: &[&str]| {
        let mut install = helm();
        install.args(["install", "stowplan", CHART, "--dry-run=client", "--namespace", "here"]);
        for value in values {
            install.args(["--set-json", value]);
        }
        let text = stdout(install.args(["--set-string", &format!("tls.caBundle={CA}")]));
        text.split_once("NOTES:").expect("notes").1.to_owned()
    };
    let ignore = notes(&[]);
    assert!(ignore.contains("kubectl -n here rollout status deployment/stowplan-webhook"));
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

// ---- certs/make.sh -------------------------------------------------------------------------------

fn make_certificates(args: &[&str]) -> Command {
    let mut make = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/certs/make.sh"));
    make.args(args);
    make
}

#[test]
fn throw_away_certificates_fit_the_chart() {
    let out = tempfile::tempdir().expect("a folder");
    let path = |name: &str| out.path().join(name).display().to_string();
    let folder = out.path().display().to_string();
    let said = stdout(&mut make_certificates(&[
        "--namespace",
        "here",
        "--service",
        "my-stowplan-webhook",
        "--out",
        &folder,
    ]));
    assert!(said.contains("helm upgrade --install my-stowplan "), "{said}");

    let files: BTreeSet<_> = fs::read_dir(out.path())
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
        .collect();
    assert_eq!(files, ["ca.crt", "tls.crt", "tls.key"].map(str::to_owned).into());

    // The name that the API server checks: <service>.<namespace>.svc of the rendered configuration.
    let openssl = |args: &[&str]| stdout(Command::new("openssl").args(args));
    let bundle = openssl(&["base64", "-A", "-in", &path("ca.crt")]);
    let render = Render::bare().release("my-stowplan").namespace("here");
    let objects = render.set(&format!("tls.caBundle={bundle:?}")).objects();
    let configuration: MutatingWebhookConfiguration =
        objects.get("MutatingWebhookConfiguration", "my-stowplan");
    let webhooks = configuration.webhooks.expect("webhooks");
    let service = webhooks[0].client_config.service.as_ref().expect("a Service");
    let host = format!("{}.{}.svc", service.name, service.namespace);
    let verified = openssl(&[
        "verify",
        "-CAfile",
        &path("ca.crt"),
        "-purpose",
        "sslserver",
        "-verify_hostname",
        &host,
        &path("tls.crt"),
    ]);
    assert!(verified.ends_with(": OK\n"), "{verified}");
}

#[test]
fn mistakes_in_making_certificates_are_named() {
    for (args, sentence) in [
        (&["--what"][..], "unknown argument --what; see --help"),
        (&["--out"], "--out needs a value"),
        (&["--namespace", "Not A Name"], "is not a namespace's name"),
        (&["--service", "stowplan"], "the chart's Service is called NAME-webhook"),
        (&["--days", "0"], "is not a number of days"),
    ] {
        let output = run(&mut make_certificates(args));
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.starts_with("certs/make.sh: ") && said.contains(sentence), "{said}");
    }
    assert!(stdout(&mut make_certificates(&["--help"])).contains("Usage: certs/make.sh"));
}
