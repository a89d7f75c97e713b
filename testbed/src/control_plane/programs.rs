//! The programs of a control plane, and their arguments.

use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::Result;
use serde_json::json;

use super::ControlPlane;
use super::address::Range;
use crate::real::{disks, network};

const ETCD: &str = "etcd";

/// For how long a lease of a simulated node is valid in a small cluster, in seconds. Tests add nodes, and
/// two hundred that renew their leases as kubelets do, every ten seconds, cost a tenth of a processor.
const NODE_LEASE: usize = 240;

/// The most leases of simulated nodes that kwok renews in a second. Each costs the processors of the
/// machine some milliseconds in kwok, the API server, etcd and the controller manager. kwok renews
/// four at once, so at hundreds a second it is late, and nodes that no test has lost become NotReady.
const RENEWALS_A_SECOND: usize = 20;

/// How long a node may be silent in a small cluster until it is NotReady, in seconds.
const GRACE_PERIOD: usize = 600;

/// How often the controller manager looks at all nodes in a small cluster, in seconds, and how many of
/// them it looks at in a second in a large one.
const MONITOR_PERIOD: usize = 5;
const MONITORED_A_SECOND: usize = 250;

/// The stages of kwok beside its own.
const STAGES: &str = include_str!("../../assets/stages.yaml");

/// The policy of the audit log: who did what, without the objects.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
";

