//! Takes from the other units what a placed unit leaves them no more: forward checking.

use super::super::matching::has_all_different;
use super::super::model::Spots;
use super::{Change, Search, Stop};

impl Search<'_> {
    /// Places a unit, and takes the spot from all others that cannot share it.
    pub(super) fn place(&mut self, unit: usize, spot: usize) -> Result<(), Stop> {
        self.put(unit, spot)?;
        let model = self.model;
        for clique in &model.cliques_of[unit] {
            self.separate(*clique, Some(unit))?;
        }
        Ok(())
    }

    pub(super) fn put(&mut self, unit: usize, spot: usize) -> Result<(), Stop> {
        self.placed[unit] = Some(spot);
        self.used[spot] += 1;
        self.trail.push(Change::Placed { unit, spot });
        let model = self.model;
        let apart: Vec<usize> = if model.problem.units[unit].alone {
            model.core.clone()
        } else {
            let cliques = model.cliques_of[unit].iter().map(|clique| &self.cliques[*clique]);
            cliques.flatten().chain(&self.alone).copied().collect()
        };
        for other in apart {
            if other != unit {
                self.take(other, spot)?;
            }
        }
        for pool in model.pools_of(unit) {
            self.choose(pool, spot)?;
        }
        for number in 0..self.exclusive.len() {
            let pool = self.exclusive[number];
            if !self.claims(unit, pool) {
                self.exclude(pool, spot)?;
            }
        }
        Ok(())
    }

    /// Returns true if a unit claims a member of a pool, even if it is on a node already.
    pub(super) fn claims(&self, unit: usize, pool: usize) -> bool {
        let location = &self.model.locations[unit];
        location.members.iter().any(|(of, _)| *of == pool)
    }

    /// Takes a spot from a unit that is not placed yet.
    pub(super) fn take(&mut self, unit: usize, spot: usize) -> Result<(), Stop> {
        self.budget.spend(1)?;
        if self.placed[unit].is_some() || !self.domains[unit][spot] {
            return Ok(());
        }
        self.domains[unit].set(spot, false);
        self.sizes[unit] -= 1;
        self.trail.push(Change::Lost { unit, spot });
        if self.sizes[unit] == 0 { Err(Stop::Failure(Some(unit))) } else { Ok(()) }
    }

    /// Makes a spot a member of a pool.
    pub(super) fn choose(&mut self, pool: usize, spot: usize) -> Result<(), Stop> {
        if self.chosen[pool][spot] {
            return Ok(());
        }
        let of = &self.model.problem.pools[pool];
        if !self.eligible[pool][spot] {
            return Err(Stop::Failure(None));
        }
        self.make_ineligible(pool, spot);
        self.chosen[pool].insert(spot);
        self.trail.push(Change::Chosen { pool, spot });
        let chosen = self.chosen[pool].count_ones(..);
        if chosen > of.size {
            return Err(Stop::Failure(None));
        }
        if of.exclusive {
            for other in 0..self.chosen.len() {
                if other != pool && self.chosen[other][spot] {
                    return Err(Stop::Failure(None));
                }
                if other != pool {
                    self.exclude(other, spot)?;
                }
            }
            let model = self.model;
            for unit in model.core.iter().copied() {
                if model.pools_of(unit).all(|of| of != pool) {
                    self.take(unit, spot)?;
                }
            }
        }
        if chosen == of.size {
            // No further node: its units go to those that are chosen.
            for number in 0..self.units_of[pool].len() {
                let unit = self.units_of[pool][number];
                if self.placed[unit].is_some() {
                    continue;
                }
                let lost: Vec<usize> = self.domains[unit].difference(&self.chosen[pool]).collect();
                for spot in lost {
                    self.take(unit, spot)?;
                }
            }
        }
        Ok(())
    }

    /// Takes a spot from a pool that has not chosen it, and from its units.
    pub(super) fn exclude(&mut self, pool: usize, spot: usize) -> Result<(), Stop> {
        self.budget.spend(1)?;
        if !self.eligible[pool][spot] {
            return Ok(());
        }
        self.make_ineligible(pool, spot);
        if !self.has_enough(pool) {
            return Err(Stop::Failure(None));
        }
        for number in 0..self.units_of[pool].len() {
            self.take(self.units_of[pool][number], spot)?;
        }
        Ok(())
    }

    fn make_ineligible(&mut self, pool: usize, spot: usize) {
        self.eligible[pool].set(spot, false);
        self.available[pool] -= 1;
        self.trail.push(Change::Ineligible { pool, spot });
    }

    /// Returns true if a pool can still have all of its members.
    pub(super) fn has_enough(&self, pool: usize) -> bool {
        let of = &self.model.problem.pools[pool];
        !of.required || self.chosen[pool].count_ones(..) + self.available[pool] >= of.size
    }

    /// Fails unless the units of a clique that are not placed can all be on different spots. `last` is the unit
    /// that was placed last.
    pub(super) fn separate(&mut self, clique: usize, last: Option<usize>) -> Result<(), Stop> {
        let units = self.cliques[clique].iter().filter(|unit| self.placed[**unit].is_none());
        let domains: Vec<&Spots> = units.map(|unit| &self.domains[*unit]).collect();
        match has_all_different(&domains, self.model.spots.len(), self.budget)? {
            true => Ok(()),
            false => Err(Stop::Failure(last)),
        }
    }

    /// A unit cannot be on `spot`, nor on an equal one, so neither can a unit that is equal to it.
    pub(super) fn prune_twins(&mut self, unit: usize, spot: usize) -> Result<(), Stop> {
        let model = self.model;
        let equal: Vec<usize> = if self.is_used(spot) {
            vec![spot]
        } else {
            let class = model.spots[spot].class;
            let spots = model.first_spot[class]..model.first_spot[class + 1];
            spots.filter(|spot| !self.is_used(*spot)).collect()
        };
        for twin in model.core.iter().copied() {
            if model.twins[twin] != model.twins[unit] || twin == unit {
                continue;
            }
            for spot in &equal {
                self.take(twin, *spot)?;
            }
        }
        Ok(())
    }
}
