//! Pods and claims on their way through a decision, for every test: the review of an object, its
//! patch applied, and the check that the result keeps the author's fields.

use std::collections::BTreeSet;

use json_patch::PatchOperation;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use proptest::prelude::ProptestConfig;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use stowplan_core::admission::{Decision, ParseError, Review, decide};
use stowplan_core::systems;
use stowplan_core::systems::View;
use stowplan_core::systems::policy::Policy;

/// The record annotation.
pub(crate) const RECORD: &str = "stowplan.dev/placement";

/// The UID of every review.
pub(crate) const UID: &str = "0f0e7d9c-6b0a-4a53-9d3c-2f3a7a5b8c11";

/// The kinds whose creation is decided on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Pod,
    Claim,
}

impl Kind {
    pub(crate) const ALL: [Self; 2] = [Self::Pod, Self::Claim];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pod => "Pod",
            Self::Claim => "PersistentVolumeClaim",
        }
    }

    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Pod => "pods",
            Self::Claim => "persistentvolumeclaims",
        }
    }

    /// The review of an object's creation in `namespace`.
    pub(crate) fn review_of(self, namespace: &str, object: &Value) -> Value {
        json!({
            "kind": "AdmissionReview",
            "apiVersion": "admission.k8s.io/v1",
            "request": {
                "uid": UID,
                "kind": {"group": "", "version": "v1", "kind": self.name()},
                "resource": {"group": "", "version": "v1", "resource": self.plural()},
                "namespace": namespace,
                "operation": "CREATE",
                "userInfo": {"username": "admin"},
                "object": object,
                "oldObject": null,
                "dryRun": false,
            },
        })
    }

    /// The decision on the creation of an object, without waiting.
    pub(crate) fn decide(
        self,
        namespace: &str,
        object: &Value,
        view: &View,
        policy: &Policy,
    ) -> Result<Decision, ParseError> {
        let review = self.review_of(namespace, object);
        decide_bytes(review.to_string().as_bytes(), view, policy)
    }

    /// Returns whether the API server could decode `object`.
    pub(crate) fn check(self, object: &Value) -> Result<(), String> {
        match self {
            Self::Pod => typed(object).map(drop),
            Self::Claim => read_as::<PersistentVolumeClaim>(object).map(drop),
        }
    }

    /// `object` after other webhooks have made their usual changes.
    pub(crate) fn touched_by_others(self, object: &Value) -> Value {
        match self {
            Self::Pod => touched_by_others(object),
            Self::Claim => {
                let mut claim = object.clone();
                claim["metadata"]["labels"]["backup.example.com/daily"] = json!("yes");
                claim["metadata"]["annotations"]["backup.example.com/status"] = json!("{}");
                claim
            }
        }
    }
}

/// As many random cases as the environment variable `PROPTEST_CASES` says, which proptest reads, or `usual`.
pub(crate) fn random_cases(usual: u32) -> ProptestConfig {
    let config = ProptestConfig::default();
    ProptestConfig { cases: if config.cases == 256 { usual } else { config.cases }, ..config }
}

/// The review of a pod's creation in `namespace`.
pub(crate) fn review_of(namespace: &str, pod: &Value) -> Value {
    Kind::Pod.review_of(namespace, pod)
}

/// The decision on a review, without waiting.
pub(crate) fn decide_bytes(
    bytes: &[u8],
    view: &View,
    policy: &Policy,
) -> Result<Decision, ParseError> {
    decide(&Review::parse(bytes)?, view, policy).map(Decision::at_once)
}

/// The decision on the creation of a pod, without waiting.
pub(crate) fn decide_pod(
    namespace: &str,
    pod: &Value,
    view: &View,
    policy: &Policy,
) -> Result<Decision, ParseError> {
    Kind::Pod.decide(namespace, pod, view, policy)
}

