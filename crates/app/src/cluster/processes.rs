//! The processes of a one-machine cluster: started, waited for, watched, stopped. Never one that is not its own.

use super::directory::NodePlace;
use crate::failure::{At, Failure, Outcome};
use crate::node::files::Notice;
use crate::node::memory::Wishes;
use crate::process::log_file;
use crate::signals::Stop;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use vazao_meter::Clock;

/// How often a state is looked at while something is waited for.
const POLL: Duration = Duration::from_millis(20);

/// A node may have a long log to read before it serves.
const START_S_MAX: u64 = 120;

/// A node that has not stopped by then is killed; its data is as safe as after a power loss.
const STOP_S_MAX: u64 = 10;

/// Lines of a log that are shown when its node has died.
const LAST_LINES: usize = 12;

/// A node that this process started.
pub(crate) struct Started {
    /// Which node.
    pub(crate) place: NodePlace,
    /// Its process. Its standard input is ours to keep open: a node in the foreground stops when it closes.
    pub(crate) child: Child,
}

/// How nodes are started.
#[derive(Clone, Debug)]
pub(crate) struct StartOptions {
    /// They go on when this process ends.
    pub(crate) detach: bool,
    /// Without a cluster key.
    pub(crate) insecure: bool,
    /// Log level, where given.
    pub(crate) log: Option<String>,
    /// What the operator has said about disks that are not there.
    pub(crate) wishes: Wishes,
}

/// Starts a node's process; it is not serving yet.
pub(crate) fn start(place: &NodePlace, options: &StartOptions) -> Outcome<Started> {
    use std::os::unix::process::CommandExt;
    let program = std::env::current_exe().at("finding this program")?;
    let log = open_log(place)?;
    // One of an earlier run says nothing about this one.
    let _ = fs::remove_file(place.trouble_file());
    let mut command = Command::new(program);
    command.arg("serve").arg("--config").arg(place.config_file());
    if options.insecure {
        command.arg("--insecure");
    }
    command.arg("--log-file").arg(&place.log);
    if let Some(level) = &options.log {
        command.args(["--log", level]);
    }
    if !options.detach {
        command.arg("--until-stdin-closes");
    }
    add_wishes(&mut command, place, &options.wishes)?;
    command.stdin(if options.detach { Stdio::null() } else { Stdio::piped() });
    command.stdout(Stdio::null()).stderr(log);
    // A process group of its own: a Ctrl-C at the terminal reaches us, and we stop the nodes in order.
    let child = command.process_group(0).spawn().at(format!("starting {}", place.name))?;
    Ok(Started { place: place.clone(), child })
}

/// Tells a node what concerns it.
fn add_wishes(command: &mut Command, place: &NodePlace, wishes: &Wishes) -> Outcome {
    let own = place.target_directories()?;
    for directory in wishes.new_targets.iter().filter(|directory| own.contains(directory)) {
        command.arg("--new-target").arg(directory);
    }
    if wishes.without_missing {
        command.arg("--without-missing");
    }
    if wishes.new_volume {
        command.arg("--new-volume");
    }
    Ok(())
}

fn open_log(place: &NodePlace) -> Outcome<File> {
    let shown = place.log.display();
    log_file::rotate_large(&place.log).at(&shown)?;
    log_file::append_to(&place.log).at(&shown)
}

/// Waits until all nodes serve and the data servers among them are registered. The reason why one is not ready yet is
/// shown at once. The first failure ends the wait for all.
pub(crate) fn wait_ready(started: &mut [Started], clock: &dyn Clock, stop: &Stop) -> Outcome<Vec<Notice>> {
    let deadline_ns = clock.now_ns() + START_S_MAX * 1_000_000_000;
    let mut notices: Vec<Option<Notice>> = started.iter().map(|_| None).collect();
    let mut told: Vec<String> = started.iter().map(|_| String::new()).collect();
    loop {
        for (index, started) in started.iter_mut().enumerate() {
            if notices[index].is_none() {
                notices[index] = look(started, &mut told[index])?;
            }
        }
        let Some(missing) = notices.iter().position(Option::is_none) else {
            return Ok(notices.into_iter().flatten().collect());
        };
        if clock.now_ns() > deadline_ns {
            let place = &started[missing].place;
            let words = last_words(place);
            return Err(Failure::new(format!("{} does not serve after {START_S_MAX} s{words}", place.name)));
        }
        if stop.wait(POLL) {
            return Err(Failure::new("interrupted"));
        }
    }
}

