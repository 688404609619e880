//! Open directories: listed whole when they begin to be read, and handed out entry by entry.

use super::table::Spot;
use super::{Areas, LEASE};
use parking_lot::Mutex;
use vazao_client::{Asked, Entry, Result};
use vazao_model::limits::LIST_ENTRIES_MAX;
use vazao_model::{Attributes, FileKind, InodeId};

/// A directory as it was when it was begun to be read.
#[derive(Default)]
pub(super) struct Listing {
    snapshot: Mutex<Option<Snapshot>>,
}

struct Snapshot {
    /// Without `.` and `..`.
    entries: Vec<Listed>,
    asked_ns: u64,
}

struct Listed {
    name: Vec<u8>,
    kind: FileKind,
    attributes: Option<Attributes>,
}

/// An entry whose attributes are not told.
fn plain(name: &[u8], inode: InodeId, kind: FileKind, cookie: u64) -> Entry {
    Entry { name: name.to_vec(), inode, kind, cookie, attributes: None }
}

impl Areas {
    /// Gives the entries after `cookie` to `take` until it says false. Those with attributes count as shown.
    pub(super) fn list(
        &self,
        listing: &Listing,
        inode: InodeId,
        cookie: u64,
        with_attributes: bool,
        take: &mut dyn FnMut(&vazao_client::Listed<'_>, Asked) -> bool,
    ) -> Result<()> {
        let spot = self.spot(inode)?;
        let asked = self.client.asked();
        let mut snapshot = listing.snapshot.lock();
        if cookie == 0 || snapshot.is_none() {
            let asked_ns = self.clock.now_ns();
            *snapshot = Some(Snapshot { entries: self.entries(&spot)?, asked_ns });
        }
        let Some(Snapshot { entries, asked_ns }) = &*snapshot else { return Ok(()) };
        let above = if inode == self.root { self.root } else { self.number_shown(&spot.parent()) };
        let dots = [plain(b".", inode, FileKind::Directory, 1), plain(b"..", above, FileKind::Directory, 2)];
        if !dots.iter().filter(|dot| dot.cookie > cookie).all(|dot| take(&dot.listed(), asked)) {
            return Ok(());
        }
        // What was listed longer ago may have changed since, also through this mount.
        let is_fresh = self.clock.now_ns().saturating_sub(*asked_ns) < LEASE.as_nanos() as u64;
        let first = usize::try_from(cookie.saturating_sub(dots.len() as u64)).unwrap_or(usize::MAX);
        for (at, listed) in entries.iter().enumerate().skip(first) {
            let place = spot.child(&listed.name);
            let may_show = with_attributes && is_fresh;
            let known = may_show.then(|| self.shown_in_list(&place, listed, *asked_ns)).flatten();
            if let Some(known) = known.as_ref().filter(|known| known.kind == FileKind::Directory) {
                self.table.lock().may_walk(inode, known.inode);
            }
            let counts = known.is_some();
            let mut entry = plain(&listed.name, InodeId::default(), listed.kind, at as u64 + 3);
            entry.inode = known.as_ref().map_or_else(|| self.number_shown(&place), |known| known.inode);
            entry.attributes = known;
            if !take(&entry.listed(), asked) {
                if counts {
                    self.table.lock().forget(entry.inode, 1);
                }
                break;
            }
        }
        Ok(())
    }

    /// The number that a name is listed with when it is not shown: it counts nothing.
    fn number_shown(&self, spot: &Spot) -> InodeId {
        let mut table = self.table.lock();
        table.number(spot).unwrap_or_else(|| table.fresh())
    }

    /// What is shown of a listed name, if its attributes are known. A file with several names is looked up: only then
    /// it is known which one it is.
    fn shown_in_list(&self, place: &Spot, listed: &Listed, asked_ns: u64) -> Option<Attributes> {
        let attributes = listed.attributes.clone()?;
        if place.area.is_empty() {
            let inode = self.table.lock().enter(place, None);
            return Some(Attributes { inode, ..attributes });
        }
        let is_linked = attributes.kind == FileKind::File && attributes.links > 1;
        let number = self.table.lock().number(place);
        let is_another = |number| {
            // Written to since it was listed, or right now: the kernel would cut it to the size it had.
            let shared = self.files.shared(number);
            let is_written = shared.is_some_and(|shared| !shared.behind.is_still_since(asked_ns));
            let table = self.table.lock();
            is_written || table.is_linked(number) || table.is_changed(number, asked_ns)
        };
        if is_linked || number.is_some_and(is_another) {
            return None;
        }
        Some(self.entered(place, attributes, None))
    }

    /// All entries of a directory.
    fn entries(&self, spot: &Spot) -> Result<Vec<Listed>> {
        if spot.area.is_empty() {
            let listed = self.upper_names(spot).into_iter().map(|(name, below)| {
                // An area's own attributes are asked for when it is looked at: its node may be silent.
                let attributes = below.area.is_empty().then(|| self.upper(InodeId::default()));
                Listed { name: name.as_bytes().to_vec(), kind: FileKind::Directory, attributes }
            });
            return Ok(listed.collect());
        }
        let (mut entries, mut cookie) = (Vec::new(), 0);
        loop {
            let page =
                self.servers.ask_area(spot, |area| area.list(&spot.path, cookie, LIST_ENTRIES_MAX, true))?;
            let last = page.entries.last().map(|entry| entry.cookie);
            entries.extend(page.entries.into_iter().map(|listed| Listed {
                name: listed.name,
                kind: listed.kind,
                attributes: listed.attributes,
            }));
            match last {
                Some(last) if !page.end && last != cookie => cookie = last,
                _ => return Ok(entries),
            }
        }
    }
}
