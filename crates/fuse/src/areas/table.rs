//! Which inode number stands for which path of the tree of all areas, for as long as the kernel knows it.
//!
//! Numbers are given out as names are shown to the kernel, and mean nothing outside of the mount. The kernel counts how
//! often it was shown each and tells when it forgets it (`FORGET`): with the last count the entry goes. A file that is
//! renamed through the mount keeps its number; one that is made again under an old name gets another; two names of one
//! file (hard links) that are known at once have the same.

use std::collections::HashMap;
use std::sync::Arc;
use vazao_client::area::FileIdentity;
use vazao_model::InodeId;
use vazao_model::limits::AREA_BELOW_MAX;

/// A place in the tree: the root, a node, an area, or something in an area.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub(super) struct Spot {
    /// Empty for the root.
    pub(super) node: Arc<str>,
    /// Empty for a node.
    pub(super) area: Arc<str>,
    /// Below the area; empty for its root.
    pub(super) path: Vec<u8>,
}

impl Spot {
    /// What lies under `name` in an area.
    pub(super) fn below(&self, name: &[u8]) -> Spot {
        let slash: &[u8] = if self.path.is_empty() { b"" } else { b"/" };
        Spot { path: [&self.path, slash, name].concat(), ..self.clone() }
    }

    /// What lies under `name` at any level.
    pub(super) fn child(&self, name: &[u8]) -> Spot {
        // Names of nodes and areas are text: no other can have been listed.
        let text = || Arc::from(String::from_utf8_lossy(name).as_ref());
        match (self.node.is_empty(), self.area.is_empty()) {
            (true, _) => Spot { node: text(), ..Spot::default() },
            (false, true) => Spot { area: text(), ..self.clone() },
            (false, false) => self.below(name),
        }
    }

    /// The directory it lies in; the root for itself.
    pub(super) fn parent(&self) -> Spot {
        let mut parent = self.clone();
        match (parent.path.iter().rposition(|&byte| byte == b'/'), parent.path.is_empty()) {
            (Some(slash), _) => parent.path.truncate(slash),
            (None, false) => parent.path.clear(),
            (None, true) if !parent.area.is_empty() => parent.area = "".into(),
            (None, true) => parent.node = "".into(),
        }
        parent
    }

    /// True when it lies in the directory `above` of the same area.
    fn is_in(&self, above: &Spot) -> bool {
        let rest = self.path.strip_prefix(&above.path[..]);
        let name = if above.path.is_empty() { rest } else { rest.and_then(|rest| rest.strip_prefix(b"/")) };
        let is_name = name.is_some_and(|name| !name.is_empty() && !name.contains(&b'/'));
        is_name && (&self.node, &self.area) == (&above.node, &above.area)
    }

    /// Where it is after what lay at `from` went to `to`; `None` where it did not go along.
    fn moved(&self, from: &Spot, to: &Spot) -> Option<Spot> {
        if (&self.node, &self.area) != (&from.node, &from.area) {
            return None;
        }
        let rest = self.path.strip_prefix(&from.path[..])?;
        let is_below = rest.is_empty() || rest[0] == b'/';
        is_below.then(|| Spot { path: [&to.path, rest].concat(), ..to.clone() })
    }
}

/// What was seen of a file under a name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) identity: FileIdentity,
    /// It has further names.
    pub(super) is_linked: bool,
}

/// A file with several names, of one node's area.
type Linked = (Arc<str>, Arc<str>, FileIdentity);

/// What a number stands for.
#[derive(Debug)]
struct Known {
    /// Its names; never none. The last one stays when it is removed, for those who have the file open.
    spots: Vec<Arc<Spot>>,
    /// How often the kernel was shown it and has not forgotten it.
    lookups: u64,
    /// Where it was seen to have several names.
    linked: Option<Linked>,
    /// When it was last changed through the mount; 0: never.
    changed_ns: u64,
    /// The directory in it that a walk went through last; 0: none.
    walked: u64,
}

/// The table.
#[derive(Debug)]
pub(super) struct Table {
    root: u64,
    next: u64,
    known: HashMap<u64, Known>,
    numbers: HashMap<Arc<Spot>, u64>,
    linked: HashMap<Linked, u64>,
}

