//! The program under test, with its certificate, its cluster and its log.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustix::process::{Pid, Signal, kill_process};

use crate::cli::api_server::Cluster;
use crate::cli::command::nodes;

/// Far longer than any step takes when it works.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The name that the certificates are for.
pub(crate) const NAME: &str = "stowplan-webhook.stowplan-system.svc";

/// A certificate authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) certificate: rcgen::Certificate,
}

/// A certificate and its key, PEM.
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = parameters.self_signed(&key).unwrap();
        Self { issuer: Issuer::new(parameters, key), certificate }
    }

    /// A certificate for `name` and 127.0.0.1, valid in the years from `from` to `to`.
    pub(crate) fn pair(&self, name: &str, from: i32, to: i32) -> Pair {
        let key = KeyPair::generate().unwrap();
        let mut parameters =
            CertificateParams::new([name.to_owned(), "127.0.0.1".to_owned()]).unwrap();
        parameters.not_before = rcgen::date_time_ymd(from, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(to, 1, 1);
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    }

    pub(crate) fn good(&self) -> Pair {
        self.pair(NAME, 2020, 2090)
    }
}

/// How to start the webhook.
pub(crate) struct Start {
    pub(crate) authority: Arc<Authority>,
    pub(crate) pair: Pair,
    pub(crate) arguments: Vec<String>,
    /// A soft and hard limit of open files.
    pub(crate) open_files: Option<u32>,
    pub(crate) wait_until_ready: bool,
    /// The log is written to a pipe that is never read.
    pub(crate) stalled_log: bool,
    /// The address of an API server to watch (plain HTTP), instead of objects in a file.
    pub(crate) api_server: Option<SocketAddr>,
    /// The text in the policy file.
    pub(crate) policy: Option<&'static str>,
}

/// A running program with an admin port; ended when it is dropped.
pub(crate) struct Process {
    child: Mutex<Child>,
    log: PathBuf,
    /// The addresses on which it listens, the admin port last.
    pub(crate) addresses: Vec<SocketAddr>,
}

/// A running webhook.
pub(crate) struct Webhook {
    process: Process,
    folder: tempfile::TempDir,
    pub(crate) authority: Arc<Authority>,
    pub(crate) address: SocketAddr,
}

/// An answer of the admin port.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Start {
    pub(crate) fn new() -> Self {
        let authority = Arc::new(Authority::new());
        Self {
            pair: authority.good(),
            authority,
            arguments: vec!["--shutdown-delay=0s".to_owned()],
            open_files: None,
            wait_until_ready: true,
            stalled_log: false,
            api_server: None,
            policy: None,
        }
    }

    pub(crate) fn argument(mut self, argument: &str) -> Self {
        if argument.starts_with("--shutdown-delay") {
            self.arguments.clear();
        }
        self.arguments.push(argument.to_owned());
        self
    }

    pub(crate) fn run(self) -> Webhook {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        fs::write(file("nodes.yaml"), nodes(2)).unwrap();
        fs::write(file("tls.crt"), &self.pair.certificate).unwrap();
        fs::write(file("tls.key"), &self.pair.key).unwrap();
        let program = env!("CARGO_BIN_EXE_stowplan");
        let mut command = Command::new(program);
        if let Some(number) = self.open_files {
            // `exec`: the process keeps its id.
            command = Command::new("sh");
            command.args(["-c", &format!("ulimit -n {number} && exec \"$0\" \"$@\""), program]);
        }
        command.arg("webhook");
        match self.api_server {
            None => command.arg("--cluster").arg(file("nodes.yaml")),
            Some(address) => {
                let config = Cluster::at(&format!("http://{address}")).kubeconfig();
                fs::write(file("kubeconfig"), config).unwrap();
                command.env("KUBECONFIG", file("kubeconfig"))
            }
        };
        if let Some(policy) = self.policy {
            fs::write(file("policy.yaml"), policy).unwrap();
            command.arg(format!("--policy={}", file("policy.yaml").display()));
        }
        command
            .args(["--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"])
            .args(["--namespace=stowplan-system", "--service=stowplan-webhook"])
            .arg(format!("--tls-cert={}", file("tls.crt").display()))
            .arg(format!("--tls-key={}", file("tls.key").display()))
            .args(&self.arguments)
            .env("STOWPLAN_LOG", "debug,hyper=info,h2=info,rustls=info");
        // A pipe that is never read, or a file.
        let log = self.stalled_log.then(Stdio::piped);
        let process = Process::start(&mut command, folder.path(), log, 2);
        let address = process.addresses[0];
        let webhook = Webhook { process, folder, authority: self.authority, address };
        if self.wait_until_ready {
            webhook.until("ready", || webhook.admin("/readyz").status == 200);
        }
        webhook
    }
}

