//! The BOOT file: which start of the machine the target was last used in. With it a process that starts knows whether
//! the machine ran on since the one before: what that one had written, and not synced, is there then.

use std::io;
use vazao_disk::{Disk, Open};

pub(crate) const FILE: &str = "BOOT";

/// A boot id in hexadecimal digits, and the end of a line.
const BYTES: usize = 17;

/// Whether the machine ran on since `disk` was last opened; from now on the present start is the last. False where that
/// cannot be known.
pub(crate) fn ran_on(disk: &dyn Disk) -> io::Result<bool> {
    let boot = disk.boot_id();
    let line = format!("{boot:016x}\n");
    let file = disk.open(FILE, Open::Create)?;
    let mut found = vec![0; BYTES];
    let length = file.read_at(&mut found, 0)?;
    if found.get(..length) == Some(line.as_bytes()) {
        return Ok(boot != 0);
    }
    file.set_length(0)?;
    file.write_at(line.as_bytes(), 0)?;
    file.sync()?;
    disk.sync_directory("")?;
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vazao_disk::MemoryDisk;

    #[test]
    fn a_machine_ran_on_unless_it_lost_power_or_was_never_seen() {
        let disk = MemoryDisk::new(1);
        assert!(!ran_on(&disk.boot()).expect("it answers"), "it is new");
        disk.kill();
        assert!(ran_on(&disk.boot()).expect("it answers"));
        disk.crash();
        let starts = [(); 2].map(|()| ran_on(&disk.boot()).expect("it answers"));
        assert_eq!(starts, [false, true]);
    }
}
