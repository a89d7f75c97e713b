//! Every order of events of small clusters, with one or two faults.
//!
//! From a state every event that is possible is applied to a copy of it, until no new state is found. Two states
//! are the same if they differ only in UIDs, versions and the time. A path ends where nothing is possible any
//! more, and no path comes back to a state on it: so every order of events ends, whichever it is.
//!
//! Left out: the controller plans on a View that shows everything, unless the fault is a late watch; the writes of
//! a plan that was replaced are not sent any more; the scheduler binds at once; the time advances only where
//! nothing else is possible.

mod digest;
mod scope;
mod world;

use std::collections::HashSet;

use scope::{SCOPES, Scope};
use world::{FAULTS, Fault, Step, World};

/// More steps than a path has that ends: the longest known one has about fifty.
const LONGEST: usize = 500;

/// The search: the states that are finished, and those on the path.
#[derive(Default)]
struct Search {
    done: HashSet<[u8; 32]>,
    path: Vec<([u8; 32], String)>,
    steps: usize,
    ends: usize,
    longest: usize,
    faults: usize,
}

impl Search {
    fn visit(&mut self, world: &World, key: [u8; 32]) {
        let steps = world.steps();
        self.longest = self.longest.max(self.path.len());
        assert!(self.longest < LONGEST, "a path does not end");
        if steps.iter().all(|step| matches!(step, Step::Fault(..))) {
            self.ends += 1;
            world.check_rest();
        }
        for step in steps {
            self.steps += 1;
            self.faults += usize::from(matches!(step, Step::Fault(..)));
            self.path.push((key, format!("{step:?}")));
            let mut next = world.clone();
            next.simulation.writes.clear();
            next.simulation.events.clear();
            next.apply(&step);
            next.check();
            let key = next.key();
            assert!(
                self.path.iter().all(|(on, _)| *on != key),
                "it comes back to an earlier state"
            );
            if self.done.insert(key) {
                if self.done.len().is_multiple_of(100_000) {
                    println!("{} states", self.done.len());
                }
                assert!(self.done.len() < 2_000_000, "too many states");
                self.visit(&next, key);
            }
            self.path.pop();
        }
    }
}

impl Drop for Search {
    /// Prints the path to the state in which a check has failed.
    fn drop(&mut self) {
        if std::thread::panicking() {
            for (_, step) in &self.path {
                println!("{step}");
            }
        }
    }
}

fn explore(scope: Scope, is_scaled: bool, faults: &[Fault]) {
    let world = World::new(scope, is_scaled, faults);
    let mut search = Search::default();
    let key = world.key();
    search.visit(&world, key);
    let Search { done, steps, ends, longest, faults: happened, .. } = &search;
    println!(
        "{}{scope:?} {faults:?}: {} states, {steps} steps, {ends} ends, the longest path {longest}",
        if is_scaled { SCALED } else { "" },
        done.len()
    );
    assert!(done.len() > 50 && *ends > 0, "nothing was explored");
    assert_eq!(*happened > 0, !faults.is_empty());
}

/// Begins the name of a scope whose nodes an autoscaler makes.
const SCALED: &str = "Scaled";

/// The scopes that the suite explores, in two or three minutes. `STOWPLAN_EXPLORE` names others, such as
/// `Pair:LoseNode`, or with two faults that both happen, as in `Pair:Crash+DropMember`.
const IN_THE_SUITE: &str = "Pair,Pair:HoldPlaceholder,Pair:Crash,Claims,Claims:Crash,Claims:Late+Relist,\
                            Apart,Exlocated,Mpi,ScaledPair";

/// Returns the value of this name.
fn find<T: Copy + std::fmt::Debug>(known: &[T], name: &str) -> T {
    let found = known.iter().find(|of| format!("{of:?}") == name);
    *found.unwrap_or_else(|| panic!("STOWPLAN_EXPLORE: no {name:?}, but {known:?}"))
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test may be asked for more")]
fn pods_come_to_rest_in_every_order_of_events() {
    let wanted = std::env::var("STOWPLAN_EXPLORE").unwrap_or_else(|_| IN_THE_SUITE.to_owned());
    for wanted in wanted.split(',') {
        let (scope, faults) = wanted.split_once(':').unwrap_or((wanted, ""));
        let names = faults.split('+').filter(|name| !name.is_empty());
        let faults: Vec<Fault> = names.map(|name| find(&FAULTS, name)).collect();
        let scaled = scope.strip_prefix(SCALED);
        explore(find(&SCOPES, scaled.unwrap_or(scope)), scaled.is_some(), &faults);
    }
}
