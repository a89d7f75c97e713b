//! What the admission policies let pass of MPI clusters: the objects that are made for them, and the end
//! of their workers.

use serde_json::{Value, json};

use super::{Controller, World, add, changed, remove};

const CREATE: [&str; 3] = ["create", "-f", "-"];

/// Nothing is missing but the right policy: requests with all rights, in the name of the controller.
const WITH_ALL_RIGHTS: &str = "--as-group=system:masters";

const MADE_FOR: &str = "/metadata/labels/mpi.stowplan.dev~1made-for";

pub(super) fn clusters(controller: &Controller<'_>) {
    let workers = template("worker");
    let sets = [
        ("mpi-workers", &workers),
        ("mpi-plain", &template("")),
        ("mpi-launchers", &template("launcher")),
    ];
    for (name, template) in sets {
        controller.given(&stateful_set(name, template));
    }
    for (name, template) in
        [("mpi-job", &workers), ("mpi-other", &template("")), ("mpi-run", &template("launcher"))]
    {
        controller.given(&job(name, template));
    }
    let owner = |kind: &str, name: &str| owner(controller.world, kind, name);
    let owners = [owner("statefulset", "mpi-workers"), owner("job", "mpi-run")];
    services(controller, &owners);
    config_maps(controller, &owners);
    secrets(controller);
    suspended(controller);
    scaled(controller);
    let nothing = &Value::Null;
    let world = controller.world;
    world.may(&["delete", "service/c", "configmap/c-mpi", "--wait=false"], nothing);
    world.may(&["delete", "statefulset", "mpi-workers", "mpi-plain", "mpi-launchers"], nothing);
    world.may(&["delete", "job", "mpi-job", "mpi-other", "mpi-run"], nothing);
}

/// The template of pods with this role; empty: of no cluster.
fn template(role: &str) -> Value {
    let annotations = match role {
        "" => json!({}),
        _ => json!({"mpi.stowplan.dev/cluster": "c", "mpi.stowplan.dev/role": role}),
    };
    json!({
        "metadata": {"labels": {"app": "mpi"}, "annotations": annotations},
        "spec": {"schedulerName": "none", "containers": [{"name": "main", "image": "none"}]},
    })
}

fn stateful_set(name: &str, template: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": 1, "serviceName": "", "selector": {"matchLabels": {"app": "mpi"}},
            "template": template},
    })
}

fn job(name: &str, template: &Value) -> Value {
    let mut template = template.clone();
    template["spec"]["restartPolicy"] = json!("Never");
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"completionMode": "Indexed", "completions": 2, "parallelism": 2,
            "template": template},
    })
}

/// An owner reference as the controller writes it. The garbage collector deletes an object whose owners
/// do not exist.
fn owner(world: &World, kind: &str, name: &str) -> Value {
    let object = world.may(&["get", kind, name, "-o", "json"], &Value::Null);
    let object: Value = serde_json::from_str(&object).unwrap();
    json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "name": name,
        "uid": object["metadata"]["uid"]})
}

fn metadata(name: &str, owners: &[Value]) -> Value {
    json!({
        "name": name, "namespace": "default", "ownerReferences": owners,
        "labels": {"mpi.stowplan.dev/made-for": "c", "app.kubernetes.io/managed-by": "stowplan"},
    })
}

/// What is refused of each of the three kinds: changes of the document, and the message.
fn strangers(kind: &str) -> Vec<(&'static str, Value, String)> {
    let named =
        format!("the controller writes only {kind} with the label mpi.stowplan.dev/made-for");
    let marked = format!("the controller gives {kind} no labels, annotations and finalizers");
    vec![
        ("/metadata/namespace", json!("kube-system"), "nothing in this namespace".to_owned()),
        ("/metadata/name", json!("other"), named.clone()),
        (MADE_FOR, json!("other"), named.clone()),
        ("/metadata/labels", json!({}), named),
        ("/metadata/labels/a", json!("b"), marked.clone()),
        ("/metadata/annotations", json!({"a": "b"}), marked.clone()),
        ("/metadata/finalizers", json!(["example.com/hold"]), marked),
    ]
}

