//! Reconciles one TaskRun: its pod, a pod for each retry, and its status.
//!
//! A TaskRun ends with its steps, before its pod: the pod's phase changes when the kubelet has cleaned
//! up.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DynamicObject, PostParams};
use kube::runtime::controller::Action;
use serde_json::{Value, json};

use super::{
    Context, Error, Kind, RESULTS, claim, condition, is_done, is_of, items, now, pod, succeeded,
    text,
};

/// The time before a retry while another TaskRun's pod with the same name is terminating.
const PAUSE: Duration = Duration::from_millis(300);

/// The time before a retry of a pod that a quota refused. Tekton's is a minute.
const QUOTA_PAUSE: Duration = Duration::from_secs(2);

pub(super) async fn reconcile(
    object: Arc<DynamicObject>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    let task_run = serde_json::to_value(&*object)?;
    if object.metadata.deletion_timestamp.is_some() || is_done(&task_run) {
        return Ok(Action::await_change());
    }
    let attempt = items(&task_run["status"]["retriesStatus"]).count();
    let name = pod::name(&task_run, attempt);
    let namespace = text(&task_run["metadata"]["namespace"]);
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), namespace);
    let write = async |status: Value, action: Action| {
        context.status(Kind::TaskRun, &object, status).await?;
        Ok(action)
    };
    let refuse = |reason: &str, message: &str| {
        json!({
            "conditions": succeeded(&task_run, "False", reason, message), "completionTime": now(),
        })
    };
    // Only for a TaskRun without a run: the claims of a PipelineRun exist already.
    claim::create(&context, Kind::TaskRun, &task_run).await?;
    let Some((task, labels)) = specification(&context, &task_run).await? else {
        let status = refuse("TaskRunResolutionFailed", "no such Task");
        return write(status, Action::await_change()).await;
    };
    let Some(seen) = pods.get_opt(&name).await? else {
        if has_run(&task_run, &name) {
            let message = format!("pod {name:?} was deleted while it ran");
            let status = failed(&task_run, &name, &message);
            return write(status, Action::await_change()).await;
        }
        let wanted = serde_json::from_value(pod::pod(&task_run, &task, &labels, attempt))?;
        let (status, action) = match pods.create(&PostParams::default(), &wanted).await {
            Ok(_) => (ongoing(&task_run, &name, "Pending", "Pending"), Action::await_change()),
            Err(kube::Error::Api(status)) if status.message.contains("exceeded quota") => {
                let message =
                    format!("TaskRun Pod exceeded available resources: {}", status.message);
                let conditions = succeeded(&task_run, "Unknown", "ExceededResourceQuota", &message);
                let status = json!({"conditions": conditions, "startTime": null});
                (status, Action::requeue(QUOTA_PAUSE))
            }
            // One that exists was created meanwhile: the next reconciliation reads it.
            Err(kube::Error::Api(status))
                if matches!(status.code, 400 | 403 | 409 | 422) && !status.is_already_exists() =>
            {
                (refuse("PodAdmissionFailed", &status.message), Action::await_change())
            }
            Err(error) => return Err(error.into()),
        };
        return write(status, action).await;
    };
    let seen = serde_json::to_value(&seen)?;
    if !is_of(&seen, &task_run) {
        return Ok(Action::requeue(PAUSE));
    }
    write(status(&task_run, &name, &seen["status"]), Action::await_change()).await
}

