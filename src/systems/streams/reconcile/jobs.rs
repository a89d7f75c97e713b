//! StreamsJobs: the HostPools that they own, and what their users read of them.
//!
//! A job is Accepted when the whole of it can be placed. Once it has been accepted, only what it says
//! itself or what the policy says takes that back; a node that goes later does not, or else the
//! restart of one element would be refused for the sake of another. Such trouble shows in Ready, and
//! with the pools and pods that it is about.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::api;
use crate::api::condition::{self, ACCEPTED, Condition, READY, Status};
use crate::api::streams_job::{Group, OwnedPool, StreamsJobSpec, StreamsJobStatus};
use crate::placement::reason::{Finding, Stage, shorten};
use crate::policy::Policy;
use crate::systems::plan::operation::{replace, test_uid};
use crate::systems::plan::{Action, Event, Kind, Plan, Target, Write};
use crate::systems::streams::job::check::check;
use crate::systems::streams::keys;
use crate::view::host_pool::Form;
use crate::view::streams_job::closure::{Closure, Pool, host_pool_spec};
use crate::view::{HostPool, Name, StreamsJob, View};

/// The longest message of a condition, in characters: the API allows 32,768, and people read less.
const LONGEST_MESSAGE: usize = 4096;

/// The reasons of conditions that are no refusals.
const POOLS_READY: &str = "PoolsReady";
const WAITING_FOR_POOLS: &str = "WaitingForPools";
const POOL_NAME_TAKEN: &str = "PoolNameTaken";
const NOT_ACCEPTED: &str = "NotAccepted";

/// What is to be done for the StreamsJobs.
#[must_use]
pub fn plan(view: &View, policy: &Policy, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    if !policy.streams.enabled {
        // The pools of a job go with it; nothing else of a job's is on the cluster.
        return plan;
    }
    let mut jobs: Vec<(&Name, &StreamsJob)> = view
        .streams_jobs()
        .filter(|(name, job)| !job.identity.deleting && !policy.excludes(&name.namespace))
        .collect();
    jobs.sort_unstable_by_key(|(name, _)| *name);
    for (name, job) in jobs {
        // What cannot be read cannot be told in a status that would not be read either.
        let Ok(spec) = &job.spec else { continue };
        let mut turn = Turn { name, job, spec, view, now, events: Vec::new() };
        turn.plan(policy, &mut plan);
    }
    plan
}

/// One job in its turn.
struct Turn<'j> {
    name: &'j Name,
    job: &'j StreamsJob,
    spec: &'j StreamsJobSpec,
    view: &'j View,
    now: Timestamp,
    events: Vec<Event>,
}

/// The HostPool that stands for a pool of a job.
enum Found<'v> {
    /// There is none.
    Nothing,
    /// It is the job's.
    Own(&'v HostPool),
    /// It was that of an earlier job of this name, and goes with it.
    Leaving,
    /// It has the name, and is somebody else's: never touched.
    Foreign,
}

impl<'j> Turn<'j> {
    fn plan(&mut self, policy: &Policy, plan: &mut Plan) {
        let findings = check(self.name, self.job, self.view, policy);
        let mut status = StreamsJobStatus {
            conditions: self.job.status.conditions.clone(),
            groups: self.groups(),
            creation_order: creation_order(self.spec, &self.job.closure),
            ..StreamsJobStatus::default()
        };
        let accepted = self.accept(&findings, &mut status.conditions);
        let mut waits = Vec::new();
        let mut taken = Vec::new();
        for (said, pool) in self.spec.pools.iter().zip(&self.job.closure.pools) {
            match self.find(pool) {
                Found::Foreign => taken.push(&*pool.host_pool),
                Found::Nothing if accepted => {
                    plan.actions.push(self.create(said, pool));
                    waits.push(format!("{}: HostPool {} is being made", said.name, pool.host_pool));
                }
                Found::Nothing => {}
                Found::Leaving => {
                    let of = "is still that of an earlier job of this name";
                    waits.push(format!("{}: HostPool {} {of}", said.name, pool.host_pool));
                }
                Found::Own(found) => {
                    plan.actions.extend(self.grow(pool, found).filter(|_| accepted));
                    waits.extend(waits_for(found).map(|why| format!("{}: {why}", said.name)));
                    let host_pool = pool.host_pool.to_string();
                    status.pools.push(OwnedPool { name: said.name.clone(), host_pool });
                }
            }
        }
        self.ready(accepted, &findings, &taken, &waits, &mut status.conditions);
        if status == self.job.status {
            return;
        }
        let write = Write::Status {
            resource_version: self.job.identity.resource_version.clone(),
            status: serde_json::to_value(&status).unwrap_or(Value::Null),
        };
        let events = std::mem::take(&mut self.events);
        plan.actions.push(Action { target: self.target(), write, events });
    }

