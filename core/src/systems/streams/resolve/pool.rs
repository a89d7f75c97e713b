//! Finds the nodes of a pool, by its form, and binds the pod to them.

use std::collections::{BTreeSet, HashSet};

use super::super::job::member::Member;
use super::super::owners::Owner;
use super::super::request::PoolReference;
use super::super::{Placing, guard, hostnames, keys};
use super::{Resolved, Wording, format_host, meant, resolve};
use crate::api::condition::{ACCEPTED, READY};
use crate::kubernetes::HOSTNAME;
use crate::placement::intent::{Change, NodeLabel, NodeTerm, on_labels, on_node};
use crate::placement::reason::{Reason, quoted};
use crate::placement::record;
use crate::placement::toleration::tolerates;
use crate::policy;
use crate::systems::check::words::some;
use crate::systems::streams::api::host_pool::MemberState;
use crate::systems::streams::kinds::host_pool::{Form, Host, HostPool, format_indices, to_usize};
use crate::systems::streams::kinds::in_other_form;
use crate::systems::streams::kinds::node_marks::{TAG_KEY, TAG_PREFIX, labels_of_tags, tag_keys};
use crate::systems::streams::kinds::streams_job::closure::Pool;
use crate::systems::streams::policy::Unmet;
use crate::systems::streams::reasons::PoolReason;
use crate::systems::streams::resources::HOST_POOL;
use crate::view::{Key, Name};

/// The remedy if the spec of a pool, which is immutable, is invalid.
const ANOTHER_POOL: &str = "create another pool: its spec is immutable";

/// The remedy if a listed address or name is that of several nodes.
const NAME_THE_NODE: &str =
    "create another pool that names the node itself: its hosts are immutable";