/// The operations on an admitted object; none for one that is passed unchanged.
///
/// # Errors
/// If the object is refused.
pub(crate) fn patch_of(decision: &Decision) -> Result<Vec<PatchOperation>, String> {
    match decision {
        Decision::Pass(_) => Ok(Vec::new()),
        Decision::Admit(admission) => Ok(admission.patch.operations()),
        Decision::Refuse(refusal) => Err(format!("refused: {}", refusal.message())),
        Decision::Wait { otherwise, .. } => patch_of(otherwise),
    }
}

/// `object` with `patch` applied, by an RFC 6902 implementation that is not stowplan's.
pub(crate) fn patched(object: &Value, patch: &[PatchOperation]) -> Result<Value, String> {
    let mut result = object.clone();
    json_patch::patch(&mut result, patch)
        .map_err(|error| format!("the patch does not apply: {error}"))?;
    Ok(result)
}

/// `pod` as the API server would read it.
pub(crate) fn typed(pod: &Value) -> Result<Pod, String> {
    read_as(pod)
}

fn read_as<T: DeserializeOwned>(object: &Value) -> Result<T, String> {
    T::deserialize(object).map_err(|error| format!("no longer a valid object of its kind: {error}"))
}

/// A View of these objects.
pub(crate) fn view_of(objects: impl IntoIterator<Item = Value>) -> View {
    let mut view = View::default();
    for object in objects {
        let object = systems::object(object).expect("the object of a test is valid");
        view.apply(object.expect("the object of a test is of a kind that a View holds"));
    }
    view
}

/// Returns whether `after` has all of `before` at the same paths and in the same order. Permitted changes:
/// the record, an empty node selector term, a node name that became node affinity, terms that were
/// multiplied, the group's claim in place of the pod's, and a claim's storage class.
pub(crate) fn keeps(before: &Value, after: &Value) -> Result<(), String> {
    keeps_at("", before, after)
}

fn keeps_at(path: &str, before: &Value, after: &Value) -> Result<(), String> {
    match (before, after) {
        // Null is absent, and so is an empty name.
        (Value::Null, _) => Ok(()),
        (Value::String(name), _) if name.is_empty() && NAMES.contains(&path) => Ok(()),
        (Value::Object(before), Value::Object(after)) => {
            before.iter().try_for_each(|(key, value)| {
                let path = format!("{path}/{key}");
                match after.get(key) {
                    _ if path == format!("/metadata/annotations/{RECORD}") => Ok(()),
                    kept if is_numa_affinity(&path) => keeps_numa(&path, value, kept, after),
                    Some(Value::String(_)) if CLASSES.contains(&&*path) => Ok(()),
                    Some(kept) if replaces_claim(&path, value, kept) => Ok(()),
                    Some(kept) => keeps_at(&path, value, kept),
                    None if value.is_null() => Ok(()),
                    None if path == "/spec/nodeName" && pins(after, value) => Ok(()),
                    None => Err(format!("{path} is missing")),
                }
            })
        }
        (Value::Array(before), Value::Array(after)) if path.ends_with("/nodeSelectorTerms") => {
            keeps_terms(path, before, after)
        }
        (Value::Array(before), Value::Array(after)) => {
            if after.len() < before.len() {
                return Err(format!("{path} has lost items"));
            }
            before.iter().zip(after).enumerate().try_for_each(|(index, (before, after))| {
                keeps_at(&format!("{path}/{index}"), before, after)
            })
        }
        _ if before == after => Ok(()),
        _ => Err(format!("{path} was {before} and is {after}")),
    }
}

/// Returns true if an annotation is one that is made canonical.
fn is_numa_affinity(path: &str) -> bool {
    path.starts_with("/metadata/annotations/katalyst.kubewharf.io/microtopology_")
}

