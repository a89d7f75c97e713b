//! Asks an autoscaler for the nodes that a StreamsJob or a HostPool waits for (policy `streams.unmet: wait`).
//!
//! Autoscalers make nodes for pods that the scheduler cannot place, but the pods of a job wait behind a gate
//! until all of it can run, and those of a pool with a size require a label that no new node has. So the
//! controller creates a scaling pod for each missing node: one that requests what the pods there request, on a
//! node of its own. Each set of equal pods is a StatefulSet, which the job or the pool owns.
//!
//! A scaling pod may be bound to a node that exists already. It stays there, so that an autoscaler does not
//! remove that node, and so that the next one goes elsewhere: as many are created as are bound, beside one for
//! each missing node. Where a node has come, the scheduler may be later than the controller: a pod that will be
//! bound counts as one that is. All are deleted once the object is Ready, when its nodes are reserved.

use std::cell::LazyCell;
use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::{Value, json};

use super::placements::Placements;
use super::pools::PoolLack;
use super::{controlled_by, pending_pods};
use crate::api::condition;
use crate::kubernetes::{HOSTNAME, REQUIRED};
use crate::names::short_digest;
use crate::placement::affinity::bound_to;
use crate::systems::View;
use crate::systems::fit::{self, Candidate, Question};
use crate::systems::pause::{self, KEEPS_NODE};
use crate::systems::plan::operation::{replace, test_uid};
use crate::systems::plan::{Action, Event, Plan, Target, Write};
use crate::systems::policy::Policy;
use crate::systems::streams::job::placement::MissingNode;
use crate::systems::streams::keys::{
    EXCLUSIVE_TAINTS, JOB, POOL_LABEL_PREFIX, SCALES_FOR, SCALING,
};
use crate::systems::streams::kinds::{
    APP, APP_VALUE, Form, NAME_PREFIX, PendingPod, ScalingPod, ScalingSet, StreamsJob, TAG_KEY,
    TAG_PREFIX, Tags,
};
use crate::systems::streams::policy::Unmet;
use crate::systems::streams::reasons::PoolReason;
use crate::systems::streams::resources::{HOST_POOL, STREAMS_JOB};
use crate::view::resource::STATEFUL_SET;
use crate::view::{Identity, Name, Resource, Resources};

/// The reason of the event about an object that needs more scaling pods than the policy allows.
const TOO_MANY: &str = "TooManyScalingPods";

/// An object that waits for nodes, or whose nodes are being reserved.
struct Waiting<'v> {
    resource: Resource,
    name: &'v Name,
    identity: &'v Identity,
    /// The missing nodes. `None`: none is missing, but the present scaling pods keep their nodes until these are
    /// reserved.
    missing: Option<Vec<NewNode>>,
}

/// A missing node: what its pods require of it.
#[derive(Clone, Debug, Default)]
struct NewNode {
    requests: Resources,
    node_selector: BTreeMap<String, String>,
    /// Node affinity: requirements of labels.
    expressions: Vec<Value>,
    /// The tolerations that all of its pods have; `None`: it has no pod yet.
    tolerations: Option<Vec<Value>>,
    /// The job whose pods must not be there.
    job: Option<Box<str>>,
    /// True if no pods of jobs may be there.
    is_alone: bool,
}

