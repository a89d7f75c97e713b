//! Parts that the fuzz targets share: a cluster, pods and claims that carry the fuzzed value,
//! and what has to hold for every input. A target is one function here and three lines in
//! `targets/`.

pub mod pods;
pub mod seeds;

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use stowplan_core::admission::{
    Admission, Decision, ParseError, Pass, Refusal, Review, answer, decide,
};
use stowplan_core::placement::claim::CLASS_ANNOTATION;
use stowplan_core::placement::reason::Warning;
use stowplan_core::placement::record;
use stowplan_core::systems::View;
use stowplan_core::systems::policy::Policy;

/// The longest message or error, in characters.
const MAX_MESSAGE: usize = 2048;

/// The most warnings of one answer: one for each key that is known, and a few more.
const MAX_WARNINGS: usize = 40;

/// A target.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name: the binary's and the corpus folder's.
    pub name: &'static str,
    /// Handles an input.
    pub run: fn(&[u8]),
}

/// Every target but `documents`, which is a whole program (see `targets/documents.rs`).
pub const TARGETS: &[Target] = &[
    Target { name: "review", run: review },
    Target { name: "host", run: |value| annotation("streams.ibm.com/host", value) },
    Target { name: "host_pool", run: |value| annotation("streams.ibm.com/host-pool", value) },
    Target {
        name: "host_colocation",
        run: |value| annotation("streams.ibm.com/host-colocation", value),
    },
    Target {
        name: "host_exlocation",
        run: |value| annotation("streams.ibm.com/host-exlocation", value),
    },
    Target {
        name: "host_isolation",
        run: |value| annotation("streams.ibm.com/host-isolation", value),
    },
    Target {
        name: "host_enforcement",
        run: |value| annotation("streams.ibm.com/host-enforcement", value),
    },
    Target {
        name: "coschedule_group",
        run: |value| annotation("stowplan.dev/coschedule-group", value),
    },
    Target { name: "mpi", run: mpi },
    Target { name: "numa", run: numa },
    Target { name: "claim", run: claim },
    Target { name: "keys", run: keys },
    Target { name: "record", run: record },
    Target { name: "affinity", run: affinity },
    Target { name: "policy", run: policy },
];

/// Runs the target `name`.
///
/// # Panics
/// Where something does not hold; where there is no such target.
pub fn run(name: &str, input: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target of this name");
    (target.run)(input);
}

/// `input` is the body of the HTTP request.
fn review(input: &[u8]) {
    for policy in POLICIES.iter() {
        judge(input, policy);
    }
}

/// `input` is the value of the annotation `key`, on pods of several shapes.
fn annotation(key: &str, input: &[u8]) {
    in_context(PODS, input, &pods::around(key), |pod, value| {
        pod["metadata"]["annotations"][key] = json!(str::from_utf8(value).ok()?);
        Some(())
    });
}

/// Each line of `input` is a key of MPI clusters, `=` and its value, on pods of several shapes.
fn mpi(input: &[u8]) {
    in_context(PODS, input, &pods::of_clusters(), |pod, text| {
        for line in str::from_utf8(text).ok()?.split('\n') {
            let (key, value) = line.split_once('=')?;
            pod["metadata"]["annotations"][format!("{MPI}{key}")] = json!(value);
        }
        Some(())
    });
}

/// The first line of `input` is a NUMA affinity, the rest an anti-affinity, on pods that Katalyst binds and
/// others; an empty one is absent.
fn numa(input: &[u8]) {
    in_context(PODS, input, &pods::bound_to_numa(), |pod, text| {
        let text = str::from_utf8(text).ok()?;
        let (affinity, anti_affinity) = text.split_once('\n').unwrap_or((text, ""));
        for (key, value) in [("affinity", affinity), ("antiaffinity", anti_affinity)] {
            if !value.is_empty() {
                let key = format!("{NUMA}{key}");
                pod["metadata"]["annotations"][key] = json!(value);
            }
        }
        Some(())
    });
}

/// The prefix of the annotations that are made canonical.
const NUMA: &str = "katalyst.kubewharf.io/microtopology_";

/// The prefix of the keys of MPI clusters.
const MPI: &str = "mpi.stowplan.dev/";

