//! Objects as the API server keeps them, and its rules for writes.

use std::collections::{BTreeMap, HashSet};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock};

use json_patch::PatchOperation;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::systems::plan::Target;
use crate::systems::{Object, TABLES};
use crate::view::Scope;
use crate::view::table::Definition;

/// Kind, namespace and name of an object. The namespace is empty for a cluster-scoped object.
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Id {
    pub kind: Arc<str>,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl Id {
    #[must_use]
    pub fn new(kind: &str, namespace: &str, name: &str) -> Self {
        Self { kind: kind.into(), namespace: namespace.into(), name: name.into() }
    }

    /// Names the object of a document. One of a namespaced kind without a namespace is in `default`, as
    /// with kubectl.
    #[must_use]
    pub fn of(document: &Value) -> Self {
        let metadata = &document["metadata"];
        let [kind, namespace, name] =
            [&document["kind"], &metadata["namespace"], &metadata["name"]]
                .map(|value| value.as_str().unwrap_or_default());
        let mut resources = TABLES.iter().map(|table| &table.kind().resource);
        let is_namespaced = resources.any(|of| of.kind == kind && of.namespaced);
        let namespace = match namespace {
            "" if is_namespaced => "default",
            namespace => namespace,
        };
        Self::new(kind, namespace, name)
    }

    /// Names the object of a write.
    #[must_use]
    pub fn of_target(target: &Target) -> Self {
        Self::new(target.resource.kind, &target.namespace, &target.name)
    }
}

/// The API server's answer to a write that it does not carry out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Answer {
    /// 404: there is no such object.
    NotFound,
    /// 409 with the reason AlreadyExists.
    Exists,
    /// 409, or 422 after a failed `test`: the object is another one, or another version.
    Conflict,
    /// 422: a patch that does not apply.
    Invalid,
    /// 403: a quota or a policy does not admit the object.
    Forbidden,
}

/// A version of an object, which readers share.
#[derive(Debug)]
pub(crate) struct Document {
    value: Value,
    /// The object as a View of each scope keeps it, once one was read; `None`: no table keeps it.
    read: [OnceLock<Option<Object>>; Scope::ALL.len()],
}

impl Document {
    pub(crate) fn new(value: Value) -> Self {
        Self { value, read: Default::default() }
    }

    /// Reads the document for a View. Returns `None` if no table keeps it.
    pub(crate) fn read(&self, scope: Scope) -> Option<Object> {
        let object = || Object::from_document(self.value.clone(), scope).ok().flatten();
        self.read[scope as usize].get_or_init(object).clone()
    }
}

impl Deref for Document {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.value
    }
}

/// A change of an object. `object` is `None` after its deletion.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) id: Id,
    pub(crate) object: Option<Arc<Document>>,
}

/// The objects of a cluster, and the time.
#[derive(Clone, Debug)]
pub struct Store {
    pub now: Timestamp,
    objects: BTreeMap<Id, Arc<Document>>,
    /// All changes of each kind, in order.
    changes: BTreeMap<Arc<str>, Vec<Change>>,
    /// The UIDs of deleted objects.
    gone: HashSet<Arc<str>>,
    version: u64,
    name_uid: fn(&Id, u64) -> String,
}

