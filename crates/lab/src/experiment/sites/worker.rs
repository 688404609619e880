//! A process on a client's host that carries out IOzone's operations on files of a mount, on command.
//!
//! It reads one [`Order`] a line, as JSON, and answers each with an [`Answer`] on a line. It takes the time itself, so
//! that orders and answers are not in it. What is read is compared with what was written, within the time: at the rate
//! of a network that is a thousandth of it.

use crate::content::Generator;
use crate::{Context, Error};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use vazao_meter::Clock;

/// Records are kept in memory; IOzone's own largest is 16 MiB.
const RECORD_BYTES_MAX: u64 = 16 << 20;

/// `vazao lab run C1` starts these; not for people.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Args {}

/// What is to be done.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Order {
    /// Make a file and write it.
    Write(Extent),
    /// Write over a file that is there.
    Rewrite(Extent),
    /// Read a file from its beginning to its end.
    Read(Extent),
    /// Make a directory.
    Mkdir(PathBuf),
    /// Remove a file.
    Remove(PathBuf),
    /// Make empty files `0`, `1`, …
    Names { directory: PathBuf, count: u64 },
    /// Ask for attributes of files made so, one after the other.
    Stat { directory: PathBuf, first: u64, count: u64, every_ms: u64 },
}

/// A file, and how it is gone through.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Extent {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    /// Bytes of one call.
    pub(super) record_bytes: u64,
    /// The number of its contents.
    pub(super) stream: u64,
}

/// How long the parts of an operation took. IOzone's time is `calls_s`; `-e` adds `sync_s`, `-c` adds `close_s`.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Taken {
    pub(super) open_s: f64,
    pub(super) calls_s: f64,
    /// Of writes: fsync.
    pub(super) sync_s: f64,
    pub(super) close_s: f64,
}

impl Taken {
    /// From before the open to after the close.
    pub(super) fn whole_s(self) -> f64 {
        self.open_s + self.calls_s + self.sync_s + self.close_s
    }
}

/// What came of an order.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    Done,
    Taken(Taken),
    /// How long each took, in milliseconds.
    Each(Vec<f64>),
    Failed(String),
}

/// Works until its standard input ends.
pub fn run(_: &Args, context: &mut Context<'_>) -> Result<(), Error> {
    let clock = context.clock.clone();
    for line in io::stdin().lock().lines() {
        let line = line.map_err(Error::at("standard input"))?;
        let answer = match serde_json::from_str(&line) {
            Ok(order) => carry_out(&order, &*clock).unwrap_or_else(|error| Answer::Failed(error.to_string())),
            Err(error) => Answer::Failed(format!("unknown order: {error}")),
        };
        let text = serde_json::to_string(&answer).map_err(|error| Error::Failed(error.to_string()))?;
        let written = writeln!(context.output, "{text}").and_then(|()| context.output.flush());
        written.map_err(Error::at("standard output"))?;
    }
    Ok(())
}

pub(super) fn carry_out(order: &Order, clock: &dyn Clock) -> io::Result<Answer> {
    let named = |path: &Path| {
        let path = path.display().to_string();
        move |error: io::Error| io::Error::new(error.kind(), format!("{path}: {error}"))
    };
    match order {
        Order::Write(extent) => write(extent, true, clock).map(Answer::Taken).map_err(named(&extent.path)),
        Order::Rewrite(extent) => write(extent, false, clock).map(Answer::Taken).map_err(named(&extent.path)),
        Order::Read(extent) => read(extent, clock).map(Answer::Taken).map_err(named(&extent.path)),
        Order::Mkdir(path) => fs::create_dir(path).map(|()| Answer::Done).map_err(named(path)),
        Order::Remove(path) => fs::remove_file(path).map(|()| Answer::Done).map_err(named(path)),
        Order::Names { directory, count } => {
            let make = |number: u64| File::create_new(directory.join(number.to_string())).map(drop);
            (0..*count).try_for_each(make).map(|()| Answer::Done).map_err(named(directory))
        }
        Order::Stat { directory, first, count, every_ms } => {
            stat(directory, *first..first + count, Duration::from_millis(*every_ms), clock)
                .map(Answer::Each)
                .map_err(named(directory))
        }
    }
}

/// The calls that an extent takes: offset and length.
fn calls(extent: &Extent) -> io::Result<impl Iterator<Item = (u64, usize)>> {
    let (bytes, record) = (extent.bytes, extent.record_bytes);
    if record == 0 || record > RECORD_BYTES_MAX {
        return Err(io::Error::other(format!("a record of {record} bytes: give 1 to {RECORD_BYTES_MAX}")));
    }
    Ok((0..bytes.div_ceil(record)).map(move |n| (n * record, (bytes - n * record).min(record) as usize)))
}

fn write(extent: &Extent, is_new: bool, clock: &dyn Clock) -> io::Result<Taken> {
    let mut generator = Generator::new(extent.stream, extent.record_bytes.min(RECORD_BYTES_MAX) as usize);
    let mut watch = Stopwatch::start(clock);
    // Read and write: so IOzone opens what it writes.
    let mut file = OpenOptions::new().read(true).write(true).create_new(is_new).open(&extent.path)?;
    let open_s = watch.lap();
    for (offset, length) in calls(extent)? {
        file.write_all(generator.window(offset, length))?;
    }
    let calls_s = watch.lap();
    file.sync_all()?;
    let sync_s = watch.lap();
    drop(file);
    Ok(Taken { open_s, calls_s, sync_s, close_s: watch.lap() })
}

