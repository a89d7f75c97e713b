//! The library, as the tests of stowplan use it.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use futures::TryStreamExt as _;
use hyper::Method;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client, Config};
use serde_json::json;
use testbed::control_plane::{ControlPlane, NodeSpec, Options};
use testbed::proxy::{Call, Fault};
use testbed::tekton::DURATION;
use testbed::wait::{Seen, until};
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
    let _one = crate::CONTROL_PLANE.lock().await;
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

    pods_of_jobs_run_for_their_duration(&client).await;

    let dir = plane.dir().to_owned();
    plane.stop().await;
    assert!(!dir.exists());
}

/// Without the annotation kwok ends the pod of a Job as soon as it runs.
async fn pods_of_jobs_run_for_their_duration(client: &Client) {
    let jobs: Api<Job> = Api::namespaced(client.clone(), "one");
    for (name, duration) in [("hour", Some("1h")), ("second", Some("1s")), ("none", None)] {
        let annotations = duration.map(|duration| json!({DURATION: duration}));
        let job = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"template": {
                "metadata": {"annotations": annotations},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "main", "image": "none"}],
                    "nodeSelector": {"disk": "ssd"},
                },
            }},
        }))
        .unwrap();
        jobs.create(&PostParams::default(), &job).await.unwrap();
    }
    for name in ["second", "none"] {
        until(&format!("job {name} to succeed"), Duration::from_secs(60), async || {
            let status = jobs.get(name).await?.status.unwrap_or_default();
            Ok(match status.succeeded {
                Some(1) => Seen::Done(()),
                _ => Seen::NotYet(format!("{status:?}")),
            })
        })
        .await
        .unwrap();
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), "one");
    let selector = ListParams::default().labels("batch.kubernetes.io/job-name=hour");
    until("the pod of an hour to run", Duration::from_secs(60), async || {
        let phases: Vec<_> =
            pods.list(&selector).await?.into_iter().filter_map(|pod| pod.status?.phase).collect();
        Ok(match phases == ["Running"] {
            true => Seen::Done(()),
            false => Seen::NotYet(format!("{phases:?}")),
        })
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_fails_keeps_its_logs_and_says_where() {
    let _one = crate::CONTROL_PLANE.lock().await;
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

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_changed_as_an_administrator_does_and_a_proxy_stands_before_all_of_it() {
    let _one = crate::CONTROL_PLANE.lock().await;
    let spec = NodeSpec::new("one").taint("own", "yes", "NoSchedule");
    let plane = ControlPlane::start(Options { nodes: vec![spec.clone()], ..Options::default() })
        .await
        .unwrap();
    upkeep(&plane, &spec).await;
    proxied(&plane).await;
    plane.stop().await;
}

async fn upkeep(plane: &ControlPlane, spec: &NodeSpec) {
    let keys = async || {
        let taints = plane.node_taints("one").await.unwrap();
        taints.into_iter().map(|taint| taint.key).collect::<BTreeSet<_>>()
    };
    plane.taint("one", "mine", "1", "NoSchedule").await.unwrap();
    assert_eq!(keys().await, BTreeSet::from(["own".to_owned(), "mine".to_owned()]));
    let error = plane.taint("one", "mine", "2", "NoSchedule").await.unwrap_err();
    assert!(error.to_string().starts_with("kubectl taint node one mine=2:NoSchedule: "), "{error}");
    plane.untaint("one", "mine").await.unwrap();
    assert_eq!(keys().await, BTreeSet::from(["own".to_owned()]));
    assert!(plane.untaint("one", "mine").await.is_err());

    plane.cordon("one").await.unwrap();
    let unschedulable = async || plane.node("one").await.unwrap().spec.unwrap().unschedulable;
    assert_eq!(unschedulable().await, Some(true));
    plane.uncordon("one").await.unwrap();
    assert_eq!(unschedulable().await, None);

    plane.label("one", "disk", Some("ssd")).await.unwrap();
    plane.label("one", "disk", Some("nvme")).await.unwrap();
    assert_eq!(plane.node_labels("one").await.unwrap()["disk"], "nvme");
    plane.label("one", "disk", None).await.unwrap();
    assert!(!plane.node_labels("one").await.unwrap().contains_key("disk"));

    let before = plane.node("one").await.unwrap().metadata.uid;
    plane.replace_node(spec).await.unwrap();
    let after = plane.node("one").await.unwrap().metadata.uid;
    assert_ne!(before, after);
    plane.delete_node("one").await.unwrap();
    assert!(plane.node("one").await.is_err() && plane.delete_node("one").await.is_err());
    plane.add_node(spec).await.unwrap();
}

/// The token of an account that may read, over plain HTTP: what it may not do stays forbidden.
async fn proxied(plane: &ControlPlane) {
    let output = plane
        .kubectl()
        .args(["create", "clusterrolebinding", "reader", "--clusterrole=view"])
        .arg("--serviceaccount=default:default")
        .output()
        .unwrap();
    assert!(output.status.success());
    let output = plane.kubectl().args(["create", "token", "default"]).output().unwrap();
    assert!(output.status.success());
    let token = String::from_utf8(output.stdout).unwrap().trim().to_owned();

    let proxy = plane.proxy().await.unwrap();
    let mut config = Config::new(proxy.url().parse().unwrap());
    config.auth_info.token = Some(token.into());
    // What is repeated would be counted twice.
    config.default_retry = false;
    let client = Client::try_from(config).unwrap();
    let pods: Api<Pod> = Api::namespaced(client, "default");

    until("the role to count", Duration::from_secs(60), async || {
        Ok(match pods.list(&ListParams::default()).await {
            Ok(_) => Seen::Done(()),
            Err(error) => Seen::NotYet(error.to_string()),
        })
    })
    .await
    .unwrap();
    let parameters = PostParams::default();
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }))
    .unwrap();
    let code = |error: kube::Error| match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    };
    proxy.forget();
    // The API server's own word, with the token; then ours.
    assert_eq!(code(pods.create(&parameters, &pod).await.unwrap_err()), Some(403));
    let here = "/api/v1/namespaces/default/pods";
    proxy.spoil(1, Method::POST, here, Fault::TooManyRequests { retry_after: 1 });
    assert_eq!(code(pods.create(&parameters, &pod).await.unwrap_err()), Some(429));
    assert_eq!((proxy.count(&Method::POST, here), proxy.writes(), proxy.unspent()), (2, 2, 0));

    // A watch: its first event, then the loss of its connection and another one.
    let mut events = pin!(watcher(pods, watcher::Config::default()));
    let mut next = async || events.try_next().await;
    while !matches!(next().await.unwrap(), Some(watcher::Event::InitDone)) {}
    let admin: Api<Pod> = Api::namespaced(plane.client().await.unwrap(), "default");
    admin.create(&parameters, &pod).await.unwrap();
    while !matches!(next().await.unwrap(), Some(watcher::Event::Apply(_))) {}
    assert_eq!(proxy.lists(here), 1);
    assert_eq!(proxy.count_where(Call::is_watch), 1);
    proxy.cut_connections().await;
    admin.delete("a", &DeleteParams::default()).await.unwrap();
    while !matches!(next().await, Ok(Some(watcher::Event::Delete(_)))) {}
    assert_eq!(proxy.count_where(Call::is_watch), 2);
}
