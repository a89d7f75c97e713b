//! Writes to MPI clusters that the admission policies let pass: the objects that are made for them,
//! and the end of their workers.

use serde_json::{Value, json};

use super::policies::{Users, changed};
use super::{User, add, remove};

const OWNERS: &str = "/metadata/ownerReferences";
const MADE_FOR: &str = "/metadata/labels/mpi.stowplan.dev~1made-for";

pub(super) fn clusters(users: &Users<'_>) {
    for (kind, name, role) in [
        ("StatefulSet", "mpi-workers", "worker"),
        ("StatefulSet", "mpi-plain", ""),
        ("StatefulSet", "mpi-launchers", "launcher"),
        ("Job", "mpi-job", "worker"),
        ("Job", "mpi-other", ""),
        ("Job", "mpi-run", "launcher"),
    ] {
        users.admin.may_create(&workload(kind, name, role));
    }
    let owners = [owner(users, "statefulset mpi-workers"), owner(users, "job mpi-run")];
    services(users, &owners);
    config_maps(users, &owners);
    secrets(users);
    suspended(users);
    scaled(users);
    users.admin.may("delete service/c configmap/c-mpi --wait=false");
    users.admin.may("delete statefulset mpi-workers mpi-plain mpi-launchers");
    users.admin.may("delete job mpi-job mpi-other mpi-run");
}

/// A workload whose pods have this role; empty: of no cluster.
fn workload(kind: &str, name: &str, role: &str) -> Value {
    let mut template = json!({
        "metadata": {"labels": {"app": "mpi"}},
        "spec": {"schedulerName": "none", "containers": [{"name": "main", "image": "none"}]},
    });
    if !role.is_empty() {
        template["metadata"]["annotations"] =
            json!({"mpi.stowplan.dev/cluster": "c", "mpi.stowplan.dev/role": role});
    }
    let metadata = json!({"name": name, "namespace": "default"});
    if kind == "Job" {
        template["spec"]["restartPolicy"] = json!("Never");
        let spec = json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2,
            "template": template});
        return json!({"apiVersion": "batch/v1", "kind": kind, "metadata": metadata, "spec": spec});
    }
    let spec = json!({"replicas": 1, "serviceName": "",
        "selector": {"matchLabels": {"app": "mpi"}}, "template": template});
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec})
}

/// An owner reference as the controller writes it. The garbage collector deletes an object whose owners
/// do not exist.
fn owner(users: &Users<'_>, object: &str) -> Value {
    let object = users.admin.get(object);
    json!({"apiVersion": object["apiVersion"], "kind": object["kind"],
        "name": object["metadata"]["name"], "uid": object["metadata"]["uid"]})
}

fn metadata(name: &str, owners: &[Value]) -> Value {
    json!({
        "name": name, "namespace": "default", "ownerReferences": owners,
        "labels": {"mpi.stowplan.dev/made-for": "c", "app.kubernetes.io/managed-by": "stowplan"},
    })
}

/// Requests in the name of the controller that nothing but a policy refuses.
fn with_all_rights<'p>(users: &Users<'p>) -> User<'p> {
    users.controller.with("--as-group=system:masters")
}

/// The messages of the policy for a kind: objects of others, and marks that stowplan does not write.
fn messages(kind: &str) -> [String; 2] {
    [
        format!("the controller writes only {kind} with the label mpi.stowplan.dev/made-for"),
        format!("the controller gives {kind} no labels, annotations and finalizers"),
    ]
}

