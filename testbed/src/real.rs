//! Real nodes on this machine: kubelet, containerd, runc, network plugins and kube-proxy in
//! namespaces, without an image registry and without a route out of them.
//!
//! ```text
//!  this machine                        etcd's network namespace               a node's namespaces
//!  stowplan0 198.18.0.2 ── veth ── bridge 198.18.0.1 ────────── veth ── eth0 198.18.0.11
//!  tests, kubectl, helm             kube-apiserver, scheduler,             kubelet, containerd, runc
//!                                   controller manager, CoreDNS,           kube-proxy; pods 198.19.1.0/24
//!                                   kube-proxy
//! ```
//!
//! Addresses are from the range for benchmarks (198.18.0.0/15), which no network uses. A cluster
//! with real nodes is the only one on its machine (`real/claim.rs`). Services are in
//! 198.18.64.0/20.
//!
//! No namespace has a name: the control plane's lives as long as its processes, and a node's as
//! long as its first process. So the kernel removes namespaces, devices, routes and mounts with the
//! processes, however those end (`process`). Control groups, and sometimes the device, are all that
//! remains of a cluster whose owner was killed; the next one removes them.
//!
//! A node is started by `assets/node.sh`, its first process. To lose its power is to kill that
//! process; its disk is a folder of the run directory, so it comes back with what it had.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context as _, Result, bail, ensure};

use crate::command;

pub(crate) mod cgroup;
pub(crate) mod claim;
pub(crate) mod cluster;
pub mod disks;
pub mod mpi_image;
pub(crate) mod network;
pub(crate) mod node;
pub mod tekton;

/// Set to `1` where tests on real nodes must run, as in CI: what is missing is then an error.
const ASKED: &str = "STOWPLAN_REAL_NODES";

/// The most nodes of a cluster: each has an address, and a range of addresses for its pods.
pub const MOST: u8 = 200;

/// Programs that nodes need, and the Debian packages that have them.
const PROGRAMS: [(&str, &str); 6] = [
    ("ip", "iproute2"),
    ("mount", "mount"),
    ("nft", "nftables"),
    ("nsenter", "util-linux"),
    ("unshare", "util-linux"),
    ("hostname", "hostname"),
];

/// The real nodes of a control plane: `node-1`, `node-2`, …
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RealNodes {
    /// How many, at most [`MOST`].
    pub count: u8,
    /// Image archives that every node imports before the start returns.
    pub images: Vec<PathBuf>,
}

impl RealNodes {
    /// This many nodes without images.
    #[must_use]
    pub fn new(count: u8) -> Self {
        Self { count, images: Vec::new() }
    }
}

/// Checks whether this machine can have real nodes.
///
/// # Errors
/// The first thing that is missing, with the remedy: root, a program, namespaces, control groups.
pub fn check() -> Result<()> {
    ensure!(cfg!(target_os = "linux"), "real nodes need Linux");
    let is_root = rustix::process::geteuid().is_root();
    ensure!(is_root, "real nodes need root; run this as root (sudo)");
    if let Some(missing) = first_missing(&PROGRAMS) {
        bail!("real nodes need {missing}");
    }
    let namespaces = ["--mount", "--net", "--pid", "--uts", "--ipc", "--cgroup", "--fork", "true"];
    command::run(Command::new("unshare").args(namespaces)).context(
        "real nodes need namespaces, and root may not make them here: run this outside of the \
         container, or in a privileged one",
    )?;
    cgroup::Hierarchies::find().context("real nodes need control groups").map(drop)
}

/// The programs that tests need besides, to build the nodes' programs and images, and their packages.
const TEST_PROGRAMS: [(&str, &str); 4] = [
    ("gcc", "gcc"),
    ("pkg-config", "pkg-config"),
    ("mmdebstrap", "mmdebstrap"),
    ("pip", "python3-pip"),
];

/// Returns whether the tests on real nodes were asked for, by `STOWPLAN_REAL_NODES=1`.
///
/// # Errors
/// They were, and cannot run here.
pub fn asked_for_tests() -> Result<bool> {
    if env::var_os(ASKED).is_none_or(|value| value != "1") {
        return Ok(false);
    }
    check_for_tests().map(|()| true).with_context(|| format!("{ASKED} is set"))
}

/// As [`check`], also for the programs that build the nodes' programs and images.
///
/// # Errors
/// What is missing.
pub fn check_for_tests() -> Result<()> {
    if let Some(missing) = first_missing(&TEST_PROGRAMS) {
        bail!("the tests on real nodes need {missing}");
    }
    check()
}

/// Looks for what the build of runc needs, before minutes of compilation.
///
/// # Errors
/// The Debian package that is missing.
pub fn check_build() -> Result<()> {
    let compiler = env::var("CC").unwrap_or_else(|_| "gcc".to_owned());
    if let Some(missing) = first_missing(&[(&compiler, "gcc"), ("pkg-config", "pkg-config")]) {
        bail!("building runc needs {missing}");
    }
    let found = Command::new("pkg-config").args(["--exists", "libseccomp"]).status();
    if !found.is_ok_and(|status| status.success()) {
        bail!("building runc needs libseccomp; install the Debian package libseccomp-dev");
    }
    Ok(())
}

/// Names the first of these programs that is missing, and the Debian package that has it.
fn first_missing(programs: &[(&str, &str)]) -> Option<String> {
    let (program, package) = programs.iter().find(|(program, _)| find(program).is_none())?;
    Some(format!("{program}, which is not on the PATH; install the Debian package {package}"))
}

/// A program of the `PATH`, or of the folders of administrators' programs.
fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| fs::metadata(file).is_ok_and(|metadata| metadata.is_file()))
}

/// Removes what the nodes of a run directory leave behind when their processes have ended.
pub(crate) fn clean_up(run_directory: &Path) -> Result<()> {
    let nodes = run_directory.join(node::FOLDER);
    if !nodes.is_dir() {
        return Ok(());
    }
    // The one of a later cluster has the same name.
    if claim::Claim::is_last(run_directory) {
        network::disconnect()?;
    }
    for entry in fs::read_dir(nodes)?.flatten() {
        if entry.file_type()?.is_dir() {
            cgroup::remove_recorded(&entry.path())?;
        }
    }
    Ok(())
}
