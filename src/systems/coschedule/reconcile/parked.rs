//! Parked claims: pods that mount one by the name that Tekton gives it, because the webhook was away as
//! they came, or knew too little of their run.
//!
//! Such a pod can never run: its claim is never bound, and what a pod mounts does not change. So it is
//! deleted, whatever the policy repairs, and its TaskRun makes it again under the same name, this time
//! past the webhook. Where that is still away, the next one waits for as long as its TaskRun has tried
//! by then, and a minute at most.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::SignedDuration;

use super::Turn;
use super::sources::Wanted;
use super::tend::maker;
use crate::systems::coschedule::claims::is_parked;
use crate::view::{Member, Name};

/// The longest that a pod waits before it is made again.
const LONGEST: SignedDuration = SignedDuration::from_mins(1);

impl Turn<'_> {
    /// Has the pods made again that mount a parked claim whose place a placeholder's own takes.
    pub(super) fn make_again_what_mounts_parked(&mut self, wanted: &BTreeMap<Name, Wanted<'_>>) {
        let replaced = wanted.iter().flat_map(|(name, wanted)| {
            let claims = wanted.blueprint.templates.iter();
            claims.map(|(claim, _)| Name::new(&name.namespace, claim))
        });
        let is_parked = |claim: &Name| self.view.claim(claim).is_some_and(is_parked);
        let parked: BTreeSet<Name> = replaced.filter(is_parked).collect();
        if parked.is_empty() {
            return;
        }
        let mut found: Vec<_> = self
            .view
            .members()
            .filter_map(|(name, member)| {
                let estate = member.estate.as_ref()?;
                let mut claims =
                    estate.claims.iter().map(|claim| Name::new(&name.namespace, claim));
                let claim = claims.find(|claim| parked.contains(claim))?;
                let is_left_alone = estate.assisted || estate.ignored;
                (!is_left_alone && member.place().is_none()).then_some((name, member, claim))
            })
            .collect();
        found.sort_unstable_by_key(|(name, ..)| *name);
        for (name, member, claim) in found {
            self.make_again(name, member, &claim);
        }
    }

    fn make_again(&mut self, name: &Name, member: &Member, claim: &Name) {
        if member.identity.deleting || member.finished {
            return;
        }
        let task_run = maker(name, member, self.view);
        let (Some(task_run), Some(made)) = (task_run, member.identity.created) else { return };
        let tried = task_run.identity.created.map_or(LONGEST, |first| made.duration_since(first));
        if !self.is_over(made, tried.clamp(SignedDuration::ZERO, LONGEST)) {
            return;
        }
        let why = format!(
            "claim {} is parked, and the placeholder's own takes its place, which the pod does not mount",
            claim.name
        );
        self.have_made_again(name, member, &why);
    }
}
