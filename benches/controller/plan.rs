//! What a plan costs, and how that grows with the cluster. No sockets and no control plane.

use std::hint::black_box;
use std::time::Instant;

use anyhow::{Context as _, ensure};

use crate::player::{self, Player};
use crate::table::{Table, count, ratio};
use crate::world::{Extent, State, World};

/// What is planned, by the word that orders it.
const STATES: [(&str, State, &str); 3] = [
    ("steady", State::Steady, "steady state: nothing to do"),
    ("first", State::First, "first allocation of every pool"),
    ("short", State::Short, "every pool lacks a node, and none is able"),
];

/// The order that tells what a turn costs when nothing is done.
const NOTHING: &str = "nothing";

/// Timed plans; their median is printed.
const ROUNDS: usize = 9;

/// Prints how a plan grows from `extent` to four times as much of what a column says. Counts
/// instructions where that is possible.
pub(crate) fn measure(extent: Extent, counted: bool) -> anyhow::Result<()> {
    let Extent { nodes, pools, pods } = extent;
    let extents = [
        extent,
        Extent { nodes: 4 * nodes, ..extent },
        Extent { pods: 4 * pods, ..extent },
        Extent { nodes: 4 * nodes, pools: 4 * pools, pods: 4 * pods },
    ];
    let title = |what: &str| {
        let [nodes, pools, pods] = [nodes, pools, pods].map(|size| count(size as f64));
        format!("{what} of one plan: {nodes} nodes, {pools} pools, {pods} pods (linear is 4)")
    };
    let mut milliseconds = head("ms");
    for (_, state, label) in STATES {
        let mut took = Vec::new();
        for extent in extents {
            took.push(median(state, extent)?);
        }
        row(&mut milliseconds, label, &took, |value| format!("{value:.1}"));
    }
    if counted {
        let mut player = Player::start("role:plan", NOTHING)?;
        let mut instructions = head("instructions");
        for (word, _, label) in STATES {
            let mut counts = Vec::new();
            for Extent { nodes, pools, pods } in extents {
                counts.push(player.count(&format!("{word} {nodes} {pools} {pods}"))?);
            }
            row(&mut instructions, label, &counts, count);
        }
        instructions.print(&title("Instructions"));
    }
    milliseconds.print(&title(&format!("Milliseconds, median of {ROUNDS},")));
    Ok(())
}

fn head(unit: &str) -> Table {
    let all = format!("4 × all, {unit}");
    Table::new(&["cluster", unit, "4 × nodes", "4 × pods", "4 × all", &all])
}

/// The first figure as it is, the others as ratios to it; the last one both ways.
fn row(table: &mut Table, label: &str, values: &[f64], shown: impl Fn(f64) -> String) {
    let first = values[0];
    let ratios = values[1..].iter().map(|value| ratio(value / first));
    let last = values[values.len() - 1];
    table.row([label.to_owned(), shown(first)].into_iter().chain(ratios).chain([shown(last)]));
}

/// Milliseconds of one plan.
fn median(state: State, extent: Extent) -> anyhow::Result<f64> {
    let world = World::new(state, extent)?;
    let mut took: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            let plan = black_box(black_box(&world).plan());
            let took = began.elapsed();
            drop(plan);
            took.as_secs_f64() * 1e3
        })
        .collect();
    took.sort_by(f64::total_cmp);
    Ok(took[ROUNDS / 2])
}

/// Plans as it is told on standard input.
pub(crate) fn play() -> anyhow::Result<()> {
    player::play(|order, turn| {
        if order == NOTHING {
            return turn(&mut || Ok(()));
        }
        let mut words = order.split(' ');
        let word = words.next().unwrap_or_default();
        let (_, state, _) = STATES
            .into_iter()
            .find(|(known, ..)| *known == word)
            .with_context(|| format!("{word} is not a state"))?;
        let sizes: Vec<usize> = words.map(str::parse).collect::<Result<_, _>>()?;
        ensure!(sizes.len() == 3, "STATE NODES POOLS PODS");
        let extent = Extent { nodes: sizes[0], pools: sizes[1], pods: sizes[2] };
        let world = World::new(state, extent)?;
        turn(&mut || {
            black_box(black_box(&world).plan());
            Ok(())
        })
    })
}