impl Table {
    /// A table whose number `root` stands for the root.
    pub(super) fn new(root: InodeId) -> Table {
        let (known, numbers, linked) = (HashMap::new(), HashMap::new(), HashMap::new());
        let mut table = Table { root: root.0, next: root.0 + 1, known, numbers, linked };
        table.insert(root.0, Arc::new(Spot::default()));
        table
    }

    fn insert(&mut self, number: u64, spot: Arc<Spot>) {
        self.numbers.insert(Arc::clone(&spot), number);
        let known = Known { spots: vec![spot], lookups: 0, linked: None, changed_ns: 0, walked: 0 };
        self.known.insert(number, known);
    }

    /// How many places are known.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// The number of a place that the kernel is about to be shown, which counts. `seen`: what lies there, where that is
    /// known.
    pub(super) fn enter(&mut self, spot: &Spot, seen: Option<Seen>) -> InodeId {
        let linked = seen.map(|seen| (Arc::clone(&spot.node), Arc::clone(&spot.area), seen.identity));
        let number = self.number_of(spot, linked.as_ref());
        let known = self.known.get_mut(&number);
        if let Some(known) = known {
            known.lookups += 1;
            if let Some(linked) = linked.filter(|_| seen.is_some_and(|seen| seen.is_linked)) {
                known.linked = Some(linked.clone());
                self.linked.insert(linked, number);
            }
        }
        InodeId(number)
    }

    fn number_of(&mut self, spot: &Spot, linked: Option<&Linked>) -> u64 {
        let by_name = self.numbers.get(spot).copied();
        if let Some(&number) = linked.and_then(|linked| self.linked.get(linked)) {
            if by_name != Some(number) {
                self.add_name(spot, number);
            }
            return number;
        }
        let is_another = |number: &u64| {
            let before = self.known.get(number).and_then(|known| known.linked.as_ref());
            before.is_some_and(|before| linked.is_some_and(|linked| linked != before))
        };
        match by_name.filter(|number| !is_another(number)) {
            Some(number) => number,
            None => {
                self.removed(spot);
                let number = self.fresh().0;
                self.insert(number, Arc::new(spot.clone()));
                number
            }
        }
    }

    /// One more name of a known file.
    fn add_name(&mut self, spot: &Spot, number: u64) {
        self.removed(spot);
        let spot = Arc::new(spot.clone());
        self.numbers.insert(Arc::clone(&spot), number);
        if let Some(known) = self.known.get_mut(&number) {
            // First: the others may be gone already without our knowledge.
            known.spots.insert(0, spot);
        }
    }

    /// A further name for a file that is known was made, and the kernel is about to be shown it; `None` where the file
    /// is not known.
    pub(super) fn link(&mut self, inode: InodeId, spot: &Spot, identity: FileIdentity) -> Option<InodeId> {
        let known = self.known.get_mut(&inode.0)?;
        let linked = (Arc::clone(&spot.node), Arc::clone(&spot.area), identity);
        if known.linked.as_ref().is_some_and(|before| *before != linked) {
            // Another file has taken its path since.
            return None;
        }
        known.linked = Some(linked.clone());
        self.linked.insert(linked, inode.0);
        Some(self.enter(spot, Some(Seen { identity, is_linked: true })))
    }

    /// The number of a place, where it is known.
    pub(super) fn number(&self, spot: &Spot) -> Option<InodeId> {
        self.numbers.get(spot).copied().map(InodeId)
    }

    /// True when the number stands for a file that was seen under several names.
    pub(super) fn is_linked(&self, inode: InodeId) -> bool {
        self.known.get(&inode.0).is_some_and(|known| known.linked.is_some())
    }

    /// A file is changed through the mount.
    pub(super) fn changed(&mut self, inode: InodeId, now_ns: u64) {
        if let Some(known) = self.known.get_mut(&inode.0) {
            known.changed_ns = now_ns;
        }
    }

    /// True when a file was changed through the mount at `since_ns` or later.
    pub(super) fn is_changed(&self, inode: InodeId, since_ns: u64) -> bool {
        self.known.get(&inode.0).is_some_and(|known| known.changed_ns >= since_ns)
    }

