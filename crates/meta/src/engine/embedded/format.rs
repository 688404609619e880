//! What makes a directory ours: the `FORMAT` file with the format's number, and the lock.

use super::super::{EngineError, EngineResult};
use std::sync::Arc;
use vazao_disk::{Disk, DiskFile, Open};
use vazao_model::checksum::crc32c;

/// Number of the format of log, checkpoint and file names. Another number is refused, never guessed at.
const FORMAT: u32 = 1;

const FORMAT_FILE: &str = "FORMAT";
const FORMAT_DRAFT: &str = "FORMAT.new";
const LOCK_FILE: &str = "LOCK";
const FIRST_LINE: &str = "vazao metadata";

/// The file is three short lines and a check.
const FORMAT_BYTES_MAX: usize = 4096;

/// Takes the directory for this process.
pub(super) fn lock(disk: &dyn Disk) -> EngineResult<Arc<dyn DiskFile>> {
    let failed = |e| EngineError::io(LOCK_FILE, e);
    let file = disk.open(LOCK_FILE, Open::Create).map_err(failed)?;
    if !file.try_lock().map_err(failed)? {
        let text = "the metadata directory is in use by another process: stop that one first";
        return Err(EngineError::Refused(text.to_owned()));
    }
    Ok(file)
}

/// The volume's identity, or `None` when there is no `FORMAT` file.
pub(super) fn read(disk: &dyn Disk) -> EngineResult<Option<u64>> {
    let failed = |e| EngineError::io(FORMAT_FILE, e);
    let file = match disk.open(FORMAT_FILE, Open::ReadOnly) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(e)),
    };
    let mut bytes = vec![0; FORMAT_BYTES_MAX];
    let length = file.read_at(&mut bytes, 0).map_err(failed)?;
    bytes.truncate(length);
    parse(&String::from_utf8_lossy(&bytes)).map(Some)
}

fn parse(text: &str) -> EngineResult<u64> {
    let field = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned))
    };
    if text.lines().next() != Some(FIRST_LINE) {
        let text = "FORMAT is not that of a metadata directory: check the path";
        return Err(EngineError::Refused(text.to_owned()));
    }
    let number = field("format").unwrap_or_default();
    if number != FORMAT.to_string() {
        let text = format!(
            "the metadata directory has format {number:?}, this program reads and writes format {FORMAT}: use the \
             version of vazao that wrote it"
        );
        return Err(EngineError::Refused(text));
    }
    let identity = field("identity").and_then(|hex| u64::from_str_radix(&hex, 16).ok());
    match identity {
        Some(identity) if text == render(identity) => Ok(identity),
        _ => Err(EngineError::Corrupt("FORMAT is damaged: restore it from a backup".to_owned())),
    }
}

fn render(identity: u64) -> String {
    let lines = format!("{FIRST_LINE}\nformat {FORMAT}\nidentity {identity:016x}\n");
    format!("{lines}check {:08x}\n", crc32c(lines.as_bytes()))
}

/// Declares the directory complete. The last step of its creation.
pub(super) fn write(disk: &dyn Disk, identity: u64) -> EngineResult<()> {
    let draft = || -> std::io::Result<()> {
        let file = disk.open(FORMAT_DRAFT, Open::Create)?;
        file.set_length(0)?;
        file.write_at(render(identity).as_bytes(), 0)?;
        file.sync()?;
        disk.rename(FORMAT_DRAFT, FORMAT_FILE)?;
        disk.sync_directory("")
    };
    draft().map_err(|e| EngineError::io(FORMAT_FILE, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_format_number_is_refused_by_name_and_damage_is_told_apart() {
        assert_eq!(parse(&render(77)).unwrap(), 77);
        let newer = render(77).replace("format 1", "format 2");
        assert!(matches!(parse(&newer), Err(EngineError::Refused(text)) if text.contains("\"2\"")));
        let damaged = render(77).replace("identity 0", "identity 1");
        assert!(matches!(parse(&damaged), Err(EngineError::Corrupt(_))));
        assert!(matches!(parse("something else"), Err(EngineError::Refused(_))));
    }
}
