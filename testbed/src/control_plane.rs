//! A running control plane: etcd, API server, controller manager, scheduler, and kwok for simulated
//! nodes, or real ones ([`crate::real`]).
//!
//! As close to production as it gets: the Node and RBAC authorizers are on, and so
//! are the admission plugins that many clusters add (`NodeRestriction`,
//! `OwnerReferencesPermissionEnforcement`). [`ControlPlane::install`] puts stowplan into it with
//! its own chart.
//!
//! Everything lives in a run directory ([`directory`]) and ends with its owner (`process`).

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fs, slice, thread};

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::Request;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, PostParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};

use self::address::Range;
use self::certificates::{Authority, Certified};
use self::directory::RunDirectory;
use crate::command;
use crate::process::{PROXIES, Processes};
use crate::proxy::Proxy;
use crate::real::cluster::Cluster;
use crate::real::{self as real_nodes, RealNodes};
use crate::tools::{self, Kubernetes, Tools};
use crate::wait::{Seen, until};
use crate::workload;

mod address;
mod certificates;
pub mod directory;
mod install;
mod node;
mod programs;
mod real;
mod stored;
mod upkeep;

pub use self::install::{Install, Installation, PodInstall, policy_digest};
pub use self::node::NodeSpec;
pub use self::real::RealNode;

/// Far above the usual time of a start (about five seconds), for machines that are busy.
const START_LIMIT: Duration = Duration::from_secs(120);

/// The time that a node adds to that.
const NODE_LIMIT: Duration = Duration::from_millis(50);

/// The kubeconfig of kwok.
const KWOK: &str = "certificates/kwok.kubeconfig";

/// Nodes are created several at once if they are more than that.
const MANY_NODES: usize = 200;
const NODES_AT_ONCE: usize = 16;

/// The parts to start, and their folder.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The simulated nodes at the start. [`ControlPlane::add_node`] adds more. The more there are at
    /// the start, the less often each reports, so that thousands stay Ready on a small machine.
    pub nodes: Vec<NodeSpec>,
    /// Real nodes instead of simulated ones; kwok does not run then. Needs root, and a machine has
    /// one such control plane at a time.
    pub real: Option<RealNodes>,
    /// The release of API server, scheduler and controller manager.
    pub kubernetes: Kubernetes,
    /// True if the API server writes an audit log, at the level Metadata: [`ControlPlane::audit_log`].
    pub audit: bool,
    /// True if the programs keep their own limits, as in most clusters: 50 and 20 requests per second of the
    /// scheduler and the controller manager, and a heap of twice what lives. Without it requests are not
    /// limited and garbage is collected less often, so that tests do not wait for either.
    pub own_limits: bool,
    /// The run directory. None: a temporary one, which is removed in the end, unless the start
    /// fails or the owner panics: then it stays, and its path is printed.
    pub dir: Option<PathBuf>,
}

/// A control plane that ends when this value is dropped, or its owner ends in any other way.
#[derive(Debug)]
pub struct ControlPlane {
    tools: Tools,
    range: Range,
    processes: Arc<Mutex<Processes>>,
    directory: Arc<RunDirectory>,
    kubeconfig: PathBuf,
    /// The real nodes, if it has such.
    real: Option<Cluster>,
    /// [`Options::own_limits`].
    own_limits: bool,
    /// Set by [`ControlPlane::detach`].
    detached: bool,
}

