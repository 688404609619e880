//! A process that carries out operations on files of a directory, one kind after the other, on command.
//!
//! It reads lines `OPERATION COUNT` and answers each with `done` or `failed REASON`: the parent starts several at once
//! and takes the time.

use super::Operation;
use crate::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes of a small file.
const SMALL_BYTES: usize = 4096;

/// `f_type` of every FUSE file system (statfs(2)).
const FUSE_MAGIC: u64 = 0x6573_5546;

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
        Operation::ForgetData => forget(&directory.join("data")),
        Operation::RemoveData => fs::remove_file(directory.join("data")),
        other => match other.call_bytes() {
            Some(call_bytes) => on_data(other, &directory.join("data"), count, call_bytes),
            None => (0..count).try_for_each(|number| on_file(other, directory, number)),
        },
    }
}

fn on_data(operation: Operation, path: &Path, bytes: u64, call_bytes: u64) -> io::Result<()> {
    if operation.writes_data() {
        write_sequential(path, bytes, call_bytes)
    } else if operation.is_random() {
        read_random(path, bytes, call_bytes)
    } else {
        read_sequential(path, bytes, call_bytes)
    }
}

/// Has the kernel drop what it keeps of a file of a FUSE file system. The pages of a local file system are also those
/// of the servers that keep their objects there, and stay.
fn forget(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    if rustix::fs::fstatfs(&file)?.f_type as u64 == FUSE_MAGIC {
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    }
    Ok(())
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

fn write_sequential(path: &Path, bytes: u64, call_bytes: u64) -> io::Result<()> {
    let (mut file, block) = (File::create(path)?, vec![0x5a; call_bytes as usize]);
    for _ in 0..bytes / call_bytes {
        file.write_all(&block)?;
    }
    file.sync_all()
}

fn read_sequential(path: &Path, bytes: u64, call_bytes: u64) -> io::Result<()> {
    let (file, mut block) = (File::open(path)?, vec![0; call_bytes as usize]);
    (0..bytes / call_bytes).try_for_each(|number| file.read_exact_at(&mut block, number * call_bytes))
}

/// Each block once, in an order that no read-ahead helps: steps of an odd number modulo their count.
fn read_random(path: &Path, bytes: u64, call_bytes: u64) -> io::Result<()> {
    let (file, mut block) = (File::open(path)?, vec![0; call_bytes as usize]);
    let blocks = random_reads(bytes, call_bytes);
    (0..blocks).try_for_each(|number| {
        let at = number.wrapping_mul(0x9e37_79b9) % blocks.max(1);
        file.read_exact_at(&mut block, at * call_bytes)
    })
}

/// How many blocks of a file of `bytes` bytes are read here and there: all, if their number is a power of two, and else
/// as many of the first ones as are.
pub(super) fn random_reads(bytes: u64, call_bytes: u64) -> u64 {
    (bytes / call_bytes).checked_ilog2().map_or(0, |power| 1 << power)
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
        for call in ["1m", "64k"] {
            run(&format!("write-{call} 2097152")).expect("written");
            assert_eq!(fs::metadata(path.join("data")).expect("there").len(), 2 << 20);
            run("forget-data 0").expect("forgotten, or kept");
            run(&format!("read-{call} 2097152")).expect("readable");
            assert!(run(&format!("read-{call} 3145728")).is_err(), "the file is shorter");
        }
        run("random-32k 2097152").expect("readable");
        run("random-512k 2097152").expect("readable");
        run("remove-data 0").expect("removed");
        assert_eq!(fs::read_dir(path).expect("readable").count(), 0);
        assert!(run("stat-hot 1").is_err() && run("dance 1").is_err() && run("create").is_err());
    }

    #[test]
    fn random_reads_meet_each_block_once() {
        let blocks = random_reads(4 << 20, 32 << 10);
        assert_eq!((blocks, random_reads(3 << 20, 512 << 10)), (128, 4));
        let mut seen: Vec<u64> = (0..blocks).map(|n| n.wrapping_mul(0x9e37_79b9) % blocks).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..blocks).collect::<Vec<_>>());
    }
}
