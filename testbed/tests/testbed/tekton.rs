//! The driver of Tekton's runs: the order in which TaskRuns, pods and runs change, compared with that
//! of the real Tekton (`assets/recorded-timelines.json`: seconds, object, change; pods without their
//! start); and what goes wrong without coscheduling, which its tests must be able to show.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, EvictParams, GroupVersionKind, PostParams};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use testbed::control_plane::{ControlPlane, NodeSpec, Options};
use testbed::tekton::{DURATION, Ended, FAIL, POD_DELAY, Tekton, ended};
use testbed::volumes::{IMMEDIATE, Volumes};
use testbed::wait::{Seen, until};
use testbed::workload;
use tokio::task::JoinSet;

const RECORDED: &str = include_str!("../../assets/recorded-timelines.json");

const LIMIT: Duration = Duration::from_secs(120);

/// Changes that were recorded closer together than this many seconds may come in any order.
const TOGETHER: f64 = 0.2;

#[tokio::test(flavor = "multi_thread")]
async fn runs_change_in_tektons_order_and_show_what_coscheduling_is_for() {
    let nodes = ["east", "west", "east", "west"].into_iter().zip(1..);
    let nodes = nodes.map(|(zone, number)| NodeSpec::new(&format!("node-{number}")).zone(zone));
    let options = Options { nodes: nodes.collect(), ..Options::default() };
    let plane = ControlPlane::start(options).await.unwrap();
    let client = plane.client().await.unwrap();
    let _volumes = Volumes::start(&client).await.unwrap();
    let _tekton = Tekton::start(&client).await.unwrap();
    tokio::join!(
        two_volumes_in_two_zones_leave_a_pod_pending_for_ever(&client),
        a_run_of_five_tasks(&client),
        a_retry_starts_before_the_last_pod_has_ended(&client),
        an_evicted_pod_is_retried(&client),
        a_quota_refuses_a_pod_for_a_while(&plane, &client),
    );
    plane.stop().await;
}

fn objects(client: &Client, namespace: &str, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("tekton.dev", "v1", kind);
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&kind))
}

async fn run(client: &Client, namespace: &str, name: &str, spec: Value) {
    let run = serde_json::from_value(json!({
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
        "metadata": {"name": name}, "spec": spec,
    }));
    let runs = objects(client, namespace, "PipelineRun");
    runs.create(&PostParams::default(), &run.unwrap()).await.unwrap();
}

