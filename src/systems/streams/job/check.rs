//! Whether a StreamsJob can be placed as a whole: what a submission that cannot be met fails with
//! (Streams design: any host constraint that cannot be resolved fails the submission).
//!
//! One pure function. The API server asks it through `/validate` when the object is made, the
//! controller again for the condition Accepted, and admission where the controller has not spoken yet.
//! It finds what is certain: that a sized pool, whose hosts are still to be picked, may turn out not
//! to hold a host that the job also names is not.
//!
//! Where the job only prefers colocation, exlocation and isolation, what a preference asks for in vain
//! is no fault; what contradicts itself still is.

use std::collections::{HashMap, HashSet};

use super::super::guard;
use super::super::request::is_identifier;
use super::super::resolve::{Resolved, resolve, told};
use super::super::token::Token;
use crate::api::streams_job::{
    Enforcement, Host as Said, MAX_ELEMENTS, MAX_OPERATORS, MAX_POOLS, MAX_TOKENS, StreamsJobSpec,
};
use crate::placement::reason::{Finding, Reason, quoted};
use crate::policy::Policy;
use crate::view::host_pool::{Form, Host, is_label_name};
use crate::view::node::tag;
use crate::view::streams_job::closure::{Claim, Closure, Operator, Place, Pool, Unit, operators};
use crate::view::{Name, StreamsJob, View};

/// Everything that keeps the job `name` from being placed, in the order of the checks: what the job
/// says, what the policy allows, what the cluster has.
#[must_use]
pub fn check(name: &Name, job: &StreamsJob, view: &View, policy: &Policy) -> Vec<Finding> {
    let subject = format!("StreamsJob {}", name.name);
    let spec = match &job.spec {
        Ok(spec) => spec,
        Err(problem) => {
            let remedy = "mend the StreamsJob";
            return vec![Finding::new(Reason::MalformedJob, subject, problem.as_str(), remedy)];
        }
    };
    let mut check = Check {
        subject,
        spec,
        closure: &job.closure,
        view,
        nodes: HashMap::new(),
        findings: Vec::new(),
    };
    check.names();
    check.operators();
    check.pools(name, job, policy);
    check.units();
    if spec.enforcement == Enforcement::Required {
        check.apart();
        check.alone();
    }
    check.findings.sort_by_key(|finding| finding.reason.stage());
    check.findings
}

/// A job on its way through the check.
struct Check<'c> {
    subject: String,
    spec: &'c StreamsJobSpec,
    closure: &'c Closure,
    view: &'c View,
    /// The hosts that were looked up, and the node that each is; what is not one node is told once.
    nodes: HashMap<&'c Host, Option<&'c str>>,
    findings: Vec<Finding>,
}

impl<'c> Check<'c> {
    fn find(&mut self, reason: Reason, problem: String, remedy: &str) {
        self.findings.push(Finding::new(reason, self.subject.as_str(), problem, remedy));
    }

    /// `operator Source of processing element parallel-0`.
    fn who(&self, by: Operator) -> String {
        let element = &self.spec.processing_elements[by.element];
        let operator = element.operators.get(by.operator).map_or("", |said| said.name.as_str());
        format!("operator {} of processing element {}", quoted(operator), quoted(&element.name))
    }

    fn pool_name(&self, pool: usize) -> String {
        format!("pool {}", quoted(&self.spec.pools[pool].name))
    }

    /// `pool "P2"`, `pool "P2"[5]`, `the name n1`.
    fn place_name(&self, place: &Place) -> String {
        match place {
            Place::Host(host) => format!("the host with the {}", told(host)),
            Place::Pool { pool, index: None } => format!("a host of {}", self.pool_name(*pool)),
            Place::Pool { pool, index: Some(index) } => {
                format!("host {index} of {}", self.pool_name(*pool))
            }
        }
    }

    /// Names that are missing, malformed or there twice, and lists that are too long: most of it the
    /// API server's schema refuses, but files come here without it.
    fn names(&mut self) {
        let spec = self.spec;
        for (what, length, most) in [
            ("pools", spec.pools.len(), MAX_POOLS),
            ("processing elements", spec.processing_elements.len(), MAX_ELEMENTS),
        ] {
            if length > most {
                let problem = format!("has {length} {what}, and at most {most} are allowed");
                self.find(Reason::MalformedJob, problem, "split the job");
            }
        }
        let mut seen = HashSet::new();
        for pool in &spec.pools {
            let name = quoted(&pool.name);
            if !is_identifier(&pool.name) {
                let problem = format!("the pool name {name} is no SPL identifier");
                self.find(
                    Reason::MalformedJob,
                    problem,
                    "use letters, digits and _, a letter first",
                );
            }
            if !seen.insert(&pool.name) {
                let problem = format!("two pools are named {name}");
                self.find(Reason::DuplicateName, problem, "rename one of them");
            }
        }
        let mut seen = HashSet::new();
        let mut operators = HashSet::new();
        for element in &spec.processing_elements {
            let name = || quoted(&element.name);
            if !is_label_name(&element.name) {
                self.find(
                    Reason::MalformedJob,
                    format!("the processing element name {} is no label value", name()),
                    "use at most 63 letters, digits, -, _ and ., alphanumeric at its ends",
                );
            }
            if !seen.insert(&element.name) {
                let problem = format!("two processing elements are named {}", name());
                self.find(Reason::DuplicateName, problem, "rename one of them");
            }
            if element.operators.len() > MAX_OPERATORS {
                let problem = format!(
                    "processing element {} has {} operators, and at most {MAX_OPERATORS} are allowed",
                    name(),
                    element.operators.len()
                );
                self.find(Reason::MalformedJob, problem, "fuse fewer operators into it");
            }
            for operator in &element.operators {
                if let Err(finding) = Token::of_operator(&operator.name) {
                    let wrong = finding.problem.replace("the token", "the name");
                    let problem = format!("an operator of processing element {}: {wrong}", name());
                    self.find(Reason::MalformedJob, problem, "name it as the application does");
                } else if !operators.insert(&operator.name) {
                    let problem = format!(
                        "two operators are named {}, the second in processing element {}",
                        quoted(&operator.name),
                        name()
                    );
                    self.find(Reason::DuplicateName, problem, "give each operator its full name");
                }
            }
        }
    }

