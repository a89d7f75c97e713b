//! Garbage collection of placeholders whose run has ended, whose native group has no members, or that
//! have no owner, of the claims of ended runs, and of pods with a claim that is never bound.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::SignedDuration;

use super::carry_out::PlanBuilder;
use super::desired::Sources;
use super::duration;
use super::group_pod::GroupPod;
use super::next::{Decision, Next};
use super::state::{Facts, State};
use crate::systems::coschedule::keys::{self, IDLE_SINCE, NAME_PREFIX};
use crate::systems::coschedule::kinds::storage::PROTECTION;
use crate::systems::coschedule::kinds::{Claim, PipelineRun};
use crate::systems::coschedule::placeholder::Desired;
use crate::systems::coschedule::policy::CoscheduleMode;
use crate::systems::coschedule::resources::CLAIM;
use crate::systems::coschedule::{family, mode};
use crate::systems::plan::Write;
use crate::systems::plan::operation::{remove, test, test_uid};
use crate::view::Name;

/// The longest time that a pod with a parked claim waits before it is deleted.
const LONGEST_PARKED: SignedDuration = SignedDuration::from_mins(1);

/// Decides about a placeholder that is not needed, or that stowplan did not create. A decision without a step leaves it
/// as it is: it is being deleted, stowplan did not create it, or Tekton is not served. `None`: an active group needs
/// it.
pub(super) fn end<'v>(state: &State<'v>, facts: &Facts<'v>) -> Option<Decision<'v>> {
    let State { name, placeholder, view, .. } = state;
    // Users can set the label on a StatefulSet that is not stowplan's.
    if placeholder.identity.deleting || !name.name.starts_with(NAME_PREFIX) {
        return Some(Decision::default());
    }
    let ended = || Some(Decision { next: Next::Delete, ..Decision::default() });
    let run_uid = placeholder.run.as_ref().map(|run| &*run.uid);
    let has_members = || {
        view.members_of(name).any(|(pod, member)| {
            !member.finished && family::belongs(pod, member, &name.name, run_uid, view)
        })
    };
    match (&placeholder.run, &placeholder.group) {
        // Without Tekton's kinds no run can be found, and the API server deletes what runs own.
        (Some(_), _) if !view.has_tekton() => Some(Decision::default()),
        (Some(owner), _) => match view.run_by_uid(&owner.uid) {
            // An owner must be in the same namespace.
            Some((run, _)) if run.namespace != name.namespace => ended(),
            Some((_, run)) if run.done || run.identity.deleting => ended(),
            Some(_) if state.desired.is_some() || has_members() => None,
            Some(_) | None => ended(),
        },
        (None, Some(_)) if has_members() => None,
        (None, Some(_)) => Some(end_without_members(state, facts)),
        (None, None) => ended(),
    }
}

/// Decides about a native group's placeholder without members: keeps it for `groupTTL`, because the group's next pod
/// should get the same node. Deletes it at once if one of its claims is being deleted: Kubernetes keeps a deleted claim
/// while a pod mounts it.
fn end_without_members<'v>(state: &State<'v>, facts: &Facts<'v>) -> Decision<'v> {
    let State { name, placeholder, details, view, .. } = state;
    let ended = Decision { next: Next::Delete, ..Decision::default() };
    let mut claims = placeholder.mounted(name).filter_map(|claim| view.claim(&claim));
    if claims.any(|claim| claim.identity.deleting) {
        return ended;
    }
    let Some(since) = details.time(IDLE_SINCE) else {
        return Decision { next: Next::Mark(IDLE_SINCE, facts.now_text()), ..Decision::default() };
    };
    match since.checked_add(duration(facts.policy.coschedule.group_ttl)) {
        Ok(due) if due <= facts.now => ended,
        // A time beyond the range is never reached.
        due => Decision { recheck_at: due.ok(), ..Decision::default() },
    }
}

