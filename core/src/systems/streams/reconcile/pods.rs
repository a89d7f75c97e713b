//! Holds the pods of jobs to the nodes that their jobs reserve.
//!
//! - A gated pod was created before the job had a recorded placement. Its gate is removed once there is
//!   one, in the same write that leaves it the nodes of the placement.
//! - The node affinity of a pod without a gate cannot be changed. If the job has reserved other nodes
//!   since, and the pod is unschedulable for the grace period, it is deleted, so that its workload creates
//!   it again with the present nodes. A pod that no workload would create again is left, with an event.
//! - So is a pod that must be kept apart from others, if a node has joined since on which it would not be,
//!   and a pod that names the members that its pool had before.

use json_patch::PatchOperation;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::pending_pods;
use super::placements::grace_period;
use crate::kubernetes::HOSTNAME;
use crate::systems::View;
use crate::systems::exclusion::Exclusion;
use crate::systems::plan::operation::{remove_gate, require_nodes};
use crate::systems::plan::{Action, Event, Plan, Target, Write};
use crate::systems::policy::Policy;
use crate::systems::streams::hostnames;
use crate::systems::streams::job::placement::{Restriction, needs_placement};
use crate::systems::streams::keys::GATE;
use crate::systems::streams::kinds::{PendingPod, PodDetails};
use crate::systems::streams::owners::pool_of_hash;
use crate::systems::streams::policy::Compat;
use crate::view::resource::{NODE, POD};
use crate::view::{Name, Node};

/// The reasons of events about pods.
pub(super) mod reason {
    /// The pod was deleted, so that its workload creates it again for another node.
    pub(in super::super) const RECREATED: &str = "RecreatedForItsJob";
    /// The pod waits for a node that its job does not reserve any more, or that its pool did not have.
    pub(in super::super) const STRANDED: &str = "StrandedByItsNode";
    /// The pod was deleted, so that its workload creates it again for the present members of its pool.
    pub(in super::super) const RECREATED_FOR_POOL: &str = "RecreatedForItsPool";
    /// The pod was deleted, so that its workload creates it again for nodes on which it is kept apart.
    pub(in super::super) const RECREATED_APART: &str = "RecreatedToBeApart";
    /// The pod may get a node on which it would not be kept apart from others.
    pub(in super::super) const NOT_APART: &str = "MayNotBeApart";
    /// The node lacks the label by which pods are kept apart.
    pub(in super::super) const NO_HOSTNAME: &str = "NoHostnameLabel";
    /// The gate was removed.
    pub(in super::super) const GATE_LIFTED: &str = "GateLifted";
}

/// The reasons of events about states.
const LASTING: &[&str] = &[reason::STRANDED, reason::NOT_APART, reason::NO_HOSTNAME];

/// Plans the changes of pods.
pub(super) fn plan(view: &View, policy: &Policy, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    let mut pods: Vec<(&Name, &PodDetails, &PendingPod)> = pending_pods(view).collect();
    pods.sort_unstable_by_key(|(name, ..)| *name);
    // Under `compat: upstream` the webhook excludes these nodes for isolation alone.
    let has_nameless = view.node_marks.has_nameless() && policy.streams.compat != Compat::Upstream;
    for (name, pod, pending) in pods {
        let job = pod.job.as_deref().map(|job| Name::new(&name.namespace, job));
        let job = job.and_then(|job| view.streams_job(&job));
        let is_served = policy.streams.enabled
            && Exclusion::of_namespace(&name.namespace, view, policy).is_none();
        let job = job.filter(|job| is_served && !job.identity.deleting && job.spec.is_ok());
        let restriction = job.and_then(|job| Restriction::of_element(job, pod.element.as_deref()));
        match (pending.gate, restriction) {
            // Without a job there is nothing to wait for.
            (Some(gate), None) => plan.actions.push(lift(name, pod, gate, Vec::new())),
            (Some(gate), Some(restriction)) => {
                let has_placement =
                    job.is_some_and(|job| job.status.witness.is_some() || !needs_placement(job));
                if has_placement {
                    let others = restrict(pending, &restriction);
                    plan.actions.push(lift(name, pod, gate, others));
                }
            }
            (None, restriction) => {
                let terms = pending.terms.as_deref().unwrap_or_default();
                let moved = restriction.and_then(|restriction| restriction.differs_from(terms));
                let outdated = match moved {
                    Some(why) => Some(Outdated::of_job(why, pending.is_held)),
                    None => (has_nameless && is_served && pending.may_be_nameless)
                        .then(Outdated::by_a_nameless_node)
                        .or_else(|| Outdated::by_its_pool(pending, view).filter(|_| is_served)),
                };
                if let Some(outdated) = outdated {
                    outdated.recreate(name, pod, policy, now, &mut plan);
                }
            }
        }
    }
    if has_nameless && view.pods().any(|(_, pod)| pod.streams && !pod.finished) {
        plan.actions.extend(report_nameless_nodes(view));
    }
    plan
}

