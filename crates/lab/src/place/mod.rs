//! Where an experiment reads and writes: one trait, an implementation a door.
//!
//! A place makes itself a working directory of its own inside the directory it was given and takes it away again, so
//! that it can neither harm nor be disturbed by what lies there.

mod interruptible;
mod library;
mod local;
mod stop;
#[cfg(test)]
mod tests;

pub use interruptible::Interruptible;
pub use library::Library;
pub(crate) use library::owner;
pub use local::Local;
pub use stop::Stop;

use crate::{Context, Error};
use std::io;
use std::sync::Arc;
use vazao_client::Client;
use vazao_meter::machine::DiskWatches;

/// The prefix of paths in the volume.
pub const VOLUME_PREFIX: &str = "vz:";

/// A directory in which files are made, read and removed, by any number of threads.
pub trait Place: Send + Sync {
    /// As the user gave it.
    fn name(&self) -> &str;

    /// Creates a file and opens it for writing; one of that name is emptied.
    fn create(&self, name: &str) -> io::Result<Box<dyn OpenFile>>;

    /// Opens a file for reading.
    fn open(&self, name: &str) -> io::Result<Box<dyn OpenFile>>;

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Writes out what is still under way to this place, so that a run does not pay for the one before it.
    fn settle(&self) -> io::Result<()>;

    /// Removes whatever is in the working directory: a measurement has ended before its time.
    fn clear(&self) -> io::Result<()>;

    /// Removes the working directory, which must be empty by then.
    fn finish(&self) -> io::Result<()>;

    /// The volume behind it, where there is one: its servers are watched too.
    fn client(&self) -> Option<&Client>;

    /// The disks of this machine behind it, where this process reads and writes files of its own.
    fn disks(&self) -> Option<Arc<DiskWatches>> {
        None
    }
}

/// An open file of a place, used by one thread or many.
pub trait OpenFile: Send + Sync {
    /// Reads up to `buffer.len()` bytes at `offset`; 0 only at the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `bytes` at `offset`.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes what was written survive power loss.
    fn sync(&self) -> io::Result<()>;

    /// Hands over everything written, so that others see it, and closes.
    fn close(self: Box<Self>) -> io::Result<()>;
}

/// The places with the given names, each with a fresh working directory called `directory`.
pub fn open_all(
    names: &[String],
    directory: &str,
    context: &Context<'_>,
) -> Result<Vec<Box<dyn Place>>, Error> {
    let mut client = None;
    let mut places: Vec<Box<dyn Place>> = Vec::new();
    for name in names {
        match open(name, directory, &mut client, context) {
            Ok(place) => places.push(Box::new(Interruptible::new(place, context.stop.clone()))),
            Err(error) => {
                close_all(&places);
                return Err(error);
            }
        }
    }
    Ok(places)
}

/// Opens one place; all paths of the volume share one client, as the threads of a program would.
fn open(
    name: &str,
    directory: &str,
    client: &mut Option<Client>,
    context: &Context<'_>,
) -> Result<Box<dyn Place>, Error> {
    let Some(path) = name.strip_prefix(VOLUME_PREFIX) else {
        return Ok(Box::new(Local::new(name, directory)?));
    };
    let volume = match client {
        Some(client) => client.clone(),
        None => client.insert((context.connect)().map_err(Error::Failed)?).clone(),
    };
    Ok(Box::new(Library::new(volume, name, path, directory)?))
}

/// Removes the working directories; the first failure is reported after all were tried.
pub fn close_all(places: &[Box<dyn Place>]) -> Option<Error> {
    let failures = places.iter().filter_map(|place| place.finish().map_err(Error::at(place.name())).err());
    failures.fold(None, |first, failure| first.or(Some(failure)))
}

/// Takes back what a measurement that ended with `error` has made, and adds to the error what is left.
pub fn abandon(places: &[Box<dyn Place>], error: Error) -> Error {
    let cleared = places.iter().filter_map(|place| place.clear().map_err(Error::at(place.name())).err());
    let left = cleared.fold(None, |first, failure| first.or(Some(failure)));
    match left.or(close_all(places)) {
        Some(left) => Error::Failed(format!("{error}; what it made could not all be removed: {left}")),
        None => error,
    }
}

/// Reads until `buffer` is full. Errors: `UnexpectedEof` when the file ends before.
pub fn read_full(file: &dyn OpenFile, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64)? {
            0 => {
                let end = offset + done as u64;
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("file ends at byte {end}")));
            }
            n => done += n,
        }
    }
    Ok(())
}
