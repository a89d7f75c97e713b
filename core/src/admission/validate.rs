//! Validates stowplan's own objects when they are created or changed, so that an object that cannot be
//! served fails where it is written, with every reason.
//!
//! Each system brings the rules for its own kinds (`VALIDATIONS`). Only what is certain is
//! refused. What may change by itself, such as a pool whose hosts do not exist yet, shows in the object's
//! status.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::review::{ParseError, Review, brief};
use super::{Admission, Decision, Pass, Refusal};
use crate::placement::reason::{Finding, Warning};
use crate::policy::OnInvalid;
use crate::systems::policy::Policy;
use crate::systems::validation::{Incoming, Validation};
use crate::systems::{Outcome, VALIDATIONS, View};
use crate::view::Name;

/// Returns true if a review is about an object that a system validates.
#[must_use]
pub fn concerns(review: &Review<'_>) -> bool {
    validation(review).is_some()
}

fn validation(review: &Review<'_>) -> Option<&'static Validation> {
    VALIDATIONS.iter().find(|validation| {
        review.request.changes(validation.resource.group, validation.resource.plural)
    })
}

/// Decides whether one of stowplan's own objects may be created or changed. Other kinds and operations
/// pass, and so does a change that leaves the spec as it is: a user who labels or deletes an object does
/// not have to mend it first. Namespaces are not excluded: that leaves their pods alone, while their pools
/// would take nodes.
///
/// # Errors
/// [`ParseError`]: no answer can be given.
pub fn validate(review: &Review<'_>, view: &View, policy: &Policy) -> Result<Decision, ParseError> {
    let Some(validation) = validation(review) else {
        return Ok(Decision::Pass(Pass::OutOfScope));
    };
    let namespace = review.request.namespace();
    let (object, old) = review.objects()?;
    let new: Outline = outline(object)?;
    if new.metadata.contains_key("deletionTimestamp") {
        return Ok(Decision::Pass(Pass::Unchanged));
    }
    let old = old.filter(|_| review.request.operation() == "UPDATE");
    if let Some(old) = old
        && outline(old)?.spec == new.spec
    {
        return Ok(Decision::Pass(Pass::Unchanged));
    }
    let incoming =
        Incoming { name: &new.name(namespace), object: object.get(), old: old.map(RawValue::get) };
    let outcome = (validation.check)(&incoming, view, policy).unwrap_or_else(|error| {
        let problem = format!("cannot be read: {}", brief(&error));
        let remedy = "write it as `kubectl explain` shows";
        vec![Finding::new(validation.unreadable, validation.resource.kind, problem, remedy)].into()
    });
    Ok(conclude(outcome, policy))
}

/// The fields that all kinds have.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Outline {
    metadata: Map<String, Value>,
    spec: Value,
}

impl Outline {
    /// The name in the request's namespace; empty if the API server generates it later.
    fn name(&self, namespace: &str) -> Name {
        let name = self.metadata.get("name").and_then(Value::as_str);
        Name::new(namespace, name.unwrap_or_default())
    }
}

fn outline(object: &RawValue) -> Result<Outline, ParseError> {
    serde_json::from_str(object.get()).map_err(|error| ParseError::Json(brief(&error)))
}

