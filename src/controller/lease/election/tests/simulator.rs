//! Two candidates, one store, and all that can happen to requests and processes.

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::*;
use crate::controller::lease::REQUEST;

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
            let known = store.as_ref().and_then(|lease| lease.metadata.resource_version.clone());
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
        candidates.iter_mut().filter_map(|it| it.flight.as_mut()).for_each(&mut arrive);
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
fn without_trouble_one_leads_nearly_always_and_with_trouble_again_and_again() -> TestCaseResult {
    let chances: Vec<u8> = (0..=250).map(|n: u8| n.wrapping_mul(97).wrapping_add(31)).collect();
    for (troubled, least) in [(false, 2900), (true, 100)] {
        let led = play(&chances, troubled)?;
        prop_assert!(led > least, "{led} of 3000");
    }
    Ok(())
}
