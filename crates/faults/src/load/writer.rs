//! The load: a process that changes names and files in one directory of the volume, and says in its journal what it
//! asks for and when it is answered.
//!
//! A process of its own, so that it can be killed with its mount, or with its session of the library.

use super::access::{Access, Commands, Library, Mounted, Name, There};
use super::bytes::bytes;
use super::journal::{Line, say};
use super::tree::{Kind, Op, Place, ROOT, Tree};
use crate::clock::{now_ns, sleep_ms};
use crate::failure::{Failure, Outcome};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, StdoutLock};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Files stay below this, so that a round is checked in a second.
const FILE_BYTES_MAX: u64 = 2 << 20;
/// Names stay below this for the same reason.
const NODES_MAX: usize = 120;
const OPEN_MAX: usize = 6;
/// Renaming over what is there, and exchanging: see [`Arguments`].
const REPLACING: &str = "replacing";

/// A writer ends by itself after this many, which bounds its journal.
const OPERATIONS_MAX: u64 = 20_000;

/// Which way a writer takes to the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Way {
    /// A mount.
    Mount,
    /// The client library.
    Library,
    /// `vazao` commands.
    Commands,
}

/// Arguments of a writer's process.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[arg(long)]
    way: Way,
    #[arg(long)]
    seed: u64,
    /// Syncs in a thousand steps
    #[arg(long)]
    syncs: u32,
    /// Opens nothing for appending, which takes a lock
    #[arg(long)]
    no_appends: bool,
    /// Gives no name that is there to another node: if such a change is lost, the name still leads somewhere, and what
    /// is done by it afterwards is done to another node than the journal says
    #[arg(long)]
    no_replacing: bool,
    /// The writer's directory: of the mount, else in the volume
    #[arg(long)]
    directory: PathBuf,
    /// Its inode
    #[arg(long)]
    inode: u64,
    /// The cluster's client.toml
    #[arg(long)]
    cluster: PathBuf,
    /// The program `vazao`
    #[arg(long)]
    vazao: PathBuf,
}

struct Writer {
    access: Box<dyn Access>,
    journal: StdoutLock<'static>,
    random: StdRng,
    syncs: u32,
    tree: Tree,
    /// What nodes are in the volume.
    inodes: BTreeMap<u64, u64>,
    /// Lengths of files, as the writer has them.
    lengths: BTreeMap<u64, u64>,
    /// Open files; true: for appending.
    open: BTreeMap<u64, bool>,
    /// What this way does not have.
    missing: BTreeSet<&'static str>,
    next: u64,
    /// Something has failed: names are left alone from then on, since it is unknown what they lead to.
    has_failed: bool,
}

/// Writes until its standard input ends, or too much has failed; then syncs and closes what is open.
pub fn run(arguments: &Arguments) -> Outcome {
    let directory = &arguments.directory;
    let access: Box<dyn Access> = match arguments.way {
        Way::Mount => Box::new(Mounted::new(directory)),
        Way::Library => Box::new(Library::connect(&arguments.cluster).map_err(Failure::at("the library"))?),
        Way::Commands => {
            let commands = Commands::new(&arguments.vazao, &directory.to_string_lossy());
            Box::new(commands.map_err(Failure::at("a temporary directory"))?)
        }
    };
    let stop = Arc::new(AtomicBool::new(false));
    let stopping = Arc::clone(&stop);
    std::thread::spawn(move || {
        // A writer gets no commands: the end of its input says that its parent is gone.
        let _ = std::io::stdin().read(&mut [0]);
        stopping.store(true, Ordering::SeqCst);
    });
    let mut missing = BTreeSet::new();
    missing.extend(arguments.no_appends.then_some("append"));
    missing.extend(arguments.no_replacing.then_some(REPLACING));
    let mut writer = Writer {
        access,
        journal: std::io::stdout().lock(),
        random: StdRng::seed_from_u64(arguments.seed),
        syncs: arguments.syncs,
        tree: Tree::default(),
        inodes: BTreeMap::from([(ROOT, arguments.inode)]),
        lengths: BTreeMap::new(),
        open: BTreeMap::new(),
        missing,
        next: ROOT + 1,
        has_failed: false,
    };
    while !stop.load(Ordering::SeqCst) && writer.next < OPERATIONS_MAX {
        writer.step()?;
    }
    writer.end()
}

