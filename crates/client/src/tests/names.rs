//! Paths, links, unlinked files that are open.

use super::*;
use crate::client::Statement;
use crate::{OpenMode, RenameMode};
use vazao_model::{Code, FileKind, InodeId, VolumePath};
use vazao_wire::Method;

fn directory(client: &Client, parent: InodeId, name: &str) -> InodeId {
    let new = NewInode { kind: FileKind::Directory, ..NewInode::default() };
    client.create(parent, name.as_bytes(), &new).unwrap().inode
}

fn link(client: &Client, parent: InodeId, name: &str, target: &str) -> InodeId {
    let new = NewInode { kind: FileKind::Symlink, contents: target.into(), ..NewInode::default() };
    client.create(parent, name.as_bytes(), &new).unwrap().inode
}

fn resolve(client: &Client, path: &str, follow: bool) -> Result<InodeId, Code> {
    let path = VolumePath::parse(path.as_bytes()).unwrap();
    client.resolve(&path, follow).map(|a| a.inode).map_err(|e| e.code)
}

#[test]
fn a_path_without_links_takes_one_request() {
    let cluster = Cluster::new(1);
    let client = cluster.client();
    let a = directory(&client, ROOT, "a");
    let b = directory(&client, a, "b");
    let file = client.create(b, b"f", &NewInode::default()).unwrap().inode;
    let before = cluster.meta.total();
    assert_eq!(resolve(&client, "/a/b/f", true), Ok(file));
    assert_eq!(cluster.meta.total() - before, 1);
    assert_eq!(resolve(&client, "/", true), Ok(ROOT));
    assert_eq!(resolve(&client, "/a/x/f", true), Err(Code::NotFound));
    assert_eq!(resolve(&client, "/a/b/f/g", true), Err(Code::NotDirectory));
}

#[test]
fn links_are_followed_from_the_directory_they_lie_in() {
    let cluster = Cluster::new(1);
    let client = cluster.client();
    let a = directory(&client, ROOT, "a");
    let b = directory(&client, a, "b");
    let file = client.create(b, b"f", &NewInode::default()).unwrap().inode;
    link(&client, a, "relative", "b");
    link(&client, b, "up", "../../a/./b/f");
    link(&client, ROOT, "absolute", "/a/relative");
    let last = link(&client, b, "last", "f");
    link(&client, ROOT, "dangling", "nowhere");
    assert_eq!(resolve(&client, "/a/relative/f", true), Ok(file));
    assert_eq!(resolve(&client, "/a/b/up", true), Ok(file));
    assert_eq!(resolve(&client, "/absolute/up", true), Ok(file));
    assert_eq!(resolve(&client, "/absolute", true), Ok(b));
    assert_eq!(resolve(&client, "/a/b/last", false), Ok(last));
    assert_eq!(resolve(&client, "/a/b/last", true), Ok(file));
    assert_eq!(resolve(&client, "/dangling", true), Err(Code::NotFound));
    assert_eq!(client.read_link(last).unwrap(), b"f");
    assert_eq!(client.read_link(file).unwrap_err().code, Code::Invalid);
}

#[test]
fn links_that_lead_to_themselves_are_an_error() {
    let cluster = Cluster::new(1);
    let client = cluster.client();
    link(&client, ROOT, "x", "y");
    link(&client, ROOT, "y", "/x");
    assert_eq!(resolve(&client, "/x", true), Err(Code::Loop));
}

#[test]
fn an_unlinked_file_lives_until_its_last_close() {
    let cluster = Cluster::new(2);
    let client = cluster.client();
    let file = create(&client, "gone");
    let other = client.open_file(file.inode(), OpenMode { read: true, ..OpenMode::default() }).unwrap();
    let bytes = pattern(1, 100_000);
    file.write_at(&bytes, 0).unwrap();
    client.unlink(ROOT, b"gone").unwrap();
    let inode = file.inode().0;
    assert_eq!(cluster.meta.state.lock().last_held_inode, inode);
    assert!(read_all(&file) == bytes);
    client.tick().unwrap();
    client.tick().unwrap();
    assert!(cluster.meta.state.lock().held.contains(&inode));
    file.close().unwrap();
    assert!(cluster.meta.state.lock().released.is_empty());
    other.close().unwrap();
    assert_eq!(cluster.meta.state.lock().released.iter().copied().collect::<Vec<_>>(), [inode]);
}

#[test]
fn an_inode_unlinked_elsewhere_and_not_open_here_is_let_go_at_once() {
    let cluster = Cluster::new(1);
    let (one, two) = (cluster.client(), cluster.client());
    let file = create(&one, "gone");
    let inode = file.inode().0;
    file.close().unwrap();
    two.unlink(ROOT, b"gone").unwrap();
    assert_eq!(cluster.meta.state.lock().last_held_inode, 0);
    one.tick().unwrap();
    assert!(cluster.meta.state.lock().not_held.contains(&inode));
}

