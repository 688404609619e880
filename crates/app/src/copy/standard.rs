//! Standard input and output as a tree of one path, `-`: read once from its beginning, or written in order.

use super::tree::{Found, Identity, Owner, Sink, Source, Tree};
use crate::failure::{At, Failure, Outcome};
use parking_lot::Mutex;
use std::io::{Read, Write, stdin, stdout};
use vazao_model::{FileKind, Timestamp};

/// What names it on the command line.
pub(crate) const NAME: &[u8] = b"-";

/// Zeros of a hole that are written at once.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// Both streams: which one is meant is said by the side of the copy.
#[derive(Default)]
pub(crate) struct StandardTree {
    /// As a destination: it is written into, and not replaced.
    pub(crate) is_output: bool,
}

fn impossible<T>() -> Outcome<T> {
    Err(Failure::new("-: standard input and output have no names below them"))
}

impl Tree for StandardTree {
    fn find(&self, _path: &[u8], _follow: bool) -> Outcome<Option<Found>> {
        Ok(Some(Found {
            identity: Identity::Standard(self.is_output),
            kind: if self.is_output { FileKind::Fifo } else { FileKind::File },
            mode: 0o666 & !super::umask(),
            uid: 0,
            gid: 0,
            size: 0,
            accessed: Timestamp::default(),
            modified: Timestamp::default(),
        }))
    }

    fn list(&self, _path: &[u8], _each: &mut dyn FnMut(Vec<Vec<u8>>) -> Outcome) -> Outcome {
        impossible()
    }

    fn real_path(&self, path: &[u8]) -> Outcome<Vec<u8>> {
        Ok(path.to_vec())
    }

    fn read_link(&self, _path: &[u8]) -> Outcome<Vec<u8>> {
        impossible()
    }

    fn open(&self, _path: &[u8]) -> Outcome<Box<dyn Source>> {
        Ok(Box::new(Input::default()))
    }

    fn create(&self, _path: &[u8], _mode: u32) -> Outcome<Box<dyn Sink>> {
        impossible()
    }

    fn open_stream(&self, _path: &[u8]) -> Outcome<Box<dyn Sink>> {
        Ok(Box::new(Output::default()))
    }

    fn make_directory(&self, _path: &[u8], _mode: u32) -> Outcome {
        impossible()
    }

    fn make_link(&self, _path: &[u8], _target: &[u8]) -> Outcome {
        impossible()
    }

    fn rename(&self, _from: &[u8], _to: &[u8]) -> Outcome {
        impossible()
    }

    fn remove(&self, _path: &[u8]) -> Outcome {
        impossible()
    }

    fn may_write(&self, _path: &[u8], _there: &Found) -> bool {
        true
    }

    fn set_mode(&self, _path: &[u8], _mode: u32) -> Outcome {
        impossible()
    }

    fn set_owner(&self, _path: &[u8], _like: &Found) -> Outcome<Owner> {
        impossible()
    }

    fn set_times(&self, _path: &[u8], _like: &Found) -> Outcome {
        impossible()
    }

    fn show(&self, _path: &[u8]) -> String {
        if self.is_output { "standard output" } else { "standard input" }.to_owned()
    }
}

/// Standard input, and how far it has been read.
#[derive(Default)]
struct Input {
    read: Mutex<u64>,
}

impl Source for Input {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Outcome<usize> {
        let mut read = self.read.lock();
        if offset != *read {
            return Err(Failure::new("standard input: can only be read from its beginning on"));
        }
        let mut filled = 0;
        // A pipe gives little at a time.
        while filled < buffer.len() {
            match stdin().lock().read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).at("standard input"),
            }
        }
        *read += filled as u64;
        Ok(filled)
    }

    fn length(&self) -> Outcome<u64> {
        Ok(*self.read.lock())
    }

    fn next_data(&self, offset: u64) -> Outcome<Option<(u64, u64)>> {
        Ok(Some((offset, u64::MAX)))
    }

    fn may_hide_holes(&self) -> bool {
        false
    }
}

/// Standard output, and how far it has been written.
#[derive(Default)]
struct Output {
    written: Mutex<u64>,
}

fn put(bytes: &[u8]) -> Outcome {
    match stdout().lock().write_all(bytes) {
        // `vazao cp vz:/x - | head` wants no more.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        written => written.at("standard output"),
    }
}

impl Output {
    /// Writes zeros up to `offset`: holes have to be there, too.
    fn fill(&self, offset: u64) -> Outcome {
        let mut written = self.written.lock();
        while *written < offset {
            let count = (offset - *written).min(ZEROS.len() as u64);
            put(&ZEROS[..count as usize])?;
            *written += count;
        }
        Ok(())
    }
}

impl Sink for Output {
    fn write_at(&self, bytes: &[u8], offset: u64) -> Outcome {
        self.fill(offset)?;
        put(bytes)?;
        *self.written.lock() += bytes.len() as u64;
        Ok(())
    }

    fn finish(self: Box<Self>, length: u64) -> Outcome {
        self.fill(length)?;
        stdout().lock().flush().at("standard output")
    }
}
