use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::controller::fake::{Api as FakeApi, Objects, Reply};

const MILLISECOND: Duration = Duration::from_millis(1);

struct Running {
    leadership: Leadership,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

fn run(api: &FakeApi, identity: &str) -> Running {
    let (leadership, metrics) = (Leadership::none(), Arc::new(Metrics::new()));
    let stop = CancellationToken::new();
    let (namespace, identity) = ("ns".to_owned(), identity.to_owned());
    let (held, counted) = (leadership.clone(), Arc::clone(&metrics));
    let campaign = campaign(api.client(), namespace, identity, held, counted, stop.clone());
    let task = tokio::spawn(campaign);
    Running { leadership, metrics, stop, task }
}

#[tokio::test(start_paused = true)]
async fn a_stopped_leader_releases_the_lease_and_the_other_takes_it() {
    let leases = Objects::default();
    let api = FakeApi::new(move |call| leases.answer(call));
    let a = run(&api, "a");
    a.leadership.gained().await;
    assert_eq!(a.metrics.controller_leader.get(), 1);
    let b = run(&api, "b");
    sleep(Duration::from_secs(120)).await;
    assert!(a.leadership.is_held() && !b.leadership.is_held());
    a.stop.cancel();
    a.task.await.unwrap();
    assert!(!a.leadership.is_held());
    assert_eq!(a.metrics.controller_leader.get(), 0);
    let since = Instant::now();
    b.leadership.gained().await;
    assert!(since.elapsed() <= RETRY * 3, "{:?}", since.elapsed());
    let written = api.calls().into_iter().rev().find(|call| call.method == "PUT").unwrap();
    let path = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/stowplan-controller";
    assert_eq!(written.path, path);
    assert_eq!(written.body["spec"]["leaseTransitions"], 1);
    let time = written.body["spec"]["renewTime"].as_str().unwrap();
    assert_eq!(time.len(), "2026-11-22T04:44:37.943722Z".len(), "microseconds: {time}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_lease_was_deleted_does_not_lead_until_it_is_created_again() {
    let deleted = Arc::new(AtomicBool::new(false));
    let is_deleted = Arc::clone(&deleted);
    let api =
        FakeApi::new(move |call| match (call.method.as_str(), is_deleted.load(Ordering::SeqCst)) {
            ("GET", _) | ("PUT", true) => Reply::status(404, "NotFound"),
            ("POST", true) => Reply::Hang,
            _ => Reply::json(201, &call.body),
        });
    let a = run(&api, "a");
    a.leadership.gained().await;
    deleted.store(true, Ordering::SeqCst);
    let since = Instant::now();
    a.leadership.lost().await;
    assert!(since.elapsed() <= RETRY + MILLISECOND, "{:?}", since.elapsed());
}
