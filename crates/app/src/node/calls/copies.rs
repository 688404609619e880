//! Calls about copies that nodes do.

use super::arguments::Arguments;
use super::record::Record;
use crate::copy::remote::{self, Remote};
use crate::failure::{Failure, Outcome};
use crate::jobs;
use clap::Parser;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;
use vazao_client::Client;
use vazao_luarpc::Value;
use vazao_meter::Clock;
use vazao_mover::JobState;
use vazao_mover::remote::Action;
use vazao_wire::proto;

/// How often a copy that is waited for is asked after.
const LOOK: Duration = Duration::from_millis(100);

/// One wait, less than the usual time-out of a call; callers who want to wait longer call again.
const WAIT_S_MAX: f64 = 10.0;

/// Copies in one answer.
const COPIES_MAX: usize = 10_000;

/// Options of `vazao cp` that a copy is begun with.
#[derive(Debug, Parser)]
#[command(name = "copy_start", no_binary_name = true, disable_help_flag = true)]
struct CopyOptions {
    #[arg(short = 'r', short_alias = 'R', long)]
    recursive: bool,
    #[arg(short = 'p', long)]
    preserve: bool,
    #[command(flatten)]
    remote: Remote,
}

fn record(job: &proto::JobStatus) -> Record {
    Record::default().json("", &jobs::to_json(job))
}

pub(super) fn list(client: &Client) -> Outcome<Vec<Value>> {
    let mut all = Vec::new();
    for node in &client.refresh_map()?.nodes {
        all.extend(jobs::of_node(client, &node.name)?);
    }
    if all.len() > COPIES_MAX {
        let count = all.len();
        return Err(Failure::new(format!(
            "there are {count} copies, more than fit; `vazao jobs forget ID` takes an old one off"
        )));
    }
    Ok(vec![all.iter().flat_map(|job| record(job).line()).collect::<Vec<u8>>().into()])
}

pub(super) fn status(client: &Client, arguments: &Arguments<'_>) -> Outcome<Vec<Value>> {
    let job = jobs::status(client, id(arguments)?)?;
    Ok(vec![record(&job).alone().into()])
}

fn id<'a>(arguments: &'a Arguments<'_>) -> Outcome<&'a str> {
    arguments.text(0, "id")
}

pub(super) fn wait(client: &Client, arguments: &Arguments<'_>, clock: &dyn Clock) -> Outcome<Vec<Value>> {
    let within = arguments.seconds(1, 0.0, WAIT_S_MAX)?;
    let deadline_ns = clock.now_ns() + within.as_nanos() as u64;
    loop {
        let job = jobs::status(client, id(arguments)?)?;
        let is_over = JobState::from_number(job.state).is_none_or(JobState::is_over);
        let left = Duration::from_nanos(deadline_ns.saturating_sub(clock.now_ns()));
        if is_over || left.is_zero() {
            return Ok(vec![record(&job).alone().into()]);
        }
        clock.sleep(LOOK.min(left));
    }
}

pub(super) fn start(client: &Client, arguments: &Arguments<'_>) -> Outcome<Vec<Value>> {
    let [source, destination] = [0, 1].map(|at| place(arguments.bytes(at)));
    let words = arguments.text(2, "options")?.split_ascii_whitespace();
    let options = CopyOptions::try_parse_from(words).map_err(|error| {
        let said = error.to_string();
        let first = said.lines().next().unwrap_or_default();
        Failure::new(format!(
            "options: {}; they are those of `vazao cp`",
            first.trim_start_matches("error: ")
        ))
    })?;
    let CopyOptions { recursive, preserve, remote } = options;
    if !remote::concerns(&[source.clone(), destination.clone()])? {
        return Err(Failure::new(
            "a node copies from an area, n1:/data/x, to another or to the volume, /x, or from the volume to an area",
        ));
    }
    let jobs = remote.start(client, &[source], &destination, (recursive, preserve))?;
    let ids: Vec<&str> = jobs.iter().map(|job| job.id.as_str()).collect();
    Ok(vec![ids.join(" ").into()])
}

/// A path that begins with a slash is in the volume.
fn place(bytes: &[u8]) -> OsString {
    let prefix: &[u8] = if bytes.first() == Some(&b'/') { b"vz:" } else { b"" };
    OsString::from_vec([prefix, bytes].concat())
}

pub(super) fn cancel(client: &Client, arguments: &Arguments<'_>) -> Outcome<Vec<Value>> {
    jobs::control(client, id(arguments)?, Action::Cancel)?;
    Ok(vec![Value::Nil])
}
