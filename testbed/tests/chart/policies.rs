//! The admission policies that hold the controller's account to stowplan's own marks. Each write is
//! one that its rights allow: the policies refuse those that the controller never makes.

use std::time::Duration;

use serde_json::{Value, json};
use testbed::wait::{Seen, until};

use super::{NAMESPACE, World};

mod mpi;

/// The label of a pool on nodes.
pub(super) const LABEL: &str = "pool.stowplan.node-restriction.kubernetes.io/abcdefabcd";

/// The annotations of NUMA affinity, and those that the controller writes.
const AFFINITY: &str = "katalyst.kubewharf.io/microtopology_affinity";
const ANTI_AFFINITY: &str = "katalyst.kubewharf.io/microtopology_antiaffinity";
const LEADER_OF: &str = "katalyst.stowplan.dev/leader-of";
const LET_GO: &str = "katalyst.stowplan.dev/let-go";
const TIME: &str = "2026-01-02T03:04:05Z";

/// The label of nodes with NUMA zones.
const NUMA_ZONES: &str = "stowplan.dev/numa-zones";

/// Objects as an administrator and requests as the controller.
struct Controller<'w> {
    world: &'w World,
    account: String,
}

impl Controller<'_> {
    fn with(&self, arguments: &[&str]) -> Vec<String> {
        arguments.iter().map(|it| (*it).to_owned()).chain([self.account.clone()]).collect()
    }

    fn may(&self, arguments: &[&str], input: &Value) {
        let arguments = self.with(arguments);
        self.world.may(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), input);
    }

    fn may_not(&self, arguments: &[&str], input: &Value, why: &str) {
        let arguments = self.with(arguments);
        let arguments = arguments.iter().map(String::as_str).collect::<Vec<_>>();
        self.world.may_not(&arguments, input, why);
    }

    /// A JSON patch of an object, in `namespace`.
    fn patch<'a>(namespace: &'a str, object: &'a str, operations: &'a str) -> [&'a str; 6] {
        ["patch", object, "--namespace", namespace, "--type=json", operations]
    }

    fn may_patch(&self, namespace: &str, object: &str, operations: &Value) {
        let operations = format!("--patch={operations}");
        self.may(&Self::patch(namespace, object, &operations), &Value::Null);
    }

    fn may_not_patch(&self, namespace: &str, object: &str, operations: &Value, why: &str) {
        let operations = format!("--patch={operations}");
        self.may_not(&Self::patch(namespace, object, &operations), &Value::Null, why);
    }

    /// Creates an object as an administrator.
    fn given(&self, object: &Value) {
        self.world.may(&["create", "-f", "-"], object);
    }
}

fn add(path: &str, value: &Value) -> Value {
    json!([{"op": "add", "path": path, "value": value}])
}

fn remove(path: &str) -> Value {
    json!([{"op": "remove", "path": path}])
}

