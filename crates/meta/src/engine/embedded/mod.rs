//! The embedded engine.

use super::{EngineError, EngineOptions, EngineResult};
use std::sync::Arc;

/// See the module.
pub(crate) struct EmbeddedEngine;

impl EmbeddedEngine {
    pub(crate) fn open(_options: EngineOptions) -> EngineResult<Arc<dyn super::Engine>> {
        Err(EngineError::Refused("the embedded engine is being built".into()))
    }
}
