//! What a real API server makes of the chart, with nothing of stowplan running: which rights its
//! accounts have, and which requests are sent to a stopped webhook.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::io::Write as _;
use std::process::{Output, Stdio};
use std::time::Duration;

use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use testbed::control_plane::{ControlPlane, NodeSpec, Options};
use testbed::wait::{Seen, until};

#[path = "chart/numa.rs"]
mod numa;
#[path = "chart/policies.rs"]
mod policies;

const NAMESPACE: &str = "stowplan-system";

/// Base64 of a PEM frame without a certificate in it: no certificate is to be trusted here.
const CA: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkxTMHQKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";

/// The label and the taint of a pool, as the controller writes them.
const MARKS: &str = r#"[
    {"op": "add", "path": "/metadata/labels/pool.stowplan.node-restriction.kubernetes.io~10123456789",
     "value": "0"},
    {"op": "add", "path": "/spec/taints",
     "value": [{"key": "stowplan.dev/exclusive", "value": "0123456789", "effect": "NoSchedule"}]}
]"#;

struct World {
    plane: ControlPlane,
}

impl World {
    /// `helm upgrade --install` with these values.
    fn helm(&self, values: &[&str]) {
        let mut helm = self.plane.helm();
        helm.args(["upgrade", "--install", "stowplan"])
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/stowplan"))
            .args(["--namespace", NAMESPACE, "--create-namespace"])
            .args(["--set-string", &format!("tls.caBundle={CA},image.repository=stowplan")]);
        for value in values {
            helm.args(["--set-json", value]);
        }
        let output = helm.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// kubectl with an object on its standard input.
    fn kubectl(&self, arguments: &[&str], input: &Value) -> Output {
        let mut kubectl = self.plane.kubectl();
        kubectl.args(arguments);
        kubectl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = kubectl.spawn().unwrap();
        // One that does not read closes the pipe.
        let _ = child.stdin.take().unwrap().write_all(input.to_string().as_bytes());
        child.wait_with_output().unwrap()
    }

    /// A client that speaks for `user`.
    async fn client_of(&self, user: &str) -> Client {
        let kubeconfig = Kubeconfig::read_from(self.plane.kubeconfig()).unwrap();
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
        config.auth_info.impersonate = Some(user.to_owned());
        Client::try_from(config).unwrap()
    }

    fn may(&self, arguments: &[&str], input: &Value) -> String {
        let output = self.kubectl(arguments, input);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?} {input}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn may_not(&self, arguments: &[&str], input: &Value, why: &str) {
        let output = self.kubectl(arguments, input);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?} {input} went through");
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
}

fn pool(name: &str, size: u32, owners: &Value) -> Value {
    json!({
        "apiVersion": "stowplan.dev/v1alpha1",
        "kind": "HostPool",
        "metadata": {"name": name, "namespace": "default", "ownerReferences": owners},
        "spec": {"size": size},
    })
}

fn owned(uid: &str, block: Option<bool>) -> Value {
    let mut owner = json!({
        "apiVersion": "stowplan.dev/v1alpha1",
        "kind": "StreamsJob",
        "name": "parallel",
        "uid": uid,
        "controller": true,
    });
    if let Some(block) = block {
        owner["blockOwnerDeletion"] = json!(block);
    }
    json!([owner])
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_can_do_their_work_and_objects_are_asked_about_when_they_should_be() {
    let plane =
        ControlPlane::start(Options { nodes: vec![NodeSpec::new("one")], ..Options::default() })
            .await
            .unwrap();
    let world = World { plane };
    world.helm(&[]);
    until("the definitions to be served", Duration::from_secs(60), async || {
        let output = world.kubectl(&["get", "hostpools,streamsjobs"], &Value::Null);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok(if output.status.success() { Seen::Done(()) } else { Seen::NotYet(said) })
    })
    .await
    .unwrap();

    policies::hold_the_controller_to_its_marks(&world).await;
    the_controllers_rights(&world).await;
    the_webhooks_rights(&world);
    what_is_asked_about(&world).await;
    world.plane.stop().await;
}

/// Each request is one that the controller makes, as its account.
async fn the_controllers_rights(world: &World) {
    let nothing = &Value::Null;
    let user = format!("system:serviceaccount:{NAMESPACE}:stowplan-controller");
    let account = format!("--as={user}");
    let with = |arguments: &[&'static str]| -> Vec<String> {
        arguments.iter().map(|&it| it.to_owned()).chain([account.clone()]).collect()
    };
    let may = |arguments: &[&'static str], input: &Value| {
        let arguments = with(arguments);
        world.may(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), input)
    };
    let may_not = |arguments: &[&'static str], input: &Value, why: &str| {
        let arguments = with(arguments);
        world.may_not(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), input, why);
    };