/// Returns whether a NUMA affinity selects the same as before. One without selectors may be missing, and so may
/// one that is only preferred and is in another of the `annotations`.
fn keeps_numa(
    path: &str,
    before: &Value,
    after: Option<&Value>,
    annotations: &serde_json::Map<String, Value>,
) -> Result<(), String> {
    let moved = annotations.get("katalyst.stowplan.dev/preferred-affinity");
    let kept = after.or(moved).filter(|_| after.is_some() || !path.ends_with("_antiaffinity"));
    let nothing = Value::from("{}");
    match (selectors_of(before), selectors_of(kept.unwrap_or(&nothing))) {
        (Some(before), Some(after)) if before == after => Ok(()),
        _ if Some(before) == after => Ok(()),
        _ => Err(format!("{path} was {before} and is {after:?}")),
    }
}

/// The selectors of a NUMA affinity as texts: list, labels and zone. `None`: not valid.
fn selectors_of(value: &Value) -> Option<BTreeSet<String>> {
    let text = value.as_str().filter(|text| !text.is_empty()).unwrap_or("{}");
    let parsed: Value = serde_json::from_str(text).ok()?;
    let mut selectors = BTreeSet::new();
    for list in ["preferred", "required"] {
        for selector in parsed[list].as_array().into_iter().flatten() {
            let labels = selector["matchLabels"].as_object()?;
            let labels: BTreeSet<_> =
                labels.iter().map(|(key, of)| format!("{key}={of}")).collect();
            let zone = selector["zone"].as_str().filter(|zone| !zone.is_empty()).unwrap_or("numa");
            if !labels.is_empty() {
                selectors.insert(format!("{list} {labels:?} {zone}"));
            }
        }
    }
    Some(selectors)
}

/// The names that may be empty.
const NAMES: [&str; 3] = ["/spec/nodeName", "/spec/hostname", "/spec/subdomain"];

/// Where the storage class of a claim is written.
const CLASSES: [&str; 2] =
    ["/spec/storageClassName", "/metadata/annotations/volume.beta.kubernetes.io/storage-class"];

/// Returns true if a volume's claim was replaced by its placeholder's: `<pvc>-<placeholder>-0`, where a
/// name of more than 63 characters is shortened to its first 52 and a hash.
fn replaces_claim(path: &str, before: &Value, after: &Value) -> bool {
    let at_its_place = path.starts_with("/spec/volumes/")
        && path.ends_with("/persistentVolumeClaim/claimName")
        && path.matches('/').count() == 5;
    let (Some(before), Some(after)) = (before.as_str(), after.as_str()) else { return false };
    let kept: String = before.chars().take(52).collect();
    let added = after.strip_prefix(&kept).unwrap_or_default();
    at_its_place && added.contains("-affinity-assistant-") && added.ends_with("-0")
}

/// Returns whether each old term became one or more new ones that contain all of it, in order.
fn keeps_terms(path: &str, before: &[Value], after: &[Value]) -> Result<(), String> {
    let unchanged = before.len() == after.len()
        && before.iter().zip(after).all(|(before, after)| keeps_at(path, before, after).is_ok());
    if unchanged {
        return Ok(());
    }
    let before: Vec<_> = before.iter().filter(|term| !is_empty_term(term)).collect();
    // For each old term: may the new terms so far end with one that it became?
    let mut ends = vec![false; before.len()];
    for (position, new) in after.iter().enumerate() {
        ends = (0..before.len())
            .map(|old| {
                let follows = ends[old] || if old == 0 { position == 0 } else { ends[old - 1] };
                follows && keeps_at(path, before[old], new).is_ok()
            })
            .collect();
    }
    match ends.last() {
        Some(true) => Ok(()),
        None if after.is_empty() => Ok(()),
        _ => Err(format!("{path} has lost or reordered terms")),
    }
}

fn is_empty_term(term: &Value) -> bool {
    let nothing = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    term.as_object().is_some_and(|members| members.values().all(nothing))
}

/// The terms of the required node affinity in an affinity.
const TERMS: &str =
    "/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";

