//! Every order of events of small clusters, with one or two faults.
//!
//! From a state every event that is possible is applied to a copy of it, until no new state is found. Two states
//! are the same if they differ only in UIDs, versions and the time. A path ends where nothing is possible any
//! more, and no path comes back to a state on it: so every order of events ends, whichever it is.
//!
//! Left out: the controller plans on a View that shows everything, unless the fault is a late watch; the writes of
//! a plan that was replaced are not sent any more; the scheduler binds at once; the time advances only where
//! nothing else is possible. So what the controller knows between two plans is no part of a state, nor when the next
//! plan was due: the next plan sees everything, and says again when another one is due.

mod digest;
mod scope;
mod world;

use std::collections::HashSet;

use scope::{SCOPES, Scope};
use world::{FAULTS, Fault, Step, World};

/// More steps than a path has that ends: the longest known one has 137.
const LONGEST: usize = 500;

/// The search: the states that are finished, and those on the path.
#[derive(Default)]
struct Search {
    done: HashSet<[u8; 32]>,
    path: Vec<([u8; 32], String)>,
    steps: usize,
    ends: usize,
    longest: usize,
    /// The faults that have happened.
    happened: HashSet<Fault>,
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
            if let Step::Fault(fault, _) = step {
                self.happened.insert(fault);
            }
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
                assert!(self.done.len() < 10_000_000, "too many states");
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

/// Explores a scope. Returns false if one of the faults cannot happen there.
fn explore(scope: Scope, is_scaled: bool, faults: &[Fault]) -> bool {
    let world = World::new(scope, is_scaled, faults);
    let mut search = Search::default();
    let key = world.key();
    search.visit(&world, key);
    let Search { done, steps, ends, longest, happened, .. } = &search;
    assert!(done.len() > 50 && *ends > 0, "nothing was explored");
    let name = format!("{}{scope:?} {faults:?}", if is_scaled { SCALED } else { "" });
    if !faults.iter().all(|fault| happened.contains(fault)) {
        println!("{name}: cannot happen");
        return false;
    }
    println!(
        "{name}: {} states, {steps} steps, {ends} ends, the longest path {longest}",
        done.len()
    );
    true
}

/// Begins the name of a scope whose nodes an autoscaler makes.
const SCALED: &str = "Scaled";

/// Stands for each fault that can happen in a scope.
const EACH: &str = "*";

/// The scopes that the suite explores, in less than two minutes. `STOWPLAN_EXPLORE` names others, such as
/// `Pair:LoseNode`; two faults that both happen, as in `Pair:Crash+DropMember`; and each fault, or each two, as in
/// `Pair:*` and `Mpi:*+*`.
const IN_THE_SUITE: &str = "Pair,Pair:HoldPlaceholder,Pair:LateWebhook,Pair:Unseen,Pair:Crash,\
                            Pair:Fill,Pair:Unseen+Fill,Trio,\
                            Claims,Claims:*,Claims:Late+Relist,\
                            Apart,Apart:HoldPlaceholder,Apart:Unseen,Apart:Crash,Apart:DropPlaceholder,\
                            Mpi,Mpi:Unseen,Mpi:Crash,Mpi:DropMember,Mpi:Cordon,\
                            Exlocated,Exlocated:Unseen,Exlocated:Crash,Exlocated:Fill,Pools,Pools:Crash,\
                            ScaledPair,ScaledPair:Crash,ScaledApart";

/// Returns the value of this name.
fn find<T: Copy + std::fmt::Debug>(known: &[T], name: &str) -> T {
    let found = known.iter().find(|of| format!("{of:?}") == name);
    *found.unwrap_or_else(|| panic!("STOWPLAN_EXPLORE: no {name:?}, but {known:?}"))
}

/// Returns the lists of faults that these names joined by `+` stand for. All faults of a list happen.
fn combine(names: &str) -> Vec<Vec<Fault>> {
    let mut all = vec![Vec::new()];
    for name in names.split('+').filter(|name| !name.is_empty()) {
        let each = match name {
            EACH => FAULTS.to_vec(),
            name => vec![find(&FAULTS, name)],
        };
        let with = |before: &Vec<Fault>| {
            let others = each.iter().filter(|fault| !before.contains(fault));
            others.map(|fault| [&before[..], &[*fault]].concat()).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(with).collect();
    }
    // The same faults in another order are the same list.
    let mut known = HashSet::new();
    all.retain(|faults| {
        let mut names: Vec<String> = faults.iter().map(|fault| format!("{fault:?}")).collect();
        names.sort_unstable();
        known.insert(names)
    });
    all
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test may be asked for more")]
fn pods_come_to_rest_in_every_order_of_events() {
    let wanted = std::env::var("STOWPLAN_EXPLORE").unwrap_or_else(|_| IN_THE_SUITE.to_owned());
    for wanted in wanted.split(',') {
        let (name, faults) = wanted.split_once(':').unwrap_or((wanted, ""));
        let scaled = name.strip_prefix(SCALED);
        let scope = find(&SCOPES, scaled.unwrap_or(name));
        let mut explored = 0;
        for faults in combine(faults) {
            explored += usize::from(explore(scope, scaled.is_some(), &faults));
        }
        assert!(explored > 0, "{wanted}: it cannot happen");
    }
}