impl Writer {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn one_of<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        if of.is_empty() { None } else { Some(of[self.random.random_range(0..of.len())].clone()) }
    }

    fn directory(&mut self) -> u64 {
        let all = self.tree.of_kind(Kind::Directory);
        self.one_of(&all).unwrap_or(ROOT)
    }

    fn new_place(&mut self) -> Place {
        let number = self.number();
        Place { directory: self.directory(), name: format!("n{number}") }
    }

    /// A name that leads somewhere, of a kind.
    fn old_place(&mut self, kinds: &[Kind]) -> Option<Place> {
        let is_one = |node: &u64| self.tree.nodes.get(node).is_some_and(|it| kinds.contains(&it.kind));
        let places = self.tree.places();
        let fitting: Vec<Place> =
            places.into_iter().filter(|(_, node)| is_one(node)).map(|(place, _)| place).collect();
        self.one_of(&fitting)
    }

    fn name(&self, place: &Place) -> Option<Name> {
        // Inodes are asked for by the library only, which knows all of them.
        let directory = self.inodes.get(&place.directory).copied().unwrap_or_default();
        Some(Name { path: self.tree.path_of(place)?, directory, place: place.clone() })
    }

    fn there(&self, node: u64) -> Option<There> {
        let inode = self.inodes.get(&node).copied().unwrap_or_default();
        Some(There { path: self.tree.path(node)?, inode })
    }

    /// A node that has a name, of a kind.
    fn node(&mut self, kinds: &[Kind]) -> Option<u64> {
        let place = self.old_place(kinds)?;
        self.tree.at(&place)
    }

    fn step(&mut self) -> Outcome {
        if self.random.random_range(0..1000) < self.syncs {
            return self.sync();
        }
        let drawn = self.random.random_range(0..100);
        if self.has_failed || drawn < 45 {
            return match self.random.random_range(0..45) {
                0..32 => self.write(),
                32..37 => self.truncate(),
                37..42 => self.close_one(),
                _ => self.reopen(),
            };
        }
        let op = match drawn {
            45..62 => self.make_file(),
            62..67 => {
                let (at, node) = (self.new_place(), self.number());
                Some(Op::MakeDirectory { at, node, mode: 0o755 })
            }
            67..70 => {
                let (at, node) = (self.new_place(), self.number());
                Some(Op::MakeLink { target: format!("to/{node}"), at, node })
            }
            70..73 => self.node(&[Kind::File]).map(|node| Op::Link { node, at: self.new_place() }),
            73..83 => self.rename(),
            83..85 => self.exchange(),
            85..90 => self.old_place(&[Kind::File, Kind::Link]).map(|at| Op::Unlink { at }),
            90..92 => self.old_place(&[Kind::Directory]).map(|at| Op::RemoveDirectory { at }),
            92..95 => {
                let mode = [0o700, 0o711, 0o750, 0o755][self.random.random_range(0..4)];
                self.node(&[Kind::File, Kind::Directory]).map(|node| Op::SetMode { node, mode })
            }
            _ => {
                let value = self.random.random();
                self.node(&[Kind::File]).map(|node| Op::SetAttribute { node, value })
            }
        };
        op.map_or(Ok(()), |op| self.perform(op))
    }

    fn make_file(&mut self) -> Option<Op> {
        if self.tree.nodes.len() > NODES_MAX {
            return self.old_place(&[Kind::File, Kind::Link]).map(|at| Op::Unlink { at });
        }
        let (at, node) = (self.new_place(), self.number());
        if !self.missing.contains("create") {
            return Some(Op::Create { at, node, mode: 0o644 });
        }
        let length = self.length();
        Some(Op::Copy { at, node, length, stamp: node })
    }

    fn rename(&mut self) -> Option<Op> {
        let from = self.old_place(&[Kind::File, Kind::Directory, Kind::Link])?;
        let replaces = self.random.random_bool(0.4) && !self.missing.contains(REPLACING);
        let over = if replaces { self.old_place(&[Kind::File]) } else { None };
        let to = over.unwrap_or_else(|| self.new_place());
        // Two names of one file are left as they are, says rename(2): nothing to be seen.
        (self.tree.at(&from) != self.tree.at(&to)).then_some(Op::Rename { from, to })
    }

    fn exchange(&mut self) -> Option<Op> {
        if self.missing.contains(REPLACING) {
            return None;
        }
        let all = [Kind::File, Kind::Directory, Kind::Link];
        let (one, other) = (self.old_place(&all)?, self.old_place(&all)?);
        (self.tree.at(&one) != self.tree.at(&other)).then_some(Op::Exchange { one, other })
    }

    /// From a few bytes, over what lies in the inode record, to several stripe units on several servers.
    fn length(&mut self) -> u64 {
        match self.random.random_range(0..20) {
            0..9 => self.random.random_range(1..2_000),
            9..14 => self.random.random_range(1..20_000),
            14..19 => self.random.random_range(1..300_000),
            _ => self.random.random_range(1..1_500_000),
        }
    }

    fn open_file(&mut self) -> Option<u64> {
        let all: Vec<u64> = self.open.keys().copied().collect();
        self.one_of(&all)
    }

    fn write(&mut self) -> Outcome {
        let Some(file) = self.open_file() else { return self.reopen() };
        let now = self.lengths.get(&file).copied().unwrap_or(0);
        let (length, stamp) = (self.length(), self.number());
        if self.open[&file] {
            let length = length.min(FILE_BYTES_MAX.saturating_sub(now));
            return if length > 0 {
                self.perform(Op::Append { file, length, stamp })
            } else {
                self.close(file)
            };
        }
        let offset = match self.random.random_range(0..3) {
            0 => now,
            1 => self.random.random_range(0..=now),
            _ => self.random.random_range(0..now + 70_000),
        };
        let length = length.min(FILE_BYTES_MAX.saturating_sub(offset));
        if length > 0 { self.perform(Op::Write { file, offset, length, stamp }) } else { self.close(file) }
    }

    fn truncate(&mut self) -> Outcome {
        let is_for_writing = |(file, appends): (&u64, &bool)| (!*appends).then_some(*file);
        let files: Vec<u64> = self.open.iter().filter_map(is_for_writing).collect();
        let Some(file) = self.one_of(&files) else { return Ok(()) };
        let now = self.lengths.get(&file).copied().unwrap_or(0);
        let length = match self.random.random_range(0..4) {
            0 => 0,
            1 => (now + self.random.random_range(0..100_000)).min(FILE_BYTES_MAX),
            _ => self.random.random_range(0..=now),
        };
        self.perform(Op::Truncate { file, length })
    }

    fn sync(&mut self) -> Outcome {
        let directory = self.directory();
        match self.open_file() {
            Some(file) if self.has_failed || self.random.random_bool(0.8) => {
                self.perform(Op::SyncFile { file })
            }
            _ if self.has_failed => Ok(()),
            _ => self.perform(Op::SyncDirectory { directory }),
        }
    }

    fn close_one(&mut self) -> Outcome {
        self.open_file().map_or(Ok(()), |file| self.close(file))
    }

    fn close(&mut self, file: u64) -> Outcome {
        self.open.remove(&file);
        say(&mut self.journal, &Line::Began { at_ns: now_ns(), op: Op::Close { file } })?;
        let closed = self.access.close(file);
        let at_ns = now_ns();
        match closed {
            Ok(()) => say(&mut self.journal, &Line::Answered { at_ns, inode: None }),
            Err(error) => {
                self.has_failed = true;
                say(&mut self.journal, &Line::Failed { at_ns, why: error.to_string() })
            }
        }
    }

    fn reopen(&mut self) -> Outcome {
        if self.open.len() >= OPEN_MAX {
            return self.close_one();
        }
        let Some(file) = self.node(&[Kind::File]).filter(|_| !self.has_failed) else { return self.rest() };
        let appends = self.random.random_bool(0.4) && !self.missing.contains("append");
        let Some(there) = self.there(file).filter(|_| !self.open.contains_key(&file)) else { return Ok(()) };
        if self.missing.contains("open") {
            return Ok(());
        }
        match self.access.open(&there, file, appends) {
            Ok(()) => {
                self.open.insert(file, appends);
            }
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                self.missing.insert("open");
            }
            Err(_) => self.has_failed = true,
        }
        Ok(())
    }

    /// With nothing open and nothing to be opened there is nothing left to do but to wait for the end.
    fn rest(&mut self) -> Outcome {
        if self.has_failed && self.open.is_empty() {
            sleep_ms(5);
        }
        Ok(())
    }

    /// Does something, and says so before and after.
    fn perform(&mut self, op: Op) -> Outcome {
        let kind = kind_of(&op);
        let mut after = self.tree.clone();
        if self.missing.contains(kind) || after.apply(&op).is_err() {
            return Ok(());
        }
        say(&mut self.journal, &Line::Began { at_ns: now_ns(), op: op.clone() })?;
        let answer = self.ask(&op);
        let at_ns = now_ns();
        match answer {
            Ok(inode) => {
                if let (Some(node), Some(inode)) = (op.made(), inode) {
                    self.inodes.insert(node, inode);
                }
                self.tree = after;
                self.note(&op);
                say(&mut self.journal, &Line::Answered { at_ns, inode })
            }
            Err(error) => {
                if error.kind() == ErrorKind::Unsupported {
                    self.missing.insert(kind);
                    return say(&mut self.journal, &Line::Refused);
                }
                self.has_failed = true;
                say(&mut self.journal, &Line::Failed { at_ns, why: error.to_string() })?;
                op.file().map_or(Ok(()), |file| self.close(file))
            }
        }
    }

    fn note(&mut self, op: &Op) {
        match *op {
            Op::Create { node, .. } => {
                self.open.insert(node, false);
                self.lengths.insert(node, 0);
            }
            Op::Write { file, offset, length, .. } => {
                let now = self.lengths.entry(file).or_default();
                *now = (*now).max(offset + length);
            }
            Op::Append { file, length, .. } => *self.lengths.entry(file).or_default() += length,
            Op::Truncate { file, length } => {
                self.lengths.insert(file, length);
            }
            _ => {}
        }
        // A file without a name can be written to, and not be looked at afterwards.
        let gone: Vec<u64> =
            self.open.keys().copied().filter(|file| !self.tree.nodes.contains_key(file)).collect();
        for file in gone {
            self.open.remove(&file);
            let _ = self.access.close(file);
        }
    }

    fn ask(&mut self, op: &Op) -> std::io::Result<Option<u64>> {
        let unknown = || std::io::Error::other("the writer does not know where that is");
        let name = |writer: &Writer, place: &Place| writer.name(place).ok_or_else(unknown);
        let there = |writer: &Writer, node: u64| writer.there(node).ok_or_else(unknown);
        // 0: the way does not say which inode it is.
        let known = |inode: u64| (inode != 0).then_some(inode);
        match op {
            Op::Create { at, node, mode } => {
                let at = name(self, at)?;
                return self.access.create(&at, *node, *mode).map(known);
            }
            Op::Copy { at, length, stamp, .. } => {
                let at = name(self, at)?;
                return self.access.copy(&at, &bytes(*stamp, 0, *length)).map(known);
            }
            Op::MakeDirectory { at, mode, .. } => {
                let at = name(self, at)?;
                return self.access.make_directory(&at, *mode).map(known);
            }
            Op::MakeLink { at, target, .. } => {
                let at = name(self, at)?;
                return self.access.make_link(&at, target).map(known);
            }
            Op::Link { node, at } => self.access.link(&there(self, *node)?, &name(self, at)?),
            Op::Unlink { at } => self.access.unlink(&name(self, at)?),
            Op::RemoveDirectory { at } => self.access.remove_directory(&name(self, at)?),
            Op::Rename { from, to } => self.access.rename(&name(self, from)?, &name(self, to)?),
            Op::Exchange { one, other } => self.access.exchange(&name(self, one)?, &name(self, other)?),
            Op::SetMode { node, mode } => self.access.set_mode(&there(self, *node)?, *mode),
            Op::SetAttribute { node, value } => self.access.set_attribute(&there(self, *node)?, *value),
            Op::Write { file, offset, length, stamp } => {
                self.access.write(*file, *offset, &bytes(*stamp, *offset, *length))
            }
            Op::Append { file, length, stamp } => {
                let end = self.lengths.get(file).copied().unwrap_or(0);
                self.access.append(*file, &bytes(*stamp, end, *length))
            }
            Op::Truncate { file, length } => self.access.truncate(*file, *length),
            Op::SyncFile { file } => self.access.sync_file(*file),
            Op::Close { file } => self.access.close(*file),
            Op::SyncDirectory { directory } => self.access.sync_directory(&there(self, *directory)?),
        }
        .map(|()| None)
    }

    /// Syncs what is open: after this everything has to be there that was answered, as far as the sync is.
    fn end(&mut self) -> Outcome {
        let files: Vec<u64> = self.open.keys().copied().collect();
        for file in files {
            self.perform(Op::SyncFile { file })?;
            self.close(file)?;
        }
        Ok(())
    }
}

fn kind_of(op: &Op) -> &'static str {
    match op {
        Op::Create { .. } => "create",
        Op::Copy { .. } => "copy",
        Op::MakeDirectory { .. } => "make directory",
        Op::MakeLink { .. } => "make link",
        Op::Link { .. } => "link",
        Op::Unlink { .. } => "unlink",
        Op::RemoveDirectory { .. } => "remove directory",
        Op::Rename { .. } => "rename",
        Op::Exchange { .. } => "exchange",
        Op::SetMode { .. } => "set mode",
        Op::SetAttribute { .. } => "set attribute",
        Op::Write { .. } => "write",
        Op::Append { .. } => "append",
        Op::Truncate { .. } => "truncate",
        Op::Close { .. } => "close",
        Op::SyncFile { .. } => "sync file",
        Op::SyncDirectory { .. } => "sync directory",
    }
}
