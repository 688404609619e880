//! CPU seconds and resident memory of a process, from `/proc` (proc(5)).

use std::fs;
use std::io;

/// What one process has used.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ProcessUse {
    /// Seconds in user mode.
    pub user_s: f64,
    /// Seconds in the kernel on its behalf.
    pub system_s: f64,
    /// Resident memory, bytes.
    pub resident_bytes: u64,
    /// Largest resident memory so far, bytes.
    pub resident_peak_bytes: u64,
    /// Threads.
    pub threads: u64,
}

/// Linux reports CPU time in ticks of 1/100 s (USER_HZ) on every architecture we build for.
const TICKS_A_SECOND: f64 = 100.0;

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// What process `pid` has used so far; `None` for this process. Errors: the process is gone, `/proc` unreadable.
pub fn process_use(pid: Option<u32>) -> io::Result<ProcessUse> {
    let directory = pid.map_or("/proc/self".to_owned(), |pid| format!("/proc/{pid}"));
    let stat = fs::read_to_string(format!("{directory}/stat"))?;
    let (_, after_name) = stat.rsplit_once(')').ok_or_else(|| invalid("no process name in /proc stat"))?;
    let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
    let field = |index: usize| -> io::Result<f64> {
        fields.get(index).and_then(|f| f.parse().ok()).ok_or_else(|| invalid("short /proc stat"))
    };
    let status = fs::read_to_string(format!("{directory}/status"))?;
    let kib = |key: &str| -> u64 {
        let line = status.lines().find(|l| l.starts_with(key));
        line.and_then(|l| l.split_ascii_whitespace().nth(1)).and_then(|v| v.parse::<u64>().ok()).unwrap_or(0)
    };
    Ok(ProcessUse {
        user_s: field(11)? / TICKS_A_SECOND,
        system_s: field(12)? / TICKS_A_SECOND,
        resident_bytes: kib("VmRSS:") * 1024,
        resident_peak_bytes: kib("VmHWM:") * 1024,
        threads: kib("Threads:"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_memory() {
        let used = process_use(None).expect("/proc is mounted");
        assert!(used.resident_bytes > 0 && used.threads >= 1);
    }
}
