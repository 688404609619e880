//! The namespace as it should be: a tree in memory, and what each operation does to it.

use std::collections::BTreeMap;
use vazao_client::{Client, NewInode, RenameMode, Result, XattrMode};
use vazao_model::ids::ROOT;
use vazao_model::{Code, FileKind, InodeId};

/// Stands for the inode of a create whose answer was lost.
pub const UNKNOWN: u64 = 0;

/// An inode that has a name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Node {
    /// Its type.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    /// Names, or 2 plus subdirectories.
    pub links: u32,
    /// Length of a file.
    pub size: u64,
    /// Entries of a directory.
    pub entries: BTreeMap<Vec<u8>, u64>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// All inodes that have names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tree {
    /// By inode.
    pub nodes: BTreeMap<u64, Node>,
}

/// A place in the tree: the directory and the name in it.
pub type Place = (u64, Vec<u8>);

/// A change of the namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// A new file, directory or link with these permission bits.
    Create(Place, FileKind, u32),
    /// A further name.
    Link(u64, Place),
    /// unlink
    Unlink(Place),
    /// rmdir
    RemoveDirectory(Place),
    /// rename
    Rename(Place, Place, RenameMode),
    /// chmod
    SetMode(u64, u32),
    /// An extended attribute.
    SetXattr(u64, Vec<u8>, Vec<u8>, XattrMode),
    /// No extended attribute.
    RemoveXattr(u64, Vec<u8>),
}

impl Default for Tree {
    fn default() -> Tree {
        let root = Node { kind: FileKind::Directory, mode: 0o755, links: 2, ..Node::default() };
        Tree { nodes: BTreeMap::from([(ROOT.0, root)]) }
    }
}

type Outcome = std::result::Result<(), Code>;

impl Tree {
    /// The inode at a place.
    pub fn at(&self, place: &Place) -> Option<u64> {
        self.nodes.get(&place.0)?.entries.get(&place.1).copied()
    }

    /// All inodes of a type.
    pub fn of_kind(&self, kind: FileKind) -> Vec<u64> {
        self.nodes.iter().filter(|(_, node)| node.kind == kind).map(|(id, _)| *id).collect()
    }

    fn is_directory(&self, inode: u64) -> bool {
        self.nodes.get(&inode).is_some_and(|node| node.kind == FileKind::Directory)
    }

    fn directory(&mut self, inode: u64) -> std::result::Result<&mut Node, Code> {
        let node = self.nodes.get_mut(&inode).ok_or(Code::NotFound)?;
        if node.kind == FileKind::Directory { Ok(node) } else { Err(Code::NotDirectory) }
    }

    fn node(&mut self, inode: u64) -> std::result::Result<&mut Node, Code> {
        self.nodes.get_mut(&inode).ok_or(Code::NotFound)
    }

    /// Carries out a change; `created` is the inode that a create has made. Errors say only that it is refused.
    pub fn apply(&mut self, change: &Change, created: u64) -> Outcome {
        match change {
            Change::Create(place, kind, mode) => self.create(place, *kind, *mode, created),
            Change::Link(inode, place) => self.link(*inode, place),
            Change::Unlink(place) => self.unlink(place, false),
            Change::RemoveDirectory(place) => self.unlink(place, true),
            Change::Rename(from, to, mode) => self.rename(from, to, *mode),
            Change::SetMode(inode, mode) => self.node(*inode).map(|node| node.mode = *mode),
            Change::SetXattr(inode, name, value, mode) => self.set_xattr(*inode, name, value, *mode),
            Change::RemoveXattr(inode, name) => {
                self.node(*inode)?.xattrs.remove(name).map(|_| ()).ok_or(Code::NoAttribute)
            }
        }
    }

    fn create(&mut self, place: &Place, kind: FileKind, mode: u32, created: u64) -> Outcome {
        let directory = self.directory(place.0)?;
        if directory.entries.contains_key(&place.1) {
            return Err(Code::Exists);
        }
        directory.entries.insert(place.1.clone(), created);
        directory.links += u32::from(kind == FileKind::Directory);
        let links = if kind == FileKind::Directory { 2 } else { 1 };
        let size = if kind == FileKind::Symlink { LINK_TARGET.len() as u64 } else { 0 };
        self.nodes.insert(created, Node { kind, mode, links, size, ..Node::default() });
        Ok(())
    }

