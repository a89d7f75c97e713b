//! `stowplan review`: answers one AdmissionReview as the webhook would.

use std::io::{self, Read as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::Args;

use super::input::{self, Generator};
use stowplan_core::admission::{Review, answer, decide, validate};

/// The longest review that is read, in bytes: two objects of the largest size that the API server
/// accepts (`object` and `oldObject`), and the fields around them.
const MAX_BYTES: u64 = 7 * 1024 * 1024;

/// The arguments of `stowplan review`.
#[derive(Args, Debug)]
#[command(after_help = "\
The answer is an AdmissionReview, in JSON. Exit code: 0 if there is an answer, also a refusal; 2 if
there is none (not a review, or an unreadable file).

Examples:
  # With the nodes and pools of a cluster
  kubectl get nodes,hostpools -A -o yaml > cluster.yaml
  stowplan review --cluster cluster.yaml < review.json

  # The patch in it
  stowplan review --cluster cluster.yaml < review.json | jq -r .response.patch | base64 -d")]
pub(super) struct Arguments {
    /// Kubernetes objects (nodes, HostPools, namespaces, Streams pods), files or folders
    #[arg(long, value_name = "PATH", num_args = 1..)]
    cluster: Vec<PathBuf>,
    /// The policy file; without it, the defaults
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let view = input::read_cluster(&arguments.cluster, &mut Generator::default(), &mut |_| {})?;
    let policy = input::read_policy(arguments.policy.as_deref())?.unwrap_or_default();
    let mut bytes = Vec::new();
    io::stdin()
        .lock()
        .take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .context("standard input cannot be read")?;
    ensure!(
        bytes.len() as u64 <= MAX_BYTES,
        "standard input is longer than {} MiB, and no AdmissionReview is",
        MAX_BYTES >> 20
    );
    let review = Review::parse(&bytes)?;
    // The webhook has two paths for the two functions; here the kind of the object selects one.
    let decide = if validate::concerns(&review) { validate::validate } else { decide };
    let decision = decide(&review, &view, &policy)?.at_once();
    let answer = String::from_utf8(answer::write(&review, &decision))?;
    super::print(&format!("{answer}\n"))?;
    Ok(ExitCode::SUCCESS)
}
