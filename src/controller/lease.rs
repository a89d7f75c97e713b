//! Leader election by a Lease (coordination.k8s.io/v1), by client-go's protocol and timings.
//!
//! Who holds the lease writes it anew every two seconds. Others watch the record: when it has not
//! changed for its whole duration, by their own monotonic clock, they take it. Times that are written
//! in it are for people; no clock is ever compared with another one's.
//!
//! [`Election`] is that protocol without a cluster: told what was read and written, and when, it
//! says what to do. Times count against us: a lease that we wrote is ours from before the request was
//! sent, and another's record counts as unchanged up to when it was asked for, not to when the answer
//! came. [`Leadership`] is what the rest of the process asks, right before each write: it says no once
//! the renew deadline has passed, whatever the task that renews is doing. So a process that was stopped
//! for a while writes nothing before it has renewed. Between the renew deadline and the lease's
//! duration is the time that one write may take at most.
//!
//! What cannot be excluded is a write that was handed to the network and arrives late. All our writes
//! have preconditions (a UID, a version, a name that is free), so such a write does what the next
//! leader would do, or nothing.
//!
//! The crates for this (kube-lease-manager, kube-leader-election, k8s-controller's own) trust written
//! times or patch without a version, or do not tell, by the clock and at any moment, whether the lease
//! is held.

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder as _, ConstantBuilder};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::causes;
use crate::telemetry::{Metrics, shown};

/// The name of the Lease.
pub const NAME: &str = "stowplan-controller";

/// How long a record must stay unchanged before another candidate takes the lease.
const DURATION: Duration = Duration::from_secs(15);

/// How long the lease counts as held after it was last renewed. What is left of [`DURATION`] is for
/// the last write: see [`act::WRITE_TIMEOUT`](super::act).
const RENEW_DEADLINE: Duration = Duration::from_secs(10);

/// Between two looks, and between two renewals.
const RETRY: Duration = Duration::from_secs(2);

/// How long a request may take. Two fit into the renew deadline, with the pause between them.
const REQUEST: Duration = Duration::from_secs(3);

/// How long the last request may take, which gives the lease back.
const RELEASE: Duration = Duration::from_secs(1);

/// The longest duration of another's record that is waited for; one that is longer is a mistake.
const LONGEST: Duration = Duration::from_secs(60);

/// Whether this process leads, for those who act.
#[derive(Clone, Debug)]
pub struct Leadership {
    /// Until when the lease counts as held.
    until: Arc<watch::Sender<Option<Instant>>>,
}

impl Leadership {
    /// Nobody leads yet.
    #[must_use]
    pub fn none() -> Self {
        Self { until: Arc::new(watch::Sender::new(None)) }
    }

    /// Whether the lease is held at this moment. To be asked right before each write.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.until.borrow().is_some_and(|until| Instant::now() < until)
    }

    /// Resolves when the lease is held.
    pub async fn gained(&self) {
        let mut changes = self.until.subscribe();
        let held = |until: &Option<Instant>| until.is_some_and(|until| Instant::now() < until);
        if changes.wait_for(held).await.is_err() {
            // The sender is `self`'s.
            std::future::pending::<()>().await;
        }
    }

    /// Resolves when the lease is not held any more.
    pub async fn lost(&self) {
        let mut changes = self.until.subscribe();
        loop {
            let until = *changes.borrow_and_update();
            match until {
                Some(until) if Instant::now() < until => {
                    tokio::select! {
                        () = sleep_until(until) => {}
                        _ = changes.changed() => {}
                    }
                }
                _ => return,
            }
        }
    }

    pub(super) fn set(&self, until: Option<Instant>) {
        self.until.send_if_modified(|present| std::mem::replace(present, until) != until);
    }
}

/// What to do now.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// Read the lease, and tell [`Election::observe`].
    Read,
    /// Create it, and tell [`Election::written`]. Where another one has, read it.
    Create(Lease),
    /// Write it in place of the version that it names, and tell the same. Where it has another version
    /// now, read it.
    Replace(Lease),
    /// Nothing until the next round.
    Rest,
}

