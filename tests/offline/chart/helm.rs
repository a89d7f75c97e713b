//! The real `helm` on this chart, and the objects that it renders.

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
use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec};
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::Value;
use testbed::tools::{Tools, to_stderr};

pub(crate) const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/stowplan");

/// The image's name, which has no default.
pub(crate) const IMAGE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/offline/chart/values/image.yaml");

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_stowplan");

/// The controller in the webhook's pods.
pub(crate) const SIDECAR: &str = "controller.sidecar=true";

/// No controller.
pub(crate) const NO_CONTROLLER: &str = "controller.enabled=false";

/// Base64 of a PEM frame without a certificate in it: the chart looks no further.
pub(crate) const CA: &str =
    "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkxTMHQKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";

pub(crate) fn helm() -> Command {
    static HELM: LazyLock<PathBuf> = LazyLock::new(|| {
        let tools = Tools::ensure(&to_stderr).unwrap_or_else(|error| panic!("no helm: {error:#}"));
        tools.program("helm")
    });
    let mut helm = Command::new(&*HELM);
    // Without the user's own Helm plugins, repositories and defaults.
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("helm");
    for (variable, folder) in
        [("HELM_CACHE_HOME", "cache"), ("HELM_CONFIG_HOME", "config"), ("HELM_DATA_HOME", "data")]
    {
        helm.env(variable, home.join(folder));
    }
    helm.env_remove("HELM_NAMESPACE").env_remove("KUBECONFIG");
    helm
}

pub(crate) fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// What a successful command wrote.
pub(crate) fn stdout(command: &mut Command) -> String {
    let output = run(command);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("text")
}

pub(crate) fn read(name: &str) -> String {
    fs::read_to_string(format!("{CHART}/{name}")).expect("a file of the chart")
}

/// One `helm template` of the chart. Values are given as `path=JSON`.
pub(crate) struct Render {
    chart: String,
    release: &'static str,
    namespace: &'static str,
    pub(crate) args: Vec<String>,
}

impl Render {
    /// Only the defaults, which the chart refuses: it needs an image and a CA.
    pub(crate) fn of(chart: &str) -> Self {
        Self {
            chart: chart.to_owned(),
            release: "stowplan",
            namespace: "stowplan-system",
            args: Vec::new(),
        }
    }

    /// The defaults and an image.
    pub(crate) fn bare() -> Self {
        Self::of(CHART).values(IMAGE)
    }

    /// The defaults and a CA.
    pub(crate) fn defaults() -> Self {
        Self::bare().set(&format!("tls.caBundle={CA:?}"))
    }

    pub(crate) fn file(name: &str) -> Self {
        Self::bare().values(&format!("{CHART}/{name}"))
    }

    /// The values of this file win over those before.
    pub(crate) fn values(mut self, path: &str) -> Self {
        self.args.extend(["--values".to_owned(), path.to_owned()]);
        self
    }

    pub(crate) fn set(mut self, value: &str) -> Self {
        self.args.extend(["--set-json".to_owned(), value.to_owned()]);
        self
    }

    pub(crate) fn set_all(self, values: &[&str]) -> Self {
        values.iter().fold(self, |render, value| render.set(value))
    }

    pub(crate) fn release(self, release: &'static str) -> Self {
        Self { release, ..self }
    }

    pub(crate) fn namespace(self, namespace: &'static str) -> Self {
        Self { namespace, ..self }
    }

    pub(crate) fn command(&self) -> Command {
        let mut helm = helm();
        helm.args(["template", self.release, &self.chart, "--namespace", self.namespace]);
        helm.args(&self.args);
        helm
    }

    pub(crate) fn text(&self) -> String {
        stdout(&mut self.command())
    }

    pub(crate) fn objects(&self) -> Objects {
        Objects::parse(&self.text())
    }

    /// The message of a render that is refused.
    pub(crate) fn refusal(&self) -> String {
        let output = run(&mut self.command());
        assert!(!output.status.success(), "rendered in spite of {:?}", self.args);
        String::from_utf8(output.stderr).expect("text")
    }
}

/// The rendered objects, by kind and name.
pub(crate) struct Objects(pub(crate) BTreeMap<(String, String), Value>);

impl Objects {
    pub(crate) fn parse(text: &str) -> Self {
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

    pub(crate) fn kinds(&self) -> BTreeSet<&str> {
        self.0.keys().map(|(kind, _)| &**kind).collect()
    }

    pub(crate) fn find<T: DeserializeOwned>(&self, kind: &str, name: &str) -> Option<T> {
        let object = self.0.get(&(kind.to_owned(), name.to_owned()))?;
        Some(T::deserialize(object).unwrap_or_else(|error| panic!("{kind} {name}: {error}")))
    }

    pub(crate) fn get<T: DeserializeOwned>(&self, kind: &str, name: &str) -> T {
        self.find(kind, name)
            .unwrap_or_else(|| panic!("no {kind} {name} among {:?}", self.0.keys()))
    }

    /// The mutating webhooks of the release `stowplan`.
    pub(crate) fn webhooks(&self) -> Vec<MutatingWebhook> {
        let configuration: MutatingWebhookConfiguration =
            self.get("MutatingWebhookConfiguration", "stowplan");
        configuration.webhooks.expect("webhooks")
    }

    /// The one of them that places pods.
    pub(crate) fn webhook(&self) -> MutatingWebhook {
        self.webhooks().into_iter().find(|it| it.name == "pods.stowplan.dev").expect("the webhook")
    }

    /// The webhook of the release `stowplan` that validates stowplan's own objects.
    pub(crate) fn validation(&self) -> ValidatingWebhook {
        let configuration: ValidatingWebhookConfiguration =
            self.get("ValidatingWebhookConfiguration", "stowplan");
        let [webhook] = configuration.webhooks.expect("webhooks").try_into().expect("one");
        webhook
    }

    /// The webhook's pods of the release `stowplan`.
    pub(crate) fn pod(&self) -> PodTemplateSpec {
        let deployment: Deployment = self.get("Deployment", "stowplan-webhook");
        deployment.spec.expect("a spec").template
    }

    /// The pods of all Deployments.
    pub(crate) fn pods(&self) -> Vec<PodTemplateSpec> {
        let deployments = self.0.iter().filter(|((kind, _), _)| kind == "Deployment");
        let pods: Vec<_> = deployments
            .map(|(_, object)| Deployment::deserialize(object).expect("a Deployment"))
            .map(|deployment| deployment.spec.expect("a spec").template)
            .collect();
        assert!(!pods.is_empty());
        pods
    }

    /// The container of this name, and the pod that it is in, among all Deployments.
    pub(crate) fn container(&self, name: &str) -> Option<(PodSpec, Container)> {
        let mut found = self.pods().into_iter().filter_map(|pod| {
            let spec = pod.spec.expect("a spec");
            let container = spec.containers.iter().find(|it| it.name == name)?.clone();
            Some((spec, container))
        });
        let first = found.next();
        assert!(found.next().is_none(), "{name} runs in two Deployments");
        first
    }
}