    let job = json!({
        "apiVersion": "stowplan.dev/v1alpha1",
        "kind": "StreamsJob",
        "metadata": {"name": "parallel", "namespace": "default"},
        "spec": {"pools": [{"name": "P", "size": 1}], "processingElements": [{"name": "p0"}]},
    });
    world.may(&["create", "-f", "-"], &job);
    let uid = may(&["get", "streamsjob", "parallel", "-o", "jsonpath={.metadata.uid}"], nothing);

    // An owned pool: without blockOwnerDeletion, since that would take a right to the job's
    // finalizers where OwnerReferencesPermissionEnforcement is on, as it is here.
    may(&["create", "-f", "-"], &pool("owned", 1, &owned(&uid, None)));
    may(&["create", "-f", "-"], &pool("also-owned", 1, &owned(&uid, Some(false))));
    let blocking = pool("blocking", 1, &owned(&uid, Some(true)));
    may_not(&["create", "-f", "-"], &blocking, "cannot set blockOwnerDeletion");
    may(&["patch", "hostpool", "owned", "--type=merge", "-p", r#"{"spec": {"size": 2}}"#], nothing);
    // kubectl reads a status before it patches it, which the controller has no need of.
    let client = world.client_of(&user).await;
    for (plural, kind, name) in
        [("hostpools", "HostPool", "owned"), ("streamsjobs", "StreamsJob", "parallel")]
    {
        let kind = GroupVersionKind::gvk("stowplan.dev", "v1alpha1", kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, plural);
        let objects: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &resource);
        let status = Patch::Merge(json!({"status": {"conditions": []}}));
        objects.patch_status(name, &PatchParams::default(), &status).await.unwrap();
    }
    may_not(&["delete", "hostpool", "owned"], nothing, "forbidden");
    may_not(
        &[
            "patch",
            "streamsjob",
            "parallel",
            "--type=merge",
            "-p",
            r#"{"metadata": {"labels": {"a": "b"}}}"#,
        ],
        nothing,
        "forbidden",
    );

    // The node-restriction prefix is closed to kubelets, not to us.
    may(&["patch", "node", "one", "--type=json", "-p", MARKS], nothing);
    may_not(&["delete", "node", "one"], nothing, "forbidden");

    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "waits", "namespace": "default"},
        "spec": {"schedulerName": "none", "containers": [{"name": "main", "image": "none"}]},
    });
    world.may(&["create", "-f", "-"], &pod);
    may(&["label", "pod", "waits", "stowplan.dev/wake=1"], nothing);
    may(&["delete", "pod", "waits", "--wait=false"], nothing);
    may_not(&["create", "-f", "-"], &pod, "forbidden");
    may_not(&["get", "secrets"], nothing, "forbidden");

    // A placeholder, owned by what it stands for: no right to that one's finalizers is needed.
    let owner: Value =
        serde_json::from_str(&world.may(&["get", "streamsjob", "parallel", "-o", "json"], nothing))
            .unwrap();
    let owners = json!([{
        "apiVersion": owner["apiVersion"], "kind": "StreamsJob", "name": "parallel",
        "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": false,
    }]);
    let placeholder = policies::placeholder(&[("/metadata/ownerReferences", owners)]);
    let name = placeholder["metadata"]["name"].as_str().unwrap();
    let on_it = |arguments: &[&str]| {
        let arguments: Vec<_> = arguments.iter().chain(&[&*account]).copied().collect();
        world.may(&arguments, nothing)
    };
    may(&["create", "-f", "-"], &placeholder);
    on_it(&["annotate", "statefulset", name, "a=b"]);
    on_it(&["delete", "statefulset", name, "--wait=false"]);
    may_not(&["create", "deployment", "d", "--image=none"], nothing, "forbidden");
    may_not(&["delete", "streamsjob", "parallel"], nothing, "forbidden");

    let event = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"generateName": "owned-", "namespace": "default"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "stowplan.dev/controller",
        "reportingInstance": "controller-0",
        "action": "Allocate",
        "reason": "Allocated",
        "type": "Normal",
        "regarding": {"kind": "HostPool", "namespace": "default", "name": "owned"},
    });
    may(&["create", "-f", "-"], &event);

    let lease = |namespace: &str, name: &str| {
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"holderIdentity": "controller-0"},
        })
    };
    may(&["create", "-f", "-"], &lease(NAMESPACE, "stowplan-controller"));
    let mut ours: Value = serde_json::from_str(&may(
        &["get", "lease", "stowplan-controller", "--namespace=stowplan-system", "-o", "json"],
        nothing,
    ))
    .unwrap();
    ours["spec"]["holderIdentity"] = json!("controller-1");
    may(&["replace", "-f", "-"], &ours);
    may_not(&["create", "-f", "-"], &lease("default", "stowplan-controller"), "forbidden");
    may_not(&["get", "lease", "another", "--namespace=stowplan-system"], nothing, "forbidden");
}

