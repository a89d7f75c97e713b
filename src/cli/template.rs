//! Builds the pod of an object: the object itself, or the pod that its controller creates from a
//! template.
//!
//! The fields that controllers add are those that the controllers of Kubernetes 1.36 add, as far as
//! they are known in advance: owner, name, ordinal or index. Hashes and uids are zeros.

use serde_json::{Map, Value, json};

use super::input::names::name;
use super::input::{Item, read_map, read_texts};
use stowplan_core::placement::reason::Warning;
use stowplan_core::systems::exclusion::IGNORE;
use stowplan_core::systems::vocabulary::find_system;
use stowplan_core::view::resource::STATEFUL_SET;

/// Used for a uid that the API server has not assigned yet.
const NO_UID: &str = "00000000-0000-0000-0000-000000000000";

/// Returns the JSON pointer to the pod, or to the template of the pods that a controller of
/// Kubernetes makes. `None`: none of them makes pods of this kind.
pub(super) fn find_template(item: &Item<'_>) -> Option<&'static str> {
    match (item.group(), item.kind.as_str()) {
        ("", "Pod") => Some(""),
        ("", "PodTemplate") => Some("/template"),
        ("batch", "CronJob") => Some("/spec/jobTemplate/spec/template"),
        ("batch", "Job") | ("", "ReplicationController") => Some("/spec/template"),
        ("apps", "DaemonSet" | "Deployment" | "ReplicaSet" | "StatefulSet") => {
            Some("/spec/template")
        }
        _ => None,
    }
}

/// Returns the JSON pointers to the parts of a value, below its top, that have the form of a pod
/// template: a map with `spec.containers`.
pub(super) fn find_templates(value: &Value) -> Vec<String> {
    let is_template =
        |value: &Value| value.pointer("/spec/containers").is_some_and(Value::is_array);
    find_parts(value, &|_, value| is_template(value))
}

/// Returns the JSON pointers to the annotations and labels in a value that are keys of stowplan.
pub(super) fn find_keys(value: &Value) -> Vec<String> {
    find_parts(value, &|key, _| find_system(key).is_some())
}

/// Returns the JSON pointers to the parts of a value, and not those inside them, for which `is` is
/// true of their key and value.
fn find_parts(value: &Value, is: &impl Fn(&str, &Value) -> bool) -> Vec<String> {
    let below = |key: &str, value: &Value| -> Vec<String> {
        let rest = if is(key, value) { vec![String::new()] } else { find_parts(value, is) };
        let token = |rest| format!("/{}{rest}", key.replace('~', "~0").replace('/', "~1"));
        rest.into_iter().map(token).collect()
    };
    match value {
        Value::Object(members) => {
            members.iter().flat_map(|(key, value)| below(key, value)).collect()
        }
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.flat_map(|(index, value)| below(&index.to_string(), value)).collect()
        }
        _ => Vec::new(),
    }
}

/// Builds the pod of `item`, which has this name in `namespace`, as the webhook would receive it,
/// without the defaults of the API server; `pointer` is a result of [`find_template`] or
/// [`find_templates`].
///
/// # Errors
/// Why the object is invalid; the API server would refuse it.
pub(super) fn expand(
    item: &Item<'_>,
    name: &str,
    pointer: &str,
    namespace: &str,
) -> Result<Value, String> {
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
        add_controller_fields(item, name, &mut metadata, &mut pod);
    }
    metadata.insert("namespace".to_owned(), namespace.into());
    pod.insert("metadata".to_owned(), metadata.into());
    pod.insert("apiVersion".to_owned(), "v1".into());
    pod.insert("kind".to_owned(), "Pod".into());
    Ok(pod.into())
}

