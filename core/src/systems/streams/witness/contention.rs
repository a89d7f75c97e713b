//! Finds the units that could be stranded if the others went to any node that they may.
//!
//! Units that are kept apart compete for nodes. A unit that may be on more nodes than there are others
//! to be kept apart from finds one wherever these are, so it can stay free. The others are bound to
//! their nodes of the witness, and the free ones are kept off these nodes. That binds as few as a rule
//! that looks at each unit by itself can: binding a unit takes one node and one competitor from each of
//! the others, so no further one has to be bound.

use std::collections::HashSet;

use super::{Location, Place, Problem, Witness};

/// The most nodes that a free unit is kept off. A unit with more of them is bound: the list is part of
/// each of its pods.
pub(crate) const MOST_EXCLUDED: usize = 16;

/// The units to be bound, in a problem with this witness.
pub(crate) fn find_contended(problem: &Problem, witness: &Witness) -> Vec<bool> {
    let separated = problem.separated();
    let nodes = Nodes { problem, witness, exclusive: problem.exclusive_places(&witness.pools) };
    let is_contended = |unit: usize| {
        let (of_tokens, alone) = &separated;
        let of = &problem.units[unit];
        let others = if of.alone {
            problem.units.len() - 1
        } else {
            // A unit with two tokens in common counts twice: at worst one more is bound.
            let tokens = of.tokens.iter().map(|token| of_tokens[*token].len() - 1);
            tokens.sum::<usize>() + alone.len()
        };
        nodes.count(unit) <= others && nodes.has_own(unit)
    };
    let mut bound: Vec<bool> = (0..problem.units.len()).map(is_contended).collect();
    // The number of nodes that a free unit would be kept off.
    let excluded = |unit: usize, bound: &[bool]| {
        let others = problem.rivals(unit, &separated).filter(|other| bound[*other]);
        others.map(|other| witness.units[other]).collect::<HashSet<Place>>().len()
    };
    loop {
        let more: Vec<usize> = (0..bound.len())
            .filter(|unit| !bound[*unit] && nodes.has_own(*unit))
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

impl Nodes<'_> {
    /// Returns how many nodes the unit may be on.
    fn count(&self, unit: usize) -> usize {
        let location = self.problem.location(&self.problem.units[unit]);
        match (location.members.first(), &location.within) {
            (Some((pool, index)), _) => {
                let of_pool = self.witness.pools[*pool].iter();
                let of_pool = of_pool.filter(|(own, _)| index.is_none_or(|index| index == **own));
                of_pool.filter(|(_, place)| self.satisfies(&location, **place)).count()
            }
            (None, Some(within)) => {
                let taken = self.exclusive.iter().filter(|place| within[place.class]).count();
                self.problem.count(within).saturating_sub(taken)
            }
            (None, None) => 0,
        }
    }

    /// Returns true if the unit's node in the witness is one of its nodes.
    fn has_own(&self, unit: usize) -> bool {
        let place = self.witness.units[unit];
        let location = self.problem.location(&self.problem.units[unit]);
        let mut pools = location.members.iter().map(|(pool, _)| &self.problem.pools[*pool]);
        self.satisfies(&location, place)
            && (pools.any(|pool| pool.exclusive) || !self.exclusive.contains(&place))
    }

    /// Returns true if a node is of the classes, and the members, of a location.
    fn satisfies(&self, location: &Location, place: Place) -> bool {
        let is_member = |(pool, index): &(usize, Option<u32>)| {
            let mut of_pool = self.witness.pools[*pool].iter();
            of_pool.any(|(own, at)| *at == place && index.is_none_or(|index| index == *own))
        };
        location.within.as_ref().is_none_or(|within| within[place.class])
            && location.members.iter().all(is_member)
    }
}