    fn link(&mut self, inode: u64, place: &Place) -> Outcome {
        if self.is_directory(inode) {
            return Err(Code::NotPermitted);
        }
        self.node(inode)?;
        let directory = self.directory(place.0)?;
        if directory.entries.contains_key(&place.1) {
            return Err(Code::Exists);
        }
        directory.entries.insert(place.1.clone(), inode);
        self.node(inode)?.links += 1;
        Ok(())
    }

    fn unlink(&mut self, place: &Place, directory: bool) -> Outcome {
        self.directory(place.0)?;
        let inode = self.at(place).ok_or(Code::NotFound)?;
        match (self.is_directory(inode), directory) {
            (true, false) => return Err(Code::IsDirectory),
            (false, true) => return Err(Code::NotDirectory),
            (true, true) if !self.node(inode)?.entries.is_empty() => return Err(Code::NotEmpty),
            _ => {}
        }
        self.drop_name(place)
    }

    /// Takes a name away, and the inode with its last one.
    fn drop_name(&mut self, place: &Place) -> Outcome {
        let inode = self.at(place).ok_or(Code::NotFound)?;
        let is_directory = self.is_directory(inode);
        let directory = self.directory(place.0)?;
        directory.entries.remove(&place.1);
        directory.links -= u32::from(is_directory);
        let node = self.node(inode)?;
        node.links -= 1;
        if is_directory || node.links == 0 {
            self.nodes.remove(&inode);
        }
        Ok(())
    }

    /// True when `inode` lies in `directory` or below it, or is it.
    fn is_within(&self, inode: u64, directory: u64) -> bool {
        inode == directory
            || self.nodes.get(&directory).is_some_and(|node| {
                node.entries.values().any(|&child| self.is_directory(child) && self.is_within(inode, child))
            })
    }

    fn rename(&mut self, from: &Place, to: &Place, mode: RenameMode) -> Outcome {
        self.directory(from.0)?;
        self.directory(to.0)?;
        let moved = self.at(from).ok_or(Code::NotFound)?;
        let there = self.at(to);
        if self.is_directory(moved) && self.is_within(to.0, moved) {
            return Err(Code::Invalid);
        }
        match (mode, there) {
            (RenameMode::NoReplace, Some(_)) => return Err(Code::Exists),
            (RenameMode::Exchange, None) => return Err(Code::NotFound),
            (RenameMode::Exchange, Some(there)) => return self.exchange(from, moved, to, there),
            (_, Some(there)) if there == moved => return Ok(()),
            (_, Some(there)) => self.replace(moved, there, to)?,
            (_, None) => {}
        }
        self.move_name(from, to, moved)
    }

    fn replace(&mut self, moved: u64, there: u64, to: &Place) -> Outcome {
        match (self.is_directory(moved), self.is_directory(there)) {
            (true, false) => Err(Code::NotDirectory),
            (false, true) => Err(Code::IsDirectory),
            (true, true) if !self.node(there)?.entries.is_empty() => Err(Code::NotEmpty),
            _ => self.drop_name(to),
        }
    }

    fn move_name(&mut self, from: &Place, to: &Place, moved: u64) -> Outcome {
        let subdirectories = u32::from(self.is_directory(moved));
        let old = self.directory(from.0)?;
        old.entries.remove(&from.1);
        old.links -= subdirectories;
        let new = self.directory(to.0)?;
        new.entries.insert(to.1.clone(), moved);
        new.links += subdirectories;
        Ok(())
    }

    fn exchange(&mut self, from: &Place, moved: u64, to: &Place, there: u64) -> Outcome {
        if self.is_directory(there) && self.is_within(from.0, there) {
            return Err(Code::Invalid);
        }
        let (one, two) = (u32::from(self.is_directory(moved)), u32::from(self.is_directory(there)));
        let old = self.directory(from.0)?;
        old.entries.insert(from.1.clone(), there);
        old.links = old.links + two - one;
        let new = self.directory(to.0)?;
        new.entries.insert(to.1.clone(), moved);
        new.links = new.links + one - two;
        Ok(())
    }

    fn set_xattr(&mut self, inode: u64, name: &[u8], value: &[u8], mode: XattrMode) -> Outcome {
        let xattrs = &mut self.node(inode)?.xattrs;
        match (mode, xattrs.contains_key(name)) {
            (XattrMode::Create, true) => Err(Code::Exists),
            (XattrMode::Replace, false) => Err(Code::NoAttribute),
            _ => {
                xattrs.insert(name.to_vec(), value.to_vec());
                Ok(())
            }
        }
    }

