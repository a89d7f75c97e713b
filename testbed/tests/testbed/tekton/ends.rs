//! TaskRuns that end otherwise than by their steps. What the real Tekton does was not recorded as a
//! time line.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use testbed::tekton::{DURATION, Ended, ended};
use testbed::wait::{Seen, until};
use testbed::workload;

use super::{World, task};

const LIMIT: Duration = Duration::from_secs(60);

fn long(name: &str) -> Value {
    let mut task = task(name, &[], &[]);
    task["taskSpec"]["metadata"] = json!({"annotations": {DURATION: "10m"}});
    task
}

/// Waits until a TaskRun has failed; returns the reason and message.
async fn failed(world: &World, namespace: &str, task_run: &str) -> (String, String) {
    let task_runs = world.objects(namespace, "v1", "TaskRun");
    until(&format!("TaskRun {task_run} to fail"), LIMIT, async || {
        let task_run = task_runs.get_opt(task_run).await?;
        let Some(task_run) = task_run else { return Ok(Seen::NotYet("none".to_owned())) };
        let condition = &task_run.data["status"]["conditions"][0];
        let part = |key: &str| condition[key].as_str().unwrap_or_default().to_owned();
        Ok(match part("status") == "False" {
            true => Seen::Done((part("reason"), part("message"))),
            false => Seen::NotYet(condition.to_string()),
        })
    })
    .await
    .unwrap()
}

/// The attempts that failed.
async fn retries(world: &World, namespace: &str, task_run: &str) -> usize {
    let task_run = world.objects(namespace, "v1", "TaskRun").get(task_run).await.unwrap();
    task_run.data["status"]["retriesStatus"].as_array().map_or(0, Vec::len)
}

async fn gone(world: &World, namespace: &str) {
    until("the pods to be deleted", LIMIT, async || {
        let pods = world.pod_names(namespace).await;
        Ok(if pods.is_empty() { Seen::Done(()) } else { Seen::NotYet(format!("{pods:?}")) })
    })
    .await
    .unwrap();
}

pub(crate) async fn a_task_that_times_out_is_retried(world: &World) {
    workload::namespace(&world.client, "end-timeout").await.unwrap();
    let mut slow = long("slow");
    slow["timeout"] = json!("3s");
    slow["retries"] = json!(1);
    world.run("end-timeout", "ci", json!({"pipelineSpec": {"tasks": [slow]}})).await;
    let (reason, message) = failed(world, "end-timeout", "ci-slow").await;
    assert_eq!(reason, "TaskRunTimeout");
    assert_eq!(message, r#"TaskRun "ci-slow" failed to finish within "3s""#);
    assert_eq!(retries(world, "end-timeout", "ci-slow").await, 1);
    let end = ended(&world.client, "end-timeout", "ci", LIMIT).await.unwrap();
    assert!(matches!(end, Ended::Failed(_)), "{end:?}");
    gone(world, "end-timeout").await;
}

pub(crate) async fn a_cancelled_run_cancels_the_runs_below_it(world: &World) {
    workload::namespace(&world.client, "end-nested").await.unwrap();
    let inner = json!({"name": "inner", "pipelineSpec": {"tasks": [long("slow")]}});
    world.run("end-nested", "outer", json!({"pipelineSpec": {"tasks": [inner]}})).await;
    workload::scheduled(&world.client, "end-nested", "outer-inner-slow-pod").await.unwrap();
    world.patch_run("end-nested", "outer", json!({"status": "Cancelled"})).await;
    let (reason, _) = failed(world, "end-nested", "outer-inner-slow").await;
    assert_eq!(reason, "TaskRunCancelled");
    for run in ["outer", "outer-inner"] {
        let end = ended(&world.client, "end-nested", run, LIMIT).await.unwrap();
        assert_eq!(end, Ended::Failed(format!("PipelineRun \"{run}\" was cancelled")));
    }
    gone(world, "end-nested").await;
}

/// A pod that never ran is made again under its name, and no retry is used.
pub(crate) async fn a_deleted_pod_without_a_node_is_made_again(world: &World) {
    workload::namespace(&world.client, "end-pending").await.unwrap();
    let spec = json!({
        "taskRunTemplate": {"podTemplate": {"nodeSelector": {"kubernetes.io/hostname": "none"}}},
        "pipelineSpec": {"tasks": [long("waits")]},
    });
    world.run("end-pending", "ci", spec).await;
    workload::unschedulable(&world.client, "end-pending", "ci-waits-pod").await.unwrap();
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), "end-pending");
    let old = pods.get("ci-waits-pod").await.unwrap().metadata.uid;
    pods.delete("ci-waits-pod", &DeleteParams::default()).await.unwrap();
    until("the pod to be made again", LIMIT, async || {
        let pod = pods.get_opt("ci-waits-pod").await?.filter(|pod| pod.metadata.uid != old);
        Ok(pod.map_or_else(|| Seen::NotYet("it is not".to_owned()), |_| Seen::Done(())))
    })
    .await
    .unwrap();
    assert_eq!(world.pod_names("end-pending").await, ["ci-waits-pod"]);
    assert_eq!(retries(world, "end-pending", "ci-waits").await, 0);
}

/// A pod that ran is not made again, even if it vanishes without a phase.
pub(crate) async fn a_deleted_pod_that_ran_fails_its_task(world: &World) {
    workload::namespace(&world.client, "end-forced").await.unwrap();
    let task_run = |name: &str| {
        json!({
            "apiVersion": "tekton.dev/v1", "kind": "TaskRun",
            "metadata": {"name": name, "annotations": {DURATION: "10m"}},
            "spec": {"taskSpec": {"steps": [{"name": "s", "image": "busybox"}]}},
        })
    };
    let task_runs = world.objects("end-forced", "v1", "TaskRun");
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), "end-forced");
    for (name, parameters, expected) in [
        ("kill", DeleteParams::default(), "\"step-s\" exited with code 255: Error"),
        (
            "force",
            DeleteParams::default().grace_period(0),
            "pod \"force-pod\" was deleted while it ran",
        ),
    ] {
        let document = serde_json::from_value(task_run(name)).unwrap();
        task_runs.create(&PostParams::default(), &document).await.unwrap();
        until("the TaskRun to be Running", LIMIT, async || {
            let task_run = task_runs.get(name).await?;
            let reason = &task_run.data["status"]["conditions"][0]["reason"];
            Ok(if reason == "Running" { Seen::Done(()) } else { Seen::NotYet(reason.to_string()) })
        })
        .await
        .unwrap();
        pods.delete(&format!("{name}-pod"), &parameters).await.unwrap();
        let (reason, message) = failed(world, "end-forced", name).await;
        assert_eq!((&*reason, &*message), ("StepFailed", expected));
    }
    gone(world, "end-forced").await;
}
