//! Numbers, times and tables as people read them, and sizes as people write them. No file system in here.

use vazao_model::{FileKind, Timestamp};

const UNITS: [char; 6] = ['K', 'M', 'G', 'T', 'P', 'E'];

/// A size as `ls -h` shows it: powers of 1024, one decimal below ten, rounded up as the Unix commands do.
pub(crate) fn human(bytes: u64) -> String {
    if bytes < 1024 {
        return bytes.to_string();
    }
    let mut value = bytes as f64;
    let mut unit = 0;
    loop {
        value /= 1024.0;
        let tenths = (value * 10.0).ceil() / 10.0;
        if tenths < 10.0 {
            return format!("{tenths:.1}{}", UNITS[unit]);
        }
        if value.ceil() < 1024.0 || unit + 1 == UNITS.len() {
            return format!("{}{}", value.ceil(), UNITS[unit]);
        }
        unit += 1;
    }
}

/// A size for sentences: `1.5 GiB`.
pub(crate) fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut unit = 0;
    value /= 1024.0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}iB", UNITS[unit])
}

/// Bytes a second for sentences: `312.0 MiB/s`.
pub(crate) fn rate(bytes_a_second: f64) -> String {
    format!("{}/s", size(bytes_a_second.max(0.0) as u64))
}

/// Type and permissions as `ls -l` shows them.
pub(crate) fn mode(kind: FileKind, mode: u32) -> String {
    let mut text = String::with_capacity(10);
    text.push(kind.letter());
    let special = [(0o4000, 's', 'S'), (0o2000, 's', 'S'), (0o1000, 't', 'T')];
    for (class, (bit, with_execute, without)) in special.into_iter().enumerate() {
        let shift = 6 - 3 * class as u32;
        let has = |permission: u32| mode >> shift & permission != 0;
        text.push(if has(4) { 'r' } else { '-' });
        text.push(if has(2) { 'w' } else { '-' });
        text.push(match (mode & bit != 0, has(1)) {
            (false, true) => 'x',
            (false, false) => '-',
            (true, true) => with_execute,
            (true, false) => without,
        });
    }
    text
}

/// A file's type in words, as `stat` has it.
pub(crate) fn kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "regular file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symbolic link",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::CharDevice => "character device",
        FileKind::BlockDevice => "block device",
    }
}

/// A time in UTC to the minute, for listings.
pub(crate) fn minute(time: Timestamp) -> String {
    let (year, month, day) = time.date();
    let second = time.seconds.rem_euclid(86_400);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", second / 3600, second / 60 % 60)
}

/// A time as HTTP has it (RFC 9110, 5.6.7): `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(crate) fn http_date(seconds: i64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let days = seconds.div_euclid(86_400);
    let (year, month, day) = Timestamp { seconds, nanoseconds: 0 }.date();
    let (weekday, second) = (DAYS[days.rem_euclid(7) as usize], seconds.rem_euclid(86_400));
    let month = MONTHS[(month as usize - 1) % 12];
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}

/// Files below this on average are counted by the second as well.
const SMALL_FILE_BYTES: u64 = 1 << 20;

/// What a copy did, in words: `3 files in 1 directory, 1.5 GiB in 12.4 s, 123.9 MiB/s`.
pub(crate) fn copied(files: u64, directories: u64, bytes: u64, nanoseconds: u64) -> String {
    let seconds = (nanoseconds as f64 / 1e9).max(1e-9);
    let mut text = count(files, "file", "files");
    if directories > 0 {
        text += &format!(" in {}", count(directories, "directory", "directories"));
    }
    text += &format!(", {} in {}, {}", size(bytes), duration(nanoseconds), rate(bytes as f64 / seconds));
    if files > 1 && bytes / files < SMALL_FILE_BYTES {
        text += &format!(", {:.0} files/s", files as f64 / seconds);
    }
    text
}

/// `1 block`, `2 blocks`.
pub(crate) fn count(number: u64, one: &str, more: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { more })
}

/// A time in UTC with all its digits (RFC 3339).
pub(crate) fn instant(time: Timestamp) -> String {
    let (year, month, day) = time.date();
    let second = time.seconds.rem_euclid(86_400);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:09}Z",
        second / 3600,
        second / 60 % 60,
        second % 60,
        time.nanoseconds
    )
}

/// A duration for sentences: `210 µs`, `8.5 ms`, `850 ms`, `12.4 s`, `3 min 05 s`.
pub(crate) fn duration(nanoseconds: u64) -> String {
    let seconds = nanoseconds as f64 / 1e9;
    if 0 < nanoseconds && nanoseconds < 1_000_000 {
        return format!("{:.0} µs", (seconds * 1e6).ceil());
    }
    if 0 < nanoseconds && nanoseconds < 10_000_000 {
        return format!("{:.1} ms", seconds * 1000.0);
    }
    if seconds < 1.0 {
        return format!("{:.0} ms", seconds * 1000.0);
    }
    if seconds < 120.0 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds as u64;
    format!("{} min {:02} s", whole / 60, whole % 60)
}

