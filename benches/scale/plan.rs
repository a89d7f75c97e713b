//! What a plan of the controller costs in a large cluster, without a control plane: of all systems
//! and of each.

use std::hint::black_box;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use stowplan::testing::systems::SYSTEMS;

use crate::objects::{Extent, World};
use crate::player::{self, Player};
use crate::table::{Table, count, ratio};

/// The first argument of a copy of this program whose instructions are counted.
pub(crate) const ROLE: &str = "role:plan";

/// The order that measures the cost of a turn in which nothing is done.
const NOTHING: &str = "nothing";

/// Timed plans; their median is printed.
const ROUNDS: usize = 9;

/// Prints what a plan costs with these objects and with a tenth of them.
pub(crate) fn measure(extent: Extent, counted: bool) -> anyhow::Result<()> {
    let extents = [extent.divided_by(10), extent];
    let worlds = extents.map(world).into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let mut milliseconds = Vec::new();
    for world in &worlds {
        milliseconds.push(subjects().map(|of| median(world, of)).collect::<Vec<_>>());
    }
    drop(worlds);
    let head = ["plan of", "a tenth, ms", "all, ms", "ratio"];
    print("Milliseconds of a plan, median of 9", &head, &milliseconds, |ms| format!("{ms:.1}"));
    if !counted {
        return Ok(());
    }
    let mut player = Player::start(ROLE, NOTHING)?;
    let mut instructions = Vec::new();
    for extent in extents {
        let Extent { nodes, pods, runs, jobs } = extent;
        let costs = subjects().map(|of| {
            let of = of.map_or_else(|| "all".to_owned(), |of| of.to_string());
            player.count(&format!("{of} {nodes} {pods} {runs} {jobs}"))
        });
        instructions.push(costs.collect::<anyhow::Result<Vec<_>>>()?);
    }
    let head = ["plan of", "a tenth, instructions", "all, instructions", "ratio"];
    print("Instructions of a plan", &head, &instructions, count);
    Ok(())
}

/// All systems, and each one that plans, by its index.
fn subjects() -> impl Iterator<Item = Option<usize>> {
    let each = SYSTEMS.iter().enumerate().filter(|(_, system)| system.plan.is_some());
    [None].into_iter().chain(each.map(|(index, _)| Some(index)))
}

fn print(title: &str, head: &[&str], costs: &[Vec<f64>], shown: impl Fn(f64) -> String) {
    let mut table = Table::new(head);
    for (row, of) in subjects().enumerate() {
        let name = of.map_or("all systems", |of| SYSTEMS[of].name);
        let [tenth, all] = [costs[0][row], costs[1][row]];
        let of_tenth = if tenth > 0.0 { ratio(all / tenth) } else { "-".to_owned() };
        table.row([name.to_owned(), shown(tenth), shown(all), of_tenth]);
    }
    table.print(title);
}

/// A cluster in which nothing is left to create.
fn world(extent: Extent) -> anyhow::Result<World> {
    let mut world = World::new(extent)?;
    for run in 0..extent.runs {
        world.run(run)?;
    }
    for job in 0..extent.jobs {
        world.job(job)?;
    }
    for other in 0..extent.others() {
        world.other(other)?;
    }
    let placed = world.place()?;
    ensure!(placed == extent.runs, "{placed} placeholders for {} runs", extent.runs);
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

fn median(world: &World, of: Option<usize>) -> f64 {
    let mut took: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            plan(world, of);
            began.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    took.sort_by(f64::total_cmp);
    took[ROUNDS / 2]
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
