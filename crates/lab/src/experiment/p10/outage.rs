//! The measurement behind P10's figure over time: writers and readers work on two copies while a data server is killed
//! and comes back. Each writer makes every block durable; each read is compared; in the end all blocks are.

use super::SERVERS;
use super::cost::make_directory;
use super::timeline::Call;
use crate::Error;
use crate::content::{self, Generator};
use crate::experiment::testbed::{Plan, Testbed};
use crate::experiment::{Lab, Scale};
use crate::hosts::BitsPerSecond;
use crate::place::owner;
use crate::report::size::{KIB, MIB};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Duration;
use vazao_client::{Client, File, OpenMode};
use vazao_model::VolumePath;

/// Bytes of a call of readers and writers.
pub(super) const CALL_BYTES: u64 = 256 * KIB;
/// Copies of all files.
const COPIES: usize = 2;
/// Which server is killed.
pub(super) const SERVER: &str = "data2";
/// The rate of each server's link, each way: two processors have time left then, and what is seen is the protocol.
pub(super) const LINK: BitsPerSecond = BitsPerSecond(100_000_000);
const DIRECTORY: &str = "/outage";
/// How often the metadata service is asked whether all copies are there.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A reader or writer whose call failed makes the next one after this time.
const AFTER_FAILURE: Duration = Duration::from_millis(10);
/// Failures that are kept in words.
const SAID_MAX: usize = 3;

/// How long what goes on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phases {
    pub(super) before: Duration,
    pub(super) down: Duration,
    /// At most: how long all copies may take to be whole again.
    pub(super) catching_up_max: Duration,
    pub(super) after: Duration,
}

impl Phases {
    pub(super) fn of(lab: &Lab) -> Phases {
        let seconds = |tiny: f64, other: f64| {
            Duration::from_secs_f64(if lab.scale == Scale::Tiny { tiny } else { other })
        };
        Phases {
            before: seconds(0.5, 5.0),
            down: seconds(2.0, 10.0),
            catching_up_max: seconds(3.0, 180.0),
            after: seconds(0.5, 5.0),
        }
    }
}

/// What happened when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moments {
    pub(super) start_ns: u64,
    pub(super) killed_ns: u64,
    pub(super) started_ns: u64,
    /// `None`: not within the time.
    pub(super) whole_ns: Option<u64>,
    pub(super) end_ns: u64,
}

/// What was seen.
#[derive(Debug)]
pub(super) struct Outage {
    pub(super) workers: usize,
    pub(super) file_bytes: u64,
    pub(super) moments: Moments,
    pub(super) reads: Vec<Call>,
    pub(super) writes: Vec<Call>,
    pub(super) failed_calls: usize,
    /// Blocks that are not what was acknowledged last.
    pub(super) lost_blocks: usize,
    /// The first failures.
    pub(super) said: Vec<String>,
}

/// What readers and writers leave.
#[derive(Default)]
struct Seen {
    reads: Vec<Call>,
    writes: Vec<Call>,
    failed_calls: usize,
    said: Vec<String>,
    /// By writer.
    written: Vec<Written>,
}

/// What a writer knows of each block of its file: rounds.
#[derive(Clone, Debug)]
struct Written {
    number: usize,
    blocks: Vec<Block>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Block {
    acknowledged: u64,
    /// The same unless the last write failed: then either may be there.
    sent: u64,
}

/// What readers, writers and the one who kills share.
struct Load<'a> {
    lab: &'a Lab,
    bed: &'a Testbed<'a>,
    workers: usize,
    file_bytes: u64,
    ready: AtomicUsize,
    is_over: AtomicBool,
    seen: Mutex<Seen>,
}

