//! A webhook that cannot decide yet: the cluster is unknown, or the policy is invalid.

use std::fs;
use std::net::TcpListener;

use super::client::{Connection, good_review, must_serve, post};
use super::process::Start;

#[test]
fn before_the_cluster_is_known_the_answer_is_503() {
    // An API server that accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let webhook = Start {
        api_server: Some(silent.local_addr().unwrap()),
        wait_until_ready: false,
        ..Start::new()
    }
    .run();
    let mut connection = Connection::open(&webhook);
    let answer = connection.call(&post(&good_review()));
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
    assert!(!answer.closes() && connection.is_open());
    assert_eq!(webhook.failures("NotSynced"), 1.0);
    let ready = webhook.admin("/readyz");
    assert_eq!(ready.status, 503);
    assert!(ready.body.contains("nodes are not synced yet"), "{}", ready.body);
    assert_eq!(webhook.metric("stowplan_store_synced{kind=\"nodes\"}"), 0.0);
    assert!(webhook.admin("/metrics").body.contains("stowplan_watch_age_seconds{kind=\"nodes\"} "));
}

#[test]
fn with_an_invalid_policy_it_lives_and_decides_nothing() {
    let webhook = Start {
        policy: Some("hostPools: {maxExclusiveNodesPerNamespace: many}"),
        wait_until_ready: false,
        ..Start::new()
    }
    .run();
    let mut connection = Connection::open(&webhook);
    let answer = connection.call(&post(&good_review()));
    // Without Retry-After: the API server applies its failurePolicy at once.
    assert_eq!((answer.status, answer.header("retry-after")), (500, None));
    assert!(answer.text().contains("no other policy is in force"), "{}", answer.text());
    let ready = webhook.admin("/readyz");
    assert_eq!(ready.status, 503);
    let problem = "hostPools.maxExclusiveNodesPerNamespace";
    assert!(ready.body.contains(problem), "{}", ready.body);
    assert!(webhook.log().contains(problem) && webhook.is_running());
    assert_eq!(webhook.metric("stowplan_policy_rejected"), 1.0);
    assert_eq!(webhook.metric("stowplan_policy_reloads_total{outcome=\"rejected\"}"), 1.0);
    // As soon as the file is valid, it is in force.
    fs::write(webhook.file("policy.yaml"), "onInvalid: warn").unwrap();
    webhook.until("ready", || webhook.admin("/readyz").status == 200);
    must_serve(&mut connection);
    assert_eq!(webhook.metric("stowplan_policy_rejected"), 0.0);
    // A later invalid one changes nothing.
    fs::write(webhook.file("policy.yaml"), "onInvald: refuse").unwrap();
    webhook.until("rejected", || webhook.metric("stowplan_policy_rejected") == 1.0);
    must_serve(&mut connection);
}