impl ControlPlane {
    /// Starts a control plane. The first call on a machine builds its programs (see [`Tools`]).
    ///
    /// Returns when the API server is ready, the nodes too, and pods can be created in `default`.
    ///
    /// # Errors
    /// The programs cannot be built, the directory is in use, or a program does not start: then the
    /// message holds the end of its log, and the directory stays.
    pub async fn start(options: Options) -> Result<Self> {
        let kubernetes = options.kubernetes;
        ensure!(
            options.real.is_none() || kubernetes == Kubernetes::Newest,
            "real nodes have the newest kubelet, which an older API server does not serve",
        );
        let build = move || Tools::ensure_of(kubernetes, &tools::to_stderr);
        let tools = tokio::task::spawn_blocking(build).await??;
        let directory = Arc::new(match &options.dir {
            Some(path) => RunDirectory::create(path)?,
            None => RunDirectory::temporary()?,
        });
        let real = match &options.real {
            Some(nodes) => {
                ensure!(
                    options.nodes.is_empty(),
                    "a control plane has real nodes or simulated ones; the scheduler would place \
                     pods on both",
                );
                Some(tokio::task::block_in_place(|| Cluster::prepare(nodes, directory.path()))?)
            }
            None => None,
        };
        let (range, claim) = match real {
            Some(_) => (Range::real(), None),
            None => Range::claim().map(|(range, claim)| (range, Some(claim)))?,
        };
        let plane = Self {
            tools,
            range,
            processes: Arc::new(Mutex::new(Processes::new(directory.pids())?)),
            kubeconfig: directory.join("kubeconfig"),
            directory,
            real,
            own_limits: options.own_limits,
            detached: false,
        };
        match plane.boot(&options, claim).await {
            Ok(()) => Ok(plane),
            Err(error) => {
                plane.directory.keep();
                let logs = plane.directory.join("logs");
                Err(error.context(format!(
                    "the control plane did not start; its logs are in {}",
                    logs.display()
                )))
            }
        }
    }

