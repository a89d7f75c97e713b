//! The view of an operator: panics that cost one request, overload, metrics, logs.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwapOption;
use serde_json::{Value, json};
use stowplan::testing::cluster::Cluster;
use stowplan::testing::server::limits::Limits;
use stowplan::testing::server::service::{Decide, Service};
use stowplan::testing::server::{self, Stop};
use stowplan::testing::telemetry::Metrics;
use stowplan::testing::tls::{Certificate, Change};
use stowplan_core::admission::{Decision, ParseError, Review, decide};
use stowplan_core::systems::View;
use stowplan_core::systems::policy::Policy;

use super::client::{Connection, config, good_review, must_serve, pod, post, waiting_request};
use super::process::{Authority, NAME, Start, Webhook};
use crate::bad_input::input::cluster;
use crate::pods::review_of;

/// A server in this process with another decision function: the real one neither panics nor is
/// slow.
struct Inside {
    runtime: tokio::runtime::Runtime,
    stop: Stop,
    address: SocketAddr,
    authority: Authority,
    metrics: Arc<Metrics>,
}

impl Inside {
    fn start(limits: Limits, decide: Decide) -> Self {
        let authority = Authority::new();
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
        let pair = authority.good();
        std::fs::write(&certificate, pair.certificate).unwrap();
        std::fs::write(&key, pair.key).unwrap();
        let mut files = Certificate::of_files(certificate, key, Some(NAME.to_owned()));
        assert!(matches!(files.refresh(std::time::SystemTime::now()), Change::Loaded));

        let metrics = Arc::new(Metrics::new());
        let cluster = Arc::new(Cluster::fixed(cluster(), Arc::clone(&metrics)));
        let policy = Arc::new(ArcSwapOption::from_pointee(Policy::default()));
        let service = Service::new(cluster, policy, Arc::clone(&metrics), limits);
        let service = Arc::new(service.deciding_by(decide));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let stop = Stop::default();
        let listener = runtime.block_on(server::bind("127.0.0.1:0".parse().unwrap())).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(server::serve(listener, files.server(), service, limits, stop.clone()));
        Self { runtime, stop, address, authority, metrics }
    }

    fn open(&self) -> Connection {
        Connection::dial(self.address, config(&self.authority, "http/1.1"), NAME).unwrap()
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.stop.closing.cancel();
        self.runtime.block_on(self.stop.stopped.cancelled());
    }
}

#[test]
fn a_panic_is_one_requests_500() {
    fn panics_there(
        review: &Review<'_>,
        view: &View,
        policy: &Policy,
    ) -> Result<Decision, ParseError> {
        assert!(review.request.namespace() != "panic", "this test wants a panic");
        decide(review, view, policy)
    }
    let inside = Inside::start(Limits::DEFAULT, panics_there);
    let mut connection = inside.open();
    must_serve(&mut connection);
    let bad = review_of("panic", &pod(&[("streams.ibm.com/host", "n1")])).to_string();
    for _ in 0..3 {
        let answer = connection.call(&post(bad.as_bytes()));
        assert_eq!(answer.status, 500);
        // Without Retry-After the API server does not repeat a call that panics.
        assert_eq!(answer.header("retry-after"), None);
        // The same connection and others go on.
        must_serve(&mut connection);
        must_serve(&mut inside.open());
    }
    let metrics = inside.metrics.to_text();
    assert!(metrics.contains("stowplan_admission_failures_total{reason=\"Panic\"} 3"), "{metrics}");
    assert!(metrics.contains("stowplan_admission_in_flight 0"), "{metrics}");
}

#[test]
fn those_that_wait_take_no_place_of_those_that_decide() {
    let wait = super::process::PATIENCE / 2;
    let limits = Limits { requests: 1, waiting: 3, wait, ..Limits::DEFAULT };
    let inside = Inside::start(limits, decide);
    let request = waiting_request("20s");
    let mut held: Vec<_> = (0..3).map(|_| inside.open()).collect();
    let in_flight = |count: usize| {
        inside.metrics.to_text().contains(&format!("stowplan_admission_in_flight {count}"))
    };
    // One after the other: only one may decide at a time, and a further one would be refused.
    for (index, connection) in held.iter_mut().enumerate() {
        connection.send(&request).unwrap();
        let begins = || {
            super::client::pause(10);
            in_flight(index + 1)
        };
        assert!((0..1_000).any(|_| begins()), "{}", inside.metrics.to_text());
    }
    super::client::pause(500);
    // Nothing more may wait: the decision is the one that a wait in vain would bring.
    let mut more = inside.open();
    let response = more.call(&request).response();
    assert_eq!(response["allowed"], false, "{response}");
    assert!(in_flight(3), "while the others still wait");
    must_serve(&mut more);
    for connection in &mut held {
        assert_eq!(connection.answer().unwrap().response(), response);
    }
}