    /// A walk went through `directory` to `below`.
    pub(super) fn walked(&mut self, directory: InodeId, below: InodeId) {
        if let Some(known) = self.known.get_mut(&directory.0) {
            known.walked = below.0;
        }
    }

    /// A walk may go through `directory` to `below`, if none has gone elsewhere.
    pub(super) fn may_walk(&mut self, directory: InodeId, below: InodeId) {
        if let Some(known) = self.known.get_mut(&directory.0).filter(|known| known.walked == 0) {
            known.walked = below.0;
        }
    }

    /// The directories below a place that the last walk went through.
    pub(super) fn walk_below(&self, spot: &Spot) -> Vec<(InodeId, Arc<Spot>)> {
        let mut below: Vec<(InodeId, Arc<Spot>)> = Vec::new();
        let Some(mut known) = self.numbers.get(spot).and_then(|number| self.known.get(number)) else {
            return below;
        };
        while below.len() < AREA_BELOW_MAX {
            let above = below.last().map_or(spot, |(_, spot)| spot);
            let number = known.walked;
            let Some(next) = self.known.get(&number) else { break };
            let Some(place) = next.spots.first().filter(|place| place.is_in(above)) else { break };
            below.push((InodeId(number), Arc::clone(place)));
            known = next;
        }
        below
    }

    /// A number that stands for nothing, for a name that is listed and not shown.
    pub(super) fn fresh(&mut self) -> InodeId {
        self.next += 1;
        InodeId(self.next - 1)
    }

    /// Where a number leads.
    pub(super) fn spot(&self, inode: InodeId) -> Option<Arc<Spot>> {
        self.known.get(&inode.0).and_then(|known| known.spots.first()).cloned()
    }

    /// The kernel has forgotten `count` of the times that it was shown a number.
    pub(super) fn forget(&mut self, inode: InodeId, count: u64) {
        let Some(known) = self.known.get_mut(&inode.0).filter(|_| inode.0 != self.root) else { return };
        known.lookups = known.lookups.saturating_sub(count);
        if known.lookups > 0 {
            return;
        }
        let Some(known) = self.known.remove(&inode.0) else { return };
        for spot in &known.spots {
            if self.numbers.get(spot) == Some(&inode.0) {
                self.numbers.remove(spot);
            }
        }
        if let Some(linked) = known.linked
            && self.linked.get(&linked) == Some(&inode.0)
        {
            self.linked.remove(&linked);
        }
    }

    /// What lay there has lost this name. Without another one its number leads there still, for those who have it open.
    pub(super) fn removed(&mut self, spot: &Spot) {
        let Some(number) = self.numbers.remove(spot) else { return };
        if let Some(known) = self.known.get_mut(&number).filter(|known| known.spots.len() > 1) {
            known.spots.retain(|name| **name != *spot);
        }
    }

    /// What lay at `from`, with all below, lies at `to` now; `exchange`: and the other way round.
    pub(super) fn renamed(&mut self, from: &Spot, to: &Spot, exchange: bool) {
        let is_same_file = self.number(from).is_some_and(|number| self.number(to) == Some(number));
        if is_same_file {
            // rename(2) of one name of a file to another of its names does nothing.
            return;
        }
        let pairs: &[(&Spot, &Spot)] = if exchange { &[(from, to), (to, from)] } else { &[(from, to)] };
        let mut moves = Vec::new();
        for (old, new) in pairs {
            let along = self.numbers.iter().filter_map(|(spot, &number)| {
                spot.moved(old, new).map(|there| (number, Arc::clone(spot), Arc::new(there)))
            });
            moves.extend(along);
        }
        if !exchange {
            // What lay there, if anything, has been replaced.
            self.removed(to);
        }
        for (_, old, _) in &moves {
            self.numbers.remove(old);
        }
        for (number, old, new) in moves {
            let spots = self.known.get_mut(&number).map(|known| &mut known.spots);
            if let Some(place) = spots.and_then(|spots| spots.iter_mut().find(|spot| **spot == old)) {
                *place = Arc::clone(&new);
            }
            self.numbers.insert(new, number);
        }
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
