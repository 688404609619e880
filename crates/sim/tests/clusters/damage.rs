//! Damage of one copy: it is repaired from another one, where it lies, and no read shows it.

use std::time::Duration;
use vazao_client::{Client, File, NewInode, OpenMode};
use vazao_disk::{Disk, MemoryDisk, Open};
use vazao_meter::Clock;
use vazao_model::ids::ROOT;
use vazao_model::{Code, GroupId, InodeId, LayoutHint, TargetId};
use vazao_sim::network::End;
use vazao_sim::{Cluster, ClusterOptions};
use vazao_wire::transport::call;
use vazao_wire::{op, proto};

pub(crate) const BLOCK: usize = 64 << 10;

/// Two whole blocks and a part of one, in one object.
pub(crate) const LENGTH: usize = 2 * BLOCK + 1000;

/// The files of a disk beneath a directory whose names end so.
pub(crate) fn files(disk: &MemoryDisk, directory: &str, end: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in disk.list(directory).unwrap_or_default() {
        let path = format!("{directory}/{}", entry.name);
        if entry.is_directory {
            found.extend(files(disk, &path, end));
        } else if path.ends_with(end) {
            found.push(path);
        }
    }
    found
}

pub(crate) struct Rig {
    pub(crate) cluster: Cluster,
    pub(crate) client: Client,
    inode: InodeId,
    pub(crate) file: File,
    /// What the file has.
    pub(crate) bytes: Vec<u8>,
    pub(crate) group: GroupId,
}

/// A file of one object with so many copies.
pub(crate) fn rig(copies: u32) -> Rig {
    rig_of(copies, 3)
}

pub(crate) fn rig_of(copies: u32, seed: u64) -> Rig {
    let options = ClusterOptions { seed, data_servers: copies as usize, down_ms_max: 100 };
    let cluster = Cluster::new(options);
    cluster.clock().tick_for_leases();
    cluster.clock().sleep(Duration::from_secs(6));
    let client = cluster.client(0);
    let hint = LayoutHint { copies, width: 1, ..LayoutHint::default() };
    client.set_layout_hint(ROOT, hint).expect("fair weather");
    cluster.clock().sleep(Duration::from_secs(6));
    let new = NewInode { mode: 0o600, ..NewInode::default() };
    let inode = client.create(ROOT, b"f", &new).expect("fair weather").inode;
    let mode = OpenMode { read: true, write: true, ..OpenMode::default() };
    let file = client.open_file(inode, mode).expect("fair weather");
    let bytes: Vec<u8> = (0..LENGTH).map(|at| 1 + (at / 7 % 250) as u8).collect();
    file.write_at(&bytes, 0).expect("fair weather");
    file.sync().expect("fair weather");
    let layout = client.layout(inode).expect("fair weather").expect("it has data");
    Rig { cluster, client, inode, file, bytes, group: layout.groups[0] }
}

impl Rig {
    pub(crate) fn members(&self) -> Vec<usize> {
        let record = self.cluster.meta().expect("it is up").record_of_group(self.group).expect("it has one");
        record.current().map(|member| member.target.0 as usize).collect()
    }

    /// Damages a byte of the file on one member.
    pub(crate) fn rot(&self, member: usize, offset: u64) {
        let disk = self.cluster.disk(member);
        let data = files(&disk, "groups", ".data");
        assert_eq!(data.len(), 1, "{data:?}");
        disk.corrupt(&data[0], offset, 0x55).expect("is there");
    }

    pub(crate) fn address(&self, member: usize) -> proto::ObjectAddress {
        proto::ObjectAddress {
            target: member as u32,
            inode: self.inode.0,
            generation: self.client.layout(self.inode).expect("fair").expect("it has data").generation,
            group: self.group.0,
            ..Default::default()
        }
    }

    /// Says that the copy of one member is damaged, as a reader does; what the member says to that.
    pub(crate) fn report(&self, member: usize, offset: u64, missing: bool) -> bool {
        let object = Some(self.address(member));
        let request = proto::ReportDamageRequest { object, offset, missing };
        self.ask::<op::ReportDamage>(member, &request).damaged
    }

