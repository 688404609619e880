//! The part of libnfs 4 (`libnfs.so.13`) that reads and writes open files, loaded at run time.
#![allow(unsafe_code, reason = "a library of another language, through the functions of its header")]

use crate::Error;
use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

/// Higher numbers have other arguments.
const LIBRARY: &str = "libnfs.so.13";
const TIMEOUT_MS: c_int = 30_000;

type Context = *mut c_void;
type Handle = *mut c_void;

/// What is called, with the types of the header.
struct Functions {
    create: unsafe extern "C" fn() -> Context,
    destroy: unsafe extern "C" fn(Context),
    error: unsafe extern "C" fn(Context) -> *const c_char,
    set_timeout: unsafe extern "C" fn(Context, c_int),
    mount: unsafe extern "C" fn(Context, *const c_char, *const c_char) -> c_int,
    open: unsafe extern "C" fn(Context, *const c_char, c_int, c_int, *mut Handle) -> c_int,
    read: unsafe extern "C" fn(Context, Handle, u64, u64, *mut c_void) -> c_int,
    write: unsafe extern "C" fn(Context, Handle, u64, u64, *const c_void) -> c_int,
    sync: unsafe extern "C" fn(Context, Handle) -> c_int,
    close: unsafe extern "C" fn(Context, Handle) -> c_int,
    // Last: it holds the code of all the others.
    _library: Library,
}

impl Functions {
    fn load() -> Result<Functions, libloading::Error> {
        // SAFETY: the library's initialisers set up tables of its own and ask nothing of us; each name has the type
        // that the header of this number declares, and the library is kept as long as the functions.
        unsafe {
            let library = Library::new(LIBRARY)?;
            Ok(Functions {
                create: *library.get(b"nfs_init_context\0")?,
                destroy: *library.get(b"nfs_destroy_context\0")?,
                error: *library.get(b"nfs_get_error\0")?,
                set_timeout: *library.get(b"nfs_set_timeout\0")?,
                mount: *library.get(b"nfs_mount\0")?,
                open: *library.get(b"nfs_open2\0")?,
                read: *library.get(b"nfs_pread\0")?,
                write: *library.get(b"nfs_pwrite\0")?,
                sync: *library.get(b"nfs_fsync\0")?,
                close: *library.get(b"nfs_close\0")?,
                _library: library,
            })
        }
    }
}

/// A mounted export.
pub(crate) struct Session {
    functions: Functions,
    context: Context,
}

/// An open file of a session; closed when dropped.
pub(crate) struct File<'a> {
    session: &'a Session,
    handle: Handle,
}

impl Session {
    /// Mounts `export` of `server`.
    pub(crate) fn mount(server: &str, export: &str) -> Result<Session, Error> {
        let functions = Functions::load().map_err(|error| {
            Error::Failed(format!("{error}; the NFS client is Debian's package libnfs13"))
        })?;
        let (server, export) = (text(server)?, text(export)?);
        // SAFETY: it takes nothing.
        let context = unsafe { (functions.create)() };
        if context.is_null() {
            return Err(Error::Failed("libnfs: no memory for a context".to_owned()));
        }
        let session = Session { functions, context };
        // SAFETY: the context is alive until the session is dropped, and the texts end with NUL and outlive the calls.
        let result = unsafe {
            (session.functions.set_timeout)(context, TIMEOUT_MS);
            (session.functions.mount)(context, server.as_ptr(), export.as_ptr())
        };
        session.check("mount", result)?;
        Ok(session)
    }

    /// Opens a file, given by its path below the export, with flags of `open(2)`.
    pub(crate) fn open(&self, path: &str, flags: i32) -> Result<File<'_>, Error> {
        let path = text(path)?;
        let mut handle = ptr::null_mut();
        // SAFETY: the context is alive; path and handle outlive the call.
        let result =
            unsafe { (self.functions.open)(self.context, path.as_ptr(), flags, 0o644, &raw mut handle) };
        self.check("open", result)?;
        Ok(File { session: self, handle })
    }

    fn check(&self, call: &str, result: c_int) -> Result<usize, Error> {
        if let Ok(length) = usize::try_from(result) {
            return Ok(length);
        }
        // SAFETY: the context is alive; its text is copied before another call can change it.
        let said = unsafe {
            let said = (self.functions.error)(self.context);
            if said.is_null() { String::new() } else { CStr::from_ptr(said).to_string_lossy().into_owned() }
        };
        Err(Error::Failed(format!("NFS {call}: {said} ({result})")))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: made by `create`, destroyed once, and no file is open: each borrows the session.
        unsafe { (self.functions.destroy)(self.context) }
    }
}

impl File<'_> {
    /// Reads into `buffer` from `offset`; shorter only at the file's end.
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Error> {
        let Session { functions, context } = self.session;
        let (start, length) = (buffer.as_mut_ptr().cast(), buffer.len() as u64);
        // SAFETY: context and handle are alive; the buffer has as many bytes as the call gets as its length.
        let result = unsafe { (functions.read)(*context, self.handle, offset, length, start) };
        self.session.check("read", result)
    }

    /// Writes all of `bytes` at `offset`; they are on the server's disk after [`File::sync`].
    pub(crate) fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), Error> {
        let Session { functions, context } = self.session;
        let mut done = 0;
        while done < bytes.len() {
            let (rest, at) = (&bytes[done..], offset + done as u64);
            let (start, length) = (rest.as_ptr().cast(), rest.len() as u64);
            // SAFETY: context and handle are alive; the buffer has as many bytes as the call gets as its length, and is
            // only read.
            let result = unsafe { (functions.write)(*context, self.handle, at, length, start) };
            match self.session.check("write", result)? {
                0 => return Err(Error::Failed("NFS write: nothing was written".to_owned())),
                length => done += length,
            }
        }
        Ok(())
    }

    /// Everything written is on the server's disk.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        // SAFETY: context and handle are alive.
        let result = unsafe { (self.session.functions.sync)(self.session.context, self.handle) };
        self.session.check("fsync", result).map(drop)
    }
}

impl Drop for File<'_> {
    fn drop(&mut self) {
        // SAFETY: opened once, closed once. What was to be kept was synced: an error here has nothing to tell.
        unsafe { (self.session.functions.close)(self.session.context, self.handle) };
    }
}

fn text(text: &str) -> Result<CString, Error> {
    CString::new(text).map_err(|_| Error::Failed(format!("{text:?} holds a NUL byte")))
}
