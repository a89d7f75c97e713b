//! `host` and `host-pool`: which nodes they mean.

use std::collections::HashSet;

use super::keys;
use super::request::{PoolReference, Request};
use super::{NAME, Placing, cause};
use k8s_openapi::api::core::v1::NodeSelectorTerm;

use crate::placement::affinity::{implies, matches_nothing, pinned_node};
use crate::placement::intent::{NodeTerm, Wish, on_labels, on_node};
use crate::placement::merge::required_node_terms;
use crate::placement::pod::Pod;
use crate::placement::reason::{Reason, quoted};
use crate::placement::record;
use crate::view::host_pool::{Form, Host};
use crate::view::node::{TAG_KEY, TAG_PREFIX, tag};
use crate::view::{Key, Name, View};

/// Which node a host is.
enum Resolved<'v> {
    Node(&'v str),
    Unknown,
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

fn resolve<'v>(view: &'v View, host: &'v Host) -> Resolved<'v> {
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

    /// Binds the pod to `node` in the manner of the policy.
    fn on_node(&mut self, key: &'static str, value: &str, node: &str) {
        // Of the forms in the Streams design only host() is a node name; a pool's member is not.
        let by_name = self.seed() && key == keys::HOST;
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
                "compat seed: nodeName bypasses the scheduler, taints and delayed volume binding",
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
        match (&pool.form, reference.index) {
            (Err(problem), _) => {
                let problem = format!("HostPool {} {problem}", reference.name);
                self.find(Reason::InvalidPool, key, problem, "mend the HostPool");
                None
            }
            (Ok(Form::Managed), _) => {
                self.find(
                    Reason::PoolNotReady,
                    key,
                    format!(
                        "HostPool {} is sized or exclusive, and has no members yet",
                        reference.name
                    ),
                    "use a pool of hosts or of tags: this release does not fill the others",
                );
                None
            }
            (Ok(Form::Literal(hosts)), Some(index)) => {
                self.member(value, &reference.name, hosts, index)
            }
            (Ok(Form::Literal(hosts)), None) => self.literal(value, &reference.name, hosts),
            (Ok(Form::Tagged(_) | Form::Any), Some(_)) => {
                self.find(
                    Reason::IndexOutOfRange,
                    key,
                    format!("HostPool {} has no size, so no member has an index", reference.name),
                    "leave the index out, or use a pool that lists its hosts",
                );
                None
            }
            (Ok(Form::Tagged(tags)), None) => {
                self.tagged(value, &reference.name, tags);
                None
            }
            // Every node will do: nothing is written.
            (Ok(Form::Any), None) => None,
        }
    }

    fn check_pool_policy(&mut self) {
        let policy = &self.policy.host_pools;
        let problem = if !policy.enabled {
            "the policy turns host pools off".to_owned()
        } else {
            let labels = self.view.namespace_labels(self.pod.namespace);
            let missing = policy.namespaces.iter().find(|(key, value)| {
                labels.and_then(|labels| labels.get(key.as_str())).map(AsRef::as_ref)
                    != Some(value.as_str())
            });
            match missing {
                None => return,
                Some((key, value)) => format!(
                    "the policy allows host pools in namespaces labelled {key}={value}, and {} is not",
                    self.pod.namespace
                ),
            }
        };
        self.find(
            Reason::PoolNotAllowed,
            keys::HOST_POOL,
            problem,
            "ask the cluster's administrator, or remove the annotation",
        );
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
                    "no host that HostPool {pool} lists ({}) is a node of this cluster",
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
                "{missing} of {} hosts of HostPool {pool} are no nodes; left out",
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

fn kind(host: &Host) -> &'static str {
    match host {
        Host::Name(_) => "name",
        Host::Address(_) => "address",
    }
}

fn told(host: &Host) -> String {
    match host {
        Host::Name(name) => format!("name {name}"),
        Host::Address(address) => format!("address {address}"),
    }
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
