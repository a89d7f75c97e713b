//! The admission policies for all users: the annotations of NUMA affinity stay as a pod was created
//! with them, labels that NUMA affinity counts stay once the pod has a node, and a key that is added
//! later gets a warning. Nothing of stowplan runs: the webhook is unavailable.

use serde_json::{Value, json};

use super::{User, helm, set, start, unset};

pub(super) const AFFINITY: &str = "katalyst.kubewharf.io/microtopology_affinity";
pub(super) const ANTI_AFFINITY: &str = "katalyst.kubewharf.io/microtopology_antiaffinity";
const BOTH: [&str; 2] = [AFFINITY, ANTI_AFFINITY];
pub(super) const LET_GO: &str = "katalyst.stowplan.dev/let-go";
const QOS: &str = "katalyst.kubewharf.io/qos_level";

const VALUE: &str = r#"{"required":[{"matchLabels":{"app":"a"},"zone":"numa"}]}"#;
const OTHER: &str = r#"{"required":[{"matchLabels":{"app":"b"},"zone":"numa"}]}"#;

const DRY_CREATE: &str = "create -f - --dry-run=server";
const IN_STATUS: &str = "--subresource=status";
const FROZEN: &str = "of a pod that exists cannot be";

#[tokio::test(flavor = "multi_thread")]
async fn numa_affinity_stays_as_pods_were_created_with_it() {
    let plane = start().await;
    let admin = User { plane: &plane, further: Vec::new() };
    let before = pods_from_before(&admin);
    helm(&plane, &[r#"policy.katalyst.declaredLabels=["example.com/team", "app"]"#]);
    enforced(&admin).await;

    before_the_policy(&admin, &before);
    frozen(&admin);
    other_subresources(&admin);
    bindings(&admin);
    never_null(&admin);
    long_values(&admin);
    labels(&admin);
    later_keys(&admin);
    plane.stop().await;
}

/// A pod that no scheduler binds and no webhook is asked about.
fn pod(name: &str, annotations: &Value, rest: &Value) -> Value {
    let labels = json!({"stowplan.dev/ignore": "true", "app": "a", "example.com/team": "a"});
    let mut pod = super::pod(name, &labels, rest);
    pod["metadata"]["annotations"] = annotations.clone();
    pod
}

fn bound() -> Value {
    json!({"nodeName": "one"})
}

/// Creates a pod without a node and with these annotations.
fn given(admin: &User<'_>, name: &str, annotations: &Value) {
    admin.may_create(&pod(name, annotations, &Value::Null));
}

fn get(admin: &User<'_>, name: &str) -> Value {
    admin.get(&format!("pod/{name}"))
}

/// The pod as it is, to be written by somebody who has not seen what kwok writes meanwhile.
fn get_unversioned(admin: &User<'_>, name: &str) -> Value {
    let mut pod = get(admin, name);
    pod["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    pod
}

fn frozen_message(key: &str) -> String {
    format!("the annotation {key} of a pod that exists cannot be added, changed or removed")
}

/// Pods as they can be without stowplan's policies.
fn pods_from_before(admin: &User<'_>) -> [String; 3] {
    let long = format!("{}{}", " ".repeat(200 * 1024), VALUE);
    [("null", "null"), ("long", &*long), ("canonical", VALUE)].map(|(name, value)| {
        let name = format!("before-{name}");
        let annotations = json!({ AFFINITY: value, QOS: "dedicated_cores" });
        admin.may_create(&pod(&name, &annotations, &bound()));
        name
    })
}

/// Waits until each of the policies refuses, or warns of, what it is there for.
async fn enforced(admin: &User<'_>) {
    admin.may_create(&pod("trial", &json!({ QOS: "dedicated_cores" }), &bound()));
    for (command, sign) in [
        (&*format!("annotate pod trial {AFFINITY}={VALUE}"), FROZEN),
        ("label pod trial app-", "cannot be added, changed or removed"),
        ("annotate pod trial stowplan.dev/future=x", "unknown key"),
    ] {
        let trial = format!("{command} --overwrite --dry-run=server");
        admin.until(&trial, &Value::Null, |said| said.warnings.contains(sign)).await;
    }
    admin.may("delete pod trial --now");
}

/// Kubelets write the complete metadata with the status: that must pass for any pod.
fn before_the_policy(admin: &User<'_>, names: &[String]) {
    let kubelet = admin.named("system:node:one").with("--as-group=system:nodes");
    for name in names {
        let mut pod = get_unversioned(admin, name);
        pod["status"]["message"] = json!("as a kubelet writes it");
        kubelet.may_with(&format!("replace {IN_STATUS} -f -"), &pod);
        assert_eq!(get(admin, name)["metadata"]["annotations"], pod["metadata"]["annotations"]);
        admin.may(&format!("annotate pod {name} example.com/key=x"));
        let object = format!("pod/{name}");
        admin.may_not_patch(&object, &json!([unset(AFFINITY)]), &frozen_message(AFFINITY));
        let status = format!("{object} {IN_STATUS}");
        admin.may_not_patch(&status, &json!([set(AFFINITY, OTHER)]), &frozen_message(AFFINITY));
    }
    admin.may(&format!("delete pod --now {}", names.join(" ")));
}

fn frozen(admin: &User<'_>) {
    let both = json!({ AFFINITY: VALUE, ANTI_AFFINITY: OTHER });
    given(admin, "without", &json!({"example.com/key": "a"}));
    given(admin, "with", &both);
    admin.may_create(&pod("bound", &both, &bound()));
    for key in BOTH {
        let why = &frozen_message(key);
        for further in ["", IN_STATUS] {
            for value in [VALUE, "null", ""] {
                let object = format!("pod/without {further}");
                admin.may_not_patch(&object, &json!([set(key, value)]), why);
            }
            for object in [format!("pod/with {further}"), format!("pod/bound {further}")] {
                for operation in [set(key, "{}"), set(key, "null"), set(key, ""), unset(key)] {
                    admin.may_not_patch(&object, &json!([operation]), why);
                }
                let all = json!([{"op": "remove", "path": "/metadata/annotations"}]);
                admin.may_not_patch(&object, &all, FROZEN);
            }
        }
    }
    // Server-side apply, and an update of the complete object.
    let apply = "apply --server-side --force-conflicts -f -";
    let changed = pod("with", &json!({ AFFINITY: OTHER }), &Value::Null);
    admin.may_not_with(apply, &changed, &frozen_message(AFFINITY));
    let mut changed = get(admin, "with");
    changed["metadata"]["annotations"][ANTI_AFFINITY] = json!("{}");
    admin.may_not_with("replace -f -", &changed, &frozen_message(ANTI_AFFINITY));
    // What is no part of it.
    admin.may("annotate pod with without bound example.com/key=b --overwrite");
    admin.may("label pod with without bound example.com/label=b");
    let mut same = pod("with", &json!({ AFFINITY: VALUE }), &Value::Null);
    same["metadata"]["labels"]["example.com/label"] = json!("c");
    admin.may_with(apply, &same);
    admin.may("delete pod bound with without --now");
}

/// The other subresources of a pod write no metadata, so no policy has to see them.
fn other_subresources(admin: &User<'_>) {
    let annotations = json!({ AFFINITY: VALUE });
    // Without a node: kubelets of simulated nodes resize no pods.
    let mut kept = pod("sub", &annotations, &Value::Null);
    kept["metadata"]["finalizers"] = json!(["example.com/hold"]);
    admin.may_create(&kept);
    let mut changed = get_unversioned(admin, "sub");
    changed["metadata"]["annotations"] = json!({ AFFINITY: "null", ANTI_AFFINITY: "null" });
    changed["spec"]["ephemeralContainers"] = json!([]);
    let mut debugged = changed.clone();
    debugged["spec"]["ephemeralContainers"] = json!([{"name": "debug", "image": "none"}]);
    let mut evicted = json!({"apiVersion": "policy/v1", "kind": "Eviction"});
    evicted["metadata"] = json!({"name": "sub", "namespace": "default", "annotations": changed["metadata"]["annotations"]});
    for (command, subresource, object) in [
        ("replace", "resize", changed),
        ("replace", "ephemeralcontainers", debugged),
        ("create", "eviction", evicted),
    ] {
        let url = format!("/api/v1/namespaces/default/pods/sub/{subresource}");
        admin.may_with(&format!("{command} --raw {url} -f -"), &object);
        assert_eq!(get(admin, "sub")["metadata"]["annotations"], annotations, "{subresource}");
    }
    let pod = get(admin, "sub");
    assert_eq!(pod["spec"]["ephemeralContainers"][0]["name"], "debug");
    assert!(pod["metadata"]["deletionTimestamp"].is_string());
    admin.may_patch("pod/sub", &super::remove("/metadata/finalizers"));
}

fn binding(name: &str, annotations: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "one"},
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
    })
}

