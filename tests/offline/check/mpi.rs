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

/// Nodes n1, n2 and n3 with a worker each, which has this status.
fn spread(names: [&str; 3], status: &Value) -> Vec<Value> {
    let workers = names.into_iter().enumerate().map(|(number, name)| {
        let mut worker = worker(number as u32, status);
        worker["metadata"]["name"] = json!(name);
        worker["spec"]["nodeName"] = json!(format!("n{}", number + 1));
        worker
    });
    [node("n2"), node("n3")].into_iter().chain(workers).collect()
}

#[test]
fn workers_that_lack_the_same_share_a_block() {
    let mut found = Findings::default();
    let ended = container("main", &json!({"terminated": {"exitCode": 255}}));
    let keys = container("stowplan-mpi-keys", &json!({"terminated": {"exitCode": 0}}));
    let status =
        json!({"phase": "Running", "initContainerStatuses": keys, "containerStatuses": ended});
    let objects = cluster(spread(["w-0", "w-1", "w-2"], &status), &[]);
    found.show("all have ended, without records", &objects, "mpi/pi");
    let objects = cluster(spread(["n1", "n2", "w-2"], &status), &RECORDS);
    found.show("pods that are named like their nodes", &objects, "mpi/pi");
    let many = (0..7).map(|index| worker(index, &status)).collect();
    let mut objects = cluster(many, &[]);
    objects[1]["spec"]["replicas"] = json!(7);
    found.show("more than are listed", &objects, "mpi/pi");
    found.compare("mpi_blocks");
}

const RECORDS: [&str; 3] = ["w-0", "w-1", "w-2"];

#[test]
fn each_worker_that_cannot_be_reached_says_why() {
    let mut found = Findings::default();
    let workers: Vec<Value> = (0..3).map(|index| worker(index, &ready())).collect();
    let keys = |state: Value| container("stowplan-mpi-keys", &state);
    let pending = |state| json!({"phase": "Pending", "initContainerStatuses": keys(state)});
    let main = |state: Value| {
        let copied = keys(json!({"terminated": {"exitCode": 0}}));
        json!({"phase": "Running", "initContainerStatuses": copied,
            "containerStatuses": container("main", &state)})
    };
    let no_shell = json!({"reason": "CreateContainerError", "message": "no shell"});
    for (label, status) in [
        ("no container has started", json!({"phase": "Pending"})),
        ("no keys", pending(json!({"terminated": {"exitCode": 1, "message": "no such file"}}))),
        ("no shell", pending(json!({"waiting": no_shell}))),
        ("not Ready", main(json!({"running": {}}))),
        ("ended", main(json!({"terminated": {"exitCode": 255}}))),
        ("no image", main(json!({"waiting": {"reason": "ImagePullBackOff"}}))),
    ] {
        let workers = [&workers[..2], &[worker(2, &status)]].concat();
        found.add(label, &cluster(workers, &RECORDS), "mpi/pi");
    }

    found.add("all are Ready", &cluster(workers.clone(), &RECORDS), "mpi/pi");
    found.add("no DNS record", &cluster(workers.clone(), &RECORDS[..2]), "mpi/pi");
    found.add("no pod", &cluster(workers[..2].to_vec(), &RECORDS), "mpi/pi");
    // Created while the webhook was unavailable, with the Secret mounted by hand.
    let mut all = workers.clone();
    all[2]["metadata"]["labels"] = json!({});
    all[2]["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "keys", "mountPath": "/root/.ssh"}]);
    all[2]["spec"]["volumes"] = json!([{"name": "keys", "secret": {"secretName": "pi-ssh"}}]);
    found.add("admitted without stowplan", &cluster(all, &RECORDS), "mpi/pi");
    let mut none = cluster(Vec::new(), &[]);
    none[1]["spec"]["replicas"] = json!(0);
    found.add("scaled to 0", &none, "mpi/pi");
    let waiting = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled",
        "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available"}]});
    let request = json!({"resources": {"requests": {"cpu": "3"}}, "name": "main"});
    let waiting =
        with(worker(2, &waiting), &json!({"spec": {"nodeName": null, "containers": [request]}}));
    let mut full = cluster([&workers[..2], &[waiting]].concat(), &RECORDS);
    full[0]["status"]["allocatable"] = json!({"cpu": "2", "memory": "8Gi", "pods": "9"});
    found.add("a worker without room", &full, "mpi/pi");
    let mut suspended = cluster(workers.clone(), &RECORDS);
    suspended[2]["spec"]["suspend"] = json!(true);
    found.add("the launcher is suspended", &suspended, "mpi/pi");
    // What clean-up leaves, before and after the launcher is created again.
    let job =
        json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3, "suspend": true});
    let mut stopped = cluster(Vec::new(), &[]);
    stopped[1] = workload("batch/v1", "Job", "w", "worker", &job);
    found.add("the workers' Job is suspended", &stopped, "mpi/pi");
    let ended = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    stopped[2]["status"] = ended.clone();
    found.add("the workers' Job is suspended after the end", &stopped, "mpi/pi");
    let mut stopped = cluster(Vec::new(), &[]);
    stopped[1]["spec"]["replicas"] = json!(0);
    stopped[2]["status"] = ended;
    found.add("scaled to 0 after the end", &stopped, "mpi/pi");
    let mut elsewhere = cluster(workers.clone(), &[]);
    elsewhere[1]["spec"]["serviceName"] = json!("ring");
    found.add("the names are in another Service", &elsewhere, "mpi/pi");
    let mut objects = cluster(workers, &RECORDS);
    objects.retain(|object| object["kind"] != "StatefulSet");
    found.add("no workload", &objects, "mpi/pi");
    found.compare("mpi");
}
