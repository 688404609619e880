//! Objects that are gone from a disk while no server has it, or were removed while a member was away.

use crate::damage::{BLOCK, Rig, files, rig, rig_of};
use crate::unusable::settle;
use std::collections::BTreeSet;
use std::time::Duration;
use vazao_client::{File, NewInode, OpenMode};
use vazao_disk::{Disk, Open};
use vazao_meter::Clock;
use vazao_model::Code;
use vazao_model::ids::ROOT;
use vazao_sim::clock::Pause;
use vazao_sim::network::End;
use vazao_wire::transport::submit;
use vazao_wire::{op, proto};

/// Removes what a member has of its objects in groups whose names end so.
fn take(rig: &Rig, member: usize, ends: &[&str]) {
    let disk = rig.cluster.disk(member);
    for path in ends.iter().flat_map(|end| files(&disk, "groups", end)) {
        disk.remove(&path).expect("is there");
    }
}

/// All servers are killed; the one that is the first to lead is to lack the object. Which one that was.
fn lead_without(rig: &Rig, ends: &[&str]) -> Option<usize> {
    let members = rig.members();
    for member in &members {
        rig.cluster.end(*member, End::Kill);
    }
    let lacks = members[0];
    take(rig, lacks, ends);
    rig.cluster.clock().sleep(Duration::from_secs(1));
    Some(lacks).filter(|_| rig.members()[0] == lacks)
}

/// What the first one to lead lacked was removed from all others, as if the file had been removed while they were away.
#[test]
fn an_object_that_is_gone_where_it_is_led_first_is_fetched_from_a_member_that_had_everything() {
    let mut has_led = BTreeSet::new();
    for ends in [&[".data", ".sums"][..], &[".data"]] {
        for (copies, seed) in [(2, 3), (2, 4), (2, 5), (3, 3), (3, 4)] {
            let mut rig = rig_of(copies, seed);
            settle(&rig);
            let which = format!("{ends:?}, {copies} copies, seed {seed}");
            has_led.insert(lead_without(&rig, ends).is_some());
            assert_eq!(rig.read(), rig.bytes, "{which}");
            rig.file.write_at(&[7; 100], 10).unwrap_or_else(|error| panic!("{which}: {error}"));
            rig.file.sync().unwrap_or_else(|error| panic!("{which}: {error}"));
            rig.bytes[10..110].fill(7);
            rig.rest();
            rig.rest();
            assert_eq!(rig.members().len(), copies as usize, "{which}");
            rig.all_are_whole();
            assert_eq!(rig.found(true), [], "{which}");
            let missing: u64 = rig.members().into_iter().map(|member| rig.told(member).1).sum();
            assert_eq!(missing, 0, "{which}");
        }
    }
    assert!(has_led.contains(&true), "one without the object is to lead");
}

/// Two of three lack it. The third one is walked when the second counts.
#[test]
fn an_object_that_is_left_at_one_of_three_members_comes_back_to_all() {
    let rig = rig_of(3, 4);
    settle(&rig);
    let members = rig.members();
    for member in &members {
        rig.cluster.end(*member, End::Kill);
    }
    [members[0], members[1]].into_iter().for_each(|member| take(&rig, member, &[".data", ".sums"]));
    rig.rest();
    rig.rest();
    assert_eq!(rig.read(), rig.bytes);
    rig.rest();
    assert_eq!(rig.members().len(), 3);
    rig.all_are_whole();
}

/// Removed from a member that was away, by the primary that knows what it missed, and by one that compares all.
#[test]
fn what_was_removed_while_a_member_was_away_is_removed_there() {
    for starts_anew in [false, true] {
        let rig = rig(2);
        settle(&rig);
        let members = rig.members();
        rig.cluster.pause(members[1], Pause::Stopped, Duration::from_secs(60));
        rig.cluster.clock().sleep(Duration::from_secs(10));
        assert_eq!(rig.members(), [members[0]]);
        rig.client.unlink(ROOT, b"f").expect("fair weather");
        drop(rig.file);
        rig.cluster.clock().sleep(Duration::from_secs(30));
        if starts_anew {
            rig.cluster.end(members[0], End::Kill);
        }
        rig.cluster.clock().sleep(Duration::from_secs(60));
        let record = rig.cluster.meta().expect("it is up").record_of_group(rig.group).expect("it has one");
        assert_eq!(record.current().count(), 2, "{starts_anew}");
        for member in members {
            assert_eq!(
                files(&rig.cluster.disk(member), "groups", ".data"),
                [""; 0],
                "{starts_anew}, {member}"
            );
        }
    }
}

