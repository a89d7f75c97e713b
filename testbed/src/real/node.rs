//! One node: its folder, its first process, and what a test does to it.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::cgroup::{self, Hierarchies};
use super::disks;
use super::network;
use crate::command;
use crate::tools::NodeTools;

/// The folder of the run directory with a folder for each node.
pub(crate) const FOLDER: &str = "nodes";

/// The archive of the image that holds a pod's namespaces, beside the nodes' folders.
pub(crate) const PAUSE: &str = "pause.tar";

/// The name of that image.
pub(crate) const PAUSE_IMAGE: (&str, &str) = ("stow.test/pause", "1");

const SCRIPT: &str = include_str!("../../assets/node.sh");
const CONTAINERD: &str = include_str!("../../assets/containerd.toml");
const KUBELET: &str = include_str!("../../assets/kubelet.yaml");
const PODS: &str = include_str!("../../assets/pods.conflist");

/// How long the first process may take to start.
const LIMIT: Duration = Duration::from_secs(60);

/// A node, running or not.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    number: u8,
    folder: PathBuf,
}

/// The files of the run directory that a node reads.
pub(crate) struct Credentials<'a> {
    /// Of the authority whose clients may call the kubelet.
    pub(crate) authority: &'a Path,
    pub(crate) kubelet: &'a str,
    pub(crate) proxy: &'a str,
}

impl Node {
    /// Makes the folder of a node. `number` counts from 1.
    pub(crate) fn create(
        run_directory: &Path,
        number: u8,
        tools: &NodeTools,
        credentials: &Credentials<'_>,
    ) -> Result<Self> {
        let name = format!("node-{number}");
        let folder = run_directory.join(FOLDER).join(&name);
        for part in ["disk", "var", "work", "network"] {
            fs::create_dir_all(folder.join(part))?;
        }
        let node = Self { name, number, folder };
        let values = [
            ("{address}", node.address().to_string()),
            ("{authority}", credentials.authority.display().to_string()),
            ("{dns}", network::CONTROL_PLANE.to_string()),
            ("{folder}", node.folder.display().to_string()),
            ("{pause}", format!("{}:{}", PAUSE_IMAGE.0, PAUSE_IMAGE.1)),
            ("{plugins}", disks::plugins(run_directory).display().to_string()),
            ("{pods}", network::pods(number)),
            ("{tools}", tools.dir().display().to_string()),
        ];
        for (file, text) in [
            ("node.sh", SCRIPT),
            ("containerd.toml", CONTAINERD),
            ("kubelet.yaml", KUBELET),
            ("network/10-pods.conflist", PODS),
            ("hostname", &format!("{}\n", node.name)),
            ("hosts", &format!("127.0.0.1 localhost\n{} {}\n", node.address(), node.name)),
            ("resolv.conf", "nameserver {dns}\n"),
            ("kubelet.kubeconfig", credentials.kubelet),
            ("proxy.kubeconfig", credentials.proxy),
        ] {
            let text = values
                .iter()
                .fold(text.to_owned(), |text, (name, value)| text.replace(name, value));
            fs::write(node.folder.join(file), text)
                .with_context(|| format!("cannot write {file} of {}", node.name))?;
        }
        Ok(node)
    }

    pub(crate) fn address(&self) -> Ipv4Addr {
        network::node(self.number)
    }

    /// The program and the arguments of the first process: a shell enters the node's control
    /// groups, then the namespaces.
    pub(crate) fn first_process(
        &self,
        tools: &NodeTools,
        logs: &Path,
    ) -> Result<(PathBuf, Vec<String>)> {
        let hierarchies = Hierarchies::find()?;
        let groups = hierarchies.create(&self.name, &self.folder)?;
        let _ = fs::remove_file(self.folder.join("joined"));
        let script = r#"while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs" || exit 1; shift; done
            shift; exec "$@""#;
        let mut arguments = vec!["-c".to_owned(), script.to_owned(), "enter".to_owned()];
        arguments.extend(groups.iter().map(|group| group.display().to_string()));
        let unshare = "-- unshare --mount --uts --ipc --net --cgroup --pid --fork --mount-proc \
                       --kill-child /bin/sh";
        arguments.extend(unshare.split(' ').map(str::to_owned));
        arguments.extend(
            [&self.folder.join("node.sh"), &self.folder, tools.dir(), logs]
                .map(|path: &Path| path.display().to_string()),
        );
        arguments.extend([
            self.name.clone(),
            self.address().to_string(),
            hierarchies.controllers(),
        ]);
        Ok((PathBuf::from("/bin/sh"), arguments))
    }

    /// Connects a started node to the others. `process` is the one of [`Node::first_process`].
    pub(crate) fn join(&self, control_plane: u32, process: u32) -> Result<()> {
        network::join(control_plane, process, self.number)
            .with_context(|| format!("cannot connect {}", self.name))?;
        // The script waits for it.
        Ok(fs::write(self.folder.join("joined"), "")?)
    }

    /// Takes its cable: from now on nothing answers at its addresses, not even a refusal.
    pub(crate) fn cut_off(&self, control_plane: u32) -> Result<()> {
        network::cut(control_plane, self.number)
            .with_context(|| format!("cannot disconnect {}", self.name))
    }

    /// Removes the control groups of a node whose first process was killed, when the kernel has
    /// ended the others.
    pub(crate) fn clean_up(&self) -> Result<()> {
        cgroup::remove_recorded(&self.folder)
            .with_context(|| format!("cannot clean up after {}", self.name))
    }

    /// A command inside of the node. `process` is the one of [`Node::first_process`].
    pub(crate) fn command(
        &self,
        process: u32,
        tools: &NodeTools,
        program: &str,
    ) -> Result<Command> {
        let first = self.wait_for_first(process)?;
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &first.to_string(), "--all", "--", "env"])
            .arg(format!("PATH={}:/usr/sbin:/usr/bin:/sbin:/bin", tools.dir().display()))
            .arg(program)
            .stdin(Stdio::null());
        Ok(command)
    }

    /// Imports an image archive, with all of its names. Returns when containerd has it.
    pub(crate) fn import(&self, process: u32, tools: &NodeTools, archive: &Path) -> Result<()> {
        // The node's own working directory is another one.
        let archive = archive
            .canonicalize()
            .with_context(|| format!("cannot read the image archive {}", archive.display()))?;
        let end = Instant::now() + LIMIT;
        // The script makes it once containerd serves.
        while !self.folder.join("serves").exists() {
            ensure!(Instant::now() < end, "containerd of {} does not serve", self.name);
            sleep(Duration::from_millis(20));
        }
        let mut command = self.command(process, tools, "ctr")?;
        command.args(["--namespace=k8s.io", "images", "import", "--local"]).arg(&archive);
        let cannot = || format!("{} cannot import {}", self.name, archive.display());
        command::run(&mut command).with_context(cannot).map(drop)
    }

    /// The process that is the first in the node: `unshare` waits for it, outside.
    fn wait_for_first(&self, process: u32) -> Result<u32> {
        let end = Instant::now() + LIMIT;
        let children = format!("/proc/{process}/task/{process}/children");
        loop {
            let text = fs::read_to_string(&children)
                .with_context(|| format!("{} does not run", self.name))?;
            if let Some(first) = text.split_whitespace().next().and_then(|id| id.parse().ok()) {
                return Ok(first);
            }
            if Instant::now() >= end {
                bail!("{} does not start; its log is {}.log", self.name, self.name);
            }
            sleep(Duration::from_millis(5));
        }
    }
}
