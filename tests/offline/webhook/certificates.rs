//! Certificates that are replaced, and certificates that no API server would trust.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::client::{
    Connection, config, config_with, good_review, must_serve, others_are_served, pause, post,
};
use super::pool::{Load, Pool};
use super::process::{Authority, NAME, Pair, Start, Webhook};

/// The certificate that the webhook presents to a new connection.
fn shown(webhook: &Webhook) -> Vec<u8> {
    let connection = Connection::open(webhook);
    connection.tls.conn.peer_certificates().unwrap()[0].to_vec()
}

#[test]
fn a_rotation_that_is_not_atomic_loses_no_call() {
    let webhook = Webhook::start();
    let pool = Pool::new(&[webhook.address], config(&webhook.authority, "http/1.1"));
    let load = Load::start(&pool, 4);
    // New handshakes, too, for as long as the test runs.
    let stop = AtomicBool::new(false);
    let handshakes = thread::scope(|scope| {
        let dialling = scope.spawn(|| {
            let mut handshakes = 0;
            while !stop.load(Ordering::Relaxed) {
                others_are_served(&webhook);
                handshakes += 1;
                pause(5);
            }
            handshakes
        });
        webhook.until("under load", || load.calls() > 50);
        let old = shown(&webhook);
        let Pair { certificate, key } = webhook.authority.good();
        fs::write(webhook.file("tls.crt"), certificate).unwrap();
        webhook.until("seen", || {
            webhook.metric("stowplan_certificate_reloads_total{outcome=\"rejected\"}") == 1.0
        });
        // For longer than from one look at the files to the next, the new certificate lies beside
        // the key of the old one.
        pause(1200);
        assert_eq!(shown(&webhook), old);
        assert_eq!(webhook.admin("/readyz").status, 200);
        fs::write(webhook.file("tls.key"), key).unwrap();
        webhook.until("rotated", || shown(&webhook) != old);
        let calls = load.calls();
        webhook.until("still under load", || load.calls() > calls + 50);
        stop.store(true, Ordering::Relaxed);
        dialling.join().unwrap()
    });
    let (calls, failures) = load.end();
    assert!(failures.is_empty(), "{} of {calls}: {failures:?}", failures.len());
    assert!(handshakes > 10, "{handshakes}");
    webhook.until("logged", || webhook.log().contains("is not the key of"));
}

#[test]
fn an_untrusted_certificate_is_not_ready_and_one_that_replaces_it_is() {
    let start = Start::new();
    let pair = start.authority.pair(NAME, 2020, 2021);
    let webhook = Start { pair, wait_until_ready: false, ..start }.run();
    let readyz = webhook.admin("/readyz");
    assert_eq!(readyz.status, 503);
    let why = "tls.crt: expired at 2021-01-01T00:00:00Z";
    assert!(readyz.body.contains(why), "{}", readyz.body);
    assert_eq!(webhook.admin("/livez").status, 200);
    // The log is written beside the answers.
    webhook.until("logged", || webhook.log().contains(why));
    // Replacing the files is enough: no restart.
    webhook.replace(&webhook.authority.good());
    webhook.until("ready", || webhook.admin("/readyz").status == 200);
    must_serve(&mut Connection::open(&webhook));
    let not_after = webhook.metric("stowplan_certificate_not_after_seconds{kind=\"serving\"}");
    // 2090-01-01.
    assert_eq!(not_after, 3_786_912_000.0);
    let readyz = webhook.admin("/readyz").body;
    let mut lines = readyz.lines();
    assert_eq!(lines.next(), Some("ok"));
    let days =
        lines.find_map(|line| line.strip_prefix("certificate: ")?.strip_suffix(" days left"));
    assert!(days.is_some_and(|days| days.parse::<u32>().unwrap() > 10_000), "{readyz}");
    // A worse one does not replace it.
    let good = shown(&webhook);
    webhook.replace(&webhook.authority.pair("elsewhere.svc", 2020, 2090));
    webhook.until("logged", || webhook.log().contains("is for elsewhere.svc"));
    assert_eq!(webhook.admin("/readyz").status, 200);
    assert_eq!(shown(&webhook), good);
}

/// Returns true if a client with this certificate is answered. In TLS 1.3 the client's handshake ends before
/// the server has checked its certificate.
fn is_answered(webhook: &Webhook, own: Option<&Pair>) -> bool {
    let config = config_with(&webhook.authority, "http/1.1", own);
    let connection = Connection::dial(webhook.address, config, NAME);
    connection.is_ok_and(|mut connection| {
        connection.send(&post(&good_review())).is_ok() && connection.answer().is_ok()
    })
}

#[test]
fn clients_without_a_certificate_of_the_client_ca_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.crt");
    let (clients, next, others) = (Authority::new(), Authority::new(), Authority::new());
    let pair = |authority: &Authority| authority.pair("kube-apiserver", 2020, 2090);
    let (old, new, other) = (pair(&clients), pair(&next), pair(&others));
    let expired = clients.pair("kube-apiserver", 2000, 2001);
    fs::write(&file, clients.certificate.pem()).unwrap();
    let webhook = Start::new().argument(&format!("--client-ca={}", file.display())).run();
    assert!(is_answered(&webhook, Some(&old)));
    for refused in [None, Some(&other), Some(&expired), Some(&new)] {
        assert!(!is_answered(&webhook, refused));
    }
    // Another CA is in use as soon as the file has it; a broken file changes nothing.
    fs::write(&file, next.certificate.pem()).unwrap();
    webhook.until("the new CA in use", || is_answered(&webhook, Some(&new)));
    assert!(!is_answered(&webhook, Some(&old)));
    fs::write(&file, "no certificate").unwrap();
    webhook.until("logged", || webhook.log().contains("contains no PEM certificate"));
    assert!(is_answered(&webhook, Some(&new)));
    // Two of them, while one replaces the other.
    let both = [clients.certificate.pem(), next.certificate.pem()].concat();
    fs::write(&file, both).unwrap();
    webhook.until("both in use", || is_answered(&webhook, Some(&old)));
    assert!(is_answered(&webhook, Some(&new)) && !is_answered(&webhook, None));
    assert!(webhook.closed("handshake") >= 5.0);
}

#[test]
fn without_a_valid_client_ca_no_client_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.crt");
    let clients = Authority::new();
    let own = clients.pair("kube-apiserver", 2020, 2090);
    let argument = format!("--client-ca={}", file.display());
    let webhook = Start { wait_until_ready: false, ..Start::new().argument(&argument) }.run();
    assert!(!is_answered(&webhook, None) && !is_answered(&webhook, Some(&own)));
    let ready = webhook.admin("/readyz");
    assert_eq!(ready.status, 503);
    assert!(ready.body.contains("ca.crt"), "{}", ready.body);
    fs::write(&file, clients.certificate.pem()).unwrap();
    webhook.until("ready", || webhook.admin("/readyz").status == 200);
    assert!(is_answered(&webhook, Some(&own)) && !is_answered(&webhook, None));
}
