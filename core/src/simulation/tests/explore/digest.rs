//! A digest of a state: equal for states that are the same.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use json_patch::PatchOperation;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::world::World;
use crate::simulation::{CONTROLLER, Id};
use crate::systems::plan::{self, Confirmation};

impl World {
    /// A digest of everything on which later steps depend.
    pub(super) fn key(&self) -> [u8; 32] {
        let simulation = &self.simulation;
        let mut names = Names { uids: HashMap::new(), now: simulation.store.now };
        let mut text = String::new();
        let mut add = |value: &Value| {
            names.write(value, &mut text);
            text.push('\n');
        };
        let controller = &simulation.readers[CONTROLLER];
        let is_stale = self.is_stale();
        // The next plan sees everything, whatever the controller knows now.
        let sees_all = self.sees_all();
        for (id, object) in simulation.store.documents() {
            let owners = object["metadata"]["ownerReferences"].as_array();
            let is_gone =
                |of: &Value| simulation.store.is_gone(of["uid"].as_str().unwrap_or_default());
            let is_orphan = owners.is_some_and(|owners| owners.iter().all(is_gone));
            let known = controller.known().get(id);
            let is_known = known.is_some_and(|known| Arc::ptr_eq(known, object));
            add(object);
            add(&json!([is_orphan, sees_all || is_known]));
        }
        for (id, object) in controller.known().iter().filter(|_| !sees_all) {
            let present = simulation.store.documents().get(id);
            if !present.is_some_and(|present| Arc::ptr_eq(present, object)) {
                add(object);
            }
        }
        for change in controller.missed(&simulation.store).filter(|_| !sees_all) {
            add(&json!([
                &*change.id.kind,
                &*change.id.name,
                change.object.as_deref().map(|of| &**of)
            ]));
        }
        for action in &simulation.actions {
            let target = &action.target;
            add(&json!([target.resource.kind, &*target.name, &*target.uid]));
            let present = simulation.store.get(&Id::of_target(target));
            let present = present.map(|object| &object["metadata"]["resourceVersion"]);
            let is_present = |version: &str| present.is_some_and(|present| present == version);
            match &action.write {
                plan::Write::Patch(operations) | plan::Write::Part(_, operations) => {
                    operations.iter().for_each(|operation| match operation {
                        PatchOperation::Test(test) if test.path == "/metadata/resourceVersion" => {
                            add(&json!(test.value.as_str().map(is_present)));
                        }
                        other => add(&json!(other)),
                    });
                }
                plan::Write::Status { resource_version, status } => {
                    add(&json!([is_present(resource_version), status]));
                }
                plan::Write::Create(document) => add(document),
                plan::Write::Delete { grace, version } => {
                    add(&json!([grace, version.as_deref().map(is_present)]));
                }
                plan::Write::None => panic!("a report is no event"),
            }
            match &action.confirmation {
                Some(Confirmation::Creation(creation)) => {
                    add(&json!([creation.object, creation.is_trial]));
                }
                Some(Confirmation::List(listed)) => add(&json!(listed.verb)),
                None => {}
            }
        }
        self.unlisted.iter().for_each(|id| add(&json!([&*id.kind, &*id.name])));
        let mut attempts: Vec<_> = simulation.attempts.iter().map(|of| json!(of)).collect();
        attempts.retain(|of| !simulation.store.is_gone(of[0].as_str().unwrap_or_default()));
        attempts.sort_by_key(Value::to_string);
        // The next plan says again when another one is due.
        let recheck_at = simulation.recheck_at.filter(|_| !is_stale);
        let until = recheck_at.map(|at| at.duration_since(simulation.store.now).as_secs());
        add(&json!([attempts, until, is_stale, format!("{:?} {:?}", self.due, self.away)]));
        Sha256::digest(text).into()
    }
}

/// The names of UIDs in the order in which they are met, and the time against which others count.
struct Names {
    uids: HashMap<String, usize>,
    now: Timestamp,
}

impl Names {
    /// Writes a value without versions, and with UIDs and times that do not depend on the path to it.
    fn write(&mut self, value: &Value, text: &mut String) {
        match value {
            Value::Object(members) => {
                for (key, value) in members {
                    if !["resourceVersion", "generation"].contains(&&**key) {
                        let _ = write!(text, "{key}:");
                        self.write(value, text);
                    }
                }
                text.push('}');
            }
            Value::Array(items) => {
                items.iter().for_each(|item| self.write(item, text));
                text.push(']');
            }
            Value::String(string) => self.write_text(string, text),
            other => _ = write!(text, "{other},"),
        }
    }

    fn write_text(&mut self, string: &str, text: &mut String) {
        if !string.starts_with(|first: char| first == '<' || first.is_ascii_digit()) {
            let _ = write!(text, "{string},");
            return;
        }
        let seconds = string.parse::<i64>().ok().filter(|number| *number > 1_000_000_000);
        let time = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
        if string.starts_with('<') {
            let next = self.uids.len();
            let number = self.uids.entry(string.to_owned()).or_insert(next);
            let _ = write!(text, "<{number}>,");
        } else if let Some(time) = time.or_else(|| string.parse::<Timestamp>().ok()) {
            let _ = write!(text, "{}s,", self.now.duration_since(time).as_secs());
        } else {
            let _ = write!(text, "{string},");
        }
    }
}
