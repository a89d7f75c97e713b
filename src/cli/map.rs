//! `stowplan map`: a picture of a cluster: which pod is on which node, with which others it belongs together,
//! what is reserved, and what waits for what.
//!
//! The cluster is read as for [`check`], and what waits comes from the same diagnosis. The
//! systems contribute the groups (`systems::map`); here is drawn, without knowledge of any system:
//! [`scene`] arranges rectangles with texts, [`svg`] and [`html`] write them, [`text`] is for terminals.

mod html;
mod ink;
mod layout;
mod lines;
mod markup;
mod scene;
mod svg;
mod text;
mod zones;

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::check::{self, Read, Sources};
use super::live::{Access, parse_namespace};
use super::page::Painter;
use super::plan::settle;
use super::print_notice;
use super::progress::Progress;
use stowplan_core::systems;
use stowplan_core::systems::check::{Cluster, Context};
use stowplan_core::systems::map::Map;
use stowplan_core::systems::policy::Policy;
use stowplan_core::view::resource::NODE;

/// The columns of the text form where standard output is no terminal.
const COLUMNS: usize = 100;

/// The arguments of `stowplan map`.
#[derive(Args, Debug)]
#[command(after_help = "\
Shown are the pods that stowplan has placed or that belong together: the pods of a Streams job, of
a coscheduled run or group (with its placeholder), of an MPI cluster, and those that NUMA affinities
tell apart. Each group has a letter. Other pods are counted. A dashed slot is a node that is
reserved for an element that does not run there yet. More than 200 nodes are summed up by their
zones.

In files, a StreamsJob or HostPool without a status is shown as the controller would place it now.

Exit code: 0 the map is shown, 2 the cluster or the files cannot be read, or the cluster has no such
namespace.

Examples:
  # The cluster of the current kubeconfig context, in the terminal
  stowplan map

  # As a picture, and as a page with the complete list of what waits
  stowplan map -o svg > map.svg
  stowplan map -n streams -o html > map.html

  # Where the elements of a job would be, without a cluster
  stowplan map --cluster examples/nodes.yaml examples/pool-nodes.yaml \\
    examples/streams-job-pools.yaml

  # From objects that another user has sent
  kubectl get nodes,pods,hostpools,streamsjobs -A -o yaml > cluster.yaml
  stowplan map --cluster cluster.yaml

  # The pods without a node, for a script
  stowplan map -o json | jq -r '.waiting[] | select(.kind == \"Pod\") | .objects[]'")]
pub(super) struct Arguments {
    /// Read the cluster of the current kubeconfig context, which is the default
    #[arg(long, conflicts_with = "cluster")]
    live: bool,
    /// Kubernetes objects, files or folders, instead of a cluster
    #[arg(long, value_name = "PATH", num_args = 1..)]
    cluster: Vec<PathBuf>,
    #[command(flatten)]
    access: Access,
    /// Show the pods of one namespace
    #[arg(short, long, value_name = "NAMESPACE", value_parser = parse_namespace)]
    namespace: Option<String>,
    /// Show the pods of all namespaces, which is the default
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// The policy file [default: the cluster's policy, or with --cluster all defaults]
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// The form of the output
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// For a terminal; in colour if that shows colours
    Text,
    /// A picture
    Svg,
    /// A page with the picture and the complete list of what waits
    Html,
    /// A Map, for scripts
    Json,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let namespace = arguments.namespace.as_deref();
    let Read { mut cluster, policy, workloads, documents, .. } = check::read(&Sources {
        files: &arguments.cluster,
        access: &arguments.access,
        namespace,
        all_namespaces: namespace.is_none(),
        policy: arguments.policy.as_deref(),
        kinds: None,
    })?;
    let now = Timestamp::now();
    add_assumed(&mut cluster, documents, &policy, now)?;
    if cluster.has_no_nodes() {
        print_notice("no node is known, so only what waits is shown");
    }
    let context =
        Context { cluster: &cluster, policy: &policy, now, pods: check::CHECKS_OF_WAITING };
    let progress = Progress::begin("diagnosing");
    let mut map = Map::new(&context, namespace);
    map.add_waiting(&check::diagnose_everything(&context, &workloads, namespace)?);
    drop(progress);
    let output = match arguments.output {
        Format::Text => {
            let is_terminal = io::stdout().is_terminal();
            let size = terminal_size::terminal_size().filter(|_| is_terminal);
            let columns = size.map_or(COLUMNS, |(width, _)| usize::from(width.0));
            text::format(&map, columns, Painter::of_stdout())
        }
        Format::Svg => svg::write(&scene::Scene::new(&map)),
        Format::Html => html::write(&map),
        Format::Json => format!("{}\n", serde_json::to_string_pretty(&map)?),
    };
    super::print(&output)?;
    Ok(ExitCode::SUCCESS)
}

/// Adds to a cluster from files what the controller would make now of the objects without a status.
fn add_assumed(
    cluster: &mut Cluster,
    documents: Vec<Value>,
    policy: &Policy,
    now: Timestamp,
) -> anyhow::Result<()> {
    for (is_asked, document) in settle::assume(documents, policy, now) {
        if is_asked {
            let text = |pointer| document.pointer(pointer).and_then(Value::as_str);
            print_notice(&format!(
                "{} {}/{} has no status: it is shown as the controller would place it now",
                text("/kind").unwrap_or_default(),
                text("/metadata/namespace").unwrap_or("default"),
                text("/metadata/name").unwrap_or_default(),
            ));
        }
        if document["kind"] == NODE.kind {
            cluster.add_node(serde_json::from_value(document)?);
        } else if let Ok(Some(object)) = systems::object(document) {
            cluster.view.apply(object);
        }
    }
    Ok(())
}
