//! Requests in flight, as their callers hold them.

use super::link::Link;
use super::slow_requests::Asked;
use crate::service::{Fault, RequestId};
use crate::transport::{Pending, Received};
use std::sync::Arc;
use vazao_model::Code;

/// A request that could not be sent.
pub(super) struct Failed {
    pub(super) id: u64,
    pub(super) fault: Fault,
}

impl Pending for Failed {
    fn wait(self: Box<Self>) -> Result<Received, Fault> {
        Err(self.fault)
    }

    fn is_done(&self) -> bool {
        true
    }

    fn id(&self) -> RequestId {
        RequestId(self.id)
    }
}

/// A request that was sent.
pub(super) struct InFlight {
    link: Option<Arc<Link>>,
    asked: Asked,
}

impl InFlight {
    pub(super) fn new(link: Arc<Link>, asked: Asked) -> InFlight {
        InFlight { link: Some(link), asked }
    }
}

impl Pending for InFlight {
    fn wait(mut self: Box<Self>) -> Result<Received, Fault> {
        let link = self.link.take().ok_or(Code::Internal)?;
        link.wait(self.asked)
    }

    fn is_done(&self) -> bool {
        self.link.as_ref().is_none_or(|link| link.is_done(self.asked.id))
    }

    fn settle(&self) -> bool {
        self.link.as_ref().is_none_or(|link| link.settle(&self.asked))
    }

    fn settle_by(&self, until_ns: u64) -> bool {
        self.link.as_ref().is_none_or(|link| link.settle_by(&self.asked, until_ns))
    }

    fn id(&self) -> RequestId {
        RequestId(self.asked.id)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(link) = self.link.take() {
            link.abandon(self.asked.id);
        }
    }
}
