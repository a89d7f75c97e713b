//! Finds the nodes of a pool, by its form, and binds the pod to them.

mod labelled;
mod listed;

use std::collections::BTreeSet;

use super::super::job::place::Member;
use super::super::job::placement::Found;
use super::super::owners::Owner;
use super::super::request::PoolReference;
use super::super::{Placing, guard, keys};
use crate::placement::intent::Change;
use crate::placement::reason::{Reason, quoted};
use crate::policy;
use crate::systems::check::words::some;
use crate::systems::streams::kinds::{Form, HostPool, JobPool, Tags};
use crate::systems::streams::policy::Unmet;
use crate::systems::streams::resources::HOST_POOL;
use crate::view::{Key, Name};

/// The remedy if the spec of a pool, which is immutable, is invalid.
const ANOTHER_POOL: &str = "create another pool: its spec is immutable";

impl Placing<'_> {
    /// Binds the pod to a pool of its StreamsJob; `value` is the location as the job writes it.
    /// Returns the node if only one is possible.
    pub(super) fn resolve_pool_in_job(
        &mut self,
        member: &Member<'_>,
        pool: &JobPool,
        index: Option<u32>,
        value: &str,
    ) -> Option<String> {
        self.check_pool_policy();
        if let Some(kept) = self.keep_recorded(keys::HOST_POOL, value, Some(&pool.host_pool)) {
            return kept;
        }
        // The job describes such a pool completely, so its HostPool is not needed.
        if !pool.is_labelled() {
            return self.resolve_form(value, &pool.host_pool, None, pool.form.as_ref(), index);
        }
        let key = keys::HOST_POOL;
        let name = Name::new(self.pod.namespace, &pool.host_pool);
        let job = Name::new(self.pod.namespace, member.name);
        let found = match Found::new(&job, member.job, pool, self.view) {
            Found::Own(found) => found,
            // A HostPool of an earlier job of this name will be deleted with that job.
            Found::Nothing | Found::Leaving(_) => {
                let problem = format!("HostPool {} of the job does not exist yet", name.name);
                self.outcome.awaited.push(Key::new(HOST_POOL, name));
                let remedy = "wait for stowplan's controller (`kubectl describe streamsjob` shows what it waits for)";
                return self.refuse(Reason::UnknownPool, key, problem, remedy);
            }
            Found::Foreign => {
                let problem = format!("HostPool {} is not owned by the job", name.name);
                let remedy = "delete that HostPool, or rename the pool in a new job";
                return self.refuse(Reason::PoolReserved, key, problem, remedy);
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
        self.check_pool_policy();
        if let Some(kept) = self.keep_recorded(key, value, Some(&reference.name)) {
            return kept;
        }
        let name = Name::new(self.pod.namespace, &reference.name);
        let view = self.view;
        let Some(pool) = view.host_pool(&name) else {
            let pools = view.host_pools().filter(|(pool, _)| pool.namespace == name.namespace);
            let near = policy::meant(&reference.name, pools.map(|(pool, _)| &*pool.name));
            let (namespace, pool) = (self.pod.namespace, quoted(&reference.name));
            let problem = format!("namespace {namespace} has no HostPool {pool}{near}");
            self.outcome.awaited.push(Key::new(HOST_POOL, name));
            let remedy = "create it first (`kubectl get hostpools` lists the existing ones)";
            return self.refuse(Reason::UnknownPool, key, problem, remedy);
        };
        if let Some((job, _)) = &pool.job
            && self.pod.label(keys::JOB) != Some(&**job)
        {
            let problem = format!("HostPool {} serves StreamsJob {job} only", reference.name);
            let remedy = "use another pool, or label the pod with that job";
            return self.refuse(Reason::PoolReserved, key, problem, remedy);
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
                self.refuse(Reason::InvalidPool, key, problem, ANOTHER_POOL)
            }
            (Ok(form @ (Form::Sized(..) | Form::Literal(_))), index, Some(pool)) => {
                self.bind_to_labelled(value, name, pool, form.size().unwrap_or_default(), index);
                None
            }
            (Ok(Form::Literal(hosts)), Some(index), _) => {
                self.bind_to_member(value, name, hosts, index)
            }
            (Ok(Form::Literal(hosts)), None, _) => {
                self.bind_to_listed(value, name, hosts);
                None
            }
            (Ok(Form::Tagged(_) | Form::Any), Some(_), _) => {
                let problem = format!("HostPool {name} has no size, so no member has an index");
                let remedy = "leave the index out, or use a pool that lists its hosts";
                self.refuse(Reason::IndexOutOfRange, key, problem, remedy)
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

    /// Reports a finding if the policy allows no pools in the pod's namespace.
    fn check_pool_policy(&mut self) {
        let subject = self.subject(keys::HOST_POOL);
        let finding = guard::pools(&subject, self.pod.namespace, self.view, self.policy);
        // A pod with several pools gets the finding once.
        let finding = finding.filter(|finding| !self.outcome.findings.contains(finding));
        self.outcome.findings.extend(finding);
    }

    /// Binds the pod to the nodes that have all of these tags.
    fn bind_to_tagged(&mut self, value: &str, pool: &str, tags: &Tags) {
        let key = keys::HOST_POOL;
        let pools = self.view.node_marks.exclusive_pools_of_tagged(&tags.keys);
        let owners = pools.iter().map(|hash| self.kept_off_by((*hash)?));
        // `None`: there is a node that the pod may have.
        if let Some(owners) = owners.collect::<Option<BTreeSet<_>>>() {
            let wanted = tags.keys.join(" and ");
            let (reason, problem) = match owners.is_empty() {
                true => (
                    Reason::NoTaggedNode,
                    format!(
                        "no node carries the tags of HostPool {pool}: {wanted}{}",
                        tags.in_other_form(self.view)
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
                let remedy = format!("label a node with {}", tags.labels());
                return self.report(reason, key, problem, &remedy);
            }
        }
        self.change(key, value, Change::NodeAffinity(vec![tags.term()]));
        self.record(key, value, &format!("nodes{tags}"));
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
