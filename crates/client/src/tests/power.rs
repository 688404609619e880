//! The metadata service loses power, and with it what it had answered and not made durable.

use super::{Cluster, create, pattern, read_all};
use crate::{Changes, Client, File, OpenMode};
use std::sync::Arc;
use vazao_model::ids::ROOT;
use vazao_wire::Method;

const BOTH: OpenMode = OpenMode { read: true, write: true, truncate: false };

/// Flushes the file, and has the service forget all of that.
fn flush_in_vain(cluster: &Cluster, file: &File) {
    let before = cluster.meta.inode(file.inode().0);
    file.flush().unwrap();
    cluster.meta.state.lock().inodes.insert(file.inode().0, before);
}

fn stored(cluster: &Cluster) -> Vec<u8> {
    let client = cluster.client();
    let inode = client.lookup(ROOT, b"f").unwrap().inode;
    read_all(&client.open_file(inode, BOTH).unwrap())
}

/// A write beyond 16 KiB came next: the layout was asked for, and the answered bytes became zeros under an fsync that
/// returned 0.
#[test]
fn inline_bytes_that_a_service_forgot_follow_a_file_that_outgrows_its_record() {
    for durable in [0, 1_000] {
        let cluster = Cluster::new(2);
        let client = cluster.client();
        let file = create(&client, "f");
        let bytes = pattern(durable as u64, 60_000);
        file.write_at(&bytes[..durable], 0).unwrap();
        file.sync().unwrap();
        file.write_at(&bytes[durable..10_000], durable as u64).unwrap();
        flush_in_vain(&cluster, &file);
        file.write_at(&bytes[10_000..], 10_000).unwrap();
        file.sync().unwrap();
        assert!(stored(&cluster) == bytes, "{durable} bytes were durable");
    }
}

#[test]
fn inline_bytes_that_a_service_forgot_follow_a_file_that_another_client_outgrew() {
    let cluster = Cluster::new(2);
    let (one, two) = (cluster.client(), cluster.client());
    let file = create(&one, "f");
    let bytes = pattern(5, 60_000);
    let before = cluster.meta.inode(file.inode().0);
    for part in 0..5 {
        file.write_at(&bytes[part * 1_000..(part + 1) * 1_000], part as u64 * 1_000).unwrap();
        file.flush().unwrap();
    }
    cluster.meta.state.lock().inodes.insert(file.inode().0, before);
    let second = two.open_file(file.inode(), BOTH).unwrap();
    second.write_at(&bytes[5_000..], 5_000).unwrap();
    file.write_at(&bytes[..1], 0).unwrap();
    file.sync().unwrap();
    second.sync().unwrap();
    assert!(stored(&cluster) == bytes);
}

/// The report after the forgotten one made the version that the forgotten one had made.
#[test]
fn one_forgotten_report_is_noticed_by_the_next() {
    for length in [2_000, 200_000] {
        let cluster = Cluster::new(2);
        let client = cluster.client();
        let file = create(&client, "f");
        let bytes = pattern(length as u64, length);
        file.write_at(&bytes[..length / 2], 0).unwrap();
        file.sync().unwrap();
        file.write_at(&bytes[length / 2..], length as u64 / 2).unwrap();
        flush_in_vain(&cluster, &file);
        file.write_at(&bytes[..10], 0).unwrap();
        file.sync().unwrap();
        assert!(stored(&cluster) == bytes, "{length} bytes");
    }
}

/// Cuts the file, and has the service forget that.
fn cut_in_vain(cluster: &Cluster, file: &File, length: u64) {
    let before = cluster.meta.inode(file.inode().0);
    file.set_length(length).unwrap();
    cluster.meta.state.lock().inodes.insert(file.inode().0, before);
}

/// A length that was set is a change like any other: an fsync returned 0, and the file had the length of before.
#[test]
fn a_length_that_a_service_forgot_is_set_again_by_the_next_fsync() {
    for written in [0, 1_000, 10_000, 200_000] {
        for length in [0, 500, 17_353, 120_000, 300_000] {
            let cluster = Cluster::new(2);
            let client = cluster.client();
            let file = create(&client, "f");
            let mut bytes = pattern(written as u64, written);
            file.write_at(&bytes, 0).unwrap();
            file.sync().unwrap();
            cut_in_vain(&cluster, &file, length as u64);
            bytes.resize(length, 0);
            file.sync().unwrap();
            let now = stored(&cluster);
            assert!(now == bytes, "{written} bytes, then {length}: {} bytes", now.len());
        }
    }
}

