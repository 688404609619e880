//! What servers say of files: facts (RFC 3659, 7), times, and the lists that older ones give in the form of `ls -l`.

use vazao_model::Timestamp;

/// A type of file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// Anything else, links too.
    Other,
}

/// What is known of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Its type.
    pub kind: Kind,
    /// Bytes, where the server tells.
    pub size: Option<u64>,
    /// Last change, where the server tells.
    pub modified: Option<Timestamp>,
    /// Permission bits, where the server tells.
    pub mode: Option<u32>,
}

impl Facts {
    pub(crate) fn of(kind: Kind) -> Facts {
        Facts { kind, size: None, modified: None, mode: None }
    }
}

/// Days since 1970 of a date of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // The year begins in March, so that the leap day is its last (H. Hinnant, "chrono-compatible date algorithms").
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// `YYYYMMDDHHMMSS[.sss]`, in UTC (RFC 3659, 2.3).
pub(crate) fn time(text: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.len() != 14 || !whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let part = |from: usize, to: usize| whole.get(from..to)?.parse::<i64>().ok();
    let (month, day) = (part(4, 6)?, part(6, 8)?);
    let (hour, minute, second) = (part(8, 10)?, part(10, 12)?, part(12, 14)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let nanoseconds = format!("{:0<9}", fraction.get(..fraction.len().min(9))?).parse().ok()?;
    let seconds = days(part(0, 4)?, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    Some(Timestamp { seconds, nanoseconds })
}

/// A time as servers read it.
pub(crate) fn time_text(time: Timestamp) -> String {
    let (day, second) = (time.seconds.div_euclid(86_400), time.seconds.rem_euclid(86_400));
    let shifted = day + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}{month:02}{day:02}{:02}{:02}{:02}", second / 3600, second / 60 % 60, second % 60)
}

/// `type=file;size=5;modify=20260102030405; NAME`: the facts and the name. The directory itself and the one above have
/// the types `cdir` and `pdir`; they are `None`, as is what makes no sense.
pub(crate) fn facts(line: &[u8]) -> Option<(Facts, Vec<u8>)> {
    let space = line.iter().position(|&byte| byte == b' ')?;
    let (said, name) = (line.get(..space)?, line.get(space + 1..)?);
    let mut facts = Facts::of(Kind::Other);
    for fact in said.split(|&byte| byte == b';').filter(|fact| !fact.is_empty()) {
        let equals = fact.iter().position(|&byte| byte == b'=')?;
        let (key, value) = (fact.get(..equals)?.to_ascii_lowercase(), fact.get(equals + 1..)?);
        let text = std::str::from_utf8(value).unwrap_or_default();
        match key.as_slice() {
            b"type" if text.eq_ignore_ascii_case("file") => facts.kind = Kind::File,
            b"type" if text.eq_ignore_ascii_case("dir") => facts.kind = Kind::Directory,
            b"type" if text.eq_ignore_ascii_case("cdir") || text.eq_ignore_ascii_case("pdir") => {
                facts.kind = Kind::Directory;
            }
            b"size" => facts.size = text.parse().ok(),
            b"modify" => facts.modified = time(value),
            b"unix.mode" => facts.mode = u32::from_str_radix(text, 8).ok().map(|mode| mode & 0o7777),
            _ => {}
        }
    }
    Some((facts, name.to_vec()))
}

/// A line of `ls -l`, as servers without MLSD list: what it is, its size, its name. Its time is of an unknown zone.
pub(crate) fn long_line(line: &[u8]) -> Option<(Facts, Vec<u8>)> {
    let kind = match line.first()? {
        b'-' => Kind::File,
        b'd' => Kind::Directory,
        b'l' | b'p' | b's' | b'b' | b'c' => Kind::Other,
        _ => return None,
    };
    // Permissions, links, owner, group, size, month, day, time or year; then one blank and the name.
    let mut words = Vec::new();
    let mut rest = line;
    while words.len() < 8 {
        let start = rest.iter().position(|byte| *byte != b' ')?;
        rest = rest.get(start..)?;
        let end = rest.iter().position(|byte| *byte == b' ')?;
        words.push(rest.get(..end)?);
        rest = rest.get(end..)?;
    }
    let size = std::str::from_utf8(words.get(4)?).ok()?.parse().ok();
    let name = rest.get(1..).filter(|name| !name.is_empty())?;
    Some((Facts { size: size.filter(|_| kind == Kind::File), ..Facts::of(kind) }, name.to_vec()))
}

/// True for a name that stays in its directory.
pub(crate) fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name != b"." && name != b".." && !name.iter().any(|byte| b"/\r\n\0".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn facts_are_read_in_any_order_and_case() {
        let (facts, name) =
            facts(b"Size=1024;Type=file;Modify=20260102030405.25;UNIX.mode=0644;x=y; a b").expect("facts");
        assert_eq!((facts.kind, facts.size, facts.mode), (Kind::File, Some(1024), Some(0o644)));
        assert_eq!(facts.modified, Some(Timestamp { seconds: 1_767_323_045, nanoseconds: 250_000_000 }));
        assert_eq!(name, b"a b");
        assert_eq!(super::facts(b"type=dir; d").map(|(facts, _)| facts.kind), Some(Kind::Directory));
        assert_eq!(super::facts(b"nonsense"), None);
        assert_eq!(super::facts(b"type=file;size=99999999999999999999; f").and_then(|(f, _)| f.size), None);
    }

    #[test]
    fn lines_of_ls_are_read_with_blanks_in_their_names() {
        let line = b"-rw-r--r--   1 ftp      ftp          5120 Jan 12  2024 two  words";
        let (facts, name) = long_line(line).expect("a line");
        assert_eq!((facts.kind, facts.size, &name[..]), (Kind::File, Some(5120), &b"two  words"[..]));
        let line = b"drwxr-xr-x 2 0 0 4096 Nov 20 13:00 d";
        assert_eq!(long_line(line).map(|(facts, _)| (facts.kind, facts.size)), Some((Kind::Directory, None)));
        assert_eq!(long_line(b"total 5"), None);
        assert_eq!(long_line(b"-rw-r--r-- 1 0 0"), None);
    }

    #[test]
    fn names_that_lead_elsewhere_are_none() {
        assert!(is_name(b"a b") && is_name(b"..."));
        assert!([&b""[..], b".", b"..", b"../x", b"/etc", b"a\rb"].iter().all(|name| !is_name(name)));
    }

    proptest! {
        #[test]
        fn a_time_is_read_as_it_is_written(seconds in 0i64..4_102_444_800) {
            let stamp = Timestamp { seconds, nanoseconds: 0 };
            prop_assert_eq!(time(time_text(stamp).as_bytes()), Some(stamp));
        }

        #[test]
        fn any_line_is_read_without_panic(line in any::<Vec<u8>>()) {
            let _ = (facts(&line), long_line(&line), time(&line));
        }
    }
}
