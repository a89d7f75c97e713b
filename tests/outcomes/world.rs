//! The control plane that the tests share, and helpers to work in it.

#![allow(dead_code, reason = "each suite uses its own part")]

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams,
};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testbed::control_plane::{ControlPlane, Install, Installation, NodeSpec, Options};
use testbed::volumes::ZONE;
use testbed::wait::{Seen, until};
use testbed::workload;
use tokio::sync::{RwLock, RwLockWriteGuard};

pub(crate) use crate::crowd::CHART;
use crate::harness::IS_SHARED;

/// The namespace of the release.
pub(crate) const NAMESPACE: &str = "stowplan-system";

/// How long anything may take. Other tests run at once, and on a slow machine parts of Kubernetes wait longer
/// after each failed attempt: the controller of EndpointSlices for more than a minute.
pub(crate) const LIMIT: Duration = Duration::from_secs(300);

/// The control plane with stowplan installed.
pub(crate) struct World {
    pub(crate) plane: ControlPlane,
    pub(crate) client: Client,
    /// Tests that need the webhook hold it for reading; a test that stops the webhook, for writing.
    pub(crate) installation: RwLock<Installation>,
    /// The numbers of the controllers that run between two tests.
    controllers: Vec<usize>,
    namespaces: AtomicUsize,
    /// Other programs that run until the control plane is stopped.
    pub(crate) helpers: Vec<Box<dyn Any + Send + Sync>>,
}

/// The blocks of commands in the section of a document with this heading.
pub(crate) fn commands<'p>(page: &'p str, heading: &str, language: &str) -> Vec<&'p str> {
    let section = page.split_once(heading).map_or("", |(_, section)| section);
    let section = section.split("\n## ").next().unwrap_or_default();
    let blocks = section.split("```").skip(1).step_by(2);
    blocks.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n')).collect()
}

/// The result and the output of a program.
pub(crate) struct Output {
    pub(crate) success: bool,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Output {
    /// Its output, if it succeeded.
    pub(crate) fn succeeded(self) -> Result<String> {
        ensure!(self.success, "{}{}", self.out, self.err);
        Ok(self.out)
    }

    /// Fails unless the program failed, and every one of these texts is in what it said about it.
    pub(crate) fn refused_with(self, words: &[&str]) -> Result<()> {
        let Self { success, out, err } = self;
        for word in words {
            ensure!(!success && err.contains(word), "wanted {word:?}, saw {out}{err}");
        }
        Ok(())
    }
}

impl World {
    /// Starts a control plane with these nodes, and installs stowplan, changed in this way.
    pub(crate) async fn start(
        nodes: Vec<NodeSpec>,
        change: impl FnOnce(Install) -> Install,
    ) -> Result<Self> {
        Self::start_with(Options { nodes, ..Options::default() }, change).await
    }

    /// As [`Self::start`], on a control plane with these options.
    pub(crate) async fn start_with(
        options: Options,
        change: impl FnOnce(Install) -> Install,
    ) -> Result<Self> {
        let plane = ControlPlane::start(options).await?;
        let install = change(Install::new(env!("CARGO_BIN_EXE_stowplan"), CHART));
        let installation = plane.install(install).await?;
        let client = plane.client().await?;
        Ok(Self {
            plane,
            client,
            controllers: installation.controllers().collect(),
            installation: RwLock::new(installation),
            namespaces: AtomicUsize::new(0),
            helpers: Vec::new(),
        })
    }

    /// The installation for one test alone, with all its processes: one that failed may have left some
    /// of them stopped.
    pub(crate) async fn alone(&self) -> Result<RwLockWriteGuard<'_, Installation>> {
        let is_shared = IS_SHARED.try_with(|shared| *shared).unwrap_or(false);
        ensure!(!is_shared, "the test is not listed under `alone` of its suite");
        let mut installation = self.installation.write().await;
        if installation.webhook_process().is_err() {
            installation.start_webhook().await?;
        }
        let running: Vec<_> = installation.controllers().collect();
        for &stopped in self.controllers.iter().filter(|index| !running.contains(index)) {
            installation.start_controller(stopped).await?;
        }
        Ok(installation)
    }

    /// Stops the control plane; after a failure its logs are kept.
    pub(crate) async fn stop(self, failed: bool) {
        if failed && self.plane.keep_dir() {
            eprintln!("the logs are in {}", self.plane.dir().join("logs").display());
        }
        self.plane.stop().await;
    }

