//! The order in which TaskRuns, pods and runs change, compared with that of the real Tekton
//! (`assets/recorded-timelines.json`: seconds, object, change; pods without their start).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, EvictParams, ListParams, Patch, PatchParams,
    PostParams,
};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use testbed::tekton::{DURATION, FAIL, POD_DELAY};
use testbed::wait::{Seen, until};
use testbed::workload;
use tokio::task::JoinSet;

use super::World;

const RECORDED: &str = include_str!("../../../assets/recorded-timelines.json");

const LIMIT: Duration = Duration::from_secs(120);

/// Changes that were recorded closer together than this many seconds may come in any order.
const TOGETHER: f64 = 0.2;

/// When each change happened. The numbers are resource versions, which count the writes to all
/// objects of a control plane.
type Changes = BTreeMap<(String, String), u64>;

/// The changes in a namespace since it was created.
struct Timeline {
    seen: Arc<Mutex<Changes>>,
    _watches: JoinSet<()>,
}

impl Timeline {
    async fn new(world: &World, namespace: &str) -> Self {
        workload::namespace(&world.client, namespace).await.unwrap();
        let seen = Arc::<Mutex<Changes>>::default();
        let mut watches = JoinSet::new();
        let pods =
            Api::namespaced_with(world.client.clone(), namespace, &ApiResource::erase::<Pod>(&()));
        for (kind, objects) in [
            ("TaskRun", world.objects(namespace, "v1", "TaskRun")),
            ("PipelineRun", world.objects(namespace, "v1", "PipelineRun")),
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

/// What has happened to an object, as in the recorded time lines.
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

pub(crate) async fn a_run_of_five_tasks(world: &World) {
    let timeline = Timeline::new(world, "line-usual").await;
    let tasks = [
        task("clone", &[], 6),
        task("lint", &["clone"], 6),
        task("build", &["clone"], 6),
        task("test", &["lint", "build"], 6),
        task("package", &["test"], 6),
    ];
    world.run("line-usual", "r0", spec(&tasks)).await;
    timeline.compare("usual").await;
}

pub(crate) async fn a_sidecar_outlives_its_task(world: &World) {
    let timeline = Timeline::new(world, "line-sidecar").await;
    let mut with_sidecar = task("a", &[], 2);
    with_sidecar["taskSpec"]["metadata"]["annotations"][POD_DELAY] = json!("20s");
    with_sidecar["taskSpec"]["sidecars"] = json!([{"name": "sc", "image": "busybox"}]);
    world.run("line-sidecar", "run", spec(&[with_sidecar, task("b", &["a"], 4)])).await;
    timeline.compare("sidecar").await;
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), "line-sidecar");
    let containers = pods.get("run-a-pod").await.unwrap().spec.unwrap().containers;
    let images: Vec<_> = containers.iter().filter_map(|it| it.image.as_deref()).collect();
    assert_eq!(images, ["busybox", "tekton/nop:v1.15.0"]);
}

pub(crate) async fn a_cancelled_run(world: &World) {
    let timeline = Timeline::new(world, "line-cancel").await;
    let tasks = [task("clone", &[], 10), task("build", &["clone"], 1)];
    world.run("line-cancel", "run", spec(&tasks)).await;
    workload::scheduled(&world.client, "line-cancel", "run-clone-pod").await.unwrap();
    world.patch_run("line-cancel", "run", json!({"status": "Cancelled"})).await;
    timeline.compare("cancel").await;
}

pub(crate) async fn a_run_that_times_out(world: &World) {
    let timeline = Timeline::new(world, "line-timeout").await;
    let mut spec = spec(&[task("clone", &[], 600)]);
    spec["timeouts"] = json!({"pipeline": "12s"});
    spec["pipelineSpec"]["tasks"][0]["taskSpec"]["metadata"]["annotations"][POD_DELAY] =
        json!("3s");
    world.run("line-timeout", "run", spec).await;
    timeline.compare("timeout").await;
}

pub(crate) async fn a_retry_starts_before_the_last_pod_has_ended(world: &World) {
    let timeline = Timeline::new(world, "line-retry").await;
    let mut flaky = task("a", &[], 6);
    flaky["retries"] = json!(1);
    flaky["taskSpec"]["metadata"]["annotations"][FAIL] = json!("once");
    world.run("line-retry", "run", spec(&[flaky])).await;
    timeline.compare("retry").await;
}

pub(crate) async fn an_evicted_pod_is_retried(world: &World) {
    let timeline = Timeline::new(world, "line-evict").await;
    let mut clone = task("clone", &[], 8);
    clone["retries"] = json!(1);
    world.run("line-evict", "run", spec(&[clone, task("build", &["clone"], 1)])).await;
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), "line-evict");
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

pub(crate) async fn a_quota_refuses_a_pod_for_a_while(world: &World) {
    let timeline = Timeline::new(world, "line-quota").await;
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), "line-quota");
    let quotas: Api<ResourceQuota> = Api::namespaced(world.client.clone(), "line-quota");
    let other = json!({
        "metadata": {"name": "other"}, "spec": {"containers": [{"name": "c", "image": "c"}]},
    });
    pods.create(&PostParams::default(), &serde_json::from_value(other).unwrap()).await.unwrap();
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}});
    quotas.create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
    until("the quota to count the pod", LIMIT, async || {
        let quotas = quotas.list(&ListParams::default()).await?.items;
        let used = quotas.iter().find_map(|it| it.status.as_ref()?.used.as_ref()?.get("pods"));
        let used = used.map(|used| used.0.clone()).unwrap_or_default();
        Ok(if used == "1" { Seen::Done(()) } else { Seen::NotYet(used) })
    })
    .await
    .unwrap();
    world.run("line-quota", "run", spec(&[task("a", &[], 1)])).await;
    timeline.compare("quota").await;
    pods.delete("other", &DeleteParams::default().grace_period(0)).await.unwrap();
    let more = Patch::Merge(json!({"spec": {"hard": {"pods": "2"}}}));
    quotas.patch("q", &PatchParams::default(), &more).await.unwrap();
    world.succeeds("line-quota", "run").await;
}
