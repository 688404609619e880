//! Names, types and attributes as they should be, and what each operation does to them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The directory that a writer has to itself.
pub(crate) const ROOT: u64 = 1;

/// Stands for the permission bits of what a command makes in several steps.
pub(crate) const ANY_MODE: u32 = u32::MAX;

/// What a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
}

/// A node with a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Node {
    /// What it is.
    pub(crate) kind: Kind,
    /// Permission bits; 0 for links, which have none. [`ANY_MODE`] where they are not promised.
    pub(crate) mode: u32,
    /// The value of `user.power`.
    pub(crate) attribute: Option<u8>,
    /// What a link points to.
    pub(crate) target: Option<String>,
    /// What a directory contains.
    pub(crate) entries: BTreeMap<String, u64>,
}

impl Node {
    /// One without anything in it.
    pub(crate) fn new(kind: Kind, mode: u32) -> Node {
        Node { kind, mode, attribute: None, target: None, entries: BTreeMap::new() }
    }
}

/// A name in a directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) struct Place {
    /// The directory.
    pub(crate) directory: u64,
    /// The name in it.
    pub(crate) name: String,
}

/// Something that a writer does. Nodes are named by numbers of the writer's own, so that a name can be given before
/// the node is made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Op {
    /// open(2) with O_CREAT and O_EXCL; the file stays open.
    Create { at: Place, node: u64, mode: u32 },
    /// `vazao cp` of a local file.
    Copy { at: Place, node: u64, length: u64, stamp: u64 },
    /// mkdir(2)
    MakeDirectory { at: Place, node: u64, mode: u32 },
    /// symlink(2)
    MakeLink { at: Place, node: u64, target: String },
    /// link(2)
    Link { node: u64, at: Place },
    /// unlink(2)
    Unlink { at: Place },
    /// rmdir(2)
    RemoveDirectory { at: Place },
    /// rename(2), of a file also over another one.
    Rename { from: Place, to: Place },
    /// renameat2(2) with RENAME_EXCHANGE
    Exchange { one: Place, other: Place },
    /// chmod(2)
    SetMode { node: u64, mode: u32 },
    /// setxattr(2)
    SetAttribute { node: u64, value: u8 },
    /// pwrite(2)
    Write { file: u64, offset: u64, length: u64, stamp: u64 },
    /// write(2) with O_APPEND
    Append { file: u64, length: u64, stamp: u64 },
    /// ftruncate(2)
    Truncate { file: u64, length: u64 },
    /// fsync(2) or fdatasync(2) of a file
    SyncFile { file: u64 },
    /// close(2)
    Close { file: u64 },
    /// fsync(2) of a directory
    SyncDirectory { directory: u64 },
}

impl Op {
    /// True when it changes names or attributes, which the tree shows.
    pub(crate) fn changes_tree(&self) -> bool {
        self.file().is_none() && !matches!(self, Op::SyncDirectory { .. }) || matches!(self, Op::Copy { .. })
    }

    /// The file whose contents it changes, syncs or closes.
    pub(crate) fn file(&self) -> Option<u64> {
        match *self {
            Op::Write { file, .. }
            | Op::Append { file, .. }
            | Op::Truncate { file, .. }
            | Op::SyncFile { file }
            | Op::Close { file } => Some(file),
            Op::Copy { node, .. } => Some(node),
            _ => None,
        }
    }

    /// The node that it makes.
    pub(crate) fn made(&self) -> Option<u64> {
        match *self {
            Op::Create { node, .. }
            | Op::Copy { node, .. }
            | Op::MakeDirectory { node, .. }
            | Op::MakeLink { node, .. } => Some(node),
            _ => None,
        }
    }
}

/// Nodes by number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Tree {
    /// All that have a name, and the root.
    pub(crate) nodes: BTreeMap<u64, Node>,
}

/// An operation that this tree does not allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Refused;

type Outcome = Result<(), Refused>;

impl Default for Tree {
    fn default() -> Tree {
        Tree { nodes: BTreeMap::from([(ROOT, Node::new(Kind::Directory, 0o755))]) }
    }
}

impl Tree {
    /// What a name leads to.
    pub(crate) fn at(&self, place: &Place) -> Option<u64> {
        self.nodes.get(&place.directory)?.entries.get(&place.name).copied()
    }

    /// All nodes of a kind.
    pub(crate) fn of_kind(&self, kind: Kind) -> Vec<u64> {
        self.nodes.iter().filter(|(_, node)| node.kind == kind).map(|(number, _)| *number).collect()
    }

    /// All names, in the order of directories.
    pub(crate) fn places(&self) -> Vec<(Place, u64)> {
        let of = |(directory, node): (&u64, &Node)| {
            let directory = *directory;
            let place =
                move |(name, child): (&String, &u64)| (Place { directory, name: name.clone() }, *child);
            node.entries.iter().map(place).collect::<Vec<_>>()
        };
        self.nodes.iter().flat_map(of).collect()
    }

