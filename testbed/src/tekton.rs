//! A simulation of Tekton's controller, with everything that matters for placement.
//!
//! It behaves as Tekton Pipelines v1.15 under `coschedule: disabled`: it creates the claims of
//! `volumeClaimTemplate`s, TaskRuns in the order of the pipeline (`runAfter`, results, `matrix`,
//! `finally`, `retries`, a pipeline in a pipeline), one pod for each, and writes the
//! status of all of them. Tests compare its objects, and the order of their changes, with recorded
//! ones:
//!
//! - A pod never waits for the TaskRun's status, nor a TaskRun for the run's.
//! - A TaskRun ends with its steps, while its pod is Running: the next task's pod is created
//!   meanwhile, and at the run's end its claims are still mounted.
//! - If a pod that ran is deleted, its TaskRun fails or is retried. A pod without a node is created
//!   again under the same name.
//! - A pod that a quota refuses is tried again: `Unknown`, `ExceededResourceQuota`.
//!
//! Runs are ordinary objects: a test or the demo applies a PipelineRun (or a TaskRun), in
//! `tekton.dev/v1` or `v1beta1`, and [`ended`] waits for its end. Annotations determine what the
//! steps do: on the run, in the pipeline task's `taskSpec.metadata`, or in
//! `taskRunSpecs[].metadata`; the last of these has precedence:
//!
//! | annotation | meaning |
//! | --- | --- |
//! | [`DURATION`] | how long the steps run, as a Go duration; the default is one second |
//! | [`POD_DELAY`] | how long a pod outlives its steps or its deletion; the default is 600 ms |
//! | [`FAIL`] | `once`: the first attempt fails; `always`: every attempt fails |
//! | [`RESULTS`] | the task's results, a JSON object of strings |
//!
//! Not simulated: containers that need time to start (a pod with a node runs at once), Tekton's own
//! containers and volumes, sidecars, cancellations, timeouts, `PipelineRunPending`, `onError`, `when`,
//! events, parameters (except results in claim names), resolvers (except that a parameter `name`
//! resolves to the Pipeline of that name). Shorter than in Tekton: the time that a pod outlives its
//! steps (1.2 seconds), and the pause before a pod that a quota refused is tried again (a minute). And
//! a pod that ran and is deleted by force fails its TaskRun; Tekton creates it again.
//!
//! The driver consists of two controllers in the test's process. They read before each write, and
//! the names of created objects are derived from the run, so nothing is created twice.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::Action;
use kube::runtime::{Controller, watcher};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::definition::{self, unless_exists, unless_gone};
use crate::wait::{Seen, until};

mod claim;
mod names;
mod pod;
#[cfg(test)]
mod recorded;
mod run;
mod task;

/// How long the steps of a pod run, as a Go duration such as `2s`. For the pods of tasks, and of
/// Jobs whose pod template has this annotation.
pub const DURATION: &str = "testbed.stowplan.dev/duration";
/// How long a task's pod is Running after its steps have ended or it was deleted, and how long it is
/// Failed after that before it is removed: a Go duration.
pub const POD_DELAY: &str = "testbed.stowplan.dev/pod-delay";
/// The annotation that makes a task's pod fail: `once` or `always`.
pub const FAIL: &str = "testbed.stowplan.dev/fail";
/// A task's results: a JSON object whose values are strings.
pub const RESULTS: &str = "testbed.stowplan.dev/results";

const GROUP: &str = "tekton.dev";

/// The time before a failed reconciliation is retried.
const PAUSE: Duration = Duration::from_millis(300);

/// A running driver. It ends when this value is dropped; Tekton's objects remain.
#[derive(Debug)]
pub struct Tekton {
    _controllers: JoinSet<()>,
}

