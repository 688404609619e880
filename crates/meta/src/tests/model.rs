//! Random operations against a small model of a file tree: the same outcomes, the same tree.

use super::harness::{TOP, World};
use proptest::prelude::*;
use std::collections::BTreeMap;
use vazao_model::{Code, FileKind, InodeId};

/// A tree as POSIX describes it, with nothing else.
#[derive(Clone, Debug, Default)]
struct Model {
    nodes: BTreeMap<u64, Node>,
}

#[derive(Clone, Debug)]
enum Node {
    File { links: u32 },
    Directory { parent: u64, entries: BTreeMap<String, u64> },
}

type Outcome<T> = Result<T, Code>;

impl Model {
    fn new() -> Model {
        let root = Node::Directory { parent: TOP.0, entries: BTreeMap::new() };
        Model { nodes: BTreeMap::from([(TOP.0, root)]) }
    }

    fn entries(&mut self, id: u64) -> Outcome<&mut BTreeMap<String, u64>> {
        match self.nodes.get_mut(&id) {
            Some(Node::Directory { entries, .. }) => Ok(entries),
            Some(Node::File { .. }) => Err(Code::NotDirectory),
            None => Err(Code::NotFound),
        }
    }

    fn is_directory(&self, id: u64) -> bool {
        matches!(self.nodes.get(&id), Some(Node::Directory { .. }))
    }

    fn is_empty(&self, id: u64) -> bool {
        !matches!(self.nodes.get(&id), Some(Node::Directory { entries, .. }) if !entries.is_empty())
    }

    /// Whether a create will be done; the id comes from the service.
    fn create(&mut self, parent: u64, name: &str, directory: bool, id: Outcome<u64>) -> Outcome<()> {
        if self.entries(parent)?.contains_key(name) {
            return Err(Code::Exists);
        }
        let id = id?;
        self.entries(parent)?.insert(name.to_owned(), id);
        let node = if directory {
            Node::Directory { parent, entries: BTreeMap::new() }
        } else {
            Node::File { links: 1 }
        };
        assert!(self.nodes.insert(id, node).is_none(), "inode i{id} was given out twice");
        Ok(())
    }

    fn link(&mut self, id: u64, parent: u64, name: &str) -> Outcome<()> {
        self.entries(parent)?;
        match self.nodes.get(&id) {
            None => return Err(Code::Stale),
            Some(Node::Directory { .. }) => return Err(Code::NotPermitted),
            Some(Node::File { .. }) => {}
        }
        if self.entries(parent)?.contains_key(name) {
            return Err(Code::Exists);
        }
        self.entries(parent)?.insert(name.to_owned(), id);
        if let Some(Node::File { links }) = self.nodes.get_mut(&id) {
            *links += 1;
        }
        Ok(())
    }

    fn remove(&mut self, parent: u64, name: &str, directory: bool) -> Outcome<()> {
        let id = *self.entries(parent)?.get(name).ok_or(Code::NotFound)?;
        match (self.is_directory(id), directory) {
            (true, false) => return Err(Code::IsDirectory),
            (false, true) => return Err(Code::NotDirectory),
            (true, true) if !self.is_empty(id) => return Err(Code::NotEmpty),
            _ => {}
        }
        self.entries(parent)?.remove(name);
        self.drop_link(id);
        Ok(())
    }

    fn drop_link(&mut self, id: u64) {
        if let Some(Node::File { links }) = self.nodes.get_mut(&id)
            && *links > 1
        {
            *links -= 1;
        } else {
            self.nodes.remove(&id);
        }
    }

    fn is_below(&self, mut id: u64, above: u64) -> bool {
        loop {
            if id == above {
                return true;
            }
            match self.nodes.get(&id) {
                Some(Node::Directory { parent, .. }) if *parent != id => id = *parent,
                _ => return false,
            }
        }
    }

    fn rename(&mut self, from: (u64, &str), to: (u64, &str), mode: u32) -> Outcome<()> {
        self.entries(from.0)?;
        self.entries(to.0)?;
        let moved = *self.entries(from.0)?.get(from.1).ok_or(Code::NotFound)?;
        let there = self.entries(to.0)?.get(to.1).copied();
        match (mode, there) {
            (2, None) => return Err(Code::NotFound),
            (1, Some(_)) => return Err(Code::Exists),
            (_, Some(there)) if there == moved => return Ok(()),
            _ => {}
        }
        if self.is_directory(moved) && from.0 != to.0 && self.is_below(to.0, moved) {
            return Err(Code::Invalid);
        }
        if mode == 2 {
            let there = there.expect("checked");
            if self.is_directory(there) && from.0 != to.0 && self.is_below(from.0, there) {
                return Err(Code::Invalid);
            }
            self.place(from, there);
            self.place(to, moved);
            return Ok(());
        }
        if let Some(there) = there {
            match (self.is_directory(moved), self.is_directory(there)) {
                (true, false) => return Err(Code::NotDirectory),
                (false, true) => return Err(Code::IsDirectory),
                (true, true) if !self.is_empty(there) => return Err(Code::NotEmpty),
                _ => {}
            }
        }
        self.entries(from.0)?.remove(from.1);
        self.place(to, moved);
        if let Some(there) = there {
            self.drop_link(there);
        }
        Ok(())
    }

