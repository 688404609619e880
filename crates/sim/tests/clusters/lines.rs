//! Two sites whose line is cut for 10 s, 60 s and 10 min while both write and read: no wrong byte, errors within their
//! deadline, and all goes on by itself.

use crate::seeds::wanted;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::time::Duration;
use vazao_client::{Client, NewInode, OpenMode};
use vazao_meter::Clock;
use vazao_model::ids::ROOT;
use vazao_model::{FileKind, InodeId, LayoutHint, Placement};
use vazao_sim::{Cluster, ClusterOptions, Defect};

const MODE: OpenMode = OpenMode { read: true, write: true, truncate: false };
/// Of one run of this test.
const SEEDS: std::ops::Range<u64> = 0..24;
const STEPS: usize = 40;
const ZONES: [&str; 2] = ["rio", "bra"];
const FILES: usize = 2;
const BYTES_MAX: usize = 300_000;
const CUTS_S: [u64; 3] = [10, 60, 600];
/// What a call may take: the clients' deadline, and the step of the simulated clock in which it passes.
const CALL_MAX: Duration = Duration::from_millis(30_000 + 1_000);

/// A file of one writer, with the numbers of all that it may hold: the last contents that were synced, and those of
/// writes that failed since.
struct Known {
    inode: InodeId,
    contents: Vec<u8>,
    /// What was synced before, which a reader on the other side of a cut may still see.
    former: Vec<u8>,
}

impl Known {
    /// Each byte is one that may be there.
    fn holds(&self, found: &[u8], with_former: bool) -> bool {
        let former: &[u8] = if with_former { &self.former } else { &[] };
        let mut may_be = [false; 256];
        self.contents.iter().chain(former).for_each(|&number| may_be[usize::from(number)] = true);
        found.iter().enumerate().all(|(at, byte)| may_be[usize::from(byte.wrapping_sub(step(at)))])
    }
}

/// Contents of a number: blocks at other places differ.
fn contents(number: u8) -> Vec<u8> {
    (0..BYTES_MAX).map(|at| number.wrapping_add(step(at))).collect()
}

fn step(at: usize) -> u8 {
    (at >> 12) as u8
}

struct Sites {
    cluster: Cluster,
    clients: Vec<Client>,
    /// Of each client.
    files: Vec<Vec<Known>>,
    random: StdRng,
    /// Calls that failed, and that were made while the line was cut.
    failed: usize,
    cuts: usize,
}

fn directory(client: &Client, name: &str) -> InodeId {
    let new = NewInode { kind: FileKind::Directory, mode: 0o700, ..NewInode::default() };
    let inode = client.create(ROOT, name.as_bytes(), &new).expect("the line is whole").inode;
    let placement = Some(Placement::NearWriter);
    let hint = LayoutHint { stripe_unit_bytes: 64 << 10, placement, ..LayoutHint::default() };
    client.set_layout_hint(inode, hint).expect("the line is whole");
    inode
}

/// A call, its deadline watched.
fn within<T>(cluster: &Cluster, what: &str, call: impl FnOnce() -> T) -> T {
    let start_ns = cluster.clock().now_ns();
    let result = call();
    let taken = Duration::from_nanos(cluster.clock().now_ns() - start_ns);
    assert!(taken <= CALL_MAX, "{what} took {taken:?}");
    result
}

fn write(cluster: &Cluster, client: &Client, inode: InodeId, contents: &[u8]) -> vazao_client::Result<()> {
    let file = within(cluster, "open", || client.open_file(inode, MODE))?;
    within(cluster, "write", || file.write_at(contents, 0))?;
    within(cluster, "sync", || file.sync())?;
    within(cluster, "close", || file.close())
}

fn read(cluster: &Cluster, client: &Client, inode: InodeId) -> vazao_client::Result<Vec<u8>> {
    let file = within(cluster, "open", || client.open_file(inode, MODE))?;
    let mut found = vec![0; BYTES_MAX];
    let length = within(cluster, "read", || file.read_at(&mut found, 0))?;
    found.truncate(length);
    within(cluster, "close", || file.close())?;
    Ok(found)
}

