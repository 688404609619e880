//! Whole services that are killed or lose power at random points, by chance in the middle of a disk operation.
//!
//! The tree is noted after each answered operation. After a kill it has to be the last one noted, after power loss one
//! noted since the last sync; in both cases an operation that was under way may have been done or not.

use super::harness::{Servers, TOP, World, options, send};
use super::model::{Op, op, perform};
use crate::engine::{self, Background, EngineOptions};
use crate::{MetaOptions, MetaService};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use prost::Message;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use vazao_disk::{Disk, MemoryDisk};
use vazao_meter::{Clock, ManualClock};
use vazao_model::Code;
use vazao_wire::service::Fault;
use vazao_wire::{Operation, op as wire, proto};

const VOLUMES: u64 = 200;
const LIVES: usize = 5;

/// The tree by inode: links, and for directories the entries.
type Tree = BTreeMap<u64, (u32, BTreeMap<String, u64>)>;

/// Reads without a flush, which fails once the disk has.
fn read<O: Operation>(world: &World, request: &O::Request) -> Result<O::Response, Fault> {
    let (message, _) = send::<O>(&world.service, request).take().expect("reads never wait")?;
    Ok(O::Response::decode(message.as_slice()).expect("an answer decodes"))
}

fn try_tree(world: &World) -> Result<Tree, Fault> {
    let mut tree = Tree::new();
    let mut left = vec![TOP.0];
    while let Some(inode) = left.pop() {
        let stat = read::<wire::GetAttributes>(world, &proto::GetAttributesRequest { inode, seat: 0 })?;
        let attributes = stat.inode.unwrap().attributes.unwrap();
        let mut entries = BTreeMap::new();
        if attributes.kind == 2 {
            let request = proto::ListRequest { directory: inode, limit: 4096, ..Default::default() };
            for entry in read::<wire::List>(world, &request)?.entries {
                entries.insert(String::from_utf8(entry.name).unwrap(), entry.inode);
                left.push(entry.inode);
            }
        }
        tree.insert(inode, (attributes.links, entries));
    }
    Ok(tree)
}

/// The tree as the service has it in memory. Reading it takes back a failure that was planned.
fn tree(disk: &MemoryDisk, world: &World) -> Tree {
    try_tree(world).unwrap_or_else(|_| {
        disk.clear_faults();
        try_tree(world).unwrap()
    })
}

fn random_ops(seed: u64, count: usize) -> Vec<Op> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    (0..count).map(|_| op().new_tree(&mut runner).expect("no filters").current()).collect()
}

/// What one life of a service leaves behind for the next to be compared with.
struct History {
    /// The tree after each answered operation.
    answered: Vec<Tree>,
    /// The first of them that power loss may leave.
    synced: usize,
    /// The tree with an operation that was not answered.
    under_way: Option<Tree>,
}

/// True when the caller knows the outcome of its request.
fn is_answer<T>(outcome: &Result<T, Code>) -> bool {
    !matches!(outcome, Err(Code::Io | Code::Unavailable | Code::Corrupt | Code::Internal | Code::Overloaded))
}

/// Runs random operations until there are no more, or until the disk fails under one.
fn live(disk: &MemoryDisk, world: &World, random: &mut StdRng) -> History {
    let mut history = History { answered: vec![tree(disk, world)], synced: 0, under_way: None };
    let mut made: Vec<u64> = history.answered[0].keys().copied().collect();
    let servers = Servers::default();
    let count = random.random_range(1..60);
    let ops = random_ops(random.random(), count);
    if random.random_bool(0.6) {
        disk.fail_after(random.random_range(0..count as u64 * 2), ErrorKind::Other);
    }
    for op in &ops {
        let outcome = perform(world, &made, op);
        if !is_answer(&outcome) {
            history.under_way = Some(tree(disk, world));
            return history;
        }
        made.extend(outcome.ok().flatten());
        history.answered.push(tree(disk, world));
        if random.random_bool(0.08) {
            match world.call::<wire::Sync>(&proto::SyncRequest {}) {
                Ok(_) => history.synced = history.answered.len() - 1,
                Err(_) => return history,
            }
        }
        if random.random_bool(0.1) {
            world.clock.advance(Duration::from_millis(random.random_range(1..50)));
            world.service.tick(&servers);
        }
    }
    history
}

fn open(disk: &MemoryDisk, random: &mut StdRng, life: usize, seed: u64) -> World {
    let clock = Arc::new(ManualClock::default());
    clock.advance(Duration::from_secs(life as u64 + 1));
    let overlay_bytes_max = random.random_range(2_000..30_000);
    let options = MetaOptions { overlay_bytes_max, seed: Some(seed), ..options("embedded") };
    let service = MetaService::open(Arc::new(disk.boot()), options, clock.clone() as Arc<dyn Clock>)
        .unwrap_or_else(|e| panic!("seed {seed}, life {life}: {e}"));
    World::over(service, clock)
}

fn judge(history: &History, now: &Tree, power_loss: bool, place: &str) {
    let last = history.answered.len() - 1;
    let from = if power_loss { history.synced.min(last) } else { last };
    let allowed = history.answered[from..].iter().chain(&history.under_way);
    assert!(
        allowed.into_iter().any(|tree| tree == now),
        "{place}: not a tree that was ever answered: {now:?}"
    );
}

