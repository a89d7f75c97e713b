//! The control plane that the tests share, and helpers to work in it.

#![allow(dead_code, reason = "each suite uses its own part")]

use std::any::Any;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use testbed::control_plane::{ControlPlane, Install, Installation, NodeSpec, Options};
use testbed::workload;
use tokio::sync::{RwLock, RwLockWriteGuard};

use crate::harness::IS_SHARED;

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
}

impl Output {
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

    /// The same on a control plane with these options.
    pub(crate) async fn start_with(
        options: Options,
        change: impl FnOnce(Install) -> Install,
    ) -> Result<Self> {
        let plane = ControlPlane::start(options).await?;
        let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/stowplan");
        let install = change(Install::new(env!("CARGO_BIN_EXE_stowplan"), chart));
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

    /// Runs kubectl with `input` on its standard input.
    pub(crate) async fn kubectl(&self, arguments: &[&str], input: &str) -> Result<Output> {
        run(self.plane.kubectl(), arguments, input).await
    }

    /// Runs stowplan's command line in this cluster, with `input` on its standard input.
    pub(crate) async fn stowplan(&self, arguments: &[&str], input: &str) -> Result<Output> {
        run(self.plane.program(env!("CARGO_BIN_EXE_stowplan")), arguments, input).await
    }
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

/// A namespace in which a test works.
pub(crate) struct Space {
    pub(crate) world: Arc<World>,
    pub(crate) name: String,
}

impl Space {
    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.world.client.clone(), &self.name)
    }

    /// Creates an object in this namespace with kubectl.
    pub(crate) async fn create(&self, object: &Value) -> Result<Output> {
        self.world.kubectl(&["-n", &self.name, "create", "-f", "-"], &object.to_string()).await
    }

    /// Creates an object without kubectl, which costs as much as the rest of a small test. A 409 is
    /// tried again: the webhook may not have seen a node yet that the test has just added.
    pub(crate) async fn created(&self, object: &Value) -> Result<()> {
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
                created => {
                    created.with_context(|| format!("cannot create {}", kind.kind))?;
                    return Ok(());
                }
            }
        }
    }

    /// Creates a pod and returns it as the API server stored it.
    pub(crate) async fn pod(&self, pod: &Value) -> Result<Pod> {
        let pod = serde_json::from_value(pod.clone())?;
        Ok(self.pods().create(&PostParams::default(), &pod).await?)
    }

    /// Creates a pod and waits for its node.
    pub(crate) async fn node_of_new(&self, pod: &Value) -> Result<String> {
        let pod = self.pod(pod).await?;
        self.node_of(&pod.metadata.name.context("a pod without a name")?).await
    }

    pub(crate) async fn node_of(&self, pod: &str) -> Result<String> {
        workload::scheduled(&self.world.client, &self.name, pod).await
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
        testbed::wait::until(
            &format!("pod {pod} to be deleted"),
            Duration::from_secs(60),
            async || {
                Ok(match self.pods().get_opt(pod).await? {
                    None => testbed::wait::Seen::Done(()),
                    Some(_) => testbed::wait::Seen::NotYet("it still exists".to_owned()),
                })
            },
        )
        .await
    }

    /// Creates a HostPool.
    pub(crate) async fn host_pool(&self, name: &str, spec: Value) -> Result<()> {
        self.created(&json!({
            "apiVersion": "stowplan.dev/v1alpha1", "kind": "HostPool",
            "metadata": {"name": name}, "spec": spec,
        }))
        .await
    }
}

/// A pod of processing element `name` of `job`, with annotations under `streams.ibm.com/`.
pub(crate) fn element(job: &str, name: &str, annotations: &[(&str, &str)]) -> Value {
    let annotations: serde_json::Map<_, _> = annotations
        .iter()
        .map(|(key, value)| (format!("streams.ibm.com/{key}"), json!(value)))
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"app": "streams", "streams.ibm.com/job": job, "streams.ibm.com/pe": name},
            "annotations": annotations,
        },
        "spec": {"containers": [{"name": "pe", "image": "streams-runtime"}]},
    })
}

/// A StreamsJob.
pub(crate) fn job(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "stowplan.dev/v1alpha1", "kind": "StreamsJob", "metadata": {"name": name}, "spec": spec})
}

/// Fails unless the two are equal.
pub(crate) fn same<T: PartialEq + std::fmt::Debug>(seen: &T, wanted: &T) -> Result<()> {
    if seen != wanted {
        bail!("saw {seen:?}, wanted {wanted:?}");
    }
    Ok(())
}
