//! Half an hour of faults on real nodes, in random order, while pods are created and users' jobs,
//! pools and groups come and go: nothing may fail that does not fail in one run of the same fault,
//! memory and descriptors stay flat, and at the end nothing is left behind.
//!
//! The faults are the cases of the suite `service` on real nodes, with their assertions. Run by hand, as
//! root; the seed that is printed repeats the order of the faults.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "tables go to a terminal")]
#![allow(clippy::unwrap_used, reason = "the harness of the suites on real nodes fails as tests do")]
#![allow(dead_code, reason = "the suite has more cases than are soaked in")]

#[path = "../tests/real/service.rs"]
mod service;
#[path = "../tests/real/stowplan_image.rs"]
mod stowplan_image;
#[path = "../tests/real/suite.rs"]
mod suite;

#[path = "soak/samples.rs"]
mod samples;
#[path = "soak/tenants.rs"]
mod tenants;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Parser;
use fastrand::Rng;
use samples::Samples;
use service::world::{Profile, World};
use service::{faults, release};
use suite::{Case, case};
use testbed::real;

/// Makes random faults on real nodes, while pods are created and users' objects come and go.
#[derive(Parser)]
struct Arguments {
    /// How long faults are made
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
    /// Of the order of the faults; the default is random, and is printed
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// From cargo
    #[arg(long, hide = true)]
    bench: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Arguments { minutes, seed, .. } = Arguments::parse();
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    real::check_for_tests()?;
    println!("seed {seed}, {minutes} minutes");
    let world = Arc::new(World::start().await?);
    let outcome = soak(&world, Duration::from_secs(60 * minutes), Rng::with_seed(seed)).await;
    if let Some(world) = Arc::into_inner(world) {
        suite::stop(world.plane, outcome.is_err()).await;
    }
    outcome.with_context(|| format!("with the seed {seed}"))
}

async fn soak(world: &Arc<World>, lasts: Duration, mut random: Rng) -> Result<()> {
    let all: [Case<World>; 6] = [
        case!(service, faults::a_webhook_is_killed),
        case!(service, faults::the_leader_is_killed),
        case!(service, faults::a_node_loses_its_power),
        case!(service, faults::a_webhooks_node_is_drained),
        case!(service, release::a_rolling_upgrade),
        case!(service, release::the_ca_is_replaced),
    ];
    world.with(Profile::Default).await?;
    tenants::begin(world)?;
    let mut samples = Samples::default();
    let begun = Instant::now();
    let mut round = 0;
    // Each fault once before any comes again: a short soak has them all.
    let mut next: Vec<&Case<World>> = Vec::new();
    while begun.elapsed() < lasts {
        if next.is_empty() {
            next = all.iter().collect();
            random.shuffle(&mut next);
        }
        let Some(Case { name, test, .. }) = next.pop() else { break };
        round += 1;
        tenants::create(world, round)?;
        tenants::run(world, round).await?;
        test(Arc::clone(world)).await.with_context(|| format!("round {round}: {name}"))?;
        // What was there before the fault is there after it.
        tenants::run(world, round).await.with_context(|| format!("after {name}"))?;
        tenants::delete(world, round)?;
        tenants::are_gone(world, round).await?;
        world.plane.check()?;
        samples.take(world, begun.elapsed()).await?;
        samples.print_last(round, name);
    }
    tenants::leave_nothing(world).await?;
    samples.print_summary(round);
    samples.are_flat()
}
