use super::*;

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
    Ca { id: id(letter), span, trusted_since: since }
}

/// A certificate that the CA `issuer` has signed.
fn leaf(issuer: char, made: SystemTime) -> Leaf {
    let span = Span::starting(day(0), Terms::default().ca_lifetime);
    let own = Span::starting(made, Terms::default().leaf_lifetime);
    Leaf { issuers: vec![(id(issuer), span)], span: own }
}

fn state(cas: &[Ca], leaf: Option<Leaf>, bundles: &[&str]) -> State {
    let bundles = bundles.iter().map(|letters| ids(letters)).collect();
    State { cas: cas.to_vec(), leaf, bundles }
}

fn step_of(state: &State, now: SystemTime) -> Option<Step> {
    plan(state, &Terms::default(), now).step
}

fn make(keep: &str) -> Option<Step> {
    Some(Step::MakeCa { keep: keep.chars().map(id).collect() })
}

fn publish(letters: &str) -> Option<Step> {
    Some(Step::Publish(ids(letters)))
}

fn sign(letter: char) -> Option<Step> {
    Some(Step::Sign(id(letter)))
}

fn record(letter: char, since: Option<SystemTime>) -> Option<Step> {
    Some(Step::Record { ca: id(letter), since })
}

#[test]
fn the_first_start_is_at_once_and_then_nothing_is_left_to_do() {
    let now = day(0);
    let new = [ca('A', now, None)];
    let signed = Some(leaf('A', now));
    for (cas, leaf, bundles, step) in [
        (&[][..], None, &["", ""][..], make("")),
        (&new, None, &["", ""], publish("A")),
        // One caBundle was written, the other was not.
        (&new, None, &["A", ""], publish("A")),
        (&new, None, &["A", "A"], sign('A')),
        (&new, signed.clone(), &["A", "A"], record('A', Some(now))),
        // Without webhook configurations the certificate is made all the same.
        (&[], None, &[], make("")),
        (&new, None, &[], sign('A')),
        // When API servers trust it cannot be recorded yet.
        (&new, signed.clone(), &[], None),
    ] {
        let found = step_of(&state(cas, leaf, bundles), now);
        assert_eq!(found, step, "{} CAs, {bundles:?}", cas.len());
    }
    let recorded = state(&[ca('A', now, Some(now))], signed, &["A", "A"]);
    let done = plan(&recorded, &Terms::default(), now);
    assert_eq!(done, Plan { step: None, recheck_at: now + HOUR });
}

#[test]
fn a_certificate_is_renewed_when_twenty_days_are_left() {
    let cas = [ca('A', day(0), Some(day(0)))];
    let present = state(&cas, Some(leaf('A', day(0))), &["A"]);
    let before = plan(&present, &Terms::default(), day(10) - Duration::from_secs(1));
    assert_eq!(before, Plan { step: None, recheck_at: day(10) });
    // After a long time without a controller, too.
    for late in [10, 29, 100] {
        assert_eq!(step_of(&present, day(late)), sign('A'), "day {late}");
    }
}

#[test]
fn a_new_ca_is_published_beside_the_old_one_signs_after_the_overlap_and_is_alone_after_another() {
    let old = ca('A', day(0), Some(day(0)));
    let due = old.span.thirds_left(1);
    let present = leaf('A', due - DAY);
    let before = state(std::slice::from_ref(&old), Some(present.clone()), &["A", "A"]);
    assert_eq!(step_of(&before, due - Duration::from_secs(1)), None);
    assert_eq!(step_of(&before, due), make("A"));

    let mut cas = [ca('B', due, None), old];
    let at = |cas: &[Ca], leaf: &Leaf, bundle: &str, now| {
        step_of(&state(cas, Some(leaf.clone()), &[bundle, bundle]), now)
    };
    assert_eq!(at(&cas, &present, "A", due), publish("AB"));
    assert_eq!(at(&cas, &present, "AB", due), record('B', Some(due)));
    cas[0].trusted_since = Some(due);
    assert_eq!(at(&cas, &present, "AB", due), None);
    // Renewed by the old one meanwhile.
    assert_eq!(at(&cas, &leaf('A', due - DAY * 11), "AB", due), sign('A'));
    let promoted = due + HOUR;
    assert_eq!(at(&cas, &present, "AB", promoted - Duration::from_secs(1)), None);
    assert_eq!(at(&cas, &present, "AB", promoted), sign('B'));
    let next = leaf('B', promoted);
    assert_eq!(at(&cas, &next, "AB", promoted), None);
    assert_eq!(at(&cas, &next, "AB", promoted + HOUR), Some(Step::Retire));
    assert_eq!(at(&cas[..1], &next, "AB", promoted + HOUR), publish("B"));
    assert_eq!(at(&cas[..1], &next, "B", promoted + HOUR), None);
}

