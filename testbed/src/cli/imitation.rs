//! The imitation of Tekton and the provisioner of volumes, as a process of a control plane: it ends
//! with the control plane, also with one that runs on without its `up`.

use std::path::PathBuf;
use std::time::Duration;
use std::{env, fs, future};

use anyhow::{Context as _, Result};
use testbed::control_plane::{self, ControlPlane};
use testbed::tekton::Tekton;
use testbed::volumes::Volumes;
use testbed::wait::{Seen, until};

use super::Ended;

/// The name of the process and of its log.
const NAME: &str = "tekton";

/// The line of its log once both serve.
const SERVING: &str = "serving PipelineRuns, TaskRuns and volumes";

const LIMIT: Duration = Duration::from_secs(60);

/// Imitates Tekton and provisions volumes. Started by `up --tekton` and `demo`.
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(super) struct Args {
    /// The control plane's kubeconfig.
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<Ended> {
    super::until_interrupted(async {
        let client = control_plane::client(&args.kubeconfig).await?;
        let _volumes = Volumes::start(&client).await?;
        let _tekton = Tekton::start(&client).await?;
        say!("{SERVING}");
        future::pending().await
    })
}

/// Starts the process in a control plane, and waits until Tekton's kinds and the storage classes
/// are there.
pub(super) async fn start(plane: &ControlPlane) -> Result<()> {
    let program = env::current_exe().context("cannot find the testbed's own program")?;
    let kubeconfig = plane.kubeconfig().display().to_string();
    let arguments = ["imitation".to_owned(), "--kubeconfig".to_owned(), kubeconfig];
    let log = plane.start_program(NAME, &program, &arguments)?;
    until("the imitation of Tekton to serve", LIMIT, async || {
        plane.check()?;
        let serves = fs::read_to_string(&log)?.contains(SERVING);
        Ok(if serves { Seen::Done(()) } else { Seen::NotYet("it starts".to_owned()) })
    })
    .await
}