    fn target(&self) -> Target {
        Target {
            kind: Kind::StreamsJob,
            namespace: self.name.namespace.clone(),
            name: self.name.name.clone(),
            uid: self.job.identity.uid.clone(),
        }
    }

    /// The condition Accepted.
    fn accept(&mut self, findings: &[Finding], conditions: &mut Vec<Condition>) -> bool {
        let generation = self.job.identity.generation;
        let before = condition::find(conditions, ACCEPTED).is_some_and(|condition| {
            condition.status == Status::True && condition.observed_generation == Some(generation)
        });
        let weighs = |finding: &&Finding| !(before && finding.reason.stage() == Stage::Cluster);
        let findings: Vec<&Finding> = findings.iter().filter(weighs).collect();
        match findings.first() {
            None => {
                let message = "the job can be placed";
                self.set(conditions, ACCEPTED, Status::True, ACCEPTED, message, false);
            }
            Some(first) => {
                let told: Vec<String> = findings
                    .iter()
                    .map(|finding| format!("{}; {}", finding.problem, finding.remedy))
                    .collect();
                let message = shorten(&told.join(". "), LONGEST_MESSAGE);
                let reason = first.reason.as_str();
                self.set(conditions, ACCEPTED, Status::False, reason, &message, true);
            }
        }
        findings.is_empty()
    }

    /// The condition Ready.
    fn ready(
        &mut self,
        accepted: bool,
        findings: &[Finding],
        taken: &[&str],
        waits: &[String],
        conditions: &mut Vec<Condition>,
    ) {
        let (status, reason, message) = if !accepted {
            (Status::False, NOT_ACCEPTED, "see the condition Accepted".to_owned())
        } else if !taken.is_empty() {
            let message = format!(
                "{} belongs to somebody else: delete it, or rename the pool in a new job",
                taken.join(", ")
            );
            (Status::False, POOL_NAME_TAKEN, message)
        } else if let Some(first) = findings.first() {
            // Accepted once, and not to be placed as a whole by now.
            (Status::False, first.reason.as_str(), format!("{}; {}", first.problem, first.remedy))
        } else if !waits.is_empty() {
            (Status::False, WAITING_FOR_POOLS, waits.join(". "))
        } else {
            (Status::True, POOLS_READY, "the pods can be created".to_owned())
        };
        // That a pool is waited for is the ordinary way of things.
        let warning = !matches!(reason, POOLS_READY | WAITING_FOR_POOLS | NOT_ACCEPTED);
        let message = shorten(&message, LONGEST_MESSAGE);
        self.set(conditions, READY, status, reason, &message, warning);
    }

    /// Sets a condition, and tells of it where status or reason change. `NotAccepted` has been told of
    /// already.
    fn set(
        &mut self,
        conditions: &mut Vec<Condition>,
        type_: &str,
        status: Status,
        reason: &'static str,
        message: &str,
        warning: bool,
    ) {
        let told = condition::find(conditions, type_)
            .is_some_and(|present| present.status == status && present.reason == reason);
        if !told && reason != NOT_ACCEPTED {
            self.events.push(Event { warning, reason, note: message.to_owned() });
        }
        let generation = self.job.identity.generation;
        condition::set(conditions, type_, status, reason, message, generation, self.now);
    }

