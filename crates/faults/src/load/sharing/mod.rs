//! What clients do to the same files at the same time: threads in two mounts, which append to one file, count under one
//! lock, write files and look at those of the other mount.

pub(crate) mod appends;
pub(crate) mod calls;
pub(crate) mod files;
pub(crate) mod locks;
pub(crate) mod process;

use crate::clock::wait_until_within;
use crate::failure::{Failure, Outcome};
use appends::Appended;
use calls::Calls;
use files::Written;
use locks::{Counted, Witness};
use serde::{Deserialize, Serialize};
use std::io::Result;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// The letters of the clients.
pub(crate) const CLIENTS: [char; 2] = ['a', 'b'];

/// A thread of the load.
#[derive(Clone, Debug)]
pub(crate) struct Thread {
    /// The letter of its mount.
    pub(crate) client: char,
    /// What it does, for people.
    role: &'static str,
    /// The shared directory in its mount.
    directory: PathBuf,
    calls: Arc<Calls>,
    ended: Arc<AtomicBool>,
}

impl Thread {
    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn call<T>(&self, what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.calls.call(&format!("client {}, {}", self.client, self.role), what, work)
    }
}

/// What the threads of one mount did.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Done {
    /// The letter of the mount.
    pub(crate) client: char,
    pub(crate) appended: Appended,
    pub(crate) counted: Counted,
    pub(crate) written: Vec<Written>,
}

/// The threads of one mount.
#[derive(Debug)]
struct Threads {
    client: char,
    appends: JoinHandle<Appended>,
    counts: JoinHandle<Counted>,
    files: JoinHandle<Vec<Written>>,
    looks: JoinHandle<()>,
}

impl Threads {
    fn are_finished(&self) -> bool {
        self.appends.is_finished()
            && self.counts.is_finished()
            && self.files.is_finished()
            && self.looks.is_finished()
    }

    fn join(self) -> Outcome<Done> {
        let panicked = |_| Failure::new("a thread of the load has panicked");
        self.looks.join().map_err(panicked)?;
        Ok(Done {
            client: self.client,
            appended: self.appends.join().map_err(panicked)?,
            counted: self.counts.join().map_err(panicked)?,
            written: self.files.join().map_err(panicked)?,
        })
    }
}

/// The load on a directory that all mounts share.
#[derive(Debug)]
pub(crate) struct Sharing {
    /// All calls, of data and names.
    pub(crate) calls: Arc<Calls>,
    ended: Arc<AtomicBool>,
    threads: Vec<Threads>,
}

impl Sharing {
    /// Starts it. `directories`: the shared directory in each mount.
    pub(crate) fn start(directories: &[PathBuf], seed: u64) -> Sharing {
        let (calls, ended) = (Arc::new(Calls::default()), Arc::new(AtomicBool::new(false)));
        let witness = Arc::new(Witness::default());
        let threads = CLIENTS.into_iter().zip(directories).map(|(client, directory)| {
            let thread = Thread {
                client,
                role: "",
                directory: directory.clone(),
                calls: Arc::clone(&calls),
                ended: Arc::clone(&ended),
            };
            start(&thread, &witness, seed ^ client as u64)
        });
        let threads = threads.collect();
        Sharing { calls, ended, threads }
    }

    /// Ends it. A call that is not answered for `ms_max` is a failure that names it.
    pub(crate) fn end(self, ms_max: u64) -> Outcome<Vec<Done>> {
        self.ended.store(true, Ordering::SeqCst);
        let waited = wait_until_within("all threads of the load end", ms_max, || {
            self.threads.iter().all(Threads::are_finished)
        });
        waited.map_err(|failure| Failure::new(format!("{failure}: {:?}", self.calls.under_way())))?;
        self.threads.into_iter().map(Threads::join).collect()
    }
}

fn start(thread: &Thread, witness: &Arc<Witness>, seed: u64) -> Threads {
    let with = |role| Thread { role, ..thread.clone() };
    let (for_appends, for_counts, for_files, for_looks) =
        (with("appends"), with("locks"), with("files"), with("looks"));
    let witness = Arc::clone(witness);
    Threads {
        client: thread.client,
        appends: std::thread::spawn(move || appends::run(&for_appends)),
        counts: std::thread::spawn(move || locks::run(&for_counts, &witness)),
        files: std::thread::spawn(move || files::write(&for_files, seed)),
        looks: std::thread::spawn(move || files::look(&for_looks)),
    }
}
