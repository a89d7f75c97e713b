//! Malformed and unusual reviews and requests over HTTP. `bad_input.rs` tests each decision in
//! depth; these tests show that the server answers with the right status and serves the next call.

use serde_json::{Value, json};

use super::client::{Answer, Connection, good_review, must_serve, pod, post};
use super::process::{NAME, Webhook};
use crate::pods::review_of;

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

fn changed(change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut review = review();
    change(&mut review);
    review.to_string().into_bytes()
}

fn text() -> String {
    String::from_utf8(good_review()).unwrap()
}

#[test]
fn bodies_that_are_no_review_are_400_and_the_connection_goes_on() {
    let webhook = Webhook::start();
    let mut connection = Connection::open(&webhook);
    let whole = good_review();
    refused(&mut connection, b"", "the body is empty");
    refused(&mut connection, b" \n", "the body is empty");
    refused(&mut connection, b"not json", "not an AdmissionReview");
    refused(&mut connection, &whole[..whole.len() / 2], "not an AdmissionReview");
    refused(&mut connection, &[&whole[..], b"x"].concat(), "not an AdmissionReview");
    assert_eq!(webhook.metric("stowplan_admission_failures_total{reason=\"InvalidReview\"}"), 5.0);
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
fn duplicate_keys_are_400() {
    let webhook = Webhook::start();
    let mut connection = Connection::open(&webhook);
    let body = text().replacen("\"operation\":", "\"uid\":\"other\",\"operation\":", 1);
    refused(&mut connection, body.as_bytes(), "duplicate field `uid`");
}

#[test]
fn keys_in_other_cases_are_other_keys() {
    let webhook = Webhook::start();
    let mut connection = Connection::open(&webhook);
    let body = text().replace("\"annotations\":", "\"Annotations\":");
    let response = ask(&mut connection, body.as_bytes()).response();
    assert_eq!(response["allowed"], true);
    assert_eq!(response.get("patch"), None);
    refused(
        &mut connection,
        text().replace("\"request\":", "\"Request\":").as_bytes(),
        "has no request",
    );
}

#[test]
fn invalid_text_is_400_and_not_echoed() {
    let webhook = Webhook::start();
    let mut connection = Connection::open(&webhook);
    let spoilt = |with: &[u8]| {
        let (before, after) =
            text().split_once("\"n1\"").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        [before.as_bytes(), b"\"", with, b"\"", after.as_bytes()].concat()
    };
    refused(&mut connection, &spoilt(b"\xff\xfe"), "not an AdmissionReview");
    refused(&mut connection, &spoilt(b"\\ud800"), "not an AdmissionReview");
    refused(
        &mut connection,
        &[b"\xef\xbb\xbf".as_slice(), &good_review()].concat(),
        "not an AdmissionReview",
    );
    // NUL is valid text: the refusal names the annotation.
    let response = ask(&mut connection, &spoilt(b"n1\\u0000")).response();
    assert_eq!(response["status"]["code"], 422, "{response}");
    assert!(!response["status"]["message"].as_str().unwrap().contains('\0'));
}

#[test]
fn nulls_are_absent() {
    let webhook = Webhook::start();
    let mut connection = Connection::open(&webhook);
    let body = changed(|review| {
        review["request"]["object"]["metadata"]["annotations"] = Value::Null;
        review["request"]["object"]["spec"]["volumes"] = Value::Null;
        review["request"]["oldObject"] = Value::Null;
    });
    let response = ask(&mut connection, &body).response();
    assert_eq!((&response["allowed"], response.get("patch")), (&json!(true), None));
}

#[test]
fn numbers_out_of_range_are_refused_by_name() {
    let webhook = Webhook::start();
    let mut connection = Connection::open(&webhook);
    for index in ["9223372036854775808", "1e999", "-0", "007"] {
        let value = format!("p[{index}]");
        let body = review_of("default", &pod(&[("streams.ibm.com/host-pool", &value)])).to_string();
        let response = ask(&mut connection, body.as_bytes()).response();
        assert_eq!(response["allowed"], false, "{index}");
        assert_eq!(response["status"]["code"], 422, "{response}");
        assert!(
            response["status"]["message"].as_str().unwrap().contains("streams.ibm.com/host-pool"),
            "{response}"
        );
    }
}

#[test]
fn other_versions_and_missing_parts_are_400() {
    let webhook = Webhook::start();
    let mut connection = Connection::open(&webhook);
    let body = changed(|review| review["apiVersion"] = json!("admission.k8s.io/v1beta1"));
    refused(&mut connection, &body, "v1beta1 is not served");
    refused(&mut connection, &changed(|review| review["kind"] = json!("Pod")), "kind Pod of");
    refused(&mut connection, &changed(|review| review["request"] = Value::Null), "has no request");
    refused(
        &mut connection,
        &changed(|review| review["request"]["uid"] = json!("")),
        "request.uid is missing",
    );
    let exact = "0F0e-\u{e9}\"\\";
    let response =
        ask(&mut connection, &changed(|review| review["request"]["uid"] = json!(exact))).response();
    assert_eq!(response["uid"], exact);
}

#[test]
fn a_strange_uid_is_checked_escaped_and_not_believed() {
    let webhook = Webhook::start();
    let mut connection = Connection::open(&webhook);
    let long = changed(|review| review["request"]["uid"] = json!("u".repeat(1024 * 1024)));
    refused(&mut connection, &long, "longer than 128 bytes");
    let forged = "u\"\n{\"level\":\"ERROR\",\"message\":\"forged\"}";
    let response =
        ask(&mut connection, &changed(|review| review["request"]["uid"] = json!(forged)))
            .response();
    assert_eq!(response["uid"], forged);
    webhook.until("logged", || webhook.log().contains("forged"));
    for line in webhook.log().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_ne!(line["message"], "forged");
    }
}