impl Tekton {
    /// Installs Tekton's definitions if they are missing, and starts the driver.
    ///
    /// # Errors
    /// If the definitions are refused, or are not served within a minute.
    pub async fn start(client: &Client) -> Result<Self> {
        install(client).await?;
        let context = Arc::new(Context { client: client.clone() });
        let mut controllers = JoinSet::new();
        let config = watcher::Config::default;
        let runs = Controller::new_with(
            context.all(Kind::PipelineRun),
            config(),
            Kind::PipelineRun.resource(),
        )
        .owns_with(context.all(Kind::TaskRun), Kind::TaskRun.resource(), config())
        .owns_with(context.all(Kind::PipelineRun), Kind::PipelineRun.resource(), config());
        controllers
            .spawn(runs.run(run::reconcile, retry, Arc::clone(&context)).for_each(async |_| {}));
        let pods: Api<Pod> = Api::all(client.clone());
        let tasks =
            Controller::new_with(context.all(Kind::TaskRun), config(), Kind::TaskRun.resource())
                // Tekton sets this label itself, so that no author can remove it.
                .owns(pods, config().labels("tekton.dev/taskRun"));
        controllers.spawn(tasks.run(task::reconcile, retry, context).for_each(async |_| {}));
        Ok(Self { _controllers: controllers })
    }
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All of its tasks succeeded.
    Succeeded,
    /// A task failed; the value is the run's message.
    Failed(String),
}

/// Waits for at most `limit` until a PipelineRun has ended.
///
/// # Errors
/// If it has not ended by then; the message lists the unfinished pods and their conditions.
pub async fn ended(client: &Client, namespace: &str, run: &str, limit: Duration) -> Result<Ended> {
    let runs: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), namespace, &Kind::PipelineRun.resource());
    let what = format!("PipelineRun {namespace}/{run} to end");
    let waited = until(&what, limit, async || {
        let Some(run) = runs.get_opt(run).await? else {
            return Ok(Seen::NotYet("no such run".to_owned()));
        };
        let condition = condition(&run.data);
        let message = condition["message"].as_str().unwrap_or("no status").to_owned();
        Ok(match condition["status"].as_str() {
            Some("True") => Seen::Done(Ended::Succeeded),
            Some("False") => Seen::Done(Ended::Failed(message)),
            _ => Seen::NotYet(message),
        })
    });
    match waited.await {
        Ok(ended) => Ok(ended),
        Err(error) => Err(error.context(describe_unfinished(client, namespace).await?)),
    }
}

/// Lists the unfinished pods of a namespace, each with a message of its conditions.
async fn describe_unfinished(client: &Client, namespace: &str) -> Result<String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pods = pods.list(&ListParams::default()).await?.items;
    let lines: Vec<_> = pods
        .iter()
        .filter_map(|pod| {
            let status = pod.status.as_ref()?;
            let phase = status.phase.as_deref()?;
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
            let message = status.conditions.iter().flatten().find_map(|it| it.message.as_deref());
            let name = pod.metadata.name.as_deref()?;
            let (node, message) = (node.unwrap_or("no node"), message.unwrap_or_default());
            let is_left = !matches!(phase, "Succeeded" | "Failed");
            is_left.then(|| format!("{name} {phase} on {node}: {message}"))
        })
        .collect();
    Ok(format!("pods that have not ended: [{}]", lines.join("; ")))
}

/// Tekton's kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Task,
    Pipeline,
    TaskRun,
    PipelineRun,
}

impl Kind {
    const ALL: [&str; 4] = ["Task", "Pipeline", "TaskRun", "PipelineRun"];

    /// The resource in `v1`. The API server converts the objects of every version into it.
    fn resource(self) -> ApiResource {
        definition::resource(GROUP, "v1", &self.to_string())
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Creates Tekton's missing definitions and waits until all are served.
///
/// # Errors
/// If one is refused, or is not served within a minute.
pub async fn install(client: &Client) -> Result<()> {
    definition::define(client, GROUP, "Namespaced", &["v1", "v1beta1"], &Kind::ALL).await
}

/// Like [`install`], but only `v1beta1`, as in Tekton before `v1`. The driver does not work with
/// it.
///
/// # Errors
/// As [`install`].
pub async fn install_old(client: &Client) -> Result<()> {
    definition::define(client, GROUP, "Namespaced", &["v1beta1"], &Kind::ALL).await
}

/// The context of both controllers.
struct Context {
    client: Client,
}

impl Context {
    fn all(&self, kind: Kind) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &kind.resource())
    }

