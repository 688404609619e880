//! G13: a local file copied into a remote directory by `dd`: through mounts, and by NFS (section 4.3 of GridFS).

use super::outcome::{Figure, Finding, Form, Series};
use super::testbed::{Plan, Testbed};
use super::{About, Experiment, Lab, Measured, figure, shown};
use crate::Error;
use crate::content::{self, Generator};
use crate::hosts::{BitsPerSecond, TCP_PAYLOAD_SHARE};
use crate::nfs::Server;
use crate::report::size::{KIB, MB, MIB, format_size};
use rustix::fs::OFlags;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Copies by `dd`.
pub(super) struct G13;

const LINKS: [(&str, Option<u64>, &str); 2] =
    [("gigabit", Some(1_000_000_000), "links of 1 Gb/s"), ("unshaped", None, "links without a rate")];
const BLOCKS: [u64; 2] = [64 * KIB, MIB];
/// On a full link two who are equally fast differ by so little.
const SAME: f64 = 0.98;
const VOLUME: &str = "mount of the volume";
const AREAS: &str = "mount of the areas";
const NFS: &str = "NFS";

impl Experiment for G13 {
    fn about(&self) -> About {
        About {
            id: "G13",
            title: "A local file copied into a remote directory block by block: through a mount and by NFS",
            source: "GridFS, section 4.3",
            needs: "root, /dev/fuse, nfs-ganesha-vfs, rpcbind, libnfs13",
        }
    }

    fn measure(&self, lab: &Lab) -> Result<Measured, Error> {
        let bytes = lab.bytes(256 * MIB, 1024 * MIB);
        let figures = LINKS
            .into_iter()
            .map(|(key, rate, link)| {
                let mut figure = empty_figure(key, link);
                Copies::new(lab, rate, bytes)?.measure(&mut figure)?;
                Ok(figure)
            })
            .collect::<Result<Vec<Figure>, Error>>()?;
        Ok(Measured {
            scale: format!("{} a copy, {} repetitions", format_size(bytes), lab.repetitions()),
            setup: vec![
                "One server and one client on hosts of their own. `dd conv=fsync` writes into mounts on the client's \
                 host; the time ends when the server has synced. In turns; what arrived is compared."
                    .to_owned(),
                "NFS: NFS-Ganesha 3 over the same disk of the server, written by libnfs in blocks of the same size, \
                 one call at a time, then a commit."
                    .to_owned(),
            ],
            figures,
            gaps: vec![
                "NFS through the kernel: libnfs has no mount to pay for, but no write-behind either, which a kernel's \
                 client has; on a link with a rate that client could fill the link at best, and what a link can carry \
                 is in the findings."
                    .to_owned(),
            ],
        })
    }

    fn findings(&self, figures: &[Figure]) -> Vec<Finding> {
        let finding = |(key, _, link): (&str, Option<u64>, &str)| {
            let ratio = |mount: &str| {
                let figure = figure(figures, key)?;
                let ratios =
                    (0..BLOCKS.len()).map(|at| Some(figure.median(mount, at)? / figure.median(NFS, at)?));
                ratios.collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::min)
            };
            let (volume, areas) = (ratio(VOLUME), ratio(AREAS));
            Finding::new(
                &format!("The mount is at least as fast as NFS, within 2 %: {link}"),
                volume.zip(areas).map(|(volume, areas)| volume >= SAME && areas >= SAME),
                format!(
                    "lowest of both block sizes: the volume {} times NFS, areas {} times",
                    shown(volume),
                    shown(areas)
                ),
            )
        };
        let mut findings = LINKS.map(finding).to_vec();
        let carried = TCP_PAYLOAD_SHARE * 1e9 / 8.0 / MB;
        let best = figure(figures, LINKS[0].0).and_then(|figure| figure.find(VOLUME)?.best());
        findings.push(Finding::new(
            "The mount of the volume fills the link to 95 %: no client can be much faster",
            best.map(|best| best >= carried * 0.95),
            format!("{} of the {carried:.0} MB/s that 1 Gb/s carry", shown(best)),
        ));
        findings
    }
}

fn empty_figure(key: &str, link: &str) -> Figure {
    let x = BLOCKS.map(format_size).to_vec();
    let title = format!("A local file into a remote directory, synced: {link}");
    let mut figure = Figure::new(key, &title, ("bytes of a write", x), "MB/s", Form::Bars);
    figure.published.push(Series::published("GridFS by FUSE, 2006", &[1.41, 1.41]));
    figure.published.push(Series::published("NFS, 2006", &[24.54, 24.54]));
    figure
}

/// A bed with both mounts and the NFS server.
struct Copies<'a> {
    lab: &'a Lab,
    bed: Testbed<'a>,
    server: Server,
    source: PathBuf,
    bytes: u64,
}