/// What is refused of the Service and the ConfigMap of a cluster, whose owners are workloads.
fn others_as_owners(kind: &str, owners: &[Value]) -> Vec<(&'static str, Value, String)> {
    let owned = format!("the owners of an MPI cluster's {kind} are Jobs, StatefulSets and Pods");
    let mut deployment = owners[0].clone();
    deployment["kind"] = json!("Deployment");
    let mut another_job = owners[1].clone();
    another_job["apiVersion"] = json!("example.com/v1");
    let path = "/metadata/ownerReferences";
    vec![
        (path, json!([]), owned.clone()),
        (path, json!([owners[0], deployment]), owned.clone()),
        (path, json!([another_job]), owned),
    ]
}

/// Tries what no change of an object of a cluster may be, and its deletion.
fn may_not_change(controller: &Controller<'_>, kind: &str, name: &str) {
    let named = format!("the controller writes only {kind} with the label");
    let marked = format!("the controller gives {kind} no labels, annotations and finalizers");
    let object = format!("{kind}/{name}");
    for (operations, why) in [
        (remove(MADE_FOR), &named),
        (add(MADE_FOR, &json!("other")), &named),
        (add("/metadata/labels/a", &json!("b")), &marked),
        (add("/metadata/annotations", &json!({"a": "b"})), &marked),
        (add("/metadata/finalizers", &json!(["example.com/hold"])), &marked),
    ] {
        may_never_patch(controller, &object, &operations, why);
    }
    let deletes = format!("the controller deletes no {kind}");
    may_never(controller, &["delete", &object, "--wait=false"], &Value::Null, &deletes);
}

/// A request that all rights do not let pass.
fn may_never(controller: &Controller<'_>, arguments: &[&str], input: &Value, why: &str) {
    let arguments: Vec<_> = arguments.iter().copied().chain([WITH_ALL_RIGHTS]).collect();
    controller.may_not(&arguments, input, why);
}

fn may_never_patch(controller: &Controller<'_>, object: &str, operations: &Value, why: &str) {
    let operations = format!("--patch={operations}");
    may_never(controller, &Controller::patch("default", object, &operations), &Value::Null, why);
}

fn blocking(owners: &[Value]) -> Value {
    let mut owner = owners[0].clone();
    owner["blockOwnerDeletion"] = json!(true);
    json!([owner])
}

