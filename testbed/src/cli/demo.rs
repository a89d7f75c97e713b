//! The command `demo`: four scenarios with explanations, as a user would see them with kubectl.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use testbed::command::text_of;
use testbed::control_plane::{ControlPlane, Options};
use testbed::katalyst::{self, Agents};
use testbed::tekton::{self, Ended as RunEnded};
use testbed::tools::{self, Kubernetes, Tools};
use testbed::wait::{Seen, until};

use super::cargo::{build_stowplan, default_dir};
use super::{Ended, imitation};

const EXAMPLES: &str = "\
Examples:
  cargo demo
  cargo demo --keep    leaves the control plane running, for experiments";

/// The annotation in which stowplan records the placement.
const RECORD: &str = "stowplan.dev/placement";

/// The label with the task of a pod.
const TASK: &str = "tekton.dev/pipelineTask";

/// The chart values of the NUMA scenario: the nodes enforce NUMA affinity by the label `role`.
const VALUES: [(&str, &str); 2] =
    [("policy.katalyst.mode", "enforced"), ("policy.katalyst.declaredLabels", "{role}")];

/// The nodes with NUMA nodes, the sockets of each, and the NUMA nodes of each socket.
const NUMA_NODES: [&str; 2] = ["numa-1", "numa-2"];
const SOCKETS: usize = 2;
const ZONES: usize = 2;

/// The columns that a line has at most.
const WIDTH: usize = 120;

/// Far above what any step takes.
const LIMIT: Duration = Duration::from_secs(120);

/// Shows what stowplan does: a Streams job that is placed by its pods' annotations, one that is
/// checked and placed as a whole, a Tekton run whose tasks share a node and their volumes, and a
/// training job whose roles do not share NUMA nodes.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Leave the control plane running afterwards.
    #[arg(long)]
    keep: bool,
}

pub(super) fn run(args: &Args) -> Result<Ended> {
    let dir = if args.keep { Some(default_dir("demo")?) } else { None };
    // Before the handler for Ctrl-C is installed, so that Ctrl-C ends the builds.
    Tools::ensure(&tools::to_stderr)?;
    let stowplan = build_stowplan()?;
    super::until_interrupted(async {
        let begun = Instant::now();
        say!("1. A control plane: Kubernetes {}, five hosts", Kubernetes::Newest.version());
        let plane = ControlPlane::start(Options { dir, ..Options::default() }).await?;
        let client = plane.client().await?;
        let demo = Demo { plane, client, stowplan };
        if let Err(error) = demo.show_scenarios().await {
            return Err(if demo.plane.keep_dir() {
                let logs = super::shown(&demo.plane.dir().join("logs"));
                error.context(format!("the logs are in {logs}"))
            } else {
                error
            });
        }
        say!("Done in {} s.", begun.elapsed().as_secs());
        finish(args, demo.plane).await
    })
}

struct Demo {
    plane: ControlPlane,
    client: Client,
    stowplan: PathBuf,
}

impl Demo {
    /// Shows all scenarios on a started control plane.
    async fn show_scenarios(&self) -> Result<()> {
        self.apply("examples/nodes.yaml").await?;
        self.plane.nodes_ready(&self.client).await?;
        imitation::start(&self.plane).await?;

        say!("2. stowplan is installed: helm install stowplan charts/stowplan \\");
        let mut install = super::chart_of_workspace(self.stowplan.clone())?;
        for (key, value) in VALUES {
            say!("     --set {key}={value}{}", if key == VALUES[0].0 { " \\" } else { "" });
            install = install.value(key, value);
        }
        let installation = self.plane.install(install).await?;
        say!("   Its webhook listens on {}", installation.service_address());

        say!("3. A Streams job with constraints in pod annotations:");
        say!("   kubectl apply -f examples/host-pools.yaml -f examples/streams-job.yaml");
        self.apply("examples/host-pools.yaml").await?;
        self.apply("examples/streams-job.yaml").await?;
        let pods = self.placed("streams.ibm.com/job=trades").await?;
        print_table("CONSTRAINT", &pods, |pod| {
            let annotations = pod.metadata.annotations.iter().flatten();
            let constraints = annotations.filter_map(|(key, value)| {
                Some(format!("{}: {value}", key.strip_prefix("streams.ibm.com/")?))
            });
            constraints.collect::<Vec<_>>().join(", ")
        })?;

        let file = "examples/refused.yaml";
        say!("4. A pod whose constraint no node can meet: kubectl apply -f {file}");
        self.show_refusal(file).await?;

        let (job, pods) =
            ("examples/streams-job-pools.yaml", "examples/streams-job-pools-pods.yaml");
        say!("5. A StreamsJob with its own host pools, and six more hosts:");
        say!("   kubectl apply -f {job} -f {pods}");
        self.apply("examples/pool-nodes.yaml").await?;
        self.plane.nodes_ready(&self.client).await?;
        self.apply(job).await?;
        self.apply(pods).await?;
        let pods = self.placed("streams.ibm.com/job=parallel").await?;
        let mut pools = self.plane.kubectl();
        pools.args(["get", "hostpools"]);
        print_lines(&text_of(pools).await?);
        print_table("ELEMENT", &pods, |pod| label(pod, "streams.ibm.com/pe").to_owned())?;

        let file = "examples/streams-job-impossible.yaml";
        say!("6. A StreamsJob with contradicting constraints: kubectl apply -f {file}");
        self.show_refusal(file).await?;

        let file = "examples/tekton-run.yaml";
        say!("7. A Tekton run whose tasks share volumes, as in TEP-0135: kubectl apply -f {file}");
        self.apply(file).await?;
        self.show_run().await?;
        self.show_numa_nodes().await?;

        say!("11. Where everything is now: stowplan map -n default");
        say!("   A letter marks the pods that belong together; [name] is a reserved slot.");
        // stowplan's own pods, which run as processes here, have no node.
        let mut map = self.plane.program(&self.stowplan);
        map.args(["map", "-n", "default"]);
        print_lines(&text_of(map).await?);
        Ok(())
    }

