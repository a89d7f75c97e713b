//! MPI jobs on real nodes, with stowplan in pods as the chart deploys it: stock ssh and sshd, four
//! implementations of MPI, every kind of user, and the faults that a job meets.

#[path = "mpi/cluster.rs"]
mod cluster;
#[path = "mpi/faults.rs"]
mod faults;
#[path = "mpi/users.rs"]
mod users;

use std::process::ExitCode;

use anyhow::Result;
pub(crate) use cluster::World;
use testbed::control_plane::{ControlPlane, Options, PodInstall};
use testbed::real::RealNodes;
use testbed::real::mpi_image::{Implementation, MpiImage};

use crate::stowplan_image;
use crate::suite::{self, Case, case};

pub(crate) fn run() -> ExitCode {
    let cases = vec![
        Case::new("mpi::users::every_user_runs_open_mpi_4", |world| {
            Box::pin(users::every_user(world, Implementation::OpenMpi4))
        }),
        Case::new("mpi::users::every_user_runs_open_mpi_5", |world| {
            Box::pin(users::every_user(world, Implementation::OpenMpi5))
        }),
        Case::new("mpi::users::every_user_runs_mpich", |world| {
            Box::pin(users::every_user(world, Implementation::Mpich))
        }),
        Case::new("mpi::users::every_user_runs_intel_mpi", |world| {
            Box::pin(users::every_user(world, Implementation::IntelMpi))
        }),
        // On the same nodes; a fault of MPI loses one.
        Case::new("groups::runs_beside_others", |world| {
            Box::pin(crate::groups::runs_beside_others(world))
        }),
        case!(mpi, faults::a_launcher_that_is_a_worker),
        case!(mpi, faults::a_worker_is_killed_in_mid_run),
        case!(mpi, faults::workers_are_suspended_and_resumed),
        case!(mpi, faults::a_secret_is_deleted),
        case!(mpi, faults::the_node_of_a_worker_is_lost),
    ];
    suite::run(cases, start, async |world: World, has_failed| {
        suite::stop(world.plane, has_failed).await;
    })
}

/// Three nodes with the images of all implementations, and stowplan.
async fn start() -> Result<World> {
    let images = MpiImage::ensure_all(&testbed::tools::to_stderr)?;
    let archive = stowplan_image::build("stowplan-for-real-nodes", &[])?;
    let real = RealNodes { count: 3, images };
    let plane = ControlPlane::start(Options { real: Some(real), ..Options::default() }).await?;
    let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/stowplan");
    let install = PodInstall::new(archive, chart);
    plane.install_pods(&install).await?;
    let client = plane.client().await?;
    Ok(World { plane, client, install })
}
