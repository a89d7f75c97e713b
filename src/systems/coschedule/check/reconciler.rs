//! Asks the reconciler of coscheduling what it would do.
//!
//! It reports and moves nothing before the grace period has passed. So it is asked what it will do by
//! the end of that period if nothing changes until then.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::systems::check::Context;
use crate::systems::coschedule::reconcile::{self, Explained, reason};
use crate::systems::plan::{Plan, Write};
use crate::view::{Name, Resource};

/// The end of the grace period that begins now.
fn end_of_grace(context: &Context<'_>) -> Timestamp {
    let now = context.now;
    let grace = SignedDuration::try_from(context.policy.coschedule.grace_period.length());
    grace.ok().and_then(|grace| now.checked_add(grace).ok()).unwrap_or(now)
}

/// What the reconciler would do with a placeholder. `None`: the placeholder does not exist, its group
/// has ended, or the nodes are unknown.
pub(super) fn explain(context: &Context<'_>, placeholder: &Name) -> Option<Explained> {
    let Context { cluster, policy, .. } = context;
    // Without nodes every node counts as deleted.
    if cluster.has_no_nodes() {
        return None;
    }
    reconcile::explain(&cluster.view, policy, end_of_grace(context), placeholder)
}

/// The next plan of the reconciler.
pub(super) struct Planned(Plan);

impl Planned {
    pub(super) fn new(context: &Context<'_>) -> Self {
        let Context { cluster, policy, .. } = context;
        Self(reconcile::plan(&cluster.view, policy, end_of_grace(context)))
    }

    /// Whether it creates a placeholder.
    pub(super) fn creates(&self, placeholder: &Name) -> bool {
        self.0.actions.iter().any(|action| {
            let target = &action.target;
            matches!(action.write, Write::Create(_))
                && target.namespace == placeholder.namespace
                && *target.name == *placeholder.name
        })
    }

    /// Why an object waits for an earlier group that uses the same claim: notes of events.
    pub(super) fn shared_claims(
        &self,
        resource: Resource,
        name: &Name,
    ) -> impl Iterator<Item = &str> {
        let about = self.0.actions.iter().filter(move |action| {
            let target = &action.target;
            target.resource == resource
                && target.namespace == name.namespace
                && *target.name == *name.name
        });
        let events = about.flat_map(|action| &action.events);
        events.filter(|event| event.reason == reason::SHARED_CLAIM).map(|event| event.note.as_str())
    }
}
