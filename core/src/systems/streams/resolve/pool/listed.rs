//! Binds a pod to the hosts of a pool that lists them and that the controller does not label.

use std::collections::{BTreeSet, HashSet};

use super::super::super::owners::Owner;
use super::super::super::{Placing, keys};
use super::super::{Resolved, Wording, format_host, resolve, suggest_node};
use super::list;
use crate::placement::intent::{Change, on_node};
use crate::placement::reason::{Reason, quoted};
use crate::systems::streams::kinds::{Host, format_indices};

/// The remedy if a listed address or name is that of several nodes.
const NAME_THE_NODE: &str =
    "create another pool that names the node itself: its hosts are immutable";

impl Placing<'_> {
    /// Binds the pod to one host of a pool that lists its hosts.
    pub(super) fn bind_to_member(
        &mut self,
        value: &str,
        pool: &str,
        hosts: &[Host],
        index: u32,
    ) -> Option<String> {
        let key = keys::HOST_POOL;
        let host = usize::try_from(index).ok().and_then(|index| hosts.get(index));
        let Some(host) = host else {
            let problem = format!(
                "HostPool {pool} has no index {index}: it has {}",
                format_indices(hosts.len())
            );
            let remedy = "use an index of the pool's list; it starts at 0";
            return self.refuse(Reason::IndexOutOfRange, key, problem, remedy);
        };
        self.bind_to_host(
            key,
            value,
            host,
            &Wording {
                what: format!("hosts[{index}] of HostPool {pool}, {}", format_host(host)),
                verbs: ["is", "are"],
                if_unknown: "use another index, or create another pool: its hosts are immutable",
                if_ambiguous: NAME_THE_NODE,
            },
        )
    }

    /// Binds the pod to any listed host that is a node and is not reserved by another pool.
    pub(super) fn bind_to_listed(&mut self, value: &str, pool: &str, hosts: &[Host]) {
        let key = keys::HOST_POOL;
        let mut nodes: Vec<&str> = Vec::with_capacity(hosts.len());
        let mut seen = HashSet::with_capacity(hosts.len());
        let (mut missing, mut reserved) = (0, 0);
        let mut first_missing = String::new();
        let mut owners: BTreeSet<Owner<'_>> = BTreeSet::new();
        for host in hosts {
            match resolve(self.view, host) {
                Resolved::Node(node) if !seen.insert(node) => {
                    let problem = format!(
                        "HostPool {pool} lists node {node} twice, once as {}",
                        format_host(host)
                    );
                    let remedy =
                        "create another pool that lists each node once: its hosts are immutable";
                    return self.report(Reason::InvalidPool, key, problem, remedy);
                }
                Resolved::Node(node) => match self.reserved_by(node) {
                    None => nodes.push(node),
                    Some(owner) => {
                        reserved += 1;
                        owners.insert(owner);
                    }
                },
                Resolved::Unknown => {
                    if missing == 0 {
                        first_missing =
                            format!("{}{}", format_host(host), suggest_node(self.view, host));
                    }
                    missing += 1;
                }
                Resolved::Ambiguous(nodes) => {
                    let problem = format!(
                        "HostPool {pool} lists {}, which several nodes have: {}",
                        format_host(host),
                        nodes.join(", ")
                    );
                    return self.report(Reason::AmbiguousHost, key, problem, NAME_THE_NODE);
                }
            }
        }
        if nodes.is_empty() {
            let (hosts, is) = match hosts.len() {
                1 => ("the only host".to_owned(), "is not"),
                all => (format!("none of the {all} hosts"), "is"),
            };
            let (reason, why) = if owners.is_empty() {
                (Reason::UnknownHost, format!("no node has the {first_missing}"))
            } else {
                let are = if reserved == 1 { "is" } else { "are" };
                let why = format!("{reserved} {are} exclusive to {}", list(&owners));
                (Reason::HostReserved, why)
            };
            let problem = format!(
                "{hosts} of HostPool {pool} {is} an unreserved node of this cluster: {why}"
            );
            let remedy =
                "create another pool with other hosts (`kubectl get nodes` lists the nodes)";
            return self.report(reason, key, problem, remedy);
        }
        let against = nodes.iter().map(|node| self.own_choice_against(node));
        if let Some(choice) =
            against.collect::<Option<Vec<_>>>().and_then(|all| all.first().copied())
        {
            let problem = format!(
                "none of the nodes of HostPool {pool} matches the pod's own {choice}: {}",
                nodes.join(", ")
            );
            let remedy = format!("change the pod's {choice}, or name another pool");
            return self.report(Reason::NodeAffinityConflict, key, problem, &remedy);
        }
        if let Some(other) = self.pod.node_name.filter(|node| !nodes.contains(node)) {
            let problem =
                format!("spec.nodeName is {}, which is not in HostPool {pool}", quoted(other));
            let remedy = "remove spec.nodeName, or name a host of the pool";
            return self.report(Reason::NodeNameConflict, key, problem, remedy);
        }
        if missing + reserved > 0 {
            let (ignored, all) = (missing + reserved, hosts.len());
            let text = format!(
                "{ignored} of {all} hosts of HostPool {pool} are reserved or not nodes, and are ignored"
            );
            let text = match missing {
                0 => text,
                _ => format!("{text}: no node has the {first_missing}"),
            };
            self.warn(key, &text);
        }
        let terms = nodes.iter().map(|node| on_node(node)).collect();
        self.change(key, value, Change::NodeAffinity(terms));
        let decision = match nodes.as_slice() {
            [node] => format!("node {node}"),
            nodes => format!("one of {} nodes", nodes.len()),
        };
        self.record(key, value, &decision);
        self.warn_about_node_name(key);
    }
}
