//! Finds the nodes of `host` and `host-pool`, and binds the pod to them.
//!
//! A decision of an earlier round, which the pod's record names, is kept. Otherwise a host is looked up here,
//! and a pool in [`pool`].

mod pool;

use k8s_openapi::api::core::v1::NodeSelectorTerm;

use super::job::place::Member;
use super::owners::{Owner, find_pool, pool_of_hash};
use super::request::Request;
use super::{Placing, keys};
use crate::kubernetes::required_node_terms;
use crate::names::is_short_digest;
use crate::placement::affinity::{excludes, implies, matches_nothing, pinned_node};
use crate::placement::intent::{Change, on_labels, on_node};
use crate::placement::pod::Pod;
use crate::placement::reason::{Reason, quoted};
use crate::placement::toleration::tolerates;
use crate::policy;
use crate::systems::View;
use crate::systems::fit::{self, Candidate, Obstacle, PodNeeds, Question};
use crate::systems::streams::kinds::{Host, Location, Tags};
use crate::systems::streams::resources::HOST_POOL;
use crate::view::{Key, Name};

/// The result of looking up a host.
#[derive(Debug)]
pub(crate) enum Resolved<'v> {
    /// Exactly this node has the name or address.
    Node(&'v str),
    /// No node has it.
    Unknown,
    /// Several nodes have it.
    Ambiguous(Vec<&'v str>),
}

/// The parts of a finding about a host that is not exactly one node.
struct Wording {
    /// The host, as the object of `verbs`.
    what: String,
    /// The verb for one node, and for several.
    verbs: [&'static str; 2],
    /// The remedy if no node is found.
    if_unknown: &'static str,
    /// The remedy if several nodes are found.
    if_ambiguous: &'static str,
}

/// Looks up a host. The name of a node takes precedence over the addresses of nodes, also if that name is
/// an address, as on IBM Cloud.
pub(crate) fn resolve<'v>(view: &'v View, host: &'v Host) -> Resolved<'v> {
    let mut nodes: Vec<&str> = match host {
        Host::Name(name) if view.node(name).is_some() => return Resolved::Node(name),
        Host::Name(name) => view.nodes_with_host_name(name).collect(),
        Host::Address(address) => match view.node_named(&address.to_string()) {
            Some(node) => return Resolved::Node(node),
            None => view.nodes_with_address(*address).collect(),
        },
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

/// Returns the node of a host, if it is exactly one.
pub(crate) fn find_node<'v>(view: &'v View, host: &'v Host) -> Option<&'v str> {
    match resolve(view, host) {
        Resolved::Node(node) => Some(node),
        Resolved::Unknown | Resolved::Ambiguous(_) => None,
    }
}

/// Formats a suggestion in brackets for a host that no node has: the only node with the same
/// first label (`n1` and `n1.example.com`), or the one whose name differs in at most two adjacent
/// characters. Empty if there is no such node, or several.
pub(crate) fn suggest_node(view: &View, host: &Host) -> String {
    let Host::Name(name) = host else { return String::new() };
    let first_label = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let own = first_label(name);
    let nodes = || view.nodes().map(|(node, _)| node);
    let mut same = nodes().filter(|node| first_label(node) == own);
    match (same.next(), same.next()) {
        (Some(node), None) => policy::meant(node, std::iter::once(node)),
        _ => policy::meant(name, nodes().filter(|node| is_similar(node, name))),
    }
}

/// Returns true if two names differ in at most two adjacent characters. Of thousands of nodes few do.
fn is_similar(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let equal = |(a, b): &(&u8, &u8)| a == b;
    let start = one.iter().zip(other).take_while(equal).count();
    let (one, other) = (&one[start..], &other[start..]);
    let end = one.iter().rev().zip(other.iter().rev()).take_while(equal).count();
    one.len().max(other.len()) - end <= 2
}

impl Placing<'_> {
    /// Binds the pod to its `host` or `host-pool`. Returns the node if only one is possible.
    pub(super) fn resolve_location(&mut self, request: &Request) -> Option<String> {
        if let Some((value, host)) = &request.host {
            return self.resolve_host(value, host);
        }
        let (value, pool) = request.pool.as_ref()?;
        self.resolve_pool(value, pool)
    }

    /// Binds the pod to a host or pool of its StreamsJob; `value` is the location as the job writes
    /// it. Returns the node if only one is possible.
    pub(super) fn resolve_location_in_job(
        &mut self,
        member: &Member<'_>,
        location: &Location,
        value: &str,
    ) -> Option<String> {
        match location {
            Location::Host(host) => self.resolve_host(value, host),
            Location::Pool { pool, index } => {
                let pool = member.job.closure.pools.get(*pool)?;
                self.resolve_pool_in_job(member, pool, *index, value)
            }
        }
    }

    /// Keeps the decision of an earlier round even if the cluster has changed since then. Both the
    /// pod's record and its node affinity or node name must state the decision. An author who
    /// forges both only constrains the pod further: what a pod gains, a toleration, comes from the
    /// pool as it is now and never from the record.
    ///
    /// `pool` is the name of the HostPool that the pod asks for. If the decision is for an earlier pool
    /// of this name, the pod is refused: it could never run.
    ///
    /// Returns `None` if there is no such decision, otherwise the node if only one is possible.
    fn keep_recorded(
        &mut self,
        key: &'static str,
        value: &str,
        pool: Option<&str>,
    ) -> Option<Option<String>> {
        if !self.policy.record_placement {
            // This round removes the record, so it must not use it either.
            return None;
        }
        let decision = &*self.recorded(key, value)?;
        if let Some(node) = decision.strip_prefix("node ") {
            if !is_pinned(self.pod, node) && self.pod.node_name != Some(node) {
                return None;
            }
            self.bind_to_node(key, value, node);
            return Some(Some(node.to_owned()));
        }
        if let Some((index, hash)) = parse_members(decision) {
            let label = keys::pool_label(hash);
            let index = index.map(|index| index.to_string());
            let term = on_labels(&[(&label, index.as_deref())]);
            if !all_terms(self.pod, |present| implies(present, &term)) {
                return None;
            }
            if let Some(pool) = pool
                && self.is_of_earlier_pool(key, pool, hash)
            {
                return Some(None);
            }
            let index = index.and_then(|index| index.parse().ok());
            let is_exclusive = pool_of_hash(hash, self.view).is_some_and(|(name, pool)| {
                pool.exclusive && *name.namespace == *self.pod.namespace
            });
            // No hostnames: those in the pod's affinity are of the members that the pool had then.
            self.require_members(value, hash, is_exclusive, index, &[]);
            self.record(key, value, decision);
            self.warn_about_node_name(key);
            return Some(None);
        }
        let is_confirmed = if let Some(tags) = decision.strip_prefix("nodes tagged ") {
            let term = Tags::new(tags.split(" and ")).term();
            all_terms(self.pod, |present| implies(present, &term))
        } else {
            all_terms(self.pod, |present| pinned_node(present).is_some())
        };
        if !is_confirmed {
            return None;
        }
        self.record(key, value, decision);
        self.warn_about_node_name(key);
        Some(None)
    }

    /// Returns true if the pod was bound to an earlier pool of the name `pool`, which is reported. Such a pod
    /// is from a backup: pools are found by a hash of their UID, and a restored pool has another one.
    /// Without any pool of that name the decision is kept, with a warning.
    fn is_of_earlier_pool(&mut self, key: &'static str, pool: &str, hash: &str) -> bool {
        let view = self.view;
        if pool_of_hash(hash, view).is_some() {
            return false;
        }
        let name = Name::new(self.pod.namespace, pool);
        let Some(present) = view.host_pool(&name).and_then(|pool| pool.hash.as_deref()) else {
            let text = format!(
                "no HostPool has the hash {hash} that the pod's node affinity requires; if the pod is \
                 from a backup, delete it, so that its workload creates it again"
            );
            self.warn(key, &text);
            return false;
        };
        // Perhaps the watch has not delivered the pool that another replica has seen.
        self.outcome.awaited.push(Key::new(HOST_POOL, name));
        let problem = format!(
            "the pod's node affinity requires the hash {hash} of an earlier HostPool {pool}, and that \
             of the present one is {present}"
        );
        let remedy = "leave pods out of the backup, so that their workloads create them; or create this \
                      one without its affinity and the annotation stowplan.dev/placement";
        self.report(Reason::NodeAffinityConflict, key, problem, remedy);
        true
    }

    fn resolve_host(&mut self, value: &str, host: &Host) -> Option<String> {
        if let Some(kept) = self.keep_recorded(keys::HOST, value, None) {
            return kept;
        }
        let wording = Wording {
            what: format!("the {} {}", format_kind(host), quoted(value)),
            verbs: ["has", "have"],
            if_unknown: "name a node of this cluster (`kubectl get nodes -o wide` lists names and addresses)",
            if_ambiguous: "give the node's own name",
        };
        self.bind_to_host(keys::HOST, value, host, &wording)
    }

    /// Binds the pod to the node of `host`. Reports a finding if there is no such node, or several.
    fn bind_to_host(
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
                    let problem = format!("node {node} is exclusive to {owner}");
                    let remedy = "name another host, or a pool of this namespace";
                    return self.refuse(Reason::HostReserved, key, problem, remedy);
                }
                let node = node.to_owned();
                if let Some(choice) = self.own_choice_against(&node) {
                    let problem = format!(
                        "resolves to node {node}, which does not match the pod's own {choice}"
                    );
                    let remedy = format!("change the pod's {choice}, or this constraint");
                    return self.refuse(Reason::NodeAffinityConflict, key, problem, &remedy);
                }
                self.bind_to_node(key, value, &node);
                Some(node)
            }
            Resolved::Unknown => {
                let problem = format!("no node {has} {what}{}", suggest_node(self.view, host));
                self.refuse(Reason::UnknownHost, key, problem, if_unknown)
            }
            Resolved::Ambiguous(nodes) => {
                let problem = format!("several nodes {have} {what}: {}", nodes.join(", "));
                self.refuse(Reason::AmbiguousHost, key, problem, if_ambiguous)
            }
        }
    }

    /// The exclusive pool whose taint keeps the pod off a node; `None` if there is no such taint or the
    /// pod tolerates it.
    fn reserved_by(&self, node: &str) -> Option<Owner<'_>> {
        self.kept_off_by(self.view.node_marks.exclusive_pool(node)?)
    }

    /// Returns the owner with this hash; `None` if the pod tolerates the taint of that pool.
    fn kept_off_by(&self, hash: &str) -> Option<Owner<'_>> {
        let mut tolerations = self.pod.tolerations.iter().flatten();
        let tolerated = tolerations.any(|own| {
            let mut taints = keys::EXCLUSIVE_TAINTS.iter();
            taints.any(|key| tolerates(own, key, hash, keys::EXCLUSIVE_EFFECT))
        });
        // An element may ask for an exclusive pool, and for a host that is one of its members.
        let is_given = |change: &Change| {
            matches!(
                change,
                Change::Toleration { key, value, .. }
                    if *key == keys::EXCLUSIVE_TAINT && value == hash
            )
        };
        if tolerated || self.outcome.intents.iter().any(|intent| is_given(&intent.change)) {
            return None;
        }
        Some(Owner::new(find_pool(hash, self.view), self.pod.namespace))
    }

    /// The field by which the author of the pod excludes a node by its labels; `None`: it is allowed,
    /// as far as its labels are known. The merge reports a node that is excluded by its name.
    pub(super) fn own_choice_against(&self, name: &str) -> Option<&'static str> {
        let needs = PodNeeds::of_admitted(self.pod);
        let node = self.view.node(name)?;
        let candidate = Candidate { name, node, view: self.view, usage: None };
        let pin = on_node(name);
        match fit::first_obstacle(&Question::new(candidate, &needs), fit::CHOICE)? {
            Obstacle::NodeSelector => Some("nodeSelector"),
            _ if all_terms(self.pod, |term| excludes(term, &pin)) => None,
            _ => Some("nodeAffinity"),
        }
    }

    /// Binds the pod to `node`, by node affinity or, under `compat: upstream`, by node name.
    fn bind_to_node(&mut self, key: &'static str, value: &str, node: &str) {
        // The Streams design writes a node name for host() only, not for a member of a pool.
        let by_name = self.is_compatible() && key == keys::HOST;
        match self.pod.node_name {
            Some(other) if other != node => {
                let problem =
                    format!("resolves to node {node}, and spec.nodeName is {}", quoted(other));
                let remedy = "remove spec.nodeName, or name the same node in both";
                return self.report(Reason::NodeNameConflict, key, problem, remedy);
            }
            // A stored pod that is already bound and has the node affinity stays unchanged.
            Some(_) if !by_name && !is_pinned(self.pod, node) => {
                self.change(key, value, Change::ReleaseNodeName);
            }
            _ => {}
        }
        if by_name {
            let text = "compat upstream: nodeName bypasses the scheduler, taints and delayed volume binding";
            self.warn(key, text);
            self.change(key, value, Change::SetNodeName(node.to_owned()));
        } else {
            self.change(key, value, Change::NodeAffinity(vec![on_node(node)]));
        }
        self.record(key, value, &format!("node {node}"));
    }
}

