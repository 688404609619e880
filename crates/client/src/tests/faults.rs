//! Servers that fail, are silent, lose data, or come back.

use super::*;
use crate::OpenMode;
use std::sync::atomic::{AtomicUsize, Ordering};
use vazao_model::Code;
use vazao_wire::Method;
use vazao_wire::inline::Fate;
use vazao_wire::interrupt::{self, Interrupt};

const READ: OpenMode = OpenMode { read: true, write: false, truncate: false };

/// Lets the first `count` requests of `method` meet `fate`.
fn first(cluster: &Cluster, method: Method, count: usize, fate: Fate) {
    let met = AtomicUsize::new(0);
    cluster.transport.set_fates(Some(Box::new(move |_, asked| {
        let is_met = asked == method && met.fetch_add(1, Ordering::Relaxed) < count;
        if is_met { fate } else { Fate::Deliver }
    })));
}

#[test]
fn a_lost_answer_does_not_make_a_second_file() {
    for fate in [Fate::LoseAnswer, Fate::BreakAfter, Fate::LoseRequest, Fate::BreakBefore] {
        let cluster = Cluster::new(1);
        let client = cluster.client();
        first(&cluster, Method::Create, 2, fate);
        create(&client, "once").close().unwrap();
        let state = cluster.meta.state.lock();
        assert_eq!(state.executed[&Method::Create], 1, "{fate:?}");
    }
}

/// A program with a handler for a signal was told EINTR, at once, where a name is absent or already there: the answer
/// had come, and the signal while it was on its way.
#[test]
fn an_answer_that_has_come_is_the_answer_whatever_signal_came_meanwhile() {
    let cluster = Cluster::new(1);
    let client = cluster.client();
    let file = create(&client, "there");
    file.write_at(&pattern(1, 100_000), 0).unwrap();
    file.sync().unwrap();
    let interrupt = Arc::new(Interrupt::default());
    interrupt.raise();
    interrupt::interruptible(&interrupt, || {
        let code = |outcome: crate::Result<()>| outcome.expect_err("it is refused").code;
        assert_eq!(code(client.unlink(ROOT, b"absent")), Code::NotFound);
        assert_eq!(code(client.lookup(ROOT, b"absent").map(drop)), Code::NotFound);
        assert_eq!(code(client.create(ROOT, b"there", &NewInode::default()).map(drop)), Code::Exists);
        cluster.data[0].fail_next(Method::Read, Code::Io, 1);
        assert_eq!(code(file.read_at(&mut [0; 10], 0).map(drop)), Code::Io);
    });
}

#[test]
fn a_call_whose_next_attempt_is_answered_in_time_is_not_cut_short_and_ends_a_quarter_of_a_second_later_otherwise()
 {
    let cluster = Cluster::new(1);
    let client = cluster.client();
    let file = create(&client, "there");
    file.write_at(&pattern(1, 100_000), 0).unwrap();
    file.sync().unwrap();
    let interrupt = Arc::new(Interrupt::default());
    interrupt.raise();
    let waited_ms = |work: &mut dyn FnMut()| {
        let started_ns = cluster.clock.now_ns();
        interrupt::interruptible(&interrupt, work);
        (cluster.clock.now_ns() - started_ns) / 1_000_000
    };
    first(&cluster, Method::Unlink, 1, Fate::BreakBefore);
    waited_ms(&mut || client.unlink(ROOT, b"there").expect("the second attempt was answered"));
    first(&cluster, Method::Unlink, usize::MAX, Fate::BreakBefore);
    let given_up = || assert_eq!(client.unlink(ROOT, b"x").expect_err("no answer").code, Code::Interrupted);
    let ms = waited_ms(&mut { given_up });
    assert!((250..2_000).contains(&ms), "{ms} ms");
    cluster.transport.set_fates(None);
    cluster.data[0].fail_next(Method::Read, Code::Overloaded, 1);
    waited_ms(&mut || assert_eq!(file.read_at(&mut [0; 10], 0).expect("answered"), 10));
    let other = create(&client, "other");
    other.write_at(&pattern(2, 100_000), 0).unwrap();
    other.sync().unwrap();
    cluster.data[0].fail_next(Method::Read, Code::Overloaded, 1000);
    let read = || other.read_at(&mut [0; 10], 0).expect_err("no answer").code;
    let ms = waited_ms(&mut || assert_eq!(read(), Code::Interrupted));
    assert!((250..2_000).contains(&ms), "{ms} ms");
}