impl<'v> PlanBuilder<'_, 'v> {
    /// Deletes the template claims of ended runs by Tekton's rules: a claim of a placeholder is deleted if
    /// the placeholder was for all pods of the run, and other claims if the run's annotation asks for it.
    /// Parked claims are deleted with every run: they would stay Pending until the run is deleted.
    ///
    /// The effective mode may have changed since the run started. So a placeholder's claim carries the
    /// mode that it was created for; a claim without one is kept.
    ///
    /// Kubernetes keeps a deleted claim while a pod names it, even an ended one, and Tekton keeps the
    /// pods of ended runs. So its finalizer is removed once every pod that mounts the claim has ended.
    pub(super) fn clean_up(&mut self, sources: &Sources<'v>) {
        let view = self.view();
        let is_over = |run: &PipelineRun| {
            let mut claims = view.claims_of_run(&run.identity.uid);
            run.done && !run.identity.deleting && claims.next().is_some()
        };
        let mut ended: Vec<_> = view.pipeline_runs().filter(|(_, run)| is_over(run)).collect();
        ended.retain(|(name, run)| {
            self.facts.policy.coschedule.enabled
                && !sources.is_opted_out(&name.namespace)
                && view.placeholders_of_run(&run.identity.uid).next().is_none()
        });
        ended.sort_unstable_by_key(|(name, _)| *name);
        for (name, run) in ended {
            for (claim_name, claim) in view.claims_of_run(&run.identity.uid) {
                let is_deletable = match &claim.placeholder {
                    // A parked claim has no volume, and no pod can ever use it.
                    None => {
                        claim.is_parked() || run.auto_cleanup && self.was_coscheduled(name, run)
                    }
                    Some(_) => match claim.mode.as_deref().and_then(mode::read) {
                        None | Some(CoscheduleMode::Disabled) => false,
                        Some(CoscheduleMode::Workspaces) => run.auto_cleanup,
                        Some(_) => true,
                    },
                };
                if is_deletable && !view.is_mounted(claim_name) {
                    self.remove_claim(claim_name, claim);
                }
            }
        }
    }

    /// Returns true if an ended run was coscheduled: its mode is not `disabled`, or it has claims or pods of
    /// placeholders from the time before that.
    fn was_coscheduled(&self, name: &Name, run: &PipelineRun) -> bool {
        let uid = &run.identity.uid;
        let is_disabled = match mode::of_run(name, run, self.view(), self.facts.policy) {
            Ok((mode, None)) => mode == CoscheduleMode::Disabled,
            // Another mode may have applied while the run was active.
            Ok((_, Some(_))) | Err(_) => true,
        };
        let has_pod_of = |key: &str| {
            let placeholder = Name::new(&name.namespace, &keys::of_run(uid, key));
            self.view().members_of(&placeholder).next().is_some()
        };
        !is_disabled
            || self.view().claims_of_run(uid).any(|(_, claim)| claim.placeholder.is_some())
            || has_pod_of("")
            || run.workspaces.iter().any(|workspace| has_pod_of(&workspace.name))
    }

    fn remove_claim(&mut self, name: &Name, claim: &Claim) {
        let write = match (claim.identity.deleting, claim.protection) {
            (false, _) => Write::Delete { grace: None, version: None },
            (true, Some(index)) => {
                let index = index.to_string();
                let path = ["metadata", "finalizers", &index];
                Write::Patch(vec![
                    test_uid(&claim.identity.uid),
                    // The index is that of this version.
                    test(&["metadata", "resourceVersion"], &*claim.identity.resource_version),
                    test(&path, PROTECTION),
                    remove(&path),
                ])
            }
            (true, None) => return,
        };
        self.write(CLAIM, name, &claim.identity.uid, write);
    }

    /// Recreates the waiting pods that mount a parked claim which a placeholder's own claim replaces. They were created
    /// while the webhook was unavailable, or did not yet know enough about their run.
    ///
    /// Such a pod can never run: its claim is never bound, and a pod's volumes cannot be changed. So it is
    /// deleted, whatever the policy's `repair` is. Its TaskRun recreates it with the same name, and the
    /// webhook then replaces the claim. If the webhook is still unavailable, each pod waits before it is
    /// deleted: as long as its TaskRun had existed when the pod was created, and at most a minute.
    pub(super) fn recreate_pods_with_parked_claims(
        &mut self,
        desired: &BTreeMap<Name, Desired<'_>>,
    ) {
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
            self.recreate_from_parked(pod, &claim);
        }
    }

    fn recreate_from_parked(&mut self, pod: GroupPod<'_>, claim: &Name) {
        let GroupPod { member, .. } = pod;
        if member.identity.deleting || member.finished {
            return;
        }
        let task_run = pod.recreating_task_run(self.view());
        let (Some(task_run), Some(created)) = (task_run, member.identity.created) else { return };
        let age =
            task_run.identity.created.map_or(LONGEST_PARKED, |first| created.duration_since(first));
        let Ok(due) = created.checked_add(age.clamp(SignedDuration::ZERO, LONGEST_PARKED)) else {
            return;
        };
        if due > self.facts.now {
            return self.recheck_by(due);
        }
        let why = format!(
            "claim {} is parked and never bound, and the pod does not mount the placeholder's claim that replaces it",
            claim.name
        );
        self.recreate_member(pod, &why);
    }
}
