//! What a result was measured on: results of different machines must never be mistaken for one another.

use serde::{Deserialize, Serialize};
use std::fs;

/// The measuring machine.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// Logical cores usable by this process.
    pub cores: usize,
    /// Model name of the first core; empty where the kernel does not say.
    pub processor: String,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Kernel name and release.
    pub kernel: String,
    /// Version of this program.
    pub version: String,
}

impl Machine {
    /// This machine.
    pub fn here() -> Machine {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let after = |text: &str, key: &str| -> String {
            let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
            line.split_once(':').map_or(String::new(), |(_, value)| value.trim().to_owned())
        };
        let total = after(&text("/proc/meminfo"), "MemTotal");
        let kib: u64 = total.split_ascii_whitespace().next().and_then(|v| v.parse().ok()).unwrap_or(0);
        Machine {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            processor: after(&text("/proc/cpuinfo"), "model name"),
            memory_bytes: kib * 1024,
            kernel: format!("Linux {}", text("/proc/sys/kernel/osrelease").trim()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// One line for the top of a report.
    pub fn describe(&self) -> String {
        let gib = self.memory_bytes as f64 / (1u64 << 30) as f64;
        let processor = if self.processor.is_empty() { "unnamed processor" } else { &self.processor };
        format!("{} cores ({processor}), {gib:.0} GiB, {}, vazao {}", self.cores, self.kernel, self.version)
    }
}