    fn ask<O: vazao_wire::Operation>(&self, member: usize, request: &O::Request) -> O::Response {
        let deadline_ns = self.cluster.clock().now_ns() + 5_000_000_000;
        let address = format!("data{member}:7070");
        call::<O>(self.cluster.transport(), &address, request, deadline_ns).expect("fair weather")
    }

    /// The copy of one member, each block compared with its checksum; `None`: one does not match.
    pub(crate) fn copy(&self, member: usize) -> Option<Vec<u8>> {
        let object = Some(self.address(member));
        let request = proto::ReadRequest { object, offset: 0, length: 1 << 20 };
        let deadline_ns = self.cluster.clock().now_ns() + 5_000_000_000;
        let address = format!("data{member}:7070");
        let transport = self.cluster.transport();
        let read = vazao_wire::transport::submit::<op::Read>(transport, &address, &request, &[], deadline_ns);
        let (answer, bytes) = match read.wait() {
            Ok(read) => read,
            Err(fault) if fault.code == Code::Corrupt => return None,
            Err(fault) => panic!("{member}: {fault}"),
        };
        let is_whole = vazao_model::checksum::first_mismatch(0, &bytes, &answer.checksums).is_none();
        is_whole.then(|| bytes.to_vec())
    }

    pub(crate) fn read(&self) -> Vec<u8> {
        let mut bytes = vec![0; LENGTH];
        let count = self.file.read_at(&mut bytes, 0).expect("one copy is good");
        assert_eq!(count, LENGTH);
        bytes
    }

    pub(crate) fn rest(&self) {
        self.cluster.clock().sleep(Duration::from_secs(12));
    }

    /// Damaged, missing and repaired, as the metadata service is told of a target.
    pub(crate) fn told(&self, member: usize) -> (u64, u64, u64) {
        let map = self.client.refresh_map().expect("fair weather");
        let target = map.target(TargetId(member as u32)).expect("it is known");
        (target.corrupt_blocks, target.missing_objects, target.repaired)
    }

    /// Has a member ask for so many other objects that it looks at its disk again for this one.
    fn forget(&self, member: usize) {
        for inode in 0..600 {
            let object = Some(proto::ObjectAddress { inode: (1 << 40) + inode, ..self.address(member) });
            assert!(!self.ask::<op::StatObject>(member, &proto::StatObjectRequest { object }).exists);
        }
    }

    /// The object is gone from a member's disk.
    fn lose(&self, member: usize) {
        let disk = self.cluster.disk(member);
        for path in files(&disk, "groups", "") {
            disk.remove(&path).expect("is there");
        }
        self.forget(member);
    }

    /// Has all copies compared by the one that leads.
    fn compare(&self, repair: bool) -> proto::CompareCopiesResponse {
        let primary = self.members()[0];
        let object = Some(proto::ObjectAddress { target: 0, ..self.address(primary) });
        let request = proto::CompareCopiesRequest { object, offset: 0, repair };
        let answer = self.ask::<op::CompareCopies>(primary, &request);
        assert_eq!(answer.next, 0);
        answer
    }

    /// What was found: member, offset, what, whether it is repaired.
    pub(crate) fn found(&self, repair: bool) -> Vec<(usize, u64, u32, bool)> {
        let found = |it: &proto::CopyDifference| (it.target as usize, it.offset, it.what, it.repaired);
        self.compare(repair).differences.iter().map(found).collect()
    }

    /// The address of a change that one member alone takes, as from its primary.
    fn behind_the_others(&self, member: usize) -> Option<proto::ObjectAddress> {
        let record = self.cluster.meta().expect("it is up").record_of_group(self.group).expect("it has one");
        let forward = proto::Forward { epoch: record.epoch, ..Default::default() };
        Some(proto::ObjectAddress { target: 0, forward: Some(forward), ..self.address(member) })
    }

