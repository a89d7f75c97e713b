use super::*;
use crate::controller::fake::{Api as FakeApi, Reply};

const MILLISECOND: Duration = Duration::from_millis(1);

/// A fake API server that stores one Lease.
fn store(hangs: Arc<std::sync::atomic::AtomicBool>) -> FakeApi {
    let mut version = 0;
    let mut present: Option<serde_json::Value> = None;
    FakeApi::new(move |call| {
        if hangs.load(std::sync::atomic::Ordering::SeqCst) {
            return Reply::Hang;
        }
        let of = |lease: &serde_json::Value| lease["metadata"]["resourceVersion"].clone();
        match (call.method.as_str(), &present) {
            ("GET", None) => return Reply::status(404, "NotFound"),
            ("GET", Some(_)) => {}
            ("POST", None) => present = Some(call.body.clone()),
            ("PUT", Some(now)) if of(now) == of(&call.body) => present = Some(call.body.clone()),
            _ => return Reply::status(409, "Conflict"),
        }
        let lease = present.as_mut().unwrap();
        if call.method != "GET" {
            version += 1;
            lease["metadata"]["resourceVersion"] = version.to_string().into();
        }
        Reply::json(200, lease)
    })
}

struct Running {
    leadership: Leadership,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

fn run(api: &FakeApi, identity: &str) -> Running {
    let (leadership, metrics) = (Leadership::none(), Arc::new(Metrics::new()));
    let stop = CancellationToken::new();
    let task = tokio::spawn(campaign(
        api.client(),
        "ns".to_owned(),
        identity.to_owned(),
        leadership.clone(),
        Arc::clone(&metrics),
        stop.clone(),
    ));
    Running { leadership, metrics, stop, task }
}

#[tokio::test(start_paused = true)]
async fn a_stopped_leader_releases_the_lease_and_the_other_takes_it() {
    let api = store(Arc::default());
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
    assert_eq!(
        written.path,
        "/apis/coordination.k8s.io/v1/namespaces/ns/leases/stowplan-controller"
    );
    assert_eq!(written.body["spec"]["leaseTransitions"], 1);
    let time = written.body["spec"]["renewTime"].as_str().unwrap();
    assert_eq!(time.len(), "2026-11-22T04:44:37.943722Z".len(), "microseconds: {time}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_lease_was_deleted_does_not_lead_until_it_is_created_again() {
    let deleted = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_deleted = Arc::clone(&deleted);
    let api = FakeApi::new(move |call| {
        match (call.method.as_str(), is_deleted.load(std::sync::atomic::Ordering::SeqCst)) {
            ("GET", _) | ("PUT", true) => Reply::status(404, "NotFound"),
            ("POST", true) => Reply::Hang,
            _ => Reply::json(201, &call.body),
        }
    });
    let a = run(&api, "a");
    a.leadership.gained().await;
    deleted.store(true, std::sync::atomic::Ordering::SeqCst);
    let since = Instant::now();
    a.leadership.lost().await;
    assert!(since.elapsed() <= RETRY + MILLISECOND, "{:?}", since.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_before_the_lease_expires_and_leads_again_later() {
    let hangs = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let api = store(Arc::clone(&hangs));
    let a = run(&api, "a");
    a.leadership.gained().await;
    let since = Instant::now();
    hangs.store(true, std::sync::atomic::Ordering::SeqCst);
    a.leadership.lost().await;
    assert!(since.elapsed() <= RENEW_DEADLINE, "{:?}", since.elapsed());
    assert!(!a.leadership.is_held());
    sleep(MILLISECOND).await;
    hangs.store(false, std::sync::atomic::Ordering::SeqCst);
    a.leadership.gained().await;
    // It held the lease all the time, so it does not wait for another candidate.
    assert!(since.elapsed() < Duration::from_secs(25), "{:?}", since.elapsed());
    a.stop.cancel();
    a.task.await.unwrap();
    assert_eq!(api.calls().last().unwrap().body["spec"]["holderIdentity"], "");
}
