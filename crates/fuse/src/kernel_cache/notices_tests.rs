//! The notifications that the kernel receives of changes by others.

use super::*;
use crate::kernel_cache::notifier::Notifier;

#[derive(Clone, Default)]
struct Kernel(Arc<Mutex<Vec<String>>>);

/// An inode that the kernel does not know.
const UNKNOWN: u64 = 666;

impl Kernel {
    fn said(&self, what: String) {
        self.0.lock().push(what);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock())
    }
}

impl Notifier for Kernel {
    fn invalidate_attributes(&self, node: u64) -> bool {
        self.said(format!("attributes {node}"));
        node != UNKNOWN
    }
    fn invalidate_contents(&self, node: u64) -> bool {
        self.said(format!("contents {node}"));
        node != UNKNOWN
    }
    fn invalidate_pages_from(&self, node: u64, offset: u64) {
        self.said(format!("pages {node} {offset}"));
    }
    fn invalidate_entry(&self, parent: u64, name: &[u8]) {
        self.said(format!("entry {parent} {}", String::from_utf8_lossy(name)));
    }
    fn invalidate_entries(&self) {
        self.said("entries".to_owned());
    }
}

fn notices() -> (Notices, Kernel, Arc<Told>) {
    let (kernel, told) = (Kernel::default(), Arc::new(Told::new()));
    let nodes = Nodes { root: InodeId(70) };
    (Notices::new(nodes, Arc::clone(&told), Box::new(kernel.clone())), kernel, told)
}

/// Tells what is queued, and ends.
fn drain(notices: &Notices) {
    while let Some(notice) = {
        let mut queue = notices.queue();
        queue.notices.pop_front()
    } {
        notices.tell(&notice);
    }
}

#[test]
fn changes_reach_the_kernel_in_order_under_its_own_node_numbers() {
    let (notices, kernel, told) = notices();
    told.show(InodeId(9), 3, None);
    notices.inode_changed(InodeId(9), true);
    assert!(!told.is_current(InodeId(9), 3), "the next open must not keep its pages");
    notices.inode_changed(InodeId(70), false);
    notices.entry_changed(InodeId(70), b"x");
    // The volume's own root, under a mounted subdirectory: no path leads there.
    notices.inode_changed(InodeId(1), false);
    drain(&notices);
    assert_eq!(kernel.take(), ["contents 9", "attributes 1", "entry 1 x"]);
}

#[test]
fn forgetting_drops_all_names_and_every_inode_that_was_shown() {
    let (notices, kernel, told) = notices();
    (100..103).for_each(|inode| told.show(InodeId(inode), 1, None));
    notices.forget();
    drain(&notices);
    let mut said = kernel.take();
    assert_eq!(said.remove(0), "entries");
    said.sort_unstable();
    assert_eq!(said, ["attributes 100", "attributes 101", "attributes 102"]);
    assert!(!told.is_current(InodeId(100), 1));
}

#[test]
fn a_kernel_that_cannot_follow_is_told_to_forget_everything() {
    let (notices, kernel, _) = notices();
    (0..QUEUED_MAX + 5).for_each(|number| notices.entry_changed(InodeId(7), number.to_string().as_bytes()));
    assert!(notices.queue().notices.len() < 10);
    drain(&notices);
    let said = kernel.take();
    assert_eq!(said[0], "entries");
    assert_eq!(said.last(), Some(&format!("entry 7 {}", QUEUED_MAX + 4)));
}

/// Race: an answer that shows an inode for the first time may be made before the change is known, and reach the kernel
/// after its notification. The kernel would then believe old attributes for a whole lease.
#[test]
fn an_inode_that_the_kernel_does_not_know_is_told_of_once_more() {
    let (notices, kernel, _) = notices();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| notices.run());
        notices.inode_changed(InodeId(UNKNOWN), true);
        notices.inode_changed(InodeId(5), true);
        while kernel.0.lock().len() < 3 {
            std::thread::yield_now();
        }
        notices.end();
        thread.join().expect("no panic");
    });
    assert_eq!(kernel.take(), ["contents 666", "contents 5", "attributes 666"]);
}

#[test]
fn the_thread_ends_when_it_is_told_to() {
    let (notices, kernel, _) = notices();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| notices.run());
        notices.entry_changed(InodeId(7), b"x");
        while kernel.0.lock().is_empty() {
            std::thread::yield_now();
        }
        notices.end();
        thread.join().expect("no panic");
    });
}
