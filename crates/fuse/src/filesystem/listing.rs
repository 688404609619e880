//! An open directory: pages from the client, handed out entry by entry from any cookie.
//!
//! Cookies are the client's own and mean the same in every handle, so that `telldir` and `seekdir` work; 0 is the
//! start, 1 and 2 are taken by `.` and `..`, which the client does not list.

use parking_lot::Mutex;
use std::cmp::Ordering;
use vazao_client::{Asked, Error, Listed, NamePage, Page, Result};
use vazao_model::{Code, FileKind, InodeId, limits};

/// Cookie after `.`.
const AFTER_DOT: u64 = 1;
/// Cookie after `..`; those of entries are larger.
const AFTER_DOT_DOT: u64 = 2;
/// The kernel's directory offsets are signed.
const COOKIE_MAX: u64 = i64::MAX as u64;

/// Entries asked for at once: a few hundred kilobytes.
pub(crate) const PAGE_ENTRIES: u32 = 1024;

/// Names in one request of a reader that has taken whole pages already.
const LONG_PAGE_ENTRIES: u32 = limits::LIST_ENTRIES_MAX;

/// What a request for entries wants of each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    /// The name and what kind it is of.
    Names,
    /// Attributes too, of so many entries at most.
    Attributes(usize),
}

impl Wanted {
    pub(crate) fn with_attributes(self) -> bool {
        self != Wanted::Names
    }

    pub(crate) fn entries_max(self) -> usize {
        match self {
            Wanted::Names => usize::MAX,
            Wanted::Attributes(entries_max) => entries_max,
        }
    }
}

/// A page that was asked for ahead.
pub(crate) type Ahead = Box<dyn FnOnce() -> Result<NamePage> + Send>;

/// Where pages come from.
pub(crate) trait Source {
    /// The page after a cookie of at most `limit` entries, with attributes.
    fn fetch(&self, after: u64, limit: u32) -> Result<Page>;

    /// The same of names.
    fn fetch_names(&self, after: u64, limit: u32) -> Result<NamePage>;

    /// Asks for the page of names after a cookie without waiting for it.
    fn ahead(&self, after: u64, limit: u32) -> Ahead;
}

/// How many entries are asked for after a cookie. With attributes one more than is taken: that tells whether it is the
/// last, and a directory that fits is never asked for twice.
fn limit(after: u64, wanted: Wanted) -> u32 {
    match wanted {
        Wanted::Names if after == 0 => PAGE_ENTRIES,
        Wanted::Names => LONG_PAGE_ENTRIES,
        Wanted::Attributes(entries_max) => {
            u32::try_from(entries_max).unwrap_or(u32::MAX).saturating_add(1).min(PAGE_ENTRIES)
        }
    }
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
    page: Shown,
    /// The page after it, on its way while this one is handed out.
    next: Option<Ahead>,
}

/// A page with attributes or without.
enum Shown {
    Entries(Page),
    Names(NamePage),
}

impl Shown {
    fn with_attributes(&self) -> bool {
        matches!(self, Shown::Entries(_))
    }

    fn len(&self) -> usize {
        match self {
            Shown::Entries(page) => page.entries.len(),
            Shown::Names(page) => page.len(),
        }
    }

    fn end(&self) -> bool {
        match self {
            Shown::Entries(page) => page.end,
            Shown::Names(page) => page.end(),
        }
    }

    fn asked(&self) -> Asked {
        match self {
            Shown::Entries(page) => page.asked,
            Shown::Names(page) => page.asked,
        }
    }

    fn parent(&self) -> InodeId {
        match self {
            Shown::Entries(page) => page.parent,
            Shown::Names(page) => page.parent(),
        }
    }

    fn cookie(&self, index: usize) -> Option<u64> {
        match self {
            Shown::Entries(page) => page.entries.get(index).map(|entry| entry.cookie),
            Shown::Names(page) => page.cookie(index),
        }
    }

    fn last_cookie(&self) -> Option<u64> {
        self.cookie(self.len().checked_sub(1)?)
    }

    fn entry(&self, index: usize) -> Option<Listed<'_>> {
        match self {
            Shown::Entries(page) => page.entries.get(index).map(|entry| entry.listed()),
            Shown::Names(page) => page.entry(index),
        }
    }

    /// Where the entry with a cookie is.
    fn position(&self, cookie: u64) -> Option<usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.cookie(middle)?.cmp(&cookie) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Some(middle),
                Ordering::Greater => high = middle,
            }
        }
        None
    }
}

