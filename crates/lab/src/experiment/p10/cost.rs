//! The measurement behind P10's bars: a large file is written, read and overwritten with 1, 2 and 3 copies in turns,
//! over links that are narrow at the client, at the servers, and nowhere.

use super::bound::{Forwarding, Links, Narrowest, of_write};
use super::{COPIES, SERVERS};
use crate::Error;
use crate::content::{self, Generator};
use crate::experiment::Lab;
use crate::experiment::testbed::{Plan, Testbed};
use crate::hosts::BitsPerSecond;
use crate::place::owner;
use crate::psplit;
use crate::report::size::{KIB, MB, MIB};
use vazao_client::{Client, File, OpenMode};
use vazao_model::{ClusterMap, Layout, VolumePath};
use vazao_sampler::{Record, Recorder};

/// Where links are narrow, and over how many groups a file lies.
pub(super) struct Place {
    pub(super) name: &'static str,
    pub(super) links: Links,
    pub(super) width: usize,
}

const NARROW: Option<BitsPerSecond> = Some(BitsPerSecond(100_000_000));

pub(super) const PLACES: [Place; 4] = [
    Place { name: "100 Mb/s at the client", links: Links { client: NARROW, server: None }, width: SERVERS },
    Place { name: "100 Mb/s at each server", links: Links { client: None, server: NARROW }, width: SERVERS },
    // A star has its worst here: one primary sends to all.
    Place { name: "the same, file in one group", links: Links { client: None, server: NARROW }, width: 1 },
    Place { name: "no bound", links: Links { client: None, server: None }, width: SERVERS },
];

/// The place with narrow links at the servers, for files of full width.
pub(super) const AT_SERVERS: usize = 1;
/// Bytes of a call of the large operations.
const CALL_BYTES: u64 = MIB;
/// Bytes of a small overwrite.
pub(super) const SMALL_BYTES: u64 = 4 * KIB;
const FILE: &str = "file";

/// What one operation on a large file took.
#[derive(Clone, Debug)]
pub(super) struct Moved {
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    /// CPU seconds of this process, which is the client.
    pub(super) client_cpu_s: f64,
    /// CPU seconds of all daemons.
    pub(super) servers_cpu_s: f64,
    /// What all hosts received, whole frames.
    pub(super) received_bytes: u64,
    /// Share of the fuller one of processors and disk, and which it is.
    pub(super) fullest: (f64, &'static str),
}

impl Moved {
    pub(super) fn mb_per_s(&self) -> f64 {
        self.bytes as f64 / self.seconds.max(1e-9) / MB
    }

    pub(super) fn per_gib(&self, cpu_s: f64) -> f64 {
        cpu_s * (1u64 << 30) as f64 / self.bytes.max(1) as f64
    }
}

/// One turn of one number of copies at one place.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// Index into [`PLACES`].
    pub(super) place: usize,
    /// Index into [`COPIES`].
    pub(super) copies: usize,
    pub(super) repetition: u32,
    pub(super) write: Moved,
    pub(super) read: Moved,
    pub(super) overwrites_per_s: f64,
    /// What the links allow this very file, as it lies.
    pub(super) star: Option<Narrowest>,
    pub(super) chain: Option<Narrowest>,
}

/// How much is done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Amount {
    pub(super) file_bytes: u64,
    pub(super) overwrites: u64,
}

impl Amount {
    pub(super) fn of(lab: &Lab) -> Amount {
        Amount { file_bytes: lab.bytes(64 * MIB, 1024 * MIB), overwrites: lab.bytes(128, 1024) }
    }
}

/// Measures all places, each with all numbers of copies in turns.
pub(super) fn measure(lab: &Lab) -> Result<Vec<Sample>, Error> {
    let bed = Testbed::new(lab, &Plan { data_servers: SERVERS, clients: 1, ..Plan::default() })?;
    let bench = Bench { lab, bed, amount: Amount::of(lab) };
    for copies in COPIES {
        for width in [1, SERVERS] {
            bench.make_directory(copies, width)?;
        }
    }
    let mut samples = Vec::new();
    for (place, arranged) in PLACES.iter().enumerate() {
        bench.arrange(arranged.links)?;
        for repetition in 0..lab.repetitions() {
            // Who is first changes from turn to turn.
            for turn in 0..COPIES.len() {
                let copies = (turn + repetition as usize) % COPIES.len();
                samples.push(bench.sample(place, copies, repetition)?);
            }
        }
    }
    Ok(samples)
}

struct Bench<'a> {
    lab: &'a Lab,
    bed: Testbed<'a>,
    amount: Amount,
}

fn directory(copies: usize, width: usize) -> String {
    format!("/copies-{copies}-width-{width}")
}

fn failed(error: vazao_client::Error) -> Error {
    Error::Failed(error.to_string())
}

