//! A stretch of work, and what limited it.

use crate::types::Limit;
use vazao_client::Result;

/// A stretch of work whose limit is asked for.
pub struct Watch {
    pub(crate) handle: vazao_handles::Watch,
}

impl Watch {
    /// What limited until now.
    pub(crate) fn limit(&self) -> Result<Limit> {
        let verdict = self.handle.limit()?;
        Ok(Limit::new(verdict.resource.name(), verdict.share, verdict.score, &verdict.place, &verdict.line()))
    }
}
