//! Sizes and rates in text: `64K` and `1 MiB` are powers of two, rates are given in MB/s and MiB/s both.

/// Bytes of a KiB.
pub const KIB: u64 = 1024;
/// Bytes of a MiB.
pub const MIB: u64 = 1 << 20;

/// Bytes of a MB, in which disks and networks are sold and the papers count.
pub const MB: f64 = 1e6;

/// Parses `4096`, `64K`, `64KiB`, `1m`, `2 GiB`: factors of 1024, as the papers' "KB" means too.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a size; write 4096, 64K, 1M or 1G");
    let trimmed = text.trim();
    let digits = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return Err(wrong()),
    };
    let bytes = number.checked_mul(1 << shift).ok_or_else(|| format!("'{text}' is too large"))?;
    if bytes == 0 { Err(format!("'{text}': a size must be more than nothing")) } else { Ok(bytes) }
}

/// A size in the largest unit that divides it: `64 KiB`, `1 GiB`, `1000 B`.
pub fn format_size(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let fitting = units.iter().find(|(shift, _)| bytes >= 1 << shift && bytes.is_multiple_of(1 << shift));
    fitting.map_or_else(|| format!("{bytes} B"), |(shift, unit)| format!("{} {unit}", bytes >> shift))
}

/// A rate in MB/s, as a number for tables.
pub fn megabytes_a_second(bytes_per_s: f64) -> String {
    significant(bytes_per_s / MB)
}

/// A rate in MiB/s, as a number for tables.
pub fn mebibytes_a_second(bytes_per_s: f64) -> String {
    significant(bytes_per_s / MIB as f64)
}

/// A number with about three significant digits: what repetitions can support.
pub fn significant(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two_in_any_spelling() {
        for (text, bytes) in [
            ("1", 1),
            ("4096", 4096),
            ("64K", 65_536),
            ("64k", 65_536),
            ("64KiB", 65_536),
            ("1 MiB", 1 << 20),
            ("2G", 2 << 30),
            ("1tib", 1 << 40),
            (" 8 b ", 8),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_by_name() {
        for text in ["", "K", "-1", "1.5M", "64 KB/s", "1X", "0", "0K", "99999999999999999999", "20000000T"] {
            let error = parse_size(text).unwrap_err();
            assert!(error.contains(&format!("'{text}'")), "{error}");
        }
    }

    #[test]
    fn a_size_is_shown_in_the_largest_unit_that_loses_nothing() {
        for (bytes, text) in
            [(1, "1 B"), (1000, "1000 B"), (1024, "1 KiB"), (1536, "1536 B"), (3 << 20, "3 MiB")]
        {
            assert_eq!(format_size(bytes), text);
        }
        assert_eq!(format_size((1 << 30) + 1024), "1048577 KiB");
    }

    #[test]
    fn one_rate_reads_differently_in_both_units() {
        assert_eq!(megabytes_a_second(1_048_576_000.0), "1049");
        assert_eq!(mebibytes_a_second(1_048_576_000.0), "1000");
        assert_eq!(significant(0.0712), "0.071");
        assert_eq!(significant(7.119), "7.12");
        assert_eq!(significant(71.19), "71.2");
    }
}