#[test]
fn answered_operations_survive_kills_and_synced_ones_power_loss() {
    for seed in 0..VOLUMES {
        let mut random = StdRng::seed_from_u64(seed);
        let disk = MemoryDisk::new(seed);
        let mut world = open(&disk, &mut random, 0, seed);
        for life in 1..=LIVES {
            let history = live(&disk, &world, &mut random);
            let power_loss = random.random_bool(0.5);
            if power_loss {
                disk.crash()
            } else {
                disk.kill()
            }
            disk.clear_faults();
            drop(world);
            world = open(&disk, &mut random, life, seed);
            let place = format!("seed {seed}, life {life}, power loss: {power_loss}");
            judge(&history, &tree(&disk, &world), power_loss, &place);
            let checked = world.service.check().unwrap();
            assert_eq!(checked.problems, Vec::<String>::new(), "{place}");
        }
    }
}

#[test]
fn an_inode_number_is_never_given_out_twice_not_even_after_power_loss() {
    for seed in 0..40 {
        let mut random = StdRng::seed_from_u64(seed);
        let disk = MemoryDisk::new(seed);
        let mut highest = 1;
        for life in 0..6 {
            let world = open(&disk, &mut random, life, seed);
            let id = world.make(TOP, &format!("f{life}"), vazao_model::FileKind::File).unwrap();
            assert!(id.0 > highest, "seed {seed}, life {life}");
            highest = id.0;
            disk.crash();
        }
    }
}

#[test]
fn objects_are_removed_only_after_the_removal_of_their_file_is_durable() {
    for seed in 0..40 {
        let mut random = StdRng::seed_from_u64(seed);
        let disk = MemoryDisk::new(seed);
        let servers = Servers::default();
        let world = open(&disk, &mut random, 0, seed);
        world.data_server("a");
        let f = world.file(TOP, "f");
        world.assign_layout(f).unwrap();
        world.call::<wire::Sync>(&proto::SyncRequest {}).unwrap();
        world.remove(TOP, "f", false).unwrap();
        world.service.tick(&servers);
        assert_eq!(servers.removed().len(), 1);
        disk.crash();
        drop(world);
        let world = open(&disk, &mut random, 1, seed);
        assert_eq!(
            world.lookup(TOP, "f"),
            Err(Code::NotFound),
            "seed {seed}: the file is back without its objects"
        );
    }
}

#[test]
fn a_layout_generation_is_never_used_twice_not_even_after_power_loss() {
    for seed in 0..40 {
        let mut random = StdRng::seed_from_u64(seed);
        let disk = MemoryDisk::new(seed);
        let world = open(&disk, &mut random, 0, seed);
        world.data_server("a");
        let f = world.file(TOP, "f");
        world.call::<wire::Sync>(&proto::SyncRequest {}).unwrap();
        let first = world.assign_layout(f).unwrap();
        disk.crash();
        drop(world);
        let world = open(&disk, &mut random, 1, seed);
        let second = world.assign_layout(f).unwrap();
        let survived = first == second;
        assert!(survived || second.generation > first.generation, "seed {seed}");
        let request =
            proto::OpenRequest { once: world.once(), inode: f.0, truncate: true, ..Default::default() };
        world.call::<wire::Open>(&request).unwrap();
        assert!(world.assign_layout(f).unwrap().generation > second.generation);
    }
}

#[test]
fn a_directory_that_lost_its_volume_is_refused_and_no_new_volume_takes_its_place() {
    let disk = MemoryDisk::new(1);
    let mut random = StdRng::seed_from_u64(1);
    let world = open(&disk, &mut random, 0, 1);
    let cluster_id = world.service.cluster_id();
    drop(world);
    disk.kill();
    let names = || disk.list("").unwrap().into_iter().map(|entry| entry.name);
    for name in names().filter(|name| name.starts_with("log-")) {
        disk.rename(&name, &format!("aside-{name}")).unwrap();
    }
    let start = || {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
        MetaService::open(Arc::new(disk.boot()), MetaOptions { seed: Some(9), ..options("embedded") }, clock)
    };
    let fault = start().map(|_| ()).unwrap_err();
    assert!(fault.code == Code::Corrupt && fault.detail.contains("log file"), "{fault}");
    for name in names().filter(|name| name.starts_with("aside-")) {
        disk.rename(&name, name.trim_start_matches("aside-")).unwrap();
    }
    assert_eq!(start().unwrap().cluster_id(), cluster_id);
}

#[test]
fn a_directory_without_a_volume_record_is_corrupt() {
    let disk = MemoryDisk::new(1);
    let engine_options = EngineOptions {
        disk: Arc::new(disk.boot()),
        clock: Arc::new(ManualClock::default()),
        background: Background::Manual,
        overlay_bytes_max: 1 << 20,
        cache_bytes: 1 << 20,
        identity: 5,
        initial: Default::default(),
        essential: Vec::new(),
        accounts: Default::default(),
    };
    engine::open("embedded", engine_options).unwrap().close().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let opened = MetaService::open(Arc::new(disk.boot()), options("embedded"), clock);
    let fault = opened.map(|_| ()).unwrap_err();
    assert!(fault.code == Code::Corrupt && fault.detail.contains("volume record"), "{fault}");
}
