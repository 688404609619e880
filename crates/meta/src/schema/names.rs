//! The order of a directory: by a keyed hash of the name, which is also the cookie of listings.
//!
//! SipHash-2-4 (Aumasson, Bernstein 2012) under the volume's own key: an attacker without the key cannot make names
//! that collide. A cookie depends on the name alone, so it stays valid across creates and removals.

use crate::schema::keys;
use crate::service::fault::Outcome;
use siphasher::sip::SipHasher24;
use vazao_model::{Code, InodeId};
use vazao_wire::service::Fault;

/// Cookies below this are the doors': 0 is the start, others can stand for `.` and `..`.
pub(crate) const FIRST_COOKIE: u64 = 16;

/// Hashes names of one volume.
pub(crate) struct NameHash {
    hasher: SipHasher24,
    bits: u32,
}

impl NameHash {
    /// Over the volume's 16-byte key. `bits` is [`keys::NAME_HASH_BITS`] except in tests that want collisions.
    pub(crate) fn new(key: &[u8], bits: u32) -> Outcome<NameHash> {
        let key: &[u8; 16] = key.try_into().map_err(|_| {
            Fault::new(Code::Corrupt, format!("volume record with a name key of {} bytes", key.len()))
        })?;
        Ok(NameHash { hasher: SipHasher24::new_with_key(key), bits })
    }

    pub(crate) fn hash(&self, name: &[u8]) -> u64 {
        self.hasher.hash(name) >> (64 - self.bits)
    }

    /// Key of the entry `name` in `parent`.
    pub(crate) fn entry_key(&self, parent: InodeId, name: &[u8]) -> Vec<u8> {
        keys::entry(parent, self.hash(name), name)
    }
}

/// The cookie of entries with this hash.
pub(crate) fn cookie(hash: u64) -> u64 {
    hash + FIRST_COOKIE
}

/// The first hash that a listing from `cookie` shows; `None` when nothing can follow.
pub(crate) fn hash_after(cookie: u64) -> Option<u64> {
    match cookie.checked_sub(FIRST_COOKIE) {
        None => Some(0),
        Some(last) => last.checked_add(1).filter(|hash| hash >> keys::NAME_HASH_BITS == 0),
    }
}
