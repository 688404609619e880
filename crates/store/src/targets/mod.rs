//! The targets of a server: they are only added to while it runs, so that requests look at them without a lock. One
//! whose place another directory has taken is passed over.
//!
//! A [`Target`] is a directory on one disk. Its parts, each with its own state:
//!
//! - who it is: `identity` (the TARGET file), `incarnation` (whether the disk is as new as it was), `standing` (what
//!   the metadata service says of it), `place` (whether the directory is still there);
//! - how far it is durable: `epochs` (what a loss of power may take), `write_back` and `background`, `unkept` (records
//!   that could not be written);
//! - its disk: `space`, `waits` (threads, and disks that hang), `failure` (disks out of service), `closing`, `cache`
//!   (open files);
//! - objects that it has lost, and fetches from other members: `fetching`.

pub(crate) mod background;
mod boot;
pub(crate) mod cache;
pub(crate) mod closing;
pub(crate) mod epochs;
pub(crate) mod failure;
pub(crate) mod fetching;
mod groups;
pub(crate) mod identity;
pub(crate) mod incarnation;
pub(crate) mod place;
pub(crate) mod space;
pub(crate) mod standing;
mod target;
pub(crate) mod unkept;
pub(crate) mod waits;
pub(crate) mod write_back;

pub(crate) use groups::{Groups, Lookup};
pub(crate) use target::Target;

use crate::error::OpenError;
use parking_lot::Mutex;
use std::ops::Index;
use std::sync::{Arc, OnceLock};
use vazao_model::limits::NODE_TARGETS_MAX;

/// In the order in which they were added.
pub(crate) struct Targets {
    /// Filled from the front.
    places: Box<[OnceLock<Arc<Target>>]>,
    /// Held while one is added, and while each of them is given an answer.
    adding: Mutex<()>,
}

impl Targets {
    /// Those that a server starts with. Errors: more than a node may have.
    pub(crate) fn new(first: Vec<Arc<Target>>) -> Result<Targets, OpenError> {
        let places = (0..NODE_TARGETS_MAX).map(|_| OnceLock::new()).collect();
        let targets = Targets { places, adding: Mutex::default() };
        for target in first {
            targets.add(|_| Ok(target))?;
        }
        Ok(targets)
    }

    /// Adds the one that `open` makes; one at a time, so that `open` can compare it with all others.
    pub(crate) fn add(
        &self,
        open: impl FnOnce(&Targets) -> Result<Arc<Target>, OpenError>,
    ) -> Result<(), OpenError> {
        let _one = self.adding.lock();
        let free = self.places.iter().find(|place| place.get().is_none());
        let Some(place) = free else {
            let problem = format!("a node has at most {NODE_TARGETS_MAX} targets; start another node");
            return Err(OpenError::Options(problem));
        };
        let target = open(self)?;
        place.get_or_init(|| target);
        Ok(())
    }

    /// How many have made place for others.
    pub(crate) fn retired(&self) -> usize {
        self.places.iter().map_while(OnceLock::get).filter(|target| target.is_retired()).count()
    }

    /// Does what is about each of them in turn. `None`: one has made place for another since `retired` had.
    pub(crate) fn if_same<T>(&self, retired: usize, work: impl FnOnce() -> T) -> Option<T> {
        let _one = self.adding.lock();
        (self.retired() == retired).then(work)
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Target>> {
        self.places.iter().map_while(OnceLock::get).filter(|target| !target.is_retired())
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.iter().count()
    }
}

impl Index<usize> for Targets {
    type Output = Arc<Target>;

    fn index(&self, index: usize) -> &Arc<Target> {
        self.places[index].get().expect("the caller knows that there are so many")
    }
}