impl Bench<'_> {
    fn make_directory(&self, copies: usize, width: usize) -> Result<(), Error> {
        make_directory(self.lab, &self.bed, &directory(copies, width), copies, width)
    }

    fn arrange(&self, links: Links) -> Result<(), Error> {
        self.bed.clients().iter().try_for_each(|host| host.set_rate(links.client))?;
        Ok(self.bed.servers().iter().try_for_each(|host| host.set_rate(links.server))?)
    }

    fn sample(&self, place: usize, copies: usize, repetition: u32) -> Result<Sample, Error> {
        let Place { links, width, .. } = &PLACES[place];
        let path = directory(COPIES[copies], *width);
        let path = VolumePath::parse(path.as_bytes()).map_err(|code| failed(code.into()))?;
        let turn = [place as u64, copies as u64, u64::from(repetition)];
        let stream = content::stream(self.lab.seed, &turn);
        let (groups, write) = self.write(&path, stream)?;
        // All servers are on this machine: none has the file in memory then.
        psplit::drop_caches()?;
        let read = self.read(&path, stream)?;
        let overwrites_per_s = self.overwrite(&path, stream)?;
        self.in_directory(&path, |client, parent| client.unlink(parent, FILE.as_bytes()).map_err(failed))?;
        let allowed = |forwarding| of_write(&groups, *links, forwarding);
        let (star, chain) = (allowed(Forwarding::Star), allowed(Forwarding::Chain));
        tracing::info!(place = PLACES[place].name, copies = COPIES[copies], repetition, "measured");
        Ok(Sample { place, copies, repetition, write, read, overwrites_per_s, star, chain })
    }

    /// Runs `work` with a client of its own, which has nothing in memory, and the directory.
    fn in_directory<T: Send>(
        &self,
        path: &VolumePath,
        work: impl FnOnce(&Client, vazao_model::InodeId) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        self.bed.with_client(0, |client| {
            let directory = client.resolve(path, true)?.inode;
            Ok(work(client, directory))
        })?
    }

    /// A new file until it is durable; where it lies.
    fn write(&self, path: &VolumePath, stream: u64) -> Result<(Vec<Vec<String>>, Moved), Error> {
        self.in_directory(path, |client, directory| {
            let write = || {
                let created = client.create_file(directory, FILE.as_bytes(), &owner(), true);
                let (attributes, file) = created.map_err(failed)?;
                let mut generator = Generator::new(stream, CALL_BYTES as usize);
                for (offset, length) in calls(self.amount.file_bytes) {
                    file.write_at(generator.window(offset, length), offset).map_err(failed)?;
                }
                file.sync().and_then(|()| file.close()).map_err(failed)?;
                Ok(attributes.inode)
            };
            let (inode, moved) = self.moved(client, write)?;
            let layout = client.layout(inode).map_err(failed)?;
            let map = client.refresh_map().map_err(failed)?;
            let missing = || Error::Failed("a large file without a layout".to_owned());
            Ok((members(&layout.ok_or_else(missing)?, &map), moved))
        })
    }

    fn read(&self, path: &VolumePath, stream: u64) -> Result<Moved, Error> {
        self.in_directory(path, |client, directory| {
            let read = || {
                let file = self.open(client, directory, false)?;
                let mut generator = Generator::new(stream, CALL_BYTES as usize);
                let mut buffer = vec![0; CALL_BYTES as usize];
                for (offset, length) in calls(self.amount.file_bytes) {
                    read_checked(&file, &mut generator, offset, &mut buffer[..length])?;
                }
                file.close().map_err(failed)
            };
            self.moved(client, read).map(|((), moved)| moved)
        })
    }

    /// Overwrites at places of its own, each with an fsync; how many a second. Then all are read back.
    fn overwrite(&self, path: &VolumePath, stream: u64) -> Result<f64, Error> {
        let blocks = (self.amount.file_bytes / SMALL_BYTES).max(1);
        let place = |number| content::stream(stream, &[number]) % blocks * SMALL_BYTES;
        let places: Vec<u64> = (0..self.amount.overwrites).map(place).collect();
        self.in_directory(path, |client, directory| {
            let file = self.open(client, directory, true)?;
            let other = content::stream(stream, &[]);
            let mut generator = Generator::new(other, SMALL_BYTES as usize);
            let start_ns = self.lab.clock.now_ns();
            for &offset in &places {
                let bytes = generator.window(offset, SMALL_BYTES as usize);
                file.write_at(bytes, offset).and_then(|()| file.sync()).map_err(failed)?;
            }
            let seconds = self.seconds_since(start_ns);
            let mut buffer = [0; SMALL_BYTES as usize];
            for &offset in &places {
                read_checked(&file, &mut generator, offset, &mut buffer)?;
            }
            file.close().map_err(failed)?;
            Ok(places.len() as f64 / seconds.max(1e-9))
        })
    }

    fn open(&self, client: &Client, directory: vazao_model::InodeId, write: bool) -> Result<File, Error> {
        let inode = client.lookup(directory, FILE.as_bytes()).map_err(failed)?.inode;
        client.open_file(inode, OpenMode { read: true, write, truncate: false }).map_err(failed)
    }

    fn seconds_since(&self, start_ns: u64) -> f64 {
        self.lab.clock.now_ns().saturating_sub(start_ns) as f64 / 1e9
    }

    /// Does `work` on a large file and records what it took.
    fn moved<T>(
        &self,
        client: &Client,
        work: impl FnOnce() -> Result<T, Error>,
    ) -> Result<(T, Moved), Error> {
        let recorder = Recorder::new(self.lab.clock.clone(), self.bed.watched()).of(Some(client), None);
        let before_bytes = self.received_bytes()?;
        let ((result, seconds), record) = recorder.during(|| {
            let start_ns = self.lab.clock.now_ns();
            (work(), self.seconds_since(start_ns))
        });
        let received_bytes = self.received_bytes()?.saturating_sub(before_bytes);
        let (client_cpu_s, servers_cpu_s) = processors(&record);
        let bytes = self.amount.file_bytes;
        let fullest = fullest(&record);
        Ok((result?, Moved { bytes, seconds, client_cpu_s, servers_cpu_s, received_bytes, fullest }))
    }

    fn received_bytes(&self) -> Result<u64, Error> {
        let received = |host: &std::sync::Arc<crate::hosts::Host>| Ok(host.carried()?.back_bytes);
        self.bed.hosts().iter().map(received).sum()
    }
}

