//! Derives the units of a StreamsJob from its spec: the processing elements that share a host, and
//! the constraints of each unit (Streams design, "Host Constraints"; the Streams compiler uses the
//! same union-find).
//!
//! A processing element has the constraints of all its operators. Two elements belong to one unit
//! if they have a colocation token, a host name or address, or a member of a pool in common. The
//! relation is transitive. The units depend only on the spec and the job's UID, so every pod of the
//! job gets the same unit, regardless of the state of the cluster.
//!
//! Invalid parts of a spec are skipped here. The check (`systems::streams::job::check`) reports
//! them, and no pod of a job that fails it is placed.

use std::collections::{HashMap, HashSet};

use crate::systems::disjoint_sets::DisjointSets;
use crate::systems::streams::api::host_pool::{Exclusivity, HostPoolSpec};
use crate::systems::streams::api::streams_job::{self as api, Enforcement, StreamsJobSpec};
use crate::systems::streams::kinds::host_pool::{self, Form, Host};

/// The longest name of an object.
const LONGEST_NAME: usize = 253;

/// The units and pools of a job. Elements, operators and pools are referred to by their indices in
/// the spec.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Closure {
    /// In the order of the spec.
    pub pools: Vec<JobPool>,
    /// In the order of their first elements. Every element belongs to exactly one unit.
    pub units: Vec<Unit>,
    /// The operators with `hostIsolation`.
    pub isolated: Vec<Operator>,
    /// For each element, the index of its unit in `units`.
    membership: Vec<usize>,
    /// The index of each element by name. If several elements have a name, the first one.
    names: HashMap<Box<str>, usize>,
}

/// A pool of a job.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JobPool {
    /// The name of the HostPool that the controller creates for it.
    pub host_pool: Box<str>,
    /// The form, or why it is invalid.
    pub form: Result<Form, String>,
    /// True if no other job may use its hosts.
    pub exclusive: bool,
}

/// One or more processing elements that share a host.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Unit {
    /// The value of the label `stowplan.dev/colocation-group` if there are several elements: the
    /// start of the hexadecimal SHA-256 of `<the job's UID>/<the first element's name>`.
    pub group: Option<Box<str>>,
    /// In the order of the spec.
    pub elements: Vec<usize>,
    /// The hosts and pools that the unit's operators ask for. Each occurs at most once per element.
    pub claims: Vec<Claim>,
    /// The exlocation tokens of the unit. All of them apply to each of its elements.
    pub exlocations: Vec<Exlocation>,
    /// The first operator of the unit with `hostIsolation`.
    pub isolated: Option<Operator>,
}

/// The position of an operator in the spec.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Operator {
    /// The index of its processing element.
    pub element: usize,
    /// Its index in the element.
    pub operator: usize,
}

/// The host constraint of an operator.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Claim {
    pub by: Operator,
    pub location: Location,
    /// True if it is the unit's first claim with this location.
    pub first: bool,
}

/// `host(...)`.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Location {
    /// One host.
    Host(Host),
    /// A host of a pool of the job.
    Pool {
        /// The pool's index in the spec.
        pool: usize,
        /// The index of a member; `None` for any member.
        index: Option<u32>,
    },
}

/// An exlocation token of a unit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Exlocation {
    pub token: Box<str>,
    /// The first operator with the token.
    pub by: Operator,
    /// Another operator of the unit with the token: the two must be on different hosts, but share
    /// one.
    pub clash: Option<Operator>,
}

impl Closure {
    /// Derives the units and pools of the job with this name and UID.
    pub(crate) fn of(job: &str, uid: &str, spec: &StreamsJobSpec) -> Self {
        let pools: Vec<JobPool> = spec
            .pools
            .iter()
            .map(|pool| JobPool {
                host_pool: host_pool_name(job, &pool.name).into(),
                form: host_pool::form(&host_pool_spec(pool)),
                exclusive: pool.exclusivity == Exclusivity::Exclusive,
            })
            .collect();
        let claims = find_claims(spec);
        let (units, membership) = build_units(uid, spec, &find_roots(spec, &pools, &claims));
        let mut closure = Self { pools, units, membership, ..Self::default() };
        for (index, element) in spec.processing_elements.iter().enumerate() {
            closure.names.entry(element.name.as_str().into()).or_insert(index);
        }
        closure.add_claims(claims);
        closure.add_separation(spec);
        closure
    }

