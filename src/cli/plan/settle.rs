//! The objects of the input as the controller would leave them: pools with their members, jobs with
//! their pools.
//!
//! Nothing is decided here. The systems make their plans as in the controller, and a simulated API server
//! carries them out, until nothing is left to do.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::definition;
use crate::cli::input::is_own;
use stowplan_core::simulation::{CONTROLLER, CONTROLLER_ALONE, Event, Id, Outcome, Simulation};
use stowplan_core::systems::plan_own_kinds;
use stowplan_core::systems::policy::Policy;
use stowplan_core::systems::preview::ASSUMED_UID;
use stowplan_core::view::resource::{NODE, POD};

/// The most plans that are carried out. A pool needs one for each kind of write.
const MOST_PLANS: usize = 64;

/// The most time that passes. Enough for the waits between the writes about one pool, and
/// too short for the replacement of a node that is NotReady.
const HORIZON: SignedDuration = SignedDuration::from_secs(10);

/// An object of the input as the API server would send it to the webhook.
#[derive(Clone, Debug)]
pub(super) struct Written {
    /// The object, with its UID.
    pub(super) object: Value,
    /// The object of the cluster that it replaces.
    pub(super) old: Option<Value>,
}

/// The cluster and the input as the controller sees them.
pub(super) struct Stage {
    simulation: Simulation,
    /// The objects whose final state is asked for: those of the input.
    asked: Vec<Id>,
}

/// Adds to a document from a file what every such object of a cluster has.
pub(in crate::cli) fn complete(document: &mut Value) {
    if document["kind"] == NODE.kind {
        complete_node(document);
    }
    definition::complete(document);
}

/// Returns the objects without a status as the controller would make them now, and all that it would
/// create or change for them. True stands in front of one that had no status.
pub(in crate::cli) fn assume(
    documents: Vec<Value>,
    policy: &Policy,
    now: Timestamp,
) -> Vec<(bool, Value)> {
    let is_new = |document: &Value| {
        let text = |key: &str| document[key].as_str().unwrap_or_default();
        document["status"].is_null() && is_own(text("apiVersion"), text("kind"))
    };
    let (new, others): (Vec<Value>, Vec<Value>) = documents.into_iter().partition(is_new);
    if new.is_empty() {
        return Vec::new();
    }
    let mut stage = Stage::default();
    others.into_iter().for_each(|document| stage.add(document));
    for document in new {
        stage.add_input(document, now);
    }
    stage.begin(policy, now);
    stage.carry_out_all();
    let Stage { simulation, asked } = stage;
    let done = simulation.writes.iter().filter(|written| written.outcome == Outcome::Done);
    let written: Vec<Id> = done.map(|written| Id::of_target(&written.target)).collect();
    let made = simulation.store.everything();
    let made = made.filter(|(id, _)| asked.contains(id) || written.contains(id));
    made.map(|(id, document)| (asked.contains(id), document.clone())).collect()
}

impl Default for Stage {
    /// An empty cluster, with a policy and a time that [`Stage::begin`] replaces.
    fn default() -> Self {
        let simulation = Simulation::new(Policy::default(), Timestamp::UNIX_EPOCH);
        let mut simulation = simulation.with_planner(plan_own_kinds);
        simulation.store.set_uids(|id, _| assume_uid(id));
        Self { simulation, asked: Vec::new() }
    }
}

impl Stage {
    /// Adds an object of the cluster. One that no table reads changes nothing: the caller has reported
    /// it if it is invalid.
    pub(super) fn add(&mut self, mut document: Value) {
        complete(&mut document);
        if document["kind"] == POD.kind {
            // Nothing is written to pods, and there are many.
            self.simulation.show(&document);
        } else {
            self.simulation.store.put(document);
        }
    }

    /// Adds an object of the input as the API server would store it now: with a UID and, where the
    /// cluster has the object, with the status there.
    pub(super) fn add_input(&mut self, mut document: Value, now: Timestamp) -> Written {
        let id = Id::of(&document);
        let old = self.simulation.store.get(&id).cloned();
        let own = |key: &str| old.as_ref().and_then(|old| old["metadata"].get(key)).cloned();
        let is_changed = old.as_ref().is_some_and(|old| old["spec"] != document["spec"]);
        let generation = own("generation").and_then(|value| value.as_i64()).unwrap_or(1);
        if let Some(old) = &old {
            document["status"] = old["status"].clone();
        }
        let Some(metadata) = document.get_mut("metadata").and_then(Value::as_object_mut) else {
            return Written { object: document, old };
        };
        for (field, assumed) in [
            ("uid", json!(assume_uid(&id))),
            ("creationTimestamp", json!(now.to_string())),
            ("resourceVersion", json!("1")),
        ] {
            set_absent(metadata, field, || own(field).unwrap_or(assumed));
        }
        set_absent(metadata, "generation", || json!(generation + i64::from(is_changed)));
        self.asked.push(id);
        self.add(document.clone());
        Written { object: document, old }
    }

    /// Sets the policy and the time of the controller.
    pub(super) fn begin(&mut self, policy: &Policy, now: Timestamp) {
        self.simulation.policy = policy.clone();
        self.simulation.store.now = now;
    }

    /// Carries out what the controller would do. Returns each object of the input, in their order,
    /// with those that the controller would create for it.
    pub(super) fn settle(&mut self) -> Vec<Vec<Value>> {
        self.carry_out_all();
        let Self { simulation, asked } = self;
        let uid = |id: &Id| simulation.store.get(id).map(|object| &object["metadata"]["uid"]);
        let uids: Vec<Option<&Value>> = asked.iter().map(uid).collect();
        let mut settled = vec![Vec::new(); asked.len()];
        for (id, document) in simulation.store.everything() {
            let mut owners =
                document["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            let of_owner =
                || owners.find_map(|of| uids.iter().position(|uid| *uid == Some(&of["uid"])));
            let at = asked.iter().position(|asked| asked == id).or_else(of_owner);
            if let Some(settled) = at.and_then(|at| settled.get_mut(at)) {
                settled.push(document.clone());
            }
        }
        settled
    }

    /// Takes an object of the input back, which the webhook refuses: without it the controller may
    /// serve later ones. `settled` is what [`Stage::settle`] has returned for it.
    pub(super) fn withdraw(&mut self, written: &Written, settled: &[Value]) {
        let store = &mut self.simulation.store;
        match &written.old {
            Some(old) => store.put(old.clone()),
            None => settled.iter().for_each(|object| _ = store.remove(&Id::of(object))),
        }
    }

    /// Carries out what the controller would do, until nothing is left.
    fn carry_out_all(&mut self) {
        let now = self.simulation.store.now;
        let end = now.checked_add(HORIZON).unwrap_or(now);
        let mut plans = 0;
        self.simulation.catch_up(CONTROLLER);
        // One that does not end is shown as it is then.
        let _ = self.simulation.run(CONTROLLER_ALONE, end, |_, events| {
            let event = events.next()?;
            plans += usize::from(event == Event::Plan);
            (plans <= MOST_PLANS).then_some(event)
        });
    }
}

/// The UID of an object that the cluster does not have.
fn assume_uid(id: &Id) -> String {
    let Id { kind, namespace, name } = id;
    format!("{ASSUMED_UID}{kind} {namespace}/{name}")
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
