//! `stowplan check`: why a pod, a workload, a job, a pool, a group, a Tekton run or an MPI cluster waits,
//! and what to do about it; without an object, the [installation] of stowplan.
//!
//! The cluster is read once. A diagnosis shows the requests of the object, the decisions of
//! stowplan, the message of the scheduler, and each obstacle with its remedy. Each system diagnoses
//! its own kinds (`systems::check`); this module reads, diagnoses pods, workloads and nodes as far as
//! all systems have that in common, and prints.

mod files;
pub(crate) mod installation;
mod live;
mod namespace;
mod node;
mod pod;
mod text;
mod workload;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{bail, ensure};
use clap::{Args, ValueEnum};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::live::{Access, parse_namespace};
use super::page::Painter;
use super::progress::Progress;
use super::{block_on, input, parse_duration, print_notice};
pub(super) use namespace::diagnose_everything;
pub(super) use pod::CHECKS_OF_WAITING;
use stowplan_core::systems::DIAGNOSTICS;
use stowplan_core::systems::check::{CheckedKind, Cluster, Context, Diagnosis};
use stowplan_core::systems::policy::Policy;
use stowplan_core::view::Name;
use workload::{WORKLOADS, Workload};

/// The arguments of `stowplan check`.
#[derive(Args, Debug)]
#[command(after_help = "\
Without an object the installation of stowplan is checked: webhooks, certificates, policy, versions,
rights. With -n or -A everything in the namespaces is checked, and shown if it has an obstacle.

job/NAME is a StreamsJob or, if there is none, a batch Job; jobs.batch/NAME is always a batch Job.

Exit code: 0 no obstacle (of the installation: no problem), 1 an obstacle or a problem, 2 the object
does not exist or the cluster cannot be read.

Examples:
  # Check the installation; the second one also creates a test pod (dry run)
  stowplan check
  stowplan check --try-in default

  # The same for a script: what is wrong, and what to do
  stowplan check -o json | jq -r '.items[] | select(.state == \"problem\") | .remedy'

  # Why a pod waits, in the cluster of the current kubeconfig context
  stowplan check pod/parallel-0-ioyms -n streams

  # What waits in a namespace, and in all of them
  stowplan check -n streams
  stowplan check -A

  # A whole job: its StreamsJob, its pools and its pods
  stowplan check job/parallel -n streams

  # Why a pool is not ready, and which pools have a node
  stowplan check pool/my-pool
  stowplan check node/node-7

  # Why a Tekton run waits: its groups, their placeholders, its pods and its claims
  stowplan check pipelinerun/image -n builds

  # Why the pods of a coscheduled group wait
  stowplan check group/nightly -n builds

  # Why the launcher of an MPI cluster waits
  stowplan check mpi/pi

  # Why a pod with Katalyst's NUMA affinity waits, and the pods on each NUMA node of a node
  stowplan check pod/worker-2 -n training
  stowplan check node/node-7

  # From objects that another user has sent
  kubectl get nodes,pods,hostpools,streamsjobs -n streams -o yaml > cluster.yaml
  stowplan check pod/parallel-0-ioyms -n streams --cluster cluster.yaml

  # The remedies, for a script
  stowplan check job/parallel -o json | jq -r '.. | .remedy? // empty'")]
pub(super) struct Arguments {
    /// The object: pod/NAME, deployment/NAME, replicaset/NAME, statefulset/NAME, daemonset/NAME,
    /// cronjob/NAME, job/NAME, replicationcontroller/NAME, pool/NAME, pipelinerun/NAME, group/NAME,
    /// mpi/NAME or node/NAME [default: the installation, or with -n or -A everything in the
    /// namespaces]
    #[arg(value_name = "KIND/NAME")]
    object: Option<Asked>,
    /// Its namespace [default: the context's, or default with --cluster]
    #[arg(short, long, value_name = "NAMESPACE", value_parser = parse_namespace)]
    namespace: Option<String>,
    /// Check all namespaces
    #[arg(short = 'A', long, conflicts_with_all = ["object", "namespace"])]
    all_namespaces: bool,
    /// Kubernetes objects, files or folders, instead of the cluster of the current kubeconfig
    /// context
    #[arg(long, value_name = "PATH", num_args = 1..)]
    cluster: Vec<PathBuf>,
    #[command(flatten)]
    access: Access,
    /// The policy file [default: the cluster's policy, or with --cluster all defaults]
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// The form of the output
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Format,
    /// The namespace in which stowplan is installed [default: that of its webhook configurations]
    #[arg(long, value_name = "NAMESPACE", value_parser = parse_namespace,
        conflicts_with_all = OF_OBJECTS)]
    installed_in: Option<String>,
    /// A namespace in which a test pod is created (dry run): it has to be placed, or the exit code is 1
    #[arg(long, value_name = "NAMESPACE", value_parser = parse_namespace,
        conflicts_with_all = OF_OBJECTS)]
    try_in: Option<String>,
    /// How long to wait until the installation has no problem
    #[arg(long, value_name = "DURATION", value_parser = parse_duration,
        conflicts_with_all = OF_OBJECTS)]
    wait: Option<Duration>,
}

