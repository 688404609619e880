//! Clients that write and read a few files while links between any two machines are cut, one way or both, or flap,
//! machines pause, are ended or lose power, and requests are doubled and late.
//!
//! What must hold: a client sees what it wrote itself; others see what was flushed, and of what is in flight each byte
//! or not; what an fsync has answered survives every loss of power; an fsync that succeeds after others have failed
//! leaves what was written, whole; no call takes longer than its deadline. At rest everything goes on by itself, all
//! clients see the same bytes, and all copies of them are equal. Names are no part of it: see [`Story`](crate::Story).

mod faults;
mod files;

use crate::cluster::{Cluster, ClusterOptions};
use crate::copies::{Copies, Holders};
use crate::defects::Defect;
use crate::network::End;
use files::{Known, MODE, UNIT, bytes_of};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::time::Duration;
use vazao_client::{Client, Error, NewInode};
use vazao_meter::Clock;
use vazao_model::ids::ROOT;
use vazao_model::limits::HEARTBEAT_MS;
use vazao_model::{Code, LayoutHint};

const DATA_SERVERS: usize = 3;
const CLIENTS: usize = 3;
const FILES: usize = 4;

/// Between two times at which everything is mended and compared.
const STEPS: usize = 40;
const RESTS: u64 = 3;

/// How long copies may take to be whole again: without power kept it is waited 30 s for a member that has more.
const CATCH_UP_S: u32 = 90;

/// Longest time for which an ended process stays away.
const DOWN_MS_MAX: u64 = 3_000;

/// What a call may take: the clients' deadline by a clock that is 1% slow, and the step of the simulated clock in which
/// it passes, with a heartbeat of each data server that may be lost in it.
const CALL_MAX: Duration = Duration::from_millis(30_300 + 1_000 + DATA_SERVERS as u64 * HEARTBEAT_MS as u64);

/// How often each thing was tried, so that a test can tell that a story was one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tried {
    /// Links that were cut.
    pub cuts: usize,
    /// Machines that stood still.
    pub pauses: usize,
    /// Losses of power.
    pub power_losses: usize,
    /// Reads that were compared.
    pub reads: usize,
    /// Fsyncs that succeeded.
    pub syncs: usize,
    /// Calls that failed.
    pub failed: usize,
}

/// One run.
pub struct Parted {
    cluster: Cluster,
    clients: Vec<Client>,
    files: Vec<Known>,
    random: StdRng,
    tried: Tried,
    /// Versions written so far: each has bytes of its own.
    versions: u64,
    newcomers: u64,
    log: Vec<String>,
}

impl std::fmt::Debug for Parted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.log.join("\n"))
    }
}

impl Parted {
    /// A fresh cluster for `seed`, with something wrong on purpose or not.
    pub fn new(seed: u64, copies: u32, defect: Option<Defect>) -> Parted {
        let options = ClusterOptions { seed, data_servers: DATA_SERVERS, down_ms_max: DOWN_MS_MAX };
        let cluster = Cluster::new(options);
        defect.into_iter().for_each(|defect| cluster.plant(defect));
        let clients: Vec<Client> = (0..CLIENTS as u64).map(|number| cluster.client(number)).collect();
        if copies > 1 {
            // Until all have reported, and lead groups.
            cluster.clock().tick_for_leases();
            cluster.clock().sleep(Duration::from_secs(6));
        }
        let hint = LayoutHint { stripe_unit_bytes: UNIT, width: 0, copies, ..LayoutHint::default() };
        clients[0].set_layout_hint(ROOT, hint).expect("fair weather");
        let random = StdRng::seed_from_u64(seed ^ 0x7061_7274);
        let (files, tried, log) = (Vec::new(), Tried::default(), Vec::new());
        let mut story = Parted { cluster, clients, files, random, tried, versions: 0, newcomers: 100, log };
        (0..FILES).for_each(|number| story.make_file(number));
        story.clients[0].sync().expect("fair weather");
        // Also where a sync is answered early: a story is about files that were there.
        story.cluster.clock().sleep(Duration::from_secs(2));
        story.cluster.let_clocks_drift();
        story
    }

    fn make_file(&mut self, number: usize) {
        let writer = number % CLIENTS;
        let client = &self.clients[writer];
        let new = NewInode { mode: 0o600, ..NewInode::default() };
        let name = format!("f{number}");
        let inode = client.create(ROOT, name.as_bytes(), &new).expect("fair weather").inode;
        let file = client.open_file(inode, MODE).expect("fair weather");
        self.versions += 1;
        let bytes = bytes_of(self.versions, 4 * UNIT as usize);
        file.write_at(&bytes, 0).expect("fair weather");
        file.sync().expect("fair weather");
        let holders = Holders::of(&self.cluster, client, inode.0);
        self.files.push(Known::new(inode, writer, file, bytes, holders));
    }

