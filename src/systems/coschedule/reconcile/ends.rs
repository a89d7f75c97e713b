//! What outlived its cause: placeholders of runs that ended, of native groups that nobody belongs to
//! any more, and of nobody; and the claims of runs that ended.

use k8s_openapi::jiff::Timestamp;

use super::sources::Sources;
use super::{Turn, length};
use crate::policy::CoscheduleMode;
use crate::systems::coschedule::keys::{self, NAME_PREFIX};
use crate::systems::coschedule::{family, mode};
use crate::systems::plan::operation::{add, remove, test, test_uid};
use crate::systems::plan::{Kind, Write};
use crate::view::storage::PROTECTION;
use crate::view::{Claim, Name, PipelineRun, Placeholder};

/// The annotation of a native group's placeholder that nobody belongs to: since when, in seconds since
/// 1970.
pub(super) const IDLE_SINCE: &str = "stowplan.dev/idle-since";

/// What is to become of a placeholder that stands.
#[derive(Clone, Copy, Debug)]
pub(super) enum Standing<'v> {
    /// It is needed, by this run or by a native group.
    Lives(Option<(&'v Name, &'v PipelineRun)>),
    /// It is left as it is.
    Rests,
    /// It goes.
    Ended,
}

impl<'v> Turn<'v> {
    pub(super) fn standing_of(
        &mut self,
        name: &Name,
        placeholder: &Placeholder,
        is_wanted: bool,
    ) -> Standing<'v> {
        // A StatefulSet that somebody else has given our label is not ours.
        if placeholder.identity.deleting || !name.name.starts_with(NAME_PREFIX) {
            return Standing::Rests;
        }
        let run_uid = placeholder.run.as_ref().map(|run| &*run.uid);
        let has_members = || self.has_members(name, run_uid);
        match (&placeholder.run, &placeholder.group) {
            // Without Tekton's kinds nothing is known of runs, and the API server sees to what they own.
            (Some(_), _) if !self.view.has_tekton() => Standing::Rests,
            (Some(owner), _) => match self.view.run_by_uid(&owner.uid) {
                // An owner is in the namespace of what it owns.
                Some((run, _)) if run.namespace != name.namespace => Standing::Ended,
                Some((_, run)) if run.done || run.identity.deleting => Standing::Ended,
                Some(run) if is_wanted || has_members() => Standing::Lives(Some(run)),
                Some(_) | None => Standing::Ended,
            },
            (None, Some(_)) => match has_members() {
                true => Standing::Lives(None),
                false => self.idle(name, placeholder),
            },
            (None, None) => Standing::Ended,
        }
    }

    /// Whether pods of a placeholder go on.
    fn has_members(&self, name: &Name, run_uid: Option<&str>) -> bool {
        self.view.members_of(name).any(|(pod, member)| {
            !member.finished && family::belongs(pod, member, &name.name, run_uid, self.view)
        })
    }

    /// A native group without a member stays for a while: its next pod should find the node.
    fn idle(&mut self, name: &Name, placeholder: &Placeholder) -> Standing<'v> {
        let Some(since) = idle_since(placeholder) else {
            let operations = vec![
                test_uid(&placeholder.identity.uid),
                add(&["metadata", "annotations", IDLE_SINCE], self.now.as_second().to_string()),
            ];
            self.write(
                Kind::StatefulSet,
                name,
                &placeholder.identity.uid,
                Write::Patch(operations),
                Vec::new(),
            );
            return Standing::Rests;
        };
        match self.is_over(since, length(self.policy.coschedule.group_ttl)) {
            true => Standing::Ended,
            false => Standing::Rests,
        }
    }

    /// Takes back that a group has no member.
    pub(super) fn is_not_idle(&mut self, name: &Name, placeholder: &Placeholder) {
        let annotations = placeholder.estate.as_ref().map(|estate| &estate.annotations);
        if annotations.is_some_and(|annotations| annotations.contains_key(IDLE_SINCE)) {
            let operations = vec![
                test_uid(&placeholder.identity.uid),
                remove(&["metadata", "annotations", IDLE_SINCE]),
            ];
            let uid = &placeholder.identity.uid;
            self.write(Kind::StatefulSet, name, uid, Write::Patch(operations), Vec::new());
        }
    }

    pub(super) fn remove_placeholder(&mut self, name: &Name, placeholder: &Placeholder) {
        let write = Write::Delete { grace: None, version: None };
        self.write(Kind::StatefulSet, name, &placeholder.identity.uid, write, Vec::new());
    }

    /// The claims of templates of runs that have ended, as Tekton treats them: those that a placeholder
    /// made of a whole run go, the others where the run says so by its annotation.
    ///
    /// The mode in force by then may be another than the run had. A placeholder's claim carries the one
    /// that counts, and stays where it carries none.
    ///
    /// A claim that is deleted stays for as long as a pod names it, and the pods of a run stay after
    /// their end. So the finalizer that says so is taken from it, once no pod goes on that mounts it, be
    /// it of the run or not.
    pub(super) fn clean_up(&mut self, sources: &Sources<'v>) {
        let mut ended: Vec<_> = self.view.pipeline_runs().filter(|(_, run)| run.done).collect();
        let has_any = |run: &PipelineRun| {
            let mut claims = self.view.claims_of_run(&run.identity.uid);
            claims.any(|(_, claim)| run.auto_cleanup || claim.placeholder.is_some())
        };
        ended.retain(|(name, run)| {
            !run.identity.deleting
                && has_any(run)
                && !sources.is_left_alone(&name.namespace)
                && self.view.placeholders_of_run(&run.identity.uid).next().is_none()
        });
        if ended.is_empty() || !self.policy.coschedule.enabled {
            return;
        }
        ended.sort_unstable_by_key(|(name, _)| *name);
        for (name, run) in ended {
            let takes_tektons = run.auto_cleanup && self.was_ours(name, run);
            for (claim_name, claim) in self.view.claims_of_run(&run.identity.uid) {
                let goes = match &claim.placeholder {
                    None => takes_tektons,
                    Some(_) => match claim.mode.as_deref().and_then(mode::read) {
                        None | Some(CoscheduleMode::Disabled) => false,
                        Some(CoscheduleMode::Workspaces) => run.auto_cleanup,
                        Some(_) => true,
                    },
                };
                if goes && !self.view.is_mounted(claim_name) {
                    self.remove_claim(claim_name, claim);
                }
            }
        }
    }

    /// Whether a run that has ended was ours, as far as that can be known: its pods or claims say so, or
    /// nothing says that it is not.
    fn was_ours(&self, name: &Name, run: &PipelineRun) -> bool {
        let uid = &run.identity.uid;
        let is_disabled = match mode::of_run(name, run, self.view, self.policy) {
            Ok(mode) => mode == CoscheduleMode::Disabled,
            Err(_) => true,
        };
        let has_pod_of = |key: &str| {
            let placeholder = Name::new(&name.namespace, &keys::of_run(uid, key));
            self.view.members_of(&placeholder).next().is_some()
        };
        !is_disabled
            || self.view.claims_of_run(uid).any(|(_, claim)| claim.placeholder.is_some())
            || has_pod_of("")
            || run.workspaces.iter().any(|workspace| has_pod_of(&workspace.name))
    }

    fn remove_claim(&mut self, name: &Name, claim: &Claim) {
        let write = match (claim.identity.deleting, claim.protection) {
            (false, _) => Write::Delete { grace: None, version: None },
            (true, Some(place)) => {
                let place = place.to_string();
                let path = ["metadata", "finalizers", &place];
                Write::Patch(vec![
                    test_uid(&claim.identity.uid),
                    // Only as it was looked at: what has changed is looked at again.
                    test(&["metadata", "resourceVersion"], &*claim.identity.resource_version),
                    test(&path, PROTECTION),
                    remove(&path),
                ])
            }
            (true, None) => return,
        };
        self.write(Kind::PersistentVolumeClaim, name, &claim.identity.uid, write, Vec::new());
    }
}

fn idle_since(placeholder: &Placeholder) -> Option<Timestamp> {
    let text = placeholder.estate.as_ref()?.annotations.get(IDLE_SINCE)?;
    Timestamp::from_second(text.parse().ok()?).ok()
}
