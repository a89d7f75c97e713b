//! `host` and `host-pool`: which nodes they mean.

use std::collections::HashSet;

use super::job::Member;
use super::request::{PoolReference, Request};
use super::{NAME, Placing, cause};
use super::{guard, keys};
use k8s_openapi::api::core::v1::NodeSelectorTerm;

use crate::api::condition::{ACCEPTED, Condition, READY, Status, find};
use crate::api::host_pool::MemberState;
use crate::placement::affinity::{implies, matches_nothing, pinned_node};
use crate::placement::intent::{NodeTerm, Wish, on_labels, on_node};
use crate::placement::merge::required_node_terms;
use crate::placement::pod::Pod;
use crate::placement::reason::{Reason, quoted};
use crate::placement::record;
use crate::placement::toleration::tolerates;
use crate::view::host_pool::{Form, Host};
use crate::view::node::{TAG_KEY, TAG_PREFIX, tag};
use crate::view::streams_job::closure::Place;
use crate::view::{HostPool, Key, Name, View};

/// Which node a host is.
#[derive(Debug)]
pub enum Resolved<'v> {
    /// This one.
    Node(&'v str),
    /// None.
    Unknown,
    /// Several.
    Ambiguous(Vec<&'v str>),
}

/// How a host that is not one node is told of.
struct Wording {
    /// What was asked for.
    what: String,
    /// What one node, and what several nodes do with it.
    verbs: [&'static str; 2],
    if_unknown: &'static str,
    if_ambiguous: &'static str,
}

/// Looks a host up: a node's own name before its addresses.
#[must_use]
pub fn resolve<'v>(view: &'v View, host: &'v Host) -> Resolved<'v> {
    let mut nodes: Vec<&str> = match host {
        Host::Name(name) if view.node(name).is_some() => return Resolved::Node(name),
        Host::Name(name) => view.nodes_with_host_name(name).collect(),
        Host::Address(address) => view.nodes_with_address(*address).collect(),
    };
    match (nodes.pop(), nodes.is_empty()) {
        (None, _) => Resolved::Unknown,
        (Some(node), true) => Resolved::Node(node),
        (Some(node), false) => {
            nodes.push(node);
            Resolved::Ambiguous(nodes)
        }
    }
}

impl Placing<'_> {
    /// `host`, `host-pool`. Returns the one node that the pod must go to, if there is one.
    pub(super) fn location(&mut self, request: &Request) -> Option<String> {
        if let Some((value, host)) = &request.host {
            return self.settled(keys::HOST, value).unwrap_or_else(|| self.host(value, host));
        }
        let (value, pool) = request.pool.as_ref()?;
        self.check_pool_policy();
        self.settled(keys::HOST_POOL, value).unwrap_or_else(|| self.pool(value, pool))
    }

    /// `host(...)` of a StreamsJob: like the annotation, for pools that the job describes itself.
    /// Returns the one node that the pod must go to, if there is one.
    pub(super) fn place(
        &mut self,
        member: &Member<'_>,
        place: &Place,
        said: &str,
    ) -> Option<String> {
        let (pool, index) = match place {
            Place::Host(host) => {
                let settled = self.settled(keys::HOST, said);
                return settled.unwrap_or_else(|| self.host(said, host));
            }
            Place::Pool { pool, index } => (member.job.closure.pools.get(*pool)?, *index),
        };
        self.check_pool_policy();
        if let Some(settled) = self.settled(keys::HOST_POOL, said) {
            return settled;
        }
        // What the job itself says of such a pool is all there is to know.
        if !pool.is_labelled() {
            return self.form(said, &pool.host_pool, None, pool.form.as_ref(), index);
        }
        let key = keys::HOST_POOL;
        let name = Name::new(self.pod.namespace, &pool.host_pool);
        let view = self.view;
        let found = view.host_pool(&name);
        let owner = found.and_then(|found| found.job.as_ref());
        let found = match (found, owner) {
            (Some(found), Some((_, uid))) if *uid == member.job.identity.uid => found,
            // One of an earlier job of this name goes with that job.
            (found, owner)
                if found.is_none() || owner.is_some_and(|(job, _)| **job == *member.name) =>
            {
                let problem = format!("HostPool {} of the job is not made yet", name.name);
                self.outcome.awaited.push(Key::HostPool(name));
                let remedy = "wait for stowplan's controller (`kubectl describe streamsjob` tells what it waits for)";
                self.find(Reason::UnknownPool, key, problem, remedy);
                return None;
            }
            _ => {
                let problem = format!("HostPool {} belongs to somebody else", name.name);
                let remedy = "delete that HostPool, or rename the pool in a new job";
                self.find(Reason::PoolReserved, key, problem, remedy);
                return None;
            }
        };
        self.form(said, &name.name, Some(found), pool.form.as_ref(), index)
    }

    /// Keeps a decision that an earlier round wrote, whatever the View has learnt since: the record
    /// names it and the pod bears it out. Who forges both has constrained the pod himself, and gains
    /// nothing.
    fn settled(&mut self, key: &'static str, value: &str) -> Option<Option<String>> {
        if !self.policy.record_placement {
            // It is taken away in this round, so the next one could not believe it either.
            return None;
        }
        let entries = record::entries(self.pod.annotation(record::KEY)?, NAME);
        let cause = cause(key, value);
        let what =
            entries.iter().find_map(|entry| entry.strip_prefix(&cause)?.strip_prefix(": "))?;
        if let Some(node) = what.strip_prefix("node ") {
            if !is_pinned(self.pod, node) && self.pod.node_name != Some(node) {
                return None;
            }
            self.on_node(key, value, node);
            return Some(Some(node.to_owned()));
        }
        if let Some((index, hash, exclusive)) = members(what) {
            let label = [keys::POOL_LABEL_PREFIX, hash].concat();
            let index = index.map(|index| index.to_string());
            let term = on_labels(&[(&label, index.as_deref())]);
            if !all_terms(self.pod, |present| implies(present, &term)) {
                return None;
            }
            let index = index.and_then(|index| index.parse().ok());
            self.on_members(value, hash, exclusive, index);
            self.holds(key, value, what);
            self.warn_of_node_name(key);
            return Some(None);
        }
        let borne_out: bool = if let Some(tags) = what.strip_prefix("nodes tagged ") {
            let term = tag_term(&tags.split(" and ").collect::<Vec<_>>());
            all_terms(self.pod, |present| implies(present, &term))
        } else {
            all_terms(self.pod, |present| pinned_node(present).is_some())
        };
        if !borne_out {
            return None;
        }
        self.holds(key, value, what);
        self.warn_of_node_name(key);
        Some(None)
    }

    fn host(&mut self, value: &str, host: &Host) -> Option<String> {
        self.one_node(keys::HOST, value, host, &Wording {
            what: format!("the {} {}", kind(host), quoted(value)),
            verbs: ["has", "have"],
            if_unknown: "name a node of this cluster (`kubectl get nodes -o wide` lists names and addresses)",
            if_ambiguous: "give the node's own name",
        })
    }

    /// Binds the pod to the one node that `host` is; finds fault where it is none or several.
    fn one_node(
        &mut self,
        key: &'static str,
        value: &str,
        host: &Host,
        wording: &Wording,
    ) -> Option<String> {
        let Wording { what, verbs: [has, have], if_unknown, if_ambiguous } = wording;
        match resolve(self.view, host) {
            Resolved::Node(node) => {
                if let Some(owner) = self.reserved_by(node) {
                    self.find(
                        Reason::HostReserved,
                        key,
                        format!("node {node} is exclusive to {owner}"),
                        "name another host, or ask for that pool",
                    );
                    return None;
                }
                let node = node.to_owned();
                self.on_node(key, value, &node);
                Some(node)
            }
            Resolved::Unknown => {
                self.find(Reason::UnknownHost, key, format!("no node {has} {what}"), if_unknown);
                None
            }
            Resolved::Ambiguous(nodes) => {
                let problem = format!("several nodes {have} {what}: {}", nodes.join(", "));
                self.find(Reason::AmbiguousHost, key, problem, if_ambiguous);
                None
            }
        }
    }

    /// The exclusive pool whose taint a node carries, unless the pod tolerates it.
    fn reserved_by(&self, node: &str) -> Option<String> {
        let hash = self.view.node(node)?.exclusive.as_deref()?;
        let mut tolerations = self.pod.tolerations.iter().flatten();
        let tolerated =
            tolerations.any(|own| tolerates(own, keys::EXCLUSIVE_TAINT, hash, "NoSchedule"));
        if tolerated {
            return None;
        }
        let owner = self.view.host_pools().find(|(_, pool)| pool.hash.as_deref() == Some(hash));
        Some(match owner {
            Some((name, _)) => format!("HostPool {}/{}", name.namespace, name.name),
            None => "a HostPool".to_owned(),
        })
    }

    /// Binds the pod to `node` in the manner of the policy.
    fn on_node(&mut self, key: &'static str, value: &str, node: &str) {
        // Of the forms in the Streams design only host() is a node name; a pool's member is not.
        let by_name = self.upstream() && key == keys::HOST;
        match self.pod.node_name {
            Some(other) if other != node => {
                let problem = format!("means node {node}, and spec.nodeName is {}", quoted(other));
                self.find(
                    Reason::NodeNameConflict,
                    key,
                    problem,
                    "remove spec.nodeName, or name the same node in both",
                );
                return;
            }
            // Bound already and pinned by us: the stored pod comes back as it is.
            Some(_) if !by_name && !is_pinned(self.pod, node) => {
                self.wish(key, value, Wish::ReleaseNodeName);
            }
            _ => {}
        }
        if by_name {
            self.warn(
                key,
                "compat upstream: nodeName bypasses the scheduler, taints and delayed volume binding",
            );
            self.wish(key, value, Wish::SetNodeName(node.to_owned()));
        } else {
            self.wish(key, value, Wish::NodeAffinity(vec![on_node(node)]));
        }
        self.holds(key, value, &format!("node {node}"));
    }

    fn pool(&mut self, value: &str, reference: &PoolReference) -> Option<String> {
        let key = keys::HOST_POOL;
        let name = Name::new(self.pod.namespace, &reference.name);
        let view = self.view;
        let Some(pool) = view.host_pool(&name) else {
            self.outcome.awaited.push(Key::HostPool(name));
            self.find(
                Reason::UnknownPool,
                key,
                format!(
                    "namespace {} has no HostPool {}",
                    self.pod.namespace,
                    quoted(&reference.name)
                ),
                "create it first (`kubectl get hostpools` lists those that are there)",
            );
            return None;
        };
        if let Some((job, _)) = &pool.job
            && self.pod.label(keys::JOB) != Some(&**job)
        {
            self.find(
                Reason::PoolReserved,
                key,
                format!("HostPool {} serves StreamsJob {job} only", reference.name),
                "use another pool, or label the pod with that job",
            );
            return None;
        }
        let labelled = pool.is_labelled().then_some(pool);
        self.form(value, &reference.name, labelled, pool.form.as_ref(), reference.index)
    }

    /// A pool of this form. `labelled`: the HostPool, where the controller labels its members.
    fn form(
        &mut self,
        value: &str,
        name: &str,
        labelled: Option<&HostPool>,
        form: Result<&Form, &String>,
        index: Option<u32>,
    ) -> Option<String> {
        let key = keys::HOST_POOL;
        match (form, index, labelled) {
            (Err(problem), ..) => {
                let problem = format!("HostPool {name} {problem}");
                self.find(Reason::InvalidPool, key, problem, "mend the HostPool");
                None
            }
            (Ok(form @ (Form::Sized(..) | Form::Literal(_))), index, Some(pool)) => {
                self.labelled(value, name, pool, guard::hosts(Some(form)), index);
                None
            }
            (Ok(Form::Literal(hosts)), Some(index), _) => self.member(value, name, hosts, index),
            (Ok(Form::Literal(hosts)), None, _) => self.literal(value, name, hosts),
            (Ok(Form::Tagged(_) | Form::Any), Some(_), _) => {
                self.find(
                    Reason::IndexOutOfRange,
                    key,
                    format!("HostPool {name} has no size, so no member has an index"),
                    "leave the index out, or use a pool that lists its hosts",
                );
                None
            }
            (Ok(Form::Tagged(tags)), None, _) => {
                self.tagged(value, name, tags);
                None
            }
            // Every node will do: nothing is written. A sized pool is always labelled.
            (Ok(Form::Any | Form::Sized(..)), None, _) | (Ok(Form::Sized(..)), Some(_), None) => {
                None
            }
        }
    }

    /// A pool whose members the controller labels: the scheduler finds them, now or later.
    fn labelled(
        &mut self,
        value: &str,
        name: &str,
        pool: &HostPool,
        size: u32,
        index: Option<u32>,
    ) {
        let key = keys::HOST_POOL;
        let Some(hash) = pool.hash.as_deref() else {
            self.find(
                Reason::PoolNotReady,
                key,
                format!("HostPool {name} has no UID, so it is not created yet"),
                "create it, or give it as `kubectl get hostpools -o yaml` prints it",
            );
            return;
        };
        if let Some(index) = index.filter(|index| *index >= size) {
            self.find(
                Reason::IndexOutOfRange,
                key,
                format!(
                    "HostPool {name} has {size} hosts, and {index} is not among 0 to {}",
                    size - 1
                ),
                "use an index of the pool; it starts at 0",
            );
            return;
        }
        if let Some((reason, problem)) = obstacle(pool) {
            self.find(
                reason,
                key,
                format!("HostPool {name} {problem}"),
                "see its status (`kubectl describe hostpool`)",
            );
            return;
        }
        self.on_members(value, hash, pool.exclusive, index);
        let which = index.map_or_else(|| "members".to_owned(), |index| format!("member {index}"));
        self.holds(
            key,
            value,
            &format!("{which} of pool {hash}{}", if pool.exclusive { ", exclusive" } else { "" }),
        );
        self.warn_of_node_name(key);
    }

    fn on_members(&mut self, value: &str, hash: &str, exclusive: bool, index: Option<u32>) {
        let key = keys::HOST_POOL;
        let label = [keys::POOL_LABEL_PREFIX, hash].concat();
        let index = index.map(|index| index.to_string());
        let term = on_labels(&[(&label, index.as_deref())]);
        self.wish(key, value, Wish::NodeAffinity(vec![term]));
        if exclusive {
            let wish = Wish::Toleration {
                key: keys::EXCLUSIVE_TAINT,
                value: hash.to_owned(),
                effect: "NoSchedule",
            };
            self.wish(key, value, wish);
        }
    }

    fn check_pool_policy(&mut self) {
        let subject = self.subject(keys::HOST_POOL);
        let allowed = guard::pools(&subject, self.pod.namespace, self.view, self.policy);
        self.outcome.findings.extend(allowed.err().filter(|finding| {
            // Two pools are forbidden for one reason.
            !self.outcome.findings.contains(finding)
        }));
    }

    fn member(&mut self, value: &str, pool: &str, hosts: &[Host], index: u32) -> Option<String> {
        let key = keys::HOST_POOL;
        let host = usize::try_from(index).ok().and_then(|index| hosts.get(index));
        let Some(host) = host else {
            self.find(
                Reason::IndexOutOfRange,
                key,
                format!(
                    "HostPool {pool} has {} hosts, and {index} is not among 0 to {}",
                    hosts.len(),
                    hosts.len() - 1
                ),
                "use an index of the pool's list; it starts at 0",
            );
            return None;
        };
        self.one_node(
            key,
            value,
            host,
            &Wording {
                what: format!("hosts[{index}] of HostPool {pool}, {}", told(host)),
                verbs: ["is", "are"],
                if_unknown: "use another index, or mend the HostPool",
                if_ambiguous: "name the node itself in the HostPool",
            },
        )
    }

    /// One alternative for each member that is there.
    fn literal(&mut self, value: &str, pool: &str, hosts: &[Host]) -> Option<String> {
        let key = keys::HOST_POOL;
        let mut nodes: Vec<&str> = Vec::with_capacity(hosts.len());
        let mut seen = HashSet::with_capacity(hosts.len());
        let mut missing = 0;
        for host in hosts {
            match resolve(self.view, host) {
                Resolved::Node(node) if !seen.insert(node) => {
                    let problem =
                        format!("HostPool {pool} lists node {node} twice, once as {}", told(host));
                    self.find(Reason::InvalidPool, key, problem, "list each node once");
                    return None;
                }
                // Nobody may go there; the others will do.
                Resolved::Node(node) if self.reserved_by(node).is_some() => missing += 1,
                Resolved::Node(node) => nodes.push(node),
                // A member that is away is left out: the others will do.
                Resolved::Unknown => missing += 1,
                Resolved::Ambiguous(nodes) => {
                    let problem = format!(
                        "HostPool {pool} lists {}, which several nodes have: {}",
                        told(host),
                        nodes.join(", ")
                    );
                    self.find(
                        Reason::AmbiguousHost,
                        key,
                        problem,
                        "name the node itself in the HostPool",
                    );
                    return None;
                }
            }
        }
        if nodes.is_empty() {
            self.find(
                Reason::UnknownHost,
                key,
                format!(
                    "no host that HostPool {pool} lists ({}) is a node of this cluster that is free",
                    hosts.len()
                ),
                "mend the HostPool",
            );
            return None;
        }
        if let Some(other) = self.pod.node_name.filter(|node| !nodes.contains(node)) {
            let problem =
                format!("spec.nodeName is {}, which is not in HostPool {pool}", quoted(other));
            self.find(
                Reason::NodeNameConflict,
                key,
                problem,
                "remove spec.nodeName, or name a host of the pool",
            );
            return None;
        }
        if missing > 0 {
            let text = format!(
                "{missing} of {} hosts of HostPool {pool} are no nodes, or reserved; left out",
                hosts.len()
            );
            self.warn(key, &text);
        }
        self.wish(key, value, Wish::NodeAffinity(nodes.iter().map(|node| on_node(node)).collect()));
        let what = match nodes.as_slice() {
            [node] => format!("node {node}"),
            nodes => format!("one of {} nodes", nodes.len()),
        };
        self.holds(key, value, &what);
        self.warn_of_node_name(key);
        None
    }

    fn tagged(&mut self, value: &str, pool: &str, tags: &[Box<str>]) {
        let key = keys::HOST_POOL;
        let names: Vec<&str> = tags.iter().map(AsRef::as_ref).collect();
        let indexed: Vec<Box<str>> = names.iter().map(|name| tag(name, names.len() == 1)).collect();
        if !self.view.has_node_with_tags(&indexed) {
            let wanted = indexed.join(" and ");
            self.find(
                Reason::NoTaggedNode,
                key,
                format!("no node carries the tags of HostPool {pool}: {wanted}"),
                "label a node (`kubectl label node NODE KEY=VALUE`)",
            );
            return;
        }
        self.wish(key, value, Wish::NodeAffinity(vec![tag_term(&names)]));
        self.holds(key, value, &format!("nodes tagged {}", names.join(" and ")));
        self.warn_of_node_name(key);
    }
}

/// Why no pod can be placed on the members of a pool, as the end of a sentence that begins with it.
fn obstacle(pool: &HostPool) -> Option<(Reason, String)> {
    let conditions = &pool.status.conditions;
    let current = |condition: &&Condition| {
        condition.status == Status::False
            && condition.observed_generation == Some(pool.identity.generation)
    };
    if let Some(refused) = find(conditions, ACCEPTED).filter(current) {
        return Some((Reason::InvalidPool, format!("is not accepted: {}", refused.message)));
    }
    // A pool that has lost some of its members still has the others.
    let is_empty = !pool.status.members.iter().any(|member| member.state == MemberState::Ready);
    let unready = find(conditions, READY).filter(current).filter(|_| is_empty)?;
    // What is still being reserved comes by itself; the scheduler waits for it.
    (unready.reason != "Reserving")
        .then(|| (Reason::PoolNotReady, format!("has no members: {}", unready.message)))
}

fn kind(host: &Host) -> &'static str {
    match host {
        Host::Name(_) => "name",
        Host::Address(_) => "address",
    }
}

