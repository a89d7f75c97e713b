use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::living::{Ended, Living, Loss};
use crate::streams_cases::{any_model, job_spec, must_be_refused};
use crate::world::World;

/// So many jobs, unless `STOWPLAN_JOBS` says otherwise.
const JOBS: usize = 24;

/// The number in an environment variable.
pub(crate) fn number(variable: &str) -> Result<Option<u64>> {
    let Ok(text) = std::env::var(variable) else { return Ok(None) };
    let number = text.parse().with_context(|| format!("{variable}={text} is not a number"))?;
    Ok(Some(number))
}

/// Random numbers from this seed, or from the one in the environment.
pub(crate) fn numbers(seed: u64) -> Result<(u64, TestRng)> {
    let seed = number("STOWPLAN_TEST_SEED")?.unwrap_or(seed);
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    Ok((seed, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes)))
}

/// Random jobs, of which a third lose a node.
pub(crate) async fn every_possible_job_runs_whole(world: Arc<World>) -> Result<()> {
    // Its pods are no part of the models.
    world.plane.delete_node("node-1").await?;
    let jobs = number("STOWPLAN_JOBS")?.map_or(JOBS, |jobs| usize::try_from(jobs).unwrap_or(JOBS));
    let (seed, rng) = numbers(135)?;
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let (mut whole, mut refused, mut survived, mut stranded) = (0, 0, 0, 0);
    let mut number = 0;
    while number < jobs {
        let any = (any_model(), any::<[u16; 12]>());
        let (model, choices) = any.new_tree(&mut runner).map_err(anyhow::Error::msg)?.current();
        if !model.is_possible() && !must_be_refused(&model) {
            continue;
        }
        let loss = (number % 3 == 2).then(|| Loss {
            after: usize::from(choices[0]) % model.elements.len(),
            node: usize::from(choices[1]) % model.nodes.len(),
        });
        number += 1;
        let is_possible = model.is_possible();
        let spec = job_spec(&model, |node| format!("job-{number}-hh{node}"));
        let mut living = Living::new(&world, number, model).await?;
        let ended = living.run(&spec, &choices[2..], loss.as_ref()).await;
        let ended = ended.with_context(|| format!("job {number} with seed {seed}: {spec}"))?;
        eprintln!("job {number} of {jobs}: {ended:?}");
        match &ended {
            Ended::Refused => refused += 1,
            Ended::Whole if loss.is_some() => survived += 1,
            Ended::Whole => whole += 1,
            Ended::Impossible => stranded += 1,
        }
        let is_refused = matches!(ended, Ended::Refused);
        ensure!(is_refused != is_possible, "job {number} with seed {seed}: {ended:?}: {spec}");
        living.leave().await?;
    }
    eprintln!(
        "{whole} jobs ran whole, {survived} also after the loss of a node, which left {stranded} without a placement; {refused} were refused"
    );
    ensure!(whole > 0 && refused > 0 && survived > 0, "the jobs are not of every kind");
    Ok(())
}
