//! A placement group that was just made, and is written to at once: its members hear of it when they are asked, and
//! wait for no leases of processes that there never were.

use std::collections::BTreeSet;
use std::time::Duration;
use vazao_client::{NewInode, OpenMode};
use vazao_meter::Clock;
use vazao_model::checksum::piece_checksums;
use vazao_model::ids::ROOT;
use vazao_model::{GroupId, LayoutHint, TargetId};
use vazao_sim::{Cluster, ClusterOptions};
use vazao_wire::transport::submit;
use vazao_wire::{op, proto};

/// A cluster whose data servers have just reported: the next heartbeat is 1.9 s away.
fn cluster(data_servers: usize) -> Cluster {
    let cluster = Cluster::new(ClusterOptions { seed: 1, data_servers, down_ms_max: 100 });
    cluster.clock().tick_for_leases();
    cluster.clock().sleep(Duration::from_millis(6_100));
    cluster
}

/// The machines whose members know a group.
fn knowing(cluster: &Cluster, id: GroupId) -> BTreeSet<usize> {
    let views = cluster.memberships().into_iter();
    let knows = views.filter(|(_, views)| views.iter().any(|view| view.group == id));
    knows.map(|(number, _)| number).collect()
}

/// Servers heard of their groups with the next heartbeat.
#[test]
fn a_server_that_is_asked_for_a_group_that_it_does_not_know_asks_for_it_and_so_do_the_other_members() {
    let cluster = cluster(3);
    let targets = [TargetId(1), TargetId(2)];
    let id = cluster.meta().expect("it is up").make_group(&targets).expect("different machines");
    cluster.clock().sleep(Duration::from_millis(100));
    assert_eq!(knowing(&cluster, id), BTreeSet::new(), "no one has asked for it");
    // A number that the metadata service has not given out yet: it takes the object for no orphan.
    let (inode, generation) = (1 << 40, 1);
    let object = Some(proto::ObjectAddress { inode, generation, group: id.0, ..Default::default() });
    let request =
        proto::WriteRequest { object, checksums: piece_checksums(0, &[7; 100]), ..Default::default() };
    let deadline_ns = cluster.clock().now_ns() + 1_000_000_000;
    let sent = submit::<op::Write>(cluster.transport(), "data1:7070", &request, &[7; 100], deadline_ns);
    sent.wait().map(drop).expect_err("it does not know the group yet");
    cluster.clock().sleep(Duration::from_millis(400));
    assert_eq!(knowing(&cluster, id), BTreeSet::from([1, 2]), "the second one by the first one's questions");
}

/// It took up to 4 s: the next heartbeat, and then leases of processes before these, of which there were none.
#[test]
fn the_first_write_of_a_volume_with_copies_waits_for_no_heartbeat_and_no_former_leases() {
    for copies in [2, 3] {
        let cluster = cluster(4);
        let client = cluster.client(0);
        client.set_layout_hint(ROOT, LayoutHint { copies, ..LayoutHint::default() }).expect("fair weather");
        let begun_ns = cluster.clock().now_ns();
        let inode = client.create(ROOT, b"f", &NewInode { mode: 0o600, ..NewInode::default() });
        let inode = inode.expect("fair weather").inode;
        let mode = OpenMode { read: true, write: true, ..OpenMode::default() };
        let file = client.open_file(inode, mode).expect("fair weather");
        file.write_at(&vec![7; 1 << 20], 0).expect("fair weather");
        file.sync().expect("fair weather");
        let took_ms = (cluster.clock().now_ns() - begun_ns) / 1_000_000;
        assert!(took_ms < 500, "{took_ms} ms with {copies} copies");
        let mut read = vec![0; 1 << 20];
        assert_eq!(file.read_at(&mut read, 0).expect("fair weather"), read.len());
        assert!(read.iter().all(|byte| *byte == 7));
        file.close().expect("fair weather");
    }
}
