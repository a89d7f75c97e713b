//! MPI jobs on real nodes, with stowplan in pods as the chart deploys it: stock ssh and sshd, four
//! implementations of MPI, every kind of user, and the faults that a job meets.
//!
//! Left out where the machine cannot have real nodes, unless `STOWPLAN_REQUIRE_REAL_NODES=1`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a harness fails and prints as tests do"
)]

#[path = "real_mpi/cluster.rs"]
mod cluster;
#[path = "real_mpi/faults.rs"]
mod faults;
#[path = "real_mpi/users.rs"]
mod users;

use std::path::Path;
use std::pin::Pin;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use cluster::World;
use libtest_mimic::{Arguments, Trial};
use testbed::control_plane::{ControlPlane, Options, PodInstall};
use testbed::image::libc_for_tests;
use testbed::real::mpi_image::{Implementation, MpiImage};
use testbed::real::{self, RealNodes};

type Test = fn(Arc<World>) -> Pin<Box<dyn Future<Output = Result<()>>>>;

/// One at a time: two processors carry three nodes.
const TESTS: [(&str, Test); 9] = [
    ("users::every_user_runs_open_mpi_4", |world| {
        Box::pin(users::every_user(world, Implementation::OpenMpi4))
    }),
    ("users::every_user_runs_open_mpi_5", |world| {
        Box::pin(users::every_user(world, Implementation::OpenMpi5))
    }),
    ("users::every_user_runs_mpich", |world| {
        Box::pin(users::every_user(world, Implementation::Mpich))
    }),
    ("users::every_user_runs_intel_mpi", |world| {
        Box::pin(users::every_user(world, Implementation::IntelMpi))
    }),
    ("faults::a_launcher_that_is_a_worker", |world| {
        Box::pin(faults::a_launcher_that_is_a_worker(world))
    }),
    ("faults::a_worker_is_killed_in_mid_run", |world| {
        Box::pin(faults::a_worker_is_killed_in_mid_run(world))
    }),
    ("faults::workers_are_suspended_and_resumed", |world| {
        Box::pin(faults::workers_are_suspended_and_resumed(world))
    }),
    ("faults::a_secret_is_deleted", |world| Box::pin(faults::a_secret_is_deleted(world))),
    ("faults::the_node_of_a_worker_is_lost", |world| {
        Box::pin(faults::the_node_of_a_worker_is_lost(world))
    }),
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let left_out = match real::check_for_tests() {
        Ok(left_out) => left_out,
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    if let Some(reason) = &left_out {
        eprintln!("left out: {reason}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let is_wanted = |name: &str| {
        let matches = |filter: &String| match arguments.exact {
            true => name == filter,
            false => name.contains(filter.as_str()),
        };
        arguments.filter.as_ref().is_none_or(matches) && !arguments.skip.iter().any(matches)
    };
    let is_needed =
        left_out.is_none() && !arguments.list && TESTS.iter().any(|(name, _)| is_wanted(name));
    let world = match is_needed.then(|| runtime.block_on(start())).transpose() {
        Ok(world) => world.map(Arc::new),
        Err(error) => {
            eprintln!("no real nodes with stowplan, so no test can run: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let trials = TESTS.map(|(name, test)| {
        let (world, handle) = (world.clone(), runtime.handle().clone());
        let trial = Trial::test(name, move || {
            let world = world.ok_or("no real nodes were started")?;
            handle.block_on(test(world)).map_err(|error| format!("{error:#}").into())
        });
        match left_out {
            Some(_) => trial.with_ignored_flag(true).with_kind("left out"),
            None => trial,
        }
    });
    let conclusion = libtest_mimic::run(&arguments, trials.into());
    if let Some(world) = world.and_then(Arc::into_inner) {
        if conclusion.has_failed() && world.plane.keep_dir() {
            eprintln!("the logs are kept in {}", world.plane.dir().join("logs").display());
        }
        runtime.block_on(world.plane.stop());
    }
    conclusion.exit_code()
}

/// Three nodes with the images of all implementations, and stowplan.
async fn start() -> Result<World> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mpi-images");
    let mut images = Vec::new();
    for implementation in Implementation::ALL {
        for user in [false, true] {
            let image = MpiImage { implementation, user };
            images.push(image.ensure(&folder, &testbed::tools::to_stderr)?);
        }
    }
    let archive = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stowplan-for-real-nodes.tar");
    let status = Command::new(env!("CARGO_BIN_EXE_testbed"))
        .args(["image", "--profile=quick", "--libc", libc_for_tests(), "--output"])
        .arg(&archive)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .context("cannot run the testbed")?;
    ensure!(status.success(), "the image of stowplan cannot be made: {status}");
    let real = RealNodes { count: 3, images };
    let plane = ControlPlane::start(Options { real: Some(real), ..Options::default() }).await?;
    let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/stowplan");
    plane.install_pods(&PodInstall::new(archive, chart)).await?;
    let client = plane.client().await?;
    Ok(World { plane, client })
}
