//! The admission policies for all users: the annotations of NUMA affinity stay as a pod was created
//! with them, labels that NUMA affinity counts stay once the pod has a node, and a key that is added
//! later gets a warning. Nothing of stowplan runs: the webhook is unavailable.

use std::time::Duration;

use serde_json::{Value, json};
use testbed::control_plane::{ControlPlane, NodeSpec, Options};
use testbed::wait::{Seen, until};

use super::{NAMESPACE, World};

const AFFINITY: &str = "katalyst.kubewharf.io/microtopology_affinity";
const ANTI_AFFINITY: &str = "katalyst.kubewharf.io/microtopology_antiaffinity";
const BOTH: [&str; 2] = [AFFINITY, ANTI_AFFINITY];
const LEADER_OF: &str = "katalyst.stowplan.dev/leader-of";
const LET_GO: &str = "katalyst.stowplan.dev/let-go";
const QOS: &str = "katalyst.kubewharf.io/qos_level";
const GATE: &str = "stowplan.dev/numa-feasible";

const VALUE: &str = r#"{"required":[{"matchLabels":{"app":"a"},"zone":"numa"}]}"#;
const OTHER: &str = r#"{"required":[{"matchLabels":{"app":"b"},"zone":"numa"}]}"#;

const CREATE: [&str; 3] = ["create", "-f", "-"];
const DRY: &str = "--dry-run=server";
const IN_STATUS: &str = "--subresource=status";

