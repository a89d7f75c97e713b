//! The command `demo`: four scenarios with explanations. The placement of their pods is checked.
//!
//! The checks do not use stowplan's code: they read the pods, their constraints and their nodes
//! from the API server ([`constraints`]).

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::{Api, Client};
use testbed::command::text_of;
use testbed::control_plane::{ControlPlane, Options};
use testbed::tools::{self, Kubernetes, Tools};
use testbed::wait::{Seen, until};

use self::constraints::{Host, Placed, Pool};
use self::table::{Row, format_table, wrapped};
use super::cargo::{build_stowplan, default_dir};
use super::{Ended, imitation};

mod constraints;
mod job;
mod numa;
mod run;
mod table;

const EXAMPLES: &str = "\
Examples:
  cargo demo
  cargo demo --keep    leaves the control plane running, for experiments";

const JOB_FILE: &str = "examples/streams-job-pools.yaml";
const JOB_PODS_FILE: &str = "examples/streams-job-pools-pods.yaml";
const RUN_FILE: &str = "examples/tekton-run.yaml";

/// The annotation in which stowplan records the placement.
const RECORD: &str = "stowplan.dev/placement";

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
    let webhook = build_stowplan()?;
    super::until_interrupted(async {
        let begun = Instant::now();
        say!("1. A control plane: Kubernetes {}, five hosts", Kubernetes::Newest.version());
        let plane = ControlPlane::start(Options { dir, ..Options::default() }).await?;
        if let Err(error) = show_scenarios(&plane, webhook).await {
            return Err(if plane.keep_dir() {
                let logs = super::shown(&plane.dir().join("logs"));
                error.context(format!("the logs are in {logs}"))
            } else {
                error
            });
        }
        say!("Done in {} s.", begun.elapsed().as_secs());
        finish(args, plane).await
    })
}

/// Runs all scenarios on a started control plane.
async fn show_scenarios(plane: &ControlPlane, webhook: PathBuf) -> Result<()> {
    apply(plane, "examples/nodes.yaml").await?;
    let client = plane.client().await?;
    plane.nodes_ready(&client).await?;
    imitation::start(plane).await?;

    say!("2. stowplan is installed: helm install stowplan charts/stowplan \\");
    let mut install = super::chart_of_workspace(webhook.clone())?;
    for (key, value) in numa::VALUES {
        say!("     --set {key}={value}{}", if key == numa::VALUES[0].0 { " \\" } else { "" });
        install = install.value(key, value);
    }
    let installation = plane.install(install).await?;
    say!("   Its webhook listens on {}", installation.service_address());

    say!("3. A Streams job with constraints in pod annotations:");
    say!("   kubectl apply -f examples/host-pools.yaml -f examples/streams-job.yaml");
    apply(plane, "examples/host-pools.yaml").await?;
    apply(plane, "examples/streams-job.yaml").await?;
    let pods = placed_pods(plane, &client, "trades").await?;
    let mut pods = pods.iter().map(read_pod).collect::<Result<Vec<_>>>()?;
    pods.sort_by_key(|pod| pod.pe.clone());
    say!();
    print_table(&pods)?;
    say!();
    check(&client, &pods).await?;
    say!("   All constraints hold. The demo checked each of them with data from the API server.");

    say!("4. A pod whose constraint no node can meet: kubectl apply -f examples/refused.yaml");
    let host = "foo.watson.ibm.com";
    say!("\n{}\n", refusal(plane, "examples/refused.yaml", host).await?);

    say!("5. A StreamsJob with its own host pools, and six more hosts:");
    say!("   kubectl apply -f {JOB_FILE} -f {JOB_PODS_FILE}");
    apply(plane, "examples/pool-nodes.yaml").await?;
    plane.nodes_ready(&client).await?;
    apply(plane, JOB_FILE).await?;
    apply(plane, JOB_PODS_FILE).await?;
    job::show(plane, &client).await?;

    let impossible = "examples/streams-job-impossible.yaml";
    say!("6. A StreamsJob with contradicting constraints: kubectl apply -f {impossible}");
    say!("\n{}\n", refusal(plane, impossible, "must share a host").await?);

    say!("7. A Tekton run whose tasks share volumes, as in TEP-0135: kubectl apply -f {RUN_FILE}");
    apply(plane, RUN_FILE).await?;
    run::show(plane, &client).await?;

    numa::show(plane, &client, &webhook).await?;

    say!("11. Where everything is now: stowplan map -n default");
    say!("   A letter marks the pods that belong together; [name] is a reserved slot.\n");
    for line in map(plane, &webhook).await?.lines() {
        say!("{}", format!("   {line}").trim_end());
    }
    say!();
    Ok(())
}

/// The map of the cluster.
async fn map(plane: &ControlPlane, stowplan: &Path) -> Result<String> {
    let mut command = plane.program(stowplan);
    // stowplan's own pods, which run as processes here, have no node.
    command.args(["map", "-n", "default"]);
    let text = text_of(command).await?;
    ensure!(text.contains("A  "), "the map has no groups: {text}");
    Ok(text)
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

async fn apply(plane: &ControlPlane, file: &str) -> Result<()> {
    let mut command = plane.kubectl();
    // Run in the workspace, so that kubectl's messages contain the relative path.
    command.current_dir(super::workspace()?).args(["apply", "-f", file]);
    text_of(command).await.with_context(|| format!("kubectl apply -f {file}"))?;
    Ok(())
}

/// Waits until every pod of a job has a node, and returns the pods.
async fn placed_pods(plane: &ControlPlane, client: &Client, job: &str) -> Result<Vec<Pod>> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let selector = ListParams::default().labels(&format!("streams.ibm.com/job={job}"));
    until("the job's pods to be placed", Duration::from_secs(60), async || {
        plane.check()?;
        let pods = pods.list(&selector).await?.items;
        let waiting = pods.iter().filter(|pod| node_of(pod).is_empty());
        let waiting: Vec<_> = waiting.map(name_of).collect();
        Ok(match waiting.is_empty() && !pods.is_empty() {
            true => Seen::Done(pods),
            false => Seen::NotYet(format!("Pending: {}", waiting.join(", "))),
        })
    })
    .await
}

