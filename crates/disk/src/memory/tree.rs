//! The names of the disk in memory: each directory as it is, as it would be after power loss, and the changes between.

use super::file::Inode;
use crate::{DiskEntry, Open, path};
use rand::RngExt;
use rand::rngs::StdRng;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

const NOT_FOUND: i32 = 2; // ENOENT
const EXISTS: i32 = 17; // EEXIST
const NOT_A_DIRECTORY: i32 = 20; // ENOTDIR
const IS_A_DIRECTORY: i32 = 21; // EISDIR

fn error<T>(errno: i32) -> io::Result<T> {
    Err(io::Error::from_raw_os_error(errno))
}

/// Index into [`Tree::directories`].
type DirectoryIndex = usize;

const ROOT: DirectoryIndex = 0;

#[derive(Clone, Debug)]
enum Node {
    File(Arc<Inode>),
    Directory(DirectoryIndex),
}

type Names = BTreeMap<String, Node>;

/// One step that survives power loss whole or not at all.
#[derive(Clone, Debug)]
enum Change {
    Set(String, Node),
    Remove(String),
    /// A rename within the directory.
    Rename(String, String, Node),
}

fn apply(names: &mut Names, change: Change) {
    match change {
        Change::Set(name, node) => drop(names.insert(name, node)),
        Change::Remove(name) => drop(names.remove(&name)),
        Change::Rename(from, to, node) => {
            names.remove(&from);
            names.insert(to, node);
        }
    }
}

#[derive(Clone, Debug)]
struct Unsynced {
    change: Change,
    /// The other half of a rename between two directories: the directory, and the move's number.
    other_half: Option<(DirectoryIndex, u64)>,
}

#[derive(Debug, Default)]
struct Directory {
    current: Names,
    durable: Names,
    unsynced: Vec<Unsynced>,
}

impl Directory {
    fn change(&mut self, change: Change, other_half: Option<(DirectoryIndex, u64)>) {
        apply(&mut self.current, change.clone());
        self.unsynced.push(Unsynced { change, other_half });
    }

    /// Where in the unsynced changes the half of move `number` is.
    fn place_of_half(&self, number: u64) -> Option<usize> {
        self.unsynced.iter().position(|u| matches!(u.other_half, Some((_, n)) if n == number))
    }
}

/// All directories. None is ever removed, as the `Disk` trait cannot.
#[derive(Debug)]
pub(super) struct Tree {
    directories: Vec<Directory>,
    moves: u64,
}

impl Tree {
    pub(super) fn new() -> Tree {
        Tree { directories: vec![Directory::default()], moves: 0 }
    }

    fn walk(&self, parts: &[&str]) -> io::Result<DirectoryIndex> {
        let mut index = ROOT;
        for part in parts {
            index = match self.directories[index].current.get(*part) {
                Some(Node::Directory(next)) => *next,
                Some(Node::File(_)) => return error(NOT_A_DIRECTORY),
                None => return error(NOT_FOUND),
            };
        }
        Ok(index)
    }

