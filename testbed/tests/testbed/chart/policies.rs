//! The admission policies that hold the controller's account to stowplan's own marks. Each write is
//! one that its rights allow: the policies refuse those that the controller never makes.

use serde_json::{Value, json};

use super::numa::{AFFINITY, ANTI_AFFINITY, LET_GO};
use super::{CONTROLLER, User, add, mpi, pod, remove, set, unset};

/// The label of a pool on nodes.
const LABEL: &str = "pool.stowplan.node-restriction.kubernetes.io/abcdefabcd";

/// The annotation that the controller writes beside [`LET_GO`].
const LEADER_OF: &str = "katalyst.stowplan.dev/leader-of";
const TIME: &str = "2026-01-02T03:04:05Z";

/// The label of nodes with NUMA zones.
const NUMA_ZONES: &str = "stowplan.dev/numa-zones";

/// Objects as an administrator and requests as the controller.
pub(super) struct Users<'p> {
    pub(super) admin: User<'p>,
    pub(super) controller: User<'p>,
}

pub(super) async fn hold_the_controller_to_its_marks(admin: &User<'_>) {
    let users = Users { admin: admin.clone(), controller: admin.named(CONTROLLER) };
    let label = "label node one a=b --dry-run=server";
    users.controller.until(label, &Value::Null, |said| said.result.is_err()).await;
    nodes(&users);
    pods(&users);
    gated_pods(&users);
    pods_with_numa_affinity(&users);
    pods_that_it_deletes(&users);
    placeholders(&users);
    claims(&users);
    mpi::clusters(&users);
    tolerations(admin);
}

/// The keys of the taint of exclusive pools: the present one, and that of earlier releases.
const TAINTS: [&str; 2] =
    ["status-taint.cluster-autoscaler.kubernetes.io/stowplan-exclusive", "stowplan.dev/exclusive"];

/// The toleration of an exclusive pool cannot be added to a pod that exists; others can.
fn tolerations(admin: &User<'_>) {
    let own = TAINTS.map(|key| json!({"key": key, "operator": "Equal", "value": "abcdefabcd"}));
    admin.may_create(&pod("plain", &Value::Null, &Value::Null));
    admin.may_create(&pod("with", &Value::Null, &json!({"tolerations": own})));
    let toleration = |toleration| add("/spec/tolerations/-", &toleration);
    for name in ["plain", "with"] {
        let other = toleration(json!({"key": "a", "operator": "Exists"}));
        admin.may_patch(&format!("pod/{name}"), &other);
    }
    let all = TAINTS.map(|key| json!({"key": key, "operator": "Exists"}));
    for own in own.into_iter().chain(all) {
        let why = "the toleration of an exclusive pool cannot be added";
        admin.may_not_patch("pod/plain", &toleration(own), why);
    }
    admin.may("delete pod plain with --now");
}

fn nodes(Users { admin, controller }: &Users<'_>) {
    let label = |label: &str| controller.may(&format!("label node one {label}"));
    let may_not_label =
        |label: &str, why| controller.may_not(&format!("label node one {label}"), why);
    let only = "the controller changes only the labels of pools and the label \
                stowplan.dev/numa-zones on nodes";
    may_not_label("a=b", only);
    may_not_label("kubernetes.io/hostname-", only);
    may_not_label("kubernetes.io/hostname=two --overwrite", only);
    label(&format!("{LABEL}=0"));
    label(&format!("{LABEL}=1 --overwrite"));
    label(&format!("{LABEL}-"));
    for zones in ["two", "", "2.0"] {
        let number = "the label stowplan.dev/numa-zones is a number";
        may_not_label(&format!("{NUMA_ZONES}={zones}"), number);
    }
    // Another key with the same beginning is another label.
    may_not_label(&format!("{NUMA_ZONES}-all=2"), only);
    label(&format!("{NUMA_ZONES}=2"));
    label(&format!("{NUMA_ZONES}=4 --overwrite"));
    label(&format!("{NUMA_ZONES}-"));
    // One that a user has set is no obstacle to the others.
    admin.may(&format!("label node one {NUMA_ZONES}=many"));
    label(&format!("{LABEL}=0"));
    label(&format!("{NUMA_ZONES}-"));
    label(&format!("{LABEL}-"));

    let only = "the controller changes only the taints of exclusive pools";
    admin.may("taint node one mine=yes:NoSchedule");
    controller.may_not("taint node one other=yes:NoExecute", only);
    controller.may_not("taint node one mine-", only);
    for taint in TAINTS {
        controller.may_not(&format!("taint node one {taint}=x:NoExecute"), only);
        controller.may(&format!("taint node one {taint}=x:NoSchedule"));
    }
    for taint in TAINTS {
        controller.may(&format!("taint node one {taint}-"));
    }
    admin.may("taint node one mine-");

    let rest = "nothing else of a node";
    // Not by `kubectl cordon`, which ends with 0 also when it was refused.
    controller.may_not_patch("node/one", &add("/spec/unschedulable", &json!(true)), rest);
    controller.may_not("annotate node one a=b", rest);
    let finalizers = add("/metadata/finalizers", &json!(["example.com/hold"]));
    controller.may_not_patch("node/one", &finalizers, rest);
}

