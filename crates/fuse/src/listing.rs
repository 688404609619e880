//! An open directory: pages from the client, handed out entry by entry from any cookie.
//!
//! Cookies are the client's own and mean the same in every handle, so that `telldir` and `seekdir` work; 0 is the
//! start, 1 and 2 are taken by `.` and `..`, which the client does not list.

use std::sync::{Mutex, PoisonError};
use vazao_client::{Asked, Entry, Error, Page, Result};
use vazao_model::{Code, FileKind, InodeId};

/// Cookie after `.`.
const AFTER_DOT: u64 = 1;
/// Cookie after `..`; those of entries are larger.
const AFTER_DOT_DOT: u64 = 2;
/// The kernel's directory offsets are signed.
const COOKIE_MAX: u64 = i64::MAX as u64;

/// Entries asked for at once: several of the kernel's buffers, a few hundred kilobytes.
pub(crate) const PAGE_ENTRIES: u32 = 1024;

/// The same for the first answer with attributes, which the kernel asks for before it knows whether anybody wants them:
/// it takes 6,000 at once from who only wants the names, and each costs ten times as much as a name.
pub(crate) const FIRST_ATTRIBUTES: usize = PAGE_ENTRIES as usize;

/// A page that was asked for ahead.
pub(crate) type Ahead = Box<dyn FnOnce() -> Result<Page> + Send>;

/// Where pages come from.
pub(crate) trait Source {
    /// The page after a cookie, with attributes or without.
    fn fetch(&self, after: u64, with_attributes: bool) -> Result<Page>;

    /// Asks for the page of names after a cookie without waiting for it.
    fn ahead(&self, after: u64) -> Ahead;
}

/// An open directory.
#[derive(Debug)]
pub(crate) struct Listing {
    directory: InodeId,
    is_mount_root: bool,
    window: Mutex<Option<Window>>,
}

/// The page read last.
struct Window {
    /// The cookie it was asked for with.
    after: u64,
    page: Page,
    with_attributes: bool,
    /// The page after it, on its way while this one is handed out.
    next: Option<Ahead>,
}

impl std::fmt::Debug for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Window(after {}, {} entries)", self.after, self.page.entries.len())
    }
}

impl Window {
    /// True when `cookie` is that of its last entry.
    fn ends_at(&self, cookie: u64) -> bool {
        self.page.entries.last().is_some_and(|last| last.cookie == cookie)
    }

    /// Index of the entry that follows `cookie`, when this page knows.
    fn position(&self, cookie: u64) -> Option<usize> {
        if cookie == self.after {
            return Some(0);
        }
        let found = self.page.entries.binary_search_by_key(&cookie, |entry| entry.cookie);
        found.ok().map(|index| index + 1).filter(|&next| next < self.page.entries.len() || self.page.end)
    }
}

impl Listing {
    /// A directory just opened. Above the root of the mount there is nothing: its `..` is itself.
    pub(crate) fn new(directory: InodeId, is_mount_root: bool) -> Listing {
        Listing { directory, is_mount_root, window: Mutex::new(None) }
    }

    /// Gives the entries after `cookie` to `take` until it has enough and says false, with the moment as of which they
    /// are shown: a page may have been fetched for a request long before.
    pub(crate) fn read(
        &self,
        cookie: u64,
        with_attributes: bool,
        source: &dyn Source,
        take: &mut dyn FnMut(&Entry, Asked) -> bool,
    ) -> Result<()> {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        if cookie == 0 {
            // rewinddir(3): the directory as it is now.
            *window = None;
        }
        let mut after = if cookie <= AFTER_DOT_DOT { 0 } else { cookie };
        loop {
            let (current, start) = self.at(&mut window, after, with_attributes, source)?;
            let asked = current.page.asked;
            if after == 0 && !self.take_dots(cookie, &current.page, take) {
                return Ok(());
            }
            for entry in &current.page.entries[start..] {
                if !take(entry, asked) {
                    return Ok(());
                }
                after = entry.cookie;
            }
            if current.page.end {
                return Ok(());
            }
        }
    }

    /// The window that has what follows `after`, and where in it.
    fn at<'w>(
        &self,
        window: &'w mut Option<Window>,
        after: u64,
        with_attributes: bool,
        source: &dyn Source,
    ) -> Result<(&'w Window, usize)> {
        let mut usable = window.take().filter(|w| w.with_attributes || !with_attributes);
        if let Some(start) = usable.as_ref().and_then(|w| w.position(after))
            && let Some(current) = usable
        {
            return Ok((window.insert(current), start));
        }
        let ahead = usable.as_mut().filter(|w| w.ends_at(after)).and_then(|w| w.next.take());
        let page = match ahead.filter(|_| !with_attributes) {
            Some(ahead) => ahead()?,
            None => source.fetch(after, with_attributes)?,
        };
        self.check(&page, after)?;
        let last = page.entries.last().map(|entry| entry.cookie);
        // Only for who goes on reading: one page is enough of most directories.
        let goes_on = after != 0 && !with_attributes && !page.end;
        let next = last.filter(|_| goes_on).map(|last| source.ahead(last));
        Ok((window.insert(Window { after, page, with_attributes, next }), 0))
    }

    /// Refuses a page that the kernel could not be shown, or that would never end.
    fn check(&self, page: &Page, after: u64) -> Result<()> {
        let floor = after.max(AFTER_DOT_DOT);
        let cookies_fit = page.entries.iter().all(|e| e.cookie > floor && e.cookie <= COOKIE_MAX);
        if cookies_fit && (page.end || !page.entries.is_empty()) {
            return Ok(());
        }
        Err(Error::new(
            Code::Internal,
            format!("listing of {} after cookie {after} makes no sense", self.directory),
        ))
    }

    fn take_dots(&self, cookie: u64, page: &Page, take: &mut dyn FnMut(&Entry, Asked) -> bool) -> bool {
        let parent = if self.is_mount_root { self.directory } else { page.parent };
        let dots = [(b".".as_slice(), self.directory, AFTER_DOT), (b"..", parent, AFTER_DOT_DOT)];
        dots.into_iter().filter(|&(_, _, after)| cookie < after).all(|(name, inode, after)| {
            let name = name.to_vec();
            let dot = Entry { name, inode, kind: FileKind::Directory, cookie: after, attributes: None };
            take(&dot, page.asked)
        })
    }
}

#[cfg(test)]
#[path = "listing_tests.rs"]
mod tests;