fn format_kind(host: &Host) -> &'static str {
    match host {
        Host::Name(_) => "name",
        Host::Address(_) => "address",
    }
}

/// `name n1`, `address 10.8.5.6`.
pub(crate) fn format_host(host: &Host) -> String {
    match host {
        Host::Name(name) => format!("name {name}"),
        Host::Address(address) => format!("address {address}"),
    }
}

/// Formats the problem that two listed hosts are one node, as the end of a sentence that begins with the pool.
pub(crate) fn format_twice(node: &str, one: &Host, other: &Host) -> String {
    let (one, other) = (format_host(one), format_host(other));
    format!("has node {node} twice: once as the {one}, once as the {other}")
}

/// Returns true if every term of the pod's required node affinity requires this node.
fn is_pinned(pod: &Pod<'_>, node: &str) -> bool {
    let pin = on_node(node);
    all_terms(pod, |term| implies(term, &pin))
}

/// Returns true if the pod's required node affinity has terms that can match a node, and `holds` is
/// true for each of them.
fn all_terms(pod: &Pod<'_>, holds: impl Fn(&NodeSelectorTerm) -> bool) -> bool {
    let terms = required_node_terms(Some(&pod.affinity)).unwrap_or_default();
    let mut effective = terms.iter().filter(|term| !matches_nothing(*term)).peekable();
    effective.peek().is_some() && effective.all(holds)
}

/// Parses a recorded decision about the members of a labelled pool: the index if it is one member,
/// and the pool's hash.
fn parse_members(decision: &str) -> Option<(Option<u32>, &str)> {
    let (which, pool) = decision.split_once(" of pool ")?;
    let index = match which.strip_prefix("member") {
        Some("s") => None,
        Some(index) => Some(index.trim_start().parse().ok()?),
        None => return None,
    };
    let hash = pool.strip_suffix(", exclusive").unwrap_or(pool);
    is_short_digest(hash).then_some((index, hash))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_similar_if_they_differ_in_two_adjacent_characters_at_most() {
        for (one, other, expected) in [
            ("node-1", "node-1", true),
            ("node-1", "nod-1", true),
            ("node-1", "ndoe-1", true),
            ("node-1", "nude-1", true),
            ("node-1", "node-123", true),
            ("node-1", "node-1234", false),
            ("node-1", "nude-2", false),
            ("", "ab", true),
            ("", "abc", false),
        ] {
            assert_eq!(is_similar(one, other), expected, "{one:?} {other:?}");
            assert_eq!(is_similar(other, one), expected, "{other:?} {one:?}");
        }
    }
}