/// Plans the changes of scaling pods.
pub(super) fn plan(
    view: &View,
    policy: &Policy,
    placements: &Placements<'_>,
    pools: &[PoolLack<'_>],
) -> Plan {
    let mut waiting = Vec::new();
    let streams = &policy.streams;
    // An administrator who writes 0 wants no scaling pods, and no event.
    if streams.enabled && streams.unmet == Unmet::Wait && streams.max_scaling_pods > 0 {
        waiting.extend(waiting_jobs(view, policy, placements));
        waiting.extend(waiting_pools(view, policy, pools));
    }
    waiting.sort_unstable_by_key(|of| (of.resource.kind, of.name));
    let mut sets: BTreeMap<&Name, &ScalingSet> = view.scaling_sets().collect();
    let mut plan = Plan::default();
    for of in &waiting {
        match &of.missing {
            Some(missing) => plan.extend(ask(of, missing, &mut sets, view, policy)),
            None => sets.retain(|_, set| set.owner != of.identity.uid),
        }
    }
    for (name, set) in sets.into_iter().filter(|(_, set)| !set.identity.deleting) {
        let target = Target::new(STATEFUL_SET, name, &set.identity.uid);
        let write = Write::Delete { grace: None, version: None };
        plan.actions.push(Action::new(target, write, Vec::new()));
    }
    plan
}

/// Asks for the missing nodes of an object. Takes the StatefulSets that it keeps from `sets`.
fn ask<'v>(
    of: &Waiting<'_>,
    missing: &[NewNode],
    sets: &mut BTreeMap<&'v Name, &'v ScalingSet>,
    view: &View,
    policy: &Policy,
) -> Plan {
    let mut plan = Plan::default();
    let mut wanted: BTreeMap<Name, (Option<Value>, usize)> = BTreeMap::new();
    for node in missing {
        let pod = node.pod(of, policy);
        let name = format!("{NAME_PREFIX}{}", short_digest(&format!("{}/{pod}", of.identity.uid)));
        let name = Name::new(&of.name.namespace, &name);
        wanted.entry(name).or_insert_with(|| (Some(pod), 0)).1 += 1;
    }
    // Those of nodes that are no longer missing keep these until all have come.
    let own = sets.iter().filter(|(_, set)| set.owner == of.identity.uid);
    own.for_each(|(name, _)| _ = wanted.entry((*name).clone()).or_default());
    for (name, (_, count)) in &mut wanted {
        // Pods of an earlier one of this name will be deleted with it.
        if let Some(set) = sets.get(name) {
            *count = count_pods(set, *count, view);
        }
    }
    wanted.retain(|_, (_, count)| *count > 0);
    let all: usize = wanted.values().map(|(_, count)| count).sum();
    let most = usize::try_from(policy.streams.max_scaling_pods).unwrap_or(usize::MAX);
    if all > most {
        sets.retain(|name, _| !wanted.contains_key(*name));
        let note = format!(
            "{all} scaling pods would have to ask for its nodes, and the policy streams.maxScalingPods allows {most}"
        );
        let target = Target::new(of.resource, of.name, &of.identity.uid);
        let event = Event { warning: true, reason: TOO_MANY, note };
        let action = Action::new(target, Write::None, vec![event]).with_lasting(&[TOO_MANY]);
        plan.actions.push(action);
        return plan;
    }
    for (name, (pod, count)) in wanted {
        let replicas = i32::try_from(count).unwrap_or(i32::MAX);
        match sets.remove(&name) {
            Some(set) if set.identity.deleting || set.replicas == replicas => {}
            Some(set) => {
                let operations =
                    vec![test_uid(&set.identity.uid), replace(&["spec", "replicas"], replicas)];
                let target = Target::new(STATEFUL_SET, &name, &set.identity.uid);
                plan.actions.push(Action::new(target, Write::Patch(operations), Vec::new()));
            }
            None => {
                let document = pod.map(|pod| of.set(&name, &pod, replicas));
                let target = Target::new(STATEFUL_SET, &name, "");
                let create = |document| Action::new(target, Write::Create(document), Vec::new());
                plan.actions.extend(document.map(create));
            }
        }
    }
    plan
}

/// Returns how many pods a StatefulSet should have, where so many of its nodes are missing.
fn count_pods(set: &ScalingSet, missing: usize, view: &View) -> usize {
    let replicas = usize::try_from(set.replicas).unwrap_or_default();
    let details_of = |pod: &ScalingPod| view.node(pod.node.as_deref().ok()?)?.details.as_deref();
    let names = || view.scaling_pods.index().get(&set.identity.uid);
    // One that is being deleted ends soon, and another one takes its place, but not while its node is lost.
    let has_number = |pod: &&ScalingPod| {
        !pod.identity.deleting || details_of(pod).is_some_and(|node| !node.ready)
    };
    let pods = || names().filter_map(|name| view.scaling_pods.get(name)).filter(has_number);
    let needed = missing + pods().filter(|pod| details_of(pod).is_some()).count();
    if needed >= replicas {
        return needed;
    }
    // The number is lowered only for pods that exist. Otherwise one that is created and bound meanwhile would raise it
    // again, and be deleted before that.
    if pods().count() <= needed {
        return if needed == 0 { 0 } else { replicas };
    }
    let mut pending = pods().filter_map(|pod| pod.node.as_ref().err()).peekable();
    let Some(needs) = pending.peek().map(|pod| pod.needs()) else { return needed };
    // No two scaling pods are on one node, nor one beside pods of its job.
    let of_streams = view.pods().filter(|(_, pod)| pod.streams || pod.job.is_some());
    let taken = of_streams.filter_map(|(_, pod)| pod.node.as_deref());
    let scaling = view.scaling_pods.iter().filter(|(_, pod)| !pod.identity.deleting);
    let scaling = scaling.filter_map(|(_, pod)| pod.node.as_deref().ok());
    let taken: HashSet<&str> = taken.chain(scaling).collect();
    let takes = |name: &&str| {
        let candidate = Candidate::find(name, view).filter(|_| !taken.contains(name));
        let question = candidate.map(|candidate| Question::new(candidate, &needs));
        question.is_some_and(|question| fit::first_obstacle(&question, fit::ALL).is_none())
    };
    let takers = view.nodes().map(|(name, _)| name).filter(takes).count();
    replicas.min(needed + takers.min(pending.count()))
}

