//! Writes the elements of a job as the units of a problem.

use std::collections::{BTreeMap, HashMap};

use super::Frame;
use crate::systems::streams::api::streams_job::Enforcement;
use crate::systems::streams::kinds::streams_job::closure::{self, Location};
use crate::systems::streams::witness::{Claim, Classes, Unit};

/// Adds all units. If colocation, exlocation and isolation are only preferred, each element is a unit by
/// itself, with only its own hosts.
pub(super) fn add_all(frame: &mut Frame<'_, '_>) {
    let named = frame.classes_where(|state| !state.site.limits.nameless);
    let named = (named.count_ones(..) < frame.classes.len()).then_some(named);
    let closure = frame.closure;
    let is_required = frame.spec.enforcement == Enforcement::Required;
    let mut units = Units { frame, named, known: HashMap::new(), tokens: HashMap::new() };
    for unit in &closure.units {
        if is_required {
            let claims = unit.claims.iter().filter(|claim| claim.first).collect();
            units.add(&unit.elements, claims, Some(unit));
        } else {
            for element in &unit.elements {
                let claims = unit.claims_of(*element, Enforcement::Preferred).collect();
                units.add(&[*element], claims, None);
            }
        }
    }
    for node in units.frame.fixed.strangers.iter().filter(|_| is_required) {
        if let Some(class) = units.frame.class_of.get(*node).copied() {
            units.push(Unit { at: Some(class), ..Unit::default() }, &[], Vec::new());
        }
    }
}

/// Adds units to a frame.
struct Units<'b, 'f, 'v> {
    frame: &'b mut Frame<'f, 'v>,
    /// The classes of nodes with the hostname label, if there are others.
    named: Option<Classes>,
    /// The classes of each location.
    known: HashMap<&'f Location, Option<Classes>>,
    /// The number of each token.
    tokens: HashMap<&'f str, usize>,
}

impl<'f> Units<'_, 'f, '_> {
    fn push(&mut self, unit: Unit, elements: &[usize], claims: Vec<&'f closure::Claim>) {
        self.frame.problem.units.push(unit);
        self.frame.elements.push(elements.to_vec());
        self.frame.claims.push(claims);
    }

    fn add(
        &mut self,
        elements: &[usize],
        claims: Vec<&'f closure::Claim>,
        unit: Option<&'f closure::Unit>,
    ) {
        let mut framed = Unit::default();
        for claim in &claims {
            framed.claims.extend(self.frame_claim(&claim.location));
        }
        if let Some(unit) = unit {
            for exlocation in &unit.exlocations {
                let next = self.tokens.len();
                let number = *self.tokens.entry(&exlocation.token).or_insert(next);
                if number == next {
                    self.frame.tokens.push(&exlocation.token);
                }
                framed.tokens.push(number);
            }
            framed.alone = unit.isolated.is_some();
            let is_bound_to_others =
                !framed.tokens.is_empty() || framed.alone || unit.group.is_some();
            if let Some(named) = self.named.as_ref().filter(|_| is_bound_to_others) {
                framed.restrict_to(named.clone(), &self.frame.problem.open);
            }
        }
        let frame = &*self.frame;
        let fixed = frame.fixed;
        let class = |node: &&str| frame.class_of.get(*node).copied();
        let of_elements = |nodes: &BTreeMap<usize, &'f str>| {
            elements.iter().find_map(|element| nodes.get(element).and_then(class))
        };
        framed.at = of_elements(&fixed.running);
        framed.preferred = of_elements(&fixed.reserved);
        let closed: Vec<usize> = elements
            .iter()
            .filter_map(|element| fixed.closed.get(element))
            .flatten()
            .filter_map(class)
            .collect();
        if !closed.is_empty() && framed.at.is_none() {
            let mut within = frame.classes_where(|_| true);
            closed.into_iter().for_each(|class| within.set(class, false));
            framed.restrict_to(within, &frame.problem.open);
        }
        self.push(framed, elements, claims);
    }

    /// A claim of the problem; `None`: every open node satisfies it.
    fn frame_claim(&mut self, location: &'f Location) -> Option<Claim> {
        if let Location::Pool { pool, index } = location
            && let Ok(pool) = self.frame.pools.binary_search(pool)
        {
            return Some(Claim::Member { pool, index: *index });
        }
        let (known, frame) = (self.known.entry(location), &*self.frame);
        let classes = known.or_insert_with(|| frame.frame_location(location));
        classes.clone().map(Claim::Within)
    }
}