fn the_webhooks_rights(world: &World) {
    let nothing = &Value::Null;
    let account = format!("--as=system:serviceaccount:{NAMESPACE}:stowplan");
    for kind in ["nodes", "namespaces", "pods", "hostpools", "streamsjobs"] {
        world.may(&["get", kind, "--all-namespaces", &account], nothing);
    }
    world.may_not(&["label", "node", "one", "a=b", &account], nothing, "forbidden");
    let pool = pool("mine", 1, &Value::Null);
    world.may_not(&["create", "-f", "-", &account], &pool, "forbidden");
    // What the sidecar costs.
    world.helm(&["controller.sidecar=true"]);
    let label = format!("{}=0", policies::LABEL);
    world.may(&["label", "node", "one", &label, &account], nothing);
    world.helm(&[]);
    let other = format!("{}=1", policies::LABEL);
    world.may_not(&["label", "node", "one", &other, "--overwrite", &account], nothing, "forbidden");
}

/// With failurePolicy Fail and a stopped webhook, a refusal shows that the request is sent to it.
async fn what_is_asked_about(world: &World) {
    let nothing = &Value::Null;
    let refused = r#"failed calling webhook "objects.stowplan.dev""#;
    let new = pool("new", 1, &Value::Null);
    let mut old = pool("old", 1, &Value::Null);
    old["metadata"]["finalizers"] = json!(["example.com/slow"]);
    world.may(&["create", "-f", "-"], &old);
    world.helm(&[r#"webhook.failurePolicy="Fail""#]);
    until("the webhook to be asked", Duration::from_secs(60), async || {
        let output = world.kubectl(&["create", "--dry-run=server", "-f", "-"], &new);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok(if said.contains(refused) { Seen::Done(()) } else { Seen::NotYet(said) })
    })
    .await
    .unwrap();
    world.may_not(&["create", "-f", "-"], &new, refused);
    let grown = r#"{"spec": {"size": 2}}"#;
    world.may_not(&["patch", "hostpool", "old", "--type=merge", "-p", grown], nothing, refused);
    // An opted-out namespace is one whose pods are left alone.
    world.may(&["label", "namespace", "default", "stowplan.dev/ignore=true"], nothing);
    world.may_not(&["create", "-f", "-"], &new, refused);
    // Everything else passes without a call.
    world.may(&["label", "hostpool", "old", "a=b"], nothing);
    let status = r#"{"status": {"conditions": []}}"#;
    world.may(
        &["patch", "hostpool", "old", "--subresource=status", "--type=merge", "-p", status],
        nothing,
    );
    world.may(&["label", "streamsjob", "parallel", "a=b"], nothing);
    world.may(&["delete", "hostpool", "old", "--wait=false"], nothing);
    let done = r#"{"metadata": {"finalizers": null}}"#;
    world.may(&["patch", "hostpool", "old", "--type=merge", "-p", done], nothing);
    world.may_not(&["get", "hostpool", "old"], nothing, "not found");
    // The API server learns by a watch of its own that the namespace is not left alone any more.
    world.may(&["label", "namespace", "default", "stowplan.dev/ignore-"], nothing);
    what_of_tekton_is_asked_about(world).await;
}

/// The pods and claims of Tekton runs by their owners, whatever the owner's version, and nothing
/// that only looks like them.
async fn what_of_tekton_is_asked_about(world: &World) {
    let owner = |version: &str, kind: &str, controller: Value| json!([{"apiVersion": version, "kind": kind, "name": "run", "uid": "1-2-3", "controller": controller}]);
    let object = |kind: &str, owners: &Value, annotations: Value| {
        let spec = match kind {
            "Pod" => json!({"containers": [{"name": "step", "image": "none"}]}),
            _ => {
                json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}})
            }
        };
        json!({
            "apiVersion": "v1", "kind": kind, "spec": spec,
            "metadata": {
                "generateName": "of-a-run-", "namespace": "default", "ownerReferences": owners,
                "annotations": annotations, "labels": {"tekton.dev/pipelineRun": "run"},
            },
        })
    };
    let yes = || json!(true);
    let cases = [
        ("Pod", owner("tekton.dev/v1", "TaskRun", yes()), true),
        ("Pod", owner("tekton.dev/v1beta1", "TaskRun", yes()), true),
        ("Pod", owner("tekton.dev/v1", "TaskRun", Value::Null), false),
        ("Pod", owner("tekton.dev/v1", "CustomRun", yes()), false),
        ("Pod", owner("tekton.dev.example.com/v1", "TaskRun", yes()), false),
        ("Pod", owner("batch/v1", "Job", yes()), false),
        ("Pod", Value::Null, false),
        ("PersistentVolumeClaim", owner("tekton.dev/v1", "PipelineRun", yes()), true),
        ("PersistentVolumeClaim", owner("tekton.dev/v1", "PipelineRun", Value::Null), true),
        ("PersistentVolumeClaim", owner("tekton.dev/v1beta1", "TaskRun", yes()), true),
        ("PersistentVolumeClaim", owner("tekton.dev/v1", "Pipeline", yes()), false),
        ("PersistentVolumeClaim", owner("apps/v1", "StatefulSet", yes()), false),
        ("PersistentVolumeClaim", Value::Null, false),
    ];
    let check = |of_tekton: bool| {
        for (kind, owners, asked) in &cases {
            let webhook = if *kind == "Pod" { "pods" } else { "claims" };
            let away = format!(r#"failed calling webhook "{webhook}.stowplan.dev""#);
            let create = &["create", "--dry-run=server", "-f", "-"];
            match asked & of_tekton {
                true => world.may_not(create, &object(kind, owners, Value::Null), &away),
                false => drop(world.may(create, &object(kind, owners, Value::Null))),
            }
        }
    };
    let grouped = object(
        "PersistentVolumeClaim",
        &Value::Null,
        json!({"stowplan.dev/coschedule-group": "g", "another.example.com/key": "x"}),
    );
    let away = r#"failed calling webhook "claims.stowplan.dev""#;
    until("the namespace's claims to be asked about", Duration::from_secs(60), async || {
        let output = world.kubectl(&["create", "--dry-run=server", "-f", "-"], &grouped);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok(if said.contains(away) { Seen::Done(()) } else { Seen::NotYet(said) })
    })
    .await
    .unwrap();
    check(true);
    let mut ignored = grouped.clone();
    ignored["metadata"]["labels"]["stowplan.dev/ignore"] = json!("true");
    world.may(&["create", "--dry-run=server", "-f", "-"], &ignored);

    let off = r#"policy={"coschedule": {"enabled": false}}"#;
    world.helm(&[r#"webhook.failurePolicy="Fail""#, off]);
    until("the webhook not to be asked", Duration::from_secs(60), async || {
        let output = world.kubectl(&["create", "--dry-run=server", "-f", "-"], &grouped);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok(if output.status.success() { Seen::Done(()) } else { Seen::NotYet(said) })
    })
    .await
    .unwrap();
    check(false);
}
