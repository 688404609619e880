//! Candidates within one process: its processors, its disks.

use super::judge::Candidate;
use super::verdict::{Direction, Kind, Resource};
use crate::measures::{Change, Disk};

/// A quota counts as used up from this share on: the kernel hands it out in slices.
const QUOTA_USED_UP: f64 = 0.85;

/// A machine counts as full from this share of its processors on.
const MACHINE_FULL: f64 = 0.85;

/// Of ours that share a machine so many are named, and none that uses less of it.
const USERS_MAX: usize = 4;
const USER_SHARE_MIN: f64 = 0.01;

/// A device that is busy for less than this share, and moves less than this share of what its process does, was not
/// waited for: writes and reads passed through memory.
const PASSED_BUSY: f64 = 0.05;
const PASSED_SHARE: f64 = 0.1;

/// A bucket lets through at once what it saved up before: above this share of its rate that is said.
const SAVED_UP: f64 = 1.02;

/// Bytes in the unit of disks and networks.
pub(super) fn rate_text(bytes_per_s: f64) -> String {
    match bytes_per_s {
        rate if rate >= 999.5e6 => format!("{:.2} GB/s", rate / 1e9),
        rate if rate >= 999.5e3 => format!("{:.1} MB/s", rate / 1e6),
        rate => format!("{:.0} kB/s", rate / 1e3),
    }
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// How long the process's threads were kept from running, as a share of the time, at most all of it.
pub(super) fn starved(change: &Change) -> f64 {
    let cpu = &change.of.cpu;
    change.share(cpu.delayed_ns.saturating_add(cpu.throttled_ns)).min(1.0)
}

/// How much the process's threads ran or wanted to, in processors.
pub(super) fn wanted(change: &Change) -> f64 {
    change.share(change.of.cpu.used_ns.saturating_add(change.of.cpu.delayed_ns))
}

/// In how many of its quota's periods the process was held back, as a share.
pub(super) fn throttled(change: &Change) -> f64 {
    let cpu = &change.of.cpu;
    (cpu.throttled_periods as f64 / cpu.periods.max(1) as f64).min(1.0)
}

/// The quota of the process's control group.
pub(super) fn quota(change: &Change) -> Option<Candidate> {
    let cpu = &change.of.cpu;
    let quota = cpu.quota.filter(|quota| *quota > 0.0)?;
    let share = change.share(cpu.used_ns) / quota;
    let used_up = throttled(change);
    // A process that is throttled in most periods needs more, also when a machine filled by others grants less than
    // the quota. Usage in bursts reaches the quota in some periods only.
    let score = ((share / QUOTA_USED_UP).min(1.0) * (used_up * 2.0).min(1.0)).max(used_up.min(1.0));
    let text = format!(
        "CPU of {}: its quota of {quota:.2} processors used up in {} of its periods",
        change.of.name,
        percent(used_up)
    );
    let found = candidate(Resource::Cpu, &change.of.name, Some(share.min(1.0)), score, text);
    Some(found.of_kind(Kind::Quota))
}

/// A thread that keeps a processor to itself, or would: more processors would not help.
pub(super) fn busiest_thread(change: &Change) -> Option<Candidate> {
    let of_thread = |used_ns: u64, delayed_ns: u64| (change.share(used_ns), change.share(delayed_ns));
    let threads = change.of.cpu.threads.iter().map(|thread| of_thread(thread.used_ns, thread.delayed_ns));
    let (used, delayed) = threads.max_by(|a, b| (a.0 + a.1).total_cmp(&(b.0 + b.1)))?;
    let share = used + delayed;
    let starved = if delayed > 0.05 {
        format!(", ready but without one for {}", percent(delayed))
    } else {
        String::new()
    };
    let text =
        format!("CPU of {}: one thread used {} of a processor{starved}", change.of.name, percent(used));
    let found = candidate(Resource::Cpu, &change.of.name, Some(share.min(1.0)), share.min(1.0), text);
    Some(found.of_kind(Kind::Thread))
}

/// All processors of the machine that `changes` ran on, named after the one of them that wanted most. What those
/// `beside` them use there is ours, too.
pub(super) fn machine(changes: &[&Change], beside: &[&Change]) -> Option<Candidate> {
    let most = changes.iter().max_by(|a, b| wanted(a).total_cmp(&wanted(b)))?;
    let cpu = &most.of.cpu;
    let cores = f64::from(cpu.machine_cores.max(1));
    let busy = (most.share(cpu.machine_busy_ns) / cores).min(1.0);
    let wanted: f64 = changes.iter().map(|change| wanted(change)).sum();
    let of_machine = |change: &Change| change.share(change.of.cpu.used_ns) / cores;
    let all = || changes.iter().chain(beside).copied();
    let used = all().map(of_machine).sum::<f64>();
    let stolen = most.share(cpu.machine_stolen_ns) / cores;
    let full = ((busy - MACHINE_FULL / 2.0) / (MACHINE_FULL / 2.0)).clamp(0.0, 1.0);
    let host = if stolen > 0.05 { format!(", {} taken by its host", percent(stolen)) } else { String::new() };
    let by_others = used < busy / 2.0;
    let by = match by_others {
        true => format!("{} with other programs", percent(busy - used)),
        false => format!("{} with {}", percent(used.min(busy)), users(all(), of_machine)),
    };
    let text = format!(
        "CPU of {}: all {cores:.0} processors of its machine {} busy, {by}{host}",
        most.of.name,
        percent(busy),
    );
    // Threads that wake up often wait a little each time on a machine that others keep full: where little of its use is
    // ours, that alone is a weaker reason than one of our own resources.
    let ours = (used / busy.max(1e-9)).min(1.0);
    let score = full * wanted.min(1.0) * (1.0 + (ours * 5.0).min(1.0)) / 2.0;
    let found = candidate(Resource::Cpu, &most.of.name, Some(busy), score, text).of_kind(Kind::Machine);
    Some(Candidate { by_others, ..found })
}

/// Which of ours use a machine, those that use most first; "this" for one alone.
fn users<'a>(all: impl Iterator<Item = &'a Change>, used: impl Fn(&Change) -> f64) -> String {
    let shares = all.map(|change| (used(change), change.of.name.as_str()));
    let mut shares: Vec<(f64, &str)> = shares.filter(|(share, _)| *share >= USER_SHARE_MIN).collect();
    shares.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    if shares.len() < 2 {
        return "this".to_owned();
    }
    let shown: Vec<&str> = shares.iter().map(|(_, name)| *name).take(USERS_MAX).collect();
    match shares.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

pub(super) fn candidate(
    resource: Resource,
    place: &str,
    share: Option<f64>,
    score: f64,
    text: String,
) -> Candidate {
    let (kind, direction, place) = (Kind::default(), None, place.to_owned());
    Candidate { resource, kind, direction, place, share, by_others: false, score, text }
}

/// A disk: used up as far as its device is busy or its allowed rate reached, waited for as threads were charged.
pub(super) fn disk(change: &Change, disk: &Disk) -> Option<Candidate> {
    let moved_bytes = disk.read_bytes.saturating_add(disk.written_bytes);
    if moved_bytes == 0 && !disk.device.is_empty() {
        return None;
    }
    let busy = change.share(disk.device_busy_ns).min(1.0);
    let (read, written) = (change.rate(disk.read_bytes), change.rate(disk.written_bytes));
    let of_limit = |rate: f64, limit: Option<f64>| limit.filter(|l| *l > 0.0).map(|limit| rate / limit);
    let allowed = [(read, of_limit(read, disk.read_limit)), (written, of_limit(written, disk.write_limit))];
    let limited = allowed.iter().filter_map(|(rate, share)| Some((*rate, (*share)?)));
    let limited = limited.max_by(|a, b| a.1.total_cmp(&b.1));
    let waited = change.share(disk.waits.busy_ns).min(1.0);
    let used_up = busy.max(limited.map_or(0.0, |(_, share)| share.min(1.0)));
    // Where no device is seen, or it says little, threads that waited while processors were free are all there is.
    let unseen = if is_passed(change, disk) { 0.0 } else { (waited - starved(change)).max(0.0) * 0.8 };
    let is_seen = used_up >= unseen;
    let score = waited.min(if is_seen { used_up } else { unseen });
    let what =
        if disk.device.is_empty() { disk.place.clone() } else { format!("{}, {}", disk.place, disk.device) };
    let (why, kind) = match limited {
        Some((rate, share)) if share >= busy => {
            let (moved, allowed) = (rate_text(rate), rate_text(rate / share.max(1e-9)));
            let text = match share > SAVED_UP {
                true => format!("{moved}: the {allowed} it may move, and what was saved up before"),
                false => format!("{moved} of the {allowed} it may move"),
            };
            (text, Kind::Allowed)
        }
        _ => (format!("busy {}, {}", percent(busy), rate_text(read + written)), Kind::Busy),
    };
    let kind = if is_seen { kind } else { Kind::Unseen };
    let direction = if written > read { Direction::Into } else { Direction::OutOf };
    let (place, waited) = (&change.of.name, percent(waited));
    let text = format!("disk of {place} ({what}): {why}, waited for {waited} of the time");
    let found = candidate(Resource::Disk, place, is_seen.then_some(used_up), score, text);
    Some(found.of_kind(kind).going(direction))
}

/// Whether the process's bytes went through memory and hardly touched the device.
fn is_passed(change: &Change, disk: &Disk) -> bool {
    let moved = disk.read_bytes.saturating_add(disk.written_bytes) as f64;
    let work = change.of.work.read_bytes.saturating_add(change.of.work.written_bytes) as f64;
    let is_idle = change.share(disk.device_busy_ns) < PASSED_BUSY;
    !disk.device.is_empty() && is_idle && moved < work * PASSED_SHARE
}
