//! A stretch of work, and what limited it.

use crate::connection::Shared;
use crate::types::Limit;
use std::sync::Arc;
use vazao_client::{Result, measure};

/// A stretch of work whose limit is asked for.
pub struct Watch {
    connection: Arc<Shared>,
    watch: measure::Watch,
}

impl Watch {
    /// Begins now.
    pub(crate) fn begin(connection: &Arc<Shared>) -> Result<Watch> {
        let client = connection.client()?;
        let watch = measure::Watch::begin(Some(client), None, vazao_meter::clock::system());
        Ok(Watch { connection: Arc::clone(connection), watch })
    }

    /// The connection that it belongs to.
    pub(crate) fn connection(&self) -> &Shared {
        &self.connection
    }

    /// What limited until now.
    pub(crate) fn limit(&self) -> Result<Limit> {
        self.connection.client()?;
        let verdict = self.watch.seen().verdict;
        Ok(Limit::new(verdict.resource.name(), verdict.share, verdict.score, &verdict.place, &verdict.line()))
    }
}
