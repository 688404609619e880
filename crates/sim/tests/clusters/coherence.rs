//! What two clients believe, and what they have locked, while the network loses requests and servers die.

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use vazao_client::{Changes, Client, Listener, LockPlace, NewInode, RenameMode};
use vazao_meter::Clock;
use vazao_model::ids::ROOT;
use vazao_model::locks::{LockKind, LockMode, LockRange};
use vazao_model::{Attributes, Code, FileKind, InodeId};
use vazao_sim::network::{End, Weather};
use vazao_sim::{Cluster, ClusterOptions};

const SEEDS: u64 = 30;
const STEPS: usize = 150;
const NAMES: usize = 6;
const DIRECTORIES: usize = 3;

/// Directories that are used at a time: the root, and the last few that were made.
const PLACES: usize = 4;

/// A little less than the time after which the service takes a silent client's locks.
const SILENT_NS_MAX: u64 = 50_000_000_000;

const WEATHER: Weather = Weather { lost: 15, broken: 40, killed: 8, power_lost: 0, late: 0, doubled: 0 };

/// What a client remembers: where names lead, and attributes, each until its lease is over.
#[derive(Default)]
struct Memory {
    names: HashMap<(InodeId, Vec<u8>), (Option<InodeId>, u64)>,
    attributes: HashMap<InodeId, (Attributes, u64)>,
}

#[derive(Default)]
struct Remembering(Mutex<Memory>);

impl Listener for Remembering {
    fn inode_changed(&self, inode: InodeId, _contents: bool) {
        self.0.lock().attributes.remove(&inode);
    }
    fn entry_changed(&self, parent: InodeId, name: &[u8]) {
        self.0.lock().names.remove(&(parent, name.to_vec()));
    }
    fn forget(&self) {
        *self.0.lock() = Memory::default();
    }
}

struct User {
    client: Client,
    memory: Arc<Remembering>,
    /// Inodes that it believes to have locked.
    locked: Vec<InodeId>,
    heard_ns: u64,
}

struct World {
    cluster: Cluster,
    random: StdRng,
    users: Vec<User>,
    /// Sees the truth and remembers nothing.
    witness: Client,
    file: InodeId,
    places: Vec<InodeId>,
    believed: usize,
    recalled: usize,
    granted: usize,
}

fn name(number: usize) -> Vec<u8> {
    format!("n{number}").into_bytes()
}

impl World {
    fn new(seed: u64) -> World {
        let cluster = Cluster::new(ClusterOptions { seed, data_servers: 1, down_ms_max: 3_000 });
        let users = (1..=2)
            .map(|number| {
                let (client, memory) = (cluster.client(number), Arc::new(Remembering::default()));
                client.watch(Arc::clone(&memory) as Arc<dyn Listener>).expect("the cluster is up");
                User { client, memory, locked: Vec::new(), heard_ns: 0 }
            })
            .collect();
        let witness = cluster.client(3);
        let file = witness.create(ROOT, b"locked", &NewInode::default()).expect("up").inode;
        let random = StdRng::seed_from_u64(seed);
        World {
            cluster,
            random,
            users,
            witness,
            file,
            places: vec![ROOT],
            believed: 0,
            recalled: 0,
            granted: 0,
        }
    }

    fn now_ns(&self) -> u64 {
        self.cluster.clock().now_ns()
    }

    fn draw(&mut self, below: usize) -> usize {
        self.random.random_range(0..below)
    }

    fn draw_place(&mut self) -> InodeId {
        let number = self.draw(self.places.len());
        self.places[number]
    }

    /// Makes a directory, which its maker then knows whole, or removes or moves one.
    fn change_directory(&mut self, user: usize) {
        let (from, to) = (self.draw(DIRECTORIES), self.draw(DIRECTORIES));
        let (from, to) = (format!("d{from}").into_bytes(), format!("d{to}").into_bytes());
        let what = self.draw(4);
        let client = &self.users[user].client;
        let new = NewInode { kind: FileKind::Directory, ..NewInode::default() };
        let made = match what {
            0 | 1 => client.create(ROOT, &from, &new).ok().map(|made| made.inode),
            2 => client.rename(ROOT, &from, ROOT, &to, RenameMode::Replace).err().and(None),
            _ => client.remove_directory(ROOT, &from).err().and(None),
        };
        if let Some(made) = made {
            self.places.push(made);
            if self.places.len() > PLACES {
                self.places.remove(1);
            }
        }
        self.forget_own(user, &[(ROOT, from), (ROOT, to)]);
    }

