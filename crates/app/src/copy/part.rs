//! The name under which a file is written until it is whole: `.NAME.vazao-XXXXXXXXXXXX.part` beside the final one.
//!
//! Usually the name is the same for each copy to the same place by this user since this machine was started, so that a
//! copy finds what one before it left when it was killed, and removes it. Whether that one is really dead the kernel
//! knows: as long as a process writes a part it holds a socket with a name made of the part's (unix(7), abstract
//! namespace), which ends with the process. While another copy holds it, the part gets a random name.
//!
//! Where parts are gone on with, the name tells versions of the source apart as well (`XXXXXXXXXXXX-VVVVVVVV`). What is
//! left of another version is of no use to any copy; the next one to the same name looks for it and removes it.

use super::tree::{Found, Identity, Tree, join, split};
use crate::failure::{At, Failure, Outcome};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use vazao_model::limits::NAME_BYTES_MAX;

/// What is behind the name of a file that is not whole yet.
const SUFFIX: &str = ".part";

/// What is in front of what tells parts apart.
const MARK: &[u8] = b".vazao-";

/// Directories whose inodes are remembered; a tree walk stays in few at a time.
const DIRECTORIES_MAX: usize = 1024;

/// Names of a directory that are looked at for what killed copies left: more would cost more than a copy.
const NAMES_MAX: usize = 20_000;

/// Names parts, for one run of copies.
#[derive(Default)]
pub(crate) struct PartNames {
    directories: Mutex<HashMap<Vec<u8>, Arc<Directory>>>,
}

/// A directory that files are copied into.
#[derive(Default)]
struct Directory {
    identity: Option<Identity>,
    /// Names of parts that lay in it when it was first looked at, of this and of other users.
    left: Vec<Vec<u8>>,
}

/// A name for a part.
pub(crate) struct PartName {
    /// The part's path.
    pub(crate) path: Vec<u8>,
    /// Held until the part has its final name or is removed; without it something there may be another's.
    pub(crate) claim: Option<UnixDatagram>,
}

/// What only copies of one user on this machine since its start, and in this network namespace, have in common: that
/// is as far as the sockets reach.
fn origin() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = fs::read_link("/proc/self/ns/net").ok()?;
    let user = rustix::process::geteuid().as_raw();
    Some(format!("{}/{}/{user}", boot.trim(), namespace.display()))
}

/// 48 bits of a hash as hexadecimal digits.
fn digest(of: &impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    format!("{:012x}", hasher.finish() >> 16)
}

/// What tells one version of a source from another.
pub(crate) fn version_of(shown: &str, found: &Found) -> u64 {
    let mut hasher = DefaultHasher::new();
    (shown, found.size, found.modified.seconds, found.modified.nanoseconds).hash(&mut hasher);
    hasher.finish()
}

/// What tells the parts of one user apart from those of others, and versions of a source. The same in every process of
/// one version of this program; another version merely finds nothing.
fn tag(kind: &str, version: u64) -> Option<String> {
    let of_user = digest(&(origin()?, kind));
    Some(if version == 0 { of_user } else { format!("{of_user}-{:08x}", version >> 32) })
}

/// The kind of a directory and its number there. A mount of the volume and the volume itself have different names, for
/// they have different directories. Of a local directory only the inode: it may be mounted twice.
fn number_of(directory: Identity) -> (&'static str, u64) {
    match directory {
        Identity::Local(_, inode) => ("local", inode),
        Identity::Volume(inode) => ("volume", inode),
        Identity::Area(_, _, inode) => ("area", inode),
        Identity::Ftp(number) => ("ftp", number),
        Identity::Standard(is_output) => ("standard", u64::from(is_output)),
    }
}

/// The right to write a part, until it is dropped; `None` while a living copy has it.
fn claim(kind: &str, inode: u64, part_name: &[u8]) -> Option<UnixDatagram> {
    let name = format!("vazao-part-{}", digest(&(kind, inode, part_name)));
    let address = SocketAddr::from_abstract_name(name).ok()?;
    UnixDatagram::bind_addr(&address).ok()
}

/// `.NAME.vazao-TAG.part` beside `path`, cut to fit the limit of names.
fn beside(path: &[u8], tag: &str) -> Vec<u8> {
    let tail = format!(".vazao-{tag}{SUFFIX}");
    let (directory, name) = split(path);
    let kept = name.len().min(NAME_BYTES_MAX - tail.len() - 1);
    join(directory, &[b".", &name[..kept], tail.as_bytes()].concat())
}