/// The jobs that wait for nodes.
fn waiting_jobs<'v>(
    view: &'v View,
    policy: &Policy,
    placements: &Placements<'_>,
) -> Vec<Waiting<'v>> {
    let mut waiting = Vec::new();
    let pods = LazyCell::new(|| pods_of_elements(view));
    for (name, (job, placement)) in placements.jobs(view) {
        let ready = condition::find(&job.status.conditions, condition::READY);
        let is_ready = ready.is_some_and(|ready| ready.status == condition::Status::True);
        if placement.missing.is_empty() && (is_ready || placement.plan.is_none()) {
            continue;
        }
        let missing = if placement.missing.is_empty() {
            None
        } else {
            // Nobody needs the nodes of a job without pods.
            let Some(pods) = pods.get(&(&*name.namespace, &*name.name)) else { continue };
            let nodes = placement.missing.iter();
            Some(nodes.filter_map(|node| NewNode::of_job(name, job, node, pods, policy)).collect())
        };
        waiting.push(Waiting { resource: STREAMS_JOB, name, identity: &job.identity, missing });
    }
    waiting
}

/// The pods of a job that have no node, by element.
type Elements<'v> = HashMap<&'v str, &'v PendingPod>;

/// The pods of elements that have no node, by namespace and job.
fn pods_of_elements(view: &View) -> HashMap<(&str, &str), Elements<'_>> {
    let mut pods: HashMap<_, Elements<'_>> = HashMap::new();
    for (name, pod, pending) in pending_pods(view) {
        if let (Some(job), Some(element)) = (pod.job.as_deref(), pod.element.as_deref()) {
            pods.entry((&*name.namespace, job)).or_default().insert(element, pending);
        }
    }
    pods
}

/// The pods that ask for pools and have no node, by namespace and the pool's hash.
fn pods_of_pools(view: &View) -> HashMap<(&str, &str), Vec<(&Name, &PendingPod)>> {
    let mut pods: HashMap<_, Vec<_>> = HashMap::new();
    for (name, pod, pending) in pending_pods(view) {
        for (hash, _) in &pod.pools {
            pods.entry((&*name.namespace, &**hash)).or_default().push((name, pending));
        }
    }
    pods
}

/// The pools without a job that wait for nodes, and for which pods wait: nobody needs the others.
fn waiting_pools<'v>(view: &View, policy: &Policy, pools: &[PoolLack<'v>]) -> Vec<Waiting<'v>> {
    let mut waiting = Vec::new();
    let pods = LazyCell::new(|| pods_of_pools(view));
    for PoolLack { name, pool, missing } in pools {
        let (Ok(Form::Sized(_, tags)), Some(hash)) = (&pool.form, pool.hash.as_deref()) else {
            continue;
        };
        let (resource, identity) = (HOST_POOL, &pool.identity);
        if *missing == 0 {
            // As the status says, it has waited for nodes until now, or is reserving them.
            let reasons = [PoolReason::InsufficientNodes, PoolReason::Reserving];
            if pool
                .ready_condition()
                .is_some_and(|ready| reasons.iter().any(|of| of.as_str() == ready.reason))
            {
                waiting.push(Waiting { resource, name, identity, missing: None });
            }
            continue;
        }
        let pods = pods.get(&(&*name.namespace, hash)).map_or(&[][..], Vec::as_slice);
        let largest = pods.iter().min_by_key(|(name, pod)| {
            let requests = &pod.requests;
            (-requests.milli_cpu, -requests.memory, *name)
        });
        let Some((_, largest)) = largest else { continue };
        let mut new = NewNode { is_alone: pool.exclusive, ..NewNode::default() };
        new.add(largest);
        let each = pods.iter().map(|(_, pod)| &pod.requests);
        new.requests = each.fold(new.requests, |all, of| all.max(of));
        new.require_pool(tags, policy);
        waiting.push(Waiting { resource, name, identity, missing: Some(vec![new; *missing]) });
    }
    waiting
}

impl NewNode {
    /// Returns the requirements of the pods of a job that need this node. `None`: one of them does not exist yet,
    /// and what it requests is not known.
    fn of_job(
        name: &Name,
        job: &StreamsJob,
        node: &MissingNode,
        pods: &Elements<'_>,
        policy: &Policy,
    ) -> Option<Self> {
        let job_name = Some((*name.name).into());
        let mut new = Self { job: job_name, is_alone: node.is_alone, ..Self::default() };
        let elements = &job.spec.as_ref().ok()?.processing_elements;
        for element in &node.elements {
            new.add(pods.get(&*elements.get(*element)?.name)?);
        }
        let pools = node.pools.iter();
        let forms = pools.filter_map(|pool| job.closure.pools[*pool].form.as_ref().ok());
        forms.for_each(|form| new.require_pool(form.tags(), policy));
        Some(new)
    }