/// The members of a spec that grow in pods of MPI clusters.
const GROWING: [&str; 6] =
    ["containers", "dnsConfig", "hostname", "initContainers", "subdomain", "volumes"];

/// `input` is the spec of a claim, as JSON.
fn claim(input: &[u8]) {
    in_context(CLAIMS, input, &pods::claims(), |claim, value| {
        claim["spec"] = serde_json::from_slice(value).ok()?;
        Some(())
    });
}

/// Each line of `input` is an annotation key.
fn keys(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    let mut pod = pods::plain();
    for key in text.split('\n') {
        pod["metadata"]["annotations"][key] = json!("n1");
    }
    let body = review_of(PODS, &pod);
    for policy in POLICIES.iter() {
        judge(&body, policy);
    }
}

/// `input` is the record annotation, on pods that bear out this or that.
fn record(input: &[u8]) {
    in_context(PODS, input, &pods::with_outcomes(), |pod, value| {
        pod["metadata"]["annotations"][record::KEY] = json!(str::from_utf8(value).ok()?);
        Some(())
    });
}

/// `input` is `spec.affinity` as JSON, on pods with constraints.
fn affinity(input: &[u8]) {
    in_context(PODS, input, &pods::with_constraints(), |pod, value| {
        pod["spec"]["affinity"] = serde_json::from_slice(value).ok()?;
        Some(())
    });
}

/// The first byte picks one of the objects and one of the policies; `fill` writes the others into
/// the object.
///
/// Every object under every policy for each input would be as thorough, and twenty times as slow.
fn in_context(
    resource: &str,
    input: &[u8],
    objects: &[Value],
    fill: impl Fn(&mut Value, &[u8]) -> Option<()>,
) {
    let Some((&context, value)) = input.split_first() else { return };
    let context = usize::from(context);
    let mut object = objects[context % objects.len()].clone();
    if fill(&mut object, value).is_some() {
        let policy = &POLICIES[context / objects.len() % POLICIES.len()];
        judge(&review_of(resource, &object), policy);
    }
}

/// `input` is a policy file.
fn policy(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    let Ok(policy) = Policy::from_yaml(text) else { return };
    let again = serde_saphyr::to_string(&policy).expect("a policy can be written");
    assert_eq!(Policy::from_yaml(&again).as_ref(), Ok(&policy), "written as {again}");
    for pod in pods::with_constraints() {
        judge(&review_of(PODS, &pod), &policy);
    }
}

const PODS: &str = "pods";
const CLAIMS: &str = "persistentvolumeclaims";

/// The body of a request that creates `object`, of this core resource.
fn review_of(resource: &str, object: &Value) -> Vec<u8> {
    serde_json::to_vec(&json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u", "operation": "CREATE", "namespace": "default",
            "resource": {"group": "", "version": "v1", "resource": resource}, "object": object,
        },
    }))
    .expect("JSON")
}

/// Checks what has to hold for every request under every policy.
fn judge(body: &[u8], policy: &Policy) {
    let Ok(review) = Review::parse(body).map_err(|error| bounded(&error.to_string())) else {
        return;
    };
    let Ok(decision) = decide_of(&review, policy) else { return };

    let written = answer::write(&review, &decision);
    let again = decide_of(&review, policy).expect("the same again");
    assert_eq!(written, answer::write(&review, &again), "the same input, the same answer");
    let answered: Value = serde_json::from_slice(&written).expect("the answer is JSON");
    let response = &answered["response"];
    assert_eq!(response["uid"].as_str(), Some(review.request.uid.as_str()));
    assert_eq!(response["patch"].is_string(), response["patchType"] == "JSONPatch");

    match decision {
        Decision::Pass(_) => assert!(response["allowed"] == true && response["patch"].is_null()),
        Decision::Admit(admission) => {
            assert_eq!(response["allowed"], true);
            warnings(&admission.warnings);
            admitted(body, &admission, response, policy);
        }
        Decision::Refuse(refusal) => {
            assert_eq!(response["allowed"], false);
            refused(&refusal);
            if review.request.resource() == CLAIMS {
                refused_for_a_key(body, &refusal);
            }
        }
        Decision::Wait { .. } => unreachable!("decided at once"),
    }
}

