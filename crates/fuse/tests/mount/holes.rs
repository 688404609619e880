//! Files with holes: what they take, where their data is, and what copying programs make of them.

use crate::cluster::{Cluster, errno, with_cluster, with_mount};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use vazao_testing::programs::RunBounded;

const MIB: u64 = 1 << 20;
const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

fn create(path: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(true).open(path).expect("created")
}

fn allocated(path: &Path) -> u64 {
    fs::metadata(path).expect("there").blocks() * 512
}

/// All runs of data as lseek(2) shows them.
fn data(file: &File) -> Vec<std::ops::Range<u64>> {
    let mut runs = Vec::new();
    let mut position = 0;
    loop {
        let start = match seek(file, SeekFrom::Data(position)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return runs,
            Err(error) => panic!("SEEK_DATA {position}: {error}"),
        };
        let end = seek(file, SeekFrom::Hole(start)).expect("the end of the file is a hole");
        assert!(start >= position && end > start, "{start}..{end} after {position}");
        runs.push(start..end);
        position = end;
    }
}

#[test]
fn a_punched_hole_and_a_cut_give_space_back_on_the_servers() {
    with_cluster(|cluster: &Cluster| {
        let m = cluster.mount();
        let path = m.path("f");
        let file = create(&path);
        file.write_all_at(&vec![7; 8 * MIB as usize], 0).expect("written");
        file.sync_all().expect("synced");
        let full = cluster.stored_bytes();
        assert!(full >= 8 * MIB, "{full}");
        fallocate(&file, PUNCH, MIB + 1000, 4 * MIB).expect("punched");
        file.sync_all().expect("synced");
        assert!(cluster.stored_bytes() <= full - 4 * MIB + MIB / 4, "{}", cluster.stored_bytes());
        assert_eq!(file.metadata().expect("there").len(), 8 * MIB);
        let shown = allocated(&path);
        assert!((3 * MIB..5 * MIB).contains(&shown), "{shown} bytes shown");
        file.set_len(MIB).expect("cut");
        assert!(cluster.stored_bytes() <= MIB + MIB / 4, "{}", cluster.stored_bytes());
        assert!(allocated(&path) <= MIB);
        let mut back = vec![1; MIB as usize];
        file.read_exact_at(&mut back, 0).expect("read");
        assert!(back.iter().all(|byte| *byte == 7));
        drop(file);
        m.unmount();
    });
}

#[test]
fn data_and_holes_are_told_apart_in_large_and_small_files() {
    with_mount(|m| {
        let path = m.path("f");
        let file = create(&path);
        assert_eq!(errno(seek(&file, SeekFrom::Data(0)).map_err(Into::into)), Errno::NXIO);
        file.set_len(100 * MIB).expect("extended");
        assert_eq!(data(&file), []);
        assert_eq!(allocated(&path), 0);
        file.write_all_at(&[1; 100_000], 10 * MIB).expect("written");
        file.write_all_at(&vec![1; 3 * MIB as usize], 50 * MIB).expect("written");
        let runs = data(&file);
        assert_eq!(runs.len(), 2, "{runs:?}");
        assert!(runs[0].start <= 10 * MIB && runs[0].end >= 10 * MIB + 100_000 && runs[0].end < 11 * MIB);
        assert!(runs[1].start <= 50 * MIB && runs[1].end >= 53 * MIB && runs[1].end < 54 * MIB);
        assert_eq!(seek(&file, SeekFrom::Data(51 * MIB + 5)), Ok(51 * MIB + 5));
        assert_eq!(seek(&file, SeekFrom::Hole(60 * MIB)), Ok(60 * MIB));
        assert_eq!(seek(&file, SeekFrom::Hole(100 * MIB)), Err(Errno::NXIO));
        file.sync_all().expect("synced");
        assert!((3 * MIB..4 * MIB).contains(&allocated(&path)), "{}", allocated(&path));
        let small = create(&m.path("small"));
        small.write_all_at(b"some", 0).expect("written");
        small.set_len(1 << 40).expect("extended");
        assert!(matches!(&data(&small)[..], [run] if *run == (0..4)));
        fallocate(&small, PUNCH, 0, 1 << 40).expect("punched");
        assert_eq!(data(&small), []);
    });
}

