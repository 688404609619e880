//! Servers that go away under a running mount.

use crate::cluster::{Cluster, Mounted, with_cluster};
use rustix::io::Errno;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use vazao_testing::waiting::wait_until;

const MIB: usize = 1 << 20;

#[test]
fn a_data_server_that_is_gone_fails_reads_of_its_files_in_time_and_holds_up_nothing_else() {
    const DEADLINE_MS: u32 = 4_000;
    with_cluster(|cluster| {
        let m = cluster.mount();
        fs::write(m.path("large"), vec![7; 24 * MIB]).expect("written");
        fs::write(m.path("small"), b"in the inode record").expect("written");
        m.unmount();
        let m = cluster.mount_with_deadline(DEADLINE_MS);
        let offsets = cluster.offsets_on_server(2, fs::metadata(m.path("large")).expect("there").ino());
        assert!(offsets.len() >= 20, "{offsets:?}");
        cluster.stop_server(2);
        let clock = vazao_meter::clock::system();
        std::thread::scope(|scope| {
            let readers: Vec<_> = offsets[..20]
                .iter()
                .map(|&offset| {
                    let (path, clock) = (m.path("large"), &clock);
                    scope.spawn(move || {
                        let file = File::open(path).expect("opening asks the metadata service only");
                        let start_ns = clock.now_ns();
                        let failure =
                            file.read_exact_at(&mut [0; 4096], offset).expect_err("its server is gone");
                        (Errno::from_io_error(&failure), clock.now_ns() - start_ns)
                    })
                })
                .collect();
            let start_ns = clock.now_ns();
            for round in 0..20 {
                assert_eq!(fs::read(m.path("small")).expect("readable"), b"in the inode record");
                fs::create_dir(m.path(format!("d{round}"))).expect("names still work");
            }
            let others_ns = clock.now_ns() - start_ns;
            assert!(
                others_ns < u64::from(DEADLINE_MS) * 1_000_000 / 2,
                "others were held up for {others_ns} ns"
            );
            for reader in readers {
                let (errno, waited_ns) = reader.join().expect("no panic");
                assert_eq!(errno, Some(Errno::HOSTUNREACH));
                // Twice the deadline is what it took while each repetition of the kernel asked the server again.
                assert!(
                    waited_ns < u64::from(DEADLINE_MS) * 1_700_000,
                    "a read failed only after {waited_ns} ns"
                );
            }
        });
        cluster.start_server(2);
        assert!(fs::read(m.path("large")).expect("whole again").iter().all(|&b| b == 7));
        m.unmount();
    });
}

/// Regression: the error of the read-ahead was repeated for its first page, which was sound, and so on. A damaged block
/// made up to a megabyte before it unreadable to a sequential reader.
#[test]
fn a_damaged_block_hides_no_sound_one_from_a_reader_in_order() {
    const PART: usize = 64 << 10;
    with_cluster(|cluster| {
        let m = cluster.mount();
        let bytes: Vec<u8> = (0..4 * MIB).map(|at| (at / 4096 % 251) as u8).collect();
        fs::write(m.path("hit"), &bytes).expect("written");
        let inode = fs::metadata(m.path("hit")).expect("there").ino();
        m.unmount();
        let object = cluster.objects(Some(inode)).pop().expect("it has objects");
        let object = File::options().read(true).write(true).open(object).expect("opens");
        let place = object.metadata().expect("there").len() / 2 + 7;
        let mut byte = [0];
        object.read_exact_at(&mut byte, place).expect("readable");
        object.write_all_at(&[!byte[0]], place).expect("written");
        let m = cluster.mount();
        let file = File::open(m.path("hit")).expect("opens");
        let mut hidden = 0;
        for start in (0..bytes.len()).step_by(PART) {
            let mut part = vec![0; PART];
            match file.read_exact_at(&mut part, start as u64) {
                Ok(()) => assert!(part == bytes[start..start + PART], "wrong bytes at {start}"),
                Err(error) => {
                    assert_eq!(Errno::from_io_error(&error), Some(Errno::UCLEAN));
                    hidden += PART;
                }
            }
        }
        // The kernel asks again for as much as it keeps in one piece of its cache.
        assert!((PART..=256 << 10).contains(&hidden), "{hidden} bytes could not be read");
        drop(file);
        fs::remove_file(m.path("hit")).expect("removed");
        m.unmount();
    });
}

