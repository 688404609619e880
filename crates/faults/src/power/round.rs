//! One loss of power after the other.

use super::{Arguments, Hit};
use crate::check::contents::Expected;
use crate::check::look::{Seen, look};
use crate::check::names::Blow;
use crate::check::{Case, Checked, check, check_file};
use crate::clock::{now_ns, sleep_ms, wait_until};
use crate::cluster::{Cluster, META, end_of};
use crate::disk::shown::Loss;
use crate::disk::{Losses, Odds};
use crate::enclosure::Enclosure;
use crate::failure::{Failure, Outcome};
use crate::load::process::{Start, Writer};
use crate::load::writer::Way;
use crate::tool::run;
use crate::volume::FileSystem;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use vazao_disk::{Disk, RealDisk};
use vazao_meta::{MetaOptions, MetaService};

/// Who writes, each in a directory of its own.
const WAYS: [Way; 4] = [Way::Mount, Way::Mount, Way::Library, Way::Commands];

/// Power goes at most this long after the writers have begun.
const LOAD_MS_MAX: u64 = 1_200;

/// Power goes with one of so many next writes, or after so long at the latest.
const ARMED_WRITES_MAX: u64 = 150;
const ARMED_MS_MAX: u64 = 30;

/// Writers that have lived through a loss go on for as long.
const AFTERWARDS_MS: u64 = 300;

/// A second loss comes at most this long after the daemons began to start: while they read their logs, or just after.
const SECOND_MS_MAX: u64 = 500;

/// A client that appends has a lock on the file's end, and one that dies with it keeps all locks from everybody over a
/// restart of the metadata service, until it is known to be dead (docs/semantics.md, "Consistency", 7 and 9).
const LOCKED_MS: u64 = 75_000;

/// Rounds whose directories are kept and looked at again; older ones are removed.
const REMEMBERED: usize = 3;

/// The nodes that lose power, the metadata service's included in `nodes`.
fn nodes_of(hit: Hit, nodes: usize, random: &mut StdRng) -> Vec<usize> {
    match hit {
        Hit::All | Hit::Servers => (0..nodes).collect(),
        Hit::Data => vec![random.random_range(META + 1..nodes)],
        Hit::Metadata => vec![META],
    }
}

fn draw(random: &mut StdRng) -> Hit {
    match random.random_range(0..10) {
        0..5 => Hit::All,
        5..7 => Hit::Servers,
        7 => Hit::Metadata,
        _ => Hit::Data,
    }
}

/// A round when power has gone.
struct After {
    name: String,
    directories: Vec<String>,
    writers: Vec<Writer>,
    nodes: Vec<usize>,
    blow: Blow,
    appends: bool,
}

/// The rounds on one file system.
pub(super) struct Rounds<'a> {
    arguments: &'a Arguments,
    kind: FileSystem,
    cluster: Cluster,
    vazao: PathBuf,
    mountpoint: PathBuf,
    scratch: PathBuf,
    /// For clients that live on: as one on another machine would be, which reads past no server.
    remote: PathBuf,
    /// What has to be there whole, by rounds.
    kept: VecDeque<(String, BTreeMap<PathBuf, Expected>)>,
    writes: Losses,
    lost_ns_max: u64,
    span_ns_max: u64,
    operations: usize,
    /// Nothing appends before this.
    locked_until_ns: u64,
}

