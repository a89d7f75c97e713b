//! The real nodes themselves: one cluster at a time, and nothing of it is left. What pods do on them is
//! shown by the other suites.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use testbed::command;
use testbed::control_plane::{ControlPlane, Options};
use testbed::real::RealNodes;
use testbed::wait::{Seen, until};

use crate::suite::{self, Case};

const LIMIT: Duration = Duration::from_secs(180);

pub(crate) fn run() -> ExitCode {
    let cases = vec![
        Case::new("nodes::one_cluster_runs_at_a_time_and_leaves_nothing", |_| {
            Box::pin(one_cluster())
        }),
        Case::new("nodes::the_next_cluster_removes_what_a_killed_one_left", |_| {
            Box::pin(a_killed_owner())
        }),
    ];
    // Each starts its own.
    suite::run(cases, async || Ok(()), async |(), _| ())
}

async fn start() -> Result<ControlPlane> {
    let real = Some(RealNodes::new(1));
    ControlPlane::start(Options { real, ..Options::default() }).await
}

async fn one_cluster() -> Result<()> {
    let before = Traces::find()?;
    let plane = start().await?;
    let dir = plane.dir().to_owned();
    let outcome = use_cluster(&plane).await;
    suite::stop(plane, outcome.is_err()).await;
    outcome?;
    ensure!(!dir.exists(), "{} is left", dir.display());
    let after = Traces::find()?;
    ensure!(after == before, "before: {before:?}\nafter: {after:?}");
    Ok(())
}

async fn use_cluster(plane: &ControlPlane) -> Result<()> {
    let refused = start().await.err().context("a second cluster started")?;
    ensure!(format!("{refused:#}").contains("a machine has one at a time"), "{refused:#}");
    // This machine reaches the nodes, and they have no route to its network.
    let said = command::text(plane.within_network("ip")?.args(["route", "list", "default"]))?;
    ensure!(said.is_empty(), "{said}");
    // The kubelet is started again when it ends, as by an init system.
    let find = "for process in /proc/[0-9]*; do
            [ \"$(cat $process/comm)\" = kubelet ] && echo ${process#/proc/} && break
        done";
    let node = plane.real_node("node-1")?;
    let shell = |script: &str| -> Result<String> {
        command::text(node.command("timeout")?.args(["60", "sh", "-c", script]))
    };
    let first = shell(find)?;
    let first = first.trim();
    ensure!(!first.is_empty(), "no kubelet");
    shell(&format!(
        "kill -9 {first}
         until found=$({find}) && [ -n \"$found\" ] && [ \"$found\" != {first} ]; do sleep 0.1; done"
    ))?;
    node.kill().await?;
    ensure!(node.command("true").is_err(), "a node without power runs a command");
    node.not_ready().await?;
    node.start().await?;
    node.ready().await?;
    let again = node.start().await.err().context("a node that runs was started")?;
    ensure!(again.to_string() == "node-1 runs", "{again:#}");
    Ok(())
}

async fn a_killed_owner() -> Result<()> {
    let before = Traces::find()?;
    let dir = tempfile::tempdir()?;
    let mut owner = Command::new(env!("CARGO_BIN_EXE_testbed"))
        .args(["up", "--real=1", "--dir"])
        .arg(dir.path())
        .stdout(Stdio::piped())
        .spawn()?;
    let lines = BufReader::new(owner.stdout.take().context("no output")?).lines();
    ensure!(lines.map_while(Result::ok).any(|line| line.starts_with("Ctrl-C")), "it ended");
    // None of its code runs after this.
    owner.kill()?;
    owner.wait()?;
    until("the processes to end", LIMIT, async || {
        let namespaces = Traces::find()?.namespaces;
        Ok(match namespaces == before.namespaces {
            true => Seen::Done(()),
            false => Seen::NotYet(format!("{namespaces:?}")),
        })
    })
    .await?;
    ensure!(Traces::find()?.groups != before.groups, "control groups end by themselves");
    // The last process of the killed one ends at some time after its namespaces.
    until("the next cluster to start", LIMIT, async || match start().await {
        Err(error) if error.to_string().starts_with("another cluster with real nodes") => {
            Ok(Seen::NotYet(error.to_string()))
        }
        Err(error) => Err(error),
        Ok(plane) => {
            plane.stop().await;
            Ok(Seen::Done(()))
        }
    })
    .await?;
    let after = Traces::find()?;
    ensure!(after == before, "before: {before:?}\nafter: {after:?}");
    Ok(())
}

/// What a cluster could leave on this machine.
#[derive(Debug, PartialEq, Eq)]
struct Traces {
    devices: BTreeSet<String>,
    mounts: BTreeSet<String>,
    routes: BTreeSet<String>,
    groups: BTreeSet<String>,
    namespaces: BTreeSet<String>,
}

impl Traces {
    fn find() -> Result<Self> {
        let mut namespaces = BTreeSet::new();
        for process in fs::read_dir("/proc")?.flatten() {
            for kind in ["net", "pid", "mnt"] {
                if let Ok(namespace) = fs::read_link(process.path().join("ns").join(kind)) {
                    // Only those in which programs of nodes run: other tests may run beside this.
                    let program = fs::read_link(process.path().join("exe")).unwrap_or_default();
                    if program.starts_with(real_cache()) {
                        namespaces.insert(namespace.display().to_string());
                    }
                }
            }
        }
        let names = |folder: &str| -> Result<BTreeSet<String>> {
            let entries = fs::read_dir(folder)?.flatten();
            Ok(entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
        };
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
        // Other programs of this machine may come and go.
        let only = |all: BTreeSet<String>, mark: &str| -> BTreeSet<String> {
            all.into_iter().filter(|line| line.contains(mark)).collect()
        };
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let mut groups = BTreeSet::new();
        for line in own.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next().unwrap(), fields.next().unwrap());
            let root = format!("/sys/fs/cgroup/{}{path}", controllers.trim_start_matches("name="));
            let found = names(&root).unwrap_or_default();
            groups.extend(only(found, "stowplan"));
        }
        Ok(Self {
            devices: only(names("/sys/class/net")?, "stowplan"),
            mounts: only(lines(&fs::read_to_string("/proc/mounts")?), "stowplan"),
            routes: only(lines(&command::text(Command::new("ip").arg("route"))?), "198.1"),
            groups,
            namespaces,
        })
    }
}

/// Where the nodes' programs are, if they were built.
fn real_cache() -> &'static Path {
    static DIR: LazyLock<PathBuf> = LazyLock::new(|| {
        testbed::tools::NodeTools::ensure(&testbed::tools::to_stderr).unwrap().dir().to_owned()
    });
    &DIR
}
