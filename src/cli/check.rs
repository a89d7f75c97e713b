//! `stowplan check`: why a pod, a job, a pool or a Tekton run waits, and what to do about it.
//!
//! The cluster is read once. A diagnosis shows the requests of the object, the decisions of
//! stowplan, the message of the scheduler, and each obstacle with its remedy. Each system diagnoses
//! its own kinds (`systems::check`); this module reads, diagnoses pods as far as all systems have
//! that in common, and prints.

mod files;
mod pod;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::Context as _;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use k8s_openapi::jiff::Timestamp;

use super::{input, live};
use crate::systems::SYSTEMS;
use crate::systems::check::{CheckedKind, Context, Diagnosis, Obstacle};
use crate::view::Name;

/// The exit code if there is an obstacle.
const OBSTACLE: u8 = 1;

/// The names of pods on the command line.
const POD_NAMES: [&str; 3] = ["pod", "pods", "po"];

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
#[derive(Clone, Debug)]
struct Asked {
    /// `None`: a pod.
    kind: Option<&'static CheckedKind>,
    name: String,
}

/// The kinds that the systems diagnose.
fn checked_kinds() -> impl Iterator<Item = &'static CheckedKind> {
    SYSTEMS.iter().flat_map(|system| system.checks)
}

impl FromStr for Asked {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, name) = text
            .split_once('/')
            .filter(|(_, name)| !name.is_empty() && !name.contains('/'))
            .ok_or("write KIND/NAME, as pod/parallel-0")?;
        let kind = match checked_kinds().find(|of| of.names.contains(&kind)) {
            None if POD_NAMES.contains(&kind) => None,
            None => return Err(format!("KIND is one of {}", format_kinds())),
            found => found,
        };
        Ok(Self { kind, name: name.to_owned() })
    }
}

/// The first name of each kind, for people.
fn format_kinds() -> String {
    let names = checked_kinds().filter_map(|kind| kind.names.first());
    let names: Vec<&str> = POD_NAMES.iter().take(1).chain(names).copied().collect();
    match names.split_last() {
        Some((last, first)) if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => names.concat(),
    }
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let policy = input::read_policy(arguments.policy.as_deref())?;
    let Asked { kind, name } = &arguments.object;
    let (cluster, namespace) = if arguments.cluster.is_empty() {
        let with_all_pods = kind.is_some_and(|kind| kind.needs_all_pods);
        let live = live::read_for_check(arguments.namespace.as_deref(), with_all_pods)?;
        live.warnings.iter().for_each(|warning| super::print_notice(warning));
        (live.cluster, live.namespace)
    } else {
        (files::read(&arguments.cluster)?, "default".to_owned())
    };
    let namespace = arguments.namespace.clone().unwrap_or(namespace);
    let context =
        Context { cluster: &cluster, policy: &policy, now: Timestamp::now(), pods: pod::CHECKS };
    let key = Name::new(&namespace, name);
    let (diagnosis, missing) = match kind {
        Some(kind) => ((kind.check)(&context, &key), kind.missing),
        None => {
            let pod = cluster.pod(&namespace, name);
            (pod.map(|pod| pod::diagnose(&context, &key, pod)), "pod")
        }
    };
    let diagnosis = diagnosis.with_context(|| {
        format!("namespace {namespace} has no {missing} {name} (another one: -n)")
    })?;
    let output = match arguments.output {
        Format::Text => super::escape_for_terminal(&format_text(&diagnosis)),
        Format::Json => format!("{}\n", serde_json::to_string_pretty(&diagnosis)?),
    };
    super::print(&output)?;
    Ok(if diagnosis.has_obstacle() { ExitCode::from(OBSTACLE) } else { ExitCode::SUCCESS })
}

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

#[cfg(test)]
mod tests {
    use clap::Args as _;

    use super::*;

    #[test]
    fn each_kind_is_found_by_each_of_its_names_and_is_in_the_help() {
        let help = Arguments::augment_args(clap::Command::new("check")).render_help().to_string();
        assert!(help.contains("pod/NAME"), "{help}");
        for kind in checked_kinds() {
            for name in kind.names {
                let asked: Asked = format!("{name}/x").parse().unwrap();
                assert!(asked.kind.is_some_and(|found| std::ptr::eq(found, kind)), "{name}");
            }
            assert!(help.contains(&format!("{}/NAME", kind.names[0])), "{:?}", kind.names);
        }
        for name in POD_NAMES {
            assert!(format!("{name}/x").parse::<Asked>().unwrap().kind.is_none(), "{name}");
        }
    }

    #[test]
    fn an_unknown_kind_is_refused_with_the_known_ones() {
        let problem = "node/n1".parse::<Asked>().unwrap_err();
        assert_eq!(problem, "KIND is one of pod, job, pool and pipelinerun");
        for text in ["", "pod", "pod/", "/x", "pod/a/b"] {
            assert!(text.parse::<Asked>().is_err(), "{text}");
        }
    }
}
