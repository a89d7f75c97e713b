//! Completes what the search has found: the remaining members of pools, and the units that were left
//! out.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

use super::model::{Model, Spots};
use super::search::Found;
use super::{Budget, Classes, Exhausted, Place, Witness};

/// Chooses the remaining members of the exclusive pools among the nodes that nothing uses, so that
/// enough nodes are left for the other pools: how many of each class. `None`: that is impossible.
///
/// `chosen` are the spots that each pool has. `used` are, for each spot with units, the exclusive pools of
/// which all of these claim a member.
pub(super) fn fill_exclusive(
    model: &Model<'_>,
    chosen: &[Spots],
    used: &[Option<Vec<usize>>],
    budget: &mut Budget,
) -> Result<Option<Vec<BTreeMap<usize, usize>>>, Exhausted> {
    let problem = model.problem;
    let mut fill = Fill {
        model,
        budget,
        free: problem.classes.iter().map(|class| class.count).collect(),
        only: HashMap::new(),
        spare: Vec::new(),
        filled: vec![BTreeMap::new(); problem.pools.len()],
        order: Vec::new(),
    };
    // A node that a unit or any pool has is not free. A node that no pool has, and whose units all
    // claim exclusive pools, may still become a member of these pools.
    for (spot, place) in model.spots.iter().enumerate() {
        let is_chosen = chosen.iter().any(|chosen| chosen[spot]);
        match &used[spot] {
            // These units are on the node already (`Unit::at`), so its class has no other node.
            Some(pools) if !is_chosen && !pools.is_empty() => {
                fill.only.insert(place.class, pools.clone());
            }
            pools => fill.free[place.class] -= usize::from(is_chosen || pools.is_some()),
        }
    }
    let mut exclusive_nodes = vec![0; problem.classes.len()];
    let exclusive = problem.pools.iter().zip(chosen).filter(|(pool, _)| pool.exclusive);
    for (_, chosen) in exclusive {
        chosen.ones().for_each(|spot| exclusive_nodes[model.spots[spot].class] += 1);
    }
    for (number, pool) in problem.pools.iter().enumerate() {
        let has = chosen[number].count_ones(..);
        let need = if pool.required { pool.size.saturating_sub(has) } else { 0 };
        if pool.exclusive {
            fill.spare.push(0);
            if need > 0 {
                fill.order.push((number, need));
            }
            continue;
        }
        // The nodes that it could choose, beyond those that it needs.
        let own = |class: usize| {
            let spots = chosen[number].ones();
            spots.filter(|spot| model.spots[*spot].class == class).count()
        };
        let count = |class: usize| {
            problem.classes[class].count.saturating_sub(exclusive_nodes[class] + own(class))
        };
        let available: usize = pool.eligible.ones().map(count).sum();
        match available.checked_sub(need) {
            Some(spare) => fill.spare.push(spare),
            None => return Ok(None),
        }
    }
    Ok(fill.run(0, 0, 0)?.then_some(fill.filled))
}

/// The backtracking search of [`fill_exclusive`].
struct Fill<'m> {
    model: &'m Model<'m>,
    budget: &'m mut Budget,
    /// The nodes of each class that nothing uses.
    free: Vec<usize>,
    /// The classes that only these pools may choose from.
    only: HashMap<usize, Vec<usize>>,
    /// How many of the nodes that it could choose each shared pool can do without.
    spare: Vec<usize>,
    filled: Vec<BTreeMap<usize, usize>>,
    /// The exclusive pools that lack members, and how many.
    order: Vec<(usize, usize)>,
}

