//! stowplan, installed the way a cluster's administrator does it: a Secret with a certificate, then
//! `helm install`.
//!
//! One thing differs from production, because kwok's pods run nothing: the webhook and the
//! controllers are local processes. The webhook listens on the cluster address of the chart's
//! Service, so the API server finds it by the chart's own configuration; each talks to the API
//! server with a token of the service account that the chart gives its pods, so it may do what the
//! chart's roles let it do, and nothing else; all watch the policy that the chart rendered.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use sha2::{Digest as _, Sha256};

mod pods;

pub use self::pods::PodInstall;

use super::certificates::Authority;
use super::directory::RunDirectory;
use super::{ControlPlane, check, kubeconfig, tail, unpoisoned};
use crate::command::text_of;
use crate::http;
use crate::process::Processes;
use crate::proxy::Proxy;
use crate::wait::{Seen, until};
use crate::workload;

/// The namespace of the release.
const NAMESPACE: &str = "stowplan-system";

/// The names that the chart gives to its objects.
const RELEASE: &str = "stowplan";
const SECRET: &str = "stowplan-tls";
const CA_SECRET: &str = "stowplan-ca";
const SERVICE: &str = "stowplan-webhook";
const POLICY: &str = "stowplan-policy";

/// The key of the policy in its ConfigMap.
const POLICY_KEY: &str = "policy.yaml";

/// The name of the webhook's process, of its log, of its folder in the run directory and of its
/// container in the chart.
const WEBHOOK: &str = "webhook";

/// The name of the controllers' folder and of their container; a process and its log have a number
/// as well.
const CONTROLLER: &str = "controller";

/// Where the Service listens; another port where this one is taken.
const SERVICE_PORT: u16 = 8443;

const LIMIT: Duration = Duration::from_secs(180);

/// Longer than any run: this token is in a file and is not renewed as a kubelet's is.
const TOKEN_SECONDS: i64 = 30 * 24 * 3600;

/// An installation to be made.
#[derive(Clone, Debug)]
pub struct Install {
    /// The `stowplan` program, of the webhook and the controllers.
    pub webhook: PathBuf,
    /// The folder of its chart.
    pub chart: PathBuf,
    /// Chart values, as for `helm install --set`.
    pub values: Vec<(String, String)>,
    /// True if controller 0 is started. More are started by [`Installation::start_controller`].
    pub controller: bool,
    /// True if the controller makes the webhook's certificate (`tls.mode` self of the chart), instead
    /// of the testbed.
    pub self_signed: bool,
}

impl Install {
    /// With the chart's own values and one controller.
    #[must_use]
    pub fn new(webhook: impl Into<PathBuf>, chart: impl Into<PathBuf>) -> Self {
        Self {
            webhook: webhook.into(),
            chart: chart.into(),
            values: Vec::new(),
            controller: true,
            self_signed: false,
        }
    }

    /// With the chart's `tls.mode` self, and these lifetimes: CA, certificate, overlap.
    #[must_use]
    pub fn self_signed(mut self, [ca, leaf, overlap]: [&str; 3]) -> Self {
        self.self_signed = true;
        self.value("tls.self.caLifetime", ca)
            .value("tls.self.leafLifetime", leaf)
            .value("tls.self.overlap", overlap)
    }

    /// Without a running controller. The chart still makes its account and roles, so that one can
    /// be started later.
    #[must_use]
    pub fn without_controller(mut self) -> Self {
        self.controller = false;
        self
    }

    /// With a chart value, as for `helm install --set KEY=VALUE`.
    #[must_use]
    pub fn value(mut self, key: &str, value: &str) -> Self {
        self.values.push((key.to_owned(), value.to_owned()));
        self
    }
}

/// stowplan in a control plane. Its webhook and its controllers end no later than the control
/// plane.
pub struct Installation {
    program: PathBuf,
    service: SocketAddr,
    admin: SocketAddr,
    /// Where the controllers, by number, serve their probes and metrics.
    controllers: BTreeMap<usize, SocketAddr>,
    authority: String,
    api_server: String,
    client: Client,
    shutdown_delay: Duration,
    /// The lifetimes, as flags of the controller; `None`: the testbed has made the certificate.
    self_signed: Option<Vec<String>>,
    /// Further flags of the controllers that are started next.
    controller_flags: Vec<String>,
    directory: Arc<RunDirectory>,
    processes: Arc<Mutex<Processes>>,
}

