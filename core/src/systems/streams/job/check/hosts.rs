//! Checks whether there are hosts for the elements that must share a host, and for those that must
//! not.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::joins::{find_joins, format_joins};
use super::{Check, format_claims};
use crate::placement::reason::{Reason, quoted};
use crate::systems::check::words::{counted, some};
use crate::systems::streams::api::streams_job::Enforcement;
use crate::systems::streams::kinds::{
    Claim, Form, JobPool, Location, Operator, Unit, has_tags, to_usize,
};

/// The nodes that a claim allows.
struct Allowed<'c> {
    /// Only these, if the claim names nodes.
    nodes: Option<Vec<&'c str>>,
    /// They must have all of these tags.
    tags: Vec<Box<str>>,
}

impl<'c> Check<'c> {
    /// The node of a claim's location, if it is exactly one.
    fn find_pinned_node(&mut self, claim: &'c Claim) -> Option<&'c str> {
        let closure = self.closure;
        match &claim.location {
            Location::Host(host) => self.find_node(host, |check| {
                format!("which {} asks for", check.format_operator(claim.by))
            }),
            Location::Pool { pool, index: Some(index) } => {
                let host = closure.pools[*pool].listed(*index)?;
                self.nodes.get(host).copied().flatten()
            }
            Location::Pool { .. } => None,
        }
    }

    /// The node that a unit names, if it is exactly one, and the first claim that names it.
    fn find_pinned(&mut self, unit: &'c Unit) -> Option<(&'c str, &'c Claim)> {
        unit.claims.iter().find_map(|claim| Some((self.find_pinned_node(claim)?, claim)))
    }

    /// Checks each unit: one host must be possible for all of its elements.
    pub(super) fn check_units(&mut self) {
        for unit in &self.closure.units {
            if let Some((token, by, clash)) = unit
                .exlocations
                .iter()
                .find_map(|exlocation| Some((&exlocation.token, exlocation.by, exlocation.clash?)))
            {
                let problem = format!(
                    "{} and {} must be apart (hostExlocation {}) and must share a host: {}",
                    self.format_operator(by),
                    self.format_operator(clash),
                    quoted(token),
                    format_joins(self.spec, self.closure, &[by.element, clash.element])
                );
                let remedy = "remove the token from one of them, or the constraint that joins them (hostColocation, host)";
                self.report(Reason::ExlocatedTogether, problem, remedy);
            }
            if let (Some(by), [_, _, ..]) = (unit.isolated, unit.elements.as_slice()) {
                let others = unit.elements.iter().find(|element| **element != by.element);
                let joins =
                    others.map(|other| find_joins(self.spec, self.closure, by.element, *other));
                let nearest = joins.iter().flatten().next().map_or(by.element, |join| join.to);
                let problem = format!(
                    "{} has hostIsolation and must share its host with processing element {}: {}",
                    self.format_operator(by),
                    quoted(&self.spec.processing_elements[nearest].name),
                    format_joins(self.spec, self.closure, &[by.element, nearest])
                );
                let remedy = "remove hostIsolation, or the constraint that joins them (hostColocation, host)";
                self.report(Reason::IsolationShared, problem, remedy);
            }
            if self.spec.enforcement == Enforcement::Required {
                self.check_common_host(unit.claims.iter().filter(|claim| claim.first));
                self.check_exclusive_pools(unit);
            } else {
                for element in &unit.elements {
                    self.check_common_host(unit.claims_of(*element, Enforcement::Preferred));
                }
            }
        }
    }

    /// Reports a finding if no host satisfies all of these claims.
    fn check_common_host(&mut self, claims: impl Iterator<Item = &'c Claim> + Clone) {
        // Nearly always there is at most one claim, which cannot contradict another.
        let mut first_two = claims.clone().take(2);
        if let (only, None) = (first_two.next(), first_two.next()) {
            only.into_iter().for_each(|claim| _ = self.find_pinned_node(claim));
            return;
        }
        let mut all = Vec::new();
        for claim in claims {
            let Some(allowed) = self.find_allowed(claim) else { return };
            all.push((claim, allowed));
        }
        if self.has_common_host(&all) {
            return;
        }
        // From the end, so that of several contradictions the first one is reported.
        for number in (0..all.len()).rev() {
            let claim = all.remove(number);
            if self.has_common_host(&all) {
                all.insert(number, claim);
            }
        }
        // If no node satisfies a claim alone, `check_pools` reports its pool.
        if let [_, _, ..] = all.as_slice() {
            let claims: Vec<&Claim> = all.iter().map(|(claim, _)| *claim).collect();
            self.report_no_common_host(&claims);
        }
    }

    /// Returns true if one host may satisfy all of these claims.
    fn has_common_host(&self, claims: &[(&Claim, Allowed<'c>)]) -> bool {
        let mut left: Option<Vec<&str>> = None;
        let mut tags: Vec<Box<str>> = Vec::new();
        let mut members: HashMap<usize, u32> = HashMap::new();
        let mut exclusive: Option<usize> = None;
        for (claim, allowed) in claims {
            if let Location::Pool { pool, index } = claim.location {
                if index.is_some_and(|index| *members.entry(pool).or_insert(index) != index) {
                    return false;
                }
                if self.closure.pools[pool].exclusive && *exclusive.get_or_insert(pool) != pool {
                    return false;
                }
            }
            left = match (left, &allowed.nodes) {
                (left, None) => left,
                (None, Some(nodes)) => Some(nodes.clone()),
                (Some(left), Some(nodes)) => {
                    Some(left.into_iter().filter(|node| nodes.contains(node)).collect())
                }
            };
            tags.extend_from_slice(&allowed.tags);
            if left.as_ref().is_some_and(Vec::is_empty) {
                return false;
            }
        }
        match left {
            None => self.view.nodes_with_tags(&tags) > 0,
            Some(left) => left.into_iter().any(|node| {
                self.view.node(node).is_some() && has_tags(self.view.node_tags(node), &tags)
            }),
        }
    }

    /// Returns the nodes that a claim allows; `None` if the claim or its pool is invalid.
    fn find_allowed(&mut self, claim: &'c Claim) -> Option<Allowed<'c>> {
        let these = |nodes| Some(Allowed { nodes: Some(nodes), tags: Vec::new() });
        let closure = self.closure;
        let Location::Pool { pool, index } = &claim.location else {
            return these(vec![self.find_pinned_node(claim)?]);
        };
        match closure.pools[*pool].form.as_ref().ok()? {
            Form::Literal(_) if index.is_some() => these(vec![self.find_pinned_node(claim)?]),
            Form::Literal(hosts) => {
                these(hosts.iter().filter_map(|host| self.nodes.get(host).copied()?).collect())
            }
            form => Some(Allowed { nodes: None, tags: form.tags().keys.clone() }),
        }
    }

    fn report_no_common_host(&mut self, claims: &[&Claim]) {
        let parts = format_claims(self.spec, claims.iter().copied(), |pool| self.format_pool(pool));
        let all = if parts.len() == 2 { "both" } else { "all of these" };
        let elements: Vec<usize> = claims.iter().map(|claim| claim.by.element).collect();
        let problem = format!(
            "{}, and no host is {all}, but they must share a host: {}",
            parts.join(", "),
            format_joins(self.spec, self.closure, &elements)
        );
        let remedy = "ask for one host in all of them, or remove the constraint that joins them (hostColocation, host, fusion)";
        self.report(Reason::NoCommonHost, problem, remedy);
    }

    /// Checks that no element of a unit asks for another host if one of them is in an exclusive
    /// pool: it could not run on the pool's host, or would run there without being part of the
    /// pool.
    fn check_exclusive_pools(&mut self, unit: &Unit) {
        let of_pool = |claim: &&Claim| match claim.location {
            Location::Pool { pool, .. } => self.closure.pools[pool].exclusive.then_some(pool),
            Location::Host(_) => None,
        };
        let Some((inside, pool)) =
            unit.claims.iter().find_map(|claim| Some((claim, of_pool(&claim)?)))
        else {
            return;
        };
        let members: HashSet<usize> = unit
            .claims
            .iter()
            .filter(|claim| of_pool(claim) == Some(pool))
            .map(|claim| claim.by.element)
            .collect();
        let outside = unit.claims.iter().find(|claim| !members.contains(&claim.by.element));
        if let Some(outside) = outside {
            let problem = format!(
                "{} is in exclusive {}, {} asks for {}, and they must share a host: {}",
                self.format_operator(inside.by),
                self.format_pool(pool),
                self.format_operator(outside.by),
                self.format_location(&outside.location),
                format_joins(self.spec, self.closure, &[inside.by.element, outside.by.element])
            );
            let remedy = "ask for the exclusive pool in both, or remove the host of the second: it must run with the first";
            self.report(Reason::ExclusivePoolSplit, problem, remedy);
        }
    }

    /// Checks exlocation: units with the same token must not be pinned to one node, and must not be
    /// more than their pool has hosts.
    pub(super) fn check_exlocation(&mut self) {
        let closure = self.closure;
        let mut by_token: HashMap<&str, Vec<(&'c Unit, Operator)>> = HashMap::new();
        let mut order = Vec::new();
        for unit in &closure.units {
            for exlocation in &unit.exlocations {
                let units = by_token.entry(&exlocation.token).or_insert_with(|| {
                    order.push(&*exlocation.token);
                    Vec::new()
                });
                units.push((unit, exlocation.by));
            }
        }
        for token in order {
            let units = by_token.remove(token).unwrap_or_default();
            let mut on_node: HashMap<&str, (Operator, &Claim)> = HashMap::new();
            let mut in_pool: HashMap<usize, Vec<(Operator, &Claim)>> = HashMap::new();
            for (unit, by) in &units {
                if let Some((node, claim)) = self.find_pinned(unit)
                    && let Some(other) = on_node.insert(node, (*by, claim))
                {
                    let problem = format!(
                        "{} and {} must be apart (hostExlocation {}), and node {node} is the host of both{}",
                        self.format_operator(other.0),
                        self.format_operator(*by),
                        quoted(token),
                        self.format_claimants(&[other, (*by, claim)])
                    );
                    let remedy = "ask for different hosts, or remove the token from one of them";
                    self.report(Reason::ExlocatedTogether, problem, remedy);
                }
                for (pool, claim) in find_pools(unit) {
                    let mut claims = unit.claims.iter();
                    let own = claims.find(|of| {
                        of.by.element == by.element
                            && matches!(of.location, Location::Pool { pool: of, .. } if of == pool)
                    });
                    in_pool.entry(pool).or_default().push((*by, own.unwrap_or(claim)));
                }
            }
            for (index, pool) in closure.pools.iter().enumerate() {
                let groups = in_pool.get(&index).map(Vec::as_slice).unwrap_or_default();
                let wanted = u32::try_from(groups.len()).unwrap_or(u32::MAX);
                if let Some(size) = exceeded_size(pool, wanted) {
                    let problem = format!(
                        "{wanted} groups of processing elements must be apart (hostExlocation {}) in {}, which has {}{}",
                        quoted(token),
                        self.format_pool(index),
                        counted(to_usize(size), "host"),
                        self.format_claimants(groups)
                    );
                    let remedy =
                        "make the pool larger, or remove operators from the pool or from the token";
                    self.report(Reason::TooManyExlocated, problem, remedy);
                }
            }
        }
    }

    /// Says why the elements of these operators must be where others claim a host, as the end of a
    /// sentence. Empty if all of them claim it themselves.
    fn format_claimants(&self, of: &[(Operator, &Claim)]) -> String {
        let others = of.iter().filter(|(by, claim)| by.element != claim.by.element);
        let joins: Vec<String> = others
            .map(|(by, claim)| {
                format_joins(self.spec, self.closure, &[by.element, claim.by.element])
            })
            .collect();
        if joins.is_empty() { String::new() } else { format!(": {}", some(&joins)) }
    }

    /// Checks isolation: an isolated element must not be pinned to the node of another element, and
    /// needs a host of its pool for itself.
    pub(super) fn check_isolation(&mut self) {
        let closure = self.closure;
        if closure.isolated.is_empty() {
            return;
        }
        // The first unit of each node. Isolated units are visited before the others.
        let mut on_node: HashMap<&str, (&Unit, Operator)> = HashMap::new();
        let mut in_pool: HashMap<usize, (u32, bool)> = HashMap::new();
        let (isolated, others): (Vec<&Unit>, Vec<&Unit>) =
            closure.units.iter().partition(|unit| unit.isolated.is_some());
        for unit in isolated.into_iter().chain(others) {
            for (pool, _) in find_pools(unit) {
                let (alone, shared) = in_pool.entry(pool).or_default();
                match unit.isolated {
                    Some(_) => *alone += 1,
                    None => *shared = true,
                }
            }
            let Some((node, Claim { by, .. })) = self.find_pinned(unit) else { continue };
            let by = *by;
            let (first, isolated) = *on_node.entry(node).or_insert((unit, by));
            if !std::ptr::eq(first, unit) && first.isolated.is_some() {
                let problem = format!(
                    "{} has hostIsolation, and node {node} is also the host of {}",
                    self.format_operator(first.isolated.unwrap_or(isolated)),
                    self.format_operator(by)
                );
                let remedy = "ask for another host in one of them, or remove hostIsolation";
                self.report(Reason::IsolationShared, problem, remedy);
            }
        }
        for (index, pool) in closure.pools.iter().enumerate() {
            let Some((alone, shared)) = in_pool.get(&index) else { continue };
            let wanted = alone + u32::from(*shared && *alone > 0);
            if let Some(size) = exceeded_size(pool, wanted) {
                let problem = format!(
                    "{} with hostIsolation{} need {} of {}, which has {size}",
                    counted(to_usize(*alone), "processing element"),
                    if *shared { " and the other elements of the pool" } else { "" },
                    counted(to_usize(wanted), "host"),
                    self.format_pool(index)
                );
                let remedy = "make the pool larger, or remove operators from the pool";
                self.report(Reason::TooManyExlocated, problem, remedy);
            }
        }
    }
}

/// The pools that a unit must be in, each with the first of the claims that say so.
fn find_pools(unit: &Unit) -> BTreeMap<usize, &Claim> {
    let mut pools = BTreeMap::new();
    for claim in &unit.claims {
        if let Location::Pool { pool, .. } = claim.location {
            pools.entry(pool).or_insert(claim);
        }
    }
    pools
}

/// The size of a pool if `wanted` hosts are more than it has.
fn exceeded_size(pool: &JobPool, wanted: u32) -> Option<u32> {
    pool.size().filter(|size| wanted > *size)
}