impl Copies<'_> {
    fn new(lab: &Lab, rate: Option<u64>, bytes: u64) -> Result<Copies<'_>, Error> {
        let link = rate.map(BitsPerSecond);
        let plan = Plan { data_servers: 1, clients: 1, link, areas: true, ..Plan::default() };
        let bed = Testbed::new(lab, &plan)?;
        let exported = bed.server_disks()[0].clone();
        let server = Server::start(&*lab.clock, &bed.servers()[0], &exported, &bed.directory().join("nfs"))?;
        let source = bed.client_disks()[0].join("source");
        content::write_file(&source, lab.seed, bytes)?;
        let copies = Copies { lab, bed, server, source, bytes };
        for (mount, arguments) in [(VOLUME, ["vz:/"].as_slice()), (AREAS, &["--areas"])] {
            copies.mount(mount, arguments)?;
        }
        Ok(copies)
    }

    fn mountpoint(&self, mount: &str) -> PathBuf {
        self.bed.directory().join(if mount == AREAS { "areas" } else { "volume" })
    }

    fn mount(&self, mount: &str, arguments: &[&str]) -> Result<(), Error> {
        let mountpoint = self.mountpoint(mount);
        fs::create_dir(&mountpoint).map_err(Error::at(mountpoint.display()))?;
        let mut command = self.bed.vazao(0)?;
        command.arg("mount").arg("--log-file").arg(mountpoint.with_extension("log"));
        self.lab.text_of(command.args(arguments).arg(&mountpoint)).map(drop)
    }

    fn measure(&self, figure: &mut Figure) -> Result<(), Error> {
        for repetition in 0..self.lab.repetitions() {
            for (at, block) in BLOCKS.into_iter().enumerate() {
                let name = format!("copy-{repetition}-{block}");
                for mount in [VOLUME, AREAS] {
                    let directory = self.mountpoint(mount);
                    let directory = if mount == AREAS { directory.join("data1/disk") } else { directory };
                    let seconds = self.by_dd(block, &directory.join(&name))?;
                    figure.series_mut(mount).record(at, self.rate(seconds));
                }
                let seconds = self.by_nfs(block, &name)?;
                figure.series_mut(NFS).record(at, self.rate(seconds));
            }
        }
        Ok(())
    }

    fn rate(&self, seconds: f64) -> f64 {
        self.bytes as f64 / seconds.max(1e-9) / MB
    }

    fn by_dd(&self, block: u64, target: &Path) -> Result<f64, Error> {
        let mut command = self.bed.clients()[0].command("dd");
        command.arg(format!("if={}", self.source.display())).arg(format!("of={}", target.display()));
        command.arg(format!("bs={block}")).args(["conv=fsync", "status=none"]);
        let start_ns = self.lab.clock.now_ns();
        self.lab.text_of(&mut command)?;
        let seconds = self.seconds_since(start_ns);
        self.check_and_remove(target)?;
        Ok(seconds)
    }

    fn by_nfs(&self, block: u64, name: &str) -> Result<f64, Error> {
        let copied = || -> Result<f64, Error> {
            let session = self.server.connect()?;
            let create = OFlags::CREATE | OFlags::WRONLY;
            let mut source = File::open(&self.source).map_err(Error::at(self.source.display()))?;
            let mut buffer = vec![0; block as usize];
            let start_ns = self.lab.clock.now_ns();
            let target = session.open(&format!("/{name}"), create.bits() as i32)?;
            let mut offset = 0;
            loop {
                let length = source.read(&mut buffer).map_err(Error::at(self.source.display()))?;
                if length == 0 {
                    break;
                }
                target.write_at(&buffer[..length], offset)?;
                offset += length as u64;
            }
            target.sync()?;
            Ok(self.seconds_since(start_ns))
        };
        let seconds = self.bed.clients()[0].inside(copied)??;
        self.check_and_remove(&self.bed.server_disks()[0].join(name))?;
        Ok(seconds)
    }

    fn seconds_since(&self, start_ns: u64) -> f64 {
        self.lab.clock.now_ns().saturating_sub(start_ns) as f64 / 1e9
    }

    fn check_and_remove(&self, path: &Path) -> Result<(), Error> {
        let failed = || Error::at(path.display());
        let mut generator = Generator::new(self.lab.seed, MIB as usize);
        let mut file = File::open(path).map_err(failed())?;
        let mut buffer = vec![0; MIB as usize];
        for offset in (0..self.bytes).step_by(MIB as usize) {
            let part = &mut buffer[..MIB.min(self.bytes - offset) as usize];
            file.read_exact(part).map_err(failed())?;
            if generator.check(offset, part).is_err() {
                return Err(Error::Failed(format!(
                    "{}: not what was written, near {offset}",
                    path.display()
                )));
            }
        }
        fs::remove_file(path).map_err(failed())
    }
}

impl Drop for Copies<'_> {
    fn drop(&mut self) {
        for mount in [VOLUME, AREAS] {
            if let Err(error) = self.bed.unmount(0, &self.mountpoint(mount)) {
                tracing::warn!("{mount}: {error}");
            }
        }
    }
}