/// Measures once.
pub(super) fn measure(lab: &Lab) -> Result<Outage, Error> {
    let bed = Testbed::new(lab, &Plan { data_servers: SERVERS, clients: 1, ..Plan::default() })?;
    make_directory(lab, &bed, DIRECTORY, COPIES, SERVERS)?;
    let load = Load {
        lab,
        bed: &bed,
        workers: lab.workers.unwrap_or(if lab.scale == Scale::Tiny { 2 } else { 8 }),
        file_bytes: lab.bytes(16 * MIB, 64 * MIB),
        ready: AtomicUsize::new(0),
        is_over: AtomicBool::new(false),
        seen: Mutex::default(),
    };
    bed.with_client(0, |client| Ok(load.prepare(client)))??;
    bed.servers().iter().try_for_each(|host| host.set_rate(Some(LINK)))?;
    let moments = std::thread::scope(|scope| {
        let working =
            scope.spawn(|| bed.with_clients(0, 2 * load.workers, |number, client| load.work(number, client)));
        let moments = bed.with_client(0, |client| Ok(load.kill_and_start(client, &working)));
        load.is_over.store(true, Ordering::Relaxed);
        let worked = working.join().map_err(|_| Error::Failed("readers and writers panicked".to_owned()))?;
        worked.and(moments?)
    })?;
    bed.servers().iter().try_for_each(|host| host.set_rate(None))?;
    let lost_blocks = bed.with_client(0, |client| Ok(load.compare(client)))??;
    let Load { workers, file_bytes, seen, .. } = load;
    let Seen { reads, writes, failed_calls, said, .. } = seen.into_inner();
    Ok(Outage { workers, file_bytes, moments, reads, writes, failed_calls, lost_blocks, said })
}

fn failed(error: vazao_client::Error) -> Error {
    Error::Failed(error.to_string())
}

/// The file of a reader or writer; readers have the smaller numbers.
fn path(number: usize) -> Result<VolumePath, Error> {
    VolumePath::parse(format!("{DIRECTORY}/{number}").as_bytes()).map_err(|code| failed(code.into()))
}