/// `name n1`, `address 10.8.5.6`.
#[must_use]
pub fn told(host: &Host) -> String {
    match host {
        Host::Name(name) => format!("name {name}"),
        Host::Address(address) => format!("address {address}"),
    }
}

/// What a record says of a labelled pool: index, hash, and whether it is exclusive.
fn members(what: &str) -> Option<(Option<u32>, &str, bool)> {
    let (which, pool) = what.split_once(" of pool ")?;
    let index = match which.strip_prefix("member") {
        Some("s") => None,
        Some(index) => Some(index.trim_start().parse().ok()?),
        None => return None,
    };
    let (hash, exclusive) = match pool.strip_suffix(", exclusive") {
        Some(hash) => (hash, true),
        None => (pool, false),
    };
    let is_hash = hash.len() == 10 && hash.bytes().all(|b| b.is_ascii_hexdigit());
    is_hash.then_some((index, hash, exclusive))
}

/// The nodes that carry all of these tags: one tag is a value, several are a key each.
fn tag_term(tags: &[&str]) -> NodeTerm {
    if let [tag] = tags {
        return on_labels(&[(TAG_KEY, Some(tag))]);
    }
    let keys: Vec<String> = tags.iter().map(|tag| format!("{TAG_PREFIX}{tag}")).collect();
    on_labels(&keys.iter().map(|key| (key.as_str(), None)).collect::<Vec<_>>())
}

/// Whether every term of the pod's required node affinity asks for this node.
fn is_pinned(pod: &Pod<'_>, node: &str) -> bool {
    let pin = on_node(node);
    all_terms(pod, |term| implies(term, &pin))
}

/// Whether this holds for every term that can select a node, and there is one.
fn all_terms(pod: &Pod<'_>, holds: impl Fn(&NodeSelectorTerm) -> bool) -> bool {
    let terms = required_node_terms(pod).unwrap_or_default();
    let mut able = terms.iter().filter(|term| !matches_nothing(*term)).peekable();
    able.peek().is_some() && able.all(holds)
}
