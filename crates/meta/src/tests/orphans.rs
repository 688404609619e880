//! Unlinked but open, sessions that end, objects to be removed.

use super::harness::{Servers, TOP, World, options};
use std::sync::Arc;
use std::time::Duration;
use vazao_disk::MemoryDisk;
use vazao_model::{Code, InodeId};
use vazao_wire::{op, proto};

fn renew(world: &World, held: &[u64], not_held: &[u64]) -> Result<Vec<u64>, Code> {
    let request = proto::RenewSessionRequest {
        session: world.session,
        held: held.to_vec(),
        not_held: not_held.to_vec(),
        ..Default::default()
    };
    world.call::<op::RenewSession>(&request).map(|response| response.orphans)
}

fn release(world: &World, inode: InodeId) {
    let request = proto::ReleaseRequest { session: world.session, inodes: vec![inode.0] };
    world.call::<op::Release>(&request).unwrap();
}

#[test]
fn the_only_client_ends_a_file_that_it_does_not_have_open() {
    let world = World::new();
    let f = world.file(TOP, "f");
    world.remove(TOP, "f", false).unwrap();
    assert_eq!(world.stat(f), Err(Code::Stale));
    world.assert_consistent();
}

#[test]
fn a_file_unlinked_while_its_client_has_it_open_lives_until_released() {
    let world = World::new();
    let f = world.file(TOP, "f");
    world.remove_held(TOP, "f", false, f).unwrap();
    assert_eq!(world.stat(f).unwrap().links, 0);
    assert_eq!(world.link(f, TOP, "back"), Err(Code::NotFound));
    world.assert_consistent();
    assert_eq!(renew(&world, &[], &[]), Ok(vec![f.0]));
    assert_eq!(renew(&world, &[f.0], &[]), Ok(vec![f.0]), "asked again as long as it is held");
    release(&world, f);
    assert_eq!(world.stat(f), Err(Code::Stale));
    assert_eq!(renew(&world, &[], &[]), Ok(vec![]));
    world.assert_consistent();
}

#[test]
fn other_clients_are_asked_before_a_file_ends() {
    let world = World::new();
    let (second, third) = (world.another_client(), world.another_client());
    let f = world.file(TOP, "f");
    world.remove(TOP, "f", false).unwrap();
    assert_eq!(renew(&world, &[], &[]), Ok(vec![]), "the caller has said that it is not open");
    assert_eq!(renew(&second, &[], &[]), Ok(vec![f.0]));
    assert_eq!(renew(&second, &[f.0], &[]), Ok(vec![f.0]));
    renew(&third, &[], &[f.0]).unwrap();
    assert_eq!(second.stat(f).unwrap().links, 0);
    world.assert_consistent();
    let late = world.another_client();
    assert_eq!(renew(&late, &[], &[]), Ok(vec![]), "who came later cannot have it open");
    renew(&second, &[], &[f.0]).unwrap();
    assert_eq!(world.stat(f), Err(Code::Stale));
    world.assert_consistent();
}

#[test]
fn what_rename_replaces_is_treated_like_what_is_unlinked() {
    let world = World::new();
    let second = world.another_client();
    let (f, _g) = (world.file(TOP, "f"), world.file(TOP, "g"));
    world.rename((TOP, "g"), (TOP, "f"), 0).unwrap();
    assert_eq!(renew(&second, &[], &[]), Ok(vec![f.0]));
    let request = proto::CloseSessionRequest { session: second.session };
    second.call::<op::CloseSession>(&request).unwrap();
    assert_eq!(world.stat(f), Err(Code::Stale));
    world.assert_consistent();
}

#[test]
fn a_session_ends_when_its_lease_does_and_takes_its_holds_along() {
    let world = World::new();
    let second = world.another_client();
    let servers = Servers::default();
    let files: Vec<InodeId> = (0..300).map(|n| world.file(TOP, &format!("f{n}"))).collect();
    (0..300).for_each(|n| {
        world.remove(TOP, &format!("f{n}"), false).unwrap();
    });
    for _ in 0..3 {
        world.clock.advance(Duration::from_secs(25));
        renew(&world, &[], &[]).unwrap();
        world.service.tick(&servers);
    }
    assert_eq!(renew(&second, &[], &[]), Err(Code::SessionExpired));
    assert!(files.iter().all(|&f| world.stat(f) == Err(Code::Stale)));
    let late = proto::CreateRequest {
        once: second.once(),
        parent: TOP.0,
        name: b"late".to_vec(),
        kind: 1,
        ..Default::default()
    };
    assert_eq!(second.call::<op::Create>(&late).map(|_| ()), Err(Code::SessionExpired));
    world.assert_consistent();
    let again = proto::CloseSessionRequest { session: second.session };
    assert!(second.call::<op::CloseSession>(&again).is_ok(), "closing twice is closing");
}