    /// The run directory: `kubeconfig`, `kubectl` and `helm` that use it, `logs/`, `pids`.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.directory.path()
    }

    /// The audit log, an event a line, if [`Options::audit`] is set.
    #[must_use]
    pub fn audit_log(&self) -> PathBuf {
        self.directory.join("logs/audit.log")
    }

    /// An administrator's kubeconfig with embedded certificates.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Where the API server is, as `https://ADDRESS:PORT`.
    #[must_use]
    pub fn api_server(&self) -> String {
        format!("https://{}", self.range.api())
    }

    /// An administrator's client. `kube` sets no limit on the client's side.
    ///
    /// # Errors
    /// When the kubeconfig cannot be read.
    pub async fn client(&self) -> Result<Client> {
        client(&self.kubeconfig).await
    }

    /// `kubectl`, as administrator, untouched by the user's own configuration.
    #[must_use]
    pub fn kubectl(&self) -> Command {
        self.command("kubectl")
    }

    /// Creates objects, or changes them to what is given, by server-side apply.
    ///
    /// # Errors
    /// The API server refuses one.
    pub fn apply(&self, objects: &[Value]) -> Result<()> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        let mut kubectl = self.kubectl();
        kubectl.args(["apply", "--server-side", "--force-conflicts", "-f", "-"]);
        command::run_with(&mut kubectl, list.to_string().into_bytes()).map(drop)
    }

    /// `helm`, as administrator, untouched by the user's own configuration.
    #[must_use]
    pub fn helm(&self) -> Command {
        self.command("helm")
    }

    /// Adds a node and waits until it is Ready.
    ///
    /// # Errors
    /// The API server refuses it, or it does not become Ready.
    pub async fn add_node(&self, node: &NodeSpec) -> Result<()> {
        self.add_nodes(slice::from_ref(node)).await
    }

    /// Adds nodes, and waits until all are Ready.
    ///
    /// # Errors
    /// The API server refuses one, or one does not become Ready.
    pub async fn add_nodes(&self, nodes: &[NodeSpec]) -> Result<()> {
        let client = self.client().await?;
        let created = stream::iter(nodes).map(|node| create_node(&client, node));
        // In order, unless there are so many that this would take long.
        let at_once = if nodes.len() > MANY_NODES { NODES_AT_ONCE } else { 1 };
        created.buffer_unordered(at_once).try_collect::<()>().await?;
        let names: BTreeSet<&str> = nodes.iter().map(|node| &*node.name).collect();
        let limit = START_LIMIT + NODE_LIMIT * u32::try_from(nodes.len())?;
        self.ready_within(limit, &client, |node| names.contains(node)).await
    }

    /// Waits until every node is Ready and open to pods.
    ///
    /// # Errors
    /// One does not become so in time, or a program of the control plane has ended.
    pub async fn nodes_ready(&self, client: &Client) -> Result<()> {
        self.until_ready(client, |_| true).await
    }

    /// The same, of the nodes whose names are wanted: others may have been lost meanwhile.
    ///
    /// # Errors
    /// As for [`ControlPlane::nodes_ready`].
    pub async fn until_ready(&self, client: &Client, wanted: impl Fn(&str) -> bool) -> Result<()> {
        self.ready_within(START_LIMIT, client, wanted).await
    }

    async fn ready_within(
        &self,
        limit: Duration,
        client: &Client,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<()> {
        let nodes: Api<Node> = Api::all(client.clone());
        until("the nodes to be Ready", limit, async || {
            self.check()?;
            let unready: Vec<_> = nodes
                .list(&ListParams::default())
                .await?
                .items
                .into_iter()
                .filter(|node| !is_ready(node))
                .filter_map(|node| node.metadata.name)
                .filter(|name| wanted(name))
                .collect();
            let some = &unready[..unready.len().min(20)];
            let why = || format!("{} not Ready: {}", unready.len(), some.join(", "));
            Ok(Seen::when(unready.is_empty(), why))
        })
        .await
    }

    /// Installs stowplan's chart, and runs its webhook and a controller as processes of this
    /// machine. On real nodes they are pods: [`ControlPlane::install_pods`].
    ///
    /// # Errors
    /// The nodes are real, helm fails, or the webhook does not become ready: the message then holds the end of its log,
    /// and the directory stays.
    pub async fn install(&self, install: Install) -> Result<Installation> {
        ensure!(self.real.is_none(), "stowplan runs in pods of real nodes: use `install_pods`");
        let installed = install::run(self, install).await;
        installed.map_err(|error| {
            self.keep_dir();
            let logs = self.directory.join("logs");
            error.context(format!("stowplan was not installed; the logs are in {}", logs.display()))
        })
    }

    /// A faulty proxy before the API server, for
    /// [`Installation::start_controller_through`].
    ///
    /// # Errors
    /// When no port is free, or the kubeconfig cannot be read.
    pub async fn proxy(&self) -> Result<Proxy> {
        let mut config = config(&self.kubeconfig).await?;
        // Requests bring their own.
        config.auth_info = AuthInfo::default();
        Proxy::before(config).await
    }

    /// Checks that every program still runs.
    ///
    /// # Errors
    /// One program has ended; the message holds the end of its log.
    pub fn check(&self) -> Result<()> {
        check(&self.processes, &self.directory)
    }

    /// Starts one more program, which ends with the control plane. Returns its log.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start_program(
        &self,
        name: &str,
        program: &Path,
        arguments: &[String],
    ) -> Result<PathBuf> {
        let log = self.directory.log(name);
        self.processes().spawn(name, program, arguments, &[], &log)?;
        Ok(log)
    }

    /// Pauses one of the control plane's programs (SIGSTOP), such as `kube-scheduler`, until
    /// [`ControlPlane::resume`] or the end of the control plane.
    ///
    /// # Errors
    /// No program of that name runs.
    pub async fn pause(&self, program: &'static str) -> Result<()> {
        let processes = Arc::clone(&self.processes);
        tokio::task::spawn_blocking(move || unpoisoned(&processes).pause(program)).await?
    }

    /// Continues a paused program (SIGCONT). It does not know that time has passed.
    ///
    /// # Errors
    /// No program of that name runs.
    pub fn resume(&self, program: &str) -> Result<()> {
        self.processes().resume(program)
    }

    /// Keeps a temporary run directory after the end, for its logs: for failures that are no
    /// panics. Returns whether it would have been removed.
    pub fn keep_dir(&self) -> bool {
        self.directory.keep()
    }

    /// Stops everything, in order. Dropping does the same, but blocks.
    pub async fn stop(self) {
        // A panic in a destructor has been printed; there is nothing more to end.
        let _ = tokio::task::spawn_blocking(move || drop(self)).await;
    }

    /// Keeps everything running without an owner, until [`RunDirectory::end`].
    ///
    /// # Errors
    /// When the supervisor has been killed.
    pub fn detach(mut self) -> Result<()> {
        self.processes().detach()?;
        self.directory.keep();
        self.detached = true;
        Ok(())
    }

    async fn boot(&self, options: &Options, claim: Option<TcpListener>) -> Result<()> {
        let authority = self.write_files()?;
        self.start_etcd().await?;
        self.start_api_server(options.audit)?;
        let client = self.client().await?;
        until("the API server to be ready", START_LIMIT, async || {
            self.check()?;
            let request = Request::get("/readyz").body(Vec::new())?;
            Ok(client.request_text(request).await.map(drop).into())
        })
        .await?;
        // From here on the API server's port marks the range as taken.
        drop(claim);
        let nodes = options.nodes.len();
        self.start_controller_manager(nodes)?;
        self.start_scheduler()?;
        if self.real.is_some() {
            self.start_real_nodes(&authority).await?;
        } else {
            spare_new_pods(&client).await?;
            self.start_kwok(nodes)?;
            self.add_nodes(&options.nodes).await?;
        }
        workload::account(&client, "default").await
    }

    /// Certificates, kubeconfigs and wrappers.
    fn write_files(&self) -> Result<Authority> {
        for folder in ["certificates", "logs", "home"] {
            self.directory.folder(folder)?;
        }
        let authority = Authority::new("testbed")?;
        self.directory.write("certificates/ca.crt", &authority.pem())?;
        let names = [
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ];
        let addresses = [
            self.range.host().into(),
            self.range.api().ip(),
            self.range.kubernetes_service().into(),
        ];
        let server = authority.server(&names, &addresses)?;
        self.directory.write("certificates/server.crt", &server.certificate)?;
        self.directory.write("certificates/server.key", &server.key)?;
        let (signing, verifying) = certificates::token_keys()?;
        self.directory.write("certificates/tokens.key", &signing)?;
        self.directory.write("certificates/tokens.pub", &verifying)?;

        if self.real.is_some() {
            // The API server's, for logs and commands in pods.
            let client = authority.client("kube-apiserver", Some("system:masters"))?;
            self.directory.write("certificates/kubelets.crt", &client.certificate)?;
            self.directory.write("certificates/kubelets.key", &client.key)?;
        }
        for (file, user, group) in [
            ("kubeconfig", "admin", Some("system:masters")),
            (KWOK, "kwok", Some("system:masters")),
            ("certificates/controller-manager.kubeconfig", "system:kube-controller-manager", None),
            ("certificates/scheduler.kubeconfig", "system:kube-scheduler", None),
        ] {
            let client = authority.client(user, group)?;
            self.directory.write(file, &self.kubeconfig_for(&authority, user, &client))?;
        }
        self.write_wrapper("kubectl")?;
        self.write_wrapper("helm")?;
        Ok(authority)
    }

    fn kubeconfig_for(&self, authority: &Authority, user: &str, client: &Certified) -> String {
        let credentials = json!({
            "client-certificate-data": BASE64.encode(&client.certificate),
            "client-key-data": BASE64.encode(&client.key),
        });
        kubeconfig(&self.api_server(), &authority.pem(), user, &credentials)
    }

    /// `DIR/kubectl`, which needs no environment variables.
    fn write_wrapper(&self, name: &str) -> Result<()> {
        let exports: String = self
            .environment()
            .iter()
            .map(|(variable, value)| format!("export {variable}={}\n", shell_quoted(value)))
            .collect();
        let unsets = format!("unset {}\n", FOREIGN.join(" "));
        let program = shell_quoted(&self.tools.program(name));
        let text = format!("#!/bin/sh\n{exports}{unsets}exec {program} \"$@\"\n");
        let path = self.directory.write(name, &text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
        Ok(())
    }

    /// The environment of `kubectl` and `helm`: nothing is read from or written to the user's home.
    fn environment(&self) -> [(&'static str, PathBuf); 6] {
        let home = |name: &str| self.directory.join("home").join(name);
        [
            ("KUBECONFIG", self.kubeconfig.clone()),
            ("KUBECACHEDIR", home("kubectl")),
            ("KUBERC", "off".into()),
            ("HELM_CACHE_HOME", home("helm-cache")),
            ("HELM_CONFIG_HOME", home("helm-config")),
            ("HELM_DATA_HOME", home("helm-data")),
        ]
    }

    fn command(&self, name: &str) -> Command {
        self.program(self.tools.program(name))
    }

    /// Any program that finds its cluster as `kubectl` does, as administrator, untouched by the
    /// user's own configuration.
    #[must_use]
    pub fn program(&self, path: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(path);
        command.envs(self.environment());
        for variable in FOREIGN.iter().chain(&PROXIES) {
            command.env_remove(variable);
        }
        command
    }

    fn certificate(&self, name: &str) -> PathBuf {
        self.directory.join("certificates").join(name)
    }

    fn processes(&self) -> MutexGuard<'_, Processes> {
        unpoisoned(&self.processes)
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if self.detached {
            return;
        }
        self.end_real_nodes();
        self.processes().end_all();
        if let Err(error) = real_nodes::clean_up(self.dir()) {
            tools::to_stderr(&format!("{error:#}"));
        }
        if thread::panicking() && self.directory.keep() {
            tools::to_stderr(&format!("the logs are kept in {}", self.dir().display()));
        }
    }
}