/// Reports the nodes on which the scheduler does not keep pods apart.
fn report_nameless_nodes(view: &View) -> Vec<Action> {
    let is_nameless = |name: &str| view.node_marks.get(name).is_some_and(|of| of.limits.nameless);
    let mut nodes: Vec<_> = view.nodes().filter(|(name, _)| is_nameless(name)).collect();
    nodes.sort_unstable_by_key(|(name, _)| *name);
    let report = |(name, node): (&str, &Node)| {
        let note = format!(
            "it has no label {HOSTNAME}, so pods that must be kept apart from others do not run here: \
             kubectl label node {name} {HOSTNAME}={name}"
        );
        let uid = &node.details.as_deref()?.identity.uid;
        let target = Target::new(NODE, &Name::cluster_wide(name), uid);
        Some(warn(target, reason::NO_HOSTNAME, note))
    };
    nodes.into_iter().filter_map(report).collect()
}

/// Returns an action that writes nothing, with a lasting warning about an object.
fn warn(target: Target, reason: &'static str, note: String) -> Action {
    let event = Event { warning: true, reason, note };
    Action::new(target, Write::None, vec![event]).with_lasting(LASTING)
}

/// Removes the gate of a pod.
fn lift(name: &Name, pod: &PodDetails, gate: usize, others: Vec<PatchOperation>) -> Action {
    let operations = remove_gate(&pod.identity, gate, GATE, others);
    let note = "its job is placed as a whole now".to_owned();
    let events = vec![Event { warning: false, reason: reason::GATE_LIFTED, note }];
    Action::new(Target::new(POD, name, &pod.identity.uid), Write::Patch(operations), events)
}

/// The operations that leave a gated pod the nodes of its job.
fn restrict(pending: &PendingPod, restriction: &Restriction<'_>) -> Vec<PatchOperation> {
    let terms = pending.terms.as_deref().unwrap_or_default();
    let require = |operator: &str, node: &str| json!({"key": "metadata.name", "operator": operator, "values": [node]});
    let requirements: Vec<_> = match restriction {
        Restriction::On(node) => vec![require("In", node)],
        Restriction::Off(nodes) => nodes.iter().map(|node| require("NotIn", node)).collect(),
    };
    require_nodes(terms, pending.above_terms, "matchFields", &requirements)
}

/// A pod whose node affinity is not what the webhook would give it now.
struct Outdated {
    why: String,
    /// True if its record shows that the webhook has decided about its nodes before.
    is_recorded: bool,
    /// The reason of the event if it is deleted.
    recreated: &'static str,
    /// The reason of the event if nothing would create it again.
    left: &'static str,
}

impl Outdated {
    fn of_job(why: String, is_recorded: bool) -> Self {
        Self { why, is_recorded, recreated: reason::RECREATED, left: reason::STRANDED }
    }

    fn by_a_nameless_node() -> Self {
        let why = format!(
            "a node without the label {HOSTNAME} has joined, where it would not be kept apart from others"
        );
        Self { why, is_recorded: true, recreated: reason::RECREATED_APART, left: reason::NOT_APART }
    }

