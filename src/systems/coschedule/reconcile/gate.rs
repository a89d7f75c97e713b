//! Gates: members that cannot follow their placeholder by pod affinity wait until it has a node, and
//! are bound to that node when they are let go.
//!
//! A gated pod takes further requirements at the end of its required node terms and no other change, so
//! both go into one patch. It is bound to the version of the pod that was looked at: the places of the
//! gate and of the terms are those of that version.

use std::collections::BTreeMap;

use json_patch::PatchOperation;
use serde_json::{Value, json};

use super::sources::Wanted;
use super::{Turn, reason, target};
use crate::placement::affinity::matches_nothing;
use crate::systems::coschedule::keys::GATE;
use crate::systems::plan::operation::{add, remove, test, test_uid};
use crate::systems::plan::{Action, Event, Kind, Write};
use crate::view::member::MemberEstate;
use crate::view::{Member, Name};

impl Turn<'_> {
    /// Lets a gated member go, to a node or to any. Nothing happens to one that is not gated.
    pub(super) fn lift(
        &mut self,
        name: &Name,
        member: &Member,
        node: Option<&str>,
        events: Vec<Event>,
    ) {
        let Some(estate) = &member.estate else { return };
        let Some(gate) = estate.gate.filter(|_| !member.identity.deleting) else { return };
        let place = gate.to_string();
        let mut operations = vec![
            test_uid(&member.identity.uid),
            test(&["metadata", "resourceVersion"], &*member.identity.resource_version),
            test(&["spec", "schedulingGates", &place, "name"], GATE),
        ];
        operations.extend(node.into_iter().flat_map(|node| bind(estate, node)));
        operations.push(remove(&["spec", "schedulingGates", &place]));
        self.act(Action {
            target: target(Kind::Pod, name, &member.identity.uid),
            write: Write::Patch(operations),
            events,
        });
    }

    /// Lets those go whose placeholder is not there and will not be.
    pub(super) fn lift_forgotten_gates(&mut self, wanted: &BTreeMap<Name, Wanted<'_>>) {
        let is_gated =
            |member: &Member| member.estate.as_ref().is_some_and(|estate| estate.gate.is_some());
        for (name, member) in self.view.members().filter(|(_, member)| is_gated(member)) {
            let placeholder = member.placeholder.as_deref();
            let placeholder =
                placeholder.map(|placeholder| Name::new(&name.namespace, placeholder));
            let comes = |placeholder: &Name| {
                wanted.contains_key(placeholder) || self.view.placeholder(placeholder).is_some()
            };
            if placeholder.as_ref().is_some_and(comes) {
                continue;
            }
            let event = Event {
                warning: true,
                reason: reason::GATE_LIFTED,
                note: "its group has no placeholder any more, so that it goes wherever the scheduler finds room".to_owned(),
            };
            self.lift(name, member, None, vec![event]);
        }
    }
}

/// The operations that add the node to every required term. One without requirements matches nothing and
/// stays so: the API server lets nobody fill it while the pod is gated.
fn bind(member: &MemberEstate, node: &str) -> Vec<PatchOperation> {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let requirement = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    let affinity = ["spec", "affinity"];
    let terms = [&affinity[..], &["nodeAffinity", REQUIRED, "nodeSelectorTerms"]].concat();
    let present = member.terms.as_deref().unwrap_or_default();
    if !present.is_empty() {
        let places = present.iter().enumerate().filter(|(_, term)| !matches_nothing(*term));
        return places
            .map(|(place, term)| {
                let place = place.to_string();
                let fields = [&terms[..], &[&place, "matchFields"]].concat();
                match term.match_fields.as_ref().is_some_and(|fields| !fields.is_empty()) {
                    true => add(&[&fields[..], &["-"]].concat(), requirement.clone()),
                    false => add(&fields, json!([requirement])),
                }
            })
            .collect();
    }
    let required: Value = json!({"nodeSelectorTerms": [{"matchFields": [requirement]}]});
    let added = if member.has_node_affinity {
        add(&["spec", "affinity", "nodeAffinity", REQUIRED], required)
    } else if member.has_affinity {
        add(&["spec", "affinity", "nodeAffinity"], json!({REQUIRED: required}))
    } else {
        add(&affinity, json!({"nodeAffinity": {REQUIRED: required}}))
    };
    vec![added]
}