#[test]
fn what_is_written_right_after_a_read_failed_is_read_at_once() {
    with_cluster(|cluster| {
        let m = cluster.mount_with_deadline(1_000);
        fs::write(m.path("large"), vec![7; 8 * MIB]).expect("written");
        m.unmount();
        let m = cluster.mount_with_deadline(1_000);
        let path = m.path("large");
        let offset = cluster.offsets_on_server(2, fs::metadata(&path).expect("there").ino())[0];
        let file = File::options().read(true).write(true).open(&path).expect("opened");
        cluster.stop_server(2);
        file.read_exact_at(&mut [0; 4096], offset).expect_err("its server is gone");
        cluster.start_server(2);
        // Through another descriptor, and only a byte: the page must be asked for.
        let other = File::options().write(true).open(&path).expect("opened");
        other.write_all_at(&[8], offset).expect("written");
        let mut bytes = [0; 4096];
        file.read_exact_at(&mut bytes, offset).expect("read as it was written");
        assert_eq!((bytes[0], bytes[1], bytes[4095]), (8, 7, 7));
        drop((file, other));
        m.unmount();
    });
}

/// Once the service was there for 100 ms at a time, however little the client got done in them: on a busy machine its
/// pauses between attempts met those times so seldom that 300 files took more than a minute.
#[test]
fn calls_continue_when_the_metadata_service_is_back() {
    const FILES: usize = 300;
    const FILES_BETWEEN_STOPS: usize = 15;
    with_cluster(|cluster| {
        let m = cluster.mount();
        let written = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for number in 0..FILES {
                    let path = m.path(format!("f{number}"));
                    fs::write(&path, number.to_string()).expect("written, late at worst");
                    assert_eq!(fs::read_to_string(&path).expect("readable"), number.to_string());
                    written.fetch_add(1, Ordering::Relaxed);
                }
            });
            let clock = vazao_meter::clock::system();
            for stop in (FILES_BETWEEN_STOPS..FILES).step_by(FILES_BETWEEN_STOPS) {
                wait_until("files are written", || {
                    written.load(Ordering::Relaxed) >= stop || writer.is_finished()
                });
                cluster.stop_server(0);
                clock.sleep(Duration::from_millis(300));
                cluster.start_server(0);
            }
            writer.join().expect("no call failed");
        });
        assert_eq!(fs::read_dir(m.root()).expect("listed").count(), FILES);
        m.unmount();
    });
}

#[test]
fn a_server_gone_during_a_write_shows_as_an_error_or_as_a_delay_and_never_as_wrong_bytes() {
    with_cluster(|cluster| {
        let m = cluster.mount_with_deadline(3_000);
        for comes_back in [true, false] {
            let path = m.path(format!("f{comes_back}"));
            let file = File::create(&path).expect("created");
            file.write_all_at(&vec![1; 4 * MIB], 0).expect("written");
            file.sync_all().expect("stored");
            cluster.stop_server(3);
            let outcome = std::thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    file.write_all_at(&vec![2; 4 * MIB], 0)?;
                    file.sync_all()
                });
                if comes_back {
                    vazao_meter::clock::system().sleep(Duration::from_millis(500));
                    cluster.start_server(3);
                }
                writer.join().expect("no panic")
            });
            assert_eq!(outcome.is_ok(), comes_back, "{outcome:?}");
            if !comes_back {
                cluster.start_server(3);
            }
            if !comes_back {
                // Back or not: what was written is not there, and only writing it again makes it so.
                file.sync_all().expect_err("nothing was written again");
            }
            drop(file);
        }
        let _ = m.mount.unmount();
        // What could not be stored may be told here once more.
        let _ = m.mount.wait();
        let m = cluster.mount();
        for comes_back in [true, false] {
            let contents = fs::read(m.path(format!("f{comes_back}"))).expect("readable");
            assert_eq!(contents.len(), 4 * MIB);
            assert!(contents.iter().all(|&b| b == 2 || (!comes_back && b == 1)));
        }
        m.unmount();
    });
}

