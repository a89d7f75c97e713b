//! Leader election by a Lease (coordination.k8s.io/v1), by client-go's protocol and timings.
//!
//! Who holds the lease writes it anew every two seconds. Others watch the record: when it has not
//! changed for its whole duration, by their own monotonic clock, they take it. Times that are written
//! in it are for people; no clock is ever compared with another one's.
//!
//! `Election` is that protocol without a cluster: told what was read and written, and when, it
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

use super::act::WRITE_TIMEOUT;
use super::problem;
use crate::telemetry::{Metrics, shown};

/// The name of the Lease.
pub const NAME: &str = "stowplan-controller";

/// How long a record must stay unchanged before another candidate takes the lease.
const DURATION: Duration = Duration::from_secs(15);

/// How long the lease counts as held after it was last renewed. What is left of [`DURATION`] is for
/// the last write.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);

const _: () = assert!(
    RENEW_DEADLINE.as_secs() + WRITE_TIMEOUT.as_secs() <= DURATION.as_secs(),
    "the last write must have ended before another candidate leads"
);

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
    let (mut leads, mut told) = (false, None);
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
                false => warn!(lease = NAME, namespace, identity, "not leading any more"),
            }
        }
        if problem != told {
            if let Some(problem) = problem.as_deref() {
                warn!(lease = NAME, namespace, problem = &*shown(problem), "{LEASE_TROUBLE}");
            }
            told = problem;
        }
        let pause = if leads { RETRY } else { pauses.next().unwrap_or(RETRY) };
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            // Told at once, and the metric is true.
            () = leadership.lost(), if leads => {
                leads = false;
                metrics.controller_leader.set(0);
                warn!(lease = NAME, namespace, "not renewed in time: not leading any more");
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
            warn!(lease = NAME, namespace, "the lease could not be released; it runs out")
        }
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
async fn round(
    api: &Api<Lease>,
    election: &mut Election,
    leadership: &Leadership,
) -> Result<(), String> {
    let mut step = election.begin(Instant::now(), Timestamp::now());
    // A renewal that meets another version looks once more; nothing takes more steps than that.
    for _ in 0..4 {
        step = match step {
            Step::Rest => return Ok(()),
            Step::Read => {
                let asked = Instant::now();
                let lease = request(api.get_opt(NAME)).await?;
                let next = election.observe(lease, asked, Instant::now(), Timestamp::now());
                // Before anything else is waited for: it may be lost.
                leadership.set(election.until);
                next
            }
            Step::Create(lease) => {
                match request(conflicts(api.create(&PostParams::default(), &lease))).await? {
                    Some(lease) => {
                        election.written(lease);
                        leadership.set(election.until);
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
                        leadership.set(election.until);
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
        Ok(Err(error)) => Err(problem(&error)),
        Err(_) => Err(format!("no answer within {} s", REQUEST.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::TestCaseResult;

    use super::*;
    use crate::controller::fake::{Api as FakeApi, Reply};

    const MILLISECOND: Duration = Duration::from_millis(1);

    fn spec(step: &Step) -> &LeaseSpec {
        match step {
            Step::Create(lease) | Step::Replace(lease) => lease.spec.as_ref().unwrap(),
            step => panic!("{step:?} writes nothing"),
        }
    }

    /// A lease that `holder` has renewed at `second`, as it writes it.
    fn lease(holder: &str, second: i64) -> Lease {
        let time = Some(MicroTime(Timestamp::from_second(second).unwrap()));
        Lease {
            metadata: ObjectMeta {
                name: Some(NAME.to_owned()),
                resource_version: Some(second.to_string()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(holder.to_owned()),
                lease_duration_seconds: Some(15),
                lease_transitions: Some(3),
                acquire_time: time.clone(),
                renew_time: time,
                ..LeaseSpec::default()
            }),
        }
    }

    fn taken(step: Step) -> Lease {
        match step {
            Step::Create(lease) | Step::Replace(lease) => lease,
            step => panic!("{step:?} writes nothing"),
        }
    }

    /// An election that holds the lease since `now`.
    fn leader(now: Instant) -> Election {
        let mut election = Election::new("me".to_owned());
        assert_eq!(election.begin(now, Timestamp::UNIX_EPOCH), Step::Read);
        let step = election.observe(None, now, now, Timestamp::UNIX_EPOCH);
        assert!(matches!(step, Step::Create(_)), "{step:?}");
        election.written(taken(step));
        assert!(election.is_held(now));
        election
    }

    #[test]
    fn a_lease_is_taken_only_after_it_was_seen_unchanged_for_its_duration() {
        let start = Instant::now();
        let at = |milliseconds: u32| start + MILLISECOND * milliseconds;
        let now = Timestamp::UNIX_EPOCH;
        let mut election = Election::new("me".to_owned());
        let mut look = |seconds, asked, answered| {
            election.observe(Some(lease("other", seconds)), at(asked), at(answered), now)
        };
        assert_eq!(look(1, 0, 500), Step::Rest);
        // From when the first answer came to when the last one was asked for.
        assert_eq!(look(1, 15_499, 17_000), Step::Rest);
        // It has changed just now.
        assert_eq!(look(2, 17_100, 17_200), Step::Rest);
        assert_eq!(look(2, 32_199, 32_300), Step::Rest);
        let step = look(2, 32_200, 32_300);
        assert_eq!(spec(&step).holder_identity.as_deref(), Some("me"));
        assert_eq!(spec(&step).lease_transitions, Some(4));
        let Step::Replace(replaced) = &step else { panic!("{step:?}") };
        assert_eq!(replaced.metadata.resource_version.as_deref(), Some("2"), "bound to a version");
        assert!(!election.is_held(at(32_300)), "not before the answer");
    }

    #[test]
    fn written_times_change_nothing() {
        let start = Instant::now();
        for written in [0, 1_000_000_000, 100_000_000_000] {
            let mut election = Election::new("me".to_owned());
            let mut look = |after| {
                let at = start + Duration::from_secs(after);
                let now = Timestamp::from_second(2_000_000_000).unwrap();
                election.observe(Some(lease("other", written)), at, at, now)
            };
            assert_eq!((look(0), look(14)), (Step::Rest, Step::Rest), "{written}");
            assert!(matches!(look(15), Step::Replace(_)), "{written}");
        }
    }

    #[test]
    fn a_longer_duration_of_another_is_waited_for_within_reason() {
        for (seconds, waited) in [(None, 15), (Some(-1), 15), (Some(40), 40), (Some(i32::MAX), 60)]
        {
            let record = LeaseSpec { lease_duration_seconds: seconds, ..LeaseSpec::default() };
            assert_eq!(duration(&record), Duration::from_secs(waited), "{seconds:?}");
        }
    }

    #[test]
    fn what_was_released_is_taken_at_once_and_what_was_deleted_is_made() {
        let (now, time) = (Instant::now(), Timestamp::UNIX_EPOCH);
        for holder in ["", "me"] {
            let mut lease = lease(holder, 1);
            if holder.is_empty() {
                lease.spec.as_mut().unwrap().holder_identity = None;
            }
            let step = Election::new("me".to_owned()).observe(Some(lease), now, now, time);
            // A process of our name may still be at work: that it was ours, we would know.
            assert_eq!(matches!(step, Step::Replace(_)), holder.is_empty(), "{step:?}");
        }
        let mut election = leader(now);
        let step = election.observe(None, now, now, time);
        assert!(matches!(step, Step::Create(_)) && !election.is_held(now));
    }

    #[test]
    fn the_lease_is_held_from_before_the_request_to_the_renew_deadline() {
        let start = Instant::now();
        let mut election = leader(start);
        assert!(election.is_held(start + RENEW_DEADLINE - MILLISECOND));
        assert!(!election.is_held(start + RENEW_DEADLINE));
        let step = election.begin(start + RETRY, Timestamp::from_second(2).unwrap());
        assert_eq!(spec(&step).lease_transitions, Some(0));
        assert_eq!(spec(&step).acquire_time, Some(MicroTime(Timestamp::UNIX_EPOCH)));
        // However long the answer takes.
        election.written(taken(step));
        assert!(election.is_held(start + RETRY + RENEW_DEADLINE - MILLISECOND));
        assert!(!election.is_held(start + RETRY + RENEW_DEADLINE));
    }

    #[test]
    fn a_renewal_whose_answer_was_lost_counts_and_one_that_failed_does_no_harm() {
        let start = Instant::now();
        let time = |second| Timestamp::from_second(second).unwrap();
        for arrived in [true, false] {
            let mut election = leader(start);
            let first = election.known.clone().unwrap();
            let second = taken(election.begin(start + RETRY, time(2)));
            let found = if arrived { second } else { first };
            assert_eq!(election.begin(start + RETRY * 2, time(4)), Step::Read);
            let now = start + RETRY * 2;
            let step = election.observe(Some(found), now, now, time(4));
            assert!(matches!(step, Step::Replace(_)), "still ours: {step:?}");
            let until = if arrived { RETRY } else { Duration::ZERO } + RENEW_DEADLINE;
            assert!(election.is_held(start + until - MILLISECOND), "{arrived}");
            assert!(!election.is_held(start + until), "{arrived}");
        }
    }

    #[test]
    fn a_process_that_was_stopped_does_not_lead_when_it_goes_on() {
        let start = Instant::now();
        let mut election = leader(start);
        let step = election.begin(start + RETRY, Timestamp::UNIX_EPOCH);
        // The answer lay in the socket for 20 s.
        election.written(taken(step));
        let later = start + Duration::from_secs(20);
        assert!(!election.is_held(later));
        assert_eq!(election.begin(later, Timestamp::UNIX_EPOCH), Step::Read, "it looks first");
        assert_eq!(
            election.observe(Some(lease("other", 9)), later, later, Timestamp::UNIX_EPOCH),
            Step::Rest
        );
    }

    #[test]
    fn only_ones_own_lease_is_released() {
        let now = Instant::now();
        let election = leader(now);
        let own = election.known.clone().unwrap();
        let released = election.release(own, Timestamp::UNIX_EPOCH).unwrap().spec.unwrap();
        assert_eq!(released.holder_identity.as_deref(), Some(""));
        assert_eq!(released.lease_duration_seconds, Some(1));
        assert_eq!(election.release(lease("other", 1), Timestamp::UNIX_EPOCH), None);
        assert_eq!(election.release(lease("me", 1), Timestamp::UNIX_EPOCH), None);
    }

    /// A request on its way.
    struct Flight {
        step: Step,
        begun: u32,
        /// When the store sees it, if it does.
        arrives: u32,
        /// When its sender learns of it, if it does.
        answers: u32,
        /// What the store said: the lease, or that it has another version.
        answer: Option<Result<Option<Lease>, ()>>,
    }

    struct Candidate {
        election: Election,
        next: u32,
        flight: Option<Flight>,
    }

    /// Two candidates and one store, with requests that are late or lost and processes that are
    /// stopped. `chances` decide. Returns for how many ticks somebody led.
    fn play(chances: &[u8], troubled: bool) -> Result<u32, TestCaseError> {
        const TICK: Duration = Duration::from_millis(100);
        let start = Instant::now();
        let at = |tick: u32| start + TICK * tick;
        let time = |tick: u32| Timestamp::from_millisecond(i64::from(tick) * 100).unwrap();
        let mut chances = chances.iter().cycle().copied();
        let mut chance = move |below: u32| u32::from(chances.next().unwrap_or(0)) % below;
        let mut store: Option<Lease> = None;
        let mut version = 0u32;
        // Requests that were given up, and arrive all the same.
        let mut late: Vec<Flight> = Vec::new();
        let mut candidates = ["a", "b"].map(|name| Candidate {
            election: Election::new(name.to_owned()),
            next: 0,
            flight: None,
        });
        let mut led = 0;
        for tick in 0..3000 {
            let mut arrive = |flight: &mut Flight| {
                if flight.arrives != tick {
                    return;
                }
                let known =
                    store.as_ref().and_then(|lease| lease.metadata.resource_version.clone());
                let fits = match &flight.step {
                    Step::Create(_) => store.is_none(),
                    Step::Replace(lease) => lease.metadata.resource_version == known,
                    _ => {
                        flight.answer = Some(Ok(store.clone()));
                        return;
                    }
                };
                if fits {
                    version += 1;
                    let mut lease = taken(flight.step.clone());
                    lease.metadata.resource_version = Some(version.to_string());
                    store = Some(lease);
                }
                flight.answer = Some(if fits { Ok(store.clone()) } else { Err(()) });
            };
            late.iter_mut().for_each(&mut arrive);
            for candidate in &mut candidates {
                if let Some(flight) = &mut candidate.flight {
                    arrive(flight);
                }
            }
            for candidate in &mut candidates {
                // A process that is stopped for up to half a minute.
                if troubled && chance(256) == 0 && chance(4) == 0 {
                    candidate.next = candidate.next.max(tick + chance(256) + 50);
                }
                if tick < candidate.next {
                    continue;
                }
                let election = &mut candidate.election;
                let step = match candidate.flight.take() {
                    None => election.begin(at(tick), time(tick)),
                    Some(flight) if flight.answers <= tick && flight.answer.is_some() => {
                        match (&flight.step, flight.answer) {
                            (Step::Read, Some(Ok(lease))) => {
                                election.observe(lease, at(flight.begun), at(tick), time(tick))
                            }
                            (_, Some(Ok(Some(lease)))) => {
                                election.written(lease);
                                Step::Rest
                            }
                            _ => Step::Read,
                        }
                    }
                    // As `request` gives up.
                    Some(flight) if at(tick) >= at(flight.begun) + REQUEST => {
                        late.push(flight);
                        Step::Rest
                    }
                    flight => {
                        candidate.flight = flight;
                        continue;
                    }
                };
                if step == Step::Rest {
                    candidate.next = tick + 20;
                    continue;
                }
                let lost = troubled && chance(16) == 0;
                let slow = if troubled && chance(16) == 0 { chance(80) } else { 0 };
                let (there, back) = if troubled { (chance(8) + slow, chance(8)) } else { (1, 1) };
                candidate.flight = Some(Flight {
                    step,
                    begun: tick,
                    arrives: tick + 1 + there,
                    answers: if lost { u32::MAX } else { tick + 1 + there + back },
                    answer: None,
                });
            }
            let leaders = candidates.iter().filter(|c| c.election.is_held(at(tick))).count();
            prop_assert!(leaders <= 1, "both lead at {tick}");
            led += u32::try_from(leaders).unwrap();
        }
        Ok(led)
    }

    proptest! {
        #[test]
        fn two_never_lead(chances in proptest::collection::vec(any::<u8>(), 64..512)) {
            play(&chances, true)?;
        }
    }

    #[test]
    fn without_trouble_one_leads_nearly_always() -> TestCaseResult {
        let led = play(&[0, 1, 2, 3], false)?;
        prop_assert!(led > 2900, "{led} of 3000");
        Ok(())
    }

    #[test]
    fn with_trouble_somebody_leads_again_and_again() -> TestCaseResult {
        let chances: Vec<u8> = (0..=250).map(|n: u8| n.wrapping_mul(97).wrapping_add(31)).collect();
        let led = play(&chances, true)?;
        prop_assert!(led > 100, "{led} of 3000");
        Ok(())
    }

    /// A store of one Lease behind the API, as far as the protocol needs it.
    fn store(hangs: Arc<std::sync::atomic::AtomicBool>) -> FakeApi {
        let mut version = 0;
        let mut present: Option<serde_json::Value> = None;
        FakeApi::new(move |call| {
            if hangs.load(std::sync::atomic::Ordering::SeqCst) {
                return Reply::Hang;
            }
            let of = |lease: &serde_json::Value| lease["metadata"]["resourceVersion"].clone();
            match (call.method.as_str(), &present) {
                ("GET", None) => return Reply::status(404, "NotFound"),
                ("GET", Some(_)) => {}
                ("POST", None) => present = Some(call.body.clone()),
                ("PUT", Some(now)) if of(now) == of(&call.body) => {
                    present = Some(call.body.clone())
                }
                _ => return Reply::status(409, "Conflict"),
            }
            let lease = present.as_mut().unwrap();
            if call.method != "GET" {
                version += 1;
                lease["metadata"]["resourceVersion"] = version.to_string().into();
            }
            Reply::json(200, lease)
        })
    }

    struct Running {
        leadership: Leadership,
        metrics: Arc<Metrics>,
        stop: CancellationToken,
        task: tokio::task::JoinHandle<()>,
    }

    fn run(api: &FakeApi, identity: &str) -> Running {
        let (leadership, metrics) = (Leadership::none(), Arc::new(Metrics::new()));
        let stop = CancellationToken::new();
        let task = tokio::spawn(campaign(
            api.client(),
            "ns".to_owned(),
            identity.to_owned(),
            leadership.clone(),
            Arc::clone(&metrics),
            stop.clone(),
        ));
        Running { leadership, metrics, stop, task }
    }

    #[tokio::test(start_paused = true)]
    async fn who_stops_gives_the_lease_back_and_the_other_takes_it() {
        let api = store(Arc::default());
        let a = run(&api, "a");
        a.leadership.gained().await;
        assert_eq!(a.metrics.controller_leader.get(), 1);
        let b = run(&api, "b");
        sleep(Duration::from_secs(120)).await;
        assert!(a.leadership.is_held() && !b.leadership.is_held());
        a.stop.cancel();
        a.task.await.unwrap();
        assert!(!a.leadership.is_held());
        assert_eq!(a.metrics.controller_leader.get(), 0);
        let since = Instant::now();
        b.leadership.gained().await;
        assert!(since.elapsed() <= RETRY * 3, "{:?}", since.elapsed());
        let written = api.calls().into_iter().rev().find(|call| call.method == "PUT").unwrap();
        assert_eq!(
            written.path,
            "/apis/coordination.k8s.io/v1/namespaces/ns/leases/stowplan-controller"
        );
        assert_eq!(written.body["spec"]["leaseTransitions"], 1);
        let time = written.body["spec"]["renewTime"].as_str().unwrap();
        assert_eq!(time.len(), "2026-11-22T04:44:37.943722Z".len(), "microseconds: {time}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_finds_the_lease_gone_does_not_lead_before_it_has_made_it_anew() {
        let gone = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let is_gone = Arc::clone(&gone);
        let api = FakeApi::new(move |call| {
            match (call.method.as_str(), is_gone.load(std::sync::atomic::Ordering::SeqCst)) {
                ("GET", _) | ("PUT", true) => Reply::status(404, "NotFound"),
                ("POST", true) => Reply::Hang,
                _ => Reply::json(201, &call.body),
            }
        });
        let a = run(&api, "a");
        a.leadership.gained().await;
        gone.store(true, std::sync::atomic::Ordering::SeqCst);
        let since = Instant::now();
        a.leadership.lost().await;
        assert!(since.elapsed() <= RETRY + MILLISECOND, "{:?}", since.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn who_cannot_renew_stops_leading_before_the_lease_ends_and_comes_back() {
        let hangs = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let api = store(Arc::clone(&hangs));
        let a = run(&api, "a");
        a.leadership.gained().await;
        let since = Instant::now();
        hangs.store(true, std::sync::atomic::Ordering::SeqCst);
        a.leadership.lost().await;
        assert!(since.elapsed() <= RENEW_DEADLINE, "{:?}", since.elapsed());
        assert!(!a.leadership.is_held());
        sleep(MILLISECOND).await;
        hangs.store(false, std::sync::atomic::Ordering::SeqCst);
        a.leadership.gained().await;
        // It was ours all the time: nobody else has to be waited for.
        assert!(since.elapsed() < Duration::from_secs(25), "{:?}", since.elapsed());
        a.stop.cancel();
        a.task.await.unwrap();
        assert_eq!(api.calls().last().unwrap().body["spec"]["holderIdentity"], "");
    }
}
