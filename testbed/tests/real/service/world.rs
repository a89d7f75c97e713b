//! Three nodes, and stowplan on them as its chart deploys it: which release, with which profile.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::{Api, Client};
use serde_json::{Value, json};
use testbed::control_plane::{ControlPlane, Options, PodInstall};
use testbed::real::RealNodes;
use testbed::wait::{Seen, until};
use testbed::{command, http};
use tokio::sync::Mutex;

use super::load::{Load, Report};
use crate::stowplan_image;

pub(crate) const LIMIT: Duration = Duration::from_secs(120);
pub(crate) const NAMESPACE: &str = "stowplan-system";
const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The tag of the present image, and another of the same image.
pub(crate) const TAGS: [&str; 2] = ["present", "next"];
const PREVIOUS: &str = "previous";

/// The settings of the chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Its own values: `failurePolicy: Ignore`, two replicas.
    Default,
    /// `values-strict.yaml`: `failurePolicy: Fail`, three replicas; and the API server by its name.
    Strict,
}

/// An image that is on the nodes, and its chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Release {
    archive: PathBuf,
    chart: PathBuf,
    tag: &'static str,
}

impl Release {
    fn install(&self, profile: Profile) -> PodInstall {
        let mut install = PodInstall::new(&self.archive, &self.chart)
            .value("image.tag", self.tag)
            // Otherwise a new CA waits for an hour before it signs.
            .value("tls.self.overlap", "5s");
        if profile == Profile::Strict {
            install.value_files.push(self.chart.join("values-strict.yaml"));
            // By name, not by address: a static program has to follow the pod's `/etc/resolv.conf`.
            install = install
                .value("extraEnv[0].name", "KUBERNETES_SERVICE_HOST")
                .value("extraEnv[0].value", "kubernetes.default.svc");
        }
        install
    }
}

pub(crate) struct World {
    pub(crate) plane: ControlPlane,
    pub(crate) client: Client,
    /// stowplan's program, for this machine: a copy of the image's.
    program: PathBuf,
    pub(crate) present: Release,
    /// The present one by another tag, as a new image.
    pub(crate) next: Release,
    installed: Mutex<Option<Profile>>,
}

impl World {
    pub(crate) async fn start() -> Result<Self> {
        let archive = stowplan_image::build("stowplan-present", &["--tag", TAGS[0]])?;
        let program = stowplan_image::program(&archive)?;
        let chart = Path::new(WORKSPACE).join("charts/stowplan");
        let present = Release { archive, chart, tag: TAGS[0] };
        let begun = Instant::now();
        let options = Options { real: Some(RealNodes::new(3)), ..Options::default() };
        let plane = ControlPlane::start(options).await?;
        plane.import(&present.archive).await?;
        for node in plane.real_nodes() {
            let [from, to] = TAGS.map(|tag| format!("docker.io/library/stowplan:{tag}"));
            command::text(
                node.command("ctr")?.args(["-n", "k8s.io", "images", "tag", &from, &to]),
            )?;
        }
        eprintln!("three nodes with the image: {:.1} s", begun.elapsed().as_secs_f64());
        let next = Release { tag: TAGS[1], ..present.clone() };
        let client = plane.client().await?;
        Ok(Self { plane, client, program, present, next, installed: Mutex::new(None) })
    }

    /// The release of the commit before the last one. Only stowplan itself is compiled for it.
    pub(crate) fn previous() -> Result<Release> {
        let begun = Instant::now();
        let arguments = ["--tag", PREVIOUS, "--commit", PREVIOUS_COMMIT];
        let archive = stowplan_image::build("stowplan-previous", &arguments)?;
        // Where `testbed image` writes the files of a commit.
        let chart = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../commit/charts/stowplan");
        eprintln!("the image of {PREVIOUS_COMMIT}: {:.1} s", begun.elapsed().as_secs_f64());
        Ok(Release { archive, chart, tag: PREVIOUS })
    }

    /// stowplan of the present release with this profile: installed, upgraded or as it is.
    pub(crate) async fn with(&self, profile: Profile) -> Result<()> {
        let installed = *self.installed.lock().await;
        match installed {
            None => self.install(&self.present, profile).await,
            Some(present) if present == profile => Ok(()),
            Some(_) => self.upgrade(&self.present, profile).await,
        }
    }

