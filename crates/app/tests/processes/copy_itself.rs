//! `vazao cp` of something into or onto itself, by two names for the same place.

use crate::support::areas::Tree;
use crate::support::{Cluster, noise_file, text};
use std::fs;
use std::path::{Path, PathBuf};

/// A cluster with the volume mounted, an area of a directory, one of a directory in it, and one that is the mount.
struct Twice {
    cluster: Cluster,
    mountpoint: PathBuf,
}

impl Twice {
    /// `None` where this machine cannot mount, or this user may not.
    fn start() -> Option<Twice> {
        if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
            eprintln!("not tested: no /dev/fuse, or not root");
            return None;
        }
        let cluster = Cluster::start(1);
        let mountpoint = cluster.local("here/mounted");
        fs::create_dir_all(&mountpoint).expect("made");
        fs::create_dir_all(cluster.local("area/inner")).expect("made");
        cluster.ok(&["mount", "vz:/", &text(&mountpoint)]);
        let twice = Twice { cluster, mountpoint };
        let dir = text(&twice.cluster.dir());
        for (area, path) in [("all", "area"), ("inner", "area/inner"), ("volume", "here/mounted")] {
            let path = text(&twice.cluster.local(path));
            twice.cluster.ok(&["area", "add", area, &path, "--dir", &dir, "--node", "data1"]);
        }
        Some(twice)
    }

    fn local(&self, path: &str) -> String {
        text(&self.cluster.local(path))
    }

    /// The names below a directory of this machine.
    fn names(&self, path: &str) -> Vec<String> {
        let listed = fs::read_dir(self.cluster.local(path)).expect("listed");
        let mut names: Vec<String> =
            listed.map(|entry| entry.expect("one").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Drop for Twice {
    fn drop(&mut self) {
        // An exported directory is in use, and what is in use is not unmounted.
        let dir = text(&self.cluster.dir());
        self.cluster.run(&["area", "remove", "volume", "--dir", &dir, "--node", "data1"]);
        self.cluster.run(&["umount", &text(&self.mountpoint)]);
    }
}

/// A copy of a mount into the volume, and of a directory into its area, went on until the disk was full: 22,157
/// directories in a minute. Only paths of one kind were compared.
#[test]
fn a_tree_is_not_copied_into_itself_by_another_name() {
    let Some(twice) = Twice::start() else { return };
    let cluster = &twice.cluster;
    cluster.ok(&["mkdir", "-p", "vz:/tree/deep"]);
    let file = noise_file(&cluster.local("file"), 1000);
    cluster.ok(&["cp", &file, "vz:/tree/file"]);
    cluster.ok(&["cp", &file, "data1:/all/file"]);
    fs::create_dir(cluster.local("area/deep")).expect("made");
    std::os::unix::fs::symlink("mounted/tree/deep", cluster.local("here/link")).expect("linked");
    let (mount, area) = (twice.local("here/mounted"), twice.local("area"));
    for (from, to) in [
        (mount.clone(), "vz:/backup".to_owned()),
        (format!("{mount}/tree"), "vz:/tree/deep/backup".to_owned()),
        (format!("{mount}/tree"), "vz:/tree/deep".to_owned()),
        ("vz:/tree".to_owned(), format!("{mount}/tree/deep/backup")),
        ("vz:/".to_owned(), format!("{mount}/backup")),
        (format!("{mount}/tree"), twice.local("here/link/backup")),
        (area.clone(), "data1:/all/backup".to_owned()),
        ("data1:/all".to_owned(), format!("{area}/backup")),
        ("data1:/all/deep".to_owned(), format!("{area}/deep")),
        // By jobs of the node.
        ("data1:/volume".to_owned(), "vz:/backup".to_owned()),
        ("vz:/tree".to_owned(), "data1:/volume/tree/deep/backup".to_owned()),
        ("data1:/all/inner".to_owned(), "data1:/inner/backup".to_owned()),
    ] {
        let said = cluster.fails(&["cp", "-r", &from, &to]);
        assert!(said.contains("into itself") || said.contains("same file"), "{from} to {to}: {said}");
    }
    assert_eq!(cluster.ok(&["ls", "vz:/"]), "tree\n");
    assert_eq!(cluster.ok(&["ls", "vz:/tree"]), "deep\nfile\n");
    assert_eq!(cluster.ok(&["ls", "vz:/tree/deep"]), "");
    assert_eq!(twice.names("area"), ["deep", "file", "inner"]);
    assert_eq!(twice.names("area/inner").len() + twice.names("area/deep").len(), 0);
}

/// With the volume mounted somewhere below what was copied the same happened, and no path said so beforehand.
#[test]
fn what_is_mounted_below_a_tree_is_not_copied_into_itself() {
    let Some(twice) = Twice::start() else { return };
    let cluster = &twice.cluster;
    fs::write(cluster.local("here/beside"), "copied").expect("written");
    cluster.ok(&["mkdir", "vz:/other"]);
    let said = cluster.fails(&["cp", "-r", &twice.local("here"), "vz:/backup"]);
    assert!(said.contains("here/mounted/backup: cannot be copied into itself"), "{said}");
    assert_eq!(cluster.ok(&["ls", "vz:/backup"]), "beside\nmounted\n");
    assert_eq!(cluster.ok(&["ls", "vz:/backup/mounted"]), "other\n");
    let said = cluster.fails(&["cp", "-r", &twice.local("area"), "data1:/inner/backup"]);
    assert!(said.contains("inner/backup: cannot be copied into itself"), "{said}");
    assert_eq!(twice.names("area/inner/backup/inner").len(), 0);
}

/// A file that was copied onto itself by another name was read, written again and lost its hard links.
#[test]
fn a_file_is_not_copied_onto_itself_by_another_name() {
    let Some(twice) = Twice::start() else { return };
    let cluster = &twice.cluster;
    let file = noise_file(&cluster.local("area/file"), 1000);
    fs::hard_link(&file, cluster.local("area/inner/hard")).expect("linked");
    cluster.ok(&["cp", &file, "vz:/file"]);
    cluster.ok(&["ln", "vz:/file", "vz:/hard"]);
    let mounted = format!("{}/file", text(&twice.mountpoint));
    let inode = || cluster.ok(&["stat", "--json", "vz:/file"]);
    let before = inode();
    for (from, to) in [
        ("vz:/file", mounted.as_str()),
        (&mounted, "vz:/file"),
        (&mounted, "vz:/hard"),
        ("vz:/file", "data1:/volume/hard"),
        ("data1:/volume/file", "vz:/hard"),
        (&file, "data1:/all/file"),
        ("data1:/inner/hard", &file),
        ("data1:/all/file", "data1:/inner/hard"),
    ] {
        let said = cluster.fails(&["cp", from, to]);
        assert!(said.contains("the same file"), "{from} to {to}: {said}");
    }
    assert_eq!(inode(), before);
    // In a tree that is copied onto another one such a file is left out, and named.
    fs::create_dir(cluster.local("area/tree")).expect("made");
    fs::hard_link(&file, cluster.local("area/tree/same")).expect("linked");
    fs::create_dir(cluster.local("area/inner/tree")).expect("made");
    fs::hard_link(&file, cluster.local("area/inner/tree/same")).expect("linked");
    let said = cluster.fails(&["cp", "-r", &twice.local("area/tree"), "data1:/inner"]);
    assert!(said.contains("tree/same: is the file to be copied itself"), "{said}");
    // Other files of the same size, and other clusters' files of the same number, are copied.
    let other = noise_file(&cluster.local("other"), 1000);
    cluster.ok(&["cp", &other, "vz:/file"]);
    cluster.ok(&["cp", "vz:/file", &mounted.replace("/file", "/third")]);
}

/// The mount of all areas says of its files what their nodes say.
#[test]
fn a_file_of_the_mount_of_all_areas_is_that_of_its_area() {
    let Some(tree) = Tree::mount() else { return };
    let (mounted, local) = tree.both("data1", "one", "file");
    fs::write(&local, "here").expect("written");
    for other in [text(&local), "data1:/one/file".to_owned()] {
        let said = tree.cluster.fails(&["cp", &text(&mounted), &other]);
        assert!(said.contains("the same file"), "{other}: {said}");
    }
    let root = text(&tree.mountpoint.join("data1/one"));
    let said = tree.cluster.fails(&["cp", "-r", &root, "data1:/one/backup"]);
    assert!(said.contains("into itself"), "{said}");
}
