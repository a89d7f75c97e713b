//! Says which constraints of a job contradict each other.

use std::collections::{BTreeMap, BTreeSet};

use super::frame::Frame;
use crate::placement::reason::{Finding, Reason, quoted};
use crate::systems::check::words::{counted, some};
use crate::systems::streams::job::check::{format_claims, format_joins};
use crate::systems::streams::job::sites::State;
use crate::systems::streams::kinds::Form;
use crate::systems::streams::obstacle::{Obstacle, format_nodes};
use crate::systems::streams::owners::{Owner, find_pool};
use crate::systems::streams::resolve::find_node;
use crate::systems::streams::witness::{self, Budget, Constraint, Pool, find_contradiction};

/// The units of which a finding says what joins their elements: the message is limited, and each one costs a
/// walk over the operators of the job.
const MOST_JOINED: usize = 3;

impl Frame<'_, '_> {
    /// Explains why the job cannot be placed: by an irreducible set of its constraints, unless the budget ends.
    pub(super) fn explain(&self, with_more_nodes: bool, budget: &mut Budget) -> Finding {
        let found = find_contradiction(&self.problem, budget);
        let (mut required, mut exclusive) = (BTreeSet::new(), BTreeSet::new());
        let (mut placed, mut alone) = (Vec::new(), Vec::new());
        let mut apart: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for constraint in &found.constraints {
            match *constraint {
                Constraint::Required { pool } => _ = required.insert(pool),
                Constraint::Exclusive { pool } => _ = exclusive.insert(pool),
                Constraint::Placed { unit } => placed.push(unit),
                Constraint::Token { unit, token } => apart.entry(token).or_default().push(unit),
                Constraint::Alone { unit } => alone.push(unit),
            }
        }
        let needs = required.iter().map(|pool| (*pool, exclusive.contains(pool)));
        let mut parts: Vec<String> =
            needs.map(|(pool, exclusive)| self.format_required(pool, exclusive)).collect();
        let holders = required.iter().flat_map(|pool| self.find_holders(*pool));
        let of_units = placed.iter().flat_map(|unit| self.find_holders_for(*unit));
        let has: BTreeSet<usize> =
            holders.chain(of_units).chain(exclusive.iter().copied()).collect();
        parts.extend(has.difference(&required).map(|pool| self.format_members(*pool)));
        let claims = placed.iter().map(|unit| self.format_claims(*unit));
        parts.extend(claims.filter(|claims| !claims.is_empty()));
        for (token, units) in &apart {
            let units: Vec<String> = units.iter().map(|unit| self.format_unit(*unit)).collect();
            let token = quoted(self.tokens[*token]);
            parts.push(format!("{} must be apart (hostExlocation {token})", some(&units)));
        }
        parts.extend(
            alone.iter().map(|unit| format!("{} has hostIsolation", self.format_unit(*unit))),
        );
        let joined = placed.iter().filter_map(|unit| self.format_joined(*unit));
        parts.extend(joined.take(MOST_JOINED));
        // Units of which only their being somewhere matters.
        let is_plain = |unit: &&usize| {
            let is_apart = alone.contains(unit) || apart.values().any(|of| of.contains(unit));
            self.claims[**unit].is_empty() && !is_apart
        };
        let plain = placed.iter().filter(is_plain).map(|unit| self.format_unit(*unit));
        let plain: Vec<String> = plain.collect();
        if !plain.is_empty() {
            let verb = if plain.len() == 1 { "needs" } else { "need" };
            parts.push(format!("{} {verb} a node", some(&plain)));
        }
        let open = self.problem.open.ones().map(|class| self.problem.classes[class].count);
        let open = format!("{} can take pods", counted(open.sum(), "node"));
        let ineligible = required.iter().flat_map(|pool| self.find_ineligible(*pool));
        let named: BTreeSet<&str> = ineligible.flat_map(|(_, nodes)| nodes).collect();
        let mut closed = if with_more_nodes { self.find_closed() } else { BTreeMap::new() };
        let cordoned = closed.get(&Obstacle::Cordoned).and_then(|nodes| nodes.first().copied());
        closed.values_mut().for_each(|nodes| nodes.retain(|node| !named.contains(node)));
        closed.retain(|_, nodes| !nodes.is_empty());
        let closed = format_nodes(&closed);
        let open = if closed.is_empty() { open } else { format!("{open}; {closed}") };
        if parts.is_empty() {
            parts.push("no element of it finds a node".to_owned());
        }
        let what = parts.join("; ");
        let certainty = match found.is_irreducible {
            true => "these cannot hold together",
            false => "not all of these can hold together",
        };
        let problem = match parts.len() {
            1 => format!("{what}, and no placement satisfies that ({open})"),
            _ => format!("{certainty} ({open}): {what}"),
        };
        let more = "add nodes, free some, or create the job with other constraints";
        let remedy = match (with_more_nodes, cordoned) {
            (true, Some(node)) => format!("open nodes (`kubectl uncordon {node}`), {more}"),
            (true, None) => more.to_owned(),
            (false, _) => {
                "create the job with other constraints: more nodes would not help".to_owned()
            }
        };
        let reason =
            if with_more_nodes { Reason::InsufficientNodes } else { Reason::Contradiction };
        Finding::new(reason, format!("StreamsJob {}", self.fixed.name.name), problem, remedy)
    }