impl Installation {
    /// The webhook's Service: cluster address and port. Its certificate is for
    /// `stowplan-webhook.stowplan-system.svc`.
    #[must_use]
    pub fn service_address(&self) -> SocketAddr {
        self.service
    }

    /// Where the running webhook (or the last one) serves `/livez`, `/readyz` and `/metrics`.
    #[must_use]
    pub fn admin_address(&self) -> SocketAddr {
        self.admin
    }

    /// The authority of the webhook's certificate, as PEM.
    #[must_use]
    pub fn ca(&self) -> &str {
        &self.authority
    }

    /// The namespace of the release.
    #[must_use]
    pub fn namespace(&self) -> &'static str {
        NAMESPACE
    }

    /// Both outputs of the webhook, of all its starts.
    #[must_use]
    pub fn webhook_log(&self) -> PathBuf {
        self.directory.log(WEBHOOK)
    }

    /// How long the webhook goes on serving when it is asked to end, from its next start on. At
    /// first not at all: most tests have no calls under way.
    pub fn set_shutdown_delay(&mut self, delay: Duration) {
        self.shutdown_delay = delay;
    }

    /// Stops the webhook: asks it to end, and waits until it has.
    ///
    /// # Errors
    /// When the run directory cannot be written.
    pub async fn stop_webhook(&mut self) -> Result<()> {
        self.blocking(|processes| processes.end(WEBHOOK)).await?;
        Ok(())
    }

    /// Starts the webhook and waits until it is ready.
    ///
    /// # Errors
    /// It ends, or is not ready in three minutes; the message holds the end of its log.
    pub async fn start_webhook(&mut self) -> Result<()> {
        let file = |name| self.file(name).display().to_string();
        let certificate = match self.self_signed {
            Some(_) => vec![format!("--tls-secret={SECRET}")],
            None => vec![
                format!("--tls-cert={}", file("tls.crt")),
                format!("--tls-key={}", file("tls.key")),
            ],
        };
        let mut arguments = vec![
            "webhook".to_owned(),
            format!("--listen={}", self.service),
            "--admin-listen=127.0.0.1:0".to_owned(),
            format!("--namespace={NAMESPACE}"),
            format!("--service={SERVICE}"),
            format!("--policy-config-map={POLICY}"),
            format!("--shutdown-delay={}ms", self.shutdown_delay.as_millis()),
        ];
        arguments.extend(certificate);
        self.admin = self.start(WEBHOOK, &arguments, &self.file("kubeconfig")).await?;
        Ok(())
    }

    /// Stops the webhook, and starts it again with `proxy` between it and the API server.
    ///
    /// # Errors
    /// As for [`Installation::start_webhook`].
    pub async fn restart_webhook_through(&mut self, proxy: &Proxy) -> Result<()> {
        self.stop_webhook().await?;
        self.write_kubeconfig(WEBHOOK, &proxy.url(), "webhook/kubeconfig").await?;
        self.start_webhook().await
    }

    /// The id of the running webhook's process, for tests and benchmarks that read `/proc`.
    ///
    /// # Errors
    /// It does not run.
    pub fn webhook_process(&self) -> Result<u32> {
        unpoisoned(&self.processes).id(WEBHOOK)
    }

    /// The id of a running controller's process, for tests and benchmarks that read `/proc`.
    ///
    /// # Errors
    /// It does not run.
    pub fn controller_process(&self, index: usize) -> Result<u32> {
        unpoisoned(&self.processes).id(&self.running_controller(index)?)
    }

    /// Gives the controllers that are started from now on these further flags.
    pub fn set_controller_flags(&mut self, flags: &[&str]) {
        self.controller_flags = flags.iter().map(|&flag| flag.to_owned()).collect();
    }

    /// Starts a controller of the identity `controller-<index>`, and waits until it is ready,
    /// whether it leads or waits. It has the rights that the chart gives a controller's pod.
    ///
    /// # Errors
    /// The chart has no controller, this one runs already, it ends, or it is not ready in three
    /// minutes; the message holds the end of its log.
    pub async fn start_controller(&mut self, index: usize) -> Result<()> {
        let server = self.api_server.clone();
        self.start_controller_at(index, &server).await
    }

    /// The same, with `proxy` between it and the API server.
    ///
    /// # Errors
    /// As for [`Installation::start_controller`].
    pub async fn start_controller_through(&mut self, index: usize, proxy: &Proxy) -> Result<()> {
        self.start_controller_at(index, &proxy.url()).await
    }

    /// Waits until the webhook knows of a controller that leads: until then it admits pods of groups
    /// without their group.
    ///
    /// # Errors
    /// No controller leads within three minutes.
    pub async fn leader_known(&self) -> Result<()> {
        until("the webhook to know of a controller that leads", LIMIT, async || {
            check(&self.processes, &self.directory)?;
            let metrics = http::get(self.admin, "/metrics").await?.body;
            let is_known = metrics.lines().any(|line| line == "stowplan_controller_present 1");
            Ok(if is_known { Seen::Done(()) } else { Seen::NotYet("it knows of none".to_owned()) })
        })
        .await
    }

    async fn start_controller_at(&mut self, index: usize, server: &str) -> Result<()> {
        let name = controller_name(index);
        ensure!(!self.controllers.contains_key(&index), "{name} runs already");
        let kubeconfig = format!("{CONTROLLER}/{name}.kubeconfig");
        self.directory.folder(CONTROLLER)?;
        let kubeconfig = self.write_kubeconfig(CONTROLLER, server, &kubeconfig).await?;
        let mut arguments = vec![
            CONTROLLER.to_owned(),
            "--admin-listen=127.0.0.1:0".to_owned(),
            format!("--namespace={NAMESPACE}"),
            format!("--policy-config-map={POLICY}"),
            format!("--identity={name}"),
        ];
        arguments.extend(self.self_signed.iter().flatten().cloned());
        arguments.extend(self.controller_flags.iter().cloned());
        match self.start(&name, &arguments, &kubeconfig).await {
            Ok(admin) => {
                self.controllers.insert(index, admin);
                Ok(())
            }
            Err(error) => {
                // A process that is left over would prevent the next start.
                self.blocking(move |processes| processes.kill(&name)).await?;
                Err(error)
            }
        }
    }

    /// Stops a controller: asks it to end (SIGTERM), also where it is paused, and waits until it
    /// has. Returns how it ended.
    ///
    /// # Errors
    /// It does not run, or the run directory cannot be written.
    pub async fn stop_controller(&mut self, index: usize) -> Result<ExitStatus> {
        let name = self.running_controller(index)?;
        self.controllers.remove(&index);
        self.blocking(move |processes| processes.end(&name)?.context("it does not run")).await
    }

    /// Kills a controller (SIGKILL): none of its code runs any more, its Lease stays.
    ///
    /// # Errors
    /// It does not run, or the run directory cannot be written.
    pub async fn kill_controller(&mut self, index: usize) -> Result<()> {
        let name = self.running_controller(index)?;
        self.controllers.remove(&index);
        self.blocking(move |processes| processes.kill(&name)).await?;
        Ok(())
    }

    /// Pauses a controller (SIGSTOP), as if its machine hung, until
    /// [`Installation::continue_controller`] or its end.
    ///
    /// # Errors
    /// It does not run.
    pub async fn pause_controller(&self, index: usize) -> Result<()> {
        let name = self.running_controller(index)?;
        self.blocking(move |processes| processes.pause(&name)).await
    }

    /// Continues a paused controller (SIGCONT). It does not know that time has passed.
    ///
    /// # Errors
    /// It does not run.
    pub async fn continue_controller(&self, index: usize) -> Result<()> {
        let name = self.running_controller(index)?;
        self.blocking(move |processes| processes.resume(&name)).await
    }

    /// The numbers of the controllers that were started and not stopped or killed.
    pub fn controllers(&self) -> impl Iterator<Item = usize> {
        self.controllers.keys().copied()
    }

    /// Where a running controller serves `/livez`, `/readyz` and `/metrics`.
    #[must_use]
    pub fn controller_admin_address(&self, index: usize) -> Option<SocketAddr> {
        self.controllers.get(&index).copied()
    }

    /// Both outputs of a controller, of all its starts.
    #[must_use]
    pub fn controller_log(&self, index: usize) -> PathBuf {
        self.directory.log(&controller_name(index))
    }

    fn running_controller(&self, index: usize) -> Result<String> {
        let name = controller_name(index);
        ensure!(self.controllers.contains_key(&index), "{name} does not run");
        Ok(name)
    }

    /// Starts our program under `name` and waits until it is ready. Returns its admin address.
    async fn start(
        &self,
        name: &str,
        arguments: &[String],
        kubeconfig: &Path,
    ) -> Result<SocketAddr> {
        let log = self.directory.log(name);
        // Its addresses are printed at each start: read from where the last one ended.
        let before = fs::metadata(&log).map_or(0, |metadata| metadata.len());
        let environment = [("KUBECONFIG", kubeconfig.as_os_str())];
        unpoisoned(&self.processes).spawn(name, &self.program, arguments, &environment, &log)?;
        until(&format!("{name} to be ready"), LIMIT, async || {
            check(&self.processes, &self.directory)?;
            let why = match printed_address(&log, before)? {
                None => "it has not printed its addresses".to_owned(),
                Some(address) => match http::get(address, "/readyz").await {
                    Ok(answer) if answer.status == 200 => return Ok(Seen::Done(address)),
                    Ok(answer) => format!("{} {}", answer.status, answer.body.trim()),
                    Err(error) => format!("{error:#}"),
                },
            };
            Ok(Seen::NotYet(format!("{why}; the end of {}:\n{}", log.display(), tail(&log))))
        })
        .await
    }

    /// Runs a step that takes a while, on a thread of its own.
    async fn blocking<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Processes) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let processes = Arc::clone(&self.processes);
        tokio::task::spawn_blocking(move || act(&mut unpoisoned(&processes))).await?
    }

    /// With a token of the service account that the chart gives the pods with this container: what
    /// runs with it has the chart's rights.
    async fn write_kubeconfig(&self, container: &str, server: &str, file: &str) -> Result<PathBuf> {
        let account = service_account(&self.client, container).await?;
        let expires = json!({"spec": {"audiences": [], "expirationSeconds": TOKEN_SECONDS}});
        let request: TokenRequest = serde_json::from_value(expires)?;
        let token = Api::<ServiceAccount>::namespaced(self.client.clone(), NAMESPACE)
            .create_token_request(&account, &PostParams::default(), &request)
            .await
            .with_context(|| format!("the chart's service account {account}"))?
            .status
            .context("a token request without a token")?
            .token;
        let authority = fs::read_to_string(self.directory.join("certificates/ca.crt"))?;
        let user = format!("system:serviceaccount:{NAMESPACE}:{account}");
        let text = kubeconfig(server, &authority, &user, &json!({"token": token}));
        self.directory.write(file, &text)
    }

    /// The policy's text in the chart's ConfigMap, which the webhook and the controllers watch.
    ///
    /// # Errors
    /// When the ConfigMap or its key is not there.
    pub async fn policy(&self) -> Result<String> {
        self.policy_map()
            .get(POLICY)
            .await
            .with_context(|| format!("the chart's ConfigMap {POLICY}"))?
            .data
            .and_then(|mut data| data.remove(POLICY_KEY))
            .with_context(|| format!("ConfigMap {POLICY} has no key {POLICY_KEY}"))
    }

    /// Writes another policy (YAML) to the chart's ConfigMap, and waits until it is in force in the
    /// webhook and in all running controllers.
    ///
    /// # Errors
    /// It is in force not everywhere in three minutes; the message has what a process says of it.
    pub async fn set_policy(&self, policy: &str) -> Result<()> {
        let data = json!({"data": {POLICY_KEY: policy}});
        self.policy_map().patch(POLICY, &PatchParams::default(), &Patch::Merge(data)).await?;
        self.policy_in_force().await
    }

    /// Waits until the policy in the chart's ConfigMap is in force in all running processes.
    ///
    /// # Errors
    /// As for [`Installation::set_policy`].
    pub async fn policy_in_force(&self) -> Result<()> {
        let digest = policy_digest(&self.policy().await?);
        let line = format!("policy: {digest}");
        until(&format!("policy {digest} to be in force"), LIMIT, async || {
            check(&self.processes, &self.directory)?;
            for process in [self.admin].into_iter().chain(self.controllers.values().copied()) {
                let body = http::get(process, "/readyz").await?.body;
                if !body.lines().any(|it| it == line) {
                    return Ok(Seen::NotYet(format!("not in {process}: {body}")));
                }
            }
            Ok(Seen::Done(()))
        })
        .await
    }

    /// The ConfigMaps of the release's namespace.
    fn policy_map(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(WEBHOOK).join(name)
    }
}