fn services(controller: &Controller<'_>, owners: &[Value]) {
    let service = |changes: &[(&str, Value)]| {
        let document = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata("c", &owners[..1]),
            "spec": {
                "clusterIP": "None", "publishNotReadyAddresses": true,
                "selector": {"mpi.stowplan.dev/cluster": "c"},
                "ports": [{"name": "tcp-ssh", "port": 22}],
            },
        });
        changed(document, changes)
    };
    for (pointer, value, why) in strangers("services") {
        controller.may_not(&CREATE, &service(&[(pointer, value)]), &why);
    }
    for (pointer, value, why) in others_as_owners("services", owners) {
        controller.may_not(&CREATE, &service(&[(pointer, value)]), &why);
    }
    let blocked = service(&[("/metadata/ownerReferences", blocking(owners))]);
    may_never(controller, &CREATE, &blocked, "without blockOwnerDeletion");
    let headless = "the Service of an MPI cluster is headless, and selects the pods of the cluster";
    for changes in [
        &[("/spec/clusterIP", Value::Null)][..],
        &[("/spec/clusterIP", Value::Null), ("/spec/type", json!("NodePort"))],
        &[("/spec/clusterIP", Value::Null), ("/spec/type", json!("LoadBalancer"))],
        &[
            ("/spec/clusterIP", Value::Null),
            ("/spec/type", json!("ExternalName")),
            ("/spec/externalName", json!("example.com")),
        ],
        &[("/spec/externalIPs", json!(["192.0.2.1"]))],
        &[("/spec/selector", Value::Null)],
        &[("/spec/selector", json!({"mpi.stowplan.dev/cluster": "other"}))],
        &[("/spec/selector/app", json!("web"))],
    ] {
        controller.may_not(&CREATE, &service(changes), headless);
    }
    controller.may(&CREATE, &service(&[]));
    may_not_change(controller, "services", "c");
    // A second workload becomes an owner: the right to delete is needed for it.
    let object = "services/c";
    controller.may_patch("default", object, &add("/metadata/ownerReferences", &json!(owners)));
    let selector = json!({"mpi.stowplan.dev/cluster": "other"});
    let operations = add("/spec/selector", &selector);
    controller.may_not_patch("default", object, &operations, headless);
    let operations = format!("--patch={operations}");
    controller.world.may(&Controller::patch("default", object, &operations), &Value::Null);
    let repaired = json!([
        {"op": "add", "path": "/spec/selector", "value": {"mpi.stowplan.dev/cluster": "c"}},
        {"op": "add", "path": "/spec/publishNotReadyAddresses", "value": true},
    ]);
    controller.may_patch("default", object, &repaired);

    // One that a user has created.
    let name = ("/metadata/name", json!("web"));
    let labels = ("/metadata/labels", json!({"app": "web"}));
    let users = service(&[name, labels, ("/metadata/ownerReferences", json!([]))]);
    controller.given(&users);
    let named = "the controller writes only services with the label";
    let owned = json!([
        {"op": "add", "path": "/metadata/labels", "value": {"mpi.stowplan.dev/made-for": "web"}},
        {"op": "add", "path": "/metadata/ownerReferences", "value": owners},
        {"op": "add", "path": "/spec/selector", "value": {"mpi.stowplan.dev/cluster": "web"}},
    ]);
    controller.may_not_patch("default", "services/web", &owned, named);
    controller.may_not(
        &["delete", "services/web", "--wait=false"],
        &Value::Null,
        "the controller deletes no services",
    );
    controller.world.may(&["delete", "services/web", "--wait=false"], &Value::Null);
}

fn config_maps(controller: &Controller<'_>, owners: &[Value]) {
    let map = |changes: &[(&str, Value)]| {
        let mut metadata = metadata("c-mpi", &owners[..1]);
        metadata["annotations"] = json!({"mpi.stowplan.dev/key": "making"});
        let document = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
            "data": {"hostfile": "mpi-workers-0.c.default.svc slots=1\n"},
        });
        changed(document, changes)
    };
    for (pointer, value, why) in strangers("configmaps") {
        controller.may_not(&CREATE, &map(&[(pointer, value)]), &why);
    }
    for (pointer, value, why) in others_as_owners("configmaps", owners) {
        controller.may_not(&CREATE, &map(&[(pointer, value)]), &why);
    }
    let blocked = map(&[("/metadata/ownerReferences", blocking(owners))]);
    may_never(controller, &CREATE, &blocked, "without blockOwnerDeletion");
    // A name of another kind's object, such as the policy's or a CA bundle's.
    let named = "the controller writes only configmaps with the label";
    let of_another = map(&[("/metadata/name", json!("c"))]);
    controller.may_not(&CREATE, &of_another, named);
    controller.may(&CREATE, &map(&[]));
    may_not_change(controller, "configmaps", "c-mpi");
    for operations in [
        add("/data", &json!({"hostfile": "a slots=2\n", "discover_hosts.sh": "#!/bin/sh\n"})),
        add("/metadata/annotations/mpi.stowplan.dev~1key", &json!("1-2-3")),
        add("/metadata/ownerReferences", &json!(owners)),
    ] {
        controller.may_patch("default", "configmaps/c-mpi", &operations);
    }
    let root = "configmaps/kube-root-ca.crt";
    let data = add("/data", &json!({"ca.crt": ""}));
    controller.may_not_patch("default", root, &data, named);
    let label = add("/metadata/labels", &json!({"mpi.stowplan.dev/made-for": "kube-root-ca.crt"}));
    controller.may_not_patch("default", root, &label, named);
}

