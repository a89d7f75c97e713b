//! The objects that the events of an action are about.

use k8s_openapi::api::core::v1::ObjectReference;
use serde::Deserialize as _;

use stowplan_core::systems::plan::{Action, Event, Target, Write};

/// The object that an action's events are about: its target; for a creation, the controller in the
/// new object's `ownerReferences`, if there is one.
pub(super) fn regarding(action: &Action) -> ObjectReference {
    let target = reference(&action.target);
    let Write::Create(object) = &action.write else { return target };
    let owners = object["metadata"]["ownerReferences"].as_array();
    let owner = owners.into_iter().flatten().find(|owner| owner["controller"] == true);
    match owner.map(ObjectReference::deserialize) {
        Some(Ok(owner)) => ObjectReference { namespace: target.namespace, ..owner },
        _ => target,
    }
}

/// The events about a write that the API server refused, each with its object: one for each object that
/// waits for the write, and one for the target or its owner, unless that is among them.
pub(super) fn refusal_events(action: &Action, problem: &str) -> Vec<(ObjectReference, Event)> {
    let mut events = Vec::new();
    let waiting = action.refusal.iter().flat_map(|refusal| &refusal.waiting);
    let about = regarding(action);
    let is_waiting = |uid: &String| waiting.clone().any(|target| *target.uid == **uid);
    // Users do not find events of an object that does not exist and has no owner.
    if waiting.clone().next().is_none() || about.uid.as_ref().is_some_and(|uid| !is_waiting(uid)) {
        let Target { resource, namespace, name, .. } = &action.target;
        let slash = if namespace.is_empty() { "" } else { "/" };
        let (verb, plural) = (action.verb(), resource.plural);
        let note = format!(
            "the API server refused the write {verb} {plural} {namespace}{slash}{name}: {problem}; stowplan tries again at least every 5 minutes"
        );
        events.push((about, Event { warning: true, reason: "WriteRefused", note }));
    }
    if let Some(refusal) = &action.refusal {
        let note = format!("{}: {problem}", refusal.note);
        let event = Event { warning: true, reason: refusal.reason, note };
        events.extend(waiting.map(|target| (reference(target), event.clone())));
    }
    events
}

fn reference(target: &Target) -> ObjectReference {
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    ObjectReference {
        api_version: Some(target.resource.api_version()),
        kind: text(target.resource.kind),
        namespace: text(&target.namespace),
        name: text(&target.name),
        uid: text(&target.uid),
        ..ObjectReference::default()
    }
}