    /// Writes into one copy alone, with checksums that match.
    pub(crate) fn change_behind(&self, member: usize, offset: u64, bytes: &[u8]) {
        let checksums = vazao_model::checksum::piece_checksums(offset, bytes);
        let object = self.behind_the_others(member);
        let request = proto::WriteRequest { object, offset, checksums, ..Default::default() };
        let deadline_ns = self.cluster.clock().now_ns() + 5_000_000_000;
        let (transport, address) = (self.cluster.transport(), format!("data{member}:7070"));
        let write =
            vazao_wire::transport::submit::<op::Write>(transport, &address, &request, bytes, deadline_ns);
        write.wait().expect("fair weather");
    }

    pub(crate) fn all_are_whole(&self) {
        for member in self.members() {
            assert!(self.copy(member).as_ref() == Some(&self.bytes), "{member} is not whole");
        }
    }
}

#[test]
fn a_damaged_block_is_repaired_in_place_whichever_member_has_it_also_a_short_one() {
    for copies in [2, 3] {
        for index in 0..copies as usize {
            for offset in [5, 2 * BLOCK as u64 + 5] {
                let rig = rig(copies);
                let member = rig.members()[index];
                rig.rot(member, offset);
                assert_eq!(rig.copy(member), None);
                assert!(rig.report(member, offset / BLOCK as u64 * BLOCK as u64, false));
                rig.rest();
                rig.all_are_whole();
                assert_eq!(rig.told(member), (0, 0, 1), "member {index} of {copies}, byte {offset}");
                assert_eq!(rig.members().len(), copies as usize, "no member goes for that");
            }
        }
    }
}

/// A killed server took what it found in blocks that had been written shortly before for right. Where the disk had
/// rotted meanwhile, that counted as a copy, and repairs replaced the good one by it.
#[test]
fn what_was_written_just_before_a_kill_and_rots_until_the_server_is_back_is_replaced() {
    let short = |disk: &MemoryDisk, path: &str| {
        disk.open(path, Open::Existing).and_then(|file| file.set_length(BLOCK as u64 + 7)).expect("is there");
    };
    for copies in [2, 3] {
        for index in 0..copies as usize {
            for is_cut in [false, true] {
                let rig = rig(copies);
                let member = rig.members()[index];
                rig.cluster.end(member, End::Kill);
                let disk = rig.cluster.disk(member);
                match is_cut {
                    false => rig.rot(member, BLOCK as u64 + 5),
                    true => files(&disk, "groups", ".data").iter().for_each(|path| short(&disk, path)),
                }
                rig.rest();
                assert_eq!(rig.members().len(), copies as usize, "member {index} of {copies}, {is_cut}");
                rig.all_are_whole();
            }
        }
    }
}

/// Reads of the copy failed with `Io`, which counted as no damage: nothing was repaired, and comparing ended there.
#[test]
fn a_file_that_is_cut_beneath_its_server_is_repaired_from_another_copy() {
    for index in 0..2 {
        for length in [0, 5, BLOCK as u64, 2 * BLOCK as u64 + 5] {
            let rig = rig(2);
            let member = rig.members()[index];
            let disk = rig.cluster.disk(member);
            let path = &files(&disk, "groups", ".data")[0];
            disk.open(path, Open::Existing).and_then(|file| file.set_length(length)).expect("is there");
            assert_eq!(rig.read(), rig.bytes);
            let found = rig.found(true);
            assert!(!found.is_empty() && found.iter().all(|it| it.0 == member), "{length}: {found:?}");
            rig.rest();
            rig.all_are_whole();
            assert_eq!(rig.found(false), [], "{length}");
            rig.cluster.end(member, End::Kill);
            rig.rest();
            rig.all_are_whole();
        }
    }
}

