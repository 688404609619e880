//! Disks that are lost, with empty ones in their places: copies are made again from the others, and an empty disk never
//! counts before it has them.

use std::time::Duration;
use vazao_client::{Client, NewInode, OpenMode};
use vazao_disk::{Disk, MemoryDisk, Open};
use vazao_meter::Clock;
use vazao_model::cluster::lagging::LaggingTarget;
use vazao_model::ids::ROOT;
use vazao_model::limits::CHUNK_BYTES;
use vazao_model::{Code, InodeId, LayoutHint, TargetId};
use vazao_sim::{Cluster, ClusterOptions};
use vazao_store::{Replacement, begin_replacement, inspect};

const MODE: OpenMode = OpenMode { read: true, write: true, truncate: false };
const LENGTH: usize = 600_000;
const SERVERS: usize = 3;

/// How long copies may take to be made again, and how long a dead server may seem to serve.
const WHOLE_S: u64 = 120;
const SILENT_S: u64 = 20;

fn bytes(version: u64) -> Vec<u8> {
    (0..LENGTH as u64).map(|at| (at / 977 + version * 31) as u8 | 1).collect()
}

struct Story {
    cluster: Cluster,
    client: Client,
    files: Vec<(InodeId, u64)>,
    seed: u64,
    disks: u64,
}

impl Story {
    fn new(seed: u64) -> Story {
        let cluster = Cluster::new(ClusterOptions { seed, data_servers: SERVERS, down_ms_max: 1_500 });
        cluster.clock().tick_for_leases();
        let client = cluster.client(0);
        let mut story = Story { cluster, client, files: Vec::new(), seed, disks: 0 };
        story.pass(6);
        let hint = LayoutHint { stripe_unit_bytes: 64 << 10, width: 0, copies: 2, ..LayoutHint::default() };
        story.client.set_layout_hint(ROOT, hint).expect("fair weather");
        for name in [b"a", b"b", b"c"] {
            let new = NewInode { mode: 0o600, ..NewInode::default() };
            let inode = story.client.create(ROOT, name, &new).expect("fair weather").inode;
            story.files.push((inode, 0));
        }
        (0..3).for_each(|file| story.write(file));
        story
    }

    fn pass(&self, seconds: u64) {
        self.cluster.clock().sleep(Duration::from_secs(seconds));
    }

    /// Writes a file whole, and syncs it.
    fn write(&mut self, file: usize) {
        let (inode, version) = &mut self.files[file];
        *version += 1;
        let open = self.client.open_file(*inode, MODE).expect("it is there");
        open.write_at(&bytes(*version), 0).expect("two copies, or one, are left");
        open.sync().expect("the same");
    }

    /// A machine that was not there before reads what was written last.
    fn check(&self, when: &str) {
        let newcomer = self.cluster.client(100 + self.disks);
        for &(inode, version) in &self.files {
            let file = newcomer.open_file(inode, MODE).expect("it is there");
            let mut found = vec![0; LENGTH];
            let read = file.read_at(&mut found, 0);
            assert!(read.is_ok(), "seed {}, {when}: {read:?}", self.seed);
            assert!(found == bytes(version), "seed {}, {when}", self.seed);
        }
    }

    /// The machine's disk is lost, and an empty one is in its place before the server is started again.
    fn lose_disk(&mut self, number: usize) {
        let lost = inspect(&self.cluster.disk(number), "/lost").expect("readable").expect("a target");
        self.disks += 1;
        let (id, uuid) = (TargetId(lost.id), u128::from(self.disks));
        let node = self.client.refresh_map().expect("fair weather").target(id).expect("it is known").node;
        let empty = MemoryDisk::new(1_000 + self.disks);
        let replacement = Replacement {
            cluster_id: lost.cluster_id,
            node: node.0,
            id: id.0,
            uuid,
            replaces: lost.uuid,
            chunk_bytes: CHUNK_BYTES,
        };
        begin_replacement(&empty.boot(), "/new", replacement).expect("it is empty");
        empty.kill();
        self.cluster.replace_disk(number, empty);
        let ask = || self.client.administration().replace_target(id, node, (uuid, "/new"), false);
        let mut asked = ask();
        for _ in 0..SILENT_S {
            if !asked.as_ref().is_err_and(|error| error.code == Code::Invalid) {
                break;
            }
            self.pass(1);
            asked = ask();
        }
        let (groups, older) = asked.expect("all it had lies elsewhere, too");
        assert!(groups > 0 && older == 0, "{groups} {older}");
    }

