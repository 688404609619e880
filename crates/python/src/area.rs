//! An area of a node.

use crate::detached::{Detached, wait};
use crate::listing::AreaListing;
use crate::types::{Attributes, time_stamp};
use pyo3::prelude::*;
use vazao_client::RenameMode;
use vazao_client::area::AreaChanges;
use vazao_handles::{Connection, PERMISSIONS};

/// An area of a node: directories of its own disks, served in place.
#[pyclass(frozen, module = "vazao._vazao")]
#[derive(Debug)]
pub(crate) struct Area {
    handle: Detached<vazao_handles::Area>,
}

#[pymethods]
impl Area {
    fn reference<'py>(&self, py: Python<'py>, path: &[u8]) -> PyResult<Bound<'py, pyo3::types::PyBytes>> {
        let handle = &*self.handle;
        let reference = wait(py, || handle.reference(path))?;
        Ok(pyo3::types::PyBytes::new(py, &reference))
    }

    fn stat(&self, py: Python<'_>, path: &[u8], follow: bool) -> PyResult<Attributes> {
        let handle = &*self.handle;
        Ok((&wait(py, || handle.stat(path, follow))?).into())
    }

    fn scandir(&self, py: Python<'_>, path: &[u8], with_attributes: bool) -> PyResult<AreaListing> {
        let handle = &*self.handle;
        wait(py, || AreaListing::open(handle, path, with_attributes))
    }

    fn mkdir(&self, py: Python<'_>, path: &[u8], mode: u32) -> PyResult<()> {
        let handle = &*self.handle;
        wait(py, || handle.make_directory(path, mode))
    }

    fn rmdir(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        let handle = &*self.handle;
        wait(py, || handle.remove_directory(path))
    }

    fn unlink(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        let handle = &*self.handle;
        wait(py, || handle.unlink(path))
    }

    fn rename(&self, py: Python<'_>, path: &[u8], new_path: &[u8]) -> PyResult<()> {
        let handle = &*self.handle;
        wait(py, || handle.rename(path, new_path, RenameMode::Replace))
    }

    #[pyo3(signature = (path, mode=None, size_bytes=None, accessed_ns=None, modified_ns=None))]
    fn change(
        &self,
        py: Python<'_>,
        path: &[u8],
        mode: Option<u32>,
        size_bytes: Option<u64>,
        accessed_ns: Option<i128>,
        modified_ns: Option<i128>,
    ) -> PyResult<()> {
        let changes = AreaChanges {
            mode: mode.map(|mode| mode & PERMISSIONS),
            size: size_bytes,
            accessed: accessed_ns.map(time_stamp).transpose()?,
            modified: modified_ns.map(time_stamp).transpose()?,
        };
        let handle = &*self.handle;
        wait(py, || handle.change(path, &changes))
    }

    /// Capacity and available bytes.
    fn space(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        let handle = &*self.handle;
        let space = wait(py, || handle.space())?;
        Ok((space.capacity_bytes, space.available_bytes))
    }
}

impl Area {
    pub(crate) fn new(connection: &Connection, node: &str, area: &str) -> vazao_client::Result<Area> {
        Ok(Area { handle: Detached::new(connection.area(node, area)?) })
    }
}
