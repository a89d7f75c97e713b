use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::controller::fake::{Api as FakeApi, Objects, Reply};

fn run(api: &FakeApi, stop: &CancellationToken) -> (Leadership, tokio::task::JoinHandle<()>) {
    let leadership = Leadership::none();
    let candidate = Candidate {
        client: api.client(),
        namespace: "ns".to_owned(),
        identity: "a".to_owned(),
        leadership: leadership.clone(),
        metrics: Arc::default(),
    };
    (leadership, tokio::spawn(candidate.campaign(stop.clone())))
}

#[tokio::test(start_paused = true)]
async fn a_stopped_leader_leads_no_more_and_releases_the_lease() {
    let leases = Objects::default();
    let api = FakeApi::new(move |call| leases.answer(call));
    let stop = CancellationToken::new();
    let (leadership, task) = run(&api, &stop);
    leadership.gained().await;
    stop.cancel();
    task.await.unwrap();
    assert!(!leadership.is_held());
    assert_eq!(api.calls().pop().unwrap().body["spec"]["holderIdentity"], "");
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
    let (leadership, _) = run(&api, &CancellationToken::new());
    leadership.gained().await;
    deleted.store(true, Ordering::SeqCst);
    let since = Instant::now();
    leadership.lost().await;
    assert!(since.elapsed() <= RETRY + Duration::from_millis(1), "{:?}", since.elapsed());
}
