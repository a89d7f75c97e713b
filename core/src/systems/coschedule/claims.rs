//! Changes the storage class of claims of runs and groups at creation; later it cannot change.
//!
//! A class that binds at once may create the volumes of a run where no common node can mount them. So
//! the class is replaced by its sibling that waits for the first pod: that is the placeholder's, which
//! mounts all claims. With `volumes: provision` the placeholder has claims of its own, and those that
//! Tekton creates are parked in a class that never binds.

use super::groups::{self, Groups};
use super::mode;
use super::native::parse_group;
use super::owner::{owner_of, root_of, task_run_of};
use super::{NAME, keys, one_node};
use crate::placement::claim::Claim;
use crate::placement::intent::{Change, Intent};
use crate::placement::reason::Warning;
use crate::systems::coschedule::kinds::StorageClass;
use crate::systems::coschedule::policy::{ControllerAbsent, CoscheduleMode, Volumes};
use crate::systems::coschedule::resources::STORAGE_CLASS;
use crate::systems::policy::Policy;
use crate::systems::{Outcome, View};
use crate::view::{Key, Name, Owner};

/// Decides the changes to a claim.
pub(super) fn request(claim: &Claim<'_>, view: &View, policy: &Policy) -> Outcome {
    let mut request = ClaimRequest { claim, view, policy, outcome: Outcome::default() };
    request.find();
    request.outcome
}

/// The sibling of a class: it creates the same volumes, but waits for their first pod. Of several, the
/// first by name. `None` for a class without a provisioner. Never the class of parked claims.
pub(super) fn sibling<'v>(class: &str, view: &'v View) -> Option<&'v str> {
    let class = view.storage_class(class)?;
    if class.is_manual() {
        return None;
    }
    let alike = view
        .storage_classes()
        .filter(|(_, other)| other.waits && other.provisioning == class.provisioning)
        .filter(|(name, _)| *name != keys::PARKED);
    alike.map(|(name, _)| name).min()
}

/// The reason why a claim keeps a class that binds at once.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Stays {
    /// True if the policy maps it to a class that does not exist. If not, the class has no sibling that waits.
    pub(super) is_mapped: bool,
    /// The text of the warning.
    pub(super) text: String,
}

impl Stays {
    /// Returns why claims keep `class`. `None` if it waits, is replaced, or is not known.
    pub(super) fn of(class: &str, view: &View, policy: &Policy) -> Option<Self> {
        if view.storage_class(class)?.waits {
            return None;
        }
        replacement(class, view, policy).err()
    }
}

/// Returns the class that replaces one that binds at once.
fn replacement<'v>(class: &str, view: &'v View, policy: &'v Policy) -> Result<&'v str, Stays> {
    if let Some(target) = policy.coschedule.class_map.get(class) {
        let text = || format!("classMap names {target}, which is no StorageClass; {class} stays");
        return match view.storage_class(target) {
            Some(_) => Ok(target),
            None => Err(Stays { is_mapped: true, text: text() }),
        };
    }
    let known = view.storage_class(class);
    let is_manual = known.is_some_and(StorageClass::is_manual);
    let why = if is_manual { "its volumes are made by hand" } else { "none like it waits" };
    let text = || format!("StorageClass {class} binds at once, and {why}: volumes may lie apart");
    sibling(class, view).ok_or_else(|| Stays { is_mapped: false, text: text() })
}

/// The decision about one claim.
struct ClaimRequest<'c> {
    claim: &'c Claim<'c>,
    view: &'c View,
    policy: &'c Policy,
    outcome: Outcome,
}