/// The answer to a change of attributes had made the service's younger version the one that was known: an fsync after
/// it found nothing missing, and returned 0 over a length, or over bytes, that the service no longer had.
#[test]
fn what_a_service_forgot_is_told_again_although_attributes_were_set_since() {
    for written in [0, 1_000, 10_000, 200_000] {
        let lengths = [&[][..], &[0], &[500], &[17_353], &[120_000], &[300_000], &[0, 500], &[0, 300_000]];
        for lengths in lengths {
            let cluster = Cluster::new(2);
            let client = cluster.client();
            let file = create(&client, "f");
            let mut bytes = pattern(written as u64, written);
            file.write_at(&bytes[..written / 2], 0).unwrap();
            file.sync().unwrap();
            file.write_at(&bytes[written / 2..], written as u64 / 2).unwrap();
            let before = cluster.meta.inode(file.inode().0);
            file.flush().unwrap();
            for length in lengths {
                file.set_length(*length as u64).unwrap();
                bytes.resize(*length, 0);
            }
            let mut state = cluster.meta.state.lock();
            state.inodes.insert(file.inode().0, before);
            state.start += 1;
            drop(state);
            let mode = Changes { mode: Some(0o600), ..Changes::default() };
            client.set_attributes(file.inode(), &mode).unwrap();
            // What is written between the news and the report is in the length that is set again.
            let more = pattern(7, 4_000);
            file.write_at(&more, bytes.len() as u64 + 100).unwrap();
            bytes.resize(bytes.len() + 100, 0);
            bytes.extend_from_slice(&more);
            file.sync().unwrap();
            let now = stored(&cluster);
            assert!(now == bytes, "{written} bytes, then {lengths:?}: {} bytes", now.len());
            assert!(read_all(&file) == bytes);
        }
    }
}

/// A close, too, has what was forgotten set again: the file was as long as its last write.
#[test]
fn a_close_tells_again_what_a_service_forgot_while_the_file_was_open() {
    for (length, written) in [(82_250, 1_766), (300, 1_766), (82_250, 100_000)] {
        let cluster = Cluster::new(2);
        let client = cluster.client();
        let file = create(&client, "f");
        file.sync().unwrap();
        let before = cluster.meta.inode(file.inode().0);
        file.set_length(length).unwrap();
        let mut state = cluster.meta.state.lock();
        state.inodes.insert(file.inode().0, before);
        state.start += 1;
        drop(state);
        let bytes = pattern(1, written);
        file.write_at(&bytes, 5_209).unwrap();
        file.close().unwrap();
        let now = stored(&cluster);
        let mut expected = vec![0; 5_209];
        expected.extend(&bytes);
        expected.resize(expected.len().max(length as usize), 0);
        assert!(now == expected, "{length}, then {written}: {} bytes", now.len());
    }
}

/// A length was being set when the service lost power, and with it the reports before. Carried out on what was left, it
/// made zeros of bytes that had been written and reported, and an fsync returned 0 over them.
#[test]
fn a_length_that_is_set_while_a_service_forgets_hides_no_bytes() {
    for written in [1_000, 10_000, 60_000, 200_000] {
        for (durable, then) in [(0, 0), (written / 2, 0), (0, 200_000), (written / 2, 200_000)] {
            for length in [written / 4, written - 300, written + 700, written + 100_000] {
                let cluster = Cluster::new(2);
                let client = cluster.client();
                let file = create(&client, "f");
                let mut bytes = pattern(written as u64, written);
                file.write_at(&bytes[..durable], 0).unwrap();
                file.sync().unwrap();
                file.write_at(&bytes[durable..], durable as u64).unwrap();
                let before = cluster.meta.inode(file.inode().0);
                file.flush().unwrap();
                let (meta, inode) = (Arc::clone(&cluster.meta), file.inode().0);
                let forget = Box::new(move || {
                    let mut state = meta.state.lock();
                    state.inodes.insert(inode, before);
                    state.start += 1;
                });
                *cluster.meta.before.lock() = Some((Method::SetAttributes, forget));
                file.set_length(length as u64).unwrap();
                bytes.resize(length, 0);
                if then != 0 {
                    let more = pattern(then as u64, then);
                    file.write_at(&more, length as u64 + 33_750).unwrap();
                    bytes.resize(length + 33_750, 0);
                    bytes.extend_from_slice(&more);
                }
                file.sync().unwrap();
                let now = stored(&cluster);
                let wrong = now.iter().zip(&bytes).position(|(now, then)| now != then);
                assert!(
                    now == bytes,
                    "{written} bytes, {durable} durable, {length}, {then} more: {} bytes, wrong at {wrong:?}",
                    now.len()
                );
                assert!(read_all(&file) == bytes);
            }
        }
    }
}