/// A candidate's knowledge of the lease.
#[derive(Debug)]
struct Election {
    identity: String,
    /// The lease as it was last read or written, unless it is known to have changed since.
    known: Option<Lease>,
    /// Another's record, and since when it has been the same.
    other: Option<(LeaseSpec, Instant)>,
    /// When we last took the lease, as it is written in the record. A name can be another's, too; a
    /// record with our name and this time is ours, whichever of our renewals wrote it.
    acquired: Option<MicroTime>,
    /// The record that we wrote last, or tried to, and when that was begun: its answer can be lost.
    attempt: Option<(LeaseSpec, Instant)>,
    /// Until when the lease is ours.
    until: Option<Instant>,
}

impl Election {
    fn new(identity: String) -> Self {
        Self { identity, known: None, other: None, acquired: None, attempt: None, until: None }
    }

    fn is_held(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// The first step of a round: who holds the lease renews the version that it knows, everybody
    /// else looks first.
    fn begin(&mut self, now: Instant, time: Timestamp) -> Step {
        match self.known.take() {
            Some(known) if self.is_held(now) => self.claim(Some(known), now, time),
            _ => Step::Read,
        }
    }

    /// Takes in the lease as it was read, which was asked for at `asked` and came at `answered`, and
    /// says what follows.
    fn observe(
        &mut self,
        lease: Option<Lease>,
        asked: Instant,
        answered: Instant,
        time: Timestamp,
    ) -> Step {
        let Some(lease) = lease else {
            // Somebody deleted it, and anybody may make it again.
            self.lose();
            self.other = None;
            return self.claim(None, answered, time);
        };
        let record = lease.spec.clone().unwrap_or_default();
        if self.is_ours(&record) {
            // A renewal whose answer was lost counts; an older one has been counted.
            if let Some((_, begun)) = self.attempt.as_ref().filter(|(own, _)| *own == record) {
                self.until = Some(*begun + RENEW_DEADLINE);
            }
            self.other = None;
            return self.claim(Some(lease), answered, time);
        }
        self.lose();
        if record.holder_identity.as_deref().is_none_or(str::is_empty) {
            self.other = None;
            return self.claim(Some(lease), answered, time);
        }
        // Also under our own name: a process that had it before us may still be at work.
        match &self.other {
            Some((seen, since)) if *seen == record => {
                if asked.saturating_duration_since(*since) < duration(&record) {
                    return Step::Rest;
                }
                self.claim(Some(lease), answered, time)
            }
            _ => {
                self.other = Some((record, answered));
                Step::Rest
            }
        }
    }

    /// The last step was carried out, and answered with this.
    fn written(&mut self, lease: Lease) {
        if let Some((_, begun)) = &self.attempt {
            self.until = Some(*begun + RENEW_DEADLINE);
        }
        self.other = None;
        self.known = Some(lease);
    }

    /// What gives `lease` back, if it is ours.
    fn release(&self, mut lease: Lease, time: Timestamp) -> Option<Lease> {
        let spec = lease.spec.as_mut().filter(|record| self.is_ours(record))?;
        // As client-go does: an empty holder, and nothing to wait for.
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(micro(time));
        Some(lease)
    }

    fn is_ours(&self, record: &LeaseSpec) -> bool {
        self.acquired.is_some()
            && record.acquire_time == self.acquired
            && record.holder_identity.as_ref() == Some(&self.identity)
    }

    fn lose(&mut self) {
        self.until = None;
        self.acquired = None;
        self.attempt = None;
    }

    fn claim(&mut self, present: Option<Lease>, now: Instant, time: Timestamp) -> Step {
        let exists = present.is_some();
        let mut lease = present.unwrap_or_else(|| Lease {
            metadata: ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() },
            spec: None,
        });
        let mut spec = lease.spec.take().unwrap_or_default();
        if !self.is_ours(&spec) {
            self.acquired = Some(micro(time));
            spec.acquire_time.clone_from(&self.acquired);
            let changed = i32::from(exists);
            spec.lease_transitions =
                Some(spec.lease_transitions.unwrap_or(0).saturating_add(changed));
        }
        spec.holder_identity = Some(self.identity.clone());
        spec.lease_duration_seconds = i32::try_from(DURATION.as_secs()).ok();
        spec.renew_time = Some(micro(time));
        self.attempt = Some((spec.clone(), now));
        lease.spec = Some(spec);
        if exists { Step::Replace(lease) } else { Step::Create(lease) }
    }
}

/// How long another's record must stay the same before it is taken: as long as it says, and not
/// shorter than ours.
fn duration(record: &LeaseSpec) -> Duration {
    let seconds = record.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    Duration::from_secs(seconds.unwrap_or_default()).clamp(DURATION, LONGEST)
}