pub(super) async fn run(plane: &ControlPlane, install: Install) -> Result<Installation> {
    let client = plane.client().await?;
    let authority = Authority::new("stowplan")?;
    let ca = authority.pem();
    let provided = (!install.self_signed).then_some(&authority);
    prepare(plane, &client, provided).await?;
    let port = plane.range.port(SERVICE_PORT)?.to_string();
    let mut values = vec![("webhook.service.port".to_owned(), port)];
    values.extend(install.values.iter().cloned());
    let bundle = provided.map(|_| &*ca);
    helm_release(plane, "install", &install.chart, &[], &values, bundle).await?;
    let service = service_address(&client).await?;
    let mut installation = Installation {
        program: std::path::absolute(&install.webhook)?,
        service,
        admin: SocketAddr::from(([127, 0, 0, 1], 0)),
        controllers: BTreeMap::new(),
        authority: ca,
        api_server: plane.api_server(),
        client: client.clone(),
        shutdown_delay: Duration::ZERO,
        self_signed: install.self_signed.then(|| certificate_flags(&install.values)),
        controller_flags: Vec::new(),
        directory: Arc::clone(&plane.directory),
        processes: Arc::clone(&plane.processes),
    };
    let server = plane.api_server();
    installation.write_kubeconfig(WEBHOOK, &server, "webhook/kubeconfig").await?;
    resources_served(&client).await?;
    // A webhook without a certificate is not ready.
    if install.controller && install.self_signed {
        installation.start_controller(0).await?;
    }
    installation.start_webhook().await?;
    if install.controller {
        if !install.self_signed {
            installation.start_controller(0).await?;
        }
        installation.leader_known().await?;
    }
    effective(plane, &client).await?;
    Ok(installation)
}