    /// `pool "P" needs 3 nodes tagged ib for itself (2 eligible)`. `exclusive`: it matters that it has them
    /// for itself.
    fn format_required(&self, number: usize, exclusive: bool) -> String {
        let pool = self.pools[number];
        let (of, framed) = (&self.closure.pools[pool], &self.problem.pools[number]);
        let name = quoted(&self.spec.pools[pool].name);
        let exclusive = if exclusive { " for itself" } else { "" };
        let tagged = of.form.iter().map(|form| form.tags().to_string()).collect::<String>();
        let nodes = counted(framed.size, "node");
        if let Ok(Form::Literal(_)) = &of.form {
            let all = if framed.size == 1 { "its listed node" } else { "all of its listed nodes" };
            let missing = framed.size.saturating_sub(framed.members.len());
            let free = match missing {
                0 => String::new(),
                missing => format!(
                    ", of which {missing} cannot be had now{}",
                    self.format_ineligible(number, ": ")
                ),
            };
            return format!("pool {name} needs {all}{exclusive}{free}");
        }
        let has = framed.members.values();
        let mut eligible = framed.eligible.clone();
        has.clone().for_each(|class| eligible.set(*class, false));
        for holder in self.find_holders(number) {
            let members = self.problem.pools[holder].members.values();
            members.for_each(|class| eligible.set(*class, false));
        }
        let eligible: usize =
            eligible.ones().map(|class| self.problem.classes[class].count).sum::<usize>()
                + has.count();
        let others = self.format_ineligible(number, "; ");
        format!("pool {name} needs {nodes}{tagged}{exclusive} ({eligible} eligible{others})")
    }

