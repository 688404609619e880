//! Writes that are answered before they are sent.

use super::*;
use crate::SharedBytes;
use std::sync::atomic::Ordering;
use vazao_model::Code;
use vazao_wire::Method;
use vazao_wire::interrupt::{self, Interrupt};

/// A file on two servers, big enough to be striped, with nothing under way.
fn striped(client: &Client) -> File {
    let file = create(client, "later");
    file.write_at(&pattern(1, 600_000), 0).unwrap();
    file.flush().unwrap();
    file
}

#[test]
fn a_write_for_later_is_sent_when_it_is_dropped_and_waited_for_by_who_reads_and_flushes() {
    let cluster = Cluster::with_unit(2, 256 * KIB);
    let client = cluster.client();
    let file = striped(&client);
    let before = cluster.data_requests(Method::Write);
    let bytes: SharedBytes = Arc::new(pattern(2, 512 << 10));
    let unsent = file.write_shared_later(&bytes, 0..512 << 10, 0).unwrap().expect("two whole transfers");
    assert_eq!(cluster.data_requests(Method::Write), before, "nothing is sent yet");
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_all(&file));
        let flusher = scope.spawn(|| file.flush());
        drop(unsent);
        assert!(reader.join().unwrap()[..512 << 10] == *(*bytes).as_ref());
        flusher.join().unwrap().unwrap();
    });
    assert_eq!(cluster.data_requests(Method::Write), before + 2);
    assert_eq!(Arc::strong_count(&bytes), 1);
    assert_eq!(client.core.dirty_bytes.load(Ordering::Relaxed), 0);
}

#[test]
fn of_two_writes_for_later_to_the_same_place_the_second_one_stays() {
    let cluster = Cluster::with_unit(2, 256 * KIB);
    let client = cluster.client();
    let file = striped(&client);
    let (first, second) = (pattern(3, 512 << 10), pattern(4, 512 << 10));
    let sent_first = file.write_later(&first, 0).unwrap();
    let sent_second = file.write_later(&second, 0).unwrap();
    std::thread::scope(|scope| {
        // It overtakes the first one's thread, and has to wait for it.
        scope.spawn(move || drop(sent_second));
        drop(sent_first);
    });
    assert!(read_all(&file)[..512 << 10] == second);
}

#[test]
fn small_pieces_for_later_leave_nothing_to_send_until_a_transfer_is_full() {
    let cluster = Cluster::with_unit(2, 256 * KIB);
    let client = cluster.client();
    let file = striped(&client);
    let bytes = pattern(5, 256 << 10);
    for (index, piece) in bytes.chunks(64 << 10).enumerate() {
        let unsent = file.write_later(piece, index as u64 * 64 * KIB).unwrap();
        assert_eq!(unsent.is_some(), index == 3);
    }
    assert!(read_all(&file)[..256 << 10] == bytes);
}

#[test]
fn a_failure_of_a_write_for_later_is_told_by_the_flush_that_follows() {
    let cluster = Cluster::with_unit(1, 256 * KIB);
    let client = cluster.client();
    let file = striped(&client);
    cluster.data[0].fail_next(Method::Write, Code::NoSpace, 1);
    drop(file.write_later(&pattern(6, 256 << 10), 0).unwrap());
    assert_eq!(file.flush().expect_err("it was refused").code, Code::NoSpace);
}

#[test]
fn what_a_killed_writer_leaves_is_stored_by_whoever_flushes_next() {
    let cluster = Cluster::with_unit(2, 256 * KIB);
    let client = cluster.client();
    let file = striped(&client);
    let (bytes, interrupt) = (pattern(7, 100_000), Arc::new(Interrupt::default()));
    let (started_ns, before) = (cluster.clock.now_ns(), cluster.data_requests(Method::Write));
    interrupt::until_killed(&interrupt, || {
        file.write_at(&bytes, 0).expect("taken over");
        interrupt.kill(interrupt.call());
        assert_eq!(file.write_at(&bytes, 0).expect_err("no more").code, Code::Interrupted);
        assert_eq!(file.flush().expect_err("left").code, Code::Interrupted);
        assert_eq!(file.sync().expect_err("left").code, Code::Interrupted);
    });
    assert_eq!(cluster.clock.now_ns(), started_ns, "nothing was waited for");
    assert_eq!(cluster.data_requests(Method::Write), before, "nothing was sent");
    assert!(client.core.dirty_bytes.load(Ordering::Relaxed) > 0);
    assert!(read_all(&file)[..bytes.len()] == bytes);
    file.sync().expect("nothing was lost, and nothing is to be told");
    assert_eq!(client.core.dirty_bytes.load(Ordering::Relaxed), 0);
    assert_eq!(cluster.data_requests(Method::Write), before + 1);
}