fn secrets(controller: &Controller<'_>) {
    let owners = [owner(controller.world, "configmap", "c-mpi")];
    let secret = |changes: &[(&str, Value)]| {
        let document = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": metadata("c-ssh", &owners),
            "type": "kubernetes.io/ssh-auth", "immutable": true,
            "stringData": {"ssh-privatekey": "trial"},
        });
        changed(document, changes)
    };
    for (pointer, value, why) in strangers("secrets") {
        controller.may_not(&CREATE, &secret(&[(pointer, value)]), &why);
    }
    let owned = "the ConfigMap of an MPI cluster is the only owner of its Secret";
    let path = "/metadata/ownerReferences";
    let other = |key: &str, value: &str| {
        let mut owner = owners[0].clone();
        owner[key] = json!(value);
        owner
    };
    for owners in [
        json!([]),
        json!([other("kind", "Service")]),
        json!([other("name", "other")]),
        json!([other("apiVersion", "example.com/v1")]),
        json!([owners[0], other("name", "other")]),
    ] {
        controller.may_not(&CREATE, &secret(&[(path, owners)]), owned);
    }
    let blocked = secret(&[(path, blocking(&owners))]);
    may_never(controller, &CREATE, &blocked, "without blockOwnerDeletion");
    let typed = "the Secret of an MPI cluster is immutable, and of the type kubernetes.io/ssh-auth";
    for change in [
        ("/type", json!("Opaque")),
        ("/type", Value::Null),
        ("/immutable", json!(false)),
        ("/immutable", Value::Null),
    ] {
        controller.may_not(&CREATE, &secret(&[change]), typed);
    }
    // A token of an account: its annotation names the account.
    let token = secret(&[
        ("/type", json!("kubernetes.io/service-account-token")),
        ("/metadata/annotations", json!({"kubernetes.io/service-account.name": "default"})),
    ]);
    controller.may_not(&CREATE, &token, "the controller gives secrets no labels, annotations");

    // The trial before the ConfigMap exists, the trial after it, and the creation.
    let trial = ["create", "-f", "-", "--dry-run=server"];
    controller.may(&trial, &secret(&[(path, json!([]))]));
    controller.may(&trial, &secret(&[]));
    let keys = json!({"ssh-privatekey": "private", "ssh-publickey": "public"});
    let made = secret(&[("/stringData", keys)]);
    controller.may(&CREATE, &made);
    controller.may_not(&trial, &made, "already exists");
    // It cannot be read, changed or deleted, and with these rights neither changed nor deleted.
    for arguments in [
        &["get", "secret", "c-ssh"][..],
        &["get", "secrets"],
        &["delete", "secret", "c-ssh", "--wait=false"],
    ] {
        controller.may_not(arguments, &Value::Null, "forbidden");
    }
    may_not_change(controller, "secrets", "c-ssh");
    let users = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/ssh-auth", "immutable": false,
        "metadata": {"name": "mpi-users", "namespace": "default"},
        "stringData": {"ssh-privatekey": "trial"},
    });
    controller.given(&users);
    let named = "the controller writes only secrets with the label";
    let data = add("/data", &json!({"ssh-privatekey": "YQ=="}));
    may_never_patch(controller, "secrets/mpi-users", &data, named);
    controller.world.may(&["delete", "secret", "mpi-users", "--wait=false"], &Value::Null);
}

