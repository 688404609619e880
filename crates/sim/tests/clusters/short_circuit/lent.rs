//! Writes from memory that the data server takes them out of: the same bytes, whatever happens to the door meanwhile.

use super::cluster::{Cluster, READ_WRITE, bytes_by_way, create};
use super::{MIB, pattern};
use std::sync::Arc;
use vazao_client::{Client, SharedBytes};
use vazao_model::InodeId;

fn lent_bytes(client: &Client) -> u64 {
    client.statistics().servers.iter().map(|server| server.bytes_lent).sum()
}

/// Reads the file through the servers only.
fn read_through(cluster: &Cluster, inode: InodeId, length: usize) -> Vec<u8> {
    let client = cluster.client(false);
    let file = client.open_file(inode, READ_WRITE).expect("opens");
    let mut bytes = vec![0xEE; length];
    let count = file.read_at(&mut bytes, 0).expect("reads");
    bytes.truncate(count);
    assert_eq!(bytes_by_way(&client).0, 0);
    bytes
}

#[test]
fn what_is_written_after_the_first_megabyte_is_lent_and_nothing_with_the_switch_off() {
    let cluster = Cluster::start(2);
    let bytes = pattern(9 * MIB + 777, 1);
    for (name, is_on) in [("on", true), ("off", false)] {
        let client = cluster.client(is_on);
        let (inode, file) = create(&client, name, &bytes[..2 * MIB]);
        file.write_at(&bytes[2 * MIB..], 2 * MIB as u64).expect("writes");
        file.sync().expect("syncs");
        assert!(read_through(&cluster, inode, bytes.len() + 1) == bytes);
        let lent = lent_bytes(&client);
        assert_eq!(lent >= 6 * MIB as u64, is_on, "{lent} bytes lent");
    }
}

#[test]
fn shared_bytes_are_lent_where_they_are_when_their_owner_got_the_memory_for_that() {
    let cluster = Cluster::start(1);
    let client = cluster.client(true);
    let (inode, file) = create(&client, "file", &pattern(2 * MIB, 2));
    let bytes = pattern(4 * MIB, 3);
    for (part, shared) in bytes.chunks(MIB).enumerate() {
        let mut buffer = client.send_buffer(MIB);
        buffer.copy_from_slice(shared);
        let buffer: SharedBytes = Arc::new(buffer);
        file.write_shared(&buffer, 0..MIB, (part * MIB) as u64).expect("writes");
    }
    file.flush().expect("flushes");
    assert!(read_through(&cluster, inode, 4 * MIB) == bytes);
    let lent = lent_bytes(&client);
    assert!(lent >= 4 * MIB as u64, "{lent} bytes lent");
}

#[test]
fn a_door_that_sends_everybody_away_all_the_time_loses_nothing() {
    let cluster = Cluster::start(2);
    let client = cluster.client(true);
    let bytes = pattern(48 * MIB, 4);
    let (inode, file) = create(&client, "file", &bytes[..4 * MIB]);
    std::thread::scope(|scope| {
        let busy = Arc::new(());
        let is_busy = Arc::downgrade(&busy);
        let door = &cluster.door;
        scope.spawn(move || {
            while is_busy.strong_count() > 0 {
                door.send_away();
                std::thread::yield_now();
            }
        });
        for (part, some) in bytes.chunks(MIB / 2).enumerate() {
            file.write_at(some, (part * MIB / 2) as u64).expect("writes");
        }
        file.sync().expect("syncs");
        drop(busy);
    });
    assert!(read_through(&cluster, inode, bytes.len()) == bytes);
}

#[test]
fn a_server_without_a_door_is_written_to_as_ever() {
    let mut cluster = Cluster::start(1);
    cluster.door.close();
    let client = cluster.client(true);
    let bytes = pattern(5 * MIB, 5);
    let (inode, file) = create(&client, "file", &bytes);
    file.write_at(&bytes, 0).expect("writes again");
    file.flush().expect("flushes");
    assert!(read_through(&cluster, inode, 5 * MIB) == bytes);
    assert_eq!(lent_bytes(&client), 0);
}
