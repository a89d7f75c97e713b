//! What a plan costs, and how that grows with the cluster. No sockets and no control plane.

use std::hint::black_box;
use std::time::Instant;

use anyhow::{Context as _, ensure};

use crate::jobs::Job;
use crate::player::{self, Player};
use crate::table::{Table, count, ratio};
use crate::world::{self, Scene};
use crate::{mpi, numa, runs, world::Extent};

/// What is planned of pools, by the word that orders it.
const POOLS: [(&str, world::State, &str); 3] = [
    ("pools-steady", world::State::Steady, "steady state: nothing to do"),
    ("pools-first", world::State::First, "first allocation of every pool"),
    ("pools-short", world::State::Short, "every pool lacks a node, and none is eligible"),
];

/// What is planned of coscheduled runs.
const RUNS: [(&str, runs::State, &str); 4] = [
    (
        "runs-steady",
        runs::State::Steady,
        "each run has its placeholder and five members: nothing to do",
    ),
    ("runs-new", runs::State::New, "every run is new"),
    ("runs-full", runs::State::Full, "members wait on full nodes"),
    ("runs-one-claim", runs::State::OneClaim, "all runs use one claim"),
];

/// What is planned of MPI clusters.
const CLUSTERS: [(&str, mpi::State, &str); 3] = [
    ("mpi-steady", mpi::State::Steady, "MPI clusters whose launchers run: nothing to do"),
    ("mpi-start", mpi::State::Start, "every launcher can start"),
    ("mpi-new", mpi::State::New, "nothing is made yet"),
];

/// What is planned of pods that wait for NUMA nodes.
const MACHINES: [(&str, numa::State, &str); 3] = [
    (
        "numa-steady",
        numa::State::Steady,
        "NUMA nodes with a pod each, and no pod waits: nothing to do",
    ),
    ("numa-wait", numa::State::Wait, "pods of ten workloads wait, and no NUMA node is feasible"),
    ("numa-start", numa::State::Start, "every pod can start"),
];

/// The order that measures the cost of a turn in which nothing is done.
const NOTHING: &str = "nothing";

/// Timed plans; their median is printed.
const ROUNDS: usize = 9;

