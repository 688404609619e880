//! The targets of a server: their number only grows while it runs, so that requests look at them without a lock.

mod groups;

pub(crate) use groups::Groups;

use crate::error::OpenError;
use crate::target::Target;
use parking_lot::Mutex;
use std::ops::Index;
use std::sync::{Arc, OnceLock};
use vazao_model::limits::NODE_TARGETS_MAX;

/// In the order in which they were added.
pub(crate) struct Targets {
    /// Filled from the front.
    places: Box<[OnceLock<Arc<Target>>]>,
    /// Held while one is added.
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

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Target>> {
        self.places.iter().map_while(OnceLock::get)
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
