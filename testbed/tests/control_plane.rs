//! The library, as the tests of stowplan use it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::fs;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;
use testbed::control_plane::{ControlPlane, NodeSpec, Options};
use testbed::workload;

async fn create_pod(client: &Client, namespace: &str, name: &str, node_selector: &str) {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "containers": [{"name": "main", "image": "none"}],
            "nodeSelector": {"disk": node_selector},
        },
    }))
    .unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    pods.create(&PostParams::default(), &pod).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_placed_on_the_nodes_that_were_asked_for() {
    let plane = ControlPlane::start(Options {
        nodes: vec![
            NodeSpec::new("plain"),
            NodeSpec::new("fast").label("disk", "ssd").without_hostname_label(),
            NodeSpec::new("held").label("disk", "held").taint("held", "yes", "NoSchedule"),
        ],
        ..Options::default()
    })
    .await
    .unwrap();
    let client = plane.client().await.unwrap();
    workload::namespace(&client, "one").await.unwrap();
    create_pod(&client, "one", "a", "ssd").await;
    create_pod(&client, "one", "b", "held").await;
    create_pod(&client, "one", "c", "late").await;
    assert_eq!(workload::scheduled(&client, "one", "a").await.unwrap(), "fast");
    let why = workload::unschedulable(&client, "one", "b").await.unwrap();
    assert!(why.contains("untolerated taint"), "{why}");
    let error = workload::unschedulable(&client, "one", "a").await.unwrap_err();
    assert!(format!("{error:#}").contains("it was placed on fast"), "{error:#}");

    workload::unschedulable(&client, "one", "c").await.unwrap();
    plane.add_node(&NodeSpec::new("late").label("disk", "late")).await.unwrap();
    assert_eq!(workload::scheduled(&client, "one", "c").await.unwrap(), "late");

    let dir = plane.dir().to_owned();
    plane.stop().await;
    assert!(!dir.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_fails_keeps_its_logs_and_says_where() {
    let nodes = vec![NodeSpec::new("Not_A_Name")];
    let error = ControlPlane::start(Options { nodes, ..Options::default() }).await.unwrap_err();
    let text = format!("{error:#}");
    assert!(text.contains("cannot create node Not_A_Name"), "{text}");
    let logs = text.split_once("its logs are in ").unwrap().1.split_once(": ").unwrap().0;
    let logs = PathBuf::from(logs);
    assert!(logs.join("etcd.log").is_file());
    assert_eq!(fs::read_to_string(logs.with_file_name("pids")).unwrap(), "");
    fs::remove_dir_all(logs.parent().unwrap()).unwrap();
}