/// What was cut off came back beneath what was written after it.
#[test]
fn bytes_that_were_cut_off_do_not_come_back_when_a_service_forgets_the_cut() {
    for written in [1_000, 10_000, 200_000] {
        for (length, then) in
            [(0, 300..600), (0, 300..90_000), (0, 20_000..30_000), (500, 700..800), (500, 700..40_000)]
        {
            let cluster = Cluster::new(2);
            let client = cluster.client();
            let file = create(&client, "f");
            let mut bytes = pattern(written as u64, written);
            file.write_at(&bytes, 0).unwrap();
            file.sync().unwrap();
            cut_in_vain(&cluster, &file, length as u64);
            bytes.resize(length, 0);
            bytes.resize(then.end, 0);
            let more = pattern(9, then.len());
            bytes[then.clone()].copy_from_slice(&more);
            file.write_at(&more, then.start as u64).unwrap();
            file.sync().unwrap();
            let now = stored(&cluster);
            let wrong = now.iter().zip(&bytes).position(|(now, then)| now != then);
            assert!(
                now == bytes,
                "{written} bytes, then {length}, then {then:?}: {} bytes, wrong at {wrong:?}",
                now.len()
            );
        }
    }
}

/// Does something with the file, closes it, opens it again, and has the service forget all that was done to it.
fn reopened_in_vain((cluster, client): (&Cluster, &Client), file: File, change: impl FnOnce(&File)) -> File {
    let inode = file.inode();
    let before = cluster.meta.inode(inode.0);
    change(&file);
    file.close().unwrap();
    let again = client.open_file(inode, BOTH).unwrap();
    cluster.meta.state.lock().inodes.insert(inode.0, before);
    again
}

/// The handle that was closed had known what to set again; the fsync through the next one returned 0.
#[test]
fn a_length_that_a_service_forgot_is_set_again_also_when_the_file_was_closed_since() {
    for written in [0, 1_000, 10_000, 200_000] {
        for length in [0, 500, 17_353, 120_000, 300_000] {
            let cluster = Cluster::new(2);
            let client = cluster.client();
            let file = create(&client, "f");
            let mut bytes = pattern(written as u64, written);
            file.write_at(&bytes, 0).unwrap();
            file.sync().unwrap();
            let cut = |file: &File| file.set_length(length as u64).unwrap();
            let again = reopened_in_vain((&cluster, &client), file, cut);
            bytes.resize(length, 0);
            again.sync().unwrap();
            let now = stored(&cluster);
            assert!(now == bytes, "{written} bytes, then {length}: {} bytes", now.len());
            assert!(read_all(&again) == bytes);
        }
    }
}

#[test]
fn bytes_of_a_closed_small_file_that_a_service_forgot_are_told_again_by_the_next_fsync() {
    for (durable, cut) in [(0, false), (1_000, false), (10_000, false), (5_000, true)] {
        let cluster = Cluster::new(2);
        let client = cluster.client();
        let file = create(&client, "f");
        let mut bytes = pattern(durable as u64, 12_000);
        file.write_at(&bytes[..durable], 0).unwrap();
        file.sync().unwrap();
        let again = reopened_in_vain((&cluster, &client), file, |file| {
            if cut {
                file.set_length(0).unwrap();
                bytes[..durable].fill(0);
            }
            file.write_at(&bytes[durable..], durable as u64).unwrap();
        });
        again.sync().unwrap();
        assert!(stored(&cluster) == bytes, "{durable} bytes were durable");
        assert!(read_all(&again) == bytes);
    }
}

