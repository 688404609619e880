//! Random things that clients do to a cluster while it suffers, compared with the model after each of them.
//!
//! What must hold: an answered operation has happened, once; one that failed for a fault has happened or not; what was
//! synced survives every loss of power; bytes are never wrong; errors only where a fault explains them.

mod append;
mod convert;
mod killed;
mod profile;

pub use profile::Profile;

use crate::cluster::{Cluster, ClusterOptions};
use crate::contents::{Contents, VERSIONS_MAX};
use crate::copies::{Copies, Holders};
use crate::model::{Change, LINK_TARGET, Place, Tree, UNKNOWN, observe, perform};
use crate::network::{End, Weather};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use vazao_client::{Client, Error, File, OpenMode, RenameMode, XattrMode};
use vazao_meter::Clock;
use vazao_model::ids::ROOT;
use vazao_model::{Code, FileKind, InodeId, LayoutHint};

/// Files stay below this, so that many seeds fit into a minute.
const FILE_BYTES_MAX: u64 = 600 * 1024;
/// Inodes stay below this, so that the tree can be looked at often.
const NODES_MAX: usize = 24;
const HANDLES_MAX: usize = 3;
/// History kept since the last sync of the metadata.
const HISTORY_MAX: usize = 40;

/// A file that one client has open.
struct Handle {
    client: usize,
    inode: u64,
    file: File,
}

/// One run.
pub struct Story {
    profile: Profile,
    cluster: Cluster,
    clients: Vec<Client>,
    random: StdRng,
    tree: Tree,
    /// Trees since the last time the metadata was certainly durable, oldest first, the present one not included.
    history: Vec<Tree>,
    contents: BTreeMap<u64, Contents>,
    handles: Vec<Handle>,
    /// Files that were converted under open handles: one of those may be told to write again (semantics.md, 12).
    converted: BTreeSet<u64>,
    /// The metadata service lost power since the tree was last compared.
    has_meta_lost_power: bool,
    /// A data server lost power since the contents were last compared.
    has_data_lost_power: bool,
    /// Clients that were killed.
    killed: u64,
    log: Vec<String>,
}

impl std::fmt::Debug for Story {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.log.join("\n"))
    }
}

/// True for an outcome that the state of the file system decided.
fn is_refusal(error: &Error) -> bool {
    error.code.number() < 100 && error.code != Code::Stale && error.code != Code::NoSpace
}

fn random_bytes(random: &mut StdRng, length: usize) -> Vec<u8> {
    // Never zero, which the model takes for a hole.
    (0..length).map(|_| random.random_range(1..=255u8)).collect()
}

impl Story {
    /// A fresh cluster for `seed`.
    pub fn new(seed: u64, profile: Profile) -> Story {
        let options = ClusterOptions { seed, data_servers: profile.data_servers, down_ms_max: 4_000 };
        let cluster = Cluster::new(options);
        profile.defect.into_iter().for_each(|defect| cluster.plant(defect));
        let clients: Vec<Client> = (0..profile.clients as u64).map(|number| cluster.client(number)).collect();
        let hint = LayoutHint {
            stripe_unit_bytes: 64 << 10,
            pattern: Some(convert::pattern_of(seed)),
            ..LayoutHint::default()
        };
        clients[0].set_layout_hint(ROOT, hint).expect("fair weather");
        clients[0].sync().expect("fair weather");
        let tree = observe(&clients[0]).expect("fair weather");
        if profile.is_full {
            (1..cluster.machine_count()).for_each(|number| cluster.disk(number).set_capacity(1 << 20));
        }
        Story {
            profile,
            cluster,
            clients,
            random: StdRng::seed_from_u64(seed),
            tree,
            history: Vec::new(),
            contents: BTreeMap::new(),
            handles: Vec::new(),
            converted: BTreeSet::new(),
            has_meta_lost_power: false,
            has_data_lost_power: false,
            killed: 0,
            log: Vec::new(),
        }
    }

