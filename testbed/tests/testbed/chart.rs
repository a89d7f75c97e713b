//! A real API server and the chart, with nothing of stowplan running: whether it accepts all
//! objects, what the policies refuse, and which requests are sent to a stopped webhook. That the rights of
//! the controller suffice is shown by the outcomes, whose processes have the tokens of its accounts.

/// Writes to MPI clusters that the admission policies let pass.
mod mpi;
/// The admission policies for all users.
mod numa;
/// The admission policies for the controller.
mod policies;

use std::time::Duration;

use serde_json::{Value, json};
use testbed::command::output_with;
use testbed::control_plane::{ControlPlane, NodeSpec, Options};
use testbed::wait::{Seen, until};

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/stowplan");

const NAMESPACE: &str = "stowplan-system";

/// The controller's account.
const CONTROLLER: &str = "system:serviceaccount:stowplan-system:stowplan-controller";

/// Base64 of a PEM frame without a certificate in it: no certificate is to be trusted here.
const CA: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkxTMHQKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";

/// The standard output of a command of kubectl, or why it failed.
struct Said {
    result: Result<String, String>,
    /// Standard error.
    warnings: String,
}

/// Requests to a control plane by kubectl. A command is one text, whose words are the arguments.
#[derive(Clone)]
struct User<'p> {
    plane: &'p ControlPlane,
    /// Arguments of each command, such as `--as`.
    further: Vec<String>,
}

impl User<'_> {
    fn with(&self, argument: &str) -> Self {
        let mut user = self.clone();
        user.further.push(argument.to_owned());
        user
    }

    /// The requests in another one's name.
    fn named(&self, user: &str) -> Self {
        self.with(&format!("--as={user}"))
    }

    /// Runs a command, with an object on its standard input.
    fn kubectl(&self, command: &str, input: &Value) -> Said {
        let mut kubectl = self.plane.kubectl();
        kubectl.args(command.split_whitespace()).args(&self.further);
        let output = output_with(&mut kubectl, input.to_string().into()).unwrap();
        let [shown, warnings] =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        let result = if output.status.success() { Ok(shown) } else { Err(warnings.clone()) };
        Said { result, warnings }
    }

    fn may_with(&self, command: &str, input: &Value) -> String {
        let said = self.kubectl(command, input).result;
        said.unwrap_or_else(|said| panic!("{command} {:?} {input}: {said}", self.further))
    }

    fn may_not_with(&self, command: &str, input: &Value, why: &str) {
        match self.kubectl(command, input).result {
            Ok(_) => panic!("{command} {:?} {input} was accepted", self.further),
            Err(said) => assert!(said.contains(why), "{command} {:?}: {said}", self.further),
        }
    }

    fn may(&self, command: &str) -> String {
        self.may_with(command, &Value::Null)
    }

    fn may_not(&self, command: &str, why: &str) {
        self.may_not_with(command, &Value::Null, why);
    }

    fn may_create(&self, object: &Value) {
        self.may_with("create -f -", object);
    }

    fn may_not_create(&self, object: &Value, why: &str) {
        self.may_not_with("create -f -", object, why);
    }

    /// A JSON patch of an object, which may have further arguments behind its name.
    fn may_patch(&self, object: &str, operations: &Value) {
        let user = self.with(&format!("--patch={operations}"));
        user.may(&format!("patch --type=json {object}"));
    }

    fn may_not_patch(&self, object: &str, operations: &Value, why: &str) {
        let user = self.with(&format!("--patch={operations}"));
        user.may_not(&format!("patch --type=json {object}"), why);
    }

    fn get(&self, object: &str) -> Value {
        serde_json::from_str(&self.may(&format!("get -o json {object}"))).unwrap()
    }

    /// Repeats a command until what it wrote is as wanted.
    async fn until(&self, command: &str, input: &Value, wanted: impl Fn(&Said) -> bool) {
        until(command, Duration::from_secs(60), async || {
            let said = self.kubectl(command, input);
            Ok(Seen::when(wanted(&said), || said.warnings))
        })
        .await
        .unwrap();
    }
}

/// `helm upgrade --install` with these values.
fn helm(plane: &ControlPlane, values: &[&str]) {
    let mut helm = plane.helm();
    helm.args(["upgrade", "--install", "stowplan", CHART])
        .args(["--namespace", NAMESPACE, "--create-namespace"])
        .args(["--set-string", &format!("tls.caBundle={CA},image.repository=stowplan")])
        .args(values.iter().flat_map(|value| ["--set-json", value]));
    crate::succeeded(&mut helm);
}

