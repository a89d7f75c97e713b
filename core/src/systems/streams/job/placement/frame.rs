//! Writes a job and the nodes as a [`Problem`].

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::MissingNode;
use super::fixed::{Fixed, host_of, named_hosts};
use crate::systems::streams::api::streams_job::{Enforcement, StreamsJobSpec};
use crate::systems::streams::job::sites::{Sites, State};
use crate::systems::streams::kinds::{Closure, Form, Host, Location, closure, to_usize};
use crate::systems::streams::owners::Owner;
use crate::systems::streams::resolve::find_node;
use crate::systems::streams::witness::{
    Claim, Class, Classes, Place, Pool, Problem, Unit, Witness,
};
use crate::view::Name;

/// A job as a problem, and what the numbers in it mean.
#[derive(Debug)]
pub(crate) struct Frame<'f, 'v> {
    pub(super) spec: &'f StreamsJobSpec,
    pub(super) closure: &'f Closure,
    pub(super) problem: Problem,
    /// The index in the spec of each pool of the problem.
    pub(super) pools: Vec<usize>,
    /// The elements of each unit. Empty: pods of the job that are no elements.
    pub(super) elements: Vec<Vec<usize>>,
    /// The claims of each unit.
    pub(super) claims: Vec<Vec<&'f closure::Claim>>,
    /// The exlocation tokens, by their numbers.
    pub(super) tokens: Vec<&'f str>,
    pub(super) sites: &'f Sites<'v>,
    pub(super) fixed: &'f Fixed<'f>,
    classes: Vec<Framed<'f, 'v>>,
    /// The class of each node that the job refers to. Nodes that it refers to by themselves are classes of one.
    class_of: BTreeMap<&'v str, usize>,
}

/// A class of the problem: its nodes, and their state.
#[derive(Debug)]
struct Framed<'f, 'v> {
    nodes: Nodes<'v>,
    /// The state of its nodes; `None`: they do not exist yet.
    state: Option<&'f State<'v>>,
    /// The pools without marks that list its nodes.
    listed: BTreeSet<usize>,
}

/// The nodes of a class.
#[derive(Clone, Debug)]
enum Nodes<'v> {
    /// These nodes. The list is empty for nodes that do not exist yet.
    These(Vec<&'v str>),
    /// The nodes of a group that the job does not refer to.
    RestOf(usize),
}

impl<'f, 'v> Frame<'f, 'v> {
    pub(crate) fn new(
        spec: &'f StreamsJobSpec,
        sites: &'f Sites<'v>,
        fixed: &'f Fixed<'f>,
    ) -> Self {
        let closure = &fixed.job.closure;
        let pools = (0..closure.pools.len()).filter(|pool| closure.pools[*pool].is_labelled());
        let mut frame = Self {
            spec,
            closure,
            problem: Problem::default(),
            pools: pools.collect(),
            elements: Vec::new(),
            claims: Vec::new(),
            tokens: Vec::new(),
            sites,
            fixed,
            classes: Vec::new(),
            class_of: BTreeMap::new(),
        };
        frame.list_classes();
        frame.problem.open = frame.classes_where(|state| frame.is_open(state));
        frame.problem.pools = frame.pools.iter().map(|pool| frame.frame_pool(*pool)).collect();
        add_units(&mut frame);
        frame
    }