    /// The index of the element with this name.
    pub(crate) fn element(&self, name: &str) -> Option<usize> {
        self.names.get(name).copied()
    }

    /// The index of the unit that an element belongs to.
    pub(crate) fn unit_index(&self, element: usize) -> Option<usize> {
        self.membership.get(element).copied()
    }

    /// The unit that an element belongs to.
    pub(crate) fn unit_of(&self, element: usize) -> Option<&Unit> {
        self.units.get(*self.membership.get(element)?)
    }

    /// Adds the host constraints of operators to their units.
    fn add_claims(&mut self, claims: Vec<(Operator, Location)>) {
        let mut of_unit = HashSet::new();
        let mut of_element = HashSet::new();
        for (by, location) in claims {
            let unit = self.membership[by.element];
            let first = of_unit.insert((unit, location.clone()));
            if of_element.insert((by.element, location.clone())) {
                self.units[unit].claims.push(Claim { by, location, first });
            }
        }
    }

    /// Adds exlocation and isolation of operators to their units.
    fn add_separation(&mut self, spec: &StreamsJobSpec) {
        let mut known: HashMap<(usize, &str), usize> = HashMap::new();
        for (by, operator) in operators(spec) {
            let index = self.membership[by.element];
            let unit = &mut self.units[index];
            for token in &operator.host_exlocation {
                match known.get(&(index, token.as_str())) {
                    None => {
                        known.insert((index, token), unit.exlocations.len());
                        let token = token.as_str().into();
                        unit.exlocations.push(Exlocation { token, by, clash: None });
                    }
                    Some(&position) => {
                        let present = &mut unit.exlocations[position];
                        // One operator may list a token twice.
                        if present.by != by && present.clash.is_none() {
                            present.clash = Some(by);
                        }
                    }
                }
            }
            if operator.host_isolation {
                unit.isolated.get_or_insert(by);
                self.isolated.push(by);
            }
        }
    }
}

impl Unit {
    /// Returns the claims that apply to the pod of an element. If colocation is required, these are the
    /// claims of the whole unit, otherwise only the element's own: a preference must not turn the claims
    /// of other elements into requirements.
    pub(crate) fn claims_of(
        &self,
        element: usize,
        colocation: Enforcement,
    ) -> impl Iterator<Item = &Claim> + Clone {
        self.claims.iter().filter(move |claim| match colocation {
            Enforcement::Required => claim.first,
            Enforcement::Preferred => claim.by.element == element,
        })
    }
}

impl JobPool {
    /// The number of hosts; `None` if it is unlimited or the form is invalid.
    pub(crate) fn size(&self) -> Option<u32> {
        self.form.as_ref().ok()?.size()
    }

    /// Returns true if the controller labels its hosts, so that pods find them by the label.
    pub(crate) fn is_labelled(&self) -> bool {
        self.exclusive || matches!(self.form, Ok(Form::Sized(..)))
    }

    /// The host at an index, if the pool lists its hosts.
    pub(crate) fn listed(&self, index: u32) -> Option<&Host> {
        match &self.form {
            Ok(Form::Literal(hosts)) => hosts.get(usize::try_from(index).ok()?),
            _ => None,
        }
    }
}

/// The spec of the HostPool that the controller creates for a job's pool.
pub(crate) fn host_pool_spec(pool: &api::Pool) -> HostPoolSpec {
    HostPoolSpec {
        hosts: pool.hosts.clone(),
        size: pool.size,
        tags: pool.tags.clone(),
        exclusivity: pool.exclusivity,
    }
}