    /// A run whose node is cordoned while it continues.
    async fn show_run(&self) -> Result<()> {
        let pods = until("the task build to run", LIMIT, async || {
            self.plane.check()?;
            let pods = self.pods("tekton.dev/pipelineRun=image").await?;
            let is_running = |pod: &Pod| {
                label(pod, TASK) == "build"
                    && pod.status.iter().any(|it| it.phase.as_deref() == Some("Running"))
            };
            Ok(match pods.iter().any(is_running) {
                true => Seen::Done(pods),
                false => Seen::NotYet(format!("{} pods", pods.len())),
            })
        })
        .await?;
        let nodes: BTreeSet<&str> = pods.iter().map(node).collect();
        let shared = nodes.first().copied().context("a pod of the run")?;
        ensure!(nodes.len() == 1, "the pods of one run are on several nodes: {nodes:?}");
        self.print_run().await?;
        say!("   All pods are on the node {shared}: no other one can use both volumes.");

        say!("8. Maintenance while the task build is running: kubectl cordon {shared}");
        self.plane.cordon(shared).await?;
        let ended = tekton::ended(&self.client, "default", "image", LIMIT).await?;
        ensure!(ended == RunEnded::Succeeded, "the run did not succeed: {ended:?}");
        self.print_run().await?;
        let sets: Api<StatefulSet> = Api::all(self.client.clone());
        until("the placeholder to be deleted", LIMIT, async || {
            let left = ListParams::default().labels("stowplan.dev/placeholder");
            let left = sets.list_metadata(&left).await?.items.len();
            Ok(if left == 0 { Seen::Done(()) } else { Seen::NotYet(format!("{left} remain")) })
        })
        .await?;
        say!(
            "   The run has ended: build was not disturbed, the task after it ran on another node"
        );
        say!("   with the same volumes, and stowplan's placeholder was deleted.");
        self.plane.uncordon(shared).await
    }

    async fn print_run(&self) -> Result<()> {
        let mut pods = self.pods("tekton.dev/pipelineRun=image").await?;
        pods.retain(|pod| !label(pod, TASK).is_empty());
        pods.sort_by_key(|pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0));
        print_table("CLAIMS", &pods, |pod| {
            let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
            let claims = volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref());
            claims.map(|claim| &*claim.claim_name).collect::<Vec<_>>().join(", ")
        })
    }

    /// Katalyst does not run here: the testbed writes the reports of its agents.
    async fn show_numa_nodes(&self) -> Result<()> {
        let file = "examples/numa-nodes.yaml";
        say!("9. Two nodes with four NUMA nodes each: kubectl apply -f {file}");
        say!("   Katalyst itself does not run here. The demo writes what its agents would report:");
        say!("   the CustomNodeResources, with the NUMA node of each pod.");
        katalyst::define(&self.client).await?;
        let _agents = Agents::start(&self.client, &NUMA_NODES, SOCKETS, ZONES).await?;
        self.apply(file).await?;
        self.plane.nodes_ready(&self.client).await?;

        let file = "examples/katalyst.yaml";
        say!(
            "10. A training job whose roles avoid each other's NUMA nodes: kubectl apply -f {file}"
        );
        self.apply(file).await?;
        until("the pods of the training job to be on NUMA nodes", LIMIT, async || {
            self.plane.check()?;
            let reports = katalyst::reported(&self.client).await?;
            let placed: usize = reports.values().flatten().map(|zone| zone.consumers.len()).sum();
            Ok(if placed == 6 { Seen::Done(()) } else { Seen::NotYet(format!("{placed} are")) })
        })
        .await?;
        let pods = self.placed("role in (ps, worker)").await?;
        print_table("ROLE", &pods, |pod| label(pod, "role").to_owned())?;
        for node in NUMA_NODES {
            say!("   stowplan check node/{node}:");
            let mut check = self.plane.program(&self.stowplan);
            check.args(["check", &format!("node/{node}")]);
            // Its exit code is about the problems of the node.
            let output = tokio::process::Command::from(check).kill_on_drop(true).output().await?;
            let text = String::from_utf8(output.stdout)?;
            let zones: Vec<_> = text.lines().filter(|line| line.contains("| NUMA ")).collect();
            ensure!(zones.len() == SOCKETS * ZONES, "no picture of {node}: {text}");
            print_lines(&zones.join("\n"));
        }
        say!(
            "   No NUMA node has pods of both roles. Each pod waited until a NUMA node was feasible"
        );
        say!("   for it, also beside pods that had started and were not reported yet.");
        Ok(())
    }

    async fn apply(&self, file: &str) -> Result<()> {
        let mut command = self.plane.kubectl();
        // Run in the workspace, so that kubectl's messages contain the relative path.
        command.current_dir(super::workspace()?).args(["apply", "-f", file]);
        text_of(command).await.with_context(|| format!("kubectl apply -f {file}"))?;
        Ok(())
    }

    /// Applies a file that stowplan must refuse, and prints kubectl's message.
    async fn show_refusal(&self, file: &str) -> Result<()> {
        let Err(error) = self.apply(file).await else { bail!("{file} was admitted") };
        let text = error.root_cause().to_string();
        ensure!(text.contains("stowplan: "), "{file} was not refused by stowplan: {text}");
        say!("\n{}\n", textwrap::fill(&text, WIDTH));
        Ok(())
    }

    async fn pods(&self, labels: &str) -> Result<Vec<Pod>> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), "default");
        Ok(pods.list(&ListParams::default().labels(labels)).await?.items)
    }

    /// Waits until every pod with these labels has a node, and returns the pods.
    async fn placed(&self, labels: &str) -> Result<Vec<Pod>> {
        until("the pods to be placed", LIMIT, async || {
            self.plane.check()?;
            let pods = self.pods(labels).await?;
            let waiting: Vec<_> =
                pods.iter().filter(|pod| node(pod).is_empty()).map(name).collect();
            Ok(match waiting.is_empty() && !pods.is_empty() {
                true => Seen::Done(pods),
                false => Seen::NotYet(format!("Pending: {}", waiting.join(", "))),
            })
        })
        .await
    }
}

