//! The reconciler against a simulated cluster.

mod claims;
mod decisions;
mod gates;
mod holds;
mod life;
mod moves;
mod rest;
mod shared;
mod simulator;

use crate::systems::coschedule::kinds::CoscheduleView as _;
use crate::view::Name;
use simulator::{NAMESPACE, World};

/// Long enough for everything that is waited for.
const LONG: i64 = 3_600;

/// Time to make and to schedule, and none to become impatient.
const SOON: i64 = 5;

/// A world with these nodes, in which a run with one claim has begun: its first member has been placed.
fn begun(nodes: &[&str]) -> World {
    let mut world = World::with_run(nodes);
    world.member("a", "run", 100);
    world.settle(SOON);
    world
}

/// The same without a pod of a member: the placeholder alone has a node.
fn reserved(nodes: &[&str]) -> World {
    let mut world = World::with_run(nodes);
    world.task_run("first", "run");
    world.settle(SOON);
    world
}

/// Whether the template of a run's placeholder holds it where members are.
fn is_held(world: &mut World, placeholder: &str) -> bool {
    let name = Name::new(NAMESPACE, placeholder);
    let view = world.view();
    let plan = view.placeholder(&name).unwrap().plan.as_ref();
    plan.is_some_and(|plan| plan.held)
}
