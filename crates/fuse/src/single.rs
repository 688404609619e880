//! A file system of one file, whose bytes are behind a trait: a disk image that is made up as it is read.
//!
//! A loop device over the file is then a block device of our own making (`crates/faults` makes one that loses power).
//! For that each write, and each flush, has to arrive where the bytes are, in the order in which the kernel waits for
//! them: nothing is answered before it is done, and nothing is kept on the way. It has no other file, and no names can
//! be made or removed in it.

use crate::filesystem::FileSystem;
use crate::filesystem::arguments::{Allocation, Caller, NewMode, Opened, Place};
use crate::filesystem::listing::Wanted;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use vazao_client::{Asked, Changes, Error, Listed, OpenMode, RenameMode, Result, Seek, VolumeSpace};
use vazao_meter::Clock;
use vazao_model::{Attributes, Code, FileKind, InodeId};

/// The file's name in its file system.
pub const SINGLE_NAME: &str = "disk";

/// How long the kernel may believe names and attributes: they never change.
const LEASE: Duration = Duration::from_secs(3600);

/// The one handle there is: nothing belongs to an open file.
const HANDLE: u64 = 1;

/// The bytes of the file of [`crate::mount_single`]. Called by several threads at once; offsets lie within the length.
pub trait SingleFile: Send + Sync {
    /// Its length, which never changes.
    fn length(&self) -> u64;
    /// Fills `buffer` with what is at `offset`.
    fn read(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()>;
    /// Takes bytes over. They need not be durable.
    fn write(&self, bytes: &[u8], offset: u64) -> std::io::Result<()>;
    /// Has the range read as zeros. That need not be durable.
    fn zero(&self, range: Range<u64>) -> std::io::Result<()>;
    /// Makes everything durable whose write was answered before.
    fn flush(&self) -> std::io::Result<()>;
}

/// The file system.
pub(crate) struct Single {
    clock: Arc<dyn Clock>,
    root: InodeId,
    file: Arc<dyn SingleFile>,
}

impl Single {
    /// Shows `file` in a directory that is `root`.
    pub(crate) fn new(root: InodeId, file: Arc<dyn SingleFile>) -> Single {
        Single { clock: vazao_meter::clock::system(), root, file }
    }

    fn inode(&self) -> InodeId {
        InodeId(self.root.0 + 1)
    }

    fn stat(&self, inode: InodeId) -> Result<Attributes> {
        let (kind, mode, size) = match inode {
            root if root == self.root => (FileKind::Directory, 0o755, 0),
            file if file == self.inode() => (FileKind::File, 0o600, self.file.length()),
            _ => return Err(Code::NotFound.into()),
        };
        let links = 1 + u32::from(kind == FileKind::Directory);
        Ok(Attributes { inode, kind, mode, links, size, without_xattrs: true, ..Attributes::default() })
    }

