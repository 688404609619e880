//! Zones: groups of machines that are near one another, as a site or a rack is. And where files are placed by them.

mod line;

pub use line::{BitsPerSecond, Line};

use crate::limits::ZONE_NAME_BYTES_MAX;
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// Which targets the new files of a directory go to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Placement {
    /// To any.
    #[default]
    Everywhere,
    /// To those of the zone of the client that writes a file's first bytes.
    NearWriter,
    /// To those of the zone of this name.
    Zone(String),
}

impl Placement {
    /// The zone that a file is to lie in whose writer is in `writer` (empty: in none). `None`: it may lie anywhere.
    pub fn zone<'a>(&'a self, writer: &'a str) -> Option<&'a str> {
        match self {
            Placement::Everywhere => None,
            Placement::NearWriter => Some(writer).filter(|zone| !zone.is_empty()),
            Placement::Zone(zone) => Some(zone),
        }
    }
}

/// As it is typed: `everywhere`, `near-writer` or `zone=NAME`.
impl std::fmt::Display for Placement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Placement::Everywhere => f.write_str("everywhere"),
            Placement::NearWriter => f.write_str("near-writer"),
            Placement::Zone(zone) => write!(f, "zone={zone}"),
        }
    }
}

/// Reads what [`Placement`] shows. Errors: what is wrong, for people.
impl std::str::FromStr for Placement {
    type Err = String;

    fn from_str(text: &str) -> Result<Placement, String> {
        match text {
            "everywhere" => Ok(Placement::Everywhere),
            "near-writer" => Ok(Placement::NearWriter),
            _ => {
                let name = text
                    .strip_prefix("zone=")
                    .ok_or_else(|| format!("{text:?}: write near-writer, zone=NAME or everywhere"))?;
                check_name(name).map(|()| Placement::Zone(name.to_owned()))
            }
        }
    }
}

/// Refuses names that cannot be typed without quotes.
pub fn check_name(name: &str) -> Result<(), String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let starts = name.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric);
    if starts && name.len() <= ZONE_NAME_BYTES_MAX && name.bytes().all(fits) {
        return Ok(());
    }
    Err(format!(
        "zone name {name:?}: 1 to {ZONE_NAME_BYTES_MAX} letters, digits, '-', '_' and '.', the first a letter or digit"
    ))
}

/// Zones by ranges of addresses. Of several ranges that have an address the smallest counts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ZoneRanges {
    /// The smallest ranges first.
    ranges: Vec<(IpNet, String)>,
}

impl ZoneRanges {
    /// Reads ranges as "10.1.0.0/16" or "fd00:1::/32" of each zone. Errors: what is wrong, for people.
    pub fn new(zones: &BTreeMap<String, Vec<String>>) -> Result<ZoneRanges, String> {
        let mut ranges: Vec<(IpNet, String)> = Vec::new();
        for (zone, texts) in zones {
            check_name(zone)?;
            for text in texts {
                let range = range(zone, text)?;
                if let Some((_, other)) = ranges.iter().find(|(known, _)| *known == range) {
                    return Err(format!(
                        "the range {range} is of zone {other} and of zone {zone}: leave one of them out"
                    ));
                }
                ranges.push((range, zone.clone()));
            }
        }
        ranges.sort_by_key(|(range, _)| std::cmp::Reverse(range.prefix_len()));
        Ok(ZoneRanges { ranges })
    }

    /// The zone of an address, written with or without a port; `None`: it lies in no range, or is no address but the
    /// name of a host.
    pub fn zone_at(&self, address: &str) -> Option<&str> {
        let with_port = || address.parse::<SocketAddr>().map(|place| place.ip());
        let address = address.parse::<IpAddr>().or_else(|_| with_port()).ok()?.to_canonical();
        self.ranges.iter().find(|(range, _)| range.contains(&address)).map(|(_, zone)| zone.as_str())
    }
}

fn range(zone: &str, text: &str) -> Result<IpNet, String> {
    let range: IpNet = text.parse().map_err(|_| {
        format!("{text:?} of zone {zone} is no range of addresses; write one as \"10.1.0.0/16\" or \"fd00:1::/32\"")
    })?;
    match range == range.trunc() {
        true => Ok(range),
        false => Err(format!(
            "{text:?} of zone {zone} names one machine; its range is {:?}",
            range.trunc().to_string()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placement_is_read_as_it_is_shown() {
        for text in ["everywhere", "near-writer", "zone=rio", "zone=1.a-b_c"] {
            assert_eq!(text.parse::<Placement>().expect("valid").to_string(), text);
        }
        for wrong in ["", "rio", "zone=", "zone=a b", "zone=-a", "zone=../x", "near_writer"] {
            assert!(wrong.parse::<Placement>().is_err(), "{wrong}");
        }
        assert!(check_name(&"z".repeat(ZONE_NAME_BYTES_MAX)).is_ok());
        assert!(check_name(&"z".repeat(ZONE_NAME_BYTES_MAX + 1)).is_err());
    }

    #[test]
    fn near_a_writer_of_no_zone_is_everywhere() {
        assert_eq!(Placement::NearWriter.zone(""), None);
        assert_eq!(Placement::NearWriter.zone("rio"), Some("rio"));
        assert_eq!(Placement::Everywhere.zone("rio"), None);
        assert_eq!(Placement::Zone("bra".to_owned()).zone("rio"), Some("bra"));
    }

    fn ranges(zones: &[(&str, &[&str])]) -> Result<ZoneRanges, String> {
        let owned = |texts: &&[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        ZoneRanges::new(&zones.iter().map(|(zone, texts)| ((*zone).to_owned(), owned(texts))).collect())
    }

    #[test]
    fn an_address_is_in_the_zone_of_the_smallest_range_that_has_it() {
        let zones: [(&str, &[&str]); 3] = [
            ("bra", &["10.0.0.0/8", "fd00::/16"]),
            ("rio", &["10.1.0.0/16", "10.1.2.3/32"]),
            ("lab", &["10.1.2.0/24"]),
        ];
        let zones = ranges(&zones).expect("right");
        for (address, zone) in [
            ("10.2.0.1", Some("bra")),
            ("10.1.0.1:7000", Some("rio")),
            ("10.1.2.4", Some("lab")),
            ("10.1.2.3", Some("rio")),
            ("::ffff:10.1.2.4", Some("lab")),
            ("[fd00::1]:7000", Some("bra")),
            ("fd01::1", None),
            ("192.168.0.1", None),
            ("host.example:7000", None),
            ("", None),
        ] {
            assert_eq!(zones.zone_at(address), zone, "{address}");
        }
        assert_eq!(ZoneRanges::default().zone_at("10.1.0.1"), None);
    }

    #[test]
    fn ranges_that_make_no_sense_are_refused_with_what_to_write() {
        let refused = |zones: &[(&str, &[&str])]| ranges(zones).expect_err("wrong");
        assert!(refused(&[("rio", &["10.1.0.0"])]).contains("write one as \"10.1.0.0/16\""));
        assert!(refused(&[("rio", &["10.1.0.0/33"])]).contains("no range"));
        assert!(refused(&[("rio", &["10.1.2.3/16"])]).contains("its range is \"10.1.0.0/16\""));
        assert!(
            refused(&[("bra", &["10.0.0.0/8"]), ("rio", &["10.0.0.0/8"])]).contains("leave one of them out")
        );
        assert!(refused(&[("a b", &["10.0.0.0/8"])]).contains("a b"));
    }
}
