//! The objects of the input as the controller would leave them: pools with their members, jobs with
//! their pools.
//!
//! Nothing is decided here. The systems make their plans as in the controller, and each write of a
//! plan is carried out on documents, until nothing is left to do.

use std::collections::{BTreeSet, HashMap};

use json_patch::{Patch, PatchOperation};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use crate::systems::plan::{Action, Plan, Write};
use crate::systems::policy::Policy;
use crate::systems::preview::ASSUMED_UID;
use crate::systems::{SYSTEMS, TABLES};
use crate::view::resource::{NODE, POD};
use crate::view::{Object, Scope, View};

/// The most plans that are carried out. A pool needs one for each kind of write.
const MOST_PLANS: usize = 64;

/// How far the time advances at most. Enough for the waits between the writes about one pool, and
/// too short for the replacement of a node that is NotReady.
const HORIZON: SignedDuration = SignedDuration::from_secs(10);

/// Whether the controller writes the status of objects of this kind before pods can use them.
pub(super) fn is_settled(version: &str, kind: &str) -> bool {
    let mut settled = SYSTEMS.iter().flat_map(|system| system.settled);
    settled.any(|resource| resource.kind == kind && resource.api_version() == version)
}

/// Kind, namespace and name.
type Key = (String, String, String);

/// The cluster and the input as the controller sees them, with the documents of its objects.
#[derive(Default)]
pub(super) struct Stage {
    view: View,
    documents: HashMap<Key, Value>,
    /// The objects whose final state is asked for: those of the input.
    asked: Vec<Key>,
    /// The objects that were changed or created.
    written: BTreeSet<Key>,
}

/// Adds to a document from a file what every such object of a cluster has.
pub(in crate::cli) fn complete(document: &mut Value) {
    if document["kind"] == NODE.kind {
        complete_node(document);
    }
}

/// What the controller would make now of the objects without a status: these objects, and all that it
/// would create or change for them. Whether an object is one of these is in front of it.
pub(in crate::cli) fn assume(
    documents: Vec<Value>,
    policy: &Policy,
    now: Timestamp,
) -> Vec<(bool, Value)> {
    let text = |document: &Value, key: &str| document[key].as_str().map(str::to_owned);
    let is_new = |document: &Value| {
        let (version, kind) = (text(document, "apiVersion"), text(document, "kind"));
        let has_status = document.get("status").is_some_and(|status| !status.is_null());
        !has_status && is_settled(&version.unwrap_or_default(), &kind.unwrap_or_default())
    };
    let (new, others): (Vec<Value>, Vec<Value>) = documents.into_iter().partition(is_new);
    if new.is_empty() {
        return Vec::new();
    }
    let mut stage = Stage::default();
    others.into_iter().for_each(|document| stage.add(document));
    new.into_iter().for_each(|document| stage.add_input(document, now));
    stage.carry_out_all(policy, now);
    let Stage { documents, asked, written, .. } = stage;
    let mut made: Vec<(Key, Value)> = documents.into_iter().collect();
    made.retain(|(key, _)| asked.contains(key) || written.contains(key));
    made.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    made.into_iter().map(|(key, document)| (asked.contains(&key), document)).collect()
}

impl Stage {
    /// Adds an object of the cluster. One that no table reads is ignored: the caller has reported
    /// it if it is invalid.
    pub(super) fn add(&mut self, mut document: Value) {
        complete(&mut document);
        if let Ok(Some(object)) = Object::from_document(TABLES, document.clone(), Scope::Controller)
        {
            self.view.apply(object);
            if document["kind"] != POD.kind {
                self.documents.insert(key_of(&document), document);
            }
        }
    }

    /// Adds an object of the input as the API server would store it now: with a UID and, where the
    /// cluster has the object, with the status there.
    pub(super) fn add_input(&mut self, mut document: Value, now: Timestamp) {
        let key = key_of(&document);
        let stored = self.documents.get(&key);
        let (kind, namespace, name) = &key;
        let uid = format!("{ASSUMED_UID}{kind} {namespace}/{name}");
        let own = |key: &str| stored.and_then(|stored| stored["metadata"].get(key)).cloned();
        let is_changed = stored.is_some_and(|stored| stored["spec"] != document["spec"]);
        let generation = own("generation").and_then(|value| value.as_i64()).unwrap_or(1);
        if let Some(stored) = stored {
            document["status"] = stored["status"].clone();
        }
        let Some(metadata) = document.get_mut("metadata").and_then(Value::as_object_mut) else {
            return;
        };
        for (field, assumed) in [
            ("uid", json!(uid)),
            ("creationTimestamp", json!(now.to_string())),
            ("resourceVersion", json!("1")),
        ] {
            set_absent(metadata, field, || own(field).unwrap_or(assumed));
        }
        set_absent(metadata, "generation", || json!(generation + i64::from(is_changed)));
        self.asked.push(key);
        self.add(document);
    }

