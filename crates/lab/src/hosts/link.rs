//! The link of a host to the bridge: its rate, both ways, by the kernel's token bucket.
//!
//! A rate counts whole Ethernet frames without preamble and check sequence, as the kernel sees them.

use super::Error;
use super::namespace::Namespace;

/// The share of a link's rate that TCP can carry as payload: 1448 bytes in each frame of 1514.
pub const TCP_PAYLOAD_SHARE: f64 = 1448.0 / 1514.0;

/// The rate of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BitsPerSecond(pub u64);

impl BitsPerSecond {
    /// Below this a frame would wait for longer than a probe.
    pub const MIN: BitsPerSecond = BitsPerSecond(8_000);

    /// Millions of bits a second, as links are sold.
    pub fn mega(millions: u64) -> BitsPerSecond {
        BitsPerSecond(millions.saturating_mul(1_000_000))
    }

    fn bytes_in_ms(self, milliseconds: u64) -> u64 {
        (self.0 / 8_000).saturating_mul(milliseconds)
    }

    /// What may pass at once. A bucket smaller than what flows between two ticks of a slow kernel's timer (4 ms) would
    /// never give the rate; one much larger would give a short transfer more than the link has.
    fn burst_bytes(self) -> u64 {
        self.bytes_in_ms(4).clamp(16 * 1024, 64 << 20)
    }

    /// What may wait: 50 ms, as in a switch that means well. TCP over 100 ms of delay still fills the link.
    fn queue_bytes(self) -> u64 {
        self.bytes_in_ms(50).clamp(128 * 1024, 256 << 20)
    }
}

/// Bounds what leaves by `device` of `namespace`, or lifts the bound that is there.
pub(crate) fn shape(namespace: &Namespace, device: &str, rate: Option<BitsPerSecond>) -> Result<(), Error> {
    let Some(rate) = rate else { return unshape(namespace, device) };
    shape_with_queue(namespace, device, rate, rate.queue_bytes())
}

/// The same with room for so many bytes that wait.
pub(crate) fn shape_with_queue(
    namespace: &Namespace,
    device: &str,
    rate: BitsPerSecond,
    queue_bytes: u64,
) -> Result<(), Error> {
    if rate < BitsPerSecond::MIN {
        let asked = rate.0;
        return Err(Error::Refused(format!(
            "a link of {asked} bit/s is too slow: give it at least 8000 bit/s"
        )));
    }
    let speed = format!("{}bit", rate.0);
    let (burst, limit) = (rate.burst_bytes().to_string(), (rate.burst_bytes() + queue_bytes).to_string());
    let bucket = ["tbf", "rate", &speed, "burst", &burst, "limit", &limit];
    namespace.tc(&[&["qdisc", "replace", "dev", device, "root"], &bucket[..]].concat()).map(|_| ())
}

fn unshape(namespace: &Namespace, device: &str) -> Result<(), Error> {
    let shaped = namespace.tc(&["qdisc", "show", "dev", device, "root"])?.contains("tbf");
    if shaped { namespace.tc(&["qdisc", "del", "dev", device, "root"]).map(|_| ()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_at_least_a_few_frames_and_four_milliseconds_of_a_fast_link() {
        assert_eq!(BitsPerSecond(8_000).burst_bytes(), 16 * 1024);
        assert_eq!(BitsPerSecond::mega(1_000).burst_bytes(), 500_000);
        assert_eq!(BitsPerSecond::mega(200).queue_bytes(), 1_250_000);
        assert_eq!(BitsPerSecond(u64::MAX).burst_bytes(), 64 << 20);
    }
}
