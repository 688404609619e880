//! Disks that are full, fail or lie, under one of the servers that a file is striped over: the error names the disk,
//! comes out at the latest with the fsync, and everything is right again afterwards.

use std::io::ErrorKind;
use vazao_client::{Client, File, NewInode, OpenMode};
use vazao_disk::{Disk, MemoryDisk};
use vazao_model::distribution::Pattern;
use vazao_model::ids::ROOT;
use vazao_model::{Code, InodeId, LayoutHint};
use vazao_sim::{Cluster, ClusterOptions};

const MODE: OpenMode = OpenMode { read: true, write: true, truncate: false };
const UNIT: u64 = 64 << 10;
const LENGTH: usize = 3 << 20;

fn bytes(seed: u8) -> Vec<u8> {
    (0..LENGTH).map(|at| (at / 977) as u8 ^ seed | 1).collect()
}

fn start(seed: u64) -> (Cluster, Client) {
    let cluster = Cluster::new(ClusterOptions { seed, data_servers: 3, down_ms_max: 500 });
    let client = cluster.client(0);
    let hint =
        LayoutHint { stripe_unit_bytes: UNIT, pattern: Some(Pattern::Stripe), ..LayoutHint::default() };
    client.set_layout_hint(ROOT, hint).expect("fair weather");
    (cluster, client)
}

fn create(client: &Client, name: &str) -> (InodeId, File) {
    let new = NewInode { mode: 0o600, ..Default::default() };
    let inode = client.create(ROOT, name.as_bytes(), &new).expect("fair weather").inode;
    (inode, client.open_file(inode, MODE).expect("fair weather"))
}

fn whole(file: &File) -> Vec<u8> {
    let mut found = vec![0; LENGTH];
    assert_eq!(file.read_at(&mut found, 0).expect("is whole"), LENGTH);
    found
}

/// The error of a write, or of the fsync after it.
fn write_and_sync(file: &File, bytes: &[u8]) -> vazao_client::Result<()> {
    file.write_at(bytes, 0)?;
    file.sync()
}

#[test]
fn a_disk_that_is_full_in_the_middle_of_a_stripe_is_told_of_and_the_rest_of_the_file_stays() {
    let (cluster, client) = start(1);
    let (_, kept) = create(&client, "kept");
    write_and_sync(&kept, &bytes(1)).expect("there is room");
    let (inode, file) = create(&client, "file");
    cluster.disk(2).set_capacity(LENGTH as u64 / 3 + (300 << 10));
    let told = write_and_sync(&file, &bytes(2)).expect_err("a third of it does not fit");
    assert_eq!(told.code, Code::NoSpace, "{told}");
    assert!(told.to_string().contains("/disk2"), "{told}");
    assert_eq!(file.sync().expect_err("it is still not whole").code, Code::NoSpace);
    assert!(whole(&kept) == bytes(1), "others are as they were");
    cluster.disk(2).set_capacity(u64::MAX);
    // The server looks at its space again from time to time.
    cluster.heal();
    write_and_sync(&file, &bytes(3)).expect("there is room again");
    let other = cluster.client(1).open_file(inode, MODE).expect("opens");
    assert!(whole(&other) == bytes(3));
}

#[test]
fn a_disk_that_fails_to_write_takes_its_target_out_of_service_and_no_other() {
    let (cluster, client) = start(2);
    let (_, kept) = create(&client, "kept");
    write_and_sync(&kept, &bytes(1)).expect("all is well");
    let (_, file) = create(&client, "file");
    cluster.disk(2).fail_writes("groups", ErrorKind::Other);
    let told = write_and_sync(&file, &bytes(2)).expect_err("one of three disks fails");
    assert!(matches!(told.code, Code::Io | Code::TargetFailed), "{told}");
    assert!(told.to_string().contains("/disk2"), "{told}");
    cluster.disk(2).clear_faults();
    cluster.heal();
    let (after, file) = create(&client, "after");
    write_and_sync(&file, &bytes(3)).expect("new files do without it");
    let layout = client.layout(after).expect("asks").expect("striped");
    assert_eq!(layout.width(), 2, "{layout:?}");
    let refused = kept.read_at(&mut vec![0; LENGTH], 0).expect_err("a third of it is on the failed disk");
    assert_eq!(refused.code, Code::TargetFailed, "{refused}");
}

#[test]
fn a_disk_that_fails_to_read_is_an_error_of_that_read_alone() {
    let (cluster, client) = start(3);
    let (inode, file) = create(&client, "file");
    write_and_sync(&file, &bytes(1)).expect("all is well");
    cluster.disk(1).fail_reads("groups", ErrorKind::Other);
    let reader = cluster.client(1).open_file(inode, MODE).expect("opens");
    let told = reader.read_at(&mut vec![0; LENGTH], 0).expect_err("one of three disks fails");
    assert_eq!(told.code, Code::Io, "{told}");
    assert!(told.to_string().contains("/disk1"), "{told}");
    cluster.disk(1).clear_faults();
    assert!(whole(&reader) == bytes(1), "nothing was condemned for good");
}

/// All files below a directory of a disk.
fn files(disk: &MemoryDisk, path: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in disk.list(path).expect("listed") {
        let path = format!("{path}/{}", entry.name);
        if entry.is_directory { found.extend(files(disk, &path)) } else { found.push(path) }
    }
    found
}

#[test]
fn a_flipped_bit_in_any_file_of_an_object_is_found_by_a_reader_and_never_shown() {
    let (cluster, client) = start(4);
    let (inode, file) = create(&client, "file");
    write_and_sync(&file, &bytes(1)).expect("all is well");
    let disk = cluster.disk(1);
    let paths = files(&disk, "groups");
    assert_eq!(paths.len(), 2, "data and checksums: {paths:?}");
    for path in paths {
        let length =
            disk.open(&path, vazao_disk::Open::ReadOnly).and_then(|file| file.length()).expect("is there");
        // Of a sidecar an entry, behind its header.
        let at = length - 1;
        disk.corrupt(&path, at, 0x10).expect("corrupted");
        let reader = cluster.client(7).open_file(inode, MODE).expect("opens");
        let told = reader.read_at(&mut vec![0; LENGTH], 0).expect_err("a block is damaged");
        assert_eq!(told.code, Code::Corrupt, "{path}: {told}");
        disk.corrupt(&path, at, 0x10).expect("as it was");
        assert!(whole(&reader) == bytes(1), "{path}");
    }
}
