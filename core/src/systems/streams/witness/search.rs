//! Places the core units of a [`Model`] by backtracking.

mod propagate;

use std::collections::{BTreeMap, HashSet};

use super::model::{Model, Spots};
use super::{Budget, Classes, Exhausted, Pool, complete};

/// The failures until the first restart.
const FIRST_RESTART: usize = 100;

/// The result of the search.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The spot of each core unit.
    pub(super) spots: Vec<usize>,
    /// The spots of each pool's members, those that were chosen before included.
    pub(super) chosen: Vec<Spots>,
    /// How many further members of each exclusive pool are of each class.
    pub(super) filled: Vec<BTreeMap<usize, usize>>,
}

/// Finds spots for all core units. `None`: there are none.
pub(super) fn search(model: &Model<'_>, budget: &mut Budget) -> Result<Option<Found>, Exhausted> {
    match Search::new(model, budget).find() {
        Ok(found) => Ok(Some(found)),
        Err(Stop::Failure(_)) => Ok(None),
        Err(Stop::Exhausted) => Err(Exhausted),
    }
}

/// The reason why a search, or a step of it, ends without a result.
enum Stop {
    /// The units cannot be placed like this. The value is the unit without a spot, if one is the cause.
    Failure(Option<usize>),
    /// The budget was used up.
    Exhausted,
}

impl From<Exhausted> for Stop {
    fn from(_: Exhausted) -> Self {
        Self::Exhausted
    }
}

/// A change that can be undone.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// The unit has lost the spot.
    Lost { unit: usize, spot: usize },
    /// The unit was placed on the spot.
    Placed { unit: usize, spot: usize },
    /// The pool can no longer choose the spot.
    Ineligible { pool: usize, spot: usize },
    /// The pool has chosen the spot.
    Chosen { pool: usize, spot: usize },
}

/// A unit whose spots are tried.
struct Level {
    unit: usize,
    /// The spot that is tried.
    spot: Option<usize>,
    /// The spots that are not tried yet, the next one last.
    candidates: Vec<usize>,
    /// The length of the trail before the unit was placed.
    mark: usize,
}

/// The state of a search.
struct Search<'m> {
    model: &'m Model<'m>,
    budget: &'m mut Budget,
    domains: Vec<Spots>,
    sizes: Vec<usize>,
    placed: Vec<Option<usize>>,
    /// How many units are on each spot.
    used: Vec<usize>,
    /// The core units that need a member of each pool.
    units_of: Vec<Vec<usize>>,
    /// The core units of each clique.
    cliques: Vec<Vec<usize>>,
    /// The core units that are alone.
    alone: Vec<usize>,
    eligible: Vec<Spots>,
    /// The number of nodes that each pool can still choose, with those that are no spots.
    available: Vec<usize>,
    chosen: Vec<Spots>,
    exclusive: Vec<usize>,
    /// The classes that units prefer.
    wanted: Classes,
    /// How often each unit has failed, plus one.
    weights: Vec<usize>,
    trail: Vec<Change>,
}

impl<'m> Search<'m> {
    fn new(model: &'m Model<'m>, budget: &'m mut Budget) -> Self {
        let problem = model.problem;
        let mut units_of = vec![Vec::new(); problem.pools.len()];
        for unit in &model.core {
            model.pools_of(*unit).for_each(|pool| units_of[pool].push(*unit));
        }
        let core: HashSet<usize> = model.core.iter().copied().collect();
        let of_core = |clique: &Vec<usize>| {
            clique.iter().copied().filter(|unit| core.contains(unit)).collect()
        };
        let cliques: Vec<Vec<usize>> = model.cliques.iter().map(of_core).collect();
        let alone = model.core.iter().copied().filter(|unit| problem.units[*unit].alone).collect();
        let of_exclusive = problem.pools.iter().filter(|pool| pool.exclusive);
        let taken = of_exclusive.flat_map(|pool| pool.members.values());
        let free = |pool: &Pool| {
            let mut classes = pool.eligible.clone();
            let members = pool.members.values().copied().chain(taken.clone().copied());
            members.for_each(|class| classes.set(class, false));
            classes
        };
        let free: Vec<Classes> = problem.pools.iter().map(free).collect();
        let members = |pool: &Pool| model.spots_of(pool.members.values().copied());
        Self {
            model,
            budget,
            wanted: problem.preferred_classes(),
            sizes: model.domains.iter().map(|domain| domain.count_ones(..)).collect(),
            domains: model.domains.clone(),
            placed: vec![None; problem.units.len()],
            used: vec![0; model.spots.len()],
            units_of,
            cliques,
            alone,
            eligible: free.iter().map(|classes| model.spots_of(classes.ones())).collect(),
            available: free.iter().map(|classes| problem.count(classes)).collect(),
            chosen: problem.pools.iter().map(members).collect(),
            exclusive: (0..problem.pools.len()).filter(|of| problem.pools[*of].exclusive).collect(),
            weights: vec![1; problem.units.len()],
            trail: Vec::new(),
        }
    }

    fn find(&mut self) -> Result<Found, Stop> {
        self.place_fixed_units()?;
        let mut limit = FIRST_RESTART;
        loop {
            if let Some(found) = self.run(limit)? {
                return Ok(found);
            }
            limit += limit / 2;
        }
    }

