//! Copies between nodes: jobs for the nodes that have the sources.

use super::ftp::FtpTimeouts;
use super::rules::{Overwrite, Rules};
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::format::{count, size};
use crate::jobs::{self, Shown, Watched};
use crate::location::{Location, show};
use crate::output::Output;
use crate::signals::Stop;
use clap::Args;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use vazao_client::Client;
use vazao_model::FileKind;
use vazao_mover::{Destined, Filter, Method, Place, Planner};
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// Options of copies between nodes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Large copies, and copies between nodes")]
pub(crate) struct Remote {
    /// Between nodes: auto, blocking[:buffer=SIZE], streams:N, nonblocking, rpc[:block=SIZE,window=N] or ftp
    #[arg(long, value_name = "METHOD")]
    method: Option<Method>,
    /// Between nodes, or a node and the volume: print the job's ID and return
    #[arg(long)]
    detach: bool,
    /// Go on with an earlier copy: files that are there with the same size and time (where no node does the copy: and
    /// not older) are left as they are, and what has arrived of the others is not sent again
    #[arg(long)]
    resume: bool,
    /// At most this many bytes a second, over all files: 20M, 1GiB
    #[arg(long, value_name = "RATE")]
    bwlimit: Option<String>,
    /// Copy files whose name fits; with a slash in the pattern, whose path fits. Goes before --exclude
    #[arg(long, value_name = "PATTERN")]
    include: Vec<String>,
    /// Leave out files and directories whose name or path fits
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Show what would be copied, and copy nothing
    #[arg(long)]
    dry_run: bool,
    /// Read each file from the destination's disk again at its end and compare
    #[arg(long)]
    checksum: bool,
    /// What becomes of files that are there
    #[arg(long, value_name = "WHEN")]
    overwrite: Option<Overwrite>,
    /// The job fails when it is not done within this: 90s, 10m, 2h
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,
    /// A connection stands within this
    #[arg(long, value_name = "TIME")]
    connect_timeout: Option<String>,
    /// Something of each file under way moves within this
    #[arg(long, value_name = "TIME")]
    block_timeout: Option<String>,
}

/// Milliseconds of `90s`, `500ms`, `10m`, `2h`.
fn milliseconds(text: &str) -> Outcome<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: u64 = match &text[digits.len()..] {
        "ms" => 1,
        "s" | "" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => 0,
    };
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    number
        .filter(|&ms| ms > 0)
        .ok_or_else(|| Failure::usage(format!("{text}: no time; write it as 500ms, 90s, 10m or 2h")))
}

impl Remote {
    /// Whether what is there already is to be gone on with.
    pub(crate) fn resume(&self) -> bool {
        self.resume
    }

    /// Whether files are compared at their end.
    pub(crate) fn checksum(&self) -> bool {
        self.checksum
    }

    /// Time-outs towards FTP servers.
    pub(crate) fn timeouts(&self) -> Outcome<FtpTimeouts> {
        let of = |time: &Option<String>, default: u32| match time.as_deref().map(milliseconds).transpose()? {
            None => Ok(default),
            Some(ms) => u32::try_from(ms).map_err(|_| Failure::usage("a time-out of more than 49 days")),
        };
        let defaults = FtpTimeouts::default();
        Ok(FtpTimeouts {
            connect_ms: of(&self.connect_timeout, defaults.connect_ms)?,
            silent_ms: of(&self.block_timeout, defaults.silent_ms)?,
        })
    }

    /// Refuses options that mean nothing where this process moves the bytes; some do where an FTP server is a side.
    pub(crate) fn check_unused(&self, is_ftp: bool) -> Outcome {
        if self.detach {
            return Err(Failure::usage(
                "--detach: a job is done by a node, and paths of this machine, FTP servers and copies within the volume are \
                 none's; export the directory (`vazao area add NAME DIR`) and name it NODE:/AREA/…, or leave the command running",
            ));
        }
        let used = [
            (self.method.is_some(), "--method"),
            (self.connect_timeout.is_some() && !is_ftp, "--connect-timeout"),
            (self.block_timeout.is_some() && !is_ftp, "--block-timeout"),
        ];
        match used.iter().find(|(is_used, _)| *is_used) {
            Some((_, name)) => {
                Err(Failure::usage(format!("{name} is for copies between nodes, as n1:/data/x n9:/data/")))
            }
            None => Ok(()),
        }
    }