/// The name of the HostPool that the controller creates for a job's pool: `<job>-<pool>-<hash>`.
/// `<pool>` is the pool's name in lower case with hyphens for underscores. `<hash>` is the first 5
/// hexadecimal digits of the SHA-256 of the unchanged pool name, which distinguishes `My_Pool` from
/// `my_pool`.
///
/// A name that would exceed 253 characters is cut before the hash, which is then the first 10
/// digits of the SHA-256 of `<job>/<pool>`: so long names with the same beginning stay different.
#[must_use]
pub fn host_pool_name(job: &str, pool: &str) -> String {
    let lower = pool.to_ascii_lowercase().replace('_', "-");
    let full = format!("{job}-{lower}-{}", &host_pool::hash(pool)[..5]);
    if full.len() <= LONGEST_NAME {
        return full;
    }
    let hash = host_pool::hash(&format!("{job}/{pool}"));
    // A hyphen and the ten characters of the hash follow.
    let kept: String = format!("{job}-{lower}").chars().take(LONGEST_NAME - 11).collect();
    // After the cut the name may end in a hyphen or a dot, which must not precede the hyphen.
    format!("{}-{hash}", kept.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()))
}

/// The location that an operator's host constraint names; `None` if the constraint is invalid.
pub(crate) fn find_location(host: &api::Host, spec: &StreamsJobSpec) -> Option<Location> {
    match (&host.name, &host.address, &host.pool) {
        (Some(text), None, None) | (None, Some(text), None) => {
            Host::parse(text).ok().map(Location::Host)
        }
        (None, None, Some(name)) => {
            let pool = spec.pools.iter().position(|pool| pool.name == *name)?;
            Some(Location::Pool { pool, index: host.index })
        }
        _ => None,
    }
}

/// Every operator with its position, in the order of the spec.
pub(crate) fn operators(spec: &StreamsJobSpec) -> impl Iterator<Item = (Operator, &api::Operator)> {
    spec.processing_elements.iter().enumerate().flat_map(|(element, processing_element)| {
        let operators = processing_element.operators.iter().enumerate();
        operators.map(move |(operator, written)| (Operator { element, operator }, written))
    })
}

fn find_claims(spec: &StreamsJobSpec) -> Vec<(Operator, Location)> {
    operators(spec)
        .filter_map(|(by, operator)| Some((by, find_location(operator.host.as_ref()?, spec)?)))
        .collect()
}

/// For each element, the first element of its unit.
fn find_roots(
    spec: &StreamsJobSpec,
    pools: &[JobPool],
    claims: &[(Operator, Location)],
) -> Vec<usize> {
    let elements = spec.processing_elements.len();
    let mut sets = DisjointSets::new(elements);
    let mut by_token: HashMap<&str, usize> = HashMap::new();
    for (by, operator) in operators(spec) {
        for token in &operator.host_colocation {
            sets.join(*by_token.entry(token).or_insert(by.element), by.element);
        }
    }
    let mut by_member: HashMap<&Location, usize> = HashMap::new();
    // A member of a pool that lists its hosts is the same location as the listed host itself.
    let mut by_listed: HashMap<&Host, usize> = HashMap::new();
    for (by, location) in claims {
        let first = match location {
            Location::Host(host) => by_listed.entry(host).or_insert(by.element),
            // Two elements that ask for any host of a pool may get different ones.
            Location::Pool { index: None, .. } => continue,
            Location::Pool { pool, index: Some(index) } => match pools[*pool].listed(*index) {
                Some(host) => by_listed.entry(host).or_insert(by.element),
                None => by_member.entry(location).or_insert(by.element),
            },
        };
        sets.join(*first, by.element);
    }
    (0..spec.processing_elements.len()).map(|element| sets.root(element)).collect()
}

/// The units of elements with these roots, and the unit of each element.
fn build_units(uid: &str, spec: &StreamsJobSpec, roots: &[usize]) -> (Vec<Unit>, Vec<usize>) {
    let mut units: Vec<Unit> = Vec::new();
    let mut membership = Vec::with_capacity(roots.len());
    for (element, root) in roots.iter().enumerate() {
        // The root is the first element of its unit, so the unit exists when the others come.
        let unit = membership.get(*root).copied().unwrap_or(units.len());
        if unit == units.len() {
            units.push(Unit::default());
        }
        units[unit].elements.push(element);
        membership.push(unit);
    }
    for unit in &mut units {
        if let [first, _, ..] = unit.elements.as_slice() {
            let first = &spec.processing_elements[*first].name;
            unit.group = Some(host_pool::hash(&format!("{uid}/{first}")).into());
        }
    }
    (units, membership)
}

#[cfg(test)]
mod tests;
