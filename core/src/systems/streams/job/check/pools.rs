//! Checks each pool of a job separately.

use std::collections::HashMap;

use super::super::super::guard;
use super::super::super::resolve::{Resolved, format_host, format_twice, resolve, suggest_node};
use super::Check;
use crate::placement::reason::Reason;
use crate::systems::check::words::counted;
use crate::systems::policy::Policy;
use crate::systems::streams::kinds::{Form, Host, HostPool, JobPool, StreamsJob, Tags, to_usize};
use crate::view::Name;

impl<'c> Check<'c> {
    /// Checks the form of each pool, whether the policy allows it, and whether the cluster has
    /// hosts for it.
    pub(super) fn check_pools(&mut self, name: &Name, job: &StreamsJob, policy: &Policy) {
        let closure = self.closure;
        if closure.pools.is_empty() {
            return;
        }
        let subject = self.subject.clone();
        let namespace = &*name.namespace;
        self.findings.extend(guard::pools(&subject, namespace, self.view, policy));
        let exclusive = closure.pools.iter().filter(|pool| pool.exclusive);
        let wanted = exclusive.filter_map(JobPool::size).fold(0, u32::saturating_add);
        let uid = &job.identity.uid;
        let of_others = |pool: &str, found: &HostPool| {
            let is_own = closure.pools.iter().any(|own| *own.host_pool == *pool);
            !is_own || found.job.as_ref().is_none_or(|(_, owner)| owner != uid)
        };
        let too_many =
            guard::exclusive_hosts(&subject, namespace, wanted, of_others, self.view, policy);
        self.findings.extend(too_many);
        for (index, pool) in closure.pools.iter().enumerate() {
            match &pool.form {
                Err(problem) => {
                    let problem = format!("{} {problem}", self.format_pool(index));
                    self.report(Reason::MalformedPool, problem, "mend the pool in spec.pools");
                }
                Ok(Form::Literal(hosts)) => self.check_listed(index, hosts),
                Ok(form @ (Form::Tagged(tags) | Form::Sized(_, tags))) => {
                    self.check_tagged(index, tags, form.size().map_or(1, to_usize));
                }
                Ok(Form::Any) => {}
            }
        }
    }

    /// Checks a pool that lists its hosts: each must be exactly one node, and no two the same node.
    fn check_listed(&mut self, pool: usize, hosts: &'c [Host]) {
        let mut seen: HashMap<&str, &Host> = HashMap::with_capacity(hosts.len());
        for (index, host) in hosts.iter().enumerate() {
            let node = self.find_node(host, |check| {
                format!("which is hosts[{index}] of {}", check.format_pool(pool))
            });
            let Some(node) = node else { continue };
            if let Some(earlier) = seen.insert(node, host) {
                let twice = format_twice(node, earlier, host);
                let problem = format!("{} {twice}", self.format_pool(pool));
                self.report(Reason::InvalidPool, problem, "list each node once");
            }
        }
    }

    /// Checks a pool with tags: at least `wanted` nodes must have all of them.
    fn check_tagged(&mut self, pool: usize, tags: &Tags, wanted: usize) {
        let found = self.view.nodes_with_tags(&tags.keys);
        if found >= wanted {
            return;
        }
        let found_by = match tags.keys.as_slice() {
            [] => "the cluster has".to_owned(),
            keys => format!("{} is carried by", keys.join(" and ")),
        };
        let problem = format!(
            "{} needs {}, and {found_by} {found}{}",
            self.format_pool(pool),
            counted(wanted, "node"),
            tags.in_other_form(self.view)
        );
        let reason = if wanted == 1 { Reason::NoTaggedNode } else { Reason::InsufficientNodes };
        let more = match tags.is_empty() {
            true => "add nodes".to_owned(),
            false => format!("label more nodes with {}", tags.labels()),
        };
        self.report(reason, problem, &format!("{more}, or create the job with a smaller pool"));
    }

    /// The node of a host. If there is no such node, or several, reports a finding the first time,
    /// with `origin` to say where the job names the host.
    pub(super) fn find_node(
        &mut self,
        host: &'c Host,
        origin: impl Fn(&Self) -> String,
    ) -> Option<&'c str> {
        if let Some(known) = self.nodes.get(host) {
            return *known;
        }
        let node = match resolve(self.view, host) {
            Resolved::Node(node) => Some(node),
            Resolved::Unknown => {
                // For the first one only: the search looks at all nodes.
                let is_first = self.nodes.values().all(Option::is_some);
                let near = if is_first { suggest_node(self.view, host) } else { String::new() };
                let problem =
                    format!("no node has the {}{near}, {}", format_host(host), origin(self));
                let remedy = "name a node of this cluster (`kubectl get nodes -o wide` lists names and addresses)";
                self.report(Reason::UnknownHost, problem, remedy);
                None
            }
            Resolved::Ambiguous(nodes) => {
                let problem = format!(
                    "several nodes have the {}, {}: {}",
                    format_host(host),
                    origin(self),
                    nodes.join(", ")
                );
                self.report(Reason::AmbiguousHost, problem, "give the node's own name");
                None
            }
        };
        self.nodes.insert(host, node);
        node
    }
}
