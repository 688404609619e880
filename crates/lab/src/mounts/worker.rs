//! A process that carries out operations on files of a directory, one kind after the other, when it is told to.
//!
//! It reads lines `OPERATION COUNT` and answers each with `done` or `failed REASON`: the parent starts several at once
//! and takes the time.

use super::Operation;
use crate::Error;
use crate::size::MIB;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes of a small file.
const SMALL_BYTES: usize = 4096;
/// Bytes of each call that reads or writes one after the other.
const SEQUENTIAL_BYTES: usize = MIB as usize;
/// Bytes of each call that reads here and there.
const RANDOM_BYTES: usize = 32 * 1024;

/// `vazao lab mounts` starts these; not for people.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The directory to work in
    directory: PathBuf,
}

/// Works until its standard input ends.
pub fn run(args: &Args, output: &mut dyn Write) -> Result<(), Error> {
    fs::create_dir_all(&args.directory).map_err(Error::at(args.directory.display()))?;
    for line in io::stdin().lock().lines() {
        let line = line.map_err(Error::at("standard input"))?;
        let said = match carry_out(&args.directory, &line) {
            Ok(()) => "done".to_owned(),
            Err(error) => format!("failed {error}"),
        };
        writeln!(output, "{said}").and_then(|()| output.flush()).map_err(Error::at("standard output"))?;
    }
    Ok(())
}

fn carry_out(directory: &Path, line: &str) -> io::Result<()> {
    let unknown = || io::Error::other(format!("unknown order '{line}'"));
    let (operation, count) = line.split_once(' ').ok_or_else(unknown)?;
    let operation = Operation::named(operation).ok_or_else(unknown)?;
    let count: u64 = count.parse().map_err(|_| unknown())?;
    match operation {
        Operation::ReadDirectory => list(directory, count),
        Operation::WriteSequential => write_sequential(&directory.join("data"), count),
        Operation::ReadSequential => read_sequential(&directory.join("data"), count),
        Operation::ReadRandom => read_random(&directory.join("data"), count),
        Operation::RemoveData => fs::remove_file(directory.join("data")),
        small => (0..count).try_for_each(|number| on_file(small, directory, number)),
    }
}

/// A file's name says its number; small files have names of their own.
fn on_file(operation: Operation, directory: &Path, number: u64) -> io::Result<()> {
    let empty = || directory.join(format!("file.{number}"));
    let small = || directory.join(format!("small.{number}"));
    match operation {
        Operation::Create => OpenOptions::new().write(true).create_new(true).open(empty()).map(drop),
        Operation::StatHot | Operation::StatCold => fs::symlink_metadata(empty()).map(drop),
        Operation::OpenClose => File::open(empty()).map(drop),
        Operation::Unlink => fs::remove_file(empty()),
        Operation::WriteSmall => {
            let file = OpenOptions::new().write(true).create_new(true).open(small())?;
            file.write_all_at(&[number as u8; SMALL_BYTES], 0)
        }
        Operation::ReadSmall => {
            let mut bytes = [0; SMALL_BYTES];
            File::open(small())?.read_exact_at(&mut bytes, 0)
        }
        Operation::UnlinkSmall => fs::remove_file(small()),
        _ => Err(io::Error::other("no operation on one file")),
    }
}

fn list(directory: &Path, count: u64) -> io::Result<()> {
    let mut listed = 0;
    for entry in fs::read_dir(directory)? {
        entry?;
        listed += 1;
    }
    if listed < count {
        return Err(io::Error::other(format!("{listed} entries listed of at least {count}")));
    }
    Ok(())
}

fn write_sequential(path: &Path, bytes: u64) -> io::Result<()> {
    let (mut file, block) = (File::create(path)?, vec![0x5a; SEQUENTIAL_BYTES]);
    for _ in 0..bytes / SEQUENTIAL_BYTES as u64 {
        file.write_all(&block)?;
    }
    file.sync_all()
}

fn read_sequential(path: &Path, bytes: u64) -> io::Result<()> {
    let (file, mut block) = (File::open(path)?, vec![0; SEQUENTIAL_BYTES]);
    let blocks = bytes / SEQUENTIAL_BYTES as u64;
    (0..blocks).try_for_each(|number| file.read_exact_at(&mut block, number * SEQUENTIAL_BYTES as u64))
}

/// Each block once, in an order that no read-ahead helps: steps of an odd number modulo their count.
fn read_random(path: &Path, bytes: u64) -> io::Result<()> {
    let (file, mut block) = (File::open(path)?, vec![0; RANDOM_BYTES]);
    let blocks = (bytes / RANDOM_BYTES as u64).max(1).next_power_of_two() / 2;
    for number in 0..blocks {
        let at = number.wrapping_mul(0x9e37_79b9) % blocks.max(1);
        file.read_exact_at(&mut block, at * RANDOM_BYTES as u64)?;
    }
    Ok(())
}

/// How many calls [`Operation::ReadRandom`] makes of a file of `bytes` bytes.
pub(super) fn random_reads(bytes: u64) -> u64 {
    (bytes / RANDOM_BYTES as u64).max(1).next_power_of_two() / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_does_what_it_is_called_on_a_local_directory() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path();
        let run = |line: &str| carry_out(path, line);
        run("create 3").expect("created");
        assert!(run("create 1").is_err(), "they are there already");
        run("stat-hot 3").expect("there");
        run("readdir 3").expect("listed");
        assert!(run("readdir 4").is_err(), "there are only three");
        run("open-close 3").expect("there");
        run("write-4k 2").expect("written");
        assert_eq!(fs::read(path.join("small.1")).expect("there"), vec![1; SMALL_BYTES]);
        run("read-4k 2").expect("readable");
        run("unlink 3").expect("removed");
        run("unlink-4k 2").expect("removed");
        run("write-seq 2097152").expect("written");
        run("read-seq 2097152").expect("readable");
        run("read-random 2097152").expect("readable");
        assert!(run("read-seq 3145728").is_err(), "the file is shorter");
        run("remove-data 0").expect("removed");
        assert_eq!(fs::read_dir(path).expect("readable").count(), 0);
        assert!(run("stat-hot 1").is_err() && run("dance 1").is_err() && run("create").is_err());
    }

    #[test]
    fn random_reads_meet_each_block_once() {
        let blocks = random_reads(4 << 20);
        assert_eq!(blocks, 64);
        let mut seen: Vec<u64> = (0..blocks).map(|n| n.wrapping_mul(0x9e37_79b9) % blocks).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..blocks).collect::<Vec<_>>());
    }
}