impl Fill<'_> {
    /// Fills the pools from `position` on, of which the first has `had` members from the classes of
    /// [`Model::ranked`] before `from`.
    fn run(&mut self, position: usize, from: usize, had: usize) -> Result<bool, Exhausted> {
        self.budget.spend(1)?;
        let Some((pool, need)) = self.order.get(position).copied() else { return Ok(true) };
        if had == need {
            return self.run(position + 1, 0, 0);
        }
        let problem = self.model.problem;
        let eligible = &problem.pools[pool].eligible;
        let may = |of: &usize| {
            let is_own = self.only.get(of).is_none_or(|pools| pools.contains(&pool));
            eligible[*of] && self.free[*of] > 0 && is_own
        };
        let ranked = &self.model.ranked;
        let next = ranked[from..].iter().position(may);
        let Some(at) = next.map(|next| from + next) else { return Ok(false) };
        let class = ranked[at];
        let shared: Vec<usize> = (0..problem.pools.len())
            .filter(|other| {
                let other = &problem.pools[*other];
                !other.exclusive && other.required && other.eligible[class]
            })
            .collect();
        let spare = shared.iter().map(|other| self.spare[*other]).min().unwrap_or(usize::MAX);
        let most = self.free[class].min(need - had).min(spare);
        for count in (0..=most).rev() {
            self.free[class] -= count;
            shared.iter().for_each(|other| self.spare[*other] -= count);
            if count > 0 {
                self.filled[pool].insert(class, count);
            }
            if self.run(position, at + 1, had + count)? {
                return Ok(true);
            }
            self.filled[pool].remove(&class);
            shared.iter().for_each(|other| self.spare[*other] += count);
            self.free[class] += count;
        }
        Ok(false)
    }
}

/// Makes the witness of what the search has found.
pub(super) fn complete(
    model: &Model<'_>,
    found: &Found,
    budget: &mut Budget,
) -> Result<Witness, Exhausted> {
    let problem = model.problem;
    let mut places: Vec<Option<Place>> = vec![None; problem.units.len()];
    for (unit, spot) in model.core.iter().zip(&found.spots) {
        places[*unit] = Some(model.spots[*spot]);
    }
    let pools = choose_members(model, found, &places);
    let exclusive = problem.exclusive_places(&pools);
    let rest = Rest { model, pools, exclusive, wanted: problem.preferred_classes() };
    let (_, alone) = problem.separated();
    for unit in model.left_out.iter().rev().copied() {
        let others: HashSet<Place> = if problem.units[unit].alone {
            places.iter().flatten().copied().collect()
        } else {
            let cliques = model.cliques_of[unit].iter().flat_map(|clique| &model.cliques[*clique]);
            cliques.chain(&alone).filter_map(|other| places[*other]).collect()
        };
        budget.spend(others.len() + 1)?;
        places[unit] = rest.find_place(unit, &others);
    }
    for unit in 0..problem.units.len() {
        places[unit] = places[model.leaders[unit]];
    }
    let units: Option<Vec<Place>> = places.into_iter().collect();
    debug_assert!(units.is_some(), "a unit that was left out finds a node wherever the others are");
    Ok(Witness { units: units.ok_or(Exhausted)?, pools: rest.pools })
}

/// The nodes for the units that were left out.
struct Rest<'m> {
    model: &'m Model<'m>,
    /// The members of each pool.
    pools: Vec<BTreeMap<u32, Place>>,
    /// The members of exclusive pools.
    exclusive: HashSet<Place>,
    /// The classes that units prefer, which may not be placed yet.
    wanted: Classes,
}

impl Rest<'_> {
    /// Finds a node for a unit that cannot be with `others`: the one that it prefers, else one that no other
    /// unit prefers, else any.
    fn find_place(&self, unit: usize, others: &HashSet<Place>) -> Option<Place> {
        let problem = self.model.problem;
        let location = &self.model.locations[unit];
        let is_free = |place: &Place| !others.contains(place);
        let preferred = problem.units[unit].preferred.map(Place::only);
        if let Some((pool, _)) = location.members.first() {
            let members = self.pools[*pool].values().copied().filter(is_free);
            let order = |place: &Place| (Some(*place) != preferred, self.wanted[place.class]);
            return members.min_by_key(order);
        }
        let within = location.within.as_ref()?;
        let may = |place: &Place| is_free(place) && !self.exclusive.contains(place);
        if let Some(place) = preferred.filter(|place| within[place.class] && may(place)) {
            return Some(place);
        }
        let mut classes: Vec<usize> = within.ones().collect();
        classes.sort_by_key(|class| (self.wanted[*class], problem.classes[*class].rank));
        classes.into_iter().flat_map(|class| problem.places(class)).find(may)
    }
}