    fn api(&self, kind: Kind, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &kind.resource())
    }

    /// Reads an object as a document; `None`: it does not exist.
    async fn get(&self, kind: Kind, namespace: &str, name: &str) -> Result<Option<Value>, Error> {
        let object = self.api(kind, namespace).get_opt(name).await?;
        Ok(object.map(serde_json::to_value).transpose()?)
    }

    /// Reads those of the objects that exist, by name.
    async fn all_of(
        &self,
        kind: Kind,
        namespace: &str,
        names: &[String],
    ) -> Result<BTreeMap<String, Value>, Error> {
        let mut found = BTreeMap::new();
        // Single requests for a large run would be hundreds at each of its changes.
        if names.len() > 10 {
            let all = self.api(kind, namespace).list(&ListParams::default()).await?.items;
            for object in all {
                let name = object.metadata.name.clone().unwrap_or_default();
                if names.contains(&name) {
                    found.insert(name, serde_json::to_value(object)?);
                }
            }
            return Ok(found);
        }
        for name in names {
            found.extend(self.get(kind, namespace, name).await?.map(|it| (name.clone(), it)));
        }
        Ok(found)
    }

    /// Creates an object, unless it exists: its name identifies its owner.
    async fn create(&self, kind: Kind, namespace: &str, object: &Value) -> Result<(), Error> {
        let object: DynamicObject = serde_json::from_value(object.clone())?;
        Ok(unless_exists(self.api(kind, namespace).create(&PostParams::default(), &object).await)?)
    }

    /// Writes a status if it has changed. Ignores that the object was deleted.
    async fn status(&self, kind: Kind, object: &DynamicObject, status: Value) -> Result<(), Error> {
        let Some(name) = object.metadata.name.as_deref() else { return Ok(()) };
        let old = &object.data["status"];
        if status.as_object().into_iter().flatten().all(|(key, value)| old[key] == *value) {
            return Ok(());
        }
        let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
        let patch = Patch::Merge(json!({
            // A new run may have the same name.
            "metadata": {"uid": object.metadata.uid}, "status": status,
        }));
        let api = self.api(kind, namespace);
        Ok(unless_gone(api.patch_status(name, &PatchParams::default(), &patch).await)?)
    }
}

/// The reason why a reconciliation is retried.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// An object that is not valid for its kind.
    #[error(transparent)]
    Document(#[from] serde_json::Error),
}

fn retry<K>(_: Arc<K>, error: &Error, _: Arc<Context>) -> Action {
    // Refused pods are reported in the TaskRun; an invalid document is a bug of the testbed.
    if let Error::Document(error) = error {
        crate::tools::to_stderr(&format!("Tekton's driver cannot read an object: {error}"));
    }
    Action::requeue(PAUSE)
}

/// The condition `Succeeded` of a PipelineRun or TaskRun; null if it is missing.
fn condition(document: &Value) -> &Value {
    let conditions = document["status"]["conditions"].as_array();
    conditions
        .and_then(|all| all.iter().find(|condition| condition["type"] == "Succeeded"))
        .unwrap_or(&Value::Null)
}

/// Returns true if a PipelineRun or TaskRun has ended.
fn is_done(document: &Value) -> bool {
    matches!(condition(document)["status"].as_str(), Some("True" | "False"))
}

/// Builds the list of conditions with `Succeeded`. The transition time changes only with the
/// status.
fn succeeded(old: &Value, status: &str, reason: &str, message: &str) -> Value {
    let old = condition(old);
    let since = if old["status"] == status { old["lastTransitionTime"].clone() } else { now() };
    json!([{
        "type": "Succeeded", "status": status, "reason": reason, "message": message,
        "lastTransitionTime": since,
    }])
}

/// The present time in the format of a status.
fn now() -> Value {
    json!(k8s_openapi::jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// Builds the owner reference of a child.
fn owner_reference(kind: Kind, owner: &Value) -> Value {
    json!({
        "apiVersion": "tekton.dev/v1", "kind": kind.to_string(),
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// Returns true if this object's controller is `owner`.
fn is_of(object: &Value, owner: &Value) -> bool {
    let references = object["metadata"]["ownerReferences"].as_array();
    references.into_iter().flatten().any(|reference| {
        reference["controller"] == true && reference["uid"] == owner["metadata"]["uid"]
    })
}

/// A string; empty if the value is not a string.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The items of a list; empty if the value is not a list.
fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