    /// The node of a place; `None`: one that does not exist yet.
    pub(super) fn node(&self, place: Place) -> Option<&'v str> {
        match &self.classes.get(place.class)?.nodes {
            Nodes::These(nodes) => nodes.get(place.number).copied(),
            Nodes::RestOf(group) => {
                let nodes = self.sites.groups[*group].nodes.iter().copied();
                nodes.filter(|node| !self.class_of.contains_key(node)).nth(place.number)
            }
        }
    }

    /// The members that a pool of the problem has from the start.
    pub(super) fn member_nodes(&self, pool: usize) -> Vec<&str> {
        let members = self.problem.pools[pool].members.values();
        members.filter_map(|class| self.node(Place::only(*class))).collect()
    }

    /// The nodes of a placement that do not exist.
    pub(super) fn missing_nodes(&self, witness: &Witness) -> Vec<MissingNode> {
        let mut missing: BTreeMap<Place, MissingNode> = BTreeMap::new();
        let mut of = |place: &Place, add: &dyn Fn(&mut MissingNode)| {
            if self.node(*place).is_none() {
                add(missing.entry(*place).or_default());
            }
        };
        for (number, members) in witness.pools.iter().enumerate() {
            let (pool, is_alone) = (self.pools[number], self.problem.pools[number].exclusive);
            for place in members.values() {
                of(place, &|node| {
                    node.pools.push(pool);
                    node.is_alone |= is_alone;
                });
            }
        }
        for (number, place) in witness.units.iter().enumerate() {
            of(place, &|node| {
                node.elements.extend(&self.elements[number]);
                node.is_alone |= self.problem.units[number].alone;
            });
        }
        missing.into_values().collect()
    }

    /// The nodes that the job refers to by themselves, each with its group.
    fn find_singles(&self) -> BTreeMap<&'v str, usize> {
        let pods = &self.fixed.pods;
        let mut nodes: BTreeSet<&str> = BTreeSet::new();
        nodes.extend(pods.running.values().chain(pods.reserved.values()).chain(&pods.strangers));
        nodes.extend(pods.closed.values().flatten());
        nodes.extend(named_hosts(self.closure).filter_map(|host| self.find_node(host)));
        let pools = 0..self.closure.pools.len();
        nodes.extend(pools.flat_map(|pool| self.find_members(pool).into_values()));
        nodes.into_iter().filter_map(|node| self.sites.find(node)).collect()
    }

    fn find_node(&self, host: &'f Host) -> Option<&'f str> {
        find_node(self.fixed.view, host)
    }

    /// The members that a pool has already.
    fn find_members(&self, pool: usize) -> BTreeMap<u32, &'f str> {
        let Some(found) = self.fixed.pools.get(&pool) else { return BTreeMap::new() };
        let size = self.closure.pools[pool].size().unwrap_or_default();
        let is_there =
            |(index, node): &(u32, &str)| *index < size && self.sites.state(node).is_some();
        found.status.nodes().filter(is_there).collect()
    }

    /// The pools without marks that list a node, by the node and its group.
    fn find_listed(&self) -> BTreeMap<(&'v str, usize), BTreeSet<usize>> {
        let mut listed: BTreeMap<(&str, usize), BTreeSet<usize>> = BTreeMap::new();
        for (number, pool) in self.closure.pools.iter().enumerate() {
            let Ok(Form::Literal(hosts)) = &pool.form else { continue };
            if pool.exclusive {
                continue;
            }
            let nodes = hosts.iter().filter_map(|host| self.find_node(host));
            for site in nodes.filter_map(|node| self.sites.find(node)) {
                listed.entry(site).or_default().insert(number);
            }
        }
        listed
    }

    fn list_classes(&mut self) {
        let sites = self.sites;
        let mut listed = self.find_listed();
        for (node, group) in self.find_singles() {
            self.class_of.insert(node, self.classes.len());
            let pools = listed.remove(&(node, group)).unwrap_or_default();
            self.add_class(&sites.groups[group].state, pools, 1, Nodes::These(vec![node]));
        }
        let mut equal: BTreeMap<(usize, BTreeSet<usize>), Vec<&'v str>> = BTreeMap::new();
        for ((node, group), pools) in listed {
            equal.entry((group, pools)).or_default().push(node);
        }
        for ((group, pools), nodes) in equal {
            self.class_of.extend(nodes.iter().map(|node| (*node, self.classes.len())));
            let state = &sites.groups[group].state;
            self.add_class(state, pools, nodes.len(), Nodes::These(nodes));
        }
        let mut explicit = vec![0; sites.groups.len()];
        for (_, group) in self.class_of.keys().filter_map(|node| sites.find(node)) {
            explicit[group] += 1;
        }
        for (group, of) in sites.groups.iter().enumerate() {
            let count = of.nodes.len() - explicit[group];
            if count > 0 {
                self.add_class(&of.state, BTreeSet::new(), count, Nodes::RestOf(group));
            }
        }
        if self.fixed.with_more_nodes {
            let pools = self.closure.pools.iter();
            let members: usize = pools.filter_map(|pool| pool.size()).map(to_usize).sum();
            let elements = self.closure.units.iter().map(|unit| unit.elements.len());
            let count = members + elements.sum::<usize>();
            self.problem.classes.push(Class { count, rank: u8::MAX });
            let (nodes, listed) = (Nodes::These(Vec::new()), BTreeSet::new());
            self.classes.push(Framed { nodes, state: None, listed });
        }
    }

    fn add_class(
        &mut self,
        state: &'f State<'v>,
        listed: BTreeSet<usize>,
        count: usize,
        nodes: Nodes<'v>,
    ) {
        let Name { namespace, name } = self.fixed.name;
        let own = (&**namespace, &**name);
        // First the nodes that every pod may use, that no other job needs, and that no pool of this one lists.
        let is_named = state.named_by.iter().any(|job| *job != own);
        let is_reluctant = is_named || state.site.limits.control_plane;
        let rank = u8::from(!listed.is_empty())
            + 2 * u8::from(is_reluctant)
            + 4 * u8::from(state.site.limits.tainted);
        self.problem.classes.push(Class { count, rank });
        self.classes.push(Framed { nodes, state: Some(state), listed });
    }

    /// Returns the classes of nodes whose state satisfies `is`. Nodes that do not exist yet satisfy it.
    fn classes_where(&self, is: impl Fn(&State<'v>) -> bool) -> Classes {
        let mut classes = Classes::with_capacity(self.classes.len());
        for (class, of) in self.classes.iter().enumerate() {
            classes.set(class, of.state.is_none_or(&is));
        }
        classes
    }

    /// Returns true if an element that asks for no host may be on a node in this state.
    fn is_open(&self, state: &State<'_>) -> bool {
        state.site.is_open() && self.is_reachable(state)
    }

    /// Returns true if no exclusive pool but the job's own has the nodes in this state.
    fn is_reachable(&self, state: &State<'_>) -> bool {
        state.exclusive.is_none_or(|hash| self.fixed.is_own(hash))
    }

    /// Writes a pool whose members are marked as a pool of the problem.
    fn frame_pool(&self, number: usize) -> Pool {
        let pool = &self.closure.pools[number];
        let is_free = |state: &State<'_>| {
            self.fixed.find_obstacle(number, self.sites, state, &|_| Owner::Gone).is_none()
        };
        let members = self.find_members(number).into_iter();
        let mut members: BTreeMap<u32, usize> =
            members.filter_map(|(index, node)| Some((index, *self.class_of.get(node)?))).collect();
        let tags = match &pool.form {
            Ok(Form::Sized(_, tags)) => Some(tags),
            _ => None,
        };
        let eligible = self.classes_where(|state| {
            tags.is_some_and(|tags| tags.are_among(state.site.tags)) && is_free(state)
        });
        if let Ok(Form::Literal(hosts)) = &pool.form {
            for (index, host) in (0..).zip(hosts) {
                let class = self.find_node(host).and_then(|node| self.class_of.get(node));
                let has_free = |class: &&usize| self.classes[**class].state.is_some_and(is_free);
                if let Some(class) = class.filter(has_free) {
                    members.entry(index).or_insert(*class);
                }
            }
        }
        // The node on which a pod that asked for a member runs becomes that member.
        for unit in &self.closure.units {
            let index = unit.claims.iter().find_map(|claim| match claim.location {
                Location::Pool { pool, index } if pool == number => index,
                _ => None,
            });
            let mut nodes = unit.elements.iter().filter_map(|of| self.fixed.pods.running.get(of));
            let class = nodes.next().and_then(|node| self.class_of.get(*node));
            if let (Some(index), Some(class)) = (index, class)
                && eligible[*class]
                && !members.values().any(|of| of == class)
            {
                members.entry(index).or_insert(*class);
            }
        }
        let size = pool.size().map_or(0, to_usize);
        Pool { size, required: true, exclusive: pool.exclusive, eligible, members }
    }

    /// The classes of a location that is no member of a marked pool. `None`: all that are open.
    fn frame_location(&self, location: &'f Location) -> Option<Classes> {
        let host = host_of(self.closure, location);
        if let Some(node) = host.and_then(|host| self.find_node(host)) {
            let mut classes = Classes::with_capacity(self.classes.len());
            let single = self.class_of.get(node).copied();
            let may = |class: &usize| {
                self.classes[*class].state.is_some_and(|state| self.is_reachable(state))
            };
            single.filter(may).into_iter().for_each(|class| classes.insert(class));
            return Some(classes);
        }
        let Location::Pool { pool, index: None } = location else {
            // A host that does not exist yet: any of the nodes that do not.
            return Some(self.classes_where(|_| false));
        };
        match &self.closure.pools[*pool].form {
            Ok(Form::Literal(_)) => {
                let mut classes = self.classes_where(|state| self.is_open(state));
                let is_listed = |class: &usize| self.classes[*class].listed.contains(pool);
                let others: Vec<usize> = classes.ones().filter(|class| !is_listed(class)).collect();
                others.into_iter().for_each(|class| classes.set(class, false));
                Some(classes)
            }
            Ok(Form::Tagged(tags)) => {
                let has_tags = |state: &State<'_>| tags.are_among(state.site.tags);
                Some(self.classes_where(|state| has_tags(state) && self.is_open(state)))
            }
            _ => None,
        }
    }
}

