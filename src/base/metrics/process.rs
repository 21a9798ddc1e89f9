//! Resource use of the process, under the standard names of Prometheus exporters.

use std::{fs, io};

use parking_lot::Mutex;
use prometheus::{Counter, IntGauge, Registry};
use rustix::{
    process::{Resource, getrlimit},
    time::{ClockId, clock_gettime},
};

use super::labelled::{gauge, registered};
use crate::base::stats::field;

/// Resource use of the process, as of the last [`ProcessMetrics::look`].
pub struct ProcessMetrics {
    /// Serializes samples: two concurrent ones would each add the same CPU time.
    looking: Mutex<()>,
    cpu: Counter,
    resident: IntGauge,
    threads: IntGauge,
    open_fds: IntGauge,
    max_fds: IntGauge,
}

impl ProcessMetrics {
    pub(super) fn new(registry: &Registry, prefix: &str, _: String) -> ProcessMetrics {
        let gauge = |name, help: &str| gauge(registry, &format!("{prefix}_{name}"), help.into());
        let cpu = Counter::new(
            format!("{prefix}_cpu_seconds_total"),
            "Processor time of the server, its media workers left out.",
        );
        ProcessMetrics {
            looking: Mutex::default(),
            cpu: registered(registry, cpu),
            resident: gauge("resident_memory_bytes", "Memory of the server, workers left out."),
            threads: gauge("threads", "Threads of the server."),
            open_fds: gauge("open_fds", "Open file descriptors."),
            max_fds: gauge("max_fds", "Most file descriptors that may be open."),
        }
    }

    /// Samples the resource use of the process; reads files in `/proc`.
    pub fn look(&self) -> io::Result<()> {
        let _looking = self.looking.lock();
        let used = clock_gettime(ClockId::ProcessCPUTime);
        let used = used.tv_sec as f64 + used.tv_nsec as f64 / 1e9;
        self.cpu.inc_by((used - self.cpu.get()).max(0.0));
        let status = fs::read_to_string("/proc/self/status")?;
        let field = |name| field(&status, name).map_or(0, |found| found as i64);
        self.resident.set(field("VmRSS:") * 1024);
        self.threads.set(field("Threads:"));
        self.open_fds.set(fs::read_dir("/proc/self/fd")?.count() as i64);
        let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        self.max_fds.set(i64::try_from(most).unwrap_or(i64::MAX));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_uses_something() {
        let process = ProcessMetrics::new(&Registry::new(), "process", String::new());
        process.look().expect("the system tells");
        assert!(process.cpu.get() > 0.0 && process.resident.get() > 1 << 20);
        assert!(process.threads.get() >= 1 && process.open_fds.get() >= 3);
        assert!(process.max_fds.get() >= process.open_fds.get());
    }
}