impl Webhook {
    pub(crate) fn start() -> Self {
        Start::new().run()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Puts a certificate and its key in place of those that it has.
    pub(crate) fn replace(&self, pair: &Pair) {
        fs::write(self.file("tls.crt"), &pair.certificate).unwrap();
        fs::write(self.file("tls.key"), &pair.key).unwrap();
    }
}

impl Deref for Webhook {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl Process {
    /// Starts a command that prints so many addresses, with its log in this folder or as given.
    pub(crate) fn start(
        command: &mut Command,
        folder: &Path,
        log: Option<Stdio>,
        addresses: usize,
    ) -> Self {
        let file = folder.join("log");
        let log_to = log.unwrap_or_else(|| fs::File::create(&file).unwrap().into());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log_to);
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut process = Self { child: child.into(), log: file, addresses: Vec::new() };
        let address = |line: String| line.split_once("://").and_then(|(_, of)| of.parse().ok());
        let found = lines.map_while(Result::ok).map_while(address).take(addresses);
        process.addresses = found.collect();
        assert_eq!(process.addresses.len(), addresses, "it did not start: {}", process.log());
        process
    }

    pub(crate) fn id(&self) -> Pid {
        Pid::from_child(&self.child.lock().unwrap())
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The address of its admin port.
    pub(crate) fn admin_address(&self) -> SocketAddr {
        self.addresses[self.addresses.len() - 1]
    }

    /// Waits until `seen` returns true, and fails after [`PATIENCE`].
    pub(crate) fn until(&self, what: &str, mut seen: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !seen() {
            let is_over = Instant::now() >= deadline;
            assert!(!is_over, "not {what} after {PATIENCE:?}; its log:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn admin(&self, path: &str) -> Shown {
        self.try_admin(path)
            .unwrap_or_else(|error| panic!("{path}: {error}; its log:\n{}", self.log()))
    }

    pub(crate) fn try_admin(&self, path: &str) -> std::io::Result<Shown> {
        let mut stream = TcpStream::connect(self.admin_address())?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let status = text.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
        let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body).to_owned();
        Ok(Shown { status, body })
    }

    /// The value of a metric; `series` is its name with its labels. 0 if the metric is absent.
    pub(crate) fn metric(&self, series: &str) -> f64 {
        let metrics = self.admin("/metrics").body;
        let line = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.parse().unwrap())
    }

    /// The number of connections that it has closed for this reason.
    pub(crate) fn closed(&self, reason: &str) -> f64 {
        self.metric(&format!("stowplan_connections_closed_total{{reason=\"{reason}\"}}"))
    }

    /// The number of reviews without an answer, for this reason.
    pub(crate) fn failures(&self, reason: &str) -> f64 {
        self.metric(&format!("stowplan_admission_failures_total{{reason=\"{reason}\"}}"))
    }

    pub(crate) fn is_running(&self) -> bool {
        self.child.lock().unwrap().try_wait().unwrap().is_none()
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        kill_process(self.id(), Signal::TERM).unwrap();
    }

    /// Waits until the process has ended.
    pub(crate) fn ended(&self) -> ExitStatus {
        self.until("ended", || !self.is_running());
        self.child.lock().unwrap().wait().unwrap()
    }

    /// The peak of its resident memory, in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap();
        let _ = child.kill();
        let _ = child.wait();
    }
}