/// Returns true if the required node affinity of this spec names `node` in every term.
fn pins(spec: &serde_json::Map<String, Value>, node: &Value) -> bool {
    let terms = spec.get("affinity").and_then(|affinity| affinity.pointer(TERMS)?.as_array());
    let wanted = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    let fields = |term: &Value| term["matchFields"].as_array().cloned().unwrap_or_default();
    terms.is_some_and(|terms| {
        !terms.is_empty() && terms.iter().all(|term| fields(term).contains(&wanted))
    })
}

/// `pod` after other webhooks have made their usual changes.
pub(crate) fn touched_by_others(pod: &Value) -> Value {
    let mut pod = pod.clone();
    let sidecar =
        json!({"name": "sidecar", "image": "proxy", "env": [{"name": "A", "value": "b"}]});
    push(&mut pod, &["spec", "containers"], sidecar);
    pod["metadata"]["labels"]["mesh.example.com/injected"] = json!("yes");
    pod["metadata"]["annotations"]["mesh.example.com/status"] = json!("{\"version\":1}");
    let toleration =
        json!({"key": "example.com/spot", "operator": "Exists", "effect": "NoSchedule"});
    push(&mut pod, &["spec", "tolerations"], toleration);
    let requirement = json!({"key": "example.com/arch", "operator": "In", "values": ["amd64"]});
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    push(
        &mut pod,
        &["spec", "affinity", "nodeAffinity", preferred],
        json!({"weight": 1, "preference": {"matchExpressions": [requirement]}}),
    );
    let near = json!({
        "weight": 7,
        "podAffinityTerm": {"labelSelector": {"matchLabels": {"mesh": "yes"}}, "topologyKey": "zone"},
    });
    push(&mut pod, &["spec", "affinity", "podAffinity", preferred], near.clone());
    push(&mut pod, &["spec", "affinity", "podAntiAffinity", preferred], near);
    let terms = pod["spec"]["affinity"].pointer_mut(TERMS).and_then(Value::as_array_mut);
    for term in terms.into_iter().flatten() {
        // An empty term matches nothing, and no webhook makes it match something.
        if !is_empty_term(term) {
            push(term, &["matchExpressions"], requirement.clone());
        }
    }
    pod
}

/// `object` with a field that no release of Kubernetes has, at every place where one may be added.
pub(crate) fn with_unknown_fields(object: &Value) -> Value {
    let mut object = object.clone();
    let field = json!({"from": "a newer release", "list": [1, 2.5, null]});
    let add = |value: &mut Value| {
        if let Value::Object(members) = value {
            members.insert("futureField".to_owned(), field.clone());
        }
    };
    for path in ["/metadata", "/spec", "/spec/affinity", "/spec/containers/0"] {
        object.pointer_mut(path).into_iter().for_each(add);
    }
    for list in ["/spec/schedulingGates", "/spec/volumes"] {
        let items = object.pointer_mut(list).and_then(Value::as_array_mut);
        for item in items.into_iter().flatten() {
            item.pointer_mut("/persistentVolumeClaim").into_iter().for_each(add);
            add(item);
        }
    }
    if let Some(affinity) = object.pointer_mut("/spec/affinity") {
        add_to_terms(affinity, &field);
    }
    object
}

fn add_to_terms(value: &mut Value, field: &Value) {
    match value {
        Value::Object(members) => {
            let is_term = ["matchExpressions", "matchFields", "topologyKey", "operator"]
                .iter()
                .any(|member| members.contains_key(*member));
            members.values_mut().for_each(|member| add_to_terms(member, field));
            if is_term {
                members.insert("futureField".to_owned(), field.clone());
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| add_to_terms(item, field)),
        _ => {}
    }
}

/// Appends to the list at `path`; missing or null parents are created.
fn push(root: &mut Value, path: &[&str], item: Value) {
    let mut value = root;
    for member in path {
        if value.is_null() {
            *value = json!({});
        }
        value = &mut value[*member];
    }
    if value.is_null() {
        *value = json!([]);
    }
    value.as_array_mut().expect("a list").push(item);
}