    fn find(&self, pool: &Pool) -> Found<'j> {
        let name = Name::new(&self.name.namespace, &pool.host_pool);
        let Some(found) = self.view.host_pool(&name) else { return Found::Nothing };
        match &found.job {
            Some((_, owner)) if *owner == self.job.identity.uid => match found.identity.deleting {
                false => Found::Own(found),
                true => Found::Leaving,
            },
            Some((owner, _)) if *owner == self.name.name => Found::Leaving,
            _ => Found::Foreign,
        }
    }

    fn create(&self, said: &api::streams_job::Pool, pool: &Pool) -> Action {
        let (namespace, name) = (&self.name.namespace, &pool.host_pool);
        let object = json!({
            "apiVersion": api::VERSION,
            "kind": "HostPool",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {"app.kubernetes.io/managed-by": "stowplan"},
                // Without blockOwnerDeletion, which would ask for more rights on jobs than are needed.
                "ownerReferences": [{
                    "apiVersion": api::VERSION,
                    "kind": "StreamsJob",
                    "name": self.name.name,
                    "uid": self.job.identity.uid,
                    "controller": true,
                }],
            },
            "spec": host_pool_spec(said),
        });
        let uid = "".into();
        let target =
            Target { kind: Kind::HostPool, namespace: namespace.clone(), name: name.clone(), uid };
        Action { target, write: Write::Create(object), events: Vec::new() }
    }

    /// The pool's size follows the job's, which can only grow.
    fn grow(&self, pool: &Pool, found: &HostPool) -> Option<Action> {
        let (Ok(Form::Sized(wanted, _)), Ok(Form::Sized(size, _))) = (&pool.form, &found.form)
        else {
            return None;
        };
        if size >= wanted {
            return None;
        }
        let operations = vec![test_uid(&found.identity.uid), replace(&["spec", "size"], *wanted)];
        let target = Target {
            kind: Kind::HostPool,
            namespace: self.name.namespace.clone(),
            name: pool.host_pool.clone(),
            uid: found.identity.uid.clone(),
        };
        Some(Action { target, write: Write::Patch(operations), events: Vec::new() })
    }

    /// What shares a host, and on which it is.
    fn groups(&self) -> Vec<Group> {
        let units = self.job.closure.units.iter();
        units
            .filter_map(|unit| {
                let name = unit.group.as_deref()?;
                let label = (keys::GROUP, name);
                let nodes = self.view.colocation_nodes(&self.name.namespace, label, None);
                let mut nodes = nodes.into_iter();
                let elements = unit.elements.iter();
                Some(Group {
                    name: name.to_owned(),
                    processing_elements: elements
                        .map(|element| self.spec.processing_elements[*element].name.clone())
                        .collect(),
                    // A group that is only preferred may be on several.
                    host: nodes.next().filter(|_| nodes.next().is_none()).map(str::to_owned),
                })
            })
            .collect()
    }
}

/// Why a pool is not ready.
fn waits_for(pool: &HostPool) -> Option<String> {
    match condition::find(&pool.status.conditions, READY) {
        Some(ready)
            if ready.status == Status::True
                && ready.observed_generation == Some(pool.identity.generation) =>
        {
            None
        }
        Some(ready) if ready.status != Status::True => {
            Some(format!("{} ({})", ready.message, ready.reason))
        }
        _ => Some("the controller has not looked at it yet".to_owned()),
    }
}