/// What a pair of tables shows.
struct Subject {
    /// What is planned on, in the first column of figures.
    of: String,
    /// What there is four times as much of in the next ones; in the last it is everything.
    growth: [&'static str; 2],
    /// What a row says, and the order of each of its clusters.
    rows: Vec<(&'static str, [String; 4])>,
}

/// Prints how plans grow from these sizes to four times as much of what a column says. Counts
/// instructions where that is possible.
pub(crate) fn measure(
    pools: Extent,
    runs: runs::Extent,
    clusters: mpi::Extent,
    machines: numa::Extent,
    counted: bool,
) -> anyhow::Result<()> {
    for subject in [of_pools(pools), of_runs(runs), of_clusters(clusters), of_machines(machines)] {
        subject.print(counted)?;
    }
    Ok(())
}

fn of_pools(extent: Extent) -> Subject {
    let Extent { nodes, pools, pods } = extent;
    let extents = [
        extent,
        Extent { nodes: 4 * nodes, ..extent },
        Extent { pods: 4 * pods, ..extent },
        Extent { nodes: 4 * nodes, pools: 4 * pools, pods: 4 * pods },
    ];
    let order = |word: &str| {
        extents.map(|Extent { nodes, pools, pods }| format!("{word} {nodes} {pools} {pods}"))
    };
    let [nodes, pools, pods] = [nodes, pools, pods].map(|size| count(size as f64));
    Subject {
        of: format!("{nodes} nodes, {pools} pools, {pods} pods"),
        growth: ["4 × nodes", "4 × pods"],
        rows: POOLS.iter().map(|(word, _, label)| (*label, order(word))).collect(),
    }
}

fn of_runs(extent: runs::Extent) -> Subject {
    let runs::Extent { nodes, runs } = extent;
    let extents = [
        extent,
        runs::Extent { nodes: 4 * nodes, ..extent },
        runs::Extent { runs: 4 * runs, ..extent },
        runs::Extent { nodes: 4 * nodes, runs: 4 * runs },
    ];
    let order =
        |word: &str| extents.map(|runs::Extent { nodes, runs }| format!("{word} {nodes} {runs}"));
    let [nodes, runs] = [nodes, runs].map(|size| count(size as f64));
    Subject {
        of: format!("{nodes} nodes, {runs} coscheduled runs"),
        growth: ["4 × nodes", "4 × runs"],
        rows: RUNS.iter().map(|(word, _, label)| (*label, order(word))).collect(),
    }
}

fn of_clusters(extent: mpi::Extent) -> Subject {
    let mpi::Extent { workers, clusters } = extent;
    let extents = [
        extent,
        mpi::Extent { workers: 4 * workers, ..extent },
        mpi::Extent { clusters: 4 * clusters, ..extent },
        mpi::Extent { workers: 4 * workers, clusters: 4 * clusters },
    ];
    let order = |word: &str| {
        extents.map(|mpi::Extent { workers, clusters }| format!("{word} {workers} {clusters}"))
    };
    let [workers, clusters] = [workers, clusters].map(|size| count(size as f64));
    Subject {
        of: format!("MPI clusters: {clusters}, of {workers} workers each"),
        growth: ["4 × workers", "4 × clusters"],
        rows: CLUSTERS.iter().map(|(word, _, label)| (*label, order(word))).collect(),
    }
}

fn of_machines(extent: numa::Extent) -> Subject {
    let numa::Extent { nodes, pods } = extent;
    let extents = [
        extent,
        numa::Extent { nodes: 4 * nodes, ..extent },
        numa::Extent { pods: 4 * pods, ..extent },
        numa::Extent { nodes: 4 * nodes, pods: 4 * pods },
    ];
    let order =
        |word: &str| extents.map(|numa::Extent { nodes, pods }| format!("{word} {nodes} {pods}"));
    let [nodes, pods] = [nodes, pods].map(|size| count(size as f64));
    Subject {
        of: format!("{nodes} machines of 4 NUMA nodes, {pods} pods that wait"),
        growth: ["4 × machines", "4 × pods"],
        rows: MACHINES.iter().map(|(word, _, label)| (*label, order(word))).collect(),
    }
}

/// The cluster that an order asks for.
fn scene(order: &str) -> anyhow::Result<Scene> {
    let mut words = order.split(' ');
    let word = words.next().unwrap_or_default();
    let sizes: Vec<usize> = words.map(str::parse).collect::<Result<_, _>>()?;
    if let Some((_, state, _)) = POOLS.into_iter().find(|(known, ..)| *known == word) {
        ensure!(sizes.len() == 3, "{word} NODES POOLS PODS");
        return world::scene(state, Extent { nodes: sizes[0], pools: sizes[1], pods: sizes[2] });
    }
    if let Some((_, state, _)) = CLUSTERS.into_iter().find(|(known, ..)| *known == word) {
        ensure!(sizes.len() == 2, "{word} WORKERS CLUSTERS");
        return mpi::scene(state, mpi::Extent { workers: sizes[0], clusters: sizes[1] });
    }
    if let Some((_, state, _)) = MACHINES.into_iter().find(|(known, ..)| *known == word) {
        ensure!(sizes.len() == 2, "{word} NODES PODS");
        return numa::scene(state, numa::Extent { nodes: sizes[0], pods: sizes[1] });
    }
    let (_, state, _) = RUNS
        .into_iter()
        .find(|(known, ..)| *known == word)
        .with_context(|| format!("{word} is not a state"))?;
    ensure!(sizes.len() == 2, "{word} NODES RUNS");
    runs::scene(state, runs::Extent { nodes: sizes[0], runs: sizes[1] })
}

impl Subject {
    fn print(&self, counted: bool) -> anyhow::Result<()> {
        let mut milliseconds = self.table("ms");
        for (label, orders) in &self.rows {
            let took = orders.iter().map(|order| median(order)).collect::<Result<Vec<_>, _>>()?;
            row(&mut milliseconds, label, &took, |value| format!("{value:.1}"));
        }
        if counted {
            let mut player = start_player()?;
            let mut instructions = self.table("instructions");
            for (label, orders) in &self.rows {
                let counts = orders
                    .iter()
                    .map(|order| player.count(order))
                    .collect::<Result<Vec<_>, _>>()?;
                row(&mut instructions, label, &counts, count);
            }
            instructions.print(&self.title("Instructions"));
        }
        milliseconds.print(&self.title(&format!("Milliseconds, median of {ROUNDS},")));
        Ok(())
    }

    fn title(&self, what: &str) -> String {
        format!("{what} of one plan: {} (linear is 4)", self.of)
    }

    fn table(&self, unit: &str) -> Table {
        let [second, third] = self.growth;
        let all = format!("4 × all, {unit}");
        Table::new(&["cluster", unit, second, third, "4 × all", &all])
    }
}

/// The first figure as it is, the others as ratios to it; the last one both ways.
fn row(table: &mut Table, label: &str, values: &[f64], shown: impl Fn(f64) -> String) {
    let first = values[0];
    let ratios = values[1..].iter().map(|value| ratio(value / first));
    let last = values[values.len() - 1];
    table.row([label.to_owned(), shown(first)].into_iter().chain(ratios).chain([shown(last)]));
}

/// Milliseconds of one plan.
fn median(order: &str) -> anyhow::Result<f64> {
    let scene = scene(order)?;
    let mut took: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            let plan = black_box(black_box(&scene).plan());
            let took = began.elapsed();
            drop(plan);
            took.as_secs_f64() * 1e3
        })
        .collect();
    took.sort_by(f64::total_cmp);
    Ok(took[ROUNDS / 2])
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