async fn start() -> ControlPlane {
    let nodes = vec![NodeSpec::new("one")];
    ControlPlane::start(Options { nodes, ..Options::default() }).await.unwrap()
}

fn add(path: &str, value: &Value) -> Value {
    json!([{"op": "add", "path": path, "value": value}])
}

fn remove(path: &str) -> Value {
    json!([{"op": "remove", "path": path}])
}

/// The path of an annotation in a JSON patch.
fn annotation(key: &str) -> String {
    format!("/metadata/annotations/{}", key.replace('/', "~1"))
}

/// An operation of a JSON patch that gives an annotation this value.
fn set(key: &str, value: &str) -> Value {
    json!({"op": "add", "path": annotation(key), "value": value})
}

fn unset(key: &str) -> Value {
    json!({"op": "remove", "path": annotation(key)})
}

/// A pod in the namespace `default` that no scheduler binds; `rest` is of its specification.
fn pod(name: &str, labels: &Value, rest: &Value) -> Value {
    let mut spec = json!({
        "schedulerName": "none",
        "containers": [{"name": "main", "image": "none"}],
    });
    for (key, value) in rest.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let metadata = json!({"name": name, "namespace": "default", "labels": labels});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

/// An object of stowplan in the namespace `default`.
fn own(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "stowplan.dev/v1alpha1", "kind": kind, "spec": spec,
        "metadata": {"name": name, "namespace": "default"}})
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_is_accepted_and_its_policies_and_webhooks_see_what_they_should() {
    let plane = start().await;
    let admin = User { plane: &plane, further: Vec::new() };
    every_object_is_accepted(&admin);
    helm(&plane, &[]);
    let served = |said: &Said| said.result.is_ok();
    admin.until("get hostpools,streamsjobs", &Value::Null, served).await;

    policies::hold_the_controller_to_its_marks(&admin).await;
    what_is_asked_about(&admin).await;
    plane.stop().await;
}

/// The API server knows every field and accepts every value. The monitors are of the Prometheus operator,
/// the control plane has no IPv6, and hooks are run by other tests.
fn every_object_is_accepted(admin: &User<'_>) {
    let monitors = ["podMonitor", "serviceMonitor", "prometheusRule"];
    let monitors = monitors.map(|kind| format!("--set=metrics.{kind}.enabled=false"));
    let full = "--values=ci/full-values.yaml";
    let volumes = r#"--set-json=policy={"coschedule": {"volumes": "provision"}}"#;
    let sidecar = "--set=image.repository=stowplan,controller.sidecar=true";
    for (release, namespace, values) in [
        ("stowplan", NAMESPACE, &["--set=image.repository=stowplan", volumes][..]),
        ("stowplan", NAMESPACE, &[sidecar, "--set=networkPolicy.enabled=true"]),
        ("other", "placement", &[full]),
        // Names that a YAML reader would take for a number where they are not quoted.
        ("1e3", "123", &[full, "--set=fullnameOverride=", "--set-string=tls.secretName=1e3"]),
    ] {
        let _ = admin.kubectl(&format!("create namespace {namespace}"), &Value::Null);
        let mut helm = admin.plane.helm();
        helm.args(["template", release, ".", "--no-hooks", "--namespace", namespace]);
        helm.arg(r#"--set-json=webhook.service.ipFamilies=["IPv4"]"#);
        let objects = crate::succeeded(helm.args(values).args(&monitors).current_dir(CHART));
        assert!(objects.matches("\nkind: ").count() > 40, "{objects}");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), objects).unwrap();
        let apply = "apply --server-side --dry-run=server --validate=strict -f";
        admin.may(&format!("{apply} {}", file.path().display()));
    }
}

