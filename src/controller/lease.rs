//! Leader election by a Lease (coordination.k8s.io/v1), by client-go's protocol and timings.
//!
//! The holder renews the lease every two seconds. The other candidates read the record regularly. A
//! candidate takes the lease when the record has not changed for its full duration, measured by the
//! candidate's own monotonic clock. The times in the record are for people: clocks of different
//! machines are never compared.
//!
//! `Election` is the protocol without a cluster: given what was read and written, and when, it
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

/// The name of the Lease object.
pub(crate) const NAME: &str = "stowplan-controller";

/// How long a record must stay unchanged before another candidate takes the lease.
const DURATION: Duration = Duration::from_secs(15);

/// How long the lease counts as held after its last renewal. The rest of [`DURATION`] is for the
/// last write.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);

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

/// Whether this process leads; shared between the election and the writers.
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

    /// Whether the lease is held at this moment. Call it right before each write.
    #[must_use]
    pub(crate) fn is_held(&self) -> bool {
        self.until.borrow().is_some_and(|until| Instant::now() < until)
    }

    /// Resolves when the lease is held.
    pub(crate) async fn gained(&self) {
        let mut changes = self.until.subscribe();
        let held = |until: &Option<Instant>| until.is_some_and(|until| Instant::now() < until);
        if changes.wait_for(held).await.is_err() {
            // The sender is `self`'s.
            std::future::pending::<()>().await;
        }
    }

    /// Resolves when the lease is no longer held.
    pub(crate) async fn lost(&self) {
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

/// The next step of a candidate.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// Read the lease and pass it to [`Election::observe`].
    Read,
    /// Create the lease and pass the answer to [`Election::written`]. If it exists already, read
    /// it.
    Create(Lease),
    /// Replace the version that the lease names and pass the answer to [`Election::written`]. If
    /// the version has changed, read the lease.
    Replace(Lease),
    /// Do nothing until the next round.
    Rest,
}

/// A candidate's knowledge of the lease.
#[derive(Debug)]
struct Election {
    identity: String,
    /// The lease as last read or written, unless it is known to have changed since.
    known: Option<Lease>,
    /// Another candidate's record, and when it was first seen unchanged.
    other: Option<(LeaseSpec, Instant)>,
    /// `acquireTime` of the record when this candidate last took the lease. Two processes can have
    /// the same name, so only a record with the own name and this time is this candidate's.
    acquired: Option<MicroTime>,
    /// The last record that this candidate tried to write, and when the attempt started: its answer
    /// can be lost.
    attempt: Option<(LeaseSpec, Instant)>,
    /// This candidate holds the lease until this time.
    until: Option<Instant>,
}

impl Election {
    fn new(identity: String) -> Self {
        Self { identity, known: None, other: None, acquired: None, attempt: None, until: None }
    }

