//! MPI clusters: what each worker lacks.

use serde_json::{Value, json};

use super::objects::*;

fn workload(version: &str, kind: &str, name: &str, role: &str, rest: &Value) -> Value {
    let annotations = json!({"mpi.stowplan.dev/cluster": "pi", "mpi.stowplan.dev/role": role});
    let object = json!({
        "apiVersion": version, "kind": kind,
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"template": {
            "metadata": {"annotations": annotations},
            "spec": {"containers": [{"name": "main", "securityContext": {"runAsUser": 0}}]},
        }},
    });
    with(object, &json!({"spec": rest}))
}

/// A launcher that waits and three workers, of which `workers` exist.
fn cluster(workers: Vec<Value>, records: &[&str]) -> Vec<Value> {
    let endpoints: Vec<Value> =
        records.iter().map(|name| json!({"addresses": ["10.0.0.1"], "hostname": name})).collect();
    let spec = json!({"selector": {}, "serviceName": "pi", "replicas": 3});
    let mut objects = vec![
        node("n1"),
        workload("apps/v1", "StatefulSet", "w", "worker", &spec),
        workload("batch/v1", "Job", "l", "launcher", &json!({})),
        json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "pi", "namespace": "default",
                "labels": {"mpi.stowplan.dev/made-for": "pi"}},
            "spec": {"selector": {"mpi.stowplan.dev/cluster": "pi"}}}),
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "pi-1", "namespace": "default",
                "labels": {"kubernetes.io/service-name": "pi"}},
            "endpoints": endpoints}),
    ];
    objects.extend(workers);
    objects
}

/// Worker `index` on node n1, with this status.
fn worker(index: u32, status: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("w-{index}"), "namespace": "default", "uid": format!("w-{index}"),
            "labels": {"mpi.stowplan.dev/cluster": "pi", "mpi.stowplan.dev/role": "worker"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "w",
                "uid": "w", "controller": true}],
        },
        "spec": {"nodeName": "n1", "hostname": format!("w-{index}"),
            "containers": [{"name": "main"}]},
        "status": status,
    })
}

fn container(name: &str, state: &Value) -> Value {
    json!([{"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state}])
}

fn ready() -> Value {
    json!({
        "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": container("main", &json!({"running": {}})),
    })
}

const RECORDS: [&str; 3] = ["w-0", "w-1", "w-2"];

#[test]
fn each_worker_that_cannot_be_reached_says_why() {
    let keys = |state: Value| container("stowplan-mpi-keys", &state);
    let pending = |state| json!({"phase": "Pending", "initContainerStatuses": keys(state)});
    let main = |state: Value| {
        let copied = keys(json!({"terminated": {"exitCode": 0}}));
        json!({"phase": "Running", "initContainerStatuses": copied,
            "containerStatuses": container("main", &state)})
    };
    let failed = json!({"terminated": {"exitCode": 1, "message": "no such file"}});
    let no_shell = json!({"waiting": {"reason": "CreateContainerError", "message": "no shell"}});
    for (status, expected) in [
        (
            json!({"phase": "Pending"}),
            "no container of it has started; it needs Secret pi-ssh and ConfigMap pi-mpi -> kubectl describe pod w-2 -n default;…",
        ),
        (
            pending(failed),
            "the keys could not be copied: exit code 1 no such file -> kubectl logs w-2 -n default -c stowplan-mpi-keys…",
        ),
        (pending(no_shell), "its keys are not copied yet: no shell ->…"),
        (
            main(json!({"running": {}})),
            "it is not Ready: the ssh server must listen on port 22 -> kubectl logs w-2 -n default -c main…",
        ),
        (
            main(json!({"terminated": {"exitCode": 255}})),
            "container main has ended with exit code 255 ->…",
        ),
        (
            main(json!({"waiting": {"reason": "ImagePullBackOff"}})),
            "container main waits: ImagePullBackOff ->…",
        ),
    ] {
        let workers = vec![worker(0, &ready()), worker(1, &ready()), worker(2, &status)];
        obstacles(&cluster(workers, &RECORDS), "mpi/pi").is(expected);
    }
}

#[test]
fn names_pods_and_keys_that_are_missing_are_reported() {
    let workers: Vec<Value> = (0..3).map(|index| worker(index, &ready())).collect();
    let found = |workers: &[Value], records: &[&str]| {
        obstacles(&cluster(workers.to_vec(), records), "mpi/pi")
    };
    found(&workers, &RECORDS).are(&[]);
    found(&workers, &RECORDS[..2])
        .is("its name w-2 has no DNS record in Service pi -> kubectl get endpointslices…");
    found(&workers[..2], &RECORDS)
        .is("there is no such pod -> kubectl describe statefulsets/w -n default");

    // Created while the webhook was unavailable, with the Secret mounted by hand.
    let mut all = workers.clone();
    all[2]["metadata"]["labels"] = json!({});
    all[2]["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "keys", "mountPath": "/root/.ssh"}]);
    all[2]["spec"]["volumes"] = json!([{"name": "keys", "secret": {"secretName": "pi-ssh"}}]);
    found(&all, &RECORDS).are(&[
        "it was created without stowplan's webhook, so it has no keys of the cluster ->…",
        "it mounts a Secret at /root/.ssh: the directory of a Secret is writable by all users…",
    ]);

    let mut objects = cluster(workers, &RECORDS);
    objects.retain(|object| object["kind"] != "StatefulSet");
    obstacles(&objects, "mpi/pi").is("no workload of the namespace makes its workers ->…");
}