    fn forget_own(&mut self, user: usize, names: &[(InodeId, Vec<u8>)]) {
        let mut memory = self.users[user].memory.0.lock();
        memory.names.retain(|known, _| !names.contains(known));
        memory.attributes.clear();
    }

    /// Changes something as `user`, which gets no invalidation of its own change and invalidates its cache itself.
    fn change(&mut self, user: usize) {
        let (from, to) = (name(self.draw(NAMES)), name(self.draw(NAMES)));
        let (parent, new_parent) = (self.draw_place(), self.draw_place());
        let what = self.draw(6);
        let mode = self.draw(0o777) as u32;
        let client = &self.users[user].client;
        // Some of these are refused, and the outcome of some is unknown.
        let _ = match what {
            0..3 => client.create(parent, &from, &NewInode::default()).map(|_| ()),
            3 => client.unlink(parent, &from),
            4 => client.rename(parent, &from, new_parent, &to, RenameMode::Replace),
            _ => client.lookup(parent, &from).and_then(|found| {
                let changes = Changes { mode: Some(mode), ..Changes::default() };
                client.set_attributes(found.inode, &changes).map(|_| ())
            }),
        };
        self.forget_own(user, &[(parent, from), (new_parent, to)]);
    }

    /// Looks something up by `user`, which believes the answer as long as it may.
    fn look(&mut self, user: usize) {
        let (parent, wanted) = (self.draw_place(), name(self.draw(NAMES)));
        let now_ns = self.now_ns();
        let User { client, memory, .. } = &self.users[user];
        // As the kernel does before it looks a name up.
        let _ = client.cached_attributes(parent).is_some() || client.attributes(parent).is_ok();
        let asked = client.asked();
        let found = match client.lookup(parent, &wanted) {
            Ok(attributes) => Some(attributes),
            Err(error) if error.code == Code::NotFound => None,
            Err(_) => return,
        };
        let until = |lease: Duration| (!lease.is_zero()).then(|| now_ns + lease.as_nanos() as u64);
        let mut memory = memory.0.lock();
        if let Some(until_ns) = until(client.entry_lease(asked, parent, &wanted)) {
            memory.names.insert((parent, wanted), (found.as_ref().map(|found| found.inode), until_ns));
        }
        if let Some(attributes) = found
            && let Some(until_ns) = until(client.attributes_lease(asked, attributes.inode))
        {
            memory.attributes.insert(attributes.inode, (attributes, until_ns));
        }
    }

    /// All unexpired cache entries of a user that has just received all invalidations must be true.
    fn compare(&mut self, user: usize) {
        let now_ns = self.now_ns();
        let memory = self.users[user].memory.0.lock();
        let names = memory.names.iter().filter(|(_, (_, until_ns))| now_ns < *until_ns);
        for ((parent, name), (believed, _)) in names {
            let truth = self.witness.lookup(*parent, name).map(|found| found.inode).ok();
            assert_eq!(*believed, truth, "user {user} about {} in {parent}", String::from_utf8_lossy(name));
            self.believed += 1;
        }
        for (inode, (believed, _)) in memory.attributes.iter().filter(|(_, (_, until_ns))| now_ns < *until_ns)
        {
            match self.witness.attributes(*inode) {
                Ok(truth) => assert_eq!(*believed, truth, "user {user} about inode {inode}"),
                Err(error) => panic!("user {user} believes in inode {inode}: {error}"),
            }
            self.believed += 1;
        }
        drop(memory);
        self.compare_recalled(user);
    }

    /// The same of what its client answers from its own memory.
    fn compare_recalled(&mut self, user: usize) {
        for &parent in &self.places {
            for number in 0..NAMES {
                let name = name(number);
                let Some((recalled, _)) = self.users[user].client.cached(parent, &name) else { continue };
                let truth = self.witness.lookup(parent, &name).ok();
                assert_eq!(recalled.ok(), truth, "user {user} recalls n{number} in {parent}");
                self.recalled += 1;
            }
        }
    }

