//! The metrics that every client of Prometheus has of its own process, by their customary names, so
//! that the dashboards and alerts of a cluster work for stowplan too.
//!
//! They are read from `/proc` when the metrics are. What cannot be read is left out.

use procfs::process::Process;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// Reads the metrics of this process.
#[derive(Debug)]
pub(super) struct OwnProcess;

impl Collector for OwnProcess {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Ok(process) = Process::myself() else { return Ok(()) };
        let mut gauge = |name: &str, help: &str, unit: Option<&Unit>, value: u64| {
            let value = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            let metric = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
            value.encode(metric)
        };
        if let Ok(count) = process.fd_count() {
            gauge("process_open_fds", "Open file descriptors", None, count as u64)?;
        }
        if let Ok(limits) = process.limits()
            && let procfs::process::LimitValue::Value(most) = limits.max_open_files.soft_limit
        {
            gauge("process_max_fds", "The most file descriptors that may be open", None, most)?;
        }
        let Ok(stat) = process.stat() else { return Ok(()) };
        let resident = stat.rss.saturating_mul(procfs::page_size());
        gauge("process_resident_memory", "Resident memory", Some(&Unit::Bytes), resident)?;
        gauge("process_virtual_memory", "Virtual memory", Some(&Unit::Bytes), stat.vsize)?;
        let per_second = procfs::ticks_per_second();
        if let Ok(boot) = procfs::boot_time_secs() {
            let started = boot + stat.starttime / per_second;
            let help = "When the process started, in seconds since 1970";
            gauge("process_start_time", help, Some(&Unit::Seconds), started)?;
        }
        #[expect(clippy::cast_precision_loss, reason = "2^53 ticks are three million years")]
        let used = (stat.utime + stat.stime) as f64 / per_second as f64;
        let help = "Processor time in user and kernel mode";
        let counter = ConstCounter::new(used);
        let unit = Some(&Unit::Seconds);
        let metric = encoder.encode_descriptor("process_cpu", help, unit, MetricType::Counter)?;
        counter.encode(metric)
    }
}