    fn place(&mut self, at: (u64, &str), id: u64) {
        self.entries(at.0).expect("a directory").insert(at.1.to_owned(), id);
        if let Some(Node::Directory { parent, .. }) = self.nodes.get_mut(&id) {
            *parent = at.0;
        }
    }

    /// Compares the whole tree with the service's.
    fn assert_same(&self, world: &World) {
        for (&id, node) in &self.nodes {
            let attributes = world.stat(InodeId(id)).unwrap();
            match node {
                Node::File { links } => assert_eq!(attributes.links, *links, "links of i{id}"),
                Node::Directory { parent, entries } => {
                    let names: Vec<String> = entries.keys().cloned().collect();
                    assert_eq!(world.names(InodeId(id)), names, "entries of i{id}");
                    for (name, child) in entries {
                        assert_eq!(world.lookup(InodeId(id), name).unwrap().inode, *child);
                    }
                    assert_eq!(world.lookup(InodeId(id), "..").unwrap().inode, *parent);
                    let below = entries.values().filter(|&&child| self.is_directory(child)).count();
                    assert_eq!(attributes.links as usize, 2 + below, "links of directory i{id}");
                }
            }
        }
        world.assert_consistent();
    }
}

/// An operation; numbers pick among the inodes made so far.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Create(usize, u8, bool),
    Link(usize, usize, u8),
    Remove(usize, u8, bool),
    Rename(usize, u8, usize, u8, u32),
}

pub(super) fn op() -> impl Strategy<Value = Op> {
    let name = 0u8..5;
    let pick = any::<u16>().prop_map(usize::from);
    prop_oneof![
        4 => (pick.clone(), name.clone(), any::<bool>()).prop_map(|(p, n, d)| Op::Create(p, n, d)),
        1 => (pick.clone(), pick.clone(), name.clone()).prop_map(|(i, p, n)| Op::Link(i, p, n)),
        2 => (pick.clone(), name.clone(), any::<bool>()).prop_map(|(p, n, d)| Op::Remove(p, n, d)),
        4 => (pick.clone(), name.clone(), pick, name, 0u32..3)
            .prop_map(|(p, n, q, m, mode)| Op::Rename(p, n, q, m, mode)),
    ]
}

fn name(n: u8) -> String {
    format!("name{n}")
}

/// Runs one operation; returns the inode it made. `made` are the inodes so far, gone ones included.
pub(super) fn perform(world: &World, made: &[u64], op: &Op) -> Outcome<Option<u64>> {
    let pick = |n: usize| InodeId(made[n % made.len()]);
    match *op {
        Op::Create(parent, n, directory) => {
            let kind = if directory { FileKind::Directory } else { FileKind::File };
            world.make(pick(parent), &name(n), kind).map(|id| Some(id.0))
        }
        Op::Link(id, parent, n) => world.link(pick(id), pick(parent), &name(n)).map(|_| None),
        Op::Remove(parent, n, directory) => world.remove(pick(parent), &name(n), directory).map(|_| None),
        Op::Rename(parent, n, new_parent, m, mode) => {
            world.rename((pick(parent), &name(n)), (pick(new_parent), &name(m)), mode).map(|_| None)
        }
    }
}

impl Model {
    /// The same in the model; `made` is what the service said about a create.
    fn perform(&mut self, ids: &[u64], op: &Op, made: Outcome<Option<u64>>) -> Outcome<()> {
        let pick = |n: usize| ids[n % ids.len()];
        match *op {
            Op::Create(parent, n, directory) => {
                let id = made.map(|id| id.expect("a create makes an inode"));
                self.create(pick(parent), &name(n), directory, id)
            }
            Op::Link(id, parent, n) => self.link(pick(id), pick(parent), &name(n)),
            Op::Remove(parent, n, directory) => self.remove(pick(parent), &name(n), directory),
            Op::Rename(parent, n, new_parent, m, mode) => {
                self.rename((pick(parent), &name(n)), (pick(new_parent), &name(m)), mode)
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn any_sequence_of_operations_has_the_outcomes_of_the_model(ops in prop::collection::vec(op(), 1..150)) {
        let small = crate::MetaOptions { overlay_bytes_max: 4000, ..super::harness::options("embedded") };
        for options in [super::harness::options("memory"), small] {
            let world = World::with(options);
            let (mut model, mut made) = (Model::new(), vec![TOP.0]);
            for op in &ops {
                let outcome = perform(&world, &made, op);
                let expected = model.perform(&made, op, outcome);
                prop_assert_eq!(outcome.map(|_| ()), expected, "{:?}", op);
                made.extend(outcome.ok().flatten());
            }
            model.assert_same(&world);
        }
    }
}
