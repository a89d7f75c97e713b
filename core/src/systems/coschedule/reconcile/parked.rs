//! Recreates pods that mount a parked claim instead of the placeholder's own. They were created while
//! the webhook was unavailable, or did not yet know enough about their run.
//!
//! Such a pod can never run: its claim is never bound, and a pod's volumes cannot be changed. So it is
//! deleted, whatever the policy's `repair` is. Its TaskRun recreates it with the same name, and the
//! webhook then replaces the claim. If the webhook is still unavailable, each pod waits before it is
//! deleted: as long as its TaskRun had existed when the pod was created, and at most a minute.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::SignedDuration;

use super::carry_out::PlanBuilder;
use super::group_pod::GroupPod;
use crate::systems::coschedule::kinds::storage::Claim;
use crate::systems::coschedule::placeholder::Desired;
use crate::view::Name;

/// The longest time that a pod waits before it is deleted.
const LONGEST: SignedDuration = SignedDuration::from_mins(1);

impl PlanBuilder<'_, '_> {
    /// Recreates the waiting pods that mount a parked claim which a placeholder's own claim replaces.
    pub(super) fn release_from_parked(&mut self, desired: &BTreeMap<Name, Desired<'_>>) {
        let replaced = desired.iter().flat_map(|(name, desired)| {
            let claims = desired.templates.iter();
            claims.map(|(claim, _)| Name::new(&name.namespace, claim))
        });
        let is_parked = |claim: &Name| self.view().claim(claim).is_some_and(Claim::is_parked);
        let parked: BTreeSet<Name> = replaced.filter(is_parked).collect();
        if parked.is_empty() {
            return;
        }
        let mut found: Vec<(GroupPod<'_>, Name)> = Vec::new();
        for pod in self.view().members().filter_map(GroupPod::new) {
            let claims = pod.details.claims.iter();
            let mut claims = claims.map(|claim| Name::new(&pod.name.namespace, claim));
            let is_exempt = pod.details.assisted || pod.details.ignored;
            if let Some(claim) = claims.find(|claim| parked.contains(claim))
                && !is_exempt
                && pod.member.place().is_none()
            {
                found.push((pod, claim));
            }
        }
        found.sort_unstable_by_key(|(pod, _)| pod.name);
        for (pod, claim) in found {
            self.recreate(pod, &claim);
        }
    }

    fn recreate(&mut self, pod: GroupPod<'_>, claim: &Name) {
        let GroupPod { member, .. } = pod;
        if member.identity.deleting || member.finished {
            return;
        }
        let task_run = pod.recreating_task_run(self.view());
        let (Some(task_run), Some(created)) = (task_run, member.identity.created) else { return };
        let age = task_run.identity.created.map_or(LONGEST, |first| created.duration_since(first));
        let Ok(due) = created.checked_add(age.clamp(SignedDuration::ZERO, LONGEST)) else { return };
        if due > self.facts.now {
            return self.recheck_by(due);
        }
        let why = format!(
            "claim {} is parked and never bound, and the pod does not mount the placeholder's claim that replaces it",
            claim.name
        );
        self.release(pod, &why);
    }
}
