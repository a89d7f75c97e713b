//! Clients that hold what others need: bytes that never become complete, and decisions that wait.
//!
//! The API server's calls come from the same address as the attack, which is the hard case: behind
//! a proxy, an address does not show which client calls.

use std::io::ErrorKind;
use std::thread;

use serde_json::Value;

use super::client::{
    Connection, good_review, head, must_serve, pod, post, post_within, waiting_request,
};
use super::process::{Start, Webhook};
use crate::pods::review_of;

const KIB: usize = 1024;
const MIB: u64 = 1024 * 1024;

/// The memory limit of the chart, for which the webhook derives its limits.
const CHART_LIMIT: u64 = 256 * MIB;

fn within_the_charts_limit() -> Webhook {
    Start::new().argument("--memory-limit=256Mi").run()
}

/// Sends `number` good reviews over a connection that was open before, and over new ones.
/// Returns how many were not answered with a patch.
fn count_unanswered(webhook: &Webhook, regular: &mut Connection, number: usize) -> usize {
    let is_placed = |connection: &mut Connection| {
        let sent = connection.send(&post(&good_review()));
        let Ok(answer) = sent.and_then(|()| connection.answer()) else { return false };
        let review: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        answer.status == 200 && review["response"]["patchType"] == "JSONPatch"
    };
    let mut unanswered = 0;
    for _ in 0..number {
        let opened = Connection::try_open(webhook);
        let new = opened.is_ok_and(|mut connection| is_placed(&mut connection));
        unanswered += usize::from(!new) + usize::from(!is_placed(regular));
    }
    unanswered
}

#[test]
fn bodies_that_stall_lock_nobody_out() {
    for (webhook, rounds, bodies) in
        [(Start::new().run(), 1, 520), (within_the_charts_limit(), 4, 200)]
    {
        let mut regular = Connection::open(&webhook);
        must_serve(&mut regular);
        let (mut stalled, mut unanswered) = (Vec::new(), 0);
        for round in 0..rounds {
            for _ in 0..bodies {
                let Ok(mut connection) = Connection::try_open(&webhook) else { continue };
                let _ = connection.send(head("30s", 64 * KIB).as_bytes());
                // All but the last byte, or bytes.
                let _ = connection.send(&vec![b' '; 64 * KIB - 1 - round]);
                stalled.push(connection);
            }
            unanswered += count_unanswered(&webhook, &mut regular, 20 / rounds);
        }
        assert_eq!(unanswered, 0, "of 40 good reviews");
        assert!(stalled.len() >= bodies, "{} attacks", stalled.len());
        assert!(webhook.peak_memory() < CHART_LIMIT, "{}", webhook.peak_memory());
    }
}

#[test]
fn decisions_that_wait_lock_nobody_out() {
    let webhook = Start::new().run();
    let mut regular = Connection::open(&webhook);
    must_serve(&mut regular);
    let request = waiting_request("10s");
    let mut waiting: Vec<_> = (0..600).map(|_| Connection::open(&webhook)).collect();
    let mut unanswered = 0;
    for _ in 0..3 {
        for connection in &mut waiting {
            connection.send(&request).unwrap();
        }
        unanswered += count_unanswered(&webhook, &mut regular, 10);
        for connection in &mut waiting {
            // A pool that does not exist is a refusal: sooner where too many decisions wait.
            assert_eq!(connection.answer().unwrap().status, 200);
        }
    }
    assert_eq!(unanswered, 0, "of 60 good reviews");
    assert_eq!(webhook.failures("Overloaded"), 0.0);
    assert_eq!(webhook.metric("stowplan_admission_in_flight"), 0.0);
}

#[test]
fn large_reviews_that_wait_hold_no_bytes_that_others_need() {
    let webhook = within_the_charts_limit();
    let mut regular = Connection::open(&webhook);
    must_serve(&mut regular);
    let mut nowhere = pod(&[("streams.ibm.com/host-pool", "nowhere")]);
    nowhere["metadata"]["annotations"]["padding"] = "x".repeat(200 * KIB).into();
    let request = post_within("10s", review_of("default", &nowhere).to_string().as_bytes());
    let attackers: Vec<_> = (0..8)
        .map(|_| {
            let mut connections: Vec<_> = (0..25).map(|_| Connection::open(&webhook)).collect();
            let request = request.clone();
            thread::spawn(move || {
                for _ in 0..3 {
                    for connection in &mut connections {
                        let _ = connection.send(&request);
                    }
                    for connection in &mut connections {
                        let ended = connection.answer().map_err(|error| error.kind());
                        assert_ne!(ended.err(), Some(ErrorKind::WouldBlock));
                    }
                }
            })
        })
        .collect();
    let mut unanswered = 0;
    while attackers.iter().any(|attacker| !attacker.is_finished()) {
        unanswered += count_unanswered(&webhook, &mut regular, 1);
    }
    attackers.into_iter().for_each(|attacker| attacker.join().unwrap());
    assert_eq!(unanswered, 0);
    assert!(webhook.peak_memory() < CHART_LIMIT, "{}", webhook.peak_memory());
}
