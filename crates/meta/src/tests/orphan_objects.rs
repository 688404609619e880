//! Objects that no file has are found and removed; one that a file has never is.

use super::harness::{TOP, World, call, options};
use crate::part::proposals::PROPOSAL_NS;
use crate::{MetaOptions, MetaService};
use parking_lot::Mutex;
use prost::Message;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use vazao_disk::MemoryDisk;
use vazao_meter::{Clock, Exposition, ManualClock};
use vazao_model::{Code, InodeId};
use vazao_wire::service::Fault;
use vazao_wire::transport::{Buffer, Pending, Received, Transport};
use vazao_wire::{Method, op, proto};

const GRACE_MS: u32 = 60_000;

/// Target, inode, generation, slot.
type Object = (u32, u64, u32, u32);

/// What happens between the listing of a page and the look at the metadata.
type Meanwhile = Box<dyn FnMut() + Send>;

/// Data servers that have objects, and nothing else.
#[derive(Default)]
struct Servers {
    clock: Arc<ManualClock>,
    objects: Mutex<BTreeSet<Object>>,
    removed: Mutex<BTreeSet<Object>>,
    /// Answers to the next requests that get lost; the work is done or not.
    lost: Mutex<Vec<bool>>,
    meanwhile: Mutex<Option<Meanwhile>>,
}

impl Servers {
    fn add(&self, object: Object) {
        self.objects.lock().insert(object);
    }

    fn has(&self, object: Object) -> bool {
        self.objects.lock().contains(&object)
    }

    /// Pages of three, so that every walk has several.
    fn list(&self, request: proto::ListObjectsRequest) -> Vec<u8> {
        let after: Option<Object> = (!request.cookie.is_empty()).then(|| {
            let n = |from: usize| u64::from_be_bytes(request.cookie[from..from + 8].try_into().unwrap());
            (request.target, n(0), n(8) as u32, n(16) as u32)
        });
        let all = self.objects.lock();
        let page: Vec<Object> =
            all.iter().filter(|o| o.0 == request.target && Some(**o) > after).take(3).copied().collect();
        let cookie = match page.last() {
            Some(last) if page.len() == 3 => {
                [last.1, last.2.into(), last.3.into()].iter().flat_map(|n: &u64| n.to_be_bytes()).collect()
            }
            _ => Vec::new(),
        };
        let listed = |o: &Object| proto::ListedObject { inode: o.1, generation: o.2, slot: o.3, group: 0 };
        proto::ListObjectsResponse { objects: page.iter().map(listed).collect(), cookie }.encode_to_vec()
    }

    fn remove(&self, request: proto::RemoveObjectsRequest) -> Vec<u8> {
        let mut objects = self.objects.lock();
        let mut removed = 0;
        for o in request.objects {
            let object = (o.target, o.inode, o.generation, o.slot);
            self.removed.lock().insert(object);
            removed += u64::from(objects.remove(&object));
        }
        proto::RemoveObjectsResponse { removed }.encode_to_vec()
    }
}

struct Answered(Result<Received, Fault>);

impl Pending for Answered {
    fn wait(self: Box<Self>) -> Result<Received, Fault> {
        self.0
    }

    fn is_done(&self) -> bool {
        true
    }
}

impl Transport for Servers {
    fn submit(
        &self,
        address: &str,
        method: Method,
        message: &[u8],
        _attachment: &[u8],
        _deadline_ns: u64,
    ) -> Box<dyn Pending> {
        let lost = self.lost.lock().pop();
        let gone = || Box::new(Answered(Err(Fault::new(Code::Disconnected, address))));
        if lost == Some(false) {
            return gone();
        }
        let message = match method {
            Method::ListObjects => {
                let page = self.list(Message::decode(message).unwrap());
                if let Some(mut meanwhile) = self.meanwhile.lock().take() {
                    meanwhile();
                }
                page
            }
            Method::RemoveObjects => self.remove(Message::decode(message).unwrap()),
            other => panic!("{} of a data server", other.name()),
        };
        if lost == Some(true) {
            return gone();
        }
        Box::new(Answered(Ok(Received { message, attachment: Buffer::default(), service_us: 0 })))
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }
}

