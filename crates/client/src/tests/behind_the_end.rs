//! What a client that ended without a word left in objects behind the end of a file.

use super::*;
use crate::OpenMode;
use std::mem;

const BOTH: OpenMode = OpenMode { read: true, write: true, truncate: false };

/// A file of `bytes`, and a client that has written 300 kB behind their end and was killed before it could report them.
fn with_leftovers(cluster: &Cluster, bytes: &[u8]) -> vazao_model::InodeId {
    let client = cluster.client();
    let file = create(&client, "f");
    file.write_at(bytes, 0).unwrap();
    file.close().unwrap();
    let killed = cluster.client();
    let file = killed.open_file(client.lookup(ROOT, b"f").unwrap().inode, BOTH).unwrap();
    file.write_at(&[b'X'; 300_000], bytes.len() as u64).unwrap();
    // The bytes reach the data servers, and nothing else does.
    file.zero(0..0).unwrap();
    let mut byte = [0];
    assert_eq!(file.read_at(&mut byte, bytes.len() as u64 + 299_999).unwrap(), 1);
    assert_eq!(byte, *b"X");
    let inode = file.inode();
    mem::forget(file);
    inode
}

fn contents(cluster: &Cluster, inode: vazao_model::InodeId) -> Vec<u8> {
    read_all(&cluster.client().open_file(inode, BOTH).unwrap())
}

/// A mount was killed while a write behind the end was on its way. The file kept its size, rightly; when it was made
/// longer, the new part read as the bytes of that mount, synced and for ever.
#[test]
fn what_a_killed_client_left_behind_the_end_is_not_seen_when_the_file_grows() {
    type Growth = fn(&Client, &File, u64);
    let growths: [(&str, Growth, Vec<u8>); 4] = [
        ("truncate", |_, file, end| file.set_length(end + 250_000).unwrap(), vec![0; 250_000]),
        ("a write behind a gap", |_, file, end| file.write_at(b"new", end + 249_997).unwrap(), {
            let mut grown = vec![0; 249_997];
            grown.extend_from_slice(b"new");
            grown
        }),
        (
            "a copy of a hole",
            |client, file, end| {
                let hole = create(client, "hole");
                hole.set_length(250_000).unwrap();
                assert_eq!(file.copy_from(&hole, 0, end, 250_000).unwrap(), 250_000);
            },
            vec![0; 250_000],
        ),
        ("an append", |_, file, _| assert!(file.append(b"new").is_ok()), b"new".to_vec()),
    ];
    for (how, grow, grown) in growths {
        for length in [20_000, 65_536, 333_391] {
            let cluster = Cluster::new(3);
            let mut expected = pattern(4, length);
            let inode = with_leftovers(&cluster, &expected);
            let client = cluster.client();
            let file = client.open_file(inode, BOTH).unwrap();
            grow(&client, &file, length as u64);
            expected.extend_from_slice(&grown);
            assert!(read_all(&file) == expected, "{how}, before it is reported, of {length} bytes");
            file.sync().unwrap();
            assert!(read_all(&file) == expected, "{how}, of {length} bytes");
            assert!(contents(&cluster, inode) == expected, "{how}, for others, of {length} bytes");
            // What is written there from now on is seen, by all.
            file.write_at(b"later", length as u64 + 1).unwrap();
            file.close().unwrap();
            expected.resize(expected.len().max(length + 6), 0);
            expected[length + 1..length + 6].copy_from_slice(b"later");
            assert!(contents(&cluster, inode) == expected, "{how}, written over, of {length} bytes");
            let copy = create(&client, "copy");
            let file = client.open_file(inode, BOTH).unwrap();
            copy.copy_from(&file, 0, 0, 1 << 20).unwrap();
            assert!(read_all(&copy) == expected, "{how}, copied, of {length} bytes");
        }
    }
}

/// What one client wrote behind the end must not be hidden because another one, which knows nothing of it, makes the
/// file longer first.
#[test]
fn what_a_client_wrote_behind_the_end_is_seen_although_another_one_made_the_file_longer() {
    let cluster = Cluster::new(3);
    let (one, two) = (cluster.client(), cluster.client());
    let first = create(&one, "f");
    first.write_at(&pattern(1, 100_000), 0).unwrap();
    first.flush().unwrap();
    let second = two.open_file(first.inode(), BOTH).unwrap();
    first.write_at(&pattern(2, 50_000), 300_000).unwrap();
    second.write_at(&pattern(3, 10), 500_000).unwrap();
    second.flush().unwrap();
    second.set_length(600_000).unwrap();
    first.flush().unwrap();
    let mut expected = pattern(1, 100_000);
    expected.resize(600_000, 0);
    expected[300_000..350_000].copy_from_slice(&pattern(2, 50_000));
    expected[500_000..500_010].copy_from_slice(&pattern(3, 10));
    assert!(contents(&cluster, first.inode()) == expected);
    first.close().unwrap();
    second.close().unwrap();
    assert!(contents(&cluster, create(&one, "g").inode()).is_empty());
}

/// Two clients that write stripes of one file between each other's: whoever reports first makes it longer over those
/// that are not reported yet.
#[test]
fn stripes_of_two_clients_are_all_seen_whoever_reports_first() {
    const STRIPE: usize = 10_000;
    let cluster = Cluster::new(3);
    let clients = [cluster.client(), cluster.client()];
    let inode = create(&clients[0], "f").inode();
    let files = clients.each_ref().map(|client| client.open_file(inode, BOTH).unwrap());
    // More stripes than are told apart.
    for stripe in 0..200 {
        let bytes = pattern(stripe as u64, STRIPE);
        files[stripe % 2].write_at(&bytes, (stripe * STRIPE) as u64).unwrap();
    }
    for file in files.iter().rev() {
        file.flush().unwrap();
    }
    let expected: Vec<u8> = (0..200).flat_map(|stripe| pattern(stripe, STRIPE)).collect();
    assert!(contents(&cluster, inode) == expected);
}

/// A client that has not heard of a cut writes where the file is unwritten by now: its bytes are its bytes.
#[test]
fn what_is_written_after_another_client_cut_the_file_and_made_it_longer_again_is_seen() {
    for reports_between in [false, true] {
        let cluster = Cluster::new(3);
        let (one, two) = (cluster.client(), cluster.client());
        let first = create(&one, "f");
        first.write_at(&pattern(1, 200_000), 0).unwrap();
        first.flush().unwrap();
        let second = two.open_file(first.inode(), BOTH).unwrap();
        second.set_length(30_000).unwrap();
        if !reports_between {
            second.set_length(300_000).unwrap();
        }
        first.write_at(&pattern(2, 50_000), 100_000).unwrap();
        first.sync().unwrap();
        if reports_between {
            second.set_length(300_000).unwrap();
        }
        let mut expected = pattern(1, 30_000);
        expected.resize(300_000, 0);
        expected[100_000..150_000].copy_from_slice(&pattern(2, 50_000));
        assert!(contents(&cluster, first.inode()) == expected, "between: {reports_between}");
        first.close().unwrap();
        assert!(contents(&cluster, second.inode()) == expected, "between: {reports_between}");
    }
}
