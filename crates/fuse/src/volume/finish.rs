//! The end of a mount: closes what is still open, and reports what could not be stored.

use super::{OpenFile, VolumeFilesystem};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use vazao_client::{Error, Result, Unstored};

/// Files that are closed at a time: those with data for a silent server must not use up the time of the others.
const CLOSERS_MAX: usize = 64;

impl VolumeFilesystem {
    /// Number of open files.
    pub(crate) fn open_files(&self) -> usize {
        self.files.len()
    }

    /// Files with data that is not stored, and the number of these bytes.
    pub(crate) fn unstored_amount(&self) -> (usize, u64) {
        let unstored = self.client.unstored();
        (unstored.len(), unstored.iter().map(Unstored::bytes).sum())
    }

    /// What is not stored, a line for each file.
    pub(crate) fn unstored(&self) -> Vec<String> {
        self.client.unstored().iter().map(Unstored::to_string).collect()
    }

    /// All calls that begin from now on are over within `left`.
    pub(crate) fn end_within(&self, left: Duration) {
        self.client.end_within(left);
    }

    /// Servers that have not answered for so many seconds.
    pub(crate) fn silent_servers(&self) -> Vec<(String, u64)> {
        self.client.silent_servers()
    }

    /// From now on everything has to be over within one deadline, and what is lost is kept for
    /// [`VolumeFilesystem::finish`].
    pub(crate) fn begin_end(&self) {
        self.lost.begin();
        self.client.end_within(self.client.deadline());
    }

    /// Closes what is still open, and the session. What could not be stored, a line for each file.
    pub(crate) fn finish(&self) -> Vec<String> {
        self.begin_end();
        self.directories.drain();
        let open = Mutex::new(self.files.drain());
        let locked = || open.lock();
        let close_all = || {
            while let Some(file) = { locked().pop() } {
                // What is lost has been noted.
                let _ = self.close(file);
            }
        };
        let closers = locked().len().min(CLOSERS_MAX);
        std::thread::scope(|scope| {
            for _ in 1..closers {
                scope.spawn(close_all);
            }
            close_all();
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
