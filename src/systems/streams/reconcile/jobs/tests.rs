use k8s_openapi::api::core::v1::Node;

use super::*;
use crate::systems;
use crate::systems::streams::kinds::streams_job::closure;
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
    plan(view, &policy, &Wholes::new(view, &policy, now), now).actions
}

fn status(action: &Action) -> StreamsJobStatus {
    match &action.write {
        Write::Status { status, .. } => serde_json::from_value(status.clone()).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// The status and reason of a condition.
fn condition_of(status: &StreamsJobStatus, type_: &str) -> (Status, String) {
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
    closure::host_pool_name("parallel", "P")
}

#[test]
fn a_job_gets_its_pools_and_is_ready_when_they_are() {
    let mut view = view(&[NODE, JOB]);
    let actions = planned(&view);
    let [create, update] = actions.as_slice() else { panic!("{actions:?}") };
    let Write::Create(object) = &create.write else { panic!("{create:?}") };
    assert_eq!(*create.target.name, *pool_name());
    assert_eq!(object["spec"], json!({"size": 1, "exclusivity": "Shared"}));
    let owner = &object["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["uid"], &owner["controller"]), (&json!("u1"), &json!(true)));
    assert!(owner.get("blockOwnerDeletion").is_none());
    let first = status(update);
    assert_eq!(condition_of(&first, ACCEPTED), (Status::True, "Accepted".to_owned()));
    assert_eq!(condition_of(&first, READY), (Status::False, "WaitingForPools".to_owned()));
    assert_eq!(first.creation_order, ["pooled", "one", "other", "apart", "free"]);
    assert_eq!(first.groups[0].processing_elements, ["one", "other"]);
    let events: Vec<_> = update.events.iter().map(|event| (event.warning, event.reason)).collect();
    assert_eq!(events, [(false, "Accepted"), (false, "WaitingForPools")]);

    apply(&mut view, &with_status(JOB, &first));
    apply(&mut view, &pool(&pool_name(), "u1", false, 1));
    let actions = planned(&view);
    let [update] = actions.as_slice() else { panic!("{actions:?}") };
    let second = status(update);
    assert!(update.events.is_empty(), "no condition has changed: {:?}", update.events);
    assert_eq!(second.pools[0].host_pool, pool_name());
    let ready = condition::find(&second.conditions, READY).unwrap();
    assert_eq!(ready.message, "P: one to go (Reserving)");

    apply(&mut view, &with_status(JOB, &second));
    assert!(planned(&view).is_empty(), "an unchanged status is not written");
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
    assert_eq!(condition_of(&third, READY), (Status::True, "PoolsReady".to_owned()));
    assert_eq!(third.groups[0].host.as_deref(), Some("n1"));
    assert_eq!(actions[0].events[0].reason, "PoolsReady");
}

#[test]
fn a_job_that_cannot_be_placed_gets_no_pools() {
    let job = JOB.replace("size: 1}", "size: 2}");
    let actions = planned(&view(&[NODE, &job]));
    let [update] = actions.as_slice() else { panic!("{actions:?}") };
    let refused = status(update);
    assert_eq!(condition_of(&refused, ACCEPTED), (Status::False, "InsufficientNodes".to_owned()));
    assert_eq!(condition_of(&refused, READY), (Status::False, "NotAccepted".to_owned()));
    assert_eq!(update.events.len(), 1);
    assert!(update.events[0].warning && update.events[0].note.contains("needs 2 nodes"));
}

#[test]
fn an_accepted_job_stays_accepted_when_a_node_is_deleted_but_not_when_it_changes() {
    let mut view = view(&[NODE, JOB]);
    let accepted = status(&planned(&view)[1]);
    apply(&mut view, &pool(&pool_name(), "u1", true, 1));
    apply(&mut view, &with_status(JOB, &accepted));
    view.forget(&resource::NODE, &Name::cluster_wide("n1"));
    let now = status(&planned(&view)[0]);
    assert_eq!(condition_of(&now, ACCEPTED).0, Status::True);
    assert_eq!(condition_of(&now, READY), (Status::False, "NoTaggedNode".to_owned()));
    let grown = JOB.replace("generation: 1", "generation: 2").replace("size: 1}", "size: 2}");
    apply(&mut view, &with_status(&grown, &accepted));
    let actions = planned(&view);
    let [update] = actions.as_slice() else { panic!("the pool does not grow: {actions:?}") };
    assert_eq!(condition_of(&status(update), ACCEPTED).0, Status::False);
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
fn a_pool_that_the_job_does_not_own_is_never_changed() {
    let actions = planned(&view(&[NODE, JOB, &pool(&pool_name(), "", true, 5)]));
    let [update] = actions.as_slice() else { panic!("{actions:?}") };
    assert_eq!(condition_of(&status(update), READY), (Status::False, "PoolNameTaken".to_owned()));
    assert!(update.events.iter().any(|event| event.warning && event.reason == "PoolNameTaken"));
    // The pool of an earlier job of the name will be deleted.
    let actions = planned(&view(&[NODE, JOB, &pool(&pool_name(), "u0", true, 1)]));
    let [update] = actions.as_slice() else { panic!("{actions:?}") };
    assert_eq!(condition_of(&status(update), READY), (Status::False, "WaitingForPools".to_owned()));
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
    let job = "
apiVersion: stowplan.dev/v1alpha1
kind: StreamsJob
metadata: {name: parallel, namespace: ns, uid: u1, generation: 1, resourceVersion: '7'}
spec:
  pools: [{name: P, size: 1}, {name: Q, size: 1}]
  processingElements: [{name: a, operators: [{name: A, host: {pool: P}}]}]
";
    let new = |pool: &str, uid: &str, owner: &str| {
        let mut pool: Value = serde_saphyr::from_str(&self::pool(
            &closure::host_pool_name("parallel", pool),
            owner,
            false,
            1,
        ))
        .unwrap();
        pool["metadata"]["uid"] = json!(uid);
        pool.as_object_mut().unwrap().remove("status");
        pool.to_string()
    };
    let statuses = |view: &View| -> Vec<(String, String)> {
        let (policy, now) = (Policy::default(), NOW.parse().unwrap());
        let actions = systems::streams::reconcile::plan(view, &policy, now).actions;
        let of_pools = actions.into_iter().filter(|action| action.target.resource == HOST_POOL);
        let of_pools = of_pools.filter_map(|action| match &action.write {
            Write::Status { status, .. } => {
                let conditions = status["conditions"].as_array().unwrap();
                let ready = conditions.iter().find(|of| of["type"] == "Ready").unwrap();
                let of = |key: &str| ready[key].as_str().unwrap().to_owned();
                Some((of("reason"), of("message")))
            }
            _ => None,
        });
        of_pools.collect()
    };
    let with_nodes = |documents: &[&str]| {
        let mut view = view(documents);
        for name in ["n1", "n2"] {
            let labels = json!({"kubernetes.io/hostname": name});
            let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
            let metadata = json!({"name": name, "uid": name, "labels": labels});
            let node = json!({"metadata": metadata, "status": ready});
            let node: Node = serde_json::from_value(node).unwrap();
            view.apply(systems::project(&node, Scope::Controller).unwrap());
        }
        view
    };
    let (first, second) = (new("P", "p1", "u1"), new("Q", "p2", "u1"));
    let mut view = with_nodes(&[job, &first]);
    assert_eq!(statuses(&view), []);
    let complete = statuses(&with_nodes(&[job, &first, &second]));
    let reasons: Vec<&str> = complete.iter().map(|(reason, _)| reason.as_str()).collect();
    assert_eq!(reasons, ["Reserving", "Reserving"]);
    // A foreign HostPool has the name of the second: somebody must act, so the first says it.
    apply(&mut view, &new("Q", "p2", ""));
    let waiting =
        statuses(&view).into_iter().find(|(reason, _)| reason == "WaitingForJob").unwrap();
    assert_eq!(waiting.1, "StreamsJob parallel does not own all of the HostPools it needs");
}