/// What a node says of itself once it serves. `told` is what was said of its trouble so far.
fn look(started: &mut Started, told: &mut String) -> Outcome<Option<Notice>> {
    let name = &started.place.name;
    if let Some(notice) = started.place.notice().filter(|notice| notice.pid == started.child.id()) {
        return Ok(Some(notice));
    }
    if let Some(status) = started.child.try_wait().at(name)? {
        return Err(Failure::new(format!("{name} did not start ({status}){}", last_words(&started.place))));
    }
    let trouble = fs::read_to_string(started.place.trouble_file()).unwrap_or_default();
    if trouble != *told {
        if !trouble.is_empty() {
            eprintln!("vazao: {name} cannot register yet: {trouble}");
        }
        *told = trouble;
    }
    Ok(None)
}

/// The last lines of a node's log, to go behind a message.
pub(crate) fn last_words(place: &NodePlace) -> String {
    let text =
        fs::read(&place.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
    format!("; the end of {}:\n  {}", place.log.display(), last.join("\n  "))
}

/// A running process that was found to be a certain node.
struct Running {
    place: NodePlace,
    pid: u32,
    handle: OwnedFd,
}

/// The process of a node, held by a descriptor so that its number cannot pass to another process meanwhile.
fn running(place: &NodePlace) -> Outcome<Option<Running>> {
    let Some(pid) = place.process()? else { return Ok(None) };
    let name = &place.name;
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let raw = raw.ok_or_else(|| Failure::new(format!("{name}: {pid} is no process id")))?;
    let handle = match pidfd_open(raw, PidfdFlags::empty()) {
        Ok(handle) => handle,
        Err(rustix::io::Errno::SRCH) => return Ok(None),
        Err(error) => return Err(error).at(format!("{name}, process {pid}")),
    };
    // Asked again with the descriptor in hand: the lock still names this process, so the descriptor is the node's.
    if place.process()? != Some(pid) {
        return Ok(None);
    }
    Ok(Some(Running { place: place.clone(), pid, handle }))
}

/// Stops nodes: asks, waits, and in the end kills. Returns the names of those that had to be killed.
pub(crate) fn stop(places: &[NodePlace], clock: &dyn Clock) -> Outcome<Vec<String>> {
    let mut left = Vec::new();
    for place in places {
        if let Some(running) = running(place)? {
            signal(&running, Signal::TERM)?;
            left.push(running);
        }
    }
    let deadline_ns = clock.now_ns() + STOP_S_MAX * 1_000_000_000;
    while wait_some(&mut left)? && clock.now_ns() < deadline_ns {
        clock.sleep(POLL);
    }
    let mut killed = Vec::new();
    for running in &left {
        signal(running, Signal::KILL)?;
        killed.push(running.place.name.clone());
    }
    while wait_some(&mut left)? {
        clock.sleep(POLL);
    }
    Ok(killed)
}

/// Stops nodes that this process started and that are not wanted after all. One that has not come to its lock yet is
/// not found by that; it is ours to end.
#[allow(clippy::disallowed_methods, reason = "what ends a node has a limit of its own, and kills")]
pub(crate) fn stop_started(started: &mut [Started], clock: &dyn Clock) -> Outcome {
    let places: Vec<NodePlace> = started.iter().map(|started| started.place.clone()).collect();
    stop(&places, clock)?;
    for started in started {
        if started.child.try_wait().at(&started.place.name)?.is_none() {
            started.child.kill().at(&started.place.name)?;
            started.child.wait().at(&started.place.name)?;
        }
    }
    Ok(())
}

fn signal(running: &Running, signal: Signal) -> Outcome {
    match pidfd_send_signal(&running.handle, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error).at(format!("stopping {} (process {})", running.place.name, running.pid)),
    }
}

/// Drops those that have ended; true while there are others.
fn wait_some(left: &mut Vec<Running>) -> Outcome<bool> {
    let mut still = Vec::new();
    for running in left.drain(..) {
        if running.place.process()? == Some(running.pid) {
            still.push(running);
        }
    }
    *left = still;
    Ok(!left.is_empty())
}
