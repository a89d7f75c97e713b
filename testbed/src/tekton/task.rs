//! Reconciles one TaskRun: its pod, a pod for each retry, and its status.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DynamicObject, PostParams};
use kube::runtime::controller::Action;
use serde_json::{Value, json};

use super::{
    Context, Error, Kind, RESULTS, claim, is_done, is_of, items, now, pod, succeeded, text,
};

/// The time before a retry while another TaskRun's pod with the same name is terminating.
const PAUSE: Duration = Duration::from_millis(300);

/// The time before a retry of a pod that a quota refused.
const QUOTA_PAUSE: Duration = Duration::from_secs(2);

pub(super) async fn reconcile(
    object: Arc<DynamicObject>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    let task_run = serde_json::to_value(&*object)?;
    let done = is_done(&task_run) || object.metadata.deletion_timestamp.is_some();
    if done {
        return Ok(Action::await_change());
    }
    // Only for a TaskRun without a run: the claims of a PipelineRun exist already.
    claim::create(&context, Kind::TaskRun, &task_run).await?;
    let Some((task, labels)) = specification(&context, &task_run).await? else {
        let status = json!({
            "conditions": succeeded(&task_run, "False", "TaskRunResolutionFailed", "no such Task"),
            "completionTime": now(),
        });
        context.status(Kind::TaskRun, &object, status).await?;
        return Ok(Action::await_change());
    };

    let retried: Vec<_> = items(&task_run["status"]["retriesStatus"]).cloned().collect();
    let attempt = retried.len();
    let name = pod::name(&task_run, attempt);
    let namespace = text(&task_run["metadata"]["namespace"]);
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), namespace);
    let Some(seen) = pods.get_opt(&name).await? else {
        let wanted = serde_json::from_value(pod::pod(&task_run, &task, &labels, attempt))?;
        return match pods.create(&PostParams::default(), &wanted).await {
            Ok(_) => {
                context.status(Kind::TaskRun, &object, started(&task_run, &name)).await?;
                Ok(Action::await_change())
            }
            Err(kube::Error::Api(status)) if is_refused(&status) => {
                let message = &status.message;
                let status = json!({
                    "conditions": succeeded(&task_run, "False", "PodAdmissionFailed", message),
                    "completionTime": now(),
                });
                context.status(Kind::TaskRun, &object, status).await?;
                Ok(Action::await_change())
            }
            // Tekton tries again, with growing pauses.
            Err(kube::Error::Api(status)) if status.message.contains("exceeded quota") => {
                let message =
                    format!("TaskRun Pod exceeded available resources: {}", status.message);
                let conditions = succeeded(&task_run, "Unknown", "ExceededResourceQuota", &message);
                context.status(Kind::TaskRun, &object, json!({"conditions": conditions})).await?;
                Ok(Action::requeue(QUOTA_PAUSE))
            }
            Err(error) => Err(error.into()),
        };
    };
    let document = serde_json::to_value(&seen)?;
    if !is_of(&document, &task_run) {
        return Ok(Action::requeue(PAUSE));
    }
    let phase = seen.status.as_ref().and_then(|status| status.phase.as_deref());
    let status = match phase {
        Some("Succeeded") => json!({
            "podName": name,
            "conditions":
                succeeded(&task_run, "True", "Succeeded", "All Steps have completed executing"),
            "completionTime": now(),
            "results": results(&task_run),
        }),
        Some("Failed") => failed(&task_run, &name, retried),
        _ => started(&task_run, &name),
    };
    context.status(Kind::TaskRun, &object, status).await?;
    Ok(Action::await_change())
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

fn started(task_run: &Value, pod: &str) -> Value {
    let since = &task_run["status"]["startTime"];
    json!({
        "podName": pod,
        "startTime": if since.is_null() { now() } else { since.clone() },
        "conditions": succeeded(task_run, "Unknown", "Running", "Not all Steps in the Task have finished executing"),
    })
}

/// The status after a failed attempt. The TaskRun fails if no retry is left.
fn failed(task_run: &Value, pod: &str, mut retried: Vec<Value>) -> Value {
    let message = "\"step-work\" exited with code 1: Error";
    if retried.len() as u64 >= task_run["spec"]["retries"].as_u64().unwrap_or_default() {
        return json!({
            "podName": pod,
            "conditions": succeeded(task_run, "False", "Failed", message),
            "completionTime": now(),
        });
    }
    retried.push(json!({
        "podName": pod,
        "conditions": succeeded(&Value::Null, "False", "StepFailed", message),
        "completionTime": now(),
    }));
    json!({
        "podName": "",
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