#[test]
fn beyond_capacity_the_answer_is_503_at_once() {
    static HOLD: Mutex<()> = Mutex::new(());
    static DECIDING: AtomicBool = AtomicBool::new(false);
    fn hold(review: &Review<'_>, view: &View, policy: &Policy) -> Result<Decision, ParseError> {
        DECIDING.store(true, Ordering::SeqCst);
        // A worker that only blocked could be the one that waits for the sockets of all.
        tokio::task::block_in_place(|| drop(HOLD.lock().unwrap()));
        decide(review, view, policy)
    }
    let inside = Inside::start(Limits { requests: 1, ..Limits::DEFAULT }, hold);
    let (mut first, mut more) = (inside.open(), inside.open());
    let holding = HOLD.lock().unwrap();
    first.send(&post(&good_review())).unwrap();
    while !DECIDING.load(Ordering::SeqCst) {
        super::client::pause(10);
    }
    let answer = more.call(&post(&good_review()));
    drop(holding);
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
    assert!(!answer.closes());
    assert_eq!(first.answer().unwrap().response()["allowed"], true);
    must_serve(&mut more);
}

#[test]
fn the_admin_port_shows_nothing_of_users_and_no_secret() {
    let webhook = Webhook::start();
    let mut connection = Connection::open(&webhook);
    let mark = "userstext";
    let mut marked =
        pod(&[("streams.ibm.com/host", mark), (&format!("stowplan.dev/{mark}"), mark)]);
    marked["metadata"]["name"] = json!(mark);
    marked["metadata"]["labels"][mark] = json!(mark);
    let mut review = review_of(mark, &marked);
    connection.call(&post(review.to_string().as_bytes()));
    review["request"]["operation"] = json!(mark);
    review["request"]["resource"]["resource"] = json!(mark);
    connection.call(&post(review.to_string().as_bytes()));
    connection
        .call(format!("{} /{mark} HTTP/1.1\r\nHost: x\r\n\r\n", mark.to_uppercase()).as_bytes());

    for path in ["/metrics", "/readyz", "/livez", "/", "/debug/pprof/", "/../etc/passwd"] {
        let shown = webhook.admin(path);
        let known = matches!(path, "/metrics" | "/readyz" | "/livez");
        assert_eq!(shown.status, if known { 200 } else { 404 }, "{path}");
        assert!(!shown.body.to_lowercase().contains(mark), "{path}: {}", shown.body);
        assert!(!shown.body.contains("PRIVATE KEY"));
    }
    let metrics = webhook.admin("/metrics").body;
    assert!(metrics.ends_with("# EOF\n"));
    for series in [
        "stowplan_build_info{version=",
        "stowplan_admission_requests_total{operation=\"CREATE\",outcome=\"refused\",reason=\"UnknownHost\"} 1",
        "operation=\"other\"",
        "stowplan_admission_duration_seconds_bucket{le=\"0.00005\",outcome=",
        "stowplan_admission_in_flight 0",
        "stowplan_certificate_not_after_seconds{kind=\"serving\"}",
        "stowplan_certificate_reloads_total{outcome=\"loaded\"} 1",
        "stowplan_panics_total 0",
        "stowplan_log_lines_dropped_total 0",
        "stowplan_store_objects{kind=\"nodes\"} 2",
    ] {
        assert!(metrics.contains(series), "{series} is not in\n{metrics}");
    }
    let last = webhook.metric("stowplan_last_admission_timestamp_seconds");
    assert!(last > 1_700_000_000.0, "{last}");
}

