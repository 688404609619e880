//! The FAILED file: says that a target was taken out of service, and why. An operator removes it.

use std::io;
use vazao_disk::{Disk, Open};

/// Its name.
pub(crate) const FILE: &str = "FAILED";

/// A reason is one line.
const REASON_BYTES_MAX: usize = 4096;

/// Notes the reason durably.
pub(crate) fn write(disk: &dyn Disk, reason: &str) -> io::Result<()> {
    let file = disk.open(FILE, Open::Create)?;
    file.set_length(0)?;
    file.write_at(reason.as_bytes(), 0)?;
    file.sync()?;
    disk.sync_directory("")
}

/// The reason noted earlier, if there is one.
pub(crate) fn read(disk: &dyn Disk) -> io::Result<Option<String>> {
    let file = match disk.open(FILE, Open::ReadOnly) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = vec![0; REASON_BYTES_MAX];
    let length = file.read_at(&mut bytes, 0)?;
    bytes.truncate(length);
    Ok(Some(String::from_utf8_lossy(&bytes).trim().to_owned()))
}
