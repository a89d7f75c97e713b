use super::*;
use crate::kubernetes::REQUIRED;
use crate::systems;
use crate::systems::streams::kinds::streams_job::closure;
use crate::systems::test_objects::{node, watch};
use crate::view::{Scope, resource};

const NOW: &str = "2026-01-01T00:00:00Z";

/// A View of these documents, in YAML.
fn view(documents: &[&str]) -> View {
    let mut view = View::default();
    documents.iter().for_each(|document| apply(&mut view, document));
    view
}

fn apply(view: &mut View, document: &str) {
    let document: Value = serde_saphyr::from_str(document).unwrap();
    view.apply(systems::object(document).unwrap().unwrap());
}

fn planned(view: &View) -> Vec<Action> {
    let (policy, now) = (Policy::default(), NOW.parse().unwrap());
    plan(view, &policy, &Placements::new(view, &policy, now), now).actions
}

/// The only write that is planned, and the status that it writes.
#[track_caller]
fn updated(view: &View) -> (Action, StreamsJobStatus) {
    let actions = planned(view);
    let [update] = actions.as_slice() else { panic!("{actions:?}") };
    (update.clone(), status(update))
}

fn status(action: &Action) -> StreamsJobStatus {
    match &action.write {
        Write::Status { status, .. } => serde_json::from_value(status.clone()).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// The status and reason of a condition, as `True Accepted`.
fn condition_of(status: &StreamsJobStatus, type_: &str) -> String {
    let condition = condition::find(&status.conditions, type_).unwrap();
    format!("{:?} {}", condition.status, condition.reason)
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

/// The job with a pool of two nodes, in its next generation.
fn grown() -> String {
    JOB.replace("generation: 1", "generation: 2").replace("size: 1}", "size: 2}")
}

fn pool_name(pool: &str) -> String {
    closure::host_pool_name("parallel", pool)
}

/// The HostPool of a pool of the job, controlled by the object with the UID `owner`.
fn pool(pool: &str, owner: &str, ready: Option<&str>) -> String {
    let owners = json!([{
        "apiVersion": api::VERSION, "kind": "StreamsJob", "name": "parallel", "uid": owner,
        "controller": true,
    }]);
    let owners = if owner.is_empty() { json!([]) } else { owners };
    let status = ready.map(|status| {
        json!({"conditions": [{
            "type": "Ready", "status": status, "reason": "Reserving", "message": "one to go",
            "lastTransitionTime": NOW, "observedGeneration": 1,
        }]})
    });
    json!({
        "apiVersion": api::VERSION, "kind": "HostPool", "spec": {"size": 1}, "status": status,
        "metadata": {
            "name": pool_name(pool), "namespace": "ns", "uid": format!("uid-{pool}"),
            "generation": 1, "ownerReferences": owners,
        },
    })
    .to_string()
}

#[test]
fn a_job_gets_its_pools_and_is_ready_when_they_are() {
    let mut view = view(&[NODE, JOB]);
    let actions = planned(&view);
    let [create, update] = actions.as_slice() else { panic!("{actions:?}") };
    let Write::Create(object) = &create.write else { panic!("{create:?}") };
    assert_eq!(*create.target.name, *pool_name("P"));
    assert_eq!(object["spec"], json!({"size": 1, "exclusivity": "Shared"}));
    let owner = &object["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["uid"], &owner["controller"]), (&json!("u1"), &json!(true)));
    assert!(owner.get("blockOwnerDeletion").is_none());
    let first = status(update);
    assert_eq!(condition_of(&first, ACCEPTED), "True Accepted");
    assert_eq!(condition_of(&first, READY), "False WaitingForPools");
    assert_eq!(first.creation_order, ["pooled", "one", "other", "apart", "free"]);
    assert_eq!(first.groups[0].processing_elements, ["one", "other"]);
    let events: Vec<_> = update.events.iter().map(|event| (event.warning, event.reason)).collect();
    assert_eq!(events, [(false, "Accepted"), (false, "WaitingForPools")]);

    apply(&mut view, &with_status(JOB, &first));
    apply(&mut view, &pool("P", "u1", Some("False")));
    let (update, second) = updated(&view);
    assert!(update.events.is_empty(), "no condition has changed: {:?}", update.events);
    assert_eq!(second.pools[0].host_pool, pool_name("P"));
    let ready = condition::find(&second.conditions, READY).unwrap();
    assert_eq!(ready.message, "P: one to go (Reserving)");

    apply(&mut view, &with_status(JOB, &second));
    assert!(planned(&view).is_empty(), "an unchanged status is not written");
    apply(&mut view, &pool("P", "u1", Some("True")));
    let labels = json!({
        "streams.ibm.com/job": "parallel", "stowplan.dev/colocation-group": second.groups[0].name,
    });
    let pod = json!({"metadata": {"name": "p", "namespace": "ns", "labels": labels},
        "apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": "n1"}});
    apply(&mut view, &pod.to_string());
    let (update, third) = updated(&view);
    assert_eq!(condition_of(&third, READY), "True PoolsReady");
    assert_eq!(third.groups[0].host.as_deref(), Some("n1"));
    assert_eq!(update.events[0].reason, "PoolsReady");
}

#[test]
fn a_job_whose_pods_can_come_in_any_order_needs_no_placement() {
    let (metadata, _) = JOB.split_once("spec:").unwrap();
    let job = format!("{metadata}spec: {{processingElements: [{{name: free}}]}}");
    let (_, status) = updated(&view(&[NODE, &job]));
    let accepted = condition::find(&status.conditions, ACCEPTED).unwrap();
    assert_eq!(accepted.message, "the job can be placed");
}

#[test]
fn a_job_that_cannot_be_placed_gets_no_pools() {
    let (update, refused) = updated(&view(&[NODE, &grown()]));
    assert_eq!(condition_of(&refused, ACCEPTED), "False InsufficientNodes");
    assert_eq!(condition_of(&refused, READY), "False NotAccepted");
    let [event] = update.events.as_slice() else { panic!("{update:?}") };
    assert!(event.warning && event.note.contains("needs 2 nodes"));
}

#[test]
fn an_accepted_job_stays_accepted_when_a_node_is_deleted_but_not_when_it_changes() {
    let mut view = view(&[NODE, JOB]);
    let accepted = status(&planned(&view)[1]);
    apply(&mut view, &pool("P", "u1", Some("True")));
    apply(&mut view, &with_status(JOB, &accepted));
    view.forget(&resource::NODE, &Name::cluster_wide("n1"));
    let (_, now) = updated(&view);
    assert_eq!(condition_of(&now, ACCEPTED), "True Accepted");
    assert_eq!(condition_of(&now, READY), "False NoTaggedNode");
    apply(&mut view, &with_status(&grown(), &accepted));
    // The pool does not grow.
    let (_, now) = updated(&view);
    assert!(condition_of(&now, ACCEPTED).starts_with("False"), "{now:?}");
}

#[test]
fn a_pool_grows_with_its_job() {
    let node = NODE.replace("n1", "n2");
    let actions = planned(&view(&[NODE, &node, &grown(), &pool("P", "u1", Some("True"))]));
    let Write::Patch(operations) = &actions[0].write else { panic!("{actions:?}") };
    let wanted = json!([
        {"op": "test", "path": "/metadata/uid", "value": "uid-P"},
        {"op": "replace", "path": "/spec/size", "value": 2},
    ]);
    assert_eq!(json!(operations), wanted);
}

#[test]
fn a_pool_that_the_job_does_not_own_is_never_changed() {
    let foreign = pool("P", "", Some("True")).replace(r#""size":1"#, r#""size":5"#);
    let (update, taken) = updated(&view(&[NODE, JOB, &foreign]));
    assert_eq!(condition_of(&taken, READY), "False PoolNameTaken");
    assert!(update.events.iter().any(|event| event.warning && event.reason == "PoolNameTaken"));
    // The pool of an earlier job of the name will be deleted.
    let (_, waiting) = updated(&view(&[NODE, JOB, &pool("P", "u0", Some("True"))]));
    assert_eq!(condition_of(&waiting, READY), "False WaitingForPools");
}

/// It was refused if no job of the cluster had anything to search for.
#[test]
fn a_job_that_names_a_missing_host_may_wait_whatever_other_jobs_there_are() {
    let job = "{apiVersion: stowplan.dev/v1alpha1, kind: StreamsJob, metadata: {name: named, namespace: ns, uid: u2, generation: 1}, spec: {processingElements: [{name: a, operators: [{name: A, host: {name: gone}}]}]}}";
    let policy = Policy::from_yaml("streams: {unmet: wait}").unwrap();
    let now = NOW.parse().unwrap();
    for documents in [&[NODE, job][..], &[NODE, job, JOB]] {
        let view = view(documents);
        let placements = Placements::new(&view, &policy, now);
        let placement = placements.get(&Name::new("ns", "named")).unwrap();
        assert!(!placement.findings.is_empty() && placement.may_wait, "{placement:?}");
    }
}

#[test]
fn a_job_that_is_being_deleted_or_is_in_an_excluded_namespace_is_ignored() {
    let deleting = JOB.replace("uid: u1", "uid: u1, deletionTimestamp: '2026-01-01T00:00:00Z'");
    let excluded = JOB.replace("namespace: ns", "namespace: kube-system");
    assert!(planned(&view(&[NODE, &deleting, &excluded])).is_empty());
}

/// A pod may come while the controller creates the pools one after the other: it must not be refused because
/// the first of them says that it is not Ready.
#[test]
fn a_pool_has_no_status_before_the_others_of_its_job_exist() {
    let job = JOB.replace("size: 1}", "size: 1}, {name: Q, size: 1}");
    /// The reason and message of the condition Ready of each pool whose status is written.
    fn statuses(view: &View) -> Vec<String> {
        let (policy, now) = (Policy::default(), NOW.parse().unwrap());
        let actions = systems::streams::reconcile::plan(view, &policy, now).actions;
        let of_pools = actions.into_iter().filter(|action| action.target.resource == HOST_POOL);
        let ready = of_pools.filter_map(|action| match &action.write {
            Write::Status { status, .. } => {
                let conditions = status["conditions"].as_array().unwrap();
                let ready = conditions.iter().find(|of| of["type"] == "Ready").unwrap();
                Some(format!("{}: {}", ready["reason"], ready["message"]).replace('"', ""))
            }
            _ => None,
        });
        ready.collect()
    }
    let first = pool("P", "u1", None);
    let mut view = view(&[&job, &first]);
    for name in ["n1", "n2"] {
        watch(&mut view, node(name, &json!({"metadata": {"uid": name}})), Scope::Controller);
    }
    assert_eq!(statuses(&view), [""; 0]);
    apply(&mut view, &pool("Q", "u1", None));
    let complete = statuses(&view);
    assert_eq!(complete.len(), 2, "{complete:?}");
    assert!(complete.iter().all(|ready| ready.starts_with("Reserving: ")), "{complete:?}");
    // A foreign HostPool has the name of the second: somebody must act, so the first says it.
    apply(&mut view, &pool("Q", "", None));
    let waiting = "WaitingForJob: StreamsJob parallel does not own all of the HostPools it needs";
    assert!(statuses(&view).iter().any(|ready| ready == waiting));
}

/// A job with an element that must be alone, and with as many others as there are nodes in the test: so a node is
/// reserved for that one.
const CROWDED: &str = "
apiVersion: stowplan.dev/v1alpha1
kind: StreamsJob
metadata: {name: parallel, namespace: ns, uid: u1, generation: 1, resourceVersion: '7'}
spec:
  processingElements:
  - {name: alone, operators: [{name: A, hostIsolation: true}]}
  - {name: b}
  - {name: c}
  - {name: d}
";

/// With each move, the next pod that finds no room waits for twice as long.
#[test]
fn reserved_nodes_are_moved_only_by_a_pod_that_finds_no_room() {
    for is_full in [false, true] {
        let mut view = view(&[CROWDED]);
        let allocatable = json!({"cpu": "1", "memory": "1Gi", "pods": "10"});
        for name in ["n1", "n2", "n3"] {
            let node = node(name, &json!({"status": {"allocatable": allocatable}}));
            watch(&mut view, node, Scope::Controller);
        }
        let (_, first) = updated(&view);
        let first_node = first.witness.as_ref().unwrap().nodes[0].name.clone();
        apply(&mut view, &with_status(CROWDED, &first));
        if is_full {
            let field = json!({"key": "metadata.name", "operator": "In", "values": [first_node]});
            let terms = json!({"nodeSelectorTerms": [{"matchFields": [field]}]});
            let labels = json!({
                "app": "streams", "streams.ibm.com/job": "parallel", "streams.ibm.com/pe": "alone",
            });
            let refused = json!({"type": "PodScheduled", "status": "False",
                "reason": "Unschedulable", "lastTransitionTime": "2025-12-31T23:59:00Z"});
            let pod = json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "p", "namespace": "ns", "labels": labels},
                "spec": {"containers": [], "affinity": {"nodeAffinity": {REQUIRED: terms}}},
                "status": {"phase": "Pending", "conditions": [refused]}});
            watch(&mut view, pod, Scope::Controller);
        } else {
            view.forget(&resource::NODE, &Name::cluster_wide(&first_node));
        }
        let (update, second) = updated(&view);
        let placement = second.witness.unwrap();
        let [reserved] = placement.nodes.as_slice() else { panic!("{placement:?}") };
        assert_ne!(reserved.name, first_node);
        assert_eq!(reserved.processing_elements, ["alone"]);
        assert_eq!(placement.moves, u32::from(is_full));
        let is_said = update.events.iter().any(|event| event.reason == "NodesReservedAnew");
        assert_eq!(is_said, is_full, "{:?}", update.events);
    }
}