/// A pod that no scheduler binds.
fn pod(namespace: &str, name: &str, labels: &Value, rest: &Value) -> Value {
    let mut spec = json!({
        "schedulerName": "none",
        "containers": [{"name": "main", "image": "none"}],
    });
    for (key, value) in rest.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let metadata = json!({"name": name, "namespace": namespace, "labels": labels});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

pub(super) async fn hold_the_controller_to_its_marks(world: &World) {
    let user = format!("system:serviceaccount:{NAMESPACE}:stowplan-controller");
    let controller = Controller { world, account: format!("--as={user}") };
    let label = ["label", "node", "one", "a=b", "--dry-run=server"];
    until("the policies to be enforced", Duration::from_secs(60), async || {
        let arguments = controller.with(&label);
        let arguments = arguments.iter().map(String::as_str).collect::<Vec<_>>();
        let output = world.kubectl(&arguments, &Value::Null);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok(if output.status.success() { Seen::NotYet(stderr) } else { Seen::Done(()) })
    })
    .await
    .unwrap();
    nodes(&controller);
    pods(&controller);
    gated_pods(&controller);
    pods_with_numa_affinity(&controller);
    pods_that_it_deletes(&controller);
    placeholders(&controller);
    claims(&controller);
    mpi::clusters(&controller);
    tolerations(world);
}

/// The toleration of an exclusive pool cannot be added to a pod that exists; others can.
fn tolerations(world: &World) {
    let nothing = &Value::Null;
    let own = json!({"key": "stowplan.dev/exclusive", "operator": "Equal", "value": "abcdefabcd"});
    world.may(&["create", "-f", "-"], &pod("default", "plain", nothing, nothing));
    let with = pod("default", "with", nothing, &json!({"tolerations": [own]}));
    world.may(&["create", "-f", "-"], &with);
    let patch = |name, toleration: &Value| {
        let operations = add("/spec/tolerations/-", toleration);
        [
            "patch".to_owned(),
            format!("pod/{name}"),
            "--type=json".to_owned(),
            format!("-p={operations}"),
        ]
    };
    let other = patch("plain", &json!({"key": "a", "operator": "Exists"}));
    world.may(&other.each_ref().map(String::as_str), nothing);
    let other = patch("with", &json!({"key": "a", "operator": "Exists"}));
    world.may(&other.each_ref().map(String::as_str), nothing);
    for toleration in [own, json!({"key": "stowplan.dev/exclusive", "operator": "Exists"})] {
        let own = patch("plain", &toleration);
        let why = "the toleration stowplan.dev/exclusive cannot be added";
        world.may_not(&own.each_ref().map(String::as_str), nothing, why);
    }
    world.may(&["delete", "pod", "plain", "with", "--now"], nothing);
}

fn nodes(controller: &Controller<'_>) {
    let nothing = &Value::Null;
    let only = "the controller changes only the labels of pools and the label \
                stowplan.dev/numa-zones on nodes";
    controller.may_not(&["label", "node", "one", "a=b"], nothing, only);
    controller.may_not(&["label", "node", "one", "kubernetes.io/hostname-"], nothing, only);
    controller.may_not(
        &["label", "node", "one", "kubernetes.io/hostname=two", "--overwrite"],
        nothing,
        only,
    );
    controller.may(&["label", "node", "one", &format!("{LABEL}=0")], nothing);
    controller.may(&["label", "node", "one", &format!("{LABEL}=1"), "--overwrite"], nothing);
    controller.may(&["label", "node", "one", &format!("{LABEL}-")], nothing);
    for zones in ["two", "", "2.0"] {
        let label = format!("{NUMA_ZONES}={zones}");
        let number = "the label stowplan.dev/numa-zones is a number";
        controller.may_not(&["label", "node", "one", &label], nothing, number);
    }
    // Another key with the same beginning is another label.
    controller.may_not(&["label", "node", "one", &format!("{NUMA_ZONES}-all=2")], nothing, only);
    controller.may(&["label", "node", "one", &format!("{NUMA_ZONES}=2")], nothing);
    controller.may(&["label", "node", "one", &format!("{NUMA_ZONES}=4"), "--overwrite"], nothing);
    controller.may(&["label", "node", "one", &format!("{NUMA_ZONES}-")], nothing);
    // One that a user has set is no obstacle to the others.
    controller.world.may(&["label", "node", "one", &format!("{NUMA_ZONES}=many")], nothing);
    controller.may(&["label", "node", "one", &format!("{LABEL}=0")], nothing);
    controller.may(&["label", "node", "one", &format!("{NUMA_ZONES}-")], nothing);
    controller.may(&["label", "node", "one", &format!("{LABEL}-")], nothing);

    let only = "the controller changes only the taint stowplan.dev/exclusive";
    controller.world.may(&["taint", "node", "one", "mine=yes:NoSchedule"], nothing);
    controller.may_not(&["taint", "node", "one", "other=yes:NoExecute"], nothing, only);
    controller.may_not(&["taint", "node", "one", "mine-"], nothing, only);
    controller.may_not(
        &["taint", "node", "one", "stowplan.dev/exclusive=x:NoExecute"],
        nothing,
        only,
    );
    controller.may(&["taint", "node", "one", "stowplan.dev/exclusive=x:NoSchedule"], nothing);
    controller.may(&["taint", "node", "one", "stowplan.dev/exclusive-"], nothing);
    controller.world.may(&["taint", "node", "one", "mine-"], nothing);

    let rest = "nothing else of a node";
    // Not by `kubectl cordon`, which ends with 0 also when it was refused.
    controller.may_not_patch("", "node/one", &add("/spec/unschedulable", &json!(true)), rest);
    controller.may_not(&["annotate", "node", "one", "a=b"], nothing, rest);
    let finalizers = add("/metadata/finalizers", &json!(["example.com/hold"]));
    controller.may_not_patch("", "node/one", &finalizers, rest);
}

fn pods(controller: &Controller<'_>) {
    let nothing = &Value::Null;
    controller.given(&pod("default", "plain", nothing, nothing));
    controller.given(&pod("kube-system", "plain", nothing, nothing));
    controller.may(&["label", "pod", "plain", "stowplan.dev/wake=2"], nothing);
    let system = "nothing in this namespace";
    let wake = ["label", "pod", "plain", "stowplan.dev/wake=2", "--namespace=kube-system"];
    controller.may_not(&wake, nothing, system);
    let delete = ["delete", "pod", "plain", "--namespace=kube-system", "--wait=false"];
    controller.may_not(&delete, nothing, system);

    let only = "the controller changes only the label stowplan.dev/wake of a pod";
    controller.may_not(&["label", "pod", "plain", "a=b"], nothing, only);
    // With this label it could delete any pod.
    controller.may_not(&["label", "pod", "plain", "stowplan.dev/placeholder=x"], nothing, only);
    let gated = "the controller changes annotations of a pod only where it removes the gate \
                 stowplan.dev/numa-feasible";
    controller.may_not(&["annotate", "pod", "plain", "a=b"], nothing, gated);
    controller.may_not(&["annotate", "pod", "plain", &format!("{LET_GO}={TIME}")], nothing, gated);
    let rest = "nothing else of a pod";
    for operations in [
        add("/spec/containers/0/image", &json!("other")),
        add("/spec/activeDeadlineSeconds", &json!(1)),
        add("/spec/tolerations/-", &json!({"key": "a", "operator": "Exists"})),
        add("/metadata/finalizers", &json!(["example.com/hold"])),
        add(
            "/metadata/ownerReferences",
            &json!([{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x"}]),
        ),
    ] {
        controller.may_not_patch("default", "pod/plain", &operations, rest);
    }
    controller.world.may(&["delete", "pod", "plain", "--now"], nothing);
    controller.world.may(&["delete", "pod", "plain", "--now", "--namespace=kube-system"], nothing);
}

fn gated_pods(controller: &Controller<'_>) {
    let nothing = &Value::Null;
    let gates = |names: &[&str]| {
        let gates: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
        json!({"schedulingGates": gates})
    };
    let own = "stowplan.dev/placeholder";
    controller.given(&pod("default", "both", nothing, &gates(&["example.com/gate", own])));
    controller.given(&pod("default", "other", nothing, &gates(&["example.com/gate"])));
    let term = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": ["one"]}]}]}}});
    let affinity = json!({"op": "add", "path": "/spec/affinity", "value": term});
    let lift = |gate: u32| json!({"op": "remove", "path": format!("/spec/schedulingGates/{gate}")});

    let only = "the controller removes only the gate stowplan.dev/placeholder";
    controller.may_not_patch("default", "pod/both", &json!([lift(0)]), only);
    controller.may_not_patch("default", "pod/other", &json!([lift(0)]), only);
    let adds = "the controller adds node terms only to a pod whose gate stowplan.dev/placeholder";
    controller.may_not_patch("default", "pod/both", &json!([affinity]), adds);
    controller.may_not_patch("default", "pod/other", &json!([affinity]), adds);
    let selector = add("/spec/nodeSelector", &json!({"a": "b"}));
    controller.may_not_patch("default", "pod/both", &selector, "nothing else of a pod");
    controller.may_patch("default", "pod/both", &json!([affinity, lift(1)]));

    let launcher = gates(&["stowplan.dev/mpi-workers", "example.com/gate"]);
    controller.given(&pod("default", "launcher", nothing, &launcher));
    controller.may_not_patch("default", "pod/launcher", &json!([lift(1)]), only);
    controller.may_not_patch("default", "pod/launcher", &json!([affinity, lift(0)]), adds);
    controller.may_patch("default", "pod/launcher", &json!([lift(0)]));
    controller.world.may(&["delete", "pod", "both", "other", "launcher", "--now"], nothing);
}

/// Pods that wait for NUMA zones: their gate, and the annotations that change with it.
fn pods_with_numa_affinity(controller: &Controller<'_>) {
    let path = |key: &str| format!("/metadata/annotations/{}", key.replace('/', "~1"));
    let set = |key: &str, value: &str| json!({"op": "add", "path": path(key), "value": value});
    let unset = |key: &str| json!({"op": "remove", "path": path(key)});
    let given = |name: &str, annotations: &Value| {
        let gates = json!({"schedulingGates": [{"name": "example.com/gate"},
            {"name": "stowplan.dev/numa-feasible"}]});
        let mut pod = pod("default", name, &json!({"stowplan.dev/ignore": "true"}), &gates);
        pod["metadata"]["annotations"] = annotations.clone();
        controller.given(&pod);
    };
    given("leader", &json!({AFFINITY: "value", ANTI_AFFINITY: "anti", "example.com/key": "x"}));
    given("member", &json!({AFFINITY: "value", LET_GO: "forged", LEADER_OF: "forged"}));
    given("plain", &Value::Null);
    let other = json!({"op": "remove", "path": "/spec/schedulingGates/0"});
    let lift = json!({"op": "remove", "path": "/spec/schedulingGates/1"});
    let only = "the controller removes only the gate";
    controller.may_not_patch("default", "pod/leader", &json!([other]), only);
    let leads = [unset(AFFINITY), set(LEADER_OF, "value")];
    let let_go = set(LET_GO, TIME);
    let with = |operations: &[&Value]| json!([&[&lift], operations].concat());
    let gated = "the controller changes annotations of a pod only where it removes the gate";
    for operations in [
        // Without the gate.
        json!([let_go]),
        json!([leads[0], leads[1]]),
        json!([leads[0], leads[1], let_go]),
        // One half of the move, another value, and what is no move.
        with(&[&leads[0]]),
        with(&[&leads[1]]),
        with(&[&leads[0], &set(LEADER_OF, "other")]),
        with(&[&set(AFFINITY, "other")]),
        with(&[&unset(ANTI_AFFINITY)]),
        with(&[&unset(ANTI_AFFINITY), &set(LEADER_OF, "anti")]),
        with(&[&leads[0], &leads[1], &unset(ANTI_AFFINITY)]),
        // Other annotations, and what is no time.
        with(&[&set(LET_GO, "")]),
        with(&[&set(LET_GO, "yesterday")]),
        with(&[&set(LET_GO, "2026-01-02")]),
        with(&[&set("katalyst.stowplan.dev/other", "x")]),
        with(&[&set("example.com/key", "y")]),
        with(&[&unset("example.com/key")]),
    ] {
        controller.may_not_patch("default", "pod/leader", &operations, gated);
    }
    let all = with(&[&leads[0], &leads[1], &let_go]);
    controller.may_patch("default", "pod/leader", &all);
    // What a user has written beforehand is overwritten, or stays.
    controller.may_not_patch("default", "pod/member", &with(&[&unset(LET_GO)]), gated);
    controller.may_not_patch("default", "pod/member", &with(&[&set(LEADER_OF, "x")]), gated);
    controller.may_patch(
        "default",
        "pod/member",
        &with(&[&set(LET_GO, "2026-01-02T03:04:05.1+01:00")]),
    );
    let annotations =
        json!([{"op": "add", "path": "/metadata/annotations", "value": {LET_GO: TIME}}]);
    controller.may_not_patch("default", "pod/plain", &annotations, gated);
    controller.may_patch("default", "pod/plain", &json!([lift, annotations[0]]));
    let keys = (0..1000).map(|number| (format!("k-{number}"), json!("")));
    given("many", &Value::Object(keys.collect()));
    controller.may_not_patch("default", "pod/many", &with(&[&let_go]), gated);
    controller.may_patch("default", "pod/many", &json!([lift]));
    let term = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": ["one"]}]}]}}});
    let affinity = json!({"op": "add", "path": "/spec/affinity", "value": term});
    given("narrow", &Value::Null);
    let adds = "the controller adds node terms only to a pod whose gate";
    controller.may_not_patch("default", "pod/narrow", &json!([affinity]), adds);
    controller.may_patch("default", "pod/narrow", &json!([affinity, lift]));
    let names = ["delete", "pod", "leader", "member", "plain", "many", "narrow", "--now"];
    controller.world.may(&names, &Value::Null);
}

fn pods_that_it_deletes(controller: &Controller<'_>) {
    let nothing = &Value::Null;
    let on_node = json!({"nodeName": "one"});
    controller.given(&pod("default", "bound", nothing, &on_node));
    controller.given(&pod("default", "waits", nothing, nothing));
    let label = json!({"stowplan.dev/placeholder": "affinity-assistant-0123456789"});
    controller.given(&pod("default", "placeholder", &label, &on_node));
    let delete = |name| ["delete", "pod", name, "--wait=false"];
    let only = "the controller deletes only pods of placeholders and pods without a node";
    controller.may_not(&delete("bound"), nothing, only);
    controller.may(&delete("waits"), nothing);
    controller.may(&delete("placeholder"), nothing);
    controller.world.may(&["delete", "pod", "bound", "--now"], nothing);
}

/// A StatefulSet as the controller creates it, except for `changes`: pointers and values.
pub(super) fn placeholder(changes: &[(&str, Value)]) -> Value {
    let name = "affinity-assistant-abcdefabcd";
    let selector = json!({
        "app.kubernetes.io/component": "affinity-assistant", "app.kubernetes.io/instance": name,
    });
    let mut labels = selector.clone();
    labels["stowplan.dev/placeholder"] = json!(name);
    let document = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {
            "replicas": 1, "serviceName": "", "selector": {"matchLabels": selector},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "automountServiceAccountToken": false, "schedulerName": "none",
                    "containers": [{
                        "name": "affinity-assistant", "image": "stowplan:0.1.0", "args": ["pause"],
                        "securityContext": {"allowPrivilegeEscalation": false, "runAsNonRoot": true},
                    }],
                    "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
                },
            },
        },
    });
    changed(document, changes)
}

