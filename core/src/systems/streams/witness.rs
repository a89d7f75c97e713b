//! Searches for a placement of a whole job: a witness that all constraints can hold together, or the
//! proof that they cannot.
//!
//! A scheduler places one pod after the other and cannot know which node a later pod needs. A job
//! describes all of its pods, so here they are placed together. The types know nothing of Kubernetes:
//! a [`Problem`] has [`Unit`]s (processing elements that share a node), [`Pool`]s whose members are to
//! be chosen, and [`Class`]es of nodes that no constraint tells apart, with their number. A thousand
//! elements on five thousand nodes are therefore a small problem.
//!
//! - [`solve`] finds a [`Witness`], or proves that there is none.
//! - [`find_contradiction`] finds an irreducible set of constraints that have no witness.
//! - [`find_contended`] finds the units that could be stranded if the others went anywhere.
//!
//! Everything is deterministic, and bounded by a [`Budget`] of steps instead of time: the same problem
//! has the same answer on every machine.
//!
//! # How it works
//! 1. `model` leaves out the units that cannot fail: a unit that may be on more nodes than there are
//!    others to keep apart from finds a node wherever these are. Nearly always no unit is left.
//! 2. `search` places the others: backtracking with forward checking, the unit with the fewest nodes
//!    left first (weighted by its earlier failures), and restarts. Of equal nodes that are not used
//!    only the first is tried. `matching` detects at once that more units are kept apart than there are
//!    nodes, for which backtracking, and a SAT solver too, would take exponential time.
//! 3. `complete` places what `model` has left out, and chooses the remaining members of pools.
//!
//! # Why no existing solver
//! Compared by their documentation, November 2026. SAT solvers in Rust (varisat 0.2, batsat 0.6, splr
//! 0.19) need a variable for each unit on each node, five million for a thousand elements on five
//! thousand nodes, and cannot use that nodes are interchangeable. `pumpkin-solver` 0.5 (constraint
//! programming in pure Rust) documents cumulative, disjunctive, element, arithmetic and clausal
//! constraints: none detects by a matching that too many units are kept apart, and none has classes with
//! numbers. Either would have to be given a problem that is reduced as `model` does it, and what is left
//! then is small. Sets of nodes are `fixedbitset`'s.

mod complete;
mod contention;
mod contradiction;
mod matching;
mod model;
mod search;

use std::collections::{BTreeMap, HashMap, HashSet};

use fixedbitset::FixedBitSet;

pub(crate) use contention::find_contended;
pub(crate) use contradiction::{Constraint, find_contradiction};

/// A set of classes, by their indices in [`Problem::classes`].
pub(crate) type Classes = FixedBitSet;

/// A job to be placed as a whole. Everything is referred to by its index.
#[derive(Clone, Debug, Default)]
pub(crate) struct Problem {
    /// All nodes.
    pub classes: Vec<Class>,
    /// The classes for a unit without claims.
    pub open: Classes,
    /// The pools whose members are chosen.
    pub pools: Vec<Pool>,
    /// The units.
    pub units: Vec<Unit>,
}

/// Nodes that no constraint tells apart.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Class {
    /// The number of nodes. Nodes that are referred to by themselves are classes of one.
    pub count: usize,
    /// The order in which classes are tried: lower first.
    pub rank: u8,
}

/// A pool whose members are chosen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool {
    /// The number of members, each on another node.
    pub size: usize,
    /// True if all members are needed, and not only those for units.
    pub required: bool,
    /// True if no unit outside of the pool, and no other pool, may have the nodes.
    pub exclusive: bool,
    /// The classes from which members may be chosen.
    pub eligible: Classes,
    /// The members that are chosen already: the class, of one node, by the member's index.
    pub members: BTreeMap<u32, usize>,
}

/// Something that is on one node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unit {
    /// The requirements of the node, all of which count. Empty: a node of [`Problem::open`].
    pub claims: Vec<Claim>,
    /// The tokens of the unit. Units with a common token must be on different nodes.
    pub tokens: Vec<usize>,
    /// True if no other unit may be on the node.
    pub alone: bool,
    /// The class, of one node, on which the unit is already. Its claims then no longer count.
    pub at: Option<usize>,
    /// The class, of one node, that is tried first.
    pub preferred: Option<usize>,
}

impl Unit {
    /// Restricts the unit to these classes. Without claims it may be on nodes of `open` only.
    pub(crate) fn restrict_to(&mut self, mut classes: Classes, open: &Classes) {
        if self.claims.is_empty() {
            classes.intersect_with(open);
        }
        self.claims.push(Claim::Within(classes));
    }
}

/// A requirement of a unit's node.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Claim {
    /// A node of these classes.
    Within(Classes),
    /// A member of a pool.
    Member {
        /// The pool.
        pool: usize,
        /// The member's index; `None`: any member.
        index: Option<u32>,
    },
}

/// A node: one of its class. The numbers of a class are interchangeable.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Place {
    /// The class.
    pub class: usize,
    /// The number within the class, from 0.
    pub number: usize,
}

impl Place {
    /// The node of a class that has one.
    pub(crate) fn only(class: usize) -> Self {
        Self { class, number: 0 }
    }
}

/// A placement that satisfies all constraints.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Witness {
    /// The node of each unit.
    pub units: Vec<Place>,
    /// The members of each pool, by index. If not all are required, some may be missing.
    pub pools: Vec<BTreeMap<u32, Place>>,
}

/// How many steps a search may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    left: u64,
}

/// The budget was used up before there was an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Exhausted;

impl Budget {
    /// A budget of so many steps; one is a node that is taken from the nodes of a unit.
    pub(crate) fn new(steps: u64) -> Self {
        Self { left: steps }
    }

