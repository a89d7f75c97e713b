//! Decides at admission which group a pod belongs to. `follow` decides how it follows the group's placeholder.
//!
//! The run of a Tekton pod is found by its chain of owners: pod, TaskRun, PipelineRun, up to the root
//! run. Labels are not used, because users can set them.

mod follow;

use super::groups::{self, Groups, Membership};
use super::mode;
use super::native::parse_group;
use super::owner::{Belonging, belonging, owner_of};
use super::{NAME, family, keys};
use crate::placement::intent::{Change, Intent};
use crate::placement::pod::Pod;
use crate::placement::reason::{Warning, shorten};
use crate::placement::record;
use crate::systems::coschedule::policy::Volumes;
use crate::systems::coschedule::resources::CLAIM;
use crate::systems::policy::Policy;
use crate::systems::{Outcome, View};
use crate::view::{Key, Name, Owner};
use crate::wire::TextMap;

/// Decides the changes to a pod.
pub(super) fn request(pod: &Pod<'_>, view: &View, policy: &Policy) -> Outcome {
    let mut request = PodRequest { pod, view, policy, outcome: Outcome::default() };
    request.join();
    request.warn_about_one_node();
    let is_label_of_group = |intent: &Intent| matches!(&intent.change, Change::Label { key, .. } if key == keys::MEMBER);
    let is_in_group = request.outcome.intents.iter().any(is_label_of_group)
        || pod.label(keys::MEMBER).is_some()
        || pod.annotation(keys::ASSISTANT).is_some();
    request.share_claims(is_in_group);
    request.outcome
}

/// A pod at admission, and the outcome as far as it has been decided.
pub(super) struct PodRequest<'p> {
    pub(super) pod: &'p Pod<'p>,
    pub(super) view: &'p View,
    pub(super) policy: &'p Policy,
    pub(super) outcome: Outcome,
}

/// The group that a pod joins.
struct Joined<'g> {
    /// The annotation that causes the changes.
    key: &'static str,
    /// The cause as it is shown to users.
    why: String,
    placeholder: &'g str,
    /// True if claims of the pod are replaced by those that the placeholder makes.
    needs_claims: bool,
}

