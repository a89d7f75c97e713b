mod simulator;

use super::*;
use crate::controller::lease::RETRY;

const MILLISECOND: Duration = Duration::from_millis(1);

fn spec(step: &Step) -> LeaseSpec {
    taken(step.clone()).spec.unwrap()
}

/// A lease that `holder` renewed at `second`.
fn lease(holder: &str, second: i64) -> Lease {
    let time = Some(MicroTime(Timestamp::from_second(second).unwrap()));
    let (name, resource_version) = (Some(NAME.to_owned()), Some(second.to_string()));
    Lease {
        metadata: ObjectMeta { name, resource_version, ..ObjectMeta::default() },
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
    // Clocks may differ by years: the times in the record do not matter.
    for now in [-1_000_000_000, 0, 2_000_000_000] {
        let now = Timestamp::from_second(now).unwrap();
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
}

#[test]
fn a_longer_duration_in_the_record_is_respected_up_to_a_limit() {
    for (seconds, waited) in [(None, 15), (Some(-1), 15), (Some(40), 40), (Some(i32::MAX), 60)] {
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
    // The deadline does not depend on when the answer arrives: a suspended process does not lead
    // when it resumes.
    election.written(taken(step));
    let deadline = start + RETRY + RENEW_DEADLINE;
    assert!(election.is_held(deadline - MILLISECOND) && !election.is_held(deadline));
    let step = election.begin(deadline, Timestamp::UNIX_EPOCH);
    assert_eq!(step, Step::Read, "it reads the lease first");
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