    /// Adds what a pod requires.
    fn add(&mut self, pod: &PendingPod) {
        let needs = pod.needs();
        self.requests = self.requests.plus(&pod.requests);
        let selector = needs.node_selector.iter();
        self.node_selector
            .extend(selector.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        // Alternatives are left out: the pod may then be bound to a node that does not help.
        let terms = needs.node_terms.as_deref().filter(|terms| bound_to(terms).is_none());
        if let Some([term]) = terms {
            let of_labels = term
                .match_expressions
                .iter()
                .flatten()
                .filter(|of| !of.key.starts_with(POOL_LABEL_PREFIX) && of.key != HOSTNAME);
            for expression in of_labels.map(|of| json!(of)) {
                if !self.expressions.contains(&expression) {
                    self.expressions.push(expression);
                }
            }
        }
        let tolerations = needs
            .tolerations
            .iter()
            .filter(|of| !of.key.as_deref().is_some_and(|key| EXCLUSIVE_TAINTS.contains(&key)));
        let tolerations: Vec<Value> = tolerations.map(|of| json!(of)).collect();
        match &mut self.tolerations {
            Some(all) => all.retain(|of| tolerations.contains(of)),
            none => *none = Some(tolerations),
        }
    }

    /// Requires what the policy and a pool with these tags require of members.
    fn require_pool(&mut self, tags: &Tags, policy: &Policy) {
        self.node_selector.extend(policy.host_pools.node_selector.clone());
        match tags.names.as_slice() {
            [tag] => _ = self.node_selector.insert(TAG_KEY.to_owned(), tag.to_string()),
            tags => {
                let exists =
                    |tag: &str| json!({"key": format!("{TAG_PREFIX}{tag}"), "operator": "Exists"});
                self.expressions.extend(tags.iter().map(AsRef::as_ref).map(exists));
            }
        }
    }

    /// Returns the specification of the pod that asks for it.
    fn pod(&self, of: &Waiting<'_>, policy: &Policy) -> Value {
        let placeholder = &policy.coschedule.placeholder;
        let near = |selector: Value| json!({"topologyKey": HOSTNAME, "labelSelector": selector});
        let labelled = |key: &str, value: &str| json!({"matchLabels": {key: value}});
        let mut apart = vec![near(labelled(SCALES_FOR, &of.identity.uid))];
        apart.extend(self.job.iter().map(|job| near(labelled(JOB, job))));
        if self.is_alone {
            let of_job = json!({"matchExpressions": [{"key": JOB, "operator": "Exists"}]});
            for selector in [of_job, labelled(APP, APP_VALUE)] {
                let mut term = near(selector);
                term["namespaceSelector"] = json!({});
                apart.push(term);
            }
        }
        let mut affinity = json!({"podAntiAffinity": {REQUIRED: apart}});
        if !self.expressions.is_empty() {
            let terms = json!([{"matchExpressions": self.expressions}]);
            affinity["nodeAffinity"] = json!({REQUIRED: {"nodeSelectorTerms": terms}});
        }
        let is_windows =
            self.node_selector.get("kubernetes.io/os").is_some_and(|os| os == "windows");
        let mut container = pause::container("scaling", &placeholder.image, is_windows, false);
        container["resources"] =
            pause::resources(&self.requests.max(&placeholder.requests.amounts()));
        json!({
            "nodeSelector": self.node_selector,
            "tolerations": self.tolerations.as_deref().unwrap_or_default(),
            "affinity": affinity,
            "containers": [container],
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 1,
        })
    }
}

impl Waiting<'_> {
    /// Returns the StatefulSet of this name with so many pods.
    fn set(&self, name: &Name, pod: &Value, replicas: i32) -> Value {
        let labels = json!({SCALING: *name.name, SCALES_FOR: self.identity.uid});
        let keeps_node: BTreeMap<&str, &str> = KEEPS_NODE.into();
        json!({
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {
                "name": *name.name,
                "namespace": *name.namespace,
                "labels": labels,
                "ownerReferences": controlled_by(self.resource, self.name, self.identity),
            },
            "spec": {
                "replicas": replicas,
                "serviceName": "",
                "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": {SCALING: *name.name}},
                "template": {"metadata": {"labels": labels, "annotations": keeps_node}, "spec": pod},
            },
        })
    }
}

#[cfg(test)]
mod tests;