/// The flags of a controller that keeps the certificate, as the chart gives them.
fn certificate_flags(values: &[(String, String)]) -> Vec<String> {
    let mut flags = vec![
        format!("--tls-secret={SECRET}"),
        format!("--ca-secret={CA_SECRET}"),
        format!("--service={SERVICE}"),
        format!("--webhook-configuration={RELEASE}"),
    ];
    for (value, flag) in [
        ("tls.self.caLifetime", "--ca-lifetime"),
        ("tls.self.leafLifetime", "--leaf-lifetime"),
        ("tls.self.overlap", "--ca-overlap"),
    ] {
        let given = values.iter().find(|(key, _)| key == value);
        flags.extend(given.map(|(_, duration)| format!("{flag}={duration}")));
    }
    flags
}

/// The namespace, and the Secret that the chart expects to find unless the controller makes it.
async fn prepare(
    plane: &ControlPlane,
    client: &Client,
    authority: Option<&Authority>,
) -> Result<()> {
    plane.directory.folder(WEBHOOK)?;
    workload::namespace(client, NAMESPACE).await?;
    let Some(authority) = authority else { return Ok(()) };
    let host = format!("{SERVICE}.{NAMESPACE}.svc");
    let server = authority.server(&[&host], &[])?;
    let mut data = BTreeMap::new();
    for (file, text) in
        [("tls.crt", server.certificate), ("tls.key", server.key), ("ca.crt", authority.pem())]
    {
        plane.directory.write(format!("{WEBHOOK}/{file}"), &text)?;
        data.insert(file, text);
    }
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": SECRET}, "type": "kubernetes.io/tls", "stringData": data,
    }))?;
    Api::<Secret>::namespaced(client.clone(), NAMESPACE)
        .create(&PostParams::default(), &secret)
        .await
        .with_context(|| format!("cannot create Secret {SECRET}"))?;
    Ok(())
}

