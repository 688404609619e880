//! G14: reads at random places of a remote file, through a channel and by NFS (table 4.5 of GridFS).

use super::outcome::{Figure, Finding, Form, Series};
use super::testbed::{Plan, Testbed};
use super::{About, Experiment, Lab, Measured, figure, shown};
use crate::Error;
use crate::content::{self, Generator};
use crate::hosts::{BitsPerSecond, TCP_PAYLOAD_SHARE};
use crate::nfs::{self, Server};
use crate::report::size::{KIB, MB, MIB, format_size};
use vazao_client::area::{Channel, ChannelOptions};

/// Random reads.
pub(super) struct G14;

/// The figure's key, how many bits a second the links carry, and what to call them.
const LINKS: [(&str, Option<u64>, &str); 2] =
    [("gigabit", Some(1_000_000_000), "links of 1 Gb/s"), ("unshaped", None, "links without a rate")];
const BLOCKS: [u64; 2] = [512 * KIB, 32 * KIB];
#[allow(clippy::approx_constant, reason = "a rate that happens to be 3.14")]
const PUBLISHED_NFS: [f64; 2] = [20.33, 3.14];
const PUBLISHED_GRIDFS: [f64; 2] = [15.14, 2.43];
/// Of what a link carries; more is a full link.
const LINK_FULL: f64 = 0.95;
const CHANNEL: &str = "channel";
const NFS: &str = "NFS";
const FILE: &str = "file";
/// Reads of one measurement: small ones end sooner.
const READS_MAX: u64 = 4096;

impl Experiment for G14 {
    fn about(&self) -> About {
        About {
            id: "G14",
            title: "Reads at random places of a remote file: through a channel and by NFS",
            source: "GridFS, table 4.5",
            needs: "root, nfs-ganesha-vfs, rpcbind, libnfs13",
        }
    }

    fn measure(&self, lab: &Lab) -> Result<Measured, Error> {
        let file_bytes = lab.bytes(256 * MIB, 1024 * MIB);
        let read_bytes = lab.bytes(128 * MIB, 1024 * MIB);
        let figures = LINKS
            .into_iter()
            .map(|(key, rate, link)| {
                let mut figure = empty_figure(key, link);
                compare(lab, rate, file_bytes, read_bytes, &mut figure)?;
                Ok(figure)
            })
            .collect::<Result<Vec<Figure>, Error>>()?;
        Ok(Measured {
            scale: format!(
                "a file of {}, {} in reads of one size but at most {READS_MAX} reads, {} repetitions",
                format_size(file_bytes),
                format_size(read_bytes),
                lab.repetitions()
            ),
            setup: vec![
                "One server and one client on hosts of their own; the file is in the server's page cache.".to_owned(),
                "NFS: NFS-Ganesha 3 over the same directory, read by libnfs without a mount and without a cache, \
                 as the channel is. Both make one call at a time, in turns, and the bytes of each are compared."
                    .to_owned(),
            ],
            figures,
            gaps: Vec::new(),
        })
    }

    fn findings(&self, figures: &[Figure]) -> Vec<Finding> {
        let finding = |(key, rate, link): (&str, Option<u64>, &str)| {
            let median = |series: &str, at| figure(figures, key)?.median(series, at);
            // Where the link is full, no method can be faster than another.
            let full = rate.map(|rate| rate as f64 / 8.0 / MB * TCP_PAYLOAD_SHARE * LINK_FULL);
            let ahead = |at| {
                let (channel, nfs) = (median(CHANNEL, at)?, median(NFS, at)?);
                Some((channel / nfs, channel > nfs || full.is_some_and(|full| channel >= full)))
            };
            let (large, small) = (ahead(0), ahead(1));
            Finding::new(
                &format!("The channel is faster than NFS, or fills the link: {link}"),
                large.zip(small).map(|(large, small)| large.1 && small.1),
                format!(
                    "{} times NFS by 512 KiB, {} times by 32 KiB",
                    shown(large.map(|large| large.0)),
                    shown(small.map(|small| small.0))
                ),
            )
        };
        LINKS.map(finding).to_vec()
    }
}

fn empty_figure(key: &str, link: &str) -> Figure {
    let x = BLOCKS.map(format_size).to_vec();
    let title = format!("Reads at random places, {link}");
    let mut figure = Figure::new(key, &title, ("bytes of a read", x), "MB/s", Form::Bars);
    figure.published.push(Series::published("GridFS, 2006", &PUBLISHED_GRIDFS));
    figure.published.push(Series::published("NFS, 2006", &PUBLISHED_NFS));
    figure
}

fn compare(
    lab: &Lab,
    rate: Option<u64>,
    file_bytes: u64,
    read_bytes: u64,
    figure: &mut Figure,
) -> Result<(), Error> {
    let link = rate.map(BitsPerSecond);
    let bed = Testbed::new(lab, &Plan { data_servers: 1, clients: 1, link, areas: true, ..Plan::default() })?;
    let disk = &bed.server_disks()[0];
    content::write_file(&disk.join(FILE), lab.seed, file_bytes)?;
    let server = Server::start(&*lab.clock, &bed.servers()[0], disk, &bed.directory().join("nfs"))?;
    for repetition in 0..lab.repetitions() {
        for (at, block) in BLOCKS.into_iter().enumerate() {
            let places = places(lab, repetition, file_bytes, read_bytes, block);
            let by_channel = || {
                bed.with_client(0, |client| {
                    let channel =
                        client.area("data1", "disk").open(FILE.as_bytes(), &ChannelOptions::default())?;
                    Ok(timed(lab, block, &places, &channel))
                })?
            };
            let by_nfs = || {
                bed.clients()[0].inside(|| {
                    let session = server.connect()?;
                    let file = session.open(&format!("/{FILE}"), 0)?;
                    timed(lab, block, &places, &file)
                })?
            };
            figure.series_mut(CHANNEL).record(at, by_channel()?);
            figure.series_mut(NFS).record(at, by_nfs()?);
        }
    }
    Ok(())
}

/// Something that is read at places of its own.
trait ReadAt {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Error>;
}

impl ReadAt for Channel {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Error> {
        Channel::read_at(self, buffer, offset).map_err(|error| Error::Failed(error.to_string()))
    }
}

impl ReadAt for nfs::File<'_> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Error> {
        nfs::File::read_at(self, buffer, offset)
    }
}

/// Reads a block at each place; MB/s of the time in the calls alone, without that of comparing.
fn timed(lab: &Lab, block: u64, places: &[u64], file: &impl ReadAt) -> Result<f64, Error> {
    let mut generator = Generator::new(lab.seed, MIB as usize);
    let mut buffer = vec![0; block as usize];
    let mut spent_ns = 0;
    for &place in places {
        let start_ns = lab.clock.now_ns();
        let length = file.read_at(&mut buffer, place)?;
        spent_ns += lab.clock.now_ns().saturating_sub(start_ns);
        if length != buffer.len() || generator.check(place, &buffer).is_err() {
            return Err(Error::Failed(format!("{length} bytes at {place}: not what was written")));
        }
    }
    Ok(block as f64 * places.len() as f64 / (spent_ns.max(1) as f64 / 1e9) / MB)
}

/// Offsets drawn from the seed, multiples of the block.
fn places(lab: &Lab, repetition: u32, file_bytes: u64, read_bytes: u64, block: u64) -> Vec<u64> {
    let count = (read_bytes / block).clamp(1, READS_MAX);
    let draw = |number| content::stream(lab.seed, &[u64::from(repetition), block, number]);
    (0..count).map(|number| draw(number) % (file_bytes / block) * block).collect()
}