fn pods(Users { admin, controller }: &Users<'_>) {
    let plain = pod("plain", &Value::Null, &Value::Null);
    let mut of_the_system = plain.clone();
    of_the_system["metadata"]["namespace"] = json!("kube-system");
    admin.may_create(&plain);
    admin.may_create(&of_the_system);
    controller.may("label pod plain stowplan.dev/wake=2");
    let system = "nothing in this namespace";
    controller.may_not("label pod plain stowplan.dev/wake=2 --namespace=kube-system", system);
    controller.may_not("delete pod plain --namespace=kube-system --wait=false", system);

    let only = "the controller changes only the label stowplan.dev/wake of a pod";
    controller.may_not("label pod plain a=b", only);
    controller.may_not("label pod plain claim.stowplan.dev/data=other", only);
    controller.may("label pod plain claim.stowplan.dev/data=true");
    controller.may_not("label pod plain claim.stowplan.dev/data-", only);
    controller.may_not("label pod plain claim.stowplan.dev/data=other --overwrite", only);
    // The labels of a placeholder's pod are for members of its group alone, and both together.
    let (component, instance) =
        ("app.kubernetes.io/component=affinity-assistant", "app.kubernetes.io/instance");
    controller.may_not(&format!("label pod plain {component} {instance}=p"), only);
    let of_group =
        json!({"stowplan.dev/coschedule-member": "p", "app.kubernetes.io/instance": "x"});
    admin.may_create(&pod("member", &of_group, &Value::Null));
    for labels in [
        component.to_owned(),
        format!("--overwrite {component} {instance}=q"),
        format!("--overwrite app.kubernetes.io/component=other {instance}=p"),
        format!("--overwrite {component} {instance}=p a=b"),
        format!("{component} {instance}-"),
    ] {
        controller.may_not(&format!("label pod member {labels}"), only);
    }
    controller.may(&format!("label pod member --overwrite {component} {instance}=p"));
    admin.may("delete pod member --now");
    // With this label it could delete any pod.
    controller.may_not("label pod plain stowplan.dev/placeholder=x", only);
    let gated = "the controller changes annotations of a pod only where it removes the gate \
                 stowplan.dev/numa-feasible";
    controller.may_not("annotate pod plain a=b", gated);
    controller.may_not(&format!("annotate pod plain {LET_GO}={TIME}"), gated);
    let placeholder = json!({"stowplan.dev/placeholder": "x"});
    admin.may_create(&pod("x-0", &placeholder, &Value::Null));
    for (key, value) in [
        ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),
        ("karpenter.sh/do-not-disrupt", "true"),
    ] {
        controller.may_not(&format!("annotate pod plain {key}={value}"), gated);
        controller.may(&format!("annotate pod x-0 {key}={value}"));
        controller.may_not(&format!("annotate pod x-0 {key}- a=b"), gated);
        controller.may(&format!("annotate pod x-0 {key}-"));
    }
    admin.may("delete pod x-0 --now");
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x"}]);
    for operations in [
        add("/spec/containers/0/image", &json!("other")),
        add("/spec/activeDeadlineSeconds", &json!(1)),
        add("/spec/tolerations/-", &json!({"key": "a", "operator": "Exists"})),
        add("/metadata/finalizers", &json!(["example.com/hold"])),
        add("/metadata/ownerReferences", &owner),
    ] {
        controller.may_not_patch("pod/plain", &operations, "nothing else of a pod");
    }
    admin.may("delete pod plain --now");
    admin.may("delete pod plain --now --namespace=kube-system");
}

