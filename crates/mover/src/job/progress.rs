//! How far a job is, how fast it goes, and when it will be over.

/// Time over which rates are smoothed: long enough to read, short enough to notice a change.
const SMOOTH_NS: f64 = 5e9;

/// Rates are not known before this.
const KNOWN_NS: u64 = 1_000_000_000;

/// A rate that follows what happens, smoothed exponentially.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    per_second: f64,
    seen: u64,
}

impl Rate {
    fn note(&mut self, total: u64, elapsed_ns: u64, is_first: bool) {
        // What is resumed, or begun anew after a failure, is no movement.
        let moved = total.saturating_sub(self.seen);
        self.seen = total;
        let now = moved as f64 * 1e9 / elapsed_ns.max(1) as f64;
        let weight = if is_first { 1.0 } else { 1.0 - (-(elapsed_ns as f64) / SMOOTH_NS).exp() };
        self.per_second += (now - self.per_second) * weight;
    }
}

/// The rates of a job.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rates {
    bytes: Rate,
    files: Rate,
    noted_ns: Option<u64>,
    known_ns: u64,
    /// What was done when it ran last, unfinished files included.
    shown_bytes: u64,
}

impl Rates {
    /// `bytes` were moved and `files` are done in all.
    pub(super) fn note(&mut self, bytes: u64, files: u64, now_ns: u64) {
        let Some(noted_ns) = self.noted_ns.replace(now_ns) else {
            (self.bytes.seen, self.files.seen) = (bytes, files);
            return;
        };
        let elapsed_ns = now_ns.saturating_sub(noted_ns);
        let is_first = self.known_ns == 0;
        self.bytes.note(bytes, elapsed_ns, is_first);
        self.files.note(files, elapsed_ns, is_first);
        self.known_ns += elapsed_ns;
    }

    /// `bytes` were done just now, with what unfinished files have at the destination.
    pub(super) fn show(&mut self, bytes: u64) {
        self.shown_bytes = bytes;
    }

    /// What was shown last.
    pub(super) fn shown_bytes(&self) -> u64 {
        self.shown_bytes
    }

    /// Nothing moves for now.
    pub(super) fn stop(&mut self) {
        *self = Rates { shown_bytes: self.shown_bytes, ..Rates::default() };
    }

    /// Bytes a second.
    pub(super) fn bytes_per_second(&self) -> u64 {
        self.bytes.per_second as u64
    }

    /// Milliseconds until the end: the bytes that remain at the present rate, or the files, whichever takes longer.
    pub(super) fn left_ms(&self, bytes: u64, files: u64) -> u64 {
        if self.known_ns < KNOWN_NS {
            return u64::MAX;
        }
        let takes = |left: u64, rate: f64| match left {
            0 => Some(0.0),
            _ if rate < 1e-3 => None,
            _ => Some(left as f64 * 1e3 / rate),
        };
        let by_bytes = takes(bytes, self.bytes.per_second);
        // A few large files say nothing of how long the next one takes: its bytes do.
        let by_files = takes(files, self.files.per_second).unwrap_or(0.0);
        let few = bytes > 0 && files > 0 && bytes / files > FILE_BYTES_SMALL;
        by_bytes.map_or(u64::MAX, |by_bytes| if few { by_bytes } else { by_bytes.max(by_files) } as u64)
    }
}

/// Files smaller than this take their time mostly for being files.
const FILE_BYTES_SMALL: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_what_remains() {
        let mut rates = Rates::default();
        for second in 0..=10u64 {
            rates.note(second * 1_000_000, second / 10, second * 1_000_000_000);
        }
        assert_eq!(rates.bytes_per_second(), 1_000_000);
        assert_eq!(rates.left_ms(5_000_000, 1), 5_000);
        // It becomes ten times slower; after a while every estimate shows it.
        for second in 11..=40u64 {
            rates.note(10_000_000 + (second - 10) * 100_000, 1, second * 1_000_000_000);
        }
        let left_ms = rates.left_ms(1_000_000, 0);
        assert!((9_000..=10_100).contains(&left_ms), "{left_ms}");
    }

    #[test]
    fn many_small_files_take_as_long_as_files_do() {
        let mut rates = Rates::default();
        (0..=10u64).for_each(|second| rates.note(second * 1600, second * 100, second * 1_000_000_000));
        let left_ms = rates.left_ms(1600, 1000);
        assert!((9_500..=10_500).contains(&left_ms), "{left_ms}");
    }

    #[test]
    fn nothing_is_promised_before_it_is_known() {
        let mut rates = Rates::default();
        rates.note(0, 0, 0);
        rates.note(1000, 0, 1000);
        assert_eq!(rates.left_ms(1, 0), u64::MAX);
    }
}
