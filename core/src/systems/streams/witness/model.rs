//! Prepares a problem for the search: leaves out the units that cannot fail, and lists the nodes that
//! the others need.

use std::collections::HashMap;

use fixedbitset::FixedBitSet;

use super::{Budget, Classes, Exhausted, Location, Place, Pool, Problem};

/// A set of spots, by their indices in [`Model::spots`].
pub(super) type Spots = FixedBitSet;

/// A problem with what the search needs to know of it.
pub(super) struct Model<'p> {
    pub(super) problem: &'p Problem,
    /// The claims of each unit, taken together.
    pub(super) locations: Vec<Location>,
    /// The leader of each unit, with which it is placed: the first unit with the same claims if neither
    /// is kept apart from others or runs already, otherwise the unit itself.
    pub(super) leaders: Vec<usize>,
    /// The units that are left out, in the order in which they were.
    pub(super) left_out: Vec<usize>,
    /// The units that the search places.
    pub(super) core: Vec<usize>,
    /// Sets of units that must all be on different nodes.
    pub(super) cliques: Vec<Vec<usize>>,
    /// The cliques of each unit.
    pub(super) cliques_of: Vec<Vec<usize>>,
    /// The nodes that the search may use: of each class as many as it can need.
    pub(super) spots: Vec<Place>,
    /// The first spot of each class, and one more at the end.
    pub(super) first_spot: Vec<usize>,
    /// The spots of each unit at first; none for a unit that is left out.
    pub(super) domains: Vec<Spots>,
    /// For each unit the first unit with which it may be exchanged, itself included.
    pub(super) twins: Vec<usize>,
    /// The classes, those that are to be used first before the others.
    pub(super) ranked: Vec<usize>,
}

impl<'p> Model<'p> {
    /// Prepares a problem. Returns `None` if it certainly has no witness.
    pub(super) fn new(
        problem: &'p Problem,
        budget: &mut Budget,
    ) -> Result<Option<Self>, Exhausted> {
        budget.spend(problem.units.len() + problem.classes.len())?;
        let locations: Vec<Location> =
            problem.units.iter().map(|unit| problem.location(unit)).collect();
        let leaders = find_leaders(problem, &locations);
        let units: Vec<usize> =
            (0..problem.units.len()).filter(|unit| leaders[*unit] == *unit).collect();
        let cliques = find_cliques(problem, &locations, &units);
        let mut cliques_of = vec![Vec::new(); problem.units.len()];
        for (number, clique) in cliques.iter().enumerate() {
            clique.iter().for_each(|unit| cliques_of[*unit].push(number));
        }
        let mut model = Self {
            problem,
            locations,
            leaders,
            left_out: Vec::new(),
            core: Vec::new(),
            cliques,
            cliques_of,
            spots: Vec::new(),
            first_spot: Vec::new(),
            domains: Vec::new(),
            twins: Vec::new(),
            ranked: (0..problem.classes.len()).collect(),
        };
        model.ranked.sort_by_key(|class| problem.classes[*class].rank);
        model.leave_out(&units, budget)?;
        model.list_spots();
        Ok(model.find_domains().then_some(model))
    }

    /// The number of members that exclusive pools may still choose among these classes.
    fn exclusive_need(&self, within: Option<&Classes>) -> usize {
        let may = |pool: &&Pool| {
            let overlaps = |within: &Classes| !pool.eligible.is_disjoint(within);
            pool.exclusive && within.is_none_or(overlaps)
        };
        let exclusive = self.problem.pools.iter().filter(may);
        exclusive.map(|pool| pool.size.saturating_sub(pool.members.len())).sum()
    }

