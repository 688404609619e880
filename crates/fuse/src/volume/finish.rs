//! The end of a mount: closes what is still open, and reports what could not be stored.

use super::{OpenFile, VolumeFilesystem};
use crate::filesystem::FileSystem;
use parking_lot::Mutex;
use std::sync::Arc;
use vazao_client::{Error, Result, Unstored};

/// Files that are closed at a time: those with data for a silent server must not use up the time of the others.
const CLOSERS_MAX: usize = 64;

impl VolumeFilesystem {
    /// Closes what is still open, and the session. What could not be stored, a line for each file.
    pub(super) fn close_all(&self) -> Vec<String> {
        self.begin_end();
        self.directories.drain();
        let open = Mutex::new(self.files.drain());
        let locked = || open.lock();
        let close_some = || {
            while let Some(file) = { locked().pop() } {
                // What is lost has been noted.
                let _ = self.close(file);
            }
        };
        let closers = locked().len().min(CLOSERS_MAX);
        std::thread::scope(|scope| {
            for _ in 1..closers {
                scope.spawn(close_some);
            }
            close_some();
        });
        let closed = self.client.clone().close();
        let mut lost = self.lost.take();
        if let Err(error) = closed {
            // Of files that a call still under way on another thread keeps open.
            let rest = self.unstored();
            lost.extend(if rest.is_empty() { vec![error.to_string()] } else { rest });
        }
        lost
    }

    /// Closes a file taken out of the table. A call still under way on another thread keeps it; its end closes it then.
    pub(super) fn close(&self, open: Arc<OpenFile>) -> Result<()> {
        let closed = match Arc::try_unwrap(open) {
            Ok(open) => open.file.close_or_tell(),
            Err(open) => open.file.flush().map_err(|error| (error, open.file.unstored())),
        };
        closed.map_err(|(error, unstored)| {
            self.lost.note(told(unstored, &error));
            error
        })
    }
}

fn told(unstored: Option<Unstored>, error: &Error) -> String {
    match unstored {
        Some(unstored) => Unstored { cause: unstored.cause.or(Some(error.clone())), ..unstored }.to_string(),
        None => error.to_string(),
    }
}