    /// The path of a node from the root, by any of its names; `None` when no name leads to it.
    pub(crate) fn path(&self, node: u64) -> Option<String> {
        if node == ROOT {
            return Some(String::new());
        }
        let (place, _) = self.places().into_iter().find(|(_, child)| *child == node)?;
        self.path_of(&place)
    }

    /// The path of a name from the root.
    pub(crate) fn path_of(&self, place: &Place) -> Option<String> {
        let above = self.path(place.directory)?;
        Some(if above.is_empty() { place.name.clone() } else { format!("{above}/{}", place.name) })
    }

    /// True when `node` is `directory` or lies below it.
    pub(crate) fn is_within(&self, node: u64, directory: u64) -> bool {
        node == directory
            || self.nodes.get(&directory).is_some_and(|it| {
                it.entries.values().any(|child| {
                    let is_directory = self.nodes.get(child).is_some_and(|it| it.kind == Kind::Directory);
                    is_directory && self.is_within(node, *child)
                })
            })
    }

    /// Does it. What changes contents or syncs does nothing here.
    pub(crate) fn apply(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Create { at, node, mode } => self.add(at, *node, Node::new(Kind::File, *mode)),
            Op::Copy { at, node, .. } => self.add(at, *node, Node::new(Kind::File, ANY_MODE)),
            Op::MakeDirectory { at, node, mode } => self.add(at, *node, Node::new(Kind::Directory, *mode)),
            Op::MakeLink { at, node, target } => {
                let link = Node { target: Some(target.clone()), ..Node::new(Kind::Link, 0) };
                self.add(at, *node, link)
            }
            Op::Link { node, at } => self.link(*node, at),
            Op::Unlink { at } => self.remove(at, false),
            Op::RemoveDirectory { at } => self.remove(at, true),
            Op::Rename { from, to } => self.rename(from, to),
            Op::Exchange { one, other } => self.exchange(one, other),
            Op::SetMode { node, mode } => self.node(*node).map(|it| it.mode = *mode),
            Op::SetAttribute { node, value } => self.node(*node).map(|it| it.attribute = Some(*value)),
            _ => Ok(()),
        }
    }

    fn node(&mut self, number: u64) -> Result<&mut Node, Refused> {
        self.nodes.get_mut(&number).ok_or(Refused)
    }

    fn directory(&mut self, number: u64) -> Result<&mut Node, Refused> {
        self.node(number).and_then(|it| if it.kind == Kind::Directory { Ok(it) } else { Err(Refused) })
    }

    fn enter(&mut self, at: &Place, number: u64) -> Outcome {
        let directory = self.directory(at.directory)?;
        if directory.entries.contains_key(&at.name) {
            return Err(Refused);
        }
        directory.entries.insert(at.name.clone(), number);
        Ok(())
    }

    fn add(&mut self, at: &Place, number: u64, node: Node) -> Outcome {
        self.enter(at, number)?;
        self.nodes.insert(number, node);
        Ok(())
    }

    fn link(&mut self, number: u64, at: &Place) -> Outcome {
        let is_directory = self.node(number)?.kind == Kind::Directory;
        if is_directory { Err(Refused) } else { self.enter(at, number) }
    }

    fn remove(&mut self, at: &Place, is_directory: bool) -> Outcome {
        let number = self.at(at).ok_or(Refused)?;
        let node = self.node(number)?;
        if (node.kind == Kind::Directory) != is_directory || !node.entries.is_empty() {
            return Err(Refused);
        }
        self.directory(at.directory)?.entries.remove(&at.name);
        if !self.nodes.values().any(|node| node.entries.values().any(|child| *child == number)) {
            self.nodes.remove(&number);
        }
        Ok(())
    }

    fn rename(&mut self, from: &Place, to: &Place) -> Outcome {
        let moved = self.at(from).ok_or(Refused)?;
        let kind = self.node(moved)?.kind;
        if kind == Kind::Directory && self.is_within(to.directory, moved) {
            return Err(Refused);
        }
        match self.at(to) {
            Some(there) if there == moved => return Ok(()),
            Some(there) => {
                let there_is_directory = self.node(there)?.kind == Kind::Directory;
                if there_is_directory != (kind == Kind::Directory) {
                    return Err(Refused);
                }
                self.remove(to, there_is_directory)?;
            }
            None => {}
        }
        self.enter(to, moved)?;
        self.directory(from.directory)?.entries.remove(&from.name);
        Ok(())
    }

    fn exchange(&mut self, one: &Place, other: &Place) -> Outcome {
        let (first, second) = (self.at(one).ok_or(Refused)?, self.at(other).ok_or(Refused)?);
        let is_below = |node: u64, place: &Place| self.is_within(place.directory, node);
        let is_directory = |node: u64| self.nodes.get(&node).is_some_and(|it| it.kind == Kind::Directory);
        if is_directory(first) && is_below(first, other) || is_directory(second) && is_below(second, one) {
            return Err(Refused);
        }
        self.directory(one.directory)?.entries.insert(one.name.clone(), second);
        self.directory(other.directory)?.entries.insert(other.name.clone(), first);
        Ok(())
    }

    /// Which node of `found`, a tree by inode numbers, each node of this one is, when the two have the same names,
    /// types and attributes. `known` has the inodes that are known already.
    pub(crate) fn is_as(&self, found: &Tree, root: u64, known: &BTreeMap<u64, u64>) -> Result<Same, String> {
        let mut same = Same { inodes: BTreeMap::from([(ROOT, root)]) };
        let mut left = vec![(ROOT, root, "/".to_owned())];
        while let Some((mine, theirs, path)) = left.pop() {
            let (Some(one), Some(two)) = (self.nodes.get(&mine), found.nodes.get(&theirs)) else {
                return Err(format!("{path}: has no inode"));
            };
            let is_as = (one.kind, one.attribute, &one.target) == (two.kind, two.attribute, &two.target);
            if !is_as || one.mode != two.mode && one.mode != ANY_MODE {
                return Err(format!("{path}: is {two:?}, not {one:?}"));
            }
            let names: std::collections::BTreeSet<&String> =
                one.entries.keys().chain(two.entries.keys()).collect();
            for name in names {
                let below = format!("{}/{name}", path.trim_end_matches('/'));
                let (mine, theirs) = match (one.entries.get(name), two.entries.get(name)) {
                    (Some(mine), Some(theirs)) => (*mine, *theirs),
                    (None, _) => return Err(format!("{below}: is there")),
                    (_, None) => return Err(format!("{below}: is missing")),
                };
                let expected = same.inodes.get(&mine).or(known.get(&mine)).copied();
                if expected.is_some_and(|inode| inode != theirs) {
                    return Err(format!("{below}: is inode {theirs}, not {expected:?}"));
                }
                if same.inodes.insert(mine, theirs).is_none() {
                    left.push((mine, theirs, below));
                }
            }
        }
        Ok(same)
    }
}

