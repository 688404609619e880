//! Jobs of daemons as commands see them: submitted, watched, shown.

use crate::failure::{Failure, Outcome};
use crate::format;
use crate::output::Output;
use crate::signals::Stop;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{IsTerminal, Write, stderr};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;
use vazao_client::Client;
use vazao_mover::JobState;
use vazao_mover::remote::{self, Action};
use vazao_wire::{op, proto};

/// How often a watched job is asked for.
const LOOK: Duration = Duration::from_millis(250);

/// The first looks come sooner: small jobs are over by then.
const LOOK_FIRST: Duration = Duration::from_millis(20);

/// What is under way of a cancelled job ends within this, unless a node or a disk does not answer.
const CANCEL_MAX: Duration = Duration::from_secs(2);

/// Failed files that are shown at the end.
const SHOWN_MAX: usize = 20;

/// How a job is shown.
#[derive(Clone, Copy, Default)]
pub(crate) struct Shown {
    /// As JSON.
    pub(crate) json: bool,
    /// Only what went wrong.
    pub(crate) is_quiet: bool,
}

/// What watching led to.
pub(crate) enum Watched {
    /// The job is over.
    Over(Box<proto::JobStatus>),
    /// The user stopped watching.
    Left(Box<proto::JobStatus>),
}

/// The node that a job's ID names.
pub(crate) fn node_of(id: &str) -> Outcome<&str> {
    remote::node_of(id)
        .ok_or_else(|| Failure::usage(format!("{id}: no job's ID, as n1-17; `vazao jobs` lists them")))
}

/// All jobs of a node.
pub(crate) fn of_node(client: &Client, node: &str) -> Outcome<Vec<proto::JobStatus>> {
    let mut all: Vec<proto::JobStatus> = Vec::new();
    loop {
        let number = |job: &proto::JobStatus| job.id.rsplit('-').next().and_then(|n| n.parse().ok());
        let after = all.last().and_then(number).unwrap_or(0);
        let request = proto::ListJobsRequest { id: String::new(), after };
        let page = client.ask_node::<op::ListJobs>(node, &request)?;
        let is_last = page.end || page.jobs.is_empty();
        all.extend(page.jobs);
        if is_last {
            return Ok(all);
        }
    }
}

/// One job as it is now.
pub(crate) fn status(client: &Client, id: &str) -> Outcome<proto::JobStatus> {
    node_of(id)?;
    Ok(remote::status(client, id)?)
}

/// Calls `each` with every failed file of a job.
pub(crate) fn failures(
    client: &Client,
    id: &str,
    each: &mut dyn FnMut(&proto::JobFailure) -> Outcome,
) -> Outcome {
    node_of(id)?;
    let mut seen = 0;
    loop {
        let (failures, is_last) = remote::failures(client, id, seen)?;
        failures.iter().try_for_each(&mut *each)?;
        seen += failures.len() as u64;
        if is_last {
            return Ok(());
        }
    }
}

/// Shows a job until it is over: a line on a terminal, as JSON an object a line, otherwise nothing.
pub(crate) fn watch(client: &Client, id: &str, shown: Shown, stop: &Stop) -> Outcome<Watched> {
    let visible = !shown.json && !shown.is_quiet && stderr().is_terminal();
    let mut pause = LOOK_FIRST;
    loop {
        let job = status(client, id)?;
        let state = JobState::from_number(job.state);
        if shown.json {
            let mut output = Output::new(true);
            output.value(&to_json(&job))?;
            output.finish()?;
        } else if visible {
            // Clears what is left of a longer line.
            let _ = write!(stderr(), "\r{}\x1b[K", line(&job));
        }
        if state.is_none_or(JobState::is_over) {
            if visible {
                let _ = write!(stderr(), "\r\x1b[K");
            }
            return Ok(Watched::Over(Box::new(job)));
        }
        if stop.wait(pause.min(until_end(&job))) {
            if visible {
                let _ = writeln!(stderr());
            }
            return Ok(Watched::Left(Box::new(job)));
        }
        // A sixteenth of the time so far: so much later than it was the end is seen at most.
        pause = (pause * 17 / 16).min(LOOK);
    }
}

