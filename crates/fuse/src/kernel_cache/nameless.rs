//! Opens of files that have no name any more: the kernel is made to look at the name again.
//!
//! Race: for about a millisecond the kernel may believe that a name leads to a file that another client has removed or
//! replaced. While such a file is open here its inode is kept, and opening it would succeed: what is written to it then
//! goes with its last descriptor. An open of a file without a name is therefore refused with `ESTALE`, upon which the
//! kernel walks the path again and asks for each name in it. A descriptor that is opened again through `/proc/self/fd`
//! has no name to be asked for: the kernel repeats the same open, which is let through.

use parking_lot::Mutex;
use std::collections::HashSet;
use vazao_model::InodeId;

/// Refused opens that are remembered. Beyond that all are forgotten, and a repeated open is refused once more.
const REFUSED_MAX: usize = 4096;

/// Which thread was refused which inode last.
#[derive(Debug, Default)]
pub(crate) struct NamelessOpens {
    refused: Mutex<HashSet<(u32, InodeId)>>,
}

impl NamelessOpens {
    /// True when `thread` repeats an open that was refused; false for a first one, which is to be refused.
    pub(crate) fn is_repeated(&self, thread: u32, inode: InodeId) -> bool {
        let mut refused = self.refused.lock();
        if refused.remove(&(thread, inode)) {
            return true;
        }
        if refused.len() >= REFUSED_MAX {
            refused.clear();
        }
        refused.insert((thread, inode));
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_open_is_one_of_the_same_inode_by_the_same_thread() {
        let opens = NamelessOpens::default();
        assert!(!opens.is_repeated(1, InodeId(7)));
        assert!(!opens.is_repeated(2, InodeId(7)) && !opens.is_repeated(1, InodeId(8)));
        assert!(opens.is_repeated(1, InodeId(7)));
        assert!(!opens.is_repeated(1, InodeId(7)), "another open");
    }

    #[test]
    fn memory_is_bounded() {
        let opens = NamelessOpens::default();
        (0..3 * REFUSED_MAX as u64).for_each(|number| assert!(!opens.is_repeated(1, InodeId(number))));
        assert!(opens.refused.lock().len() <= REFUSED_MAX);
    }
}