/// `helm install` or `helm upgrade`.
async fn helm_release(
    plane: &ControlPlane,
    verb: &str,
    chart: &Path,
    value_files: &[PathBuf],
    values: &[(String, String)],
    ca: Option<&str>,
) -> Result<()> {
    let mut command = plane.helm();
    command
        .args([verb, RELEASE])
        .arg(chart)
        .args(["--namespace", NAMESPACE, "--create-namespace"])
        // The name that `testbed image` gives; without real nodes no pod runs.
        .args(["--set", "image.repository=stowplan"]);
    for file in value_files {
        command.arg("--values").arg(file);
    }
    if let Some(ca) = ca {
        command.arg("--set-string").arg(format!("tls.caBundle={}", BASE64.encode(ca)));
    }
    for (key, value) in values {
        command.arg("--set").arg(format!("{key}={value}"));
    }
    text_of(command).await.with_context(|| format!("helm {verb}")).map(drop)
}

async fn service_address(client: &Client) -> Result<SocketAddr> {
    let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
    let service = services.get(SERVICE).await.with_context(|| format!("the Service {SERVICE}"))?;
    let spec = service.spec.unwrap_or_default();
    let address = spec.cluster_ip.and_then(|address| address.parse().ok());
    let port = spec.ports.into_iter().flatten().find_map(|port| u16::try_from(port.port).ok());
    let (address, port): (IpAddr, _) =
        address.zip(port).with_context(|| format!("Service {SERVICE} has no address or port"))?;
    Ok(SocketAddr::new(address, port))
}

