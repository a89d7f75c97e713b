//! The protocol of the election without a cluster: given what was read and written, and when, it
//! decides the next step.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::{DURATION, LONGEST, NAME, RENEW_DEADLINE};

/// The next step of a candidate.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
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
pub(super) struct Election {
    pub(super) identity: String,
    /// The lease as last read or written, unless it is known to have changed since.
    pub(super) known: Option<Lease>,
    /// Another candidate's record, and when it was first seen unchanged.
    other: Option<(LeaseSpec, Instant)>,
    /// `acquireTime` of the record when this candidate last took the lease. Two processes can have
    /// the same name, so only a record with the own name and this time is this candidate's.
    pub(super) acquired: Option<MicroTime>,
    /// The last record that this candidate tried to write, and when the attempt started: its answer
    /// can be lost.
    attempt: Option<(LeaseSpec, Instant)>,
    /// This candidate holds the lease until this time.
    pub(super) until: Option<Instant>,
}

impl Election {
    pub(super) fn new(identity: String) -> Self {
        Self { identity, known: None, other: None, acquired: None, attempt: None, until: None }
    }

    fn is_held(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// The first step of a round: the holder renews the version that it knows; any other candidate
    /// reads the lease first.
    pub(super) fn begin(&mut self, now: Instant, time: Timestamp) -> Step {
        match self.known.take() {
            Some(known) if self.is_held(now) => self.claim(Some(known), now, time),
            _ => Step::Read,
        }
    }

    /// Processes the lease that was read (`None`: it does not exist) and returns the next step. The
    /// read was sent at `asked` and answered at `answered`.
    pub(super) fn observe(
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
    pub(super) fn written(&mut self, lease: Lease) {
        if let Some((_, begun)) = &self.attempt {
            self.until = Some(*begun + RENEW_DEADLINE);
        }
        self.other = None;
        self.known = Some(lease);
    }

    /// Builds the lease that releases `lease`; `None` if this candidate does not hold it.
    pub(super) fn release(&self, mut lease: Lease, time: Timestamp) -> Option<Lease> {
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

#[cfg(test)]
mod tests;
