//! Garbage collection of placeholders whose run has ended, whose native group has no members, or that
//! have no owner, and of the claims of ended runs.

use k8s_openapi::jiff::Timestamp;

use super::carry_out::{PlanBuilder, annotate};
use super::desired::Sources;
use super::duration;
use super::state::Facts;
use crate::systems::coschedule::keys::{self, IDLE_SINCE, NAME_PREFIX};
use crate::systems::coschedule::kinds::pipeline_run::PipelineRun;
use crate::systems::coschedule::kinds::placeholder::Placeholder;
use crate::systems::coschedule::kinds::storage::{Claim, PROTECTION};
use crate::systems::coschedule::policy::CoscheduleMode;
use crate::systems::coschedule::resources::CLAIM;
use crate::systems::coschedule::{family, mode};
use crate::systems::plan::Write;
use crate::systems::plan::operation::{remove, test, test_uid};
use crate::view::Name;
use crate::view::resource::STATEFUL_SET;

/// The decision if a placeholder is kept.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    /// It is needed, by its run or by a native group.
    Needed,
    /// It is not changed. It is checked again at this time, if any.
    Untouched(Option<Timestamp>),
    /// Its native group has no members, which is recorded with the time.
    Idle,
    /// It is no longer needed, and is deleted.
    Ended,
}

/// Decides whether a placeholder is kept. `is_desired`: an active group needs it.
pub(super) fn fate(
    name: &Name,
    placeholder: &Placeholder,
    is_desired: bool,
    facts: &Facts<'_>,
) -> Fate {
    // Users can set the label on a StatefulSet that is not stowplan's.
    if placeholder.identity.deleting || !name.name.starts_with(NAME_PREFIX) {
        return Fate::Untouched(None);
    }
    let view = facts.view;
    let run_uid = placeholder.run.as_ref().map(|run| &*run.uid);
    let has_members = || {
        view.members_of(name).any(|(pod, member)| {
            !member.finished && family::belongs(pod, member, &name.name, run_uid, view)
        })
    };
    match (&placeholder.run, &placeholder.group) {
        // Without Tekton's kinds no run can be found, and the API server deletes what runs own.
        (Some(_), _) if !view.has_tekton() => Fate::Untouched(None),
        (Some(owner), _) => match view.run_by_uid(&owner.uid) {
            // An owner must be in the same namespace.
            Some((run, _)) if run.namespace != name.namespace => Fate::Ended,
            Some((_, run)) if run.done || run.identity.deleting => Fate::Ended,
            Some(_) if is_desired || has_members() => Fate::Needed,
            Some(_) | None => Fate::Ended,
        },
        (None, Some(_)) if has_members() => Fate::Needed,
        (None, Some(_)) => fate_without_members(name, placeholder, facts),
        (None, None) => Fate::Ended,
    }
}

/// A native group's placeholder without members is kept for `groupTTL`: the group's next pod should get
/// the same node.
/// Not if one of its claims is being deleted: Kubernetes keeps a deleted claim while a pod mounts it.
fn fate_without_members(name: &Name, placeholder: &Placeholder, facts: &Facts<'_>) -> Fate {
    let mut claims = placeholder.mounted(name).filter_map(|claim| facts.view.claim(&claim));
    if claims.any(|claim| claim.identity.deleting) {
        return Fate::Ended;
    }
    let Some(since) = placeholder.details.as_ref().and_then(|of| of.time(IDLE_SINCE)) else {
        return Fate::Idle;
    };
    match since.checked_add(duration(facts.policy.coschedule.group_ttl)) {
        Ok(due) if due <= facts.now => Fate::Ended,
        Ok(due) => Fate::Untouched(Some(due)),
        // A time beyond the range is never reached.
        Err(_) => Fate::Untouched(None),
    }
}

impl<'v> PlanBuilder<'_, 'v> {
    pub(super) fn carry_out_fate(&mut self, name: &Name, placeholder: &Placeholder, fate: Fate) {
        match fate {
            Fate::Needed | Fate::Untouched(None) => {}
            Fate::Untouched(Some(until)) => self.recheck_by(until),
            Fate::Idle => {
                let now = self.facts.now_text();
                self.change(name, placeholder, annotate(placeholder, IDLE_SINCE, now));
            }
            Fate::Ended => {
                let write = Write::Delete { grace: None, version: None };
                self.write(STATEFUL_SET, name, &placeholder.identity.uid, write);
            }
        }
    }

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
}