/// The end that a file was cut to passed for that of the object: the primary's last block was replaced by a part of it,
/// and then the other copies were cut as well.
#[test]
fn a_file_that_is_cut_within_its_last_block_is_as_long_as_its_other_copies_again() {
    for copies in [2, 3] {
        for index in 0..copies as usize {
            let rig = rig(copies);
            let member = rig.members()[index];
            let disk = rig.cluster.disk(member);
            let path = &files(&disk, "groups", ".data")[0];
            let length = LENGTH as u64 - 300;
            disk.open(path, Open::Existing).and_then(|file| file.set_length(length)).expect("is there");
            rig.forget(member);
            assert!(rig.report(member, 2 * BLOCK as u64, false), "its last block is damaged");
            for _ in 0..3 {
                let _ = rig.found(true);
                rig.rest();
            }
            rig.all_are_whole();
            assert_eq!(rig.found(false), [], "member {index} of {copies}");
        }
    }
}

#[test]
fn a_part_of_a_damaged_block_is_written_and_cut() {
    for copies in [2, 3] {
        for index in 0..copies as usize {
            for is_cut in [false, true] {
                let mut rig = rig(copies);
                let member = rig.members()[index];
                let place = BLOCK + 100;
                if is_cut {
                    let disk = rig.cluster.disk(member);
                    let path = &files(&disk, "groups", ".data")[0];
                    disk.open(path, Open::Existing).and_then(|file| file.set_length(10)).expect("is there");
                } else {
                    rig.rot(member, BLOCK as u64 + 5);
                    rig.rot(member, 2 * BLOCK as u64 + 5);
                }
                let which = format!("member {index} of {copies}, {is_cut}");
                rig.file.write_at(&[9; 200], place as u64).unwrap_or_else(|error| panic!("{which}: {error}"));
                rig.file.sync().unwrap_or_else(|error| panic!("{which}: {error}"));
                rig.bytes[place..place + 200].fill(9);
                let end = 2 * BLOCK + 300;
                rig.file.set_length(end as u64).unwrap_or_else(|error| panic!("{which}: {error}"));
                rig.bytes.truncate(end);
                rig.rest();
                rig.rest();
                assert_eq!(rig.members().len(), copies as usize, "{which}");
                rig.found(true);
                rig.rest();
                rig.all_are_whole();
            }
        }
    }
}

#[test]
fn a_client_that_meets_damage_reads_another_copy_and_has_it_repaired() {
    let rig = rig(2);
    let members = rig.members();
    rig.rot(members[0], 5);
    rig.rot(members[1], BLOCK as u64 + 5);
    // Whichever copy it prefers: what the other one has damaged is found by the next one to look.
    for _ in 0..3 {
        assert_eq!(rig.read(), rig.bytes);
        rig.rest();
    }
    let sound: Vec<usize> = members.iter().copied().filter(|member| rig.copy(*member).is_some()).collect();
    assert!(!sound.is_empty(), "the one that was read is repaired");
    for member in sound {
        assert_eq!(rig.copy(member).as_ref(), Some(&rig.bytes));
        assert_eq!(rig.told(member), (0, 0, 1));
    }
}

#[test]
fn a_scrub_repairs_what_it_finds_and_says_so() {
    let rig = rig(2);
    for (index, member) in rig.members().into_iter().enumerate() {
        rig.rot(member, (index * BLOCK + 5) as u64);
    }
    for member in rig.members() {
        let start = proto::ScrubRequest { target: member as u32, action: 1, rate_bytes: 0 };
        let report = rig.ask::<op::Scrub>(member, &start);
        assert_eq!((report.damaged, report.repaired), (1, 1), "{report:?}");
        let what = &report.findings[0].what;
        assert!(what.contains("repaired from another copy") && !what.contains("restore"), "{what}");
    }
    rig.all_are_whole();
}

#[test]
fn damage_of_all_copies_of_a_block_stays_and_is_reported_and_other_blocks_are_repaired() {
    let rig = rig(2);
    let members = rig.members();
    for member in &members {
        rig.rot(*member, 5);
        rig.rot(*member, BLOCK as u64 * (member % 2) as u64 + BLOCK as u64 + 5);
    }
    for member in &members {
        let start = proto::ScrubRequest { target: *member as u32, action: 1, rate_bytes: 0 };
        let report = rig.ask::<op::Scrub>(*member, &start);
        assert_eq!((report.damaged, report.repaired), (2, 1), "{report:?}");
    }
    rig.rest();
    for member in &members {
        assert_eq!(rig.copy(*member), None);
        assert_eq!(rig.told(*member), (1, 0, 1));
    }
    // What is written anew is everywhere.
    rig.file.write_at(&rig.bytes[..BLOCK], 0).expect("whole blocks need nothing of what was there");
    rig.file.sync().expect("fair weather");
    rig.rest();
    rig.all_are_whole();
    assert_eq!(rig.told(members[0]), (0, 0, 1));
}