    /// The part of a range that lies within the file.
    fn within(&self, offset: u64, length: usize) -> usize {
        self.file.length().saturating_sub(offset).min(length as u64) as usize
    }
}

fn failed(error: std::io::Error) -> Error {
    Error::new(Code::Io, error.to_string())
}

fn refused<T>(code: Code) -> Result<T> {
    Err(Error::new(code, "a file system of one file"))
}

impl FileSystem for Single {
    fn asked(&self) -> Asked {
        Asked::default()
    }
    fn attributes_lease(&self, _asked: Asked, _inode: InodeId) -> Duration {
        LEASE
    }
    fn entry_lease(&self, _asked: Asked, _place: Place<'_>) -> Duration {
        LEASE
    }
    fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }
    fn lookup(&self, place: Place<'_>) -> Result<Attributes> {
        let is_it = place.directory == self.root && place.name == SINGLE_NAME.as_bytes();
        if is_it { self.stat(self.inode()) } else { Err(Code::NotFound.into()) }
    }
    fn attributes(&self, inode: InodeId, _handle: Option<u64>) -> Result<Attributes> {
        self.stat(inode)
    }
    fn set_attributes(
        &self,
        inode: InodeId,
        changes: &Changes,
        _caller: Caller,
        _clear_set_id: bool,
    ) -> Result<Attributes> {
        let now = self.stat(inode)?;
        // Times are not kept; a disk has one length.
        if changes.size.is_some_and(|size| size != now.size) { refused(Code::NotPermitted) } else { Ok(now) }
    }
    fn read_link(&self, _inode: InodeId) -> Result<Vec<u8>> {
        refused(Code::Invalid)
    }
    fn create(
        &self,
        _place: Place<'_>,
        _caller: Caller,
        _kind: FileKind,
        _mode: NewMode,
        _device: u32,
        _contents: &[u8],
    ) -> Result<Attributes> {
        refused(Code::NotPermitted)
    }
    fn unlink(&self, _place: Place<'_>) -> Result<()> {
        refused(Code::NotPermitted)
    }
    fn remove_directory(&self, _place: Place<'_>) -> Result<()> {
        refused(Code::NotPermitted)
    }
    fn rename(&self, _from: Place<'_>, _to: Place<'_>, _mode: RenameMode) -> Result<()> {
        refused(Code::NotPermitted)
    }
    fn open(&self, inode: InodeId, _mode: OpenMode) -> Result<Opened> {
        Ok(Opened { attributes: self.stat(inode)?, handle: HANDLE })
    }
    fn create_file(
        &self,
        place: Place<'_>,
        _caller: Caller,
        _mode: NewMode,
        exclusive: bool,
        truncate: bool,
    ) -> Result<Opened> {
        match self.lookup(place) {
            Ok(attributes) if !exclusive && !truncate => Ok(Opened { attributes, handle: HANDLE }),
            Ok(_) if exclusive => refused(Code::Exists),
            _ => refused(Code::NotPermitted),
        }
    }
    fn read(&self, _handle: u64, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let count = self.within(offset, buffer.len());
        self.file.read(&mut buffer[..count], offset).map_err(failed)?;
        Ok(count)
    }
    fn write(&self, _handle: u64, bytes: &[u8], offset: u64, _unprivileged: Option<Caller>) -> Result<()> {
        if self.within(offset, bytes.len()) < bytes.len() {
            return refused(Code::NoSpace);
        }
        self.file.write(bytes, offset).map_err(failed)
    }
    fn append(&self, _handle: u64, _bytes: &[u8], _unprivileged: Option<Caller>) -> Result<u64> {
        refused(Code::NoSpace)
    }
    fn is_idle(&self, _handle: u64) -> bool {
        true
    }
    fn flush(&self, _handle: u64) -> Result<bool> {
        Ok(false)
    }
    fn sync(&self, _handle: u64) -> Result<bool> {
        self.file.flush().map(|()| false).map_err(failed)
    }
    fn release(&self, _handle: u64) -> Result<()> {
        Ok(())
    }
    fn allocate(&self, _handle: u64, range: Range<u64>, mode: Allocation, _caller: Caller) -> Result<()> {
        let range = range.start..range.end.min(self.file.length());
        if mode.zero && range.start < range.end { self.file.zero(range).map_err(failed) } else { Ok(()) }
    }
    fn seek(&self, _handle: u64, seek: Seek, offset: u64) -> Result<Option<u64>> {
        // No holes are shown: a file system that knows none has one range, up to the end.
        let length = self.file.length();
        let found = if seek == Seek::Data { offset } else { length };
        Ok((offset < length).then_some(found))
    }
    fn open_directory(&self, _inode: InodeId) -> u64 {
        0
    }
    fn read_directory(
        &self,
        inode: InodeId,
        _handle: u64,
        cookie: u64,
        _wanted: Wanted,
        take: &mut dyn FnMut(&Listed<'_>, Asked) -> bool,
    ) -> Result<()> {
        let (directory, file) = (FileKind::Directory, FileKind::File);
        let name = SINGLE_NAME.as_bytes();
        let entries = [(&b"."[..], inode, directory), (b"..", inode, directory), (name, self.inode(), file)];
        let listed = entries.into_iter().zip(1..).map(|((name, inode, kind), cookie)| Listed {
            name,
            inode,
            kind,
            cookie,
            attributes: None,
        });
        let _ = listed.filter(|entry| entry.cookie > cookie).all(|entry| take(&entry, Asked::default()));
        Ok(())
    }
    fn release_directory(&self, _handle: u64) {}
    fn sync_directory(&self) -> Result<()> {
        self.file.flush().map_err(failed)
    }
    fn space(&self) -> Result<VolumeSpace> {
        let capacity_bytes = self.file.length();
        Ok(VolumeSpace { capacity_bytes, available_bytes: 0, used_bytes: capacity_bytes, inodes: 2 })
    }
    fn finish(&self) -> Vec<String> {
        let flushed = self.file.flush();
        flushed.err().map(|error| format!("{SINGLE_NAME}: {error}")).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;

    /// Remembers what was asked of it.
    #[derive(Default)]
    struct Noted(Mutex<Vec<String>>);

    impl Noted {
        fn note(&self, text: String) -> std::io::Result<()> {
            self.0.lock().push(text);
            Ok(())
        }
    }

    impl SingleFile for Noted {
        fn length(&self) -> u64 {
            8192
        }
        fn read(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
            buffer.fill(7);
            self.note(format!("read {} at {offset}", buffer.len()))
        }
        fn write(&self, bytes: &[u8], offset: u64) -> std::io::Result<()> {
            self.note(format!("write {} at {offset}", bytes.len()))
        }
        fn zero(&self, range: Range<u64>) -> std::io::Result<()> {
            self.note(format!("zero {range:?}"))
        }
        fn flush(&self) -> std::io::Result<()> {
            self.note("flush".to_owned())
        }
    }

    #[test]
    fn each_request_arrives_as_it_is_and_none_beyond_the_end() {
        let noted = Arc::new(Noted::default());
        let single = Single::new(InodeId(1), Arc::clone(&noted) as Arc<dyn SingleFile>);
        let place = Place { directory: InodeId(1), name: SINGLE_NAME.as_bytes() };
        let file = single.lookup(place).expect("it is there");
        assert_eq!((file.inode, file.size), (InodeId(2), 8192));
        let handle = single.open(file.inode, OpenMode::default()).expect("opens").handle;
        single.write(handle, &[1; 512], 7680, None).expect("fits");
        assert_eq!(single.write(handle, &[1; 513], 7680, None).map_err(|e| e.code), Err(Code::NoSpace));
        single.sync(handle).expect("flushes");
        assert_eq!(single.read(handle, &mut [0; 4096], 8000), Ok(192));
        let (caller, hole) =
            (Caller { uid: 0, gid: 0, thread: 0 }, Allocation { keep_size: true, zero: true });
        single.allocate(handle, 4096..1 << 40, hole, caller).expect("zeros");
        single
            .allocate(handle, 0..512, Allocation { keep_size: true, zero: false }, caller)
            .expect("is there already");
        let noted = noted.0.lock();
        assert_eq!(*noted, ["write 512 at 7680", "flush", "read 192 at 8000", "zero 4096..8192"]);
    }

    #[test]
    fn there_is_one_name_and_no_other_can_be_made() {
        let single = Single::new(InodeId(1), Arc::new(Noted::default()));
        let mut names = Vec::new();
        let mut take = |entry: &Listed<'_>, _: Asked| {
            names.push(entry.name.to_vec());
            true
        };
        single.read_directory(InodeId(1), 0, 0, Wanted::Names, &mut take).expect("a directory");
        assert_eq!(names, [&b"."[..], b"..", b"disk"]);
        let other = Place { directory: InodeId(1), name: b"other" };
        let (caller, mode) = (Caller { uid: 0, gid: 0, thread: 0 }, NewMode { bits: 0o600, umask: 0 });
        assert!(single.create_file(other, caller, mode, false, false).is_err());
        assert!(single.unlink(Place { name: b"disk", ..other }).is_err());
    }
}