/// The elements in the order in which none strands another: first those that are bound to a host,
/// then groups, then what must be apart or alone, then the others.
fn creation_order(spec: &StreamsJobSpec, closure: &Closure) -> Vec<String> {
    let mut order: Vec<(u8, usize, usize)> = Vec::with_capacity(spec.processing_elements.len());
    for (place, unit) in closure.units.iter().enumerate() {
        let rank = if !unit.claims.is_empty() {
            0
        } else if unit.group.is_some() {
            1
        } else if !unit.exlocations.is_empty() || unit.isolated.is_some() {
            2
        } else {
            3
        };
        order.extend(unit.elements.iter().map(|element| (rank, place, *element)));
    }
    order.sort_unstable();
    order
        .into_iter()
        .map(|(_, _, element)| spec.processing_elements[element].name.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Object;

    const NOW: &str = "2026-01-01T00:00:00Z";

    /// A View of these documents, in YAML.
    fn view(documents: &[&str]) -> View {
        let mut view = View::default();
        documents.iter().for_each(|document| apply(&mut view, document));
        view
    }

    fn apply(view: &mut View, document: &str) {
        let document: Value = serde_saphyr::from_str(document).unwrap();
        view.apply(Object::from_document(document).unwrap().unwrap());
    }

    fn planned(view: &View) -> Vec<Action> {
        plan(view, &Policy::default(), NOW.parse().unwrap()).actions
    }

    fn status(action: &Action) -> StreamsJobStatus {
        match &action.write {
            Write::Status { status, .. } => serde_json::from_value(status.clone()).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// The status and reason of a condition.
    fn told(status: &StreamsJobStatus, type_: &str) -> (Status, String) {
        let condition = condition::find(&status.conditions, type_).unwrap();
        (condition.status, condition.reason.clone())
    }

    /// The job with this status, as the API server would keep it.
    fn with_status(job: &str, status: &StreamsJobStatus) -> String {
        let mut document: Value = serde_saphyr::from_str(job).unwrap();
        document["status"] = json!(status);
        document.to_string()
    }

    const NODE: &str = "{apiVersion: v1, kind: Node, metadata: {name: n1}}";
    const JOB: &str = "
apiVersion: stowplan.dev/v1alpha1
kind: StreamsJob
metadata: {name: parallel, namespace: ns, uid: u1, generation: 1, resourceVersion: '7'}
spec:
  pools: [{name: P, size: 1}]
  processingElements:
  - {name: free}
  - {name: apart, operators: [{name: A, hostExlocation: [x]}]}
  - {name: one, operators: [{name: B, hostColocation: [t]}]}
  - {name: pooled, operators: [{name: C, host: {pool: P}}]}
  - {name: other, operators: [{name: D, hostColocation: [t]}]}
";

    fn pool(name: &str, owner: &str, ready: bool, size: u32) -> String {
        let owners = json!([{
            "apiVersion": api::VERSION, "kind": "StreamsJob", "name": "parallel", "uid": owner,
            "controller": true,
        }]);
        let status = if ready { "True" } else { "False" };
        json!({
            "apiVersion": api::VERSION,
            "kind": "HostPool",
            "metadata": {
                "name": name, "namespace": "ns", "uid": "p1", "generation": 1,
                "ownerReferences": if owner.is_empty() { json!([]) } else { owners },
            },
            "spec": {"size": size},
            "status": {"conditions": [{
                "type": "Ready", "status": status, "reason": "Reserving", "message": "one to go",
                "lastTransitionTime": NOW, "observedGeneration": 1,
            }]},
        })
        .to_string()
    }

    fn pool_name() -> String {
        crate::view::streams_job::closure::host_pool_name("parallel", "P")
    }

    #[test]
    fn a_job_gets_its_pools_and_is_ready_when_they_are() {
        let mut view = view(&[NODE, JOB]);
        let actions = planned(&view);
        let [create, tell] = actions.as_slice() else { panic!("{actions:?}") };
        let Write::Create(object) = &create.write else { panic!("{create:?}") };
        assert_eq!(*create.target.name, *pool_name());
        assert_eq!(object["spec"], json!({"size": 1, "exclusivity": "Shared"}));
        let owner = &object["metadata"]["ownerReferences"][0];
        assert_eq!((&owner["uid"], &owner["controller"]), (&json!("u1"), &json!(true)));
        assert!(owner.get("blockOwnerDeletion").is_none());
        let first = status(tell);
        assert_eq!(told(&first, ACCEPTED), (Status::True, "Accepted".to_owned()));
        assert_eq!(told(&first, READY), (Status::False, "WaitingForPools".to_owned()));
        assert_eq!(first.creation_order, ["pooled", "one", "other", "apart", "free"]);
        assert_eq!(first.groups[0].processing_elements, ["one", "other"]);
        let events: Vec<_> =
            tell.events.iter().map(|event| (event.warning, event.reason)).collect();
        assert_eq!(events, [(false, "Accepted"), (false, "WaitingForPools")]);

        apply(&mut view, &with_status(JOB, &first));
        apply(&mut view, &pool(&pool_name(), "u1", false, 1));
        let actions = planned(&view);
        let [tell] = actions.as_slice() else { panic!("{actions:?}") };
        let second = status(tell);
        assert!(tell.events.is_empty(), "nothing has become otherwise: {:?}", tell.events);
        assert_eq!(second.pools[0].host_pool, pool_name());
        let ready = condition::find(&second.conditions, READY).unwrap();
        assert_eq!(ready.message, "P: one to go (Reserving)");

        apply(&mut view, &with_status(JOB, &second));
        assert_eq!(planned(&view), [], "a status is written where it changes");
        apply(&mut view, &pool(&pool_name(), "u1", true, 1));
        apply(
            &mut view,
            &format!(
                "{{apiVersion: v1, kind: Pod, metadata: {{name: p, namespace: ns, labels: {{streams.ibm.com/job: parallel, stowplan.dev/colocation-group: '{}'}}}}, spec: {{nodeName: n1}}}}",
                second.groups[0].name
            ),
        );
        let actions = planned(&view);
        let third = status(&actions[0]);
        assert_eq!(told(&third, READY), (Status::True, "PoolsReady".to_owned()));
        assert_eq!(third.groups[0].host.as_deref(), Some("n1"));
        assert_eq!(actions[0].events[0].reason, "PoolsReady");
    }

    #[test]
    fn a_job_that_cannot_be_placed_gets_nothing() {
        let job = JOB.replace("size: 1}", "size: 2}");
        let actions = planned(&view(&[NODE, &job]));
        let [tell] = actions.as_slice() else { panic!("{actions:?}") };
        let refused = status(tell);
        assert_eq!(told(&refused, ACCEPTED), (Status::False, "InsufficientNodes".to_owned()));
        assert_eq!(told(&refused, READY), (Status::False, "NotAccepted".to_owned()));
        assert_eq!(tell.events.len(), 1);
        assert!(tell.events[0].warning && tell.events[0].note.contains("needs 2 nodes"));
    }

    #[test]
    fn what_was_accepted_stays_so_when_a_node_goes_and_not_when_the_job_changes() {
        let mut view = view(&[NODE, JOB]);
        let accepted = status(&planned(&view)[1]);
        apply(&mut view, &pool(&pool_name(), "u1", true, 1));
        apply(&mut view, &with_status(JOB, &accepted));
        view.remove_node("n1");
        let now = status(&planned(&view)[0]);
        assert_eq!(told(&now, ACCEPTED).0, Status::True);
        assert_eq!(told(&now, READY), (Status::False, "NoTaggedNode".to_owned()));
        let grown = JOB.replace("generation: 1", "generation: 2").replace("size: 1}", "size: 2}");
        apply(&mut view, &with_status(&grown, &accepted));
        let actions = planned(&view);
        let [tell] = actions.as_slice() else { panic!("the pool does not grow: {actions:?}") };
        assert_eq!(told(&status(tell), ACCEPTED).0, Status::False);
    }

    #[test]
    fn a_pool_grows_with_its_job() {
        let node = NODE.replace("n1", "n2");
        let grown = JOB.replace("generation: 1", "generation: 2").replace("size: 1}", "size: 2}");
        let actions = planned(&view(&[NODE, &node, &grown, &pool(&pool_name(), "u1", true, 1)]));
        let Write::Patch(operations) = &actions[0].write else { panic!("{actions:?}") };
        let wanted = json!([
            {"op": "test", "path": "/metadata/uid", "value": "p1"},
            {"op": "replace", "path": "/spec/size", "value": 2},
        ]);
        assert_eq!(json!(operations), wanted);
    }

    #[test]
    fn somebody_elses_pool_is_never_touched() {
        let actions = planned(&view(&[NODE, JOB, &pool(&pool_name(), "", true, 5)]));
        let [tell] = actions.as_slice() else { panic!("{actions:?}") };
        assert_eq!(told(&status(tell), READY), (Status::False, "PoolNameTaken".to_owned()));
        assert!(tell.events.iter().any(|event| event.warning && event.reason == "PoolNameTaken"));
        // That of the job's predecessor goes by itself.
        let actions = planned(&view(&[NODE, JOB, &pool(&pool_name(), "u0", true, 1)]));
        let [tell] = actions.as_slice() else { panic!("{actions:?}") };
        assert_eq!(told(&status(tell), READY), (Status::False, "WaitingForPools".to_owned()));
    }

    #[test]
    fn a_job_about_to_go_and_one_elsewhere_are_left_alone() {
        let deleting = JOB.replace("uid: u1", "uid: u1, deletionTimestamp: '2026-01-01T00:00:00Z'");
        let excluded = JOB.replace("namespace: ns", "namespace: kube-system");
        assert_eq!(planned(&view(&[NODE, &deleting, &excluded])), []);
    }
}