/// A patch as the controller writes it after the end of the launcher, with `further` operations.
fn end(path: &str, value: &Value, further: &[(&str, Value)]) -> Value {
    let mark = json!({"mpi.stowplan.dev/cleaned-after": "1-2-3"});
    let mut operations = json!([
        {"op": "add", "path": path, "value": value},
        {"op": "add", "path": "/metadata/annotations", "value": mark},
    ]);
    let further = further.iter();
    let further = further.map(|(path, value)| json!({"op": "add", "path": path, "value": value}));
    operations.as_array_mut().unwrap().extend(further);
    operations
}

fn suspended(controller: &Controller<'_>) {
    let suspend = |further: &[(&str, Value)]| end("/spec/suspend", &json!(true), further);
    let of_workers = "the controller changes only the Jobs of workers of MPI clusters";
    let suspends = "the controller suspends a Job, and changes nothing else of it";
    for job in ["job/mpi-other", "job/mpi-run"] {
        controller.may_not_patch("default", job, &suspend(&[]), of_workers);
    }
    let job = "job/mpi-job";
    controller.may_not_patch("default", job, &add("/spec/parallelism", &json!(1)), suspends);
    let resumed = end("/spec/suspend", &json!(false), &[]);
    controller.may_not_patch("default", job, &resumed, suspends);
    for further in [
        ("/spec/parallelism", json!(1)),
        ("/spec/backoffLimit", json!(1)),
        ("/spec/activeDeadlineSeconds", json!(1)),
        ("/spec/ttlSecondsAfterFinished", json!(1)),
        ("/metadata/labels", json!({"a": "b"})),
        ("/metadata/annotations/a", json!("b")),
        ("/metadata/finalizers", json!(["example.com/hold"])),
    ] {
        controller.may_not_patch("default", job, &suspend(&[further]), suspends);
    }
    let owners = json!([owner(controller.world, "job", "mpi-run")]);
    let owned = suspend(&[("/metadata/ownerReferences", owners)]);
    may_never_patch(controller, job, &owned, suspends);
    controller.may_patch("default", job, &suspend(&[]));
    // The template of a suspended Job can be changed.
    let image = ("/spec/template/metadata/annotations/a", json!("b"));
    controller.may_not_patch("default", job, &suspend(&[image]), suspends);
    controller.may_not(&["delete", job, "--wait=false"], &Value::Null, "forbidden");
}

fn scaled(controller: &Controller<'_>) {
    let scale = |further: &[(&str, Value)]| end("/spec/replicas", &json!(0), further);
    let only = "the controller changes only StatefulSets with the label stowplan.dev/placeholder, \
                and scales workers of MPI clusters to 0";
    for set in ["statefulset/mpi-plain", "statefulset/mpi-launchers"] {
        controller.may_not_patch("default", set, &scale(&[]), only);
    }
    let set = "statefulset/mpi-workers";
    let more = end("/spec/replicas", &json!(2), &[]);
    controller.may_not_patch("default", set, &more, only);
    controller.may_not(&["annotate", set, "mpi.stowplan.dev/cleaned-after=x"], &Value::Null, only);
    for further in [
        ("/spec/template/spec/containers/0/image", json!("other")),
        ("/spec/minReadySeconds", json!(1)),
        ("/spec/persistentVolumeClaimRetentionPolicy/whenScaled", json!("Delete")),
        ("/spec/updateStrategy", json!({"type": "OnDelete"})),
        ("/spec/ordinals", json!({"start": 1})),
        ("/spec/revisionHistoryLimit", json!(1)),
        ("/metadata/labels", json!({"a": "b"})),
        ("/metadata/annotations/a", json!("b")),
        ("/metadata/finalizers", json!(["example.com/hold"])),
        ("/metadata/ownerReferences", json!([owner(controller.world, "job", "mpi-run")])),
    ] {
        controller.may_not_patch("default", set, &scale(&[further]), only);
    }
    controller.may_patch("default", set, &scale(&[]));
    controller.may_not(&["delete", set, "--wait=false"], &Value::Null, only);
}
