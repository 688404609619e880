//! What the service counts of its channels; its shell counts the requests.

use vazao_meter::{Counter, Exposition};

/// Counters of the service.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// Files opened again for a channel.
    pub(crate) reopened: Counter,
    /// Channels closed because their client was gone.
    pub(crate) expired: Counter,
}

impl Metrics {
    /// Writes everything out.
    pub(crate) fn expose(&self, out: &mut Exposition) {
        let mut count = |name: &str, help: &str, counter: &Counter| {
            out.counter(name, help, &[], counter.get() as f64);
        };
        count("vazao_area_reopened_total", "Files opened again for a channel.", &self.reopened);
        count("vazao_area_expired_total", "Channels closed because their client was gone.", &self.expired);
    }
}
