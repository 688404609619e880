//! A checkpoint with flipped bits under a whole service: files are whole or errors, and the check names each.

use super::harness::{Servers, TOP, World, call, options};
use crate::MetaOptions;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use vazao_disk::{Disk, MemoryDisk, Open};
use vazao_model::{Code, FileKind, InodeId};
use vazao_wire::{op, proto};

/// A small overlay and a small cache: what is read comes from the disk.
fn small() -> MetaOptions {
    MetaOptions { overlay_bytes_max: 64 << 10, cache_bytes: 64 << 10, ..options("embedded") }
}

fn contents(n: u64) -> Vec<u8> {
    let mut state = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..400 + n % 300).map(|_| next()).collect()
}

/// Small files in a directory within a directory.
struct Volume {
    disk: MemoryDisk,
    files: BTreeMap<InodeId, (String, Vec<u8>)>,
    outer: InodeId,
    inner: InodeId,
}

fn volume() -> Volume {
    let disk = MemoryDisk::new(3);
    let world = World::on(Arc::new(disk.boot()), small());
    let outer = world.directory(TOP, "outer");
    let inner = world.directory(outer, "inner");
    let mut files = BTreeMap::new();
    for n in 0..1500 {
        let (parent, path) = match n % 3 {
            0 => (TOP, ""),
            1 => (outer, "/outer"),
            _ => (inner, "/outer/inner"),
        };
        let name = format!("file-{n:04}");
        let request = proto::CreateRequest {
            parent: parent.0,
            name: name.clone().into(),
            kind: FileKind::File.number(),
            contents: contents(n),
            ..Default::default()
        };
        let inode = world.create_as(request).unwrap().attributes.unwrap().inode;
        files.insert(InodeId(inode), (format!("{path}/{name}"), contents(n)));
    }
    world.service.close().unwrap();
    disk.kill();
    Volume { disk, files, outer, inner }
}

impl Volume {
    /// Where these bytes lie in the checkpoint.
    fn find(&self, bytes: &[u8]) -> u64 {
        let file = self.disk.open("checkpoint", Open::ReadOnly).unwrap();
        let mut all = vec![0; file.length().unwrap() as usize];
        file.read_at(&mut all, 0).unwrap();
        all.windows(bytes.len()).position(|window| window == bytes).expect("they are there") as u64
    }

    fn flip(&self, bytes: &[u8]) {
        self.disk.corrupt("checkpoint", self.find(bytes) + 3, 0x10).unwrap();
    }

    fn start(&self) -> World {
        World::on(Arc::new(self.disk.boot()), small())
    }

    /// The paths of the files whose contents are an error; all others have to be right.
    fn unreadable(&self, world: &World) -> BTreeSet<String> {
        let mut unreadable = BTreeSet::new();
        for (inode, (path, expected)) in &self.files {
            match world.open(*inode) {
                Ok(opened) => assert_eq!(opened.contents.as_ref(), Some(expected), "{path}"),
                Err(Code::Corrupt) => drop(unreadable.insert(path.clone())),
                Err(other) => panic!("{path}: {other}"),
            }
        }
        unreadable
    }
}

fn check(world: &World) -> proto::CheckMetadataResponse {
    let request = proto::CheckMetadataRequest { action: 1, rate_bytes: 0 };
    world.call::<op::CheckMetadata>(&request).unwrap()
}

const DONE: u32 = 2;

#[test]
fn a_sound_volume_has_no_findings() {
    let volume = volume();
    let world = volume.start();
    assert!(volume.unreadable(&world).is_empty());
    let report = check(&world);
    assert_eq!((report.state, report.damaged, report.findings.len()), (DONE, 0, 0), "{report:?}");
    assert!(report.places.is_empty() && report.mended.is_empty() && report.lost_ranges == 0, "{report:?}");
    assert!(report.records > 3_000 && report.bytes > 1_000_000, "{report:?}");
}

/// The first records of a volume lie beside those of its members and of the root: damage there is one of the volume.
const FIRST: usize = 60;

/// Readers got a flipped bit in the contents of a small file: 16 of 22 damaged checkpoints served one.
#[test]
fn flipped_contents_are_errors_that_name_the_inode_and_the_check_names_every_path() {
    let volume = volume();
    let flipped: Vec<_> = volume.files.values().skip(FIRST).step_by(211).collect();
    flipped.iter().for_each(|(_, contents)| volume.flip(contents));
    let world = volume.start();
    let unreadable = volume.unreadable(&world);
    for (path, _) in flipped {
        assert!(unreadable.contains(path), "{path}");
    }
    let inode = volume.files.iter().find(|(_, (path, _))| unreadable.contains(path)).unwrap().0;
    let request = proto::GetAttributesRequest { inode: inode.0, seat: 0 };
    let fault = world.try_call::<op::GetAttributes>(&request).unwrap_err();
    let named = format!("inode {}", inode.0);
    assert!(fault.detail.contains(&named) && fault.detail.contains("vazao metadata check"), "{fault}");

    let report = check(&world);
    let named: BTreeSet<_> = report.findings.iter().map(|finding| finding.path.clone()).collect();
    assert_eq!((report.state, &named), (DONE, &unreadable));
    assert_eq!(report.damaged, unreadable.len() as u64);
    assert!(!report.places.is_empty());
}