/// The status of a TaskRun by that of its pod.
fn status(task_run: &Value, pod: &str, seen: &Value) -> Value {
    let steps: Vec<_> = items(&seen["containerStatuses"]).collect();
    let code = |step: &Value| step["state"]["terminated"]["exitCode"].as_i64();
    let have_ended = !steps.is_empty() && steps.iter().all(|step| code(step).is_some());
    let failed_step = steps.into_iter().find(|step| code(step).is_some_and(|code| code != 0));
    match (text(&seen["phase"]), failed_step) {
        (_, Some(step)) if have_ended => {
            let (name, code) = (text(&step["name"]), code(step).unwrap_or_default());
            let reason = text(&step["state"]["terminated"]["reason"]);
            failed(task_run, pod, &format!("{name:?} exited with code {code}: {reason}"))
        }
        ("Failed", _) if !have_ended => {
            failed(task_run, pod, &format!("{}: Pod failed", text(&seen["reason"])))
        }
        (phase, _) if have_ended || phase == "Succeeded" => {
            let message = "All Steps have completed executing";
            json!({
                "podName": pod, "completionTime": now(), "results": results(task_run),
                "conditions": succeeded(task_run, "True", "Succeeded", message),
            })
        }
        ("Running", _) => {
            let message = "Not all Steps in the Task have finished executing";
            ongoing(task_run, pod, "Running", message)
        }
        _ => ongoing(task_run, pod, "Pending", &pending_message(seen)),
    }
}

fn pending_message(status: &Value) -> String {
    let scheduled = items(&status["conditions"]).find(|it| it["type"] == "PodScheduled");
    match scheduled.filter(|condition| condition["status"] == "False") {
        Some(condition) => {
            let message = text(&condition["message"]);
            format!("pod status \"PodScheduled\":\"False\"; message: {message:?}")
        }
        None => "Pending".to_owned(),
    }
}

/// Returns true if the pod with this name ran. Its failure is then final, although the pod was removed
/// before its phase was read. A pod that never ran is created again under the same name.
fn has_run(task_run: &Value, pod: &str) -> bool {
    condition(task_run)["reason"] == "Running" && task_run["status"]["podName"] == pod
}

/// The specification that the TaskRun runs, and the labels of its Task; `None`: there is no such
/// Task.
async fn specification(
    context: &Context,
    task_run: &Value,
) -> Result<Option<(Value, Value)>, Error> {
    let spec = &task_run["spec"];
    if spec["taskSpec"].is_object() {
        return Ok(Some((spec["taskSpec"].clone(), Value::Null)));
    }
    let namespace = text(&task_run["metadata"]["namespace"]);
    let task = context.get(Kind::Task, namespace, text(&spec["taskRef"]["name"])).await?;
    Ok(task.map(|mut task| (task["spec"].take(), task["metadata"]["labels"].take())))
}

fn ongoing(task_run: &Value, pod: &str, reason: &str, message: &str) -> Value {
    let since = &task_run["status"]["startTime"];
    json!({
        "podName": pod,
        "startTime": if since.is_null() { now() } else { since.clone() },
        "conditions": succeeded(task_run, "Unknown", reason, message),
    })
}

/// The status after a failed attempt. The TaskRun fails if no retry is left.
fn failed(task_run: &Value, pod: &str, message: &str) -> Value {
    const REASON: &str = "StepFailed";
    let mut retried: Vec<_> = items(&task_run["status"]["retriesStatus"]).cloned().collect();
    let retries = task_run["spec"]["retries"].as_u64().unwrap_or_default();
    if retried.len() as u64 >= retries {
        return json!({
            "podName": pod,
            "conditions": succeeded(task_run, "False", REASON, message),
            "completionTime": now(),
        });
    }
    retried.push(json!({
        "podName": pod,
        "conditions": succeeded(&Value::Null, "False", REASON, message),
        "startTime": task_run["status"]["startTime"],
        "completionTime": now(),
    }));
    json!({
        "podName": "",
        "startTime": null,
        "retriesStatus": retried,
        "conditions": succeeded(task_run, "Unknown", "ToBeRetried", message),
    })
}

/// The results from the annotation [`RESULTS`].
fn results(task_run: &Value) -> Value {
    let written = text(&task_run["metadata"]["annotations"][RESULTS]);
    let results: serde_json::Map<_, _> = serde_json::from_str(written).unwrap_or_default();
    results
        .into_iter()
        .map(|(name, value)| json!({"name": name, "type": "string", "value": value}))
        .collect()
}