#[test]
fn an_expired_session_is_replaced_and_the_request_repeated() {
    let cluster = Cluster::new(1);
    let client = cluster.client();
    cluster.meta.forget_sessions();
    create(&client, "after").close().unwrap();
    cluster.meta.forget_sessions();
    client.tick().unwrap();
    assert_eq!(cluster.meta.count(Method::OpenSession), 3);
}

#[test]
fn a_change_whose_answer_and_session_are_lost_is_reported_and_not_repeated() {
    let cluster = Cluster::new(1);
    let client = cluster.client();
    let meta = Arc::clone(&cluster.meta);
    let asked = AtomicUsize::new(0);
    cluster.transport.set_fates(Some(Box::new(move |_, method| {
        if method != Method::Create {
            return Fate::Deliver;
        }
        match asked.fetch_add(1, Ordering::Relaxed) {
            0 => Fate::BreakAfter,
            _ => {
                meta.forget_sessions();
                Fate::Deliver
            }
        }
    })));
    let error = client.create(ROOT, b"unknown", &NewInode::default()).unwrap_err();
    assert_eq!(error.code, Code::SessionExpired);
    assert!(error.to_string().contains("may or may not"), "{error}");
    assert_eq!(cluster.meta.state.lock().executed[&Method::Create], 1);
}

#[test]
fn a_data_server_that_is_silent_is_named_at_the_deadline() {
    let cluster = Cluster::new(2);
    let client = cluster.client();
    let file = create(&client, "silent");
    file.write_at(&pattern(1, 200_000), 0).unwrap();
    file.flush().unwrap();
    cluster.transport.set_fates(Some(Box::new(|address, _| {
        if address == "data:2" { Fate::LoseRequest } else { Fate::Deliver }
    })));
    let before_ns = cluster.clock.now_ns();
    let error = file.read_at(&mut [0; 200_000], 0).unwrap_err();
    let waited_ms = (cluster.clock.now_ns() - before_ns) / 1_000_000;
    assert!((29_000..=31_000).contains(&waited_ms), "{waited_ms}");
    assert_eq!(error.code, Code::Timeout);
    assert!(error.to_string().contains("data server n2 (data:2) has not answered for 30 s"), "{error}");
    cluster.transport.set_fates(None);
    assert_eq!(read_all(&file), pattern(1, 200_000));
}

#[test]
fn a_flush_to_a_dead_server_ends_by_one_deadline_for_all_its_requests() {
    let cluster = Cluster::new(2);
    let client = cluster.client();
    let file = create(&client, "dead");
    cluster.transport.stop("data:1");
    let before_ns = cluster.clock.now_ns();
    file.write_at(&pattern(1, 2 << 20), 0).unwrap();
    let error = file.flush().unwrap_err();
    let waited_ms = (cluster.clock.now_ns() - before_ns) / 1_000_000;
    assert!(waited_ms <= 61_000, "{waited_ms}");
    assert_eq!(error.code, Code::Unreachable);
    assert!(error.to_string().contains("n1 (data:1)"), "{error}");
}

#[test]
fn a_data_server_that_comes_back_in_time_is_not_noticed() {
    let cluster = Cluster::new(2);
    let client = cluster.client();
    let file = create(&client, "back");
    let bytes = pattern(2, 1 << 20);
    for (method, fate) in [
        (Method::Write, Fate::BreakBefore),
        (Method::Write, Fate::LoseAnswer),
        (Method::Read, Fate::BreakAfter),
        (Method::Read, Fate::LoseRequest),
        (Method::SyncObjects, Fate::BreakBefore),
    ] {
        first(&cluster, method, 3, fate);
        file.write_at(&bytes, 0).unwrap();
        file.sync().unwrap();
        assert!(read_all(&file) == bytes);
    }
    assert!(client.statistics().servers.iter().map(|s| s.retries).sum::<u64>() > 0);
}

#[test]
fn a_failed_write_is_told_to_each_handle_by_a_write_once_and_by_fsync_and_close_until_it_is_written_again() {
    let cluster = Cluster::new(1);
    let client = cluster.client();
    let one = create(&client, "full");
    let two = client.open_file(one.inode(), OpenMode { write: true, ..READ }).unwrap();
    one.write_at(&pattern(3, 100_000), 0).unwrap();
    one.flush().unwrap();
    cluster.data[0].fail_next(Method::Write, Code::NoSpace, 1);
    one.write_at(b"lost", 0).unwrap();
    let error = one.flush().unwrap_err();
    assert_eq!(error.code, Code::NoSpace);
    assert!(error.to_string().contains("n1 (data:1)"), "{error}");
    assert_eq!(one.sync().unwrap_err(), error);
    assert_eq!(two.write_at(b"x", 0).unwrap_err().code, Code::NoSpace);
    two.write_at(b"x", 0).unwrap();
    assert_eq!(two.sync().unwrap_err().code, Code::NoSpace);
    assert_eq!(two.close().unwrap_err().code, Code::NoSpace);
    one.write_at(b"ept", 1).unwrap();
    one.sync().unwrap();
    assert_eq!(read_all(&one)[..4], *b"xept");
    one.close().unwrap();
}

