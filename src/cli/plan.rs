//! `stowplan plan`: how the pods in files would be placed, and why.
//!
//! Each object is processed as in a cluster: the pod that its controller would create is built, a
//! review of that pod, and the decision on the review comes from the same
//! [`decide`](stowplan_core::admission::decide) as in the webhook.

mod definition;
mod entry;
mod patch;
mod planner;
mod prepare;
pub(super) mod settle;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::{Args, ValueEnum};
use k8s_openapi::jiff::Timestamp;

use super::input::{self, Generator, Problems};
use super::live::{self, Access, Live, parse_namespace};
use super::page::Painter;
use super::report::{self, Planned};
use super::{block_on, print_notice, yaml};
use entry::{Entry, Statuses};
use patch::apply_patches;
use planner::Planner;
use settle::Stage;
use stowplan_core::admission::Decision;
use stowplan_core::systems::find_wholes;
use stowplan_core::systems::preview::{NO_CLUSTER, Whole};

/// The exit code if nothing is refused, and the answer about something is not known.
const UNKNOWN: u8 = 3;

/// The arguments of `stowplan plan`.
#[derive(Args, Debug)]
#[command(after_help = "\
Planned are pods and all objects that create pods: Deployments, ReplicaSets, StatefulSets (ordinal
0, and its claims), Jobs (index 0), CronJobs, DaemonSets (one of their nodes),
ReplicationControllers, PodTemplates, and pod templates in objects of other kinds. The controllers
of these are not played: what such a pod is refused for may be what its controller adds. A
StreamsJob is checked together with its pods in the input. For a Tekton PipelineRun, its groups, its
claims and the pods of its tasks are shown. HostPools, StreamsJobs, Namespaces, PipelineRuns,
Pipelines, claims, volumes and storage classes in the input count as part of the cluster; pools and
jobs have the members that the controller would choose now. Objects are planned in their order: a
pod, a pool or a job counts as existing for those after it.

With --live the cluster's policy is read, and everything in all namespaces that the user may list,
else in one namespace; a note says which right is missing.

Exit code: 0 all admitted, 1 something is refused, 2 input that cannot be read, 3 nothing is refused
and the answer about something with keys of stowplan is not known.

Examples:
  # In the cluster of the current kubeconfig context
  stowplan plan -f job.yaml --live

  # In another context, and a namespace to which the user's rights are limited
  stowplan plan -f job.yaml --live --context test -n streams

  # Without a cluster: nodes and pools come from files
  kubectl get nodes,hostpools -A -o yaml > cluster.yaml
  stowplan plan -f job.yaml --cluster cluster.yaml

  # What helm would install, in that namespace
  helm template my-job ./chart | stowplan plan -f - -n streams --cluster cluster.yaml

  # The reasons of all refusals, for a script
  stowplan plan -f jobs/ --live -o json |
    jq -r '.items[] | select(.allowed or .unknown | not) | .reason'

  # Which tasks of a Tekton run share a node, and with which volumes
  stowplan plan -f run.yaml --live

  # Which NUMA nodes a pod with Katalyst's NUMA affinity can use, and which pods forbid the others
  stowplan plan -f worker.yaml --live

  # Place pods without a webhook in the cluster
  stowplan plan -f job.yaml --live -o yaml | kubectl apply -f -")]
pub(super) struct Arguments {
    /// Objects to plan, YAML or JSON: files, folders (not those inside them), or - for standard
    /// input
    #[arg(short, long = "filename", value_name = "PATH", num_args = 1.., required = true)]
    filename: Vec<PathBuf>,
    /// Kubernetes objects (nodes, HostPools, namespaces, pods, storage classes,
    /// CustomNodeResources), files or folders
    #[arg(long, value_name = "PATH", num_args = 1.., conflicts_with = "live")]
    cluster: Vec<PathBuf>,
    /// Read the cluster of the current kubeconfig context
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    access: Access,
    /// The policy file [default: with --live the cluster's policy, else all defaults]
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// The namespace of objects that name none [default: with --live the context's, else default]
    #[arg(short, long, value_name = "NAMESPACE", value_parser = parse_namespace)]
    namespace: Option<String>,
    /// The form of the output
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// The changes of each object and why, or all its problems
    Text,
    /// A PlanList: all details, for scripts
    Json,
    /// The input after placement; refused objects stay unchanged and are reported on standard error
    Yaml,
    /// A list of objects, each with its JSON patch; refused objects are reported on standard error
    Patch,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let reads_stdin = |paths: &[PathBuf]| paths.iter().any(|path| input::is_stdin(path));
    ensure!(
        !(reads_stdin(&arguments.filename) && reads_stdin(&arguments.cluster)),
        "both -f and --cluster are -, and standard input can be read once"
    );
    if !arguments.live {
        arguments.access.ensure_unused("--context and --kubeconfig need --live")?;
    }
    let others = [&arguments.filename[..], &arguments.cluster[..]].concat();
    input::ensure_other_stdin(arguments.policy.as_deref(), &others)?;
    let policy = input::read_policy(arguments.policy.as_deref())?;
    let mut problems = Problems::default();
    let mut names = Generator::default();
    let documents = input::read_documents(&arguments.filename, &mut problems);
    let mut entries = entry::read(&documents, &mut names, &mut problems);
    problems.into_result()?;
    input::ensure_objects(&documents, &arguments.filename)?;

