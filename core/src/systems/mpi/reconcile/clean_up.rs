//! The end of a cluster: workers do not end by themselves, because an ssh server never does. If the
//! annotations ask for it, they are stopped when the launcher has ended, once for each launcher: a user who
//! starts them again keeps them.

use serde_json::json;

use super::{Planner, reason, target_of};
use crate::systems::mpi::keys::CLEANED_AFTER;
use crate::systems::mpi::request::{CleanUp, Role};
use crate::systems::plan::operation::{add, test_uid};
use crate::systems::plan::{Action, Event, Write};
use crate::view::resource::STATEFUL_SET;

impl Planner<'_, '_> {
    /// Stops the workers of a cluster whose launchers have all ended.
    pub(super) fn clean_up(&mut self) {
        let cluster = self.cluster;
        let mut launchers: Vec<_> = cluster.of_role(Role::Launcher).collect();
        launchers.sort_by_key(|(name, of)| (of.identity.created, *name));
        let is_asked = |of: &super::Workload| of.request.clean_up == CleanUp::Workers;
        let is_over = launchers.iter().all(|(_, of)| of.is_over);
        let Some((launcher, last)) = launchers.last().filter(|_| is_over) else { return };
        for (name, workers) in cluster.of_role(Role::Worker) {
            let is_set = workers.resource == STATEFUL_SET;
            let is_stopped = match is_set {
                true => workers.count == Some(0),
                false => workers.is_suspended || workers.is_over,
            };
            let uid = &*last.identity.uid;
            if is_stopped
                || !(is_asked(last) || is_asked(workers))
                || workers.cleaned_after.as_deref() == Some(uid)
            {
                continue;
            }
            let stop = match is_set {
                true => add(&["spec", "replicas"], 0),
                false => add(&["spec", "suspend"], true),
            };
            let mark = match workers.has_annotations {
                true => add(&["metadata", "annotations", CLEANED_AFTER], uid),
                false => add(&["metadata", "annotations"], json!({CLEANED_AFTER: uid})),
            };
            let operations = vec![test_uid(&workers.identity.uid), stop, mark];
            let event = Event {
                warning: false,
                reason: reason::WORKERS_STOPPED,
                note: format!("the launcher {} has ended", launcher.name),
            };
            let target = target_of((name, workers));
            self.act(Action::new(target, Write::Patch(operations), vec![event]));
        }
    }
}
