//! What a mount shows of a directory: names, types, attributes and bytes.

use crate::check::contents::{PART_BYTES, Part};
use crate::check::names::Found;
use crate::failure::{Failure, Outcome};
use crate::load::access::ATTRIBUTE;
use crate::load::tree::{Kind, Node, Tree};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A directory of a mount, and where its files are to be read.
#[derive(Debug)]
pub(crate) struct Seen {
    /// Names and attributes.
    pub(crate) found: Found,
    /// A path of each file.
    pub(crate) files: BTreeMap<u64, PathBuf>,
}

/// Looks at everything below a directory. A name without its inode is a failure that says so.
pub(crate) fn look(directory: &Path) -> Outcome<Seen> {
    let shown = || Failure::at(directory.display());
    let root = fs::symlink_metadata(directory).map_err(shown())?.ino();
    let mut seen =
        Seen { found: Found { tree: Tree { nodes: BTreeMap::new() }, root }, files: BTreeMap::new() };
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        let (inode, mut node) = node(&path)?;
        if node.kind == Kind::Directory {
            for entry in fs::read_dir(&path).map_err(Failure::at(path.display()))? {
                let entry = entry.map_err(Failure::at(path.display()))?;
                let name = entry.file_name().to_string_lossy().into_owned();
                // The beginnings of copies that were not continued.
                if name.starts_with('.') && name.ends_with(".part") {
                    continue;
                }
                let below = fs::symlink_metadata(entry.path());
                let below = below.map_err(|e| {
                    Failure::new(format!("{}: a name without inode: {e}", entry.path().display()))
                })?;
                node.entries.insert(name, below.ino());
                left.push(entry.path());
            }
        }
        if node.kind == Kind::File {
            seen.files.insert(inode, path);
        }
        seen.found.tree.nodes.insert(inode, node);
    }
    Ok(seen)
}

fn node(path: &Path) -> Outcome<(u64, Node)> {
    let metadata = fs::symlink_metadata(path).map_err(Failure::at(path.display()))?;
    let kind = match metadata.file_type() {
        kind if kind.is_dir() => Kind::Directory,
        kind if kind.is_symlink() => Kind::Link,
        _ => Kind::File,
    };
    let mut node = Node::new(kind, if kind == Kind::Link { 0 } else { metadata.mode() & 0o7777 });
    if kind == Kind::Link {
        let target = fs::read_link(path).map_err(Failure::at(path.display()))?;
        node.target = Some(target.to_string_lossy().into_owned());
    }
    let mut value = [0; 8];
    match rustix::fs::lgetxattr(path, ATTRIBUTE, &mut value) {
        Ok(1) => node.attribute = Some(value[0]),
        Ok(length) => {
            return Err(Failure::new(format!("{}: an attribute of {length} bytes", path.display())));
        }
        Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP) => {}
        Err(errno) => return Err(Failure::at(path.display())(errno.into())),
    }
    Ok((metadata.ino(), node))
}

/// Reads a file part by part: what cannot be read of it hides nothing of the rest.
pub(crate) fn read(path: &Path) -> Outcome<(u64, Vec<Part>)> {
    let file = File::open(path).map_err(Failure::at(path.display()))?;
    let length = file.metadata().map_err(Failure::at(path.display()))?.len();
    let part = |start: u64| {
        let mut bytes = vec![0; (length - start).min(PART_BYTES as u64) as usize];
        file.read_exact_at(&mut bytes, start).map(|()| bytes).map_err(|error| error.to_string())
    };
    Ok((length, (0..length).step_by(PART_BYTES).map(part).collect()))
}