#[test]
fn a_lost_certificate_is_signed_at_once_by_the_ca_that_is_trusted() {
    let now = day(250);
    let old = ca('A', day(0), Some(day(0)));
    let both = [ca('B', now - HOUR / 2, Some(now - HOUR / 2)), old.clone()];
    assert_eq!(step_of(&state(&[old], None, &["A"]), day(200)), sign('A'));
    assert_eq!(step_of(&state(&both, None, &["AB"]), now), sign('A'));
    // Without both Secrets there is no wait.
    let new = [ca('B', now, None)];
    assert_eq!(step_of(&state(&[], None, &["A"]), now), make(""));
    assert_eq!(step_of(&state(&new, None, &["A"]), now), publish("AB"));
    assert_eq!(step_of(&state(&new, None, &["AB"]), now), sign('B'));
    // The old one has expired: the new one, though not all API servers may trust it.
    let late = day(366);
    let both = [ca('B', late, Some(late)), ca('A', day(0), Some(day(0)))];
    assert_eq!(step_of(&state(&both, Some(leaf('A', day(340))), &["AB"]), late), sign('B'));
}

#[test]
fn a_bundle_that_was_emptied_or_replaced_is_repaired() {
    let now = day(5);
    let cas = [ca('A', day(0), Some(day(0)))];
    let at =
        |cas: &[Ca], bundles: &[&str]| step_of(&state(cas, Some(leaf('A', day(1))), bundles), now);
    assert_eq!(at(&cas, &["", "A"]), publish("A"));
    assert_eq!(at(&cas, &["X", "X"]), publish("A"));
    assert_eq!(at(&cas, &["AX", "A"]), publish("A"));
    // The overlap of a CA that is not trusted by all yet begins again.
    let both = [ca('B', now - HOUR / 2, Some(now - HOUR / 2)), ca('A', day(0), Some(day(0)))];
    assert_eq!(at(&both, &["A", "AB"]), record('B', None));
    let both = [ca('B', now - HOUR / 2, None), ca('A', day(0), Some(day(0)))];
    assert_eq!(at(&both, &["A", "AB"]), publish("AB"));
    assert_eq!(at(&both, &["AB", "AB"]), record('B', Some(now)));
}

#[test]
fn a_clock_that_is_put_back_delays_and_one_that_is_put_forward_renews() {
    let cas = [ca('A', day(10), Some(day(10)))];
    let at = |now| step_of(&state(&cas, Some(leaf('A', day(10))), &["A"]), now);
    // By half an hour: dates are an hour back.
    let back = day(10) - HOUR / 2;
    assert_eq!(at(back), record('A', None));
    let unrecorded = [ca('A', day(10), None)];
    let unrecorded = state(&unrecorded, Some(leaf('A', day(10))), &["A"]);
    assert_eq!(step_of(&unrecorded, back), record('A', Some(back)));
    // By a day: the CA is not valid yet.
    assert_eq!(at(day(9)), make(""));
    // By a year, and back: a CA of the future is of no use.
    assert_eq!(at(day(400)), make(""));
    let future = [ca('B', day(400), Some(day(400)))];
    assert_eq!(step_of(&state(&future, Some(leaf('B', day(400))), &["B"]), day(11)), make(""));
}

#[test]
fn two_cas_that_have_expired_are_replaced() {
    let cas = [ca('B', day(240), Some(day(240))), ca('A', day(0), Some(day(0)))];
    let at = |now| step_of(&state(&cas, Some(leaf('B', day(241))), &["AB"]), now);
    assert_eq!(at(day(1000)), make(""));
    // Only the older one: the newer one is due as well, and is kept.
    assert_eq!(at(day(500)), make("B"));
}

#[test]
fn of_two_old_cas_the_one_in_use_is_kept() {
    // `B` was never published: the webhook configurations were missing.
    let now = day(600);
    let a = Ca { span: Span::starting(day(300), DAY * 365), ..ca('A', day(300), Some(day(300))) };
    let cas = [ca('B', day(350), None), a];
    let mut present = leaf('A', day(595));
    present.issuers[0].1 = cas[1].span;
    assert_eq!(step_of(&state(&cas, Some(present), &["A"]), now), make("A"));
}

#[test]
fn a_certificate_that_reaches_to_the_end_of_its_ca_is_not_signed_again_and_again() {
    let old = ca('A', day(0), Some(day(0)));
    let mut present = leaf('A', day(364));
    present.span.not_after = old.span.not_after;
    // A new CA is there, and no caBundle has it.
    let cas = [ca('B', day(364), None), old];
    let now = day(365) - HOUR;
    assert_eq!(step_of(&state(&cas, Some(present), &[]), now), None);
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
