//! What a plan of the controller costs in a large cluster, without a control plane: of all systems
//! and of each.

use std::hint::black_box;

use anyhow::ensure;
use stowplan::testing::systems::SYSTEMS;

use crate::objects::{Extent, State, World};
use crate::table::{Table, growth, median_time, tenths};

/// Prints what a plan costs with these objects and with a tenth of them.
pub(crate) fn measure(extent: Extent) -> anyhow::Result<()> {
    let mut costs: Vec<Vec<f64>> = Vec::new();
    for extent in [extent.divided_by(10), extent] {
        let world = world(extent)?;
        let turn = |of| {
            plan(&world, of);
            Ok(())
        };
        let of_each = subjects().map(|of| median_time(|| turn(of)));
        costs.push(of_each.collect::<anyhow::Result<_>>()?);
    }
    let mut table = Table::new("plan of | a tenth, ms | all, ms | ratio");
    for (row, of) in subjects().enumerate() {
        let name = of.map_or("all systems", |of| SYSTEMS[of].name);
        let [tenth, all] = [costs[0][row], costs[1][row]];
        table.row(name, [tenths(tenth), tenths(all), growth(tenth, all)]);
    }
    table.print("Milliseconds of a plan, median of 9");
    Ok(())
}

/// All systems, and each one that plans, by its index.
fn subjects() -> impl Iterator<Item = Option<usize>> {
    let each = SYSTEMS.iter().enumerate().filter(|(_, system)| system.plan.is_some());
    [None].into_iter().chain(each.map(|(index, _)| Some(index)))
}

/// A cluster in which nothing is left to create.
fn world(extent: Extent) -> anyhow::Result<World> {
    let mut world = World::new(State::Steady, extent)?;
    for run in 0..extent.runs {
        world.run(run)?;
    }
    for job in 0..extent.jobs {
        world.job(job)?;
    }
    for other in 0..extent.others() {
        world.other(other)?;
    }
    world.place()?;
    let left =
        world.plan().actions.iter().filter(|it| it.target.resource.kind == "StatefulSet").count();
    ensure!(left == 0, "{left} placeholders are planned again");
    Ok(world)
}

fn plan(world: &World, of: Option<usize>) {
    let World { view, policy, now, .. } = world;
    match of.and_then(|of| SYSTEMS[of].plan) {
        Some(plan) => drop(black_box(plan(black_box(view), policy, *now))),
        None => drop(black_box(black_box(world).plan())),
    }
}
