//! Real nodes: one cluster at a time, a node that loses its power, and the end. That pods run, find each
//! other and are reached by their Services is shown by the suites of MPI and of stowplan itself.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use testbed::command::text;
use testbed::control_plane::{ControlPlane, Options};
use testbed::real::RealNodes;
use testbed::tools::NodeTools;
use testbed::wait::{Seen, until};

use crate::image;
use crate::suite::{self, case};

const LIMIT: Duration = Duration::from_secs(180);

pub(crate) fn run() -> ExitCode {
    let cases = vec![
        case!(nodes, image::it_has_one_static_program_and_nothing_of_the_machine),
        case!(nodes, the_next_cluster_removes_what_a_killed_one_left_and_leaves_nothing),
    ];
    // Those that need nodes start their own.
    suite::run(cases, async || Ok(()), async |(), _| ())
}

async fn the_next_cluster_removes_what_a_killed_one_left_and_leaves_nothing(
    _: Arc<()>,
) -> Result<()> {
    let before = Traces::find()?;
    let dir = tempfile::tempdir()?;
    let mut owner = Command::new(env!("CARGO_BIN_EXE_testbed"))
        .args(["up", "--real=1", "--dir"])
        .arg(dir.path())
        .stdout(Stdio::piped())
        .spawn()?;
    let lines = BufReader::new(owner.stdout.take().context("no output")?).lines();
    ensure!(lines.map_while(Result::ok).any(|line| line.starts_with("Ctrl-C")), "it ended");
    let second = start().await;
    // None of its code runs after this.
    owner.kill()?;
    owner.wait()?;
    let refused = second.err().context("a second cluster started")?;
    ensure!(format!("{refused:#}").contains("a machine has one at a time"), "{refused:#}");
    until("the processes to end", LIMIT, async || {
        let namespaces = Traces::find()?.namespaces;
        Ok(Seen::when(namespaces == before.namespaces, || format!("{namespaces:?}")))
    })
    .await?;
    ensure!(!Traces::find()?.groups.is_empty(), "control groups end by themselves");

    // The last process of the killed one ends at some time after its namespaces.
    let plane = until("the next cluster to start", LIMIT, async || match start().await {
        Err(error) if error.to_string().starts_with("another cluster with real nodes") => {
            Ok(Seen::NotYet(error.to_string()))
        }
        started => started.map(Seen::Done),
    })
    .await?;
    let run_directory = plane.dir().to_owned();
    let outcome = a_node_loses_its_power_and_comes_back(&plane).await;
    suite::stop(plane, outcome.is_err()).await;
    outcome?;
    ensure!(!run_directory.exists(), "{} is left", run_directory.display());
    // A cluster that was killed before this test may have left some traces, too.
    let after = Traces::find()?;
    let nothing_more = after.groups.is_empty()
        && after.namespaces.is_subset(&before.namespaces)
        && after.others.is_subset(&before.others);
    ensure!(nothing_more, "before: {before:?}\nafter: {after:?}");
    Ok(())
}

/// Two nodes: where all are lost, Kubernetes evicts no pods.
async fn start() -> Result<ControlPlane> {
    let real = Some(RealNodes::new(2));
    ControlPlane::start(Options { real, ..Options::default() }).await
}

async fn a_node_loses_its_power_and_comes_back(plane: &ControlPlane) -> Result<()> {
    let node = plane.real_node("node-1")?;
    // The kubelet is started again when it ends, as by an init system.
    let find = "for process in /proc/[0-9]*; do
            [ \"$(cat $process/comm)\" = kubelet ] && echo ${process#/proc/} && break
        done";
    let shell = |script: &str| -> Result<String> {
        text(node.command("timeout")?.args(["60", "sh", "-c", script]))
    };
    let first = shell(find)?;
    let first = first.trim();
    ensure!(!first.is_empty(), "no kubelet");
    shell(&format!(
        "kill -9 {first}
         until found=$({find}) && [ -n \"$found\" ] && [ \"$found\" != {first} ]; do sleep 0.1; done"
    ))?;
    // This machine reaches pods, and pods have no route to its network.
    let said = text(node.command("ip")?.args(["route", "list", "default"]))?;
    ensure!(said.is_empty(), "{said}");

    node.kill()?;
    ensure!(node.command("true").is_err(), "a node without power runs a command");
    node.not_ready().await?;
    node.start()?;
    node.ready().await?;
    let again = node.start().err().context("a node that runs was started")?;
    ensure!(again.to_string() == "node-1 runs", "{again:#}");
    Ok(())
}

/// The traces that a cluster could leave on this machine.
#[derive(Debug)]
struct Traces {
    groups: BTreeSet<String>,
    namespaces: BTreeSet<String>,
    /// Devices, mounts and routes.
    others: BTreeSet<String>,
}

impl Traces {
    fn find() -> Result<Self> {
        // Other programs of this machine may come and go.
        let is_own = |name: &String| name.contains("stowplan");
        let entries = |folder: &str| -> io::Result<Vec<String>> {
            let entries = fs::read_dir(folder)?.flatten();
            Ok(entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
        };
        let mut groups = BTreeSet::new();
        for line in fs::read_to_string("/proc/self/cgroup")?.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next().unwrap(), fields.next().unwrap());
            let root = format!("/sys/fs/cgroup/{}{path}", controllers.trim_start_matches("name="));
            groups.extend(entries(&root).unwrap_or_default().into_iter().filter(is_own));
        }
        // Only those in which programs of nodes run: other tests may run beside this.
        let programs = NodeTools::ensure(&testbed::tools::to_stderr)?;
        let mut namespaces = BTreeSet::new();
        for process in fs::read_dir("/proc")?.flatten() {
            let program = fs::read_link(process.path().join("exe")).unwrap_or_default();
            if program.starts_with(programs.dir()) {
                let kinds = ["net", "pid", "mnt"].map(|kind| process.path().join("ns").join(kind));
                let found = kinds.iter().filter_map(|kind| fs::read_link(kind).ok());
                namespaces.extend(found.map(|namespace| namespace.display().to_string()));
            }
        }
        let mounts = fs::read_to_string("/proc/mounts")?;
        let routes = text(Command::new("ip").arg("route"))?;
        let lines = mounts.lines().chain(routes.lines()).map(str::to_owned);
        let others = entries("/sys/class/net")?.into_iter().chain(lines).filter(is_own).collect();
        Ok(Self { groups, namespaces, others })
    }
}