/// A volume with two data servers.
struct Volume {
    disk: MemoryDisk,
    world: World,
    servers: Arc<Servers>,
    /// Inodes that the client has open.
    held: Vec<u64>,
    seed: u64,
    grace_ms: u32,
}

fn open(disk: &MemoryDisk, clock: &Arc<ManualClock>, seed: u64, grace_ms: u32) -> World {
    let options = MetaOptions {
        orphan_grace_ms: grace_ms,
        overlay_bytes_max: 20_000,
        seed: Some(seed),
        ..options("embedded")
    };
    let clock = Arc::clone(clock);
    let service = MetaService::open(Arc::new(disk.boot()), options, clock.clone() as Arc<dyn Clock>).unwrap();
    World::over(service, clock)
}

fn heartbeat(world: &World, name: &str, id: u32) {
    let target =
        proto::Target { id, state: 1, capacity_bytes: 100, available_bytes: 90, ..Default::default() };
    let request = proto::RegisterNodeRequest {
        name: name.to_owned(),
        address: format!("{name}:1"),
        roles: vec![2],
        targets: vec![target],
        ..Default::default()
    };
    world.call::<op::RegisterNode>(&request).unwrap();
}

fn layout_of(service: &MetaService, inode: u64) -> Option<proto::Layout> {
    let request = proto::GetAttributesRequest { inode, seat: 0 };
    call::<op::GetAttributes>(service, &request).ok()?.inode?.layout
}

fn objects_of(inode: u64, layout: &proto::Layout) -> Vec<Object> {
    (0..).zip(&layout.groups).map(|(slot, &target)| (target, inode, layout.generation, slot)).collect()
}

impl Volume {
    fn new(seed: u64) -> Volume {
        Volume::with_grace(seed, GRACE_MS)
    }

    fn with_grace(seed: u64, grace_ms: u32) -> Volume {
        let disk = MemoryDisk::new(seed);
        let servers = Arc::new(Servers::default());
        let world = open(&disk, &Arc::new(ManualClock::default()), seed, grace_ms);
        heartbeat(&world, "a", 0);
        heartbeat(&world, "b", 0);
        world.call::<op::Sync>(&proto::SyncRequest {}).unwrap();
        Volume { disk, world, servers, held: Vec::new(), seed, grace_ms }
    }

    /// A file with objects on both servers.
    fn write(&self, name: &str) -> Vec<Object> {
        let inode = self.world.file(TOP, name);
        self.rewrite(inode)
    }

    fn rewrite(&self, inode: InodeId) -> Vec<Object> {
        let layout = self.world.assign_layout(inode).unwrap();
        let objects = objects_of(inode.0, &layout);
        objects.iter().for_each(|&object| self.servers.add(object));
        objects
    }

    fn truncate(&self, inode: InodeId) {
        let request = proto::OpenRequest {
            once: self.world.once(),
            inode: inode.0,
            truncate: true,
            ..Default::default()
        };
        self.world.call::<op::Open>(&request).unwrap();
    }

    /// Seconds go by, with everything that happens by itself.
    fn pass(&self, seconds: u32) {
        for second in 0..seconds {
            if second % 5 == 0 {
                heartbeat(&self.world, "a", 1);
                heartbeat(&self.world, "b", 2);
            }
            self.world.clock.advance(Duration::from_secs(1));
            self.renew();
            self.world.service.tick(&*self.servers);
        }
    }

    /// The client says which of the unlinked files it has open.
    fn renew(&self) {
        let mut request = proto::RenewSessionRequest { session: self.world.session, ..Default::default() };
        let asked = self.world.call::<op::RenewSession>(&request).unwrap().orphans;
        (request.held, request.not_held) = asked.into_iter().partition(|inode| self.held.contains(inode));
        self.world.call::<op::RenewSession>(&request).unwrap();
    }

