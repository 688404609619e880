//! What a process and its threads wait for, as the kernel tells it: for a reader who has to find out why it hangs.

use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Groups of threads of one process that are told; the rest are counted.
const GROUPS_MAX: usize = 24;
/// Names of threads that are told for each group.
const NAMES_MAX: usize = 8;
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

/// A process and its threads: state, where in the kernel they wait, and the kernel's stack where it may be read.
/// Threads that wait at the same place share a line, or those of a pool would hide the one that matters.
pub fn of_process(process: u32) -> String {
    let directory = Path::new("/proc").join(process.to_string());
    let mut text = line_of_process(process);
    text.push('\n');
    let mut threads: Vec<_> = match fs::read_dir(directory.join("task")) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(_) => return text,
    };
    threads.sort();
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for thread in &threads {
        let place = format!("{}: {}{}", state(thread), read(&thread.join("wchan")), stack(thread));
        let name = read(&thread.join("comm"));
        match groups.iter_mut().find(|group| group.0 == place) {
            Some((_, names)) => names.push(name),
            None => groups.push((place, vec![name])),
        }
    }
    // Few threads at a place say more than many.
    groups.sort_by_key(|(_, names)| names.len());
    for (place, names) in groups.iter().take(GROUPS_MAX) {
        let more = if names.len() > NAMES_MAX { ", …" } else { "" };
        let shown = names[..names.len().min(NAMES_MAX)].join(", ");
        let _ = writeln!(text, "    {} in {place}: {shown}{more}", counted(names.len()));
    }
    if groups.len() > GROUPS_MAX {
        let _ = writeln!(text, "    and {} places more", groups.len() - GROUPS_MAX);
    }
    text
}

fn counted(threads: usize) -> String {
    if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") }
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