/// Lets kwok delete only pods that are being deleted. It deletes by name, sometimes twice, and would delete
/// the pod that a StatefulSet has created again meanwhile. A kubelet names the UID.
async fn spare_new_pods(client: &Client) -> Result<()> {
    let name = "kwok-spares-new-pods";
    let rule = json!({"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]});
    let policy = json!({
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "kwok", "expression": "request.userInfo.username == 'kwok'"}],
        "validations": [{"expression": "has(oldObject.metadata.deletionTimestamp)"}],
    });
    let binding = json!({"policyName": name, "validationActions": ["Deny"]});
    let group = "admissionregistration.k8s.io/v1";
    for (kind, plural, spec) in [
        ("ValidatingAdmissionPolicy", "validatingadmissionpolicies", policy),
        ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", binding),
    ] {
        let object = json!({
            "apiVersion": group, "kind": kind, "metadata": {"name": name}, "spec": spec,
        });
        let request = Request::post(format!("/apis/{group}/{plural}"))
            .header("content-type", "application/json")
            .body(object.to_string().into_bytes())?;
        match client.request_text(request).await {
            // The data of an earlier control plane may have them.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            created => created.map(drop)?,
        }
    }
    Ok(())
}

/// An administrator's client for the control plane of a kubeconfig.
///
/// # Errors
/// When the kubeconfig cannot be read.
pub async fn client(kubeconfig: &Path) -> Result<Client> {
    Ok(Client::try_from(config(kubeconfig).await?)?)
}

