//! The figures of an arm, and their ratios.

use std::collections::BTreeMap;
use std::time::Duration;

use super::arguments::Arm;
use super::load::Load;

/// One measurement of an arm.
pub(crate) struct Round {
    pub(crate) arm: Arm,
    /// From the first creation until all runs have succeeded.
    pub(crate) took: Duration,
    /// Of each run, from its creation until it has succeeded.
    pub(crate) times: Vec<Duration>,
    /// How many runs had pods on two nodes or more.
    pub(crate) apart: usize,
    pub(crate) load: Load,
}

impl Round {
    pub(crate) fn print(&self) {
        println!(
            "{:<9} all Succeeded after {:.1} s; create -> Succeeded: median {:.1} s, p90 {:.1} s; {} of {} \
             runs on two nodes",
            self.arm,
            self.took.as_secs_f64(),
            quantile(&self.times, 50).as_secs_f64(),
            quantile(&self.times, 90).as_secs_f64(),
            self.apart,
            self.times.len(),
        );
        self.load.print(self.took, self.times.len());
    }
}

/// The time within which this many percent of the runs have succeeded; zero without runs.
pub(crate) fn quantile(times: &[Duration], percent: usize) -> Duration {
    let mut times = times.to_vec();
    times.sort();
    let rank = (times.len() * percent).div_ceil(100).max(1);
    times.get(rank - 1).copied().unwrap_or_default()
}

/// Prints the ratios of the arms, by the mean of all rounds of each.
pub(crate) fn print_summary(rounds: &[Round]) {
    for (what, figure) in [
        ("all Succeeded", (|round| round.took) as fn(&Round) -> Duration),
        ("median", |round| quantile(&round.times, 50)),
        ("p90", |round| quantile(&round.times, 90)),
        ("processor time", |round| round.load.busy()),
    ] {
        let figures = rounds.iter().map(|round| (round.arm, figure(round)));
        let ratios = ratios(figures);
        if !ratios.is_empty() {
            println!("{what}: {}", ratios.join(", "));
        }
    }
}

/// The ratios of the arms that were measured, as `stowplan/assistant 1.14`.
pub(crate) fn ratios(figures: impl Iterator<Item = (Arm, Duration)>) -> Vec<String> {
    let mut sums: BTreeMap<Arm, (f64, f64)> = BTreeMap::new();
    for (arm, figure) in figures {
        let (sum, count) = sums.entry(arm).or_default();
        *sum += figure.as_secs_f64();
        *count += 1.0;
    }
    let mean = |arm| sums.get(&arm).map(|(sum, count)| sum / count).filter(|mean| *mean > 0.0);
    [(Arm::Assistant, Arm::Neither), (Arm::Stowplan, Arm::Neither), (Arm::Stowplan, Arm::Assistant)]
        .into_iter()
        .filter_map(|(of, to)| Some(format!("{of}/{to} {:.2}", mean(of)? / mean(to)?)))
        .collect()
}
