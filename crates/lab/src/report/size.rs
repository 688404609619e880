//! Sizes and rates in text: `64K` and `1 MiB` are powers of two, rates are given in MB/s and MiB/s both.

/// Bytes of a KiB.
pub const KIB: u64 = 1024;
/// Bytes of a MiB.
pub const MIB: u64 = 1 << 20;

/// Bytes of a MB, in which disks and networks are sold and the papers count.
pub const MB: f64 = 1e6;

/// A size of something: [`vazao_model::size::parse_size`], and not zero.
pub fn parse_size(text: &str) -> Result<u64, String> {
    match vazao_model::size::parse_size(text)? {
        0 => Err(format!("'{text}': a size must be more than zero")),
        bytes => Ok(bytes),
    }
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
