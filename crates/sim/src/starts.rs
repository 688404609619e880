//! Restarts of each process at every step of its start, alone and with others, while clients go on.
//!
//! What must hold: no call fails before its deadline for what passes by itself. Everything here passes, and long before
//! any deadline: what has ended is started again, and nothing loses power. So every call succeeds. One error is known
//! rather than transient: a disk whose server has started without it is reported as missing.

use crate::cluster::{Cluster, ClusterOptions, Step};
use crate::defects::Defect;
use crate::network::End;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::ops::Range;
use std::time::Duration;
use vazao_client::{Client, Error, File, NewInode, OpenMode};
use vazao_meter::Clock;
use vazao_model::distribution::Pattern;
use vazao_model::ids::ROOT;
use vazao_model::limits::HEARTBEAT_MS;
use vazao_model::{Code, InodeId, LayoutHint};

const DATA_SERVERS: usize = 3;

/// The machine with a disk that comes late.
const LATE: usize = 3;

/// Its unit is 64 KiB: it has a part on every disk.
const KEPT_BYTES: usize = 300_000;

/// Longest time for which an ended process stays away.
const DOWN_MS_MAX: u64 = 1_000;

/// Two starts and what they wait for take no longer, by far.
const UP_MS_MAX: u64 = 20_000;

/// Longest pause between two calls.
const PAUSE_MS_MAX: u64 = 300;

/// A disk that is back is reported with the next heartbeat, and the map that says so is at most this old.
const TOLD_NS: u64 = (HEARTBEAT_MS as u64 + 1_500) * 1_000_000;

const READ: OpenMode = OpenMode { read: true, write: false, truncate: false };
const WRITE: OpenMode = OpenMode { read: true, write: true, truncate: false };

/// Which processes end together with the one that ends again while it starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Others {
    Stay,
    Metadata,
    All,
}

/// One run over all processes and all steps of their starts.
pub struct Starts {
    cluster: Cluster,
    clients: Vec<Client>,
    random: StdRng,
    /// A file that is read all the time, and its handle from before the first restart.
    kept: InodeId,
    kept_open: File,
    bytes: Vec<u8>,
    /// Files that were made, by the numbers in their names.
    made: Range<u64>,
    newcomers: u64,
    log: Vec<String>,
}

impl std::fmt::Debug for Starts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.log.join("\n"))
    }
}

impl Starts {
    /// A fresh cluster for `seed`, with something wrong on purpose or not.
    pub fn new(seed: u64, defect: Option<Defect>) -> Starts {
        let options = ClusterOptions { seed, data_servers: DATA_SERVERS, down_ms_max: DOWN_MS_MAX };
        let cluster = Cluster::with_late_disk(options, LATE);
        defect.into_iter().for_each(|defect| cluster.plant(defect));
        let clients: Vec<Client> = (0..2).map(|number| cluster.client(number)).collect();
        let hint = LayoutHint {
            stripe_unit_bytes: 64 << 10,
            width: 0,
            pattern: Some(Pattern::Stripe),
            ..LayoutHint::default()
        };
        clients[0].set_layout_hint(ROOT, hint).expect("fair weather");
        let mut random = StdRng::seed_from_u64(seed ^ 0x7374_6172);
        let bytes: Vec<u8> = (0..KEPT_BYTES).map(|_| random.random()).collect();
        let new = NewInode { mode: 0o600, ..NewInode::default() };
        let (attributes, file) = clients[0].create_file(ROOT, b"kept", &new, true).expect("fair weather");
        file.write_at(&bytes, 0).expect("fair weather");
        file.close().expect("fair weather");
        let kept = attributes.inode;
        let kept_open = clients[0].open_file(kept, READ).expect("fair weather");
        cluster.start_in_steps();
        let (made, newcomers, log) = (0..0, 100, Vec::new());
        Starts { cluster, clients, random, kept, kept_open, bytes, made, newcomers, log }
    }