    /// What each operator says by itself.
    fn operators(&mut self) {
        for (by, operator) in operators(self.spec) {
            if let Some(host) = &operator.host {
                self.host(by, host);
            }
            for (kind, tokens) in [
                ("hostColocation", &operator.host_colocation),
                ("hostExlocation", &operator.host_exlocation),
            ] {
                if tokens.len() > MAX_TOKENS {
                    let problem = format!(
                        "{} has {} tokens in {kind}, and at most {MAX_TOKENS} are allowed",
                        self.who(by),
                        tokens.len()
                    );
                    self.find(Reason::MalformedJob, problem, "use fewer tokens");
                }
                for token in tokens {
                    if let Err(finding) = Token::of_operator(token) {
                        let problem = format!("{}, {kind}: {}", self.who(by), finding.problem);
                        self.find(finding.reason, problem, &finding.remedy);
                    }
                }
            }
        }
    }

    fn host(&mut self, by: Operator, host: &Said) {
        let kinds = [&host.name, &host.address, &host.pool].into_iter().flatten().count();
        if kinds != 1 || (host.index.is_some() && host.pool.is_none()) {
            let problem = format!(
                "{} has a host with {kinds} of name, address and pool, or an index",
                self.who(by)
            );
            let remedy = "give exactly one of name, address and pool; index stands beside pool";
            return self.find(Reason::InvalidHost, problem, remedy);
        }
        if let Some(name) = &host.pool {
            let Some(place) = self.spec.pools.iter().position(|pool| pool.name == *name) else {
                let problem = format!(
                    "{} asks for pool {}, which the job does not have",
                    self.who(by),
                    quoted(name)
                );
                let remedy = "add the pool to spec.pools, or name one that is there";
                return self.find(Reason::UndefinedPool, problem, remedy);
            };
            return self.index(by, place, host.index);
        }
        let text = host.name.as_ref().or(host.address.as_ref()).map_or("", String::as_str);
        let read = match Host::parse(text) {
            Ok(Host::Name(_)) if host.address.is_some() => Err("is no IP address"),
            read => read.map(|_| ()),
        };
        if let Err(problem) = read {
            let problem =
                format!("{} asks for host {}, which {problem}", self.who(by), quoted(text));
            let remedy = "give the name of one node, or one of its IP addresses";
            self.find(Reason::InvalidHost, problem, remedy);
        }
    }

    fn index(&mut self, by: Operator, pool: usize, index: Option<u32>) {
        let Some(index) = index else { return };
        let problem = match (self.closure.pools[pool].form.is_ok(), self.closure.pools[pool].size())
        {
            // The pool itself is at fault, and that is told.
            (false, _) => return,
            (true, Some(size)) if index < size => return,
            (true, Some(size)) => format!("it has {size} hosts, 0 to {}", size.saturating_sub(1)),
            (true, None) => "it has no size, so no host of it has an index".to_owned(),
        };
        let problem = format!(
            "{} asks for host {index} of {}: {problem}",
            self.who(by),
            self.pool_name(pool)
        );
        self.find(Reason::IndexOutOfRange, problem, "use an index of the pool; it starts at 0");
    }

    /// The pools by themselves: their form, what the policy says of them, and whether the cluster has
    /// hosts for them.
    fn pools(&mut self, name: &Name, job: &StreamsJob, policy: &Policy) {
        let closure = self.closure;
        if closure.pools.is_empty() {
            return;
        }
        let subject = self.subject.clone();
        let namespace = &*name.namespace;
        self.findings.extend(guard::pools(&subject, namespace, self.view, policy).err());
        let exclusive = closure.pools.iter().filter(|pool| pool.exclusive);
        let wanted = exclusive
            .map(|pool| guard::hosts(pool.form.as_ref().ok()))
            .fold(0, u32::saturating_add);
        let uid = &job.identity.uid;
        let of_others = |pool: &str, found: &crate::view::HostPool| {
            let ours = closure.pools.iter().any(|own| *own.host_pool == *pool);
            !ours || found.job.as_ref().is_none_or(|(_, owner)| owner != uid)
        };
        let guarded =
            guard::exclusive_hosts(&subject, namespace, wanted, of_others, self.view, policy);
        self.findings.extend(guarded.err());
        for (index, pool) in closure.pools.iter().enumerate() {
            match &pool.form {
                Err(problem) => {
                    let problem = format!("{} {problem}", self.pool_name(index));
                    self.find(Reason::MalformedPool, problem, "mend the pool in spec.pools");
                }
                Ok(Form::Literal(hosts)) => self.listed(index, hosts),
                Ok(Form::Tagged(tags)) => self.tagged(index, tags, 1),
                Ok(Form::Sized(size, tags)) => {
                    self.tagged(index, tags, usize::try_from(*size).unwrap_or(usize::MAX));
                }
                Ok(Form::Any) => {}
            }
        }
    }

