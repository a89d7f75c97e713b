//! `stowplan check`: why a pod, a job, a pool or a Tekton run waits, and what to do about it.
//!
//! The cluster is read once. A diagnosis shows the requests of the object, the decisions of
//! stowplan, the message of the scheduler, and each obstacle with its remedy. This module decides
//! nothing: whether a node takes a pod is decided by `systems::fit`, which the reconcilers use,
//! too.

mod cluster;
mod gates;
mod group;
mod pod;
mod reconciler;
mod run;
mod streams;
mod words;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::Context as _;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::{input, live};

/// The exit code if there is an obstacle.
const OBSTACLE: u8 = 1;

/// The arguments of `stowplan check`.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit code: 0 no obstacle, 1 an obstacle, 2 the object does not exist or the cluster cannot be read.

Examples:
  # Why a pod waits, in the cluster of the current kubeconfig context
  stowplan check pod/parallel-0-ioyms -n streams

  # A whole job: its StreamsJob, its pools and its pods
  stowplan check job/parallel -n streams

  # Why a pool is not ready
  stowplan check pool/my-pool

  # Why a Tekton run waits: its groups, their placeholders, its pods and its claims
  stowplan check pipelinerun/image -n builds

  # From objects that another user has sent
  kubectl get nodes,pods,hostpools,streamsjobs -n streams -o yaml > cluster.yaml
  stowplan check pod/parallel-0-ioyms -n streams --cluster cluster.yaml

  # The remedies, for a script
  stowplan check job/parallel -o json | jq -r '.. | .remedy? // empty'")]
pub(super) struct Arguments {
    /// The object: pod/NAME, job/NAME, pool/NAME or pipelinerun/NAME
    #[arg(value_name = "KIND/NAME")]
    object: Asked,
    /// Its namespace [default: the context's, or default with --cluster]
    #[arg(short, long, value_name = "NAMESPACE", value_parser = NonEmptyStringValueParser::new())]
    namespace: Option<String>,
    /// Kubernetes objects, files or folders, instead of the cluster of the current kubeconfig
    /// context
    #[arg(long, value_name = "PATH", num_args = 1..)]
    cluster: Vec<PathBuf>,
    /// The policy file; without it, the defaults
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// The form of the output
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// A Diagnosis, for scripts
    Json,
}

/// The object that the user asks about.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Asked {
    kind: Kind,
    name: String,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Pod,
    Job,
    Pool,
    Run,
}

impl FromStr for Asked {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, name) = text
            .split_once('/')
            .filter(|(_, name)| !name.is_empty() && !name.contains('/'))
            .ok_or("write KIND/NAME, as pod/parallel-0")?;
        let kind = match kind {
            "pod" | "pods" | "po" => Kind::Pod,
            "job" | "streamsjob" | "streamsjobs" | "sj" => Kind::Job,
            "pool" | "hostpool" | "hostpools" | "hp" => Kind::Pool,
            "run" | "pipelinerun" | "pipelineruns" | "pr" | "prs" => Kind::Run,
            _ => return Err("KIND is one of pod, job, pool and pipelinerun".to_owned()),
        };
        Ok(Self { kind, name: name.to_owned() })
    }
}

/// The result for one object, and for its parts.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Diagnosis {
    kind: &'static str,
    namespace: String,
    name: String,
    /// Where the object is placed: the node of a pod, the members of a pool, or the volume of a
    /// claim.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    placed: Vec<String>,
    /// The requests: annotations, or the object's spec in short.
    asked: Vec<String>,
    /// The decisions of stowplan.
    decided: Vec<String>,
    /// The message of the scheduler.
    #[serde(skip_serializing_if = "Option::is_none")]
    scheduler: Option<String>,
    /// Why the object waits.
    obstacles: Vec<Obstacle>,
    /// The diagnoses of the objects that belong to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<Self>,
}

