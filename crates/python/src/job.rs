//! A copy that a node does.

use crate::detached::{Detached, wait};
use pyo3::prelude::*;
use vazao_client::Result;
use vazao_handles::{Connection, CopyOptions};

/// State, method, limit and trouble; then files, done, failed and skipped; then bytes, done, and done in a second.
type Status = ((u32, String, String, String), [u64; 4], [u64; 3]);

/// A job of a node.
#[pyclass(frozen, module = "vazao._vazao")]
#[derive(Debug)]
pub(crate) struct Job {
    handle: Detached<vazao_handles::Job>,
}

#[pymethods]
impl Job {
    #[getter]
    fn id(&self) -> String {
        self.handle.id().to_owned()
    }

    fn status(&self, py: Python<'_>) -> PyResult<Status> {
        let handle = &*self.handle;
        let job = wait(py, || handle.status())?;
        let files = [job.files, job.files_done, job.files_failed, job.files_skipped];
        let bytes = [job.bytes, job.bytes_done, job.rate_bytes];
        Ok(((job.state, job.method, job.bottleneck, job.trouble), files, bytes))
    }

    fn failures(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let handle = &*self.handle;
        wait(py, || handle.failures())
    }

    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        let handle = &*self.handle;
        wait(py, || handle.cancel())
    }
}

impl Job {
    pub(crate) fn start(
        connection: &Connection,
        source: &[u8],
        destination: &[u8],
        options: &CopyOptions,
    ) -> Result<Job> {
        Ok(Job { handle: Detached::new(connection.copy(source, destination, options)?) })
    }

    pub(crate) fn of(connection: &Connection, id: &str) -> Result<Job> {
        Ok(Job { handle: Detached::new(connection.job(id)?) })
    }
}