#[test]
fn an_error_that_a_write_took_for_a_short_count_does_not_make_fsync_and_close_succeed() {
    let cluster = Cluster::new(2);
    let client = cluster.client();
    let file = create(&client, "cut by the kernel");
    file.write_at(&pattern(1, 4 << 20), 0).unwrap();
    file.sync().unwrap();
    cluster.transport.stop("data:1");
    // As the kernel sends one write of 4 MiB; it tells the application of the error as of a short count.
    let bytes = pattern(2, 4 << 20);
    let pieces = bytes.chunks(1 << 20).zip([0, 1 << 20, 2 << 20, 3 << 20]);
    let failed = pieces.map(|(piece, offset)| file.write_at(piece, offset)).filter(|answer| answer.is_err());
    assert!(failed.count() > 0, "no write was told");
    cluster.transport.serve("data:1", Arc::clone(&cluster.data[0]) as Arc<dyn Service>);
    file.write_at(&bytes[3 << 20..], 3 << 20).unwrap();
    assert_eq!(file.sync().unwrap_err().code, Code::Unreachable);
    assert_eq!(file.sync().unwrap_err().code, Code::Unreachable);
    let inode = file.inode();
    assert_eq!(file.close().unwrap_err().code, Code::Unreachable);
    // A later handle of this client knows as well.
    let again = client.open_file(inode, OpenMode { write: true, ..READ }).unwrap();
    assert_eq!(again.read_at(&mut [0; 1000], 0).unwrap_err().code, Code::Unreachable);
    assert_eq!(again.sync().unwrap_err().code, Code::Unreachable);
    again.write_at(&bytes, 0).unwrap();
    again.sync().unwrap();
    assert!(read_all(&again) == bytes);
    again.close().unwrap();
}

#[test]
fn what_could_not_be_written_is_forgotten_when_it_is_cut_off() {
    let cluster = Cluster::new(1);
    let (client, other) = (cluster.client(), cluster.client());
    for cut_by in [&client, &other] {
        let file = create(&client, if std::ptr::eq(cut_by, &client) { "here" } else { "elsewhere" });
        file.write_at(&pattern(1, 100_000), 0).unwrap();
        file.flush().unwrap();
        cluster.data[0].fail_next(Method::Write, Code::NoSpace, 1);
        file.write_at(b"lost", 70_000).unwrap();
        let inode = file.inode();
        assert_eq!(file.close().unwrap_err().code, Code::NoSpace);
        let mode = OpenMode { write: true, truncate: true, read: true };
        cut_by.open_file(inode, mode).unwrap().close().unwrap();
        let again = client.open_file(inode, OpenMode { write: true, ..READ }).unwrap();
        again.write_at(&pattern(2, 100_000), 0).unwrap();
        again.sync().unwrap();
        assert!(read_all(&again) == pattern(2, 100_000));
        again.close().unwrap();
    }
}

#[test]
fn an_fsync_after_one_that_was_not_answered_still_asks_whether_power_was_lost() {
    let cluster = Cluster::new(1);
    let client = cluster.client();
    let file = create(&client, "asked twice");
    cluster.data[0].state.lock().boot = 1;
    file.write_at(&pattern(1, 200_000), 0).unwrap();
    first(&cluster, Method::SyncObjects, usize::MAX, Fate::LoseRequest);
    assert_eq!(file.sync().unwrap_err().code, Code::Timeout);
    cluster.transport.set_fates(None);
    cluster.data[0].state.lock().boot = 2;
    assert_eq!(file.sync().unwrap_err().code, Code::Io);
}

