//! The processor time that this machine has spent, by program.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};

/// How many programs are printed.
const SHOWN: usize = 12;

/// The kernel counts in hundredths of a second, on all machines for which it shows the times to programs.
const TICKS: u64 = 100;

/// The processor time up to a moment, or between two.
#[derive(Clone, Debug, Default)]
pub(crate) struct Load {
    /// Of all processors, in ticks, without idle time.
    busy: u64,
    /// Of processes with this name, in ticks, with that of children that have ended.
    programs: BTreeMap<String, u64>,
}

impl Load {
    pub(crate) fn now() -> Result<Self> {
        let busy = parse_busy(&fs::read_to_string("/proc/stat")?).context("/proc/stat")?;
        let mut programs = BTreeMap::new();
        for entry in fs::read_dir("/proc")?.flatten() {
            // A process may end meanwhile; other entries have no such file.
            let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
            if let Some((name, ticks)) = parse_process(&stat) {
                let arguments = fs::read(entry.path().join("cmdline")).unwrap_or_default();
                *programs.entry(program(name, &arguments)).or_default() += ticks;
            }
        }
        Ok(Self { busy, programs })
    }

    pub(crate) fn since(&self, before: &Self) -> Self {
        let earlier = |name: &String| before.programs.get(name).copied().unwrap_or_default();
        let programs = self.programs.iter();
        let programs =
            programs.map(|(name, ticks)| (name.clone(), ticks.saturating_sub(earlier(name))));
        Self { busy: self.busy.saturating_sub(before.busy), programs: programs.collect() }
    }

    pub(crate) fn busy(&self) -> Duration {
        seconds(self.busy)
    }

    pub(crate) fn print(&self, took: Duration, runs: usize) {
        let busy = self.busy().as_secs_f64();
        let mut programs: Vec<_> = self.programs.iter().filter(|(_, ticks)| **ticks > 0).collect();
        programs.sort_by_key(|(_, ticks)| std::cmp::Reverse(**ticks));
        let programs: Vec<_> = programs
            .into_iter()
            .take(SHOWN)
            .map(|(name, ticks)| format!("{name} {:.1}", seconds(*ticks).as_secs_f64()))
            .collect();
        println!(
            "          {:.2} processors busy, {:.2} s a run; seconds: {}",
            busy / took.as_secs_f64(),
            busy / runs.max(1) as f64,
            programs.join(", "),
        );
    }
}

/// The name of a program; of stowplan, which is a webhook, a controller or a placeholder, with its command.
/// Arguments end with a zero each.
pub(crate) fn program(name: &str, arguments: &[u8]) -> String {
    let command = arguments.split(|byte| *byte == 0).nth(1).filter(|_| name == "stowplan");
    let command = command.and_then(|command| std::str::from_utf8(command).ok());
    command.map_or_else(|| name.to_owned(), |command| format!("{name} {command}"))
}

fn seconds(ticks: u64) -> Duration {
    Duration::from_millis(ticks * 1000 / TICKS)
}

/// The first line of `/proc/stat`: the time of users, nice, of the kernel, idle, waiting for disks, interrupts.
pub(crate) fn parse_busy(stat: &str) -> Option<u64> {
    let times = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let times: Vec<u64> = times.map(str::parse).collect::<Result<_, _>>().ok()?;
    let [user, nice, system, _idle, _waiting, interrupts @ ..] = &times[..] else { return None };
    Some(user + nice + system + interrupts.iter().take(2).sum::<u64>())
}

/// A process by its `/proc/PID/stat`: its name and its ticks.
pub(crate) fn parse_process(stat: &str) -> Option<(&str, u64)> {
    let (start, rest) = stat.rsplit_once(')')?;
    let (_, name) = start.split_once('(')?;
    // utime, stime, cutime and cstime are the fields 14 to 17; `rest` begins with the third.
    let times: Vec<u64> =
        rest.split_whitespace().skip(11).take(4).filter_map(|time| time.parse().ok()).collect();
    (times.len() == 4).then(|| (name, times.iter().sum()))
}
