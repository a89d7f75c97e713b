//! Writes the elements of a job as the units of a problem.

use std::collections::{BTreeMap, HashMap};

use super::Builder;
use crate::systems::streams::kinds::streams_job::closure::{self, Location};
use crate::systems::streams::witness::{Claim, Classes, Unit};

/// Builds the units of a frame.
pub(super) struct FrameUnits<'b, 'f, 'v> {
    pub(super) builder: &'b Builder<'f, 'v>,
    /// The number in the problem of each marked pool of the spec.
    pub(super) number: HashMap<usize, usize>,
    /// The classes of nodes with the hostname label, if there are others.
    pub(super) named: Option<Classes>,
    /// The classes of each location.
    pub(super) known: HashMap<&'f Location, Option<Classes>>,
    /// The number of each token.
    pub(super) tokens: HashMap<&'f str, usize>,
    pub(super) units: Vec<Unit>,
    pub(super) elements: Vec<Vec<usize>>,
    pub(super) claims: Vec<Vec<&'f closure::Claim>>,
    pub(super) names: Vec<&'f str>,
}

impl<'f> FrameUnits<'_, 'f, '_> {
    /// Adds all units. `is_required`: colocation, exlocation and isolation must hold. Otherwise each
    /// element is a unit by itself, with only its own hosts.
    pub(super) fn add_all(&mut self, is_required: bool) {
        let closure = self.builder.closure;
        for unit in &closure.units {
            if is_required {
                let claims = unit.claims.iter().filter(|claim| claim.first).collect();
                self.add(&unit.elements, claims, Some(unit));
            } else {
                for element in &unit.elements {
                    self.add(&[*element], unit.claims_of(*element, false).collect(), None);
                }
            }
        }
        let strangers =
            if is_required { self.builder.fixed.strangers.iter() } else { Default::default() };
        for node in strangers {
            let at = self.builder.singles.get(*node).copied();
            if at.is_some() {
                self.units.push(Unit { at, ..Unit::default() });
                self.elements.push(Vec::new());
                self.claims.push(Vec::new());
            }
        }
    }

    fn add(
        &mut self,
        elements: &[usize],
        claims: Vec<&'f closure::Claim>,
        unit: Option<&'f closure::Unit>,
    ) {
        let builder = self.builder;
        let fixed = builder.fixed;
        let mut framed = Unit::default();
        for claim in &claims {
            framed.claims.extend(self.frame_claim(&claim.location));
        }
        if let Some(unit) = unit {
            for exlocation in &unit.exlocations {
                let next = self.tokens.len();
                let number = *self.tokens.entry(&exlocation.token).or_insert(next);
                if number == next {
                    self.names.push(&exlocation.token);
                }
                framed.tokens.push(number);
            }
            framed.alone = unit.isolated.is_some();
            let is_bound_to_others =
                !framed.tokens.is_empty() || framed.alone || unit.group.is_some();
            if let Some(named) = self.named.as_ref().filter(|_| is_bound_to_others) {
                let mut within = builder.classes_where(|state| builder.is_open(state));
                if framed.claims.is_empty() {
                    within.intersect_with(named);
                    framed.claims.push(Claim::Within(within));
                } else {
                    framed.claims.push(Claim::Within(named.clone()));
                }
            }
        }
        let class = |node: &&str| builder.singles.get(*node).copied();
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
            let mut within = match framed.claims.is_empty() {
                true => builder.classes_where(|state| builder.is_open(state)),
                false => builder.classes_where(|_| true),
            };
            closed.into_iter().for_each(|class| within.set(class, false));
            framed.claims.push(Claim::Within(within));
        }
        self.units.push(framed);
        self.elements.push(elements.to_vec());
        self.claims.push(claims);
    }

    /// A claim of the problem; `None`: every open node satisfies it.
    fn frame_claim(&mut self, location: &'f Location) -> Option<Claim> {
        if let Location::Pool { pool, index } = location
            && let Some(number) = self.number.get(pool)
        {
            return Some(Claim::Member { pool: *number, index: *index });
        }
        let builder = self.builder;
        let known = self.known.entry(location);
        let classes = known.or_insert_with(|| builder.frame_location(location));
        classes.clone().map(Claim::Within)
    }
}