    /// Installs into a cluster without stowplan.
    pub(crate) async fn install(&self, release: &Release, profile: Profile) -> Result<()> {
        let begun = Instant::now();
        self.plane.install_pods(&release.install(profile)).await?;
        // Pods that are ready are reached only when kube-proxy has their endpoints; until then strict refuses.
        let host = json!({"streams.ibm.com/host": "node-1"});
        until("a trial pod to be placed", LIMIT, async || {
            let tried = self.try_pod("default", &host).await;
            let affinity = tried.map(|pod| pod.spec.and_then(|spec| spec.affinity));
            Ok(match affinity {
                Ok(Some(_)) => Seen::Done(()),
                Ok(None) => Seen::NotYet("it has no placement".to_owned()),
                Err(error) => Seen::NotYet(error.to_string()),
            })
        })
        .await?;
        eprintln!("{} installed: {:.1} s", release.tag, begun.elapsed().as_secs_f64());
        *self.installed.lock().await = Some(profile);
        Ok(())
    }

    pub(crate) async fn upgrade(&self, release: &Release, profile: Profile) -> Result<()> {
        self.plane.upgrade_pods(&release.install(profile)).await?;
        self.plane.webhook_is_called().await?;
        *self.installed.lock().await = Some(profile);
        Ok(())
    }

    /// As the README says, and the namespace with what users have put there.
    pub(crate) async fn uninstall(&self) -> Result<()> {
        command::text(self.plane.helm().args(["uninstall", "stowplan", "--namespace", NAMESPACE]))?;
        *self.installed.lock().await = None;
        Ok(())
    }