    /// A namespace of the test's own.
    pub(crate) async fn namespace(self: &Arc<Self>, hint: &str) -> Result<Space> {
        let name = format!("{hint}-{}", self.namespaces.fetch_add(1, Ordering::Relaxed));
        workload::namespace(&self.client, &name).await?;
        Ok(Space { world: Arc::clone(self), name })
    }

    /// Runs kubectl with these words, which must succeed; returns its output.
    pub(crate) async fn run(&self, words: &str) -> Result<String> {
        self.kubectl(&words.split_whitespace().collect::<Vec<_>>(), "").await?.succeeded()
    }

    /// Runs stowplan's command line with a kubeconfig.
    pub(crate) async fn stowplan_with(
        &self,
        kubeconfig: &Path,
        words: &str,
        input: &str,
    ) -> Result<Output> {
        let mut command = self.plane.program(env!("CARGO_BIN_EXE_stowplan"));
        command.env("KUBECONFIG", kubeconfig);
        run(command, &words.split_whitespace().collect::<Vec<_>>(), input).await
    }

    /// Runs kubectl with `input` on its standard input.
    pub(crate) async fn kubectl(&self, arguments: &[&str], input: &str) -> Result<Output> {
        run(self.plane.kubectl(), arguments, input).await
    }

    /// Applies these objects with kubectl; returns its output.
    pub(crate) async fn apply(&self, objects: &str) -> Result<String> {
        self.kubectl(&["apply", "-f", "-"], objects).await?.succeeded()
    }

    /// Renders a template of the chart with these values.
    pub(crate) async fn rendered(&self, template: &str, values: &str) -> Result<String> {
        let mut helm = self.plane.helm();
        helm.args(["template", "stowplan", CHART, "--namespace", NAMESPACE]);
        helm.args(["--show-only", &format!("templates/{template}.yaml"), "--set", values]);
        helm.args(["--set", "tls.certManager.inject=stowplan/ca"]);
        run(helm, &[], "").await?.succeeded()
    }
}

/// A kubeconfig of a user who is impersonated.
pub(crate) fn kubeconfig_as(plane: &ControlPlane, user: &str) -> Result<PathBuf> {
    let text = std::fs::read_to_string(plane.kubeconfig())?;
    let mut config: Value = serde_saphyr::from_str(&text)?;
    config["users"][0]["user"]["as"] = json!(user);
    let path = plane.dir().join(format!("{}.kubeconfig", user.replace(':', "-")));
    std::fs::write(&path, config.to_string())?;
    Ok(path)
}

