//! The side of this machine.

use super::tree::{Found, Identity, Origin, Owner, Sink, Source, Tree};
use crate::failure::{At, Failure, Outcome};
use crate::location::show;
use parking_lot::Mutex;
use rustix::fs::{
    Access, Advice, AtFlags, CWD, OFlags, SeekFrom, Timespec, Timestamps, accessat, chownat, fadvise,
    fcntl_getfl, fcntl_setfl, seek, utimensat,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use std::ffi::OsStr;
use std::fs::{self, File, FileType, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{
    DirBuilderExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink,
};
use std::path::Path;
use std::sync::Arc;
use vazao_meter::Cause;
use vazao_meter::machine::{DiskWatch, DiskWatches};
use vazao_model::{FileKind, Timestamp};

/// Names handed out in one batch.
const BATCH: usize = 1024;

/// This machine's files.
#[derive(Default)]
pub(crate) struct LocalTree {
    disks: Option<Arc<DiskWatches>>,
}

impl LocalTree {
    /// This machine's files, with what is waited for at their disks counted.
    pub(crate) fn watched(disks: Arc<DiskWatches>) -> LocalTree {
        LocalTree { disks: Some(disks) }
    }

    fn watch(&self, path: &[u8]) -> Option<Arc<DiskWatch>> {
        self.disks.as_ref()?.of(path_of(path))
    }
}

fn path_of(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

fn kind_of(file_type: FileType) -> FileKind {
    if file_type.is_dir() {
        FileKind::Directory
    } else if file_type.is_symlink() {
        FileKind::Symlink
    } else if file_type.is_fifo() {
        FileKind::Fifo
    } else if file_type.is_socket() {
        FileKind::Socket
    } else if file_type.is_char_device() {
        FileKind::CharDevice
    } else if file_type.is_block_device() {
        FileKind::BlockDevice
    } else {
        FileKind::File
    }
}

fn time(seconds: i64, nanoseconds: i64) -> Timestamp {
    Timestamp { seconds, nanoseconds: nanoseconds as u32 }
}

impl Tree for LocalTree {
    fn find(&self, path: &[u8], follow: bool) -> Outcome<Option<Found>> {
        let here = path_of(path);
        let found = if follow { fs::metadata(here) } else { fs::symlink_metadata(here) };
        let m = match found {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).at(self.show(path)),
        };
        Ok(Some(Found {
            identity: Identity::Local(m.dev(), m.ino()),
            kind: kind_of(m.file_type()),
            mode: m.mode() & 0o7777,
            uid: m.uid(),
            gid: m.gid(),
            size: m.len(),
            accessed: time(m.atime(), m.atime_nsec()),
            modified: time(m.mtime(), m.mtime_nsec()),
        }))
    }

    fn origin(&self, path: &[u8]) -> Outcome<Option<Origin>> {
        match vazao_area::origin(path_of(path)) {
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            other => other.at(self.show(path)).map(Some),
        }
    }

    fn above(&self, path: &[u8]) -> Outcome<Option<Vec<u8>>> {
        let whole = std::path::absolute(path_of(path)).at(self.show(path))?;
        Ok(whole.parent().map(|above| above.as_os_str().as_bytes().to_vec()))
    }

    fn list(&self, path: &[u8], each: &mut dyn FnMut(Vec<Vec<u8>>) -> Outcome) -> Outcome {
        let mut batch = Vec::new();
        for entry in fs::read_dir(path_of(path)).at(self.show(path))? {
            batch.push(entry.at(self.show(path))?.file_name().into_vec());
            if batch.len() == BATCH {
                each(std::mem::take(&mut batch))?;
            }
        }
        each(batch)
    }

    fn real_path(&self, path: &[u8]) -> Outcome<Vec<u8>> {
        Ok(fs::canonicalize(path_of(path)).at(self.show(path))?.into_os_string().into_vec())
    }

    fn read_link(&self, path: &[u8]) -> Outcome<Vec<u8>> {
        Ok(fs::read_link(path_of(path)).at(self.show(path))?.into_os_string().into_vec())
    }

    fn open(&self, path: &[u8]) -> Outcome<Box<dyn Source>> {
        let shown = self.show(path);
        let file = File::open(path_of(path)).at(&shown)?;
        Ok(Box::new(LocalFile { file, shown, watch: self.watch(path) }))
    }

    fn open_again(&self, path: &[u8]) -> Outcome<Box<dyn Source>> {
        let file = File::open(path_of(path)).at(self.show(path))?;
        file.sync_all().at(self.show(path))?;
        // What stays in memory is compared there: the check finds less, and nothing wrong.
        let _ = fadvise(&file, 0, None, Advice::DontNeed);
        self.open(path)
    }

    fn create(&self, path: &[u8], mode: u32) -> Outcome<Box<dyn Sink>> {
        let shown = self.show(path);
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(mode).open(path_of(path)).at(&shown)?;
        Ok(Box::new(LocalFile { file, shown, watch: self.watch(path) }))
    }

    fn reopen(&self, path: &[u8]) -> Outcome<Option<(Box<dyn Sink>, u64)>> {
        let shown = self.show(path);
        let file = match OpenOptions::new().write(true).open(path_of(path)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            other => other.at(&shown)?,
        };
        let have = file.metadata().at(&shown)?.len();
        Ok(Some((Box::new(LocalFile { file, shown, watch: self.watch(path) }), have)))
    }

    fn open_stream(&self, path: &[u8]) -> Outcome<Box<dyn Sink>> {
        let shown = self.show(path);
        // Opening a fifo would wait for its reader, deaf to Ctrl-C; so it is not waited for.
        let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
        let opened = OpenOptions::new().write(true).custom_flags(flags).open(path_of(path));
        let file = match opened {
            Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {
                return Err(Failure::new(format!("{shown}: nobody reads from it; start the reader first")));
            }
            other => other.at(&shown)?,
        };
        let kind = kind_of(file.metadata().at(&shown)?.file_type());
        if !matches!(kind, FileKind::Fifo | FileKind::CharDevice) {
            return Err(Failure::new(format!("{shown}: was replaced meanwhile; try again")));
        }
        fcntl_setfl(&file, fcntl_getfl(&file).at(&shown)? & !OFlags::NONBLOCK).at(&shown)?;
        Ok(Box::new(LocalStream { file, shown, position: Mutex::new(0) }))
    }

    fn make_directory(&self, path: &[u8], mode: u32) -> Outcome {
        let here = path_of(path);
        match fs::DirBuilder::new().mode(mode).create(here) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && here.is_dir() => Ok(()),
            other => other.at(self.show(path)),
        }
    }

    fn make_link(&self, path: &[u8], target: &[u8]) -> Outcome {
        symlink(path_of(target), path_of(path)).at(self.show(path))
    }

    fn may_write(&self, path: &[u8], _there: &Found) -> bool {
        // Whatever else is wrong comes out when it is written.
        !matches!(accessat(CWD, path_of(path), Access::WRITE_OK, AtFlags::EACCESS), Err(Errno::ACCESS))
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> Outcome {
        fs::rename(path_of(from), path_of(to)).at(self.show(to))
    }

    fn remove(&self, path: &[u8]) -> Outcome {
        fs::remove_file(path_of(path)).at(self.show(path))
    }

    fn set_mode(&self, path: &[u8], mode: u32) -> Outcome {
        let here = path_of(path);
        match fs::set_permissions(here, fs::Permissions::from_mode(mode)) {
            // File systems without permissions refuse to set them, even to what they show.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                let present = fs::symlink_metadata(here).map(|there| there.mode() & 0o7777);
                if present.is_ok_and(|present| present == mode) { Ok(()) } else { Err(error) }
            }
            other => other,
        }
        .at(self.show(path))
    }

    fn set_owner(&self, path: &[u8], like: &Found) -> Outcome<Owner> {
        let (uid, gid) = (Uid::from_raw(like.uid), Gid::from_raw(like.gid));
        // Only root may give files away; other users may pass them on to a group of theirs.
        for (owner, given) in [(Some(uid), Owner::Given), (None, Owner::GroupOnly)] {
            match chownat(CWD, path_of(path), owner, Some(gid), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(()) => return Ok(given),
                // The latter for a user that the namespace of this process does not have.
                Err(Errno::PERM | Errno::INVAL) => {}
                Err(error) => return Err(error).at(self.show(path)),
            }
        }
        Ok(Owner::Refused)
    }

    fn set_times(&self, path: &[u8], like: &Found) -> Outcome {
        let spec = |t: Timestamp| Timespec { tv_sec: t.seconds, tv_nsec: i64::from(t.nanoseconds) };
        let times = Timestamps { last_access: spec(like.accessed), last_modification: spec(like.modified) };
        utimensat(CWD, path_of(path), &times, AtFlags::SYMLINK_NOFOLLOW).at(self.show(path))
    }

    fn show(&self, path: &[u8]) -> String {
        show(path)
    }
}

struct LocalFile {
    file: File,
    shown: String,
    watch: Option<Arc<DiskWatch>>,
}

impl LocalFile {
    fn during<T>(&self, cause: Cause, work: impl FnOnce() -> T) -> T {
        match &self.watch {
            Some(watch) => watch.during(cause, work).0,
            None => work(),
        }
    }
}

impl Source for LocalFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Outcome<usize> {
        loop {
            match self.during(Cause::DiskRead, || self.file.read_at(buffer, offset)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => return other.at(&self.shown),
            }
        }
    }

    fn length(&self) -> Outcome<u64> {
        Ok(self.file.metadata().at(&self.shown)?.len())
    }

    fn next_data(&self, offset: u64) -> Outcome<Option<(u64, u64)>> {
        if self.length()? == 0 {
            // Files of /proc have contents and no length; a file that is just empty ends at the first read.
            return Ok(Some((offset, u64::MAX)));
        }
        let start = match seek(&self.file, SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some((offset, u64::MAX))),
            Err(error) => return Err(error).at(&self.shown),
        };
        let end = seek(&self.file, SeekFrom::Hole(start)).at(&self.shown)?;
        Ok(Some((start, end)))
    }

    fn may_hide_holes(&self) -> bool {
        false
    }
}