    fn wait_until_whole(&self) {
        let is_whole = || self.client.refresh_map().is_ok_and(|map| map.away.is_empty());
        let waited = (0..WHOLE_S).find(|_| {
            self.pass(1);
            is_whole()
        });
        assert!(waited.is_some(), "seed {}: {:?}", self.seed, self.client.map().away);
    }
}

/// What an empty disk counted for before it was filled would be gone once all disks had been replaced.
#[test]
fn all_disks_are_replaced_one_after_the_other_and_everything_is_there() {
    for seed in 0..3 {
        let mut story = Story::new(seed);
        for number in 1..=SERVERS {
            story.lose_disk(number);
            story.write(number - 1);
            story.wait_until_whole();
            story.check("all copies are there again");
        }
    }
}

/// Lengths of all objects in placement groups on a disk whose objects have one chunk each.
fn bytes_of_groups(disk: &MemoryDisk) -> u64 {
    let names = |path: &str| disk.list(path).expect("it is there").into_iter().map(|entry| entry.name);
    let leaves = names("groups").flat_map(|group| {
        let group = format!("groups/{group}");
        names(&group).map(|leaf| format!("{group}/{leaf}")).collect::<Vec<_>>()
    });
    let files = leaves.flat_map(|leaf| names(&leaf).map(|name| format!("{leaf}/{name}")).collect::<Vec<_>>());
    let length =
        |path: String| disk.open(&path, Open::ReadOnly).and_then(|file| file.length()).expect("it is there");
    files.filter(|path| path.ends_with(".0.data")).map(length).sum()
}

/// What is said of a lost target goes from all of its bytes to nothing.
#[test]
fn what_a_lost_target_lacks_is_told_until_it_has_caught_up() {
    for seed in 0..3 {
        let mut story = Story::new(seed);
        let lost = bytes_of_groups(&story.cluster.disk(2));
        assert!(lost > 0);
        let told = |story: &Story| -> Vec<LaggingTarget> {
            let map = story.client.refresh_map().expect("fair weather");
            map.lagging.clone()
        };
        assert_eq!(told(&story), [], "seed {seed}: all copies are there");
        story.lose_disk(2);
        let mut all = Vec::new();
        for _ in 0..WHOLE_S * 10 {
            story.cluster.clock().sleep(Duration::from_millis(100));
            all.extend(told(&story));
            if story.client.map().away.is_empty() {
                break;
            }
        }
        story.wait_until_whole();
        assert_eq!(told(&story), [], "seed {seed}: all copies are there again");
        let target =
            TargetId(inspect(&story.cluster.disk(2), "/new").expect("readable").expect("a target").id);
        assert!(
            all.iter().all(|it| it.target == target && it.left_bytes <= it.bytes()),
            "seed {seed}: {all:?}"
        );
        let most = all.iter().max_by_key(|it| it.bytes()).expect("it was told");
        assert_eq!(most.bytes(), lost, "seed {seed}");
        assert!(all.iter().any(|it| it.left_bytes > 0), "seed {seed}: {all:?}");
        assert!(most.short.iter().all(|short| (short.copies, short.of) == (1, 2)), "{most:?}");
        assert!(all.iter().any(|it| it.left_bytes < lost), "seed {seed}: {all:?}");
        assert!(all.iter().any(|it| it.bytes_per_second > 0), "seed {seed}: {all:?}");
    }
}
