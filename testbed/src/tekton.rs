//! Tekton's controller, as far as placement can see it.
//!
//! It does what Tekton Pipelines v1.15 does under `coschedule: disabled`: claims of
//! `volumeClaimTemplate`s, TaskRuns in the order of the pipeline (`runAfter`, results, `matrix`,
//! `finally`, `retries`, a pipeline in a pipeline), one pod for each, and the status of all of
//! them. The pods have the shape of recorded ones: a test of `pod` holds the two against each
//! other. A pod never waits for the TaskRun's status, and a TaskRun never for the run's: recorded,
//! too.
//!
//! Runs are ordinary objects: a test or the demo applies a PipelineRun (or a TaskRun), in
//! `tekton.dev/v1` or `v1beta1`, and [`ended`] waits for its end. What the steps do is said by
//! annotations on the run, on the pipeline task's `taskSpec.metadata`, or under
//! `taskRunSpecs[].metadata`; the last of these wins:
//!
//! | annotation | meaning |
//! | --- | --- |
//! | [`DURATION`] | how long the pod runs, as a Go duration; one second where it is absent |
//! | [`FAIL`] | `once`: the first attempt fails; `always`: each does |
//! | [`RESULTS`] | the task's results, a JSON object of texts |
//!
//! Not simulated: timeouts, cancellation, `when`, parameters (but results in claim names),
//! resolvers (except that one with a parameter `name` gives the Pipeline of that name).
//!
//! It is two controllers in the process of the test. They read before each write, and what they
//! create has a name that follows from the run, so nothing is made twice.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use kube::runtime::controller::Action;
use kube::runtime::{Controller, watcher};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::wait::{Seen, until};

mod claim;
mod names;
mod pod;
#[cfg(test)]
mod recorded;
mod run;
mod task;

/// How long the pod of a task, or of a Job whose pod template has this annotation, runs: a Go
/// duration such as `2s`.
pub const DURATION: &str = "testbed.stowplan.dev/duration";
/// Whether a task's pod fails: `once` or `always`.
pub const FAIL: &str = "testbed.stowplan.dev/fail";
/// A task's results: a JSON object whose values are texts.
pub const RESULTS: &str = "testbed.stowplan.dev/results";

/// Far above the time until a definition is served, for machines that are busy.
const LIMIT: Duration = Duration::from_secs(60);

/// Before a reconciliation that failed is tried again.
const PAUSE: Duration = Duration::from_millis(300);

/// A running driver. It ends when this value is dropped; Tekton's objects stay.
#[derive(Debug)]
pub struct Tekton {
    _controllers: JoinSet<()>,
}

impl Tekton {
    /// Installs Tekton's resources, where they are not there yet, and starts the driver.
    ///
    /// # Errors
    /// The definitions are refused, or are not served in a minute.
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
            .spawn(runs.run(run::reconcile, again, Arc::clone(&context)).for_each(async |_| {}));
        let pods: Api<Pod> = Api::all(client.clone());
        let tasks =
            Controller::new_with(context.all(Kind::TaskRun), config(), Kind::TaskRun.resource())
                // Tekton sets this label last, so no author can remove it.
                .owns(pods, config().labels("tekton.dev/taskRun"));
        controllers.spawn(tasks.run(task::reconcile, again, context).for_each(async |_| {}));
        Ok(Self { _controllers: controllers })
    }
}

/// How a run came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All of its tasks succeeded.
    Succeeded,
    /// A task failed; the message of the run.
    Failed(String),
}

/// Waits for the end of a PipelineRun, for at most `limit`.
///
/// # Errors
/// It has not ended by then: the message names the tasks that wait, and why.
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
        Err(error) => Err(error.context(waiting(client, namespace).await?)),
    }
}

/// The pods of a namespace that have not ended, and what is said about each.
async fn waiting(client: &Client, namespace: &str) -> Result<String> {
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
            (!matches!(phase, "Succeeded" | "Failed")).then(|| {
                format!(
                    "{name} {phase} on {}: {}",
                    node.unwrap_or("no node"),
                    message.unwrap_or_default()
                )
            })
        })
        .collect();
    Ok(format!("pods that have not ended: [{}]", lines.join("; ")))
}

