//! Removes the scheduling gates of members. They wait until their placeholder has a node, and those that
//! cannot follow it by pod affinity then require that node by name.
//!
//! While a pod is gated, the API server allows requirements to be added to its required node terms.
//! So one patch adds them and removes the gate. It tests the version of the pod, because the indexes
//! of the gate and of the terms are those of that version.

use std::collections::BTreeMap;

use json_patch::PatchOperation;
use serde_json::json;

use super::carry_out::PlanBuilder;
use super::desired::Desired;
use super::reason;
use crate::systems::coschedule::keys::GATE;
use crate::systems::coschedule::kinds::CoscheduleView as _;
use crate::systems::coschedule::kinds::member::{Member, MemberDetails};
use crate::systems::plan::operation::{remove_gate, require_nodes};
use crate::systems::plan::{Action, Event, Target, Write};
use crate::view::Name;
use crate::view::resource::POD;

impl PlanBuilder<'_, '_> {
    /// Removes the gate of a member, which then requires `node`, if given. Ignores members without a
    /// gate.
    pub(super) fn lift(
        &mut self,
        name: &Name,
        member: &Member,
        node: Option<&str>,
        events: Vec<Event>,
    ) {
        let Some(details) = &member.details else { return };
        let Some(gate) = details.gate.filter(|_| !member.identity.deleting) else { return };
        let bound = node.into_iter().flat_map(|node| bind(details, node));
        let operations = remove_gate(&member.identity, gate, GATE, bound);
        let target = Target::new(POD, name, &member.identity.uid);
        self.act(Action::new(target, Write::Patch(operations), events));
    }

    /// Removes the gates of members whose placeholder neither exists nor will be created.
    pub(super) fn lift_forgotten_gates(&mut self, desired: &BTreeMap<Name, Desired<'_>>) {
        let is_gated =
            |member: &Member| member.details.as_ref().is_some_and(|details| details.gate.is_some());
        for (name, member) in self.view().members().filter(|(_, member)| is_gated(member)) {
            let placeholder = member.placeholder.as_deref();
            let placeholder =
                placeholder.map(|placeholder| Name::new(&name.namespace, placeholder));
            let is_expected = |placeholder: &Name| {
                desired.contains_key(placeholder) || self.view().placeholder(placeholder).is_some()
            };
            if placeholder.as_ref().is_some_and(is_expected) {
                continue;
            }
            let follows = member.details.as_ref().is_some_and(|details| details.follows);
            let effect = match follows {
                true => "it requires one: delete it, so that it is created without",
                false => "so it may run on any node",
            };
            let note = format!("its group has no placeholder, and {effect}");
            let event = Event { warning: true, reason: reason::GATE_LIFTED, note };
            self.lift(name, member, None, vec![event]);
        }
    }
}

/// The operations that add the node to every required term.
fn bind(member: &MemberDetails, node: &str) -> Vec<PatchOperation> {
    let requirement = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    let terms = member.terms.as_deref().unwrap_or_default();
    require_nodes(terms, member.above_terms, "matchFields", &[requirement])
}