impl Sites {
    fn new(seed: u64, defect: Option<Defect>) -> Sites {
        let cluster = Cluster::in_zones(ClusterOptions { seed, data_servers: 4, down_ms_max: 500 }, &ZONES);
        defect.into_iter().for_each(|defect| cluster.plant(defect));
        let clients: Vec<Client> =
            ZONES.iter().zip(0..).map(|(zone, number)| cluster.client_in(zone, number)).collect();
        let near = directory(&clients[1], "near");
        let random = StdRng::seed_from_u64(seed);
        let mut sites = Sites { cluster, clients, files: Vec::new(), random, failed: 0, cuts: 0 };
        for (number, client) in sites.clients.iter().enumerate() {
            let make = |file: usize| {
                let name = format!("{number}-{file}");
                let new = NewInode { mode: 0o600, ..NewInode::default() };
                let inode = client.create(near, name.as_bytes(), &new).expect("the line is whole").inode;
                let number = file as u8;
                write(&sites.cluster, client, inode, &contents(number)).expect("the line is whole");
                Known { inode, contents: vec![number], former: Vec::new() }
            };
            sites.files.push((0..FILES).map(make).collect());
        }
        sites
    }

    fn write(&mut self, writer: usize, file: usize) {
        let number: u8 = self.random.random();
        let inode = self.files[writer][file].inode;
        let written = write(&self.cluster, &self.clients[writer], inode, &contents(number));
        let known = &mut self.files[writer][file];
        if written.is_ok() {
            known.former.append(&mut known.contents);
        }
        known.contents.push(number);
        self.failed += usize::from(written.is_err());
    }

    fn read(&mut self, reader: usize, writer: usize, file: usize) {
        let inode = self.files[writer][file].inode;
        let was_cut = self.cluster.is_cut();
        let found = read(&self.cluster, &self.clients[reader], inode);
        let is_cut_off = reader != writer && (was_cut || self.cluster.is_cut());
        match found {
            Ok(found) => {
                assert_eq!(found.len(), BYTES_MAX, "client {reader}, file {file} of {writer}");
                let is_right = self.files[writer][file].holds(&found, is_cut_off);
                assert!(is_right, "client {reader}, file {file} of {writer}: a wrong byte");
            }
            Err(_) => self.failed += 1,
        }
    }

    fn step(&mut self) {
        let (client, file) = (self.random.random_range(0..ZONES.len()), self.random.random_range(0..FILES));
        match self.random.random_range(0..8) {
            0 if !self.cluster.is_cut() => {
                let seconds = CUTS_S[self.random.random_range(0..CUTS_S.len())];
                self.cluster.cut_line(Duration::from_secs(seconds));
                self.cuts += 1;
            }
            0 | 1 => {
                let pause = Duration::from_millis(self.random.random_range(1..20_000));
                self.cluster.clock().sleep(pause);
            }
            2..=4 => self.write(client, file),
            5 => self.read(client, client, file),
            _ => self.read(client, ZONES.len() - 1 - client, file),
        }
    }

    /// All that was done before goes on once the line is whole again: with the same clients, without a new attempt.
    fn end(&mut self) {
        while self.cluster.is_cut() {
            self.cluster.clock().sleep(Duration::from_secs(10));
        }
        self.cluster.clock().sleep(Duration::from_secs(15));
        let failed = self.failed;
        for writer in 0..ZONES.len() {
            for file in 0..FILES {
                (0..ZONES.len()).for_each(|reader| self.read(reader, writer, file));
                self.write(writer, file);
                (0..ZONES.len()).for_each(|reader| self.read(reader, writer, file));
            }
        }
        assert_eq!(self.failed, failed, "calls fail on a line that is whole");
    }
}

fn told(seed: u64, defect: Option<Defect>) -> Sites {
    let mut sites = Sites::new(seed, defect);
    (0..STEPS).for_each(|_| sites.step());
    sites.end();
    sites
}

#[test]
fn writes_that_are_answered_and_not_carried_out_are_found_on_both_sides_of_a_line() {
    let is_found = |seed: u64| {
        std::panic::catch_unwind(|| told(seed, Some(Defect::SwallowedWrites)).failed).is_err_and(|panic| {
            panic.downcast_ref::<String>().is_some_and(|text| text.contains("a wrong byte"))
        })
    };
    assert!((0..4).any(is_found), "no seed found it");
}

#[test]
fn a_line_that_is_cut_costs_errors_within_their_deadline_and_never_a_wrong_byte() {
    let (mut failed, mut cuts, seeds) = (0, 0, wanted(SEEDS));
    let count = seeds.end - seeds.start;
    for seed in seeds {
        let sites = told(seed, None);
        failed += sites.failed;
        cuts += sites.cuts;
    }
    assert!(count < 2 || (failed > 0 && cuts > 0), "{failed} failures in {cuts} cuts: nothing was tried");
}
