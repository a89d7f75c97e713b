//! The testbed's controllers: started by number, stopped, killed, paused, and led through a proxy that
//! fails. What they do for pools is seen in `tests/cluster.rs`; here it is that they can be driven.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::fs;
use std::time::Duration;

use hyper::Method;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use testbed::control_plane::{ControlPlane, Install, NodeSpec, Options};
use testbed::http;
use testbed::proxy::Fault;
use testbed::wait::{Seen, until};

const LIMIT: Duration = Duration::from_secs(120);

/// Waits until the Lease is held by `identity`.
async fn led_by(client: &Client, identity: &str) {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "stowplan-system");
    until(&format!("{identity} to lead"), LIMIT, async || {
        let lease = leases.get_opt("stowplan-controller").await?;
        let holder = lease.and_then(|lease| lease.spec?.holder_identity);
        Ok(match holder {
            Some(holder) if holder == identity => Seen::Done(()),
            holder => Seen::NotYet(format!("{holder:?} leads")),
        })
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn controllers_are_started_stopped_killed_paused_and_led_through_a_proxy() {
    let plane =
        ControlPlane::start(Options { nodes: vec![NodeSpec::new("one")], ..Options::default() })
            .await
            .unwrap();
    let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/stowplan");
    let install = Install::new(env!("CARGO_BIN_EXE_stowplan"), chart).without_controller();
    let mut installation = plane.install(install).await.unwrap();
    let client = plane.client().await.unwrap();
    assert_eq!(installation.controllers().count(), 0);
    assert!(installation.stop_controller(0).await.is_err());

    installation.start_controller(0).await.unwrap();
    led_by(&client, "controller-0").await;
    let error = installation.start_controller(0).await.unwrap_err();
    assert_eq!(error.to_string(), "controller-0 runs already");
    let admin = installation.controller_admin_address(0).unwrap();
    assert_eq!(http::get(admin, "/livez").await.unwrap().status, 200);
    // Asked to end while it stands still, it ends in order: it gives the Lease away.
    installation.start_controller(1).await.unwrap();
    installation.pause_controller(0).await.unwrap();
    assert!(installation.stop_controller(0).await.unwrap().success());
    led_by(&client, "controller-1").await;
    assert_eq!(installation.controllers().collect::<Vec<_>>(), [1]);

    // A killed one says nothing: who comes has to wait for the Lease to run out.
    installation.kill_controller(1).await.unwrap();
    led_by(&client, "controller-1").await;
    plane.check().unwrap();
    let proxy = plane.proxy().await.unwrap();
    let lease = "/apis/coordination.k8s.io/v1/namespaces/stowplan-system/leases/*";
    proxy.spoil(2, Method::PUT, lease, Fault::Conflict);
    proxy.spoil(1, Method::PUT, lease, Fault::TimeoutAfterDone);
    installation.start_controller_through(2, &proxy).await.unwrap();
    led_by(&client, "controller-2").await;
    until("the faults to happen", LIMIT, async || {
        Ok(match proxy.unspent() {
            0 => Seen::Done(()),
            left => Seen::NotYet(format!("{left} are left")),
        })
    })
    .await
    .unwrap();
    assert_eq!(proxy.lists("/api/v1/nodes"), 1);
    assert_eq!(proxy.lists("/apis/stowplan.dev/v1alpha1/hostpools"), 1);

    installation.pause_controller(2).await.unwrap();
    installation.start_controller(0).await.unwrap();
    led_by(&client, "controller-0").await;
    installation.continue_controller(2).await.unwrap();
    let log = fs::read_to_string(installation.controller_log(0)).unwrap();
    assert!(log.contains("controller-0"), "{log}");
    // Left paused: it ends with the control plane all the same.
    installation.pause_controller(2).await.unwrap();
    drop(installation);
    let dir = plane.dir().to_owned();
    plane.stop().await;
    assert!(!dir.exists());
}