#[tokio::test(flavor = "multi_thread")]
async fn numa_affinity_stays_as_pods_were_created_with_it() {
    let nodes = vec![NodeSpec::new("one")];
    let plane = ControlPlane::start(Options { nodes, ..Options::default() }).await.unwrap();
    let world = World { plane };
    let before = pods_from_before(&world);
    world.helm(&[r#"policy.katalyst.declaredLabels=["example.com/team", "app"]"#]);
    enforced(&world).await;

    before_the_policy(&world, &before);
    frozen(&world);
    other_subresources(&world);
    bindings(&world);
    never_null(&world);
    long_values(&world);
    let_go_by_the_controller(&world);
    labels(&world);
    declared_labels_follow_the_values(&world).await;
    later_keys(&world);
    off(&world).await;
    world.plane.stop().await;
}

/// A pod that no scheduler binds and no webhook is asked about.
fn pod(name: &str, annotations: &Value, rest: &Value) -> Value {
    let mut spec = json!({
        "schedulerName": "none",
        "containers": [{"name": "main", "image": "none"}],
    });
    for (key, value) in rest.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let labels = json!({"stowplan.dev/ignore": "true", "app": "a", "example.com/team": "a"});
    json!({
        "apiVersion": "v1", "kind": "Pod", "spec": spec,
        "metadata": {"name": name, "namespace": "default", "labels": labels,
            "annotations": annotations},
    })
}

/// Creates a pod without a node and with these annotations.
fn given(world: &World, name: &str, annotations: &Value) {
    world.may(&CREATE, &pod(name, annotations, &Value::Null));
}

fn get(world: &World, name: &str) -> Value {
    let pod = world.may(&["get", "pod", name, "-o", "json"], &Value::Null);
    serde_json::from_str(&pod).unwrap()
}

fn delete(world: &World, names: &[&str]) {
    let arguments: Vec<_> = ["delete", "pod", "--now"].iter().chain(names).copied().collect();
    world.may(&arguments, &Value::Null);
}

/// The path of an annotation in a JSON patch.
fn path(key: &str) -> String {
    format!("/metadata/annotations/{}", key.replace('/', "~1"))
}

/// The arguments of a JSON patch of a pod, with `further` ones.
fn patch(name: &str, operations: &Value, further: &[&str]) -> Vec<String> {
    let operations = format!("--patch={operations}");
    ["patch", "pod", name, "--type=json", &operations]
        .iter()
        .chain(further)
        .map(|it| (*it).to_owned())
        .collect()
}

fn may_patch(world: &World, name: &str, operations: &Value, further: &[&str]) {
    let arguments = patch(name, operations, further);
    world.may(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), &Value::Null);
}

fn may_not_patch(world: &World, name: &str, operations: &Value, further: &[&str], why: &str) {
    let arguments = patch(name, operations, further);
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    world.may_not(&arguments, &Value::Null, why);
}

fn set(key: &str, value: &str) -> Value {
    json!({"op": "add", "path": path(key), "value": value})
}

fn unset(key: &str) -> Value {
    json!({"op": "remove", "path": path(key)})
}

fn frozen_message(key: &str) -> String {
    format!("the annotation {key} of a pod that exists cannot be added, changed or removed")
}

/// What a pod without stowplan's policies may have.
fn pods_from_before(world: &World) -> Vec<String> {
    let long = format!("{}{}", " ".repeat(200 * 1024), VALUE);
    let values = [("null", "null"), ("long", &*long), ("canonical", VALUE)];
    let bound = json!({"nodeName": "one"});
    values
        .iter()
        .map(|(name, value)| {
            let name = format!("before-{name}");
            let annotations = json!({ AFFINITY: value, QOS: "dedicated_cores" });
            world.may(&CREATE, &pod(&name, &annotations, &bound));
            name
        })
        .collect()
}

/// Waits until each of the policies refuses, or warns of, what it is there for.
async fn enforced(world: &World) {
    let bound = json!({"nodeName": "one"});
    let dedicated = json!({ QOS: "dedicated_cores" });
    world.may(&CREATE, &pod("trial", &dedicated, &bound));
    let annotate = format!("{AFFINITY}={VALUE}");
    for (arguments, sign) in [
        (["annotate", "pod", "trial", &*annotate, DRY], "of a pod that exists cannot be"),
        (["label", "pod", "trial", "app-", DRY], "cannot be added, changed or removed"),
        (["annotate", "pod", "trial", "stowplan.dev/future=x", DRY], "unknown key"),
    ] {
        seen(world, &arguments, |said| said.contains(sign)).await;
    }
    delete(world, &["trial"]);
}

/// Repeats a request until what kubectl writes to standard error is as wanted.
async fn seen(world: &World, arguments: &[&str], wanted: impl Fn(&str) -> bool) {
    until(&format!("{arguments:?}"), Duration::from_secs(60), async || {
        let output = world.kubectl(arguments, &Value::Null);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok(if wanted(&said) { Seen::Done(()) } else { Seen::NotYet(said) })
    })
    .await
    .unwrap();
}

/// Kubelets write the complete metadata with the status: that must pass for any pod.
fn before_the_policy(world: &World, names: &[String]) {
    let kubelet = ["--as=system:node:one", "--as-group=system:nodes"];
    for name in names {
        let mut pod = get(world, name);
        pod["status"]["message"] = json!("as a kubelet writes it");
        // kwok writes the status meanwhile.
        pod["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        let replace = ["replace", IN_STATUS, "-f", "-", kubelet[0], kubelet[1]];
        world.may(&replace, &pod);
        assert_eq!(get(world, name)["metadata"]["annotations"], pod["metadata"]["annotations"]);
        world.may(&["annotate", "pod", name, "example.com/key=x"], &Value::Null);
        may_not_patch(world, name, &json!([unset(AFFINITY)]), &[], &frozen_message(AFFINITY));
        let other = json!([set(AFFINITY, OTHER)]);
        may_not_patch(world, name, &other, &[IN_STATUS], &frozen_message(AFFINITY));
    }
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    delete(world, &names);
}

fn frozen(world: &World) {
    let nothing = &Value::Null;
    given(world, "without", &json!({"example.com/key": "a"}));
    given(world, "with", &json!({ AFFINITY: VALUE, ANTI_AFFINITY: OTHER }));
    let bound = json!({"nodeName": "one"});
    world.may(&CREATE, &pod("bound", &json!({ AFFINITY: VALUE, ANTI_AFFINITY: OTHER }), &bound));
    for key in BOTH {
        let why = frozen_message(key);
        for subresource in [&[][..], &[IN_STATUS]] {
            for value in [VALUE, "null", ""] {
                may_not_patch(world, "without", &json!([set(key, value)]), subresource, &why);
            }
            for name in ["with", "bound"] {
                for value in ["{}", "null", ""] {
                    may_not_patch(world, name, &json!([set(key, value)]), subresource, &why);
                }
                may_not_patch(world, name, &json!([unset(key)]), subresource, &why);
                let all = json!([{"op": "remove", "path": "/metadata/annotations"}]);
                may_not_patch(world, name, &all, subresource, "of a pod that exists cannot be");
            }
        }
    }
    // Server-side apply, and an update of the complete object.
    let apply = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
    let changed = pod("with", &json!({ AFFINITY: OTHER }), nothing);
    world.may_not(&apply, &changed, &frozen_message(AFFINITY));
    let mut changed = get(world, "with");
    changed["metadata"]["annotations"][ANTI_AFFINITY] = json!("{}");
    world.may_not(&["replace", "-f", "-"], &changed, &frozen_message(ANTI_AFFINITY));
    // What is no part of it.
    for name in ["with", "without", "bound"] {
        world.may(&["annotate", "pod", name, "example.com/key=b", "--overwrite"], nothing);
        world.may(&["label", "pod", name, "example.com/label=b"], nothing);
    }
    let apply = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
    let mut same = pod("with", &json!({ AFFINITY: VALUE }), nothing);
    same["metadata"]["labels"]["example.com/label"] = json!("c");
    world.may(&apply, &same);
    world.may(&["delete", "pod", "bound", "with", "without", "--now"], nothing);
}

/// The other subresources of a pod write no metadata, so no policy has to see them.
fn other_subresources(world: &World) {
    let resources = json!([{"name": "main", "image": "none",
        "resources": {"requests": {"cpu": "100m"}}}]);
    let annotations = json!({ AFFINITY: VALUE });
    // Without a node: kubelets of simulated nodes resize no pods.
    let rest = json!({"containers": resources});
    let mut kept = pod("sub", &annotations, &rest);
    kept["metadata"]["finalizers"] = json!(["example.com/hold"]);
    world.may(&CREATE, &kept);
    let check = |after: &str| {
        assert_eq!(get(world, "sub")["metadata"]["annotations"], annotations, "{after}");
    };
    let url = "/api/v1/namespaces/default/pods/sub";
    let mut changed = get(world, "sub");
    changed["metadata"]["annotations"] = json!({ AFFINITY: "null", ANTI_AFFINITY: "null" });
    changed["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let put = |subresource: &str, object: &Value| {
        world.may(&["replace", "--raw", &format!("{url}/{subresource}"), "-f", "-"], object);
        check(subresource);
    };
    let mut resized = changed.clone();
    resized["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("200m");
    put("resize", &resized);
    assert_eq!(get(world, "sub")["spec"]["containers"][0]["resources"]["requests"]["cpu"], "200m",);
    let mut debugged = get(world, "sub");
    debugged["metadata"]["annotations"] = changed["metadata"]["annotations"].clone();
    debugged["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    debugged["spec"]["ephemeralContainers"] = json!([{"name": "debug", "image": "none"}]);
    put("ephemeralcontainers", &debugged);
    assert_eq!(get(world, "sub")["spec"]["ephemeralContainers"][0]["name"], "debug");
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": "sub", "namespace": "default",
            "annotations": changed["metadata"]["annotations"]},
    });
    world.may(&["create", "--raw", &format!("{url}/eviction"), "-f", "-"], &eviction);
    assert!(get(world, "sub")["metadata"]["deletionTimestamp"].is_string());
    check("eviction");
    let free = json!([{"op": "remove", "path": "/metadata/finalizers"}]);
    may_patch(world, "sub", &free, &[]);
}

/// The API server copies the annotations of a Binding to the pod.
fn bindings(world: &World) {
    given(world, "to-bind", &Value::Null);
    given(world, "to-bind-too", &Value::Null);
    let binding = |name: &str, annotations: Value| {
        json!({
            "apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "one"},
            "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        })
    };
    for (name, url) in [
        ("to-bind", "/api/v1/namespaces/default/pods/to-bind/binding"),
        ("to-bind-too", "/api/v1/namespaces/default/bindings"),
    ] {
        let create = ["create", "--raw", url, "-f", "-"];
        for key in BOTH {
            for value in [VALUE, "null"] {
                let binding = binding(name, json!({ key: value }));
                let why = format!("a Binding cannot have the annotation {key}");
                world.may_not(&create, &binding, &why);
            }
        }
        world.may(&create, &binding(name, json!({"example.com/key": "bound"})));
        let pod = get(world, name);
        assert_eq!(pod["spec"]["nodeName"], "one");
        assert_eq!(pod["metadata"]["annotations"]["example.com/key"], "bound");
    }
    delete(world, &["to-bind", "to-bind-too"]);
}

/// The value `null` is refused where the webhook is not called, and where it does not answer.
fn never_null(world: &World) {
    let create = ["create", "-f", "-", DRY];
    for key in BOTH {
        let why = format!("the annotation {key} has the value null");
        for value in ["null", " null", "\n\t null\r\n "] {
            let opted_out = pod("null", &json!({ key: value }), &Value::Null);
            let mut asked = opted_out.clone();
            asked["metadata"]["labels"] = json!({});
            let mut of_the_system = asked.clone();
            of_the_system["metadata"]["namespace"] = json!("kube-system");
            for pod in [opted_out, asked, of_the_system] {
                world.may_not(&create, &pod, &why);
            }
        }
        let why = format!("the annotation {key} has preferred selectors without a zone");
        for value in [
            r#"{"preferred":[{"matchLabels":{"a":"b"}}]}"#,
            r#"{"Preferred":[{"matchLabels":{"a":"b"}}],"required":[]}"#,
            r#"{"preferred":[{"matchLabels":{"a":"b"},"zone":"numa"},{"MatchLabels":{"a":"b"}}]}"#,
            r#"{"\u0070referred":[{"matchLabels":{"a":"b"},"zone":"numa"}]}"#,
        ] {
            let opted_out = pod("preferred", &json!({ key: value }), &Value::Null);
            world.may_not(&create, &opted_out, &why);
        }
        let with_zone = r#"{"preferred":[{"matchLabels":{"a":"b"},"zone":"numa"}]}"#;
        let opted_out = pod("preferred", &json!({ key: with_zone }), &Value::Null);
        world.may(&create, &opted_out);
        for value in ["", "{}", "\"null\"", "nullable", "[null]", VALUE] {
            world.may(&create, &pod("value", &json!({ key: value }), &Value::Null));
        }
    }
}

/// All annotations of a pod together have at most 256 KiB: the expressions stay within their limits.
fn long_values(world: &World) {
    let space = " ".repeat(250 * 1024);
    let create = ["create", "-f", "-", DRY];
    for value in [format!("{space}null"), format!("null{space}")] {
        let null = pod("long", &json!({ ANTI_AFFINITY: value }), &Value::Null);
        world.may_not(&create, &null, "has the value null");
    }
    given(world, "long", &json!({ AFFINITY: format!("{VALUE}{space}") }));
    let mut changed = get(world, "long");
    changed["metadata"]["annotations"][AFFINITY] = json!(format!("{space}{VALUE}"));
    for subresource in [&["replace", "-f", "-"][..], &["replace", IN_STATUS, "-f", "-"]] {
        world.may_not(subresource, &changed, &frozen_message(AFFINITY));
    }
    let mut same = get(world, "long");
    same["metadata"]["labels"]["example.com/label"] = json!("x");
    world.may(&["replace", "-f", "-"], &same);
    // Many annotations, too, are frozen. Only up to a thousand are looked at for a warning.
    for (name, number, warned) in [("some", 999, true), ("many", 20_000, false)] {
        let keys = (0..number - 1).map(|number| (format!("k-{number}"), json!("")));
        let mut annotations = Value::Object(keys.collect());
        annotations[AFFINITY] = json!(VALUE);
        given(world, name, &annotations);
        let mut later = get(world, name);
        later["metadata"]["annotations"]["stowplan.dev/future"] = json!("");
        let output = world.kubectl(&["replace", "-f", "-"], &later);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert_eq!(said.contains("stowplan.dev/future: unknown"), warned, "{said}");
        may_not_patch(world, name, &json!([unset(AFFINITY)]), &[], &frozen_message(AFFINITY));
    }
    delete(world, &["long", "some", "many"]);
}

/// The controller's account, which its own policy restricts, and no other one.
fn let_go_by_the_controller(world: &World) {
    let account = format!("--as=system:serviceaccount:{NAMESPACE}:stowplan-controller");
    let gates = json!({"schedulingGates": [{"name": GATE}]});
    for name in ["leader", "member"] {
        world.may(&CREATE, &pod(name, &json!({ AFFINITY: VALUE }), &gates));
    }
    let gate = json!({"op": "remove", "path": "/spec/schedulingGates/0"});
    let let_go = set(LET_GO, "2026-01-02T03:04:05Z");
    let leader = json!([gate, let_go, unset(AFFINITY), set(LEADER_OF, VALUE)]);
    may_not_patch(world, "leader", &leader, &[], &frozen_message(AFFINITY));
    let another = format!("--as=system:serviceaccount:{NAMESPACE}:stowplan");
    let all = "--as-group=system:masters";
    may_not_patch(world, "leader", &leader, &[&another, all], &frozen_message(AFFINITY));
    may_patch(world, "leader", &leader, &[&account]);
    let annotations = json!({LET_GO: "2026-01-02T03:04:05Z", LEADER_OF: VALUE});
    assert_eq!(get(world, "leader")["metadata"]["annotations"], annotations);
    may_patch(world, "member", &json!([gate, let_go]), &[&account]);
    delete(world, &["leader", "member"]);
}

fn labels(world: &World) {
    let nothing = &Value::Null;
    let dedicated = json!({ QOS: "dedicated_cores" });
    let bound = json!({"nodeName": "one"});
    given(world, "waits", &dedicated);
    world.may(&CREATE, &pod("runs", &dedicated, &bound));
    world.may(&CREATE, &pod("shared", &json!({ QOS: "shared_cores" }), &bound));
    world.may(&CREATE, &pod("default", nothing, &bound));
    let label = |name: &str, change: &'static str| -> Vec<String> {
        ["label", "pod", name, change, "--overwrite"].iter().map(|it| (*it).to_owned()).collect()
    };
    // Free before the binding, and on pods whose labels do not count.
    for name in ["waits", "shared", "default"] {
        for change in ["app=b", "app-", "app=a", "example.com/team=b"] {
            let label = label(name, change);
            world.may(&label.iter().map(String::as_str).collect::<Vec<_>>(), nothing);
        }
    }
    world.may(&["label", "pod", "runs", "example.com/undeclared=b"], nothing);
    let why = |key: &str| {
        format!("the label {key} of a dedicated_cores pod with a node cannot be added, changed")
    };
    for (change, key) in [
        ("app=b", "app"),
        ("app-", "app"),
        ("example.com/team=b", "example.com/team"),
        ("example.com/team-", "example.com/team"),
    ] {
        let label = label("runs", change);
        world.may_not(&label.iter().map(String::as_str).collect::<Vec<_>>(), nothing, &why(key));
    }
    let status = json!([{"op": "remove", "path": "/metadata/labels/app"}]);
    may_not_patch(world, "runs", &status, &[IN_STATUS], &why("app"));
    // Neither by making the pod another one in the same write.
    let other = json!([{"op": "remove", "path": "/metadata/labels/app"}, unset(QOS)]);
    may_not_patch(world, "runs", &other, &[], &why("app"));
    // Nor in a write before.
    let counts =
        format!("the annotation {QOS} of a dedicated_cores pod with a node cannot be added");
    may_not_patch(world, "runs", &json!([unset(QOS)]), &[], &counts);
    let memory = "katalyst.kubewharf.io/memory_enhancement";
    let counts =
        format!("the annotation {memory} of a dedicated_cores pod with a node cannot be added");
    let add = json!([{"op": "add", "value": "{}",
        "path": format!("/metadata/annotations/{}", memory.replace('/', "~1"))}]);
    may_not_patch(world, "runs", &add, &[], &counts);
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "one"},
        "metadata": {"name": "waits", "namespace": "default"},
    });
    let url = "/api/v1/namespaces/default/pods/waits/binding";
    world.may(&["create", "--raw", url, "-f", "-"], &binding);
    world.may_not(&["label", "pod", "waits", "app-"], nothing, &why("app"));
    delete(world, &["waits", "shared", "default"]);
}