/// The members of all pools: those that were there, those that units need, and further ones.
fn choose_members(
    model: &Model<'_>,
    found: &Found,
    places: &[Option<Place>],
) -> Vec<BTreeMap<u32, Place>> {
    let problem = model.problem;
    let mut members: Vec<BTreeMap<u32, Place>> = Vec::new();
    for (number, pool) in problem.pools.iter().enumerate() {
        let there = pool.members.iter().map(|(index, class)| (*index, Place::only(*class)));
        let mut of_pool: BTreeMap<u32, Place> = there.collect();
        for unit in &model.core {
            let place = places[*unit].filter(|_| problem.units[*unit].at.is_none());
            let claims = model.locations[*unit].members.iter();
            let indices = claims.filter(|(of, _)| *of == number).filter_map(|(_, index)| *index);
            if let Some(place) = place {
                for index in indices {
                    of_pool.entry(index).or_insert(place);
                }
            }
        }
        let known: HashSet<Place> = of_pool.values().copied().collect();
        // In the order of the spots, which is that of the places.
        let rest = found.chosen[number].ones().map(|spot| model.spots[spot]);
        fill_slots(&mut of_pool, pool.size, rest.filter(|place| !known.contains(place)));
        members.push(of_pool);
    }
    let mut used: HashSet<Place> = places.iter().flatten().copied().collect();
    used.extend(members.iter().flat_map(BTreeMap::values));
    // Exclusive pools first: the others do without what these take.
    let mut taken: HashSet<Place> = HashSet::new();
    for (number, pool) in problem.pools.iter().enumerate().filter(|(_, pool)| pool.exclusive) {
        let mut further: Vec<Place> = Vec::new();
        for (class, count) in &found.filled[number] {
            // A class of one node that was filled is free, or its units belong to the pool.
            let is_one = problem.classes[*class].count == 1;
            let free = problem.places(*class).filter(|place| is_one || !used.contains(place));
            further.extend(free.take(*count));
        }
        used.extend(&further);
        fill_slots(&mut members[number], pool.size, further);
        taken.extend(members[number].values());
    }
    let pools = problem.pools.iter().enumerate();
    let shared = pools.filter(|(_, pool)| pool.required && !pool.exclusive);
    for (number, pool) in shared {
        let own: HashSet<Place> = members[number].values().copied().collect();
        let rank = |class: usize| problem.classes[class].rank;
        let mut classes: Vec<usize> = pool.eligible.ones().collect();
        classes.sort_by_key(|class| rank(*class));
        // Of nodes that are alike those that nothing uses yet, so that the pools spread.
        let alike = classes.chunk_by(|one, other| rank(*one) == rank(*other));
        let used_last = alike.flat_map(|classes| {
            let all = move || classes.iter().flat_map(|class| problem.places(*class));
            let unused = all().filter(|place| !used.contains(place));
            unused.chain(all().filter(|place| used.contains(place)))
        });
        let further = used_last.filter(|place| !own.contains(place) && !taken.contains(place));
        fill_slots(&mut members[number], pool.size, further);
        used.extend(members[number].values());
    }
    members
}

/// Gives the indices below `size` that have no member one of these places each, as long as there are any.
fn fill_slots(
    members: &mut BTreeMap<u32, Place>,
    size: usize,
    places: impl IntoIterator<Item = Place>,
) {
    let mut places = places.into_iter();
    for index in (0..).take(size) {
        if let Entry::Vacant(slot) = members.entry(index) {
            let Some(place) = places.next() else { return };
            slot.insert(place);
        }
    }
}
