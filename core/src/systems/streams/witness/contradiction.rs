//! Finds an irreducible set of constraints that cannot hold together: without any one of them, the
//! others could (Junker, "QuickXplain", 2004).

use std::collections::BTreeSet;

use super::{Budget, Exhausted, Problem, Unit, solve};

/// A constraint that may be left out of a problem.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Constraint {
    /// All members of a pool are needed.
    Required {
        /// The pool.
        pool: usize,
    },
    /// A pool has its members for itself.
    Exclusive {
        /// The pool.
        pool: usize,
    },
    /// A unit is placed, where its claims say.
    Placed {
        /// The unit.
        unit: usize,
    },
    /// A token of a unit.
    Token {
        /// The unit.
        unit: usize,
        /// The token.
        token: usize,
    },
    /// A unit is alone.
    Alone {
        /// The unit.
        unit: usize,
    },
}

/// Constraints that contradict each other.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Contradiction {
    /// The constraints. Empty: even without any of them there is no witness.
    pub constraints: Vec<Constraint>,
    /// True if each of them is needed. Otherwise the budget was used up.
    pub is_irreducible: bool,
}

/// Finds constraints that contradict each other in a problem without a witness.
pub(crate) fn find_contradiction(problem: &Problem, budget: &mut Budget) -> Contradiction {
    let all = list(problem);
    let mut search = Search { problem, budget, is_exhausted: false };
    if search.is_impossible(&[]) {
        return Contradiction { constraints: Vec::new(), is_irreducible: true };
    }
    let mut constraints = search.divide(&[], false, &all);
    constraints.sort_unstable();
    Contradiction { constraints, is_irreducible: !search.is_exhausted }
}

/// All constraints of a problem.
fn list(problem: &Problem) -> Vec<Constraint> {
    let pools = problem.pools.iter().enumerate().filter(|(_, pool)| pool.required);
    let mut all: Vec<Constraint> = pools.map(|(pool, _)| Constraint::Required { pool }).collect();
    let exclusive = problem.pools.iter().enumerate().filter(|(_, pool)| pool.exclusive);
    all.extend(exclusive.map(|(pool, _)| Constraint::Exclusive { pool }));
    all.extend((0..problem.units.len()).map(|unit| Constraint::Placed { unit }));
    for (unit, of) in problem.units.iter().enumerate() {
        all.extend(of.tokens.iter().map(|token| Constraint::Token { unit, token: *token }));
        all.extend(of.alone.then_some(Constraint::Alone { unit }));
    }
    all
}

struct Search<'s> {
    problem: &'s Problem,
    budget: &'s mut Budget,
    is_exhausted: bool,
}

impl Search<'_> {
    /// Constraints of `candidates` that contradict `background`, irreducibly. `is_new`: the background
    /// may contradict itself.
    fn divide(
        &mut self,
        background: &[Constraint],
        is_new: bool,
        candidates: &[Constraint],
    ) -> Vec<Constraint> {
        if is_new && self.is_impossible(background) {
            return Vec::new();
        }
        // Without a budget nothing can be left out.
        if candidates.len() <= 1 || self.is_exhausted {
            return candidates.to_vec();
        }
        let (one, other) = candidates.split_at(candidates.len() / 2);
        let with_one = [background, one].concat();
        let of_other = self.divide(&with_one, true, other);
        let with_other = [background, &of_other].concat();
        let of_one = self.divide(&with_other, !of_other.is_empty(), one);
        [of_one, of_other].concat()
    }

    /// Returns true if these constraints have no witness. If the budget is used up: no.
    fn is_impossible(&mut self, constraints: &[Constraint]) -> bool {
        if self.is_exhausted {
            return false;
        }
        match solve(&restrict(self.problem, constraints), self.budget) {
            Ok(found) => found.is_none(),
            Err(Exhausted) => {
                self.is_exhausted = true;
                false
            }
        }
    }
}

/// The problem with these constraints only.
fn restrict(problem: &Problem, constraints: &[Constraint]) -> Problem {
    let kept: BTreeSet<Constraint> = constraints.iter().copied().collect();
    let has = |constraint| kept.contains(&constraint);
    let mut pools = problem.pools.clone();
    for (pool, of) in pools.iter_mut().enumerate() {
        of.required &= has(Constraint::Required { pool });
        of.exclusive &= has(Constraint::Exclusive { pool });
    }
    // A unit that is not placed is neither apart from any other nor alone.
    let placed = problem
        .units
        .iter()
        .enumerate()
        .filter(|(unit, _)| has(Constraint::Placed { unit: *unit }));
    let units = placed.map(|(unit, of)| {
        let tokens = of.tokens.iter().copied();
        Unit {
            claims: of.claims.clone(),
            tokens: tokens.filter(|token| has(Constraint::Token { unit, token: *token })).collect(),
            alone: of.alone && has(Constraint::Alone { unit }),
            at: of.at,
            preferred: None,
        }
    });
    Problem { pools, units: units.collect(), ..problem.clone() }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns true if these constraints contradict each other, and no part of them does.
    pub(in super::super) fn is_irreducible(problem: &Problem, constraints: &[Constraint]) -> bool {
        let is_possible = |left_out: Option<&Constraint>| {
            let kept = constraints.iter().filter(|of| Some(*of) != left_out).copied();
            let restricted = restrict(problem, &kept.collect::<Vec<_>>());
            solve(&restricted, &mut Budget::new(2_000_000)).expect("enough").is_some()
        };
        !is_possible(None) && constraints.iter().all(|left_out| is_possible(Some(left_out)))
    }
}