/// A copy of before, where newer bytes were acknowledged since, is neither taken for the file nor removed.
#[test]
fn an_older_copy_of_what_is_lost_is_kept_until_the_file_goes() {
    let rig = rig(2);
    settle(&rig);
    let members = rig.members();
    rig.cluster.pause(members[1], Pause::Stopped, Duration::from_secs(60));
    rig.cluster.clock().sleep(Duration::from_secs(10));
    assert_eq!(rig.members(), [members[0]]);
    rig.file.write_at(&[7; BLOCK], BLOCK as u64).expect("one has it");
    rig.file.sync().expect("one has it");
    settle(&rig);
    rig.cluster.end(members[0], End::Kill);
    take(&rig, members[0], &[".data", ".sums"]);
    rig.cluster.clock().sleep(Duration::from_secs(90));
    assert_eq!(rig.members(), [members[0]], "the other one has not got everything");
    let kept = files(&rig.cluster.disk(members[1]), "groups", ".data");
    assert_eq!(kept.len(), 1, "it is the last copy there is");
    let read = rig.file.read_at(&mut [0; 100], 0).map_err(|error| error.code);
    assert_eq!(read, Err(Code::Corrupt), "it is lost");
    assert_eq!(rig.told(members[0]).1, 1, "an operator is told");
    rig.client.unlink(ROOT, b"f").expect("fair weather");
    drop(rig.file);
    rig.cluster.clock().sleep(Duration::from_secs(60));
    let record = rig.cluster.meta().expect("it is up").record_of_group(rig.group).expect("it has one");
    assert_eq!(record.current().count(), 2, "nothing else is in the way");
    assert_eq!(files(&rig.cluster.disk(members[1]), "groups", ".data"), [""; 0]);
}

/// The last block of the object at a member is damaged, or whole again.
fn set_last(rig: &Rig, member: usize, is_damaged: bool) {
    let at = 2 * BLOCK + 5;
    let disk = rig.cluster.disk(member);
    let data = disk.open(&files(&disk, "groups", ".data")[0], Open::Existing).expect("is there");
    let byte = if is_damaged { rig.bytes[at] ^ 0x55 } else { rig.bytes[at] };
    data.write_at(&[byte], at as u64).and_then(|()| data.sync()).expect("is there");
}

fn fetches(rig: &Rig, member: usize) -> bool {
    !files(&rig.cluster.disk(member), "", "FETCHING").is_empty()
}

/// One that leads without the object, and can fetch all of it but its last block.
fn begun() -> (Rig, Vec<usize>) {
    for seed in 3..9 {
        let rig = rig_of(2, seed);
        settle(&rig);
        let members = rig.members();
        set_last(&rig, members[1], true);
        if lead_without(&rig, &[".data", ".sums"]).is_some() {
            rig.rest();
            assert_eq!(rig.members(), [members[0]], "{seed}: its last block cannot be had");
            assert!(fetches(&rig, members[0]), "{seed}");
            return (rig, members);
        }
    }
    panic!("one without the object is to lead");
}

/// A part of it would pass for all of it, with zeros for the rest.
#[test]
fn a_server_that_is_killed_while_it_fetches_what_it_lost_goes_on_with_it() {
    let (rig, members) = begun();
    for _ in 0..2 {
        rig.cluster.end(members[0], End::Kill);
        rig.rest();
        assert!(rig.file.read_at(&mut [0; 100], 0).is_err(), "a part of it is not read");
        assert_eq!(rig.members(), [members[0]], "it leads all the same");
    }
    set_last(&rig, members[1], false);
    rig.cluster.clock().sleep(Duration::from_secs(90));
    assert_eq!(rig.read(), rig.bytes);
    assert_eq!(rig.members().len(), 2);
    rig.all_are_whole();
    assert!(!fetches(&rig, members[0]));
}

/// What came after the removal would have made it again, with zeros for what had come before.
#[test]
fn a_file_that_is_removed_while_it_is_fetched_is_gone() {
    for is_killed in [false, true] {
        let (rig, members) = begun();
        rig.client.unlink(ROOT, b"f").expect("fair weather");
        if is_killed {
            rig.cluster.end(members[0], End::Kill);
        }
        let Rig { cluster, group, file, .. } = rig;
        drop(file);
        cluster.clock().sleep(Duration::from_secs(90));
        let record = cluster.meta().expect("it is up").record_of_group(group).expect("it has one");
        assert_eq!(record.current().count(), 2, "{is_killed}");
        for member in members {
            let disk = cluster.disk(member);
            assert_eq!(files(&disk, "groups", ".data"), [""; 0], "{is_killed}");
            assert_eq!(files(&disk, "", "FETCHING"), [""; 0], "{is_killed}");
        }
    }
}

/// Further files, each of one object.
fn write_files(rig: &Rig) -> Vec<File> {
    let mode = OpenMode { read: true, write: true, ..OpenMode::default() };
    let create = |file: usize| {
        let new = NewInode { mode: 0o600, ..NewInode::default() };
        let name = format!("g{file}");
        let inode = rig.client.create(ROOT, name.as_bytes(), &new).expect("fair weather").inode;
        let opened = rig.client.open_file(inode, mode).expect("fair weather");
        opened.write_at(&bytes_of(file), 0).expect("fair weather");
        opened.sync().expect("fair weather");
        opened
    };
    (0..60).map(create).collect()
}