/// The arguments with which objects are checked instead of the installation.
const OF_OBJECTS: [&str; 5] = ["object", "namespace", "all_namespaces", "cluster", "policy"];

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// A Diagnosis, or an Installation with its items, for scripts
    Json,
}

/// The object that the user asks about.
#[derive(Clone, Debug)]
struct Asked {
    /// The kinds that have this name; the first that has the object counts.
    kinds: Vec<Kind>,
    name: String,
}

/// A kind of objects on the command line.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// Pods, nodes, or a kind that a system diagnoses.
    Checked(&'static CheckedKind),
    Workload(&'static Workload),
}

impl Kind {
    /// All kinds, in the order of precedence.
    fn all() -> impl Iterator<Item = Self> {
        let checked = [&pod::KIND].into_iter().chain(checked_kinds()).map(Self::Checked);
        let workloads = WORKLOADS.iter().map(Self::Workload);
        checked.chain(workloads).chain([Self::Checked(&node::KIND)])
    }

    fn names(self) -> &'static [&'static str] {
        match self {
            Self::Checked(kind) => kind.names,
            Self::Workload(workload) => workload.names,
        }
    }

    /// Returns the word for what is missing if the object does not exist.
    fn missing(self) -> &'static str {
        match self {
            Self::Checked(kind) => kind.missing,
            Self::Workload(workload) => workload.kind(),
        }
    }

    /// A name that no other kind has.
    fn own_name(self) -> &'static str {
        let is_own = |name: &&&str| Self::all().filter(|of| of.names().contains(name)).count() == 1;
        self.names().iter().find(is_own).copied().unwrap_or_default()
    }
}

/// The kinds that the systems diagnose.
fn checked_kinds() -> impl Iterator<Item = &'static CheckedKind> {
    DIAGNOSTICS.iter().flat_map(|system| system.checks)
}

impl FromStr for Asked {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, name) = text
            .split_once('/')
            .filter(|(_, name)| !name.is_empty() && !name.contains('/'))
            .ok_or("write KIND/NAME, as pod/parallel-0")?;
        let kinds: Vec<Kind> = Kind::all().filter(|of| of.names().contains(&kind)).collect();
        if kinds.is_empty() {
            return Err(format!("KIND is one of {}", format_kinds()));
        }
        Ok(Self { kinds, name: name.to_owned() })
    }
}

/// The first name of each kind, for people.
fn format_kinds() -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in Kind::all().filter_map(|kind| kind.names().first()) {
        if !names.contains(name) {
            names.push(name);
        }
    }
    let last = names.pop().unwrap_or_default();
    format!("{} and {last}", names.join(", "))
}

