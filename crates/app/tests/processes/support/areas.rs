//! A mount of all areas of a cluster of two nodes.

use super::{Cluster, text, wait_until};
use std::fs;
use std::path::{Path, PathBuf};

/// Two nodes with an area each, mounted together. Taken away however the test ends.
pub(crate) struct Tree {
    pub(crate) cluster: Cluster,
    pub(crate) mountpoint: PathBuf,
}

impl Tree {
    /// `None` where this machine cannot mount, or this user may not.
    pub(crate) fn mount() -> Option<Tree> {
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
    pub(crate) fn both(&self, node: &str, area: &str, path: &str) -> (PathBuf, PathBuf) {
        (self.mountpoint.join(node).join(area).join(path), self.cluster.local(area).join(path))
    }

    /// Places that the mount keeps at the moment.
    pub(crate) fn known(&self) -> u64 {
        let space = rustix::fs::statvfs(&self.mountpoint).expect("statvfs");
        space.f_files - space.f_ffree
    }

    /// Has the kernel evict unused names.
    pub(crate) fn shrink(&self) {
        // Every remount drops a file system's unused names (reconfigure_super in fs/super.c).
        let flags = rustix::mount::MountFlags::NOSUID | rustix::mount::MountFlags::NODEV;
        rustix::mount::mount_remount(&self.mountpoint, flags, c"").expect("remounted");
    }

    pub(crate) fn names(&self, path: &str) -> Vec<String> {
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
