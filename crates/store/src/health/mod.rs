//! What keeps stored bytes right: [`damage`] remembers blocks that failed their checksum, [`repair`] puts sums right
//! that a crash left behind, [`restore`] replaces damaged blocks by those of a good copy, [`scrub`] reads everything on
//! request, [`sweep`] looks after a loss of power for what it may have taken.

pub(crate) mod damage;
pub(crate) mod repair;
pub(crate) mod restore;
pub(crate) mod scrub;
pub(crate) mod sweep;
