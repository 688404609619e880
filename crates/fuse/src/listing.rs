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

/// An open directory.
#[derive(Debug)]
pub(crate) struct Listing {
    directory: InodeId,
    is_mount_root: bool,
    window: Mutex<Option<Window>>,
}

/// The page read last.
#[derive(Debug)]
struct Window {
    /// The cookie it was asked for with.
    after: u64,
    page: Page,
    with_attributes: bool,
}

impl Window {
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
    /// are shown: a page may have been fetched for a request long before. `fetch` brings the page after a
    /// cookie, with attributes or without.
    pub(crate) fn read(
        &self,
        cookie: u64,
        with_attributes: bool,
        fetch: &dyn Fn(u64, bool) -> Result<Page>,
        take: &mut dyn FnMut(&Entry, Asked) -> bool,
    ) -> Result<()> {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        if cookie == 0 {
            // rewinddir(3): the directory as it is now.
            *window = None;
        }
        let mut after = if cookie <= AFTER_DOT_DOT { 0 } else { cookie };
        loop {
            let (current, start) = self.at(&mut window, after, with_attributes, fetch)?;
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
        fetch: &dyn Fn(u64, bool) -> Result<Page>,
    ) -> Result<(&'w Window, usize)> {
        let usable = window.take().filter(|w| w.with_attributes || !with_attributes);
        let found = usable.and_then(|w| w.position(after).map(|start| (w, start)));
        let (current, start) = match found {
            Some(found) => found,
            None => {
                let page = fetch(after, with_attributes)?;
                self.check(&page, after)?;
                (Window { after, page, with_attributes }, 0)
            }
        };
        Ok((window.insert(current), start))
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
