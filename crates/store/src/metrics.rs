//! What a data server counts.

use vazao_meter::measures::Work;
use vazao_meter::{Accounts, Cause, Counter, Exposition, Histogram};
use vazao_wire::Method;

/// The methods that a data server serves.
const METHODS: [Method; 12] = [
    Method::Ping,
    Method::Read,
    Method::Write,
    Method::TruncateObject,
    Method::SyncObjects,
    Method::RemoveObjects,
    Method::StatObject,
    Method::ListObjects,
    Method::ReportDamage,
    Method::PunchObject,
    Method::ObjectRanges,
    Method::CopyObjectRange,
];

#[derive(Default)]
struct MethodMetrics {
    failures: Counter,
    latency: Histogram,
}

/// Counters of a server.
#[derive(Default)]
pub(crate) struct Metrics {
    methods: [MethodMetrics; METHODS.len()],
    /// Bytes of answers to reads.
    pub(crate) read_bytes: Counter,
    /// Bytes of writes that arrived whole.
    pub(crate) written_bytes: Counter,
    /// Requests handed to the pools.
    pub(crate) deferred: Counter,
}

impl Metrics {
    /// Records the end of a request that took `ns`.
    pub(crate) fn record(&self, method: Method, ns: u64, failed: bool) {
        if let Some(index) = METHODS.iter().position(|m| *m == method) {
            self.methods[index].latency.record(ns);
            self.methods[index].failures.add(u64::from(failed));
        }
    }

    /// Operations by duration, and bytes.
    pub(crate) fn work(&self) -> Work {
        let (read_bytes, written_bytes) = (self.read_bytes.get(), self.written_bytes.get());
        let mut work = Work { read_bytes, written_bytes, ..Work::default() };
        for (method, metrics) in METHODS.iter().zip(&self.methods) {
            if *method != Method::Ping {
                work.add_latencies(&metrics.latency.buckets());
            }
        }
        work
    }

    /// Writes everything out; `deferred` requests wait for a disk now.
    pub(crate) fn expose(&self, accounts: &Accounts, deferred: usize, out: &mut Exposition) {
        let each = || METHODS.iter().zip(&self.methods);
        for (method, metrics) in each() {
            let labels = [("method", method.name())];
            let count = metrics.latency.count() as f64;
            out.counter("vazao_data_requests_total", "Requests finished.", &labels, count);
        }
        for (method, metrics) in each() {
            let labels = [("method", method.name())];
            let count = metrics.failures.get() as f64;
            out.counter("vazao_data_failures_total", "Requests answered with an error.", &labels, count);
        }
        for (method, metrics) in each() {
            let labels = [("method", method.name())];
            let name = "vazao_data_request_seconds";
            out.histogram(name, "From arrival to answer.", &labels, &metrics.latency);
        }
        let bytes = [("read", &self.read_bytes), ("write", &self.written_bytes)];
        for (direction, counter) in bytes {
            let labels = [("direction", direction)];
            out.counter("vazao_data_bytes_total", "Bytes of objects moved.", &labels, counter.get() as f64);
        }
        let all = self.deferred.get() as f64;
        out.counter("vazao_data_deferred_total", "Requests that had to wait for a disk.", &[], all);
        out.gauge("vazao_data_deferred", "Requests waiting for a disk now.", &[], deferred as f64);
        let causes = [Cause::Disk, Cause::Lock, Cause::Compute];
        out.accounts("vazao_data_time_seconds_total", "Where the server's time went.", accounts, &causes);
    }
}