/// A requirement of nodes with this selector term.
fn affinity(term: &Value) -> Value {
    let required = json!({"nodeSelectorTerms": [term]});
    let affinity = json!({"requiredDuringSchedulingIgnoredDuringExecution": required});
    json!({"op": "add", "path": "/spec/affinity", "value": {"nodeAffinity": affinity}})
}

/// Removes the scheduling gate with this index.
fn lift(gate: u32) -> Value {
    json!({"op": "remove", "path": format!("/spec/schedulingGates/{gate}")})
}

fn gated_pods(Users { admin, controller }: &Users<'_>) {
    for (name, gates) in [
        ("both", &["example.com/gate", "stowplan.dev/placeholder"][..]),
        ("other", &["example.com/gate"]),
        ("launcher", &["stowplan.dev/mpi-workers", "example.com/gate"]),
    ] {
        let gates: Value = gates.iter().map(|name| json!({"name": name})).collect();
        admin.may_create(&pod(name, &Value::Null, &json!({"schedulingGates": gates})));
    }
    let fields = json!([{"key": "metadata.name", "operator": "In", "values": ["one"]}]);
    let affinity = affinity(&json!({"matchFields": fields}));
    let only = "the controller removes only the gate stowplan.dev/placeholder";
    let adds = "the controller adds node terms only to a pod whose gate stowplan.dev/placeholder";
    for (name, operations, why) in [
        ("both", json!([lift(0)]), only),
        ("other", json!([lift(0)]), only),
        ("both", json!([affinity]), adds),
        ("other", json!([affinity]), adds),
        ("both", add("/spec/nodeSelector", &json!({"a": "b"})), "nothing else of a pod"),
        ("launcher", json!([lift(1)]), only),
        ("launcher", json!([affinity, lift(0)]), adds),
    ] {
        controller.may_not_patch(&format!("pod/{name}"), &operations, why);
    }
    controller.may_patch("pod/both", &json!([affinity, lift(1)]));
    controller.may_patch("pod/launcher", &json!([lift(0)]));
    admin.may("delete pod both other launcher --now");
}

/// Pods that wait for NUMA zones: their gate, and the annotations that change with it.
fn pods_with_numa_affinity(Users { admin, controller }: &Users<'_>) {
    let given = |name: &str, annotations: &Value| {
        let gates = json!({"schedulingGates": [{"name": "example.com/gate"},
            {"name": "stowplan.dev/numa-feasible"}]});
        let mut pod = pod(name, &json!({"stowplan.dev/ignore": "true"}), &gates);
        pod["metadata"]["annotations"] = annotations.clone();
        admin.may_create(&pod);
    };
    given("leader", &json!({AFFINITY: "value", ANTI_AFFINITY: "anti", "example.com/key": "x"}));
    given("member", &json!({AFFINITY: "value", LET_GO: "forged", LEADER_OF: "forged"}));
    given("plain", &Value::Null);
    given("narrow", &Value::Null);
    let keys = (0..1000).map(|number| (format!("k-{number}"), json!("")));
    given("many", &Value::Object(keys.collect()));
    let lift = lift(1);
    let leads = [unset(AFFINITY), set(LEADER_OF, "value")];
    let let_go = set(LET_GO, TIME);
    let with = |operations: &[&Value]| json!([&[&lift], operations].concat());
    let other_gate = json!([self::lift(0)]);
    controller.may_not_patch("pod/leader", &other_gate, "the controller removes only the gate");
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
        controller.may_not_patch("pod/leader", &operations, gated);
    }
    let annotations = &add("/metadata/annotations", &json!({LET_GO: TIME}))[0];
    // What a user has written beforehand is overwritten, or stays.
    controller.may_not_patch("pod/member", &with(&[&unset(LET_GO)]), gated);
    controller.may_not_patch("pod/member", &with(&[&set(LEADER_OF, "x")]), gated);
    controller.may_not_patch("pod/plain", &json!([annotations]), gated);
    controller.may_not_patch("pod/many", &with(&[&let_go]), gated);
    let expressions =
        json!([{"key": "kubernetes.io/hostname", "operator": "In", "values": ["one"]}]);
    let affinity = affinity(&json!({"matchExpressions": expressions}));
    let adds = "the controller adds node terms only to a pod whose gate";
    controller.may_not_patch("pod/narrow", &json!([affinity]), adds);
    for (name, operations) in [
        ("leader", with(&[&leads[0], &leads[1], &let_go])),
        ("member", with(&[&set(LET_GO, "2026-01-02T03:04:05.1+01:00")])),
        ("plain", with(&[annotations])),
        ("many", with(&[])),
        ("narrow", json!([affinity, lift])),
    ] {
        controller.may_patch(&format!("pod/{name}"), &operations);
    }
    admin.may("delete pod leader member plain many narrow --now");
}