/// A sentence in lines of at most `columns`, cut between words where that can be.
pub(crate) fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let has_room = |line: &String| line.chars().count() + 1 + word.chars().count() <= columns;
        match lines.last_mut().filter(|line| has_room(line)) {
            Some(line) => *line += &format!(" {word}"),
            None => lines.extend(
                word.chars().collect::<Vec<_>>().chunks(columns).map(|part| part.iter().collect::<String>()),
            ),
        }
    }
    lines
}

/// Which way a table's column leans.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lean {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A text, or a dash where it is empty.
pub(crate) fn or_dash(text: &str) -> String {
    if text.is_empty() { "-" } else { text }.to_owned()
}

/// Aligned columns under a head line, two spaces apart.
pub(crate) fn table(head: &[(&str, Lean)], rows: &[Vec<String>]) -> String {
    let width_of = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.max().unwrap_or(0).max(head[column].0.chars().count())
    };
    let widths: Vec<usize> = (0..head.len()).map(width_of).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<String> = cells
            .zip(head.iter().zip(&widths))
            .map(|(cell, ((_, lean), &width))| match lean {
                Lean::Left => format!("{cell:<width$}"),
                Lean::Right => format!("{cell:>width$}"),
            })
            .collect();
        format!("{}\n", padded.join("  ").trim_end())
    };
    let mut text = line(&mut head.iter().map(|(title, _)| *title));
    for row in rows {
        text.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    text
}

/// A word that a POSIX shell reads as it is.
pub(crate) fn shell_quoted(word: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/._-+:@%".contains(&b);
    if !word.is_empty() && word.bytes().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_as_the_unix_commands_do() {
        let shown: Vec<String> = [0, 1023, 1024, 1025, 10 * 1024, 1_048_575, 1 << 30].map(human).into();
        assert_eq!(shown, ["0", "1023", "1.0K", "1.1K", "10K", "1.0M", "1.0G"]);
        assert!(human(u64::MAX).ends_with('E'));
        assert_eq!(size(1_610_612_736), "1.5 GiB");
    }

    #[test]
    fn permissions_show_set_id_and_sticky_bits() {
        assert_eq!(mode(FileKind::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(mode(FileKind::File, 0o4755), "-rwsr-xr-x");
        assert_eq!(mode(FileKind::File, 0o2644), "-rw-r-Sr--");
    }

    #[test]
    fn a_copy_counts_files_as_files_and_small_ones_by_the_second() {
        assert_eq!(copied(1, 0, 4 << 30, 8_000_000_000), "1 file, 4.0 GiB in 8.0 s, 512.0 MiB/s");
        assert_eq!(
            copied(3000, 1, 3000 << 10, 2_000_000_000),
            "3000 files in 1 directory, 2.9 MiB in 2.0 s, 1.5 MiB/s, 1500 files/s"
        );
        assert!(copied(0, 2, 0, 1_000).starts_with("0 files in 2 directories, 0 B"));
    }

    #[test]
    fn sentences_are_cut_between_words() {
        assert_eq!(wrapped("disk of data2 (/srv/d2)", 8), ["disk of", "data2", "(/srv/d2", ")"]);
        assert!(wrapped("", 8).is_empty());
    }

    #[test]
    fn dates_of_http_are_as_in_its_standard() {
        assert_eq!(http_date(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(http_date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
    }

    #[test]
    fn dates_are_right_around_leap_days_and_before_1970() {
        let at = |seconds| minute(Timestamp { seconds, nanoseconds: 0 });
        assert_eq!(at(0), "1970-01-01 00:00");
        assert_eq!(at(-1), "1969-12-31 23:59");
        assert_eq!(at(951_782_400), "2000-02-29 00:00");
        assert_eq!(at(1_709_251_199), "2024-02-29 23:59");
        assert_eq!(at(4_107_542_400), "2100-03-01 00:00");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = vec![vec!["a".to_owned(), "10".to_owned()], vec!["long".to_owned(), "9".to_owned()]];
        let text = table(&[("NAME", Lean::Left), ("N", Lean::Right)], &rows);
        assert_eq!(text, "NAME   N\na     10\nlong   9\n");
    }

    #[test]
    fn the_line_to_export_survives_the_shell() {
        assert_eq!(shell_quoted("/tmp/v/client.toml"), "/tmp/v/client.toml");
        assert_eq!(shell_quoted("/my dir/it's"), "'/my dir/it'\\''s'");
    }
}