    fn spend(&mut self, steps: usize) -> Result<(), Exhausted> {
        let steps = u64::try_from(steps).unwrap_or(u64::MAX);
        let left = self.left.checked_sub(steps);
        self.left = left.unwrap_or(0);
        left.map(|_| ()).ok_or(Exhausted)
    }
}

/// Finds a placement of all units, with all members of the required pools. `None`: there is none.
///
/// # Errors
/// The budget was used up first.
pub(crate) fn solve(problem: &Problem, budget: &mut Budget) -> Result<Option<Witness>, Exhausted> {
    let Some(model) = model::Model::new(problem, budget)? else { return Ok(None) };
    let Some(found) = search::search(&model, budget)? else { return Ok(None) };
    complete::complete(&model, &found, budget).map(|witness| Some(witness.renumbered()))
}

impl Witness {
    /// Returns this placement with the numbers of each class in the order of the pools' members and then of
    /// the units: a reader expects member 0 before member 1.
    fn renumbered(mut self) -> Self {
        let mut numbers: HashMap<Place, usize> = HashMap::new();
        let mut used: HashMap<usize, usize> = HashMap::new();
        let members = self.pools.iter_mut().flat_map(BTreeMap::values_mut);
        for place in members.chain(&mut self.units) {
            let number = numbers.entry(*place).or_insert_with(|| {
                let next = used.entry(place.class).or_default();
                *next += 1;
                *next - 1
            });
            place.number = *number;
        }
        self
    }
}

impl Problem {
    /// Returns an empty set that can hold every class of the problem.
    pub(crate) fn no_classes(&self) -> Classes {
        Classes::with_capacity(self.classes.len())
    }

    /// Returns the units of each token, except those that are alone, and the units that are alone.
    fn separated(&self) -> (Vec<Vec<usize>>, Vec<usize>) {
        let tokens = self.units.iter().flat_map(|unit| &unit.tokens).max();
        let mut of_tokens = vec![Vec::new(); tokens.map_or(0, |most| most + 1)];
        let mut alone = Vec::new();
        for (number, unit) in self.units.iter().enumerate() {
            match unit.alone {
                true => alone.push(number),
                false => unit.tokens.iter().for_each(|token| of_tokens[*token].push(number)),
            }
        }
        (of_tokens, alone)
    }

    /// Returns the units from which a unit must be apart because of a token, or because one of them is alone;
    /// one with two tokens in common is listed twice. The second argument is what [`Self::separated`]
    /// returns.
    fn rivals<'s>(
        &'s self,
        unit: usize,
        (of_tokens, alone): &'s (Vec<Vec<usize>>, Vec<usize>),
    ) -> impl Iterator<Item = usize> + 's {
        let of = &self.units[unit];
        let all = 0..if of.alone { self.units.len() } else { 0 };
        let tokens = of.tokens.iter().flat_map(|token| &of_tokens[*token]);
        let others = tokens.chain(alone).filter(|_| !of.alone).copied();
        all.chain(others).filter(move |other| *other != unit)
    }

    /// The classes that units prefer.
    fn preferred_classes(&self) -> Classes {
        let mut classes = self.no_classes();
        self.units.iter().filter_map(|unit| unit.preferred).for_each(|class| classes.insert(class));
        classes
    }

    /// Returns this problem with the constraint that each unit must be on the node that it prefers.
    pub(crate) fn with_preferences_held(&self) -> Self {
        let mut held = self.clone();
        for unit in &mut held.units {
            if let Unit { preferred: Some(class), at: None, .. } = unit {
                let mut within = self.no_classes();
                within.insert(*class);
                unit.restrict_to(within, &self.open);
            }
        }
        held
    }

    /// Returns the nodes of a class.
    fn places(&self, class: usize) -> impl Iterator<Item = Place> + use<> {
        (0..self.classes[class].count).map(move |number| Place { class, number })
    }

    /// Returns the nodes of the exclusive pools. `members` are the members of all pools.
    fn exclusive_places(&self, members: &[BTreeMap<u32, Place>]) -> HashSet<Place> {
        let pools = self.pools.iter().zip(members).filter(|(pool, _)| pool.exclusive);
        pools.flat_map(|(_, members)| members.values().copied()).collect()
    }

    /// The number of nodes of these classes.
    fn count(&self, classes: &Classes) -> usize {
        classes.ones().map(|class| self.classes[class].count).sum()
    }

    /// Returns the claims of a unit, taken together.
    pub(crate) fn location(&self, unit: &Unit) -> Location {
        let mut location = Location::default();
        for claim in &unit.claims {
            match claim {
                Claim::Member { pool, index } => location.members.push((*pool, *index)),
                Claim::Within(classes) => match &mut location.within {
                    Some(within) => within.intersect_with(classes),
                    none => *none = Some(classes.clone()),
                },
            }
        }
        if location.members.is_empty() && location.within.is_none() {
            location.within = Some(self.open.clone());
        }
        // Any member, beside a certain one of the same pool, says nothing more.
        location.members.sort_unstable();
        location.members.dedup();
        let named: Vec<usize> =
            location.members.iter().filter(|(_, index)| index.is_some()).map(|of| of.0).collect();
        location.members.retain(|(pool, index)| index.is_some() || !named.contains(pool));
        location
    }
}

/// The claims of a unit, taken together.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(crate) struct Location {
    /// The classes; `None`: all.
    pub within: Option<Classes>,
    /// The members, sorted.
    pub members: Vec<(usize, Option<u32>)>,
}

#[cfg(test)]
mod tests;