    /// A pool has a member that the pod does not name.
    fn by_its_pool(pending: &PendingPod, view: &View) -> Option<Self> {
        pending.listed.iter().find_map(|listed| {
            let (name, pool) = pool_of_hash(&listed.hash, view)?;
            let members = hostnames::of_members(pool, listed.index, view)?;
            let is_named = |hostname: &str| listed.hostnames.iter().any(|of| *of == *hostname);
            let (new, _) = members.iter().find(|(_, hostname)| !is_named(hostname))?;
            let why =
                format!("HostPool {} has the new member {new}, which it does not name", name.name);
            let recreated = reason::RECREATED_FOR_POOL;
            Some(Self { why, is_recorded: true, recreated, left: reason::STRANDED })
        })
    }

    /// Deletes the pod if it is unschedulable for the grace period and its workload creates it again.
    fn recreate(
        self,
        name: &Name,
        pod: &PodDetails,
        policy: &Policy,
        now: Timestamp,
        plan: &mut Plan,
    ) {
        let Self { why, is_recorded, recreated, left } = self;
        let Some(since) = pod.unschedulable_since else { return };
        let may_delete =
            is_recorded && pod.pending.as_ref().is_some_and(|pending| pending.is_created_again);
        let target = Target::new(POD, name, &pod.identity.uid);
        match since.checked_add(grace_period(policy)) {
            Ok(due) if due > now => plan.recheck_by(due),
            Ok(_) if may_delete => {
                let note = format!("{why}; deleted, so that its workload creates it again");
                let events = vec![Event { warning: false, reason: recreated, note }];
                // Not a pod that was bound since.
                let version = Some(pod.identity.resource_version.clone());
                let write = Write::Delete { grace: None, version };
                plan.actions.push(Action::new(target, write, events));
            }
            Ok(_) => {
                let note = format!("{why}; delete it, and create it again");
                plan.actions.push(warn(target, left, note));
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kubernetes::REQUIRED;
    use crate::placement::record;
    use crate::systems::streams::kinds::host_pool::{POOL_LABEL_PREFIX, hash};
    use crate::systems::test_objects::{node, watch};
    use crate::view::Scope;

    /// A pod of a workload that has been unschedulable for a minute at 00:01, by its record kept apart, changed
    /// by the merge patch `with`.
    fn pod(with: &Value) -> Value {
        let term = json!({"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"t": "x"}}});
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "w", "uid": "w", "controller": true});
        let record = r#"{"v":1,"streams":["host-exlocation=x: a node each"],"more":0}"#;
        let condition = json!({
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "1",
                "labels": {"app": "streams"}, "annotations": {record::KEY: record},
                "ownerReferences": [owner],
            },
            "spec": {"containers": [], "affinity": {"podAntiAffinity": {REQUIRED: [term]}}},
            "status": {"conditions": [condition]},
        });
        json_patch::merge(&mut pod, with);
        pod
    }

    /// The reasons of the events of a plan at 00:01, and the number of objects that it deletes.
    fn planned(nodes: &[Value], pod: &Value, policy: &str) -> (Vec<&'static str>, usize) {
        let mut view = View::default();
        for object in nodes.iter().chain([pod]) {
            watch(&mut view, object.clone(), Scope::Controller);
        }
        let policy = Policy::from_yaml(policy).unwrap();
        let actions = plan(&view, &policy, "2026-01-01T00:01:00Z".parse().unwrap()).actions;
        let deleted = actions.iter().filter(|of| matches!(of.write, Write::Delete { .. }));
        let deleted = deleted.count();
        let events = actions.into_iter().flat_map(|action| action.events);
        (events.map(|event| event.reason).collect(), deleted)
    }

    /// A pool of one member, which was on node `n1` before.
    #[test]
    fn a_waiting_pod_that_names_former_members_of_its_pool_is_created_again() {
        let nodes = ["n1", "n2"].map(|name| node(name, &json!({})));
        let pool = |member: Value| {
            json!({"apiVersion": "stowplan.dev/v1alpha1", "kind": "HostPool",
                "metadata": {"name": "p", "namespace": "ns", "uid": "pool"}, "spec": {"size": 1},
                "status": {"members": [member]}})
        };
        let on = |node: &str, state: &str| {
            pool(json!({"index": 0, "node": node, "state": state, "since": "2026-01-01T00:00:00Z"}))
        };
        let names = |hostnames: &[&str]| {
            let label = json!({"key": format!("{POOL_LABEL_PREFIX}{}", hash("pool")), "operator": "Exists"});
            let hosts = json!({"key": HOSTNAME, "operator": "In", "values": hostnames});
            let terms = json!([{"matchExpressions": if hostnames.is_empty() { json!([label]) } else { json!([label, hosts]) }}]);
            let own = json!({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}});
            json!({"spec": {"affinity": own}, "metadata": {"ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "w", "uid": "w", "controller": true}]}})
        };
        let mut bare = names(&["n1"]);
        bare["metadata"]["ownerReferences"] = Value::Null;
        let none: &[&str] = &[];
        for (what, pool, with, expected) in [
            (
                "a new member",
                on("n2", "Ready"),
                names(&["n1"]),
                (&[reason::RECREATED_FOR_POOL][..], 1),
            ),
            (
                "it is being reserved",
                on("n2", "Reserving"),
                names(&["n1"]),
                (&[reason::RECREATED_FOR_POOL], 1),
            ),
            ("of no workload", on("n2", "Ready"), bare, (&[reason::STRANDED], 0)),
            ("the same member", on("n1", "Ready"), names(&["n1"]), (none, 0)),
            ("it names both", on("n2", "Ready"), names(&["n1", "n2"]), (none, 0)),
            ("the member is lost", on("n1", "Vacant"), names(&["n1"]), (none, 0)),
            ("it names none", on("n2", "Ready"), names(&[]), (none, 0)),
            ("a node that does not exist", on("n3", "Ready"), names(&["n1"]), (none, 0)),
        ] {
            let objects = [&nodes[..], &[pool]].concat();
            let (events, deleted) = planned(&objects, &pod(&with), "");
            assert_eq!((&*events, deleted), expected, "{what}");
        }
    }

    #[test]
    fn a_waiting_pod_that_would_not_be_kept_apart_on_a_new_node_is_created_again() {
        let named = node("n1", &json!({}));
        let bare = node("bare", &json!({"metadata": {"uid": "b", "labels": null}}));
        let requires = |requirement: Value| {
            let terms = json!({"nodeSelectorTerms": [{"matchExpressions": [requirement]}]});
            json!({"spec": {"affinity": {"nodeAffinity": {REQUIRED: terms}}}})
        };
        let by_name = json!({"nodeSelectorTerms": [{"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": ["n1"]},
        ]}]});
        let none: &[&str] = &[];
        let only_the_node = &[reason::NO_HOSTNAME][..];
        for (what, with, policy, expected) in [
            (
                "of a workload",
                json!({}),
                "",
                (&[reason::RECREATED_APART, reason::NO_HOSTNAME][..], 1),
            ),
            (
                "of no workload",
                json!({"metadata": {"ownerReferences": null}}),
                "",
                (&[reason::NOT_APART, reason::NO_HOSTNAME], 0),
            ),
            (
                "it requires the label",
                requires(json!({"key": HOSTNAME, "operator": "Exists"})),
                "",
                (only_the_node, 0),
            ),
            (
                "it requires another label",
                requires(json!({"key": "a", "operator": "Exists"})),
                "",
                (&[reason::RECREATED_APART, reason::NO_HOSTNAME], 1),
            ),
            (
                "it names a node",
                json!({"spec": {"affinity": {"nodeAffinity": {REQUIRED: by_name}}}}),
                "",
                (only_the_node, 0),
            ),
            (
                "its own anti-affinity",
                json!({"metadata": {"annotations": null}}),
                "",
                (only_the_node, 0),
            ),
            ("only preferred", json!({"spec": {"affinity": null}}), "", (only_the_node, 0)),
            ("not tried yet", json!({"status": null}), "", (only_the_node, 0)),
            ("it has ended", json!({"status": {"phase": "Failed"}}), "", (none, 0)),
            (
                "the webhook would not require it",
                json!({}),
                "streams: {compat: upstream}",
                (none, 0),
            ),
        ] {
            let (events, deleted) = planned(&[named.clone(), bare.clone()], &pod(&with), policy);
            assert_eq!((&*events, deleted), expected, "{what}");
        }
        assert_eq!(planned(&[named], &pod(&json!({})), "").0, none, "every node has the label");
    }
}