    /// How many nodes a unit certainly may be on, whatever members the pools choose.
    fn certain_nodes(&self, unit: usize) -> usize {
        let Location { within, members } = &self.locations[unit];
        match (within, members.as_slice()) {
            (Some(within), []) => {
                let mut left = within.clone();
                for pool in self.problem.pools.iter().filter(|pool| pool.exclusive) {
                    pool.members.values().for_each(|class| left.set(*class, false));
                }
                self.problem.count(&left).saturating_sub(self.exclusive_need(Some(&left)))
            }
            (None, [(pool, None)]) if self.problem.pools[*pool].required => {
                self.problem.pools[*pool].size
            }
            _ => 0,
        }
    }

    /// Splits the units: those that find a node wherever the others are, are left out, and the rest is
    /// the core. Leaving out a unit may allow others to be left out, too.
    fn leave_out(&mut self, units: &[usize], budget: &mut Budget) -> Result<(), Exhausted> {
        let mut left: Vec<(usize, usize)> = Vec::with_capacity(units.len());
        for unit in units {
            let of = &self.problem.units[*unit];
            left.push((*unit, if of.at.is_some() { 0 } else { self.certain_nodes(*unit) }));
        }
        let mut alone = units.iter().filter(|unit| self.problem.units[**unit].alone).count();
        // Units that are alone are in each clique, and are counted once.
        let mut sizes: Vec<usize> = self.cliques.iter().map(|of| of.len() - alone).collect();
        let mut total = units.len();
        loop {
            budget.spend(left.len())?;
            let before = left.len();
            let mut kept = Vec::with_capacity(before);
            for (unit, nodes) in left {
                let of_cliques = self.cliques_of[unit].iter();
                let is_alone = self.problem.units[unit].alone;
                let others = match is_alone {
                    true => total - 1,
                    false => {
                        let others = of_cliques.clone().map(|of| sizes[*of].saturating_sub(1));
                        let separated: usize = others.sum();
                        separated + alone
                    }
                };
                if nodes > others {
                    self.left_out.push(unit);
                    match is_alone {
                        true => alone -= 1,
                        false => of_cliques.for_each(|of| sizes[*of] -= 1),
                    }
                    total -= 1;
                } else {
                    kept.push((unit, nodes));
                }
            }
            left = kept;
            if left.len() == before {
                break;
            }
        }
        self.core = left.into_iter().map(|(unit, _)| unit).collect();
        Ok(())
    }

    fn list_spots(&mut self) {
        let pools = &self.problem.pools;
        let most = self.core.len() + self.exclusive_need(None);
        let mut needed = self.problem.no_classes();
        for unit in &self.core {
            let unit = *unit;
            self.problem.units[unit].at.into_iter().for_each(|class| needed.insert(class));
            let Location { within, members } = &self.locations[unit];
            within.iter().for_each(|within| needed.union_with(within));
            members.iter().for_each(|(pool, _)| needed.union_with(&pools[*pool].eligible));
        }
        for pool in pools {
            pool.members.values().for_each(|class| needed.insert(*class));
            if pool.exclusive {
                needed.union_with(&pool.eligible);
            }
        }
        for (class, of) in self.problem.classes.iter().enumerate() {
            self.first_spot.push(self.spots.len());
            let count = if needed[class] { of.count.min(most.max(1)) } else { 0 };
            self.spots.extend((0..count).map(|number| Place { class, number }));
        }
        self.first_spot.push(self.spots.len());
    }

    /// All spots of these classes.
    pub(super) fn spots_of(&self, classes: impl Iterator<Item = usize>) -> Spots {
        let mut spots = Spots::with_capacity(self.spots.len());
        for class in classes {
            spots.insert_range(self.first_spot[class]..self.first_spot[class + 1]);
        }
        spots
    }

    /// Returns the pools of which a unit needs a member; none if it is on a node already.
    pub(super) fn pools_of(&self, unit: usize) -> impl Iterator<Item = usize> {
        let is_there = self.problem.units[unit].at.is_some();
        let members = self.locations[unit].members.iter();
        members.filter(move |_| !is_there).map(|(pool, _)| *pool)
    }