impl Sink for LocalFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> Outcome {
        self.during(Cause::DiskWrite, || self.file.write_all_at(bytes, offset)).at(&self.shown)
    }

    fn finish(self: Box<Self>, length: u64) -> Outcome {
        if self.file.metadata().at(&self.shown)?.len() != length {
            self.file.set_len(length).at(&self.shown)?;
        }
        Ok(())
    }
}

/// A fifo or a device: bytes in order, and zeros where the source has a hole.
struct LocalStream {
    file: File,
    shown: String,
    position: Mutex<u64>,
}

impl LocalStream {
    fn write(&self, bytes: &[u8], offset: u64) -> Outcome {
        static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];
        let mut position = self.position.lock();
        while *position < offset {
            let count = (offset - *position).min(ZEROS.len() as u64);
            (&self.file).write_all(&ZEROS[..count as usize]).at(&self.shown)?;
            *position += count;
        }
        (&self.file).write_all(bytes).at(&self.shown)?;
        *position += bytes.len() as u64;
        Ok(())
    }
}

impl Sink for LocalStream {
    fn write_at(&self, bytes: &[u8], offset: u64) -> Outcome {
        self.write(bytes, offset)
    }

    fn finish(self: Box<Self>, length: u64) -> Outcome {
        self.write(&[], length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_of_a_sparse_file_are_passed_over() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("sparse");
        let file = File::create(&path).expect("created");
        file.write_all_at(&[1; 4096], 8 << 20).expect("written");
        file.set_len(16 << 20).expect("extended");
        let source = LocalTree::default().open(path.as_os_str().as_bytes()).expect("opened");
        let (start, end) = source.next_data(0).expect("works").expect("has data");
        assert!(start <= 8 << 20 && ((8 << 20) + 4096..16 << 20).contains(&end), "{start} to {end}");
        assert_eq!(source.next_data(end).expect("works"), None);
    }
}
