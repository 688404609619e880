//! Which inode number stands for which path of the tree of all areas.
//!
//! Numbers are given out as paths are seen and mean nothing outside of the mount. A file that is renamed through it
//! keeps its number; one that is made again under an old name gets another.

use std::collections::HashMap;
use vazao_model::InodeId;

/// A place in the tree: the root, a node, an area, or something in an area.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub(super) struct Spot {
    /// Empty for the root.
    pub(super) node: String,
    /// Empty for a node.
    pub(super) area: String,
    /// Below the area; empty for its root.
    pub(super) path: Vec<u8>,
}

impl Spot {
    /// What lies under `name` in an area.
    pub(super) fn below(&self, name: &[u8]) -> Spot {
        let slash: &[u8] = if self.path.is_empty() { b"" } else { b"/" };
        Spot { path: [&self.path, slash, name].concat(), ..self.clone() }
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

/// The table.
#[derive(Debug)]
pub(super) struct Table {
    next: u64,
    spots: HashMap<u64, Spot>,
    numbers: HashMap<Spot, u64>,
}

impl Table {
    /// A table whose number `root` stands for the root.
    pub(super) fn new(root: InodeId) -> Table {
        let mut table = Table { next: root.0 + 1, spots: HashMap::new(), numbers: HashMap::new() };
        table.spots.insert(root.0, Spot::default());
        table.numbers.insert(Spot::default(), root.0);
        table
    }

    /// The number of a place.
    pub(super) fn number(&mut self, spot: &Spot) -> InodeId {
        if let Some(&number) = self.numbers.get(spot) {
            return InodeId(number);
        }
        let number = self.next;
        self.next += 1;
        self.spots.insert(number, spot.clone());
        self.numbers.insert(spot.clone(), number);
        InodeId(number)
    }

    /// Where a number leads.
    pub(super) fn spot(&self, inode: InodeId) -> Option<Spot> {
        self.spots.get(&inode.0).cloned()
    }

    /// What lay there has lost its name. Its number leads there still, for those who have it open.
    pub(super) fn removed(&mut self, spot: &Spot) {
        self.numbers.remove(spot);
    }

    /// What lay at `from`, with all below, lies at `to` now; `exchange`: and the other way round.
    pub(super) fn renamed(&mut self, from: &Spot, to: &Spot, exchange: bool) {
        let pairs: &[(&Spot, &Spot)] = if exchange { &[(from, to), (to, from)] } else { &[(from, to)] };
        let mut moves = Vec::new();
        for (old, new) in pairs {
            let along = self.numbers.iter().filter_map(|(spot, &number)| {
                spot.moved(old, new).map(|there| (number, spot.clone(), there))
            });
            moves.extend(along);
        }
        if !exchange {
            // What lay there, if anything, has been replaced.
            self.numbers.remove(to);
        }
        for (_, old, _) in &moves {
            self.numbers.remove(old);
        }
        for (number, _, new) in moves {
            self.spots.insert(number, new.clone());
            self.numbers.insert(new, number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spot(path: &str) -> Spot {
        Spot { node: "n1".into(), area: "a".into(), path: path.as_bytes().to_vec() }
    }

    #[test]
    fn a_renamed_directory_takes_what_is_below_it_along_and_nothing_else() {
        let mut table = Table::new(InodeId(1));
        let numbers = ["d", "d/x", "d/x/y", "dx", "e"].map(|path| table.number(&spot(path)));
        table.renamed(&spot("d"), &spot("e/new"), false);
        let paths = numbers.map(|number| table.spot(number).map(|spot| String::from_utf8(spot.path)));
        let expected = ["e/new", "e/new/x", "e/new/x/y", "dx", "e"].map(|path| Some(Ok(path.to_owned())));
        assert_eq!(paths, expected);
        assert_ne!(table.number(&spot("d")), numbers[0], "a new one of the old name is another");
        table.renamed(&spot("dx"), &spot("e/new/x"), true);
        assert_eq!(table.spot(numbers[2]), Some(spot("dx/y")));
        assert_eq!((table.number(&spot("dx")), table.number(&spot("e/new/x"))), (numbers[1], numbers[3]));
        assert_eq!(table.spot(InodeId(1)), Some(Spot::default()));
    }

    #[test]
    fn a_removed_name_made_again_is_another_file_and_the_old_number_still_leads_somewhere() {
        let mut table = Table::new(InodeId(1));
        let old = table.number(&spot("f"));
        table.removed(&spot("f"));
        let new = table.number(&spot("f"));
        assert_ne!(old, new);
        assert_eq!((table.spot(old), table.spot(new)), (Some(spot("f")), Some(spot("f"))));
    }
}
