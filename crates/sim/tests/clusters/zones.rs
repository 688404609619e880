//! Directories whose files are placed in zones, while machines of these zones end and fill up.

use std::cell::Cell;
use vazao_client::{Client, Convert, NewInode, OpenMode};
use vazao_meter::Clock;
use vazao_model::ids::ROOT;
use vazao_model::{FileKind, InodeId, LayoutHint, Placement};
use vazao_sim::network::End;
use vazao_sim::{Cluster, ClusterOptions};

const MODE: OpenMode = OpenMode { read: true, write: true, truncate: false };

fn bytes(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 977) as u8 ^ seed | 1).collect()
}

fn hint(placement: Placement) -> LayoutHint {
    let placement = Some(placement);
    LayoutHint { stripe_unit_bytes: 64 << 10, placement, ..LayoutHint::default() }
}

fn zone(name: &str) -> Placement {
    Placement::Zone(name.to_owned())
}

/// Four data servers, the first and the third in rio, the others in bra.
fn start(seed: u64) -> Cluster {
    Cluster::in_zones(ClusterOptions { seed, data_servers: 4, down_ms_max: 500 }, &["rio", "bra"])
}

fn directory(client: &Client, name: &str, placement: Placement) -> InodeId {
    let new = NewInode { kind: FileKind::Directory, mode: 0o700, ..NewInode::default() };
    let inode = client.create(ROOT, name.as_bytes(), &new).expect("fair weather").inode;
    client.set_layout_hint(inode, hint(placement)).expect("the zone has targets");
    inode
}

fn write(client: &Client, directory: InodeId, name: &str, contents: &[u8]) -> InodeId {
    let new = NewInode { mode: 0o600, ..NewInode::default() };
    let inode = client.create(directory, name.as_bytes(), &new).expect("is created").inode;
    let file = client.open_file(inode, MODE).expect("opens");
    file.write_at(contents, 0).expect("is written");
    file.sync().expect("is stored");
    inode
}

fn read(client: &Client, inode: InodeId) -> Vec<u8> {
    let file = client.open_file(inode, MODE).expect("opens");
    let mut found = vec![0; file.attributes().expect("is there").size as usize];
    assert_eq!(file.read_at(&mut found, 0).expect("is whole"), found.len());
    found
}

/// The targets of a file.
fn targets(client: &Client, inode: InodeId) -> Vec<u32> {
    let layout = client.layout(inode).expect("asks").expect("has objects");
    let map = client.refresh_map().expect("asks");
    let mut targets: Vec<u32> =
        layout.groups.iter().flat_map(|group| map.members(*group)).map(|target| target.0).collect();
    targets.sort_unstable();
    targets
}

#[test]
fn files_lie_in_the_zone_of_their_writer_through_ends_of_servers() {
    let cluster = start(1);
    let (rio, bra, nowhere) = (cluster.client_in("rio", 0), cluster.client_in("bra", 1), cluster.client(2));
    let near = directory(&rio, "near", Placement::NearWriter);
    let contents = bytes(3, 400_000);
    let files = |round: u32| {
        let name = |who: &str| format!("{who}{round}");
        let (of_rio, of_bra) =
            (write(&rio, near, &name("rio"), &contents), write(&bra, near, &name("bra"), &contents));
        let of_none = write(&nowhere, near, &name("none"), &contents);
        assert_eq!((targets(&rio, of_rio), targets(&bra, of_bra)), (vec![1, 3], vec![2, 4]));
        assert_eq!(targets(&nowhere, of_none), [1, 2, 3, 4]);
        assert!(read(&bra, of_rio) == contents && read(&rio, of_bra) == contents);
        of_rio
    };
    let first = files(0);
    // It knows the zones before the servers have reported again.
    cluster.end(0, End::PowerLoss);
    files(1);
    cluster.heal();
    assert_eq!((targets(&rio, first), rio.zone_missed(first).expect("asks")), (vec![1, 3], None));
}

#[test]
fn a_full_zone_is_missed_and_its_file_moves_there_when_it_has_room() {
    let cluster = start(2);
    let client = cluster.client_in("rio", 0);
    let placed = directory(&client, "placed", zone("rio"));
    for server in [1, 3] {
        cluster.disk(server).set_capacity(1 << 10);
    }
    cluster.heal();
    let contents = bytes(5, 300_000);
    let inode = write(&client, placed, "f", &contents);
    assert_eq!(targets(&client, inode), [2, 4]);
    assert_eq!(client.zone_missed(inode).expect("asks").as_deref(), Some("rio"));
    let how = Convert { hint: hint(zone("rio")), is_dry_run: false, rate_bytes_max: 0 };
    let refused = client.convert(inode, &how, &|_| true).expect_err("there is no room");
    assert!(refused.to_string().contains("no target of zone rio has room"), "{refused}");
    for server in [1, 3] {
        cluster.disk(server).set_capacity(1 << 40);
    }
    cluster.heal();
    let done = client.convert(inode, &how, &|_| true).expect("there is room now");
    assert!(done.is_changed && read(&client, inode) == contents);
    assert_eq!((targets(&client, inode), client.zone_missed(inode).expect("asks")), (vec![1, 3], None));
}

#[test]
fn a_move_between_zones_during_which_servers_die_loses_nothing() {
    for (seed, dies) in [(3, 1), (4, 2), (5, 0)] {
        let cluster = start(seed);
        let client = cluster.client(0);
        let placed = directory(&client, "placed", zone("bra"));
        let contents = bytes(7, 5 << 20);
        let inode = write(&client, placed, "f", &contents);
        let how = Convert { hint: hint(zone("rio")), is_dry_run: false, rate_bytes_max: 0 };
        let ended = Cell::new(false);
        let progress = |_| {
            if !ended.replace(true) {
                cluster.end(dies, End::PowerLoss);
            }
            true
        };
        let moved = client.convert(inode, &how, &progress);
        assert!(ended.get(), "it ended half way");
        cluster.heal();
        assert!(read(&cluster.client(1), inode) == contents, "{dies}: {moved:?}");
        let at = targets(&client, inode);
        assert_eq!(at, if moved.is_ok() { [1, 3] } else { [2, 4] }, "{dies}: {moved:?}");
        cluster.clock().sleep(std::time::Duration::from_secs(1));
        client.convert(inode, &how, &|_| true).expect("all are there again");
        assert!(targets(&client, inode) == [1, 3] && read(&client, inode) == contents);
    }
}
