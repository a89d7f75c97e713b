//! `stowplan check`: why a pod, a job, a pool or a Tekton run is where it is, or is not.
//!
//! The cluster is read once, and everything is told from that: what was asked, what was decided, what
//! the scheduler says, which node or pool member is in the way, and what to do about it.

mod cluster;
mod diagnose;
mod nodes;
mod run;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::Context as _;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::{input, live};

/// Something is in the way.
const OBSTACLE: u8 = 1;

/// What `stowplan check` is told.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit code: 0 nothing is in the way, 1 something is, 2 the object is not there or the cluster cannot be read.

Examples:
  # Why a pod waits, in the cluster of the current kubeconfig context
  stowplan check pod/parallel-0-ioyms -n streams

  # A whole job: its StreamsJob, its pools and its pods
  stowplan check job/parallel -n streams

  # Why a pool is not ready
  stowplan check pool/my-pool

  # Why a Tekton run waits: its groups, their placeholders, its pods and its claims
  stowplan check pipelinerun/image -n builds

  # From what somebody else has sent
  kubectl get nodes,pods,hostpools,streamsjobs -n streams -o yaml > cluster.yaml
  stowplan check pod/parallel-0-ioyms -n streams --cluster cluster.yaml

  # The remedies, for a script
  stowplan check job/parallel -o json | jq -r '.. | .remedy? // empty'")]
pub(super) struct Arguments {
    /// What to look at: pod/NAME, job/NAME, pool/NAME or pipelinerun/NAME
    #[arg(value_name = "KIND/NAME")]
    object: Asked,
    /// Its namespace [default: the context's, or default with --cluster]
    #[arg(short, long, value_name = "NAMESPACE", value_parser = NonEmptyStringValueParser::new())]
    namespace: Option<String>,
    /// Kubernetes objects, files or folders, instead of the cluster of the current kubeconfig context
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

/// The object that is asked about.
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

/// What is known of an object.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Diagnosis {
    kind: &'static str,
    namespace: String,
    name: String,
    /// Where it is: a node, a pool's members, or a claim's volume.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    placed: Vec<String>,
    /// What was asked for: annotations, or the object's spec in short.
    asked: Vec<String>,
    /// What stowplan made of it.
    decided: Vec<String>,
    /// What the scheduler says.
    #[serde(skip_serializing_if = "Option::is_none")]
    scheduler: Option<String>,
    /// What is in the way.
    obstacles: Vec<Obstacle>,
    /// What belongs to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<Self>,
}

/// Something that is in the way, and what to do about it.
#[derive(Debug, Eq, PartialEq, Serialize)]
struct Obstacle {
    what: String,
    remedy: String,
}

impl Diagnosis {
    fn has_obstacle(&self) -> bool {
        !self.obstacles.is_empty() || self.parts.iter().any(Self::has_obstacle)
    }

    fn object(&mut self, what: impl Into<String>, remedy: impl Into<String>) {
        let obstacle = Obstacle { what: what.into(), remedy: remedy.into() };
        if !self.obstacles.contains(&obstacle) {
            self.obstacles.push(obstacle);
        }
    }
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let policy = input::policy(arguments.policy.as_deref())?;
    let (cluster, namespace) = if arguments.cluster.is_empty() {
        let rooms = arguments.object.kind == Kind::Run;
        let whole = live::read_whole(arguments.namespace.as_deref(), rooms)?;
        whole.warnings.iter().for_each(|warning| super::complain(warning));
        (whole.cluster, whole.namespace)
    } else {
        (cluster::from_files(&arguments.cluster)?, "default".to_owned())
    };
    let namespace = arguments.namespace.clone().unwrap_or(namespace);
    let Asked { kind, name } = &arguments.object;
    let diagnosis = match kind {
        Kind::Pod => diagnose::pod(&cluster, &policy, &namespace, name),
        Kind::Job => diagnose::job(&cluster, &policy, &namespace, name),
        Kind::Pool => diagnose::pool(&cluster, &namespace, name),
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
        Format::Text => super::printable(&text(&diagnosis)),
        Format::Json => format!("{}\n", serde_json::to_string_pretty(&diagnosis)?),
    };
    super::print(&output)?;
    Ok(if diagnosis.has_obstacle() { ExitCode::from(OBSTACLE) } else { ExitCode::SUCCESS })
}

pub(super) use cluster::Cluster;

/// A diagnosis for people.
fn text(diagnosis: &Diagnosis) -> String {
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
    // Of a part that waits for what is told elsewhere, "none" would mislead.
    let waits = !indent.is_empty() && diagnosis.kind == "Pod" && diagnosis.placed.is_empty();
    if !diagnosis.has_obstacle() && !waits {
        row("obstacle", &["none".to_owned()]);
    }
    let inner = format!("{indent}  ");
    for part in &diagnosis.parts {
        write(text, part, &inner);
    }
}
