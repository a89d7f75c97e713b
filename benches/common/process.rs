//! What the kernel says of a process.

use std::path::PathBuf;

use anyhow::Context as _;

/// A line of `/proc/<process>/status`, in bytes.
pub(crate) fn memory_of(process: &str, field: &str) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(PathBuf::from("/proc").join(process).join("status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kibibytes = line.with_context(|| format!("no {field}"))?.trim().trim_end_matches(" kB");
    Ok(kibibytes.parse::<f64>()? * 1024.0)
}

/// The time that a process has had a processor, user and kernel, in seconds.
#[allow(dead_code, reason = "each bench uses its own part")]
pub(crate) fn processor_time(process: &str) -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string(PathBuf::from("/proc").join(process).join("stat"))?;
    // The name in parentheses may contain anything; user and system time are the 14th and 15th.
    let (_, rest) = stat.rsplit_once(") ").context("no name in stat")?;
    let ticks = rest.split(' ').skip(11).take(2).map(str::parse::<f64>);
    // Linux counts hundredths of a second for user space.
    Ok(ticks.sum::<Result<f64, _>>()? / 100.0)
}
