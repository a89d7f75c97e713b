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