async fn finish(args: &Args, plane: ControlPlane) -> Result<()> {
    if args.keep {
        let dir = super::shown(plane.dir());
        say!("\nThe control plane is still running. Try:");
        say!("  {dir}/kubectl get pod trades-sink -o yaml    shows the pod with its placement");
        say!(
            "  {dir}/kubectl apply -f YOUR-PODS.yaml        PipelineRuns, too: Tekton is imitated"
        );
        super::print_usage(&plane);
        plane.detach()?;
        say!("Stop it with: cargo testbed down --dir {dir}");
    } else {
        plane.stop().await;
        say!("All started processes have ended.");
        say!("\nTry next:");
        say!("  cargo demo --keep                  the same demo, left running for experiments");
        say!("  cargo testbed up                   a control plane with stowplan and no pods");
        say!(
            "  cargo testbed up --tekton          the same, where PipelineRuns get pods and volumes"
        );
        say!("  cargo run --bin stowplan -- plan -f examples/streams-job.yaml \\");
        say!("    --cluster examples/nodes.yaml --cluster examples/host-pools.yaml");
        say!("                                     the same decisions without a control plane");
    }
    Ok(())
}

fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// The node of a pod; empty if it has none.
fn node(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

fn label<'p>(pod: &'p Pod, key: &str) -> &'p str {
    pod.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map_or("", String::as_str)
}

/// The reasons in the record of a pod, such as `{"v":1,"streams":["host=10.4.40.83: node
/// foo"],"more":0}`.
fn why(pod: &Pod) -> Result<String> {
    let record = pod.metadata.annotations.as_ref().and_then(|all| all.get(RECORD));
    let placed = || format!("{} was placed without stowplan: it has no {RECORD}", name(pod));
    let record: serde_json::Value = serde_json::from_str(record.with_context(placed)?)?;
    let systems = record.as_object().context("the record is not an object")?;
    let reasons = systems.values().filter_map(serde_json::Value::as_array).flatten();
    Ok(reasons.filter_map(|reason| reason.as_str()).collect::<Vec<_>>().join("; "))
}

/// Prints a row for each pod: its name, a second column, its node and the reasons of stowplan.
fn print_table(header: &str, pods: &[Pod], second: impl Fn(&Pod) -> String) -> Result<()> {
    let mut rows = vec![["POD", header, "NODE", "WHY"].map(str::to_owned)];
    for pod in pods {
        rows.push([name(pod).to_owned(), second(pod), node(pod).to_owned(), why(pod)?]);
    }
    let [one, two, three] =
        [0, 1, 2].map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0));
    let indent = " ".repeat(one + two + three + 9);
    let options = textwrap::Options::new(WIDTH).subsequent_indent(&indent);
    say!();
    for [pod, detail, node, why] in &rows {
        let row = format!("   {pod:one$}  {detail:two$}  {node:three$}  {why}");
        say!("{}", textwrap::fill(&row, &options));
    }
    say!();
    Ok(())
}

/// Prints what a program has printed, a little to the right.
fn print_lines(text: &str) {
    say!();
    for line in text.lines() {
        say!("{}", format!("   {line}").trim_end());
    }
    say!();
}
