//! Lets a creation wait until the View shows the objects that were created before it was planned.
//!
//! Of two new groups that share a claim, for example, each is the first one in a plan that does not know the
//! other's placeholder, and both would get a node of their own.

use std::collections::HashMap;

use stowplan_core::systems::plan::{Action, Target, Write};

/// The creations of the latest plan, and those that were started and may not be in the View yet.
#[derive(Debug, Default)]
pub(super) struct Creations {
    /// The number of the latest plan.
    number: u64,
    /// The number of the first plan that contained each creation; all later ones contained it, too.
    planned: HashMap<Target, u64>,
    /// The number of the plan from which each creation was started.
    started: HashMap<Target, u64>,
    /// The least of these numbers in each namespace.
    unseen: HashMap<Box<str>, u64>,
}

impl Creations {
    /// Replaces the creations of the plan before. `is_unseen`: whether a creation that was started is in flight,
    /// or may have succeeded although the View does not show the object.
    pub(super) fn plan(&mut self, actions: &[Action], is_unseen: impl Fn(&Target) -> bool) {
        self.number += 1;
        let creations = actions.iter().filter(|action| matches!(action.write, Write::Create(_)));
        let first = |target: &Target| self.planned.get(target).copied().unwrap_or(self.number);
        self.planned =
            creations.map(|Action { target, .. }| (target.clone(), first(target))).collect();
        self.started.retain(|target, _| is_unseen(target));
        self.unseen.clear();
        for (target, number) in &self.started {
            let least = self.unseen.entry(target.namespace.clone()).or_insert(*number);
            *least = (*least).min(*number);
        }
    }

    /// Notes that a creation of the latest plan is started.
    pub(super) fn start(&mut self, target: &Target) {
        self.started.insert(target.clone(), self.number);
    }

    /// Returns true if the target is to be created, and was not yet planned when a creation in its
    /// namespace was started that the View may not show yet.
    pub(super) fn must_wait(&self, target: &Target) -> bool {
        let unseen = self.unseen.get(&target.namespace);
        self.planned.get(target).zip(unseen).is_some_and(|(planned, unseen)| planned > unseen)
    }
}
