//! Our own objects on their way into the cluster: one that cannot be served fails where it is made,
//! with all that is wrong.
//!
//! Only what is certain is refused. What may change by itself (a standalone pool whose hosts are not
//! there yet) shows in the object's status.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::review::{ParseError, Review, brief};
use super::{Admission, Decision, Pass, Refusal, opted_out};
use crate::api;
use crate::api::streams_job::StreamsJobSpec;
use crate::placement::reason::{Finding, Reason, Warning, quoted};
use crate::policy::{OnInvalid, Policy};
use crate::systems::streams::guard;
use crate::systems::streams::job::check::check;
use crate::systems::streams::resolve::{Resolved, resolve, told};
use crate::systems::vocabulary::IGNORE;
use crate::view::host_pool::Form;
use crate::view::{HostPool, Name, StreamsJob, View};

/// The kinds of ours, by plural name.
const HOST_POOLS: &str = "hostpools";
const STREAMS_JOBS: &str = "streamsjobs";

/// Whether a review is about an object of ours.
#[must_use]
pub fn concerns(review: &Review<'_>) -> bool {
    let group = api::VERSION.split('/').next().unwrap_or_default();
    [HOST_POOLS, STREAMS_JOBS].iter().any(|resource| review.request.changes(group, resource))
}

/// Decides whether an object of ours may be made or changed. Other kinds and operations pass, and so
/// does a change that asks for nothing new: whoever labels an object or lets it go is not to be told
/// that it could not be made today.
///
/// # Errors
/// [`ParseError`]: no answer can be given.
pub fn validate(review: &Review<'_>, view: &View, policy: &Policy) -> Result<Decision, ParseError> {
    if !concerns(review) {
        return Ok(Decision::Pass(Pass::OutOfScope));
    }
    let namespace = review.request.namespace();
    if policy.excludes(namespace) {
        return Ok(Decision::Pass(Pass::ExcludedNamespace));
    }
    let ignored = view.namespace_labels(namespace).and_then(|labels| labels.get(IGNORE));
    if opted_out(ignored.map(AsRef::as_ref)) {
        return Ok(Decision::Pass(Pass::Ignored));
    }
    let (object, old) = review.objects()?;
    let new: Outline = outline(object)?;
    if new.metadata.contains_key("deletionTimestamp") {
        return Ok(Decision::Pass(Pass::Unchanged));
    }
    if let (Some(old), "UPDATE") = (old, review.request.operation())
        && outline(old)?.spec == new.spec
    {
        return Ok(Decision::Pass(Pass::Unchanged));
    }
    let findings = match review.request.resource() {
        HOST_POOLS => match serde_json::from_str::<api::HostPool>(object.get()) {
            Ok(pool) => host_pool(&new.name(namespace), &HostPool::from(&pool), view, policy),
            Err(error) => vec![unreadable(Reason::MalformedPool, "HostPool", &error)],
        },
        _ => match serde_json::from_str::<api::StreamsJob>(object.get()) {
            Ok(job) => {
                let name = new.name(namespace);
                let before = old.map(|old| serde_json::from_str::<api::StreamsJob>(old.get()));
                match before {
                    // What was made before a rule that it breaks may still be mended.
                    Some(Ok(before)) if review.request.operation() == "UPDATE" => {
                        changed(&name, &before.spec, &job.spec)
                    }
                    _ => None,
                }
                .map_or_else(
                    || check(&name, &StreamsJob::from(&job), view, policy),
                    |finding| vec![finding],
                )
            }
            Err(error) => vec![unreadable(Reason::MalformedJob, "StreamsJob", &error)],
        },
    };
    Ok(conclude(findings, policy))
}

/// An object as far as all kinds are alike.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Outline {
    metadata: Map<String, Value>,
    spec: Value,
}

impl Outline {
    /// The name in the request's namespace. One that the API server has still to generate is empty.
    fn name(&self, namespace: &str) -> Name {
        let name = self.metadata.get("name").and_then(Value::as_str);
        Name::new(namespace, name.unwrap_or_default())
    }
}

fn outline(object: &RawValue) -> Result<Outline, ParseError> {
    serde_json::from_str(object.get()).map_err(|error| ParseError::Json(brief(&error)))
}

