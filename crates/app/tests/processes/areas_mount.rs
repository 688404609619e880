//! `vazao mount --areas`: the directories of all nodes as one tree of this machine.

use crate::support::areas::Tree;
use crate::support::{noise, wait_until};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use vazao_meter::{Clock, SystemClock};
use vazao_testing::programs::RunBounded;

#[test]
fn the_areas_of_all_nodes_are_one_tree_to_read_and_write() {
    let Some(tree) = Tree::mount() else { return };
    assert_eq!(tree.names(""), ["data1", "data2"]);
    assert_eq!((tree.names("data1"), tree.names("data2")), (vec!["one".into()], vec!["two".into()]));
    let (mounted, local) = tree.both("data1", "one", "run/deep/file");
    fs::create_dir_all(mounted.parent().expect("has one")).expect("made");
    fs::write(&mounted, noise(5_000_000)).expect("written");
    assert!(fs::read(&local).expect("is there") == noise(5_000_000));
    assert_eq!(mounted.metadata().expect("status").len(), 5_000_000);
    // From one node to another, as any program copies.
    let (other, other_local) = tree.both("data2", "two", "copy");
    fs::copy(&mounted, &other).expect("copied");
    assert!(fs::read(other_local).expect("is there") == noise(5_000_000));
    let crossed = fs::rename(&mounted, tree.both("data2", "two", "moved").0).expect_err("is another area");
    assert_eq!(crossed.kind(), ErrorKind::CrossesDevices);
    // Names.
    let (from, to) = (tree.both("data1", "one", "run").0, tree.both("data1", "one", "walk").0);
    let mut open = File::open(&mounted).expect("opened");
    fs::rename(&from, &to).expect("renamed");
    let mut bytes = Vec::new();
    open.read_to_end(&mut bytes).expect("an open file is read under its new name");
    assert!(bytes == noise(5_000_000));
    assert_eq!(tree.names("data1/one"), ["walk"]);
    symlink("walk/deep/file", tree.both("data1", "one", "link").0).expect("made");
    assert!(fs::read(tree.both("data1", "one", "link").0).expect("followed") == noise(5_000_000));
    fs::remove_file(to.join("deep/file")).expect("removed");
    fs::remove_dir_all(&to).expect("removed");
    assert_eq!(tree.names("data1/one"), ["link"]);
    for path in ["new", "data1/new"] {
        let refused = fs::create_dir(tree.mountpoint.join(path)).expect_err("is fixed");
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{path}");
    }
    assert_eq!(
        tree.both("data1", "one", "none").0.metadata().expect_err("missing").kind(),
        ErrorKind::NotFound
    );
}

#[test]
fn parts_of_files_are_written_cut_and_appended_to_and_local_programs_see_and_are_seen() {
    let Some(tree) = Tree::mount() else { return };
    let (mounted, local) = tree.both("data1", "one", "f");
    let mut expected = noise(300_000);
    fs::write(&mounted, &expected).expect("written");
    let file = OpenOptions::new().read(true).write(true).open(&mounted).expect("opened");
    file.write_all_at(b"in the middle", 123_457).expect("written");
    expected[123_457..123_470].copy_from_slice(b"in the middle");
    file.sync_all().expect("synced");
    drop(file);
    OpenOptions::new().append(true).open(&mounted).expect("opened").write_all(b"end").expect("appended");
    expected.extend(b"end");
    assert!(fs::read(&local).expect("is there") == expected);
    let file = OpenOptions::new().write(true).open(&mounted).expect("opened");
    file.set_len(1000).expect("cut");
    drop(file);
    assert!(fs::read(&local).expect("is there") == expected[..1000]);
    // A local program writes. A program that opens the file then sees it; others at the latest when the second is over.
    fs::write(&local, noise(77_777)).expect("written");
    assert!(fs::read(&mounted).expect("read") == noise(77_777));
    fs::write(local.with_file_name("g"), b"new").expect("written");
    wait_until("the new name is seen", || tree.both("data1", "one", "g").0.exists());
    let mut file = File::open(&mounted).expect("opened");
    file.seek(SeekFrom::Start(70_000)).expect("sought");
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).expect("read");
    assert!(bytes == noise(77_777)[70_000..]);
    let owner = local.metadata().expect("status").uid();
    assert_eq!(mounted.metadata().expect("status").uid(), owner);
}

#[test]
fn many_names_are_listed_once_each() {
    let Some(tree) = Tree::mount() else { return };
    let (mounted, local) = tree.both("data2", "two", "many");
    fs::create_dir(&local).expect("made");
    (0..5_000).for_each(|i| fs::write(local.join(format!("f{i:05}")), b"").expect("written"));
    wait_until("the directory is seen", || mounted.exists());
    let names = tree.names("data2/two/many");
    assert_eq!(names.len(), 5_000);
    assert!(names.iter().enumerate().all(|(i, name)| *name == format!("f{i:05}")));
}

