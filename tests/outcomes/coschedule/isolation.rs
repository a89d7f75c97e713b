//! Runs in the mode `isolate-pipelinerun`, which share no node with other runs.

use std::sync::Arc;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use testbed::volumes::WAITING;

use crate::coschedule::pipeline::{Lab, claim, existing, in_mode, lasting, task, template};
use crate::world::{Space, World, same, with_policy};

const MODE: &str = "isolate-pipelinerun";

/// Two tasks, one after the other.
fn run(lab: &Lab, name: &str) -> Value {
    let tasks = [lasting(task("one", &[], &[]), "3s"), lasting(task("two", &["one"], &[]), "3s")];
    in_mode(lab.run(name, &[], &tasks), MODE)
}

/// On which nodes the pods of a run were, and when.
#[derive(Debug)]
struct Stay {
    node: String,
    from: Timestamp,
    until: Timestamp,
}

impl Stay {
    /// Waits until a run has succeeded.
    async fn of(space: &Space, run: &str) -> Result<Self> {
        let node = space.ran(run).await?;
        let mut pods = space.task_pods().await?;
        pods.retain(|name, _| name.starts_with(&format!("{run}-")));
        let bound = |pod: &Pod| {
            let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
            let scheduled = conditions.find(|it| it.type_ == "PodScheduled")?;
            scheduled.last_transition_time.as_ref().map(|it| it.0)
        };
        let finished = |pod: &Pod| {
            let containers = pod.status.as_ref()?.container_statuses.as_ref()?;
            Some(containers.first()?.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref()?.0)
        };
        let from = pods.values().filter_map(bound).min();
        let until = pods.values().filter_map(finished).max();
        match (from, until) {
            (Some(from), Some(until)) => Ok(Self { node, from, until }),
            stay => anyhow::bail!("{run} has not been anywhere: {stay:?}"),
        }
    }

    /// Returns true if both were on one node at the same time. The API server reports whole seconds.
    fn meets(&self, other: &Self) -> bool {
        self.node == other.node && self.overlaps(other)
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.from < other.until && other.from < self.until
    }
}

pub(crate) async fn isolated_runs_never_meet(world: Arc<World>) -> Result<()> {
    let lab = Lab::new(&world, "isolated", &["east", "west"]).await?;
    let scope = json!({"coschedule": {"isolationScope": "cluster"}});
    with_policy(&world, scope, async || {
        let spaces = [world.namespace("isolated").await?, world.namespace("isolated").await?];
        let names = ["a", "b", "c"];
        for space in &spaces {
            for name in names {
                space.created(&run(&lab, name)).await?;
            }
        }
        let mut stays = Vec::new();
        for space in &spaces {
            for name in names {
                stays.push(Stay::of(space, name).await?);
            }
        }
        for (index, one) in stays.iter().enumerate() {
            for other in &stays[index + 1..] {
                ensure!(!one.meets(other), "they met: {one:?}, {other:?}");
            }
        }
        // Six runs on two nodes: one after the other they would prove nothing.
        let both =
            |one: &Stay| stays.iter().any(|other| one.node != other.node && one.overlaps(other));
        ensure!(stays.iter().any(both), "one after the other: {stays:?}");
        for space in &spaces {
            space.cleared(&[]).await?;
        }
        Ok(())
    })
    .await
}

pub(crate) async fn isolation_within_a_namespace(world: Arc<World>) -> Result<()> {
    let lab = Lab::new(&world, "within", &["east"]).await?;
    let spaces = [world.namespace("within").await?, world.namespace("within").await?];
    for space in &spaces {
        space.created(&run(&lab, "a")).await?;
    }
    // The only node has both, for both namespaces.
    let (one, other) = (Stay::of(&spaces[0], "a").await?, Stay::of(&spaces[1], "a").await?);
    ensure!(one.meets(&other), "{one:?}, {other:?}");
    for space in &spaces {
        space.cleared(&[]).await?;
    }
    Ok(())
}

/// Two isolated runs cannot share a node, and one volume cannot be on two nodes: the later run
/// waits.
pub(crate) async fn isolated_runs_that_share_a_claim_take_turns(world: Arc<World>) -> Result<()> {
    let (space, lab) = Lab::in_space(&world, "turns", &["east", "east"]).await?;
    space.created(&claim("cache", WAITING, "ReadWriteOnce")).await?;
    for name in ["first", "second"] {
        let tasks = [
            lasting(task("one", &[], &["cache"]), "3s"),
            lasting(task("two", &["one"], &["cache"]), "1s"),
        ];
        space.created(&in_mode(lab.run(name, &[existing("cache", "cache")], &tasks), MODE)).await?;
        // Creation times have whole seconds, so the runs are created in different ones.
        tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    }
    space.expect_event(&["PipelineRun/second", "SharedClaim", "cache", "first"]).await?;
    let (first, second) = (Stay::of(&space, "first").await?, Stay::of(&space, "second").await?);
    ensure!(first.until <= second.from, "not one after the other: {first:?}, {second:?}");
    space.cleared(&["cache"]).await
}

/// The anti-affinity of an isolated placeholder applies to every other placeholder, too.
pub(crate) async fn a_run_waits_while_isolated_ones_hold_all_nodes(
    world: Arc<World>,
) -> Result<()> {
    let (space, lab) = Lab::in_space(&world, "held", &["east"]).await?;
    space.created(&run(&lab, "alone")).await?;
    space.placed(1).await?;
    let tasks = [task("one", &[], &["source"]), task("two", &["one"], &["source"])];
    space.created(&lab.run("ordinary", &[template("source", WAITING)], &tasks)).await?;
    let (alone, ordinary) = (Stay::of(&space, "alone").await?, Stay::of(&space, "ordinary").await?);
    same(&ordinary.node, &alone.node)?;
    ensure!(!alone.meets(&ordinary), "they met: {alone:?}, {ordinary:?}");
    space.cleared(&[]).await
}