/// Once more through a further handle, which has changed nothing itself.
#[test]
fn what_a_service_may_forget_is_remembered_over_any_number_of_closes_until_an_fsync() {
    let cluster = Cluster::new(2);
    let client = cluster.client();
    let file = create(&client, "f");
    let inode = file.inode();
    file.write_at(&pattern(1, 9_000), 0).unwrap();
    file.sync().unwrap();
    let before = cluster.meta.inode(inode.0);
    file.write_at(&pattern(2, 3_000), 1_000).unwrap();
    file.close().unwrap();
    for _ in 0..3 {
        client.open_file(inode, BOTH).unwrap().close().unwrap();
    }
    let again = client.open_file(inode, BOTH).unwrap();
    cluster.meta.state.lock().inodes.insert(inode.0, before);
    again.sync().unwrap();
    let mut bytes = pattern(1, 9_000);
    bytes[1_000..4_000].copy_from_slice(&pattern(2, 3_000));
    assert!(stored(&cluster) == bytes);
    again.close().unwrap();
    // An fsync has made it durable: from now on there is nothing to tell again.
    let commits = cluster.meta.count(Method::Commit);
    client.open_file(inode, BOTH).unwrap().close().unwrap();
    assert_eq!(cluster.meta.count(Method::Commit), commits);
}

/// Nobody had the file open when the service lost power; others saw what was left. A look at the file brought the lost
/// bytes back over what they had made durable.
#[test]
fn what_was_lost_while_a_file_was_closed_does_not_come_back_over_what_others_saw() {
    for length in [3_000, 60_000] {
        let cluster = Cluster::new(2);
        let (client, other) = (cluster.client(), cluster.client());
        let file = create(&client, "f");
        let inode = file.inode();
        file.sync().unwrap();
        let before = cluster.meta.inode(inode.0);
        for part in 0..4 {
            file.write_at(&pattern(part, 2_000), 0).unwrap();
            file.flush().unwrap();
        }
        file.close().unwrap();
        cluster.meta.state.lock().inodes.insert(inode.0, before);
        let second = other.open_file(inode, BOTH).unwrap();
        second.write_at(&pattern(9, length), 500).unwrap();
        second.sync().unwrap();
        let again = client.open_file(inode, BOTH).unwrap();
        again.sync().unwrap();
        let mut bytes = vec![0; 500];
        bytes.extend_from_slice(&pattern(9, length));
        assert!(read_all(&again) == bytes && stored(&cluster) == bytes, "{length} bytes");
    }
}

/// What is remembered of closed files has a bound: those closed first are forgotten first.
#[test]
fn contents_of_closed_files_are_remembered_up_to_a_bound() {
    let cluster = Cluster::new(1);
    let client = cluster.client();
    let bytes = pattern(1, 16_000);
    let inodes: Vec<_> = (0..600)
        .map(|number| {
            let file = create(&client, &number.to_string());
            file.write_at(&bytes, 0).unwrap();
            let inode = file.inode();
            file.close().unwrap();
            inode
        })
        .collect();
    for (inode, is_remembered) in [(inodes[599], true), (inodes[300], true), (inodes[0], false)] {
        let file = client.open_file(inode, BOTH).unwrap();
        let mut state = cluster.meta.state.lock();
        let record = state.inodes.get_mut(&inode.0).unwrap();
        record.contents.clear();
        (record.attributes.size, record.attributes.version) = (0, 1);
        drop(state);
        file.sync().unwrap();
        assert_eq!(cluster.meta.inode(inode.0).contents == bytes, is_remembered);
    }
}

/// Reports of another client had made more versions than were forgotten, so that nothing looked lost: an fsync returned
/// 0 over a length, or over bytes, of which the service no longer knew.
#[test]
fn a_report_that_was_forgotten_is_noticed_although_others_have_reported_since() {
    for length in [2_000, 200_000] {
        let cluster = Cluster::new(2);
        let (one, two) = (cluster.client(), cluster.client());
        let file = create(&one, "f");
        let bytes = pattern(length as u64, length);
        file.write_at(&bytes[..length / 2], 0).unwrap();
        file.sync().unwrap();
        file.write_at(&bytes[length / 2..], length as u64 / 2).unwrap();
        flush_in_vain(&cluster, &file);
        cluster.meta.state.lock().start += 1;
        let other = two.open_file(file.inode(), BOTH).unwrap();
        for at in 0..5 {
            other.write_at(&bytes[at..=at], at as u64).unwrap();
            other.sync().unwrap();
        }
        file.write_at(&bytes[..10], 0).unwrap();
        file.sync().unwrap();
        assert!(stored(&cluster) == bytes, "{length} bytes");
    }
}

