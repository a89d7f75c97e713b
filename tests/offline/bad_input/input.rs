//! A valid review to spoil, and what came of it.

use serde_json::{Value, json};
use stowplan_core::admission::{Decision, ParseError};
use stowplan_core::placement::reason::Reason;
use stowplan_core::systems::View;
use stowplan_core::systems::policy::Policy;

use crate::pods::{decide_bytes, decide_pod, view_of};

pub(crate) const HOST: &str = "streams.ibm.com/host";

/// A small valid review, as text to spoil.
pub(crate) const SMALL: &str = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u-1","resource":{"group":"","version":"v1","resource":"pods"},"namespace":"default","operation":"CREATE","object":{"metadata":{"annotations":{"streams.ibm.com/host":"n1"}},"spec":{"containers":[{"name":"c"}]},"status":{}},"dryRun":false}}"#;

pub(crate) fn cluster() -> View {
    view_of([
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}),
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2"}}),
        json!({
            "apiVersion": "stowplan.dev/v1alpha1", "kind": "HostPool",
            "metadata": {"name": "pair", "namespace": "default"}, "spec": {"hosts": ["n1", "n2"]},
        }),
    ])
}

pub(crate) fn decided(bytes: &[u8]) -> Result<Decision, ParseError> {
    decide_bytes(bytes, &cluster(), &Policy::default())
}

/// The decision on the creation of a pod in the cluster.
pub(crate) fn decide(pod: &Value) -> Decision {
    decide_pod("default", pod, &cluster(), &Policy::default()).unwrap()
}

/// The error for bytes that are not a review; asserts that its text is short and printable.
pub(crate) fn error(bytes: &[u8]) -> ParseError {
    let error = decided(bytes).expect_err("no review");
    let text = error.to_string();
    assert!(text.len() < 1024, "{} bytes", text.len());
    assert!(!text.chars().any(char::is_control), "{text:?}");
    error
}

/// A part of [`SMALL`]: all of the pod's spec.
pub(crate) const SPEC: &str = r#""containers":[{"name":"c"}]"#;

pub(crate) fn spoilt(from: &str, to: &str) -> String {
    assert!(SMALL.contains(from), "{from}");
    SMALL.replacen(from, to, 1)
}

/// The review with `more` members behind this one.
pub(crate) fn extended(member: &str, more: &str) -> String {
    spoilt(member, &format!("{member},{more}"))
}

pub(crate) fn annotated(key: &str, value: &str) -> Value {
    json!({
        "metadata": {
            "name": "p",
            "labels": {"streams.ibm.com/job": "j", "streams.ibm.com/pe": "j-0"},
            "annotations": {key: value},
        },
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    })
}

pub(crate) fn reason(decision: &Decision) -> Option<Reason> {
    let Decision::Refuse(refusal) = decision else { return None };
    let message = refusal.message();
    assert!(message.len() < 2048, "{} bytes", message.len());
    assert!(!message.chars().any(char::is_control), "{message:?}");
    Some(refusal.first().reason)
}

/// Asserts that the value is refused as malformed under each key of Streams.
pub(crate) fn refused_under_each_key(value: &str) {
    let keys = "host host-pool host-colocation host-exlocation host-isolation host-enforcement";
    for key in keys.split(' ') {
        let decision = decide(&annotated(&format!("streams.ibm.com/{key}"), value));
        let code = reason(&decision).map(|reason| reason.stage().code());
        assert_eq!(code, Some(422), "{key}: {value:.20}");
    }
}

/// The pointers to every value in a document but itself.
pub(crate) fn pointers(document: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![(String::new(), document)];
    while let Some((path, value)) = open.pop() {
        let mut child = |token: &str, value| {
            let path = format!("{path}/{}", token.replace('~', "~0").replace('/', "~1"));
            found.push(path.clone());
            open.push((path, value));
        };
        match value {
            Value::Object(members) => members.iter().for_each(|(key, value)| child(key, value)),
            Value::Array(items) => {
                let items = items.iter().enumerate();
                items.for_each(|(index, value)| child(&index.to_string(), value));
            }
            _ => {}
        }
    }
    found
}
