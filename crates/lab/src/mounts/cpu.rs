//! Processor time of the mounts, of the servers, and of the whole machine while something is measured.
//!
//! Mounts and servers are the other processes of this very program, told apart by their command lines: what does
//! nothing meanwhile counts nothing, so that it does not matter which of them serve the place that is measured.

use serde::{Deserialize, Serialize};
use std::fs;
use std::path::PathBuf;
use vazao_meter::cpu::process_use;
use vazao_sampler::machine_busy_s;

const GIB: f64 = (1u64 << 30) as f64;

/// Seconds of processors.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Seconds {
    /// Of processes that mount.
    pub mounts: f64,
    /// Of all other daemons of this program.
    pub servers: f64,
    /// Of everything, the kernel included.
    pub machine: f64,
}

/// What had been used when it was looked at.
#[derive(Clone, Debug)]
pub(super) struct Used {
    mounts: Vec<u32>,
    servers: Vec<u32>,
    seconds: Seconds,
}

impl Used {
    /// Finds the processes, and what they have used until now.
    pub(super) fn now() -> Used {
        let (mut mounts, mut servers) = (Vec::new(), Vec::new());
        let program = std::env::current_exe().ok();
        for process in processes_of(program) {
            let words = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            match words.split(|&byte| byte == 0).nth(1) {
                Some(b"mount") => mounts.push(process),
                Some(b"lab") | None => {}
                Some(_) => servers.push(process),
            }
        }
        let seconds = Seconds::of(&mounts, &servers);
        Used { mounts, servers, seconds }
    }

    /// What has been used since.
    pub(super) fn since(&self) -> Seconds {
        let now = Seconds::of(&self.mounts, &self.servers);
        Seconds {
            mounts: now.mounts - self.seconds.mounts,
            servers: now.servers - self.seconds.servers,
            machine: now.machine - self.seconds.machine,
        }
    }
}

/// Processes that run a program, but for the calling one.
fn processes_of(program: Option<PathBuf>) -> Vec<u32> {
    let Some(program) = program else { return Vec::new() };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_one =
        |process: &u32| fs::read_link(format!("/proc/{process}/exe")).is_ok_and(|exe| exe == program);
    numbers.filter(|process| *process != std::process::id()).filter(is_one).collect()
}

impl Seconds {
    fn of(mounts: &[u32], servers: &[u32]) -> Seconds {
        let used = |processes: &[u32]| -> f64 {
            let all = processes.iter().filter_map(|&process| process_use(Some(process)).ok());
            all.map(|used| used.user_s + used.system_s).sum()
        };
        Seconds { mounts: used(mounts), servers: used(servers), machine: machine_busy_s() }
    }

    /// The same for 1 GiB when it was for `bytes`.
    pub(super) fn a_gibibyte(self, bytes: u64) -> Seconds {
        let gibibytes = bytes.max(1) as f64 / GIB;
        Seconds {
            mounts: self.mounts / gibibytes,
            servers: self.servers / gibibytes,
            machine: self.machine / gibibytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_told_for_a_gibibyte_and_this_process_is_not_among_the_servers() {
        let seconds = Seconds { mounts: 1.0, servers: 2.0, machine: 4.0 }.a_gibibyte(2 << 30);
        assert_eq!(seconds, Seconds { mounts: 0.5, servers: 1.0, machine: 2.0 });
        let processes = processes_of(std::env::current_exe().ok());
        assert!(!processes.contains(&std::process::id()));
    }
}