fn decide_of(review: &Review<'_>, policy: &Policy) -> Result<Decision, ParseError> {
    let decision =
        decide(review, &VIEW, policy).inspect_err(|error| bounded(&error.to_string()))?;
    if let Decision::Wait { awaited, otherwise } = &decision {
        assert!(!matches!(**otherwise, Decision::Wait { .. }), "never waits twice");
        assert!(!awaited.to_string().is_empty());
    }
    Ok(decision.at_once())
}

fn refused(refusal: &Refusal) {
    assert!((400..500).contains(&refusal.code()));
    bounded(&refusal.message());
    for finding in &refusal.findings {
        bounded(&finding.to_string());
    }
    warnings(&refusal.warnings);
}

/// A claim is refused for nothing but a key on it. (A finding may contain the key's name escaped.)
fn refused_for_a_key(body: &[u8], refusal: &Refusal) {
    let Ok(body) = serde_json::from_slice::<Value>(body) else { return };
    let annotations = &body["request"]["object"]["metadata"]["annotations"];
    for finding in &refusal.findings {
        let domain = |key: &str| key.find('/').map_or(key.len(), |slash| slash + 1);
        let is_there = |key: &String| finding.subject.starts_with(&key[..domain(key)]);
        let mut keys = annotations.as_object().into_iter().flat_map(serde_json::Map::keys);
        assert!(keys.any(is_there), "{finding} is about no key of {annotations}");
    }
}

fn admitted(body: &[u8], admission: &Admission, response: &Value, policy: &Policy) {
    for intent in &admission.intents {
        printable(&intent.why);
    }
    // A number that no f64 holds, or lists in lists beyond 128: skipped by us, refused by every API
    // server.
    let Ok(mut body) = serde_json::from_slice::<Value>(body) else { return };
    let before = body["request"]["object"].clone();
    let mut after = before.clone();
    if let Some(patch) = response["patch"].as_str() {
        let patch = STANDARD.decode(patch).expect("base64");
        let patch: json_patch::Patch = serde_json::from_slice(&patch).expect("a patch");
        assert!(!patch.is_empty(), "no patch is not an empty patch");
        json_patch::patch(&mut after, &patch).expect("the patch applies");
    }
    match body["request"]["resource"]["resource"].as_str() {
        Some(CLAIMS) => stays::<PersistentVolumeClaim>(&before, &after),
        _ => stays::<Pod>(&before, &after),
    }
    untouched(&before, &after);

    body["request"]["object"] = after;
    let body = serde_json::to_vec(&body).expect("JSON");
    let review = Review::parse(&body).expect("a review stays a review");
    match decide_of(&review, policy).expect("a pod stays a pod") {
        Decision::Admit(second) => {
            let again = String::from_utf8_lossy(&body);
            assert_eq!(second.patch.operations(), [], "a second round changes nothing in {again}");
        }
        // Only a record was removed.
        Decision::Pass(Pass::NoKeys) => {}
        decision => panic!("admitted, and then {decision:?}"),
    }
}

/// Checks that an API server that could read the object still can.
fn stays<T: DeserializeOwned>(before: &Value, after: &Value) {
    if T::deserialize(before).is_ok() {
        assert!(T::deserialize(after).is_ok(), "not one of its kind any more: {after}");
    }
}