fn name_of(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// The node of a pod; empty if it has none.
fn node_of(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

fn label_of<'p>(pod: &'p Pod, key: &str) -> &'p str {
    pod.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map_or("", String::as_str)
}

/// The reasons in the record of a pod; `None`: it has no record.
fn recorded_reasons(pod: &Pod) -> Result<Option<Vec<String>>> {
    let record = pod.metadata.annotations.as_ref().and_then(|all| all.get(RECORD));
    let reasons = record.map(|record| {
        reasons(record).with_context(|| format!("the record of {}: {record}", name_of(pod)))
    });
    reasons.transpose()
}

/// The reasons in the record of a pod, which must have one.
fn why(pod: &Pod) -> Result<Vec<String>> {
    let placed = || format!("{} was placed without stowplan: it has no {RECORD}", name_of(pod));
    recorded_reasons(pod)?.with_context(placed)
}

fn read_pod(pod: &Pod) -> Result<Placed> {
    let annotations = pod.metadata.annotations.iter().flatten();
    let constraints = annotations.filter_map(|(key, value)| {
        Some((key.strip_prefix("streams.ibm.com/")?.to_owned(), value.clone()))
    });
    Ok(Placed {
        name: name_of(pod).to_owned(),
        job: label_of(pod, "streams.ibm.com/job").to_owned(),
        pe: label_of(pod, "streams.ibm.com/pe").to_owned(),
        constraints: constraints.collect(),
        node: node_of(pod).to_owned(),
        why: why(pod)?,
    })
}

/// The reasons in a record such as `{"v":1,"streams":["host=10.4.40.83: node
/// foo"],"more":0}`.
fn reasons(record: &str) -> Result<Vec<String>> {
    let record: serde_json::Value = serde_json::from_str(record)?;
    let systems = record.as_object().context("not an object")?;
    let reasons = systems.values().filter_map(serde_json::Value::as_array).flatten();
    let reasons: Vec<_> = reasons.filter_map(|reason| reason.as_str().map(str::to_owned)).collect();
    ensure!(!reasons.is_empty(), "the record contains no reason");
    Ok(reasons)
}

fn print_table(pods: &[Placed]) -> Result<()> {
    let constraint = |(kind, value): &(String, String)| format!("{kind}: {value}");
    print_rows(["POD", "CONSTRAINT", "NODE", "WHY"], pods, |pod| {
        Ok(Row {
            pod: pod.name.clone(),
            constraints: pod.constraints.iter().map(constraint).collect(),
            node: pod.node.clone(),
            reasons: pod.why.clone(),
        })
    })
}

fn print_rows<P>(header: [&str; 4], pods: &[P], row: impl Fn(&P) -> Result<Row>) -> Result<()> {
    let table = format_table(header, &pods.iter().map(row).collect::<Result<Vec<_>>>()?)?;
    say!("{}", table.trim_end());
    Ok(())
}

/// Checks all constraints of the pods. The error lists those that are not met.
async fn check(client: &Client, pods: &[Placed]) -> Result<()> {
    let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await?;
    let hosts: Vec<_> = nodes
        .items
        .into_iter()
        .map(|node| Host {
            name: node.metadata.name.unwrap_or_default(),
            labels: node.metadata.labels.unwrap_or_default(),
            addresses: node
                .status
                .into_iter()
                .flat_map(|status| status.addresses.into_iter().flatten())
                .map(|address| address.address)
                .collect(),
        })
        .collect();
    let pools = job::api(client, "HostPool")
        .list(&ListParams::default())
        .await?
        .items
        .into_iter()
        .map(|pool| {
            let strings = |field: &str| {
                let list = pool.data["spec"][field].as_array().into_iter().flatten();
                list.filter_map(|item| item.as_str().map(str::to_owned)).collect()
            };
            Pool {
                hosts: strings("hosts"),
                tags: strings("tags"),
                name: pool.metadata.name.clone().unwrap_or_default(),
            }
        })
        .collect::<Vec<_>>();
    let unmet = constraints::unmet(pods, &hosts, &pools);
    ensure!(unmet.is_empty(), "placed wrongly:\n  {}", unmet.join("\n  "));
    let shown = constraints::kinds(pods);
    ensure!(
        shown == constraints::KINDS,
        "the job shows only {} of {}",
        shown.join(", "),
        constraints::KINDS.join(", "),
    );
    Ok(())
}

/// Applies a file that stowplan must refuse, and returns kubectl's message. It must contain `word`.
async fn refusal(plane: &ControlPlane, file: &str, word: &str) -> Result<String> {
    match apply(plane, file).await {
        Ok(()) => bail!("{file} was admitted"),
        Err(error) => {
            let text = error.root_cause().to_string();
            ensure!(
                text.contains("stowplan: ") && text.contains(word),
                "{file} was not refused by stowplan: {text}",
            );
            Ok(wrapped(&text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_gives_its_reasons() {
        let record = r#"{"v":1,"streams":["host=10.4.40.83: node foo","b"],"more":0}"#;
        assert_eq!(reasons(record).unwrap(), ["host=10.4.40.83: node foo", "b"]);
        assert!(reasons(r#"{"v":1,"streams":[],"more":0}"#).is_err());
        assert!(reasons("{").is_err());
    }
}
