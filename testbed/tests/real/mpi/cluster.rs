//! MPI clusters with programs that run, and what the tests see of them.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client};
use serde_json::{Value, json};
use testbed::command;
use testbed::control_plane::{ControlPlane, PodInstall};
use testbed::real::mpi_image::{Implementation, MpiImage};
use testbed::wait::{Seen, until};

pub(crate) const LIMIT: Duration = Duration::from_secs(180);

/// Three nodes with stowplan.
pub(crate) struct World {
    pub(crate) plane: ControlPlane,
    pub(crate) client: Client,
    pub(crate) install: PodInstall,
}

/// A cluster named `pi`, in a namespace of its own.
pub(crate) struct Cluster<'w> {
    world: &'w World,
    namespace: String,
    image: MpiImage,
    /// `securityContext` of the pods.
    pub(crate) security: Value,
    /// Further annotations of both pod templates.
    pub(crate) annotations: Vec<(&'static str, String)>,
}

/// The command of a launcher: nine ranks that prove themselves.
pub(crate) const RING: &str = "mpirun -n 9 ring";

/// The command for Open MPI 5: it binds ranks to cores, and a node may have fewer cores than slots.
pub(crate) const UNBOUND_RING: &str = "mpirun --bind-to none -n 9 ring";

impl<'w> Cluster<'w> {
    pub(crate) fn new(world: &'w World, namespace: &str, image: MpiImage) -> Result<Self> {
        command::run(world.plane.kubectl().args(["create", "namespace", namespace]))?;
        Ok(Self {
            world,
            namespace: namespace.to_owned(),
            image,
            security: json!({"runAsUser": 0}),
            annotations: Vec::new(),
        })
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.world.client.clone(), &self.namespace)
    }

    /// Runs kubectl in the cluster's namespace. Returns what it prints.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        command::text(self.world.plane.kubectl().args(["-n", &self.namespace]).args(arguments))
    }

    pub(crate) fn patch(&self, object: &str, change: &Value) -> Result<()> {
        self.kubectl(&["patch", object, "--type=merge", "-p", &change.to_string()]).map(drop)
    }

    fn template(&self, role: &str, command: Option<&str>) -> Value {
        let implementation = match self.image.implementation {
            Implementation::OpenMpi4 | Implementation::OpenMpi5 => "openmpi",
            Implementation::Mpich => "mpich",
            Implementation::IntelMpi => "intel",
        };
        let mut annotations = json!({
            "mpi.stowplan.dev/cluster": "pi",
            "mpi.stowplan.dev/role": role,
            "mpi.stowplan.dev/slots": "3",
            "mpi.stowplan.dev/implementation": implementation,
        });
        for (key, value) in &self.annotations {
            annotations[format!("mpi.stowplan.dev/{key}")] = json!(value);
        }
        let mut container = json!({
            "name": "main",
            "image": self.image.reference(),
            "imagePullPolicy": "Never",
            // Open MPI asks twice.
            "env": [
                {"name": "OMPI_ALLOW_RUN_AS_ROOT", "value": "1"},
                {"name": "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "value": "1"},
            ],
        });
        if let Some(command) = command {
            container["command"] = json!(["bash", "-c", command]);
        }
        let mut template = json!({
            "metadata": {"annotations": annotations, "labels": {"app": format!("pi-{role}")}},
            "spec": {
                "containers": [container],
                "securityContext": self.security,
                "terminationGracePeriodSeconds": 1,
            },
        });
        if role == "worker" {
            // One on each node.
            template["spec"]["topologySpreadConstraints"] = json!([{
                "maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app": "pi-worker"}},
            }]);
        }
        template
    }

    /// Creates the launcher's Job.
    pub(crate) fn launch(&self, name: &str, command: &str, retries: u32) -> Result<()> {
        let mut template = self.template("launcher", Some(command));
        template["spec"]["restartPolicy"] = json!("Never");
        self.create("Job", name, &json!({"backoffLimit": retries, "template": template}))
    }

    /// Creates a StatefulSet of three workers.
    pub(crate) fn worker_set(&self) -> Result<()> {
        let spec = json!({
            "replicas": 3, "serviceName": "pi", "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "pi-worker"}},
            "template": self.template("worker", None),
        });
        self.create("StatefulSet", "pi-workers", &spec)
    }

    /// Creates an Indexed Job of workers.
    pub(crate) fn worker_job(&self, count: u32) -> Result<()> {
        let mut template = self.template("worker", None);
        template["spec"]["restartPolicy"] = json!("Never");
        let spec = json!({
            "completionMode": "Indexed", "completions": count, "parallelism": count,
            "template": template,
        });
        self.create("Job", "pi-workers", &spec)
    }

    fn create(&self, kind: &str, name: &str, spec: &Value) -> Result<()> {
        let version = if kind == "Job" { "batch/v1" } else { "apps/v1" };
        let object = json!({
            "apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec,
        });
        let mut kubectl = self.world.plane.kubectl();
        kubectl.args(["create", "-n", &self.namespace, "-f", "-"]);
        command::run_with(&mut kubectl, object.to_string().into()).map(drop)
    }

    async fn workers(&self) -> Result<Vec<Pod>> {
        let labels = ListParams::default().labels("app=pi-worker");
        Ok(self.api::<Pod>().list(&labels).await?.items)
    }

    /// Waits until a launcher's Job has succeeded. Returns the output of its last pod and how many of
    /// its pods failed.
    pub(crate) async fn finished(&self, job: &str) -> Result<(String, i32)> {
        let jobs: Api<Job> = self.api();
        let failed = until(&format!("Job {}/{job}", self.namespace), LIMIT, async || {
            let status = jobs.get(job).await?.status.unwrap_or_default();
            let conditions = status.conditions.iter().flatten();
            let has =
                |kind: &str| conditions.clone().any(|of| of.type_ == kind && of.status == "True");
            ensure!(!has("Failed"), "it failed");
            Ok(match has("Complete") {
                true => Seen::Done(status.failed.unwrap_or_default()),
                false => Seen::NotYet(serde_json::to_string(&status)?),
            })
        })
        .await
        .with_context(|| self.describe())?;
        let selector = format!("--selector=batch.kubernetes.io/job-name={job}");
        let succeeded = "--field-selector=status.phase=Succeeded";
        let pod = self.kubectl(&["get", "pods", &selector, succeeded, "-o=name"])?;
        Ok((self.kubectl(&["logs", pod.trim()])?, failed))
    }

    /// The pods, their events and what launchers have printed, for messages.
    fn describe(&self) -> String {
        let printed = self.kubectl(&["logs", "--selector=app=pi-launcher", "--tail=100"]);
        let pods = self.world.plane.describe_pods(&self.namespace);
        format!("{pods}\n{}", printed.unwrap_or_default())
    }

    /// Waits until three workers are Ready.
    pub(crate) async fn workers_ready(&self) -> Result<()> {
        until(&format!("three workers in {}", self.namespace), LIMIT, async || {
            let pods = self.workers().await?;
            let ready = pods.iter().filter(|pod| is_ready(pod)).count();
            Ok(match (ready, pods.len()) {
                (3, 3) => Seen::Done(()),
                (ready, all) => Seen::NotYet(format!("{ready} of {all} are Ready")),
            })
        })
        .await
        .with_context(|| self.describe())
    }

    /// Waits until the workers are deleted.
    pub(crate) async fn workers_gone(&self) -> Result<()> {
        until("the workers to be deleted", LIMIT, async || {
            let count = self.workers().await?.len();
            Ok(if count == 0 { Seen::Done(()) } else { Seen::NotYet(format!("{count} pods")) })
        })
        .await
    }

    /// Waits until the job of a launcher has succeeded, at its first attempt and with three ranks on
    /// each of three workers.
    pub(crate) async fn runs_evenly(&self, job: &str) -> Result<()> {
        let (output, failed) = self.finished(job).await?;
        ensure!(failed == 0, "{failed} launchers failed");
        check_ranks(&output, &EVENLY)
    }

    /// Waits for an event with this reason; returns its note.
    pub(crate) async fn event(&self, reason: &str) -> Result<String> {
        until(&format!("an event {reason}"), LIMIT, async || {
            let events = self.api::<Event>().list(&ListParams::default()).await?.items;
            let found = events.iter().find(|event| event.reason.as_deref() == Some(reason));
            Ok(match found {
                Some(event) => Seen::Done(event.note.clone().unwrap_or_default()),
                None => {
                    let reasons = events.into_iter().filter_map(|event| event.reason);
                    Seen::NotYet(reasons.collect::<Vec<_>>().join(" "))
                }
            })
        })
        .await
    }

    /// Deletes the namespace: the machine is small. The next test need not wait for it.
    pub(crate) fn end(self) -> Result<()> {
        self.kubectl(&["delete", "namespace", &self.namespace, "--wait=false"]).map(drop)
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
    ready.any(|condition| condition.status == "True") && pod.metadata.deletion_timestamp.is_none()
}

/// Checks the output of [`RING`]: nine ranks, and as many on each host as `expected` says.
pub(crate) fn check_ranks(output: &str, expected: &[(&str, usize)]) -> Result<()> {
    let mut hosts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut ranks: Vec<usize> = Vec::new();
    for line in output.lines() {
        let Some(rest) = line.strip_prefix("rank ") else { continue };
        let (rank, rest) = rest.split_once(" of 9 on ").with_context(|| output.to_owned())?;
        let host = rest.strip_suffix(": right").with_context(|| output.to_owned())?;
        // Some implementations report the full name.
        *hosts.entry(host.split('.').next().unwrap_or(host)).or_default() += 1;
        ranks.push(rank.parse()?);
    }
    ranks.sort_unstable();
    ensure!(ranks == (0..9).collect::<Vec<_>>(), "not each rank once: {output}");
    let expected: BTreeMap<&str, usize> = expected.iter().copied().collect();
    ensure!(hosts == expected, "the ranks ran on {hosts:?}: {output}");
    Ok(())
}

/// Three ranks on each of three workers.
pub(crate) const EVENLY: [(&str, usize); 3] =
    [("pi-workers-0", 3), ("pi-workers-1", 3), ("pi-workers-2", 3)];
