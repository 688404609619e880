//! What the end of a mount still waits for, in words for people.

use crate::kernel::abi;
use std::fmt;

/// Calls that a message names.
const CALLS_SHOWN: usize = 4;

/// How far a mount is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Stage {
    /// It answers the kernel.
    #[default]
    Serving,
    /// The kernel sends no more requests; earlier calls are still in flight.
    Draining,
    /// What was written and not stored is being stored.
    Storing,
    /// Over.
    Ended,
}

/// A call that is in flight: its operation, and its thread (0: none).
pub(crate) type Call = (u32, u32);

/// What a mount waits for at the moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// How far it is.
    pub stage: Stage,
    /// Number of open files.
    pub open_files: usize,
    pub(crate) calls: Vec<Call>,
    /// Files with data that is not stored.
    pub unstored_files: usize,
    /// Number of these bytes.
    pub unstored_bytes: u64,
    /// Servers that do not answer, and for how many seconds.
    pub silent_servers: Vec<(String, u64)>,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        match self.stage {
            Stage::Ended => return write!(f, "it has ended"),
            Stage::Serving if self.open_files > 0 => {
                let verb = if self.open_files == 1 { "is" } else { "are" };
                let open = files(self.open_files);
                parts.push(format!("{open} {verb} open in it, and it ends when the last is closed"));
            }
            _ => {}
        }
        if !self.calls.is_empty() {
            parts.push(calls(&self.calls));
        }
        if self.unstored_files > 0 {
            let verb = if self.stage == Stage::Storing { "storing" } else { "not stored yet" };
            parts.push(format!("{verb}: {} bytes of {}", self.unstored_bytes, files(self.unstored_files)));
        }
        parts.extend(
            self.silent_servers.iter().map(|(server, s)| format!("{server} has not answered for {s} s")),
        );
        if parts.is_empty() {
            let rest = match self.stage {
                Stage::Serving => {
                    "no file is open in it, but a directory may be in use, or a container has a copy of the mount"
                }
                _ => "its session is being closed",
            };
            parts.push(rest.to_owned());
        }
        f.write_str(&parts.join("; "))
    }
}

fn files(count: usize) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}

fn calls(all: &[Call]) -> String {
    let one = |(operation, thread): &Call| match thread {
        0 => abi::operation_name(*operation).to_owned(),
        thread => format!("{} of process {thread}", abi::operation_name(*operation)),
    };
    let shown: Vec<String> = all.iter().take(CALLS_SHOWN).map(one).collect();
    let more = if all.len() > CALLS_SHOWN { ", …" } else { "" };
    let count = if all.len() == 1 { "1 call is".to_owned() } else { format!("{} calls are", all.len()) };
    format!("{count} at work ({}{more})", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_is_waited_for_and_on_whom() {
        let silent_servers = vec![("data server d1 (h:1)".to_owned(), 12)];
        let serving = Progress { open_files: 1, silent_servers, ..Progress::default() };
        let said = serving.to_string();
        assert!(said.starts_with("1 file is open in it"), "{said}");
        assert!(said.ends_with("data server d1 (h:1) has not answered for 12 s"), "{said}");
        let draining = Progress { stage: Stage::Draining, calls: vec![(4, 77)], ..Progress::default() };
        assert_eq!(draining.to_string(), "1 call is at work (setattr of process 77)");
        let calls = vec![(20, 1), (16, 0), (4, 2), (4, 3), (4, 4)];
        let many = Progress { stage: Stage::Draining, calls, ..Progress::default() };
        assert!(many.to_string().starts_with("5 calls are at work (fsync of process 1, write, "), "{many}");
        let (unstored_files, unstored_bytes) = (2, 4096);
        let storing =
            Progress { stage: Stage::Storing, unstored_files, unstored_bytes, ..Progress::default() };
        assert_eq!(storing.to_string(), "storing: 4096 bytes of 2 files");
    }
}