fn unreadable(reason: Reason, kind: &str, error: &serde_json::Error) -> Finding {
    let problem = format!("cannot be read: {}", brief(error));
    Finding::new(reason, kind, problem, "write it as `kubectl explain` tells")
}

/// What must not change of a job and does: all but the size of a pool, which may grow. Its pods were
/// placed by what it said; the definition's own rules cannot afford to compare that.
fn changed(name: &Name, old: &StreamsJobSpec, new: &StreamsJobSpec) -> Option<Finding> {
    let mut comparable = new.clone();
    for (pool, before) in comparable.pools.iter_mut().zip(&old.pools) {
        if pool.size > before.size && before.size.is_some() {
            pool.size = before.size;
        }
    }
    let what = if comparable.enforcement != old.enforcement {
        "its enforcement".to_owned()
    } else if comparable.pools != old.pools {
        let mut pairs = comparable.pools.iter().zip(&old.pools);
        match pairs.find(|(new, old)| new != old) {
            Some((pool, _)) => format!("pool {}", quoted(&pool.name)),
            None => "its list of pools".to_owned(),
        }
    } else if comparable.processing_elements != old.processing_elements {
        let mut pairs = comparable.processing_elements.iter().zip(&old.processing_elements);
        match pairs.find(|(new, old)| new != old) {
            Some((element, _)) => format!("processing element {}", quoted(&element.name)),
            None => "its list of processing elements".to_owned(),
        }
    } else {
        return None;
    };
    Some(Finding::new(
        Reason::ImmutableSpec,
        format!("StreamsJob {}", name.name),
        format!("{what} changes, and only the size of a pool may, to grow"),
        "make a new job: the pods of this one were placed by what it says",
    ))
}

/// What is certainly wrong with a HostPool.
fn host_pool(name: &Name, pool: &HostPool, view: &View, policy: &Policy) -> Vec<Finding> {
    let subject = format!("HostPool {}", name.name);
    let mut findings = Vec::new();
    match &pool.form {
        Err(problem) => findings.push(Finding::new(
            Reason::MalformedPool,
            subject.as_str(),
            problem.as_str(),
            "give hosts, or size and tags (`kubectl explain hostpool.spec`)",
        )),
        Ok(form) => {
            findings.extend(guard::pools(&subject, &name.namespace, view, policy).err());
            if pool.exclusive {
                let others = |other: &str, _: &HostPool| *other != *name.name;
                let wanted = guard::hosts(Some(form));
                let guarded =
                    guard::exclusive_hosts(&subject, &name.namespace, wanted, others, view, policy);
                findings.extend(guarded.err());
            }
            if let Form::Literal(hosts) = form {
                let mut seen = HashMap::new();
                for host in hosts {
                    let Resolved::Node(node) = resolve(view, host) else { continue };
                    if let Some(earlier) = seen.insert(node, host) {
                        let problem = format!(
                            "has node {node} twice: once as the {}, once as the {}",
                            told(earlier),
                            told(host)
                        );
                        let remedy = "list each node once";
                        findings.push(Finding::new(
                            Reason::InvalidPool,
                            subject.as_str(),
                            problem,
                            remedy,
                        ));
                    }
                }
            }
        }
    }
    findings.sort_by_key(|finding| finding.reason.stage());
    findings
}

