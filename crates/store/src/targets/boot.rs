//! The BOOT file: whether what the processes of a target had written, and not synced, is there. It names the start of
//! the machine in which that was last known, or says that power was lost since.
//!
//! A loss stays noted over any number of starts, until this target's placement groups know of it: a process that was
//! killed before it could say so must not leave behind that the machine ran on since. So does that the directory began
//! empty, in the place of a lost one, and that an object of it was being made anew and is not whole.

use std::io;
use vazao_disk::{Disk, Open};

pub(crate) const FILE: &str = "BOOT";

const LOST: &str = "lost\n";

const EMPTY: &str = "empty\n";

const UNFINISHED: &str = "unfinished\n";

/// A boot id in hexadecimal digits, and the end of a line.
const BYTES: usize = 17;

/// Whether everything is there that was written to `disk`; noted for the next start. `is_clean`: all of it was synced.
pub(crate) fn kept_power(disk: &dyn Disk, is_clean: bool) -> io::Result<bool> {
    let found = read(disk)?;
    let ran_on = found == line(disk) && disk.boot_id() != 0;
    let kept = ![LOST, EMPTY, UNFINISHED].contains(&found.as_str()) && (ran_on || is_clean);
    let now = match kept {
        true => line(disk),
        false if lacks_objects(&found) => found.clone(),
        false => LOST.to_owned(),
    };
    if found != now {
        write(disk, &now)?;
    }
    Ok(kept)
}

/// Whole objects, or parts of one, are not there that were synced, and the target's groups may not know of it yet.
pub(crate) fn must_not_lead(disk: &dyn Disk) -> io::Result<bool> {
    Ok(lacks_objects(&read(disk)?))
}

fn lacks_objects(line: &str) -> bool {
    [EMPTY, UNFINISHED].contains(&line)
}

/// Notes that an object is being made anew; [`begin_anew`] that it is whole.
pub(crate) fn begin_object(disk: &dyn Disk) -> io::Result<()> {
    write(disk, UNFINISHED)
}

/// Notes that of a new directory.
pub(crate) fn begin_empty(disk: &dyn Disk) -> io::Result<()> {
    write(disk, EMPTY)
}

/// All that have to know of a loss do: from here on nothing is lost but with the machine's next loss of power.
pub(crate) fn begin_anew(disk: &dyn Disk) -> io::Result<()> {
    write(disk, &line(disk))
}

fn line(disk: &dyn Disk) -> String {
    format!("{:016x}\n", disk.boot_id())
}

fn read(disk: &dyn Disk) -> io::Result<String> {
    let file = disk.open(FILE, Open::Create)?;
    let mut bytes = vec![0; BYTES];
    let length = file.read_at(&mut bytes, 0)?;
    bytes.truncate(length);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn write(disk: &dyn Disk, line: &str) -> io::Result<()> {
    let file = disk.open(FILE, Open::Create)?;
    file.set_length(0)?;
    file.write_at(line.as_bytes(), 0)?;
    file.sync()?;
    disk.sync_directory("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use vazao_disk::MemoryDisk;

    fn start(disk: &MemoryDisk, is_clean: bool) -> bool {
        kept_power(&disk.boot(), is_clean).expect("it answers")
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
        let is_empty = || must_not_lead(&disk.boot()).expect("it answers");
        assert!(is_empty() && !start(&disk, true));
        disk.kill();
        assert!(!start(&disk, false) && is_empty(), "over any number of starts");
        disk.crash();
        assert!(!start(&disk, true) && is_empty());
        begin_anew(&disk.boot()).expect("it answers");
        disk.kill();
        assert!(start(&disk, false) && !is_empty());
    }

    /// A process that was killed while it made an object anew went on alone with the part of it that was there.
    #[test]
    fn an_object_that_is_not_whole_is_known_of_until_the_groups_know() {
        let disk = MemoryDisk::new(1);
        assert!(start(&disk, true));
        begin_object(&disk.boot()).expect("it answers");
        let must_not_lead = || must_not_lead(&disk.boot()).expect("it answers");
        disk.kill();
        assert!(!start(&disk, true) && must_not_lead(), "nor does a clean stop help");
        begin_anew(&disk.boot()).expect("it answers");
        disk.kill();
        assert!(start(&disk, false) && !must_not_lead());
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
        begin_anew(&disk.boot()).expect("it answers");
        disk.kill();
        assert!(start(&disk, false));
    }
}
