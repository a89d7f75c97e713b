//! Reconciles one TaskRun: its pod, a pod for each retry, and its status.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DynamicObject, PostParams};
use kube::runtime::controller::Action;
use serde_json::{Value, json};

use super::progress::{self, Progress};
use super::stop::{self, Stop};
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
    if object.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    if is_done(&task_run) {
        progress::stop_sidecars(&context, &task_run).await?;
        return Ok(Action::await_change());
    }
    let attempt = items(&task_run["status"]["retriesStatus"]).count();
    let name = pod::name(&task_run, attempt);
    let namespace = text(&task_run["metadata"]["namespace"]);
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), namespace);
    let end = async |status: Value| {
        context.status(Kind::TaskRun, &object, status).await?;
        Ok(Action::await_change())
    };
    let refuse = |reason: &str, message: &str| {
        json!({
            "conditions": succeeded(&task_run, "False", reason, message), "completionTime": now(),
        })
    };
    if let Some(stop) = Stop::find(Kind::TaskRun, &task_run) {
        stop::delete_pod(&pods, &name, &task_run).await?;
        return end(failed(&task_run, &name, stop.reason, &stop.message)).await;
    }
    // Only for a TaskRun without a run: the claims of a PipelineRun exist already.
    claim::create(&context, Kind::TaskRun, &task_run).await?;
    let Some((task, labels)) = specification(&context, &task_run).await? else {
        return end(refuse("TaskRunResolutionFailed", "no such Task")).await;
    };

    let wait = || {
        let left = stop::time_left(Kind::TaskRun, &task_run);
        left.map_or_else(Action::await_change, Action::requeue)
    };
    let Some(seen) = pods.get_opt(&name).await? else {
        if has_run(&task_run, &name) {
            let message = format!("pod {name:?} was deleted while it ran");
            return end(failed(&task_run, &name, "StepFailed", &message)).await;
        }
        let wanted = serde_json::from_value(pod::pod(&task_run, &task, &labels, attempt))?;
        return match pods.create(&PostParams::default(), &wanted).await {
            Ok(_) => {
                let status = ongoing(&task_run, &name, "Pending", "Pending");
                context.status(Kind::TaskRun, &object, status).await?;
                Ok(wait())
            }
            Err(kube::Error::Api(status)) if is_refused(&status) => {
                end(refuse("PodAdmissionFailed", &status.message)).await
            }
            Err(kube::Error::Api(status)) if status.message.contains("exceeded quota") => {
                let message =
                    format!("TaskRun Pod exceeded available resources: {}", status.message);
                let conditions = succeeded(&task_run, "Unknown", "ExceededResourceQuota", &message);
                // The timeout begins when a pod is made.
                let status = json!({"conditions": conditions, "startTime": null});
                context.status(Kind::TaskRun, &object, status).await?;
                Ok(Action::requeue(QUOTA_PAUSE))
            }
            Err(error) => Err(error.into()),
        };
    };
    let document = serde_json::to_value(&seen)?;
    if !is_of(&document, &task_run) {
        return Ok(Action::requeue(PAUSE));
    }
    let status = match Progress::of(&document) {
        Progress::Succeeded => json!({
            "podName": name,
            "conditions":
                succeeded(&task_run, "True", "Succeeded", "All Steps have completed executing"),
            "completionTime": now(),
            "results": results(&task_run),
        }),
        Progress::Failed(message) => failed(&task_run, &name, "StepFailed", &message),
        Progress::Pending(message) => ongoing(&task_run, &name, "Pending", &message),
        Progress::Running => ongoing(
            &task_run,
            &name,
            "Running",
            "Not all Steps in the Task have finished executing",
        ),
    };
    context.status(Kind::TaskRun, &object, status).await?;
    Ok(wait())
}

/// Whether the pod with this name ran. Its failure is then final, although the pod was removed
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

/// Whether the API server or a webhook refuses the pod for good. False if a pod with the name was
/// created meanwhile (the next reconciliation reads it), and for an exceeded quota.
fn is_refused(status: &kube::core::Status) -> bool {
    matches!(status.code, 400 | 403 | 409 | 422)
        && !status.is_already_exists()
        && !status.message.contains("exceeded quota")
}

fn ongoing(task_run: &Value, pod: &str, reason: &str, message: &str) -> Value {
    let since = &task_run["status"]["startTime"];
    json!({
        "podName": pod,
        "startTime": if since.is_null() { now() } else { since.clone() },
        "conditions": succeeded(task_run, "Unknown", reason, message),
    })
}

/// The status after a failed attempt. The TaskRun fails if it was cancelled or no retry is left.
fn failed(task_run: &Value, pod: &str, reason: &str, message: &str) -> Value {
    let mut retried: Vec<_> = items(&task_run["status"]["retriesStatus"]).cloned().collect();
    let retries = task_run["spec"]["retries"].as_u64().unwrap_or_default();
    if reason == stop::CANCELLED || retried.len() as u64 >= retries {
        return json!({
            "podName": pod,
            "conditions": succeeded(task_run, "False", reason, message),
            "completionTime": now(),
        });
    }
    retried.push(json!({
        "podName": pod,
        "conditions": succeeded(&Value::Null, "False", reason, message),
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

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn an_existing_pod_or_an_exceeded_quota_is_no_refusal() {
        let status = |code: u16, reason: &str, message: &str| -> Status {
            let document = json!({"code": code, "reason": reason, "message": message});
            serde_json::from_value(document).unwrap()
        };
        for (code, reason) in
            [(400, "BadRequest"), (403, "Forbidden"), (409, "UnknownHost"), (422, "InvalidMode")]
        {
            assert!(is_refused(&status(code, reason, "stowplan: no")), "{reason}");
        }
        let there = "pods \"ci-clone-pod\" already exists";
        assert!(!is_refused(&status(409, "AlreadyExists", there)));
        assert!(!is_refused(&status(403, "Forbidden", "exceeded quota: small")));
        assert!(!is_refused(&status(500, "InternalError", "a bug")));
    }
}
