//! Clusters with coscheduled Tekton runs to plan on, without a control plane.

use anyhow::{bail, ensure};
use k8s_openapi::jiff::SignedDuration;
use stowplan_core::systems::plan::Write;

use crate::objects::{Extent, Scene, State, TASKS, World};

/// How long members wait that wait for long: longer than the grace period, and not yet so long that
/// their placeholders give their nodes up.
const LONG: SignedDuration = SignedDuration::from_secs(60);

/// A cluster of so many nodes and runs in this state; an error if the plan on it is not what the state
/// implies.
pub(crate) fn scene(state: State, sizes: &[usize]) -> anyhow::Result<Scene> {
    let [nodes, runs] = sizes[..] else { bail!("NODES RUNS") };
    let mut world = World::new(state, Extent { nodes, runs, pods: 0, jobs: 0 })?;
    for run in 0..runs {
        world.add(run)?;
    }
    if state != State::New {
        world.place()?;
    }
    if state == State::Full {
        world.scene.now = world.scene.now.checked_add(LONG)?;
    }
    let planned = world.scene.plan().actions;
    let events = planned.iter().filter(|action| action.write == Write::None).count();
    let written = planned.len() - events;
    let wanted = match state {
        State::Steady | State::OneClaim => (0, 0),
        State::New => (runs, 0),
        // Of the run, and of each task for the TaskRun and the pod.
        State::Full => (0, runs * (1 + 2 * TASKS.len())),
    };
    ensure!(
        (written, events) == wanted,
        "{state:?}: planned {written} writes and {events} events instead of {wanted:?}"
    );
    Ok(world.scene)
}