fn read(extent: &Extent, clock: &dyn Clock) -> io::Result<Taken> {
    let mut generator = Generator::new(extent.stream, extent.record_bytes.min(RECORD_BYTES_MAX) as usize);
    let mut buffer = vec![1; extent.record_bytes.min(RECORD_BYTES_MAX) as usize];
    let mut watch = Stopwatch::start(clock);
    let mut file = File::open(&extent.path)?;
    let open_s = watch.lap();
    for (offset, length) in calls(extent)? {
        file.read_exact(&mut buffer[..length])?;
        generator.check(offset, &buffer[..length]).map_err(io::Error::other)?;
    }
    let calls_s = watch.lap();
    drop(file);
    Ok(Taken { open_s, calls_s, sync_s: 0.0, close_s: watch.lap() })
}

/// Milliseconds of each.
fn stat(
    directory: &Path,
    numbers: std::ops::Range<u64>,
    every: Duration,
    clock: &dyn Clock,
) -> io::Result<Vec<f64>> {
    let mut each = Vec::new();
    for number in numbers {
        let mut watch = Stopwatch::start(clock);
        fs::symlink_metadata(directory.join(number.to_string()))?;
        each.push(watch.lap() * 1e3);
        clock.sleep(every);
    }
    Ok(each)
}

struct Stopwatch<'a> {
    clock: &'a dyn Clock,
    last_ns: u64,
}

impl Stopwatch<'_> {
    fn start(clock: &dyn Clock) -> Stopwatch<'_> {
        Stopwatch { clock, last_ns: clock.now_ns() }
    }

    /// Seconds since the last one.
    fn lap(&mut self) -> f64 {
        let now_ns = self.clock.now_ns();
        let seconds = now_ns.saturating_sub(self.last_ns) as f64 / 1e9;
        self.last_ns = now_ns;
        seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, SeekFrom};
    use vazao_meter::SystemClock;

    fn extent(path: &Path, bytes: u64, record_bytes: u64) -> Extent {
        Extent { path: path.to_owned(), bytes, record_bytes, stream: 7 }
    }

    fn done(order: &Order) -> Answer {
        carry_out(order, &SystemClock).expect("carried out")
    }

    #[test]
    fn a_file_is_written_over_and_read_in_records_whose_last_is_shorter() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("f");
        let whole = extent(&path, 100_000, 4096);
        assert!(matches!(done(&Order::Write(whole.clone())), Answer::Taken(taken) if taken.whole_s() > 0.0));
        assert_eq!(fs::metadata(&path).expect("there").len(), 100_000);
        assert!(carry_out(&Order::Write(whole.clone()), &SystemClock).is_err(), "it is there already");
        let other = Extent { stream: 8, ..whole.clone() };
        done(&Order::Rewrite(other.clone()));
        done(&Order::Read(other));
        let error = carry_out(&Order::Read(whole), &SystemClock).expect_err("the old bytes are gone");
        assert!(error.to_string().contains("was written as"), "{error}");
        done(&Order::Remove(path.clone()));
        let missing = carry_out(&Order::Rewrite(extent(&path, 1, 1)), &SystemClock);
        assert!(missing.is_err(), "rewriting makes no file");
    }

    #[test]
    fn a_byte_that_differs_and_an_early_end_are_found_by_reading() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("f");
        let whole = extent(&path, 10_000, 1000);
        done(&Order::Write(whole.clone()));
        let mut file = OpenOptions::new().write(true).open(&path).expect("there");
        file.seek(SeekFrom::Start(7777)).and_then(|_| file.write_all(b"!!")).expect("changed");
        let error = carry_out(&Order::Read(whole), &SystemClock).expect_err("changed");
        assert!(
            error.to_string().contains("byte 7777") || error.to_string().contains("byte 7778"),
            "{error}"
        );
        assert!(carry_out(&Order::Read(extent(&path, 10_001, 1000)), &SystemClock).is_err());
        assert!(carry_out(&Order::Read(extent(&path, 10, 0)), &SystemClock).is_err(), "no record");
    }

    #[test]
    fn each_stat_is_timed_and_a_missing_file_is_named() {
        let directory = tempfile::tempdir().expect("a directory");
        let names = directory.path().to_owned();
        done(&Order::Names { directory: names.clone(), count: 3 });
        let stat = |count| Order::Stat { directory: names.clone(), first: 1, count, every_ms: 0 };
        assert!(matches!(done(&stat(2)), Answer::Each(each) if each.len() == 2));
        let error = carry_out(&stat(3), &SystemClock).expect_err("there is no file 3");
        assert!(error.to_string().starts_with(&names.display().to_string()), "{error}");
    }

    #[test]
    fn orders_and_answers_are_one_line_each() {
        let order = Order::Write(extent(Path::new("/a\nb c"), 5, 5));
        let line = serde_json::to_string(&order).expect("text");
        assert!(!line.contains('\n'), "{line}");
        assert_eq!(serde_json::from_str::<Order>(&line).expect("read"), order);
        let answer = Answer::Failed("a\nb".to_owned());
        assert!(!serde_json::to_string(&answer).expect("text").contains('\n'));
    }
}
