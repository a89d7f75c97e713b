//! The chart as code: what it renders, refuses and promises. All with the real `helm`; what the API
//! server makes of it is seen in the tests on the control plane.

#![allow(clippy::panic, reason = "how a helper of tests fails; clippy.toml frees only the tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{
    ConfigMap, PodSpec, PodTemplateSpec, ResourceQuota, Service, ServiceAccount,
};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testbed::tools::{Tools, to_stderr};

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/stowplan");

const BINARY: &str = env!("CARGO_BIN_EXE_stowplan");

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

    /// The one webhook of the release `stowplan`.
    fn webhook(&self) -> MutatingWebhook {
        let configuration: MutatingWebhookConfiguration =
            self.get("MutatingWebhookConfiguration", "stowplan");
        let [webhook] = configuration.webhooks.expect("webhooks").try_into().expect("one");
        webhook
    }

    /// The webhook's pods of the release `stowplan`.
    fn pod(&self) -> PodTemplateSpec {
        let deployment: Deployment = self.get("Deployment", "stowplan-webhook");
        deployment.spec.expect("a spec").template
    }
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
    for render in [Render::defaults(), Render::file("ci/full-values.yaml"), numbers] {
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
                "Service" => known::<Service>(&object),
                "ServiceAccount" => known::<ServiceAccount>(&object),
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
        // Without definitions there is nothing to keep, and beside a bundle nothing to inject.
        let excepted = ["crds.install", "tls.certManager.inject"].contains(&&*path);
        assert_eq!(same, excepted, "{path} in ci/full-values.yaml");
    }
}

/// Unknown keys and missing ones are refused at every level, and the schema knows exactly the values
/// that there are.
#[test]
fn the_schema_knows_every_value_and_no_other() {
    fn walk(path: &str, schema: &Value, values: &Value) {
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
        if path != ".resources" {
            let required: BTreeSet<_> = schema["required"]
                .as_array()
                .unwrap_or_else(|| panic!("nothing is required at {path:?}"))
                .iter()
                .filter_map(Value::as_str)
                .collect();
            assert_eq!(required, known, "required at {path:?}");
        }
        for key in known {
            walk(&format!("{path}.{key}"), &properties[key], &values[key]);
        }
    }
    let schema = serde_json::from_str(&read("values.schema.json")).expect("JSON");
    walk("", &schema, &values("values.yaml"));
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
        assert_eq!(excluded(&render.objects().webhook()), expected);
        assert!(render.text().contains(&format!("- --namespace={namespace}\n")));
    }
}

#[test]
fn the_opt_out_label_holds_for_namespaces_pods_and_the_webhook_itself() {
    let objects = Render::defaults().set(r#"podLabels={"stowplan.dev/ignore": "false"}"#).objects();
    let webhook = objects.webhook();
    for selector in [webhook.namespace_selector, webhook.object_selector] {
        let rules = selector.expect("a selector").match_expressions.expect("expressions");
        let rule = rules.iter().find(|rule| rule.key == "stowplan.dev/ignore").expect("the label");
        assert_eq!(
            (&*rule.operator, rule.values.as_deref()),
            ("NotIn", Some(&["true".to_owned()][..]))
        );
    }
    let labels = objects.pod().metadata.expect("metadata").labels.expect("labels");
    assert_eq!(labels["stowplan.dev/ignore"], "true");
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
    for condition in conditions {
        for field in ["annotations", "labels"] {
            let guard = format!("has(object.metadata.{field}) && ");
            let uses = condition.expression.matches(&format!("object.metadata.{field}")).count();
            let guards = condition.expression.matches(&guard).count();
            assert_eq!(uses, guards * 2, "{}: {}", condition.name, condition.expression);
        }
    }
}

#[test]
fn a_disruption_budget_only_where_it_blocks_no_drain() {
    for (replicas, budget) in [(1, false), (2, true), (3, true)] {
        let objects = Render::defaults().set(&format!("replicas={replicas}")).objects();
        let found: Option<PodDisruptionBudget> =
            objects.find("PodDisruptionBudget", "stowplan-webhook");
        assert_eq!(found.is_some(), budget, "{replicas} replicas");
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

/// The rules of the "restricted" Pod Security level that a pod without Windows or host fields can break.
#[test]
fn the_pods_pass_the_restricted_pod_security_level() {
    for render in [Render::defaults(), Render::defaults().set("replicas=1")] {
        let spec = render.objects().pod().spec.expect("a spec");
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
    let role: ClusterRole = Render::defaults().objects().get("ClusterRole", "stowplan-webhook");
    for rule in role.rules.expect("rules") {
        assert_eq!(rule.verbs, ["get", "list", "watch"], "{rule:?}");
        let resources = rule.resources.expect("resources");
        assert!(!resources.iter().any(|it| it == "*" || it == "secrets"), "{resources:?}");
    }
}

#[test]
fn reading_pools_comes_with_view_and_claiming_nodes_with_nothing() {
    let objects = Render::defaults().objects();
    let aggregated = |role: &ClusterRole| {
        let labels = role.metadata.labels.as_ref().expect("labels");
        labels.keys().filter(|key| key.contains("aggregate-to-")).count()
    };
    let viewer: ClusterRole = objects.get("ClusterRole", "stowplan-hostpool-viewer");
    assert_eq!(aggregated(&viewer), 3);
    assert_eq!(viewer.rules.expect("rules")[0].verbs, ["get", "list", "watch"]);
    let editor: ClusterRole = objects.get("ClusterRole", "stowplan-hostpool-editor");
    assert_eq!(aggregated(&editor), 0);
    assert_eq!(editor.rules.expect("rules")[0].resources, Some(vec!["hostpools".to_owned()]));
}

/// A rule without a reason is a rule that nobody dares to take away.
#[test]
fn every_rule_of_rbac_has_its_reason_above_it() {
    for name in ["templates/rbac.yaml", "templates/rbac-users.yaml"] {
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
        "stale: cargo run -- crds > charts/stowplan/files/crds.yaml"
    );
}

/// `--help` is reached only once all arguments before it have been read.
#[test]
fn the_binary_takes_the_arguments_of_the_deployment() {
    let spec = Render::defaults().objects().pod().spec.expect("a spec");
    let args = spec.containers[0].args.as_ref().expect("arguments");
    stdout(Command::new(BINARY).args(args).arg("--help"));
}

#[test]
fn cert_manager_injects_into_a_configuration_without_a_bundle() {
    let objects = Render::bare().set(r#"tls.certManager.inject="stowplan/ca""#).objects();
    assert!(objects.webhook().client_config.ca_bundle.is_none());
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