    /// What this process is to keep to where it moves the bytes.
    pub(crate) fn rules(&self, json: bool) -> Outcome<Rules> {
        let filter = Filter::parse(&self.filters()).map_err(Failure::usage)?;
        let rules =
            Rules::new(filter, self.overwrite.unwrap_or_default(), self.rate_bytes()?, self.job_ms()?);
        let rules = rules.comparing(self.checksum);
        Ok(if self.dry_run { rules.dry(json) } else { rules })
    }

    fn filters(&self) -> Vec<String> {
        let sign = |sign: char| move |pattern: &String| format!("{sign}{pattern}");
        self.include.iter().map(sign('+')).chain(self.exclude.iter().map(sign('-'))).collect()
    }

    fn rate_bytes(&self) -> Outcome<u64> {
        let rate =
            self.bwlimit.as_deref().map(vazao_model::size::parse_size).transpose().map_err(Failure::usage)?;
        Ok(rate.unwrap_or(0))
    }

    fn job_ms(&self) -> Outcome<u64> {
        Ok(self.timeout.as_deref().map(milliseconds).transpose()?.unwrap_or(0))
    }

    /// The job, but for its sources.
    fn spec(&self, destination: &OsString, recursive: bool, preserve: bool) -> Outcome<proto::JobSpec> {
        let small = |time: &Option<String>| -> Outcome<u32> {
            let ms = time.as_deref().map(milliseconds).transpose()?.unwrap_or(0);
            u32::try_from(ms).map_err(|_| Failure::usage("a time-out of more than 49 days"))
        };
        Ok(proto::JobSpec {
            sources: Vec::new(),
            destination: destination.as_bytes().to_vec(),
            recursive,
            method: self.method.unwrap_or_default().to_string(),
            filters: self.filters(),
            overwrite: self.overwrite.unwrap_or_default() as u32,
            checksum: self.checksum,
            resume: self.resume,
            rate_bytes: self.rate_bytes()?,
            connect_ms: small(&self.connect_timeout)?,
            block_ms: small(&self.block_timeout)?,
            job_ms: self.job_ms()?,
            // Each job gets its own.
            nonce: 0,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            preserve,
        })
    }
}

impl Remote {
    /// Has nodes begin copies, and returns their jobs. Options that are for those who wait for them are refused.
    pub(crate) fn start(
        &self,
        client: &Client,
        sources: &[OsString],
        destination: &OsString,
        (recursive, preserve): (bool, bool),
    ) -> Outcome<Vec<proto::JobStatus>> {
        if self.detach || self.dry_run {
            return Err(Failure::new(
                "--detach and --dry-run: a copy that is begun here is watched by its ID, and copies",
            ));
        }
        jobs::order(client, sources, &self.spec(destination, recursive, preserve)?)
    }
}

/// True when a daemon does the copy: from areas to areas or into the volume, and from the volume to an area.
pub(crate) fn concerns(paths: &[OsString]) -> Outcome<bool> {
    let locations = paths.iter().map(|path| Location::parse(path)).collect::<Outcome<Vec<_>>>()?;
    let Some((to, from)) = locations.split_last() else { return Ok(false) };
    let is_area = |location: &Location| matches!(location, Location::Area(_));
    let is_volume = |location: &Location| matches!(location, Location::Volume(_));
    Ok(match to {
        Location::Area(_) => from.iter().all(|location| is_area(location) || is_volume(location)),
        Location::Volume(_) => from.iter().all(is_area),
        Location::Local(_) | Location::Ftp(_) => false,
    })
}

/// Copies all paths but the last to the last.
pub(crate) fn run(
    context: &Context,
    paths: &[OsString],
    (recursive, preserve): (bool, bool),
    remote: &Remote,
    shown: Shown,
    stop: &Stop,
) -> Outcome {
    let Some((destination, sources)) = paths.split_last() else {
        return Err(Failure::usage("cp needs what to copy and where to"));
    };
    let spec = remote.spec(destination, recursive, preserve)?;
    let client = context.client()?;
    stop.hangs_up(&client);
    let outcome = match remote.dry_run {
        true => dry_run(&client, sources, &spec, shown),
        false => copy(&client, sources, &spec, remote.detach, shown, stop),
    };
    client.close()?;
    outcome
}