    pub(crate) async fn is_installed(&self) -> bool {
        self.installed.lock().await.is_some()
    }

    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        command::text(self.plane.kubectl().args(arguments))
    }

    pub(crate) fn create(&self, object: &Value) -> Result<()> {
        let input = object.to_string().into();
        command::run_with(self.plane.kubectl().args(["create", "-f", "-"]), input).map(drop)
    }

    /// Pods that are not being deleted, of the component `webhook` or `controller`.
    pub(crate) async fn pods(&self, component: &str) -> Result<Vec<Pod>> {
        let labels = format!("app.kubernetes.io/component={component}");
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let mut pods = pods.list(&ListParams::default().labels(&labels)).await?.items;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        Ok(pods)
    }

    /// The metrics of one of stowplan's pods.
    pub(crate) async fn metrics(&self, pod: &Pod) -> Result<String> {
        let answer = http::get(format!("{}:8080", address(pod)?).parse()?, "/metrics").await?;
        ensure!(answer.status == 200, "{} {}", answer.status, answer.body);
        Ok(answer.body)
    }

    /// The replica that has answered most: the API server holds its connections.
    pub(crate) async fn busiest_webhook(&self) -> Result<Pod> {
        let mut busiest = None;
        for pod in self.pods("webhook").await? {
            let metrics = self.metrics(&pod).await?;
            let count: u64 = metrics
                .lines()
                .filter(|line| line.starts_with("stowplan_admission_requests_total{"))
                .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok())
                .sum();
            eprintln!("  {} on {} has answered {count}", name(&pod)?, node(&pod)?);
            if busiest.as_ref().is_none_or(|(most, _)| *most < count) {
                busiest = Some((count, pod));
            }
        }
        Ok(busiest.context("no webhook")?.1)
    }

    /// The pod of the controller that leads.
    pub(crate) async fn leader(&self) -> Result<Pod> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), NAMESPACE);
        until("a controller to lead", LIMIT, async || {
            let lease = leases.get_opt("stowplan-controller").await?;
            let holder = lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default();
            let pods = self.pods("controller").await?;
            let leader = pods.into_iter().find(|pod| pod.metadata.name.as_ref() == Some(&holder));
            Ok(leader.ok_or_else(|| format!("the Lease is held by {holder:?}")).into())
        })
        .await
    }

    /// Kills stowplan's process in a pod (SIGKILL).
    pub(crate) fn kill_program(&self, pod: &Pod) -> Result<()> {
        let uid = pod.metadata.uid.as_deref().context("no uid")?;
        let script = format!(
            "for process in /proc/[0-9]*; do
                 [ \"$(cat $process/comm)\" = stowplan ] && grep -q {uid} $process/cgroup &&
                     kill -9 ${{process#/proc/}} && exit 0
             done; exit 1"
        );
        let node = self.plane.real_node(node(pod)?)?;
        command::text(node.command("sh")?.args(["-c", &script])).map(drop)
    }

    /// The addresses of the pods to which the Service leads.
    pub(crate) async fn service_addresses(&self) -> Result<Vec<String>> {
        let labels = "kubernetes.io/service-name=stowplan-webhook";
        let slices: Api<EndpointSlice> = Api::namespaced(self.client.clone(), NAMESPACE);
        let slices = slices.list(&ListParams::default().labels(labels)).await?.items;
        Ok(slices
            .into_iter()
            .flat_map(|slice| slice.endpoints)
            .filter(|endpoint| {
                endpoint.conditions.as_ref().is_some_and(|is| is.ready == Some(true))
            })
            .flat_map(|endpoint| endpoint.addresses)
            .collect())
    }

    /// `stowplan check` of the installation, as administrator, with a trial pod: its report.
    ///
    /// # Errors
    /// It finds a problem.
    pub(crate) fn check(&self) -> Result<String> {
        let mut check = Command::new(&self.program);
        check.env_clear().env("KUBECONFIG", self.plane.kubeconfig());
        command::text(check.args(["check", "--try-in=default", "--wait=60s"]))
    }

    /// Returns the reason why stowplan cannot read a cluster whose certificate is not of the kubeconfig's authority.
    pub(crate) fn distrust(&self) -> Result<String> {
        let [_, other] = self.authorities()?;
        let own = fs::read_to_string(self.plane.dir().join("certificates/ca.crt"))?;
        let kubeconfig = fs::read_to_string(self.plane.kubeconfig())?;
        let file = self.plane.dir().join("other-authority.kubeconfig");
        fs::write(&file, kubeconfig.replace(&BASE64.encode(own), &BASE64.encode(other)))?;
        let mut map = Command::new(&self.program);
        let read = command::text(map.env_clear().env("KUBECONFIG", file).arg("map"));
        Ok(format!("{:#}", read.err().context("the certificate was not checked")?))
    }

    /// The caBundle of the webhook, and the CA that has signed its certificate: both as PEM.
    pub(crate) fn authorities(&self) -> Result<[String; 2]> {
        let read = |arguments: &[&str]| -> Result<String> {
            let bytes = BASE64.decode(self.kubectl(arguments)?.trim())?;
            Ok(String::from_utf8(bytes)?.trim().to_owned())
        };
        let bundle = "-o=jsonpath={.webhooks[0].clientConfig.caBundle}";
        let issuer = "-o=jsonpath={.data.ca\\.crt}";
        Ok([
            read(&["get", "mutatingwebhookconfiguration", "stowplan", bundle])?,
            read(&["get", "secret", "stowplan-tls", "-n", NAMESPACE, issuer])?,
        ])
    }

    /// Creates pods at a fixed rate around `act`, which gets the moment when it begins.
    pub(crate) async fn under_load(
        &self,
        name: &str,
        act: impl AsyncFnOnce(Instant) -> Result<()>,
    ) -> Result<Report> {
        let load = Load::start(&self.client, name).await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let begun = Instant::now();
        let acted = act(begun).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let report = load.finish().await?;
        report.print(name, begun);
        acted?;
        Ok(report)
    }
}

/// The commit whose release is upgraded.
const PREVIOUS_COMMIT: &str = "HEAD~1";

/// Returns the reason why there is no previous release.
pub(crate) fn has_no_previous_commit() -> Option<String> {
    let commit = format!("{PREVIOUS_COMMIT}^{{commit}}");
    let mut git = Command::new("git");
    git.args(["rev-parse", "--verify", "--quiet", &commit]).current_dir(WORKSPACE);
    let missing = command::run(&mut git).is_err();
    missing.then(|| format!("this is no clone with a commit {PREVIOUS_COMMIT}"))
}

pub(crate) fn name(pod: &Pod) -> Result<&str> {
    pod.metadata.name.as_deref().context("a pod without a name")
}

pub(crate) fn node(pod: &Pod) -> Result<&str> {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    node.context("a pod without a node")
}

pub(crate) fn address(pod: &Pod) -> Result<&str> {
    let address = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref());
    address.context("a pod without an address")
}