/// A directory whose files lie on so many groups of so many copies. The hosts are namespaces of one machine.
pub(super) fn make_directory(
    lab: &Lab,
    bed: &Testbed<'_>,
    path: &str,
    copies: usize,
    width: usize,
) -> Result<(), Error> {
    let place = format!("vz:{path}");
    lab.text_of(bed.vazao(0)?.args(["mkdir", &place]))?;
    let mut command = bed.vazao(0)?;
    command.args(["layout", &place, "--width", &width.to_string()]);
    if copies > 1 {
        command.args(["--copies", &copies.to_string(), "--same-host"]);
    }
    lab.text_of(&mut command).map(drop)
}

/// Offsets and lengths of the calls that go through a file.
fn calls(bytes: u64) -> impl Iterator<Item = (u64, usize)> {
    let length = move |offset: u64| (bytes - offset).min(CALL_BYTES) as usize;
    (0..bytes).step_by(CALL_BYTES as usize).map(move |offset| (offset, length(offset)))
}

/// Fills the buffer from a file and compares it.
pub(super) fn read_checked(
    file: &File,
    generator: &mut Generator,
    offset: u64,
    buffer: &mut [u8],
) -> Result<(), Error> {
    let length = file.read_at(buffer, offset).map_err(failed)?;
    if length != buffer.len() {
        return Err(Error::Failed(format!("the file ends at {}", offset + length as u64)));
    }
    generator.check(offset, buffer).map_err(|difference| Error::Failed(difference.to_string()))
}

/// The names of the servers of each slot, the primary first.
fn members(layout: &Layout, map: &ClusterMap) -> Vec<Vec<String>> {
    let name = |target| map.node(map.target(target)?.node).map(|node| node.name.clone());
    let of_group = |group: &vazao_model::GroupId| map.members(*group).into_iter().filter_map(name).collect();
    layout.groups.iter().map(of_group).collect()
}

/// CPU seconds of this process, and of all daemons.
fn processors(record: &Record) -> (f64, f64) {
    let of = |process: &vazao_sampler::ProcessRecord| process.cpu_s();
    let (client, servers) = record.processes.split_at(record.processes.len().min(1));
    (client.iter().map(of).sum(), servers.iter().map(of).sum())
}

fn fullest(record: &Record) -> (f64, &'static str) {
    let seconds = record.seconds.max(1e-9);
    let processors = record.machine_busy_s / seconds / record.cores.max(1) as f64;
    let disk = record.disks.iter().map(|disk| disk.busy_s / seconds).fold(0.0, f64::max);
    if disk > processors { (disk, "the machine's disk") } else { (processors, "the machine's processors") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vazao_sampler::{DiskRecord, ProcessRecord};

    #[test]
    fn calls_cover_a_file_whose_end_is_within_one() {
        let calls: Vec<(u64, usize)> = calls(2 * CALL_BYTES + 5).collect();
        assert_eq!(calls, [(0, CALL_BYTES as usize), (CALL_BYTES, CALL_BYTES as usize), (2 * CALL_BYTES, 5)]);
    }

    #[test]
    fn the_first_process_of_a_record_is_the_client_and_the_fuller_resource_is_named() {
        let process = |user_s: f64| ProcessRecord { user_s, ..ProcessRecord::default() };
        let mut record = Record { seconds: 2.0, cores: 2, machine_busy_s: 3.0, ..Record::default() };
        record.processes = [1.0, 0.25, 0.5].map(process).to_vec();
        assert_eq!(processors(&record), (1.0, 0.75));
        assert_eq!(fullest(&record), (0.75, "the machine's processors"));
        record.disks = vec![DiskRecord { busy_s: 1.9, ..DiskRecord::default() }];
        assert_eq!(fullest(&record), (0.95, "the machine's disk"));
        assert_eq!(processors(&Record::default()), (0.0, 0.0));
    }
}