#[test]
fn a_client_with_very_many_orphans_is_asked_about_all_of_them_in_turn() {
    let world = World::new();
    let second = world.another_client();
    for n in 0..1500 {
        world.file(TOP, &format!("f{n}"));
        world.remove(TOP, &format!("f{n}"), false).unwrap();
    }
    let mut asked: std::collections::BTreeSet<u64> = Default::default();
    for _ in 0..2 {
        asked.extend(renew(&second, &[], &[]).unwrap());
    }
    assert_eq!(asked.len(), 1500);
    let all: Vec<u64> = asked.into_iter().collect();
    assert_eq!(renew(&second, &[], &all), Ok(vec![]));
    world.assert_consistent();
}

#[test]
fn objects_of_deleted_and_truncated_files_are_removed_when_their_server_answers() {
    let world = World::new();
    world.data_server("a");
    world.data_server("b");
    let servers = Servers::default();
    let (f, g) = (world.file(TOP, "f"), world.file(TOP, "g"));
    let (of_f, of_g) = (world.assign_layout(f).unwrap(), world.assign_layout(g).unwrap());
    world.service.tick(&servers);
    assert!(servers.removed().is_empty());

    let truncate =
        proto::OpenRequest { once: world.once(), inode: g.0, truncate: true, ..Default::default() };
    world.call::<op::Open>(&truncate).unwrap();
    world.remove(TOP, "f", false).unwrap();
    servers.set_down("b:1", true);
    world.service.tick(&servers);
    world.service.tick(&servers);
    assert_eq!(servers.removed().len(), 2, "each object once, of the server that is up");
    servers.set_down("b:1", false);
    world.service.tick(&servers);
    let mut expected = Vec::new();
    for (inode, layout) in [(f, of_f), (g, of_g)] {
        for (slot, target) in (0..).zip(layout.groups) {
            expected.push((target, inode.0, layout.generation, slot));
        }
    }
    let mut removed = servers.removed();
    removed.sort();
    expected.sort();
    assert_eq!(removed, expected);
    world.service.tick(&servers);
    assert_eq!(servers.removed().len(), 4);
    world.assert_consistent();
}

#[test]
fn silent_servers_are_not_asked_and_do_not_hold_up_the_others() {
    let world = World::new();
    let servers = Servers::default();
    world.data_server("silent");
    let before: Vec<String> = (0..300).map(|n| format!("f{n}")).collect();
    for name in &before {
        world.assign_layout(world.file(TOP, name)).unwrap();
    }
    world.clock.advance(Duration::from_secs(20));
    world.data_server("up");
    let f = world.file(TOP, "f");
    world.assign_layout(f).unwrap();
    for name in before.iter().map(String::as_str).chain(["f"]) {
        world.remove(TOP, name, false).unwrap();
    }
    (0..2).for_each(|_| world.service.tick(&servers));
    assert_eq!(servers.removed().iter().map(|object| object.1).collect::<Vec<_>>(), [f.0]);
    assert_eq!(servers.calls(), 1);
}

/// A renewal that lists what is open of what was shown before `covers`; returns the round of the answer.
fn tell(world: &World, covers: u64, open: &[u64]) -> u64 {
    let request = proto::RenewSessionRequest {
        session: world.session,
        covers_round: Some(covers),
        open: open.to_vec(),
        ..Default::default()
    };
    world.call::<op::RenewSession>(&request).unwrap().round
}

/// A client of which it is known that it has nothing open, and the last round it was answered with.
fn idle_client(world: &World) -> (World, u64) {
    let client = world.another_client();
    let round = tell(&client, 0, &[]);
    let round = tell(&client, round, &[]);
    (client, round)
}

fn open(world: &World, inode: InodeId) -> Result<(), Code> {
    let request = proto::OpenRequest { inode: inode.0, session: world.session, ..Default::default() };
    world.call::<op::Open>(&request).map(drop)
}

