//! Measures a plan of the controller in a large cluster, without a control plane: of all systems
//! and of each.

use std::hint::black_box;

use anyhow::ensure;
use stowplan_core::simulation::Planner;
use stowplan_core::systems::{self, RECONCILERS};

use crate::objects::{Extent, Scene, State, World};
use crate::table::{Table, growth, median_time, tenths};

/// Prints what a plan costs with these objects and with a tenth of them.
pub(crate) fn measure(extent: Extent) -> anyhow::Result<()> {
    let of_each = RECONCILERS.iter().map(|system| (system.name, system.plan));
    let of_all: (_, Planner) = ("all systems", systems::plan);
    let plans: Vec<_> = [of_all].into_iter().chain(of_each).collect();
    let mut costs = Vec::new();
    for extent in [extent.divided_by(10), extent] {
        let Scene { view, policy, now } = scene(extent)?;
        let cost = |plan: Planner| median_time(|| Ok(plan(black_box(&view), &policy, now)));
        costs.push(plans.iter().map(|(_, plan)| cost(*plan)).collect::<anyhow::Result<Vec<_>>>()?);
    }
    let mut table = Table::new("plan of | a tenth, ms | all, ms | ratio");
    for (row, (name, _)) in plans.iter().enumerate() {
        let [tenth, all] = [costs[0][row], costs[1][row]];
        table.row(name, [tenths(tenth), tenths(all), growth(tenth, all)]);
    }
    table.print("Milliseconds of a plan, median of 9");
    Ok(())
}

/// A cluster in which nothing is left to create.
fn scene(extent: Extent) -> anyhow::Result<Scene> {
    let mut world = World::new(State::Steady, extent)?;
    for number in 0..extent.items() {
        world.add(number)?;
    }
    world.place()?;
    let planned = world.scene.plan().actions;
    let left = planned.iter().filter(|it| it.target.resource.kind == "StatefulSet").count();
    ensure!(left == 0, "{left} placeholders are planned again");
    Ok(world.scene)
}