/// Tries to create what is refused of each of the three kinds; `others` are wrong owners.
fn may_not_create(users: &Users<'_>, kind: &str, document: &Value, others: &[Value], owned: &str) {
    let [named, marked] = messages(kind);
    let (named, marked) = (&*named, &*marked);
    let cases = [
        ("/metadata/namespace", json!("kube-system"), "nothing in this namespace"),
        ("/metadata/name", json!("other"), named),
        (MADE_FOR, json!("other"), named),
        ("/metadata/labels", json!({}), named),
        ("/metadata/labels/a", json!("b"), marked),
        ("/metadata/annotations", json!({"a": "b"}), marked),
        ("/metadata/finalizers", json!(["example.com/hold"]), marked),
    ];
    let others = others.iter().map(|owners| (OWNERS, owners.clone(), owned));
    for (pointer, value, why) in cases.into_iter().chain(others) {
        users.controller.may_not_create(&changed(document.clone(), &[(pointer, value)]), why);
    }
    let mut blocking = document.clone();
    blocking["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = json!(true);
    with_all_rights(users).may_not_create(&blocking, "without blockOwnerDeletion");
}

/// Lists of owners that the Service and the ConfigMap of a cluster, whose owners are workloads, cannot
/// have.
fn no_workloads(owners: &[Value]) -> [Value; 3] {
    let mut deployment = owners[0].clone();
    deployment["kind"] = json!("Deployment");
    let mut another_job = owners[1].clone();
    another_job["apiVersion"] = json!("example.com/v1");
    [json!([]), json!([owners[0], deployment]), json!([another_job])]
}

/// Tries what no change of an object of a cluster may be, and its deletion.
fn may_not_change(users: &Users<'_>, kind: &str, name: &str) {
    let [named, marked] = &messages(kind);
    let object = format!("{kind}/{name}");
    let controller = with_all_rights(users);
    for (operations, why) in [
        (remove(MADE_FOR), named),
        (add(MADE_FOR, &json!("other")), named),
        (add("/metadata/labels/a", &json!("b")), marked),
        (add("/metadata/annotations", &json!({"a": "b"})), marked),
        (add("/metadata/finalizers", &json!(["example.com/hold"])), marked),
    ] {
        controller.may_not_patch(&object, &operations, why);
    }
    let deletes = format!("the controller deletes no {kind}");
    controller.may_not(&format!("delete {object} --wait=false"), &deletes);
}

fn services(users: &Users<'_>, owners: &[Value]) {
    let Users { admin, controller } = users;
    let document = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata("c", &owners[..1]),
        "spec": {
            "clusterIP": "None", "publishNotReadyAddresses": true,
            "selector": {"mpi.stowplan.dev/cluster": "c"},
            "ports": [{"name": "tcp-ssh", "port": 22}],
        },
    });
    let service = |changes: &[(&str, Value)]| changed(document.clone(), changes);
    let owned = "the owners of an MPI cluster's services are Jobs, StatefulSets and Pods";
    may_not_create(users, "services", &document, &no_workloads(owners), owned);
    let headless = "the Service of an MPI cluster is headless, and selects the pods of the cluster";
    let address = ("/spec/clusterIP", Value::Null);
    for changes in [
        &[address.clone()][..],
        &[address.clone(), ("/spec/type", json!("NodePort"))],
        &[address.clone(), ("/spec/type", json!("LoadBalancer"))],
        &[
            address,
            ("/spec/type", json!("ExternalName")),
            ("/spec/externalName", json!("example.com")),
        ],
        &[("/spec/externalIPs", json!(["192.0.2.1"]))],
        &[("/spec/selector", Value::Null)],
        &[("/spec/selector", json!({"mpi.stowplan.dev/cluster": "other"}))],
        &[("/spec/selector/app", json!("web"))],
    ] {
        controller.may_not_create(&service(changes), headless);
    }
    controller.may_create(&document);
    may_not_change(users, "services", "c");
    // A second workload becomes an owner: the right to delete is needed for it.
    controller.may_patch("services/c", &add(OWNERS, &json!(owners)));
    let other = add("/spec/selector", &json!({"mpi.stowplan.dev/cluster": "other"}));
    controller.may_not_patch("services/c", &other, headless);
    admin.may_patch("services/c", &other);
    let repaired = json!([
        {"op": "add", "path": "/spec/selector", "value": {"mpi.stowplan.dev/cluster": "c"}},
        {"op": "add", "path": "/spec/publishNotReadyAddresses", "value": true},
    ]);
    controller.may_patch("services/c", &repaired);

    // One that a user has created.
    let name = ("/metadata/name", json!("web"));
    let labels = ("/metadata/labels", json!({"app": "web"}));
    admin.may_create(&service(&[name, labels, (OWNERS, json!([]))]));
    let owned = json!([
        {"op": "add", "path": "/metadata/labels", "value": {"mpi.stowplan.dev/made-for": "web"}},
        {"op": "add", "path": OWNERS, "value": owners},
        {"op": "add", "path": "/spec/selector", "value": {"mpi.stowplan.dev/cluster": "web"}},
    ]);
    let [named, _] = messages("services");
    controller.may_not_patch("services/web", &owned, &named);
    controller.may_not("delete services/web --wait=false", "the controller deletes no services");
    admin.may("delete services/web --wait=false");
}

