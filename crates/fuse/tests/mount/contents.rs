//! Bytes of files.

use crate::cluster::{Cluster, errno, with_cluster, with_mount};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use vazao_testing::programs::WaitBounded;

const MIB: usize = 1 << 20;

/// Bytes that differ from block to block and are cheap to make.
fn pattern(block: u64, bytes: &mut [u8]) {
    let mut state = block.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for chunk in bytes.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
    }
}

fn write_pattern(path: &Path, mebibytes: u64) {
    let mut file = File::create(path).expect("created");
    let mut buffer = vec![0; MIB];
    for block in 0..mebibytes {
        pattern(block, &mut buffer);
        file.write_all(&buffer).expect("written");
    }
    file.sync_all().expect("synced");
}

fn check_pattern(path: &Path, mebibytes: u64) {
    let mut file = File::open(path).expect("opened");
    assert_eq!(file.metadata().expect("there").len(), mebibytes * MIB as u64);
    let (mut buffer, mut expected) = (vec![0; MIB], vec![0; MIB]);
    for block in 0..mebibytes {
        file.read_exact(&mut buffer).expect("read");
        pattern(block, &mut expected);
        assert!(buffer == expected, "MiB {block} differs");
    }
    assert_eq!(file.read(&mut buffer).expect("read"), 0);
}

#[test]
fn a_file_of_1_gib_comes_back_whole_through_another_mount() {
    with_cluster(|cluster| {
        let first = cluster.mount();
        write_pattern(&first.path("large"), 1024);
        first.unmount();
        let second = cluster.mount();
        check_pattern(&second.path("large"), 1024);
        fs::remove_file(second.path("large")).expect("removed");
        second.unmount();
    });
}

#[test]
fn eight_threads_write_and_read_their_own_files() {
    with_mount(|m| {
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let path = m.path(format!("f{thread}"));
                scope.spawn(move || {
                    write_pattern(&path, 8);
                    check_pattern(&path, 8);
                });
            }
        });
    });
}

#[test]
fn writes_of_any_size_at_any_place_match_a_file_in_memory() {
    use rand::{RngExt, SeedableRng};
    with_cluster(|cluster: &Cluster| {
        let m = cluster.mount();
        let mut random = rand::rngs::StdRng::seed_from_u64(7);
        let mut model: Vec<u8> = Vec::new();
        let path = m.path("f");
        let mut file =
            File::options().read(true).write(true).create(true).truncate(true).open(&path).expect("created");
        for step in 0..400 {
            let offset = random.random_range(0..600_000u64);
            let length = if random.random_bool(0.5) {
                random.random_range(1..5000)
            } else {
                random.random_range(1..200_000)
            };
            match random.random_range(0..10) {
                0 => {
                    file.set_len(offset).expect("cut");
                    model.resize(offset as usize, 0);
                }
                1 => {
                    drop(file);
                    file = File::options().read(true).write(true).open(&path).expect("opened again");
                }
                2 => file.sync_all().expect("synced"),
                3..=5 => {
                    let mut bytes = vec![0; length];
                    let read = file.read_at(&mut bytes, offset).expect("read");
                    let end = (offset as usize + length).min(model.len());
                    let expected = model.get(offset as usize..end).unwrap_or_default();
                    assert!(read <= expected.len() && bytes[..read] == expected[..read], "step {step}");
                    assert!(read > 0 || expected.is_empty(), "step {step}");
                }
                _ => {
                    let mut bytes = vec![0; length];
                    pattern(step, &mut bytes);
                    file.write_all_at(&bytes, offset).expect("written");
                    let end = offset as usize + length;
                    model.resize(model.len().max(end), 0);
                    model[offset as usize..end].copy_from_slice(&bytes);
                }
            }
            assert_eq!(file.metadata().expect("there").len(), model.len() as u64, "step {step}");
        }
        drop(file);
        assert!(fs::read(&path).expect("readable") == model);
        m.unmount();
        let m = cluster.mount();
        assert!(fs::read(m.path("f")).expect("readable") == model, "the same through a new mount");
        m.unmount();
    });
}

#[test]
fn holes_read_as_zeros_and_cutting_forgets() {
    with_mount(|m| {
        let path = m.path("f");
        let file = File::options().read(true).write(true).create_new(true).open(&path).expect("created");
        file.write_all_at(b"end", 10_000_000).expect("written");
        let mut bytes = vec![1; 100_000];
        file.read_exact_at(&mut bytes, 5_000_000).expect("read");
        assert!(bytes.iter().all(|&b| b == 0));
        file.set_len(10_000_001).expect("cut");
        file.set_len(10_000_003).expect("extended");
        let mut tail = [9; 3];
        file.read_exact_at(&mut tail, 10_000_000).expect("read");
        assert_eq!(&tail, b"e\0\0");
        file.set_len(0).expect("emptied");
        assert_eq!(file.read_at(&mut bytes, 0).expect("read"), 0);
        drop(file);
        assert_eq!(fs::metadata(&path).expect("there").blocks(), 0);
    });
}

#[test]
fn opening_with_truncation_empties_and_appending_appends() {
    with_mount(|m| {
        let path = m.path("f");
        fs::write(&path, vec![1; 200_000]).expect("written");
        File::create(&path).expect("emptied");
        assert_eq!(fs::metadata(&path).expect("there").len(), 0);
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let path = &path;
                scope.spawn(move || {
                    let mut file = File::options().append(true).open(path).expect("opened");
                    (0..100).for_each(|_| file.write_all(&[thread; 100]).expect("appended"));
                });
            }
        });
        let contents = fs::read(&path).expect("readable");
        assert_eq!(contents.len(), 4 * 100 * 100);
        for thread in 0..4u8 {
            let whole = contents.chunks(100).filter(|record| record.iter().all(|&b| b == thread)).count();
            assert_eq!(whole, 100, "records of thread {thread}");
        }
    });
}