/// How long to let a job alone that may soon be over: the end is not to be seen a whole look too late.
fn until_end(job: &proto::JobStatus) -> Duration {
    Duration::from_millis(job.left_ms / 2).max(LOOK_FIRST)
}

/// How much of a job is done, in percent; 100 only when all is.
pub(crate) fn percent(job: &proto::JobStatus) -> u64 {
    // Files that failed are not to come any more, but nor are they there.
    let over = job.files_done + job.files_skipped;
    let of = |part: u64, whole: u64| (u128::from(part.min(whole)) * 100 / u128::from(whole.max(1))) as u64;
    match (job.bytes, job.files) {
        (_, 0) if JobState::from_number(job.state) == Some(JobState::Done) => 100,
        (_, 0) => 0,
        (0, files) => of(over, files),
        (bytes, files) if over < files => of(job.bytes_done, bytes).min(99),
        (bytes, _) => of(job.bytes_done, bytes),
    }
}

/// The time left in words.
pub(crate) fn left(job: &proto::JobStatus) -> String {
    match job.left_ms {
        u64::MAX => "unknown".to_owned(),
        ms => format::duration((ms.div_ceil(1000) * 1000).saturating_mul(1_000_000)),
    }
}

fn line(job: &proto::JobStatus) -> String {
    let state = JobState::from_number(job.state);
    if state != Some(JobState::Running) {
        let trouble = if job.trouble.is_empty() { String::new() } else { format!(": {}", job.trouble) };
        return format!("{} {}{trouble}", job.id, state.map_or("unknown", JobState::text));
    }
    let mut text = format!(
        "{}%  {} of {}  {}/{} files  {}  {} left  {}",
        percent(job),
        format::size(job.bytes_done),
        format::size(job.bytes),
        job.files_done + job.files_skipped,
        job.files,
        format::rate(job.rate_bytes as f64),
        left(job),
        job.method,
    );
    for part in [&job.bottleneck, &job.trouble] {
        if !part.is_empty() {
            text.push_str("  ");
            text.push_str(part);
        }
    }
    text
}

/// A job for programs.
pub(crate) fn to_json(job: &proto::JobStatus) -> Value {
    let spec = job.spec.clone().unwrap_or_default();
    let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
    let known = |ms: u64| if ms == u64::MAX { Value::Null } else { json!(ms as f64 / 1e3) };
    json!({
        "id": job.id,
        "state": JobState::from_number(job.state).map_or("unknown", JobState::text),
        "sources": spec.sources.iter().map(text).collect::<Vec<_>>(),
        "destination": text(&spec.destination),
        "files": job.files,
        "files_done": job.files_done,
        "files_failed": job.files_failed,
        "files_skipped": job.files_skipped,
        "bytes": job.bytes,
        "bytes_done": job.bytes_done,
        "sent_bytes": job.sent_bytes,
        "percent": percent(job),
        "bytes_per_second": job.rate_bytes,
        "seconds_left": known(job.left_ms),
        "seconds": job.elapsed_ms as f64 / 1e3,
        "copies": job.copies,
        "method_asked": spec.method,
        "method": job.method,
        "why": job.why,
        "bottleneck": job.bottleneck,
        "limit": json!({
            "resource": job.limit_resource,
            "node": job.limit_node,
            "percent": job.limit_percent,
        }),
        "trouble": job.trouble,
        "requester": job.requester,
        "created_ns": job.created_ns,
        "ended_ns": job.ended_ns,
    })
}

/// Tells a job something.
pub(crate) fn control(client: &Client, id: &str, action: Action) -> Outcome {
    node_of(id)?;
    Ok(remote::control(client, id, action)?)
}

/// Has a job cancelled and waits for that a while. Returns what has become of it, to go behind its name.
pub(crate) fn cancel(client: &Client, id: &str) -> Outcome<String> {
    control(client, id, Action::Cancel)?;
    let clock = vazao_meter::clock::system();
    let until_ns = clock.now_ns() + CANCEL_MAX.as_nanos() as u64;
    loop {
        let state = JobState::from_number(status(client, id)?.state);
        let is_over = state.is_none_or(JobState::is_over);
        if is_over || clock.now_ns() >= until_ns {
            return Ok(after_cancel(state));
        }
        clock.sleep(LOOK_FIRST);
    }
}

