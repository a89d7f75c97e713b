//! Leader election by a Lease (coordination.k8s.io/v1), by client-go's protocol and timings.
//!
//! The holder renews the lease every two seconds. The other candidates read the record regularly. A
//! candidate takes the lease when the record has not changed for its full duration, measured by the
//! candidate's own monotonic clock. The times in the record are for people: clocks of different
//! machines are never compared.
//!
//! [`Election`] is the protocol without a cluster: given what was read and written, and when, it
//! decides the next step. It measures times so that two candidates cannot lead at once: an own
//! renewal counts from before the request was sent, and another candidate's record counts as
//! unchanged until the last read was sent, not until its answer arrived. The rest of the process
//! asks [`Leadership`] right before each write: it denies once the renew deadline has passed,
//! whatever state the renewing task is in. So a process that was suspended writes nothing before it
//! has renewed the lease. The time between the renew deadline and the end of the lease's duration
//! is the longest time that one write may take.
//!
//! A write that was sent in time can still arrive late. All of stowplan's writes have preconditions
//! (a UID, a version, a free name), so a late write either has the effect that the next leader
//! would cause, or none.
//!
//! Existing crates (kube-lease-manager, kube-leader-election, k8s-controller's own election) trust
//! the times in the record, or patch without a version, or do not offer a check at any moment
//! whether the lease is held.

mod election;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder as _, ConstantBuilder};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::format_error;
use crate::telemetry::{Metrics, shown};
use election::{Election, Step};
use stowplan_core::kubernetes::is_missing_right;

/// The name of the Lease object.
pub(crate) const NAME: &str = "stowplan-controller";

/// How long a record must stay unchanged before another candidate takes the lease.
pub(crate) const DURATION: Duration = Duration::from_secs(15);

/// How long the lease counts as held after its last renewal. The rest of [`DURATION`] is for the
/// last write.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);

/// How long a write may take.
pub(crate) const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

const _: () = assert!(
    RENEW_DEADLINE.as_secs() + WRITE_TIMEOUT.as_secs() <= DURATION.as_secs(),
    "the last write must end before another candidate leads"
);

/// The time between two reads by a candidate, and between two renewals by the holder.
const RETRY: Duration = Duration::from_secs(2);

/// How long a request may take. Two requests with a pause between them fit into the renew deadline.
const REQUEST: Duration = Duration::from_secs(3);

/// How long the release at a stop may take.
const RELEASE: Duration = Duration::from_secs(1);

/// The longest duration in another candidate's record that is respected; a longer one is a mistake.
const LONGEST: Duration = Duration::from_secs(60);

/// How long this process leads; shared between the election and the writers.
#[derive(Clone, Debug)]
pub(crate) struct Leadership {
    /// The lease counts as held until this time.
    until: Arc<watch::Sender<Option<Instant>>>,
}

impl Leadership {
    /// This process does not lead yet.
    #[must_use]
    pub(crate) fn none() -> Self {
        Self { until: Arc::new(watch::Sender::new(None)) }
    }

    /// Returns true if the lease is held at this moment. Call it right before each write.
    #[must_use]
    pub(crate) fn is_held(&self) -> bool {
        self.until.borrow().is_some_and(|until| Instant::now() < until)
    }

    /// Resolves when the lease is held.
    pub(crate) async fn gained(&self) {
        let mut changes = self.until.subscribe();
        let held = |until: &Option<Instant>| until.is_some_and(|until| Instant::now() < until);
        drop(changes.wait_for(held).await.expect("`self` has the sender"));
    }

    /// Resolves when the lease is no longer held.
    pub(crate) async fn lost(&self) {
        let mut changes = self.until.subscribe();
        loop {
            let until = *changes.borrow_and_update();
            let Some(until) = until.filter(|until| Instant::now() < *until) else { return };
            // Either may have happened: the end, or a renewal.
            let _ = timeout_at(until, changes.changed()).await;
        }
    }

    pub(super) fn set(&self, until: Option<Instant>) {
        self.until.send_if_modified(|present| std::mem::replace(present, until) != until);
    }
}

/// A process that competes for the lease.
pub(super) struct Candidate {
    pub client: Client,
    /// The namespace of the lease.
    pub namespace: String,
    /// The name under which it competes.
    pub identity: String,
    pub leadership: Leadership,
    pub metrics: Arc<Metrics>,
}