#[test]
fn a_server_that_was_gone_during_a_large_write_and_is_back_before_fsync_never_lets_fsync_and_close_lie() {
    with_cluster(|cluster| {
        let m = cluster.mount_with_deadline(1_000);
        let path = m.path("large");
        let file = File::create(&path).expect("created");
        file.write_all_at(&vec![1; 32 * MIB], 0).expect("written");
        file.sync_all().expect("stored");
        cluster.stop_server(3);
        // Cut by the kernel into many: the error of one becomes a short count, and the application goes on behind it.
        let written = (0..20).map(|_| file.write_at(&vec![2; 32 * MIB], 0)).find_map(Result::ok);
        cluster.start_server(3);
        let written = written.expect("some of it is taken before the first failure is known");
        let _ = file.write_at(&vec![2; 32 * MIB - written], written as u64);
        let synced = file.sync_all();
        let synced_again = file.sync_all();
        let is_stored = {
            let client = cluster.client();
            let mode = vazao_client::OpenMode { read: true, ..Default::default() };
            let inode = vazao_model::InodeId(file.metadata().expect("there").ino());
            let other = client.open_file(inode, mode).expect("opened");
            let mut bytes = vec![0; 32 * MIB];
            assert_eq!(other.read_at(&mut bytes, 0).expect("readable elsewhere"), bytes.len());
            bytes.iter().all(|&b| b == 2)
        };
        assert!(!is_stored, "the server was gone for longer than the deadline");
        synced.expect_err("not everything is stored");
        synced_again.expect_err("nothing was written again meanwhile");
        file.write_all_at(&vec![3; 32 * MIB], 0).expect("the server is back");
        file.sync_all().expect("stored now");
        drop(file);
        assert!(fs::read(&path).expect("readable").iter().all(|&b| b == 3));
        m.unmount();
    });
}

/// Far longer than a killed process may take, and than the test.
const SILENT_MS: u32 = 120_000;

/// A process that writes so much, and then waits for the servers, is killed while one of them is gone.
fn kill_a_writer(cluster: &Cluster, mounted: &Mounted, name: &str, mib: usize) {
    let clock = vazao_meter::clock::system();
    cluster.stop_server(2);
    let output = format!("of={}", mounted.path(name).display());
    let writing = std::process::Command::new("dd")
        .args(["if=/dev/zero", &output, "bs=1M", &format!("count={mib}"), "conv=fsync", "status=none"])
        .spawn();
    let mut writing = writing.expect("dd is there");
    clock.sleep(Duration::from_secs(2));
    assert!(writing.try_wait().expect("ours").is_none(), "a writer to a server that is gone waits");
    writing.kill().expect("it runs");
    let deadline_ns = clock.now_ns() + u64::from(SILENT_MS / 4) * 1_000_000;
    while writing.try_wait().expect("ours").is_none() {
        assert!(clock.now_ns() < deadline_ns, "it does not end");
        clock.sleep(Duration::from_millis(50));
    }
    fs::write(mounted.path("other"), b"the mount serves on").expect("written");
    cluster.start_server(2);
}

#[test]
fn a_killed_process_ends_while_a_server_is_silent_and_what_it_has_written_is_stored_later() {
    with_cluster(|cluster| {
        let (mounted, elsewhere) = (cluster.mount_with_deadline(SILENT_MS), cluster.mount());
        // More than the client keeps for the silent server, and so little that some of it is never waited for.
        for (name, mib) in [("large", 512), ("small", 2)] {
            kill_a_writer(cluster, &mounted, name, mib);
            let length = fs::metadata(mounted.path(name)).expect("there").len() as usize;
            assert!(length >= MIB, "{length} bytes were taken over");
            let is_stored = || fs::read(elsewhere.path(name)).is_ok_and(|bytes| bytes == vec![0; length]);
            wait_until("all that was taken over is there elsewhere", is_stored);
        }
    });
}