/// The use case of the proposal: clone into one workspace, build with it and a cache.
async fn two_volumes_in_two_zones_leave_a_pod_pending_for_ever(client: &Client) {
    workload::namespace(client, "zones").await.unwrap();
    let bound = |name: &str| {
        json!({"name": name, "volumeClaimTemplate": {"spec": {
            "storageClassName": IMMEDIATE, "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        }}})
    };
    let using = |mut task: Value, workspaces: &[&str]| {
        let named: Vec<_> = workspaces.iter().map(|name| json!({"name": name})).collect();
        task["workspaces"] = json!(named);
        task["taskSpec"]["workspaces"] = json!(named);
        task
    };
    let mut spec = spec(&[
        using(task("clone", &[], 1), &["source"]),
        using(task("build", &["clone"], 1), &["source", "cache"]),
    ]);
    spec["workspaces"] = json!([bound("source"), bound("cache")]);
    run(client, "zones", "ci", spec).await;
    let why = workload::unschedulable(client, "zones", "ci-build-pod").await.unwrap();
    assert!(why.contains("didn't match PersistentVolume's node affinity"), "{why}");
    let error = ended(client, "zones", "ci", Duration::from_secs(5)).await.unwrap_err();
    let text = format!("{error:#}");
    assert!(text.contains("ci-build-pod Pending on no node"), "{text}");
}

/// When each change happened. The numbers are resource versions, which count the writes to all
/// objects of a control plane.
type Changes = BTreeMap<(String, String), u64>;

/// The changes in a namespace since it was created.
struct Timeline {
    seen: Arc<Mutex<Changes>>,
    _watches: JoinSet<()>,
}

impl Timeline {
    async fn new(client: &Client, namespace: &str) -> Self {
        workload::namespace(client, namespace).await.unwrap();
        let seen = Arc::<Mutex<Changes>>::default();
        let mut watches = JoinSet::new();
        let pods = Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<Pod>(&()));
        for (kind, objects) in [
            ("TaskRun", objects(client, namespace, "TaskRun")),
            ("PipelineRun", objects(client, namespace, "PipelineRun")),
            ("Pod", pods),
        ] {
            watches.spawn(record(kind, objects, Arc::clone(&seen)));
        }
        Self { seen, _watches: watches }
    }

    /// Waits until everything has happened that happened in the recorded case, and compares the
    /// order.
    async fn compare(&self, case: &str) {
        let recorded: BTreeMap<String, Vec<(f64, String, String)>> =
            serde_json::from_str(RECORDED).unwrap();
        let recorded = &recorded[case];
        let key = |change: &(f64, String, String)| (change.1.clone(), change.2.clone());
        let seen = until(&format!("{case}: all recorded changes"), LIMIT, async || {
            let seen = self.seen.lock().unwrap().clone();
            let missing = recorded.iter().find(|change| !seen.contains_key(&key(change)));
            Ok(match missing {
                None => Seen::Done(seen),
                Some(missing) => Seen::NotYet(format!("{missing:?} is missing in {seen:#?}")),
            })
        })
        .await
        .unwrap();
        let mut compared = 0;
        for (index, later) in recorded.iter().enumerate() {
            for earlier in recorded[..index].iter().filter(|it| later.0 - it.0 > TOGETHER) {
                let in_order = seen[&key(earlier)] < seen[&key(later)];
                assert!(in_order, "{case}: {later:?} came before {earlier:?} in {seen:#?}");
                compared += 1;
            }
        }
        assert!(compared > 0, "{case}: nothing was compared");
        // A pod whose end was recorded did not end otherwise.
        for (_, pod, _) in recorded.iter().filter(|it| ["Succeeded", "Failed"].contains(&&*it.2)) {
            let of = |object: &String, change: &String| object == pod && change != "created";
            let count = seen.keys().filter(|(object, change)| of(object, change)).count();
            let expected = recorded.iter().filter(|it| of(&it.1, &it.2)).count();
            assert_eq!(count, expected, "{case}: {pod} in {seen:#?}");
        }
    }
}

async fn record(kind: &str, objects: Api<DynamicObject>, seen: Arc<Mutex<Changes>>) {
    let mut events = std::pin::pin!(watcher(objects, watcher::Config::default()));
    while let Some(event) = events.next().await {
        let (object, is_deleted) = match event {
            Ok(Event::Apply(object) | Event::InitApply(object)) => (object, false),
            Ok(Event::Delete(object)) => (object, true),
            Ok(Event::Init | Event::InitDone) | Err(_) => continue,
        };
        let name = format!("{kind} {}", object.name_any());
        let version = object.resource_version().unwrap().parse().unwrap();
        for change in changes(&serde_json::to_value(object).unwrap(), is_deleted) {
            seen.lock().unwrap().entry((name.clone(), change)).or_insert(version);
        }
    }
}

/// Lists the changes of an object, as in the recorded time lines.
fn changes(document: &Value, is_deleted: bool) -> Vec<String> {
    let mut changes = vec![if is_deleted { "deleted" } else { "created" }.to_owned()];
    if is_deleted {
        return changes;
    }
    let condition = &document["status"]["conditions"][0];
    let part = |key: &str| condition[key].as_str().unwrap_or_default();
    let phase = document["status"]["phase"].as_str();
    if let Some(phase) = phase {
        let is_deleting = !document["metadata"]["deletionTimestamp"].is_null();
        changes.extend(is_deleting.then(|| "deleting".to_owned()));
        changes.extend(Some(phase.to_owned()).filter(|it| it == "Succeeded" || it == "Failed"));
    } else if ["True", "False"].contains(&part("status"))
        || ["ToBeRetried", "ExceededResourceQuota"].contains(&part("reason"))
    {
        changes.push(format!("{} {}: {}", part("status"), part("reason"), part("message")));
    }
    changes
}

/// A task whose steps run for this long, far longer than the machine pauses, and its pod for half
/// of that after them.
fn task(name: &str, after: &[&str], seconds: u64) -> Value {
    json!({
        "name": name, "runAfter": after,
        "taskSpec": {
            "metadata": {"annotations": {
                DURATION: format!("{seconds}s"), POD_DELAY: format!("{}s", seconds.div_ceil(2)),
            }},
            "steps": [{"name": "s", "image": "busybox"}],
        },
    })
}

fn spec(tasks: &[Value]) -> Value {
    json!({"pipelineSpec": {"tasks": tasks}})
}

async fn a_run_of_five_tasks(client: &Client) {
    let timeline = Timeline::new(client, "line-usual").await;
    let tasks = [
        task("clone", &[], 6),
        task("lint", &["clone"], 6),
        task("build", &["clone"], 6),
        task("test", &["lint", "build"], 6),
        task("package", &["test"], 6),
    ];
    run(client, "line-usual", "r0", spec(&tasks)).await;
    timeline.compare("usual").await;
}

async fn a_retry_starts_before_the_last_pod_has_ended(client: &Client) {
    let timeline = Timeline::new(client, "line-retry").await;
    let mut flaky = task("a", &[], 6);
    flaky["retries"] = json!(1);
    flaky["taskSpec"]["metadata"]["annotations"][FAIL] = json!("once");
    run(client, "line-retry", "run", spec(&[flaky])).await;
    timeline.compare("retry").await;
}

async fn an_evicted_pod_is_retried(client: &Client) {
    let timeline = Timeline::new(client, "line-evict").await;
    let mut clone = task("clone", &[], 8);
    clone["retries"] = json!(1);
    run(client, "line-evict", "run", spec(&[clone, task("build", &["clone"], 1)])).await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "line-evict");
    until("the first pod to run", LIMIT, async || {
        let pod = pods.get_opt("run-clone-pod").await?;
        let phase = pod.and_then(|pod| pod.status?.phase).unwrap_or_default();
        Ok(if phase == "Running" { Seen::Done(()) } else { Seen::NotYet(phase) })
    })
    .await
    .unwrap();
    pods.evict("run-clone-pod", &EvictParams::default()).await.unwrap();
    timeline.compare("eviction").await;
}

async fn a_quota_refuses_a_pod_for_a_while(plane: &ControlPlane, client: &Client) {
    let timeline = Timeline::new(client, "line-quota").await;
    let kubectl = |words: &str| {
        crate::succeeded(plane.kubectl().args(["-n", "line-quota"]).args(words.split(' ')))
    };
    kubectl("run other --image=none");
    kubectl("create quota q --hard=pods=1");
    until("the quota to count the pod", LIMIT, async || {
        let used = kubectl("get quota q -o=jsonpath={.status.used.pods}");
        Ok(Seen::when(used == "1", || used))
    })
    .await
    .unwrap();
    run(client, "line-quota", "run", spec(&[task("a", &[], 1)])).await;
    timeline.compare("quota").await;
    kubectl("delete pod other --grace-period=0 --force");
    kubectl(r#"patch quota q --type=merge --patch={"spec":{"hard":{"pods":"2"}}}"#);
    assert_eq!(ended(client, "line-quota", "run", LIMIT).await.unwrap(), Ended::Succeeded);
}