impl Candidate {
    /// Competes for the lease until `stop`, then releases it.
    pub(super) async fn campaign(self, stop: CancellationToken) {
        let Self { client, namespace, identity, leadership, metrics } = self;
        let api = Api::<Lease>::namespaced(client, &namespace);
        let mut election = Election::new(identity);
        // Random pauses, so that the candidates do not all write at once.
        let mut pauses =
            ConstantBuilder::new().with_delay(RETRY).with_jitter().without_max_times().build();
        let (mut leads, mut logged) = (false, None);
        loop {
            let problem = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                result = round(&api, &mut election, &leadership) => result.err(),
            };
            if leads != leadership.is_held() {
                leads = !leads;
                metrics.controller_leader.set(i64::from(leads));
                let identity = &*shown(&election.identity);
                match leads {
                    true => info!(lease = NAME, namespace, identity, "leading"),
                    false => warn!(lease = NAME, namespace, identity, "stopped leading"),
                }
            }
            if problem != logged {
                if let Some(problem) = problem.as_deref() {
                    warn!(lease = NAME, namespace, problem = &*shown(problem), "{LEASE_TROUBLE}");
                }
                logged = problem;
            }
            let pause = if leads { RETRY } else { pauses.next().unwrap_or(RETRY) };
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                // Logged at once, so that log and metric are correct.
                () = leadership.lost(), if leads => {
                    leads = false;
                    metrics.controller_leader.set(0);
                    warn!(lease = NAME, namespace, "the lease was not renewed in time: stopped leading");
                }
                () = sleep(pause) => {}
            }
        }
        leadership.set(None);
        metrics.controller_leader.set(0);
        match timeout(RELEASE, release(&api, &mut election)).await {
            Ok(Ok(true)) => info!(lease = NAME, namespace, "released"),
            Ok(Ok(false)) => {}
            _ if leads => {
                warn!(lease = NAME, namespace, "the lease could not be released; it expires")
            }
            _ => {}
        }
    }
}

/// Releases the lease. Returns false if this candidate does not hold it.
async fn release(api: &Api<Lease>, election: &mut Election) -> kube::Result<bool> {
    let lease = match election.known.take() {
        Some(lease) => Some(lease),
        // The stop interrupted a renewal, which may have been written.
        None if election.acquired.is_some() => api.get_opt(NAME).await?,
        None => None,
    };
    match lease.and_then(|lease| election.release(lease, Timestamp::now())) {
        Some(lease) => api.replace(NAME, &PostParams::default(), &lease).await.map(|_| true),
        None => Ok(false),
    }
}

const LEASE_TROUBLE: &str = "the lease cannot be read or written";

/// The remedy for a missing right.
const RIGHTS: &str = "the Role of the controller needs get, create and update of leases";

/// One round: reads the lease if needed, and takes or renews it if allowed.
///
/// # Errors
/// The failed request, for the log. The election remains valid.
async fn round(
    api: &Api<Lease>,
    election: &mut Election,
    leadership: &Leadership,
) -> Result<(), String> {
    let mut step = election.begin(Instant::now(), Timestamp::now());
    let parameters = PostParams::default();
    // The longest sequence: a renewal meets another version, reads the lease, and writes again.
    for _ in 0..4 {
        let written = match step {
            Step::Rest => return Ok(()),
            Step::Read => {
                let asked = Instant::now();
                let lease = request(api.get_opt(NAME)).await?;
                step = election.observe(lease, asked, Instant::now(), Timestamp::now());
                // Set before the next await: the lease may be lost.
                leadership.set(election.until);
                continue;
            }
            Step::Create(lease) => request(conflicts(api.create(&parameters, &lease))).await?,
            Step::Replace(lease) => {
                request(conflicts(api.replace(NAME, &parameters, &lease))).await?
            }
        };
        let Some(lease) = written else {
            step = Step::Read;
            continue;
        };
        election.written(lease);
        leadership.set(election.until);
        return Ok(());
    }
    Ok(())
}

/// Turns a conflict into `None`: the lease was deleted, or has another version than the replaced
/// one.
async fn conflicts(
    write: impl Future<Output = kube::Result<Lease>>,
) -> kube::Result<Option<Lease>> {
    match write.await {
        Ok(lease) => Ok(Some(lease)),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn request<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, String> {
    match timeout(REQUEST, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) if is_missing_right(&status.message) => {
            Err(format!("{} ({}): {RIGHTS}", status.message, status.code))
        }
        Ok(Err(error)) => Err(format_error(&error)),
        Err(_) => Err(format!("no answer within {} s", REQUEST.as_secs())),
    }
}