    /// A pool that lists its hosts: each is one node, and no two are the same.
    fn listed(&mut self, pool: usize, hosts: &'c [Host]) {
        let mut seen: HashMap<&str, &Host> = HashMap::with_capacity(hosts.len());
        for (index, host) in hosts.iter().enumerate() {
            let node = self.node(host, |check| {
                format!("which is hosts[{index}] of {}", check.pool_name(pool))
            });
            let Some(node) = node else { continue };
            if let Some(earlier) = seen.insert(node, host) {
                let problem = format!(
                    "{} has node {node} twice: once as the {}, once as the {}",
                    self.pool_name(pool),
                    told(earlier),
                    told(host)
                );
                self.find(Reason::InvalidPool, problem, "list each node once");
            }
        }
    }

    /// A pool of nodes with tags: so many of them carry the tags.
    fn tagged(&mut self, pool: usize, tags: &[Box<str>], wanted: usize) {
        let indexed = indexed(tags);
        let found = self.view.nodes_with_tags(&indexed);
        if found >= wanted {
            return;
        }
        let wanting = match indexed.as_slice() {
            [] => "the cluster has".to_owned(),
            tags => format!("{} is carried by", tags.join(" and ")),
        };
        let problem =
            format!("{} needs {wanted} nodes, and {wanting} {found}", self.pool_name(pool));
        let reason = if wanted == 1 { Reason::NoTaggedNode } else { Reason::InsufficientNodes };
        let remedy = "label more nodes (`kubectl label node NODE KEY=VALUE`), or ask for fewer";
        self.find(reason, problem, remedy);
    }

    /// The node that a host is; what is none or several is told the first time.
    fn node(&mut self, host: &'c Host, what: impl Fn(&Self) -> String) -> Option<&'c str> {
        if let Some(known) = self.nodes.get(host) {
            return *known;
        }
        let node = match resolve(self.view, host) {
            Resolved::Node(node) => Some(node),
            Resolved::Unknown => {
                let problem = format!("no node has the {}, {}", told(host), what(self));
                let remedy = "name a node of this cluster (`kubectl get nodes -o wide` lists names and addresses)";
                self.find(Reason::UnknownHost, problem, remedy);
                None
            }
            Resolved::Ambiguous(nodes) => {
                let problem = format!(
                    "several nodes have the {}, {}: {}",
                    told(host),
                    what(self),
                    nodes.join(", ")
                );
                self.find(Reason::AmbiguousHost, problem, "give the node's own name");
                None
            }
        };
        self.nodes.insert(host, node);
        node
    }

    /// The node that a place is, where it is one.
    fn pinned(&mut self, claim: &'c Claim) -> Option<&'c str> {
        let closure = self.closure;
        match &claim.place {
            Place::Host(host) => {
                self.node(host, |check| format!("which {} asks for", check.who(claim.by)))
            }
            Place::Pool { pool, index: Some(index) } => {
                let host = closure.pools[*pool].listed(*index)?;
                self.nodes.get(host).copied().flatten()
            }
            Place::Pool { .. } => None,
        }
    }

    /// What shares a host: whether there can be one for all.
    fn units(&mut self) {
        for unit in &self.closure.units {
            if let Some((token, by, clash)) = unit
                .exlocations
                .iter()
                .find_map(|exlocation| Some((&exlocation.token, exlocation.by, exlocation.clash?)))
            {
                let problem = format!(
                    "{} and {} must be apart (hostExlocation {}) and must share a host{}",
                    self.who(by),
                    self.who(clash),
                    quoted(token),
                    if by.element == clash.element {
                        ": they are in one processing element"
                    } else {
                        ""
                    }
                );
                let remedy =
                    "remove the token from one of them, or what joins them (hostColocation, host)";
                self.find(Reason::ExlocatedTogether, problem, remedy);
            }
            if let (Some(by), [_, _, ..]) = (unit.isolated, unit.elements.as_slice()) {
                let other = unit.elements.iter().find(|element| **element != by.element);
                let other = other.map_or("", |other| &*self.spec.processing_elements[*other].name);
                let problem = format!(
                    "{} has hostIsolation and must share its host with processing element {}",
                    self.who(by),
                    quoted(other)
                );
                let remedy = "remove hostIsolation, or what joins them (hostColocation, host)";
                self.find(Reason::IsolationShared, problem, remedy);
            }
            if self.spec.enforcement == Enforcement::Required {
                self.common_host(unit.claims.iter().filter(|claim| claim.first));
                self.whole_in_exclusive_pool(unit);
            } else {
                for element in &unit.elements {
                    self.common_host(unit.places(*element, false));
                }
            }
        }
    }

    /// Finds fault where no host satisfies all of these claims, which are of one host.
    fn common_host(&mut self, claims: impl Iterator<Item = &'c Claim> + Clone) {
        // Nearly always there is one at the most, which contradicts no other.
        let mut few = claims.clone().take(2);
        if let (only, None) = (few.next(), few.next()) {
            only.into_iter().for_each(|claim| _ = self.pinned(claim));
            return;
        }
        // What is left of the nodes, and the claims that left it so. `None`: every node.
        let mut left: Option<Vec<&str>> = None;
        let mut tags: Vec<Box<str>> = Vec::new();
        let mut members: HashMap<usize, (u32, &Claim)> = HashMap::new();
        let mut reserved: Option<(usize, &Claim)> = None;
        let mut last: Option<&Claim> = None;
        for claim in claims {
            let before = last.replace(claim);
            if let Place::Pool { pool, index } = claim.place {
                if let Some(index) = index
                    && let Some((other, by)) = members.insert(pool, (index, claim))
                    && other != index
                {
                    return self.no_common_host(by, claim);
                }
                if self.closure.pools[pool].exclusive
                    && let Some((other, by)) = reserved.replace((pool, claim))
                    && other != pool
                {
                    return self.no_common_host(by, claim);
                }
            }
            let Some(allowed) = self.allowed(claim, &mut tags) else { return };
            left = match (left, allowed) {
                (None, allowed) => allowed,
                (left, None) => left,
                (Some(left), Some(allowed)) => {
                    Some(left.into_iter().filter(|node| allowed.contains(node)).collect())
                }
            };
            let view = self.view;
            let tagged = |node: &&str| {
                view.node(node).is_some_and(|node| tags.iter().all(|tag| node.tags.contains(tag)))
            };
            let possible = match &mut left {
                Some(left) => {
                    left.retain(|node| tagged(node));
                    !left.is_empty()
                }
                None => view.has_node_with_tags(&tags),
            };
            if !possible {
                // A single claim that no node meets is told of as the pool's fault.
                return before.into_iter().for_each(|before| self.no_common_host(before, claim));
            }
        }
    }

    /// The nodes that a claim allows: `Some(None)` for all that carry `tags`, to which it adds; `None`
    /// where that is not known because the claim or its pool is at fault.
    fn allowed(
        &mut self,
        claim: &'c Claim,
        tags: &mut Vec<Box<str>>,
    ) -> Option<Option<Vec<&'c str>>> {
        let closure = self.closure;
        let Place::Pool { pool, index } = &claim.place else {
            return Some(Some(vec![self.pinned(claim)?]));
        };
        match closure.pools[*pool].form.as_ref().ok()? {
            Form::Literal(_) if index.is_some() => Some(Some(vec![self.pinned(claim)?])),
            Form::Literal(hosts) => {
                Some(Some(hosts.iter().filter_map(|host| self.nodes.get(host).copied()?).collect()))
            }
            Form::Tagged(own) | Form::Sized(_, own) => {
                tags.extend(indexed(own));
                Some(None)
            }
            Form::Any => Some(None),
        }
    }

    fn no_common_host(&mut self, one: &Claim, other: &Claim) {
        let problem = format!(
            "{} asks for {}, {} asks for {}, they must share a host, and no host is both",
            self.who(one.by),
            self.place_name(&one.place),
            self.who(other.by),
            self.place_name(&other.place)
        );
        let remedy = "ask for one host in both, or remove what joins them (hostColocation, fusion)";
        self.find(Reason::NoCommonHost, problem, remedy);
    }

    /// An exclusive pool takes the whole unit: who asks for another host would be kept out of it, or
    /// let in without being of it.
    fn whole_in_exclusive_pool(&mut self, unit: &Unit) {
        let of_pool = |claim: &&Claim| match claim.place {
            Place::Pool { pool, .. } => self.closure.pools[pool].exclusive.then_some(pool),
            Place::Host(_) => None,
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
                "{} is in exclusive {}, {} asks for {}, and they must share a host",
                self.who(inside.by),
                self.pool_name(pool),
                self.who(outside.by),
                self.place_name(&outside.place)
            );
            let remedy = "ask for the exclusive pool in both, or leave the host of the second out: it follows the first";
            self.find(Reason::ExclusivePoolSplit, problem, remedy);
        }
    }