#[test]
fn an_object_that_a_member_lacks_is_made_anew() {
    for index in 0..2 {
        let rig = rig(2);
        let member = rig.members()[index];
        rig.lose(member);
        assert!(rig.report(member, 0, true), "it is missing");
        rig.rest();
        rig.all_are_whole();
        assert_eq!(rig.told(member), (0, 0, 1), "member {index}");
        assert_eq!(rig.members().len(), 2);
    }
}

/// A change of an object that one copy had lost: that copy got the changed bytes alone, and its readers zeros for all
/// others; where the primary had lost it, it was removed from all.
#[test]
fn a_change_of_an_object_that_a_member_has_lost_waits_until_it_is_made_anew() {
    for copies in [2, 3] {
        for index in 0..copies as usize {
            let mut rig = rig(copies);
            let member = rig.members()[index];
            rig.lose(member);
            rig.file.write_at(&[7; 100], 10).expect("kept");
            rig.file.sync().expect("another copy has it all");
            rig.bytes[10..110].fill(7);
            assert_eq!(rig.read(), rig.bytes, "member {index} of {copies}");
            rig.rest();
            rig.all_are_whole();
            assert_eq!(rig.told(member), (0, 0, 1), "member {index} of {copies}");
        }
    }
}

/// What the primary had lost passed for removed: a member that came back had its copy removed, and was counted again
/// without it; or its copy was cut to what the primary had by then.
#[test]
fn what_a_primary_has_lost_is_not_removed_from_a_member_that_catches_up() {
    for keeps_power in [true, false] {
        let mut rig = rig(3);
        let members = rig.members();
        let end = if keeps_power { End::Kill } else { End::PowerLoss };
        rig.cluster.end(members[2], end);
        rig.file.write_at(&[7; 100], 10).expect("two have it");
        rig.file.sync().expect("two have it");
        rig.bytes[10..110].fill(7);
        rig.lose(members[0]);
        rig.rest();
        rig.rest();
        assert_eq!(rig.members().len(), 3, "{keeps_power}");
        rig.all_are_whole();
    }
}

/// The primary has lost its copy, and no copy of the second block is good: the first one is all that it gets again.
fn lost_by_the_primary_and_damaged() -> (Rig, Vec<usize>) {
    let rig = rig(2);
    let members = rig.members();
    rig.rot(members[1], BLOCK as u64 + 5);
    rig.lose(members[0]);
    assert!(rig.report(members[0], 0, true), "it is missing");
    rig.rest();
    (rig, members)
}

/// The part that the primary had got so far passed for all of it: `scrub --compare --repair` cut the other copy, the
/// only whole one, to that length.
#[test]
fn an_object_that_the_primary_makes_anew_is_compared_once_it_is_whole() {
    let (rig, members) = lost_by_the_primary_and_damaged();
    let object = Some(proto::ObjectAddress { target: 0, ..rig.address(members[0]) });
    let request = proto::CompareCopiesRequest { object, offset: 0, repair: true };
    let deadline_ns = rig.cluster.clock().now_ns() + 5_000_000_000;
    let address = format!("data{}:7070", members[0]);
    let refused = call::<op::CompareCopies>(rig.cluster.transport(), &address, &request, deadline_ns);
    assert_eq!(refused.map_err(|fault| fault.code), Err(Code::Unavailable));
    let object = Some(rig.address(members[1]));
    let stat = rig.ask::<op::StatObject>(members[1], &proto::StatObjectRequest { object });
    assert_eq!(stat.length, LENGTH as u64, "what is left of it");
}

