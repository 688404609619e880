//! Received bytes, given out line by line, bounded.

use std::ops::Range;

/// A line is longer than it may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a line has more than {0} bytes")]
pub struct TooLong(pub usize);

/// Bytes that came, of which some have been given out as lines.
#[derive(Debug, Default)]
pub struct Lines {
    bytes: Vec<u8>,
    /// Bytes before this have been given out.
    taken: usize,
    /// No line ends between `taken` and here: what was looked at is not looked at again.
    searched: usize,
}

impl Lines {
    /// Adds what was received.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.taken == self.bytes.len() {
            self.bytes.clear();
            (self.taken, self.searched) = (0, 0);
        } else if self.taken > self.bytes.len() / 2 {
            self.bytes.drain(..self.taken);
            (self.taken, self.searched) = (0, self.searched - self.taken);
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The place of the next line, without its `\n`. `None` when none is whole; an error when it would have more than
    /// `bytes_max` bytes.
    pub fn next(&mut self, bytes_max: usize) -> Result<Option<Range<usize>>, TooLong> {
        let rest = self.bytes.get(self.searched..).unwrap_or_default();
        let Some(length) = rest.iter().position(|&byte| byte == b'\n') else {
            self.searched = self.bytes.len();
            return if self.kept() > bytes_max { Err(TooLong(bytes_max)) } else { Ok(None) };
        };
        let line = self.taken..self.searched + length;
        if line.len() > bytes_max {
            return Err(TooLong(bytes_max));
        }
        self.taken = line.end + 1;
        self.searched = self.taken;
        Ok(Some(line))
    }

    /// The bytes of a line that [`Lines::next`] has named; they stay until more is pushed.
    pub fn line(&self, place: Range<usize>) -> &[u8] {
        self.bytes.get(place).unwrap_or_default()
    }

    /// Bytes that have not been given out.
    pub fn kept(&self) -> usize {
        self.bytes.len() - self.taken
    }

    /// Memory that is held.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Gives back the memory of a long line, once everything has been given out.
    pub fn shrink(&mut self, bytes: usize) {
        if self.kept() == 0 && self.bytes.capacity() > bytes {
            *self = Lines::default();
        }
    }
}

/// A line without the `\r` that some implementations end it with, before the `\n`.
pub fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(lines: &mut Lines) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        while let Some(place) = lines.next(16).expect("short") {
            found.push(lines.line(place).to_vec());
        }
        found
    }

    #[test]
    fn lines_come_out_the_same_however_the_bytes_came_in() {
        let text = b"one\n\ntwo three\r\n\0\nrest";
        for step in 1..=text.len() {
            let (mut lines, mut found) = (Lines::default(), Vec::new());
            for part in text.chunks(step) {
                lines.push(part);
                found.extend(all(&mut lines));
            }
            assert_eq!(found, [&b"one"[..], b"", b"two three\r", b"\0"], "step {step}");
            assert_eq!(lines.kept(), 4);
        }
    }

    #[test]
    fn a_line_without_an_end_is_refused_at_its_limit() {
        let mut lines = Lines::default();
        lines.push(&[b'x'; 16]);
        assert_eq!(lines.next(16), Ok(None));
        lines.push(b"x");
        assert_eq!(lines.next(16), Err(TooLong(16)));
        let mut whole = Lines::default();
        whole.push(b"0123456789abcdefg\n");
        assert_eq!(whole.next(16), Err(TooLong(16)), "a whole one, too");
    }
}
