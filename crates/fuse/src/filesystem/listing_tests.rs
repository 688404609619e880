//! Listings over a directory in memory.

use super::*;
use std::cell::{Cell, RefCell};
use vazao_client::Entry;

const DIRECTORY: InodeId = InodeId(5);
const PARENT: InodeId = InodeId(3);

/// A directory with entries at the cookies 10, 20, 30 …, served in pages of `page_entries`.
struct Memory {
    entries: u64,
    page_entries: usize,
    fetched: Cell<u32>,
    /// How many entries were asked for each time.
    limits: RefCell<Vec<u32>>,
    /// The pages that were asked for ahead.
    ahead: RefCell<Vec<u64>>,
}

impl Source for Memory {
    fn fetch(&self, after: u64, limit: u32) -> Result<Page> {
        self.fetched.set(self.fetched.get() + 1);
        self.limits.borrow_mut().push(limit);
        self.page(after)
    }

    fn fetch_names(&self, after: u64, limit: u32) -> Result<NamePage> {
        self.fetch(after, limit).map(NamePage::of)
    }

    fn ahead(&self, after: u64, _: u32) -> Ahead {
        self.ahead.borrow_mut().push(after);
        let page = self.page(after).map(NamePage::of);
        Box::new(move || page)
    }
}

impl Memory {
    fn new(entries: u64, page_entries: usize) -> Memory {
        let (limits, ahead) = (RefCell::default(), RefCell::default());
        Memory { entries, page_entries, fetched: Cell::new(0), limits, ahead }
    }

    fn page(&self, after: u64) -> Result<Page> {
        let rest: Vec<Entry> = (1..=self.entries)
            .filter(|n| n * 10 > after)
            .map(|n| Entry {
                name: format!("f{n}").into_bytes(),
                inode: InodeId(100 + n),
                kind: FileKind::File,
                cookie: n * 10,
                attributes: None,
            })
            .collect();
        let end = rest.len() <= self.page_entries;
        Ok(Page {
            entries: rest.into_iter().take(self.page_entries).collect(),
            end,
            parent: PARENT,
            asked: Asked::default(),
        })
    }

    /// Reads `count` entries after `cookie`; their names and the last one's cookie.
    fn read(&self, listing: &Listing, cookie: u64, count: usize, plus: bool) -> (Vec<String>, u64) {
        let (mut names, mut last) = (Vec::new(), cookie);
        let take = &mut |entry: &Listed<'_>, _: Asked| {
            if names.len() == count {
                return false;
            }
            names.push(String::from_utf8_lossy(entry.name).into_owned());
            last = entry.cookie;
            true
        };
        let wanted = if plus { Wanted::Attributes(count) } else { Wanted::Names };
        listing.read(cookie, wanted, self, take).expect("memory does not fail");
        (names, last)
    }
}

#[test]
fn a_listing_in_small_pieces_gives_every_entry_once_in_order() {
    for (entries, page, piece) in [(0, 4, 1), (1, 4, 1), (7, 3, 2), (12, 4, 5), (9, 3, 100)] {
        let memory = Memory::new(entries, page);
        let listing = Listing::new(DIRECTORY, false);
        let (mut all, mut cookie) = (Vec::new(), 0);
        loop {
            let (names, last) = memory.read(&listing, cookie, piece, false);
            if names.is_empty() {
                break;
            }
            all.extend(names);
            cookie = last;
        }
        let expected: Vec<String> = [".".to_owned(), "..".to_owned()]
            .into_iter()
            .chain((1..=entries).map(|n| format!("f{n}")))
            .collect();
        assert_eq!(all, expected, "{entries} entries in pages of {page}, {piece} at a time");
        assert!(memory.fetched.get() <= entries as u32 / page as u32 + 2, "no page is read twice");
    }
}

#[test]
fn seeking_to_a_cookie_of_another_handle_continues_there() {
    let memory = Memory::new(9, 3);
    let listing = Listing::new(DIRECTORY, false);
    assert_eq!(memory.read(&listing, 50, 2, false).0, ["f6", "f7"]);
    assert_eq!(memory.read(&listing, 20, 1, false).0, ["f3"]);
    assert_eq!(memory.read(&listing, AFTER_DOT, 2, false).0, ["..", "f1"]);
}