fn conclude(findings: Vec<Finding>, policy: &Policy) -> Decision {
    let Some(first) = findings.first() else { return Decision::Pass(Pass::Valid) };
    match policy.on_invalid {
        OnInvalid::Refuse => Decision::Refuse(Refusal { findings, warnings: Vec::new() }),
        OnInvalid::Warn => {
            let text = format!("cannot be served ({}): {first}", first.reason);
            let warnings = vec![Warning::new(&first.subject, &text)];
            Decision::Admit(Admission { warnings, findings, ..Admission::default() })
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::view::Object;

    fn view() -> View {
        let mut view = View::default();
        for document in [
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"addresses": [{"type": "InternalIP", "address": "10.8.5.6"}]}}),
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ignored", "labels": {"stowplan.dev/ignore": "true"}}}),
        ] {
            view.apply(Object::from_document(document).unwrap().unwrap());
        }
        view
    }

    /// A request as the API server sends it; `old` makes it an update.
    fn request(resource: &str, spec: &Value, old: Option<&Value>) -> Value {
        let kind = if resource == HOST_POOLS { "HostPool" } else { "StreamsJob" };
        let object = |spec: &Value| {
            let metadata = json!({"name": "o", "namespace": "ns", "uid": "u"});
            json!({"apiVersion": api::VERSION, "kind": kind, "metadata": metadata, "spec": spec})
        };
        json!({
            "kind": "AdmissionReview",
            "apiVersion": "admission.k8s.io/v1",
            "request": {
                "uid": "r",
                "resource": {"group": "stowplan.dev", "version": "v1alpha1", "resource": resource},
                "namespace": "ns",
                "operation": if old.is_some() { "UPDATE" } else { "CREATE" },
                "object": object(spec),
                "oldObject": old.map(object),
            },
        })
    }

    fn decided(review: &Value, policy: &str) -> Result<Decision, ParseError> {
        let bytes = review.to_string();
        let policy = Policy::from_yaml(policy).unwrap();
        validate(&Review::parse(bytes.as_bytes())?, &view(), &policy)
    }

    fn told(review: &Value, policy: &str) -> String {
        match decided(review, policy).unwrap() {
            Decision::Pass(pass) => format!("{pass:?}"),
            Decision::Refuse(refusal) => {
                format!("{} {}", refusal.code(), refusal.first().reason)
            }
            decision => format!("{decision:?}"),
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
            assert_eq!(told(&request(HOST_POOLS, &spec, None), policy), expected, "{spec}");
        }
    }

    #[test]
    fn jobs_are_refused_as_the_check_says() {
        let element = |host: &str| json!({"processingElements": [{"name": "e", "operators": [{"name": "O", "host": {"name": host}}]}]});
        assert_eq!(told(&request(STREAMS_JOBS, &element("n1"), None), ""), "Valid");
        let review = request(STREAMS_JOBS, &element("n9"), None);
        assert_eq!(told(&review, ""), "409 UnknownHost");
        let Decision::Admit(admission) = decided(&review, "onInvalid: warn").unwrap() else {
            panic!("not admitted")
        };
        assert!(admission.patch.is_empty());
        assert!(
            admission.warnings[0]
                .as_str()
                .starts_with("StreamsJob o: cannot be served (UnknownHost)")
        );
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
            assert_eq!(told(&request(STREAMS_JOBS, &new, Some(&old)), ""), expected, "{new}");
        }
        let review = request(STREAMS_JOBS, &json!({"processingElements": [{}]}), None);
        assert_eq!(told(&review, ""), "422 MalformedJob");
    }

    #[test]
    fn what_asks_for_nothing_new_passes() {
        let wrong = json!({"size": 0});
        assert_eq!(told(&request(HOST_POOLS, &wrong, Some(&wrong)), ""), "Unchanged");
        let changed = request(HOST_POOLS, &wrong, Some(&json!({"size": 1})));
        assert_eq!(told(&changed, ""), "422 MalformedPool");
        let mut leaving = changed.clone();
        leaving["request"]["object"]["metadata"]["deletionTimestamp"] =
            json!("2026-01-01T00:00:00Z");
        assert_eq!(told(&leaving, ""), "Unchanged");
        // An old object in a CREATE is nobody's doing, and says nothing.
        let mut create = request(HOST_POOLS, &wrong, Some(&wrong));
        create["request"]["operation"] = json!("CREATE");
        assert_eq!(told(&create, ""), "422 MalformedPool");
    }

    #[test]
    fn others_pass() {
        let wrong = request(HOST_POOLS, &json!({"size": 0}), None);
        for (pointer, value, expected) in [
            ("/request/operation", "DELETE", "OutOfScope"),
            ("/request/resource/resource", "pods", "OutOfScope"),
            ("/request/resource/group", "", "OutOfScope"),
            ("/request/namespace", "kube-system", "ExcludedNamespace"),
            ("/request/namespace", "ignored", "Ignored"),
        ] {
            let mut review = wrong.clone();
            *review.pointer_mut(pointer).unwrap() = json!(value);
            assert_eq!(told(&review, ""), expected, "{pointer} {value}");
        }
        let mut status = wrong.clone();
        status["request"]["subResource"] = json!("status");
        assert_eq!(told(&status, ""), "OutOfScope");
        let mut nothing = wrong;
        nothing["request"]["object"] = Value::Null;
        assert_eq!(decided(&nothing, "").unwrap_err(), ParseError::NoObject);
    }
}