fn pods_that_it_deletes(Users { admin, controller }: &Users<'_>) {
    let on_node = json!({"nodeName": "one"});
    let label = json!({"stowplan.dev/placeholder": "affinity-assistant-0123456789"});
    admin.may_create(&pod("bound", &Value::Null, &on_node));
    admin.may_create(&pod("waits", &Value::Null, &Value::Null));
    admin.may_create(&pod("placeholder", &label, &on_node));
    let only = "the controller deletes only pods of placeholders and pods without a node";
    controller.may_not("delete pod bound --wait=false", only);
    controller.may("delete pod waits placeholder --wait=false");
    admin.may("delete pod bound --now");
}

/// A StatefulSet as the controller creates it, except for `changes`: pointers and values.
fn placeholder(changes: &[(&str, Value)]) -> Value {
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
pub(super) fn changed(mut document: Value, changes: &[(&str, Value)]) -> Value {
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

fn placeholders(Users { admin, controller }: &Users<'_>) {
    let mark = "the controller changes only StatefulSets with the label stowplan.dev/placeholder";
    let runs = "placeholders and scaling pods run only stowplan's own pause";
    let other = json!({"name": "b", "image": "stowplan:0.1.0"});
    let exec = json!({"exec": {"command": ["sh"]}});
    for (pointer, value, why) in [
        ("/metadata/labels/stowplan.dev~1placeholder", json!("other"), mark),
        ("/metadata/name", json!("web"), mark),
        ("/metadata/namespace", json!("kube-system"), "nothing in this namespace"),
        ("/spec/replicas", json!(2), runs),
    ] {
        controller.may_not_create(&placeholder(&[(pointer, value)]), why);
    }
    for (pointer, value) in [
        ("containers/0/image", json!("other:1")),
        ("containers/0/command", json!(["sh"])),
        ("containers/0/args", json!(["controller"])),
        ("containers/0/lifecycle", json!({"postStart": exec})),
        ("containers/0/livenessProbe", exec),
        ("containers/0/securityContext", json!({"privileged": true})),
        ("containers/-", other.clone()),
        ("initContainers", json!([other])),
        ("volumes/-", json!({"name": "host", "hostPath": {"path": "/"}})),
        ("volumes/-", json!({"name": "s", "secret": {"secretName": "x"}})),
        ("hostNetwork", json!(true)),
        ("hostPID", json!(true)),
        ("hostIPC", json!(true)),
        ("automountServiceAccountToken", json!(true)),
        ("nodeName", json!("one")),
    ] {
        let pointer = format!("/spec/template/spec/{pointer}");
        controller.may_not_create(&placeholder(&[(&pointer, value)]), runs);
    }
    controller.may_create(&placeholder(&[]));
    let name = "statefulset/affinity-assistant-abcdefabcd";
    controller.may(&format!("annotate {name} stowplan.dev/idle-since=1"));
    let volumes = json!([{"name": "w", "persistentVolumeClaim": {"claimName": "d"}}]);
    controller.may_patch(name, &add("/spec/template/spec/volumes", &volumes));
    let image = add("/spec/template/spec/containers/0/image", &json!("other:1"));
    controller.may_not_patch(name, &image, runs);
    let label = remove("/metadata/labels/stowplan.dev~1placeholder");
    controller.may_not_patch(name, &label, mark);

    // The pods that ask an autoscaler for nodes.
    let scaling = "stowplan-scaling-abcdefabcd";
    let label = "/metadata/labels/streams.stowplan.dev~1scaling";
    let set = |changes: &[(&str, Value)]| {
        let own = [
            ("/metadata/name", json!(scaling)),
            ("/metadata/labels", json!({"streams.stowplan.dev/scaling": scaling})),
            ("/spec/replicas", json!(3)),
        ];
        placeholder(&[&own, changes].concat())
    };
    controller.may_not_create(&set(&[(label, json!("other"))]), mark);
    controller.may_not_create(&set(&[("/metadata/name", json!("web"))]), mark);
    let command = "/spec/template/spec/containers/0/command";
    controller.may_not_create(&set(&[(command, json!(["sh"]))]), runs);
    controller.may_create(&set(&[]));
    let scaling = format!("statefulset/{scaling}");
    controller.may_patch(&scaling, &add("/spec/replicas", &json!(4)));
    controller.may_not_patch(&scaling, &remove(label), mark);
    controller.may(&format!("delete {scaling} --wait=false"));

    // One that a user has created.
    let mut own = placeholder(&[("/metadata/name", json!("web")), ("/metadata/labels", json!({}))]);
    own["spec"]["template"]["metadata"]["labels"]["stowplan.dev/placeholder"] = Value::Null;
    admin.may_create(&own);
    controller.may_not("annotate statefulset/web a=b", mark);
    let label = add("/metadata/labels", &json!({"stowplan.dev/placeholder": "web"}));
    controller.may_not_patch("statefulset/web", &label, mark);
    controller.may_not("delete statefulset/web --wait=false", mark);
    controller.may(&format!("delete {name} --wait=false"));
    admin.may("delete statefulset web");
}

fn claims(Users { admin, controller }: &Users<'_>) {
    let run =
        json!([{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "r", "uid": "r"}]);
    let label = json!({"stowplan.dev/placeholder": "affinity-assistant-abcdefabcd"});
    for (name, labels, owners) in [
        // The garbage collector does not know the kind of the run, so its claim stays.
        ("of-a-run", Value::Null, run),
        ("of-a-placeholder", label, Value::Null),
        ("users", Value::Null, Value::Null),
    ] {
        admin.may_create(&json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default", "labels": labels,
                "ownerReferences": owners, "finalizers": ["example.com/hold"]},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "none",
                "resources": {"requests": {"storage": "1Gi"}}},
        }));
    }
    // A bound pod keeps the finalizer of its claims.
    let volume = |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
    let volumes = [volume("of-a-run"), volume("of-a-placeholder")];
    let rest = json!({"nodeName": "one", "volumes": volumes});
    admin.may_create(&pod("mounts", &Value::Null, &rest));
    let mark = "the controller changes only claims of placeholders and of PipelineRuns";
    let only = "the controller removes only the finalizer kubernetes.io/pvc-protection";
    // The API server adds its own finalizer behind the first.
    let protection = remove("/metadata/finalizers/1");
    controller.may_not("delete pvc users --wait=false", mark);
    controller.may_not_patch("pvc/users", &protection, mark);
    controller.may_not_patch("pvc/of-a-run", &protection, only);
    admin.may("delete pvc users --wait=false");
    for (object, label) in [
        ("pvc/of-a-run", add("/metadata/labels", &json!({"a": "b"}))),
        ("pvc/of-a-placeholder", add("/metadata/labels/a", &json!("b"))),
    ] {
        controller.may(&format!("delete {object} --wait=false"));
        controller.may_not_patch(object, &remove("/metadata/finalizers/0"), only);
        controller.may_not_patch(object, &label, only);
        controller.may_patch(object, &protection);
    }
    admin.may("delete pod mounts --now");
    for name in ["of-a-run", "of-a-placeholder", "users"] {
        admin.may_patch(&format!("pvc/{name}"), &remove("/metadata/finalizers"));
    }
}
