//! Changes to the pod template of a placeholder.

use std::collections::BTreeSet;

use super::{Decider, Next};
use crate::systems::coschedule::keys::RECORD;
use crate::systems::coschedule::kinds::placeholder::Placeholder;
use crate::systems::coschedule::kinds::storage::Access;
use crate::systems::coschedule::placeholder::{Cause, Desired};
use crate::systems::coschedule::pod_plan::PodPlan;
use crate::systems::coschedule::reconcile::desired::is_on_one_node;
use crate::view::Name;

impl<'v> Decider<'_, 'v> {
    /// Changes the template so that the pod must be on the node `only`, if given, and so that it reserves what the
    /// group needs now; `None` if nothing changes.
    pub(super) fn rewrite(&self, only: Option<&str>) -> Option<Next> {
        let (only_node, room) = (only.map(Into::into), self.room(only));
        self.rewrite_to(PodPlan { only: only_node, room, ..self.state.plan().clone() })
    }

    /// Changes the template for a pod that leaves `node` and goes to another one if possible.
    pub(super) fn rewrite_avoiding(&self, node: &str) -> Option<Next> {
        let (plan, room) = (self.state.plan(), self.room(None));
        self.rewrite_to(PodPlan { only: None, avoid: plan.avoiding(node), room, ..plan.clone() })
    }

    /// Drops the hold of a template that holds the pod to pods that it should leave.
    pub(super) fn drop_hold(&self) -> Option<Next> {
        self.state.must_drop_hold().then(|| self.rewrite_to(self.state.plan().clone()))?
    }

    /// Changes the template to this plan, held to the members if it should be; `None` if it is so already.
    pub(super) fn rewrite_to(&self, plan: PodPlan) -> Option<Next> {
        let desired = self.state.desired?;
        let added = desired.added.as_ref().unwrap_or(&plan.added).clone();
        let new = PodPlan { held: self.state.should_be_held(), added, ..plan };
        let is_new = self.state.placeholder.plan.as_deref() != Some(&new);
        is_new.then_some(Next::Rewrite(new))
    }

    /// Changes the template if others have added other node requirements to the members by now.
    pub(super) fn follow_members(&self) -> Option<Next> {
        let plan = self.state.plan();
        let added = self.state.desired?.added.as_ref()?;
        (*added != plan.added).then(|| self.rewrite_to(plan.clone()))?
    }

    /// Writes a plan into a template without one, and restores a missing hold.
    pub(super) fn restore_plan(&self) -> Option<Next> {
        let Placeholder { plan, claims, .. } = self.state.placeholder;
        match plan {
            None => self.rewrite_to(PodPlan { claims: claims.to_vec(), ..PodPlan::default() }),
            Some(plan) if !plan.held => self.rewrite_to(PodPlan::clone(plan)),
            Some(_) => None,
        }
    }

    /// Records the group of a placeholder without a valid record.
    pub(super) fn restore_record(&self) -> Option<Next> {
        let Cause::Run(_, group) = self.state.desired?.cause else { return None };
        let is_missing = self.state.placeholder.record.is_none();
        is_missing.then(|| Next::Mark(RECORD, group.record().text()))
    }

    /// The claims that the template should mount, if it mounts others and no member runs: those that
    /// waiting members mount and those of the group, without those of other groups and those that
    /// only one pod may use.
    pub(super) fn changed_claims(&self) -> Option<Vec<Box<str>>> {
        let state = self.state;
        let desired = state.desired.filter(|_| state.running.is_empty())?;
        let plan = state.plan();
        let is_new = |claim: &&str| !plan.mounts(claim) && !state.makes(claim);
        let of_waiting = state.waiting.iter().flat_map(|pod| &pod.details.claims);
        let of_waiting = of_waiting.map(AsRef::as_ref);
        let mut added: BTreeSet<&str> = of_waiting.filter(is_new).collect();
        added.retain(|claim| is_on_one_node(&state.name.namespace, claim, self.facts.view));
        added.extend(desired.claims.iter().copied().filter(is_new));
        let kept = plan.claims.iter().filter(|claim| !self.must_not_mount(desired, claim)).cloned();
        let mut claims: Vec<Box<str>> = kept.collect();
        added.retain(|claim| !self.must_not_mount(desired, claim));
        claims.extend(added.into_iter().map(Into::into));
        (claims != plan.claims).then_some(claims)
    }

    /// Returns true if the placeholder must not mount a claim.
    pub(super) fn must_not_mount(&self, desired: &Desired<'_>, claim: &str) -> bool {
        let known = self.facts.view.claim(&Name::new(&self.state.name.namespace, claim));
        let is_unusable =
            known.is_some_and(|known| known.access == Access::OnePod || known.is_parked());
        let mut others = desired.run().into_iter().flat_map(|run| &run.groups.groups);
        let mut is_of_other_group =
            || others.any(|group| *group.name != *self.state.name.name && group.has(claim));
        // A plan can be edited, and may name a claim that does not exist.
        let is_foreign =
            !desired.claims.contains(&claim) && (known.is_none() || is_of_other_group());
        is_unusable || is_foreign
    }
}
