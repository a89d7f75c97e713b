//! What a plan of the controller costs in a large cluster, without a control plane: of all systems
//! and of each.

use std::hint::black_box;

use anyhow::{Context as _, ensure};
use stowplan::testing::systems::SYSTEMS;

use crate::objects::{Extent, State, World};
use crate::player::{self, Player};
use crate::table::{Table, count, growth, median_time, tenths};

/// The first argument of a copy of this program whose instructions are counted.
pub(crate) const ROLE: &str = "role:plan";

/// The order that measures the cost of a turn in which nothing is done.
const NOTHING: &str = "nothing";

/// Prints what a plan costs with these objects and with a tenth of them.
pub(crate) fn measure(extent: Extent, counted: bool) -> anyhow::Result<()> {
    let extents = [extent.divided_by(10), extent];
    let mut costs = Vec::new();
    for extent in extents {
        let world = world(extent)?;
        let turn = |of| {
            plan(&world, of);
            Ok(())
        };
        let of_each = subjects().map(|of| median_time(|| turn(of)));
        costs.push(of_each.collect::<anyhow::Result<_>>()?);
    }
    print("Milliseconds of a plan, median of 9", "ms", tenths, &costs);
    if counted {
        let mut player = Player::start(ROLE, NOTHING)?;
        costs.clear();
        for Extent { nodes, pods, runs, jobs } in extents {
            let of_each = subjects().map(|of| {
                let of = of.map_or_else(|| "all".to_owned(), |of| of.to_string());
                player.count(&format!("{of} {nodes} {pods} {runs} {jobs}"))
            });
            costs.push(of_each.collect::<anyhow::Result<_>>()?);
        }
        print("Instructions of a plan", "instructions", count, &costs);
    }
    Ok(())
}

/// All systems, and each one that plans, by its index.
fn subjects() -> impl Iterator<Item = Option<usize>> {
    let each = SYSTEMS.iter().enumerate().filter(|(_, system)| system.plan.is_some());
    [None].into_iter().chain(each.map(|(index, _)| Some(index)))
}

fn print(title: &str, unit: &str, shown: impl Fn(f64) -> String, costs: &[Vec<f64>]) {
    let mut table = Table::new(&format!("plan of | a tenth, {unit} | all, {unit} | ratio"));
    for (row, of) in subjects().enumerate() {
        let name = of.map_or("all systems", |of| SYSTEMS[of].name);
        let [tenth, all] = [costs[0][row], costs[1][row]];
        table.row(name, [shown(tenth), shown(all), growth(tenth, all)]);
    }
    table.print(title);
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

/// Plans as ordered on standard input.
pub(crate) fn play() -> anyhow::Result<()> {
    let mut made: Option<(String, World)> = None;
    player::play(|order, turn| {
        if order == NOTHING {
            return turn(&mut || Ok(()));
        }
        let (of, sizes) = order.split_once(' ').context("SYSTEM NODES PODS RUNS JOBS")?;
        let of = of.parse().ok();
        if made.as_ref().is_none_or(|(made, _)| made != sizes) {
            let numbers: Vec<usize> = sizes.split(' ').map(str::parse).collect::<Result<_, _>>()?;
            let [nodes, pods, runs, jobs] = numbers[..] else {
                anyhow::bail!("NODES PODS RUNS JOBS")
            };
            made = Some((sizes.to_owned(), world(Extent { nodes, pods, runs, jobs })?));
        }
        let (_, world) = made.as_ref().context("it is made")?;
        turn(&mut || {
            plan(world, of);
            Ok(())
        })
    })
}