#[test]
fn rewinding_shows_what_was_added_since() {
    let mut memory = Memory::new(1, 10);
    let listing = Listing::new(DIRECTORY, false);
    assert_eq!(memory.read(&listing, 0, 10, false).0, [".", "..", "f1"]);
    memory.entries = 2;
    assert_eq!(memory.read(&listing, 0, 10, false).0, [".", "..", "f1", "f2"]);
}

#[test]
fn attributes_wanted_after_a_page_without_them_are_fetched() {
    let memory = Memory::new(4, 10);
    let listing = Listing::new(DIRECTORY, false);
    memory.read(&listing, 0, 3, false);
    memory.read(&listing, 10, 1, true);
    assert_eq!(memory.fetched.get(), 2);
    memory.read(&listing, 20, 1, false);
    assert_eq!(memory.fetched.get(), 2, "a page with attributes serves plain listings too");
}

#[test]
fn the_root_of_a_mount_is_its_own_parent() {
    for (is_mount_root, parent) in [(true, DIRECTORY), (false, PARENT)] {
        let memory = Memory::new(0, 1);
        let mut inodes = Vec::new();
        Listing::new(DIRECTORY, is_mount_root)
            .read(0, Wanted::Names, &memory, &mut |entry, _| {
                inodes.push(entry.inode);
                true
            })
            .expect("memory does not fail");
        assert_eq!(inodes, [DIRECTORY, parent]);
    }
}

/// A source that always brings the same page.
struct Nonsense(Page);

impl Source for Nonsense {
    fn fetch(&self, _: u64, _: u32) -> Result<Page> {
        Ok(self.0.clone())
    }

    fn fetch_names(&self, _: u64, _: u32) -> Result<NamePage> {
        Ok(NamePage::of(self.0.clone()))
    }

    fn ahead(&self, _: u64, _: u32) -> Ahead {
        let page = NamePage::of(self.0.clone());
        Box::new(move || Ok(page))
    }
}

#[test]
fn who_reads_on_is_brought_the_next_page_of_names_while_this_one_is_handed_out() {
    let memory = Memory::new(9, 3);
    let listing = Listing::new(DIRECTORY, false);
    memory.read(&listing, 0, 4, false);
    assert!(memory.ahead.borrow().is_empty(), "most directories are one page");
    assert_eq!(memory.read(&listing, 30, 2, false).0, ["f4", "f5"]);
    assert_eq!((memory.fetched.get(), memory.ahead.borrow().clone()), (2, vec![60]));
    assert_eq!(memory.read(&listing, 50, 3, false).0, ["f6", "f7", "f8"]);
    assert_eq!(memory.fetched.get(), 2, "the third page was on its way");
    memory.read(&listing, 20, 2, false);
    assert_eq!(memory.read(&listing, 60, 1, true).0, ["f7"], "one without attributes does not serve");
    assert_eq!(memory.fetched.get(), 4);
}

#[test]
fn a_page_that_would_loop_or_confuse_the_kernel_is_an_error() {
    let entry = |cookie| Entry {
        name: b"x".to_vec(),
        inode: InodeId(9),
        kind: FileKind::File,
        cookie,
        attributes: None,
    };
    let listing = Listing::new(DIRECTORY, false);
    for (entries, end) in [(vec![], false), (vec![entry(2)], true), (vec![entry(1 << 63)], true)] {
        let source = Nonsense(Page { entries, end, parent: PARENT, asked: Asked::default() });
        let error = listing.read(0, Wanted::Names, &source, &mut |_, _| true).expect_err("must be refused");
        assert_eq!(error.code, Code::Internal);
    }
}

#[test]
fn a_few_entries_with_attributes_are_asked_for_with_one_more_that_the_names_go_on_with() {
    let memory = Memory::new(9, 4);
    let listing = Listing::new(DIRECTORY, false);
    assert_eq!(memory.read(&listing, 0, 5, true).0, [".", "..", "f1", "f2", "f3"]);
    assert_eq!(memory.limits.borrow().as_slice(), [6], "not a whole page of attributes");
    assert_eq!(memory.read(&listing, 30, 3, false).0, ["f4", "f5", "f6"]);
    assert_eq!(memory.limits.borrow().as_slice(), [6, LONG_PAGE_ENTRIES]);
    let small = Memory::new(3, 4);
    assert_eq!(small.read(&Listing::new(DIRECTORY, false), 0, 5, true).1, 30);
    assert_eq!(small.fetched.get(), 1, "a directory that fits is asked for once");
}