/// In microseconds, as it will be read again.
fn micro(time: Timestamp) -> MicroTime {
    MicroTime(Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time))
}

/// Runs for the lease in `namespace` under the name `identity` until `stop`, then gives it back.
pub(super) async fn campaign(
    client: Client,
    namespace: String,
    identity: String,
    leadership: Leadership,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) {
    let api = Api::<Lease>::namespaced(client, &namespace);
    let mut election = Election::new(identity);
    // Candidates spread, so that they do not all write at once.
    let mut pauses =
        ConstantBuilder::new().with_delay(RETRY).with_jitter().without_max_times().build();
    let mut told = None;
    loop {
        let led = leadership.is_held();
        let round = round(&api, &mut election);
        let problem = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            result = round => result.err(),
        };
        leadership.set(election.until);
        let leads = leadership.is_held();
        metrics.controller_leader.set(i64::from(leads));
        if leads != led {
            let identity = &*shown(&election.identity);
            match leads {
                true => info!(lease = NAME, namespace, identity, "leading"),
                false => warn!(lease = NAME, namespace, identity, "not leading any more"),
            }
        }
        if problem != told {
            if let Some(problem) = &problem {
                warn!(lease = NAME, namespace, problem = &*shown(problem), "{LEASE_TROUBLE}");
            }
            told = problem;
        }
        let pause = if leads { RETRY } else { pauses.next().unwrap_or(RETRY) };
        tokio::select! {
            () = stop.cancelled() => break,
            () = sleep(pause) => {}
            // Told at once, and the metric is true.
            () = leadership.lost(), if leads => {
                metrics.controller_leader.set(0);
                warn!(lease = NAME, namespace, "the lease could not be renewed in time; not leading any more");
            }
        }
    }
    let led = leadership.is_held();
    leadership.set(None);
    metrics.controller_leader.set(0);
    match timeout(RELEASE, release(&api, &mut election)).await {
        Ok(Ok(true)) => info!(lease = NAME, namespace, "released"),
        Ok(Ok(false)) => {}
        _ if led => warn!(lease = NAME, namespace, "the lease could not be released; it runs out"),
        _ => {}
    }
}

/// Gives the lease back; false where it is not ours.
async fn release(api: &Api<Lease>, election: &mut Election) -> kube::Result<bool> {
    let lease = match election.known.take() {
        Some(lease) => Some(lease),
        // The stop broke a renewal off, which may have been written.
        None if election.acquired.is_some() => api.get_opt(NAME).await?,
        None => None,
    };
    match lease.and_then(|lease| election.release(lease, Timestamp::now())) {
        Some(lease) => api.replace(NAME, &PostParams::default(), &lease).await.map(|_| true),
        None => Ok(false),
    }
}

const LEASE_TROUBLE: &str =
    "the lease cannot be read or written (the Role of the controller needs get, create, update)";

/// One round: looks at the lease if that is needed, and takes or renews it if that may be.
///
/// # Errors
/// What went wrong, for people. The election knows what it may still rely on.
async fn round(api: &Api<Lease>, election: &mut Election) -> Result<(), String> {
    let mut step = election.begin(Instant::now(), Timestamp::now());
    // A renewal that meets another version looks once more; nothing takes more steps than that.
    for _ in 0..4 {
        step = match step {
            Step::Rest => return Ok(()),
            Step::Read => {
                let asked = Instant::now();
                let lease = request(api.get_opt(NAME)).await?;
                election.observe(lease, asked, Instant::now(), Timestamp::now())
            }
            Step::Create(lease) => {
                match request(conflicts(api.create(&PostParams::default(), &lease))).await? {
                    Some(lease) => {
                        election.written(lease);
                        return Ok(());
                    }
                    None => Step::Read,
                }
            }
            Step::Replace(lease) => {
                let parameters = PostParams::default();
                match request(conflicts(api.replace(NAME, &parameters, &lease))).await? {
                    Some(lease) => {
                        election.written(lease);
                        return Ok(());
                    }
                    None => Step::Read,
                }
            }
        };
    }
    Ok(())
}

/// `None` where the lease has another version than the one that was to be replaced, or is gone.
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
        Ok(Err(error)) => Err(causes(&error)),
        Err(_) => Err(format!("no answer within {} s", REQUEST.as_secs())),
    }
}