impl Store {
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            now,
            objects: BTreeMap::new(),
            changes: BTreeMap::new(),
            gone: HashSet::new(),
            version: 0,
            name_uid: |_, number| format!("uid-{number}"),
        }
    }

    /// Gives new objects these UIDs.
    pub fn set_uids(&mut self, name: fn(&Id, u64) -> String) {
        self.name_uid = name;
    }

    #[must_use]
    pub fn get(&self, id: &Id) -> Option<&Value> {
        self.objects.get(id).map(|object| &***object)
    }

    /// All objects as readers share them.
    pub(super) fn documents(&self) -> &BTreeMap<Id, Arc<Document>> {
        &self.objects
    }

    /// All objects of a kind, by namespace and name.
    pub fn all(&self, kind: &str) -> impl Iterator<Item = &Value> + use<'_> {
        let kind = kind.to_owned();
        let from = self.objects.range(Id::new(&kind, "", "")..);
        from.take_while(move |(id, _)| *id.kind == *kind).map(|(_, object)| &***object)
    }

    /// The number of the latest version.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// All objects, by kind, namespace and name.
    pub fn everything(&self) -> impl Iterator<Item = (&Id, &Value)> {
        self.objects.iter().map(|(id, object)| (id, &***object))
    }

    pub(super) fn changes(&self) -> &BTreeMap<Arc<str>, Vec<Change>> {
        &self.changes
    }

    pub(crate) fn is_gone(&self, uid: &str) -> bool {
        self.gone.contains(uid)
    }

    /// Stores a document as it is; an object of this name is replaced. If it has the same UID, the document
    /// becomes its next version.
    pub fn put(&mut self, document: Value) {
        let id = Id::of(&document);
        let before = self.objects.get(&id).map(|object| uid_of(object).to_owned());
        match before.filter(|uid| !uid.is_empty()) {
            Some(uid) if uid == uid_of(&document) => return self.store_version(id, document),
            Some(uid) => _ = self.gone.insert(uid.into()),
            None => {}
        }
        let version = document["metadata"]["resourceVersion"].as_str();
        let version = version.and_then(|version| version.parse().ok()).unwrap_or_default();
        self.version = self.version.max(version);
        self.store(id, document);
    }

    /// Creates an object, with a UID, a version and the time of its creation.
    ///
    /// # Errors
    /// If there is one of this name.
    pub fn create(&mut self, mut document: Value) -> Result<&Value, Answer> {
        if let Some(prefix) = document["metadata"]["generateName"].as_str()
            && document["metadata"]["name"].is_null()
        {
            document["metadata"]["name"] = json!(format!("{prefix}{:05}", self.version + 1));
        }
        let id = Id::of(&document);
        if self.objects.contains_key(&id) {
            return Err(Answer::Exists);
        }
        self.version += 1;
        let metadata = &mut document["metadata"];
        metadata["uid"] = json!((self.name_uid)(&id, self.version));
        metadata["resourceVersion"] = json!(self.version.to_string());
        metadata["generation"] = json!(1);
        metadata["creationTimestamp"] = json!(self.timestamp());
        self.store(id.clone(), document);
        self.get(&id).ok_or(Answer::NotFound)
    }

    /// The time as API objects have it: in seconds.
    #[must_use]
    pub fn timestamp(&self) -> String {
        let seconds = Timestamp::from_second(self.now.as_second());
        seconds.unwrap_or(self.now).to_string()
    }

    /// Opens an object for a change by somebody. The change gets a version when it is dropped.
    pub fn edit(&mut self, id: &Id) -> Option<Edit<'_>> {
        let object = self.get(id)?.clone();
        Some(Edit { store: self, id: id.clone(), object })
    }

    /// Patches an object ([`patch`]). An empty list in the spec of a built-in kind is then absent. With
    /// `is_status`, everything but the status stays as it is.
    ///
    /// # Errors
    /// If there is no such object, or the patch does not apply to it.
    pub fn patch(
        &mut self,
        id: &Id,
        operations: &[PatchOperation],
        is_status: bool,
    ) -> Result<&Value, Answer> {
        let before = Arc::clone(self.objects.get(id).ok_or(Answer::NotFound)?);
        let mut after = before.value.clone();
        patch(&mut after, operations)?;
        if after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"] {
            return Err(Answer::Conflict);
        }
        if is_status {
            let status = after["status"].take();
            after = before.value.clone();
            after["status"] = status;
        }
        if !is_custom(id)
            && let Some(spec) = after["spec"].as_object_mut()
        {
            spec.retain(|_, value| value.as_array().is_none_or(|list| !list.is_empty()));
        }
        if after != before.value {
            // The generation of nodes, pods and other objects of the core group is not counted here.
            let generation = after["metadata"]["generation"].as_i64();
            let is_counted = after["apiVersion"] != "v1" && after["spec"] != before["spec"];
            if let Some(generation) = generation.filter(|_| is_counted) {
                after["metadata"]["generation"] = json!(generation + 1);
            }
            self.store_version(id.clone(), after);
        }
        self.get(id).ok_or(Answer::NotFound)
    }

    /// Deletes an object if it has this UID and, if one is given, this version. A pod that runs remains until
    /// its kubelet reports its end, unless `grace` is 0; an object with finalizers remains until they are
    /// removed.
    ///
    /// # Errors
    /// If there is no such object, or it is another one.
    pub fn delete_if(
        &mut self,
        id: &Id,
        uid: &str,
        version: Option<&str>,
        grace: Option<u32>,
    ) -> Result<(), Answer> {
        let object = self.get(id).ok_or(Answer::NotFound)?;
        let has_version = |version: &str| object["metadata"]["resourceVersion"] == *version;
        if object["metadata"]["uid"] != *uid || !version.is_none_or(has_version) {
            return Err(Answer::Conflict);
        }
        let phase = object["status"]["phase"].as_str().unwrap_or_default();
        let has_ended = ["Succeeded", "Failed"].contains(&phase);
        let runs = *id.kind == *"Pod" && object["spec"]["nodeName"].is_string() && !has_ended;
        if (runs && grace != Some(0)) || has_finalizers(object) {
            if object["metadata"]["deletionTimestamp"].is_null() {
                let mut object = object.clone();
                object["metadata"]["deletionTimestamp"] = json!(self.timestamp());
                self.store_version(id.clone(), object);
            }
        } else {
            self.remove(id);
        }
        Ok(())
    }

    /// Deletes an object, whichever it is.
    pub fn delete(&mut self, id: &Id) {
        if let Some(uid) = self.get(id).map(|object| uid_of(object).to_owned()) {
            // It has this UID.
            let _ = self.delete_if(id, &uid, None, None);
        }
    }

    /// Removes an object at once. Returns it.
    pub fn remove(&mut self, id: &Id) -> Option<Value> {
        let object = self.objects.remove(id)?;
        self.gone.insert(uid_of(&object).into());
        let changes = self.changes.entry(Arc::clone(&id.kind)).or_default();
        changes.push(Change { id: id.clone(), object: None });
        Some(object.value.clone())
    }

    /// Stores the next version of an object. One that is being deleted is removed with its last finalizer.
    fn store_version(&mut self, id: Id, mut object: Value) {
        let was_held = self.get(&id).is_some_and(has_finalizers);
        let is_deleting = !object["metadata"]["deletionTimestamp"].is_null();
        if is_deleting && was_held && !has_finalizers(&object) {
            self.remove(&id);
            return;
        }
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.store(id, object);
    }

    fn store(&mut self, id: Id, object: Value) {
        let object = Arc::new(Document::new(object));
        let changes = self.changes.entry(Arc::clone(&id.kind)).or_default();
        changes.push(Change { id: id.clone(), object: Some(Arc::clone(&object)) });
        self.objects.insert(id, object);
    }
}