    /// Runs a whole story; panics with what went before when a call failed.
    pub fn run(seed: u64) {
        let mut story = Starts::new(seed, None);
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| story.tell()));
        if let Err(panic) = told {
            eprintln!("{story:?}\nseed {seed} failed; run it alone with VAZAO_SIM_SEED={seed}");
            // What is left would only fail again while it is torn down.
            std::mem::forget(story);
            std::panic::resume_unwind(panic);
        }
    }

    /// Ends each process at every step of its start; panics when a call fails.
    pub fn tell(&mut self) {
        for number in 0..self.cluster.machine_count() {
            for steps in 1..=self.cluster.steps_of(number).len() {
                for others in [Others::Stay, Others::Metadata, Others::All] {
                    self.restart(number, steps, others);
                }
            }
        }
    }

    fn note(&mut self, text: impl Into<String>) {
        let at_ms = self.cluster.clock().now_ns() / 1_000_000;
        self.log.push(format!("{at_ms:>8} ms {}", text.into()));
    }

    /// Ends a process, and once more when so many steps of its start are done; makes calls until all is up again.
    fn restart(&mut self, number: usize, steps: usize, others: Others) {
        let step: Step = self.cluster.steps_of(number)[steps - 1];
        self.note(format!(
            "machine {number} ends, and again after {step:?} ({steps}); the others: {others:?}"
        ));
        self.cluster.end_after(number, steps);
        let ends = |other: usize| match others {
            Others::Stay => other == number,
            Others::Metadata => other == number || other == 0,
            Others::All => true,
        };
        let ended = (0..self.cluster.machine_count()).filter(|other| ends(*other));
        ended.for_each(|other| self.cluster.end(other, End::Kill));
        let begun_ns = self.cluster.clock().now_ns();
        while !self.cluster.is_up() {
            self.call();
            self.let_time_pass();
            let waited_ms = (self.cluster.clock().now_ns() - begun_ns) / 1_000_000;
            assert!(waited_ms < UP_MS_MAX, "not everything is up after {waited_ms} ms");
        }
        self.cluster.clock().sleep(Duration::from_nanos(TOLD_NS));
        self.note("everything is up");
        (0..self.clients.len()).for_each(|client| self.read(client));
        self.write();
    }

    fn let_time_pass(&mut self) {
        let ms = self.random.random_range(0..=PAUSE_MS_MAX);
        self.cluster.clock().sleep(Duration::from_millis(ms));
        for client in &self.clients {
            // A renewal that fails is followed by the next one.
            let _ = client.tick();
        }
    }

    fn client(&mut self) -> usize {
        self.random.random_range(0..self.clients.len())
    }

    fn call(&mut self) {
        let client = self.client();
        match self.random.random_range(0..10) {
            0..3 => self.read(client),
            3 => self.read_through_old_handle(),
            4 => self.come_and_read(),
            5..7 => self.write(),
            7 => self.change_last(client),
            8 => self.rename_last(client),
            _ => self.look(client),
        }
    }

    /// Notes a call and what came of it; panics when it failed for what would have passed.
    fn judge<T>(&mut self, what: &str, started_ns: u64, outcome: Result<T, Error>) -> Option<T> {
        let now_ns = self.cluster.clock().now_ns();
        let took_ms = (now_ns - started_ns) / 1_000_000;
        match outcome {
            Ok(value) => {
                self.note(format!("{what}: {took_ms} ms"));
                Some(value)
            }
            Err(error) => {
                let back_ns = self.cluster.disks_back_ns();
                let is_known =
                    error.code == Code::TargetFailed && started_ns < back_ns.saturating_add(TOLD_NS);
                self.note(format!("{what}: after {took_ms} ms: {error}"));
                assert!(is_known, "{what} failed after {took_ms} ms for what passes by itself: {error}");
                None
            }
        }
    }

    fn now_ns(&self) -> u64 {
        self.cluster.clock().now_ns()
    }

    fn check(&self, what: &str, read: usize, found: &[u8]) {
        assert!(read == KEPT_BYTES && found == self.bytes, "{what}: other bytes than were written");
    }

    fn read(&mut self, client: usize) {
        let (started_ns, mut found) = (self.now_ns(), vec![0; KEPT_BYTES]);
        let file = self.clients[client].open_file(self.kept, READ);
        let read = file.and_then(|file| file.read_at(&mut found, 0));
        if let Some(read) = self.judge(&format!("{client}: read"), started_ns, read) {
            self.check("read", read, &found);
        }
    }

    fn read_through_old_handle(&mut self) {
        let (started_ns, mut found) = (self.now_ns(), vec![0; KEPT_BYTES]);
        let read = self.kept_open.read_at(&mut found, 0);
        if let Some(read) = self.judge("read through an old handle", started_ns, read) {
            self.check("read through an old handle", read, &found);
        }
    }

    /// A client that knows nothing yet.
    fn come_and_read(&mut self) {
        self.newcomers += 1;
        let (started_ns, mut found) = (self.now_ns(), vec![0; KEPT_BYTES]);
        let newcomer = self.cluster.client(self.newcomers);
        let read = newcomer.open_file(self.kept, READ).and_then(|file| file.read_at(&mut found, 0));
        if let Some(read) = self.judge("a newcomer reads", started_ns, read) {
            self.check("a newcomer reads", read, &found);
        }
    }

    fn name_of(number: u64) -> Vec<u8> {
        format!("made{number}").into_bytes()
    }

    /// A new file, on whichever targets serve; older ones are removed.
    fn write(&mut self) {
        let (started_ns, client) = (self.now_ns(), self.client());
        let name = Starts::name_of(self.made.end);
        let new = NewInode { mode: 0o600, ..NewInode::default() };
        let written = self.clients[client].create_file(ROOT, &name, &new, true).and_then(|(_, file)| {
            file.write_at(&self.bytes, 0)?;
            file.sync()?;
            file.close()
        });
        self.made.end += 1;
        self.judge(&format!("{client}: write"), started_ns, written);
        if self.made.end - self.made.start > 3 {
            let (started_ns, name) = (self.now_ns(), Starts::name_of(self.made.start));
            let removed = self.clients[client].unlink(ROOT, &name);
            self.made.start += 1;
            self.judge(&format!("{client}: remove"), started_ns, removed);
        }
    }

    /// Writes into a file that is there, and cuts it.
    fn change_last(&mut self, client: usize) {
        if self.made.is_empty() {
            return self.write();
        }
        let (started_ns, name) = (self.now_ns(), Starts::name_of(self.made.end - 1));
        let found = self.clients[client].lookup(ROOT, &name);
        let changed =
            found.and_then(|found| self.clients[client].open_file(found.inode, WRITE)).and_then(|file| {
                file.write_at(&self.bytes[..100_000], 90_000)?;
                file.zero(0..70_000)?;
                file.set_length(250_000)?;
                file.close()
            });
        self.judge(&format!("{client}: change"), started_ns, changed);
    }

    fn rename_last(&mut self, client: usize) {
        if self.made.is_empty() {
            return self.write();
        }
        let (from, to) = (Starts::name_of(self.made.end - 1), Starts::name_of(self.made.end));
        let started_ns = self.now_ns();
        let there = self.clients[client].rename(ROOT, &from, ROOT, &to, vazao_client::RenameMode::NoReplace);
        let back = there.and_then(|()| {
            self.clients[client].rename(ROOT, &to, ROOT, &from, vazao_client::RenameMode::NoReplace)
        });
        self.judge(&format!("{client}: rename"), started_ns, back);
    }

    fn look(&mut self, client: usize) {
        let started_ns = self.now_ns();
        let looked = self.clients[client].list(ROOT, 0, 100, true).and_then(|_| self.clients[client].space());
        self.judge(&format!("{client}: list, and space"), started_ns, looked);
    }
}