#[test]
fn fallocate_extends_keeps_the_length_zeroes_and_punches_as_the_manual_says() {
    use rustix::fs::fallocate;
    let (keep, punch, zero) =
        (FallocateFlags::KEEP_SIZE, FallocateFlags::PUNCH_HOLE, FallocateFlags::ZERO_RANGE);
    with_mount(|m| {
        for mut model in [vec![7u8; 5_000], vec![7u8; 3_000_000]] {
            let path = m.path("f");
            fs::write(&path, &model).expect("written");
            let file = File::options().read(true).write(true).open(&path).expect("opened");
            let length = model.len();
            fallocate(&file, keep, 0, 2 * length as u64).expect("there is space");
            assert_eq!(file.metadata().expect("there").len(), length as u64);
            for (mode, start, count) in
                [(punch | keep, 100, 1_500), (zero | keep, length / 2, 1_000), (zero, 0, 50)]
            {
                fallocate(&file, mode, start as u64, count as u64).expect("served");
                model[start..start + count].fill(0);
                assert!(fs::read(&path).expect("readable") == model, "{mode:?} at {start} of {length}");
            }
            fallocate(&file, punch | keep, length as u64 - 700, 1 << 40).expect("served");
            model[length - 700..].fill(0);
            assert!(fs::read(&path).expect("readable") == model, "the tail of {length}");
            fallocate(&file, zero, length as u64 - 10, 1_010).expect("extends");
            model.resize(length + 1_000, 0);
            fallocate(&file, FallocateFlags::empty(), 1_000, length as u64 + 1_000).expect("extends");
            model.resize(length + 2_000, 0);
            fallocate(&file, FallocateFlags::empty(), 0, 10).expect("nothing to do");
            drop(file);
            assert!(fs::read(&path).expect("readable") == model, "extended from {length}");
        }
    });
}

#[test]
fn fallocate_refuses_what_it_cannot_do() {
    with_mount(|m| {
        let file = File::create(m.path("f")).expect("created");
        for mode in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
            assert_eq!(rustix::fs::fallocate(&file, mode, 0, 4096), Err(Errno::OPNOTSUPP));
        }
        assert_eq!(rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 1 << 60), Err(Errno::NOSPC));
    });
}

#[test]
fn a_program_that_runs_cannot_be_written_to_or_emptied() {
    with_mount(|m| {
        let path = m.path("sleep");
        fs::copy("/bin/sleep", &path).expect("copied");
        // A program that another test is starting has the copy's descriptor, too, until it is executed.
        let start = || std::process::Command::new(&path).arg("60").spawn();
        let is_busy = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ExecutableFileBusy;
        let mut running = (0..100).find_map(|_| match start() {
            Err(error) if is_busy(&error) => None,
            outcome => Some(outcome.expect("it runs")),
        });
        let running = running.as_mut().expect("nobody writes to it any more");
        for flags in [OFlags::WRONLY, OFlags::RDWR, OFlags::RDONLY | OFlags::TRUNC] {
            let opened = rustix::fs::open(&path, flags | OFlags::CLOEXEC, rustix::fs::Mode::empty());
            assert_eq!(opened.map(drop), Err(Errno::TXTBSY), "{flags:?}");
        }
        assert!(running.try_wait().expect("ours").is_none(), "it still runs");
        running.kill().expect("ours");
        running.wait_bounded();
        assert_eq!(fs::read(&path).expect("readable"), fs::read("/bin/sleep").expect("readable"));
        let emptying = OFlags::RDONLY | OFlags::TRUNC | OFlags::CLOEXEC;
        let emptied = rustix::fs::open(&path, emptying, rustix::fs::Mode::empty());
        emptied.expect("nobody runs it any more");
        assert_eq!(fs::metadata(&path).expect("there").len(), 0);
    });
}

#[test]
fn descriptors_are_held_to_their_mode() {
    with_mount(|m| {
        let path = m.path("f");
        fs::write(&path, b"x").expect("written");
        let mut reader = File::open(&path).expect("opened");
        assert_eq!(errno(reader.write(b"y")), Errno::BADF);
        let mut writer = File::options().write(true).open(&path).expect("opened");
        assert_eq!(errno(writer.read(&mut [0; 1])), Errno::BADF);
        assert_eq!(errno(File::open(m.path("missing"))), Errno::NOENT);
        assert_eq!(errno(File::create(m.root())), Errno::ISDIR);
        assert_eq!(errno(File::options().write(true).create_new(true).open(&path)), Errno::EXIST);
        assert_eq!(reader.seek(SeekFrom::End(0)).expect("seekable"), 1);
    });
}

#[test]
fn direct_io_and_synchronous_writes_work() {
    use std::os::unix::fs::OpenOptionsExt;
    with_mount(|m| {
        let (direct, synchronous) = (rustix::fs::OFlags::DIRECT, rustix::fs::OFlags::SYNC);
        let path = m.path("f");
        for flags in [direct, synchronous] {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(true).custom_flags(flags.bits() as i32);
            let file = options.open(&path).expect("opened");
            let mut written = vec![0; 3 * MIB];
            pattern(3, &mut written);
            file.write_all_at(&written, 4096).expect("written");
            let mut read = vec![0; 3 * MIB];
            file.read_exact_at(&mut read, 4096).expect("read");
            assert!(read == written);
        }
    });
}
