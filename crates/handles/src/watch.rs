//! A stretch of work, and what limited it.

use crate::Connection;
use vazao_client::{Result, measure};
use vazao_meter::bottleneck::Verdict;

/// A stretch of work whose limit is asked for.
#[derive(Debug)]
pub struct Watch {
    connection: Connection,
    /// `None` only while it is dropped.
    watch: Option<measure::Watch>,
}

impl Watch {
    /// Begins now.
    pub fn begin(connection: &Connection) -> Result<Watch> {
        let client = connection.client()?;
        let watch = measure::Watch::begin(Some(client), None, vazao_meter::clock::system());
        Ok(Watch { connection: connection.clone(), watch: Some(watch) })
    }

    /// What limited until now. The watch goes on.
    pub fn limit(&self) -> Result<Verdict> {
        self.connection.client()?;
        Ok(self.watch.as_ref().map(|watch| watch.seen().verdict).unwrap_or_default())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let watch = self.watch.take();
        if self.connection.is_foreign() {
            // Its thread is not there, and would be waited for.
            std::mem::forget(watch);
        }
    }
}