/// What a job in this state, which was told to end, has come to.
fn after_cancel(state: Option<JobState>) -> String {
    match state {
        Some(JobState::Cancelled) => "is cancelled".to_owned(),
        Some(over) if over.is_over() => format!("had ended before: {}", over.text()),
        _ => "is being cancelled, once what is under way has ended".to_owned(),
    }
}

/// Says how a job ended, and which files failed.
pub(crate) fn report(client: &Client, job: &proto::JobStatus, how: Shown) -> Outcome {
    let mut shown = 0;
    if job.files_failed > 0 {
        failures(client, &job.id, &mut |failure| {
            shown += 1;
            if shown <= SHOWN_MAX {
                eprintln!("vazao: {}", failure.detail);
            }
            Ok(())
        })?;
    }
    if shown > SHOWN_MAX {
        eprintln!("vazao: … and {} more; `vazao jobs errors {}` shows all", shown - SHOWN_MAX, job.id);
    }
    match JobState::from_number(job.state) {
        Some(JobState::Done) => {
            if !how.is_quiet && !how.json {
                summarize(job);
            }
            Ok(())
        }
        Some(JobState::Failed) if shown > 0 => Err(Failure::Reported),
        state => {
            let state = state.map_or("unknown", JobState::text);
            let why = if job.trouble.is_empty() { String::new() } else { format!(": {}", job.trouble) };
            Err(Failure::new(format!("job {} {state}{why}", job.id)))
        }
    }
}

fn summarize(job: &proto::JobStatus) {
    let why = if job.why.is_empty() { String::new() } else { format!(" — {}", job.why) };
    let copied = format::copied(job.files_done, 0, job.bytes_done, job.elapsed_ms * 1_000_000);
    eprintln!("{copied}; {}{why}", job.method);
    if !job.bottleneck.is_empty() {
        eprintln!("limit: {}", job.bottleneck);
    }
}

/// Has nodes do a copy: a job for each that has a part in it.
pub(crate) fn order(
    client: &Client,
    sources: &[OsString],
    spec: &proto::JobSpec,
) -> Outcome<Vec<proto::JobStatus>> {
    let user = std::env::var("USER").unwrap_or_default();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let sources: Vec<_> = sources.iter().map(|source| source.as_bytes().to_vec()).collect();
    Ok(remote::order(client, &sources, spec, &format!("{user}@{host}"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `jobs cancel` said `is cancelled` of whatever it had told to end; the list showed it running.
    #[test]
    fn a_job_is_called_cancelled_once_it_is() {
        for (state, word) in [
            (JobState::Cancelled, "is cancelled"),
            (JobState::Running, "is being cancelled"),
            (JobState::Paused, "is being cancelled"),
            (JobState::Done, "ended before: done"),
            (JobState::Failed, "ended before: failed"),
        ] {
            let said = after_cancel(Some(state));
            assert!(said.contains(word), "{state:?}: {said}");
        }
    }

    #[test]
    fn a_hundred_percent_is_said_only_when_all_is_done() {
        let job = |bytes, bytes_done, files, files_done| proto::JobStatus {
            bytes,
            bytes_done,
            files,
            files_done,
            state: JobState::Running as u32,
            ..Default::default()
        };
        assert_eq!(percent(&job(1000, 999, 2, 1)), 99);
        assert_eq!(percent(&job(1000, 1000, 2, 1)), 99);
        assert_eq!(percent(&job(1000, 1000, 2, 2)), 100);
        assert_eq!(percent(&job(0, 0, 4, 1)), 25);
        assert_eq!(percent(&job(u64::MAX, u64::MAX / 2, 1, 0)), 49);
        assert_eq!(percent(&job(0, 0, 0, 0)), 0);
        let failed =
            |files_done| proto::JobStatus { files_failed: 4 - files_done, ..job(0, 0, 4, files_done) };
        assert_eq!(
            (percent(&failed(0)), percent(&failed(3))),
            (0, 75),
            "bytes of files that failed are not counted"
        );
    }
}
