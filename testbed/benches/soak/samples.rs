//! Memory and descriptors of stowplan's processes over time, from their metrics.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::service::world::World;

const COMPONENTS: [&str; 2] = ["webhook", "controller"];

/// Younger processes have not reached their usual size.
const YOUNG: f64 = 60.0;

/// How much larger the second half may be than the first one: the noise of allocators and of
/// connections.
const GROWTH: f64 = 1.25;
const MEMORY_SLACK: f64 = 8.0;
const DESCRIPTOR_SLACK: f64 = 16.0;

/// One process at one time.
#[derive(Clone, Debug)]
struct Sample {
    component: &'static str,
    at: Duration,
    age: f64,
    mebibytes: f64,
    descriptors: f64,
}

#[derive(Debug, Default)]
pub(crate) struct Samples {
    all: Vec<Sample>,
    last: usize,
}

impl Samples {
    pub(crate) async fn take(&mut self, world: &World, at: Duration) -> Result<()> {
        self.last = self.all.len();
        for component in COMPONENTS {
            for pod in world.pods(component).await? {
                let text = world.metrics(&pod).await?;
                let read = |metric: &str| -> Result<f64> {
                    let line = text.lines().find_map(|line| line.strip_prefix(metric));
                    Ok(line.with_context(|| format!("no {metric}"))?.trim().parse()?)
                };
                let started = read("process_start_time_seconds ")?;
                let now = std::time::SystemTime::now();
                let now = now.duration_since(std::time::UNIX_EPOCH)?.as_secs_f64();
                self.all.push(Sample {
                    component,
                    at,
                    age: now - started,
                    mebibytes: read("process_resident_memory_bytes ")? / 1024.0 / 1024.0,
                    descriptors: read("process_open_fds ")?,
                });
            }
        }
        ensure!(self.all.len() > self.last, "no process was found");
        Ok(())
    }

    /// A line for a round.
    pub(crate) fn print_last(&self, round: usize, fault: &str) {
        let cells = COMPONENTS.map(|component| {
            let own = self.all[self.last..].iter().filter(|one| one.component == component);
            let own = own.map(|one| format!("{:.0} MiB/{}", one.mebibytes, one.descriptors));
            format!("{component} {}", own.collect::<Vec<_>>().join(", "))
        });
        let at = self.all.last().map_or(0, |one| one.at.as_secs());
        println!("[{:2}:{:02}] round {round}, {fault}: {}", at / 60, at % 60, cells.join("; "));
    }

    /// The medians of both halves.
    pub(crate) fn print_summary(&self, rounds: usize) {
        println!("\n{rounds} faults; nothing is left behind");
        println!("| component | half | samples | MiB, median | descriptors, median |");
        println!("| --- | --- | ---: | ---: | ---: |");
        for component in COMPONENTS {
            for (half, samples) in ["first", "second"].into_iter().zip(self.halves(component)) {
                let memory = median(samples.iter().map(|one| one.mebibytes));
                let descriptors = median(samples.iter().map(|one| one.descriptors));
                let count = samples.len();
                println!("| {component} | {half} | {count} | {memory:.1} | {descriptors} |");
            }
        }
    }

    /// The samples of grown-up processes in the first and in the second half of the time.
    fn halves(&self, component: &str) -> [Vec<&Sample>; 2] {
        let end = self.all.last().map_or(Duration::ZERO, |one| one.at);
        let own = self.all.iter().filter(|one| one.component == component && one.age > YOUNG);
        let (first, second) = own.partition(|one| one.at * 2 <= end);
        [first, second]
    }

    /// # Errors
    /// The second half needs more than the first one.
    pub(crate) fn are_flat(&self) -> Result<()> {
        for component in COMPONENTS {
            let [first, second] = self.halves(component);
            if first.is_empty() || second.is_empty() {
                eprintln!("too short to compare the halves of {component}");
                continue;
            }
            for (unit, slack) in [("MiB", MEMORY_SLACK), ("descriptors", DESCRIPTOR_SLACK)] {
                let of = |one: &&Sample| match unit {
                    "MiB" => one.mebibytes,
                    _ => one.descriptors,
                };
                let [before, now] = [&first, &second].map(|half| median(half.iter().map(of)));
                let most = before * GROWTH + slack;
                ensure!(now <= most, "{component}: {now:.1} {unit}, which were {before:.1}");
            }
        }
        Ok(())
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
