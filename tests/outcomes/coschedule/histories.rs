//! Random histories of groups on a control plane, each on nodes of its own: after each step the pods become what the
//! simulation says.
//!
//! `STOWPLAN_HISTORIES` sets how many, `STOWPLAN_TEST_SEED` the first seed; a seed is that of one history.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt as _, stream};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};

use super::GRACE_PERIOD;
use super::pipeline::Lab;
use crate::histories::{CPU, Model, NODES, State, Step, node_of_group, other, step, template};
use crate::streams_jobs::random::number;
use crate::world::{LIMIT, Space, World, workload_of};

/// So many histories, unless `STOWPLAN_HISTORIES` says otherwise.
const HISTORIES: u64 = 6;

/// How many are played at a time.
const AT_ONCE: usize = 12;

/// How long the state has to stay as it is: longer than a pod may be unschedulable before its placeholder moves.
const REST: Duration = GRACE_PERIOD.saturating_add(Duration::from_secs(2));

/// Groups become on the control plane what they become in the simulation.
pub(crate) async fn groups_become_what_the_simulation_says(world: Arc<World>) -> Result<()> {
    let count = number("STOWPLAN_HISTORIES")?.unwrap_or(HISTORIES);
    let first = number("STOWPLAN_TEST_SEED")?.unwrap_or(1);
    let played = stream::iter(first..first + count).map(|seed| play(&world, seed));
    let outcomes: Vec<_> = played.buffer_unordered(AT_ONCE).collect().await;
    let (mut steps, mut failures) = (0, Vec::new());
    for outcome in outcomes {
        match outcome {
            Ok(count) => steps += count,
            Err(why) => failures.push(format!("{why:#}")),
        }
    }
    eprintln!(
        "{count} histories with {steps} steps from seed {first} on, differences: {}",
        failures.len()
    );
    ensure!(failures.is_empty(), "{}", failures.join("\n\n"));
    ensure!(steps as u64 >= count, "the histories are empty");
    Ok(())
}

/// The steps of a history.
fn steps(seed: u64) -> Result<Vec<Step>> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let steps = prop::collection::vec(step(), 4..14);
    Ok(steps.new_tree(&mut runner).map_err(anyhow::Error::msg)?.current())
}

/// Plays a history. Returns the number of its steps.
async fn play(world: &Arc<World>, seed: u64) -> Result<usize> {
    let name = format!("history-{seed}");
    let alike = ["east"; NODES];
    let lab =
        Lab::with(world, &name, &alike, |node| node.capacity("cpu", &format!("{CPU}m"))).await?;
    let group = Group { space: world.namespace(&name).await?, lab };
    let mut model = Model::new();
    let mut count = 0;
    for step in steps(seed)? {
        if !model.is_possible(step) {
            continue;
        }
        count += 1;
        model.apply(step);
        model.settle().map_err(anyhow::Error::msg)?;
        let become_equal = async {
            group.apply(step, count).await?;
            group.becomes(&model.state()).await
        };
        let differs = || format!("seed {seed}, step {count}: {step:?}\n{}", model.time_line());
        become_equal.await.with_context(differs)?;
    }
    group.leave().await?;
    Ok(count)
}

/// A group on nodes of its own.
struct Group {
    space: Space,
    lab: Lab,
}

impl Group {
    async fn pods(&self) -> Result<Vec<Value>> {
        let pods = self.space.pods().list(&ListParams::default()).await?.items;
        Ok(pods.iter().map(|pod| json!(pod)).collect())
    }

    async fn apply(&self, step: Step, count: usize) -> Result<()> {
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        let pods = self.pods().await?;
        let node = node_of_group(pods.iter()).unwrap_or_default();
        match step {
            Step::Create(number, cpu) => {
                let name = format!("p{number}");
                let pod = template(number, cpu, &self.lab.way());
                self.space.created(&workload_of("StatefulSet", &name, 1, &pod)).await?;
            }
            Step::End(number) => {
                let sets: Api<StatefulSet> = self.space.api();
                sets.delete(&format!("p{number}"), &DeleteParams::foreground()).await?;
            }
            Step::Delete(number) => {
                self.space.pods().delete(&format!("p{number}-0"), &now).await?;
            }
            Step::Evict => {
                for pod in self.space.placeholder_pods().await? {
                    let name = pod.metadata.name.unwrap_or_default();
                    self.space.pods().delete(&name, &now).await?;
                }
            }
            Step::DropSet => {
                let sets: Api<StatefulSet> = self.space.api();
                for set in self.space.placeholders().await? {
                    let name = set.metadata.name.unwrap_or_default();
                    sets.delete(&name, &DeleteParams::background()).await?;
                }
            }
            Step::Cordon => self.cordon(node, true).await?,
            Step::Uncordon => {
                for node in &self.lab.nodes {
                    self.cordon(node, false).await?;
                }
            }
            Step::Fill(cpu) => {
                let mut other = other(count, cpu, node);
                other["metadata"]["namespace"] = json!(self.space.name);
                self.space.pod(&other).await?;
            }
            Step::Empty => {
                for pod in pods.iter().filter_map(|pod| pod["metadata"]["name"].as_str()) {
                    if pod.starts_with("other-") {
                        self.space.pods().delete(pod, &now).await?;
                    }
                }
            }
        }
        Ok(())
    }

    async fn cordon(&self, node: &str, is_cordoned: bool) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.space.world.client.clone());
        let patch = Patch::Merge(json!({"spec": {"unschedulable": is_cordoned}}));
        nodes.patch(node, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Waits until the pods are as wanted, and stay so.
    async fn becomes(&self, wanted: &State) -> Result<()> {
        let begun = Instant::now();
        let mut since = None;
        loop {
            let state = State::of(self.pods().await?.iter());
            let is_wanted = state == *wanted;
            let from = *since.get_or_insert_with(Instant::now);
            match is_wanted {
                true if from.elapsed() >= REST => return Ok(()),
                true => {}
                false => since = None,
            }
            if !is_wanted && begun.elapsed() > LIMIT {
                bail!(
                    "saw {state:?}, wanted {wanted:?}; events: {:#?}",
                    self.space.events().await?
                );
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }

    /// Removes everything.
    async fn leave(&self) -> Result<()> {
        let sets: Api<StatefulSet> = self.space.api();
        sets.delete_collection(&DeleteParams::background(), &ListParams::default()).await?;
        let pods: Api<Pod> = self.space.pods();
        pods.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        self.space.nothing_is_left().await
    }
}