#[test]
fn what_is_no_creation_of_a_pod_passes_without_a_patch() {
    let webhook = Webhook::start();
    let mut connection = Connection::open(&webhook);
    for operation in ["UPDATE", "DELETE", "CONNECT", "PATCH"] {
        let body = changed(|review| review["request"]["operation"] = json!(operation));
        let response = ask(&mut connection, &body).response();
        assert_eq!(
            (&response["allowed"], response.get("patch")),
            (&json!(true), None),
            "{operation}"
        );
    }
    for subresource in ["ephemeralcontainers", "status", "resize", "binding"] {
        let body = changed(|review| review["request"]["subResource"] = json!(subresource));
        let response = ask(&mut connection, &body).response();
        assert_eq!(
            (&response["allowed"], response.get("patch")),
            (&json!(true), None),
            "{subresource}"
        );
    }
    // An unknown operation does not become a label value.
    let metrics = webhook.admin("/metrics").body;
    assert!(metrics.contains("operation=\"other\"") && !metrics.contains("PATCH"), "{metrics}");
}

#[test]
fn a_dry_run_gets_the_same_patch() {
    let webhook = Webhook::start();
    let mut connection = Connection::open(&webhook);
    let wet = connection.call(&post(&good_review())).response();
    let dry = ask(&mut connection, &changed(|review| review["request"]["dryRun"] = json!(true)))
        .response();
    assert_eq!(wet, dry);
}

#[test]
fn a_patch_applies_where_parents_are_missing() {
    let webhook = Webhook::start();
    let mut connection = Connection::open(&webhook);
    for spec in [
        json!({}),
        json!({"affinity": {}}),
        json!({"affinity": {"nodeAffinity": {}}, "tolerations": []}),
    ] {
        let body = changed(|review| {
            review["request"]["object"]["spec"] = spec;
            review["request"]["object"]["spec"]["containers"] =
                json!([{"name": "c", "image": "i"}]);
        });
        let review: Value = serde_json::from_slice(&body).unwrap();
        let patched = patched(&ask(&mut connection, &body), &review["request"]["object"]);
        let required = &patched["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        assert_eq!(
            required["nodeSelectorTerms"][0]["matchFields"][0]["values"],
            json!(["n1"]),
            "{patched}"
        );
    }
}

#[test]
fn keys_are_escaped_in_pointers() {
    let webhook = Webhook::start();
    let mut connection = Connection::open(&webhook);
    let pod = pod(&[("streams.ibm.com/host-colocation", "a/b~c")]);
    let response = ask(&mut connection, review_of("default", &pod).to_string().as_bytes());
    let patched = patched(&response, &pod);
    // The record's own key has a slash.
    assert!(patched["metadata"]["annotations"]["stowplan.dev/placement"].is_string(), "{patched}");
    let labels = patched["metadata"]["labels"].as_object().unwrap();
    assert!(
        labels.keys().any(|key| key.starts_with("streams.ibm.com/hostcolocation.")),
        "{patched}"
    );
}

#[test]
fn a_huge_annotation_is_answered_in_short() {
    let webhook = Webhook::start();
    let mut connection = Connection::open(&webhook);
    for value in [
        "x".repeat(256 * 1024),
        "a,".repeat(10_000),
        "(a+)+$".repeat(10_000),
        json!({"a": [1]}).to_string(),
    ] {
        let body = review_of("default", &pod(&[("streams.ibm.com/host", &value)])).to_string();
        let answer = ask(&mut connection, body.as_bytes());
        assert!(answer.body.len() < 4096, "{}", answer.body.len());
        let response = answer.response();
        assert_eq!(response["status"]["code"], 422, "{response}");
    }
}

/// `pod` with the patch of an answer.
fn patched(answer: &Answer, pod: &Value) -> Value {
    use base64::Engine as _;
    let response = answer.response();
    let patch = base64::engine::general_purpose::STANDARD
        .decode(response["patch"].as_str().unwrap())
        .unwrap();
    crate::pods::patched(pod, &serde_json::from_slice::<Vec<_>>(&patch).unwrap()).unwrap()
}

#[test]
fn own_objects_are_validated_on_their_own_path() {
    let webhook = Webhook::start();
    let mut connection = Connection::open(&webhook);
    let validate = |body: &[u8]| {
        let request = String::from_utf8(post(body)).unwrap();
        request.replacen("POST /mutate?", "POST /validate?", 1).into_bytes()
    };
    let review = |resource: &str, kind: &str, spec: Value| {
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
        review("streamsjobs", "StreamsJob", spec)
    };
    for (review, allowed, part) in [
        (job("n1"), true, ""),
        (job("n9"), false, "StreamsJob o: no node has the name n9, which operator \"Source\""),
        (review("hostpools", "HostPool", json!({"size": 0})), false, "HostPool o: has size 0"),
        (self::review(), true, ""),
    ] {
        let answer = connection.call(&validate(review.to_string().as_bytes()));
        let response = answer.response();
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
    let answer = connection.call(&validate(nothing.to_string().as_bytes()));
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("no object"), "{}", answer.text());
    let refused = "stowplan_admission_requests_total{operation=\"CREATE\",outcome=\"refused\",reason=\"UnknownHost\"}";
    assert_eq!(webhook.metric(refused), 1.0);
}
