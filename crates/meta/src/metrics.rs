//! What the service measures of itself.

use std::sync::Arc;
use vazao_meter::measures::Work;
use vazao_meter::{Accounts, Cause, Counter, Exposition, Histogram};
use vazao_wire::Method;

#[derive(Debug, Default)]
struct MethodFigures {
    latency: Histogram,
    failures: Counter,
}

/// Latencies and failures of each method, and where time went.
#[derive(Debug)]
pub(crate) struct Metrics {
    methods: Vec<MethodFigures>,
    /// Transactions that ran again because another one changed what they had read.
    pub(crate) conflicts: Counter,
    /// Objects that data servers have removed.
    pub(crate) objects_removed: Counter,
    /// Objects found that no file has.
    pub(crate) orphan_objects_found: Counter,
    /// Those of them that were removed.
    pub(crate) orphan_objects_removed: Counter,
    /// Objects met that carry numbers which this service has not given out.
    pub(crate) objects_unknown: Counter,
    /// Where time went.
    pub(crate) accounts: Arc<Accounts>,
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        Metrics {
            methods: Method::ALL.iter().map(|_| MethodFigures::default()).collect(),
            conflicts: Counter::new(),
            objects_removed: Counter::new(),
            orphan_objects_found: Counter::new(),
            orphan_objects_removed: Counter::new(),
            objects_unknown: Counter::new(),
            accounts: Arc::new(Accounts::new()),
        }
    }

    /// Records one request.
    pub(crate) fn record(&self, method: Method, nanoseconds: u64, failed: bool) {
        let index = Method::ALL.iter().position(|&m| m == method);
        if let Some(figures) = index.and_then(|index| self.methods.get(index)) {
            figures.latency.record(nanoseconds);
            figures.failures.add(u64::from(failed));
        }
    }

    /// Operations by duration, those that belong to keeping in touch left out.
    pub(crate) fn work(&self) -> Work {
        let mut work = Work::default();
        let of_others =
            |method: &Method| !matches!(method, Method::Ping | Method::RenewSession | Method::RegisterNode);
        let each = Method::ALL.iter().zip(&self.methods).filter(|(method, _)| of_others(method));
        for (_, figures) in each {
            work.add_latencies(&figures.latency.buckets());
        }
        work
    }

    /// Writes the methods that were used, and the accounts.
    pub(crate) fn expose(&self, exposition: &mut Exposition) {
        let used = || Method::ALL.iter().zip(&self.methods).filter(|(_, f)| f.latency.count() > 0);
        for (method, figures) in used() {
            let labels = [("method", method.name())];
            let help = "Time from a metadata request to its answer.";
            exposition.histogram("vazao_meta_request_seconds", help, &labels, &figures.latency);
        }
        for (method, figures) in used() {
            let labels = [("method", method.name())];
            let help = "Metadata requests answered with an error.";
            exposition.counter("vazao_meta_failures_total", help, &labels, figures.failures.get() as f64);
        }
        let help = "Transactions run again after a conflict.";
        exposition.counter("vazao_meta_conflicts_total", help, &[], self.conflicts.get() as f64);
        let help = "Objects of deleted files that were removed.";
        exposition.counter("vazao_meta_objects_removed_total", help, &[], self.objects_removed.get() as f64);
        let orphan_objects = [
            (
                "vazao_meta_orphan_objects_found_total",
                "Objects found that no file has.",
                &self.orphan_objects_found,
            ),
            (
                "vazao_meta_orphan_objects_removed_total",
                "Objects that no file had, removed.",
                &self.orphan_objects_removed,
            ),
            (
                "vazao_meta_objects_unknown_total",
                "Objects met that are newer than this metadata, and left alone.",
                &self.objects_unknown,
            ),
        ];
        for (name, help, counter) in orphan_objects {
            exposition.counter(name, help, &[], counter.get() as f64);
        }
        let causes = [Cause::Disk, Cause::Lock, Cause::Compute, Cause::Commit];
        exposition.accounts("vazao_meta_time_seconds_total", "Where time went.", &self.accounts, &causes);
    }
}
