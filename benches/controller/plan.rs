//! What a plan costs, and how that grows with the cluster. No sockets and no control plane.

use std::hint::black_box;

use anyhow::{bail, ensure};

use crate::jobs::Job;
use crate::objects::State as Runs;
use crate::player::{self, Player};
use crate::table::{ROUNDS, Table, count, median_time, ratio, tenths};
use crate::world::{self, Extent, Scene, State as Pools};
use crate::{mpi, runs};

/// The order that measures the cost of a turn in which nothing is done.
const NOTHING: &str = "nothing";

/// What a pair of tables shows.
struct Subject {
    /// The sizes of a cluster, in the order in which [`scene`] takes them.
    sizes: Vec<usize>,
    /// What is planned on, in the first column of figures, by these sizes as texts.
    of: fn(&[String]) -> String,
    /// What there is four times as much of in the next ones, and which of the sizes that is; in the
    /// last column it is everything.
    growth: [(&'static str, usize); 2],
    /// The word that orders a row, and what the row says.
    rows: &'static [(&'static str, &'static str)],
}

/// What is planned on, in full or a tenth of it.
fn subjects(quick: bool) -> [Subject; 3] {
    let size = |size: usize| if quick { size / 10 } else { size };
    [
        Subject {
            sizes: vec![size(1_000), size(200), size(2_000)],
            of: |of| format!("{} nodes, {} pools, {} pods", of[0], of[1], of[2]),
            growth: [("4 × nodes", 0), ("4 × pods", 2)],
            rows: &[
                ("pools-steady", "steady state: nothing to do"),
                ("pools-first", "first allocation of every pool"),
                ("pools-short", "every pool lacks a node, and none is eligible"),
            ],
        },
        Subject {
            sizes: vec![size(1_000), size(200)],
            of: |of| format!("{} nodes, {} coscheduled runs", of[0], of[1]),
            growth: [("4 × nodes", 0), ("4 × runs", 1)],
            rows: &[
                ("runs-steady", "each run has its placeholder and five members: nothing to do"),
                ("runs-new", "every run is new"),
                ("runs-full", "members wait on full nodes"),
                ("runs-one-claim", "all runs use one claim"),
            ],
        },
        Subject {
            sizes: vec![1_000, if quick { 1 } else { 5 }],
            of: |of| format!("MPI clusters: {}, of {} workers each", of[1], of[0]),
            growth: [("4 × workers", 0), ("4 × clusters", 1)],
            rows: &[
                ("mpi-steady", "MPI clusters whose launchers run: nothing to do"),
                ("mpi-start", "every launcher can start"),
                ("mpi-new", "nothing is made yet"),
            ],
        },
    ]
}

/// The cluster that an order asks for.
fn scene(order: &str) -> anyhow::Result<Scene> {
    let mut words = order.split(' ');
    let word = words.next().unwrap_or_default();
    let sizes: Vec<usize> = words.map(str::parse).collect::<Result<_, _>>()?;
    ensure!(sizes.len() >= 2, "{word} without sizes");
    let (first, second) = (sizes[0], sizes[1]);
    let pools = |state| {
        let [nodes, pools, pods] = sizes[..] else { bail!("{word} NODES POOLS PODS") };
        world::scene(state, Extent { nodes, pools, pods })
    };
    match word {
        "pools-steady" => pools(Pools::Steady),
        "pools-first" => pools(Pools::First),
        "pools-short" => pools(Pools::Short),
        "runs-steady" => runs::scene(Runs::Steady, first, second),
        "runs-new" => runs::scene(Runs::New, first, second),
        "runs-full" => runs::scene(Runs::Full, first, second),
        "runs-one-claim" => runs::scene(Runs::OneClaim, first, second),
        "mpi-steady" => mpi::scene(mpi::State::Steady, first, second),
        "mpi-start" => mpi::scene(mpi::State::Start, first, second),
        "mpi-new" => mpi::scene(mpi::State::New, first, second),
        _ => bail!("{word} is not a state"),
    }
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
            median_time(|| {
                black_box(black_box(&scene).plan());
                Ok(())
            })
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
        for (word, label) in self.rows {
            let mut cost_of = |is_grown: &dyn Fn(usize) -> bool| {
                let factor = |index| if is_grown(index) { 4 } else { 1 };
                let sizes = self.sizes.iter().enumerate();
                let sizes = sizes.map(|(index, size)| (factor(index) * size).to_string());
                let sizes: Vec<_> = sizes.collect();
                cost(&format!("{word} {}", sizes.join(" ")))
            };
            let first = cost_of(&|_| false)?;
            let grown =
                [cost_of(&|at| at == one)?, cost_of(&|at| at == other)?, cost_of(&|_| true)?];
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