#[test]
fn a_client_that_is_known_not_to_have_a_file_open_is_not_asked_about_it() {
    let world = World::new();
    let (second, round) = idle_client(&world);
    let (f, g, h) = (world.file(TOP, "f"), world.file(TOP, "g"), world.file(TOP, "h"));
    open(&second, g).unwrap();
    open(&second, h).unwrap();
    for name in ["f", "g"] {
        world.remove(TOP, name, false).unwrap();
    }
    assert_eq!(world.stat(f), Err(Code::Stale), "nobody has it open");
    assert_eq!(world.stat(g).unwrap().links, 0);
    assert_eq!(renew(&second, &[], &[]), Ok(vec![g.0]));
    release(&second, g);
    assert_eq!(world.stat(g), Err(Code::Stale));
    let round = tell(&second, round, &[]);
    tell(&second, round, &[h.0]);
    world.remove(TOP, "h", false).unwrap();
    assert_eq!(world.stat(h).unwrap().links, 0, "it has said that it has it still");
    world.assert_consistent();
}

/// A mount removed a file and made a new one under its name. Another mount, whose kernel had not invalidated the name
/// yet, opened the removed file and wrote to it: data that was written and synced was lost with the last close.
#[test]
fn a_file_that_has_lost_its_last_name_is_opened_only_by_clients_that_may_have_it_open() {
    let world = World::new();
    let (second, _) = idle_client(&world);
    let f = world.file(TOP, "f");
    world.remove_held(TOP, "f", false, f).unwrap();
    assert_eq!(open(&second, f), Err(Code::Stale), "its path leads nowhere any more");
    open(&world, f).unwrap();
    release(&world, f);
    assert_eq!(world.stat(f), Err(Code::Stale));
    world.assert_consistent();
}

#[test]
fn what_a_client_has_created_it_has_open_until_it_says_otherwise() {
    let world = World::new();
    let (second, round) = idle_client(&world);
    let f = second.file(TOP, "f");
    let unnamed = proto::CreateRequest { parent: TOP.0, kind: 1, unnamed: true, ..Default::default() };
    let g = InodeId(second.create_as(unnamed).unwrap().attributes.unwrap().inode);
    second.link(g, TOP, "g").unwrap();
    let h = second.file(TOP, "h");
    for (inode, name) in [(f, "f"), (g, "g")] {
        world.remove(TOP, name, false).unwrap();
        assert_eq!(world.stat(inode).map(|a| a.links), Ok(0), "{name}");
    }
    let round = tell(&second, round, &[f.0, g.0]);
    tell(&second, round, &[f.0, g.0]);
    world.remove(TOP, "h", false).unwrap();
    assert_eq!(world.stat(h), Err(Code::Stale), "it was closed again");
    world.assert_consistent();
}

#[test]
fn after_a_restart_every_client_may_have_anything_open_until_it_has_told() {
    let disk = MemoryDisk::new(1);
    let first = World::on(Arc::new(disk.boot()), options("embedded"));
    let (second, round) = idle_client(&first);
    let (f, g) = (first.file(TOP, "f"), first.file(TOP, "g"));
    open(&second, f).unwrap();
    disk.kill();
    let world = first.started_again(&disk, options("embedded"));
    let second = world.as_session(second.session);
    world.remove(TOP, "f", false).unwrap();
    assert_eq!(world.stat(f).unwrap().links, 0);
    let round = tell(&second, round, &[]);
    let round = tell(&second, round, &[f.0]);
    tell(&second, round, &[f.0]);
    world.remove(TOP, "g", false).unwrap();
    assert_eq!(world.stat(g), Err(Code::Stale));
    assert_eq!(world.stat(f).unwrap().links, 0);
    world.assert_consistent();
}

/// Race: an open answered between a removal's check for opens and its commit would be lost.
#[test]
fn a_file_that_was_opened_is_there_however_close_its_removal_came() {
    const FILES: usize = 2000;
    let world = World::new();
    let (second, _) = idle_client(&world);
    let files: Vec<InodeId> = (0..FILES).map(|n| world.file(TOP, &format!("f{n}"))).collect();
    let turn = std::sync::Barrier::new(2);
    let opened: Vec<bool> = std::thread::scope(|scope| {
        let removing = scope.spawn(|| {
            for n in 0..FILES {
                turn.wait();
                world.remove(TOP, &format!("f{n}"), false).unwrap();
            }
        });
        let open_next = |&file: &InodeId| {
            turn.wait();
            open(&second, file).is_ok()
        };
        let opened = files.iter().map(open_next).collect();
        removing.join().unwrap();
        opened
    });
    for (file, opened) in files.iter().zip(opened) {
        assert_eq!(world.stat(*file).is_ok(), opened, "{file}");
    }
}
