//! Finds the units that could be stranded if the others went to any node that they may.
//!
//! Units that are kept apart compete for nodes. A unit that may be on more nodes than there are others
//! to be kept apart from finds one wherever these are, so it can stay free. The others are bound to
//! their nodes of the witness, and the free ones are kept off these nodes. That binds as few as a rule
//! that looks at each unit by itself can: binding a unit takes one node and one competitor from each of
//! the others, so no further one has to be bound.

use std::collections::HashSet;

use super::{Classes, Place, Problem, Witness};

/// The most nodes that a free unit is kept off. A unit with more of them is bound: the list is part of
/// each of its pods.
pub(crate) const MOST_EXCLUDED: usize = 16;

/// The units to be bound, in a problem with this witness.
pub(crate) fn find_contended(problem: &Problem, witness: &Witness) -> Vec<bool> {
    let (members, alone) = problem.separated();
    let nodes = Nodes::new(problem, witness);
    let mut bound = vec![false; problem.units.len()];
    for (unit, of) in problem.units.iter().enumerate() {
        let others = if of.alone {
            problem.units.len() - 1
        } else {
            // A unit with two tokens in common counts twice: at worst one more is bound.
            let tokens = of.tokens.iter().map(|token| members[*token].len() - 1);
            tokens.sum::<usize>() + alone.len()
        };
        let is_contended = nodes.count(unit) <= others;
        bound[unit] = is_contended && nodes.contains(unit, witness.units[unit]);
    }
    // The nodes that a free unit would be kept off.
    let excluded = |unit: usize, bound: &[bool]| {
        let of = &problem.units[unit];
        let others: HashSet<Place> = match of.alone {
            true => (0..bound.len()).filter(|other| bound[*other]).collect::<Vec<_>>(),
            false => {
                let tokens = of.tokens.iter().flat_map(|token| &members[*token]);
                tokens.chain(&alone).copied().filter(|other| bound[*other]).collect()
            }
        }
        .into_iter()
        .map(|other| witness.units[other])
        .collect();
        others.len()
    };
    loop {
        let more: Vec<usize> = (0..bound.len())
            .filter(|unit| !bound[*unit] && nodes.contains(*unit, witness.units[*unit]))
            .filter(|unit| excluded(*unit, &bound) > MOST_EXCLUDED)
            .collect();
        if more.is_empty() {
            return bound;
        }
        more.into_iter().for_each(|unit| bound[unit] = true);
    }
}

/// The nodes of each unit once the members of the pools are chosen.
struct Nodes<'p> {
    problem: &'p Problem,
    witness: &'p Witness,
    /// The members of exclusive pools.
    exclusive: HashSet<Place>,
}

impl<'p> Nodes<'p> {
    fn new(problem: &'p Problem, witness: &'p Witness) -> Self {
        Self { problem, witness, exclusive: problem.exclusive_places(&witness.pools) }
    }

    fn count(&self, unit: usize) -> usize {
        let location = self.problem.location(&self.problem.units[unit]);
        match (&location.within, location.members.as_slice()) {
            (within, [(pool, index), ..]) => {
                let of_pool = self.witness.pools[*pool].iter();
                let of_pool = of_pool.filter(|(own, _)| index.is_none_or(|index| index == **own));
                let may = |place: &Place| {
                    self.is_within(within.as_ref(), *place)
                        && self.is_member(&location.members, *place)
                };
                of_pool.filter(|(_, place)| may(place)).count()
            }
            (Some(within), []) => {
                let taken = self.exclusive.iter().filter(|place| within[place.class]).count();
                self.problem.count(within).saturating_sub(taken)
            }
            (None, []) => 0,
        }
    }

    fn contains(&self, unit: usize, place: Place) -> bool {
        let location = self.problem.location(&self.problem.units[unit]);
        let of_exclusive =
            location.members.iter().any(|(pool, _)| self.problem.pools[*pool].exclusive);
        self.is_within(location.within.as_ref(), place)
            && self.is_member(&location.members, place)
            && (of_exclusive || !self.exclusive.contains(&place))
    }

    fn is_within(&self, within: Option<&Classes>, place: Place) -> bool {
        within.is_none_or(|within| within[place.class])
    }

    fn is_member(&self, members: &[(usize, Option<u32>)], place: Place) -> bool {
        members.iter().all(|(pool, index)| {
            let mut of_pool = self.witness.pools[*pool].iter();
            of_pool.any(|(own, at)| *at == place && index.is_none_or(|index| index == *own))
        })
    }
}
