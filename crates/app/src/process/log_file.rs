//! A log file that is put aside as FILE.1 when it has grown, while it is written: a daemon may run for years.

use parking_lot::Mutex;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A log above this size is put aside; with the one before it, twice this is what logs of one process take.
pub(crate) const LOG_BYTES_MAX: u64 = 16 << 20;

/// The file, written by any number of threads; each write is one line or more.
pub(crate) struct LogFile {
    path: PathBuf,
    bytes_max: u64,
    present: Mutex<Present>,
}

struct Present {
    file: File,
    bytes: u64,
}

/// `FILE.1`
fn aside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    PathBuf::from(name)
}

/// Opens a log to go on at its end.
pub(crate) fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).read(true).open(path)
}

/// Puts a log aside that is too large already.
pub(crate) fn rotate_large(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(log) if log.is_file() && log.len() > LOG_BYTES_MAX => fs::rename(path, aside(path)),
        _ => Ok(()),
    }
}

impl LogFile {
    /// Opens `path`, which is put aside when it is larger than `bytes_max`.
    pub(crate) fn open(path: &Path, bytes_max: u64) -> io::Result<LogFile> {
        let file = append_to(path)?;
        let bytes = file.metadata()?.len();
        Ok(LogFile { path: path.to_owned(), bytes_max, present: Mutex::new(Present { file, bytes }) })
    }

    fn rotate(&self, present: &mut Present) -> io::Result<()> {
        // A device or pipe is no file to be put aside.
        if !fs::symlink_metadata(&self.path)?.is_file() {
            return Ok(());
        }
        fs::rename(&self.path, aside(&self.path))?;
        present.file = append_to(&self.path)?;
        present.bytes = 0;
        Ok(())
    }
}

impl Write for &LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut present = self.present.lock();
        if present.bytes > 0 && present.bytes + line.len() as u64 > self.bytes_max {
            // Where that is not possible the log goes on growing: better than losing it.
            let _ = self.rotate(&mut present);
        }
        let written = (&present.file).write(line)?;
        present.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_put_aside_while_it_is_written_and_no_line_is_cut() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let path = scratch.path().join("a.log");
        let log = LogFile::open(&path, 100).expect("opened");
        for number in 0..20 {
            (&log).write_all(format!("line number {number:02}\n").as_bytes()).expect("written");
        }
        let read = |path: &Path| fs::read_to_string(path).expect("there");
        let (before, now) = (read(&aside(&path)), read(&path));
        assert!(before.len() <= 100 && now.len() <= 100);
        let numbers: Vec<String> = (14..20).map(|number| format!("line number {number}")).collect();
        let lines: Vec<&str> = before.lines().chain(now.lines()).collect();
        assert!(lines.ends_with(&numbers.iter().map(String::as_str).collect::<Vec<_>>()), "{lines:?}");
        assert_eq!(fs::read_dir(scratch.path()).expect("listed").count(), 2);
    }

    #[test]
    fn a_device_is_never_put_aside() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let link = scratch.path().join("log");
        std::os::unix::fs::symlink("/dev/null", &link).expect("made");
        let log = LogFile::open(&link, 10).expect("opened");
        (0..5).for_each(|_| (&log).write_all(b"a line of some length\n").expect("written"));
        assert_eq!(fs::read_dir(scratch.path()).expect("listed").count(), 1);
    }
}