pub(crate) async fn run(mut command: Command, arguments: &[&str], input: &str) -> Result<Output> {
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let input = input.to_owned();
    tokio::task::spawn_blocking(move || {
        let mut child = command.spawn().context("cannot start it")?;
        child.stdin.take().context("it has no input")?.write_all(input.as_bytes())?;
        let output = child.wait_with_output()?;
        Ok(Output {
            success: output.status.success(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    })
    .await?
}

/// A kind of objects in namespaces.
pub(crate) trait Namespaced:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()> + DeserializeOwned + Clone + Debug
{
}

impl<K> Namespaced for K where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + DeserializeOwned
        + Clone
        + Debug
{
}

/// A namespace in which a test works.
pub(crate) struct Space {
    pub(crate) world: Arc<World>,
    pub(crate) name: String,
}

impl Space {
    /// Runs kubectl in this namespace with these words, which must succeed; returns its output.
    pub(crate) async fn kubectl(&self, words: &str) -> Result<String> {
        self.world.run(&format!("-n {} {words}", self.name)).await
    }

    /// Runs stowplan's command line in this namespace, with `input` on its standard input.
    pub(crate) async fn stowplan(&self, words: &str, input: &str) -> Result<Output> {
        let words = format!("{words} -n {}", self.name);
        self.world.stowplan_with(self.world.plane.kubeconfig(), &words, input).await
    }

    /// An object of this namespace, or a list, as kubectl shows it.
    pub(crate) async fn get(&self, what: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.kubectl(&format!("get {what} -o json")).await?)?)
    }

    pub(crate) fn api<K: Namespaced>(&self) -> Api<K> {
        Api::namespaced(self.world.client.clone(), &self.name)
    }

    /// The names of all objects of a kind.
    pub(crate) async fn names<K: Namespaced>(&self) -> Result<Vec<String>> {
        let objects = self.api::<K>().list(&ListParams::default()).await?.items;
        Ok(objects.iter().map(kube::ResourceExt::name_any).collect())
    }

    /// Waits until there is an object of this name.
    pub(crate) async fn found<K: Namespaced>(&self, name: &str) -> Result<K> {
        let api: Api<K> = self.api();
        let what = format!("{} {name}", K::kind(&()));
        appears(&what, async || Ok(api.get_opt(name).await?)).await
    }

    /// Patches an object, `KIND/NAME`, with kubectl. `form`: `merge` or `json`.
    pub(crate) async fn patch(&self, object: &str, form: &str, patch: &Value) -> Result<Output> {
        let (form, patch) = (format!("--type={form}"), patch.to_string());
        self.world.kubectl(&["-n", &self.name, "patch", object, &form, "-p", &patch], "").await
    }

    /// Merges this into an object.
    pub(crate) async fn change<K: Namespaced>(&self, name: &str, change: Value) -> Result<()> {
        let patch = Patch::Merge(change);
        self.api::<K>().patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// All events here: object, reason and message.
    pub(crate) async fn events(&self) -> Result<Vec<String>> {
        let events = self.api::<Event>().list(&ListParams::default()).await?.items;
        let text = |event: Event| {
            let about = event.involved_object;
            let words = [about.kind, about.name, event.reason, event.message];
            let [kind, name, reason, message] = words.map(Option::unwrap_or_default);
            format!("{kind}/{name} {reason} {message}")
        };
        Ok(events.into_iter().map(text).collect())
    }

    /// Waits for an event that contains all of these words.
    pub(crate) async fn expect_event(&self, words: &[&str]) -> Result<String> {
        let is_it = |event: &String| words.iter().all(|word| event.contains(word));
        let all = async || self.events().await;
        let has_it = |events: &Vec<String>| events.iter().any(is_it);
        let events = settled(&format!("an event with {words:?}"), all, has_it).await?;
        events.into_iter().find(is_it).context("no event")
    }

    /// Waits for an event with this reason about an object, `Kind/name`, or about any of a kind, `Kind/`;
    /// returns its message.
    pub(crate) async fn event(&self, about: &str, reason: &str) -> Result<String> {
        let reason = format!(" {reason} ");
        let event = self.expect_event(&[about, &reason]).await?;
        Ok(event.split_once(&reason).map(|(_, message)| message.to_owned()).unwrap_or_default())
    }

    /// The pods with these labels that are not being deleted.
    pub(crate) async fn living(&self, labels: &str) -> Result<Vec<Pod>> {
        let mut pods = self.pods().list(&ListParams::default().labels(labels)).await?.items;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        Ok(pods)
    }

    /// Waits until there are this many pods with these labels, and all have nodes; returns the nodes.
    pub(crate) async fn nodes_of_all(&self, labels: &str, count: usize) -> Result<Vec<String>> {
        let what = format!("{count} pods with {labels} to have nodes");
        let nodes = settled(
            &what,
            async || Ok(self.living(labels).await?.iter().map(node).collect::<Vec<_>>()),
            |nodes| nodes.len() == count && !nodes.contains(&None),
        );
        Ok(nodes.await?.into_iter().flatten().collect())
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.world.client.clone(), &self.name)
    }

    /// Creates an object in this namespace with kubectl.
    pub(crate) async fn create(&self, object: &Value) -> Result<Output> {
        self.world.kubectl(&["-n", &self.name, "create", "-f", "-"], &object.to_string()).await
    }

    /// Creates an object without kubectl, which costs as much as the rest of a small test. A 409 is
    /// tried again: the webhook may not have seen a node yet that the test has just added.
    pub(crate) async fn created(&self, object: &Value) -> Result<DynamicObject> {
        let object: DynamicObject = serde_json::from_value(object.clone())?;
        let kind = object.types.as_ref().context("an object without a kind")?;
        let kind = ApiResource::from_gvk(&GroupVersionKind::try_from(kind)?);
        let client = self.world.client.clone();
        let api: Api<DynamicObject> = match &*kind.kind {
            "PersistentVolume" | "StorageClass" => Api::all_with(client, &kind),
            _ => Api::namespaced_with(client, &self.name, &kind),
        };
        let mut tries_left = 10;
        loop {
            match api.create(&PostParams::default(), &object).await {
                Err(kube::Error::Api(status)) if status.code == 409 && tries_left > 0 => {
                    tries_left -= 1;
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                created => return created.with_context(|| format!("cannot create {}", kind.kind)),
            }
        }
    }

    /// Creates a pod and returns it as the API server stored it.
    pub(crate) async fn pod(&self, pod: &Value) -> Result<Pod> {
        let pod = serde_json::from_value(pod.clone())?;
        Ok(self.pods().create(&PostParams::default(), &pod).await?)
    }

    /// A pod as it would be stored, if it were created now.
    pub(crate) async fn admitted(&self, pod: &Value) -> Result<Pod> {
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        Ok(self.pods().create(&dry_run, &serde_json::from_value(pod.clone())?).await?)
    }

    /// Creates a pod and waits for its node.
    pub(crate) async fn node_of_new(&self, pod: &Value) -> Result<String> {
        let pod = self.pod(pod).await?;
        self.node_of(&pod.metadata.name.context("a pod without a name")?).await
    }

    pub(crate) async fn node_of(&self, pod: &str) -> Result<String> {
        workload::scheduled(&self.world.client, &self.name, pod).await
    }

    /// Waits for a pod to exist and to be in this phase.
    pub(crate) async fn in_phase(&self, pod: &str, phase: &str) -> Result<Pod> {
        let read = async || {
            let pod = self.pods().get_opt(pod).await?;
            Ok(pod.and_then(|pod| pod.status?.phase).unwrap_or_default())
        };
        settled(&format!("pod {pod} to be {phase}"), read, |seen| seen == phase).await?;
        Ok(self.pods().get(pod).await?)
    }

    /// Creates a pod and waits until it is unschedulable; returns the scheduler's message.
    pub(crate) async fn pending(&self, pod: &Value) -> Result<String> {
        let pod = self.pod(pod).await?;
        let name = pod.metadata.name.context("a pod without a name")?;
        workload::unschedulable(&self.world.client, &self.name, &name).await
    }

    /// Deletes a pod without grace period, and waits until it no longer exists.
    pub(crate) async fn delete(&self, pod: &str) -> Result<()> {
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        self.pods().delete(pod, &now).await?;
        let look = async || Ok(self.pods().get_opt(pod).await?.is_some());
        settled(&format!("pod {pod} to be deleted"), look, |exists| !exists).await.map(drop)
    }

    /// Creates a HostPool.
    pub(crate) async fn host_pool(&self, name: &str, spec: Value) -> Result<()> {
        self.created(&host_pool(name, &spec)).await.map(drop)
    }
}

/// Reads a value until it is as wanted, and returns it.
pub(crate) async fn settled<T: Debug>(
    what: &str,
    mut read: impl AsyncFnMut() -> Result<T>,
    mut is_wanted: impl FnMut(&T) -> bool,
) -> Result<T> {
    until(what, LIMIT, async || {
        let seen = read().await?;
        Ok(if is_wanted(&seen) { Seen::Done(seen) } else { Seen::NotYet(format!("{seen:?}")) })
    })
    .await
}

/// Looks for something until it is there, and returns it.
pub(crate) async fn appears<T>(
    what: &str,
    mut look: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    until(what, LIMIT, async || {
        Ok(look().await?.map_or_else(|| Seen::NotYet("none".to_owned()), Seen::Done))
    })
    .await
}

/// Tries something until it succeeds.
pub(crate) async fn succeeds<T>(
    what: &str,
    mut attempt: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    until(what, LIMIT, async || {
        Ok(match attempt().await {
            Ok(done) => Seen::Done(done),
            Err(why) => Seen::NotYet(format!("{why:#}")),
        })
    })
    .await
}

/// The policy with this merged into it, while a test holds the installation alone.
pub(crate) async fn with_policy(
    world: &Arc<World>,
    change: Value,
    test: impl AsyncFnOnce() -> Result<()>,
) -> Result<()> {
    let installation = world.alone().await?;
    let kept = merge_policy(&installation, &change).await?;
    let outcome = test().await;
    installation.set_policy(&kept).await?;
    outcome
}

/// Merges this into the policy; returns what it was.
pub(crate) async fn merge_policy(installation: &Installation, change: &Value) -> Result<String> {
    let kept = installation.policy().await?;
    let mut policy: Value = serde_saphyr::from_str(&kept)?;
    json_patch::merge(&mut policy, change);
    installation.set_policy(&policy.to_string()).await?;
    Ok(kept)
}

/// The node of a pod.
pub(crate) fn node(pod: &Pod) -> Option<String> {
    pod.spec.as_ref()?.node_name.clone()
}

/// Returns true if a pod has a scheduling gate whose name begins so.
pub(crate) fn is_gated(pod: &Pod, gate: &str) -> bool {
    let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
    gates.into_iter().any(|it| it.name.starts_with(gate))
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
    ready.any(|condition| condition.status == "True")
}

/// The affinity of pods that ask for no node beside tests with pools. It requires a node with a zone: the others
/// are of pools, which may take them for themselves, or end with their test.
pub(crate) fn on_lasting_nodes() -> Value {
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": ZONE, "operator": "Exists"}]},
    ]}}})
}