impl PodRequest<'_> {
    fn join(&mut self) {
        let pod = self.pod;
        let task_run = owner_of(pod.metadata, "TaskRun");
        if task_run.is_some() && pod.annotation(keys::ASSISTANT).is_some() {
            if pod.annotation(keys::GROUP).is_some() {
                self.warn(keys::GROUP, "no effect: Tekton's own affinity assistant places the pod");
            }
            return;
        }
        if let Some(group) = pod.annotation(keys::GROUP) {
            match parse_group(pod.namespace, group) {
                Ok(placeholder) => {
                    let (key, why) = (keys::GROUP, format!("coschedule-group={group}"));
                    let groups = task_run.and_then(|task_run| self.groups_of(&task_run));
                    let needs_claims =
                        groups.is_some_and(|groups| self.replace_claims(key, &why, &groups));
                    self.enter(&Joined { key, why, placeholder: &placeholder, needs_claims });
                }
                Err(finding) => self.outcome.findings.push(finding),
            }
            return;
        }
        let Some(task_run) = task_run.filter(|_| self.view.has_tekton()) else {
            if pod.annotation(keys::MODE).is_some() {
                self.warn(keys::MODE, "no effect: the pod belongs to no Tekton TaskRun");
            }
            return;
        };
        // Tekton copies the annotation from the run; an invalid one is reported here.
        if let Some(Err(bad)) =
            pod.annotation(keys::MODE).map(|mode| mode::parse(mode, String::new))
        {
            self.outcome.findings.push(bad.finding());
            return;
        }
        self.join_run(&task_run);
    }

    fn join_run(&mut self, task_run: &Owner) {
        let belonging = belonging(self.pod.namespace, task_run, self.view, self.policy);
        let (name, run, task, groups) = match belonging {
            Belonging::Run { name, run, task, groups } => (name, run, task, groups),
            Belonging::Alone => return,
            Belonging::BadMode(bad) => return self.outcome.findings.push(bad.finding()),
            Belonging::Unknown(_) if self.is_settled() => {
                self.outcome.keeps_record = true;
                return;
            }
            Belonging::Unknown(key) => {
                let text = format!("{key} is not known here; the pod is not placed with its run");
                self.warn(keys::MODE, &text);
                self.outcome.awaited.push(key);
                return;
            }
        };
        if family::signs(name, run, self.view).is_assisted {
            if self.is_settled() {
                self.outcome.keeps_record = true;
                return;
            }
            return self
                .warn(keys::MODE, "left alone: Tekton's own affinity assistant places its run");
        }
        if let Some(bad) = &groups.unused_mode {
            self.warn(keys::MODE, &bad.note(self.policy));
        }
        self.outcome.awaited.extend(groups.awaited.iter().cloned());
        let mounted: Vec<&str> =
            self.pod.claims.iter().map(|volume| volume.claim.as_str()).collect();
        let selector: Vec<(&str, &str)> =
            self.pod.node_selector.iter().flat_map(TextMap::iter).collect();
        let needs_no_node = groups::needs_no_node(self.pod.namespace, self.view);
        let membership = groups.membership(task, &mounted, &selector, needs_no_node);
        let why = match &membership {
            Membership::Of(group) if !group.key.is_empty() => {
                format!("{} {} of PipelineRun {}", mode::word(groups.mode), group.key, name.name)
            }
            _ => format!("{} of PipelineRun {}", mode::word(groups.mode), name.name),
        };
        // Parked claims are never bound, so they are replaced whichever group the pod belongs to.
        let needs_claims = self.replace_claims(keys::MODE, &why, &groups);
        match membership {
            Membership::Free => {}
            Membership::Several(first, second) => {
                let text = format!(
                    "not placed: the groups of its claims share no node ({} and {})",
                    first.key, second.key
                );
                self.warn(keys::MODE, &text);
            }
            Membership::Of(group) => {
                let (key, placeholder) = (keys::MODE, &*group.name);
                self.enter(&Joined { key, why, placeholder, needs_claims });
            }
        }
    }

    /// Finds the groups of the run of a pod that is in a native group instead of its run's group: it still uses
    /// the claims of its run.
    fn groups_of(&mut self, task_run: &Owner) -> Option<Groups> {
        match belonging(self.pod.namespace, task_run, self.view, self.policy) {
            Belonging::Run { groups, .. } => Some(groups),
            Belonging::Unknown(key) if self.may_be_parked() => {
                self.outcome.awaited.push(key);
                None
            }
            _ => None,
        }
    }

    /// Returns true if a claim is parked, or will be when it is created.
    fn is_parked(&self, claim: &Name) -> bool {
        match self.view.claim(claim) {
            Some(known) => known.is_parked(),
            None => self.policy.coschedule.volumes == Volumes::Provision,
        }
    }

    /// Returns true if a claim of the pod may be parked.
    fn may_be_parked(&self) -> bool {
        let mut mounted = self.pod.claims.iter().map(|volume| volume.claim.as_str());
        mounted.any(|claim| self.is_parked(&Name::new(self.pod.namespace, claim)))
    }

    /// Replaces each parked claim of the pod by the one that the placeholder makes. Returns true if there are any.
    fn replace_claims(&mut self, key: &'static str, why: &str, groups: &Groups) -> bool {
        let mut has_any = false;
        for volume in &self.pod.claims {
            let from = volume.claim.as_str();
            let claim = Name::new(self.pod.namespace, from);
            let Some(owner) = groups.owner_of(from).filter(|_| self.is_parked(&claim)) else {
                continue;
            };
            let to = keys::provisioned(from, &owner.name);
            self.add_change(key, why, Change::ClaimName { from: from.to_owned(), to });
            if self.view.claim(&claim).is_none() {
                self.outcome.awaited.push(Key::new(CLAIM, claim));
            }
            has_any = true;
        }
        has_any
    }

    /// Returns true if an earlier admission placed the pod, by its record and its label. Forging both has no more effect than
    /// setting the label.
    fn is_settled(&self) -> bool {
        let (label, record) = (self.pod.label(keys::MEMBER), self.pod.annotation(record::KEY));
        let (Some(label), Some(record)) = (label, record) else { return false };
        let entries = record::entries(record, NAME);
        entries.iter().any(|entry| placeholder_in(entry) == Some(label))
    }

    pub(super) fn add_change(&mut self, key: &'static str, why: &str, change: Change) {
        self.outcome.intents.push(Intent { system: NAME, key, why: why.to_owned(), change });
    }

    fn holds(&mut self, joined: &Joined<'_>, how: &str) {
        let why = shorten(&joined.why, 160);
        self.outcome.holds.push(format!("{why}: {}{how}", joined.placeholder));
    }

    pub(super) fn warn(&mut self, key: &str, text: &str) {
        self.outcome.warnings.push(Warning::new(key, text));
    }
}

/// Parses the placeholder in an entry of the record, `WHY: PLACEHOLDER[, HOW]`.
fn placeholder_in(entry: &str) -> Option<&str> {
    let (_, what) = entry.rsplit_once(": ")?;
    what.split(", ").next()
}

#[cfg(test)]
mod tests;