impl ClaimRequest<'_> {
    fn find(&mut self) {
        let metadata = self.claim.metadata;
        self.warn_about_one_node();
        // The claims of a placeholder have the annotation for their cleanup.
        let is_placeholders = metadata.label(keys::PLACEHOLDER).is_some();
        if metadata.annotation(keys::MODE).is_some() && !is_placeholders {
            self.warn(keys::MODE, "no effect on a PersistentVolumeClaim; annotate the run");
        }
        if let Some(group) = metadata.annotation(keys::GROUP) {
            match parse_group(self.claim.namespace, group) {
                Ok(_) => self.adopt(keys::GROUP, &format!("coschedule-group={group}")),
                Err(finding) => self.outcome.findings.push(finding),
            }
        } else if let Some(run) = owner_of(metadata, "PipelineRun") {
            self.of_run(&run);
        } else if let Some(task_run) = owner_of(metadata, "TaskRun") {
            self.of_task_run(&task_run);
        }
    }

    /// Warns about the annotation that takes a claim out, where it has no effect.
    fn warn_about_one_node(&mut self) {
        let Some(value) = self.claim.metadata.annotation(keys::ONE_NODE) else { return };
        let namespace = self.claim.namespace;
        if !matches!(value, "true" | "false") {
            self.warn(
                keys::ONE_NODE,
                "has no effect with this value; write \"false\" to take the claim out",
            );
        } else if !one_node::is_on(namespace, self.view) {
            let text = format!(
                "no effect: namespace {namespace} does not have the label {}: \"true\"",
                keys::ONE_NODE_CLAIMS
            );
            self.warn(keys::ONE_NODE, &text);
        }
    }

    fn of_run(&mut self, owner: &Owner) {
        let (name, run) = match root_of(self.claim.namespace, owner, self.view) {
            Ok(root) => root,
            Err(key) => return self.wait_for(key),
        };
        // An invalid mode is reported on the run's pods.
        let Ok(groups) = groups::of_run(name, run, self.view, self.policy) else { return };
        if groups.mode == CoscheduleMode::Disabled {
            return;
        }
        let why = format!("{} of PipelineRun {}", mode::word(groups.mode), name.name);
        if self.is_to_be_parked(&groups) {
            self.change_class(keys::MODE, &why, keys::PARKED);
        } else {
            self.adopt(keys::MODE, &why);
        }
    }

    /// Returns true if a placeholder will replace this claim by one of its own.
    fn is_to_be_parked(&self, groups: &Groups) -> bool {
        let name = self.claim.metadata.name.as_ref().map_or("", |name| name.as_str());
        let is_served = self.view.controller_present()
            || self.policy.coschedule.controller_absent == ControllerAbsent::Wait;
        self.policy.coschedule.volumes == Volumes::Provision
            && is_served
            && groups.owner_of(name).is_some()
            // If Tekton's own assistant places active runs, it may place this one, too: its pods would mount the
            // parked claim.
            && !self.view.assisted_runs().any(|run| !run.done)
    }

    fn of_task_run(&mut self, owner: &Owner) {
        let task_run = match task_run_of(self.claim.namespace, owner, self.view) {
            Ok(task_run) => task_run,
            Err(key) => return self.wait_for(key),
        };
        let mode = match &task_run.mode {
            Some(value) => mode::parse(value, String::new),
            None => Ok(mode::of_namespace(self.claim.namespace, self.view, self.policy).0),
        };
        if mode.is_ok_and(|mode| mode != CoscheduleMode::Disabled) {
            self.adopt(keys::MODE, &format!("TaskRun {}", owner.name));
        }
    }

    fn wait_for(&mut self, key: Key) {
        self.warn(keys::MODE, &format!("{key} is not known here; the claim keeps its class"));
        self.outcome.awaited.push(key);
    }

    /// Gives the claim a class that waits, if its own does not.
    fn adopt(&mut self, key: &'static str, why: &str) {
        let (claim, view) = (self.claim, self.view);
        let class = claim.class().filter(|class| !class.is_empty() && *class != keys::PARKED);
        // The user has chosen an existing volume.
        let is_chosen = claim.volume_name.is_some() || claim.has_selector;
        let Some(class) = class.filter(|_| !is_chosen) else { return };
        let mapped = self.policy.coschedule.class_map.get(class);
        match view.storage_class(class) {
            Some(known) if known.waits => return,
            Some(_) => {}
            None => {
                self.outcome.awaited.push(Key::new(STORAGE_CLASS, Name::cluster_wide(class)));
                if mapped.is_none() {
                    return;
                }
            }
        }
        match replacement(class, view, self.policy) {
            Ok(target) => self.change_class(key, why, target),
            Err(stays) => {
                let missing = mapped.map(|of| Key::new(STORAGE_CLASS, Name::cluster_wide(of)));
                self.outcome.awaited.extend(missing);
                self.warn(key, &stays.text);
            }
        }
    }

    fn change_class(&mut self, key: &'static str, why: &str, class: &str) {
        let change = Change::StorageClass(class.to_owned());
        self.outcome.intents.push(Intent { system: NAME, key, why: why.to_owned(), change });
    }

    fn warn(&mut self, key: &str, text: &str) {
        self.outcome.warnings.push(Warning::new(key, text));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::systems::test_objects::view_of;

    /// The claims of that class are never bound. Other classes: `fixtures/coschedule/claim-*`.
    #[test]
    fn the_class_of_parked_claims_is_no_sibling() {
        let class = |name: &str, mode: &str| {
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
                "provisioner": "example.com/disk", "volumeBindingMode": mode})
        };
        let waiting = class(keys::PARKED, "WaitForFirstConsumer");
        let view = view_of([class("at-once", "Immediate"), waiting]);
        assert_eq!(sibling("at-once", &view), None);
        assert!(Stays::of("at-once", &view, &Policy::default()).is_some());
    }
}
