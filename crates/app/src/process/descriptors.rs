//! How many descriptors this process may have: as many as it is allowed to allow itself.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit to the hard one. Systems set the soft one to 1,024 for the sake of programs that use
/// select(2), which none of ours does; a data server has a descriptor for each connection and for each open object.
pub(crate) fn raise() {
    let limit = getrlimit(Resource::Nofile);
    // Without it there are fewer connections; a caller that meets the limit gets an error that names it.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let before = getrlimit(Resource::Nofile);
        let less = before.maximum.map(|maximum| maximum / 2);
        setrlimit(Resource::Nofile, Rlimit { current: less, maximum: before.maximum }).expect("lowered");
        raise();
        assert_eq!(getrlimit(Resource::Nofile).current, before.maximum);
    }
}