    fn is_held(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// The first step of a round: the holder renews the version that it knows; any other candidate
    /// reads the lease first.
    fn begin(&mut self, now: Instant, time: Timestamp) -> Step {
        match self.known.take() {
            Some(known) if self.is_held(now) => self.claim(Some(known), now, time),
            _ => Step::Read,
        }
    }

    /// Processes the lease that was read (`None`: it does not exist) and returns the next step. The
    /// read was sent at `asked` and answered at `answered`.
    fn observe(
        &mut self,
        lease: Option<Lease>,
        asked: Instant,
        answered: Instant,
        time: Timestamp,
    ) -> Step {
        let Some(lease) = lease else {
            // The lease was deleted: any candidate may create it.
            self.lose();
            self.other = None;
            return self.claim(None, answered, time);
        };
        let record = lease.spec.clone().unwrap_or_default();
        if self.is_own(&record) {
            // A renewal whose answer was lost counts; earlier renewals have been counted.
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
        // The holder may have this candidate's name: an earlier process with that name may still
        // run.
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

    /// Processes the API server's answer to the last `Create` or `Replace`.
    fn written(&mut self, lease: Lease) {
        if let Some((_, begun)) = &self.attempt {
            self.until = Some(*begun + RENEW_DEADLINE);
        }
        self.other = None;
        self.known = Some(lease);
    }

    /// Builds the lease that releases `lease`; `None` if this candidate does not hold it.
    fn release(&self, mut lease: Lease, time: Timestamp) -> Option<Lease> {
        let spec = lease.spec.as_mut().filter(|record| self.is_own(record))?;
        // As client-go does: an empty holder and the shortest duration.
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(micro(time));
        Some(lease)
    }

    fn is_own(&self, record: &LeaseSpec) -> bool {
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
        if !self.is_own(&spec) {
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

/// How long another candidate's record must stay unchanged before the lease may be taken: the
/// duration in the record, but at least [`DURATION`] and at most [`LONGEST`].
fn duration(record: &LeaseSpec) -> Duration {
    let seconds = record.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    Duration::from_secs(seconds.unwrap_or_default()).clamp(DURATION, LONGEST)
}

/// Cuts a time to microseconds, the precision of the record.
fn micro(time: Timestamp) -> MicroTime {
    MicroTime(Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time))
}

/// Competes for the lease in `namespace` under the name `identity` until `stop`, then releases it.
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

const LEASE_TROUBLE: &str =
    "the lease cannot be read or written (the Role of the controller needs get, create, update)";

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
    // The longest sequence: a renewal meets another version, reads the lease, and writes again.
    for _ in 0..4 {
        step = match step {
            Step::Rest => return Ok(()),
            Step::Read => {
                let asked = Instant::now();
                let lease = request(api.get_opt(NAME)).await?;
                let next = election.observe(lease, asked, Instant::now(), Timestamp::now());
                // Set before the next await: the lease may be lost.
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

    /// A lease that `holder` renewed at `second`.
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
        // The time counts from the first answer to the sending of the last read.
        assert_eq!(look(1, 15_499, 17_000), Step::Rest);
        // The record has just changed.
        assert_eq!(look(2, 17_100, 17_200), Step::Rest);
        assert_eq!(look(2, 32_199, 32_300), Step::Rest);
        let step = look(2, 32_200, 32_300);
        assert_eq!(spec(&step).holder_identity.as_deref(), Some("me"));
        assert_eq!(spec(&step).lease_transitions, Some(4));
        let Step::Replace(replaced) = &step else { panic!("{step:?}") };
        assert_eq!(replaced.metadata.resource_version.as_deref(), Some("2"), "the known version");
        assert!(!election.is_held(at(32_300)), "not before the answer");
    }

    #[test]
    fn times_in_the_record_do_not_matter() {
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
    fn a_longer_duration_in_the_record_is_respected_up_to_a_limit() {
        for (seconds, waited) in [(None, 15), (Some(-1), 15), (Some(40), 40), (Some(i32::MAX), 60)]
        {
            let record = LeaseSpec { lease_duration_seconds: seconds, ..LeaseSpec::default() };
            assert_eq!(duration(&record), Duration::from_secs(waited), "{seconds:?}");
        }
    }

    #[test]
    fn a_released_lease_is_taken_at_once_and_a_deleted_one_is_created() {
        let (now, time) = (Instant::now(), Timestamp::UNIX_EPOCH);
        for holder in ["", "me"] {
            let mut lease = lease(holder, 1);
            if holder.is_empty() {
                lease.spec.as_mut().unwrap().holder_identity = None;
            }
            let step = Election::new("me".to_owned()).observe(Some(lease), now, now, time);
            // Another process with the same name may still run: this election never took the lease.
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
        // The deadline does not depend on when the answer arrives.
        election.written(taken(step));
        assert!(election.is_held(start + RETRY + RENEW_DEADLINE - MILLISECOND));
        assert!(!election.is_held(start + RETRY + RENEW_DEADLINE));
    }

    #[test]
    fn a_renewal_counts_if_only_its_answer_was_lost() {
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
            assert!(matches!(step, Step::Replace(_)), "still held: {step:?}");
            let until = if arrived { RETRY } else { Duration::ZERO } + RENEW_DEADLINE;
            assert!(election.is_held(start + until - MILLISECOND), "{arrived}");
            assert!(!election.is_held(start + until), "{arrived}");
        }
    }

    #[test]
    fn a_suspended_process_does_not_lead_when_it_resumes() {
        let start = Instant::now();
        let mut election = leader(start);
        let step = election.begin(start + RETRY, Timestamp::UNIX_EPOCH);
        // The answer was processed 20 s late.
        election.written(taken(step));
        let later = start + Duration::from_secs(20);
        assert!(!election.is_held(later));
        assert_eq!(
            election.begin(later, Timestamp::UNIX_EPOCH),
            Step::Read,
            "it reads the lease first"
        );
        assert_eq!(
            election.observe(Some(lease("other", 9)), later, later, Timestamp::UNIX_EPOCH),
            Step::Rest
        );
    }

    #[test]
    fn only_the_own_lease_is_released() {
        let now = Instant::now();
        let election = leader(now);
        let own = election.known.clone().unwrap();
        let released = election.release(own, Timestamp::UNIX_EPOCH).unwrap().spec.unwrap();
        assert_eq!(released.holder_identity.as_deref(), Some(""));
        assert_eq!(released.lease_duration_seconds, Some(1));
        assert_eq!(election.release(lease("other", 1), Timestamp::UNIX_EPOCH), None);
        assert_eq!(election.release(lease("me", 1), Timestamp::UNIX_EPOCH), None);
    }

    /// A request in flight.
    struct Flight {
        step: Step,
        begun: u32,
        /// The tick at which the store processes it.
        arrives: u32,
        /// The tick at which the answer arrives; `u32::MAX`: it is lost.
        answers: u32,
        /// The store's answer: the lease, or a conflict.
        answer: Option<Result<Option<Lease>, ()>>,
    }

    struct Candidate {
        election: Election,
        next: u32,
        flight: Option<Flight>,
    }

    /// Simulates two candidates and one store, with late and lost requests and suspended processes,
    /// chosen by `chances`. Returns the number of ticks with a leader.
    fn play(chances: &[u8], troubled: bool) -> Result<u32, TestCaseError> {
        const TICK: Duration = Duration::from_millis(100);
        let start = Instant::now();
        let at = |tick: u32| start + TICK * tick;
        let time = |tick: u32| Timestamp::from_millisecond(i64::from(tick) * 100).unwrap();
        let mut chances = chances.iter().cycle().copied();
        let mut chance = move |below: u32| u32::from(chances.next().unwrap_or(0)) % below;
        let mut store: Option<Lease> = None;
        let mut version = 0u32;
        // Requests whose sender has given up, but that still arrive.
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
                // Suspends a process for up to half a minute.
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
                    // The sender gives up, as `request` does.
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
        fn two_candidates_never_lead_at_once(chances in proptest::collection::vec(any::<u8>(), 64..512)) {
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
    fn with_trouble_there_is_a_leader_again_and_again() -> TestCaseResult {
        let chances: Vec<u8> = (0..=250).map(|n: u8| n.wrapping_mul(97).wrapping_add(31)).collect();
        let led = play(&chances, true)?;
        prop_assert!(led > 100, "{led} of 3000");
        Ok(())
    }

    /// A fake API server that stores one Lease.
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
    async fn a_stopped_leader_releases_the_lease_and_the_other_takes_it() {
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
    async fn a_leader_whose_lease_was_deleted_does_not_lead_until_it_is_created_again() {
        let deleted = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let is_deleted = Arc::clone(&deleted);
        let api = FakeApi::new(move |call| {
            match (call.method.as_str(), is_deleted.load(std::sync::atomic::Ordering::SeqCst)) {
                ("GET", _) | ("PUT", true) => Reply::status(404, "NotFound"),
                ("POST", true) => Reply::Hang,
                _ => Reply::json(201, &call.body),
            }
        });
        let a = run(&api, "a");
        a.leadership.gained().await;
        deleted.store(true, std::sync::atomic::Ordering::SeqCst);
        let since = Instant::now();
        a.leadership.lost().await;
        assert!(since.elapsed() <= RETRY + MILLISECOND, "{:?}", since.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_cannot_renew_stops_before_the_lease_expires_and_leads_again_later() {
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
        // It held the lease all the time, so it does not wait for another candidate.
        assert!(since.elapsed() < Duration::from_secs(25), "{:?}", since.elapsed());
        a.stop.cancel();
        a.task.await.unwrap();
        assert_eq!(api.calls().last().unwrap().body["spec"]["holderIdentity"], "");
    }
}
