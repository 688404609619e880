//! System calls of the load: how long each took, and how it failed.

use crate::clock::now_ns;
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Result;

/// Failures kept of one run; a thread that fails in a loop says the same again and again.
const FAILURES_MAX: usize = 400;

/// A call that failed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FailedCall {
    /// The thread and the call.
    pub(crate) what: String,
    pub(crate) began_ns: u64,
    pub(crate) ended_ns: u64,
    pub(crate) errno: Option<i32>,
    pub(crate) why: String,
}

/// All calls of one run.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// By threads: the call under way, and when it began.
    under_way: BTreeMap<String, (String, u64)>,
    failed: Vec<FailedCall>,
    slowest: Option<(u64, String)>,
    count: u64,
}

impl Calls {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Makes a call.
    pub(crate) fn call<T>(&self, thread: &str, what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let began_ns = now_ns();
        self.lock().under_way.insert(thread.to_owned(), (what.to_owned(), began_ns));
        let result = work();
        let ended_ns = now_ns();
        let mut inner = self.lock();
        inner.under_way.remove(thread);
        inner.count += 1;
        let what = format!("{thread}: {what}");
        if let Err(error) = &result
            && inner.failed.len() < FAILURES_MAX
        {
            let (errno, why) = (error.raw_os_error(), error.to_string());
            inner.failed.push(FailedCall { what: what.clone(), began_ns, ended_ns, errno, why });
        }
        let took_ns = ended_ns - began_ns;
        if inner.slowest.as_ref().is_none_or(|(slowest_ns, _)| took_ns > *slowest_ns) {
            inner.slowest = Some((took_ns, what));
        }
        result
    }

    /// Calls that have not ended, for people.
    pub(crate) fn under_way(&self) -> Vec<String> {
        let (inner, now_ns) = (self.lock(), now_ns());
        let line = |(thread, (what, began_ns)): (&String, &(String, u64))| {
            format!("{thread}: {what}, for {:.1} s", (now_ns - began_ns) as f64 / 1e9)
        };
        inner.under_way.iter().map(line).collect()
    }

    /// Calls that failed.
    pub(crate) fn failed(&self) -> Vec<FailedCall> {
        self.lock().failed.clone()
    }

    /// The call that took longest, and how many nanoseconds.
    pub(crate) fn slowest(&self) -> Option<(u64, String)> {
        self.lock().slowest.clone()
    }

    /// How many there were.
    pub(crate) fn count(&self) -> u64 {
        self.lock().count
    }
}
