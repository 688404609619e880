//! What keeps stored bytes right: [`damage`] remembers blocks that failed their checksum, [`repair`] puts sums right
//! that a crash left behind, replaces damaged blocks by those of a good copy and keeps what can be kept of files that
//! were harmed, [`restore`] knows which objects are made anew, [`scrub`] reads everything on request, [`sweep`] looks
//! after an unclean stop for what it may have torn, [`suspect`] remembers what was then taken for right and may be
//! otherwise in another copy.

pub(crate) mod damage;
pub(crate) mod repair;
pub(crate) mod restore;
pub(crate) mod scrub;
pub(crate) mod suspect;
pub(crate) mod sweep;