fn failure(fault: Fault) -> Failure {
    Failure::from(vazao_client::Error::new(fault.code, fault.detail))
}

fn place(argument: &OsString) -> Outcome<Place> {
    Place::parse(argument.as_bytes()).map_err(failure)
}

fn copy(
    client: &Client,
    sources: &[OsString],
    spec: &proto::JobSpec,
    detach: bool,
    shown: Shown,
    stop: &Stop,
) -> Outcome {
    let submitted = jobs::order(client, sources, spec)?;
    if detach {
        let mut output = Output::new(shown.json);
        submitted.iter().try_for_each(|job| match output.json {
            true => output.value(&jobs::to_json(job)),
            false => output.line(&job.id),
        })?;
        return output.finish();
    }
    let mut outcome = Ok(());
    for job in &submitted {
        let one = match jobs::watch(client, &job.id, shown, stop)? {
            Watched::Over(job) => jobs::report(client, &job, shown),
            Watched::Left(job) => cancel(client, &job.id),
        };
        outcome = outcome.and(one);
    }
    outcome
}

fn cancel(client: &Client, id: &str) -> Outcome {
    let word = jobs::cancel(client, id)?;
    Err(Failure::new(format!("interrupted; job {id} {word}")))
}

/// Says what would be copied.
fn dry_run(client: &Client, sources: &[OsString], spec: &proto::JobSpec, shown: Shown) -> Outcome {
    let places = sources.iter().map(place).collect::<Outcome<Vec<_>>>()?;
    let destination = Destined::parse(&spec.destination).map_err(failure)?;
    let mut output = Output::new(shown.json);
    let (mut files, mut bytes) = (0u64, 0u64);
    let planner = Planner::new(client, spec).map_err(failure)?;
    let mut trouble = Ok(());
    let planned = planner.run(&places, &destination, &mut |entry| {
        let kind = FileKind::from_number(entry.kind).unwrap_or_default();
        if kind == FileKind::Directory {
            return Ok(());
        }
        (files, bytes) = (files + 1, bytes + entry.size);
        let written = match output.json {
            true => output.value(&serde_json::json!({
                "source": String::from_utf8_lossy(&entry.source),
                "destination": String::from_utf8_lossy(&entry.destination),
                "bytes": entry.size,
            })),
            false => output.line(&format!("{} → {}", show(&entry.source), show(&entry.destination))),
        };
        written.map_err(|failure| {
            trouble = Err(failure);
            Fault::from(vazao_model::Code::Cancelled)
        })
    });
    trouble?;
    planned.map_err(failure)?;
    output.finish()?;
    if !shown.is_quiet && !shown.json {
        eprintln!("{}, {} would be copied", count(files, "file", "files"), size(bytes));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_units() {
        for (text, ms) in [("90s", 90_000), ("2", 2_000), ("500ms", 500), ("10m", 600_000), ("2h", 7_200_000)]
        {
            assert_eq!(milliseconds(text), Ok(ms), "{text}");
        }
        for text in ["", "0", "-1s", "3w", "s", "99999999999999999999s"] {
            assert!(milliseconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_copy_between_nodes_is_for_daemons() {
        let paths = |texts: &[&str]| texts.iter().map(OsString::from).collect::<Vec<_>>();
        assert_eq!(concerns(&paths(&["n1:/a/x", "n9:/in"])), Ok(true));
        assert_eq!(concerns(&paths(&["vz:/x", "n9:/in"])), Ok(true));
        assert_eq!(concerns(&paths(&["x", "n9:/in"])), Ok(false));
        assert_eq!(concerns(&paths(&["n1:/a/x", "vz:/in"])), Ok(true));
        assert_eq!(concerns(&paths(&["n1:/a/x", "vz:/y", "vz:/in"])), Ok(false));
    }
}
