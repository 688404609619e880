//! What calls answer: attributes and entries of directories.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use vazao_client::{Entry as ClientEntry, SetTime};
use vazao_handles::mode_type;
use vazao_model::{FileKind, Timestamp};

const NS_A_SECOND: i128 = 1_000_000_000;

/// What stat(2) shows, by the names that os.stat_result has.
#[pyclass(frozen, get_all, module = "vazao")]
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Attributes {
    /// Type and permissions: stat.S_ISDIR() and its like apply.
    st_mode: u32,
    /// Its number in the volume, or on the file system of its area.
    st_ino: u64,
    /// Names of it; for a directory 2 and its subdirectories.
    st_nlink: u32,
    /// Owner.
    st_uid: u32,
    /// Group.
    st_gid: u32,
    /// Length in bytes.
    st_size: u64,
    /// Storage in use as far as known, in units of 512 bytes.
    st_blocks: u64,
    /// Last read, in nanoseconds since the beginning of 1970, UTC.
    st_atime_ns: i128,
    /// Last change of contents.
    st_mtime_ns: i128,
    /// Last change of contents or attributes.
    st_ctime_ns: i128,
    /// Grows with every change of the contents.
    version: u64,
}

#[pymethods]
impl Attributes {
    /// Last read, in seconds.
    #[getter]
    fn st_atime(&self) -> f64 {
        seconds(self.st_atime_ns)
    }

    /// Last change of contents, in seconds.
    #[getter]
    fn st_mtime(&self) -> f64 {
        seconds(self.st_mtime_ns)
    }

    /// Last change of contents or attributes, in seconds.
    #[getter]
    fn st_ctime(&self) -> f64 {
        seconds(self.st_ctime_ns)
    }

    fn __repr__(&self) -> String {
        let Attributes { st_mode, st_size, st_ino, .. } = self;
        format!("vazao.Attributes(st_mode={st_mode:#o}, st_size={st_size}, st_ino={st_ino})")
    }
}

fn seconds(time_ns: i128) -> f64 {
    time_ns as f64 / NS_A_SECOND as f64
}

fn nanoseconds(time: Timestamp) -> i128 {
    i128::from(time.seconds) * NS_A_SECOND + i128::from(time.nanoseconds)
}

/// A time of nanoseconds. Errors: out of the range that files have.
pub(crate) fn time_stamp(time_ns: i128) -> PyResult<Timestamp> {
    let out_of_range = |_| PyValueError::new_err(format!("{time_ns} ns is no time that a file can have"));
    let seconds = i64::try_from(time_ns.div_euclid(NS_A_SECOND)).map_err(out_of_range)?;
    let nanoseconds = u32::try_from(time_ns.rem_euclid(NS_A_SECOND)).map_err(out_of_range)?;
    Ok(Timestamp { seconds, nanoseconds })
}

/// A time to set; `None`: now.
pub(crate) fn set_time(time_ns: Option<i128>) -> PyResult<SetTime> {
    time_ns.map_or(Ok(SetTime::Now), |time_ns| time_stamp(time_ns).map(SetTime::At))
}

impl From<&vazao_model::Attributes> for Attributes {
    fn from(attributes: &vazao_model::Attributes) -> Attributes {
        Attributes {
            st_mode: mode_type(attributes.kind) | attributes.mode,
            st_ino: attributes.inode.0,
            st_nlink: attributes.links,
            st_uid: attributes.uid,
            st_gid: attributes.gid,
            st_size: attributes.size,
            st_blocks: attributes.allocated_bytes.div_ceil(512),
            st_atime_ns: nanoseconds(attributes.accessed),
            st_mtime_ns: nanoseconds(attributes.modified),
            st_ctime_ns: nanoseconds(attributes.changed),
            version: attributes.version,
        }
    }
}

/// One name in a directory.
#[pyclass(frozen, module = "vazao")]
#[derive(Debug)]
pub(crate) struct Entry {
    /// The name; bytes that are no UTF-8 as os.fsdecode() has them.
    #[pyo3(get)]
    name: OsString,
    /// The number of what it names.
    #[pyo3(get)]
    inode: u64,
    /// Its attributes, where the listing was asked for them.
    #[pyo3(get)]
    attributes: Option<Attributes>,
    kind: FileKind,
}

#[pymethods]
impl Entry {
    /// A directory; a symbolic link to one is none.
    fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// A regular file.
    fn is_file(&self) -> bool {
        self.kind == FileKind::File
    }

    /// A symbolic link.
    fn is_symlink(&self) -> bool {
        self.kind == FileKind::Symlink
    }

    fn __repr__(&self) -> String {
        format!("<vazao.Entry {:?}>", self.name)
    }
}

impl Entry {
    pub(crate) fn new(
        name: Vec<u8>,
        inode: u64,
        kind: FileKind,
        attributes: Option<&vazao_model::Attributes>,
    ) -> Entry {
        Entry { name: OsString::from_vec(name), inode, kind, attributes: attributes.map(Attributes::from) }
    }
}

impl From<ClientEntry> for Entry {
    fn from(entry: ClientEntry) -> Entry {
        Entry::new(entry.name, entry.inode.0, entry.kind, entry.attributes.as_ref())
    }
}
