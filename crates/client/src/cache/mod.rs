//! The cache of a client: attributes, names and whole directories that the metadata service has shown it, and for how
//! long each may be believed.

mod invalidations;
mod metadata_cache;

pub(crate) use invalidations::InvalidationStream;
pub use invalidations::{Asked, Listener};
pub(crate) use metadata_cache::{Change, MetadataCache, Thing};

use crate::Result;
use crate::core::Context;
use std::sync::Arc;
use std::time::Duration;
use vazao_model::limits::{CACHE_LEASE_MS, NAME_BYTES_MAX};
use vazao_model::{Attributes, Code, FileKind, InodeId, Timestamp};
use vazao_wire::proto;

const NS_A_MS: u64 = 1_000_000;

/// A directory known whole is asked about when less than this is left of its lease.
const WHOLE_RENEWED_BEFORE: Duration = Duration::from_millis(CACHE_LEASE_MS as u64 / 3);

/// What a client remembers of the metadata, and what it has heard of changes by others.
pub(crate) struct Cache {
    context: Arc<Context>,
    pub(crate) entries: Arc<MetadataCache>,
    pub(crate) stream: InvalidationStream,
}

/// False for names that every directory has, and for those that none can have: these are the service's to refuse.
pub(crate) fn is_entry(name: &[u8]) -> bool {
    !matches!(name, b"." | b"..") && name.len() <= NAME_BYTES_MAX
}

pub(crate) fn attributes_of(inode: Option<&proto::Inode>) -> Option<Attributes> {
    inode?.attributes?.try_into().ok()
}

impl Cache {
    pub(crate) fn new(context: Arc<Context>) -> Cache {
        Cache { context, entries: Arc::default(), stream: InvalidationStream::default() }
    }

    /// Without an interest bit (seat) no entry would be valid, so none is kept.
    pub(crate) fn caches(&self) -> bool {
        self.seat() != 0
    }

    /// Takes over what an answer has shown of an inode.
    pub(crate) fn put_inode(&self, asked: Asked, inode: Option<&proto::Inode>) -> Option<InodeId> {
        let attributes = attributes_of(inode).filter(|_| self.caches())?;
        self.put_attributes(asked, &attributes);
        Some(attributes.inode)
    }

    pub(crate) fn put_attributes(&self, asked: Asked, attributes: &Attributes) {
        self.entries.cache_attributes(asked, attributes);
        // An invalidation by another client ends it for good: a later time of this client's own hides it.
        if attributes.kind == FileKind::Directory
            && let Some(since) = self.entries.whole_if_own(attributes)
            && !self.has_changed(since, attributes.inode)
        {
            self.entries.renew_whole(asked, attributes.inode);
        }
    }

    /// A name has come to a directory or gone from it by this client. Where it cannot be said that no other client has
    /// changed it before, it is not whole any more.
    pub(crate) fn change_whole(&self, parent: InodeId, name: &[u8], is_there: bool, time: Option<Timestamp>) {
        let Some(since) = self.entries.whole_since(parent) else { return };
        if self.is_believable(since, parent, &[]) {
            self.entries.change_whole(parent, name, is_there, time);
        } else {
            self.entries.forget_whole(parent);
        }
    }

    /// True when a directory known whole ought to be asked about, while it still is: only an answer renews that.
    pub(crate) fn is_whole_for_little_longer(&self, directory: InodeId) -> bool {
        let Some(since) = self.entries.whole_since(directory) else { return false };
        let left = self.believable_for(since, directory, &[]);
        left > Duration::ZERO && left < WHOLE_RENEWED_BEFORE
    }

    pub(crate) fn put_entry(&self, asked: Asked, parent: InodeId, name: &[u8], inode: Option<&proto::Inode>) {
        if let Some(leads) = self.put_inode(asked, inode) {
            self.entries.cache_name(asked, parent, name, Some(leads));
        }
    }

    /// Takes over what a lookup has shown.
    pub(crate) fn put_lookup(
        &self,
        asked: Asked,
        parent: InodeId,
        name: &[u8],
        answer: &Result<proto::LookupResponse>,
    ) {
        if !self.caches() || !is_entry(name) {
            return;
        }
        match answer {
            Ok(response) => self.put_entry(asked, parent, name, response.inode.as_ref()),
            Err(error) if error.code == Code::NotFound => self.entries.cache_name(asked, parent, name, None),
            Err(_) => {}
        }
    }

    /// Caches what a listing with attributes has shown; without them the service keeps no interest.
    pub(crate) fn put_listing(&self, asked: Asked, directory: InodeId, response: &proto::ListResponse) {
        if !self.caches() {
            return;
        }
        for entry in &response.entries {
            let attributes = entry.attributes.and_then(|shown| Attributes::try_from(shown).ok());
            if let Some(attributes) = attributes {
                self.put_attributes(asked, &attributes);
                self.entries.cache_name(asked, directory, &entry.name, Some(attributes.inode));
            }
        }
    }

    pub(crate) fn is_believable(&self, asked: Asked, inode: InodeId, name: &[u8]) -> bool {
        self.believable_for(asked, inode, name) > Duration::ZERO
    }

    /// The seat to send along with a request whose answer will be remembered; 0 when it will not.
    pub(crate) fn seat(&self) -> u32 {
        self.stream.seat()
    }

    pub(crate) fn asked(&self) -> Asked {
        let heard = self.stream.heard();
        Asked { heard, at_ns: self.context.clock.now_ns(), own: self.entries.changes() }
    }

    pub(crate) fn believable_for(&self, asked: Asked, inode: InodeId, name: &[u8]) -> Duration {
        let now_ns = self.context.clock.now_ns();
        if !self.stream.is_live(now_ns) || self.stream.has_changed(asked, inode, name) {
            return Duration::ZERO;
        }
        let lease_ns = u64::from(CACHE_LEASE_MS) * NS_A_MS;
        Duration::from_nanos(lease_ns.saturating_sub(now_ns.saturating_sub(asked.at_ns)))
    }

    /// True when another client is known to have changed an inode since.
    pub(crate) fn has_changed(&self, since: Asked, inode: InodeId) -> bool {
        self.stream.has_changed(since, inode, &[])
    }

    /// True while changes by others arrive.
    pub(crate) fn hears_of_changes(&self) -> bool {
        self.stream.is_live(self.context.clock.now_ns())
    }

    /// True when all changes up to this number have been worked in. 0 is that of who does not watch.
    pub(crate) fn has_received(&self, number: u64) -> bool {
        number == 0 || self.stream.has_received(number)
    }
}
