//! Zones: groups of machines that are near one another, as a site or a rack is. And where files are placed by them.

use crate::limits::ZONE_NAME_BYTES_MAX;

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
}
