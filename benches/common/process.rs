//! Child processes, and what the kernel says of a process.

use std::process::Child;

use anyhow::Context as _;

/// A process that ends when this is dropped.
pub(crate) struct Owned(pub(crate) Child);

impl Drop for Owned {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A line of `/proc/<process>/status`, in MiB.
pub(crate) fn mebibytes(process: u32, field: &str) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kibibytes = line.with_context(|| format!("no {field}"))?.trim().trim_end_matches(" kB");
    Ok(kibibytes.parse::<f64>()? / 1024.0)
}

/// The resident memory of a process now, and the highest so far, in MiB with one decimal.
pub(crate) fn memory(process: u32) -> anyhow::Result<[String; 2]> {
    let [resident, highest] = ["VmRSS", "VmHWM"].map(|field| mebibytes(process, field));
    Ok([format!("{:.1}", resident?), format!("{:.1}", highest?)])
}

/// The time that a process has had a processor, user and kernel, in seconds.
pub(crate) fn processor_time(process: u32) -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name in parentheses may contain anything; user and system time are the 14th and 15th.
    let (_, rest) = stat.rsplit_once(") ").context("no name in stat")?;
    let ticks = rest.split(' ').skip(11).take(2).map(str::parse::<f64>);
    // Linux counts hundredths of a second for user space.
    Ok(ticks.sum::<Result<f64, _>>()? / 100.0)
}
