//! A line between two sites: a second bridge, joined to the first by one link that all hosts beyond share.
//!
//! ```text
//! port1 … portN ── bridge ── here1 ═══ there1 ── site1 ── portM …
//! ```
//! The ends bound the rate, each for what leaves by it. What waits is what a router's serial interface holds: 40
//! frames, first in, first out.

use super::Error;
use super::link::{BitsPerSecond, shape_with_queue};
use super::namespace::Namespace;
use parking_lot::Mutex;
use std::sync::Arc;

/// The output queue of a serial interface (Cisco's default hold queue is 40 packets), in whole frames.
const QUEUE_BYTES: u64 = 40 * 1514;

/// A line between the first site of a network and another one; of no use once its network is dropped.
#[derive(Debug)]
pub struct Line {
    switch: Arc<Namespace>,
    rate: Mutex<BitsPerSecond>,
    number: usize,
}

/// Bytes that a line or a link has carried, in whole frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// To the site beyond, or from the host.
    pub out_bytes: u64,
    /// The other way.
    pub back_bytes: u64,
}

impl Line {
    pub(crate) fn make(switch: &Arc<Namespace>, number: usize, rate: BitsPerSecond) -> Result<Line, Error> {
        let line = Line { switch: Arc::clone(switch), rate: Mutex::new(rate), number };
        let (site, here, there) = (site_of(number), line.here(), line.there());
        switch.ip(&["link", "add", &site, "type", "bridge"])?;
        switch.ip(&["link", "set", &site, "up"])?;
        switch.ip(&["link", "add", &here, "type", "veth", "peer", "name", &there])?;
        switch.ip(&["link", "set", &here, "master", "bridge", "up"])?;
        switch.ip(&["link", "set", &there, "master", &site, "up"])?;
        line.set_rate(rate)?;
        Ok(line)
    }

    fn here(&self) -> String {
        format!("here{}", self.number)
    }

    fn there(&self) -> String {
        format!("there{}", self.number)
    }

    /// Its rate each way.
    pub fn rate(&self) -> BitsPerSecond {
        *self.rate.lock()
    }

    /// Bounds the line to `rate` each way; also while data flows.
    pub fn set_rate(&self, rate: BitsPerSecond) -> Result<(), Error> {
        for end in [self.here(), self.there()] {
            shape_with_queue(&self.switch, &end, rate, QUEUE_BYTES)?;
        }
        *self.rate.lock() = rate;
        Ok(())
    }

    /// Cuts the line: both ends lose their carrier, and what waited is gone.
    pub fn cut(&self) -> Result<(), Error> {
        self.switch.ip(&["link", "set", &self.here(), "down"]).map(|_| ())
    }

    /// Mends a line that was cut.
    pub fn mend(&self) -> Result<(), Error> {
        self.switch.ip(&["link", "set", &self.here(), "up"]).map(|_| ())
    }

    /// What it has carried until now. Lost frames do not count.
    pub fn carried(&self) -> Result<Carried, Error> {
        let received = |device: &str| self.switch.counter(device, "rx_bytes");
        Ok(Carried { out_bytes: received(&self.there())?, back_bytes: received(&self.here())? })
    }
}

/// The bridge beyond a line.
pub(crate) fn site_of(number: usize) -> String {
    format!("site{number}")
}