/// A name whose block is damaged must not look like one that was never there: what it leads to would be taken for
/// garbage.
#[test]
fn damaged_names_are_neither_missing_nor_left_out_of_listings() {
    let volume = volume();
    let (_, (path, _)) = volume.files.iter().find(|(_, (path, _))| path.starts_with("/outer/inner")).unwrap();
    let name = path.rsplit('/').next().unwrap();
    let hash = {
        let world = volume.start();
        let key = world.service.names().entry_key(volume.inner, name.as_bytes());
        volume.disk.kill();
        key
    };
    volume.flip(&hash);
    let world = volume.start();
    assert_eq!(world.lookup(volume.inner, name).map(|_| ()), Err(Code::Corrupt));
    let request = proto::ListRequest { directory: volume.inner.0, limit: 100_000, ..Default::default() };
    assert_eq!(world.call::<op::List>(&request).map(|_| ()), Err(Code::Corrupt));
    assert_eq!(world.make(volume.inner, name, FileKind::File), Err(Code::Corrupt));
    let report = check(&world);
    let paths: Vec<_> = report.findings.iter().map(|finding| finding.path.as_str()).collect();
    assert!(paths.contains(&"/outer/inner"), "{report:?}");
}

/// Inodes of a listing are read in one pass over all that lie between them; what is damaged there is nothing to it.
#[test]
fn a_listing_with_attributes_does_not_need_records_that_it_does_not_list() {
    let volume = volume();
    let damaged = volume.files.len() / 2;
    let far: Vec<_> = volume.files.keys().enumerate().filter(|(n, _)| n.abs_diff(damaged) > FIRST).collect();
    let links = {
        let world = volume.start();
        let links = world.directory(TOP, "links");
        for (n, inode) in &far {
            world.link(**inode, links, &n.to_string()).unwrap();
        }
        world.service.close().unwrap();
        volume.disk.kill();
        links
    };
    volume.flip(&volume.files.values().nth(damaged).unwrap().1);
    let world = volume.start();
    let request = proto::ListRequest {
        directory: links.0,
        limit: 100_000,
        with_attributes: true,
        ..Default::default()
    };
    let page = world.call::<op::List>(&request).unwrap();
    assert_eq!(page.entries.len(), far.len());
    assert!(page.entries.iter().all(|entry| entry.attributes.as_ref().is_some_and(|is| is.links == 2)));
    assert!(!volume.unreadable(&world).is_empty(), "something is damaged");
}

#[test]
fn the_service_goes_on_beside_damage_and_over_a_restart() {
    let mut volume = volume();
    volume.files.values().skip(FIRST).step_by(97).for_each(|(_, contents)| volume.flip(contents));
    let world = volume.start();
    let before = volume.unreadable(&world);
    let more: Vec<_> = (0..3_000).map(|n| world.file(volume.inner, &format!("new-{n}"))).collect();
    // Removals empty the pages beside the damaged ones, so that these have to be changed, too.
    for (path, _) in volume.files.values() {
        let (directory, name) = path.rsplit_once('/').unwrap();
        let parent = match directory {
            "" => TOP,
            "/outer" => volume.outer,
            _ => volume.inner,
        };
        let removed = world.remove(parent, name, false);
        assert_eq!(removed.is_err(), before.contains(path), "{path}: {removed:?}");
    }
    volume.files.retain(|_, (path, _)| before.contains(path));
    world.clock.advance(Duration::from_secs(1));
    world.service.tick(&Servers::default());
    call::<op::OpenSession>(&world.service, &proto::OpenSessionRequest::default()).unwrap();
    assert_eq!(volume.unreadable(&world), before);
    let report = check(&world);
    assert!(report.lost_ranges > 0, "{report:?}");
    let named: BTreeSet<_> = report.findings.iter().map(|finding| finding.path.clone()).collect();
    assert_eq!(named, before);

    world.service.close().unwrap();
    volume.disk.kill();
    let again = volume.start();
    assert_eq!(volume.unreadable(&again), before);
    for inode in more {
        again.stat(inode).unwrap();
    }
}

/// One page of reclaim records that could not be read kept the objects of all deleted files for ever.
#[test]
fn objects_of_deleted_files_are_removed_behind_records_that_cannot_be_read() {
    let disk = MemoryDisk::new(4);
    let world = World::on(Arc::new(disk.boot()), small());
    let registered = world.data_server("d");
    let files: Vec<_> = (0..600).map(|n| world.file(TOP, &format!("f{n}"))).collect();
    let generations: Vec<_> = files.iter().map(|f| world.assign_layout(*f).unwrap().generation).collect();
    assert!((0..600).all(|n| world.remove(TOP, &format!("f{n}"), false).is_ok()));
    world.service.close().unwrap();
    disk.kill();
    let volume = Volume { disk, files: BTreeMap::new(), outer: TOP, inner: TOP };
    // Former copies of the page may lie before the present one.
    let mut bytes =
        vec![0; volume.disk.open("checkpoint", Open::ReadOnly).unwrap().length().unwrap() as usize];
    volume.disk.open("checkpoint", Open::ReadOnly).unwrap().read_at(&mut bytes, 0).unwrap();
    let key = crate::schema::keys::reclaim(files[300], generations[300]);
    for at in (0..bytes.len() as u64).filter(|at| bytes[*at as usize..].starts_with(&key)) {
        volume.disk.corrupt("checkpoint", at, 0x10).unwrap();
    }
    let world = volume.start();
    let id = registered.targets[0];
    let request = proto::RegisterNodeRequest {
        name: "d".to_owned(),
        address: "d:1".to_owned(),
        roles: vec![2],
        targets: vec![proto::Target { id, state: 1, ..Default::default() }],
        ..Default::default()
    };
    world.call::<op::RegisterNode>(&request).unwrap();
    let servers = Servers::default();
    (0..3).for_each(|_| world.service.tick(&servers));
    let removed = servers.removed().len();
    assert!((400..600).contains(&removed), "{removed}");
}
