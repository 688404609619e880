//! The loss of power between a write and its fsync, on a disk that loses what was not synced.

use vazao_client::{File, OpenMode};
use vazao_model::Code;
use vazao_model::LayoutHint;
use vazao_model::ids::ROOT;
use vazao_sim::network::End;
use vazao_sim::{Cluster, ClusterOptions};

const MODE: OpenMode = OpenMode { read: true, write: true, truncate: false };
const LENGTH: usize = 300_000;

fn bytes(seed: u8) -> Vec<u8> {
    (0..LENGTH).map(|at| (at / 977) as u8 ^ seed | 1).collect()
}

fn whole(file: &File) -> Vec<u8> {
    let mut found = vec![0; LENGTH];
    assert_eq!(file.read_at(&mut found, 0).expect("is whole"), LENGTH);
    found
}

/// An fsync reported the loss of power, and the next one returned 0 with nothing written in between.
#[test]
fn what_an_fsync_could_not_make_durable_fails_every_later_one_until_it_is_written_again() {
    for seed in 0..20 {
        let cluster = Cluster::new(ClusterOptions { seed, data_servers: 2, down_ms_max: 500 });
        let client = cluster.client(0);
        let hint = LayoutHint { stripe_unit_bytes: 64 << 10, width: 0, ..LayoutHint::default() };
        client.set_layout_hint(ROOT, hint).expect("fair weather");
        let new = vazao_client::NewInode { mode: 0o600, ..Default::default() };
        let inode = client.create(ROOT, b"f", &new).expect("fair weather").inode;
        let file = client.open_file(inode, MODE).expect("fair weather");
        file.write_at(&bytes(1), 0).expect("fair weather");
        file.sync().expect("fair weather");
        file.write_at(&bytes(2), 0).expect("fair weather");
        file.flush().expect("fair weather");
        cluster.end(1, End::PowerLoss);
        cluster.heal();
        let other = client.open_file(inode, MODE).expect("fair weather");
        for handle in [&file, &other, &file, &other] {
            assert_eq!(handle.sync().expect_err("lost").code, Code::Io, "seed {seed}");
        }
        file.close().expect_err("is not whole");
        other.close().expect_err("is not whole");
        let again = client.open_file(inode, MODE).expect("fair weather");
        assert_eq!(again.sync().expect_err("lost").code, Code::Io, "seed {seed}");
        again.write_at(&bytes(3), 0).expect("fair weather");
        again.sync().expect("everything was written again");
        (1..3).for_each(|number| cluster.end(number, End::PowerLoss));
        cluster.heal();
        let newcomer = cluster.client(1).open_file(inode, MODE).expect("fair weather");
        assert!(whole(&newcomer) == bytes(3), "seed {seed}: an fsync that returned 0 was no fsync");
    }
}

/// A client had made a file longer and closed it; another one cut it, with an fsync. When the metadata service had
/// lost power the first one made it longer again by reading it.
#[test]
fn a_file_that_was_closed_here_and_cut_elsewhere_stays_cut_when_the_metadata_service_loses_power() {
    let cluster = Cluster::new(ClusterOptions { seed: 1, data_servers: 2, down_ms_max: 500 });
    let (one, two) = (cluster.client(1), cluster.client(2));
    let new = vazao_client::NewInode { mode: 0o600, ..Default::default() };
    let inode = one.create(ROOT, b"f", &new).expect("fair weather").inode;
    let file = one.open_file(inode, MODE).expect("fair weather");
    file.write_at(&bytes(1), 0).expect("fair weather");
    file.sync().expect("fair weather");
    file.set_length(2 * LENGTH as u64).expect("fair weather");
    file.close().expect("fair weather");
    let file = two.open_file(inode, MODE).expect("fair weather");
    file.set_length(100_000).expect("fair weather");
    file.sync().expect("fair weather");
    file.close().expect("fair weather");
    cluster.end(0, End::PowerLoss);
    cluster.heal();
    for client in [&one, &two, &cluster.client(3)] {
        let file = client.open_file(inode, MODE).expect("fair weather");
        let mut found = vec![0; 2 * LENGTH];
        assert_eq!(file.read_at(&mut found, 0).expect("is whole"), 100_000);
        file.close().expect("nothing was changed");
    }
}