fn bytes_of(file: usize) -> Vec<u8> {
    vec![file as u8 + 1; 100_000 + file]
}

fn read_files(written: &[File]) {
    for (file, opened) in written.iter().enumerate() {
        let mut read = vec![0; 200_000];
        let count = opened.read_at(&mut read, 0).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(read[..count] == bytes_of(file), "{file}");
    }
}

/// All objects are the same at both members, which count and fetch nothing.
fn all_are_there(rig: &Rig, members: &[usize]) {
    assert_eq!(rig.read(), rig.bytes);
    assert_eq!(rig.members().len(), 2);
    assert!(!fetches(rig, members[0]) && !fetches(rig, members[1]));
    let [one, other] = [0, 1].map(|index| files(&rig.cluster.disk(members[index]), "groups", ".data"));
    assert_eq!((one.len(), one), (61, other));
}

/// Of many objects one was known as being fetched when the server was killed; of all others the next process knew no
/// member that had everything.
#[test]
fn all_that_is_lost_is_fetched_also_by_the_next_process() {
    let rig = rig_of(2, 4);
    let written = write_files(&rig);
    settle(&rig);
    let members = rig.members();
    members.iter().for_each(|member| rig.cluster.end(*member, End::Kill));
    take(&rig, members[0], &[".data", ".sums"]);
    // Until it knows what it lacks.
    for _ in 0..100 {
        if !fetches(&rig, members[0]) {
            rig.cluster.clock().sleep(Duration::from_millis(50));
        }
    }
    for _ in 0..3 {
        rig.cluster.end(members[0], End::Kill);
        let here = files(&rig.cluster.disk(members[0]), "groups", ".data").len();
        assert!((1..61).contains(&here), "it is at it: {here}");
        rig.cluster.clock().sleep(Duration::from_millis(700));
    }
    rig.cluster.clock().sleep(Duration::from_secs(90));
    read_files(&written);
    all_are_there(&rig, &members);
}

/// Each waited for the other: a member that made one object anew from a copy that counted said that it might have lost
/// what it had answered, for as long as it fetched others from the member that waited for it.
#[test]
fn members_that_have_lost_different_objects_fetch_them_from_one_another() {
    for seed in 3..7 {
        let rig = rig_of(2, seed);
        let written = write_files(&rig);
        settle(&rig);
        let members = rig.members();
        members.iter().for_each(|member| rig.cluster.end(*member, End::Kill));
        for (index, member) in members.iter().enumerate() {
            let disk = rig.cluster.disk(*member);
            let data = files(&disk, "groups", ".data").into_iter().enumerate();
            for (_, path) in data.filter(|(at, _)| at % 4 == index) {
                disk.remove(&path).expect("is there");
                disk.remove(&path.replace(".data", ".sums")).expect("is there");
            }
        }
        rig.cluster.clock().sleep(Duration::from_millis(500 * seed));
        read_files(&written);
        rig.cluster.clock().sleep(Duration::from_secs(90));
        read_files(&written);
        all_are_there(&rig, &members);
    }
}

/// Of a client that does not know that the object was written: what it does not bring would be zeros.
#[test]
fn a_change_makes_no_object_that_is_lost() {
    let write = |rig: &Rig, member: usize| {
        let address = proto::ObjectAddress { target: 0, change: 7, ..rig.address(member) };
        let checksums = vazao_model::checksum::piece_checksums(0, &[7; 100]);
        let request = proto::WriteRequest { object: Some(address), checksums, ..Default::default() };
        let deadline_ns = rig.cluster.clock().now_ns() + 3_000_000_000;
        let (transport, server) = (rig.cluster.transport(), format!("data{member}:7070"));
        submit::<op::Write>(transport, &server, &request, &[7; 100], deadline_ns).wait().map(drop)
    };
    for seed in 3..9 {
        let rig = rig_of(2, seed);
        settle(&rig);
        let members = rig.members();
        rig.cluster.pause(members[1], Pause::Stopped, Duration::from_secs(30));
        if lead_without(&rig, &[".data", ".sums"]).is_none() {
            continue;
        }
        rig.cluster.clock().sleep(Duration::from_secs(6));
        assert_eq!(write(&rig, members[0]).map_err(|fault| fault.code), Err(Code::Unavailable));
        rig.cluster.clock().sleep(Duration::from_secs(60));
        write(&rig, members[0]).expect("it is there again");
        let mut read = vec![0; 200];
        rig.file.read_at(&mut read, 0).expect("it is there again");
        assert_eq!((&read[..100], &read[100..]), (&[7; 100][..], &rig.bytes[100..200]));
        assert_eq!(rig.members().len(), 2);
        return;
    }
    panic!("one without the object is to lead");
}
