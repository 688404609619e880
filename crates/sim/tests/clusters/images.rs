//! Disks that are put back from an image, and copies beside the original: never served as if they were current.

use std::time::Duration;
use vazao_client::{Client, Error, File, NewInode, OpenMode};
use vazao_meter::Clock;
use vazao_model::ids::ROOT;
use vazao_model::{Code, InodeId, LayoutHint, TargetState};
use vazao_sim::{Cluster, ClusterOptions};

const MODE: OpenMode = OpenMode { read: true, write: true, truncate: false };
const LENGTH: usize = 600_000;

fn bytes(seed: u8) -> Vec<u8> {
    (0..LENGTH).map(|at| (at / 977) as u8 ^ seed | 1).collect()
}

fn cluster(seed: u64) -> (Cluster, Client, InodeId) {
    let cluster = Cluster::new(ClusterOptions { seed, data_servers: 2, down_ms_max: 500 });
    let client = cluster.client(0);
    let hint = LayoutHint { stripe_unit_bytes: 64 << 10, width: 0, ..LayoutHint::default() };
    client.set_layout_hint(ROOT, hint).expect("fair weather");
    let new = NewInode { mode: 0o600, ..Default::default() };
    let inode = client.create(ROOT, b"f", &new).expect("fair weather").inode;
    (cluster, client, inode)
}

fn write(file: &File, seed: u8) {
    file.write_at(&bytes(seed), 0).expect("fair weather");
    file.sync().expect("fair weather");
}

fn read(cluster: &Cluster, inode: InodeId) -> Result<Vec<u8>, Error> {
    let file = cluster.client(9).open_file(inode, MODE)?;
    let mut found = vec![0; LENGTH];
    file.read_at(&mut found, 0).map(|_| found)
}

fn pass(cluster: &Cluster, seconds: u64) {
    cluster.clock().sleep(Duration::from_secs(seconds));
}

/// A disk was restored from an image taken while its server ran: 256 of 732 pages of a rewritten, synced file had old
/// contents, without an error.
#[test]
fn a_disk_put_back_from_an_image_is_never_read_as_current() {
    for seed in 0..10 {
        let (cluster, client, inode) = cluster(seed);
        let file = client.open_file(inode, MODE).expect("fair weather");
        write(&file, 1);
        pass(&cluster, 5);
        let image = cluster.disk(1).image().expect("copied");
        write(&file, 2);
        pass(&cluster, 5);
        let right = cluster.replace_disk(1, image);
        cluster.heal();
        let error = read(&cluster, inode).expect_err("the image is refused");
        assert_eq!(error.code, Code::TargetFailed, "seed {seed}: {error}");
        assert!(error.to_string().contains("older copy"), "seed {seed}: {error}");
        let map = client.refresh_map().expect("fair weather");
        let states: Vec<TargetState> = map.targets.iter().map(|target| target.state).collect();
        assert_eq!(states.iter().filter(|state| **state == TargetState::Stale).count(), 1, "{states:?}");
        cluster.replace_disk(1, right);
        cluster.heal();
        assert!(read(&cluster, inode).expect("the right disk is back") == bytes(2), "seed {seed}");
    }
}

#[test]
fn an_image_that_an_operator_has_accepted_is_served_and_the_right_disk_no_more() {
    let (cluster, client, inode) = cluster(1);
    let file = client.open_file(inode, MODE).expect("fair weather");
    write(&file, 1);
    pass(&cluster, 5);
    let image = cluster.disk(1).image().expect("copied");
    write(&file, 2);
    pass(&cluster, 5);
    let right = cluster.replace_disk(1, image);
    cluster.heal();
    let map = client.refresh_map().expect("fair weather");
    let stale = map.targets.iter().find(|target| target.state == TargetState::Stale).expect("one is stale");
    client.administration().accept_old_target(stale.id, stale.found).expect("accepted");
    cluster.heal();
    let mixed = read(&cluster, inode).expect("served as it is");
    assert!(mixed != bytes(2) && mixed != bytes(1), "what the operator was told");
    cluster.replace_disk(1, right);
    cluster.heal();
    assert_eq!(read(&cluster, inode).expect_err("overtaken").code, Code::TargetFailed);
}

/// A second server with a copy of a target took over a live node's target within 50 ms.
#[test]
fn a_copy_beside_the_original_is_refused_and_changes_nothing() {
    let (cluster, client, inode) = cluster(2);
    let file = client.open_file(inode, MODE).expect("fair weather");
    write(&file, 1);
    let copy = cluster.copy_of(1, "elsewhere:1", 1_000_000);
    for _ in 0..5 {
        assert_eq!(cluster.report(1, &copy).expect_err("refused").code, Code::InUse);
        pass(&cluster, 3);
    }
    write(&file, 2);
    assert!(read(&cluster, inode).expect("as before") == bytes(2));
    let map = client.refresh_map().expect("fair weather");
    assert!(map.nodes.iter().all(|node| node.address != "elsewhere:1"), "{map:?}");
    assert!(map.refusals.iter().any(|refusal| refusal.address == "elsewhere:1"), "{map:?}");
}

#[test]
fn metadata_put_back_from_an_image_serves_nothing_and_removes_nothing() {
    let (cluster, client, inode) = cluster(3);
    let file = client.open_file(inode, MODE).expect("fair weather");
    write(&file, 1);
    pass(&cluster, 5);
    let image = cluster.disk(0).image().expect("copied");
    let new = NewInode { mode: 0o600, ..Default::default() };
    let later = client.create(ROOT, b"later", &new).expect("fair weather").inode;
    write(&client.open_file(later, MODE).expect("fair weather"), 3);
    pass(&cluster, 5);
    let right = cluster.replace_disk(0, image);
    cluster.heal();
    // Longer than objects without a file are left alone.
    pass(&cluster, 120);
    let error = cluster.client(5).lookup(ROOT, b"f").expect_err("refused");
    assert_eq!(error.code, Code::Io);
    assert!(error.to_string().contains("older copy"), "{error}");
    cluster.replace_disk(0, right);
    cluster.heal();
    assert!(read(&cluster, later).expect("the right directory is back") == bytes(3));
}