    /// The same tree with `inode` in the place of [`UNKNOWN`].
    pub fn with_known(mut self, inode: u64) -> Tree {
        if let Some(node) = self.nodes.remove(&UNKNOWN) {
            self.nodes.insert(inode, node);
            let entries = self.nodes.values_mut().flat_map(|node| node.entries.values_mut());
            entries.filter(|child| **child == UNKNOWN).for_each(|child| *child = inode);
        }
        self
    }

    /// Where two trees differ, for people.
    pub fn differences(&self, other: &Tree) -> String {
        let all: std::collections::BTreeSet<&u64> = self.nodes.keys().chain(other.nodes.keys()).collect();
        let pairs = all.into_iter().map(|inode| (inode, self.nodes.get(inode), other.nodes.get(inode)));
        let different = pairs.filter(|(_, one, two)| one != two);
        different.map(|(inode, one, two)| format!("  {inode}:\n    {one:?}\n    {two:?}\n")).collect()
    }

    /// Where [`UNKNOWN`] is.
    pub fn unknown_place(&self) -> Option<Place> {
        self.nodes.iter().find_map(|(directory, node)| {
            let (name, _) = node.entries.iter().find(|(_, child)| **child == UNKNOWN)?;
            Some((*directory, name.clone()))
        })
    }
}

/// What all symbolic links of the simulation point to.
pub const LINK_TARGET: &[u8] = b"../somewhere/else";

/// Carries out a change on the cluster; returns the inode that a create has made.
pub fn perform(client: &Client, change: &Change) -> Result<u64> {
    let done = match change {
        Change::Create((parent, name), kind, mode) => {
            let contents = if *kind == FileKind::Symlink { LINK_TARGET.to_vec() } else { Vec::new() };
            let new = NewInode { kind: *kind, mode: *mode, contents, ..NewInode::default() };
            return client.create(InodeId(*parent), name, &new).map(|attributes| attributes.inode.0);
        }
        Change::Link(inode, (parent, name)) => {
            client.link(InodeId(*inode), InodeId(*parent), name).map(|_| ())
        }
        Change::Unlink((parent, name)) => client.unlink(InodeId(*parent), name),
        Change::RemoveDirectory((parent, name)) => client.remove_directory(InodeId(*parent), name),
        Change::Rename((parent, name), (new_parent, new_name), mode) => {
            client.rename(InodeId(*parent), name, InodeId(*new_parent), new_name, *mode)
        }
        Change::SetMode(inode, mode) => {
            let changes = vazao_client::Changes { mode: Some(*mode), ..Default::default() };
            client.set_attributes(InodeId(*inode), &changes).map(|_| ())
        }
        Change::SetXattr(inode, name, value, mode) => client.set_xattr(InodeId(*inode), name, value, *mode),
        Change::RemoveXattr(inode, name) => client.remove_xattr(InodeId(*inode), name),
    };
    done.map(|()| UNKNOWN)
}

/// The tree as the cluster shows it.
pub fn observe(client: &Client) -> Result<Tree> {
    let mut nodes = BTreeMap::new();
    let mut left = vec![ROOT.0];
    while let Some(inode) = left.pop() {
        if nodes.contains_key(&inode) {
            continue;
        }
        let attributes = client.attributes(InodeId(inode))?;
        let mut node = Node {
            kind: attributes.kind,
            mode: attributes.mode,
            links: attributes.links,
            size: attributes.size,
            ..Node::default()
        };
        for name in client.list_xattrs(InodeId(inode))? {
            let value = client.get_xattr(InodeId(inode), &name)?;
            node.xattrs.insert(name, value);
        }
        if node.kind == FileKind::Directory {
            node.size = 0;
            node.entries = entries(client, inode)?;
            left.extend(node.entries.values());
        }
        nodes.insert(inode, node);
    }
    Ok(Tree { nodes })
}

/// All entries of a directory, a few at a time so that listings continue.
fn entries(client: &Client, directory: u64) -> Result<BTreeMap<Vec<u8>, u64>> {
    let mut entries = BTreeMap::new();
    let mut cookie = 0;
    loop {
        let page = client.list(InodeId(directory), cookie, 3, true)?;
        for entry in &page.entries {
            cookie = entry.cookie;
            let shown = entry.attributes.as_ref().map(|attributes| (attributes.inode, attributes.kind));
            assert_eq!(shown, Some((entry.inode, entry.kind)), "an entry and its attributes disagree");
            let twice = entries.insert(entry.name.clone(), entry.inode.0);
            assert_eq!(twice, None, "{:?} is listed twice", entry.name);
        }
        if page.end {
            return Ok(entries);
        }
    }
}