/// Each path ever seen once cost some 200 bytes until the mount ended.
#[test]
fn what_the_kernel_forgets_is_not_kept_and_what_is_in_use_goes_on_under_its_new_name() {
    let Some(tree) = Tree::mount() else { return };
    let (mounted, local) = tree.both("data1", "one", "way/deep");
    fs::create_dir_all(&local).expect("made");
    (0..3_000).for_each(|i| fs::write(local.join(format!("f{i}")), b"x").expect("written"));
    wait_until("the directory is seen", || mounted.exists());
    let before = tree.known();
    // Shown one by one, and then by a listing that the kernel asks attributes with.
    (0..1_000).for_each(|i| assert!(mounted.join(format!("f{i}")).exists()));
    assert!(tree.known() >= before + 1_000, "{} after {before}", tree.known());
    let open = File::open(mounted.join("f7")).expect("opened");
    let listed = fs::read_dir(&mounted).expect("listed");
    assert_eq!(listed.filter(|entry| entry.as_ref().is_ok_and(|e| e.metadata().is_ok())).count(), 3_000);
    assert!(tree.known() >= before + 3_000, "{} after {before}", tree.known());
    tree.shrink();
    wait_until("the kernel has forgotten them", || tree.known() < 50);
    let mut byte = [0; 1];
    open.read_exact_at(&mut byte, 0).expect("the open file is still known");
    // The directory moves with a child that is known, and with those that are not.
    let (moved, moved_local) = tree.both("data1", "one", "elsewhere");
    fs::rename(mounted.parent().expect("has one"), &moved).expect("renamed");
    assert_eq!(open.metadata().expect("status").len(), 1);
    fs::write(moved.join("deep/f7"), b"changed").expect("written");
    assert_eq!(fs::read(moved_local.join("deep/f7")).expect("is there"), b"changed");
    assert_eq!(fs::read(moved.join("deep/f2999")).expect("looked up anew"), b"x");
    drop(open);
    // Names come and go: nothing stays.
    for round in 0..20 {
        for i in 0..50 {
            let path = moved.join(format!("g{i}"));
            fs::write(&path, b"y").expect("written");
            fs::rename(&path, moved.join(format!("h{round}-{i}"))).expect("renamed");
            fs::remove_file(moved.join(format!("h{round}-{i}"))).expect("removed");
        }
    }
    tree.shrink();
    wait_until("those are forgotten, too", || tree.known() < 50);
}

#[test]
fn two_names_of_one_file_are_one_inode() {
    let Some(tree) = Tree::mount() else { return };
    let (mounted, local) = tree.both("data1", "one", "a");
    fs::write(&local, b"first").expect("written");
    fs::hard_link(&local, local.with_file_name("b")).expect("linked");
    wait_until("both are seen", || mounted.exists() && mounted.with_file_name("b").exists());
    let inode = |name: &str| mounted.with_file_name(name).metadata().expect("status").ino();
    assert_eq!(inode("a"), inode("b"));
    assert_eq!(tree.names("data1/one"), ["a", "b"]);
    let reader = File::open(mounted.with_file_name("b")).expect("opened");
    fs::write(&mounted, b"second").expect("written");
    let mut bytes = [0; 6];
    reader.read_exact_at(&mut bytes, 0).expect("read");
    assert_eq!(&bytes, b"second", "written by one name, read by the other at once");
    fs::remove_file(&mounted).expect("removed");
    assert_eq!(fs::read(mounted.with_file_name("b")).expect("the other name stays"), b"second");
    assert_eq!(mounted.with_file_name("b").metadata().expect("status").nlink(), 1);
}

#[test]
fn a_node_that_is_down_gives_errors_for_its_own_subtree_only_and_soon() {
    let Some(tree) = Tree::mount() else { return };
    let (mounted, _) = tree.both("data1", "one", "f");
    let (other, _) = tree.both("data2", "two", "f");
    fs::write(&mounted, b"one").expect("written");
    fs::write(&other, b"two").expect("written");
    tree.cluster.kill("data1");
    let seconds = |since_ns: u64| (SystemClock.now_ns() - since_ns) as f64 / 1e9;
    std::thread::scope(|scope| {
        let start_ns = SystemClock.now_ns();
        let silent: Vec<_> = (0..60)
            .map(|i| {
                scope.spawn({
                    let path = mounted.with_file_name(format!("none{i}"));
                    move || fs::metadata(path).is_err()
                })
            })
            .collect();
        // While all of them wait, the other node answers; the limit is far beyond what it takes.
        assert_eq!(fs::read(&other).expect("the other node serves"), b"two");
        assert!(silent.into_iter().all(|thread| thread.join().expect("ended")));
        assert!(seconds(start_ns) < 60.0, "{}", seconds(start_ns));
    });
    assert_eq!(tree.names(""), ["data1", "data2"]);
    fs::write(&other, b"again").expect("written");
    tree.cluster.up(&[]);
    wait_until("the node is back", || fs::read(&mounted).is_ok_and(|bytes| bytes == b"one"));
}

