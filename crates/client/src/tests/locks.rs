//! Locks of a client that was cut off for so long that others have got them.

use super::*;
use crate::LockPlace;
use vazao_model::Code;
use vazao_model::locks::{LockKind, LockMode, LockRange};

#[test]
fn a_lost_lock_is_told_of_until_its_owner_lets_go_of_it() {
    let cluster = Cluster::new(1);
    let client = cluster.client();
    let file = create(&client, "locked");
    let place = |owner| LockPlace { inode: file.inode(), kind: LockKind::Range, owner };
    for owner in [1, 2] {
        client.lock(place(owner), LockRange::WHOLE, LockMode::Shared, 0, None).unwrap();
    }
    client.locks().check([place(1), place(2)]).unwrap();
    client.core.locks.must_tell();
    client.core.tell_locks().unwrap();
    let refused = |owner| client.locks().check([place(3), place(owner)]).map_err(|error| error.code);
    assert_eq!((refused(1), refused(2), refused(3)), (Err(Code::Io), Err(Code::Io), Ok(())));
    client.unlock(place(1), LockRange::WHOLE).unwrap();
    assert_eq!((refused(1), refused(2)), (Ok(()), Err(Code::Io)));
    client.locks().forget_lost(place(2));
    assert_eq!(refused(2), Ok(()));
    file.close().unwrap();
}