    fn restart(&mut self, power_loss: bool) {
        let end = if power_loss { MemoryDisk::crash } else { MemoryDisk::kill };
        end(&self.disk);
        self.seed += 1000;
        self.world = open(&self.disk, &self.world.clock, self.seed, self.grace_ms);
    }

    fn figure(&self, name: &str) -> f64 {
        let mut page = Exposition::default();
        self.world.service.expose(&mut page);
        let line = page.finish();
        let found = line.lines().find(|line| line.starts_with(name)).unwrap();
        found.rsplit(' ').next().unwrap().parse().unwrap()
    }
}

/// The story: a client's write was in flight while its file was removed, and made an object that no record listed.
#[test]
fn a_write_that_arrives_after_its_file_was_removed_leaves_nothing_behind() {
    let volume = Volume::new(1);
    let kept = volume.write("kept");
    let late = volume.write("f");
    volume.world.remove(TOP, "f", false).unwrap();
    volume.pass(2);
    assert!(late.iter().all(|&object| !volume.servers.has(object)), "removed with its file");
    volume.servers.add(late[0]);
    volume.pass(GRACE_MS / 1000);
    assert!(volume.servers.has(late[0]), "not before it was found twice");
    volume.pass(2 * GRACE_MS / 1000);
    assert!(!volume.servers.has(late[0]));
    assert!(kept.iter().all(|&object| volume.servers.has(object)));
    assert_eq!(volume.figure("vazao_meta_orphan_objects_found_total"), 1.0);
    assert_eq!(volume.figure("vazao_meta_orphan_objects_removed_total"), 1.0);
    // It comes once more, while the search rests.
    volume.servers.add(late[1]);
    volume.pass(10 * GRACE_MS / 1000);
    assert!(!volume.servers.has(late[1]));
}

#[test]
fn objects_of_an_earlier_life_go_and_those_of_the_present_one_stay() {
    let volume = Volume::new(2);
    let earlier = volume.write("f");
    let inode = InodeId(earlier[0].1);
    volume.truncate(inode);
    let present = volume.rewrite(inode);
    volume.pass(1);
    volume.servers.add(earlier[0]);
    volume.pass(4 * GRACE_MS / 1000);
    assert!(!volume.servers.has(earlier[0]));
    assert!(present.iter().all(|&object| volume.servers.has(object)));
}

/// One inode whose record could not be read ended the search for all objects listed after it, for ever.
#[test]
fn the_search_goes_on_behind_an_inode_that_cannot_be_read_and_leaves_its_objects_alone() {
    let volume = Volume::new(5);
    let damaged = volume.write("damaged");
    let late = volume.write("f");
    volume.world.remove(TOP, "f", false).unwrap();
    volume.pass(2);
    volume.servers.add(late[0]);
    let mut transaction = volume.world.service.engine().begin();
    transaction.put(crate::schema::keys::inode(InodeId(damaged[0].1)), vec![0xFF; 9]);
    transaction.commit().unwrap();
    volume.pass(4 * GRACE_MS / 1000);
    assert!(!volume.servers.has(late[0]));
    assert!(damaged.iter().all(|&object| volume.servers.has(object)));
}

#[test]
fn an_open_file_without_a_name_keeps_its_objects() {
    let mut volume = Volume::new(3);
    let objects = volume.write("f");
    let inode = objects[0].1;
    volume.held.push(inode);
    volume.world.remove_held(TOP, "f", false, InodeId(inode)).unwrap();
    volume.pass(5 * GRACE_MS / 1000);
    assert!(objects.iter().all(|&object| volume.servers.has(object)));
}