/// A reason why an object waits, and the remedy.
#[derive(Debug, Eq, PartialEq, Serialize)]
struct Obstacle {
    what: String,
    remedy: String,
}

impl Diagnosis {
    fn has_obstacle(&self) -> bool {
        !self.obstacles.is_empty() || self.parts.iter().any(Self::has_obstacle)
    }

    /// Adds an obstacle, unless the same one was added before.
    fn report(&mut self, what: impl Into<String>, remedy: impl Into<String>) {
        let obstacle = Obstacle { what: what.into(), remedy: remedy.into() };
        if !self.obstacles.contains(&obstacle) {
            self.obstacles.push(obstacle);
        }
    }
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let policy = input::read_policy(arguments.policy.as_deref())?;
    let (cluster, namespace) = if arguments.cluster.is_empty() {
        let with_all_pods = arguments.object.kind == Kind::Run;
        let live = live::read_for_check(arguments.namespace.as_deref(), with_all_pods)?;
        live.warnings.iter().for_each(|warning| super::print_notice(warning));
        (live.cluster, live.namespace)
    } else {
        (cluster::from_files(&arguments.cluster)?, "default".to_owned())
    };
    let namespace = arguments.namespace.clone().unwrap_or(namespace);
    let Asked { kind, name } = &arguments.object;
    let diagnosis = match kind {
        Kind::Pod => pod::pod(&cluster, &policy, &namespace, name),
        Kind::Job => streams::job(&cluster, &policy, &namespace, name),
        Kind::Pool => streams::pool(&cluster, &namespace, name),
        Kind::Run => run::pipeline_run(&cluster, &policy, &namespace, name),
    };
    let what = match kind {
        Kind::Pod => "pod",
        Kind::Job => "StreamsJob, and no pod with the label streams.ibm.com/job,",
        Kind::Pool => "HostPool",
        Kind::Run => "PipelineRun",
    };
    let diagnosis = diagnosis
        .with_context(|| format!("namespace {namespace} has no {what} {name} (another one: -n)"))?;
    let output = match arguments.output {
        Format::Text => super::escape_for_terminal(&format_text(&diagnosis)),
        Format::Json => format!("{}\n", serde_json::to_string_pretty(&diagnosis)?),
    };
    super::print(&output)?;
    Ok(if diagnosis.has_obstacle() { ExitCode::from(OBSTACLE) } else { ExitCode::SUCCESS })
}

pub(super) use cluster::Cluster;

/// Formats a diagnosis for people.
fn format_text(diagnosis: &Diagnosis) -> String {
    let mut text = String::new();
    write(&mut text, diagnosis, "");
    text
}

fn write(text: &mut String, diagnosis: &Diagnosis, indent: &str) {
    let Diagnosis { kind, namespace, name, .. } = diagnosis;
    let _ = writeln!(text, "{indent}{kind} {namespace}/{name}");
    let mut row = |title: &str, rows: &[String]| {
        for (index, row) in rows.iter().enumerate() {
            let title = if index == 0 { title } else { "" };
            let _ = writeln!(text, "{indent}  {title:<10} {row}");
        }
    };
    row("placed", &diagnosis.placed);
    row("asked", &diagnosis.asked);
    row("decided", &diagnosis.decided);
    row("scheduler", diagnosis.scheduler.as_slice());
    for Obstacle { what, remedy } in &diagnosis.obstacles {
        row("obstacle", std::slice::from_ref(what));
        row("remedy", std::slice::from_ref(remedy));
    }
    // A part may wait for an obstacle that is reported elsewhere: "none" would mislead.
    let waits = !indent.is_empty() && diagnosis.kind == "Pod" && diagnosis.placed.is_empty();
    if !diagnosis.has_obstacle() && !waits {
        row("obstacle", &["none".to_owned()]);
    }
    let inner = format!("{indent}  ");
    for part in &diagnosis.parts {
        write(text, part, &inner);
    }
}