/// The service account of the chart's pods that have a container of this name: the controller may
/// be a sidecar of the webhook.
async fn service_account(client: &Client, container: &str) -> Result<String> {
    Api::<Deployment>::namespaced(client.clone(), NAMESPACE)
        .list(&ListParams::default())
        .await?
        .items
        .into_iter()
        .filter_map(|deployment| deployment.spec?.template.spec)
        .find(|pod| pod.containers.iter().any(|it| it.name == container))
        .with_context(|| format!("the chart has no pods with a container {container}"))?
        .service_account_name
        .with_context(|| format!("the pods with container {container} name no service account"))
}

/// The identity of a controller, and the name of its process.
fn controller_name(index: usize) -> String {
    format!("{CONTROLLER}-{index}")
}

/// helm returns before the API server serves the new resources.
async fn resources_served(client: &Client) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    until("the chart's resources to be served", LIMIT, async || {
        let waiting: Vec<_> = definitions
            .list(&ListParams::default())
            .await?
            .items
            .into_iter()
            .filter(|definition| {
                let conditions =
                    definition.status.iter().flat_map(|it| it.conditions.iter().flatten());
                !conditions.into_iter().any(|it| it.type_ == "Established" && it.status == "True")
            })
            .filter_map(|definition| definition.metadata.name)
            .collect();
        Ok(Seen::when(waiting.is_empty(), || format!("not established: {}", waiting.join(", "))))
    })
    .await
}

/// The API server takes a moment to read a new webhook configuration, and ignores failures: a pod
/// that is created too early would simply not be placed.
async fn effective(plane: &ControlPlane, client: &Client) -> Result<()> {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {
            "name": "stowplan-trial",
            "labels": {"app": "streams", "streams.ibm.com/job": "trial", "streams.ibm.com/pe": "0"},
            "annotations": {"streams.ibm.com/host-exlocation": "trial"},
        },
        "spec": {"containers": [{"name": "trial", "image": "trial"}]},
    }))?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    until("the webhook to see a trial pod", LIMIT, async || {
        plane.check()?;
        Ok(match pods.create(&dry_run, &pod).await {
            Ok(pod) if pod.spec.as_ref().is_some_and(|spec| spec.affinity.is_some()) => {
                Seen::Done(())
            }
            Ok(_) => Seen::NotYet("it was admitted as it was".to_owned()),
            Err(kube::Error::Api(status)) if status.message.contains("stowplan") => Seen::Done(()),
            Err(error) => Seen::NotYet(error.to_string()),
        })
    })
    .await
}

/// The digest by which stowplan names a policy.
#[must_use]
pub fn policy_digest(text: &str) -> String {
    Sha256::digest(text)[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The address in the line `admin on http://127.0.0.1:40123`, once it is whole.
fn printed_address(log: &Path, from: u64) -> Result<Option<SocketAddr>> {
    let bytes = fs::read(log)?;
    let text = String::from_utf8_lossy(bytes.get(usize::try_from(from)?..).unwrap_or_default());
    let Some((_, rest)) = text.split_once("admin on http://") else {
        return Ok(None);
    };
    let Some((address, _)) = rest.split_once('\n') else {
        return Ok(None);
    };
    match address.trim().parse() {
        Ok(address) => Ok(Some(address)),
        Err(_) => bail!("an address was printed that is none: {address}"),
    }
}
