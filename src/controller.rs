//! The controller: makes the cluster what the plan says.
//!
//! One of several processes leads at a time ([`lease`]). While it does, a plan is made whenever the
//! View or the policy changes or the plan asked for it ([`systems::plan`](crate::systems::plan), pure),
//! and [`act`] carries it out; [`events`] tells users what happened. All state is in the cluster: a
//! process that takes over makes the same plan from what it sees.

pub mod act;
pub mod events;
#[cfg(test)]
mod fake;
pub mod lease;
mod release;
pub mod report;

use std::error::Error;
use std::fmt;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::cluster::Cluster;
use crate::policy::Policy;
use crate::systems::plan::Plan;
use crate::telemetry::Metrics;
use crate::view::View;
use act::Executor;
use events::Events;
use lease::Leadership;

/// What makes a plan. It is called under the View's lock: pure, and quick.
pub type Planner = Box<dyn Fn(&View, &Policy, Timestamp) -> Plan + Send + Sync>;

/// How long changes are gathered before a plan is made of them.
const GATHER: Duration = Duration::from_millis(20);

/// The longest time without a plan. Clocks are set, and a time that was far away can be near.
const LONGEST: Duration = Duration::from_secs(60);

/// How long writes that are under way may take at a stop.
const LAST_WRITES: Duration = Duration::from_secs(1);

/// A controller that has not started yet.
pub struct Controller {
    /// Sends every request. Must not repeat any itself: see [`Executor::new`].
    pub client: Client,
    /// The namespace of the Lease.
    pub namespace: String,
    /// The name that no other candidate has.
    pub identity: String,
    /// The View, as [`Cluster::watching_all`] keeps it.
    pub cluster: Arc<Cluster>,
    /// The policy, whenever it changes.
    pub policy: watch::Receiver<Arc<Policy>>,
    /// What makes a plan.
    pub planner: Planner,
    /// What is counted.
    pub metrics: Arc<Metrics>,
}

impl fmt::Debug for Controller {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Controller")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

impl Controller {
    /// Leads whenever it can, until `stop`; then ends what it has begun and gives the lease back.
    ///
    /// # Errors
    /// The task that runs for the lease has died, which is a bug.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), String> {
        let leadership = Leadership::none();
        let release = CancellationToken::new();
        // A task of its own: a plan that takes long must not keep the lease from being renewed.
        let mut campaign = tokio::spawn(lease::campaign(
            self.client.clone(),
            self.namespace.clone(),
            self.identity.clone(),
            leadership.clone(),
            Arc::clone(&self.metrics),
            release.clone(),
        ));
        let events = Events::start(self.client.clone(), self.identity.clone());
        let died = |ended: Result<(), _>| match ended {
            Ok(()) => "the task that runs for the lease has ended".to_owned(),
            Err(error) => format!("the task that runs for the lease has died: {error}"),
        };
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                ended = &mut campaign => return Err(died(ended)),
                () = leadership.gained() => {}
            }
            let mut executor = Executor::new(
                self.client.clone(),
                Arc::clone(&self.cluster),
                leadership.clone(),
                events.clone(),
                Arc::clone(&self.metrics),
            );
            tokio::select! {
                () = stop.cancelled() => {
                    // The next leader should not meet a write of ours that is on its way.
                    let _ = timeout(LAST_WRITES, executor.drain()).await;
                    break;
                }
                ended = &mut campaign => return Err(died(ended)),
                // What is under way is dropped with the executor.
                () = leadership.lost() => {}
                () = self.lead(&mut executor) => {}
            }
            self.metrics.controller_actions.set(0);
        }
        release.cancel();
        campaign.await.map_err(|error| died(Err(error)))
    }

    /// Plans and acts. Ends only by being dropped.
    async fn lead(&mut self, executor: &mut Executor) {
        let mut changes = self.cluster.changes();
        let mut due = Instant::now();
        // No sooner than this, however much changes.
        let mut earliest = due;
        loop {
            let soon = |due: Instant| due.min((Instant::now() + GATHER).max(earliest));
            tokio::select! {
                () = executor.next() => due = soon(due),
                // Both senders live as long as the process; without them only time goes on.
                Ok(()) = changes.changed() => due = soon(due),
                Ok(()) = self.policy.changed() => due = soon(due),
                () = sleep_until(due) => {
                    let began = Instant::now();
                    let next = self.plan(executor);
                    let took = began.elapsed();
                    // At most half of the time goes into plans.
                    earliest = Instant::now() + took;
                    due = Instant::now() + next;
                }
            }
        }
    }

    /// Makes a plan and hands it on. Returns when to make another even if nothing changes.
    fn plan(&mut self, executor: &mut Executor) -> Duration {
        if !self.cluster.is_synced() {
            // The watch that syncs last says so by a change.
            return LONGEST;
        }
        let policy = Arc::clone(&self.policy.borrow_and_update());
        let now = Timestamp::now();
        let began = Instant::now();
        let plan = (self.planner)(&self.cluster.view(), &policy, now);
        let took = began.elapsed();
        self.metrics.controller_plan_duration.observe(took.as_secs_f64());
        debug!(actions = plan.actions.len(), micros = took.as_micros(), "planned");
        executor.take(plan.actions);
        let ahead = plan.recheck_at.map(|at| at.duration_since(now).max(Default::default()));
        let ahead = ahead.and_then(|ahead| Duration::try_from(ahead).ok());
        ahead.map_or(LONGEST, |ahead| ahead.max(GATHER).min(LONGEST))
    }
}

/// An error with all of its causes, for a log.
fn causes(error: &(dyn Error + 'static)) -> String {
    let causes = iter::successors(Some(error), |&cause| cause.source());
    let texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}