/// Adds all units. If colocation, exlocation and isolation are only preferred, each element is a unit by
/// itself, with only its own hosts.
fn add_units(frame: &mut Frame<'_, '_>) {
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
    for node in units.frame.fixed.pods.strangers.iter().filter(|_| is_required) {
        if let Some(class) = units.frame.class_of.get(*node).copied() {
            units.push(Unit { at: Some(class), ..Unit::default() }, &[], Vec::new());
        }
    }
}

/// The state of adding units to a frame.
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
            // Affinities between pods do not work on nodes without the hostname label.
            let is_bound_to_others =
                !framed.tokens.is_empty() || framed.alone || unit.group.is_some();
            if let Some(named) = self.named.as_ref().filter(|_| is_bound_to_others) {
                framed.restrict_to(named.clone(), &self.frame.problem.open);
            }
        }
        let frame = &*self.frame;
        let pods = &frame.fixed.pods;
        let class = |node: &&str| frame.class_of.get(*node).copied();
        let of_elements = |nodes: &BTreeMap<usize, &'f str>| {
            elements.iter().find_map(|element| nodes.get(element).and_then(class))
        };
        framed.at = of_elements(&pods.running);
        framed.preferred = of_elements(&pods.reserved);
        let closed: Vec<usize> = elements
            .iter()
            .filter_map(|element| pods.closed.get(element))
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
