//! Sizes in text, as options and configuration files have them.

/// Reads a number of bytes: `65536`, `64K`, `64 KiB`, `1m`. Units are powers of 1024 in any spelling. Errors: what it
/// is not, with what to write instead.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let refuse = || format!("'{text}' is not a size; write it as 65536, 64K, 64KiB, 1M or 1G");
    let trimmed = text.trim();
    let digits = trimmed.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = trimmed.split_at(digits);
    let number: u64 = number.parse().map_err(|_| refuse())?;
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(refuse()),
    };
    number.checked_mul(1 << shift).ok_or_else(|| format!("'{text}' is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two_in_any_spelling() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("64K", 65_536),
            ("64k", 65_536),
            ("64KB", 65_536),
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
        for text in ["", "K", "-1", "1.5M", "64 KB/s", "1X", "99999999999999999999", "20000000T"] {
            let error = parse_size(text).expect_err("must be refused");
            assert!(error.contains(&format!("'{text}'")), "{error}");
        }
    }
}
