//! A directory of this machine, through the kernel: a local file system, or whatever is mounted there.

use super::{OpenFile, Place};
use crate::Error;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use vazao_client::Client;
use vazao_meter::Cause;
use vazao_meter::machine::{DiskWatch, DiskWatches};

/// A directory reached by system calls.
#[derive(Debug)]
pub struct Local {
    name: String,
    directory: PathBuf,
    disks: Arc<DiskWatches>,
}

/// An open file of it.
struct LocalFile {
    file: File,
    /// None where the directory is a mount that another program answers for.
    watch: Option<Arc<DiskWatch>>,
}

impl Local {
    /// A place in the directory `name`, working in `name`/`directory`.
    pub fn new(name: &str, directory: &str) -> Result<Local, Error> {
        let path = PathBuf::from(name);
        if !path.is_dir() {
            let hint = "give an existing local directory, or a path in the volume as vz:/path";
            return Err(Error::Failed(format!("{name}: no such directory; {hint}")));
        }
        let directory = path.join(directory);
        fs::create_dir(&directory).map_err(Error::at(directory.display()))?;
        let disks = DiskWatches::new(vazao_meter::clock::system());
        disks.of(&directory);
        Ok(Local { name: name.to_owned(), directory, disks })
    }
}

impl Place for Local {
    fn name(&self) -> &str {
        &self.name
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn OpenFile>> {
        let file = File::create(self.directory.join(name))?;
        Ok(Box::new(LocalFile { file, watch: self.disks.of(&self.directory) }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn OpenFile>> {
        let file = File::open(self.directory.join(name))?;
        Ok(Box::new(LocalFile { file, watch: self.disks.of(&self.directory) }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.directory.join(name))
    }

    fn settle(&self) -> io::Result<()> {
        rustix::fs::syncfs(File::open(&self.directory)?).map_err(io::Error::from)
    }

    fn clear(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true => fs::remove_dir_all(entry.path())?,
                false => fs::remove_file(entry.path())?,
            }
        }
        Ok(())
    }

    fn finish(&self) -> io::Result<()> {
        fs::remove_dir(&self.directory)
    }

    fn client(&self) -> Option<&Client> {
        None
    }

    fn disks(&self) -> Option<Arc<DiskWatches>> {
        Some(Arc::clone(&self.disks))
    }
}

impl LocalFile {
    fn during<T>(&self, cause: Cause, work: impl FnOnce() -> T) -> T {
        match &self.watch {
            Some(watch) => watch.during(cause, work).0,
            None => work(),
        }
    }
}

impl OpenFile for LocalFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.during(Cause::DiskRead, || self.file.read_at(buffer, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.during(Cause::DiskWrite, || self.file.write_all_at(bytes, offset))
    }

    fn sync(&self) -> io::Result<()> {
        self.during(Cause::DiskSync, || self.file.sync_all())
    }

    fn close(self: Box<Self>) -> io::Result<()> {
        // The standard library keeps close(2)'s result to itself: a mount whose flush fails is caught when the bytes
        // are compared.
        drop(self);
        Ok(())
    }
}