    /// Finds the nodes that take no pods, and could be opened.
    fn find_closed(&self) -> BTreeMap<Obstacle<'_>, BTreeSet<&str>> {
        let mut closed: BTreeMap<Obstacle<'_>, BTreeSet<&str>> = BTreeMap::new();
        let groups = self.sites.groups.iter().filter(|group| !group.state.site.is_open());
        for group in groups {
            if let Some(obstacle @ (Obstacle::NotReady | Obstacle::Cordoned)) =
                group.state.site.unfit()
            {
                closed.entry(obstacle).or_default().extend(&group.nodes);
            }
        }
        closed
    }

    /// Formats the nodes that a pool asks for by its tags or lists and cannot have: some of them, each with its
    /// obstacle, after `before`. Empty: there are none.
    fn format_ineligible(&self, number: usize, before: &str) -> String {
        let obstacles = self.find_ineligible(number);
        match obstacles.is_empty() {
            true => String::new(),
            false => format!("{before}{}", format_nodes(&obstacles)),
        }
    }

    /// Finds the nodes that a pool asks for by its tags or lists and cannot have, by their obstacles.
    fn find_ineligible(&self, number: usize) -> BTreeMap<Obstacle<'_>, BTreeSet<&str>> {
        let pool = self.pools[number];
        let of = &self.closure.pools[pool];
        let (view, sites) = (self.fixed.view, self.sites);
        let owner = |hash: &str| Owner::new(find_pool(hash, view), &self.fixed.name.namespace);
        let of_state = |state: &State<'_>| self.fixed.find_obstacle(pool, sites, state, &owner);
        let mut obstacles: BTreeMap<Obstacle<'_>, BTreeSet<&str>> = BTreeMap::new();
        match &of.form {
            Ok(Form::Sized(_, tags)) => {
                for group in &sites.groups {
                    if tags.are_among(group.state.site.tags)
                        && let Some(obstacle) = of_state(&group.state)
                    {
                        obstacles.entry(obstacle).or_default().extend(&group.nodes);
                    }
                }
            }
            Ok(Form::Literal(hosts)) => {
                for node in hosts.iter().filter_map(|host| find_node(view, host)) {
                    if let Some(obstacle) = sites.state(node).and_then(of_state) {
                        obstacles.entry(obstacle).or_default().insert(node);
                    }
                }
            }
            _ => {}
        }
        let members: BTreeSet<&str> = self.member_nodes(number).into_iter().collect();
        obstacles.retain(|_, nodes| {
            nodes.retain(|node| !members.contains(node));
            !nodes.is_empty()
        });
        obstacles
    }

    /// The other pools of the job whose members a pool could have if they were not theirs.
    fn find_holders(&self, number: usize) -> Vec<usize> {
        let pool = &self.problem.pools[number];
        let others = self.problem.pools.iter().enumerate().filter(|(other, _)| *other != number);
        let holds = |other: &(usize, &Pool)| {
            (pool.exclusive || other.1.exclusive)
                && other.1.members.values().any(|class| pool.eligible[*class])
        };
        others.filter(holds).map(|(other, _)| other).collect()
    }

    /// The other pools of the job because of whose members the pools that a unit claims cannot have a
    /// node on which the unit must be.
    fn find_holders_for(&self, unit: usize) -> Vec<usize> {
        let witness::Location { within, members } =
            self.problem.location(&self.problem.units[unit]);
        let Some(within) = within else { return Vec::new() };
        let pools = members.iter().map(|(pool, _)| *pool);
        let holders = pools.flat_map(|pool| self.find_holders(pool));
        let is_there = |of: &usize| self.problem.pools[*of].members.values().any(|at| within[*at]);
        holders.filter(is_there).collect()
    }

    /// `pool "P" has nodes n1 and n2 for itself`.
    fn format_members(&self, number: usize) -> String {
        let name = quoted(&self.spec.pools[self.pools[number]].name);
        let pool = &self.problem.pools[number];
        let nodes = self.member_nodes(number);
        let nodes = match nodes.as_slice() {
            [] => "its nodes".to_owned(),
            [node] => format!("node {node}"),
            _ => format!("nodes {}", some(&nodes)),
        };
        let alone = if pool.exclusive { " for itself" } else { "" };
        format!("pool {name} has {nodes}{alone}")
    }

    /// Formats the locations that the operators of a unit ask for.
    fn format_claims(&self, unit: usize) -> String {
        let claims = self.claims[unit].iter().copied();
        let parts = format_claims(self.spec, claims, |pool| {
            let name = quoted(&self.spec.pools[pool].name);
            let exclusive = if self.closure.pools[pool].exclusive { "exclusive " } else { "" };
            format!("{exclusive}pool {name}")
        });
        parts.join(" and ")
    }

    /// Says what joins the elements of a unit that ask for locations. `None`: only one of them does.
    fn format_joined(&self, unit: usize) -> Option<String> {
        let mut elements: Vec<usize> =
            self.claims[unit].iter().map(|claim| claim.by.element).collect();
        elements.dedup();
        (elements.len() > 1).then(|| format_joins(self.spec, self.closure, &elements))
    }

    /// `processing element "a"`, `the group of processing elements "a" and "b"`.
    fn format_unit(&self, unit: usize) -> String {
        let names: Vec<String> = self.elements[unit]
            .iter()
            .map(|element| quoted(&self.spec.processing_elements[*element].name))
            .collect();
        match names.as_slice() {
            [] => "a pod of the job that is none of its elements".to_owned(),
            [one] => format!("processing element {one}"),
            _ => format!("the group of processing elements {}", some(&names)),
        }
    }
}