/// A document with other values at these pointers, or with further items of these lists.
fn changed(mut document: Value, changes: &[(&str, Value)]) -> Value {
    for (pointer, value) in changes {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let parent = document.pointer_mut(parent).unwrap();
        match parent.as_array_mut() {
            Some(items) => items.push(value.clone()),
            None => parent[key.replace("~1", "/").as_str()] = value.clone(),
        }
    }
    document
}

fn placeholders(controller: &Controller<'_>) {
    const POD: &str = "/spec/template/spec";
    let nothing = &Value::Null;
    let create = ["create", "-f", "-"];
    let mark = "the controller changes only StatefulSets with the label stowplan.dev/placeholder";
    let runs = "a placeholder runs only stowplan's own pause";
    let container = |key: &str| format!("{POD}/containers/0/{key}");
    let in_pod = |key: &str| format!("{POD}/{key}");
    for (pointer, value, why) in [
        ("/metadata/labels/stowplan.dev~1placeholder".to_owned(), json!("other"), mark),
        ("/metadata/name".to_owned(), json!("web"), mark),
        ("/metadata/namespace".to_owned(), json!("kube-system"), "nothing in this namespace"),
        ("/spec/replicas".to_owned(), json!(2), runs),
        (container("image"), json!("other:1"), runs),
        (container("command"), json!(["sh"]), runs),
        (container("args"), json!(["controller"]), runs),
        (container("lifecycle"), json!({"postStart": {"exec": {"command": ["sh"]}}}), runs),
        (container("livenessProbe"), json!({"exec": {"command": ["sh"]}}), runs),
        (container("securityContext"), json!({"privileged": true}), runs),
        (in_pod("containers/-"), json!({"name": "b", "image": "stowplan:0.1.0"}), runs),
        (in_pod("initContainers"), json!([{"name": "b", "image": "stowplan:0.1.0"}]), runs),
        (in_pod("volumes/-"), json!({"name": "host", "hostPath": {"path": "/"}}), runs),
        (in_pod("volumes/-"), json!({"name": "s", "secret": {"secretName": "x"}}), runs),
        (in_pod("hostNetwork"), json!(true), runs),
        (in_pod("hostPID"), json!(true), runs),
        (in_pod("hostIPC"), json!(true), runs),
        (in_pod("automountServiceAccountToken"), json!(true), runs),
        (in_pod("nodeName"), json!("one"), runs),
    ] {
        controller.may_not(&create, &placeholder(&[(&pointer, value)]), why);
    }
    controller.may(&create, &placeholder(&[]));
    let name = "statefulset/affinity-assistant-abcdefabcd";
    controller.may(&["annotate", name, "stowplan.dev/idle-since=1"], nothing);
    let volumes = json!([{"name": "w", "persistentVolumeClaim": {"claimName": "d"}}]);
    controller.may_patch("default", name, &add("/spec/template/spec/volumes", &volumes));
    let image = add("/spec/template/spec/containers/0/image", &json!("other:1"));
    controller.may_not_patch("default", name, &image, runs);
    let label = remove("/metadata/labels/stowplan.dev~1placeholder");
    controller.may_not_patch("default", name, &label, mark);

    // One that a user has created.
    let mut own = placeholder(&[("/metadata/name", json!("web")), ("/metadata/labels", json!({}))]);
    own["spec"]["template"]["metadata"]["labels"]["stowplan.dev/placeholder"] = Value::Null;
    controller.given(&own);
    controller.may_not(&["annotate", "statefulset/web", "a=b"], nothing, mark);
    let label = add("/metadata/labels", &json!({"stowplan.dev/placeholder": "web"}));
    controller.may_not_patch("default", "statefulset/web", &label, mark);
    controller.may_not(&["delete", "statefulset/web", "--wait=false"], nothing, mark);
    controller.may(&["delete", name, "--wait=false"], nothing);
    controller.world.may(&["delete", "statefulset", "web"], nothing);
}

