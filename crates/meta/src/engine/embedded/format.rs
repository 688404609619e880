//! What makes a directory ours: the `FORMAT` file with the format's number, and the lock.

use super::super::{EngineError, EngineResult};
use std::sync::Arc;
use vazao_disk::{Disk, DiskFile, Open};
use vazao_model::checksum::crc32c;

/// Number of the format of log, checkpoint and file names. Another number is refused, never guessed at.
const FORMAT: u32 = 2;

/// The one before, which is converted. Its checkpoint was a plain redb database.
const FORMAT_BEFORE_CHECKSUMS: u32 = 1;

const FORMAT_FILE: &str = "FORMAT";
const FORMAT_DRAFT: &str = "FORMAT.new";
/// Held by the process that has the directory.
pub(super) const LOCK_FILE: &str = "LOCK";
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

/// What the `FORMAT` file says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Format {
    /// Random number of the volume.
    pub(super) identity: u64,
    /// Its checkpoint is one of format 1, whose blocks have no checksums.
    pub(super) is_before_checksums: bool,
}

/// What the directory is, or `None` when there is no `FORMAT` file.
pub(super) fn read(disk: &dyn Disk) -> EngineResult<Option<Format>> {
    let failed = |e| EngineError::io(FORMAT_FILE, e);
    let file = match disk.open(FORMAT_FILE, Open::ReadOnly) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(e)),
    };
    let mut bytes = vec![0; FORMAT_BYTES_MAX];
    let length = file.read_at(&mut bytes, 0).map_err(failed)?;
    bytes.truncate(length);
    parse(&bytes).map(Some)
}

/// The checksum comes first: of a damaged file nothing else is believed, its number least of all.
fn parse(bytes: &[u8]) -> EngineResult<Format> {
    let damaged = || {
        let text = "FORMAT is damaged (it does not match its checksum): restore it from a backup of the metadata \
                    directory";
        EngineError::Corrupt(text.to_owned())
    };
    let text = std::str::from_utf8(bytes).map_err(|_| damaged())?;
    let Some((lines, check)) = text.strip_suffix('\n').and_then(|text| text.rsplit_once('\n')) else {
        return Err(damaged());
    };
    let lines = format!("{lines}\n");
    if check != format!("check {:08x}", crc32c(lines.as_bytes())) {
        return Err(if text.starts_with(FIRST_LINE) { damaged() } else { not_ours() });
    }
    let mut rest = lines.lines();
    if rest.next() != Some(FIRST_LINE) {
        return Err(not_ours());
    }
    let number = rest.next().and_then(|line| line.strip_prefix("format ")).unwrap_or_default();
    let is_before_checksums = number == FORMAT_BEFORE_CHECKSUMS.to_string();
    if !is_before_checksums && number != FORMAT.to_string() {
        let text = format!(
            "the metadata directory has format {number:?}, this program reads formats {FORMAT_BEFORE_CHECKSUMS} and \
             {FORMAT} and writes {FORMAT}: use the version of vazao that wrote it"
        );
        return Err(EngineError::Refused(text));
    }
    let identity = rest.next().and_then(|line| line.strip_prefix("identity "));
    let identity = identity.and_then(|hex| u64::from_str_radix(hex, 16).ok()).ok_or_else(damaged)?;
    Ok(Format { identity, is_before_checksums })
}

/// A file whose beginning is damaged looks like a file of another program.
fn not_ours() -> EngineError {
    let text = "FORMAT is damaged, or not that of a metadata directory: check the path; if it is right, restore the file \
                from a backup";
    EngineError::Refused(text.to_owned())
}

fn render(format: u32, identity: u64) -> String {
    let lines = format!("{FIRST_LINE}\nformat {format}\nidentity {identity:016x}\n");
    format!("{lines}check {:08x}\n", crc32c(lines.as_bytes()))
}

/// Declares the directory complete. The last step of its creation.
pub(super) fn write(disk: &dyn Disk, identity: u64) -> EngineResult<()> {
    let draft = || -> std::io::Result<()> {
        let file = disk.open(FORMAT_DRAFT, Open::Create)?;
        file.set_length(0)?;
        file.write_at(render(FORMAT, identity).as_bytes(), 0)?;
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
    fn another_format_number_is_refused_by_name() {
        let format = |is_before_checksums| Format { identity: 77, is_before_checksums };
        assert_eq!(parse(render(2, 77).as_bytes()).unwrap(), format(false));
        assert_eq!(parse(render(1, 77).as_bytes()).unwrap(), format(true));
        let newer = parse(render(9, 77).as_bytes());
        assert!(matches!(newer, Err(EngineError::Refused(text)) if text.contains("\"9\"")));
        assert!(matches!(parse(b"something else"), Err(EngineError::Corrupt(_) | EngineError::Refused(_))));
    }

    /// A flipped bit in the line with the number made it another number, and the operator was sent for another version
    /// of the program: the checksum was looked at last.
    #[test]
    fn damage_is_never_taken_for_another_version() {
        let sound = render(FORMAT, 0x0123_4567_89AB_CDEF).into_bytes();
        for at in 0..sound.len() {
            for bit in 0..8 {
                let mut bytes = sound.clone();
                bytes[at] ^= 1 << bit;
                let error = parse(&bytes).expect_err("a damaged file");
                let text = error.to_string();
                assert!(text.contains("damaged") && text.contains("restore"), "byte {at}, bit {bit}: {text}");
            }
            let cut = parse(&sound[..at]).expect_err("a cut file").to_string();
            assert!(cut.contains("damaged"), "cut at {at}: {cut}");
        }
    }
}