    /// Places the units that are on a node already. Fails if that alone leaves no solution.
    fn place_fixed_units(&mut self) -> Result<(), Stop> {
        let Model { core, problem, first_spot, .. } = self.model;
        let there: Vec<(usize, usize)> = core
            .iter()
            .filter_map(|unit| Some((*unit, first_spot[problem.units[*unit].at?])))
            .collect();
        // First all of them: what is on nodes already may contradict itself.
        there.iter().for_each(|(unit, spot)| self.placed[*unit] = Some(*spot));
        for (unit, spot) in there {
            self.put(unit, spot)?;
        }
        if !(0..self.chosen.len()).all(|pool| self.has_enough(pool)) {
            return Err(Stop::Failure(None));
        }
        for clique in 0..self.cliques.len() {
            self.separate(clique, None)?;
        }
        // These changes stay.
        self.trail.clear();
        Ok(())
    }

    /// Searches until there is an answer, or after `limit` failures. Undoes everything then.
    fn run(&mut self, limit: usize) -> Result<Option<Found>, Stop> {
        let mut levels: Vec<Level> = Vec::new();
        let mut failures = 0;
        loop {
            if let Some(unit) = self.select() {
                let candidates = self.list_candidates(unit);
                levels.push(Level { unit, spot: None, candidates, mark: self.trail.len() });
            } else if let Some(found) = self.finish()? {
                return Ok(Some(found));
            }
            // The next spot of the last unit that has one.
            loop {
                let level = levels.last_mut().ok_or(Stop::Failure(None))?;
                if let Some(spot) = level.spot.take() {
                    self.reject(level, spot)?;
                }
                let Some(spot) = level.candidates.pop() else {
                    levels.pop();
                    continue;
                };
                level.spot = Some(spot);
                match self.place(level.unit, spot) {
                    Err(Stop::Failure(of)) => {
                        of.into_iter().for_each(|unit| self.weights[unit] += 1);
                    }
                    placed => break placed?,
                }
                failures += 1;
                if failures >= limit {
                    self.undo(0);
                    return Ok(None);
                }
            }
        }
    }

    /// Gives up a spot of a unit. A unit that is equal to it cannot be there either, nor on an equal
    /// spot.
    fn reject(&mut self, level: &mut Level, spot: usize) -> Result<(), Stop> {
        self.undo(level.mark);
        match self.prune_twins(level.unit, spot) {
            Err(Stop::Failure(_)) => level.candidates.clear(),
            pruned => pruned?,
        }
        level.mark = self.trail.len();
        Ok(())
    }

    /// The unit to be placed next; `None`: all are placed.
    fn select(&self) -> Option<usize> {
        let open = self.model.core.iter().copied().filter(|unit| self.placed[*unit].is_none());
        open.min_by(|one, other| {
            // Fewest spots by weight; the products avoid a division.
            let left = self.sizes[*one].saturating_mul(self.weights[*other]);
            let right = self.sizes[*other].saturating_mul(self.weights[*one]);
            let degree = |unit: &usize| {
                let of = self.model.cliques_of[*unit].iter();
                of.map(|clique| self.cliques[*clique].len()).sum::<usize>()
            };
            left.cmp(&right).then_with(|| degree(other).cmp(&degree(one)))
        })
    }

    /// The spots to try for a unit, the best last. Of the unused spots of a class, which are all equal,
    /// only one.
    fn list_candidates(&self, unit: usize) -> Vec<usize> {
        let model = self.model;
        let preferred = model.problem.units[unit].preferred;
        let mut candidates: Vec<(bool, bool, u8, bool, usize)> = Vec::new();
        let mut last_unused = None;
        for spot in self.domains[unit].ones() {
            let class = model.spots[spot].class;
            let is_used = self.is_used(spot);
            if !is_used && last_unused.replace(class) == Some(class) {
                continue;
            }
            let rank = model.problem.classes[class].rank;
            // Nodes that another unit prefers come last, and used nodes before unused ones, which stay
            // for units that must be apart.
            let is_wanted = self.wanted[class];
            candidates.push((preferred != Some(class), is_wanted, rank, !is_used, spot));
        }
        candidates.sort_unstable();
        candidates.into_iter().rev().map(|(.., spot)| spot).collect()
    }

    /// Returns true if a unit is on the spot, or a pool has chosen it. Others of its class are then different.
    fn is_used(&self, spot: usize) -> bool {
        self.used[spot] > 0 || self.chosen.iter().any(|chosen| chosen[spot])
    }

    fn undo(&mut self, mark: usize) {
        while self.trail.len() > mark {
            match self.trail.pop() {
                Some(Change::Lost { unit, spot }) => {
                    self.domains[unit].insert(spot);
                    self.sizes[unit] += 1;
                }
                Some(Change::Placed { unit, spot }) => {
                    self.placed[unit] = None;
                    self.used[spot] -= 1;
                }
                Some(Change::Ineligible { pool, spot }) => {
                    self.eligible[pool].insert(spot);
                    self.available[pool] += 1;
                }
                Some(Change::Chosen { pool, spot }) => self.chosen[pool].set(spot, false),
                None => {}
            }
        }
    }

    /// Chooses the remaining members of the exclusive pools, once all units are placed.
    fn finish(&mut self) -> Result<Option<Found>, Exhausted> {
        let core = &self.model.core;
        let spots: Vec<usize> = core.iter().filter_map(|unit| self.placed[*unit]).collect();
        // A unit that runs leaves its node to the exclusive pools that it claims, and to no others.
        let mut used: Vec<Option<Vec<usize>>> = vec![None; self.used.len()];
        for (unit, spot) in core.iter().zip(&spots) {
            let exclusive = self.exclusive.iter().copied();
            let own: Vec<usize> = exclusive.filter(|pool| self.claims(*unit, *pool)).collect();
            match &mut used[*spot] {
                Some(pools) => pools.retain(|pool| own.contains(pool)),
                none => *none = Some(own),
            }
        }
        let filled = complete::fill_exclusive(self.model, &self.chosen, &used, self.budget)?;
        Ok(filled.map(|filled| Found { spots, chosen: self.chosen.clone(), filled }))
    }
}