fn claims(controller: &Controller<'_>) {
    let nothing = &Value::Null;
    let claim = |name: &str, labels: Value, owners: Value| {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default", "labels": labels,
                "ownerReferences": owners, "finalizers": ["example.com/hold"]},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "none",
                "resources": {"requests": {"storage": "1Gi"}}},
        })
    };
    let run =
        json!([{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "r", "uid": "r"}]);
    let label = json!({"stowplan.dev/placeholder": "affinity-assistant-abcdefabcd"});
    // The garbage collector does not know the kind of the run, so its claim stays.
    controller.given(&claim("of-a-run", Value::Null, run));
    controller.given(&claim("of-a-placeholder", label, Value::Null));
    controller.given(&claim("users", Value::Null, Value::Null));
    // A bound pod keeps the finalizer of its claims.
    let volume = |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
    let rest =
        json!({"nodeName": "one", "volumes": [volume("of-a-run"), volume("of-a-placeholder")]});
    controller.given(&pod("default", "mounts", nothing, &rest));
    let mark = "the controller changes only claims of placeholders and of PipelineRuns";
    let only = "the controller removes only the finalizer kubernetes.io/pvc-protection";
    // The API server adds its own finalizer behind the first.
    let protection = remove("/metadata/finalizers/1");
    controller.may_not(&["delete", "pvc", "users", "--wait=false"], nothing, mark);
    controller.may_not_patch("default", "pvc/users", &protection, mark);
    controller.may_not_patch("default", "pvc/of-a-run", &protection, only);
    controller.world.may(&["delete", "pvc", "users", "--wait=false"], nothing);
    for name in ["of-a-run", "of-a-placeholder"] {
        let object = format!("pvc/{name}");
        controller.may(&["delete", &object, "--wait=false"], nothing);
        controller.may_not_patch("default", &object, &remove("/metadata/finalizers/0"), only);
        let label = add("/metadata/labels/a", &json!("b"));
        let labels = add("/metadata/labels", &json!({"a": "b"}));
        let label = if name == "of-a-run" { labels } else { label };
        controller.may_not_patch("default", &object, &label, only);
        controller.may_patch("default", &object, &protection);
    }
    controller.world.may(&["delete", "pod", "mounts", "--now"], nothing);
    for name in ["of-a-run", "of-a-placeholder", "users"] {
        let none = format!("--patch={}", remove("/metadata/finalizers"));
        controller.world.may(&["patch", "pvc", name, "--type=json", &none], nothing);
    }
}