/// With failurePolicy Fail and a stopped webhook, a refusal shows that the request is sent to it.
async fn what_is_asked_about(admin: &User<'_>) {
    let refused = r#"failed calling webhook "objects.stowplan.dev""#;
    let new = own("HostPool", "new", &json!({"size": 1}));
    let mut old = own("HostPool", "old", &json!({"size": 1}));
    old["metadata"]["finalizers"] = json!(["example.com/slow"]);
    admin.may_create(&old);
    let pes = json!({"pools": [{"name": "P", "size": 1}], "processingElements": [{"name": "p0"}]});
    admin.may_create(&own("StreamsJob", "parallel", &pes));
    helm(admin.plane, &[r#"webhook.failurePolicy="Fail""#]);
    let asked = |said: &Said| said.warnings.contains(refused);
    admin.until("create --dry-run=server -f -", &new, asked).await;
    admin.may_not_create(&new, refused);
    admin.may_not_patch("hostpool old", &add("/spec/size", &json!(2)), refused);
    // An opted-out namespace is one whose pods are left alone.
    admin.may("label namespace default stowplan.dev/ignore=true");
    admin.may_not_create(&new, refused);
    // Everything else passes without a call.
    admin.may("label hostpool old a=b");
    admin.may_patch(
        "hostpool old --subresource=status",
        &add("/status", &json!({"conditions": []})),
    );
    admin.may("label streamsjob parallel a=b");
    admin.may("delete hostpool old --wait=false");
    admin.may_patch("hostpool old", &remove("/metadata/finalizers"));
    admin.may_not("get hostpool old", "not found");
    // The API server learns by a watch of its own that the namespace is not left alone any more.
    admin.may("label namespace default stowplan.dev/ignore-");
    what_of_tekton_is_asked_about(admin).await;
}

/// The pods and claims of Tekton runs by their owners, whatever the owner's version, and nothing
/// that only looks like them.
async fn what_of_tekton_is_asked_about(admin: &User<'_>) {
    const CREATE: &str = "create --dry-run=server -f -";
    let object = |kind: &str, owners: Value, annotations: Value| {
        let spec = match kind {
            "Pod" => json!({"containers": [{"name": "step", "image": "none"}]}),
            _ => json!({"accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}}),
        };
        json!({
            "apiVersion": "v1", "kind": kind, "spec": spec,
            "metadata": {
                "generateName": "of-a-run-", "namespace": "default", "ownerReferences": owners,
                "annotations": annotations, "labels": {"tekton.dev/pipelineRun": "run"},
            },
        })
    };
    let claim = "PersistentVolumeClaim";
    let yes = json!(true);
    let no = Value::Null;
    // The kind of object, its owner's version, kind and `controller`, and whether it is asked about.
    let cases = [
        ("Pod", Some(("tekton.dev/v1", "TaskRun", &yes)), true),
        ("Pod", Some(("tekton.dev/v1beta1", "TaskRun", &yes)), true),
        ("Pod", Some(("tekton.dev/v1", "TaskRun", &no)), false),
        ("Pod", Some(("tekton.dev/v1", "CustomRun", &yes)), false),
        ("Pod", Some(("tekton.dev.example.com/v1", "TaskRun", &yes)), false),
        ("Pod", Some(("batch/v1", "Job", &yes)), false),
        ("Pod", None, false),
        (claim, Some(("tekton.dev/v1", "PipelineRun", &yes)), true),
        (claim, Some(("tekton.dev/v1", "PipelineRun", &no)), true),
        (claim, Some(("tekton.dev/v1beta1", "TaskRun", &yes)), true),
        (claim, Some(("tekton.dev/v1", "Pipeline", &yes)), false),
        (claim, Some(("apps/v1", "StatefulSet", &yes)), false),
        (claim, None, false),
    ];
    let check = |of_tekton: bool| {
        for (kind, owner, asked) in cases {
            let owners = owner.map_or(Value::Null, |(version, kind, controller)| {
                json!([{"apiVersion": version, "kind": kind, "name": "run", "uid": "1-2-3",
                    "controller": controller}])
            });
            let object = object(kind, owners, Value::Null);
            let webhook = if kind == "Pod" { "pods" } else { "claims" };
            let refused = format!(r#"failed calling webhook "{webhook}.stowplan.dev""#);
            match asked && of_tekton {
                true => admin.may_not_with(CREATE, &object, &refused),
                false => _ = admin.may_with(CREATE, &object),
            }
        }
    };
    let annotations = json!({"stowplan.dev/coschedule-group": "g", "another.example.com/key": "x"});
    let grouped = object(claim, Value::Null, annotations);
    let refused = r#"failed calling webhook "claims.stowplan.dev""#;
    admin.until(CREATE, &grouped, |said| said.warnings.contains(refused)).await;
    check(true);
    let mut ignored = grouped.clone();
    ignored["metadata"]["labels"]["stowplan.dev/ignore"] = json!("true");
    admin.may_with(CREATE, &ignored);
    let off = r#"policy={"coschedule": {"enabled": false}}"#;
    helm(admin.plane, &[r#"webhook.failurePolicy="Fail""#, off]);
    admin.until(CREATE, &grouped, |said| said.result.is_ok()).await;
    check(false);
}
