//! Prometheus text exposition (format version 0.0.4).

use crate::accounts::{Accounts, Cause};
use crate::histogram::Histogram;
use std::fmt::Write;

/// Upper bounds of the exposed latency buckets, seconds: 10 µs to 30 s.
const BOUNDS_S: [f64; 14] =
    [1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 1e-2, 5e-2, 0.25, 1.0, 5.0, 30.0];

/// Text under construction.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
    last_family: String,
}

impl Exposition {
    /// An empty text.
    pub fn new() -> Exposition {
        Exposition::default()
    }

    fn family(&mut self, name: &str, kind: &str, help: &str) {
        if self.last_family != name {
            let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            self.last_family = name.to_owned();
        }
    }

    fn labels(labels: &[(&str, &str)]) -> String {
        if labels.is_empty() {
            return String::new();
        }
        let escape = |v: &str| v.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let inner: Vec<String> = labels.iter().map(|(k, v)| format!("{k}=\"{}\"", escape(v))).collect();
        format!("{{{}}}", inner.join(","))
    }

    /// One counter sample. Samples of one name must follow each other.
    pub fn counter(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: f64) {
        self.family(name, "counter", help);
        let _ = writeln!(self.text, "{name}{} {value}", Self::labels(labels));
    }

    /// One gauge sample.
    pub fn gauge(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: f64) {
        self.family(name, "gauge", help);
        let _ = writeln!(self.text, "{name}{} {value}", Self::labels(labels));
    }

    /// One latency histogram, in seconds.
    pub fn histogram(&mut self, name: &str, help: &str, labels: &[(&str, &str)], histogram: &Histogram) {
        self.family(name, "histogram", help);
        for bound in BOUNDS_S {
            let text = bound.to_string();
            let with_bound = [labels, &[("le", text.as_str())]].concat();
            let count = histogram.count_up_to((bound * 1e9) as u64);
            let _ = writeln!(self.text, "{name}_bucket{} {count}", Self::labels(&with_bound));
        }
        let all = histogram.count();
        let with_bound = [labels, &[("le", "+Inf")]].concat();
        let _ = writeln!(self.text, "{name}_bucket{} {all}", Self::labels(&with_bound));
        let _ = writeln!(self.text, "{name}_sum{} {}", Self::labels(labels), histogram.sum_ns() as f64 / 1e9);
        let _ = writeln!(self.text, "{name}_count{} {all}", Self::labels(labels));
    }

    /// The accounts of waiting time: those of `causes`, the ones that are measured. A cause that is never charged
    /// would read as one that costs nothing.
    pub fn accounts(&mut self, name: &str, help: &str, accounts: &Accounts, causes: &[Cause]) {
        for &cause in causes {
            let seconds = accounts.nanoseconds(cause) as f64 / 1e9;
            self.counter(name, help, &[("cause", cause.name())], seconds);
        }
    }

    /// The finished text.
    pub fn finish(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_announced_once_and_label_values_are_escaped() {
        let mut exposition = Exposition::new();
        exposition.counter("vazao_bytes_total", "Bytes.", &[("peer", "a\"b")], 1.0);
        exposition.counter("vazao_bytes_total", "Bytes.", &[("peer", "c")], 2.0);
        let text = exposition.finish();
        assert_eq!(text.matches("# TYPE vazao_bytes_total counter").count(), 1);
        assert!(text.contains("vazao_bytes_total{peer=\"a\\\"b\"} 1\n"));
    }

    #[test]
    fn histogram_buckets_are_cumulative() {
        let histogram = Histogram::default();
        histogram.record(20_000);
        histogram.record(2_000_000_000);
        let mut exposition = Exposition::new();
        exposition.histogram("vazao_latency_seconds", "Latency.", &[], &histogram);
        let text = exposition.finish();
        assert!(text.contains("vazao_latency_seconds_bucket{le=\"0.000025\"} 1\n"));
        assert!(text.contains("vazao_latency_seconds_bucket{le=\"+Inf\"} 2\n"));
        assert!(text.contains("vazao_latency_seconds_count 2\n"));
    }
}