/// It was changed here alone while the other member was away, which then could neither be sent the change, as the rest
/// was not here, nor be fetched from, as it did not count: for ever.
#[test]
fn an_object_that_the_primary_makes_anew_is_not_changed_while_no_other_member_counts() {
    let (rig, members) = lost_by_the_primary_and_damaged();
    rig.cluster.pause(members[1], vazao_sim::clock::Pause::Stopped, Duration::from_secs(40));
    rig.cluster.clock().sleep(Duration::from_secs(10));
    assert_eq!(rig.members(), [members[0]]);
    let object = Some(proto::ObjectAddress { target: 0, change: 7, ..rig.address(members[0]) });
    let checksums = vazao_model::checksum::piece_checksums(0, &[7; 100]);
    let request = proto::WriteRequest { object, checksums, ..Default::default() };
    let deadline_ns = rig.cluster.clock().now_ns() + 5_000_000_000;
    let (transport, address) = (rig.cluster.transport(), format!("data{}:7070", members[0]));
    let write =
        vazao_wire::transport::submit::<op::Write>(transport, &address, &request, &[7; 100], deadline_ns);
    assert_eq!(write.wait().map(drop).map_err(|fault| fault.code), Err(Code::Unavailable));
    rig.cluster.clock().sleep(Duration::from_secs(60));
    assert_eq!(rig.members().len(), 2, "it counts again, and what it has left is fetched");
}

/// A server that still had the lost files open wrote on to what no process would find again, and each fsync failed for
/// as long as it ran.
#[test]
fn an_object_whose_open_files_were_removed_beneath_a_server_is_made_anew_and_syncs_go_on() {
    for parts in [&[".data", ".sums"][..], &[".data"]] {
        for index in 0..2 {
            let mut rig = rig(2);
            let member = rig.members()[index];
            rig.file.write_at(&[7; 100], 10).expect("fair weather");
            let disk = rig.cluster.disk(member);
            for path in parts.iter().flat_map(|part| files(&disk, "groups", part)) {
                disk.remove(&path).expect("is there");
            }
            rig.file.sync().expect("the other copy has it all");
            rig.bytes[10..110].fill(7);
            rig.rest();
            assert_eq!(rig.members().len(), 2, "member {index}");
            rig.all_are_whole();
            let is_whole = || files(&disk, "groups", ".data").len() == 1;
            assert!(is_whole(), "member {index}: the next process finds nothing");
            rig.cluster.end(member, End::Kill);
            rig.rest();
            assert_eq!(rig.members().len(), 2, "member {index}");
            rig.all_are_whole();
        }
    }
}

/// Each change of an object that the empty disk did not have yet made it begin anew.
#[test]
fn an_empty_disk_is_filled_while_what_it_lacks_is_written_to_all_the_time() {
    let mut rig = rig(2);
    let member = rig.members()[1];
    rig.cluster.end(member, End::Kill);
    let disk = rig.cluster.disk(member);
    for path in files(&disk, "groups", "") {
        disk.remove(&path).expect("is there");
    }
    for round in 0..400_usize {
        let (at, byte) = (round % 3 * BLOCK + 5, (round % 250) as u8);
        rig.file.write_at(&[byte; 100], at as u64).expect("kept");
        rig.file.sync().expect("the other one has it");
        rig.bytes[at..at + 100].fill(byte);
        rig.cluster.clock().sleep(Duration::from_millis(50));
    }
    assert_eq!(rig.members().len(), 2, "it counts again");
    rig.all_are_whole();
}

/// What a comparison calls a copy.
const DAMAGED: u32 = 1;
const DIFFERS: u32 = 2;
const MISSING: u32 = 3;
const OTHER_END: u32 = 4;

#[test]
fn equal_copies_are_said_to_be_equal() {
    for copies in [2, 3] {
        let rig = rig(copies);
        let answer = rig.compare(false);
        assert!(answer.exists && answer.differences.is_empty(), "{answer:?}");
        assert_eq!(
            (answer.bytes, answer.members.len(), answer.lagging.len()),
            (LENGTH as u64, copies as usize, 0)
        );
    }
}

