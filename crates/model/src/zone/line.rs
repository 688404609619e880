//! Lines between zones that carry little, as their operator says: 2 Mb/s between two sites.

use super::check_name;

/// What a line carries in one direction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct BitsPerSecond(pub u64);

/// Less is no line that files are written over.
const RATE_MIN: BitsPerSecond = BitsPerSecond(64_000);

/// More does not carry little.
const RATE_MAX: BitsPerSecond = BitsPerSecond(1_000_000_000_000);

/// A line between two zones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// At its ends.
    pub zones: [String; 2],
    /// Each way.
    pub rate: BitsPerSecond,
}

impl Line {
    /// The zone at the other end than `zone`; `None`: it does not end there.
    pub fn beyond(&self, zone: &str) -> Option<&str> {
        let [a, b] = &self.zones;
        if a == zone { Some(b) } else { (b == zone).then_some(a.as_str()) }
    }

    /// Refuses lines that make no sense, in words for people.
    pub fn check_all(lines: &[Line]) -> Result<(), String> {
        for (at, line) in lines.iter().enumerate() {
            let [a, b] = &line.zones;
            check_name(a)?;
            check_name(b)?;
            if a == b {
                return Err(format!("a line from zone {a} to itself: name the zones at its two ends"));
            }
            if lines[..at].iter().any(|other| other.beyond(a) == Some(b)) {
                return Err(format!("zones {a} and {b} have two lines; leave one of them out"));
            }
        }
        Ok(())
    }
}

/// As lines are sold: `2 Mb/s`.
impl std::fmt::Display for BitsPerSecond {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let unit = UNITS.iter().find(|(_, bits)| self.0 > 0 && self.0.is_multiple_of(*bits));
        let (name, bits) = unit.copied().unwrap_or(("b/s", 1));
        write!(f, "{} {name}", self.0 / bits)
    }
}

const UNITS: [(&str, u64); 3] = [("Gb/s", 1_000_000_000), ("Mb/s", 1_000_000), ("kb/s", 1_000)];

/// Reads a number with its unit: `512 kb/s`, `2 Mb/s`, `1.5 Gb/s`. Errors: what is wrong, for people.
impl std::str::FromStr for BitsPerSecond {
    type Err = String;

    fn from_str(text: &str) -> Result<BitsPerSecond, String> {
        let wrong = || format!("{text:?} is no rate of a line; write one as \"512 kb/s\" or \"2 Mb/s\"");
        let unit = UNITS.iter().find_map(|(name, bits)| Some((text.trim().strip_suffix(name)?, *bits)));
        let (number, bits) = unit.ok_or_else(wrong)?;
        let number: f64 = number.trim().parse().map_err(|_| wrong())?;
        let rate = number * bits as f64;
        if !(rate.is_finite() && rate <= RATE_MAX.0 as f64) {
            return Err(wrong());
        }
        match BitsPerSecond(rate.round() as u64) {
            rate if rate < RATE_MIN => Err(format!("{text:?}: a line carries at least {RATE_MIN}")),
            rate => Ok(rate),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_read_as_it_is_sold() {
        let read = |text: &str| text.parse::<BitsPerSecond>().map(|rate| rate.0);
        assert_eq!(read("2 Mb/s"), Ok(2_000_000));
        assert_eq!(read("512kb/s"), Ok(512_000));
        assert_eq!(read(" 1.5 Gb/s "), Ok(1_500_000_000));
        for text in ["2 Mb/s", "512 kb/s", "1500 Mb/s", "64001 b/s"] {
            let shown = text.parse::<BitsPerSecond>().map(|rate| rate.to_string());
            assert!(shown.as_deref() == Ok(text) || text.ends_with(" b/s"), "{shown:?}");
        }
        for wrong in ["", "2", "2 MB/s", "Mb/s", "-2 Mb/s", "nan Mb/s", "1001 Gb/s", "1e300 Gb/s", "2 Mb"] {
            assert!(read(wrong).expect_err("no rate").contains(wrong), "{wrong}");
        }
        assert!(read("1 kb/s").expect_err("too little").contains("at least 64 kb/s"));
    }

    #[test]
    fn a_line_has_two_ends_and_two_zones_have_one_line() {
        let line =
            |a: &str, b: &str| Line { zones: [a.to_owned(), b.to_owned()], rate: BitsPerSecond(2_000_000) };
        assert_eq!(line("rio", "bra").beyond("rio"), Some("bra"));
        assert_eq!(line("rio", "bra").beyond("bra"), Some("rio"));
        assert_eq!(line("rio", "bra").beyond("sao"), None);
        let refused = |lines: &[Line]| Line::check_all(lines).expect_err("wrong");
        assert!(refused(&[line("rio", "rio")]).contains("to itself"));
        assert!(refused(&[line("a b", "rio")]).contains("a b"));
        assert!(refused(&[line("rio", "bra"), line("bra", "rio")]).contains("two lines"));
        assert_eq!(Line::check_all(&[line("rio", "bra"), line("rio", "sao")]), Ok(()));
    }
}
