//! Cancellations and timeouts: the pods of the TaskRuns are deleted.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};

use super::{Context, Error, Kind, is_of, text};
use crate::definition::unless_gone;

/// The reason of a TaskRun that was cancelled. It is the only one without a retry.
pub(super) const CANCELLED: &str = "TaskRunCancelled";
/// The reason of a TaskRun that exceeded its timeout.
pub(super) const TIMED_OUT: &str = "TaskRunTimeout";

/// Why a PipelineRun or TaskRun ends now.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stop {
    pub(super) reason: &'static str,
    pub(super) message: String,
    /// What happened to the run, for the messages of its TaskRuns.
    event: &'static str,
}

impl Stop {
    /// `None`: the PipelineRun or TaskRun continues.
    pub(super) fn find(kind: Kind, object: &Value) -> Option<Self> {
        let name = text(&object["metadata"]["name"]);
        let status = text(&object["spec"]["status"]);
        if kind == Kind::TaskRun && status == CANCELLED {
            let why = text(&object["spec"]["statusMessage"]);
            let message = format!("{kind} {name:?} was cancelled. {why}");
            return Some(Self { reason: CANCELLED, message, event: "" });
        }
        if kind == Kind::PipelineRun && status == "Cancelled" {
            let message = format!("{kind} {name:?} was cancelled");
            return Some(Self { reason: "Cancelled", message, event: "has been cancelled" });
        }
        let is_over = time_left(kind, object).is_some_and(|left| left.is_zero());
        is_over.then(|| Self {
            reason: if kind == Kind::TaskRun { TIMED_OUT } else { "PipelineRunTimeout" },
            message: format!("{kind} {name:?} failed to finish within {:?}", timeout(kind, object)),
            event: "has timed out",
        })
    }

    /// Cancels a child of a PipelineRun that ends.
    pub(super) async fn cancel(
        &self,
        context: &Context,
        kind: Kind,
        child: &Value,
    ) -> Result<(), Error> {
        let metadata = &child["metadata"];
        let spec = if kind == Kind::TaskRun {
            let message =
                format!("TaskRun cancelled as the PipelineRun it belongs to {}.", self.event);
            json!({"status": CANCELLED, "statusMessage": message})
        } else {
            json!({"status": "Cancelled"})
        };
        let patch = Patch::Merge(json!({"metadata": {"uid": metadata["uid"]}, "spec": spec}));
        let children = context.api(kind, text(&metadata["namespace"]));
        let name = text(&metadata["name"]);
        Ok(unless_gone(children.patch(name, &PatchParams::default(), &patch).await)?)
    }
}

/// Deletes the pod of a TaskRun that ends.
pub(super) async fn delete_pod(pods: &Api<Pod>, name: &str, task_run: &Value) -> Result<(), Error> {
    let Some(pod) = pods.get_opt(name).await? else { return Ok(()) };
    if !is_of(&serde_json::to_value(&pod)?, task_run) {
        return Ok(());
    }
    let same = Preconditions { uid: pod.metadata.uid, resource_version: None };
    let parameters = DeleteParams { preconditions: Some(same), ..DeleteParams::default() };
    Ok(unless_gone(pods.delete(name, &parameters).await)?)
}

/// The time until a PipelineRun or TaskRun exceeds its timeout; `None`: it has none, or has not
/// started.
pub(super) fn time_left(kind: Kind, object: &Value) -> Option<Duration> {
    let limit = parse_seconds(timeout(kind, object));
    let started: Timestamp = text(&object["status"]["startTime"]).parse().ok()?;
    let elapsed = Timestamp::now().duration_since(started);
    let elapsed = Duration::try_from(elapsed).unwrap_or_default();
    (limit > 0).then(|| Duration::from_secs(limit).saturating_sub(elapsed))
}

/// The timeout of a PipelineRun of `v1` or `v1beta1`, or of a TaskRun.
fn timeout(kind: Kind, object: &Value) -> &str {
    let spec = &object["spec"];
    let of_run = spec["timeouts"]["pipeline"].as_str().filter(|_| kind == Kind::PipelineRun);
    of_run.unwrap_or_else(|| text(&spec["timeout"]))
}

/// Parses a duration such as `1h30m0s`; 0 if there is none.
pub(super) fn parse_seconds(text: &str) -> u64 {
    let mut seconds = 0;
    let mut digits = 0;
    for character in text.chars() {
        let unit = match character {
            'h' => 3600,
            'm' => 60,
            's' => 1,
            _ => {
                digits = digits * 10 + u64::from(character.to_digit(10).unwrap_or_default());
                continue;
            }
        };
        seconds += digits * unit;
        digits = 0;
    }
    seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed() {
        for (text, seconds) in [("1h0m0s", 3600), ("1h30m0s", 5400), ("12s", 12), ("", 0), ("0", 0)]
        {
            assert_eq!(parse_seconds(text), seconds, "{text}");
        }
    }

    #[test]
    fn a_run_stops_after_its_timeout_or_if_it_is_cancelled() {
        let run = |timeouts: Value, status: Value, started: &str| {
            json!({
                "metadata": {"name": "ci"}, "spec": {"timeouts": timeouts, "status": status},
                "status": {"startTime": started},
            })
        };
        let reason = |kind, object: &Value| Stop::find(kind, object).map(|stop| stop.reason);
        let (long_ago, unset) = ("2026-01-01T00:00:00Z", Value::Null);
        let limit = json!({"pipeline": "12s"});
        for (object, expected) in [
            (run(limit.clone(), unset.clone(), long_ago), Some("PipelineRunTimeout")),
            (run(limit.clone(), unset.clone(), ""), None),
            (run(json!({"pipeline": "0s"}), unset.clone(), long_ago), None),
            (run(unset.clone(), unset.clone(), long_ago), None),
            (run(limit, json!("Cancelled"), ""), Some("Cancelled")),
        ] {
            assert_eq!(reason(Kind::PipelineRun, &object), expected, "{object}");
        }
        let old = json!({"spec": {"timeout": "5s"}, "status": {"startTime": long_ago}});
        assert_eq!(reason(Kind::PipelineRun, &old), Some("PipelineRunTimeout"));
        assert_eq!(reason(Kind::TaskRun, &old), Some(TIMED_OUT));
        assert_eq!(reason(Kind::TaskRun, &json!({"spec": {"status": CANCELLED}})), Some(CANCELLED));
    }
}