fn conclude(outcome: Outcome, policy: &Policy) -> Decision {
    let Outcome { findings, warnings, intents, .. } = outcome;
    debug_assert!(intents.is_empty(), "a validation changes nothing: {intents:?}");
    let Some(first) = findings.first() else {
        return match warnings.is_empty() {
            true => Decision::Pass(Pass::Valid),
            false => Decision::Admit(Admission { warnings, ..Admission::default() }),
        };
    };
    match policy.on_invalid {
        OnInvalid::Refuse => Decision::Refuse(Refusal { findings, warnings: Vec::new() }),
        OnInvalid::Warn => {
            let warnings = vec![Warning::of_finding("cannot be served", first)];
            Decision::Admit(Admission { warnings, findings, ..Admission::default() })
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api;
    use crate::systems::test_objects::{node, view_of};

    const HOST_POOLS: &str = "hostpools";
    const STREAMS_JOBS: &str = "streamsjobs";

    fn view() -> View {
        let addresses = json!([{"type": "InternalIP", "address": "10.8.5.6"}]);
        let metadata = json!({"name": "ignored", "labels": {"stowplan.dev/ignore": "true"}});
        view_of([
            node("n1", &json!({"status": {"addresses": addresses}})),
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}),
        ])
    }

    /// A request as the API server sends it; `old` makes it an update.
    fn request(resource: &str, spec: &Value, old: Option<&Value>) -> Value {
        let kind = if resource == HOST_POOLS { "HostPool" } else { "StreamsJob" };
        let object = |spec: &Value| {
            let metadata = json!({"name": "o", "namespace": "ns", "uid": "u"});
            json!({"apiVersion": api::VERSION, "kind": kind, "metadata": metadata, "spec": spec})
        };
        let resource =
            json!({"group": "stowplan.dev", "version": "v1alpha1", "resource": resource});
        let operation = if old.is_some() { "UPDATE" } else { "CREATE" };
        let request = json!({
            "uid": "r", "resource": resource, "namespace": "ns", "operation": operation,
            "object": object(spec), "oldObject": old.map(object),
        });
        let (kind, version) = ("AdmissionReview", "admission.k8s.io/v1");
        json!({"kind": kind, "apiVersion": version, "request": request})
    }

    fn describe(review: &Value, policy: &str) -> String {
        let bytes = review.to_string();
        let policy = Policy::from_yaml(policy).unwrap();
        match validate(&Review::parse(bytes.as_bytes()).unwrap(), &view(), &policy) {
            Ok(Decision::Pass(pass)) => format!("{pass:?}"),
            Ok(Decision::Refuse(of)) => format!("{} {}", of.code(), of.first().reason),
            Ok(Decision::Admit(admission)) => {
                assert!(admission.patch.is_empty());
                format!("Warn {}", admission.warnings[0].as_str())
            }
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn pools_are_refused_for_what_is_certain() {
        for (spec, policy, expected) in [
            (json!({"size": 3}), "", "Valid"),
            (json!({}), "", "Valid"),
            // Nodes come and go: the status tells.
            (json!({"hosts": ["n1", "n9"]}), "", "Valid"),
            (json!({"size": 5000, "tags": ["none"]}), "", "Valid"),
            (json!({"hosts": ["n1", "10.8.5.6"]}), "", "409 InvalidPool"),
            (json!({"hosts": []}), "", "422 MalformedPool"),
            (json!({"size": 0}), "", "422 MalformedPool"),
            (json!({"exclusivity": "Exclusive"}), "", "422 MalformedPool"),
            (json!({"size": "three"}), "", "422 MalformedPool"),
            (json!({"size": 9, "exclusivity": "Exclusive"}), "", "403 TooManyExclusiveNodes"),
            (json!({"size": 1}), "hostPools: {enabled: false}", "403 PoolNotAllowed"),
            (json!({"size": 1}), "hostPools: {namespaces: {team: a}}", "403 PoolNotAllowed"),
        ] {
            assert_eq!(describe(&request(HOST_POOLS, &spec, None), policy), expected, "{spec}");
        }
    }

    #[test]
    fn jobs_are_refused_as_the_check_says() {
        let operators = json!([{"name": "O", "host": {"name": "n9"}}]);
        let spec = json!({"processingElements": [{"name": "e", "operators": operators}]});
        let review = request(STREAMS_JOBS, &spec, None);
        assert_eq!(describe(&review, ""), "409 UnknownHost");
        let warned = describe(&review, "onInvalid: warn");
        let expected = "Warn StreamsJob o: cannot be served (UnknownHost)";
        assert!(warned.starts_with(expected), "{warned}");
        let old = json!({"pools": [{"name": "P", "size": 1}, {"name": "Q"}], "processingElements": [{"name": "e"}]});
        for (pointer, value, expected) in [
            ("/pools/0/size", json!(1), "Unchanged"),
            ("/pools/0/size", json!(0), "422 ImmutableSpec"),
            ("/pools/0/size", Value::Null, "422 ImmutableSpec"),
            // The one node is not enough: growing is allowed, and checked.
            ("/pools/0/size", json!(2), "409 InsufficientNodes"),
            ("/pools/1", json!({"name": "Q", "size": 1}), "422 ImmutableSpec"),
            ("/pools", json!([]), "422 ImmutableSpec"),
            ("/processingElements/0/name", json!("f"), "422 ImmutableSpec"),
            ("/processingElements", json!([]), "422 ImmutableSpec"),
        ] {
            let mut new = old.clone();
            *new.pointer_mut(pointer).unwrap() = value;
            assert_eq!(describe(&request(STREAMS_JOBS, &new, Some(&old)), ""), expected, "{new}");
        }
        let review = request(STREAMS_JOBS, &json!({"processingElements": [{}]}), None);
        assert_eq!(describe(&review, ""), "422 MalformedJob");
    }

    #[test]
    fn what_asks_for_nothing_new_passes() {
        let wrong = json!({"size": 0});
        assert_eq!(describe(&request(HOST_POOLS, &wrong, Some(&wrong)), ""), "Unchanged");
        let changed = request(HOST_POOLS, &wrong, Some(&json!({"size": 1})));
        assert_eq!(describe(&changed, ""), "422 MalformedPool");
        let mut leaving = changed.clone();
        leaving["request"]["object"]["metadata"]["deletionTimestamp"] =
            json!("2026-01-01T00:00:00Z");
        assert_eq!(describe(&leaving, ""), "Unchanged");
        // An old object in a CREATE is ignored: no client can cause it.
        let mut create = request(HOST_POOLS, &wrong, Some(&wrong));
        create["request"]["operation"] = json!("CREATE");
        assert_eq!(describe(&create, ""), "422 MalformedPool");
    }

    #[test]
    fn others_pass() {
        let wrong = request(HOST_POOLS, &json!({"size": 0}), None);
        for (pointer, value, expected) in [
            ("/operation", "DELETE", "OutOfScope"),
            ("/resource/resource", "pods", "OutOfScope"),
            ("/resource/group", "", "OutOfScope"),
            ("/subResource", "status", "OutOfScope"),
            // The pods of these namespaces are left alone, but their pools would take nodes.
            ("/namespace", "kube-system", "422 MalformedPool"),
            ("/namespace", "ignored", "422 MalformedPool"),
        ] {
            let mut review = wrong.clone();
            review["request"]["subResource"] = Value::Null;
            *review["request"].pointer_mut(pointer).unwrap() = json!(value);
            assert_eq!(describe(&review, ""), expected, "{pointer} {value}");
        }
    }
}