/// Two trees are the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Same {
    /// The inode of each node.
    pub(crate) inodes: BTreeMap<u64, u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(directory: u64, name: &str) -> Place {
        Place { directory, name: name.to_owned() }
    }

    fn tree() -> Tree {
        let mut tree = Tree::default();
        let ops = [
            Op::MakeDirectory { at: place(ROOT, "d"), node: 2, mode: 0o755 },
            Op::Create { at: place(2, "f"), node: 3, mode: 0o644 },
            Op::Create { at: place(ROOT, "g"), node: 4, mode: 0o600 },
            Op::Link { node: 3, at: place(ROOT, "h") },
        ];
        ops.iter().for_each(|op| tree.apply(op).expect("allowed"));
        tree
    }

    #[test]
    fn names_lead_to_the_same_node_until_the_last_is_gone() {
        let mut tree = tree();
        tree.apply(&Op::Unlink { at: place(2, "f") }).expect("there is another name");
        assert_eq!(tree.path(3).as_deref(), Some("h"));
        tree.apply(&Op::Rename { from: place(ROOT, "g"), to: place(ROOT, "h") }).expect("replaces");
        assert_eq!((tree.path(3), tree.path(4).as_deref()), (None, Some("h")));
        assert!(!tree.nodes.contains_key(&3));
    }

    #[test]
    fn what_no_file_system_allows_is_refused() {
        let mut tree = tree();
        let refused = [
            Op::RemoveDirectory { at: place(ROOT, "d") },
            Op::Unlink { at: place(ROOT, "d") },
            Op::Create { at: place(ROOT, "g"), node: 9, mode: 0 },
            Op::Rename { from: place(ROOT, "d"), to: place(2, "below") },
            Op::Rename { from: place(ROOT, "g"), to: place(ROOT, "d") },
            Op::Exchange { one: place(ROOT, "d"), other: place(2, "f") },
            Op::SetMode { node: 9, mode: 0 },
        ];
        let before = tree.clone();
        for op in refused {
            assert_eq!(tree.apply(&op), Err(Refused), "{op:?}");
        }
        assert_eq!(tree, before);
    }

    #[test]
    fn a_difference_in_anything_is_one() {
        let known = BTreeMap::new();
        let (one, found) = (tree(), tree());
        assert_eq!(one.is_as(&found, ROOT, &known).map(|same| same.inodes[&3]), Ok(3));
        let changes = [
            Op::SetMode { node: 3, mode: 0 },
            Op::SetAttribute { node: 4, value: 7 },
            Op::Unlink { at: place(ROOT, "g") },
            Op::Exchange { one: place(2, "f"), other: place(ROOT, "g") },
            Op::MakeLink { at: place(2, "l"), node: 8, target: "x".to_owned() },
        ];
        for change in changes {
            let mut found = tree();
            found.apply(&change).expect("allowed");
            assert!(one.is_as(&found, ROOT, &known).is_err(), "{change:?}");
        }
        assert!(one.is_as(&found, ROOT, &BTreeMap::from([(4, 99)])).is_err(), "another inode");
    }
}
