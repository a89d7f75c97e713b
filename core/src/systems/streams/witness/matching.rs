//! All-different: finds out if units can be on nodes of their own (a matching of units and nodes).

use super::model::Spots;
use super::{Budget, Exhausted};

/// Returns true if each of these sets can have an element of its own. `limit`: elements are below it.
pub(super) fn has_all_different(
    domains: &[&Spots],
    limit: usize,
    budget: &mut Budget,
) -> Result<bool, Exhausted> {
    // A set with at least as many elements as there are sets never lacks one.
    let mut tight: Vec<(usize, &Spots)> =
        domains.iter().map(|domain| (domain.count_ones(..), *domain)).collect();
    budget.spend(tight.len())?;
    loop {
        let sets = tight.len();
        tight.retain(|(size, _)| *size < sets);
        if tight.len() == sets {
            break;
        }
    }
    // The smallest first, so that few have to give way.
    tight.sort_by_key(|(size, _)| *size);
    let tight: Vec<&Spots> = tight.into_iter().map(|(_, domain)| domain).collect();
    let mut owner: Vec<Option<usize>> = vec![None; limit];
    let mut seen = Spots::with_capacity(limit);
    let mut free = Spots::with_capacity(limit);
    free.insert_range(..);
    for set in 0..tight.len() {
        seen.clear();
        if !find_element(set, &tight, &mut owner, &mut free, &mut seen, budget)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Finds an element for the set, which may move others to another element of theirs (an augmenting
/// path). Without recursion: a path may be as long as there are sets.
fn find_element(
    start: usize,
    sets: &[&Spots],
    owner: &mut [Option<usize>],
    free: &mut Spots,
    seen: &mut Spots,
    budget: &mut Budget,
) -> Result<bool, Exhausted> {
    // The sets that look for an element, each with the element that the one before wants of it.
    let mut path: Vec<(usize, usize)> = vec![(start, usize::MAX)];
    while let Some(&(set, _)) = path.last() {
        budget.spend(1)?;
        if let Some(element) = sets[set].intersection(free).next() {
            free.set(element, false);
            let mut element = element;
            while let Some((set, wanted)) = path.pop() {
                owner[element] = Some(set);
                element = wanted;
            }
            return Ok(true);
        }
        match sets[set].difference(seen).next() {
            Some(element) => {
                seen.insert(element);
                // It is not free, so it has an owner.
                if let Some(other) = owner[element] {
                    path.push((other, element));
                }
            }
            None => {
                path.pop();
            }
        }
    }
    Ok(false)
}