    /// The directory that `path` lies in, its name there, and what has that name now.
    fn find<'p>(&self, path: &'p str) -> io::Result<(DirectoryIndex, &'p str, Option<Node>)> {
        let (parents, name) = path::split_last(path)?;
        let index = self.walk(&parents)?;
        Ok((index, name, self.directories[index].current.get(name).cloned()))
    }

    /// The file at `path`.
    pub(super) fn file(&self, path: &str) -> io::Result<Arc<Inode>> {
        match self.find(path)?.2 {
            Some(Node::File(inode)) => Ok(inode),
            Some(Node::Directory(_)) => error(IS_A_DIRECTORY),
            None => error(NOT_FOUND),
        }
    }

    pub(super) fn open(&mut self, path: &str, how: Open) -> io::Result<Arc<Inode>> {
        let creates = matches!(how, Open::Create | Open::CreateNew);
        let (parent, name, node) = self.find(path)?;
        match node {
            Some(_) if how == Open::CreateNew => error(EXISTS),
            Some(Node::File(inode)) => Ok(inode),
            Some(Node::Directory(_)) => error(IS_A_DIRECTORY),
            None if creates => {
                let inode = Arc::new(Inode::new());
                let change = Change::Set(name.to_string(), Node::File(inode.clone()));
                self.directories[parent].change(change, None);
                Ok(inode)
            }
            None => error(NOT_FOUND),
        }
    }

    pub(super) fn create_directory(&mut self, path: &str) -> io::Result<()> {
        let mut index = ROOT;
        for part in path::components(path)? {
            index = match self.directories[index].current.get(part) {
                Some(Node::Directory(next)) => *next,
                Some(Node::File(_)) => return error(NOT_A_DIRECTORY),
                None => {
                    let new = self.directories.len();
                    self.directories.push(Directory::default());
                    self.directories[index].change(Change::Set(part.to_string(), Node::Directory(new)), None);
                    new
                }
            };
        }
        Ok(())
    }

    /// Returns the file that lost its name.
    pub(super) fn remove(&mut self, path: &str) -> io::Result<Arc<Inode>> {
        let inode = self.file(path)?;
        let (parent, name, _) = self.find(path)?;
        self.directories[parent].change(Change::Remove(name.to_string()), None);
        Ok(inode)
    }

    /// Returns the file that was replaced.
    pub(super) fn rename(&mut self, from: &str, to: &str) -> io::Result<Option<Arc<Inode>>> {
        let node = Node::File(self.file(from)?);
        let (source, old_name, _) = self.find(from)?;
        let (target, new_name, replaced) = self.find(to)?;
        let replaced = match replaced {
            Some(Node::Directory(_)) => return error(IS_A_DIRECTORY),
            Some(Node::File(inode)) => Some(inode),
            None => None,
        };
        if (source, old_name) == (target, new_name) {
            return Ok(None);
        }
        if source == target {
            let change = Change::Rename(old_name.to_string(), new_name.to_string(), node);
            self.directories[source].change(change, None);
        } else {
            self.moves += 1;
            let number = self.moves;
            self.directories[source].change(Change::Remove(old_name.to_string()), Some((target, number)));
            self.directories[target].change(Change::Set(new_name.to_string(), node), Some((source, number)));
        }
        Ok(replaced)
    }

    pub(super) fn list(&self, path: &str) -> io::Result<Vec<DiskEntry>> {
        let index = self.walk(&path::components(path)?)?;
        let entry = |(name, node): (&String, &Node)| DiskEntry {
            name: name.clone(),
            is_directory: matches!(node, Node::Directory(_)),
        };
        Ok(self.directories[index].current.iter().map(entry).collect())
    }

    pub(super) fn sync_directory(&mut self, path: &str) -> io::Result<()> {
        let index = self.walk(&path::components(path)?)?;
        let count = self.directories[index].unsynced.len();
        self.make_durable(index, count);
        Ok(())
    }

    /// Makes the first `count` unsynced changes of a directory durable. The other half of a move between directories
    /// goes with it, and everything that came before that half.
    fn make_durable(&mut self, index: DirectoryIndex, count: usize) {
        let mut counts: BTreeMap<DirectoryIndex, usize> = BTreeMap::new();
        let mut due = vec![(index, count)];
        while let Some((index, count)) = due.pop() {
            let reached = counts.entry(index).or_default();
            for unsynced in self.directories[index].unsynced.get(*reached..count).unwrap_or_default() {
                due.extend(unsynced.other_half.and_then(|(other, number)| {
                    let place = self.directories[other].place_of_half(number)?;
                    Some((other, place + 1))
                }));
            }
            *reached = count.max(*reached);
        }
        for (index, count) in counts {
            let Directory { durable, unsynced, .. } = &mut self.directories[index];
            unsynced.drain(..count).for_each(|unsynced| apply(durable, unsynced.change));
        }
    }

    /// Power loss: of each directory's unsynced changes a random beginning survives.
    pub(super) fn crash(&mut self, random: &mut StdRng) {
        for index in 0..self.directories.len() {
            let count = self.directories[index].unsynced.len();
            let survivors = match random.random_range(0..4) {
                0 => 0,
                1 => count,
                _ => random.random_range(0..=count),
            };
            self.make_durable(index, survivors);
        }
        for directory in &mut self.directories {
            directory.unsynced.clear();
            directory.current = directory.durable.clone();
        }
    }

    /// Makes all names durable.
    pub(super) fn sync(&mut self) {
        for directory in &mut self.directories {
            directory.unsynced.clear();
            directory.durable = directory.current.clone();
        }
    }

    /// Calls `act` for each file that has a name, with its path, in an order that depends on names only.
    pub(super) fn for_each_file(&self, act: &mut dyn FnMut(&str, &Inode)) {
        let mut due = vec![(ROOT, String::new())];
        while let Some((index, path)) = due.pop() {
            for (name, node) in &self.directories[index].current {
                let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                match node {
                    Node::File(inode) => act(&path, inode),
                    Node::Directory(next) => due.push((*next, path)),
                }
            }
        }
    }
}
