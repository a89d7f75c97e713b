use super::*;

impl Default for Terms {
    fn default() -> Self {
        let day = Duration::from_secs(24 * 60 * 60);
        Self {
            ca_lifetime: day * 3650,
            leaf_lifetime: day * 30,
            overlap: Duration::from_secs(60 * 60),
        }
    }
}

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The day on which the CA `A` is made in most tests.
fn day(number: u32) -> SystemTime {
    SystemTime::UNIX_EPOCH + DAY * 20_000 + DAY * number
}

fn id(letter: char) -> Id {
    [u8::try_from(letter).unwrap(); 32]
}

fn ids(letters: &str) -> BTreeSet<Id> {
    letters.chars().map(id).collect()
}

fn ca(letter: char, made: SystemTime, since: Option<SystemTime>) -> Ca {
    let span = Span::starting(made, Terms::default().ca_lifetime);
    Ca { id: id(letter), span, published_since: since }
}

/// A certificate that the CA `issuer` has signed.
fn leaf(issuer: char, made: SystemTime) -> Leaf {
    let span = Span::starting(day(0), Terms::default().ca_lifetime);
    let own = Span::starting(made, Terms::default().leaf_lifetime);
    Leaf { issuers: vec![(id(issuer), span)], span: own }
}

fn state(ca: Option<&Ca>, leaf: Option<Leaf>, bundles: &[&str]) -> State {
    let bundles = bundles.iter().map(|letters| ids(letters)).collect();
    State { ca: ca.cloned(), leaf, bundles }
}

fn step_of(state: &State, now: SystemTime) -> Option<Step> {
    plan(state, &Terms::default(), now)
}

fn publish(letters: &str) -> Option<Step> {
    Some(Step::Publish(ids(letters)))
}

#[test]
fn the_first_start_is_at_once_and_then_nothing_is_left_to_do() {
    let now = day(0);
    let new = ca('A', now, None);
    for (ca, bundles, step) in [
        (None, &["", ""][..], Some(Step::MakeCa)),
        (Some(&new), &["", ""], publish("A")),
        // One caBundle was written, the other was not.
        (Some(&new), &["A", ""], publish("A")),
        (Some(&new), &["A", "A"], Some(Step::Sign)),
        // Without webhook configurations the certificate is made all the same.
        (None, &[], Some(Step::MakeCa)),
        (Some(&new), &[], Some(Step::Sign)),
    ] {
        assert_eq!(step_of(&state(ca, None, bundles), now), step, "{ca:?}, {bundles:?}");
    }
    for bundles in [&["A", "A"][..], &[]] {
        assert_eq!(step_of(&state(Some(&new), Some(leaf('A', now)), bundles), now), None);
    }
}

#[test]
fn a_certificate_is_renewed_when_twenty_days_are_left() {
    let present = state(Some(&ca('A', day(0), None)), Some(leaf('A', day(0))), &["A"]);
    assert_eq!(step_of(&present, day(10) - Duration::from_secs(1)), None);
    // After a long time without a controller, too.
    for late in [10, 29, 100] {
        assert_eq!(step_of(&present, day(late)), Some(Step::Sign), "day {late}");
    }
}

#[test]
fn a_new_ca_is_published_beside_the_old_one_signs_after_the_overlap_and_is_alone_after_another() {
    let old = ca('A', day(0), Some(day(0)));
    let due = old.span.thirds_left(1);
    let present = leaf('A', due - DAY);
    let before = state(Some(&old), Some(present.clone()), &["A", "A"]);
    assert_eq!(step_of(&before, due - Duration::from_secs(1)), None);
    assert_eq!(step_of(&before, due), Some(Step::MakeCa));

    let at = |since, leaf: &Leaf, bundle: &str, now| {
        let new = ca('B', due, since);
        step_of(&state(Some(&new), Some(leaf.clone()), &[bundle, bundle]), now)
    };
    assert_eq!(at(None, &present, "A", due), publish("AB"));
    assert_eq!(at(Some(due), &present, "AB", due), None);
    let trusted = due + HOUR;
    assert_eq!(at(Some(due), &present, "AB", trusted - Duration::from_secs(1)), None);
    assert_eq!(at(Some(due), &present, "AB", trusted), Some(Step::Sign));
    let next = leaf('B', trusted);
    assert_eq!(at(Some(due), &next, "AB", trusted), None);
    assert_eq!(at(Some(due), &next, "AB", trusted + HOUR), publish("B"));
    assert_eq!(at(Some(due), &next, "B", trusted + HOUR), None);
}

#[test]
fn nothing_is_gained_by_waiting_if_the_certificate_is_not_trusted() {
    let now = day(5);
    let new = ca('B', now, Some(now));
    // There is none, it has expired, or no caBundle has its CA.
    for leaf in [None, Some(leaf('A', now - DAY * 40)), Some(leaf('C', now))] {
        assert_eq!(step_of(&state(Some(&new), leaf, &["AB"]), now), Some(Step::Sign));
    }
}

#[test]
fn a_bundle_that_was_emptied_or_replaced_is_repaired() {
    let now = day(5);
    let own = ca('A', day(0), Some(day(0)));
    let at = |bundles: &[&str]| step_of(&state(Some(&own), Some(leaf('A', day(1))), bundles), now);
    for bundles in [["", "A"], ["X", "X"], ["AX", "A"]] {
        assert_eq!(at(&bundles), publish("A"));
    }
    assert_eq!(at(&["A", "A"]), None);
}

#[test]
fn a_ca_that_has_expired_or_is_of_the_future_is_replaced() {
    let future = ca('B', day(400), Some(day(400)));
    let of_future = state(Some(&future), Some(leaf('B', day(400))), &["B"]);
    assert_eq!(step_of(&of_future, day(11)), Some(Step::MakeCa));
    let old = state(Some(&ca('A', day(0), None)), Some(leaf('A', day(3640))), &["A"]);
    assert_eq!(step_of(&old, day(3651)), Some(Step::MakeCa));
}

#[test]
fn the_times_fit_each_other() {
    let second = Duration::from_secs(1);
    let check =
        |ca_lifetime, leaf_lifetime, overlap| Terms { ca_lifetime, leaf_lifetime, overlap }.check();
    assert_eq!(Terms::default().check(), Ok(()));
    assert_eq!(check(second * 72, second * 18, second * 3), Ok(()));
    for (ca_lifetime, leaf_lifetime, overlap, part) in [
        (DAY, HOUR, Duration::ZERO, "--ca-overlap is less than a second"),
        (DAY, HOUR, HOUR / 5, "--leaf-lifetime is less than six times --ca-overlap"),
        (DAY, DAY / 3, HOUR, "--ca-lifetime is less than four times --leaf-lifetime"),
        (DAY * 40_000, DAY, HOUR, "--ca-lifetime is more than 100 years"),
    ] {
        let problem = check(ca_lifetime, leaf_lifetime, overlap).unwrap_err();
        assert!(problem.contains(part), "{problem}");
    }
}