impl ControlPlane {
    /// With real nodes, etcd brings the network namespace of the control plane: it starts first and
    /// ends last.
    pub(super) async fn start_etcd(&self) -> Result<()> {
        let client = format!("http://{}", self.range.socket(Range::ETCD));
        let peer = format!("http://{}", self.range.socket(Range::ETCD_PEER));
        let arguments = [
            format!("--data-dir={}", self.directory.join("etcd").display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            // Nothing here has to survive a power cut.
            "--unsafe-no-fsync".to_owned(),
        ];
        if self.real.is_none() {
            return self.spawn(ETCD, &arguments);
        }
        let script = r#"ip link set lo up && exec "$@""#;
        let mut namespaced: Vec<_> =
            ["--net", "--", "/bin/sh", "-c", script, ETCD].map(str::to_owned).into();
        namespaced.push(self.tools.program(ETCD).display().to_string());
        namespaced.extend(arguments);
        let log = self.directory.log(ETCD);
        self.processes().spawn(ETCD, Path::new("unshare"), &namespaced, &self.garbage(), &log)?;
        let etcd = self.namespace()?;
        tokio::task::spawn_blocking(move || network::set_up(etcd)).await?
    }

    /// The process whose network namespace is the control plane's, if it has one of its own.
    pub(super) fn namespace(&self) -> Result<u32> {
        self.processes().id(ETCD)
    }

    pub(super) fn start_api_server(&self, audit: bool) -> Result<()> {
        let file = |name: &str| self.certificate(name).display().to_string();
        // All devices of a namespace of its own: the Service `kubernetes` leads to another one.
        let real = self.real.is_some();
        let bind = if real { Ipv4Addr::UNSPECIFIED } else { self.range.host() };
        let mut arguments = vec![
            format!("--etcd-servers=http://{}", self.range.socket(Range::ETCD)),
            format!("--bind-address={bind}"),
            format!("--advertise-address={}", self.range.api().ip()),
            format!("--secure-port={}", Range::API),
            format!("--cert-dir={}", self.directory.join("certificates").display()),
            format!("--tls-cert-file={}", file("server.crt")),
            format!("--tls-private-key-file={}", file("server.key")),
            format!("--client-ca-file={}", file("ca.crt")),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", file("tokens.pub")),
            format!("--service-account-signing-key-file={}", file("tokens.key")),
            format!("--service-cluster-ip-range={}", self.range.cidr()),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement"
                .to_owned(),
            "--allow-privileged=true".to_owned(),
            // The benchmarks must reach the webhook's limits before these.
            "--max-requests-inflight=2000".to_owned(),
            "--max-mutating-requests-inflight=1000".to_owned(),
        ];
        if audit {
            let policy = self.directory.write("certificates/audit.yaml", AUDIT_POLICY)?;
            arguments.extend([
                format!("--audit-policy-file={}", policy.display()),
                format!("--audit-log-path={}", self.audit_log().display()),
                // Written when the request has been answered, not some time later.
                "--audit-log-mode=blocking".to_owned(),
            ]);
        }
        if real {
            arguments.extend([
                "--kubelet-preferred-address-types=InternalIP".to_owned(),
                format!("--kubelet-client-certificate={}", file("kubelets.crt")),
                format!("--kubelet-client-key={}", file("kubelets.key")),
            ]);
        } else {
            // A loopback address must not be published as the endpoint of a Service.
            arguments.push("--endpoint-reconciler-type=none".to_owned());
        }
        self.spawn("kube-apiserver", &arguments)
    }

    /// `nodes`: how many simulated nodes it will have.
    pub(super) fn start_controller_manager(&self, nodes: usize) -> Result<()> {
        let mut arguments = self.client_arguments("controller-manager", Range::CONTROLLER_MANAGER);
        arguments.extend([
            "--use-service-account-credentials=true".to_owned(),
            format!(
                "--service-account-private-key-file={}",
                self.certificate("tokens.key").display()
            ),
            format!("--root-ca-file={}", self.certificate("ca.crt").display()),
            // The default is a folder of the machine.
            format!("--flex-volume-plugin-dir={}", disks::plugins(self.dir()).display()),
        ]);
        arguments.extend(match self.real {
            // Kubelets report every 4 seconds (assets/kubelet.yaml).
            Some(_) => ["--node-monitor-grace-period=20s", "--node-monitor-period=1s"]
                .map(str::to_owned)
                .to_vec(),
            // kwok renews the leases of hundreds of nodes. On a busy machine it is late, and nodes
            // that no test has lost would be NotReady. A lost node is NotReady by its condition, at
            // once.
            None => {
                let grace = GRACE_PERIOD.max(2 * node_lease(nodes));
                let period = MONITOR_PERIOD.max(nodes / MONITORED_A_SECOND);
                vec![
                    format!("--node-monitor-grace-period={grace}s"),
                    format!("--node-monitor-period={period}s"),
                ]
            }
        });
        self.spawn("kube-controller-manager", &arguments)
    }

    /// With `own_limits` the scheduler is configured as in a cluster of users. Otherwise its limits
    /// are high, and it tries a pod again after at most two seconds in place of ten.
    pub(super) fn start_scheduler(&self) -> Result<()> {
        let mut arguments = self.client_arguments("scheduler", Range::SCHEDULER);
        if !self.own_limits {
            let configuration = json!({
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "clientConnection": {
                    "kubeconfig": self.certificate("scheduler.kubeconfig"), "qps": 1000, "burst": 2000,
                },
                "leaderElection": {"leaderElect": false},
                "podMaxBackoffSeconds": 2,
            });
            let file = self.directory.write("scheduler.json", &configuration.to_string())?;
            arguments.push(format!("--config={}", file.display()));
        }
        self.spawn("kube-scheduler", &arguments)
    }

    /// The arguments that the controller manager and the scheduler share.
    fn client_arguments(&self, name: &str, port: u16) -> Vec<String> {
        let kubeconfig = self.certificate(&format!("{name}.kubeconfig"));
        let kubeconfig = kubeconfig.display();
        let mut arguments = vec![
            format!("--kubeconfig={kubeconfig}"),
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
            format!("--bind-address={}", self.range.host()),
            format!("--secure-port={port}"),
            format!("--tls-cert-file={}", self.certificate("server.crt").display()),
            format!("--tls-private-key-file={}", self.certificate("server.key").display()),
            "--leader-elect=false".to_owned(),
        ];
        if !self.own_limits {
            let limits = ["--kube-api-qps=1000", "--kube-api-burst=2000"];
            arguments.extend(limits.map(str::to_owned));
        }
        arguments
    }

    /// `nodes`: how many there will be.
    pub(super) fn start_kwok(&self, nodes: usize) -> Result<()> {
        let stages = self.directory.write("stages.yaml", STAGES)?;
        self.spawn(
            "kwok",
            &[
                format!("--kubeconfig={}", self.directory.join(super::KWOK).display()),
                format!("--config={}", self.tools.stages().display()),
                format!("--config={}", stages.display()),
                format!("--server-address={}", self.range.socket(Range::KWOK)),
                "--manage-all-nodes=true".to_owned(),
                format!("--node-lease-duration-seconds={}", node_lease(nodes)),
                // The default range has addresses for 254 pods only.
                "--cidr=10.128.0.0/12".to_owned(),
            ],
        )
    }

    fn spawn(&self, name: &str, arguments: &[String]) -> Result<()> {
        self.spawn_program(name, &self.tools.program(name), arguments)
    }

    /// Starts a program of the control plane, in its network namespace if it has one.
    pub(super) fn spawn_program(
        &self,
        name: &str,
        program: &Path,
        arguments: &[String],
    ) -> Result<()> {
        let log = self.directory.log(name);
        if self.real.is_none() {
            return self.processes().spawn(name, program, arguments, &self.garbage(), &log);
        }
        let command = network::within(self.namespace()?);
        let mut entering: Vec<_> =
            command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        entering.push(program.display().to_string());
        entering.extend_from_slice(arguments);
        self.processes().spawn(
            name,
            Path::new(command.get_program()),
            &entering,
            &self.garbage(),
            &log,
        )
    }

    /// The variables that say when programs in Go collect garbage. At Go's own setting, twice the live heap, that
    /// is a quarter of the API server's work. Beyond a gigabyte they collect as often as they need to keep to it,
    /// which with large objects is all the time.
    fn garbage(&self) -> Vec<(&'static str, &'static OsStr)> {
        let rarely = [("GOGC", "400"), ("GOMEMLIMIT", "1GiB")];
        let variables = rarely.into_iter().filter(|_| !self.own_limits);
        variables.map(|(name, value)| (name, OsStr::new(value))).collect()
    }
}

/// For how long the leases of so many simulated nodes are valid, in seconds. kwok renews each four
/// times in that time.
fn node_lease(nodes: usize) -> usize {
    NODE_LEASE.max(4 * nodes / RENEWALS_A_SECOND)
}
