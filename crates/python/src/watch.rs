//! A stretch of work, and what limited it.

use crate::detached::{Detached, wait};
use pyo3::prelude::*;
use vazao_handles::Connection;

/// Resource, place, share of the ceiling, score and text of a verdict.
type Verdict = (&'static str, String, Option<f64>, f64, String);

/// A stretch of work that began when this was made.
#[pyclass(frozen, module = "vazao._vazao")]
#[derive(Debug)]
pub(crate) struct Watch {
    handle: Detached<vazao_handles::Watch>,
}

#[pymethods]
impl Watch {
    /// What limited until now.
    fn limit(&self, py: Python<'_>) -> PyResult<Verdict> {
        let handle = &*self.handle;
        let verdict = wait(py, || handle.limit())?;
        let line = verdict.line();
        Ok((verdict.resource.name(), verdict.place, verdict.share, verdict.score, line))
    }
}

impl Watch {
    pub(crate) fn begin(connection: &Connection) -> vazao_client::Result<Watch> {
        Ok(Watch { handle: Detached::new(vazao_handles::Watch::begin(connection)?) })
    }
}