#[test]
fn a_range_that_could_not_be_written_is_not_read_until_it_is_written_again() {
    let cluster = Cluster::new(1);
    let client = cluster.client();
    let file = create(&client, "range");
    let bytes = pattern(9, 100_000);
    file.write_at(&bytes, 0).unwrap();
    file.flush().unwrap();
    cluster.data[0].fail_next(Method::Write, Code::NoSpace, 1);
    file.write_at(b"lost", 50_000).unwrap();
    let mut part = vec![0; 1000];
    assert_eq!(file.read_at(&mut part, 49_500).unwrap_err().code, Code::NoSpace);
    assert_eq!(file.read_at(&mut part, 50_004).unwrap(), 1000);
    assert_eq!(part, bytes[50_004..51_004]);
    assert_eq!(file.flush().unwrap_err().code, Code::NoSpace);
    assert_eq!(file.read_at(&mut part, 49_500).unwrap_err().code, Code::NoSpace);
    file.write_at(b"kept", 50_000).unwrap();
    assert_eq!(file.read_at(&mut part, 49_500).unwrap(), 1000);
    assert_eq!(part[500..504], *b"kept");
}

#[test]
fn an_fsync_after_a_server_lost_power_fails_until_what_was_lost_is_written_again() {
    let cluster = Cluster::new(2);
    let client = cluster.client();
    let file = create(&client, "powerless");
    cluster.data.iter().for_each(|d| d.state.lock().boot = 1);
    file.write_at(&pattern(1, 200_000), 0).unwrap();
    file.sync().unwrap();
    file.write_at(&pattern(2, 200_000), 0).unwrap();
    file.flush().unwrap();
    cluster.data[1].state.lock().boot = 2;
    let error = file.sync().unwrap_err();
    assert_eq!(error.code, Code::Io);
    assert!(error.to_string().contains("n2 (data:2)"), "{error}");
    let other = client.open_file(file.inode(), OpenMode { write: true, ..READ }).unwrap();
    for handle in [&file, &other, &file] {
        assert_eq!(handle.sync().unwrap_err().code, Code::Io, "nothing was written since");
    }
    assert_eq!(file.read_at(&mut [0; 10], UNIT).unwrap_err().code, Code::Io, "the other server's unit");
    file.read_at(&mut [0; 10], 0).unwrap();
    assert_eq!(other.close().unwrap_err().code, Code::Io);
    // Only what lay on that server has to be written again.
    file.write_at(&pattern(3, 200_000)[UNIT as usize..], UNIT).unwrap();
    file.sync().unwrap();
    // Writes before and after the loss of power: known without asking.
    file.write_at(&pattern(4, 200_000), 0).unwrap();
    file.flush().unwrap();
    cluster.data[0].state.lock().boot = 3;
    file.write_at(&pattern(5, 1000), 0).unwrap();
    for _ in 0..2 {
        assert!(file.sync().unwrap_err().to_string().contains("machine of slot 0"));
    }
    file.write_at(&pattern(5, 200_000), 0).unwrap();
    file.sync().unwrap();
    // What one handle has written another one makes durable, or not.
    file.write_at(&pattern(6, 1000), 0).unwrap();
    let inode = file.inode();
    file.close().unwrap();
    cluster.data[0].state.lock().boot = 4;
    let again = client.open_file(inode, READ).unwrap();
    assert_eq!(again.sync().unwrap_err().code, Code::Io);
    again.close().unwrap_err();
    // Nor does another close and open make it whole; cutting it off does.
    let last = client.open_file(inode, OpenMode { write: true, ..READ }).unwrap();
    assert_eq!(last.sync().unwrap_err().code, Code::Io);
    last.set_length(0).unwrap();
    last.sync().unwrap();
}

#[test]
fn a_cut_that_was_lost_with_power_matters_once_the_file_grows_over_it() {
    let cluster = Cluster::new(1);
    let client = cluster.client();
    let file = create(&client, "cut");
    cluster.data[0].state.lock().boot = 1;
    file.write_at(&pattern(1, 200_000), 0).unwrap();
    file.sync().unwrap();
    file.set_length(100_000).unwrap();
    cluster.data[0].state.lock().boot = 2;
    assert_eq!(file.sync().unwrap_err().code, Code::Io, "the cut is not durable");
    file.sync().unwrap();
    file.read_at(&mut [0; 10], 99_000).unwrap();
    file.set_length(150_000).unwrap();
    assert_eq!(file.read_at(&mut [0; 10], 120_000).unwrap_err().code, Code::Io, "old bytes may be there");
    assert_eq!(file.sync().unwrap_err().code, Code::Io);
    file.set_length(100_000).unwrap();
    file.set_length(150_000).unwrap();
    file.sync().unwrap();
    let mut part = [7; 10];
    file.read_at(&mut part, 120_000).unwrap();
    assert_eq!(part, [0; 10]);
}