    /// Runs a whole story; panics with what went before when something is not as it must be.
    pub fn run(seed: u64, profile: Profile) {
        let mut story = Story::new(seed, profile);
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| story.tell()));
        if let Err(panic) = told {
            eprintln!("{profile:?}\n{story:?}\nseed {seed} failed; run it alone with VAZAO_SIM_SEED={seed}");
            // What is left would only fail again while it is torn down.
            std::mem::forget(story);
            std::panic::resume_unwind(panic);
        }
    }

    /// Runs all steps and looks at the end whether everything is as it must be; panics when it is not.
    pub fn tell(&mut self) {
        self.cluster.set_weather(self.profile.weather);
        for _ in 0..self.profile.steps {
            self.step();
            self.after_step();
        }
        self.end();
    }

    fn note(&mut self, text: impl Into<String>) {
        let at_ms = self.cluster.clock().now_ns() / 1_000_000;
        self.log.push(format!("{at_ms:>8} ms {}", text.into()));
    }

    fn client(&mut self) -> usize {
        self.random.random_range(0..self.clients.len())
    }

    fn step(&mut self) {
        self.maybe_end_a_daemon();
        match self.random.random_range(0..100) {
            0..40 => self.change_namespace(),
            40..52 => self.open(),
            52..72 => self.write(),
            72..84 => self.read(),
            84..86 => self.set_length(),
            86 => self.punch(),
            87..91 => self.flush_or_sync(),
            91..95 => self.close_one(),
            95 => self.sync_all(),
            96 => self.convert(),
            97 => self.kill_client(),
            _ => self.let_time_pass(),
        }
    }

    fn maybe_end_a_daemon(&mut self) {
        let drawn = self.random.random_range(0..1000);
        let count = self.cluster.machine_count();
        if drawn < self.profile.kills {
            let number = self.random.random_range(0..count);
            self.note(format!("kill {number}"));
            self.cluster.end(number, End::Kill);
        } else if drawn < self.profile.kills + self.profile.power_losses {
            let number = self.random.random_range(0..=count);
            self.note(format!("power loss of {number} ({count}: all)"));
            let hit = if number == count { 0..count } else { number..number + 1 };
            hit.for_each(|number| self.cluster.end(number, End::PowerLoss));
        }
    }

    fn let_time_pass(&mut self) {
        let ms = self.random.random_range(1..3_000);
        self.cluster.clock().sleep(Duration::from_millis(ms));
        for client in &self.clients {
            // A renewal that fails is followed by the next one.
            let _ = client.tick();
        }
    }

    // ---- the namespace ----

    fn any_place(&mut self) -> Place {
        let directories = self.tree.of_kind(FileKind::Directory);
        let directory = directories[self.random.random_range(0..directories.len())];
        (directory, vec![b'a' + self.random.random_range(0..5u8)])
    }

    fn any_inode(&mut self) -> u64 {
        let inodes: Vec<u64> = self.tree.nodes.keys().copied().collect();
        inodes[self.random.random_range(0..inodes.len())]
    }

    fn any_change(&mut self) -> Change {
        let place = self.any_place();
        let is_crowded = self.tree.nodes.len() >= NODES_MAX;
        match self.random.random_range(0..20) {
            0..6 if !is_crowded => Change::Create(place, FileKind::File, 0o640),
            6..8 if !is_crowded => Change::Create(place, FileKind::Directory, 0o750),
            8 if !is_crowded => Change::Create(place, FileKind::Symlink, 0o777),
            9 => Change::Link(self.any_inode(), place),
            10..13 => Change::Unlink(place),
            13 => Change::RemoveDirectory(place),
            14..17 => {
                let modes = [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange];
                let mode = modes[self.random.random_range(0..3)];
                Change::Rename(place, self.any_place(), mode)
            }
            17 => Change::SetMode(self.any_inode(), self.random.random_range(0..0o1000)),
            18 => {
                let modes = [XattrMode::Either, XattrMode::Create, XattrMode::Replace];
                let (mode, inode) = (modes[self.random.random_range(0..3)], self.any_inode());
                let value = vec![self.random.random::<u8>(); 5];
                Change::SetXattr(inode, b"user.a".to_vec(), value, mode)
            }
            19 => Change::RemoveXattr(self.any_inode(), b"user.a".to_vec()),
            _ => Change::Unlink(place),
        }
    }

    fn change_namespace(&mut self) {
        let change = self.any_change();
        let client = self.client();
        self.note(format!("{client}: {change:?}"));
        let answer = perform(&self.clients[client], &change);
        self.note(format!("  {answer:?}"));
        let created = answer.as_ref().map_or(UNKNOWN, |inode| *inode);
        let mut after = self.tree.clone();
        let expected = after.apply(&change, created);
        self.collect_ends();
        if self.has_meta_lost_power {
            return self.find_tree(Some(&change), created);
        }
        match (&answer, expected) {
            (Ok(_), Ok(())) => self.advance(after),
            (Err(error), Err(_)) if is_refusal(error) => {}
            (Err(error), _) if !is_refusal(error) => {
                assert!(self.may_fail(), "nothing explains {error}");
                self.find_tree(Some(&change), created);
            }
            (answer, expected) => panic!("{change:?}: {answer:?} where the model says {expected:?}"),
        }
    }

    /// The tree becomes `after`.
    fn advance(&mut self, after: Tree) {
        let before = std::mem::replace(&mut self.tree, after);
        self.history.push(before);
        self.adopt_files();
        if self.history.len() > HISTORY_MAX {
            self.sync_all();
        }
    }

    /// Gives new files contents; those that are gone lose theirs, unless they are open.
    fn adopt_files(&mut self) {
        for inode in self.tree.of_kind(FileKind::File) {
            self.contents.entry(inode).or_default();
        }
        // One that lost its name may have it back after the metadata service lost power.
        let known = |inode: &u64| {
            let mut trees = self.history.iter().chain(std::iter::once(&self.tree));
            trees.any(|tree| tree.nodes.contains_key(inode)) || self.handles.iter().any(|h| h.inode == *inode)
        };
        let gone: Vec<u64> = self.contents.keys().copied().filter(|inode| !known(inode)).collect();
        gone.iter().for_each(|inode| {
            self.contents.remove(inode);
        });
    }

    fn may_fail(&self) -> bool {
        let Profile { weather, kills, power_losses, .. } = self.profile;
        weather != Weather::default() || kills > 0 || power_losses > 0
    }

    /// Looks which of the possible trees is there. Fails when it is none of them.
    fn find_tree(&mut self, change: Option<&Change>, created: u64) {
        self.cluster.heal();
        self.collect_ends();
        let seen = observe(&self.clients[0]).expect("the cluster was healed");
        let mut possible = vec![self.tree.clone()];
        if self.has_meta_lost_power {
            possible.extend(self.history.iter().rev().cloned());
        }
        let changed: Vec<Tree> = possible
            .iter()
            .filter_map(|tree| {
                let mut tree = tree.clone();
                tree.apply(change?, created).ok().map(|()| tree)
            })
            .collect();
        possible.splice(0..0, changed);
        let found = possible.iter().find_map(|tree| self.matches(tree, &seen));
        let Some(found) = found else {
            let differences: String = possible
                .iter()
                .take(8)
                .map(|tree| format!("or else:\n{}", tree.differences(&seen)))
                .collect();
            panic!("the tree is none of those it may be; expected and seen differ in\n{differences}");
        };
        self.tree = found;
        self.recover_contents();
        self.cluster.set_weather(self.profile.weather);
    }

    /// `tree` as it is seen, if only sizes in doubt and the number of an unknown inode differ.
    fn matches(&self, tree: &Tree, seen: &Tree) -> Option<Tree> {
        let unknown = tree.unknown_place().and_then(|place| seen.at(&place));
        let mut tree = unknown.map_or_else(|| tree.clone(), |inode| tree.clone().with_known(inode));
        for (inode, node) in &mut tree.nodes {
            let Some(contents) = self.contents.get(inode) else { continue };
            let size = seen.nodes.get(inode)?.size;
            let may_be = self.has_meta_lost_power || !contents.is_certain() || self.is_open(*inode);
            if may_be && contents.sizes_ever().contains(&size) {
                node.size = size;
            }
        }
        (tree == *seen).then_some(tree)
    }

    fn is_open(&self, inode: u64) -> bool {
        self.handles.iter().any(|handle| handle.inode == inode)
    }

    /// Notes which daemons have ended, and what that may have taken away.
    fn collect_ends(&mut self) {
        for (number, end) in self.cluster.take_ends() {
            self.note(format!("  machine {number}: {end:?}"));
            if end == End::PowerLoss {
                self.has_meta_lost_power |= number == 0;
                self.has_data_lost_power |= number != 0;
                self.contents.values_mut().for_each(|contents| contents.lose_power(number));
            }
        }
    }

    fn after_step(&mut self) {
        self.collect_ends();
        if self.has_meta_lost_power || self.has_data_lost_power {
            self.note("look what is left");
            self.find_tree(None, UNKNOWN);
        }
    }

    fn sync_all(&mut self) {
        let client = self.client();
        self.note(format!("{client}: sync"));
        let answer = self.clients[client].sync();
        self.collect_ends();
        match answer {
            Ok(()) if !self.has_meta_lost_power => self.history.clear(),
            Ok(()) => {}
            Err(error) => assert!(self.may_fail(), "nothing explains {error}"),
        }
    }

    // ---- contents ----

    fn open(&mut self) {
        let files: Vec<u64> = self.tree.of_kind(FileKind::File);
        let free: Vec<u64> = files.into_iter().filter(|inode| !self.is_open(*inode)).collect();
        if free.is_empty() || self.handles.len() >= HANDLES_MAX {
            return self.close_one();
        }
        let inode = free[self.random.random_range(0..free.len())];
        let client = self.client();
        self.note(format!("{client}: open {inode}"));
        let mode = OpenMode { read: true, write: true, truncate: false };
        match self.clients[client].open_file(InodeId(inode), mode) {
            Ok(file) => self.handles.push(Handle { client, inode, file }),
            Err(error) => self.explain(inode, &error),
        }
    }

    fn handle(&mut self) -> Option<usize> {
        (!self.handles.is_empty()).then(|| self.random.random_range(0..self.handles.len()))
    }

    fn any_range(&mut self, size: u64) -> (u64, usize) {
        let random = &mut self.random;
        let offset = match random.random_range(0..4) {
            0 => size,
            1 => random.random_range(0..=20_000),
            2 => random.random_range(0..=size),
            _ => random.random_range(0..FILE_BYTES_MAX),
        };
        let length = match random.random_range(0..3) {
            0 => random.random_range(1..200),
            1 => random.random_range(1..20_000),
            _ => random.random_range(1..200_000),
        };
        (offset, length.min(FILE_BYTES_MAX.saturating_sub(offset)) as usize)
    }

    fn write(&mut self) {
        let Some(index) = self.handle() else { return self.open() };
        let inode = self.handles[index].inode;
        if self.contents[&inode].version_count() >= VERSIONS_MAX {
            return self.sync_file(index);
        }
        if self.random.random_bool(0.3) {
            return self.append(index);
        }
        let (offset, length) = self.any_range(self.contents[&inode].newest().len() as u64);
        let bytes = random_bytes(&mut self.random, length);
        self.note(format!("write {inode} at {offset}, {length} bytes"));
        let client = self.handles[index].client;
        let answer = self.handles[index].file.write_at(&bytes, offset);
        let end = offset as usize + length;
        if length > 0 {
            self.contents.entry(inode).or_default().change(client, end as u64, |contents| {
                contents.resize(contents.len().max(end), 0);
                contents[offset as usize..end].copy_from_slice(&bytes);
            });
        }
        self.after_file_operation(index, answer);
    }

    fn set_length(&mut self) {
        let Some(index) = self.handle() else { return self.open() };
        let inode = self.handles[index].inode;
        let length = match self.random.random_range(0..3) {
            0 => 0,
            1 => self.random.random_range(0..=self.contents[&inode].newest().len()),
            _ => self.random.random_range(0..FILE_BYTES_MAX as usize),
        };
        self.note(format!("set length of {inode} to {length}"));
        let client = self.handles[index].client;
        let answer = self.handles[index].file.set_length(length as u64);
        self.contents
            .entry(inode)
            .or_default()
            .change(client, length as u64, |contents| contents.resize(length, 0));
        self.after_file_operation(index, answer);
    }

    fn punch(&mut self) {
        let Some(index) = self.handle() else { return self.open() };
        let inode = self.handles[index].inode;
        let size = self.contents[&inode].newest().len();
        let (offset, length) = self.any_range(size as u64);
        self.note(format!("punch {inode} at {offset}, {length} bytes"));
        let client = self.handles[index].client;
        let answer = self.handles[index].file.zero(offset..offset + length as u64);
        let range = (offset as usize).min(size)..(offset as usize + length).min(size);
        self.contents
            .entry(inode)
            .or_default()
            .change(client, size as u64, |contents| contents[range].fill(0));
        self.after_file_operation(index, answer);
    }

    /// An operation that failed leaves its file in doubt, and its handle is closed.
    fn after_file_operation(&mut self, index: usize, answer: vazao_client::Result<()>) {
        let Err(error) = answer else { return };
        let handle = self.handles.remove(index);
        self.doubt(handle.inode);
        self.explain(handle.inode, &error);
        if let Err(error) = handle.file.close() {
            self.explain(handle.inode, &error);
        }
        self.forget_conversion(handle.inode);
        self.settle_one(handle.inode);
    }

    fn doubt(&mut self, inode: u64) {
        if let Some(contents) = self.contents.get_mut(&inode) {
            contents.doubt();
        }
    }

    /// Fails when no fault explains an error.
    fn explain(&mut self, inode: u64, error: &Error) {
        self.note(format!("  {inode}: {error}"));
        self.collect_ends();
        let is_full = error.code == Code::NoSpace && self.profile.is_full;
        let is_gone = self.has_meta_lost_power || self.has_data_lost_power;
        let is_orphan = !self.tree.nodes.contains_key(&inode);
        let is_converted = error.code == Code::Stale && self.converted.contains(&inode);
        let may_be_lost = is_gone || self.contents.get(&inode).is_some_and(|c| !c.is_certain()) || is_orphan;
        let is_explained = match error.code {
            Code::NoSpace => is_full,
            Code::Corrupt | Code::Stale | Code::NotFound => is_converted || (may_be_lost && self.may_fail()),
            _ => self.may_fail(),
        };
        assert!(is_explained, "nothing explains: {error}");
    }

    fn read(&mut self) {
        let Some(index) = self.handle() else { return self.open() };
        let inode = self.handles[index].inode;
        let (offset, length) = self.any_range(self.contents[&inode].newest().len() as u64);
        self.note(format!("read {inode} at {offset}, {length} bytes"));
        let mut bytes = vec![0xEE; length];
        let answer = self.handles[index].file.read_at(&mut bytes, offset);
        self.collect_ends();
        match answer {
            Ok(read) => self.check_read(inode, offset as usize, &bytes[..read], length),
            Err(error) => self.after_file_operation(index, Err(error)),
        }
    }

    fn check_read(&self, inode: u64, offset: usize, bytes: &[u8], asked: usize) {
        let contents = &self.contents[&inode];
        if !contents.is_certain() {
            return;
        }
        let expected = contents.newest().get(offset..).unwrap_or(&[]);
        let expected = &expected[..asked.min(expected.len())];
        assert_eq!(bytes.len(), expected.len(), "length of a read of {inode} at {offset}");
        let wrong = bytes.iter().zip(expected).position(|(a, b)| a != b);
        assert_eq!(wrong, None, "first wrong byte of {inode} after {offset}");
    }

    fn flush_or_sync(&mut self) {
        let Some(index) = self.handle() else { return };
        if self.random.random_bool(0.6) {
            return self.sync_file(index);
        }
        let inode = self.handles[index].inode;
        self.note(format!("flush {inode}"));
        let answer = self.handles[index].file.flush();
        self.finish_flush(index, answer, false);
    }

    fn sync_file(&mut self, index: usize) {
        let inode = self.handles[index].inode;
        self.note(format!("fsync {inode}"));
        let answer = self.handles[index].file.sync();
        self.finish_flush(index, answer, true);
    }

    fn finish_flush(&mut self, index: usize, answer: vazao_client::Result<()>, is_sync: bool) {
        let inode = self.handles[index].inode;
        let client = self.handles[index].client;
        let was_certain = self.contents.get(&inode).is_some_and(|c| c.is_certain() && c.is_known_to(client));
        self.collect_ends();
        if answer.is_err() {
            return self.after_file_operation(index, answer);
        }
        self.acknowledge(inode);
        self.report_size(inode);
        if is_sync && !self.has_meta_lost_power {
            self.history.clear();
        }
        if is_sync && let Some(contents) = self.contents.get_mut(&inode) {
            contents.synced(was_certain);
        }
    }

    /// All that was written is on the servers.
    fn acknowledge(&mut self, inode: u64) {
        if let Some(contents) = self.contents.get_mut(&inode) {
            contents.acknowledge();
        }
    }

    /// What was reported is what other clients see.
    fn report_size(&mut self, inode: u64) {
        let Some(contents) = self.contents.get(&inode).filter(|contents| contents.is_certain()) else {
            return;
        };
        let size = contents.newest().len() as u64;
        let mut after = self.tree.clone();
        if let Some(node) = after.nodes.get_mut(&inode) {
            node.size = size;
            self.advance(after);
        }
    }

    fn close_one(&mut self) {
        let Some(index) = self.handle() else { return };
        let handle = self.handles.remove(index);
        self.note(format!("{}: close {}", handle.client, handle.inode));
        let answer = handle.file.close();
        self.collect_ends();
        match answer {
            Ok(()) => {
                self.acknowledge(handle.inode);
                self.report_size(handle.inode);
                self.check_whole(handle.inode);
            }
            Err(error) => {
                self.doubt(handle.inode);
                self.explain(handle.inode, &error);
                self.settle_one(handle.inode);
            }
        }
        self.forget_conversion(handle.inode);
        self.adopt_files();
    }

    /// A handle that is opened after the conversion has the new layout.
    fn forget_conversion(&mut self, inode: u64) {
        if self.handles.iter().all(|handle| handle.inode != inode) {
            self.converted.remove(&inode);
        }
    }

    /// Another client, or the same, reads the file from its beginning.
    fn check_whole(&mut self, inode: u64) {
        let is_certain = self.contents.get(&inode).is_some_and(Contents::is_certain);
        if !is_certain || !self.tree.nodes.contains_key(&inode) || self.has_meta_lost_power {
            return;
        }
        let client = self.client();
        match read_whole(&self.clients[client], inode) {
            Ok(bytes) => {
                self.collect_ends();
                let contents = &self.contents[&inode];
                let is_allowed = !contents.is_certain() || contents.newest() == bytes;
                assert!(is_allowed, "contents of {inode} after close: {}", difference(contents, &bytes));
            }
            Err(error) => self.explain(inode, &error),
        }
    }

    // ---- after faults ----

    /// Brings one file that is in doubt back to certainty.
    fn settle_one(&mut self, inode: u64) {
        if self.tree.nodes.contains_key(&inode) {
            self.find_tree(None, UNKNOWN);
        }
        self.adopt_files();
    }

    /// Compares every file with what it may be, and makes what is there durable.
    fn recover_contents(&mut self) {
        self.close_all();
        self.clients[0].sync().expect("fair weather");
        self.history.clear();
        self.adopt_files();
        // A client whose writes have failed does not read what is there instead; one that comes later does.
        let newcomer = self.cluster.client(self.clients.len() as u64);
        for (inode, contents) in self.contents.clone() {
            if contents.is_certain() {
                continue;
            }
            match read_whole(&newcomer, inode) {
                Ok(bytes) => {
                    let holders = Holders::of(&self.cluster, &newcomer, inode);
                    let is_allowed = contents.allows(&bytes, &holders);
                    assert!(is_allowed, "contents of {inode}: {}", difference(&contents, &bytes));
                    self.rewrite(inode, bytes);
                }
                Err(error) if error.code == Code::Corrupt && self.may_fail() => {
                    self.rewrite(inode, Vec::new())
                }
                Err(error) => panic!("{inode} in fair weather: {error}"),
            }
        }
        self.clients[0].sync().expect("fair weather");
        self.history.clear();
        self.has_meta_lost_power = false;
        self.has_data_lost_power = false;
    }

    fn close_all(&mut self) {
        for handle in std::mem::take(&mut self.handles) {
            match handle.file.close() {
                Ok(()) => {
                    self.acknowledge(handle.inode);
                    self.report_late(handle.inode);
                }
                Err(error) => {
                    self.note(format!("  close {}: {error}", handle.inode));
                    self.doubt(handle.inode);
                }
            }
        }
        self.converted.clear();
        let seen = observe(&self.clients[0]).expect("fair weather");
        for (inode, node) in &mut self.tree.nodes {
            if let (Some(contents), Some(seen)) = (self.contents.get(inode), seen.nodes.get(inode)) {
                assert!(contents.sizes_ever().contains(&seen.size), "{inode} has {} bytes", seen.size);
                node.size = seen.size;
            }
        }
        assert!(
            self.tree == seen,
            "closing files changed more than sizes:\n{}",
            self.tree.differences(&seen)
        );
    }

    fn report_late(&mut self, inode: u64) {
        let size = self.contents.get(&inode).map_or(0, |contents| contents.newest().len() as u64);
        if let Some(node) = self.tree.nodes.get_mut(&inode) {
            node.size = size;
        }
    }

    /// Writes a file anew and makes it durable, so that the story goes on from certainty.
    fn rewrite(&mut self, inode: u64, bytes: Vec<u8>) {
        let mode = OpenMode { read: false, write: true, truncate: true };
        let file = self.clients[0].open_file(InodeId(inode), mode).expect("fair weather");
        let written = file.write_at(&bytes, 0).and_then(|()| file.sync());
        let bytes = match written {
            Ok(()) => bytes,
            Err(error) => {
                assert!(error.code == Code::NoSpace && self.profile.is_full, "in fair weather: {error}");
                Vec::new()
            }
        };
        if bytes.is_empty() {
            file.set_length(0).expect("fair weather");
            file.sync().expect("fair weather");
        }
        file.close().expect("fair weather");
        if let Some(node) = self.tree.nodes.get_mut(&inode) {
            node.size = bytes.len() as u64;
        }
        self.contents.entry(inode).or_default().settle(bytes);
    }

    /// Fair weather: everything is as the model has it, for every client.
    fn end(&mut self) {
        self.note("the end");
        self.find_tree(None, UNKNOWN);
        self.cluster.set_weather(Weather::default());
        for client in 0..self.clients.len() {
            let seen = observe(&self.clients[client]).expect("fair weather");
            assert_eq!(seen, self.tree, "the tree at the end");
            for inode in self.tree.of_kind(FileKind::File) {
                let bytes = read_whole(&self.clients[client], inode).expect("fair weather");
                let contents = &self.contents[&inode];
                assert!(contents.newest() == bytes, "contents of {inode}: {}", difference(contents, &bytes));
            }
            for inode in self.tree.of_kind(FileKind::Symlink) {
                assert_eq!(
                    self.clients[client].read_link(InodeId(inode)).expect("fair weather"),
                    LINK_TARGET
                );
            }
        }
        assert_eq!(Copies::list(&self.cluster).check(), Ok(()), "at rest");
        let files: Vec<InodeId> = self.tree.of_kind(FileKind::File).into_iter().map(InodeId).collect();
        // It takes a long wait, which a part of the stories is enough for.
        if self.random.random_bool(0.25) {
            assert_eq!(crate::orphan_objects::left_behind(&self.cluster, &self.clients, &files), Ok(()));
        }
        let meta = self.cluster.meta().expect("the cluster was healed");
        assert_eq!(meta.check().expect("readable").problems, Vec::<String>::new());
    }
}

fn read_whole(client: &Client, inode: u64) -> vazao_client::Result<Vec<u8>> {
    let file = client.open_file(InodeId(inode), OpenMode { read: true, ..OpenMode::default() })?;
    let mut bytes = vec![0xEE; FILE_BYTES_MAX as usize + 1];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    file.close()?;
    Ok(bytes)
}

fn difference(contents: &Contents, bytes: &[u8]) -> String {
    let newest = contents.newest();
    let first = bytes.iter().zip(newest).position(|(a, b)| a != b);
    format!(
        "{} bytes, the newest version has {}; first difference from it at {first:?}; versions: {:?}",
        bytes.len(),
        newest.len(),
        contents.sizes_ever()
    )
}
