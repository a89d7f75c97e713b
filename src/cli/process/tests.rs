//! Tasks that end, and an API server that does not answer.

use hyper::Method;
use tokio::time::sleep;

use super::*;
use crate::controller::fake::{Api, Reply};
use crate::server::admin::Health;
use crate::server::admin::status::PolicyStatus;
use stowplan_core::systems::View;

/// An API server of empty lists, and of watches without an event. It does not answer requests for
/// this path.
fn without(path: &'static str) -> Api {
    Api::new(move |call| match call.query.contains("watch=") || call.path.contains(path) {
        true => Reply::Hang,
        false => Reply::list(&[]),
    })
}

/// Counts the requests for this path.
fn requests(api: &Api, path: &str) -> usize {
    api.calls().iter().filter(|call| call.path.contains(path)).count()
}

#[tokio::test(start_paused = true)]
async fn what_is_not_answered_is_asked_for_again() {
    let api = without("/nodes");
    let metrics = Arc::new(Metrics::new());
    let cluster = Cluster::watching(&api.client(), Arc::clone(&metrics));
    sleep(Duration::from_secs(300)).await;
    assert!(requests(&api, "/nodes") >= 4, "{}", requests(&api, "/nodes"));
    assert_eq!(cluster.unsynced(), ["nodes"]);
    let text = metrics.to_text();
    assert!(text.contains("\nstowplan_watch_errors_total{kind=\"nodes\"}"), "{text}");
    // It has never been heard, unlike the others, whose watches begin again and again.
    let ages = cluster.ages();
    let age = |kind| ages.iter().find(|(name, _)| *name == kind).unwrap().1;
    assert!(age("nodes") >= Duration::from_secs(299), "{ages:?}");

    let api = without("/leases/");
    let cluster = Cluster::watching(&api.client(), Arc::default());
    cluster.watch_controller(&api.client(), "ns", "the-lease");
    sleep(Duration::from_secs(100)).await;
    assert!(requests(&api, "/leases/") >= 4, "{}", requests(&api, "/leases/"));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_hears_nothing_makes_the_controller_unready() {
    let api = without("/never-asked-for");
    let metrics = Arc::new(Metrics::new());
    let cluster = Cluster::watching_all(&api.client(), Arc::clone(&metrics), |_| false);
    let stopping = CancellationToken::new();
    let health = |max_age| {
        let (cluster, metrics) = (Arc::clone(&cluster), Arc::clone(&metrics));
        let health = Health::without_certificate(cluster, metrics, stopping.clone(), max_age);
        let digest = Some("e3b0c44298fc1c14".to_owned());
        health.set_policy(PolicyStatus { digest, problem: None });
        health
    };
    let (patient, strict) = (health(Duration::from_secs(3600)), health(Duration::from_secs(60)));
    sleep(Duration::from_secs(20)).await;
    assert_eq!(strict.problems(), Vec::<String>::new());
    sleep(Duration::from_secs(80)).await;
    let problems = strict.problems();
    let problem = "pods: the API server was not heard for ";
    assert!(problems.iter().any(|one| one.starts_with(problem)), "{problems:?}");
    assert_eq!(patient.problems(), Vec::<String>::new());
    assert_eq!(strict.answer(&Method::GET, "/readyz").status(), 503);
    strict.answer(&Method::GET, "/metrics");
    let text = metrics.to_text();
    let age = text.lines().find_map(|line| {
        line.strip_prefix("stowplan_watch_age_seconds{kind=\"pods\"} ")?.parse::<u64>().ok()
    });
    assert!(age.is_some_and(|age| age >= 60), "{text}");
}

#[tokio::test]
async fn a_planner_that_panics_is_reported() {
    let cluster = Cluster::fixed(View::default(), Arc::default());
    let stop = CancellationToken::new();
    let panics = async { panic!("expected in the test's output") };
    let ended = run_beside(&cluster, &stop, panics).await.unwrap_err();
    assert!(ended.starts_with("the planner panicked"), "{ended}");
}

#[tokio::test]
async fn a_watch_that_ends_stops_the_controller() {
    let api = Api::new(|_| Reply::list(&[]));
    let cluster = Cluster::watching_all(&api.client(), Arc::default(), |_| {
        panic!("expected in the test's output")
    });
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let controller = async move {
        stopped.cancelled().await;
        Ok(())
    };
    let ended = run_beside(&cluster, &stop, controller).await;
    assert_eq!(ended, Err("the watch of pods panicked".to_owned()));
}