    fn hear(&mut self, user: usize) -> bool {
        let outcome = self.users[user].client.tick().and_then(|()| self.users[user].client.fetch_changes());
        let now_ns = self.now_ns();
        let user = &mut self.users[user];
        if now_ns - user.heard_ns > SILENT_NS_MAX {
            // The service may have ended the session, and another client may hold the locks now.
            user.locked.clear();
        }
        if outcome.is_ok() {
            user.heard_ns = now_ns;
        }
        outcome.is_ok()
    }

    fn lock(&mut self, user: usize) {
        let place = LockPlace { inode: self.file, kind: LockKind::Flock, owner: 1 };
        let (range, has) = (LockRange::WHOLE, !self.users[user].locked.is_empty());
        let client = &self.users[user].client;
        if has {
            self.users[user].locked.clear();
            let _ = self.users[user].client.unlock(place, range);
        } else if client.lock(place, range, LockMode::Exclusive, 0, None).is_ok() {
            self.users[user].locked.push(self.file);
            self.granted += 1;
        }
        let now_ns = self.now_ns();
        let holds = |user: &&User| !user.locked.is_empty() && now_ns - user.heard_ns <= SILENT_NS_MAX;
        let holders = self.users.iter().filter(holds).count();
        assert!(holders <= 1, "both users have the lock");
    }

    fn step(&mut self) {
        let user = self.draw(self.users.len());
        match self.draw(20) {
            0..5 => self.change(user),
            5 => self.change_directory(user),
            6..12 => self.look(user),
            12..15 => self.lock(user),
            15 => {
                // Now and then a lease, and what the service keeps in mind of it, is over.
                let pause_ms_max = if self.draw(5) == 0 { 80_000 } else { 4_000 };
                let pause_ms = self.draw(pause_ms_max) as u64;
                self.cluster.clock().sleep(Duration::from_millis(pause_ms));
            }
            16 => self.cluster.end(0, End::Kill),
            _ => {
                if self.hear(user) {
                    self.cluster.set_weather(Weather::default());
                    // The witness waits for a service that was just ended to be there again.
                    self.cluster.heal();
                    if self.hear(user) {
                        self.compare(user);
                    }
                    self.cluster.set_weather(WEATHER);
                }
            }
        }
        for user in 0..self.users.len() {
            self.hear(user);
        }
    }
}

#[test]
fn what_is_believed_after_hearing_of_changes_is_true_and_a_lock_has_one_holder_under_every_seed() {
    let (mut believed, mut recalled, mut granted) = (0, 0, 0);
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        world.cluster.set_weather(WEATHER);
        (0..STEPS).for_each(|_| world.step());
        believed += world.believed;
        recalled += world.recalled;
        granted += world.granted;
    }
    let counts = format!("{believed} beliefs, {recalled} recalled, {granted} locks");
    assert!(believed > 100 && recalled > 100 && granted > 100, "{counts}: too few to show anything");
}

/// Remembers nothing of its own.
struct Deaf;

impl Listener for Deaf {
    fn inode_changed(&self, _inode: InodeId, _contents: bool) {}
    fn entry_changed(&self, _parent: InodeId, _name: &[u8]) {}
    fn forget(&self) {}
}

/// What a client that watches says about a name without asking; `None`: it would ask.
fn recalled(client: &Client, parent: InodeId, name: &[u8]) -> Option<bool> {
    client.cached(parent, name).map(|(known, _)| known.is_ok())
}

#[test]
fn a_directory_is_not_whole_again_after_somebody_elses_name_came() {
    let cluster = Cluster::new(ClusterOptions { seed: 1, data_servers: 1, down_ms_max: 3_000 });
    let (one, two) = (cluster.client(1), cluster.client(2));
    one.watch(Arc::new(Deaf)).expect("up");
    let new = NewInode { kind: FileKind::Directory, ..NewInode::default() };
    let directory = one.create(ROOT, b"d", &new).expect("made").inode;
    assert_eq!(recalled(&one, directory, b"f"), Some(false), "it is known whole");
    two.create(directory, b"f", &NewInode::default()).expect("made");
    one.fetch_changes().expect("heard");
    assert_eq!(recalled(&one, directory, b"f"), None);
    cluster.clock().sleep(Duration::from_millis(1));
    one.create(directory, b"x", &NewInode::default()).expect("made");
    one.attributes(directory).expect("there");
    assert_eq!(recalled(&one, directory, b"f"), None, "it had stopped being whole before the last change");
}
