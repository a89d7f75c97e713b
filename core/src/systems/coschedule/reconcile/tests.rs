//! The reconciler against a simulated cluster.

mod autoscaler;
mod claims;
mod decisions;
mod gates;
mod holds;
mod keep;
mod life;
mod moves;
mod others;
mod rest;
mod room;
mod shared;
mod simulator;

use serde_json::{Value, json};

use super::*;
use crate::kubernetes::REQUIRED;
use crate::policy::Repair;
use crate::simulation::Pace;
use crate::systems::coschedule::keys;
use crate::systems::coschedule::kinds::placeholder::Placeholder;
use crate::systems::coschedule::policy::Volumes;
use crate::systems::coschedule::resources::{PIPELINE_RUN, TASK_RUN};
use crate::view::resource::POD;
use simulator::{NAMESPACE, World};

/// Long enough for everything that is waited for.
const LONG: i64 = 3_600;

/// Time to make and to schedule, and none to become impatient.
const SOON: i64 = 5;

/// A world with these nodes, in which a run with one claim has begun: its first member has been placed.
fn begun(nodes: &[&str]) -> World {
    let mut world = World::with_run(nodes);
    world.member("a", "run", 100).settle(SOON);
    world
}

/// A world as from [`begun`] without a pod of a member: the placeholder alone has a node.
fn reserved(nodes: &[&str]) -> World {
    let mut world = World::with_run(nodes);
    world.reserve("run");
    world
}

/// A world with these nodes and a placed pod `a` of the native group `g`.
fn grouped(nodes: &[&str]) -> World {
    let mut world = World::new(nodes);
    world.native("a", "g").settle(SOON);
    world
}

/// Finds the row of a placeholder.
fn known<'w>(world: &'w mut World, of: &str) -> &'w Placeholder {
    let name = Name::new(NAMESPACE, &world.placeholder(of));
    world.view().placeholder(&name).unwrap()
}

/// Returns true if the template of a placeholder holds it where members are.
fn is_held(world: &mut World, of: &str) -> bool {
    known(world, of).plan.as_ref().is_some_and(|plan| plan.held)
}

/// A pod template that tolerates every taint.
fn tolerating_all() -> Value {
    json!({"tolerations": [{"operator": "Exists"}]})
}

/// Owner references to an object that controls a pod.
fn controlled_by(kind: &str) -> Value {
    let version = if kind == "Job" { "batch/v1" } else { "apps/v1" };
    json!([{"apiVersion": version, "kind": kind, "name": "o", "uid": "o", "controller": true}])
}
