//! A stop that loses no call.

use std::sync::Arc;

use super::client::{Connection, config, good_review, must_serve, others_are_served, pause, post};
use super::pool::{Load, Pool};
use super::process::Start;

#[test]
fn a_stop_under_load_loses_no_call() {
    let leaving = Start::new().argument("--shutdown-delay=3s").run();
    // Both are endpoints of one Service, and their certificates are of one authority.
    let authority = Arc::clone(&leaving.authority);
    let staying = Start { pair: authority.good(), authority, ..Start::new() }.run();
    let trust = config(&leaving.authority, "http/1.1");
    let pool = Pool::new(&[leaving.address, staying.address], trust);
    let load = Load::start(&pool, 8);
    leaving.until("under load", || load.calls() > 200);
    leaving.terminate();
    leaving
        .until("not ready", || leaving.try_admin("/readyz").is_ok_and(|shown| shown.status == 503));
    let readyz = leaving.admin("/readyz");
    assert!(readyz.body.starts_with("stopping\n"), "{}", readyz.body);
    assert_eq!(leaving.admin("/livez").status, 200);
    // Clients learn of it later: for a while they still open connections here.
    pause(1000);
    others_are_served(&leaving);
    pool.endpoints.lock().unwrap().retain(|address| *address == staying.address);
    let status = leaving.ended();
    assert!(status.success(), "{status}");
    let before = load.calls();
    staying.until("served elsewhere", || load.calls() > before + 100);
    let (calls, failures) = load.end();
    assert!(failures.is_empty(), "{} of {calls}: {failures:?}", failures.len());
    // Connections were reused.
    assert!(pool.connections_made() < 200, "{}", pool.connections_made());
    assert!(leaving.log().lines().last().unwrap().contains("stopped"), "{}", leaving.log());
}

#[test]
fn pooled_connections_stay_open_until_the_delay_is_over() {
    let webhook = Start::new().argument("--shutdown-delay=4s").run();
    let mut pooled: Vec<_> = (0..25).map(|_| Connection::open(&webhook)).collect();
    pooled.iter_mut().for_each(must_serve);
    webhook.terminate();
    webhook.until("stopping", || webhook.log().contains("requests are still served"));
    pause(1000);
    assert!(pooled.iter_mut().all(Connection::is_open));
    pooled.iter_mut().for_each(must_serve);
    webhook.until("draining", || webhook.log().contains("each answer closes its connection"));
    // Still none is closed without an answer that announces it.
    assert!(pooled.iter_mut().all(Connection::is_open));
    for connection in &mut pooled[..10] {
        let answer = connection.call(&post(&good_review()));
        assert_eq!(answer.status, 200);
        assert!(answer.closes());
        assert!(connection.is_ended());
    }
    // The server closes the remaining ones.
    assert!(pooled[10..].iter_mut().all(Connection::is_ended));
    assert!(webhook.ended().success());
}
