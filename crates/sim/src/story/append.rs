//! Records appended to files.

use super::{FILE_BYTES_MAX, Story, random_bytes};
use rand::RngExt;

impl Story {
    /// Appends a record through a handle. No other client has the file open, so that its end is known.
    pub(super) fn append(&mut self, index: usize) {
        let (inode, client) = (self.handles[index].inode, self.handles[index].client);
        let size = self.contents[&inode].newest().len();
        let length = match self.random.random_range(0..3) {
            0 => self.random.random_range(1..200),
            1 => self.random.random_range(1..20_000),
            _ => self.random.random_range(1..100_000),
        };
        let bytes =
            random_bytes(&mut self.random, length.min((FILE_BYTES_MAX as usize).saturating_sub(size)));
        self.note(format!("append to {inode} at {size}, {} bytes", bytes.len()));
        let answer = self.handles[index].file.append(&bytes);
        let contents = self.contents.entry(inode).or_default();
        if let (Ok(offset), true) = (&answer, contents.is_certain()) {
            assert_eq!(*offset, size as u64, "where {inode} was appended to");
        }
        contents.change(client, (size + bytes.len()) as u64, |contents| contents.extend_from_slice(&bytes));
        self.after_file_operation(index, answer.map(|_| ()));
    }
}