#[test]
fn a_file_still_being_written_never_looks_like_one_hole() {
    with_mount(|m| {
        let path = m.path("f");
        let file = create(&path);
        file.write_all_at(&[1; 100_000], 0).expect("written");
        // tar takes a file with a size and no blocks for a hole, and does not read it.
        assert!(allocated(&path) > 0);
        drop(file);
        assert!(allocated(&path) >= 100_000);
    });
}

fn run(program: &str, arguments: &[&str], directory: &Path) {
    let output = Command::new(program).args(arguments).current_dir(directory).run_bounded();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn sparse_files_stay_sparse_when_cp_and_tar_copy_them() {
    with_mount(|m| {
        let path = m.path("f");
        let file = create(&path);
        file.set_len(64 * MIB).expect("extended");
        file.write_all_at(&vec![3; 300_000], 20 * MIB).expect("written");
        drop(file);
        run("cp", &["--sparse=always", "f", "always"], m.root());
        run("cp", &["--sparse=auto", "f", "auto"], m.root());
        run("tar", &["-S", "-cf", "f.tar", "f"], m.root());
        fs::create_dir(m.path("d")).expect("created");
        run("tar", &["-S", "-xf", "f.tar", "-C", "d"], m.root());
        let expected = fs::read(&path).expect("readable");
        assert!(fs::metadata(m.path("f.tar")).expect("there").len() < MIB, "the archive holds the holes");
        for name in ["always", "auto", "d/f"] {
            assert!(fs::read(m.path(name)).expect("readable") == expected, "{name}");
            assert!(allocated(&m.path(name)) < MIB, "{name}: {} bytes", allocated(&m.path(name)));
        }
    });
}

#[test]
fn what_lies_outside_of_data_is_zeros_whatever_was_written_and_punched() {
    use rand::{RngExt, SeedableRng};
    with_mount(|m| {
        let mut random = rand::rngs::StdRng::seed_from_u64(11);
        let mut model: Vec<u8> = Vec::new();
        let file = create(&m.path("f"));
        for step in 0..150 {
            let offset = random.random_range(0..3_000_000u64);
            let length = random.random_range(1..400_000usize);
            let end = offset as usize + length;
            match random.random_range(0..5) {
                0 | 1 => {
                    file.write_all_at(&vec![step as u8 + 1; length], offset).expect("written");
                    model.resize(model.len().max(end), 0);
                    model[offset as usize..end].fill(step as u8 + 1);
                }
                2 | 3 => {
                    fallocate(&file, PUNCH, offset, length as u64).expect("punched");
                    let end = end.min(model.len());
                    model[(offset as usize).min(end)..end].fill(0);
                }
                _ => {
                    file.set_len(offset).expect("cut");
                    model.resize(offset as usize, 0);
                }
            }
            let (mut position, end) = (0, model.len() as u64);
            for run in data(&file).into_iter().chain(std::iter::once(end..end)) {
                let hole = &model[position..run.start as usize];
                assert!(hole.iter().all(|byte| *byte == 0), "step {step}: data before {run:?}");
                position = run.end as usize;
            }
            let mut all = vec![0; model.len()];
            file.read_exact_at(&mut all, 0).expect("read");
            assert!(all == model, "step {step}");
        }
    });
}

#[test]
fn ranges_are_copied_within_the_volume_as_if_they_were_read_and_written() {
    use rand::{RngExt, SeedableRng};
    with_cluster(|cluster| {
        let m = cluster.mount();
        let mut random = rand::rngs::StdRng::seed_from_u64(3);
        let files = [create(&m.path("a")), create(&m.path("b"))];
        let mut models = [Vec::new(), Vec::new()];
        for (file, model) in files.iter().zip(&mut models) {
            *model = (0..2_500_000u32).map(|at| (at / 1000 % 251) as u8).collect();
            model[700_000..1_400_000].fill(0);
            file.write_all_at(model, 0).expect("written");
        }
        for step in 0..120 {
            let (source, target) = (random.random_range(0..2usize), random.random_range(0..2usize));
            let unit: u64 = [1, 65_536, 262_144][random.random_range(0..3)];
            let place = |random: &mut rand::rngs::StdRng| random.random_range(0..2_000_000) / unit * unit;
            let (from, to) = (place(&mut random), place(&mut random));
            let length = random.random_range(1..900_000usize);
            if source == target && from.abs_diff(to) < length as u64 {
                continue;
            }
            let (mut from_offset, mut to_offset, mut left) = (from, to, length);
            while left > 0 {
                let (input, output) = (&files[source], &files[target]);
                let inputs = (Some(&mut from_offset), Some(&mut to_offset));
                let copied = rustix::fs::copy_file_range(input, inputs.0, output, inputs.1, left);
                let copied = copied.expect("copied");
                if copied == 0 {
                    break;
                }
                left -= copied;
            }
            let end = (from as usize + length).min(models[source].len());
            let bytes = models[source][(from as usize).min(end)..end].to_vec();
            assert_eq!(length - left, bytes.len(), "step {step}");
            let model = &mut models[target];
            model.resize(model.len().max(to as usize + bytes.len()), 0);
            model[to as usize..to as usize + bytes.len()].copy_from_slice(&bytes);
            let mut back = vec![1; model.len() + 1];
            let read = files[target].read_at(&mut back[..1], 0).expect("read");
            assert_eq!(read, 1);
            files[target].read_exact_at(&mut back[..model.len()], 0).expect("read");
            assert!(back[..model.len()] == model[..], "step {step}: {from} to {to}, {length} bytes");
            assert_eq!(files[target].metadata().expect("there").len(), model.len() as u64);
        }
        assert!(cluster.finished("CopyObjectRange") > 20, "servers copy what they have on both sides");
        drop(files);
        m.unmount();
    });
}

fn copy(input: &File, output: &File, from: u64, to: u64, length: u64) {
    let (mut from, mut to, end) = (from, to, from + length);
    while from < end {
        let left = (end - from) as usize;
        let copied = rustix::fs::copy_file_range(input, Some(&mut from), output, Some(&mut to), left);
        assert!(copied.expect("copied") > 0, "the source ends at {from}");
    }
}

/// A file with holes that was copied within the mount took all of its size: what of a hole lay on another server than
/// its copy, or at another place in its block, was read and written as zeros.
#[test]
fn holes_of_a_file_stay_holes_when_it_is_copied_within_the_volume() {
    with_mount(|m| {
        const SIZE: u64 = 32 * MIB;
        let source = create(&m.path("source"));
        source.set_len(SIZE).expect("extended");
        // In the middle, across stripe units, and at the end; not on the boundaries of anything.
        for (offset, length) in [(3 * MIB + 5_000, 70_000), (9 * MIB - 100, 300_000), (SIZE - 777, 777)] {
            source.write_all_at(&vec![7; length as usize], offset).expect("written");
        }
        source.sync_all().expect("synced");
        let expected = fs::read(m.path("source")).expect("readable");
        for (name, shift) in [("aligned", 0), ("units", MIB), ("blocks", 64 << 10), ("bytes", 1_001)] {
            let target = create(&m.path(name));
            copy(&source, &target, 0, shift, SIZE);
            target.sync_all().expect("synced");
            let copied = fs::read(m.path(name)).expect("readable");
            assert!(copied[shift as usize..] == expected, "{name}");
            assert!(copied[..shift as usize].iter().all(|byte| *byte == 0), "{name}");
            assert!(allocated(&m.path(name)) < MIB, "{name}: {} bytes", allocated(&m.path(name)));
        }
        // Over what is there, which is longer: what the source has not is gone, what it does not reach stays.
        let over = create(&m.path("over"));
        over.write_all_at(&vec![9; SIZE as usize + 5_000], 0).expect("written");
        copy(&source, &over, 0, 1_001, SIZE);
        over.sync_all().expect("synced");
        let copied = fs::read(m.path("over")).expect("readable");
        let (before, rest) = copied.split_at(1_001);
        let (between, after) = rest.split_at(SIZE as usize);
        assert!(between == expected && before.iter().chain(after).all(|byte| *byte == 9));
        assert_eq!(after.len(), 5_000 - 1_001);
        assert!(allocated(&m.path("over")) < MIB, "{} bytes", allocated(&m.path("over")));
    });
}

#[test]
fn files_without_any_data_and_small_ones_with_much_of_a_hole_are_copied_with_their_length() {
    with_mount(|m| {
        let empty = create(&m.path("empty"));
        empty.set_len(100 * MIB).expect("extended");
        let small = create(&m.path("small"));
        small.write_all_at(b"some", 0).expect("written");
        small.set_len(100 * MIB).expect("extended");
        for name in ["empty", "small"] {
            let source = File::open(m.path(name)).expect("opened");
            let copied = m.path(format!("{name}-copy"));
            let target = create(&copied);
            copy(&source, &target, 0, 0, 100 * MIB);
            drop(target);
            assert_eq!(fs::metadata(&copied).expect("there").len(), 100 * MIB, "{name}");
            assert!(allocated(&copied) < MIB, "{name}: {}", allocated(&copied));
            let mut start = [1; 8];
            File::open(&copied).expect("opened").read_exact_at(&mut start, 0).expect("read");
            let expected = if name == "small" { *b"some\0\0\0\0" } else { [0; 8] };
            assert_eq!(start, expected, "{name}");
            let at_end = File::open(&copied).expect("opened").read_at(&mut start, 100 * MIB - 4);
            assert_eq!((at_end.expect("read"), &start[..4]), (4, &[0; 4][..]), "{name}");
        }
        // A hole of a large file over the bytes of a small one.
        let over = create(&m.path("over"));
        over.write_all_at(&[9; 12_000], 0).expect("written");
        copy(&empty, &over, 0, 4_000, 5_000);
        let read = fs::read(m.path("over")).expect("readable");
        assert!(read.len() == 12_000 && read[4_000..9_000].iter().all(|byte| *byte == 0));
        assert!(read[..4_000].iter().chain(&read[9_000..]).all(|byte| *byte == 9));
    });
}

/// The document spoke of units of 4 KiB, and data ends to the byte.
#[test]
fn data_ends_to_the_byte_where_nothing_was_written_behind_it_and_begins_at_the_block() {
    with_mount(|m| {
        let file = create(&m.path("f"));
        file.set_len(64 * MIB).expect("extended");
        file.write_all_at(&[1; 10_000], 20 * MIB + 100).expect("written");
        let runs = data(&file);
        assert_eq!(runs.len(), 1, "{runs:?}");
        assert_eq!(runs[0], 20 * MIB..20 * MIB + 10_100);
        let small = create(&m.path("small"));
        small.write_all_at(b"some", 100).expect("written");
        small.set_len(10_000).expect("extended");
        let runs = data(&small);
        assert_eq!((runs.len(), &runs[0]), (1, &(0..104)));
    });
}

/// What a program had stored into a hole through a shared mapping was no data to other programs until it was written
/// back: they copied zeros, without a message.
#[test]
fn what_is_stored_into_a_hole_through_a_mapping_is_data_at_once() {
    with_mount(|m| {
        for size in [10_000u64, 8 * MIB] {
            let mut program = Command::new("python3");
            let program = program.args(["-c", include_str!("mapped_holes.py")]);
            let output = program.arg(m.root()).arg(size.to_string()).run_bounded();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(said, "done\n", "{}", String::from_utf8_lossy(&output.stderr));
        }
    });
}