    /// Finds the spots of each core unit. Returns true if each has one.
    fn find_domains(&mut self) -> bool {
        let mut known: HashMap<(&Location, Vec<usize>, bool), usize> = HashMap::new();
        let mut domains = vec![Spots::new(); self.problem.units.len()];
        let mut twins: Vec<usize> = (0..self.problem.units.len()).collect();
        for unit in self.core.iter().copied() {
            let of = &self.problem.units[unit];
            let location = &self.locations[unit];
            domains[unit] = match of.at {
                Some(class) => self.spots_of([class].into_iter()),
                None => {
                    let key = (location, self.cliques_of[unit].clone(), of.alone);
                    twins[unit] = *known.entry(key).or_insert(unit);
                    self.find_domain(location)
                }
            };
            if domains[unit].is_clear() {
                return false;
            }
        }
        drop(known);
        self.domains = domains;
        self.twins = twins;
        true
    }

    /// The spots that the claims of a unit leave.
    fn find_domain(&self, location: &Location) -> Spots {
        let pools = &self.problem.pools;
        let Location { within, members } = location;
        let mut domain = match within {
            Some(within) => self.spots_of(within.ones()),
            None => {
                let mut all = Spots::with_capacity(self.spots.len());
                all.insert_range(..);
                all
            }
        };
        for (number, (pool, index)) in members.iter().enumerate() {
            let of = &pools[*pool];
            // Two members of one pool, or an exclusive pool and another one, have no node in common.
            let contradicts = members[..number]
                .iter()
                .any(|(other, _)| other == pool || of.exclusive || pools[*other].exclusive);
            if contradicts {
                domain.clear();
            }
            let chosen = || self.spots_of(of.members.values().copied());
            match index {
                Some(index) => match of.members.get(index) {
                    Some(class) => domain.intersect_with(&self.spots_of([*class].into_iter())),
                    None => {
                        domain.intersect_with(&self.spots_of(of.eligible.ones()));
                        domain.difference_with(&chosen());
                    }
                },
                None => {
                    let mut allowed = self.spots_of(of.eligible.ones());
                    allowed.union_with(&chosen());
                    domain.intersect_with(&allowed);
                }
            }
        }
        for (number, pool) in pools.iter().enumerate().filter(|(_, pool)| pool.exclusive) {
            if !members.iter().any(|(of, _)| *of == number) {
                domain.difference_with(&self.spots_of(pool.members.values().copied()));
            }
        }
        domain
    }
}

/// For each unit the first one that may always be with it: with the same claims, and neither of them
/// kept apart from any other.
fn find_leaders(problem: &Problem, locations: &[Location]) -> Vec<usize> {
    let mut first: HashMap<&Location, usize> = HashMap::new();
    let leaders = problem.units.iter().enumerate().map(|(index, unit)| {
        if !unit.tokens.is_empty() || unit.alone || unit.at.is_some() {
            return index;
        }
        *first.entry(&locations[index]).or_insert(index)
    });
    leaders.collect()
}

/// The sets of units that must all be on different nodes: those with a token, and those that claim
/// different members of a pool. Units that are alone belong to each of them, and are one by themselves.
fn find_cliques(problem: &Problem, locations: &[Location], units: &[usize]) -> Vec<Vec<usize>> {
    let (mut cliques, alone) = problem.separated();
    let mut indexed: Vec<Vec<usize>> = vec![Vec::new(); problem.pools.len()];
    for unit in units {
        let of = &problem.units[*unit];
        if !of.alone && of.at.is_none() {
            let members = locations[*unit].members.iter();
            members
                .filter(|(_, index)| index.is_some())
                .for_each(|(pool, _)| indexed[*pool].push(*unit));
        }
    }
    cliques.extend(indexed);
    for clique in &mut cliques {
        clique.dedup();
    }
    cliques.retain(|clique| clique.len() > 1);
    if cliques.is_empty() {
        cliques.push(Vec::new());
    }
    for clique in &mut cliques {
        clique.extend(&alone);
    }
    cliques.retain(|clique| clique.len() > 1);
    cliques
}
