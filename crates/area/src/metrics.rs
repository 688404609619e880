//! What the service counts.

use std::collections::BTreeMap;
use vazao_meter::measures::Work;
use vazao_meter::{Accounts, Cause, Counter, Exposition, Histogram};
use vazao_wire::Method;

#[derive(Default)]
struct MethodMetrics {
    failures: Counter,
    latency: Histogram,
}

/// Counters of the service.
pub(crate) struct Metrics {
    methods: BTreeMap<u16, (Method, MethodMetrics)>,
    /// Bytes of answers to reads.
    pub(crate) read_bytes: Counter,
    /// Bytes of writes that arrived whole.
    pub(crate) written_bytes: Counter,
    /// Requests handed to the pool.
    pub(crate) deferred: Counter,
    /// Files opened again for a channel.
    pub(crate) reopened: Counter,
    /// Channels closed because their client was gone.
    pub(crate) expired: Counter,
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let ours = Method::ALL.iter().filter(|method| method.number() >> 8 == 3);
        Metrics {
            methods: ours.map(|&method| (method.number(), (method, MethodMetrics::default()))).collect(),
            read_bytes: Counter::default(),
            written_bytes: Counter::default(),
            deferred: Counter::default(),
            reopened: Counter::default(),
            expired: Counter::default(),
        }
    }

    /// Records the end of a request that took `ns`.
    pub(crate) fn record(&self, method: Method, ns: u64, failed: bool) {
        if let Some((_, metrics)) = self.methods.get(&method.number()) {
            metrics.latency.record(ns);
            metrics.failures.add(u64::from(failed));
        }
    }

    /// What was done, for verdicts.
    pub(crate) fn work(&self) -> Work {
        let (read_bytes, written_bytes) = (self.read_bytes.get(), self.written_bytes.get());
        let mut work = Work { read_bytes, written_bytes, ..Work::default() };
        self.methods.values().for_each(|(_, metrics)| work.add_latencies(&metrics.latency.buckets()));
        work
    }

    /// Writes everything out.
    pub(crate) fn expose(&self, accounts: &Accounts, out: &mut Exposition) {
        for (method, metrics) in self.methods.values() {
            let labels = [("method", method.name())];
            let count = metrics.latency.count() as f64;
            out.counter("vazao_area_requests_total", "Requests finished.", &labels, count);
        }
        for (method, metrics) in self.methods.values() {
            let labels = [("method", method.name())];
            let count = metrics.failures.get() as f64;
            out.counter("vazao_area_failures_total", "Requests answered with an error.", &labels, count);
        }
        for (method, metrics) in self.methods.values() {
            let labels = [("method", method.name())];
            let name = "vazao_area_request_seconds";
            out.histogram(name, "From arrival to answer.", &labels, &metrics.latency);
        }
        for (direction, bytes) in [("read", &self.read_bytes), ("write", &self.written_bytes)] {
            let labels = [("direction", direction)];
            out.counter(
                "vazao_area_bytes_total",
                "Bytes moved through channels.",
                &labels,
                bytes.get() as f64,
            );
        }
        let mut count = |name: &str, help: &str, counter: &Counter| {
            out.counter(name, help, &[], counter.get() as f64);
        };
        count("vazao_area_deferred_total", "Requests that had to wait for a disk.", &self.deferred);
        count("vazao_area_reopened_total", "Files opened again for a channel.", &self.reopened);
        count("vazao_area_expired_total", "Channels closed because their client was gone.", &self.expired);
        out.accounts(
            "vazao_area_time_seconds_total",
            "Where the service's time went.",
            accounts,
            &[Cause::Disk],
        );
    }
}