    let settles = entries.iter().any(Entry::is_settled);
    let mut stage = settles.then(Stage::default);
    let mut statuses = Statuses::new(&entries);
    let mut keep = |document| {
        statuses.keep(&document);
        if let Some(stage) = &mut stage {
            stage.add(document);
        }
    };
    let given = arguments.namespace.as_deref();
    let wanted = live::Wanted {
        policy,
        explanation: entries.iter().any(Entry::is_explained),
        pods: settles,
        keep: &mut keep,
    };
    let Live { mut view, policy, namespace, unknown } =
        read_cluster(arguments, &mut names, wanted)?;
    let mut planner = Planner {
        documents: &documents,
        given,
        namespace: given.unwrap_or(&namespace),
        has_cluster: arguments.live || !arguments.cluster.is_empty(),
        unknown: unknown.as_deref(),
        policy: &policy,
        now: Timestamp::now(),
        statuses,
        problems: Problems::default(),
        creators: Vec::new(),
        others: 0,
    };
    planner.add_to_view(&mut entries, &mut view, stage);
    let decided = entries.iter_mut().flat_map(|entry| planner.decide(entry, &mut view));
    let planned: Vec<_> = decided.collect();
    let wholes = find_wholes(&view, planner.policy, planner.now, &planner.creators);
    planner.problems.into_result()?;
    print_planned(arguments.output, &documents, planned, &wholes, planner.others)
}

/// Reads the cluster, or the files in its place.
fn read_cluster(
    arguments: &Arguments,
    names: &mut Generator,
    wanted: live::Wanted<'_>,
) -> anyhow::Result<Live> {
    if arguments.live {
        let namespace = arguments.namespace.as_deref();
        return block_on(live::read(&arguments.access, namespace, wanted))?.context("--live");
    }
    let view = input::read_cluster(&arguments.cluster, names, wanted.keep)?;
    let unknown = arguments.cluster.is_empty().then(|| NO_CLUSTER.to_owned());
    let (policy, namespace) = (wanted.policy.unwrap_or_default(), "default".to_owned());
    Ok(Live { view, policy, namespace, unknown })
}

/// Prints the result. Returns the exit code.
fn print_planned(
    format: Format,
    documents: &[input::Document],
    mut planned: Vec<Planned<'_>>,
    wholes: &[Whole],
    others: usize,
) -> anyhow::Result<ExitCode> {
    let assumed: Vec<(String, String)> =
        planned.iter().flat_map(|planned| planned.preview.assumed.iter().cloned()).collect();
    // A name that depends on a UID which does not exist yet means nothing to people.
    let name_assumed = |text: String, show: fn(&str) -> String| {
        assumed
            .iter()
            .fold(text, |text, (name, of)| text.replace(name, &show(&format!("<hash of {of}>"))))
    };
    if matches!(format, Format::Yaml | Format::Patch) {
        for planned in &mut planned {
            let patch = serde_json::to_string(&planned.patch)?;
            let needed = assumed.iter().find(|(name, _)| patch.contains(name.as_str()));
            if let Some((_, of)) = needed {
                planned.withheld = Some(of.clone());
                planned.patch.clear();
            }
        }
        planned.iter().flat_map(report::format_remarks).for_each(|remark| print_notice(&remark));
        wholes.iter().filter_map(report::format_problem).for_each(|problem| print_notice(&problem));
    }
    let output = match format {
        Format::Text => {
            let text = report::text::format(&planned, wholes, others, Painter::of_stdout());
            name_assumed(text, super::escape_for_terminal)
        }
        Format::Json => {
            let list = serde_json::to_string_pretty(&report::list::build_list(&planned, wholes))?;
            format!("{}\n", name_assumed(list, str::to_owned))
        }
        Format::Yaml => yaml::write(&apply_patches(documents, &planned)?)?,
        Format::Patch => {
            format!("{}\n", serde_json::to_string_pretty(&report::list::build_patches(&planned))?)
        }
    };
    super::print(&output)?;
    Ok(find_exit_code(&planned, wholes))
}

/// Returns the exit code. A refusal counts more than an answer that is not known.
fn find_exit_code(planned: &[Planned<'_>], wholes: &[Whole]) -> ExitCode {
    let is_refused = |planned: &Planned<'_>| {
        let is_refused = matches!(planned.decision, Decision::Refuse(_)) && !planned.is_unknown();
        is_refused || planned.withheld.is_some()
    };
    if planned.iter().any(is_refused) || wholes.iter().any(|whole| whole.is_refused) {
        ExitCode::FAILURE
    } else if planned.iter().any(Planned::is_unknown) {
        ExitCode::from(UNKNOWN)
    } else {
        ExitCode::SUCCESS
    }
}