impl<'a> Rounds<'a> {
    pub(super) fn new(
        arguments: &'a Arguments,
        kind: FileSystem,
        mut cluster: Cluster,
        vazao: PathBuf,
        scratch: &Path,
    ) -> Outcome<Rounds<'a>> {
        let (mountpoint, remote) = (scratch.join("volume"), scratch.join("cluster/remote.toml"));
        fs::create_dir(&mountpoint).map_err(Failure::at(mountpoint.display()))?;
        let text = fs::read_to_string(cluster.client_file()).map_err(Failure::at("client.toml"))?;
        fs::write(&remote, text + "short_circuit = false\n").map_err(Failure::at(remote.display()))?;
        if arguments.lying_disks {
            cluster.lie()?;
        }
        Ok(Rounds {
            arguments,
            kind,
            cluster,
            vazao,
            mountpoint,
            scratch: scratch.to_owned(),
            remote,
            kept: VecDeque::new(),
            writes: Losses::default(),
            lost_ns_max: 0,
            span_ns_max: 0,
            operations: 0,
            locked_until_ns: 0,
        })
    }

    /// One round; false when there was a finding.
    pub(super) fn round(&mut self, number: u64, enclosure: &mut Enclosure) -> Outcome<bool> {
        let seed = self.arguments.seed.wrapping_mul(1_000_003).wrapping_add(number);
        let mut random = StdRng::seed_from_u64(seed ^ (self.kind as u64) << 56);
        let hit = draw(&mut random);
        let hit = self.arguments.only.unwrap_or(hit);
        let told = self.survive(number, hit, &mut random, enclosure);
        let (loss, checked) = match told {
            Ok(told) => told,
            Err(failure) => {
                let (kind, words) = (self.kind.name(), self.last_words());
                println!(
                    "BROKEN OFF on {kind}, round {number}, --seed {}, {hit:?}: {failure}",
                    self.arguments.seed
                );
                println!("{words}");
                return Ok(false);
            }
        };
        self.writes += loss.writes;
        self.lost_ns_max = self.lost_ns_max.max(checked.lost_ns);
        self.span_ns_max = self.span_ns_max.max(checked.span_ns);
        self.tell(number, hit, loss, &checked);
        if !checked.findings.is_empty() {
            println!("{}", self.last_words());
        }
        Ok(checked.findings.is_empty())
    }

    /// The ends of all logs, those of mounts included.
    fn last_words(&self) -> String {
        let logs =
            fs::read_dir(self.scratch.join("cluster/state/vazao")).map(|it| it.flatten().collect::<Vec<_>>());
        let of_mounts: Vec<String> = logs.unwrap_or_default().iter().map(|log| end_of(&log.path())).collect();
        self.cluster.last_words() + &of_mounts.join("")
    }

    fn tell(&self, number: u64, hit: Hit, loss: Loss, checked: &Checked) {
        let Losses { dropped, torn, kept } = loss.writes;
        println!(
            "{} {number} {hit:?}: {} unflushed writes dropped, {torn} torn, {kept} kept; {} names lost, made \
             within {:.1} ms, the oldest {:.1} ms old; {} files, {} of them synced",
            self.kind.name(),
            dropped,
            checked.lost,
            checked.span_ns as f64 / 1e6,
            checked.lost_ns as f64 / 1e6,
            checked.files,
            checked.certain,
        );
        for finding in &checked.findings {
            println!(
                "FAILED on {}, round {number}, --seed {}, {hit:?}: {finding}",
                self.kind.name(),
                self.arguments.seed
            );
        }
    }

    /// What all rounds together were.
    pub(super) fn summary(&self) {
        let Losses { dropped, torn, kept } = self.writes;
        println!(
            "{}: {} operations; of unflushed writes {dropped} dropped, {torn} torn, {kept} kept; names lost were made \
             within {:.1} ms at most, and {:.1} ms old",
            self.kind.name(),
            self.operations,
            self.span_ns_max as f64 / 1e6,
            self.lost_ns_max as f64 / 1e6
        );
    }

    /// Ends the cluster in order.
    pub(super) fn close(self) -> Outcome {
        self.cluster.down()?;
        self.cluster.close()
    }

    /// Load, loss, and the way back. Errors: what went wrong before the loss.
    fn survive(
        &mut self,
        number: u64,
        hit: Hit,
        random: &mut StdRng,
        enclosure: &mut Enclosure,
    ) -> Outcome<(Loss, Checked)> {
        let is_survived = hit != Hit::All;
        let config = if is_survived { self.remote.clone() } else { self.cluster.client_file() };
        self.cluster.mount(&self.mountpoint, &config)?;
        let name = format!("r{number}");
        let appends = now_ns() > self.locked_until_ns && (is_survived || random.random_bool(0.2));
        // A writer that lives on while changes of names are lost must not take one node for another.
        let replaces = !is_survived || hit == Hit::Data;
        let writers = self.start_writers(&name, &config, (appends, replaces), random)?;
        let load_ms = random.random_range(0..LOAD_MS_MAX);
        sleep_ms(load_ms / 2);
        self.write_back(&(0..self.cluster.nodes()).collect::<Vec<_>>(), random)?;
        sleep_ms(load_ms / 2);
        let nodes = nodes_of(hit, self.cluster.nodes(), random);
        let loss = if is_survived {
            self.write_back(&nodes, random)?;
            // Processes that live on after power went get no answers.
            self.cluster.freeze(&nodes)?;
            self.cluster.lose_power(&nodes, random.random(), odds(random))?
        } else {
            self.lose_all(&nodes, random)?
        };
        let blow = Blow { at_ns: loss.at_ns, is_survived, forgets_metadata: hit != Hit::Data };
        let directories: Vec<String> = writers.iter().map(|writer| writer.directory.clone()).collect();
        let after = After { name, directories, writers, nodes, blow, appends };
        // Whatever does not work after the loss is a finding.
        let checked = self
            .come_back(after, random, enclosure)
            .unwrap_or_else(|failure| Checked { findings: vec![failure.to_string()], ..Checked::default() });
        Ok((loss, checked))
    }

    /// The way back after a loss, and the look at what is left.
    fn come_back(
        &mut self,
        after: After,
        random: &mut StdRng,
        enclosure: &mut Enclosure,
    ) -> Outcome<Checked> {
        let After { name, directories, writers, nodes, blow, appends } = after;
        let is_survived = blow.is_survived;
        let journals = if is_survived {
            self.recover(&nodes, enclosure)?;
            sleep_ms(AFTERWARDS_MS);
            writers.into_iter().map(Writer::end).collect::<Outcome<Vec<_>>>()?
        } else {
            let journals = writers.into_iter().map(Writer::kill).collect::<Outcome<Vec<_>>>()?;
            if appends {
                self.locked_until_ns = now_ns() + LOCKED_MS * 1_000_000;
            }
            self.cluster.kill_mount(&self.mountpoint)?;
            if random.random_bool(0.3) {
                self.lose_again(&nodes, random, enclosure)?;
            }
            self.recover(&nodes, enclosure)?;
            journals
        };
        self.operations += journals.iter().map(|journal| journal.entries.len()).sum::<usize>();
        let before = if is_survived { Some(self.look_at(&directories)?) } else { None };
        if is_survived {
            self.cluster.unmount(&self.mountpoint)?;
        }
        self.cluster.mount(&self.mountpoint, &self.cluster.client_file())?;
        let seen = self.look_at(&directories)?;
        let differs = before.is_some_and(|before| {
            before.iter().zip(&seen).any(|(before, seen)| before.found.tree != seen.found.tree)
        });
        let cases: Vec<Case> = directories
            .into_iter()
            .zip(journals)
            .zip(seen)
            .map(|((directory, journal), seen)| Case { directory, journal, seen })
            .collect();
        let mut checked = check(&cases, blow, nodes.contains(&META));
        if differs {
            let text = "a mount that has lived through the loss shows other names than one that came later";
            checked.findings.push(text.to_owned());
        }
        self.check_rest(&mut checked)?;
        self.keep(name, std::mem::take(&mut checked.kept))?;
        self.cluster.unmount(&self.mountpoint)?;
        Ok(checked)
    }

    fn start_writers(
        &self,
        name: &str,
        config: &Path,
        (appends, replaces): (bool, bool),
        random: &mut StdRng,
    ) -> Outcome<Vec<Writer>> {
        let mut writers = Vec::new();
        // Many syncs leave little to be lost, few of them little that must not be.
        let syncs = [2, 20, 100][random.random_range(0..3)];
        for (number, way) in WAYS.into_iter().enumerate() {
            let directory = format!("{name}/w{number}");
            let place = self.mountpoint.join(&directory);
            fs::create_dir_all(&place).map_err(Failure::at(place.display()))?;
            let inode = fs::metadata(&place).map_err(Failure::at(place.display()))?.ino();
            File::open(&place).and_then(|it| it.sync_all()).map_err(Failure::at(place.display()))?;
            let (mountpoint, cluster, vazao) = (&*self.mountpoint, config, &*self.vazao);
            let seed = random.random();
            let start =
                Start { way, seed, syncs, appends, replaces, directory, inode, mountpoint, cluster, vazao };
            writers.push(Writer::start(&start)?);
        }
        wait_until("all writers write", || writers.iter().all(|writer| writer.answered() > 2))?;
        Ok(writers)
    }

    fn write_back(&self, nodes: &[usize], random: &mut StdRng) -> Outcome {
        nodes.iter().try_for_each(|node| self.cluster.write_back(*node, random))
    }

    /// Power goes with one of the next writes, in the middle of whatever they belong to.
    fn lose_all(&mut self, nodes: &[usize], random: &mut StdRng) -> Outcome<Loss> {
        let (seed, odds) = (random.random(), odds(random));
        self.cluster.arm(nodes, random.random_range(1..ARMED_WRITES_MAX), seed, odds)?;
        self.write_back(nodes, random)?;
        sleep_ms(random.random_range(0..ARMED_MS_MAX));
        self.cluster.lose_power(nodes, seed, odds)
    }

    /// Power goes again while the daemons start.
    #[allow(clippy::disallowed_methods, reason = "vazao up has a deadline of its own")]
    fn lose_again(&mut self, nodes: &[usize], random: &mut StdRng, enclosure: &mut Enclosure) -> Outcome {
        self.cluster.recover_disks(nodes, enclosure)?;
        let mut starting: Child = self.cluster.begin_up()?;
        sleep_ms(random.random_range(0..SECOND_MS_MAX));
        let loss = self.cluster.lose_power(nodes, random.random(), odds(random))?;
        self.writes += loss.writes;
        // It may have done its work already.
        let _ = starting.kill();
        starting.wait().map(drop).map_err(Failure::at("vazao up"))
    }

    /// Disks and daemons are there again, and the records of the metadata agree with one another.
    fn recover(&mut self, nodes: &[usize], enclosure: &mut Enclosure) -> Outcome {
        self.cluster.recover_disks(nodes, enclosure)?;
        if nodes.contains(&META) {
            self.check_metadata()?;
        }
        self.cluster.up(&[])
    }

    /// Opens a copy of what the metadata disk has, so that nothing is changed by it.
    fn check_metadata(&self) -> Outcome {
        let copy = self.scratch.join("metadata-copy");
        let from = self.cluster.place(META).join("meta");
        let (from, to) = (from.to_string_lossy(), copy.to_string_lossy());
        crate::tool::tool("cp", &["-a", "--sparse=always", &from, &to])?;
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(&copy).map_err(Failure::at(copy.display()))?);
        let told =
            |fault: &dyn std::fmt::Display| Failure::new(format!("the metadata cannot be read: {fault}"));
        let service = MetaService::open(disk, MetaOptions::default(), vazao_meter::clock::system());
        let service = service.map_err(|fault| told(&fault))?;
        let checked = service.check().map_err(|fault| told(&fault))?;
        service.close().map_err(|fault| told(&fault))?;
        fs::remove_dir_all(&copy).map_err(Failure::at(copy.display()))?;
        match checked.problems.is_empty() {
            true => Ok(()),
            false => Err(Failure::new(format!("the metadata contradicts itself: {:?}", checked.problems))),
        }
    }

    fn look_at(&self, directories: &[String]) -> Outcome<Vec<Seen>> {
        directories.iter().map(|directory| look(&self.mountpoint.join(directory))).collect()
    }

    /// The bound, the files of earlier rounds, and every block on every disk.
    fn check_rest(&self, checked: &mut Checked) -> Outcome {
        let span_ms = checked.span_ns as f64 / 1e6;
        if span_ms > self.arguments.bound_ms {
            let bound_ms = self.arguments.bound_ms;
            checked.findings.push(format!(
                "{} changes of names are lost that were made within {span_ms:.1} ms, more than {bound_ms} ms",
                checked.lost
            ));
        }
        for (path, expected) in self.kept.iter().flat_map(|(_, files)| files) {
            if let Err(why) = check_file(path, expected) {
                checked.findings.push(format!("of an earlier round: {why}"));
            }
        }
        if let Err(failure) = run(self.cluster.vazao(&["scrub", "--rate", "0"])) {
            checked.findings.push(format!("scrub: {failure}"));
        }
        Ok(())
    }

    /// Remembers what has to stay, and removes what is older. The removal is not synced: it may come back, and go
    /// again.
    fn keep(&mut self, name: String, files: BTreeMap<PathBuf, Expected>) -> Outcome {
        self.kept.push_back((name, files));
        while self.kept.len() > REMEMBERED {
            self.kept.pop_front();
        }
        for entry in fs::read_dir(&self.mountpoint).map_err(Failure::at("the volume"))? {
            let entry = entry.map_err(Failure::at("the volume"))?;
            if !self.kept.iter().any(|(name, _)| *name == entry.file_name().to_string_lossy()) {
                fs::remove_dir_all(entry.path()).map_err(Failure::at(entry.path().display()))?;
            }
        }
        Ok(())
    }
}

/// From a disk that has lost everything to one that had just written it all.
fn odds(random: &mut StdRng) -> Odds {
    let (dropped, torn) =
        [(1000, 0), (900, 50), (500, 100), (200, 500), (50, 50), (0, 1000)][random.random_range(0..6)];
    Odds { dropped, torn }
}
