//! Directories that are being listed: iterators of entries.

use crate::detached::{Detached, wait};
use crate::types::Entry;
use pyo3::prelude::*;
use vazao_client::Result;
use vazao_client::area::AreaEntry;
use vazao_handles::{Area, Connection};

/// A directory of the volume, entry by entry.
#[pyclass(frozen, module = "vazao._vazao")]
#[derive(Debug)]
pub(crate) struct Listing {
    handle: Detached<vazao_handles::Listing>,
}

#[pymethods]
impl Listing {
    fn __iter__(this: Py<Listing>) -> Py<Listing> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Entry>> {
        let handle = &*self.handle;
        Ok(wait(py, || handle.next_entry())?.map(Entry::from))
    }
}

impl Listing {
    pub(crate) fn open(connection: &Connection, path: &[u8], with_attributes: bool) -> Result<Listing> {
        let handle = vazao_handles::Listing::open(connection, path, with_attributes)?;
        Ok(Listing { handle: Detached::new(handle) })
    }
}

/// A directory of an area, entry by entry.
#[pyclass(frozen, module = "vazao._vazao")]
#[derive(Debug)]
pub(crate) struct AreaListing {
    handle: Detached<vazao_handles::AreaListing>,
}

#[pymethods]
impl AreaListing {
    fn __iter__(this: Py<AreaListing>) -> Py<AreaListing> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Entry>> {
        let handle = &*self.handle;
        let shown =
            |entry: AreaEntry| Entry::new(entry.name, entry.inode, entry.kind, entry.attributes.as_ref());
        Ok(wait(py, || handle.next_entry())?.map(shown))
    }
}

impl AreaListing {
    pub(crate) fn open(area: &Area, path: &[u8], with_attributes: bool) -> Result<AreaListing> {
        let handle = vazao_handles::AreaListing::open(area, path, with_attributes)?;
        Ok(AreaListing { handle: Detached::new(handle) })
    }
}