#[test]
fn a_file_gets_further_names_that_are_the_same_file() {
    let Some(tree) = Tree::mount() else { return };
    let (mounted, local) = tree.both("data1", "one", "a");
    fs::write(&mounted, b"first").expect("written");
    let (second, second_local) = tree.both("data1", "one", "b");
    fs::hard_link(&mounted, &second).expect("linked");
    let inode = |path: &Path| path.metadata().expect("status").ino();
    assert_eq!(inode(&mounted), inode(&second));
    assert_eq!((mounted.metadata().expect("status").nlink(), inode(&local)), (2, inode(&second_local)));
    fs::write(&second, b"second").expect("written");
    assert_eq!(fs::read(&mounted).expect("read"), b"second");
    let crossed = fs::hard_link(&mounted, tree.both("data2", "two", "c").0).expect_err("another area");
    assert_eq!(crossed.kind(), ErrorKind::CrossesDevices);
    assert_eq!(fs::hard_link(&mounted, &second).expect_err("is there").kind(), ErrorKind::AlreadyExists);
    let above = fs::hard_link(&mounted, tree.mountpoint.join("data1/new")).expect_err("is fixed");
    assert_eq!(above.kind(), ErrorKind::PermissionDenied);
    fs::remove_file(&mounted).expect("removed");
    assert_eq!(
        (fs::read(&second).expect("read"), second.metadata().expect("status").nlink()),
        (b"second".into(), 1)
    );
    // After the kernel has forgotten all of it the names are the file's still.
    fs::hard_link(&second, &mounted).expect("linked");
    tree.shrink();
    wait_until("it is forgotten", || tree.known() < 20);
    assert_eq!(inode(&mounted), inode(&second));
}

#[test]
fn attributes_are_those_of_the_nodes_files() {
    let Some(tree) = Tree::mount() else { return };
    let (mounted, local) = tree.both("data1", "one", "f");
    fs::write(&mounted, b"x").expect("written");
    let command = |program: &str, arguments: &[&str]| {
        let output = std::process::Command::new(program).args(arguments).run_bounded();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let set = |path: &Path, name: &str, value: &str, flags| {
        rustix::fs::setxattr(path, name, value.as_bytes(), flags)
    };
    let get = |path: &Path, name: &str| {
        let mut value = [0; 100];
        rustix::fs::getxattr(path, name, &mut value).map(|length| value[..length].to_vec())
    };
    use rustix::fs::XattrFlags;
    use rustix::io::Errno;
    set(&mounted, "user.comment", "from afar", XattrFlags::CREATE).expect("set");
    assert_eq!(get(&local, "user.comment"), Ok(b"from afar".to_vec()));
    assert_eq!(set(&mounted, "user.comment", "", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(set(&mounted, "user.none", "", XattrFlags::REPLACE), Err(Errno::NODATA));
    set(&local, "user.local", "of the node", XattrFlags::empty()).expect("set");
    assert_eq!(get(&mounted, "user.local"), Ok(b"of the node".to_vec()));
    assert_eq!(get(&mounted, "user.none"), Err(Errno::NODATA));
    let mut short = [0; 3];
    assert_eq!(rustix::fs::getxattr(&mounted, "user.local", &mut short), Err(Errno::RANGE));
    let mut names = [0; 1000];
    let length = rustix::fs::listxattr(&mounted, &mut names[..]).expect("listed");
    let names: Vec<&[u8]> = names[..length].split(|&byte| byte == 0).collect();
    assert!(names.contains(&&b"user.comment"[..]) && names.contains(&&b"user.local"[..]));
    rustix::fs::removexattr(&mounted, "user.local").expect("removed");
    assert_eq!(get(&local, "user.local"), Err(Errno::NODATA));
    // Modes, times and owners as they were, and copied by programs together with attributes.
    let (copy, copy_local) = tree.both("data2", "two", "f");
    let (from, to) = (mounted.to_string_lossy().into_owned(), copy.to_string_lossy().into_owned());
    assert!(command("chmod", &["640", &from]).0 && command("touch", &["-d", "@1000000", &from]).0);
    assert!(command("cp", &["--preserve=mode,timestamps,xattr", &from, &to]).0);
    assert_eq!(get(&copy_local, "user.comment"), Ok(b"from afar".to_vec()));
    let status = copy_local.metadata().expect("status");
    assert_eq!((status.mode() & 0o7777, status.mtime()), (0o640, 1_000_000));
    assert!(command("chown", &["0:0", &from]).0, "to whom it belongs already");
    assert!(!command("chown", &["12345", &from]).0, "owners stay");
    // The tree's own levels have none.
    assert_eq!(get(&tree.mountpoint.join("data1"), "user.x"), Err(Errno::NODATA));
    assert_eq!(set(&tree.mountpoint.join("data1"), "user.x", "y", XattrFlags::empty()), Err(Errno::PERM));
}