#[test]
fn a_comparison_repairs_damaged_blocks_of_any_copy_and_says_which() {
    for index in 0..3 {
        for offset in [0, 2 * BLOCK as u64] {
            let rig = rig(3);
            let member = rig.members()[index];
            rig.rot(member, offset + 5);
            assert_eq!(rig.found(false), [(member, offset, DAMAGED, true)]);
            rig.all_are_whole();
            assert_eq!(rig.found(false), []);
        }
    }
    // Of two copies: another block of each, and one of both.
    let rig = rig(2);
    let members = rig.members();
    rig.rot(members[0], 5);
    rig.rot(members[1], BLOCK as u64 + 5);
    members.iter().for_each(|member| rig.rot(*member, 2 * BLOCK as u64 + 5));
    let mut found = rig.found(true);
    found.sort_unstable();
    let last = 2 * BLOCK as u64;
    let mut expected = vec![
        (members[0], 0, DAMAGED, true),
        (members[0], last, DAMAGED, false),
        (members[1], BLOCK as u64, DAMAGED, true),
        (members[1], last, DAMAGED, false),
    ];
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn contents_that_differ_are_reported_and_the_primarys_count_where_that_is_asked_for() {
    for index in 0..3 {
        let rig = rig(3);
        let members = rig.members();
        let other = vec![7; BLOCK];
        rig.change_behind(members[index], BLOCK as u64, &other);
        let wrong: Vec<usize> = match index {
            0 => members[1..].to_vec(),
            _ => vec![members[index]],
        };
        let expected = |repaired| wrong.iter().map(move |it| (*it, BLOCK as u64, DIFFERS, repaired));
        assert_eq!(rig.found(false), expected(false).collect::<Vec<_>>());
        let copy = rig.copy(members[index]).expect("sound");
        assert_eq!(copy[BLOCK..2 * BLOCK], other, "without repair nothing is changed");
        assert_eq!(rig.found(true), expected(true).collect::<Vec<_>>());
        assert_eq!(rig.found(false), []);
        let first = rig.copy(members[0]).expect("sound");
        assert_eq!(first[BLOCK..2 * BLOCK] == other, index == 0, "the primary's counts");
        assert!(members.iter().all(|member| rig.copy(*member).as_ref() == Some(&first)));
    }
}

#[test]
fn copies_that_end_elsewhere_are_reported_and_made_as_long_as_the_primarys() {
    for is_longer in [true, false] {
        let rig = rig(2);
        let member = rig.members()[1];
        if is_longer {
            rig.change_behind(member, LENGTH as u64, &[9; 500]);
        } else {
            let object = rig.behind_the_others(member);
            let cut = proto::TruncateObjectRequest { object, length: BLOCK as u64, must_exist: false };
            rig.ask::<op::TruncateObject>(member, &cut);
        }
        let at = if is_longer { LENGTH } else { BLOCK } as u64;
        assert!(rig.found(false).contains(&(member, at, OTHER_END, false)));
        assert!(rig.found(true).contains(&(member, at, OTHER_END, true)));
        assert_eq!(rig.found(false), []);
        rig.all_are_whole();
    }
}

#[test]
fn a_missing_object_is_reported_and_made_anew_and_members_that_lag_are_named() {
    let rig = rig(2);
    let members = rig.members();
    rig.lose(members[1]);
    assert_eq!(rig.found(false), [(members[1], 0, MISSING, false)]);
    rig.rest();
    rig.all_are_whole();
    assert_eq!(rig.found(false), []);
    rig.cluster.pause(members[1], vazao_sim::clock::Pause::Stopped, Duration::from_secs(60));
    rig.cluster.clock().sleep(Duration::from_secs(10));
    let answer = rig.compare(false);
    assert_eq!(answer.members, [members[0] as u32]);
    assert_eq!(answer.lagging, [members[1] as u32], "it is not compared, and named");
    assert!(answer.differences.is_empty(), "{answer:?}");
}
