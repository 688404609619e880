//! Objects that are gone when they are to be synced.

use super::*;
use crate::OpenMode;
use vazao_model::Code;
use vazao_wire::Method;

const BOTH: OpenMode = OpenMode { read: true, write: true, truncate: false };

/// Lost beneath its server, an object was taken for a removed one: the fsync of every other client returned 0.
#[test]
fn an_fsync_of_an_object_that_was_lost_fails_for_every_client_until_it_is_written_again() {
    let cluster = Cluster::new(2);
    let (writer, other) = (cluster.client(), cluster.client());
    let file = create(&writer, "lost");
    file.write_at(&pattern(1, 200_000), 0).unwrap();
    file.sync().unwrap();
    cluster.data[1].state.lock().objects.clear();
    let second = other.open_file(file.inode(), BOTH).unwrap();
    for _ in 0..2 {
        let error = second.sync().unwrap_err();
        assert_eq!(error.code, Code::Io);
        assert!(error.to_string().contains("target t2") && !error.to_string().contains("t1"), "{error}");
    }
    file.write_at(&pattern(2, 10), UNIT).unwrap();
    file.write_at(&pattern(2, 200_000), 0).unwrap();
    file.sync().unwrap();
    second.sync().unwrap();
    assert!(read_all(&file) == pattern(2, 200_000));
}

#[test]
fn what_was_written_and_not_synced_to_an_object_that_was_lost_is_lost_until_it_is_written_again() {
    let cluster = Cluster::new(1);
    let client = cluster.client();
    let file = create(&client, "lost");
    cluster.data[0].state.lock().boot = 1;
    file.write_at(&pattern(1, 100_000), 0).unwrap();
    file.flush().unwrap();
    cluster.lose_objects();
    assert_eq!(file.sync().unwrap_err().code, Code::Io);
    file.write_at(&pattern(2, 50_000), 0).unwrap();
    assert_eq!(file.sync().unwrap_err().code, Code::Io, "half of it is missing");
    file.write_at(&pattern(3, 50_000), 50_000).unwrap();
    file.sync().unwrap();
}

/// A length was set and synced, something was written behind it and not synced, and power took the object: the zeros
/// before it could not be read any more (EUCLEAN), though they had been durable.
#[test]
fn zeros_before_bytes_that_were_lost_with_their_object_are_still_read() {
    let cluster = Cluster::new(1);
    let (client, other) = (cluster.client(), cluster.client());
    let file = create(&client, "holed");
    file.set_length(99_846).unwrap();
    file.sync().unwrap();
    file.write_at(&pattern(1, 90_517), 99_846).unwrap();
    file.flush().unwrap();
    cluster.lose_objects();
    for file in [&other.open_file(file.inode(), BOTH).unwrap(), &file] {
        let mut zeros = vec![7; UNIT as usize];
        assert_eq!(file.read_at(&mut zeros, 0).unwrap(), zeros.len());
        assert!(zeros.iter().all(|byte| *byte == 0));
        assert_eq!(file.read_at(&mut zeros, 100_000).unwrap_err().code, Code::Corrupt, "these are lost");
    }
}

#[test]
fn an_object_that_was_removed_with_its_contents_is_not_missed_by_an_fsync() {
    for refilled in [false, true] {
        let cluster = Cluster::new(2);
        let (one, two) = (cluster.client(), cluster.client());
        let file = create(&one, "cut");
        file.write_at(&pattern(1, 200_000), 0).unwrap();
        file.sync().unwrap();
        let second = two.open_file(file.inode(), BOTH).unwrap();
        file.set_length(0).unwrap();
        cluster.lose_objects();
        if refilled {
            file.write_at(&pattern(2, 100_000), 0).unwrap();
            file.flush().unwrap();
        }
        let stats = cluster.data_requests(Method::StatObject);
        // It is told of other contents than it knew, or of nothing; not of an object that was lost.
        let answer = second.sync();
        assert!(!matches!(&answer, Err(error) if error.code == Code::Io), "{answer:?}");
        assert!(cluster.data_requests(Method::StatObject) > stats, "it has looked for them");
    }
}