/// A cluster with what can be diagnosed.
pub(super) struct Read {
    pub(super) cluster: Cluster,
    pub(super) policy: Policy,
    /// The documents of workloads.
    pub(super) workloads: Vec<Value>,
    /// All documents of the files, if files were read.
    pub(super) documents: Vec<Value>,
    /// The namespace that is asked about, unless all are.
    namespace: String,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let is_about_objects = arguments.object.is_some()
        || arguments.namespace.is_some()
        || arguments.all_namespaces
        || !arguments.cluster.is_empty();
    if !is_about_objects {
        let problem = "--policy is for the check of objects: name one, or give -n or -A";
        ensure!(arguments.policy.is_none(), problem);
        return installation::run(arguments);
    }
    let Read { cluster, policy, workloads, namespace, .. } = read(&Sources {
        files: &arguments.cluster,
        access: &arguments.access,
        namespace: arguments.namespace.as_deref(),
        all_namespaces: arguments.all_namespaces,
        policy: arguments.policy.as_deref(),
        kinds: arguments.object.as_ref().map(|asked| asked.kinds.as_slice()),
    })?;
    let context =
        Context { cluster: &cluster, policy: &policy, now: Timestamp::now(), pods: pod::CHECKS };
    let progress = Progress::begin("diagnosing");
    let diagnosis = match &arguments.object {
        Some(asked) => diagnose(&context, &workloads, &namespace, asked)?,
        None => {
            let namespace = (!arguments.all_namespaces).then_some(&*namespace);
            diagnose_everything(&context, &workloads, namespace)?
        }
    };
    drop(progress);
    let output = match arguments.output {
        Format::Text => text::format(&diagnosis, Painter::of_stdout()),
        Format::Json => format!("{}\n", serde_json::to_string_pretty(&diagnosis)?),
    };
    super::print(&output)?;
    Ok(if diagnosis.has_obstacle() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The cluster that is read, or the files in its place.
pub(super) struct Sources<'s> {
    /// Files and folders; empty: the cluster of a kubeconfig context.
    pub(super) files: &'s [PathBuf],
    pub(super) access: &'s Access,
    /// The namespace whose objects are asked for; `None`: that of the kubeconfig context.
    pub(super) namespace: Option<&'s str>,
    /// True if the objects of all namespaces are asked for.
    pub(super) all_namespaces: bool,
    /// The policy file.
    pub(super) policy: Option<&'s Path>,
    /// The kinds that are asked about; `None`: all.
    pub(super) kinds: Option<&'s [Kind]>,
}

/// Reads what can be diagnosed.
pub(super) fn read(sources: &Sources<'_>) -> anyhow::Result<Read> {
    let Sources { files, access, namespace, policy, .. } = *sources;
    input::ensure_other_stdin(policy, files)?;
    let policy = input::read_policy(policy)?;
    if !files.is_empty() {
        access.ensure_unused(
            "--context and --kubeconfig name a cluster, and --cluster reads files instead",
        )?;
        let (cluster, documents) = files::read(files)?;
        let is_workload = |of: &&Value| WORKLOADS.iter().any(|workload| workload.is_document(of));
        let workloads = documents.iter().filter(is_workload).cloned().collect();
        let policy = policy.unwrap_or_default();
        let namespace = namespace.unwrap_or("default").to_owned();
        return Ok(Read { cluster, policy, workloads, documents, namespace });
    }
    block_on(live::read(sources, policy))?
}

/// Diagnoses the object that is asked for. If several kinds have the name and the object, the others
/// are named.
fn diagnose(
    context: &Context<'_>,
    workloads: &[Value],
    namespace: &str,
    asked: &Asked,
) -> anyhow::Result<Diagnosis> {
    let key = Name::new(namespace, &asked.name);
    let find = |kind: &Kind| match kind {
        Kind::Checked(kind) => (kind.check)(context, &key),
        Kind::Workload(workload) => workload.diagnose(context, workloads, &key),
    };
    let mut found = asked.kinds.iter().filter_map(|kind| Some((kind, find(kind)?)));
    if let Some((_, diagnosis)) = found.next() {
        for (kind, _) in found {
            print_notice(&format!(
                "namespace {namespace} also has a {} {1}: stowplan check {2}/{1}",
                kind.missing(),
                asked.name,
                kind.own_name()
            ));
        }
        return Ok(diagnosis);
    }
    let missing: Vec<&str> = asked.kinds.iter().map(|kind| kind.missing()).collect();
    let missing = missing.join(" and no ");
    if missing == node::KIND.missing {
        match context.cluster.has_no_nodes() {
            true => bail!("no node is known, so {} cannot be checked", asked.name),
            false => bail!("the cluster has no node {}", asked.name),
        }
    }
    bail!("namespace {namespace} has no {missing} {} (-n names another namespace)", asked.name)
}

#[cfg(test)]
mod tests {
    use clap::Args as _;

    use super::*;

    #[test]
    fn each_kind_is_found_by_each_of_its_names_and_is_in_the_help() {
        let help = Arguments::augment_args(clap::Command::new("check")).render_help().to_string();
        for kind in Kind::all() {
            for name in kind.names() {
                let asked: Asked = format!("{name}/x").parse().unwrap();
                let missing: Vec<&str> = asked.kinds.iter().map(|of| of.missing()).collect();
                assert!(missing.contains(&kind.missing()), "{name}: {missing:?}");
            }
            assert!(help.contains(&format!("{}/NAME", kind.names()[0])), "{:?}", kind.names());
            assert!(!kind.own_name().is_empty(), "{:?}", kind.names());
        }
    }

    #[test]
    fn a_word_without_a_known_kind_or_with_more_parts_is_refused() {
        for text in ["", "pod", "pod/", "pod/a/b"] {
            let problem = text.parse::<Asked>().unwrap_err();
            assert!(problem.starts_with("write KIND/NAME, as pod/parallel-0"), "{text}: {problem}");
        }
        assert!("/x".parse::<Asked>().unwrap_err().starts_with("KIND is one of pod, job, "));
    }
}