#[test]
fn contents_that_could_not_move_to_objects_stay_where_they_were() {
    let cluster = Cluster::new(1);
    let client = cluster.client();
    let file = create(&client, "stays");
    let bytes = pattern(4, 30_000);
    file.write_at(&bytes[..5_000], 0).unwrap();
    file.flush().unwrap();
    cluster.data[0].fail_next(Method::Write, Code::NoSpace, 1);
    assert_eq!(file.write_at(&bytes[5_000..], 5_000).unwrap_err().code, Code::NoSpace);
    assert_eq!(read_all(&file), bytes[..5_000]);
    assert_eq!(read_all(&cluster.client().open_file(file.inode(), READ).unwrap()), bytes[..5_000]);
    let other = cluster.client();
    let second = other.open_file(file.inode(), OpenMode { write: true, ..READ }).unwrap();
    second.write_at(&[7; 10], 0).unwrap();
    second.close().unwrap();
    file.write_at(&bytes[5_000..], 5_000).unwrap();
    file.close().unwrap();
    let inode = other.lookup(ROOT, b"stays").unwrap().inode;
    assert!(cluster.meta.inode(inode.0).contents.is_empty());
    let seen = read_all(&other.open_file(inode, READ).unwrap());
    assert_eq!((&seen[..10], seen[10..] == bytes[10..]), (&[7; 10][..], true));
}

#[test]
fn a_bit_flipped_on_its_way_is_read_again_and_one_on_disk_is_reported() {
    let cluster = Cluster::new(2);
    let client = cluster.client();
    let file = create(&client, "bits");
    let bytes = pattern(5, 300_000);
    file.write_at(&bytes, 0).unwrap();
    file.flush().unwrap();
    cluster.data[1].state.lock().flips = 1;
    assert!(read_all(&file) == bytes);
    cluster.data[1].state.lock().flips = usize::MAX;
    let mut part = vec![0; 1000];
    let offset = 3 * UNIT + 32 * KIB - 500;
    let error = file.read_at(&mut part, offset).unwrap_err();
    assert_eq!(error.code, Code::Corrupt);
    let text = error.to_string();
    assert!(
        text.contains("block at 65536") && text.contains("target t2") && text.contains("n2 (data:2)"),
        "{text}"
    );
    assert_eq!(cluster.data[1].count(Method::ReportDamage), 1, "for `vazao status`");
    // The other server's bytes are still served.
    assert_eq!(file.read_at(&mut part, 2 * UNIT).unwrap(), 1000);
    assert_eq!(part, bytes[2 * UNIT as usize..2 * UNIT as usize + 1000]);
}

#[test]
fn a_lost_object_is_an_error_and_not_a_hole() {
    let cluster = Cluster::new(2);
    let client = cluster.client();
    let file = create(&client, "lost");
    file.write_at(&pattern(6, 300_000), 0).unwrap();
    file.flush().unwrap();
    cluster.data[0].state.lock().objects.clear();
    let error = file.read_at(&mut [0; 10], 0).unwrap_err();
    assert_eq!(error.code, Code::Corrupt);
    assert!(error.to_string().contains("missing on target t1"), "{error}");
    assert_eq!(cluster.data[0].count(Method::ReportDamage), 1, "for `vazao status`");
}

#[test]
fn a_target_that_moved_to_another_server_is_found_there() {
    let cluster = Cluster::new(2);
    let client = cluster.client();
    let file = create(&client, "moved");
    let bytes = pattern(7, 200_000);
    file.write_at(&bytes, 0).unwrap();
    file.flush().unwrap();
    cluster.transport.serve("data:9", Arc::clone(&cluster.data[0]) as Arc<dyn Service>);
    cluster.meta.state.lock().map.nodes[0].address = "data:9".into();
    let gone = Arc::new(FakeData::default());
    gone.fail_next(Method::Read, Code::WrongTarget, 10);
    cluster.transport.serve("data:1", gone);
    assert!(read_all(&file) == bytes);
}

#[test]
fn opening_a_client_without_a_cluster_fails_soon_and_names_it() {
    let cluster = Cluster::new(1);
    cluster.transport.stop(META);
    let opened = Client::open(Arc::clone(&cluster.transport) as _, vec![META.into()], Cluster::options());
    let error = opened.expect_err("nobody is there");
    assert_eq!(error.code, Code::Unreachable);
    assert!(error.to_string().contains("metadata service (meta:1)"), "{error}");
    assert!(cluster.clock.now_ns() <= 6_000_000_000);
}

#[test]
fn a_second_metadata_address_is_tried_when_the_first_is_silent() {
    let cluster = Cluster::new(1);
    let addresses = vec!["meta:0".to_owned(), META.to_owned()];
    let client = Client::open(Arc::clone(&cluster.transport) as _, addresses, Cluster::options()).unwrap();
    create(&client, "found").close().unwrap();
}