    /// Runs a whole story; panics with what went before when something is not as it must be.
    pub fn run(seed: u64, copies: u32) -> Tried {
        let mut story = Parted::new(seed, copies, None);
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| story.tell()));
        if let Err(panic) = told {
            eprintln!("{story:?}\nseed {seed} failed; run it alone with VAZAO_SIM_SEED={seed}");
            // What is left would only fail again while it is torn down.
            std::mem::forget(story);
            std::panic::resume_unwind(panic);
        }
        story.tried
    }

    /// Runs all steps, with a rest now and then; panics when something is not as it must be.
    pub fn tell(&mut self) {
        for _ in 0..RESTS {
            self.change_weather();
            for _ in 0..STEPS {
                self.maybe_part();
                self.collect_ends();
                self.step();
                self.collect_ends();
            }
            self.rest();
        }
    }

    fn note(&mut self, text: impl Into<String>) {
        let at_ms = self.cluster.clock().now_ns() / 1_000_000;
        self.log.push(format!("{at_ms:>8} ms {}", text.into()));
    }

    fn step(&mut self) {
        let index = self.random.random_range(0..FILES);
        if self.files[index].is_to_be_rewritten && self.random.random_bool(0.5) {
            return self.rewrite(index);
        }
        match self.random.random_range(0..100) {
            0..30 => self.write(index),
            30..36 => self.set_length(index),
            36..42 => self.punch(index),
            42..50 => _ = self.flush(index, false),
            50..64 => _ = self.flush(index, true),
            64..72 => self.read(index),
            72..86 => self.read_elsewhere(index),
            86..90 => self.close(index),
            90..93 => self.hand_over(index),
            _ => self.let_time_pass(),
        }
    }

    fn let_time_pass(&mut self) {
        let ms = self.random.random_range(1..5_000);
        self.cluster.clock().sleep(Duration::from_millis(ms));
        for client in &self.clients {
            // A renewal that fails is followed by the next one.
            let _ = client.tick();
        }
    }

    /// A call of one client, its deadline watched.
    fn within<T>(&self, what: &str, call: impl FnOnce() -> T) -> T {
        let start_ns = self.cluster.clock().now_ns();
        let result = call();
        let taken = Duration::from_nanos(self.cluster.clock().now_ns() - start_ns);
        assert!(taken <= CALL_MAX, "{what} took {taken:?}");
        result
    }

    /// Fails where none of the faults of a story explains an error.
    fn explain(&mut self, index: usize, error: &Error) {
        self.note(format!("  {index}: {error}"));
        self.tried.failed += 1;
        let is_explained = match error.code {
            Code::Corrupt => !self.files[index].contents.is_certain(),
            Code::NotFound | Code::Stale | Code::NoSpace | Code::Internal | Code::Invalid => false,
            _ => true,
        };
        assert!(is_explained, "nothing explains: {error}");
    }

    /// Notes which daemons have ended, and what that may have taken away.
    fn collect_ends(&mut self) {
        for (number, end) in self.cluster.take_ends() {
            self.note(format!("  machine {number}: {end:?}"));
            if end == End::PowerLoss {
                self.tried.power_losses += 1;
                let cluster = &self.cluster;
                self.files.iter_mut().for_each(|known| known.lose_power(number, cluster));
            }
        }
        let cluster = &self.cluster;
        self.files.iter_mut().for_each(|known| known.take_losses(cluster));
    }

    /// Everything is mended. All that was begun goes on, and everything is as it must be for everyone.
    fn rest(&mut self) {
        self.note("rest");
        self.cluster.heal();
        self.let_copies_catch_up();
        self.collect_ends();
        for client in &self.clients {
            let _ = client.tick();
        }
        self.newcomers += 1;
        let newcomer = self.cluster.client(self.newcomers);
        for index in 0..FILES {
            self.compare(index, &newcomer);
            self.settle(index);
        }
        for index in 0..FILES {
            for (number, reader) in (0..).zip(self.clients.iter().chain([&newcomer])) {
                let known = &self.files[index];
                match known.read_whole(reader) {
                    Ok(bytes) => assert!(
                        bytes == known.contents.newest(),
                        "file {index} at rest, client {number}: {}",
                        known.difference(&bytes)
                    ),
                    Err(error) if error.code == Code::Io && known.is_unsure(number) => {}
                    Err(error) => panic!("file {index}, client {number}, everything is mended: {error}"),
                }
            }
        }
        assert_eq!(Copies::list(&self.cluster).check(), Ok(()), "at rest");
    }

    /// Members that lag do so by themselves.
    fn let_copies_catch_up(&self) {
        let are_whole = || self.files.iter().all(|known| known.holders.are_whole(&self.cluster));
        for _ in 0..CATCH_UP_S {
            if are_whole() {
                return;
            }
            self.cluster.clock().sleep(Duration::from_secs(1));
        }
        panic!("members lag yet, {CATCH_UP_S} s after everything was mended");
    }

    /// What a client reads that has seen nothing of the faults.
    fn compare(&mut self, index: usize, newcomer: &Client) {
        let known = &self.files[index];
        match known.read_whole(newcomer) {
            Ok(bytes) => {
                assert!(known.allows_whole(&bytes), "file {index} at rest: {}", known.difference(&bytes));
                self.tried.reads += 1;
            }
            Err(error) => {
                let is_torn = error.code == Code::Corrupt && !known.contents.is_certain();
                assert!(is_torn, "file {index}, everything is mended: {error}");
            }
        }
    }

    /// Makes a file durable as it was written, with the handle that it was written through.
    fn settle(&mut self, index: usize) {
        // What has failed before is told once, and what was lost is written again.
        for _ in 0..3 {
            if !self.files[index].is_to_be_rewritten && !self.flush(index, true) {
                self.files[index].is_to_be_rewritten = true;
            }
            if self.files[index].is_to_be_rewritten {
                self.rewrite(index);
            }
            let contents = &self.files[index].contents;
            if contents.is_certain() && !contents.is_volatile() {
                return;
            }
        }
        panic!("file {index}: it cannot be made durable, and everything is mended");
    }
}
