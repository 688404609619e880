//! The BOOT file: whether what the processes of a target had written, and not synced, is there. It names the start of
//! the machine in which that was last known, or says that power was lost since.
//!
//! A loss stays noted over any number of starts, until this target's placement groups know of it: a process that was
//! killed before it could say so must not leave behind that the machine ran on since. So does that the directory began
//! empty, in the place of a lost one, that an object of it was being made anew and is not whole, and that the disk
//! failed or turned out to be an older copy.
//!
//! A second line says since which of the target's processes nothing was lost: all that they have answered is there.

use std::io;
use vazao_disk::{Disk, Open};

pub(crate) const FILE: &str = "BOOT";

const LOST: &str = "lost\n";

const EMPTY: &str = "empty\n";

const UNFINISHED: &str = "unfinished\n";

/// More than both lines have.
const BYTES_MAX: usize = 64;

/// What a start finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Start {
    /// Everything is there that was written.
    pub(crate) kept_power: bool,
    /// So is everything that processes of the target with this number and higher ones have answered; 0: not known.
    pub(crate) kept_from: u64,
    /// Whole objects, or parts of one, are not there that were synced, and the target's groups may not know of it yet.
    pub(crate) must_not_lead: bool,
}

/// What is there of what was written to `disk`; noted for the next start. `is_clean`: all of it was synced. `next`: no
/// process before had this number, and this one will not have a lower one.
pub(crate) fn start(disk: &dyn Disk, is_clean: bool, next: u64) -> io::Result<Start> {
    let found = read(disk)?;
    let (first, second) = found.split_at(found.find('\n').map_or(0, |end| end + 1));
    let ran_on = first == line(disk) && disk.boot_id() != 0;
    // A line that does not end was not written whole.
    let is_torn = first.is_empty() && !found.is_empty();
    let kept_power = !is_torn && ![LOST, EMPTY, UNFINISHED].contains(&first) && (ran_on || is_clean);
    let must_not_lead = [EMPTY, UNFINISHED].contains(&first);
    let kept_from = if kept_power { second.trim_end().parse().unwrap_or(next) } else { 0 };
    let now = match kept_power {
        true => lines(disk, kept_from),
        false if must_not_lead => first.to_owned(),
        false => LOST.to_owned(),
    };
    if found != now {
        write(disk, &now)?;
    }
    Ok(Start { kept_power, kept_from, must_not_lead })
}

/// Notes that not all is there that was answered: the disk failed, or is an older copy. What lacks more than that
/// stays noted.
pub(crate) fn lose(disk: &dyn Disk) -> io::Result<()> {
    let found = read(disk)?;
    let is_known = [LOST, EMPTY, UNFINISHED].iter().any(|line| found.starts_with(line));
    if is_known { Ok(()) } else { write(disk, LOST) }
}

/// Notes that an object is being made anew; [`begin_anew`] that it is whole.
pub(crate) fn begin_object(disk: &dyn Disk) -> io::Result<()> {
    write(disk, UNFINISHED)
}

/// Notes that not all is there that was answered, and nothing more.
pub(crate) fn begin_lost(disk: &dyn Disk) -> io::Result<()> {
    write(disk, LOST)
}

/// Notes that of a new directory.
pub(crate) fn begin_empty(disk: &dyn Disk) -> io::Result<()> {
    write(disk, EMPTY)
}

/// All that have to know of a loss do: from here on nothing is lost but with the machine's next loss of power, and
/// nothing was since the process `kept_from`.
pub(crate) fn begin_anew(disk: &dyn Disk, kept_from: u64) -> io::Result<()> {
    write(disk, &lines(disk, kept_from))
}

/// What processes before this one have answered is there for all that is known, and may have rotted.
pub(crate) fn doubt(disk: &dyn Disk, process: u64) -> io::Result<()> {
    let is_kept = read(disk)?.starts_with(&line(disk));
    if is_kept { write(disk, &lines(disk, process)) } else { Ok(()) }
}

/// A boot id of 16 hexadecimal digits is all that earlier programs read.
fn lines(disk: &dyn Disk, kept_from: u64) -> String {
    format!("{}{kept_from}\n", line(disk))
}

fn line(disk: &dyn Disk) -> String {
    format!("{:016x}\n", disk.boot_id())
}