/// The API server copies the annotations of a Binding to the pod.
fn bindings(admin: &User<'_>) {
    for (name, url) in [("to-bind", "pods/to-bind/binding"), ("to-bind-too", "bindings")] {
        given(admin, name, &Value::Null);
        let create = format!("create --raw /api/v1/namespaces/default/{url} -f -");
        for key in BOTH {
            for value in [VALUE, "null"] {
                let why = format!("a Binding cannot have the annotation {key}");
                admin.may_not_with(&create, &binding(name, &json!({ key: value })), &why);
            }
        }
        admin.may_with(&create, &binding(name, &json!({"example.com/key": "bound"})));
        let pod = get(admin, name);
        assert_eq!(pod["spec"]["nodeName"], "one");
        assert_eq!(pod["metadata"]["annotations"]["example.com/key"], "bound");
    }
    admin.may("delete pod to-bind to-bind-too --now");
}

/// The value `null` is refused where the webhook is not called, and where it does not answer.
fn never_null(admin: &User<'_>) {
    for key in BOTH {
        let of = |value: &str| pod("value", &json!({ key: value }), &Value::Null);
        let why = format!("the annotation {key} has the value null");
        for value in ["null", " null", "\n\t null\r\n "] {
            let opted_out = of(value);
            let mut asked = opted_out.clone();
            asked["metadata"]["labels"] = json!({});
            let mut of_the_system = asked.clone();
            of_the_system["metadata"]["namespace"] = json!("kube-system");
            for pod in [opted_out, asked, of_the_system] {
                admin.may_not_with(DRY_CREATE, &pod, &why);
            }
        }
        let why = format!("the annotation {key} has preferred selectors without a zone");
        for value in [
            r#"{"preferred":[{"matchLabels":{"a":"b"}}]}"#,
            r#"{"Preferred":[{"matchLabels":{"a":"b"}}],"required":[]}"#,
            r#"{"preferred":[{"matchLabels":{"a":"b"},"zone":"numa"},{"MatchLabels":{"a":"b"}}]}"#,
            r#"{"\u0070referred":[{"matchLabels":{"a":"b"},"zone":"numa"}]}"#,
        ] {
            admin.may_not_with(DRY_CREATE, &of(value), &why);
        }
        let with_zone = r#"{"preferred":[{"matchLabels":{"a":"b"},"zone":"numa"}]}"#;
        for value in [with_zone, "", "{}", "\"null\"", "nullable", "[null]", VALUE] {
            admin.may_with(DRY_CREATE, &of(value));
        }
    }
}