/// A pod of one container, with this merged into it.
pub(crate) fn pod(name: &str, more: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "main"}]},
    });
    json_patch::merge(&mut pod, more);
    pod
}

/// `pod`, requesting so many CPUs.
pub(crate) fn requesting(mut pod: Value, cpu: &str) -> Value {
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
    pod
}

/// A pod of processing element `name` of `job`, with annotations under `streams.ibm.com/`.
pub(crate) fn element(job: &str, name: &str, annotations: &[(&str, &str)]) -> Value {
    let labels = json!({"app": "streams", "streams.ibm.com/job": job, "streams.ibm.com/pe": name});
    let mut pod = pod(name, &json!({"metadata": {"labels": labels, "annotations": {}}}));
    for (key, value) in annotations {
        pod["metadata"]["annotations"][format!("streams.ibm.com/{key}")] = json!(value);
    }
    pod
}

/// A pod of an element of a StreamsJob, without host constraints of its own. It names its job by the
/// annotation: a replica that has not seen the job yet then waits for it, where a label alone could as
/// well be that of a job without a StreamsJob.
pub(crate) fn of_job(job: &str, name: &str) -> Value {
    let mut pod = element(job, name, &[]);
    pod["metadata"]["name"] = json!(format!("{job}-{name}"));
    pod["metadata"]["annotations"]["stowplan.dev/streams-job"] = json!(job);
    pod
}