fn read(disk: &dyn Disk) -> io::Result<String> {
    let file = disk.open(FILE, Open::Create)?;
    let mut bytes = vec![0; BYTES_MAX];
    let length = file.read_at(&mut bytes, 0)?;
    bytes.truncate(length);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn write(disk: &dyn Disk, line: &str) -> io::Result<()> {
    let file = disk.open(FILE, Open::Create)?;
    // Over the first line before it is cut: on a full disk, or when it ends in between, that one counts.
    file.write_at(line.as_bytes(), 0)?;
    file.set_length(line.len() as u64)?;
    file.sync()?;
    disk.sync_directory("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use vazao_disk::MemoryDisk;

    fn start(disk: &MemoryDisk, is_clean: bool) -> bool {
        super::start(&disk.boot(), is_clean, 1).expect("it answers").kept_power
    }

    #[test]
    fn what_was_written_is_there_after_a_kill_and_after_a_clean_stop() {
        let disk = MemoryDisk::new(1);
        assert!(start(&disk, true), "it is new");
        disk.kill();
        assert!(start(&disk, false), "the machine ran on");
        disk.crash();
        assert!(start(&disk, true), "all of it had been synced");
    }

    #[test]
    fn a_directory_that_began_empty_is_so_until_the_groups_know_of_it() {
        let disk = MemoryDisk::new(1);
        begin_empty(&disk.boot()).expect("it answers");
        let empty = Start { kept_power: false, kept_from: 0, must_not_lead: true };
        let start = |is_clean| super::start(&disk.boot(), is_clean, 1).expect("it answers");
        assert_eq!(start(true), empty);
        disk.kill();
        assert_eq!(start(false), empty, "over any number of starts");
        disk.crash();
        lose(&disk.boot()).expect("it answers");
        assert_eq!(start(true), empty);
        begin_anew(&disk.boot(), 7).expect("it answers");
        disk.kill();
        assert_eq!(start(false), Start { kept_power: true, kept_from: 7, must_not_lead: false });
    }

    /// A process that was killed while it made an object anew went on alone with the part of it that was there.
    #[test]
    fn an_object_that_is_not_whole_is_known_of_until_the_groups_know() {
        let disk = MemoryDisk::new(1);
        assert!(start(&disk, true));
        begin_object(&disk.boot()).expect("it answers");
        disk.kill();
        let found = super::start(&disk.boot(), true, 1).expect("it answers");
        assert!(!found.kept_power && found.must_not_lead, "nor does a clean stop help");
        begin_anew(&disk.boot(), 2).expect("it answers");
        disk.kill();
        assert!(start(&disk, false));
    }

    /// The process after the one that had found the loss took the machine for one that ran on.
    #[test]
    fn a_loss_of_power_stays_known_until_the_groups_know_of_it() {
        let disk = MemoryDisk::new(1);
        assert!(start(&disk, true));
        disk.crash();
        assert!(!start(&disk, false));
        disk.kill();
        assert_eq!([start(&disk, false), start(&disk, true)], [false; 2], "nor does a later clean stop help");
        begin_anew(&disk.boot(), 2).expect("it answers");
        disk.kill();
        assert!(start(&disk, false));
    }

    #[test]
    fn it_is_known_since_which_process_nothing_was_lost() {
        let disk = MemoryDisk::new(1);
        let from = |is_clean, next| super::start(&disk.boot(), is_clean, next).expect("it answers").kept_from;
        assert_eq!(from(true, 1), 1);
        disk.kill();
        assert_eq!(from(false, 4), 1);
        disk.crash();
        assert_eq!(from(true, 9), 1, "stopped in order");
        disk.crash();
        assert_eq!(from(false, 12), 0, "its own number is not known yet");
        begin_anew(&disk.boot(), 13).expect("it answers");
        disk.kill();
        assert_eq!(from(false, 20), 13);
        lose(&disk.boot()).expect("it answers");
        disk.kill();
        assert_eq!(from(true, 30), 0, "the disk had failed");
    }

    #[test]
    fn a_line_that_was_not_written_whole_is_not_trusted() {
        let disk = MemoryDisk::new(1);
        write(&disk.boot(), "01234").expect("it answers");
        assert!(!start(&disk, true));
        assert_eq!(read(&disk.boot()).expect("it answers"), LOST);
    }

    /// A directory of a program that knew one line only.
    #[test]
    fn without_the_second_line_it_is_known_since_this_process() {
        let disk = MemoryDisk::new(1);
        let line = line(&disk.boot());
        write(&disk.boot(), &line).expect("it answers");
        let found = super::start(&disk.boot(), false, 40).expect("it answers");
        assert_eq!(found, Start { kept_power: true, kept_from: 40, must_not_lead: false });
        assert_eq!(read(&disk.boot()).expect("it answers"), format!("{line}40\n"));
    }
}