/// All annotations of a pod together have at most 256 KiB: the expressions stay within their limits.
fn long_values(admin: &User<'_>) {
    let space = " ".repeat(250 * 1024);
    for value in [format!("{space}null"), format!("null{space}")] {
        let null = pod("long", &json!({ ANTI_AFFINITY: value }), &Value::Null);
        admin.may_not_with(DRY_CREATE, &null, "has the value null");
    }
    given(admin, "long", &json!({ AFFINITY: format!("{VALUE}{space}") }));
    let mut changed = get(admin, "long");
    changed["metadata"]["annotations"][AFFINITY] = json!(format!("{space}{VALUE}"));
    for further in ["", IN_STATUS] {
        let replace = format!("replace {further} -f -");
        admin.may_not_with(&replace, &changed, &frozen_message(AFFINITY));
    }
    let mut same = get(admin, "long");
    same["metadata"]["labels"]["example.com/label"] = json!("x");
    admin.may_with("replace -f -", &same);
    // Many annotations, too, are frozen. Only up to a thousand are looked at for a warning.
    for (name, number, warned) in [("some", 999, true), ("many", 20_000, false)] {
        let keys = (0..number - 1).map(|number| (format!("k-{number}"), json!("")));
        let mut annotations = Value::Object(keys.collect());
        annotations[AFFINITY] = json!(VALUE);
        given(admin, name, &annotations);
        let mut later = get(admin, name);
        later["metadata"]["annotations"]["stowplan.dev/future"] = json!("");
        let said = admin.kubectl("replace -f -", &later);
        assert!(said.result.is_ok(), "{}", said.warnings);
        let has_warning = said.warnings.contains("stowplan.dev/future: unknown");
        assert_eq!(has_warning, warned, "{}", said.warnings);
        let object = format!("pod/{name}");
        admin.may_not_patch(&object, &json!([unset(AFFINITY)]), &frozen_message(AFFINITY));
    }
    admin.may("delete pod long some many --now");
}

