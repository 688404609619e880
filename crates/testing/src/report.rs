//! What a process and its threads wait for, as the kernel tells it: for a reader who has to find out why it hangs.

use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Threads of one process that are told; the rest are counted.
const THREADS_MAX: usize = 48;
/// Frames of a kernel stack that are told.
const FRAMES_MAX: usize = 8;

/// A process in one line: its number, state and command line.
pub fn line_of_process(process: u32) -> String {
    let directory = Path::new("/proc").join(process.to_string());
    let arguments = fs::read(directory.join("cmdline")).unwrap_or_default();
    let mut shown = String::from_utf8_lossy(&arguments).replace('\0', " ").trim_end().to_owned();
    if shown.is_empty() {
        shown = format!("[{}]", read(&directory.join("comm")));
    }
    format!("process {process}, {}: {shown}", state(&directory))
}

/// A process and each of its threads: state, where in the kernel it waits, and the kernel's stack where it may be read.
pub fn of_process(process: u32) -> String {
    let directory = Path::new("/proc").join(process.to_string());
    let mut text = line_of_process(process);
    text.push('\n');
    let mut threads: Vec<_> = match fs::read_dir(directory.join("task")) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(_) => return text,
    };
    threads.sort();
    for thread in threads.iter().take(THREADS_MAX) {
        let number = thread.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (name, place) = (read(&thread.join("comm")), read(&thread.join("wchan")));
        let _ = writeln!(text, "    thread {number} {name}, {}: {place}{}", state(thread), stack(thread));
    }
    if threads.len() > THREADS_MAX {
        let _ = writeln!(text, "    and {} threads more", threads.len() - THREADS_MAX);
    }
    text
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default().trim_end().to_owned()
}

/// The state as proc(5) names it: `S (sleeping)`.
fn state(directory: &Path) -> String {
    let status = read(&directory.join("status"));
    let line = status.lines().find_map(|line| line.strip_prefix("State:"));
    line.map_or("gone", str::trim).to_owned()
}

/// The kernel's stack in one line; only root may read it.
fn stack(thread: &Path) -> String {
    let stack = read(&thread.join("stack"));
    let function = |line: &str| {
        let named = line.rsplit(' ').next().unwrap_or_default();
        named.split('+').next().unwrap_or_default().to_owned()
    };
    let frames: Vec<String> = stack.lines().take(FRAMES_MAX).map(function).collect();
    if frames.is_empty() { String::new() } else { format!(" ({})", frames.join(" < ")) }
}
