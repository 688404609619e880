//! What the kernel is notified through: the device, for a mount.

/// Sends what the kernel did not ask for. Only [`Notifier::invalidate_attributes`] never waits; the others take locks
/// that a request may hold, and must not be used by a thread that answers requests.
pub(crate) trait Notifier: Send + Sync {
    /// The kernel shall ask again before it believes what it knows of `node`. False when it does not know that one.
    fn invalidate_attributes(&self, node: u64) -> bool;

    /// The same, and the pages it has of a file are dropped.
    fn invalidate_contents(&self, node: u64) -> bool;

    /// Its pages from `offset` on are dropped; those that were stored into through a mapping are written back before.
    fn invalidate_pages_from(&self, node: u64, offset: u64);

    /// The kernel shall ask again where `name` in `parent` leads.
    fn invalidate_entry(&self, parent: u64, name: &[u8]);

    /// The same for all names. Kernels before 6.16 do not know this; names then stay believed until their time is over.
    fn invalidate_entries(&self);
}