fn random_tag() -> Outcome<String> {
    let mut random = [0; 6];
    getrandom::fill(&mut random)
        .map_err(|e| std::io::Error::other(e.to_string()))
        .at("taking a random name")?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl PartNames {
    /// A name for the part of the file at `path` of `tree`. Where parts are gone on with, `version` tells those of one
    /// version of the source from others; elsewhere it is 0.
    pub(crate) fn name(&self, tree: &dyn Tree, path: &[u8], version: u64) -> Outcome<PartName> {
        if let Some(claimed) = self.claimed(tree, path, version) {
            return Ok(claimed);
        }
        Ok(PartName { path: beside(path, &random_tag()?), claim: None })
    }

    fn claimed(&self, tree: &dyn Tree, path: &[u8], version: u64) -> Option<PartName> {
        let directory = self.directory(tree, split(path).0);
        let (kind, inode) = number_of(directory.identity?);
        let tag = tag(kind, version)?;
        let part = beside(path, &tag);
        for left in &directory.left {
            if *left == split(&part).1 || !is_left_of(left, path, kind) {
                continue;
            }
            // Held while it is removed, so that no other copy begins it meanwhile.
            if let Some(_dead) = claim(kind, inode, left) {
                // Another copy may have removed it.
                let _ = tree.remove(&join(split(path).0, left));
            }
        }
        let claim = claim(kind, inode, split(&part).1)?;
        Some(PartName { path: part, claim: Some(claim) })
    }

    fn directory(&self, tree: &dyn Tree, path: &[u8]) -> Arc<Directory> {
        if let Some(known) = self.directories.lock().get(path) {
            return Arc::clone(known);
        }
        let named = if path.is_empty() { b".".as_slice() } else { path };
        let identity = tree.find(named, true).ok().flatten().map(|found| found.identity);
        let found = Arc::new(Directory { identity, left: parts_in(tree, named) });
        let mut known = self.directories.lock();
        if known.len() >= DIRECTORIES_MAX {
            known.clear();
        }
        known.insert(path.to_vec(), Arc::clone(&found));
        found
    }
}

/// The names of parts in a directory, as far as they can be listed.
fn parts_in(tree: &dyn Tree, directory: &[u8]) -> Vec<Vec<u8>> {
    let (mut left, mut seen) = (Vec::new(), 0);
    // Where it cannot be listed nothing is found, and the copy says what is wrong with the directory.
    let _ = tree.list(directory, &mut |names| {
        seen += names.len();
        left.extend(
            names.into_iter().filter(|name| name.ends_with(SUFFIX.as_bytes()) && name.starts_with(b".")),
        );
        if seen < NAMES_MAX { Ok(()) } else { Err(Failure::new("enough names were looked at")) }
    });
    left
}

/// Whether a name is that of a part of this user for the file at `path`, of whatever version.
fn is_left_of(left: &[u8], path: &[u8], kind: &str) -> bool {
    let Some(mine) = tag(kind, 0) else { return false };
    let Some(stem) = left.strip_suffix(SUFFIX.as_bytes()) else { return false };
    let mark = stem.windows(MARK.len()).rposition(|part| part == MARK);
    let text = mark.and_then(|mark| std::str::from_utf8(&stem[mark + MARK.len()..]).ok());
    let is_mine = |text: &&str| text.split('-').next() == Some(&mine);
    text.filter(is_mine).is_some_and(|text| split(&beside(path, text)).1 == left)
}

#[cfg(test)]
mod tests {
    use super::super::LocalTree;
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn the_temporary_name_lies_beside_the_final_one_and_fits() {
        let part = beside(b"/a/file", "0123456789ab");
        assert_eq!(part, b"/a/.file.vazao-0123456789ab.part");
        let long = [b"/a/".as_slice(), &[b'x'; 255]].concat();
        assert_eq!(split(&beside(&long, "0123456789ab")).1.len(), 255);
    }

    #[test]
    fn a_copy_beside_a_running_one_gets_another_name_and_the_one_after_it_the_same() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let path = scratch.path().join("file").as_os_str().as_bytes().to_vec();
        let first = PartNames::default().name(&LocalTree::default(), &path, 0).expect("named");
        let meanwhile = PartNames::default().name(&LocalTree::default(), &path, 0).expect("named");
        assert!(first.claim.is_some() && meanwhile.claim.is_none());
        assert_ne!(first.path, meanwhile.path);
        let before = first.path.clone();
        drop(first);
        let after = PartNames::default().name(&LocalTree::default(), &path, 0).expect("named");
        assert!(after.claim.is_some() && after.path == before);
    }

    /// What a killed `cp --resume` had left of 419 MB stayed for ever once the source had changed: the part's name was
    /// that of the version, and help said that the next copy removes it.
    #[test]
    fn what_is_left_of_another_version_is_removed_by_the_next_copy_to_the_same_name() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let paths = ["file", "file2", &"x".repeat(255)].map(|name| scratch.path().join(name));
        let paths = paths.map(|path| path.as_os_str().as_bytes().to_vec());
        let name = |path: &[u8], version: u64| {
            PartNames::default().name(&LocalTree::default(), path, version << 32).expect("named")
        };
        let is_there = |part: &[u8]| std::path::Path::new(std::ffi::OsStr::from_bytes(part)).exists();
        let killed = |path: &[u8], version: u64| {
            let part = name(path, version);
            fs::write(std::ffi::OsStr::from_bytes(&part.path), "some of it").expect("written");
            part
        };
        for path in &paths {
            for (before, after) in [(1, 2), (2, 0), (0, 3)] {
                let part = killed(path, before).path;
                // The same version finds it, to go on with it.
                assert!(name(path, before).path == part && is_there(&part));
                let next = name(path, after).path;
                assert!(next != part && !is_there(&part), "version {before}, then {after}");
            }
        }
        // Those of a living copy, of other names and of other users stay.
        let other = killed(&paths[1], 1).path;
        let living = killed(&paths[0], 1);
        let theirs = beside(&paths[0], "0123456789ab-01234567");
        fs::write(std::ffi::OsStr::from_bytes(&theirs), "theirs").expect("written");
        name(&paths[0], 2);
        assert!(is_there(&living.path) && is_there(&other) && is_there(&theirs));
    }
}