/// Applies a JSON patch as the API server does: there, an absent field has the value null.
///
/// # Errors
/// If the patch does not apply. Then `document` is unchanged.
pub fn patch(document: &mut Value, operations: &[PatchOperation]) -> Result<(), Answer> {
    let mut patched = document.clone();
    for operation in operations {
        if let PatchOperation::Test(test) = operation {
            let present = test.path.resolve(&patched).unwrap_or(&Value::Null);
            if *present != test.value {
                return Err(Answer::Conflict);
            }
        } else {
            json_patch::patch(&mut patched, std::slice::from_ref(operation))
                .map_err(|_| Answer::Invalid)?;
        }
    }
    *document = patched;
    Ok(())
}

/// An object that somebody changes.
#[derive(Debug)]
pub struct Edit<'s> {
    store: &'s mut Store,
    id: Id,
    object: Value,
}

impl Deref for Edit<'_> {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.object
    }
}

impl DerefMut for Edit<'_> {
    fn deref_mut(&mut self) -> &mut Value {
        &mut self.object
    }
}

impl Drop for Edit<'_> {
    fn drop(&mut self) {
        self.store.store_version(self.id.clone(), self.object.take());
    }
}

fn uid_of(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

fn has_finalizers(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty())
}

/// Returns `true` if a CustomResourceDefinition defines the kind: its objects are kept as they are written.
fn is_custom(id: &Id) -> bool {
    let mut kinds = TABLES.iter().map(|table| table.kind());
    kinds.any(|kind| kind.resource.kind == &*id.kind && kind.definition != Definition::BuiltIn)
}
