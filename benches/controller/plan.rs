//! Measures plans, and how their cost grows with the cluster. No sockets and no control plane.

use std::hint::black_box;

use anyhow::Context as _;

use crate::jobs::Job;
use crate::objects::{Scene, State as Runs};
use crate::player::{self, Player};
use crate::table::{ROUNDS, Table, count, median_time, ratio, tenths};
use crate::world::{self, State as Pools};
use crate::{mpi, runs};

/// The order that measures the cost of a turn in which nothing is done.
const NOTHING: &str = "nothing";

/// The text of a row of a table, by which it is ordered, too, and the cluster for it, by its sizes.
type Row = (&'static str, fn(&[usize]) -> anyhow::Result<Scene>);

const OF_POOLS: &[Row] = &[
    ("steady state: nothing to do", |of| world::scene(Pools::Steady, of)),
    ("first allocation of every pool", |of| world::scene(Pools::First, of)),
    ("every pool lacks a node, and none is eligible", |of| world::scene(Pools::Short, of)),
];

const OF_RUNS: &[Row] = &[
    ("each run has its placeholder and five members: nothing to do", |of| {
        runs::scene(Runs::Steady, of)
    }),
    ("every run is new", |of| runs::scene(Runs::New, of)),
    ("members wait on full nodes", |of| runs::scene(Runs::Full, of)),
    ("all runs use one claim", |of| runs::scene(Runs::OneClaim, of)),
];

const OF_MPI: &[Row] = &[
    ("MPI clusters whose launchers run: nothing to do", |of| mpi::scene(mpi::State::Steady, of)),
    ("every launcher can start", |of| mpi::scene(mpi::State::Start, of)),
    ("nothing is made yet", |of| mpi::scene(mpi::State::New, of)),
];

/// The subject of a pair of tables.
struct Subject {
    /// The sizes of a cluster, in the order in which the functions of the rows take them.
    sizes: Vec<usize>,
    /// The objects of a plan, in the first column of figures, by these sizes as texts.
    of: fn(&[String]) -> String,
    /// The objects of which there are four times as many in the next ones, and the index of
    /// their size; in the last column it is everything.
    growth: [(&'static str, usize); 2],
    rows: &'static [Row],
}

/// Returns the subjects, in full or a tenth of it.
fn subjects(quick: bool) -> [Subject; 3] {
    let size = |size: usize| if quick { size / 10 } else { size };
    [
        Subject {
            sizes: vec![size(1_000), size(200), size(2_000)],
            of: |of| format!("{} nodes, {} pools, {} pods", of[0], of[1], of[2]),
            growth: [("4 × nodes", 0), ("4 × pods", 2)],
            rows: OF_POOLS,
        },
        Subject {
            sizes: vec![size(1_000), size(200)],
            of: |of| format!("{} nodes, {} coscheduled runs", of[0], of[1]),
            growth: [("4 × nodes", 0), ("4 × runs", 1)],
            rows: OF_RUNS,
        },
        Subject {
            sizes: vec![1_000, if quick { 1 } else { 5 }],
            of: |of| format!("MPI clusters: {}, of {} workers each", of[1], of[0]),
            growth: [("4 × workers", 0), ("4 × clusters", 1)],
            rows: OF_MPI,
        },
    ]
}

/// The cluster that an order asks for.
fn scene(order: &str) -> anyhow::Result<Scene> {
    let (row, sizes) = order.split_once('\t').context("ROW, a tab, SIZES")?;
    let sizes = sizes.split(' ').map(str::parse).collect::<Result<Vec<usize>, _>>()?;
    let mut rows = [OF_POOLS, OF_RUNS, OF_MPI].into_iter().flatten();
    let (_, scene) = rows.find(|(of, _)| *of == row).context("there is no such row")?;
    scene(&sizes)
}

/// Prints how plans grow to four times as much of what a column says. Counts instructions where that
/// is possible.
pub(crate) fn measure(quick: bool, counted: bool) -> anyhow::Result<()> {
    for subject in subjects(quick) {
        if counted {
            let mut player = start_player()?;
            subject.print("Instructions", "instructions", count, |order| player.count(order))?;
        }
        let title = format!("Milliseconds, median of {ROUNDS},");
        subject.print(&title, "ms", tenths, |order| {
            let scene = scene(order)?;
            median_time(|| Ok(black_box(&scene).plan()))
        })?;
    }
    Ok(())
}

impl Subject {
    /// Prints a table with the costs of the orders: the first figure of a row as it is, the others as
    /// ratios to it, the last one both ways.
    fn print(
        &self,
        title: &str,
        unit: &str,
        shown: impl Fn(f64) -> String,
        mut cost: impl FnMut(&str) -> anyhow::Result<f64>,
    ) -> anyhow::Result<()> {
        let [(second, one), (third, other)] = self.growth;
        let head = format!("cluster | {unit} | {second} | {third} | 4 × all | 4 × all, {unit}");
        let mut table = Table::new(&head);
        for (label, _) in self.rows {
            let mut cost_of = |grown: &[usize]| {
                let factor = |index| if grown.contains(&index) { 4 } else { 1 };
                let sizes = self.sizes.iter().enumerate();
                let sizes = sizes.map(|(index, size)| (factor(index) * size).to_string());
                let sizes: Vec<_> = sizes.collect();
                cost(&format!("{label}\t{}", sizes.join(" ")))
            };
            let first = cost_of(&[])?;
            let grown = [cost_of(&[one])?, cost_of(&[other])?, cost_of(&[0, 1, 2])?];
            let ratios = grown.map(|value| ratio(value / first));
            table.row(label, [shown(first)].into_iter().chain(ratios).chain([shown(grown[2])]));
        }
        let sizes: Vec<_> = self.sizes.iter().map(|size| count(*size as f64)).collect();
        table.print(&format!("{title} of one plan: {} (linear is 4)", (self.of)(&sizes)));
        Ok(())
    }
}

/// A copy of this program whose instructions are counted.
pub(crate) fn start_player() -> anyhow::Result<Player> {
    Player::start("role:plan", NOTHING)
}

/// Plans as ordered on standard input.
pub(crate) fn play() -> anyhow::Result<()> {
    player::play(|order, turn| {
        if order == NOTHING {
            return turn(&mut || Ok(()));
        }
        if let Some(job) = Job::read(order)? {
            return turn(&mut || job.run());
        }
        let scene = scene(order)?;
        turn(&mut || {
            black_box(black_box(&scene).plan());
            Ok(())
        })
    })
}
