//! The library, as the tests of stowplan use it.

use std::fs;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use futures::TryStreamExt as _;
use hyper::Method;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client, Config};
use serde_json::json;
use testbed::control_plane::{ControlPlane, NodeSpec, Options};
use testbed::proxy::{Call, Fault};
use testbed::wait::until;

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

/// The token of an account that may edit pods, over plain HTTP: what it may not do stays forbidden.
#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_forwards_what_it_does_not_spoil() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let bind = ["create", "clusterrolebinding", "editor", "--clusterrole=edit"];
    crate::succeeded(plane.kubectl().args(bind).arg("--serviceaccount=default:default"));
    let token = crate::succeeded(plane.kubectl().args(["create", "token", "default"]));

    let proxy = plane.proxy().await.unwrap();
    let mut config = Config::new(proxy.url().parse().unwrap());
    config.auth_info.token = Some(token.trim().to_owned().into());
    // What is repeated would be counted twice.
    config.default_retry = false;
    let client = Client::try_from(config).unwrap();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let pods: Api<Pod> = Api::namespaced(client, "default");
    let admin: Api<Pod> = Api::namespaced(plane.client().await.unwrap(), "default");
    until("the role to count", Duration::from_secs(60), async || {
        Ok(pods.list(&ListParams::default()).await.into())
    })
    .await
    .unwrap();

    let answer = |error: kube::Error| match error {
        kube::Error::Api(status) => Some((status.code, status.reason)),
        _ => None,
    };
    let (parameters, now) = (PostParams::default(), DeleteParams::default().grace_period(0));
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }))
    .unwrap();
    let forbidden = namespaces.create(&parameters, &Namespace::default()).await.unwrap_err();
    assert_eq!(answer(forbidden).unwrap().0, 403);

    let here = "/api/v1/namespaces/*/pods";
    for (fault, wanted, is_done) in [
        (Fault::Conflict, Some((409, "Conflict")), false),
        (Fault::Invalid, Some((422, "Invalid")), false),
        (Fault::TooManyRequests { retry_after: 1 }, Some((429, "TooManyRequests")), false),
        (Fault::InternalError, Some((500, "InternalError")), false),
        (Fault::TimeoutAfterDone, Some((504, "Timeout")), true),
        (Fault::DropBefore, None, false),
        (Fault::DropAfter, None, true),
    ] {
        proxy.forget();
        proxy.spoil(1, Method::POST, here, fault);
        let given = answer(pods.create(&parameters, &pod).await.unwrap_err());
        let given = given.as_ref().map(|(code, reason)| (*code, &**reason));
        assert_eq!(given, wanted, "{fault:?}");
        let is_there = admin.get_opt("a").await.unwrap().is_some();
        assert_eq!((is_there, proxy.unspent()), (is_done, 0), "{fault:?}");
        if !is_done {
            pods.create(&parameters, &pod).await.unwrap();
        }
        let posts = 2 - usize::from(is_done);
        assert_eq!((proxy.count(&Method::POST, here), proxy.writes()), (posts, posts), "{fault:?}");
        admin.delete("a", &now).await.unwrap();
    }

    // A watch: its first event, then the loss of its connection and another one.
    proxy.forget();
    let mut events = pin!(watcher(pods, watcher::Config::default()));
    let mut next = async || events.try_next().await;
    while !matches!(next().await.unwrap(), Some(watcher::Event::InitDone)) {}
    admin.create(&parameters, &pod).await.unwrap();
    while !matches!(next().await.unwrap(), Some(watcher::Event::Apply(_))) {}
    assert_eq!((proxy.lists(here), proxy.count_where(Call::is_watch)), (1, 1));
    proxy.cut_connections().await;
    admin.delete("a", &now).await.unwrap();
    while !matches!(next().await, Ok(Some(watcher::Event::Delete(_)))) {}
    assert_eq!(proxy.count_where(Call::is_watch), 2);

    let dir = plane.dir().to_owned();
    plane.stop().await;
    assert!(!dir.exists());
}