/// Fields that stowplan does not own are unchanged.
fn untouched(before: &Value, after: &Value) {
    let annotations = before["metadata"]["annotations"].as_object();
    let is_of_cluster = annotations.is_some_and(|all| all.keys().any(|key| key.starts_with(MPI)));
    let mut rest = [before.clone(), after.clone()];
    for member in GROWING.iter().filter(|_| is_of_cluster) {
        grows(&before["spec"][member], &after["spec"][member]);
        for pod in &mut rest {
            if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
                spec.remove(*member);
            }
        }
    }
    for pod in &mut rest {
        for (parent, member) in [
            ("metadata", "labels"),
            ("metadata", "annotations"),
            ("spec", "affinity"),
            ("spec", "nodeName"),
            ("spec", "schedulingGates"),
            ("spec", "storageClassName"),
        ] {
            if let Some(parent) = pod.get_mut(parent).and_then(Value::as_object_mut) {
                parent.remove(member);
            }
        }
        // Which claim a volume is may change; that it is one, and how, may not.
        for volume in pod["spec"]["volumes"].as_array_mut().into_iter().flatten() {
            if let Some(name) = volume.pointer_mut("/persistentVolumeClaim/claimName") {
                name.take();
            }
        }
        // Made for its first member, in a pod that has none.
        if pod["spec"].as_object().is_some_and(serde_json::Map::is_empty) {
            pod["spec"].take();
        }
        if let Some(pod) = pod.as_object_mut() {
            pod.retain(|_, value| !value.is_null());
        }
    }
    assert_eq!(rest[0], rest[1], "the rest of the pod");
    for member in ["labels", "annotations"] {
        for (key, value) in before["metadata"][member].as_object().into_iter().flatten() {
            let kept = &after["metadata"][member][key];
            let ours = [record::KEY, CLASS_ANNOTATION].contains(&&**key) || key.starts_with(NUMA);
            assert!(kept == value || ours, "{member} {key}: {value} became {kept}");
        }
    }
    for member in ["affinity", "schedulingGates"] {
        extends(&before["spec"][member], &after["spec"][member]);
    }
}

/// Checks that all that is in `before` is in `after`, at the same places; empty texts are absent.
fn grows(before: &Value, after: &Value) {
    match (before, after) {
        (Value::Null, _) => {}
        (Value::String(text), _) if text.is_empty() => {}
        (Value::Object(before), Value::Object(after)) => {
            for (key, value) in before {
                // Which claim a volume is may change.
                if key != "claimName" {
                    grows(value, after.get(key).unwrap_or(&Value::Null));
                }
            }
        }
        (Value::Array(before), Value::Array(after)) => {
            assert!(after.len() >= before.len(), "{before:?} became {after:?}");
            before.iter().zip(after).for_each(|(before, after)| grows(before, after));
        }
        _ => assert_eq!(before, after),
    }
}

/// Returns whether all that is in `before` is in `after`, with exceptions for the node selector terms,
/// which are multiplied out, and for the null or empty ones, which may go.
fn extends(before: &Value, after: &Value) {
    match (before, after) {
        (Value::Null, _) => {}
        (Value::Object(before), Value::Object(after)) => {
            for (key, value) in before {
                if key != "nodeSelectorTerms" {
                    extends(value, after.get(key).unwrap_or(&Value::Null));
                }
            }
        }
        (Value::Array(before), Value::Array(after)) => {
            assert!(
                after.len() >= before.len() && after[..before.len()] == before[..],
                "{before:?} became {after:?}"
            );
        }
        _ => assert_eq!(before, after),
    }
}

fn warnings(warnings: &[Warning]) {
    assert!(warnings.len() <= MAX_WARNINGS, "{} warnings", warnings.len());
    for warning in warnings {
        printable(warning.as_str());
        assert!(warning.as_str().chars().count() <= Warning::LIMIT, "{warning:?}");
    }
}

fn bounded(message: &str) {
    printable(message);
    assert!(message.chars().count() <= MAX_MESSAGE, "{} bytes: {message}", message.len());
}

/// Neither control characters nor those that change the direction or the line of what follows.
fn printable(text: &str) {
    let bad = |c: char| {
        c.is_control()
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    assert!(!text.contains(bad), "{text:?}");
}

static POLICIES: LazyLock<Vec<Policy>> = LazyLock::new(|| {
    [
        "{}",
        "{streams: {compat: upstream}, katalyst: {mode: enforced, declaredLabels: [role]}}",
        "{onInvalid: warn, katalyst: {matchSemantics: any}}",
        "{onInvalid: warn, recordPlacement: false, streams: {compat: upstream}}",
    ]
    .map(|text| Policy::from_yaml(text).expect(text))
    .into()
});

static VIEW: LazyLock<View> = LazyLock::new(pods::view);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_passes_its_seeds() {
        for target in TARGETS {
            let seeds = seeds::of(target.name);
            assert!(seeds.len() > 3, "{}: {} seeds", target.name, seeds.len());
            for seed in seeds {
                (target.run)(&seed);
            }
        }
    }
}