#[test]
fn numbers_that_were_never_given_out_are_left_alone_for_the_metadata_is_the_older_one() {
    let volume = Volume::new(4);
    let known = volume.write("f")[0];
    let newer_file = (1, 1 << 40, 4096, 0);
    let newer_life = (1, known.1, (volume.world.service.boot() as u32 + 1) << 12, 0);
    volume.servers.add(newer_file);
    volume.servers.add(newer_life);
    volume.pass(4 * GRACE_MS / 1000);
    assert!(volume.servers.has(newer_file) && volume.servers.has(newer_life));
    assert!(volume.figure("vazao_meta_objects_unknown_total") >= 2.0);
    assert_eq!(volume.figure("vazao_meta_orphan_objects_found_total"), 0.0);
}

/// The story: the answer to a write was lost, so that a client took fifteen seconds to copy a small file's contents to
/// objects of the layout that was proposed for it. The search found those objects without a file twice and removed
/// them; then the layout was installed, and the file's synced contents were gone.
#[test]
fn objects_of_a_proposed_layout_stay_while_it_may_be_installed() {
    let grace_ms = 4_000;
    let mut volume = Volume::with_grace(6, grace_ms);
    let inode = volume.world.file(TOP, "f");
    let report = proto::CommitRequest {
        inode: inode.0,
        once: volume.world.once(),
        size_at_least: 5,
        base_version: u64::MAX,
        inline_writes: vec![proto::InlineWrite { offset: 0, data: b"small".to_vec(), zeros: 0 }],
        ..Default::default()
    };
    volume.world.call::<op::Commit>(&report).unwrap();
    let copy = |volume: &Volume, answer: &proto::AssignLayoutResponse| {
        let layout = answer.layout.clone().unwrap();
        let objects = objects_of(inode.0, &layout);
        objects.iter().for_each(|&object| volume.servers.add(object));
        let copied = proto::CopiedContents {
            layout: Some(proto::Layout { written_slots: 1, ..layout }),
            version: answer.version,
        };
        (objects, copied)
    };
    let proposed = volume.world.outgrow(inode, None).unwrap();
    let (objects, copied) = copy(&volume, &proposed);
    volume.pass(5 * grace_ms / 1000);
    assert!(objects.iter().all(|&object| volume.servers.has(object)));

    // The proposals' time, and two passes of a search that rests in between.
    let seconds = (PROPOSAL_NS / 1_000_000_000) as u32 + 20 * grace_ms / 1000;
    // A start of the service forgets what was proposed before it.
    volume.restart(false);
    let again = volume.world.outgrow(inode, Some(copied)).unwrap();
    assert_eq!(again.contents, Some(b"small".to_vec()), "it has to be copied once more");
    let (late, copied) = copy(&volume, &again);
    volume.pass(seconds);
    assert!(late.iter().all(|&object| !volume.servers.has(object)), "nobody installed it in time");
    let third = volume.world.outgrow(inode, Some(copied)).unwrap();
    assert_eq!(third.contents, Some(b"small".to_vec()));
    let (objects, copied) = copy(&volume, &third);
    let installed = volume.world.outgrow(inode, Some(copied)).unwrap();
    assert_eq!(installed.contents, None);
    volume.pass(seconds);
    assert!(objects.iter().all(|&object| volume.servers.has(object)));
}

/// What the test knows of a volume.
#[derive(Default)]
struct Known {
    /// Files with names, by number.
    files: BTreeMap<u64, String>,
    /// Every object that was ever written.
    written: BTreeSet<Object>,
    made: u32,
}

impl Known {
    fn any(&self, random: &mut StdRng) -> Option<u64> {
        let count = self.files.len();
        (count > 0).then(|| *self.files.keys().nth(random.random_range(0..count)).unwrap())
    }

    fn write(&mut self, volume: &Volume) {
        self.made += 1;
        let name = format!("f{}", self.made);
        let objects = volume.write(&name);
        self.files.insert(objects[0].1, name);
        self.written.extend(objects);
    }