/// A client said that it did not have a file open whose open had been answered, while that answer was still on its way.
/// The file ended, and the one who had opened it found nothing.
#[test]
fn an_inode_unlinked_elsewhere_is_kept_while_an_answer_to_its_open_may_be_on_its_way() {
    let cluster = Cluster::new(1);
    let (one, two) = (cluster.client(), cluster.client());
    let file = create(&one, "gone");
    let inode = file.inode().0;
    file.close().unwrap();
    let is_let_go = || cluster.meta.state.lock().not_held.contains(&inode);
    let opening = one.core.opens.begin();
    two.unlink(ROOT, b"gone").unwrap();
    (0..3).for_each(|_| one.tick().unwrap());
    assert!(!is_let_go());
    let mut later = one.core.opens.begin();
    drop(opening);
    for _ in 0..5 {
        one.tick().unwrap();
        // There is always one under way.
        let next = one.core.opens.begin();
        drop(std::mem::replace(&mut later, next));
    }
    assert!(is_let_go(), "those that began later are not waited for");
}

#[test]
fn creating_what_exists_opens_it_unless_it_must_be_new() {
    let cluster = Cluster::new(1);
    let client = cluster.client();
    let file = create(&client, "there");
    file.write_at(b"old", 0).unwrap();
    file.close().unwrap();
    let before = cluster.meta.total();
    let (attributes, again) = client.create_file(ROOT, b"there", &NewInode::default(), false).unwrap();
    assert_eq!((attributes.size, read_all(&again)), (3, b"old".to_vec()));
    assert_eq!(cluster.meta.count(Method::Open), 0);
    assert!(cluster.meta.total() - before <= 2);
    let refused = client.create_file(ROOT, b"there", &NewInode::default(), true);
    assert_eq!(refused.unwrap_err().code, Code::Exists);
}

#[test]
fn closing_a_client_flushes_what_is_open_and_ends_its_session() {
    let cluster = Cluster::new(1);
    let client = cluster.client();
    let file = create(&client, "left open");
    file.write_at(b"kept", 0).unwrap();
    client.close().unwrap();
    assert_eq!(cluster.meta.inode(file.inode().0).contents, b"kept");
    assert_eq!(cluster.meta.count(Method::CloseSession), 1);
}

/// Only who has a file open is asked before it ends: a reader that had looked at a name, and opened what another client
/// replaced in between, was told that it was stale.
#[test]
fn a_file_that_is_replaced_while_it_is_opened_by_its_path_is_looked_for_again() {
    let cluster = Cluster::new(1);
    let client = cluster.client();
    let file = create(&client, "f");
    file.write_at(b"there", 0).unwrap();
    file.close().unwrap();
    let (path, mode) = (VolumePath::parse(b"f").unwrap(), OpenMode { read: true, ..OpenMode::default() });
    cluster.meta.state.lock().replaced_before_open = 3;
    let (_, file) = client.open_path(&path, mode).unwrap();
    assert_eq!(read_all(&file), b"there");
    cluster.meta.state.lock().replaced_before_open = 1000;
    let endless = client.open_path(&path, mode).map(|_| ()).unwrap_err();
    assert_eq!(endless.code, Code::Stale, "whoever replaces it for ever is not waited for");
}

/// An open was answered, then another thread of the same client removed the file and said that it was not open here;
/// the open took what it was shown for a file. Its descriptor led to nothing: `fstat` said `ESTALE`.
#[test]
fn a_file_that_is_removed_while_its_open_is_under_way_is_not_opened() {
    let cluster = Cluster::new(1);
    let client = cluster.client();
    let mode = OpenMode { read: true, ..OpenMode::default() };
    let inode = client.create(ROOT, b"f", &NewInode::default()).unwrap().inode;
    let _opening = client.core.opens.begin();
    let shown = client.look(inode).unwrap();
    let statement = Statement::about(&client, ROOT, b"f").unwrap();
    assert_eq!(statement.held_inode, 0);
    assert!(File::open(&client.core, shown, mode).is_none(), "a removal says that it is not open");
    drop(statement);
    let shown = client.look(inode).unwrap();
    client.unlink(ROOT, b"f").unwrap();
    assert!(File::open(&client.core, shown, mode).is_none(), "it has ended");
    assert_eq!(client.open_file(inode, mode).map(drop).unwrap_err().code, Code::Stale);
}

#[test]
fn a_removal_that_failed_leaves_its_inode_to_those_who_open_it() {
    let cluster = Cluster::new(1);
    let client = cluster.client();
    let mode = OpenMode { read: true, ..OpenMode::default() };
    let inode = client.create(ROOT, b"f", &NewInode::default()).unwrap().inode;
    let parent = directory(&client, ROOT, "d");
    let _opening = client.core.opens.begin();
    let shown = client.look(inode).unwrap();
    client.rename(parent, b"absent", ROOT, b"f", RenameMode::Replace).unwrap_err();
    let file = File::open(&client.core, shown, mode).expect("nothing was removed");
    let statement = Statement::about(&client, ROOT, b"f").unwrap();
    assert_eq!(statement.held_inode, inode.0);
    drop(statement);
    file.close().unwrap();
}
