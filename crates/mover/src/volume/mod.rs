//! The volume as the destination of a job: files of this node's areas, written by the client library.
//!
//! A file is written under a temporary name beside its final one, by several threads, block by block. A journal in the
//! daemon's own directory says which blocks the data servers have; after a restart they are read back and believed only
//! where they have their checksum, for what the servers had not synced may be gone with their power.
//!
//! It knows nothing of methods: the client stripes, and decides itself how bytes get to the data servers.

mod copy;
mod names;

pub(crate) use copy::{Begun, Owner, VolumeCopy, begin};
pub(crate) use names::{bits_of, finish_directory, make_directory, make_link, owner_of};

use crate::receive::journal;
use crate::source::of_client;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use vazao_client::Client;
use vazao_meter::Clock;
use vazao_model::{Code, InodeId, VolumePath};
use vazao_wire::service::Fault;

/// An abandoned partial file is removed after this, as in an area.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// Which files this node is writing, and where it keeps their journals.
#[derive(Debug)]
pub(crate) struct Arrivals {
    directory: PathBuf,
    under_way: Mutex<HashSet<[u8; 16]>>,
}

/// The right to write a file: two jobs that copy the same would write the same part.
#[derive(Debug)]
pub(crate) struct Held {
    arrivals: Arc<Arrivals>,
    id: [u8; 16],
}

impl Drop for Held {
    fn drop(&mut self) {
        self.arrivals.under_way().remove(&self.id);
    }
}

/// The directory of a path of the volume, and the last name.
fn parent_of(client: &Client, path: &VolumePath) -> Result<(InodeId, Vec<u8>), Fault> {
    let shown = shown(path);
    let Some((parent, name)) = path.split_last() else {
        return Err(Fault::new(Code::IsDirectory, format!("{shown}: the root of the volume")));
    };
    let parent = client.resolve(&parent, true).map_err(|error| of_client(error, &shown))?;
    Ok((parent.inode, name.to_vec()))
}

fn shown(path: &VolumePath) -> String {
    crate::Place::Volume(path.clone()).to_string()
}

impl Arrivals {
    /// Journals lie in `directory`, a daemon's own.
    pub(crate) fn open(directory: &Path) -> std::io::Result<Arc<Arrivals>> {
        let directory = directory.join("arriving-volume");
        std::fs::create_dir_all(&directory)?;
        Ok(Arc::new(Arrivals { directory, under_way: Mutex::default() }))
    }

    fn under_way(&self) -> MutexGuard<'_, HashSet<[u8; 16]>> {
        self.under_way.lock()
    }

    fn hold(self: &Arc<Arrivals>, id: [u8; 16], shown: &str) -> Result<Held, Fault> {
        match self.under_way().insert(id) {
            true => Ok(Held { arrivals: Arc::clone(self), id }),
            false => Err(Fault::new(Code::Unavailable, format!("{shown}: is being written by another job"))),
        }
    }

    fn journal(&self, id: &[u8; 16]) -> PathBuf {
        journal::path_of(&self.directory, id)
    }

    /// Removes abandoned parts. `client` is called only where there is something to remove.
    pub(crate) fn sweep(&self, clock: &dyn Clock, client: impl Fn() -> Result<Client, Fault>) {
        let Ok(entries) = std::fs::read_dir(&self.directory) else { return };
        let wall = Duration::from_nanos(clock.wall_ns());
        for entry in entries.flatten() {
            let modified = entry.metadata().and_then(|m| m.modified()).ok();
            let since_epoch = modified.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
            if since_epoch.is_none_or(|at| wall.saturating_sub(at) < KEPT) {
                continue;
            }
            let Ok(client) = client() else { return };
            self.sweep_one(&client, &entry.path());
        }
    }

    fn sweep_one(&self, client: &Client, path: &Path) {
        if let Some(found) = journal::load(path) {
            let begin = found.record.begin.unwrap_or_default();
            let id = <[u8; 16]>::try_from(begin.copy.as_slice());
            if id.is_ok_and(|id| self.under_way().contains(&id)) {
                return;
            }
            let place = VolumePath::parse(&begin.path).map_err(Fault::from);
            if let (Ok(id), Ok((parent, name))) = (id, place.and_then(|to| parent_of(client, &to))) {
                let part = names::part_name(&id, &name);
                let is_it = |inode: InodeId| found.record.part.is_some_and(|part| part.inode == inode.0);
                if client.lookup(parent, &part).is_ok_and(|there| is_it(there.inode)) {
                    let _ = client.unlink(parent, &part);
                }
            }
        }
        let _ = std::fs::remove_file(path);
    }
}
