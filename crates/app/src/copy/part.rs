//! The name under which a file is written until it is whole: `.NAME.vazao-XXXXXXXXXXXX.part` beside the final one.
//!
//! Usually the name is the same for each copy to the same place by this user since this machine was started, so that a
//! copy finds what one before it left when it was killed, and removes it. Whether that one is really dead the kernel
//! knows: as long as a process writes a part it holds a socket with a name made of the part's (unix(7), abstract
//! namespace), which ends with the process. While another copy holds it, the part gets a random name.

use super::tree::{Found, Identity, Tree, join, split};
use crate::failure::{At, Outcome};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use vazao_model::limits::NAME_BYTES_MAX;

/// What is behind the name of a file that is not whole yet.
const SUFFIX: &str = ".part";

/// Directories whose inodes are remembered; a tree walk stays in few at a time.
const DIRECTORIES_MAX: usize = 1024;

/// Names parts, for one run of copies.
#[derive(Default)]
pub(crate) struct PartNames {
    directories: Mutex<HashMap<Vec<u8>, Option<Identity>>>,
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

/// 48 bits of a hash as hexadecimal digits. The same in every process of one version of this program; another
/// version merely finds nothing.
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
        let directory = self.directory(tree, split(path).0)?;
        // A mount of the volume and the volume itself have different names, for they have different directories. Of a
        // local directory only the inode: it may be mounted twice.
        let (kind, inode) = match directory {
            Identity::Local(_, inode) => ("local", inode),
            Identity::Volume(inode) => ("volume", inode),
            Identity::Area(_, _, inode) => ("area", inode),
            Identity::Ftp(number) => ("ftp", number),
            Identity::Standard(is_output) => ("standard", u64::from(is_output)),
        };
        let part = beside(path, &digest(&(origin()?, kind, version)));
        let name = format!("vazao-part-{}", digest(&(kind, inode, split(&part).1)));
        let address = SocketAddr::from_abstract_name(name).ok()?;
        Some(PartName { path: part, claim: Some(UnixDatagram::bind_addr(&address).ok()?) })
    }

    fn directory(&self, tree: &dyn Tree, path: &[u8]) -> Option<Identity> {
        let mut known = self.directories.lock();
        if let Some(identity) = known.get(path) {
            return *identity;
        }
        drop(known);
        let named = if path.is_empty() { b".".as_slice() } else { path };
        let identity = tree.find(named, true).ok().flatten().map(|found| found.identity);
        known = self.directories.lock();
        if known.len() >= DIRECTORIES_MAX {
            known.clear();
        }
        known.insert(path.to_vec(), identity);
        identity
    }
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
}