impl Placing<'_> {
    /// Binds the pod to a pool of its StreamsJob; `value` is the location as the job writes it.
    /// Returns the node if only one is possible.
    pub(super) fn resolve_pool_in_job(
        &mut self,
        member: &Member<'_>,
        pool: &Pool,
        index: Option<u32>,
        value: &str,
    ) -> Option<String> {
        // The job describes such a pool completely, so its HostPool is not needed.
        if !pool.is_labelled() {
            return self.resolve_form(value, &pool.host_pool, None, pool.form.as_ref(), index);
        }
        let key = keys::HOST_POOL;
        let name = Name::new(self.pod.namespace, &pool.host_pool);
        let view = self.view;
        let found = view.host_pool(&name);
        let owner = found.and_then(|found| found.job.as_ref());
        let found = match (found, owner) {
            (Some(found), Some((_, uid))) if *uid == member.job.identity.uid => found,
            // A HostPool of an earlier job of this name will be deleted with that job.
            (found, owner)
                if found.is_none() || owner.is_some_and(|(job, _)| **job == *member.name) =>
            {
                let problem = format!("HostPool {} of the job does not exist yet", name.name);
                self.outcome.awaited.push(Key::new(HOST_POOL, name));
                let remedy = "wait for stowplan's controller (`kubectl describe streamsjob` shows what it waits for)";
                self.report(Reason::UnknownPool, key, problem, remedy);
                return None;
            }
            _ => {
                let problem = format!("HostPool {} is not owned by the job", name.name);
                let remedy = "delete that HostPool, or rename the pool in a new job";
                self.report(Reason::PoolReserved, key, problem, remedy);
                return None;
            }
        };
        self.resolve_form(value, &name.name, Some(found), pool.form.as_ref(), index)
    }

    /// Binds the pod to the HostPool that its annotation names. Returns the node if only one is
    /// possible.
    pub(super) fn resolve_pool(
        &mut self,
        value: &str,
        reference: &PoolReference,
    ) -> Option<String> {
        let key = keys::HOST_POOL;
        let name = Name::new(self.pod.namespace, &reference.name);
        let view = self.view;
        let Some(pool) = view.host_pool(&name) else {
            let pools = view.host_pools().filter(|(pool, _)| pool.namespace == name.namespace);
            let near = policy::meant(&reference.name, pools.map(|(pool, _)| &*pool.name));
            let problem = format!(
                "namespace {} has no HostPool {}{near}",
                self.pod.namespace,
                quoted(&reference.name)
            );
            self.outcome.awaited.push(Key::new(HOST_POOL, name));
            let remedy = "create it first (`kubectl get hostpools` lists the existing ones)";
            self.report(Reason::UnknownPool, key, problem, remedy);
            return None;
        };
        if let Some((job, _)) = &pool.job
            && self.pod.label(keys::JOB) != Some(&**job)
        {
            self.report(
                Reason::PoolReserved,
                key,
                format!("HostPool {} serves StreamsJob {job} only", reference.name),
                "use another pool, or label the pod with that job",
            );
            return None;
        }
        let labelled = pool.is_labelled().then_some(pool);
        self.resolve_form(value, &reference.name, labelled, pool.form.as_ref(), reference.index)
    }

    /// Binds the pod to a pool of this form. `labelled` is the HostPool if the controller labels
    /// its members. Returns the node if only one is possible.
    fn resolve_form(
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
                self.report(Reason::InvalidPool, key, problem, ANOTHER_POOL);
                None
            }
            (Ok(form @ (Form::Sized(..) | Form::Literal(_))), index, Some(pool)) => {
                self.bind_to_labelled(value, name, pool, form.size().unwrap_or_default(), index);
                None
            }
            (Ok(Form::Literal(hosts)), Some(index), _) => {
                self.bind_to_member(value, name, hosts, index)
            }
            (Ok(Form::Literal(hosts)), None, _) => self.bind_to_listed(value, name, hosts),
            (Ok(Form::Tagged(_) | Form::Any), Some(_), _) => {
                self.report(
                    Reason::IndexOutOfRange,
                    key,
                    format!("HostPool {name} has no size, so no member has an index"),
                    "leave the index out, or use a pool that lists its hosts",
                );
                None
            }
            (Ok(Form::Tagged(tags)), None, _) => {
                self.bind_to_tagged(value, name, tags);
                None
            }
            // Every node is eligible, so there is no intent. A sized pool is always labelled.
            (Ok(Form::Any | Form::Sized(..)), None, _) | (Ok(Form::Sized(..)), Some(_), None) => {
                None
            }
        }
    }

    /// Binds the pod to a pool whose members the controller labels. Until a node has the label, the
    /// scheduler keeps the pod pending.
    fn bind_to_labelled(
        &mut self,
        value: &str,
        name: &str,
        pool: &HostPool,
        size: u32,
        index: Option<u32>,
    ) {
        let key = keys::HOST_POOL;
        let Some(hash) = pool.hash.as_deref() else {
            self.report(
                Reason::PoolNotReady,
                key,
                format!("HostPool {name} has no UID, so it is not created yet"),
                "create it, or give it as `kubectl get hostpools -o yaml` prints it",
            );
            return;
        };
        if let Some(index) = index.filter(|index| *index >= size) {
            self.report(
                Reason::IndexOutOfRange,
                key,
                format!(
                    "HostPool {name} has no index {index}: it has {}",
                    format_indices(to_usize(size))
                ),
                "use an index of the pool; it starts at 0",
            );
            return;
        }
        if let Some(Obstacle { reason, problem, lacks_nodes }) = find_obstacle(pool) {
            let problem = format!("HostPool {name} {problem}");
            let remedy = "see its status (`kubectl describe hostpool`)";
            if !(lacks_nodes && self.may_wait(&problem)) {
                self.report(reason, key, problem, remedy);
                return;
            }
        }
        let hostnames = self.hostnames(pool, index);
        self.require_members(value, hash, pool.exclusive, index, &hostnames);
        let which = index.map_or_else(|| "members".to_owned(), |index| format!("member {index}"));
        self.record(
            key,
            value,
            &format!("{which} of pool {hash}{}", if pool.exclusive { ", exclusive" } else { "" }),
        );
        self.warn_about_node_name(key);
    }

    /// The hostnames of the members by which the pod names them. Empty for a pod that nothing creates again
    /// when the pool has other members, and for one that by its own choice waits for other members.
    fn hostnames<'v>(&self, pool: &'v HostPool, index: Option<u32>) -> Vec<&'v str>
    where
        Self: 'v,
    {
        if !self.pod.is_created_again() {
            return Vec::new();
        }
        let members = hostnames::of_members(pool, index, self.view).unwrap_or_default();
        if members.iter().all(|(node, _)| self.own_choice_against(node).is_some()) {
            return Vec::new();
        }
        members.into_iter().map(|(_, hostname)| hostname).collect()
    }

    /// Requires a member of the pool with this hash, with one of these hostnames if there are any, and
    /// tolerates the taint of an exclusive pool.
    pub(super) fn require_members(
        &mut self,
        value: &str,
        hash: &str,
        exclusive: bool,
        index: Option<u32>,
        hostnames: &[&str],
    ) {
        let key = keys::HOST_POOL;
        let mut labels = vec![NodeLabel {
            key: [keys::POOL_LABEL_PREFIX, hash].concat(),
            values: index.map(|index| index.to_string()).into_iter().collect(),
        }];
        if !hostnames.is_empty() {
            let values = hostnames.iter().map(|&name| name.to_owned()).collect();
            labels.push(NodeLabel { key: HOSTNAME.to_owned(), values });
        }
        self.change(key, value, Change::NodeAffinity(vec![NodeTerm::Labelled(labels)]));
        if !exclusive {
            return;
        }
        let effect = keys::EXCLUSIVE_EFFECT;
        let has = |key: &str| {
            let mut own = self.pod.tolerations.iter().flatten();
            own.any(|of| tolerates(of, key, hash, effect))
        };
        // Another release has admitted the pod. It lacks nothing: the nodes of its pool have the taint that
        // it tolerates while it waits.
        let is_recorded = self.pod.annotation(record::KEY).is_some();
        if is_recorded && keys::EXCLUSIVE_TAINTS.into_iter().any(has) {
            return;
        }
        for key in keys::EXCLUSIVE_TAINTS {
            let toleration = Change::Toleration { key, value: hash.to_owned(), effect };
            self.change(keys::HOST_POOL, value, toleration);
        }
    }

    /// Reports a finding if the policy allows no pools in the pod's namespace.
    pub(super) fn check_pool_policy(&mut self) {
        let subject = self.subject(keys::HOST_POOL);
        let allowed = guard::pools(&subject, self.pod.namespace, self.view, self.policy);
        self.outcome.findings.extend(allowed.err().filter(|finding| {
            // A pod with several pools gets the finding once.
            !self.outcome.findings.contains(finding)
        }));
    }

    /// Binds the pod to one host of a pool that lists its hosts.
    fn bind_to_member(
        &mut self,
        value: &str,
        pool: &str,
        hosts: &[Host],
        index: u32,
    ) -> Option<String> {
        let key = keys::HOST_POOL;
        let host = usize::try_from(index).ok().and_then(|index| hosts.get(index));
        let Some(host) = host else {
            self.report(
                Reason::IndexOutOfRange,
                key,
                format!(
                    "HostPool {pool} has no index {index}: it has {}",
                    format_indices(hosts.len())
                ),
                "use an index of the pool's list; it starts at 0",
            );
            return None;
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
    fn bind_to_listed(&mut self, value: &str, pool: &str, hosts: &[Host]) -> Option<String> {
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
                    self.report(Reason::InvalidPool, key, problem, remedy);
                    return None;
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
                        first_missing = format!("{}{}", format_host(host), meant(self.view, host));
                    }
                    missing += 1;
                }
                Resolved::Ambiguous(nodes) => {
                    let problem = format!(
                        "HostPool {pool} lists {}, which several nodes have: {}",
                        format_host(host),
                        nodes.join(", ")
                    );
                    self.report(Reason::AmbiguousHost, key, problem, NAME_THE_NODE);
                    return None;
                }
            }
        }
        if nodes.is_empty() {
            let mut problem = match hosts.len() {
                1 => format!(
                    "the only host of HostPool {pool} is not an unreserved node of this cluster"
                ),
                all => format!(
                    "none of the {all} hosts of HostPool {pool} is an unreserved node of this cluster"
                ),
            };
            let reason = match owners.is_empty() {
                true => {
                    problem += &format!(": no node has the {first_missing}");
                    Reason::UnknownHost
                }
                false => {
                    let are = if reserved == 1 { "is" } else { "are" };
                    problem += &format!(": {reserved} {are} exclusive to {}", list(&owners));
                    Reason::HostReserved
                }
            };
            let remedy =
                "create another pool with other hosts (`kubectl get nodes` lists the nodes)";
            self.report(reason, key, problem, remedy);
            return None;
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
            self.report(Reason::NodeAffinityConflict, key, problem, &remedy);
            return None;
        }
        if let Some(other) = self.pod.node_name.filter(|node| !nodes.contains(node)) {
            let problem =
                format!("spec.nodeName is {}, which is not in HostPool {pool}", quoted(other));
            self.report(
                Reason::NodeNameConflict,
                key,
                problem,
                "remove spec.nodeName, or name a host of the pool",
            );
            return None;
        }
        if missing + reserved > 0 {
            let text = format!(
                "{} of {} hosts of HostPool {pool} are reserved or not nodes, and are ignored",
                missing + reserved,
                hosts.len()
            );
            let text = match missing {
                0 => text,
                _ => format!("{text}: no node has the {first_missing}"),
            };
            self.warn(key, &text);
        }
        self.change(
            key,
            value,
            Change::NodeAffinity(nodes.iter().map(|node| on_node(node)).collect()),
        );
        let decision = match nodes.as_slice() {
            [node] => format!("node {node}"),
            nodes => format!("one of {} nodes", nodes.len()),
        };
        self.record(key, value, &decision);
        self.warn_about_node_name(key);
        None
    }

    /// Binds the pod to the nodes that have all of these tags.
    fn bind_to_tagged(&mut self, value: &str, pool: &str, tags: &[Box<str>]) {
        let key = keys::HOST_POOL;
        let names: Vec<&str> = tags.iter().map(AsRef::as_ref).collect();
        let keys = tag_keys(tags);
        let pools = self.view.exclusive_pools_of_tagged(&keys);
        let owners = pools.iter().map(|hash| self.kept_off_by((*hash)?));
        // `None`: there is a node that the pod may have.
        if let Some(owners) = owners.collect::<Option<BTreeSet<_>>>() {
            let wanted = keys.join(" and ");
            let (reason, problem) = match owners.is_empty() {
                true => (
                    Reason::NoTaggedNode,
                    format!(
                        "no node carries the tags of HostPool {pool}: {wanted}{}",
                        in_other_form(self.view, tags)
                    ),
                ),
                false => (
                    Reason::HostReserved,
                    format!(
                        "every node with the tags of HostPool {pool}, {wanted}, is exclusive to {}",
                        list(&owners)
                    ),
                ),
            };
            if !self.may_wait(&problem) {
                let remedy = format!("label a node with {}", labels_of_tags(tags));
                self.report(reason, key, problem, &remedy);
                return;
            }
        }
        self.change(key, value, Change::NodeAffinity(vec![tag_term(&names)]));
        self.record(key, value, &format!("nodes tagged {}", names.join(" and ")));
        self.warn_about_node_name(key);
    }

    /// Returns `true`, and warns the pod's author, if the policy lets the pod wait for nodes that the cluster
    /// does not have now.
    fn may_wait(&mut self, problem: &str) -> bool {
        let may_wait = self.policy.streams.unmet == Unmet::Wait;
        if may_wait {
            let text = format!("{problem}; the pod waits for one (policy streams.unmet)");
            self.warn(keys::HOST_POOL, &text);
        }
        may_wait
    }
}

