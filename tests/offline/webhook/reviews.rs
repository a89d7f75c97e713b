//! Malformed and unusual reviews and requests over HTTP. `bad_input.rs` and the fixtures test each
//! decision in depth; these tests show that the server answers with the right status and serves the
//! next call.

use serde_json::{Value, json};

use super::client::{Answer, Connection, good_review, must_serve, post};
use super::process::{NAME, Webhook};

/// Sends a review; afterwards the same connection must serve.
fn ask(connection: &mut Connection, body: &[u8]) -> Answer {
    let answer = connection.call(&post(body));
    must_serve(connection);
    answer
}

fn refused(connection: &mut Connection, body: &[u8], part: &str) {
    let answer = ask(connection, body);
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert!(answer.text().contains(part), "{}", answer.text());
    assert!(answer.body.len() < 1024);
    assert!(!answer.text().trim_end().chars().any(char::is_control), "{:?}", answer.text());
}

fn review() -> Value {
    serde_json::from_slice(&good_review()).unwrap()
}

/// The good review with this value at this pointer.
fn changed(pointer: &str, value: Value) -> Vec<u8> {
    let mut review = review();
    let (parent, member) = pointer.rsplit_once('/').unwrap();
    review.pointer_mut(parent).unwrap()[member] = value;
    review.to_string().into_bytes()
}

fn text() -> String {
    String::from_utf8(good_review()).unwrap()
}

#[test]
fn bodies_that_are_no_review_are_400_and_the_connection_goes_on() {
    let webhook = Webhook::start();
    let mut connection = Connection::open(&webhook);
    let spoilt = |with: &[u8]| {
        let text = text();
        let (before, after) = text.split_once("\"n1\"").unwrap();
        [before.as_bytes(), b"\"", with, b"\"", after.as_bytes()].concat()
    };
    let whole = good_review();
    let no_review = "not an AdmissionReview";
    let bodies = [
        (b"".to_vec(), "the body is empty"),
        (whole[..whole.len() / 2].to_vec(), no_review),
        ([b"\xef\xbb\xbf", &whole[..]].concat(), no_review),
        // Invalid text, which is not echoed.
        (spoilt(b"\xff\xfe"), no_review),
        (text().replace("\"request\":", "\"Request\":").into_bytes(), "has no request"),
        (changed("/apiVersion", json!("admission.k8s.io/v1beta1")), "v1beta1 is not served"),
        (changed("/request/uid", json!("u".repeat(1024 * 1024))), "longer than 128 bytes"),
    ];
    for (body, part) in &bodies {
        refused(&mut connection, body, part);
    }
    assert_eq!(webhook.failures("InvalidReview"), bodies.len() as f64);
    // NUL is valid text: the refusal names the annotation.
    let response = ask(&mut connection, &spoilt(b"n1\\u0000")).response();
    assert_eq!(response["status"]["code"], 422, "{response}");
    assert!(!response["status"]["message"].as_str().unwrap().contains('\0'));
    // The log has examples of them, not all.
    for _ in 0..200 {
        assert_eq!(connection.call(&post(b"x")).status, 400);
    }
    let lines = webhook.log().lines().filter(|line| line.contains("InvalidReview")).count();
    assert!((1..100).contains(&lines), "{lines}");
}

