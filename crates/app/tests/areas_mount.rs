//! `vazao mount --areas`: the directories of all nodes as one tree of this machine.

mod support;

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use support::{Cluster, noise, text, wait_until};
use vazao_meter::{Clock, SystemClock};

/// Two nodes with an area each, mounted together. Taken away however the test ends.
struct Tree {
    cluster: Cluster,
    mountpoint: PathBuf,
}

impl Tree {
    /// `None` where this machine cannot mount, or this user may not.
    fn mount() -> Option<Tree> {
        if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
            eprintln!("not tested: no /dev/fuse, or not root");
            return None;
        }
        let cluster = Cluster::start(2);
        for (node, area) in [("data1", "one"), ("data2", "two")] {
            let directory = cluster.local(area);
            fs::create_dir(&directory).expect("made");
            let (dir, directory) = (text(&cluster.dir()), text(&directory));
            cluster.ok(&["area", "add", area, &directory, "--dir", &dir, "--node", node]);
        }
        wait_until("both nodes have told", || {
            let listed = cluster.ok(&["area", "list"]);
            listed.contains("one") && listed.contains("two")
        });
        let mountpoint = cluster.local("grid");
        fs::create_dir(&mountpoint).expect("made");
        cluster.ok(&["mount", "--areas", &text(&mountpoint)]);
        Some(Tree { cluster, mountpoint })
    }

    /// A path of the tree, and the same file for local programs of its node.
    fn both(&self, node: &str, area: &str, path: &str) -> (PathBuf, PathBuf) {
        (self.mountpoint.join(node).join(area).join(path), self.cluster.local(area).join(path))
    }

    fn names(&self, path: &str) -> Vec<String> {
        let listed = fs::read_dir(self.mountpoint.join(path)).expect("listed");
        let mut names: Vec<String> =
            listed.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.cluster.run(&["umount", &text(&self.mountpoint)]);
    }
}

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
    // A local program writes; whoever opens the file then sees it, others at the latest when the second is over.
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
