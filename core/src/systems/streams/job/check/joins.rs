//! Finds out and says why two processing elements must share a host: what joins them, step by step.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::placement::reason::quoted;
use crate::systems::streams::api::streams_job::StreamsJobSpec;
use crate::systems::streams::kinds::{Closure, Host, Location, find_location, operators};
use crate::systems::streams::resolve::format_host;

/// More joins than these are counted, not written out.
const MOST_WRITTEN: usize = 8;

/// The reason why two processing elements must share a host.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Join<'s> {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) by: Shared<'s>,
}

/// The thing that elements which must share a host have in common.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) enum Shared<'s> {
    /// A token of `hostColocation`.
    Token(&'s str),
    Host(Host),
    /// A member of a pool: the pool's index in the spec, and the member's.
    Member(usize, u32),
}

/// The fewest joins from one element of a unit to another; none for an element and itself.
pub(super) fn find_joins<'s>(
    spec: &'s StreamsJobSpec,
    closure: &Closure,
    from: usize,
    to: usize,
) -> Vec<Join<'s>> {
    let mut of_element: HashMap<usize, Vec<Shared<'_>>> = HashMap::new();
    let mut elements: HashMap<Shared<'_>, Vec<usize>> = HashMap::new();
    for (by, operator) in operators(spec) {
        let tokens = operator.host_colocation.iter().map(|token| Shared::Token(token));
        let location = operator.host.as_ref().and_then(|host| find_location(host, spec));
        let host = location.and_then(|location| match location {
            Location::Host(host) => Some(Shared::Host(host)),
            Location::Pool { pool, index } => {
                let listed = closure.pools[pool].listed(index?);
                Some(listed.map_or(Shared::Member(pool, index?), |host| Shared::Host(host.clone())))
            }
        });
        for shared in tokens.chain(host) {
            of_element.entry(by.element).or_default().push(shared.clone());
            elements.entry(shared).or_default().push(by.element);
        }
    }
    let mut reached: HashMap<usize, Join<'_>> = HashMap::new();
    let mut seen: HashSet<&Shared<'_>> = HashSet::new();
    let mut queue = VecDeque::from([from]);
    while let Some(element) = queue.pop_front() {
        let shared = of_element.get(&element).into_iter().flatten();
        for shared in shared.filter(|shared| seen.insert(*shared)) {
            for next in elements.get(shared).into_iter().flatten() {
                if *next != from && !reached.contains_key(next) {
                    let join = Join { from: element, to: *next, by: shared.clone() };
                    reached.insert(*next, join);
                    queue.push_back(*next);
                }
            }
        }
    }
    let mut joins = Vec::new();
    let mut at = to;
    while let Some(join) = reached.remove(&at) {
        at = join.from;
        joins.push(join);
    }
    joins.reverse();
    joins
}

/// Says why these elements of one unit must share a host, as the end of a sentence: `hostColocation "t"
/// joins processing elements "a" and "b"`.
pub(crate) fn format_joins(spec: &StreamsJobSpec, closure: &Closure, elements: &[usize]) -> String {
    let mut joins: Vec<Join<'_>> = Vec::new();
    for pair in elements.windows(2) {
        for join in find_joins(spec, closure, pair[0], pair[1]) {
            if !joins.contains(&join) {
                joins.push(join);
            }
        }
    }
    let mut parts: Vec<String> =
        joins.iter().take(MOST_WRITTEN).map(|join| format_join(spec, join)).collect();
    match joins.len().checked_sub(MOST_WRITTEN) {
        _ if joins.is_empty() => return "they are in one processing element".to_owned(),
        Some(more @ 1..) => parts.push(format!("and so on in {more} more steps")),
        _ => {}
    }
    parts.join(", ")
}

fn format_join(spec: &StreamsJobSpec, join: &Join<'_>) -> String {
    let name = |element: usize| quoted(&spec.processing_elements[element].name);
    let both = format!("processing elements {} and {}", name(join.from), name(join.to));
    match &join.by {
        Shared::Token(token) => format!("hostColocation {} joins {both}", quoted(token)),
        Shared::Host(host) => format!("{both} ask for the host with the {}", format_host(host)),
        Shared::Member(pool, index) => {
            format!("{both} ask for host {index} of pool {}", quoted(&spec.pools[*pool].name))
        }
    }
}
