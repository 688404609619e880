//! Whether a target may be served: what the metadata service has said of it since this server started.
//!
//! Until it has answered, requests are told to retry: the directory may be a copy of a target that another server
//! serves, or an old one. Once it has agreed, a metadata service that is away changes nothing.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};
use vazao_model::Code;
use vazao_wire::service::Fault;

/// 0 is what it begins with: nothing has been said.
const SERVED: u8 = 1;
const STALE: u8 = 2;

/// The standing of one target.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    state: AtomicU8,
    why: Mutex<String>,
}

impl Standing {
    /// It may be served.
    pub(crate) fn serve(&self) {
        self.state.store(SERVED, Ordering::Release);
    }

    /// It is an old copy. True when that is news.
    pub(crate) fn refuse(&self, why: &str) -> bool {
        why.clone_into(&mut self.why.lock());
        self.state.swap(STALE, Ordering::AcqRel) != STALE
    }

    /// True while it may be served.
    pub(crate) fn is_served(&self) -> bool {
        self.state.load(Ordering::Acquire) == SERVED
    }

    /// Why it is not served, where it is stale.
    pub(crate) fn stale(&self) -> Option<String> {
        let is_stale = self.state.load(Ordering::Acquire) == STALE;
        is_stale.then(|| self.why.lock().clone())
    }

    /// Refuses work on a target called `name` that is not served.
    pub(crate) fn check(&self, name: &dyn std::fmt::Display) -> Result<(), Fault> {
        if self.is_served() {
            return Ok(());
        }
        Err(match self.stale() {
            Some(why) => Fault::new(Code::TargetFailed, format!("{name}: {why}")),
            None => {
                let text = "not served before the metadata service has confirmed it after the server's start";
                Fault::new(Code::Unavailable, format!("{name}: {text}"))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_served_before_it_is_confirmed_nor_once_it_is_stale() {
        let standing = Standing::default();
        let code = |standing: &Standing| standing.check(&"t1").map_err(|fault| fault.code);
        assert_eq!(code(&standing), Err(Code::Unavailable), "to be tried again");
        standing.serve();
        assert_eq!(code(&standing), Ok(()));
        assert!(standing.refuse("older than recorded") && !standing.refuse("older than recorded"));
        assert_eq!(code(&standing), Err(Code::TargetFailed), "for good");
        let fault = standing.check(&"t1").expect_err("stale");
        assert!(fault.detail.contains("t1: older than recorded"), "{fault}");
    }
}
