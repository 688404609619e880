//! Locks of a client that was cut off for so long that others have got them; and what a lock promises of the contents.

use super::*;
use crate::file::OpenInode;
use crate::{LockPlace, OpenMode};
use vazao_model::Code;
use vazao_model::locks::{LockKind, LockMode, LockRange};
use vazao_wire::Method;
use vazao_wire::inline::Fate;

const BOTH: OpenMode = OpenMode { read: true, write: true, truncate: false };

fn opened(client: &Client, file: &File) -> Arc<OpenInode> {
    client.core.registry.find(file.inode()).expect("is open")
}

/// A small file that one client has written and the other one read; the first has changed it since.
fn changed_elsewhere(cluster: &Cluster, client: &Client) -> File {
    let writer = cluster.client();
    let file = create(&writer, "counter");
    file.write_at(b"13", 0).unwrap();
    file.sync().unwrap();
    let known = client.open_file(file.inode(), BOTH).unwrap();
    assert_eq!(read_all(&known), b"13");
    file.write_at(b"14", 0).unwrap();
    file.close().unwrap();
    known
}

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

/// A link to the metadata service was cut for three seconds, just after a lock had been granted: after one of them the
/// holder read what it had known before, counted on from there, and a value that had been synced under the lock was
/// counted twice.
#[test]
fn a_holder_of_a_lock_reads_what_was_written_under_it_before_or_nothing() {
    let cluster = Cluster::new(1);
    let client = cluster.client();
    let file = changed_elsewhere(&cluster, &client);
    let place = LockPlace { inode: file.inode(), kind: LockKind::Range, owner: 1 };
    client.lock(place, LockRange::WHOLE, LockMode::Exclusive, 0, None).unwrap();
    let cut = |_: &str, method| if method == Method::Open { Fate::LoseRequest } else { Fate::Deliver };
    cluster.transport.set_fates(Some(Box::new(cut)));
    let error = file.read_at(&mut [0; 2], 0).expect_err("what was known before is not what was written");
    assert_eq!(error.code, Code::Timeout, "{error}");
    let error = file.read_list(&mut [(0, &mut [0; 2][..])]).expect_err("nor in a list");
    assert_eq!(error.code, Code::Timeout, "{error}");
    cluster.transport.set_fates(None);
    assert_eq!(read_all(&file), b"14");
    client.unlock(place, LockRange::WHOLE).unwrap();
    file.close().unwrap();
}

#[test]
fn without_a_lock_what_was_known_before_is_read_while_the_service_is_away() {
    let cluster = Cluster::new(1);
    let client = cluster.client();
    let file = changed_elsewhere(&cluster, &client);
    opened(&client, &file).note_changed_elsewhere();
    let cut = |_: &str, method| if method == Method::Open { Fate::LoseRequest } else { Fate::Deliver };
    cluster.transport.set_fates(Some(Box::new(cut)));
    let started_ns = cluster.clock.now_ns();
    assert_eq!(read_all(&file), b"13");
    assert!(cluster.clock.now_ns() - started_ns >= 1_000_000_000, "it was asked for first");
    cluster.transport.set_fates(None);
    assert_eq!(read_all(&file), b"14", "and is asked for again");
    file.close().unwrap();
}

/// The first of two readers took the note that the file has changed, and while it was asking the second one read what
/// was known before: under a lock, too.
#[test]
fn each_reader_looks_again_until_one_of_them_has() {
    let cluster = Cluster::new(1);
    let client = cluster.client();
    let file = changed_elsewhere(&cluster, &client);
    opened(&client, &file).note_changed_elsewhere();
    let open = opened(&client, &file);
    let (first, second) = (open.must_look_again(), open.must_look_again());
    assert!(first.is_some() && first == second);
    // Another change, which the first one's answer may not have.
    opened(&client, &file).note_changed_elsewhere();
    first.into_iter().for_each(|changes| open.looked_again(changes));
    assert!(open.must_look_again().is_some());
    assert_eq!(read_all(&file), b"14");
    assert_eq!(open.must_look_again(), None);
    file.close().unwrap();
}