/// What the service still has is not told again: a length that another client has cut meanwhile stays as it is.
#[test]
fn a_restart_that_lost_nothing_brings_nothing_back() {
    for length in [2_000, 200_000] {
        let cluster = Cluster::new(2);
        let (one, two) = (cluster.client(), cluster.client());
        let file = create(&one, "f");
        let bytes = pattern(length as u64, length);
        file.write_at(&bytes, 0).unwrap();
        file.flush().unwrap();
        two.open_file(file.inode(), BOTH).unwrap().set_length(length as u64 / 2).unwrap();
        file.write_at(&bytes[..10], 0).unwrap();
        file.sync().unwrap();
        cluster.meta.state.lock().start += 1;
        file.write_at(&bytes[..10], 0).unwrap();
        file.sync().unwrap();
        assert_eq!(stored(&cluster).len(), length / 2);
    }
}

/// A file was cut to nothing after the service had forgotten a report: the cut was taken for a loss, the old length and
/// objects were told again, and the next write failed with `ESTALE`.
#[test]
fn a_file_that_is_cut_to_nothing_after_a_loss_begins_anew() {
    for length in [2_000, 200_000] {
        for lost in [false, true] {
            let cluster = Cluster::new(2);
            let client = cluster.client();
            let file = create(&client, "f");
            file.write_at(&pattern(1, length), 0).unwrap();
            file.sync().unwrap();
            let before = cluster.meta.inode(file.inode().0);
            for part in 2..5 {
                file.write_at(&pattern(part, length + 4_000), 0).unwrap();
                file.flush().unwrap();
            }
            if lost {
                cluster.meta.state.lock().inodes.insert(file.inode().0, before);
            }
            cluster.meta.state.lock().start += 1;
            file.set_length(0).unwrap();
            let anew = pattern(9, 300);
            file.write_at(&anew, 0).unwrap();
            file.sync().unwrap();
            assert!(stored(&cluster) == anew && read_all(&file) == anew, "{length} bytes, {lost}");
            assert_eq!(file.attributes().unwrap().size, 300);
        }
    }
}

/// A file of one client, which another one has open, as its service knew it before it had objects.
fn before_objects(cluster: &Cluster) -> (File, File, impl Fn(u32)) {
    let (one, two) = (cluster.client(), cluster.client());
    let file = create(&one, "f");
    file.sync().unwrap();
    let other = two.open_file(file.inode(), BOTH).unwrap();
    let (meta, inode, before) =
        (Arc::clone(&cluster.meta), file.inode().0, cluster.meta.inode(file.inode().0));
    let forget = move |reports| {
        let mut state = meta.state.lock();
        let mut forgotten = before.clone();
        forgotten.attributes.version += u64::from(reports);
        state.inodes.insert(inode, forgotten);
        state.start += 1;
    };
    (file, other, forget)
}

/// What is not reported was written again to the file that had no objects any more, and the fsync returned 0 without
/// what had been reported before the loss.
#[test]
fn a_layout_that_a_service_forgot_with_what_was_reported_is_told_by_the_next_fsync() {
    for reports in [0, 20] {
        let cluster = Cluster::new(2);
        let (file, _other, forget) = before_objects(&cluster);
        let bytes = pattern(3, 100_000);
        file.write_at(&bytes, 0).unwrap();
        file.flush().unwrap();
        file.write_at(&bytes[..10], 0).unwrap();
        forget(reports);
        let told = file.sync();
        assert!(told.is_err() || stored(&cluster) == bytes, "{reports} reports of others: {told:?}");
    }
}

#[test]
fn what_was_not_reported_outlives_a_layout_that_a_service_forgot() {
    for reports in [0, 20] {
        let cluster = Cluster::new(2);
        let (file, _other, forget) = before_objects(&cluster);
        let bytes = pattern(3, 100_000);
        file.write_at(&bytes, 0).unwrap();
        forget(reports);
        file.sync().unwrap();
        assert!(stored(&cluster) == bytes, "{reports} reports of others");
    }
}