/// A workload of pods like this one, which is known by its labels.
pub(crate) fn workload_of(kind: &str, name: &str, replicas: usize, pod: &Value) -> Value {
    let mut template = json!({"metadata": pod["metadata"], "spec": pod["spec"]});
    json_patch::merge(&mut template, &json!({"metadata": {"name": null}}));
    json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": pod["metadata"]["labels"]},
            "template": template,
        },
    })
}

/// An object with a spec.
pub(crate) fn object(version: &str, kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// References to an object as the owner and controller of others.
pub(crate) fn owned_by(owner: &DynamicObject) -> Value {
    let types = owner.types.clone().unwrap_or_default();
    json!([{
        "apiVersion": types.api_version, "kind": types.kind, "name": owner.metadata.name,
        "uid": owner.metadata.uid, "controller": true, "blockOwnerDeletion": true,
    }])
}

/// A StreamsJob.
pub(crate) fn job(name: &str, spec: &Value) -> Value {
    object("stowplan.dev/v1alpha1", "StreamsJob", name, spec)
}

/// A HostPool.
pub(crate) fn host_pool(name: &str, spec: &Value) -> Value {
    object("stowplan.dev/v1alpha1", "HostPool", name, spec)
}

/// An element of a StreamsJob with one operator, `Op-<name>`.
pub(crate) fn of_operator(name: &str, mut operator: Value) -> Value {
    operator["name"] = json!(format!("Op-{name}"));
    json!({"name": name, "operators": [operator]})
}

/// Fails unless the two are equal.
pub(crate) fn same<T: PartialEq + Debug>(seen: &T, wanted: &T) -> Result<()> {
    if seen != wanted {
        bail!("saw {seen:?}, wanted {wanted:?}");
    }
    Ok(())
}

/// Fails unless the text has all of these parts.
pub(crate) fn has(text: &str, parts: &[&str]) -> Result<()> {
    for part in parts {
        ensure!(text.contains(part), "no {part:?} in: {text}");
    }
    Ok(())
}

/// Fails unless there is one node, which all of these are; returns it.
pub(crate) fn one_of<T: Clone + Debug + Ord>(nodes: impl IntoIterator<Item = T>) -> Result<T> {
    let nodes: BTreeSet<T> = nodes.into_iter().collect();
    ensure!(nodes.len() == 1, "on {nodes:?}");
    nodes.into_iter().next().context("no node")
}