    /// Units that must be apart by one token: not on one node, and not more than a pool has hosts.
    fn apart(&mut self) {
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
            let mut on_node: HashMap<&str, Operator> = HashMap::new();
            let mut in_pool: HashMap<usize, u32> = HashMap::new();
            for (unit, by) in &units {
                if let Some(node) = unit.claims.iter().find_map(|claim| self.pinned(claim))
                    && let Some(other) = on_node.insert(node, *by)
                {
                    let problem = format!(
                        "{} and {} must be apart (hostExlocation {}), and node {node} is the host of both",
                        self.who(other),
                        self.who(*by),
                        quoted(token)
                    );
                    let remedy = "ask for different hosts, or remove the token from one of them";
                    self.find(Reason::ExlocatedTogether, problem, remedy);
                }
                pools_of(unit).into_iter().for_each(|pool| *in_pool.entry(pool).or_default() += 1);
            }
            for (index, pool) in closure.pools.iter().enumerate() {
                let wanted = in_pool.get(&index).copied().unwrap_or_default();
                if let Some(size) = overfull(pool, wanted) {
                    let problem = format!(
                        "{wanted} groups of processing elements must be apart (hostExlocation {}) in {}, which has {size} hosts",
                        quoted(token),
                        self.pool_name(index)
                    );
                    let remedy =
                        "make the pool larger, or take operators out of the pool or off the token";
                    self.find(Reason::TooManyExlocated, problem, remedy);
                }
            }
        }
    }

    /// Elements that must be alone: not on the node of another, and with a host of their pool each.
    fn alone(&mut self) {
        let closure = self.closure;
        if closure.isolated.is_empty() {
            return;
        }
        // The first unit of each node, isolated ones before the others.
        let mut on_node: HashMap<&str, (&Unit, Operator)> = HashMap::new();
        let mut in_pool: HashMap<usize, (u32, bool)> = HashMap::new();
        let (isolated, others): (Vec<&Unit>, Vec<&Unit>) =
            closure.units.iter().partition(|unit| unit.isolated.is_some());
        for unit in isolated.into_iter().chain(others) {
            for pool in pools_of(unit) {
                let (alone, shared) = in_pool.entry(pool).or_default();
                match unit.isolated {
                    Some(_) => *alone += 1,
                    None => *shared = true,
                }
            }
            let pinned = unit.claims.iter().find_map(|claim| Some((self.pinned(claim)?, claim.by)));
            let Some((node, by)) = pinned else { continue };
            let (first, isolated) = *on_node.entry(node).or_insert((unit, by));
            if !std::ptr::eq(first, unit) && first.isolated.is_some() {
                let problem = format!(
                    "{} has hostIsolation, and node {node} is also the host of {}",
                    self.who(first.isolated.unwrap_or(isolated)),
                    self.who(by)
                );
                let remedy = "ask for another host in one of them, or remove hostIsolation";
                self.find(Reason::IsolationShared, problem, remedy);
            }
        }
        for (index, pool) in closure.pools.iter().enumerate() {
            let Some((alone, shared)) = in_pool.get(&index) else { continue };
            let wanted = alone + u32::from(*shared && *alone > 0);
            if let Some(size) = overfull(pool, wanted) {
                let problem = format!(
                    "{alone} processing elements with hostIsolation{} need {wanted} hosts of {}, which has {size}",
                    if *shared { " and those beside them" } else { "" },
                    self.pool_name(index)
                );
                let remedy = "make the pool larger, or take operators out of the pool";
                self.find(Reason::TooManyExlocated, problem, remedy);
            }
        }
    }
}

