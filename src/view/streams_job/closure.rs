//! What a StreamsJob's spec comes to: which processing elements share a host, and what each such
//! unit asks for (Streams design, "Host Constraints"; the union-find of the Streams compiler).
//!
//! A processing element asks for all that its operators ask for. Elements belong to one unit where
//! they share a colocation token, the same host name or address, or the same member of a pool; and so
//! on through any number of steps. Everything here follows from the spec and the job's UID alone, so
//! that every pod of the job finds the same unit, whatever the cluster looks like when it comes.
//!
//! What is wrong in a spec is left out here and found by the check (`systems::streams::job`): no pod
//! of a job that fails it is placed.

use std::collections::{HashMap, HashSet};

use crate::api::host_pool::{Exclusivity, HostPoolSpec};
use crate::api::streams_job::{self as api, StreamsJobSpec};
use crate::view::host_pool::{self, Form, Host};

/// The longest name of an object.
const LONGEST_NAME: usize = 253;

/// What a spec comes to. Elements and operators are named by their places in the spec.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Closure {
    /// The pools, in the order of the spec.
    pub pools: Vec<Pool>,
    /// The units, in the order of their first elements. Every element belongs to one.
    pub units: Vec<Unit>,
    /// Every operator with `hostIsolation`.
    pub isolated: Vec<Operator>,
    /// The place in `units` of each element.
    membership: Vec<usize>,
    /// The elements by name: the first one where a name occurs twice.
    names: HashMap<Box<str>, usize>,
}

/// A pool of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// The name of the HostPool that stands for it.
    pub host_pool: Box<str>,
    /// What the pool is, or what is wrong with it.
    pub form: Result<Form, String>,
    /// Whether no other job may use its hosts.
    pub exclusive: bool,
}

/// Processing elements that share a host: several, or one alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Unit {
    /// The value of the label `stowplan.dev/colocation-group`, where there are several elements: the
    /// start of the SHA-256 of `<the job's UID>/<the first element's name>` in hexadecimal.
    pub group: Option<Box<str>>,
    /// The elements, in the order of the spec.
    pub elements: Vec<usize>,
    /// The hosts and pools that operators of the unit ask for: each once for each element.
    pub claims: Vec<Claim>,
    /// The exlocation tokens of the unit: each member is kept apart by all of them.
    pub exlocations: Vec<Exlocation>,
    /// The first operator of the unit with `hostIsolation`.
    pub isolated: Option<Operator>,
}

/// An operator's place in the spec.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Operator {
    /// The processing element.
    pub element: usize,
    /// The operator in it.
    pub operator: usize,
}

/// What an operator says of its host.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Who says it.
    pub by: Operator,
    /// What it says.
    pub place: Place,
    /// Whether it is the first claim of the unit that says so.
    pub first: bool,
}

/// `host(...)`.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Place {
    /// One host.
    Host(Host),
    /// A host of a pool of the job.
    Pool {
        /// The pool's place in the spec.
        pool: usize,
        /// The member asked for.
        index: Option<u32>,
    },
}

/// An exlocation token of a unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Exlocation {
    /// The token.
    pub token: Box<str>,
    /// The first operator that gives it.
    pub by: Operator,
    /// Another one of the same unit: both must be apart, and cannot be.
    pub clash: Option<Operator>,
}

impl Closure {
    /// What `spec` comes to for the job of this name and UID.
    #[must_use]
    pub fn of(job: &str, uid: &str, spec: &StreamsJobSpec) -> Self {
        let pools: Vec<Pool> = spec
            .pools
            .iter()
            .map(|pool| Pool {
                host_pool: host_pool_name(job, &pool.name).into(),
                form: host_pool::form(&host_pool_spec(pool)),
                exclusive: pool.exclusivity == Exclusivity::Exclusive,
            })
            .collect();
        let claims = claims(spec);
        let (units, membership) = units(uid, spec, &roots(spec, &pools, &claims));
        let mut closure = Self { pools, units, membership, ..Self::default() };
        for (index, element) in spec.processing_elements.iter().enumerate() {
            closure.names.entry(element.name.as_str().into()).or_insert(index);
        }
        closure.place(claims);
        closure.set_apart(spec);
        closure
    }

