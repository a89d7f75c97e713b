//! Builds the pod of an object: the object itself, or the pod that its controller creates from a
//! template.
//!
//! The fields that controllers add are those that the controllers of Kubernetes 1.36 add, as far as
//! they are known in advance: owner, name, ordinal or index. Hashes and uids are zeros.

use serde_json::{Map, Value, json};

use super::input::{Item, describe};
use crate::placement::reason::Warning;
use crate::systems::exclusion::IGNORE;
use crate::systems::vocabulary::find_system;

/// Used for a uid that the API server has not assigned yet.
const NO_UID: &str = "00000000-0000-0000-0000-000000000000";

/// The pod of an object, and where its template is.
#[derive(Debug)]
pub(super) struct Expanded {
    /// The pod as the webhook would receive it, without the defaults of the API server.
    pub(super) pod: Value,
    /// JSON pointer from the object to the part that is patched: the object itself or its template.
    pub(super) pointer: &'static str,
}

/// The JSON pointer to the pod or the pod template in an object. `None` if its kind is not known to
/// create pods.
pub(super) fn find_template(item: &Item<'_>) -> Option<&'static str> {
    let group = item.version.rsplit_once('/').map_or("", |(group, _)| group);
    match (group, item.kind.as_str()) {
        ("", "Pod") => Some(""),
        ("", "PodTemplate") => Some("/template"),
        ("batch", "CronJob") => Some("/spec/jobTemplate/spec/template"),
        ("batch", "Job") | ("", "ReplicationController") => Some("/spec/template"),
        ("apps", "DaemonSet" | "Deployment" | "ReplicaSet" | "StatefulSet") => {
            Some("/spec/template")
        }
        _ => item
            .value
            .pointer("/spec/template/spec/containers")
            .is_some_and(Value::is_array)
            .then_some("/spec/template"),
    }
}

/// Builds the pod of `item`, which is in `namespace`; `pointer` is the result of [`find_template`].
///
/// # Errors
/// Why the object is invalid; the API server would refuse it.
pub(super) fn expand(
    item: &Item<'_>,
    pointer: &'static str,
    namespace: &str,
) -> Result<Expanded, String> {
    let Some(template) = item.value.pointer(pointer) else {
        return Err(format!("has no {}", format_pointer(pointer)));
    };
    let path = |rest: &str| match pointer {
        "" => rest.to_owned(),
        pointer => format!("{}.{rest}", format_pointer(pointer)),
    };
    let mut pod = read_map(Some(template), &format_pointer(pointer))?;
    let sent = read_map(pod.get("metadata"), &path("metadata"))?;
    let labels = read_texts(sent.get("labels"), &path("metadata.labels"))?;
    let annotations = read_texts(sent.get("annotations"), &path("metadata.annotations"))?;
    // Of a template's metadata, controllers copy only labels, annotations and finalizers.
    let mut metadata = match pointer {
        "" => sent,
        _ => sent.into_iter().filter(|(key, _)| key == "finalizers").collect(),
    };
    for (key, texts) in [("labels", labels), ("annotations", annotations)] {
        match texts {
            Some(texts) => metadata.insert(key.to_owned(), texts.into()),
            None => metadata.remove(key),
        };
    }
    if !pointer.is_empty() {
        add_controller_metadata(item, &mut metadata);
    }
    metadata.insert("namespace".to_owned(), namespace.into());
    pod.insert("metadata".to_owned(), metadata.into());
    pod.insert("apiVersion".to_owned(), "v1".into());
    pod.insert("kind".to_owned(), "Pod".into());
    Ok(Expanded { pod: pod.into(), pointer })
}

/// Finds keys of stowplan in the metadata of an object that creates pods, where they have no effect:
/// the webhook sees only the pods, which have the metadata of the template. Controllers of other kinds
/// than Kubernetes' own may copy the object's metadata.
pub(super) fn find_misplaced(item: &Item<'_>, pointer: &str) -> Vec<Warning> {
    let mut misplaced = Vec::new();
    let group = item.version.rsplit_once('/').map_or("", |(group, _)| group);
    if !matches!(group, "" | "apps" | "batch") {
        return misplaced;
    }
    // The metadata of every object around the template.
    let levels: &[&str] = match pointer {
        "" => &[],
        "/spec/jobTemplate/spec/template" => &["", "/spec/jobTemplate"],
        _ => &[""],
    };
    let keys = |path: &str| {
        let map = item.value.pointer(path).and_then(Value::as_object);
        map.into_iter().flat_map(|map| map.keys())
    };
    for level in levels {
        for (kind, other) in [("annotations", "labels"), ("labels", "annotations")] {
            for key in keys(&format!("{level}/metadata/{kind}")) {
                let is_known = match key == IGNORE {
                    true => kind == "labels",
                    false => find_system(key).is_some(),
                };
                let has = |kind: &str| {
                    keys(&format!("{pointer}/metadata/{kind}")).any(|other| other == key)
                };
                if is_known && !has(kind) && !has(other) {
                    let right = if key == IGNORE { "labels" } else { "annotations" };
                    let path = format!("{}.metadata.{right}", format_pointer(pointer));
                    let text = format!("no effect on a {}; write it into {path}", item.kind);
                    misplaced.push(Warning::new(key, &text));
                }
            }
        }
    }
    misplaced
}

/// Adds the metadata that a controller gives to the pods that it creates.
fn add_controller_metadata(item: &Item<'_>, metadata: &mut Map<String, Value>) {
    let name = match name(item.value) {
        Some((name, true)) => name.to_owned(),
        Some((prefix, false)) => format!("{prefix}00000"),
        None => String::new(),
    };
    let (version, kind, owner) = match item.kind.as_str() {
        "PodTemplate" => {
            metadata.insert("generateName".to_owned(), format!("{name}-").into());
            return;
        }
        "Deployment" => ("apps/v1", "ReplicaSet", format!("{name}-0000000000")),
        "CronJob" => ("batch/v1", "Job", format!("{name}-00000000")),
        kind => (item.version.as_str(), kind, name),
    };
    let mut prefix = format!("{owner}-");
    let spec = item.value.get("spec");
    match kind {
        "StatefulSet" => {
            let start =
                spec.and_then(|spec| spec.pointer("/ordinals/start")).and_then(Value::as_u64);
            let ordinal = start.unwrap_or_default().to_string();
            let pod = format!("{owner}-{ordinal}");
            add(metadata, "labels", "apps.kubernetes.io/pod-index", &ordinal);
            add(metadata, "labels", "statefulset.kubernetes.io/pod-name", &pod);
            metadata.insert("name".to_owned(), pod.into());
        }
        "Job" => {
            for key in ["batch.kubernetes.io/job-name", "job-name"] {
                add(metadata, "labels", key, &owner);
            }
            for key in ["batch.kubernetes.io/controller-uid", "controller-uid"] {
                add(metadata, "labels", key, NO_UID);
            }
            let spec = match item.kind.as_str() {
                "CronJob" => item.value.pointer("/spec/jobTemplate/spec"),
                _ => spec,
            };
            let mode = spec.and_then(|spec| spec.get("completionMode")).and_then(Value::as_str);
            if mode == Some("Indexed") {
                let key = "batch.kubernetes.io/job-completion-index";
                add(metadata, "labels", key, "0");
                add(metadata, "annotations", key, "0");
                prefix = format!("{owner}-0-");
            }
        }
        _ => {}
    }
    metadata.insert("generateName".to_owned(), prefix.into());
    metadata.insert(
        "ownerReferences".to_owned(),
        json!([{
            "apiVersion": version,
            "kind": kind,
            "name": owner,
            "uid": NO_UID,
            "controller": true,
            "blockOwnerDeletion": true,
        }]),
    );
}

fn add(metadata: &mut Map<String, Value>, map: &str, key: &str, value: &str) {
    let map = metadata.entry(map).or_insert_with(|| json!({}));
    if let Value::Object(map) = map {
        map.insert(key.to_owned(), value.into());
    }
}

/// The name of an object and `true`, or else its `generateName` and `false`.
pub(super) fn name(object: &Value) -> Option<(&str, bool)> {
    let text = |key| object.get("metadata")?.get(key)?.as_str().filter(|name| !name.is_empty());
    text("name").map(|name| (name, true)).or_else(|| text("generateName").map(|name| (name, false)))
}

/// Reads a map; null and absent are an empty one.
fn read_map(value: Option<&Value>, path: &str) -> Result<Map<String, Value>, String> {
    match value {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(members)) => Ok(members.clone()),
        Some(other) => Err(format!("{path} is {}, and must be a map", describe(other))),
    }
}

/// Reads a map of strings. The API server reads a null value in it as an empty string.
fn read_texts(value: Option<&Value>, path: &str) -> Result<Option<Map<String, Value>>, String> {
    if matches!(value, None | Some(Value::Null)) {
        return Ok(None);
    }
    let mut texts = read_map(value, path)?;
    for (key, value) in &mut texts {
        match value {
            Value::String(_) => {}
            Value::Null => *value = "".into(),
            Value::Number(_) | Value::Bool(_) => {
                let what = describe(value);
                return Err(format!(
                    "{path}: {key} is {what}, and must be a text: quote it (\"{value}\")"
                ));
            }
            other => {
                return Err(format!("{path}: {key} is {}, and must be a text", describe(other)));
            }
        }
    }
    Ok(Some(texts))
}

fn format_pointer(pointer: &str) -> String {
    match pointer {
        "" => "the object".to_owned(),
        pointer => pointer.trim_start_matches('/').replace('/', "."),
    }
}