/// The pools that a unit must be in, each once.
fn pools_of(unit: &Unit) -> Vec<usize> {
    let mut pools = Vec::new();
    for claim in &unit.claims {
        if let Place::Pool { pool, .. } = claim.place
            && !pools.contains(&pool)
        {
            pools.push(pool);
        }
    }
    pools
}

/// The size of a pool that `wanted` hosts exceed.
fn overfull(pool: &Pool, wanted: u32) -> Option<u32> {
    pool.size().filter(|size| wanted > *size)
}

/// A pool's tags as the View's index writes them.
fn indexed(tags: &[Box<str>]) -> Vec<Box<str>> {
    tags.iter().map(|name| tag(name, tags.len() == 1)).collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1 as core;
    use serde_json::json;

    use super::*;
    use crate::api;
    use crate::view::Object;

    /// Three nodes: n1 and n2 carry both tags, n1 the one tag of its own.
    fn view() -> View {
        let mut view = View::default();
        for (name, address, tags) in [
            (
                "n1",
                "10.8.5.6",
                json!({"hostpool.streams.ibm.com/ib": "", "hostpool.streams.ibm.com/blue": "", "streams.ibm.com/hostpool": "source"}),
            ),
            (
                "n2",
                "10.8.5.7",
                json!({"hostpool.streams.ibm.com/ib": "", "hostpool.streams.ibm.com/blue": ""}),
            ),
            ("n3", "10.8.5.8", json!({})),
        ] {
            let node: core::Node = serde_json::from_value(json!({
                "metadata": {"name": name, "labels": tags},
                "status": {"addresses": [
                    {"type": "Hostname", "address": name},
                    {"type": "InternalDNS", "address": "shared.internal"},
                    {"type": "InternalIP", "address": address},
                ]},
            }))
            .unwrap();
            view.apply(Object::node(&node).unwrap());
        }
        view
    }

    fn job(spec: &str) -> (Name, StreamsJob) {
        let spec: StreamsJobSpec = serde_saphyr::from_str(spec).unwrap();
        let mut job = api::StreamsJob::new("parallel", spec);
        job.metadata.namespace = Some("ns".to_owned());
        job.metadata.uid = Some("5f1d6b0e".to_owned());
        (Name::new("ns", "parallel"), StreamsJob::from(&job))
    }

    fn checked(spec: &str, view: &View, policy: &Policy) -> Vec<Finding> {
        let (name, job) = job(spec);
        check(&name, &job, view, policy)
    }

    /// Two elements, `a` with operator A and `b` with operator B, which say this.
    fn two(pools: &str, a: &str, b: &str) -> String {
        format!(
            "{{pools: [{pools}], processingElements: [{{name: a, operators: [{{name: A{a}}}]}}, {{name: b, operators: [{{name: B{b}}}]}}]}}"
        )
    }

    #[test]
    fn what_can_be_placed_is() {
        for spec in [
            "{}".to_owned(),
            "{processingElements: [{name: a}]}".to_owned(),
            two("", "", ""),
            two("", ", host: {name: n1}", ", host: {address: 10.8.5.7}"),
            two("", ", host: {name: n1}, hostColocation: [t]", ", host: {address: 10.8.5.6}, hostColocation: [t]"),
            // Colocation x and exlocation x are two tokens.
            two("", ", hostColocation: [x]", ", hostColocation: [x], hostExlocation: [x]"),
            two("{name: P, size: 2}", ", host: {pool: P, index: 0}", ", host: {pool: P, index: 1}, hostExlocation: [t]"),
            two("{name: P, size: 2}", ", host: {pool: P}, hostExlocation: [t]", ", host: {pool: P}, hostExlocation: [t]"),
            two("{name: P, size: 2, tags: [ib, blue], exclusivity: Exclusive}", ", host: {pool: P}, hostColocation: [t]", ", hostColocation: [t]"),
            two("{name: P, hosts: [n1, n2]}, {name: Q, hosts: [n2, n3]}", ", host: {pool: P}, hostColocation: [t]", ", host: {pool: Q}, hostColocation: [t]"),
            two("{name: P, hosts: [n1, n2]}", ", host: {pool: P, index: 1}, hostColocation: [t]", ", host: {name: n2}, hostColocation: [t]"),
            two("{name: P, tags: [source]}", ", host: {pool: P}, hostColocation: [t]", ", host: {name: n1}, hostColocation: [t]"),
            // Whether a host is of a sized pool is not known before its hosts are picked.
            two("{name: P, size: 2}", ", host: {pool: P}, hostColocation: [t]", ", host: {name: n1}, hostColocation: [t]"),
            two("", ", hostIsolation: true", ""),
            // Fused into one element, isolation and colocation are of one host.
            "{processingElements: [{name: a, operators: [{name: A, hostIsolation: true, hostColocation: [t]}, {name: B, hostColocation: [t]}]}]}".to_owned(),
            // Preferences may be in vain.
            format!("{{enforcement: Preferred, {}", &two("{name: P, size: 1}", ", host: {pool: P}, hostExlocation: [t]", ", host: {pool: P}, hostExlocation: [t]")[1..]),
            format!("{{enforcement: Preferred, {}", &two("", ", host: {name: n1}, hostColocation: [t]", ", host: {name: n2}, hostColocation: [t]")[1..]),
        ] {
            assert_eq!(checked(&spec, &view(), &Policy::default()), [], "{spec}");
        }
    }

    #[test]
    fn what_cannot_be_placed_is_refused_by_name() {
        use Reason as R;
        let host = |place: &str| format!(", host: {{{place}}}");
        let together = ", hostColocation: [t]";
        let apart = ", hostExlocation: [t]";
        for (spec, reason, parts) in [
            // An exlocation pair that must share a host: by token, by fusion, by host, by member.
            (two("", &format!("{together}{apart}"), &format!("{together}{apart}")), R::ExlocatedTogether, &["\"A\"", "\"B\"", "\"t\""][..]),
            ("{processingElements: [{name: a, operators: [{name: A, hostExlocation: [t]}, {name: B, hostExlocation: [t]}]}]}".to_owned(), R::ExlocatedTogether, &["one processing element"]),
            (two("", &(host("name: n1") + apart), &(host("name: n1") + apart)), R::ExlocatedTogether, &["\"A\"", "\"B\""]),
            (two("", &(host("name: n1") + apart), &(host("address: 10.8.5.6") + apart)), R::ExlocatedTogether, &["node n1"]),
            (two("{name: P, size: 2}", &(host("pool: P, index: 0") + apart), &(host("pool: P, index: 0") + apart)), R::ExlocatedTogether, &["\"A\"", "\"B\""]),
            (two("{name: P, hosts: [n1, n2]}", &(host("pool: P, index: 0") + apart), &(host("name: n1") + apart)), R::ExlocatedTogether, &["\"A\""]),
            // No common host.
            (two("", &(host("name: n1") + together), &(host("name: n2") + together)), R::NoCommonHost, &["name n1", "name n2", "\"A\"", "\"B\""]),
            ("{processingElements: [{name: a, operators: [{name: A, host: {name: n1}}, {name: B, host: {address: 10.8.5.7}}]}]}".to_owned(), R::NoCommonHost, &["name n1", "address 10.8.5.7"]),
            (format!("{{enforcement: Preferred, {}", &"{processingElements: [{name: a, operators: [{name: A, host: {name: n1}}, {name: B, host: {name: n2}}]}]}"[1..]), R::NoCommonHost, &["name n1"]),
            (two("{name: P, hosts: [n1]}, {name: Q, hosts: [n2, n3]}", &(host("pool: P") + together), &(host("pool: Q") + together)), R::NoCommonHost, &["pool \"P\"", "pool \"Q\""]),
            (two("{name: P, size: 2}", &(host("pool: P, index: 0") + together), &(host("pool: P, index: 1") + together)), R::NoCommonHost, &["host 0 of pool \"P\"", "host 1"]),
            (two("{name: P, tags: [source]}", &(host("pool: P") + together), &(host("name: n3") + together)), R::NoCommonHost, &["pool \"P\"", "name n3"]),
            (two("{name: P, size: 1, exclusivity: Exclusive}, {name: Q, size: 1, exclusivity: Exclusive}", &(host("pool: P") + together), &(host("pool: Q") + together)), R::NoCommonHost, &["\"P\"", "\"Q\""]),
            (two("{name: P, size: 2, exclusivity: Exclusive}", &(host("pool: P") + together), &(host("name: n1") + together)), R::ExclusivePoolSplit, &["exclusive pool \"P\"", "name n1"]),
            // Too many for the hosts.
            (two("{name: P, size: 1}", &(host("pool: P") + apart), &(host("pool: P") + apart)), R::TooManyExlocated, &["2 groups", "pool \"P\"", "1 hosts"]),
            ("{pools: [{name: P, hosts: [n1, n2]}], processingElements: [{name: a, operators: [{name: A, host: {pool: P}, hostExlocation: [t]}]}, {name: b, operators: [{name: B, host: {pool: P}, hostExlocation: [t]}]}, {name: c, operators: [{name: C, host: {pool: P}, hostExlocation: [t]}]}]}".to_owned(), R::TooManyExlocated, &["3 groups", "2 hosts"]),
            (two("{name: P, size: 1}", &(host("pool: P") + ", hostIsolation: true"), &host("pool: P")), R::TooManyExlocated, &["hostIsolation", "2 hosts"]),
            // Isolation that is shared.
            (two("", &format!("{together}, hostIsolation: true"), together), R::IsolationShared, &["\"A\"", "\"b\""]),
            (two("", &(host("name: n1") + ", hostIsolation: true"), &host("address: 10.8.5.6")), R::IsolationShared, &["node n1", "\"B\""]),
            // Pools.
            (two("{name: P, size: 2}", &host("pool: P, index: 2"), ""), R::IndexOutOfRange, &["host 2 of pool \"P\"", "0 to 1"]),
            (two("{name: P, tags: [source]}", &host("pool: P, index: 0"), ""), R::IndexOutOfRange, &["no size"]),
            (two("", &host("pool: Q"), ""), R::UndefinedPool, &["pool \"Q\"", "\"A\""]),
            (two("{name: P, hosts: [n1, 10.8.5.6]}", "", ""), R::InvalidPool, &["node n1 twice", "address 10.8.5.6"]),
            (two("{name: P, hosts: [n9]}", "", ""), R::UnknownHost, &["name n9", "hosts[0] of pool \"P\""]),
            (two("{name: P, size: 3, tags: [ib, blue]}", "", ""), R::InsufficientNodes, &["needs 3", "carried by 2"]),
            (two("{name: P, size: 4}", "", ""), R::InsufficientNodes, &["needs 4", "has 3"]),
            (two("{name: P, tags: [none]}", "", ""), R::NoTaggedNode, &["streams.ibm.com/hostpool=none"]),
            (two("{name: P, exclusivity: Exclusive}", "", ""), R::MalformedPool, &["Exclusive without size"]),
            (two("{name: P, size: 0}", "", ""), R::MalformedPool, &["size 0"]),
            (two("{name: P, hosts: []}", "", ""), R::MalformedPool, &["0 hosts"]),
            (two("{name: P, size: 1}, {name: P, size: 2}", "", ""), R::DuplicateName, &["two pools are named \"P\""]),
            (two("{name: 1P, size: 1}", "", ""), R::MalformedJob, &["SPL identifier"]),
            // Hosts and names.
            (two("", &host("name: n9"), ""), R::UnknownHost, &["name n9", "\"A\" of processing element \"a\""]),
            (two("", &host("name: shared.internal"), ""), R::AmbiguousHost, &["n1, n2, n3"]),
            (two("", &host("address: n1"), ""), R::InvalidHost, &["no IP address"]),
            (two("", &host("name: a b"), ""), R::InvalidHost, &["\"a b\""]),
            (two("", &host("name: n1, pool: P"), ""), R::InvalidHost, &["exactly one of"]),
            (two("", &host("name: n1, index: 0"), ""), R::InvalidHost, &["index"]),
            (two("", ", hostColocation: ['']", ""), R::InvalidToken, &["hostColocation", "empty"]),
            (two("", ", hostExlocation: [' a']", ""), R::InvalidToken, &["hostExlocation", "white space"]),
            ("{processingElements: [{name: a}, {name: a}]}".to_owned(), R::DuplicateName, &["two processing elements"]),
            ("{processingElements: [{name: 'a b'}]}".to_owned(), R::MalformedJob, &["label value"]),
            ("{processingElements: [{name: a, operators: [{name: A}, {name: A}]}]}".to_owned(), R::DuplicateName, &["two operators"]),
            ("{processingElements: [{name: a, operators: [{name: ''}]}]}".to_owned(), R::MalformedJob, &["the name is empty"]),
        ] {
            let findings = checked(&spec, &view(), &Policy::default());
            let first = findings.first().unwrap_or_else(|| panic!("accepted: {spec}"));
            assert_eq!(first.reason, reason, "{spec}: {first}");
            assert_eq!(first.subject, "StreamsJob parallel");
            for part in parts {
                assert!(first.to_string().contains(part), "{spec}: {part:?} in {first}");
            }
            assert!(!first.remedy.is_empty());
        }
    }

    #[test]
    fn all_that_is_wrong_is_told_what_the_job_says_first() {
        let spec = two(
            "{name: P, size: 9}",
            ", host: {name: n9}",
            ", host: {pool: Q}, hostColocation: ['']",
        );
        let policy = Policy::from_yaml("hostPools: {enabled: false}").unwrap();
        let findings = checked(&spec, &view(), &policy);
        let reasons: Vec<&str> = findings.iter().map(|finding| finding.reason.as_str()).collect();
        assert_eq!(
            reasons,
            ["UndefinedPool", "InvalidToken", "PoolNotAllowed", "InsufficientNodes", "UnknownHost"]
        );
    }

    #[test]
    fn the_policy_counts_exclusive_hosts_by_namespace() {
        let spec = two("{name: P, size: 2, exclusivity: Exclusive}", "", "");
        let policy = Policy::from_yaml("hostPools: {maxExclusiveNodesPerNamespace: 2}").unwrap();
        let mut view = view();
        assert_eq!(checked(&spec, &view, &policy), []);
        let pool = |name: &str, namespace: &str, owner: Option<&str>| {
            let owners = owner.map(|uid| json!([{"apiVersion": "stowplan.dev/v1alpha1", "kind": "StreamsJob", "name": "parallel", "uid": uid, "controller": true}]));
            let pool = json!({
                "apiVersion": "stowplan.dev/v1alpha1",
                "kind": "HostPool",
                "metadata": {"name": name, "namespace": namespace, "ownerReferences": owners},
                "spec": {"size": 1, "exclusivity": "Exclusive"},
            });
            Object::from_document(pool).unwrap().unwrap()
        };
        let (_, own) = job(&spec);
        view.apply(pool(&own.closure.pools[0].host_pool, "ns", Some("5f1d6b0e")));
        view.apply(pool("others", "elsewhere", None));
        assert_eq!(checked(&spec, &view, &policy), [], "its own, and another namespace's");
        view.apply(pool("others", "ns", None));
        let findings = checked(&spec, &view, &policy);
        assert_eq!(findings[0].reason, Reason::TooManyExclusiveNodes, "{findings:?}");
        assert!(findings[0].problem.contains("2 exclusive hosts beside 1"), "{}", findings[0]);
    }

    /// A job of the largest size, each operator with everything.
    #[test]
    fn a_large_job_is_checked_whole() {
        let elements: Vec<String> = (0..MAX_ELEMENTS)
            .map(|i| {
                format!("{{name: e{i}, operators: [{{name: O{i}, host: {{pool: P}}, hostColocation: [c{}], hostExlocation: [x{}]}}]}}", i / 2, i % 7)
            })
            .collect();
        let spec = format!(
            "{{pools: [{{name: P, size: 3}}], processingElements: [{}]}}",
            elements.join(",")
        );
        let findings = checked(&spec, &view(), &Policy::default());
        assert_eq!(findings.len(), 7, "{findings:?}");
        assert!(findings.iter().all(|finding| finding.reason == Reason::TooManyExlocated));
    }

    /// What an element of a small job says: host, colocation, exlocation, isolation.
    type Element = (Option<Place>, Option<u8>, Option<u8>, bool);

    /// Whether the elements fit on the three nodes in any way: by trying them all.
    fn fits(elements: &[Element], exclusive: bool) -> bool {
        let pools = [[0, 1], [1, 0], [0, 2], [2, 0], [1, 2], [2, 1]];
        (0..3_usize.pow(u32::try_from(elements.len()).unwrap())).any(|mut number| {
            let nodes: Vec<usize> = elements
                .iter()
                .map(|_| {
                    let node = number % 3;
                    number /= 3;
                    node
                })
                .collect();
            pools.iter().any(|members| holds(elements, &nodes, members, exclusive))
        })
    }

    /// Whether everybody has what he asks for, where the sized pool's hosts are `members`.
    fn holds(elements: &[Element], nodes: &[usize], members: &[usize; 2], exclusive: bool) -> bool {
        let of_pool = |index: usize| matches!(elements[index].0, Some(Place::Pool { pool: 1, .. }));
        let places = elements.iter().zip(nodes).all(|((place, ..), node)| match place {
            None => true,
            Some(Place::Host(Host::Name(name))) => **name == *format!("n{}", node + 1),
            Some(Place::Host(Host::Address(address))) => {
                address.to_string() == format!("10.8.5.{}", node + 6)
            }
            // The pool lists n1 and n2.
            Some(Place::Pool { pool: 0, index: None }) => *node < 2,
            Some(Place::Pool { pool: 0, index: Some(index) }) => *node == *index as usize,
            Some(Place::Pool { index: None, .. }) => members.contains(node),
            Some(Place::Pool { index: Some(index), .. }) => members[*index as usize] == *node,
        });
        // Who names another host has no business on an exclusive one.
        let kept_out = !exclusive
            || (0..elements.len()).all(|index| {
                elements[index].0.is_none() || of_pool(index) || !members.contains(&nodes[index])
            });
        let pairs = (0..elements.len()).all(|one| {
            (0..elements.len()).filter(|other| *other != one).all(|other| {
                let ((_, together, apart, alone), same) =
                    (&elements[one], nodes[one] == nodes[other]);
                let (_, other_together, other_apart, _) = &elements[other];
                (together.is_none() || together != other_together || same)
                    && (apart.is_none() || apart != other_apart || !same)
                    && !(*alone && same)
            })
        });
        places && kept_out && pairs
    }

    fn place_of(number: u8) -> Option<Place> {
        let pool = |pool, index| Some(Place::Pool { pool, index });
        match number {
            0 => Some(Place::Host(Host::Name("n1".into()))),
            1 => Some(Place::Host(Host::parse("10.8.5.6").unwrap())),
            2 => Some(Place::Host(Host::Name("n2".into()))),
            3 => pool(0, None),
            4 => pool(0, Some(0)),
            5 => pool(1, None),
            6 => pool(1, Some(0)),
            7 => pool(1, Some(1)),
            _ => None,
        }
    }

    proptest::proptest! {
        /// Only what is certain is refused: no job that fits in some way.
        #[test]
        fn a_job_that_fits_is_accepted(
            elements in proptest::collection::vec((0u8..14, proptest::option::of(0u8..2), proptest::option::of(0u8..2), proptest::bool::weighted(0.1)), 1..5),
            exclusive: bool,
        ) {
            let elements: Vec<Element> =
                elements.into_iter().map(|(place, together, apart, alone)| (place_of(place), together, apart, alone)).collect();
            let said = elements.iter().enumerate().map(|(index, (place, together, apart, alone))| {
                let host = match place {
                    None => serde_json::Value::Null,
                    Some(Place::Host(Host::Name(name))) => json!({"name": name}),
                    Some(Place::Host(Host::Address(address))) => json!({"address": address}),
                    Some(Place::Pool { pool, index }) => json!({"pool": (if *pool == 0 { "Listed" } else { "Sized" }), "index": index}),
                };
                let tokens = |token: &Option<u8>| token.iter().map(|token| format!("t{token}")).collect::<Vec<_>>();
                json!({"name": format!("e{index}"), "operators": [{
                    "name": format!("O{index}"), "host": host, "hostIsolation": alone,
                    "hostColocation": tokens(together), "hostExlocation": tokens(apart),
                }]})
            });
            let exclusivity = if exclusive { "Exclusive" } else { "Shared" };
            let spec = json!({
                "pools": [{"name": "Listed", "hosts": ["n1", "n2"]}, {"name": "Sized", "size": 2, "exclusivity": exclusivity}],
                "processingElements": said.collect::<Vec<_>>(),
            });
            if fits(&elements, exclusive) {
                let findings = checked(&spec.to_string(), &view(), &Policy::default());
                proptest::prop_assert!(findings.is_empty(), "{spec}: {findings:?}");
            }
        }
    }
}