fn config_maps(users: &Users<'_>, owners: &[Value]) {
    let Users { controller, .. } = users;
    let mut document = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("c-mpi", &owners[..1]),
        "data": {"hostfile": "mpi-workers-0.c.default.svc slots=1\n"},
    });
    document["metadata"]["annotations"] = json!({"mpi.stowplan.dev/key": "making"});
    let owned = "the owners of an MPI cluster's configmaps are Jobs, StatefulSets and Pods";
    may_not_create(users, "configmaps", &document, &no_workloads(owners), owned);
    // A name of another kind's object, such as the policy's or a CA bundle's.
    let [named, _] = &messages("configmaps");
    let of_another = changed(document.clone(), &[("/metadata/name", json!("c"))]);
    controller.may_not_create(&of_another, named);
    controller.may_create(&document);
    may_not_change(users, "configmaps", "c-mpi");
    for operations in [
        add("/data", &json!({"hostfile": "a slots=2\n", "discover_hosts.sh": "#!/bin/sh\n"})),
        add("/metadata/annotations/mpi.stowplan.dev~1key", &json!("1-2-3")),
        add(OWNERS, &json!(owners)),
    ] {
        controller.may_patch("configmaps/c-mpi", &operations);
    }
    let root = "configmaps/kube-root-ca.crt";
    controller.may_not_patch(root, &add("/data", &json!({"ca.crt": ""})), named);
    let label = json!({"mpi.stowplan.dev/made-for": "kube-root-ca.crt"});
    controller.may_not_patch(root, &add("/metadata/labels", &label), named);
}

fn secrets(users: &Users<'_>) {
    let Users { admin, controller } = users;
    let owner = owner(users, "configmap c-mpi");
    let document = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": metadata("c-ssh", std::slice::from_ref(&owner)),
        "type": "kubernetes.io/ssh-auth", "immutable": true,
        "stringData": {"ssh-privatekey": "trial"},
    });
    let secret = |changes: &[(&str, Value)]| changed(document.clone(), changes);
    let other = |key: &str, value: &str| {
        let mut owner = owner.clone();
        owner[key] = json!(value);
        owner
    };
    let others = [
        json!([]),
        json!([other("kind", "Service")]),
        json!([other("name", "other")]),
        json!([other("apiVersion", "example.com/v1")]),
        json!([owner, other("name", "other")]),
    ];
    let owned = "the ConfigMap of an MPI cluster is the only owner of its Secret";
    may_not_create(users, "secrets", &document, &others, owned);
    let typed = "the Secret of an MPI cluster is immutable, and of the type kubernetes.io/ssh-auth";
    for change in [
        ("/type", json!("Opaque")),
        ("/type", Value::Null),
        ("/immutable", json!(false)),
        ("/immutable", Value::Null),
    ] {
        controller.may_not_create(&secret(&[change]), typed);
    }
    // A token of an account: its annotation names the account.
    let token = secret(&[
        ("/type", json!("kubernetes.io/service-account-token")),
        ("/metadata/annotations", json!({"kubernetes.io/service-account.name": "default"})),
    ]);
    controller.may_not_create(&token, "the controller gives secrets no labels, annotations");

    // The trial before the ConfigMap exists, the trial after it, and the creation.
    let trial = "create -f - --dry-run=server";
    controller.may_with(trial, &secret(&[(OWNERS, json!([]))]));
    controller.may_with(trial, &document);
    let keys = json!({"ssh-privatekey": "private", "ssh-publickey": "public"});
    let made = secret(&[("/stringData", keys)]);
    controller.may_create(&made);
    controller.may_not_with(trial, &made, "already exists");
    // It cannot be read, changed or deleted, and with these rights neither changed nor deleted.
    for command in ["get secret c-ssh", "get secrets", "delete secret c-ssh --wait=false"] {
        controller.may_not(command, "forbidden");
    }
    may_not_change(users, "secrets", "c-ssh");
    admin.may_create(&json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/ssh-auth", "immutable": false,
        "metadata": {"name": "mpi-users", "namespace": "default"},
        "stringData": {"ssh-privatekey": "trial"},
    }));
    let [named, _] = &messages("secrets");
    let data = add("/data", &json!({"ssh-privatekey": "YQ=="}));
    with_all_rights(users).may_not_patch("secrets/mpi-users", &data, named);
    admin.may("delete secret mpi-users --wait=false");
}