#[test]
fn other_requests_are_no_reviews() {
    let webhook = Webhook::start();
    let body = text();
    let request = |line: &str, kind: &str, body: &str| {
        let length = body.len();
        format!("{line} HTTP/1.1\r\nHost: {NAME}\r\n{kind}Content-Length: {length}\r\n\r\n{body}")
    };
    let json = "Content-Type: application/json\r\n";
    for (line, kind, status) in [
        ("POST /mutate", "Content-Type: text/plain\r\n", 415),
        ("POST /mutate", "Content-Type: application/yaml\r\n", 415),
        ("POST /mutate", "", 415),
        ("PUT /mutate", json, 405),
        ("DELETE /mutate", json, 405),
        ("GET /mutate", json, 405),
        ("POST /", json, 404),
        ("POST /mutate/", json, 404),
        ("POST /readyz", json, 404),
        ("POST //mutate", json, 404),
    ] {
        let mut connection = Connection::open(&webhook);
        let answer = connection.call(request(line, kind, &body).as_bytes());
        assert_eq!(answer.status, status, "{line} {kind}");
        assert_eq!(answer.header("allow"), (status == 405).then_some("POST"), "{line}");
        assert!(!answer.text().contains("JSONPatch"));
        // The body that was refused is not read as a request.
        must_serve(&mut connection);
    }
    let mut connection = Connection::open(&webhook);
    connection.send(format!("HEAD /mutate HTTP/1.1\r\nHost: {NAME}\r\n\r\n").as_bytes()).unwrap();
    assert_eq!(connection.answer_head().unwrap().status, 405);
    must_serve(&mut connection);
    assert_eq!(webhook.metric("stowplan_admission_requests_total{operation=\"CREATE\",outcome=\"placed\",reason=\"Placed\"}"), 11.0);
}

#[test]
fn a_nesting_bomb_is_answered() {
    let webhook = Webhook::start();
    let mut connection = Connection::open(&webhook);
    let depth = 1_500_000;
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let bomb =
            format!("{}1{}", open.repeat(depth / open.len()), close.repeat(depth / open.len()));
        let body = text().replacen("\"oldObject\":null", &format!("\"oldObject\":{bomb}"), 1);
        assert!(body.len() > depth);
        let response = connection.call(&post(body.as_bytes())).response();
        assert_eq!(response["allowed"], true);
        // Cut off at its deepest.
        let start = body.find(&bomb).unwrap();
        refused(&mut connection, &body.as_bytes()[..start + depth / 2], "not an AdmissionReview");
    }
}

#[test]
fn own_objects_are_validated_on_their_own_path() {
    let webhook = Webhook::start();
    let mut connection = Connection::open(&webhook);
    let validate = |review: &Value| {
        let request = String::from_utf8(post(review.to_string().as_bytes())).unwrap();
        request.replacen("POST /mutate?", "POST /validate?", 1).into_bytes()
    };
    let review_of = |resource: &str, kind: &str, spec: Value| {
        let mut review = review();
        let request = &mut review["request"];
        request["resource"] =
            json!({"group": "stowplan.dev", "version": "v1alpha1", "resource": resource});
        request["object"] = json!({
            "apiVersion": "stowplan.dev/v1alpha1", "kind": kind, "metadata": {"name": "o"},
            "spec": spec,
        });
        review
    };
    let job = |host: &str| {
        let operators = json!([{"name": "Source", "host": {"name": host}}]);
        let spec = json!({"processingElements": [{"name": "pe", "operators": operators}]});
        review_of("streamsjobs", "StreamsJob", spec)
    };
    for (review, allowed, part) in [
        (job("n1"), true, ""),
        (job("n9"), false, "StreamsJob o: no node has the name n9, which operator \"Source\""),
        (review_of("hostpools", "HostPool", json!({"size": 0})), false, "HostPool o: has size 0"),
        (review(), true, ""),
    ] {
        let response = connection.call(&validate(&review)).response();
        assert_eq!(response["allowed"], allowed, "{response}");
        assert_eq!(response.get("patch"), None, "nothing is changed here: {response}");
        let message = response["status"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(part), "{message}");
        must_serve(&mut connection);
    }
    // `/mutate` does not validate stowplan's own objects.
    let response = ask(&mut connection, job("n9").to_string().as_bytes()).response();
    assert_eq!(response["allowed"], true);
    let mut nothing = job("n1");
    nothing["request"]["object"] = Value::Null;
    let answer = connection.call(&validate(&nothing));
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("no object"), "{}", answer.text());
    let refused = "stowplan_admission_requests_total{operation=\"CREATE\",outcome=\"refused\",reason=\"UnknownHost\"}";
    assert_eq!(webhook.metric(refused), 1.0);
}