impl Load<'_> {
    fn stream(&self, number: usize) -> u64 {
        content::stream(self.lab.seed, &[number as u64])
    }

    fn generator(&self, number: usize) -> Generator {
        Generator::new(self.stream(number), CALL_BYTES as usize)
    }

    fn blocks(&self) -> u64 {
        self.file_bytes / CALL_BYTES
    }

    /// Where in the stream of its file the contents of a block in a round are.
    fn of_round(&self, round: u64, block: u64) -> u64 {
        round * self.file_bytes + block * CALL_BYTES
    }

    /// All files as round 0 has them.
    fn prepare(&self, client: &Client) -> Result<(), Error> {
        let directory = VolumePath::parse(DIRECTORY.as_bytes()).map_err(|code| failed(code.into()))?;
        let directory = client.resolve(&directory, true).map_err(failed)?.inode;
        for number in 0..2 * self.workers {
            let created = client.create_file(directory, number.to_string().as_bytes(), &owner(), true);
            let (_, file) = created.map_err(failed)?;
            let mut generator = self.generator(number);
            for block in 0..self.blocks() {
                let bytes = generator.window(self.of_round(0, block), CALL_BYTES as usize);
                file.write_at(bytes, block * CALL_BYTES).map_err(failed)?;
            }
            file.sync().and_then(|()| file.close()).map_err(failed)?;
        }
        Ok(())
    }

    /// Reads or writes until it is over.
    fn work(&self, number: usize, client: &Client) -> vazao_client::Result<()> {
        let is_writer = number >= self.workers;
        let mode = OpenMode { read: !is_writer, write: is_writer, truncate: false };
        let path = VolumePath::parse(format!("{DIRECTORY}/{number}").as_bytes())?;
        let (_, file) = client.open_path(&path, mode)?;
        self.ready.fetch_add(1, Ordering::Relaxed);
        if is_writer {
            self.write(number, &file)
        } else {
            self.read(number, &file)
        }
        file.close()
    }

    fn read(&self, number: usize, file: &File) {
        let (mut generator, mut buffer) = (self.generator(number), vec![0; CALL_BYTES as usize]);
        for block in (0..self.blocks()).cycle() {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let (start_ns, offset) = (self.lab.clock.now_ns(), block * CALL_BYTES);
            let read = file.read_at(&mut buffer, offset).map_err(|error| error.to_string());
            let end_ns = self.lab.clock.now_ns();
            let read = read.and_then(|length| {
                generator.check(offset, &buffer[..length]).map_err(|difference| difference.to_string())?;
                if length == buffer.len() { Ok(()) } else { Err(format!("{length} bytes at {offset}")) }
            });
            let call = self.call(start_ns, end_ns, "a read", read);
            self.seen.lock().reads.push(call);
        }
    }

    fn write(&self, number: usize, file: &File) {
        let mut generator = self.generator(number);
        let mut blocks = vec![Block::default(); self.blocks() as usize];
        'rounds: for round in 1.. {
            for (block, known) in (0..).zip(&mut blocks) {
                if self.is_over.load(Ordering::Relaxed) {
                    break 'rounds;
                }
                known.sent = round;
                let bytes = generator.window(self.of_round(round, block), CALL_BYTES as usize);
                let start_ns = self.lab.clock.now_ns();
                let written = file.write_at(bytes, block * CALL_BYTES).and_then(|()| file.sync());
                let end_ns = self.lab.clock.now_ns();
                if written.is_ok() {
                    known.acknowledged = round;
                }
                let call = self.call(start_ns, end_ns, "a write", written.map_err(|error| error.to_string()));
                self.seen.lock().writes.push(call);
            }
        }
        self.seen.lock().written.push(Written { number, blocks });
    }

    /// Counts a call; one that failed also for what it said.
    fn call(&self, start_ns: u64, end_ns: u64, what: &str, ended: Result<(), String>) -> Call {
        let Err(reason) = ended else { return Call { start_ns, end_ns, bytes: CALL_BYTES } };
        let mut seen = self.seen.lock();
        seen.failed_calls += 1;
        if seen.said.len() < SAID_MAX {
            seen.said.push(format!("{what} failed: {reason}"));
        }
        drop(seen);
        self.lab.clock.sleep(AFTER_FAILURE);
        Call { start_ns, end_ns, bytes: 0 }
    }

    /// Kills the server, starts it again and waits until all groups have all their copies, while the others work.
    fn kill_and_start<T>(
        &self,
        client: &Client,
        working: &ScopedJoinHandle<'_, T>,
    ) -> Result<Moments, Error> {
        let phases = Phases::of(self.lab);
        while self.ready.load(Ordering::Relaxed) < 2 * self.workers && !working.is_finished() {
            self.pause(LOOK_EVERY)?;
        }
        let mut is_away_seen = false;
        let mut is_whole_again = || {
            // While the metadata service is busy the next look tells.
            let is_away = client.refresh_map().ok().map(|map| !map.away.is_empty());
            is_away_seen |= is_away == Some(true);
            is_away_seen && is_away == Some(false)
        };
        let now_ns = || self.lab.clock.now_ns();
        let start_ns = now_ns();
        self.until(phases.before, || false)?;
        let killed_ns = now_ns();
        self.bed.kill(SERVER)?;
        self.until(phases.down, || {
            is_whole_again();
            false
        })?;
        let started_ns = now_ns();
        self.bed.start(SERVER)?;
        let whole_ns = self.until(phases.catching_up_max, is_whole_again)?;
        self.until(phases.after, || false)?;
        Ok(Moments { start_ns, killed_ns, started_ns, whole_ns, end_ns: now_ns() })
    }

    /// Waits for so long, or until `is_there`; when it was, if it was.
    fn until(&self, time: Duration, mut is_there: impl FnMut() -> bool) -> Result<Option<u64>, Error> {
        let end_ns = self.lab.clock.now_ns() + time.as_nanos() as u64;
        while self.lab.clock.now_ns() < end_ns {
            if is_there() {
                return Ok(Some(self.lab.clock.now_ns()));
            }
            let left = Duration::from_nanos(end_ns.saturating_sub(self.lab.clock.now_ns()));
            self.pause(left.min(LOOK_EVERY))?;
        }
        Ok(None)
    }

    fn pause(&self, time: Duration) -> Result<(), Error> {
        self.lab.check()?;
        self.lab.clock.sleep(time);
        Ok(())
    }

    /// Blocks of writers' files that are not as the last acknowledged write left them.
    fn compare(&self, client: &Client) -> Result<usize, Error> {
        let (written, mut lost) = (self.seen.lock().written.clone(), 0);
        for Written { number, blocks } in written {
            let mode = OpenMode { read: true, ..OpenMode::default() };
            let (_, file) = client.open_path(&path(number)?, mode).map_err(failed)?;
            let (mut generator, mut buffer) = (self.generator(number), vec![0; CALL_BYTES as usize]);
            for (block, known) in (0..).zip(blocks) {
                let length = file.read_at(&mut buffer, block * CALL_BYTES).map_err(failed)?;
                let mut is_of = |round| {
                    length == buffer.len() && generator.check(self.of_round(round, block), &buffer).is_ok()
                };
                lost += usize::from(!is_of(known.acknowledged) && !is_of(known.sent));
            }
            file.close().map_err(failed)?;
        }
        Ok(lost)
    }
}