async fn config(kubeconfig: &Path) -> Result<Config> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    // A proxy in the environment must not be used for a loopback address.
    config.proxy_url = None;
    Ok(config)
}

/// The user's own settings of `kubectl` and `helm` that would lead them elsewhere.
const FOREIGN: [&str; 4] =
    ["HELM_NAMESPACE", "HELM_KUBECONTEXT", "HELM_KUBEAPISERVER", "HELM_DRIVER"];

/// A panic of another thread changes nothing about which processes there are to end.
fn unpoisoned(processes: &Mutex<Processes>) -> MutexGuard<'_, Processes> {
    processes.lock().unwrap_or_else(PoisonError::into_inner)
}

fn check(processes: &Mutex<Processes>, directory: &RunDirectory) -> Result<()> {
    let lost = unpoisoned(processes).lost();
    if let Some((name, status)) = lost {
        let log = directory.log(&name);
        bail!("{name} ended ({status}); the end of {}:\n{}", log.display(), tail(&log));
    }
    Ok(())
}

/// The last lines of a log.
fn tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

/// A kubeconfig with one cluster, one user with these credentials, and the context that joins them.
/// It is JSON, which is YAML too.
fn kubeconfig(server: &str, authority: &str, user: &str, credentials: &Value) -> String {
    let cluster = json!({"server": server, "certificate-authority-data": BASE64.encode(authority)});
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "testbed",
        "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": user}}],
        "clusters": [{"name": "testbed", "cluster": cluster}],
        "users": [{"name": user, "user": credentials}],
    });
    kubeconfig.to_string()
}

/// As one word of a POSIX shell.
fn shell_quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

async fn create_node(client: &Client, node: &NodeSpec) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    nodes
        .create(&PostParams::default(), &node.to_node()?)
        .await
        .with_context(|| format!("cannot create node {}", node.name))?;
    Ok(())
}

/// Ready, and without the taints that Kubernetes puts on a node until it has seen that.
fn is_ready(node: &Node) -> bool {
    let ready = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let held = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).any(|taint| {
        matches!(&*taint.key, "node.kubernetes.io/not-ready" | "node.kubernetes.io/unreachable")
    });
    ready && !held
}