/// A patch as the controller writes it after the end of the launcher, with a `further` operation.
fn end(path: &str, value: &Value, further: Option<(&str, Value)>) -> Value {
    let mark = json!({"mpi.stowplan.dev/cleaned-after": "1-2-3"});
    let own = [(path, value.clone()), ("/metadata/annotations", mark)].into_iter();
    own.chain(further)
        .map(|(path, value)| json!({"op": "add", "path": path, "value": value}))
        .collect()
}

fn suspended(users: &Users<'_>) {
    let Users { controller, .. } = users;
    let suspend = |further| end("/spec/suspend", &json!(true), further);
    let of_workers = "the controller changes only the Jobs of workers of MPI clusters";
    let suspends = "the controller suspends a Job, and changes nothing else of it";
    for job in ["job/mpi-other", "job/mpi-run"] {
        controller.may_not_patch(job, &suspend(None), of_workers);
    }
    let job = "job/mpi-job";
    controller.may_not_patch(job, &add("/spec/parallelism", &json!(1)), suspends);
    controller.may_not_patch(job, &end("/spec/suspend", &json!(false), None), suspends);
    for further in [
        ("/spec/parallelism", json!(1)),
        ("/spec/backoffLimit", json!(1)),
        ("/spec/activeDeadlineSeconds", json!(1)),
        ("/spec/ttlSecondsAfterFinished", json!(1)),
        ("/metadata/labels", json!({"a": "b"})),
        ("/metadata/annotations/a", json!("b")),
        ("/metadata/finalizers", json!(["example.com/hold"])),
    ] {
        controller.may_not_patch(job, &suspend(Some(further)), suspends);
    }
    let owned = suspend(Some((OWNERS, json!([owner(users, "job mpi-run")]))));
    with_all_rights(users).may_not_patch(job, &owned, suspends);
    controller.may_patch(job, &suspend(None));
    // The template of a suspended Job can be changed.
    let annotation = ("/spec/template/metadata/annotations/a", json!("b"));
    controller.may_not_patch(job, &suspend(Some(annotation)), suspends);
    controller.may_not("delete job/mpi-job --wait=false", "forbidden");
}

fn scaled(users: &Users<'_>) {
    let Users { controller, .. } = users;
    let scale = |further| end("/spec/replicas", &json!(0), further);
    let only = "the controller changes only StatefulSets with the label stowplan.dev/placeholder \
                or streams.stowplan.dev/scaling, and scales workers of MPI clusters to 0";
    for set in ["statefulset/mpi-plain", "statefulset/mpi-launchers"] {
        controller.may_not_patch(set, &scale(None), only);
    }
    let set = "statefulset/mpi-workers";
    controller.may_not_patch(set, &end("/spec/replicas", &json!(2), None), only);
    controller.may_not(&format!("annotate {set} mpi.stowplan.dev/cleaned-after=x"), only);
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
        (OWNERS, json!([owner(users, "job mpi-run")])),
    ] {
        controller.may_not_patch(set, &scale(Some(further)), only);
    }
    controller.may_patch(set, &scale(None));
    controller.may_not(&format!("delete {set} --wait=false"), only);
}