impl std::fmt::Debug for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Window(after {}, {} entries)", self.after, self.page.len())
    }
}

impl Window {
    /// True when `cookie` is that of its last entry.
    fn ends_at(&self, cookie: u64) -> bool {
        self.page.last_cookie() == Some(cookie)
    }

    /// Index of the entry that follows `cookie`, when this page knows.
    fn position(&self, cookie: u64) -> Option<usize> {
        if cookie == self.after {
            return Some(0);
        }
        let found = self.page.position(cookie);
        found.map(|index| index + 1).filter(|&next| next < self.page.len() || self.page.end())
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
        wanted: Wanted,
        source: &dyn Source,
        take: &mut dyn FnMut(&Listed<'_>, Asked) -> bool,
    ) -> Result<()> {
        let mut window = self.window.lock();
        if cookie == 0 {
            // rewinddir(3): the directory as it is now.
            *window = None;
        }
        let mut after = if cookie <= AFTER_DOT_DOT { 0 } else { cookie };
        loop {
            let (current, start) = self.at(&mut window, after, wanted, source)?;
            let asked = current.page.asked();
            if after == 0 && !self.take_dots(cookie, &current.page, take) {
                return Ok(());
            }
            for entry in (start..).map_while(|index| current.page.entry(index)) {
                if !take(&entry, asked) {
                    return Ok(());
                }
                after = entry.cookie;
            }
            if current.page.end() {
                return Ok(());
            }
        }
    }

    /// The window that has what follows `after`, and where in it.
    fn at<'w>(
        &self,
        window: &'w mut Option<Window>,
        after: u64,
        wanted: Wanted,
        source: &dyn Source,
    ) -> Result<(&'w Window, usize)> {
        let with_attributes = wanted.with_attributes();
        let mut usable = window.take().filter(|w| w.page.with_attributes() || !with_attributes);
        if let Some(start) = usable.as_ref().and_then(|w| w.position(after))
            && let Some(current) = usable
        {
            return Ok((window.insert(current), start));
        }
        let ahead = usable.as_mut().filter(|w| w.ends_at(after)).and_then(|w| w.next.take());
        let page = match ahead {
            _ if with_attributes => Shown::Entries(source.fetch(after, limit(after, wanted))?),
            Some(ahead) => Shown::Names(ahead()?),
            None => Shown::Names(source.fetch_names(after, limit(after, wanted))?),
        };
        self.check(&page, after)?;
        let last = page.last_cookie();
        // Only for who goes on reading: one page is enough of most directories.
        let goes_on = after != 0 && !with_attributes && !page.end();
        let next = last.filter(|_| goes_on).map(|last| source.ahead(last, LONG_PAGE_ENTRIES));
        Ok((window.insert(Window { after, page, next }), 0))
    }

    /// Refuses a page that the kernel could not be shown, or that would never end.
    fn check(&self, page: &Shown, after: u64) -> Result<()> {
        let floor = after.max(AFTER_DOT_DOT);
        let mut cookies = (0..page.len()).filter_map(|index| page.cookie(index));
        let cookies_fit = cookies.all(|cookie| cookie > floor && cookie <= COOKIE_MAX);
        if cookies_fit && (page.end() || page.len() > 0) {
            return Ok(());
        }
        Err(Error::new(
            Code::Internal,
            format!("listing of {} after cookie {after} makes no sense", self.directory),
        ))
    }

    fn take_dots(&self, cookie: u64, page: &Shown, take: &mut dyn FnMut(&Listed<'_>, Asked) -> bool) -> bool {
        let parent = if self.is_mount_root { self.directory } else { page.parent() };
        let dots = [(b".".as_slice(), self.directory, AFTER_DOT), (b"..", parent, AFTER_DOT_DOT)];
        dots.into_iter().filter(|&(_, _, after)| cookie < after).all(|(name, inode, after)| {
            let dot = Listed { name, inode, kind: FileKind::Directory, cookie: after, attributes: None };
            take(&dot, page.asked())
        })
    }
}

#[cfg(test)]
#[path = "listing_tests.rs"]
mod tests;