    fn step(&mut self, volume: &mut Volume, random: &mut StdRng) {
        match random.random_range(0..100) {
            0..25 => self.write(volume),
            25..40 => {
                let Some(inode) = self.any(random) else { return };
                let name = self.files.remove(&inode).unwrap();
                volume.world.remove(TOP, &name, false).unwrap();
            }
            40..52 => {
                let Some(inode) = self.any(random) else { return };
                volume.truncate(InodeId(inode));
                if random.random_bool(0.7) {
                    self.written.extend(volume.rewrite(InodeId(inode)));
                }
            }
            52..70 => {
                // A late write, to whatever there ever was.
                let count = self.written.len();
                if count > 0 {
                    volume.servers.add(*self.written.iter().nth(random.random_range(0..count)).unwrap());
                }
            }
            70..75 => {
                let fates = (0..random.random_range(1..4)).map(|_| random.random_bool(0.5));
                volume.servers.lost.lock().extend(fates);
            }
            75..80 => drop(volume.world.call::<op::Sync>(&proto::SyncRequest {})),
            80..84 => self.restart(volume, random.random_bool(0.5)),
            84..90 => self.race(volume, random),
            _ => volume.pass(random.random_range(1..GRACE_MS / 600)),
        }
    }

    fn restart(&mut self, volume: &mut Volume, power_loss: bool) {
        volume.restart(power_loss);
        self.files.clear();
        for name in volume.world.names(TOP) {
            self.files.insert(volume.world.lookup(TOP, &name).unwrap().inode, name);
        }
    }

    /// While a page is on its way a file comes into being, or goes.
    fn race(&mut self, volume: &mut Volume, random: &mut StdRng) {
        let (service, servers) = (Arc::clone(&volume.world.service), Arc::clone(&volume.servers));
        let other = World::over(service, Arc::clone(&volume.world.clock));
        self.made += 1;
        let name = format!("f{}", self.made);
        let victim = self.any(random).map(|inode| self.files[&inode].clone());
        *volume.servers.meanwhile.lock() = Some(Box::new(move || {
            let inode = other.file(TOP, &name);
            let layout = other.assign_layout(inode).unwrap();
            objects_of(inode.0, &layout).into_iter().for_each(|object| servers.add(object));
            if let Some(victim) = &victim {
                other.remove(TOP, victim, false).unwrap();
            }
        }));
        volume.pass(GRACE_MS / 1000);
        *volume.servers.meanwhile.lock() = None;
        self.files.clear();
        for name in volume.world.names(TOP) {
            let inode = volume.world.lookup(TOP, &name).unwrap().inode;
            let layout = layout_of(&volume.world.service, inode);
            self.written.extend(layout.iter().flat_map(|layout| objects_of(inode, layout)));
            self.files.insert(inode, name);
        }
    }

    /// No object of a file that is there was ever removed. Returns those that are there.
    fn check(&self, volume: &Volume, place: &str) -> BTreeSet<Object> {
        let mut live = BTreeSet::new();
        for &inode in self.files.keys() {
            let Some(layout) = layout_of(&volume.world.service, inode) else { continue };
            for object in objects_of(inode, &layout).into_iter().filter(|o| self.written.contains(o)) {
                assert!(volume.servers.has(object), "{place}: {object:?} of a live file is gone");
                live.insert(object);
            }
        }
        live
    }
}

#[test]
fn no_object_of_a_live_file_is_ever_removed_and_in_the_end_there_are_no_others() {
    let mut removed = 0;
    for seed in 0..60 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut volume = Volume::new(seed);
        let mut known = Known::default();
        for step in 0..60 {
            known.step(&mut volume, &mut random);
            known.check(&volume, &format!("seed {seed}, step {step}"));
        }
        volume.servers.lost.lock().clear();
        volume.pass(14 * GRACE_MS / 1000);
        let live = known.check(&volume, &format!("seed {seed}, the end"));
        assert_eq!(*volume.servers.objects.lock(), live, "seed {seed}");
        removed += volume.servers.removed.lock().len();
    }
    assert!(removed > 100, "only {removed} objects were ever removed");
}