fn labels(admin: &User<'_>) {
    let dedicated = json!({ QOS: "dedicated_cores" });
    given(admin, "waits", &dedicated);
    admin.may_create(&pod("runs", &dedicated, &bound()));
    admin.may_create(&pod("shared", &json!({ QOS: "shared_cores" }), &bound()));
    admin.may_create(&pod("default", &Value::Null, &bound()));
    // Free before the binding, and on pods whose labels do not count.
    for change in ["app=b", "app-", "app=a", "example.com/team=b"] {
        admin.may(&format!("label pod waits shared default {change} --overwrite"));
    }
    admin.may("label pod runs example.com/undeclared=b");
    let why = |key: &str| {
        format!("the label {key} of a dedicated_cores pod with a node cannot be added, changed")
    };
    for key in ["app", "example.com/team"] {
        for change in [format!("{key}=b"), format!("{key}-")] {
            admin.may_not(&format!("label pod runs {change} --overwrite"), &why(key));
        }
    }
    let unlabel = json!({"op": "remove", "path": "/metadata/labels/app"});
    admin.may_not_patch(&format!("pod/runs {IN_STATUS}"), &json!([unlabel]), &why("app"));
    // Neither by making the pod another one in the same write.
    admin.may_not_patch("pod/runs", &json!([unlabel, unset(QOS)]), &why("app"));
    // Nor in a write before.
    let memory = "katalyst.kubewharf.io/memory_enhancement";
    for (key, operation) in [(QOS, unset(QOS)), (memory, set(memory, "{}"))] {
        let counts =
            format!("the annotation {key} of a dedicated_cores pod with a node cannot be added");
        admin.may_not_patch("pod/runs", &json!([operation]), &counts);
    }
    let create = "create --raw /api/v1/namespaces/default/pods/waits/binding -f -";
    admin.may_with(create, &binding("waits", &Value::Null));
    admin.may_not("label pod waits app-", &why("app"));
    admin.may("delete pod runs waits shared default --now");
}

fn later_keys(admin: &User<'_>) {
    given(admin, "later", &json!({"stowplan.dev/future": "x"}));
    let warnings = |annotations: &str| {
        let command = format!("annotate pod later --overwrite {annotations}");
        let said = admin.kubectl(&command, &Value::Null);
        assert!(said.result.is_ok(), "{annotations}: {}", said.warnings);
        said.warnings
    };
    for (key, warning) in [
        (
            "streams.ibm.com/host-affinity-mode",
            "unknown key, ignored (a newer release may know it)",
        ),
        ("stowplan.dev/other", "unknown key, ignored"),
        ("mpi.stowplan.dev/other", "unknown key, ignored"),
        ("katalyst.kubewharf.io/microtopology_other", "unknown key, ignored"),
        (
            "streams.ibm.com/host",
            "stowplan reads it only when a pod is created; create the pod again with it",
        ),
        ("stowplan.dev/coschedule-group", "stowplan reads it only"),
        ("mpi.stowplan.dev/role", "stowplan reads it only"),
        ("stowplan.dev/ignore", "is an annotation here and has no effect; make it a label"),
    ] {
        let said = warnings(&format!("{key}=x"));
        let is_warning = said.starts_with("Warning: ") && said.lines().count() == 1;
        assert!(is_warning && said.contains(&format!("{key}: {warning}")), "{said}");
        // It is there now: a change of its value is news only if its value means something.
        let said = warnings(&format!("example.com/key=x {key}=y"));
        let is_known = warning.starts_with("stowplan reads it only");
        assert_eq!(said.contains(&format!("{key}: {warning}")), is_known, "{said}");
        assert_eq!(said.is_empty(), !is_known, "{said}");
        assert_eq!(warnings(&format!("example.com/key=z {key}=y")), "");
    }
    let two = warnings("stowplan.dev/one=1 mpi.stowplan.dev/two=2");
    assert!(two.contains("unknown key, ignored, with 1 more (a newer release may know them)"));
    for key in ["stowplan.dev/placement", "streams.ibm.com/hostIP", "example.com/a", LET_GO] {
        assert_eq!(warnings(&format!("{key}=x")), "");
    }
    admin.may("delete pod later --now");
}
