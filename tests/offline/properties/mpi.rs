//! Pods of MPI clusters of any shape.

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Map, Value, json};

use super::pod::{object, perhaps};

/// A list of some of these items, or one of the ways in which it may be missing.
fn some(items: Vec<Value>) -> impl Strategy<Value = Option<Value>> {
    let most = items.len();
    perhaps(subsequence(items, 1..=most).prop_map(Value::from), json!([]))
}

fn container(name: &'static str) -> impl Strategy<Value = Value> {
    let variables = vec![
        json!({"name": "FOO", "value": "bar", "futureField": 1}),
        json!({"name": "K_MPI_JOB_ROLE", "value": "worker"}),
        json!({"name": "OMPI_MCA_orte_default_hostfile", "value": "/etc/mpi/hostfile"}),
        json!({"name": "HYDRA_HOST_FILE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}),
    ];
    let mounts = vec![
        json!({"name": "data", "mountPath": "/data", "futureField": {}}),
        json!({"name": "config", "mountPath": "/etc/mpi/"}),
        json!({"name": "data", "mountPath": "/root/.ssh"}),
    ];
    let probe = prop_oneof![
        2 => Just(None),
        1 => Just(Some(Value::Null)),
        1 => Just(Some(json!({"exec": {"command": ["true"]}}))),
    ];
    let context = perhaps(
        select(vec![
            json!({"runAsUser": 0}),
            json!({"runAsUser": 1000, "futureField": true}),
            json!({"runAsNonRoot": true}),
        ]),
        json!({}),
    );
    (
        some(variables),
        some(mounts),
        some(vec![json!("/usr/sbin/sshd"), json!("-De")]),
        some(vec![json!("mpirun")]),
        probe,
        context,
    )
        .prop_map(move |(env, mounts, command, args, probe, context)| {
            object(vec![
                ("name", Some(json!(name))),
                ("image", Some(json!("mpi:1"))),
                ("env", env),
                ("volumeMounts", mounts),
                ("command", command),
                ("args", args),
                ("readinessProbe", probe),
                ("securityContext", context),
                ("futureField", Some(json!([7]))),
            ])
        })
}

fn annotations() -> impl Strategy<Value = Value> {
    let one = |often: f64, values: &[&'static str]| {
        prop::option::weighted(often, select(values.to_vec()))
    };
    (
        one(0.97, &["c", "c", "c", "c", "C", ""]),
        one(0.97, &["worker", "launcher", "worker", "launcher", "server"]),
        one(0.4, &["3", "1", "0"]),
        one(0.4, &["openmpi", "intel", "mpich", "lam"]),
        one(0.4, &["/keys", "/home/mpiuser/.ssh/", "keys"]),
        one(0.2, &["2222", "70000"]),
        one(0.3, &["main", "side", "none"]),
        one(0.2, &["true", "false", "yes"]),
        one(0.2, &["none", "workers", "all"]),
    )
        .prop_map(|(cluster, role, slots, implementation, dir, port, container, both, end)| {
            let named = [
                ("cluster", cluster),
                ("role", role),
                ("slots", slots),
                ("implementation", implementation),
                ("ssh-dir", dir),
                ("ssh-port", port),
                ("container", container),
                ("launcher-as-worker", both),
                ("clean-up", end),
            ];
            let present = named.into_iter().filter_map(|(key, value)| {
                Some((format!("mpi.stowplan.dev/{key}"), Value::from(value?)))
            });
            Value::Object(present.collect::<Map<_, _>>())
        })
}

/// A pod of a cluster, of a StatefulSet, an Indexed Job, another Job or without an owner.
pub(crate) fn mpi_pod() -> impl Strategy<Value = Value> {
    let owner = |version: &str, kind: &str| json!([{"apiVersion": version, "kind": kind, "name": "w", "uid": "u", "controller": true}]);
    let owners = select(vec![
        Some(owner("apps/v1", "StatefulSet")),
        Some(owner("batch/v1", "Job")),
        Some(owner("apps/v1", "ReplicaSet")),
        None,
    ]);
    let volumes = vec![
        json!({"name": "data", "emptyDir": {}, "futureField": 1}),
        json!({"name": "config", "configMap": {"name": "c-mpi", "futureField": []}}),
        json!({"name": "claim", "persistentVolumeClaim": {"claimName": "pvc-1"}}),
    ];
    let dns = perhaps(
        some(vec![json!("corp.example.com"), json!("c.default.svc.cluster.local")]).prop_map(
            |searches| object(vec![("searches", searches), ("futureField", Some(json!(1)))]),
        ),
        json!({}),
    );
    let text = |value: &'static str| perhaps(Just(json!(value)), json!(""));
    (
        (annotations().boxed(), owners, any::<bool>()),
        (container("main").boxed(), container("side").boxed(), any::<bool>()),
        some(vec![json!({"name": "first", "image": "i", "futureField": 1})]),
        some(volumes),
        dns,
        (text("w-0"), text("own")),
        (perhaps(Just(json!(false)), json!(null)), some(vec![json!({"name": "example.com/wait"})])),
    )
        .prop_map(|(metadata, containers, init, volumes, dns, names, rest)| {
            let (mut annotations, owners, indexed) = metadata;
            if indexed {
                annotations["batch.kubernetes.io/job-completion-index"] = json!("0");
            }
            let (main, side, both) = containers;
            let containers = if both { json!([main, side]) } else { json!([main]) };
            let metadata = object(vec![
                ("generateName", Some(json!("w-"))),
                ("annotations", Some(annotations)),
                ("ownerReferences", owners),
            ]);
            let spec = object(vec![
                ("containers", Some(containers)),
                ("initContainers", init),
                ("volumes", volumes),
                ("dnsConfig", dns),
                ("hostname", names.0),
                ("subdomain", names.1),
                ("hostNetwork", rest.0),
                ("schedulingGates", rest.1),
                ("futureField", Some(json!({"a": null}))),
            ]);
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        })
}