/// Lists pools that have nodes.
fn list(owners: &BTreeSet<Owner<'_>>) -> String {
    some(&owners.iter().map(Owner::to_string).collect::<Vec<_>>())
}

/// Why pods cannot be placed on the members of a pool.
struct Obstacle {
    reason: Reason,
    /// The problem as the end of a sentence about the pool.
    problem: String,
    /// Whether more nodes would help.
    lacks_nodes: bool,
}

/// Finds what keeps pods from the members of a pool. `None`: they can be placed, or will be soon.
fn find_obstacle(pool: &HostPool) -> Option<Obstacle> {
    if let Some(refused) = guard::find_current(pool, ACCEPTED) {
        let problem = format!("is not accepted: {}", refused.message);
        return Some(Obstacle { reason: Reason::InvalidPool, problem, lacks_nodes: false });
    }
    // Pods can be placed as long as one member is ready.
    let is_empty = !pool.status.members.iter().any(|member| member.state == MemberState::Ready);
    let unready = guard::find_current(pool, READY).filter(|_| is_empty)?;
    // While the controller reserves nodes the pod is admitted; it stays pending until they are
    // ready.
    (unready.reason != PoolReason::Reserving.as_str()).then(|| Obstacle {
        reason: Reason::PoolNotReady,
        problem: format!("has no members: {}", unready.message),
        lacks_nodes: unready.reason == PoolReason::InsufficientNodes.as_str(),
    })
}

/// The term that selects the nodes with all of these tags. A single tag is the value of
/// [`TAG_KEY`]; of several tags, each is a label key of its own.
pub(super) fn tag_term(tags: &[&str]) -> NodeTerm {
    if let [tag] = tags {
        return on_labels(&[(TAG_KEY, Some(tag))]);
    }
    let keys: Vec<String> = tags.iter().map(|tag| format!("{TAG_PREFIX}{tag}")).collect();
    on_labels(&keys.iter().map(|key| (key.as_str(), None)).collect::<Vec<_>>())
}