    /// The element of this name.
    #[must_use]
    pub fn element(&self, name: &str) -> Option<usize> {
        self.names.get(name).copied()
    }

    /// The unit that an element belongs to.
    #[must_use]
    pub fn unit_of(&self, element: usize) -> Option<&Unit> {
        self.units.get(*self.membership.get(element)?)
    }

    /// Gives the units what their operators say of hosts.
    fn place(&mut self, claims: Vec<(Operator, Place)>) {
        let mut of_unit = HashSet::new();
        let mut of_element = HashSet::new();
        for (by, place) in claims {
            let unit = self.membership[by.element];
            let first = of_unit.insert((unit, place.clone()));
            if of_element.insert((by.element, place.clone())) {
                self.units[unit].claims.push(Claim { by, place, first });
            }
        }
    }

    /// Gives the units what keeps others away.
    fn set_apart(&mut self, spec: &StreamsJobSpec) {
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
                    Some(&place) => {
                        let present = &mut unit.exlocations[place];
                        // One operator that gives a token twice says no more than one that does once.
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
    /// The places that a member's pod is bound to. Where colocation is only preferred, an element does
    /// not inherit what others ask for: a preference never becomes a requirement.
    pub fn places(&self, element: usize, inherited: bool) -> impl Iterator<Item = &Claim> + Clone {
        self.claims.iter().filter(move |claim| match inherited {
            true => claim.first,
            false => claim.by.element == element,
        })
    }
}

impl Pool {
    /// How many hosts it has; `None` where it has no end.
    #[must_use]
    pub fn size(&self) -> Option<u32> {
        match &self.form {
            Ok(Form::Sized(size, _)) => Some(*size),
            Ok(Form::Literal(hosts)) => u32::try_from(hosts.len()).ok(),
            _ => None,
        }
    }

    /// Whether the controller labels its hosts, so that pods find them by the label.
    #[must_use]
    pub fn is_labelled(&self) -> bool {
        self.exclusive || matches!(self.form, Ok(Form::Sized(..)))
    }

    /// The host that a place in the pool is, where the pool's own list says it.
    #[must_use]
    pub fn listed(&self, index: u32) -> Option<&Host> {
        match &self.form {
            Ok(Form::Literal(hosts)) => hosts.get(usize::try_from(index).ok()?),
            _ => None,
        }
    }
}

/// The spec of the HostPool that stands for a job's pool.
#[must_use]
pub fn host_pool_spec(pool: &api::Pool) -> HostPoolSpec {
    HostPoolSpec {
        hosts: pool.hosts.clone(),
        size: pool.size,
        tags: pool.tags.clone(),
        exclusivity: pool.exclusivity,
    }
}

/// The name of the HostPool that stands for a job's pool: `<job>-<pool>-<hash>`, the pool's name in
/// lower case with hyphens for underscores, and the hash the first 5 hexadecimal digits of the SHA-256
/// of the pool's own name, which tells `My_Pool` from `my_pool`.
///
/// An object's name has at most 253 characters. A longer one is cut before the hash, and the hash is
/// then 10 digits of `<job>/<pool>`: two long names that begin alike stay two names.
#[must_use]
pub fn host_pool_name(job: &str, pool: &str) -> String {
    let lower = pool.to_ascii_lowercase().replace('_', "-");
    let whole = format!("{job}-{lower}-{}", &host_pool::hash(pool)[..5]);
    if whole.len() <= LONGEST_NAME {
        return whole;
    }
    let hash = host_pool::hash(&format!("{job}/{pool}"));
    let kept: String = format!("{job}-{lower}").chars().take(LONGEST_NAME - 11).collect();
    // A part of a name between dots must not end in what the cut may have laid bare.
    format!("{}-{hash}", kept.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()))
}

/// Reads what an operator says of its host. `None`: it says nothing, or nothing that can be read.
#[must_use]
pub fn place(host: &api::Host, spec: &StreamsJobSpec) -> Option<Place> {
    match (&host.name, &host.address, &host.pool) {
        (Some(text), None, None) | (None, Some(text), None) => {
            Host::parse(text).ok().map(Place::Host)
        }
        (None, None, Some(name)) => {
            let pool = spec.pools.iter().position(|pool| pool.name == *name)?;
            Some(Place::Pool { pool, index: host.index })
        }
        _ => None,
    }
}

/// Every operator with its place, in the order of the spec.
pub fn operators(spec: &StreamsJobSpec) -> impl Iterator<Item = (Operator, &api::Operator)> {
    spec.processing_elements.iter().enumerate().flat_map(|(element, processing_element)| {
        let operators = processing_element.operators.iter().enumerate();
        operators.map(move |(operator, said)| (Operator { element, operator }, said))
    })
}

fn claims(spec: &StreamsJobSpec) -> Vec<(Operator, Place)> {
    operators(spec)
        .filter_map(|(by, operator)| Some((by, place(operator.host.as_ref()?, spec)?)))
        .collect()
}

/// For each element, the first element of its unit.
fn roots(spec: &StreamsJobSpec, pools: &[Pool], claims: &[(Operator, Place)]) -> Vec<usize> {
    let mut sets = Sets((0..spec.processing_elements.len()).collect());
    let mut by_token: HashMap<&str, usize> = HashMap::new();
    for (by, operator) in operators(spec) {
        for token in &operator.host_colocation {
            sets.join(*by_token.entry(token).or_insert(by.element), by.element);
        }
    }
    let mut by_host: HashMap<&Place, usize> = HashMap::new();
    // A member of a pool that lists its hosts is that host, whoever names it.
    let mut by_listed: HashMap<&Host, usize> = HashMap::new();
    for (by, place) in claims {
        let same = match place {
            Place::Host(host) => by_listed.entry(host).or_insert(by.element),
            // Any host of a pool: two elements may well have two.
            Place::Pool { index: None, .. } => continue,
            Place::Pool { pool, index: Some(index) } => match pools[*pool].listed(*index) {
                Some(host) => by_listed.entry(host).or_insert(by.element),
                None => by_host.entry(place).or_insert(by.element),
            },
        };
        sets.join(*same, by.element);
    }
    (0..spec.processing_elements.len()).map(|element| sets.root(element)).collect()
}

/// The units of elements with these roots, and the unit of each element.
fn units(uid: &str, spec: &StreamsJobSpec, roots: &[usize]) -> (Vec<Unit>, Vec<usize>) {
    let mut units: Vec<Unit> = Vec::new();
    let mut membership = Vec::with_capacity(roots.len());
    for (element, root) in roots.iter().enumerate() {
        // The root is the first of its unit, so that it has been here before the others.
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

/// Disjoint sets; the smallest member stands for each.
struct Sets(Vec<usize>);

impl Sets {
    fn root(&mut self, of: usize) -> usize {
        let mut root = of;
        while self.0[root] != root {
            // Halves the way for the next one.
            self.0[root] = self.0[self.0[root]];
            root = self.0[root];
        }
        root
    }

    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.root(one), self.root(other));
        self.0[one.max(other)] = one.min(other);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn closure(spec: &str) -> Closure {
        Closure::of("parallel", "uid", &serde_saphyr::from_str(spec).unwrap())
    }

    fn groups(closure: &Closure) -> Vec<Vec<usize>> {
        closure.units.iter().map(|unit| unit.elements.clone()).collect()
    }

    #[test]
    fn tokens_chain() {
        let closure = closure(
            "{processingElements: [{name: a, operators: [{name: A, hostColocation: [x]}]}, {name: free}, {name: b, operators: [{name: B, hostColocation: [x, z]}]}, {name: c, operators: [{name: C}, {name: D, hostColocation: [z]}]}]}",
        );
        assert_eq!(groups(&closure), [vec![0, 2, 3], vec![1]]);
        assert_eq!(closure.units[0].group.as_deref(), Some(&*host_pool::hash("uid/a")));
        assert_eq!(closure.units[1].group, None);
        assert_eq!(closure.element("c"), Some(3));
        assert_eq!(closure.unit_of(3), Some(&closure.units[0]));
    }

    #[test]
    fn hosts_and_members_join_and_pools_do_not() {
        let closure = closure(
            "{pools: [{name: P, size: 3}, {name: L, hosts: [n1, n2]}], processingElements: [\
             {name: a, operators: [{name: A, host: {name: n1}}]},\
             {name: b, operators: [{name: B, host: {pool: L, index: 0}}]},\
             {name: c, operators: [{name: C, host: {pool: P, index: 1}}]},\
             {name: d, operators: [{name: D, host: {pool: P, index: 1}}]},\
             {name: e, operators: [{name: E, host: {pool: P, index: 2}}]},\
             {name: f, operators: [{name: F, host: {pool: P}}]},\
             {name: g, operators: [{name: G, host: {pool: P}}]},\
             {name: h, operators: [{name: H, host: {address: '10.0.0.1'}}]},\
             {name: i, operators: [{name: I, host: {address: '::ffff:10.0.0.1'}}]}]}",
        );
        let expected = [vec![0, 1], vec![2, 3], vec![4], vec![5], vec![6], vec![7, 8]];
        assert_eq!(groups(&closure), expected);
    }

    #[test]
    fn a_host_pool_has_a_valid_name_that_no_other_pool_has() {
        assert_eq!(host_pool_name("parallel", "P2"), "parallel-p2-acbbb");
        assert_ne!(host_pool_name("parallel", "My_Pool"), host_pool_name("parallel", "my_pool"));
        assert_ne!(host_pool_name("a-b", "c"), host_pool_name("a", "b_c"));
        let long = format!("{}.{}", "j".repeat(200), "k".repeat(40));
        let (one, other) =
            (host_pool_name(&long, "Pool_number_1"), host_pool_name(&long, "Pool_number_2"));
        assert!(one != other && one.len() <= LONGEST_NAME, "{one}");
        // The cut may come after a dot.
        let dotted = format!("{}.{}", "j".repeat(241), "k");
        assert!(!host_pool_name(&dotted, "P").contains(".-"));
    }

    proptest! {
        /// Whoever shares a token shares a unit, and every element is in exactly one.
        #[test]
        fn units_partition_the_elements(tokens in proptest::collection::vec(proptest::collection::vec(0u8..12, 0..4), 0..40)) {
            let elements = tokens.iter().enumerate().map(|(index, tokens)| api::ProcessingElement {
                name: format!("e{index}"),
                operators: vec![api::Operator {
                    name: format!("O{index}"),
                    host_colocation: tokens.iter().map(|token| format!("t{token}")).collect(),
                    ..api::Operator::default()
                }],
            });
            let spec = StreamsJobSpec { processing_elements: elements.collect(), ..StreamsJobSpec::default() };
            let closure = Closure::of("j", "u", &spec);
            let mut all: Vec<usize> = groups(&closure).concat();
            all.sort_unstable();
            prop_assert_eq!(all, (0..tokens.len()).collect::<Vec<_>>());
            for (one, of_one) in tokens.iter().enumerate() {
                for (other, of_other) in tokens.iter().enumerate() {
                    if of_one.iter().any(|token| of_other.contains(token)) {
                        prop_assert_eq!(closure.membership[one], closure.membership[other]);
                    }
                }
            }
            // And nobody else does: a unit of several cannot be split into two that share no token.
            for unit in closure.units.iter().filter(|unit| unit.elements.len() > 1) {
                let mut reached = vec![unit.elements[0]];
                let mut next = 0;
                while let Some(one) = reached.get(next).copied() {
                    next += 1;
                    for other in &unit.elements {
                        if !reached.contains(other) && tokens[one].iter().any(|token| tokens[*other].contains(token)) {
                            reached.push(*other);
                        }
                    }
                }
                prop_assert_eq!(reached.len(), unit.elements.len());
            }
        }
    }
}