#[test]
fn no_text_of_users_forges_a_line_of_the_log() {
    for format in ["json", "text"] {
        let webhook = Start::new().argument(&format!("--log-format={format}")).run();
        let mut connection = Connection::open(&webhook);
        let mark = "2026-01-01T00:00:00Z ERROR forged";
        for evil in [
            format!("x\r\n{mark}"),
            format!("x\u{1b}[2J\u{1b}]0;title\u{7}{mark}"),
            format!("x\u{9b}2J\u{85}{mark}"),
            format!("x\u{2028}{mark}\u{202e}"),
            format!("{}\n{mark}", "x".repeat(256 * 1024)),
        ] {
            let mut pod =
                pod(&[("streams.ibm.com/host", &evil), (&format!("streams.ibm.com/{evil}"), "y")]);
            pod["metadata"]["name"] = json!(evil);
            let mut review = review_of(&evil, &pod);
            connection.call(&post(review.to_string().as_bytes()));
            // An invalid review is logged as well.
            review["apiVersion"] = json!(evil);
            connection.call(&post(review.to_string().as_bytes()));
            review["request"]["uid"] = json!(evil.chars().take(100).collect::<String>());
            review["apiVersion"] = json!("admission.k8s.io/v1");
            connection.call(&post(review.to_string().as_bytes()));
        }
        webhook.until("logged", || {
            webhook.log().matches("UnknownHost").count() + webhook.log().matches("refused").count()
                > 5
        });
        let log = webhook.log();
        for line in log.split_terminator('\n') {
            assert!(
                !line.contains(|c: char| c.is_control() || "\u{2028}\u{202e}".contains(c)),
                "{line:?}"
            );
            assert!(line.len() <= 9 * 1024, "{} bytes", line.len());
            assert!(!line.starts_with(mark), "{line}");
            if format == "json" {
                let line: Value =
                    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
                assert!(line["level"].is_string() && line["message"].is_string(), "{line}");
            }
        }
    }
}

#[test]
fn a_decision_is_logged_with_what_tells_it_apart() {
    let webhook = Webhook::start();
    let body = review_of("default", &pod(&[("streams.ibm.com/host", "nowhere")])).to_string();
    Connection::open(&webhook).call(&post(body.as_bytes()));
    let find = || {
        webhook
            .log()
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .find(|line| line["outcome"] == "refused")
    };
    webhook.until("logged", || find().is_some());
    let line = find().unwrap();
    assert_eq!(line["level"], "INFO");
    assert_eq!(line["reason"], "UnknownHost");
    assert!(line["why"].as_str().unwrap().contains("no node has the name"), "{line}");
    assert_eq!(line["span"]["uid"], "0f0e7d9c-6b0a-4a53-9d3c-2f3a7a5b8c11");
    assert_eq!(line["span"]["kind"], "pods");
    assert_eq!(line["span"]["namespace"], "default");
}

#[test]
fn a_stalled_reader_of_logs_delays_no_request() {
    // Standard error is a pipe that is never read.
    let webhook = Start { stalled_log: true, ..Start::new() }.run();
    let mut connection = Connection::open(&webhook);
    // More than a pipe and the queue hold.
    for _ in 0..3000 {
        must_serve(&mut connection);
    }
    assert!(webhook.metric("stowplan_log_lines_dropped_total") > 0.0);
}

#[test]
fn the_policy_sets_the_log_filter_while_the_webhook_runs() {
    let webhook = Start { policy: Some("log: info"), ..Start::new() }.run();
    let mut connection = Connection::open(&webhook);
    let placed = || webhook.log().matches("\"outcome\":\"placed\"").count();
    // A refusal is logged under both filters, and after what was decided before it.
    let refused = review_of("default", &pod(&[("streams.ibm.com/host", "n9")])).to_string();
    let mut call = || {
        must_serve(&mut connection);
        let lines = webhook.log().matches("UnknownHost").count();
        connection.call(&post(refused.as_bytes()));
        webhook.until("logged", || webhook.log().matches("UnknownHost").count() > lines);
    };
    // The process was started with debug.
    call();
    assert_eq!(placed(), 0, "{}", webhook.log());
    let filters = || webhook.log().matches("filtered by the policy from now on").count();
    let set = |policy: &str| {
        let before = filters();
        std::fs::write(webhook.file("policy.yaml"), policy).unwrap();
        webhook.until("in force", || filters() > before);
    };
    set("log: info,stowplan::server=debug");
    call();
    assert_eq!(placed(), 1, "{}", webhook.log());
    set("log: info");
    call();
    assert_eq!(placed(), 1, "{}", webhook.log());
    // Empty: as the process was started.
    set("log: \"\"");
    call();
    assert_eq!(placed(), 2, "{}", webhook.log());
}
