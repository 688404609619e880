//! A connection: calls on names of the volume, and what files, listings, areas and watches come from.
//!
//! Paths are bytes; the package encodes them by os.fsencode().

use crate::area::Area;
use crate::detached::{Detached, wait, wait_to_the_end};
use crate::error::os_error;
use crate::file::File;
use crate::job::Job;
use crate::listing::Listing;
use crate::types::{Attributes, set_time};
use crate::watch::Watch;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::{Path, PathBuf};
use vazao_client::{Changes, RenameMode};
use vazao_handles::{CopyOptions, PERMISSIONS, zone_name};
use vazao_model::distribution::Pattern;

/// A session with the volume of one cluster.
#[pyclass(frozen, module = "vazao._vazao")]
#[derive(Debug)]
pub(crate) struct Connection {
    handle: Detached<vazao_handles::Connection>,
}

/// The words of a call: with other threads running, on this connection.
macro_rules! waiting {
    ($self:ident, $py:ident, $connection:ident => $call:expr) => {{
        let $connection: &vazao_handles::Connection = &$self.handle;
        wait($py, || $call)
    }};
}

#[pymethods]
impl Connection {
    #[new]
    #[pyo3(signature = (
        cluster=None, *, deadline_ms=0, connections_max=0, dirty_bytes_max=0, read_ahead_bytes_max=0,
        name=String::new(), zone=None
    ))]
    #[allow(clippy::too_many_arguments, reason = "keywords of Python")]
    fn new(
        py: Python<'_>,
        cluster: Option<PathBuf>,
        deadline_ms: u32,
        connections_max: usize,
        dirty_bytes_max: usize,
        read_ahead_bytes_max: usize,
        name: String,
        zone: Option<&str>,
    ) -> PyResult<Connection> {
        let zone = zone.map(zone_name).transpose().map_err(|error| os_error(&error))?;
        let or = |given: usize, configured: usize| if given == 0 { configured } else { given };
        let change = |options: &mut vazao_client::Options| {
            if deadline_ms > 0 {
                options.deadline_ms = deadline_ms;
            }
            options.connections_max = or(connections_max, options.connections_max);
            options.dirty_bytes_max = or(dirty_bytes_max, options.dirty_bytes_max);
            options.read_ahead_bytes_max = or(read_ahead_bytes_max, options.read_ahead_bytes_max);
            options.name = name;
            options.zone = zone.unwrap_or_else(|| std::mem::take(&mut options.zone));
        };
        let cluster: Option<&Path> = cluster.as_deref();
        let handle = wait(py, || vazao_handles::Connection::open(cluster, change))?;
        Ok(Connection { handle: Detached::new(handle) })
    }

    /// Ends the session: files of it are flushed and closed. Not ended by Ctrl-C: what is unwritten would be lost.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let connection = &*self.handle;
        wait_to_the_end(py, || connection.close())
    }

    fn hang_up(&self, py: Python<'_>) -> PyResult<()> {
        waiting!(self, py, connection => connection.hang_up())
    }

    /// True once it was closed.
    #[getter]
    fn is_closed(&self) -> bool {
        self.handle.is_closed()
    }

    /// True in a child of the process that connected.
    #[getter]
    fn is_foreign(&self) -> bool {
        self.handle.is_foreign()
    }

    /// Makes durable all changes of names and attributes that were answered before.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        waiting!(self, py, connection => connection.client()?.sync())
    }

    /// Capacity, available and used bytes, and inodes of the volume.
    fn space(&self, py: Python<'_>) -> PyResult<(u64, u64, u64, u64)> {
        let space = waiting!(self, py, connection => connection.client()?.space())?;
        Ok((space.capacity_bytes, space.available_bytes, space.used_bytes, space.inodes))
    }

    fn open(&self, py: Python<'_>, path: &[u8], flags: u32, mode: u32) -> PyResult<File> {
        waiting!(self, py, connection => File::open(connection, path, flags, mode))
    }

    fn stat(&self, py: Python<'_>, path: &[u8], follow: bool) -> PyResult<Attributes> {
        Ok((&waiting!(self, py, connection => connection.stat(path, follow))?).into())
    }

    fn scandir(&self, py: Python<'_>, path: &[u8], with_attributes: bool) -> PyResult<Listing> {
        waiting!(self, py, connection => Listing::open(connection, path, with_attributes))
    }

    fn mkdir(&self, py: Python<'_>, path: &[u8], mode: u32) -> PyResult<()> {
        waiting!(self, py, connection => connection.make_directory(path, mode))
    }

    fn rmdir(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        waiting!(self, py, connection => connection.remove_directory(path))
    }

    fn unlink(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        waiting!(self, py, connection => connection.unlink(path))
    }

    /// Without `replace` a new name that is taken is an error.
    fn rename(&self, py: Python<'_>, path: &[u8], new_path: &[u8], replace: bool) -> PyResult<()> {
        let mode = if replace { RenameMode::Replace } else { RenameMode::NoReplace };
        waiting!(self, py, connection => connection.rename(path, new_path, mode))
    }

    fn link(&self, py: Python<'_>, path: &[u8], new_path: &[u8]) -> PyResult<()> {
        waiting!(self, py, connection => connection.link(path, new_path))
    }

    fn symlink(&self, py: Python<'_>, target: &[u8], path: &[u8]) -> PyResult<()> {
        waiting!(self, py, connection => connection.symlink(target, path))
    }

    fn readlink<'py>(&self, py: Python<'py>, path: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let target = waiting!(self, py, connection => connection.read_link(path))?;
        Ok(PyBytes::new(py, &target))
    }

    fn chmod(&self, py: Python<'_>, path: &[u8], mode: u32) -> PyResult<()> {
        let changes = Changes { mode: Some(mode & PERMISSIONS), ..Changes::default() };
        waiting!(self, py, connection => connection.change(path, &changes))
    }

    #[pyo3(signature = (path, uid=None, gid=None))]
    fn chown(&self, py: Python<'_>, path: &[u8], uid: Option<u32>, gid: Option<u32>) -> PyResult<()> {
        let changes = Changes { uid, gid, ..Changes::default() };
        waiting!(self, py, connection => connection.change(path, &changes))
    }

    fn truncate(&self, py: Python<'_>, path: &[u8], size_bytes: u64) -> PyResult<()> {
        let changes = Changes { size: Some(size_bytes), ..Changes::default() };
        waiting!(self, py, connection => connection.change(path, &changes))
    }

    /// Times in nanoseconds; `None`: now.
    #[pyo3(signature = (path, accessed_ns=None, modified_ns=None))]
    fn utime(
        &self,
        py: Python<'_>,
        path: &[u8],
        accessed_ns: Option<i128>,
        modified_ns: Option<i128>,
    ) -> PyResult<()> {
        let (accessed, modified) = (set_time(accessed_ns)?, set_time(modified_ns)?);
        waiting!(self, py, connection => connection.set_times(path, accessed, modified))
    }

    /// Stripe unit, width and distribution.
    fn layout(&self, py: Python<'_>, path: &[u8]) -> PyResult<(u64, u32, &'static str)> {
        let layout = waiting!(self, py, connection => connection.layout(path))?;
        let name = match layout.pattern {
            Pattern::Stripe => "stripe",
            Pattern::Strips(_) => "strips",
            Pattern::Groups { .. } => "groups",
            Pattern::Local => "local",
        };
        Ok((layout.stripe_unit_bytes, layout.width, name))
    }

    fn set_layout(&self, py: Python<'_>, path: &[u8], stripe_unit_bytes: u64, width: u32) -> PyResult<()> {
        waiting!(self, py, connection => connection.set_layout(path, stripe_unit_bytes, width))
    }

    fn area(&self, py: Python<'_>, node: &str, area: &str) -> PyResult<Area> {
        waiting!(self, py, connection => Area::new(connection, node, area))
    }

    /// Name, whether nothing in it can be changed, and trouble, of each area that a node exports.
    fn areas(&self, py: Python<'_>, node: &str) -> PyResult<Vec<(String, bool, String)>> {
        let areas = waiting!(self, py, connection => connection.client()?.areas(node))?;
        Ok(areas.into_iter().map(|area| (area.name, area.read_only, area.trouble)).collect())
    }

    /// Names of the nodes that the cluster has.
    fn nodes(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let map = waiting!(self, py, connection => connection.client()?.refresh_map())?;
        Ok(map.nodes.iter().map(|node| node.name.clone()).collect())
    }

    #[allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools, reason = "keywords of Python")]
    #[pyo3(signature = (
        source, destination, *, recursive=false, preserve=false, resume=false, checksum=false,
        method="auto".to_owned(), rate_bytes=0
    ))]
    fn copy(
        &self,
        py: Python<'_>,
        source: &[u8],
        destination: &[u8],
        recursive: bool,
        preserve: bool,
        resume: bool,
        checksum: bool,
        method: String,
        rate_bytes: u64,
    ) -> PyResult<Job> {
        let options = CopyOptions { recursive, preserve, resume, checksum, method, rate_bytes };
        waiting!(self, py, connection => Job::start(connection, source, destination, &options))
    }

    fn job(&self, py: Python<'_>, id: &str) -> PyResult<Job> {
        waiting!(self, py, connection => Job::of(connection, id))
    }

    fn watch(&self, py: Python<'_>) -> PyResult<Watch> {
        waiting!(self, py, connection => Watch::begin(connection))
    }
}