/// The kinds that Tekton's resources have here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Task,
    Pipeline,
    TaskRun,
    PipelineRun,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Task, Self::Pipeline, Self::TaskRun, Self::PipelineRun];

    /// As it is read and written here: `v1`, into which the API server turns every version.
    fn resource(self) -> ApiResource {
        self.in_version("v1")
    }

    fn in_version(self, version: &str) -> ApiResource {
        let of_version = GroupVersionKind::gvk("tekton.dev", version, &self.to_string());
        ApiResource::from_gvk_with_plural(&of_version, &self.plural())
    }

    fn plural(self) -> String {
        format!("{self}s").to_lowercase()
    }

    /// A definition with open schemas: every field of a run is kept. Objects are stored in the
    /// first version.
    fn definition(self, versions: &[&str]) -> Value {
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let version = |name: &&str| {
            json!({
                "name": name, "served": true, "storage": *name == versions[0],
                "schema": {"openAPIV3Schema": open},
                "subresources": {"status": {}},
            })
        };
        let plural = self.plural();
        json!({
            "metadata": {"name": format!("{plural}.tekton.dev")},
            "spec": {
                "group": "tekton.dev",
                "scope": "Namespaced",
                "names": {
                    "kind": self.to_string(), "listKind": format!("{self}List"),
                    "plural": plural, "singular": self.to_string().to_lowercase(),
                },
                "versions": versions.iter().map(version).collect::<Vec<_>>(),
            },
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Creates Tekton's definitions where they are missing, and waits until all are served.
///
/// # Errors
/// One is refused, or is not served in a minute.
pub async fn install(client: &Client) -> Result<()> {
    install_versions(client, &["v1", "v1beta1"]).await
}

/// The same as Tekton had it before `v1`: `v1beta1` alone. The driver does not work with these.
///
/// # Errors
/// As [`install`].
pub async fn install_old(client: &Client) -> Result<()> {
    install_versions(client, &["v1beta1"]).await
}

async fn install_versions(client: &Client, versions: &[&str]) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for kind in Kind::ALL {
        let definition = serde_json::from_value(kind.definition(versions))?;
        match definitions.create(&PostParams::default(), &definition).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            made => drop(made.with_context(|| format!("cannot define {kind}"))?),
        }
    }
    until("Tekton's resources to be served", LIMIT, async || {
        for kind in Kind::ALL {
            let resource = kind.in_version(versions[0]);
            let objects: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            if let Err(error) = objects.list(&ListParams::default().limit(1)).await {
                return Ok(Seen::NotYet(format!("{kind}: {error}")));
            }
        }
        Ok(Seen::Done(()))
    })
    .await
}

/// What both controllers work with.
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

    /// An object as a document; none where it does not exist.
    async fn get(&self, kind: Kind, namespace: &str, name: &str) -> Result<Option<Value>, Error> {
        let object = self.api(kind, namespace).get_opt(name).await?;
        Ok(object.map(serde_json::to_value).transpose()?)
    }

    /// Those of these objects that exist, by name.
    async fn all_of(
        &self,
        kind: Kind,
        namespace: &str,
        names: &[String],
    ) -> Result<BTreeMap<String, Value>, Error> {
        let mut found = BTreeMap::new();
        // One by one, a large run would ask for hundreds at each of its changes.
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

    /// Creates an object; that it exists already is as good, since its name says whose it is.
    async fn create(&self, kind: Kind, namespace: &str, object: &Value) -> Result<(), Error> {
        let object: DynamicObject = serde_json::from_value(object.clone())?;
        match self.api(kind, namespace).create(&PostParams::default(), &object).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            made => made.map(drop).map_err(Error::from),
        }
    }

    /// Writes a status where it says something new. A deleted object needs none.
    async fn status(&self, kind: Kind, object: &DynamicObject, status: Value) -> Result<(), Error> {
        let Some(name) = object.metadata.name.as_deref() else { return Ok(()) };
        let old = &object.data["status"];
        if status.as_object().into_iter().flatten().all(|(key, value)| old[key] == *value) {
            return Ok(());
        }
        let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
        let patch = Patch::Merge(json!({
            // A run of the same name may have taken its place.
            "metadata": {"uid": object.metadata.uid}, "status": status,
        }));
        match self.api(kind, namespace).patch_status(name, &PatchParams::default(), &patch).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            written => written.map(drop).map_err(Error::from),
        }
    }
}

/// Why a reconciliation is to be made again.
#[derive(Debug)]
enum Error {
    Api(kube::Error),
    /// An object that is no object of its kind.
    Document(serde_json::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Api(error) => error.fmt(f),
            Self::Document(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        Self::Api(error)
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Self::Document(error)
    }
}

fn again<K>(_: Arc<K>, error: &Error, _: Arc<Context>) -> Action {
    // Refused pods are reported in the TaskRun; any other error is a fault of the testbed.
    if let Error::Document(error) = error {
        crate::tools::to_stderr(&format!("Tekton's driver cannot read an object: {error}"));
    }
    Action::requeue(PAUSE)
}

/// The `Succeeded` condition of a run's or a TaskRun's document; null where there is none.
fn condition(document: &Value) -> &Value {
    let conditions = document["status"]["conditions"].as_array();
    conditions
        .and_then(|all| all.iter().find(|condition| condition["type"] == "Succeeded"))
        .unwrap_or(&Value::Null)
}

/// Whether a run or a TaskRun has ended.
fn is_done(document: &Value) -> bool {
    matches!(condition(document)["status"].as_str(), Some("True" | "False"))
}

/// A `Succeeded` condition. The old one's time stays while its status does.
fn succeeded(old: &Value, status: &str, reason: &str, message: &str) -> Value {
    let old = condition(old);
    let since = if old["status"] == status { old["lastTransitionTime"].clone() } else { now() };
    json!([{
        "type": "Succeeded", "status": status, "reason": reason, "message": message,
        "lastTransitionTime": since,
    }])
}

/// Now, as a status writes it.
fn now() -> Value {
    json!(k8s_openapi::jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// The reference of a child to what it belongs to.
fn owner_reference(kind: Kind, owner: &Value) -> Value {
    json!({
        "apiVersion": "tekton.dev/v1", "kind": kind.to_string(),
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// Whether this object's controller is `owner`.
fn is_of(object: &Value, owner: &Value) -> bool {
    let references = object["metadata"]["ownerReferences"].as_array();
    references.into_iter().flatten().any(|reference| {
        reference["controller"] == true && reference["uid"] == owner["metadata"]["uid"]
    })
}

/// A text at a place where one is expected; empty where there is none.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The items of a list; none where there is no list.
fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