/// Finds keys of stowplan in the metadata of an object that creates pods, where they have no effect:
/// the webhook sees only the pods, which have the metadata of the template. Controllers of other kinds
/// than Kubernetes' own may copy the object's metadata.
pub(super) fn find_misplaced(item: &Item<'_>, pointer: &str) -> Vec<Warning> {
    let mut misplaced = Vec::new();
    if !matches!(item.group(), "" | "apps" | "batch") {
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

/// Adds the metadata and the names that a controller gives to the pods that it creates.
fn add_controller_fields(
    item: &Item<'_>,
    name: &str,
    metadata: &mut Map<String, Value>,
    pod: &mut Map<String, Value>,
) {
    let is_played = find_template(item).is_some();
    let (version, kind, owner) = match item.kind.as_str() {
        "PodTemplate" if is_played => {
            metadata.insert("generateName".to_owned(), format!("{name}-").into());
            return;
        }
        "Deployment" if is_played => ("apps/v1", "ReplicaSet", format!("{name}-0000000000")),
        "CronJob" if is_played => ("batch/v1", "Job", format!("{name}-00000000")),
        kind => (item.version.as_str(), kind, name.to_owned()),
    };
    let mut prefix = format!("{owner}-");
    match kind {
        "StatefulSet" if is_played => {
            let name = name_of_first(item, name);
            let ordinal = name.rsplit('-').next().unwrap_or_default();
            let service = item.value.pointer("/spec/serviceName").and_then(Value::as_str);
            add(metadata, "labels", "apps.kubernetes.io/pod-index", ordinal);
            add(metadata, "labels", "statefulset.kubernetes.io/pod-name", &name);
            set_name(pod, "hostname", &name);
            set_name(pod, "subdomain", service.unwrap_or_default());
            mount_claims(item, &name, pod);
            metadata.insert("name".to_owned(), name.into());
        }
        "Job" if is_played => {
            for prefix in ["batch.kubernetes.io/", ""] {
                add(metadata, "labels", &format!("{prefix}job-name"), &owner);
                add(metadata, "labels", &format!("{prefix}controller-uid"), NO_UID);
            }
            let mode = match item.kind.as_str() {
                "CronJob" => "/spec/jobTemplate/spec/completionMode",
                _ => "/spec/completionMode",
            };
            if item.value.pointer(mode).is_some_and(|mode| mode == "Indexed") {
                let key = "batch.kubernetes.io/job-completion-index";
                add(metadata, "labels", key, "0");
                add(metadata, "annotations", key, "0");
                set_name(pod, "hostname", &format!("{owner}-0"));
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

/// The claims that the controller of a StatefulSet with this name creates before the pod of ordinal 0,
/// each with the JSON pointer to its template.
///
/// # Errors
/// Why a template is invalid.
pub(super) fn claims(
    item: &Item<'_>,
    owner: &str,
    namespace: &str,
) -> Result<Vec<(String, Value)>, String> {
    let mut claims = Vec::new();
    for (index, template) in claim_templates(item).iter().enumerate() {
        let pointer = format!("/spec/volumeClaimTemplates/{index}");
        let path = format_pointer(&pointer);
        let mut claim = read_map(Some(template), &path)?;
        let mut metadata = read_map(claim.get("metadata"), &format!("{path}.metadata"))?;
        let selected = read_map(item.value.pointer("/spec/selector/matchLabels"), "spec.selector")?;
        for (key, added) in [("labels", selected), ("annotations", Map::new())] {
            let path = format!("{path}.metadata.{key}");
            let mut texts = read_texts(metadata.get(key), &path)?.unwrap_or_default();
            texts.extend(added);
            metadata.insert(key.to_owned(), texts.into());
        }
        let name = name(template).map_or("", |(name, _)| name);
        metadata.insert("name".to_owned(), format!("{name}-{}", name_of_first(item, owner)).into());
        metadata.insert("namespace".to_owned(), namespace.into());
        claim.insert("metadata".to_owned(), metadata.into());
        claim.insert("apiVersion".to_owned(), "v1".into());
        claim.insert("kind".to_owned(), CLAIM.into());
        claims.push((pointer, claim.into()));
    }
    Ok(claims)
}

/// The kind of claims.
pub(super) const CLAIM: &str = "PersistentVolumeClaim";

fn claim_templates<'d>(item: &Item<'d>) -> &'d [Value] {
    let templates = item.value.pointer("/spec/volumeClaimTemplates").and_then(Value::as_array);
    templates.filter(|_| item.is_of(&STATEFUL_SET)).map_or(&[], Vec::as_slice)
}

/// Mounts the claims of a StatefulSet in its pod. A volume of the template with the name of a claim
/// is replaced. The others come first here, and last in the pod that the controller makes: so they
/// keep their indices in the template.
fn mount_claims(item: &Item<'_>, pod_name: &str, pod: &mut Map<String, Value>) {
    let templates = claim_templates(item);
    let Some(Value::Object(spec)) = pod.get_mut("spec").filter(|_| !templates.is_empty()) else {
        return;
    };
    let volumes = spec.entry("volumes").or_insert(Value::Null);
    if volumes.is_null() {
        *volumes = json!([]);
    }
    let Value::Array(volumes) = volumes else { return };
    for (name, _) in templates.iter().filter_map(name) {
        let claim = json!({"claimName": format!("{name}-{pod_name}")});
        let mounted = json!({"name": name, "persistentVolumeClaim": claim});
        match volumes.iter_mut().find(|volume| volume["name"] == name) {
            Some(volume) => *volume = mounted,
            None => volumes.push(mounted),
        }
    }
}

/// The name of the first pod of a StatefulSet with this name.
fn name_of_first(item: &Item<'_>, name: &str) -> String {
    let start = item.value.pointer("/spec/ordinals/start").and_then(Value::as_u64);
    format!("{name}-{}", start.unwrap_or_default())
}

/// Directs operations on a field of the template that the controller of `item` sets itself to the
/// field of `item` that it sets it to: the subdomain of the pods of a StatefulSet is its
/// `serviceName`.
pub(super) fn redirect(item: &Item<'_>, patch: &mut [Value]) {
    for operation in patch.iter_mut().filter(|_| item.is_of(&STATEFUL_SET)) {
        if operation["path"] == "/spec/template/spec/subdomain" {
            operation["path"] = "/spec/serviceName".into();
        }
    }
}

/// Returns true if each node gets a pod of `item`.
pub(super) fn is_for_each_node(item: &Item<'_>) -> bool {
    matches!((item.group(), item.kind.as_str()), ("apps", "DaemonSet"))
}

/// Requires a node by its name, as the controller of DaemonSets does in place of the node selector
/// terms of the template.
pub(super) fn pin(pod: &mut Value, node: &str) {
    let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    let mut parent = pod;
    for key in ["spec", "affinity", "nodeAffinity"] {
        parent = &mut parent[key];
        if parent.is_null() {
            *parent = json!({});
        }
        if !parent.is_object() {
            return;
        }
    }
    parent["requiredDuringSchedulingIgnoredDuringExecution"] =
        json!({"nodeSelectorTerms": [{"matchFields": [field]}]});
}

/// Sets a name in the spec of a pod, whatever the template says; empty is absent.
fn set_name(pod: &mut Map<String, Value>, field: &str, name: &str) {
    let Some(Value::Object(spec)) = pod.get_mut("spec") else { return };
    match name {
        "" => spec.remove(field),
        name => spec.insert(field.to_owned(), name.into()),
    };
}

fn add(metadata: &mut Map<String, Value>, map: &str, key: &str, value: &str) {
    let map = metadata.entry(map).or_insert_with(|| json!({}));
    if let Value::Object(map) = map {
        map.insert(key.to_owned(), value.into());
    }
}

/// Formats a JSON pointer as people write paths: `spec.tasks[0].template`.
pub(super) fn format_pointer(pointer: &str) -> String {
    let mut path = String::new();
    for token in pointer.split('/').skip(1) {
        match token.parse::<usize>() {
            Ok(index) => path += &format!("[{index}]"),
            Err(_) if path.is_empty() => path += token,
            Err(_) => path += &format!(".{token}"),
        }
    }
    if path.is_empty() {
        "the object".to_owned()
    } else {
        path.replace("~1", "/").replace("~0", "~")
    }
}