/// The pod `runs` of [`labels`] is still there.
async fn declared_labels_follow_the_values(world: &World) {
    let app = ["label", "pod", "runs", "app=z", "--overwrite", DRY];
    let team = ["label", "pod", "runs", "example.com/team=z", "--overwrite", DRY];
    let new = ["label", "pod", "runs", "example.com/new=z", DRY];
    let refused = |said: &str| said.contains("cannot be added, changed or removed");
    world.helm(&[r#"policy.katalyst.declaredLabels=["app", "example.com/new"]"#]);
    seen(world, &new, refused).await;
    seen(world, &team, str::is_empty).await;
    seen(world, &app, refused).await;
    world.helm(&[]);
    seen(world, &app, str::is_empty).await;
    seen(world, &new, str::is_empty).await;
    world.helm(&[r#"policy.katalyst.declaredLabels=["app"]"#]);
    seen(world, &app, refused).await;
    delete(world, &["runs"]);
}

fn later_keys(world: &World) {
    given(world, "later", &json!({"stowplan.dev/future": "x"}));
    let warnings = |annotations: &[&str]| {
        let head = ["annotate", "pod", "later", "--overwrite"];
        let arguments: Vec<_> = head.iter().chain(annotations).copied().collect();
        let output = world.kubectl(&arguments, &Value::Null);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{annotations:?}: {said}");
        said
    };
    for (annotation, warning) in [
        (
            "streams.ibm.com/host-affinity-mode=x",
            "streams.ibm.com/host-affinity-mode: unknown key, ignored (a newer release may know \
             it)",
        ),
        ("stowplan.dev/other=x", "stowplan.dev/other: unknown key, ignored"),
        ("mpi.stowplan.dev/other=x", "mpi.stowplan.dev/other: unknown key, ignored"),
        (
            "katalyst.kubewharf.io/microtopology_other=x",
            "katalyst.kubewharf.io/microtopology_other: unknown key, ignored",
        ),
        (
            "streams.ibm.com/host=one",
            "streams.ibm.com/host: stowplan reads it only when a pod is created; create the pod \
             again with it",
        ),
        (
            "stowplan.dev/coschedule-group=g",
            "stowplan.dev/coschedule-group: stowplan reads it only",
        ),
        ("mpi.stowplan.dev/role=worker", "mpi.stowplan.dev/role: stowplan reads it only"),
        (
            "stowplan.dev/ignore=true",
            "stowplan.dev/ignore: is an annotation here and has no effect; make it a label",
        ),
    ] {
        let said = warnings(&[annotation]);
        assert!(said.starts_with("Warning: ") && said.contains(warning), "{annotation}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        // It is there now: a change of its value is no news.
        assert_eq!(warnings(&["example.com/key=x", &annotation.replace('=', "=y")]), "");
    }
    let two = warnings(&["stowplan.dev/one=1", "mpi.stowplan.dev/two=2"]);
    assert!(two.contains("unknown key, ignored, with 1 more (a newer release may know them)"));
    let silent =
        ["stowplan.dev/placement={}", "streams.ibm.com/hostIP=x", "example.com/a=x", LET_GO];
    for annotation in &silent[..3] {
        assert_eq!(warnings(&[annotation]), "");
    }
    assert_eq!(warnings(&[&format!("{}=x", silent[3])]), "");
    delete(world, &["later"]);
}

/// Where stowplan does not concern itself with Katalyst, users may do what they like.
async fn off(world: &World) {
    given(world, "free", &json!({ AFFINITY: VALUE }));
    let annotation = format!("{AFFINITY}={OTHER}");
    let change = ["annotate", "pod", "free", &annotation, "--overwrite", DRY];
    for (off, on) in [
        (r#"policy.katalyst.mode="disabled""#, r#"policy.katalyst.mode="advisory""#),
        ("webhook.numaPolicy.enabled=false", "webhook.numaPolicy.enabled=true"),
    ] {
        world.helm(&[off]);
        seen(world, &change, str::is_empty).await;
        world.helm(&[on]);
        seen(world, &change, |said| said.contains("of a pod that exists cannot be")).await;
    }
    let unknown = ["annotate", "pod", "free", "stowplan.dev/future=x", DRY];
    world.helm(&["webhook.keyPolicy.enabled=false"]);
    seen(world, &unknown, str::is_empty).await;
    delete(world, &["free"]);
}
