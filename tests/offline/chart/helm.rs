//! The real `helm` on this chart, and the objects that it renders: each set of values once, for all
//! tests.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{LazyLock, Mutex, OnceLock};

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
pub(crate) const CA: &str = "tls.caBundle=\"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkxTMHQKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=\"";

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

/// Returns the output of a command that must succeed.
pub(crate) fn stdout(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = run(command);
    assert!(status.success(), "{command:?}: {status}\n{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

pub(crate) fn read(name: &str) -> String {
    fs::read_to_string(format!("{CHART}/{name}")).expect("a file of the chart")
}

/// The objects of the defaults with these values, `path=JSON`.
pub(crate) fn objects(values: &[&str]) -> &'static Objects {
    Render::defaults().set_all(values).objects()
}

/// One `helm template` of the chart.
#[derive(Clone)]
pub(crate) struct Render {
    chart: String,
    release: &'static str,
    namespace: &'static str,
    args: Vec<String>,
}

/// The output of Helm, or its message.
type Outcome = Result<(String, OnceLock<Objects>), String>;

impl Render {
    /// Only the defaults, which the chart refuses: it needs an image and a CA.
    pub(crate) fn of(chart: &str) -> Self {
        let chart = chart.to_owned();
        Self { chart, release: "stowplan", namespace: "stowplan-system", args: Vec::new() }
    }

    /// The defaults and an image.
    pub(crate) fn bare() -> Self {
        Self::of(CHART).args(&["--values", IMAGE])
    }

    /// The defaults and a CA.
    pub(crate) fn defaults() -> Self {
        Self::bare().set(CA)
    }

    /// The values of a file of the chart.
    pub(crate) fn file(name: &str) -> Self {
        Self::bare().args(&["--values", &format!("{CHART}/{name}")])
    }

    pub(crate) fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|&arg| arg.to_owned()));
        self
    }

    pub(crate) fn set(self, value: &str) -> Self {
        self.args(&["--set-json", value])
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

    fn outcome(&self) -> &'static Outcome {
        static OUTCOMES: Mutex<BTreeMap<Vec<String>, &'static OnceLock<Outcome>>> =
            Mutex::new(BTreeMap::new());
        let mut command = self.command();
        let key: Vec<String> =
            command.get_args().map(|arg| arg.to_str().unwrap().to_owned()).collect();
        let mut outcomes = OUTCOMES.lock().unwrap();
        let outcome = *outcomes.entry(key).or_insert_with(|| Box::leak(Box::default()));
        drop(outcomes);
        outcome.get_or_init(|| {
            let Output { status, stdout, stderr } = run(&mut command);
            let text = |bytes| String::from_utf8(bytes).unwrap();
            match status.success() {
                true => Ok((text(stdout), OnceLock::new())),
                false => Err(text(stderr)),
            }
        })
    }

    pub(crate) fn text(&self) -> &'static str {
        &self.outcome().as_ref().unwrap_or_else(|error| panic!("{:?}: {error}", self.args)).0
    }

    pub(crate) fn objects(&self) -> &'static Objects {
        let text = self.text();
        let objects = &self.outcome().as_ref().unwrap().1;
        objects.get_or_init(|| Objects::parse(text))
    }

    /// The message of a render that is refused.
    pub(crate) fn refusal(&self) -> &'static str {
        let outcome = self.outcome().as_ref();
        outcome.err().unwrap_or_else(|| panic!("rendered in spite of {:?}", self.args))
    }
}

/// The texts of a list.
pub(crate) fn texts(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().map(|it| it.as_str().expect("text")).collect()
}

/// The rendered objects, by kind, name and namespace, which is empty for objects outside of any.
pub(crate) struct Objects(pub(crate) BTreeMap<(String, String, String), Value>);

impl Objects {
    pub(crate) fn parse(text: &str) -> Self {
        let documents: Vec<Value> = serde_saphyr::from_multiple(text).expect("YAML");
        let mut objects = BTreeMap::new();
        for object in documents {
            let word = |word: &Value| word.as_str().expect("a word").to_owned();
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
            let key = (word(&object["kind"]), word(&object["metadata"]["name"]), namespace);
            assert!(objects.insert(key.clone(), object).is_none(), "{key:?} is there twice");
        }
        Self(objects)
    }

    /// The object of this kind and name, of which there is one among all namespaces.
    pub(crate) fn find(&self, kind: &str, name: &str) -> Option<&Value> {
        let mut named = self.of_kind(kind).into_iter().filter(|(known, _)| *known == name);
        let first = named.next();
        assert!(named.next().is_none(), "{kind} {name} is in several namespaces");
        first.map(|(_, object)| object)
    }

    pub(crate) fn get(&self, kind: &str, name: &str) -> &Value {
        self.find(kind, name)
            .unwrap_or_else(|| panic!("no {kind} {name} among {:?}", self.0.keys()))
    }

    /// The objects of a kind, with their names.
    pub(crate) fn of_kind(&self, kind: &str) -> Vec<(&str, &Value)> {
        let of_kind = self.0.iter().filter(|((it, _, _), _)| it == kind);
        of_kind.map(|((_, name, _), object)| (&**name, object)).collect()
    }

    /// The mutating webhooks of the release `stowplan`; the first places pods.
    pub(crate) fn webhooks(&self) -> &Vec<Value> {
        let configuration = self.get("MutatingWebhookConfiguration", "stowplan");
        let webhooks = configuration["webhooks"].as_array().expect("webhooks");
        assert_eq!(webhooks[0]["name"], "pods.stowplan.dev");
        webhooks
    }

    /// The policy of the release `stowplan`, as its ConfigMap has it.
    pub(crate) fn policy_file(&self) -> Value {
        let text = self.get("ConfigMap", "stowplan-policy")["data"]["policy.yaml"].as_str();
        serde_saphyr::from_str(text.expect("text")).expect("YAML")
    }

    /// The container of this name, and the pod that it is in, among all Deployments.
    pub(crate) fn container(&self, name: &str) -> Option<(&Value, &Value)> {
        let mut found = self.of_kind("Deployment").into_iter().filter_map(|(_, deployment)| {
            let pod = &deployment["spec"]["template"]["spec"];
            let containers = pod["containers"].as_array().expect("containers");
            Some((pod, containers.iter().find(|it| it["name"] == name)?))
        });
        let first = found.next();
        assert!(found.next().is_none(), "{name} runs in two Deployments");
        first
    }

    /// The arguments of a container that exists.
    pub(crate) fn args(&self, container: &str) -> Vec<&str> {
        let (_, container) = self.container(container).expect("a container");
        texts(&container["args"])
    }
}
