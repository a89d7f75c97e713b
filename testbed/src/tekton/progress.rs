//! How far the pod of a TaskRun is, and the end of its sidecars.
//!
//! A TaskRun ends with its steps, before its pod: the pod's phase changes when the kubelet has
//! cleaned up, and a sidecar runs until Tekton replaces its image.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{Context, Error, condition, is_of, items, stop, text};
use crate::definition::unless_gone;

/// The image that ends a sidecar.
const NOP: &str = "tekton/nop:v1.15.0";

const SIDECAR: &str = "sidecar-";

/// How far a pod is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Its containers have not started; the value is the message of the TaskRun.
    Pending(String),
    Running,
    Succeeded,
    /// The value is the message of the TaskRun.
    Failed(String),
}

impl Progress {
    pub(super) fn of(pod: &Value) -> Self {
        let status = &pod["status"];
        let phase = text(&status["phase"]);
        let steps: Vec<_> = items(&status["containerStatuses"])
            .filter(|it| !text(&it["name"]).starts_with(SIDECAR))
            .collect();
        let code = |step: &Value| step["state"]["terminated"]["exitCode"].as_i64();
        let have_ended = !steps.is_empty() && steps.iter().all(|step| code(step).is_some());
        if have_ended {
            let failed = steps.into_iter().find(|step| code(step) != Some(0));
            return failed.map_or(Self::Succeeded, |step| {
                Self::Failed(format!(
                    "{:?} exited with code {}: {}",
                    text(&step["name"]),
                    code(step).unwrap_or_default(),
                    text(&step["state"]["terminated"]["reason"]),
                ))
            });
        }
        match phase {
            "Succeeded" => Self::Succeeded,
            "Failed" => Self::Failed(format!("{}: Pod failed", text(&status["reason"]))),
            "Running" => Self::Running,
            _ => Self::Pending(pending_message(status)),
        }
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

/// Replaces the images of the sidecars of a TaskRun that has ended.
pub(super) async fn stop_sidecars(context: &Context, task_run: &Value) -> Result<(), Error> {
    let name = text(&task_run["status"]["podName"]);
    let is_deleted =
        matches!(condition(task_run)["reason"].as_str(), Some(stop::CANCELLED | stop::TIMED_OUT));
    if is_deleted || name.is_empty() {
        return Ok(());
    }
    let namespace = text(&task_run["metadata"]["namespace"]);
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), namespace);
    let Some(pod) = pods.get_opt(name).await? else { return Ok(()) };
    let pod = serde_json::to_value(pod)?;
    let sidecars: Vec<_> = items(&pod["spec"]["containers"])
        .filter(|it| text(&it["name"]).starts_with(SIDECAR) && it["image"] != NOP)
        .map(|it| json!({"name": it["name"], "image": NOP}))
        .collect();
    if sidecars.is_empty() || pod["status"]["phase"] != "Running" || !is_of(&pod, task_run) {
        return Ok(());
    }
    let patch = Patch::Strategic(json!({
        "metadata": {"uid": pod["metadata"]["uid"]}, "spec": {"containers": sidecars},
    }));
    Ok(unless_gone(pods.patch(name, &PatchParams::default(), &patch).await)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(phase: &str, containers: &[(&str, Option<i64>)]) -> Value {
        let state = |code: Option<i64>| match code {
            Some(code) => json!({"terminated": {"exitCode": code, "reason": "Error"}}),
            None => json!({"running": {}}),
        };
        let statuses = containers
            .iter()
            .map(|(name, code)| json!({"name": name, "state": state(*code)}))
            .collect::<Vec<_>>();
        json!({"status": {"phase": phase, "containerStatuses": statuses}})
    }

    #[test]
    fn a_task_ends_with_its_steps() {
        let failed = || Progress::Failed("\"step-b\" exited with code 1: Error".to_owned());
        for (pod, expected) in [
            (pod("Running", &[("step-a", Some(0)), ("step-b", None)]), Progress::Running),
            (pod("Running", &[("step-a", Some(0)), ("sidecar-s", None)]), Progress::Succeeded),
            (pod("Failed", &[("step-a", Some(0)), ("sidecar-s", Some(255))]), Progress::Succeeded),
            (pod("Running", &[("step-a", Some(0)), ("step-b", Some(1))]), failed()),
            (pod("Pending", &[]), Progress::Pending("Pending".to_owned())),
            (pod("Failed", &[]), Progress::Failed(": Pod failed".to_owned())),
        ] {
            assert_eq!(Progress::of(&pod), expected, "{pod}");
        }
    }

    /// The expected message was recorded.
    #[test]
    fn the_message_of_the_scheduler_is_passed_on() {
        let status = json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "message": "0/5 nodes are available"},
        ]});
        let message = "pod status \"PodScheduled\":\"False\"; message: \"0/5 nodes are available\""
            .to_owned();
        assert_eq!(Progress::of(&json!({"status": status})), Progress::Pending(message));
    }
}