    /// Carries out what the controller would do. Returns the objects of the input and those that
    /// the controller would create for them.
    pub(super) fn settle(mut self, policy: &Policy, now: Timestamp) -> Vec<Value> {
        self.carry_out_all(policy, now);
        let owners: Vec<Value> =
            self.asked.iter().map(|key| uid_of(&self.documents[key])).collect();
        let is_asked = |key: &Key, document: &Value| {
            let of = document["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            self.asked.contains(key) || of.into_iter().any(|of| owners.contains(&of["uid"]))
        };
        let mut settled: Vec<(Key, Value)> = Vec::new();
        for (key, document) in self.documents {
            if is_asked(&key, &document) {
                settled.push((key, document));
            }
        }
        settled.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        settled.into_iter().map(|(_, document)| document).collect()
    }

    /// Carries out what the controller would do, until nothing is left.
    fn carry_out_all(&mut self, policy: &Policy, now: Timestamp) {
        let mut at = now;
        for _ in 0..MOST_PLANS {
            let mut plan = Plan::default();
            for system in SYSTEMS.iter().filter(|system| !system.settled.is_empty()) {
                plan.extend(system.plan.map(|of| of(&self.view, policy, at)).unwrap_or_default());
            }
            let recheck = plan.recheck_at.filter(|next| next.duration_since(now) <= HORIZON);
            let written = plan.actions.into_iter().filter(|action| self.carry_out(action, now));
            match (written.count(), recheck.filter(|next| *next > at)) {
                (0, None) => break,
                (0, Some(next)) => at = next,
                _ => {}
            }
        }
    }

    /// Carries out one write. Returns whether it has changed a document.
    fn carry_out(&mut self, action: &Action, now: Timestamp) -> bool {
        let target = &action.target;
        let key = (
            target.resource.kind.to_owned(),
            target.namespace.to_string(),
            target.name.to_string(),
        );
        let before = self.documents.get(&key);
        let written = match (&action.write, before) {
            (Write::Status { status, .. }, Some(document)) => {
                let mut document = document.clone();
                document["status"] = status.clone();
                document
            }
            (Write::Patch(operations), Some(document)) => {
                let mut document = document.clone();
                // For the API server an absent field has the value null.
                let is_met = |operation: &PatchOperation| match operation {
                    PatchOperation::Test(test) => {
                        test.value.is_null() && document.pointer(test.path.as_str()).is_none()
                    }
                    _ => false,
                };
                let left = operations.iter().filter(|operation| !is_met(operation)).cloned();
                let patch = Patch(left.collect());
                if json_patch::patch(&mut document, &patch).is_err() {
                    return false;
                }
                document
            }
            (Write::Create(document), None) => {
                let mut document = document.clone();
                let (kind, namespace, name) = &key;
                document["metadata"]["uid"] =
                    json!(format!("{ASSUMED_UID}{kind} {namespace}/{name}"));
                document["metadata"]["creationTimestamp"] = json!(now.to_string());
                document["metadata"]["resourceVersion"] = json!("1");
                document["metadata"]["generation"] = json!(1);
                document
            }
            _ => return false,
        };
        let has_changed = before != Some(&written);
        if has_changed {
            self.written.insert(key);
        }
        self.add(written);
        has_changed
    }
}

/// Adds to a node from a file what every node of a cluster has, so that the controller's patches apply.
/// One that states no condition counts as Ready.
fn complete_node(node: &mut Value) {
    let name = node["metadata"]["name"].clone();
    let Some(members) = node.as_object_mut() else { return };
    set_absent(members, "spec", || json!({}));
    set_absent(members, "status", || json!({}));
    let mut complete = |part: &str, field: &str, value: Value| {
        if let Some(Value::Object(members)) = members.get_mut(part) {
            set_absent(members, field, || value);
        }
    };
    complete("metadata", "uid", name);
    complete("status", "conditions", json!([{"type": "Ready", "status": "True"}]));
}

fn set_absent(members: &mut Map<String, Value>, field: &str, value: impl FnOnce() -> Value) {
    if members.get(field).is_none_or(Value::is_null) {
        members.insert(field.to_owned(), value());
    }
}

fn key_of(document: &Value) -> Key {
    let text = |pointer: &str| {
        document.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let kind = text("/kind");
    let mut resources = TABLES.iter().map(|table| &table.kind().resource);
    let is_namespaced = resources.any(|resource| resource.kind == kind && resource.namespaced);
    let namespace = match text("/metadata/namespace") {
        namespace if !is_namespaced || !namespace.is_empty() => namespace,
        _ => "default".to_owned(),
    };
    (kind, namespace, text("/metadata/name"))
}

fn uid_of(document: &Value) -> Value {
    document["metadata"]["uid"].clone()
}
