//! Numbers against paths: renames, removals, hard links, and the kernel's counts.

use super::*;
use std::collections::BTreeMap;

const ROOT: InodeId = InodeId(1);

fn spot(path: &str) -> Spot {
    Spot { node: "n1".into(), area: "a".into(), path: path.as_bytes().to_vec() }
}

fn path(table: &Table, inode: InodeId) -> Option<String> {
    table.spot(inode).map(|spot| String::from_utf8(spot.path.clone()).expect("text"))
}

fn seen(inode: u64, is_linked: bool) -> Option<Seen> {
    Some(Seen { identity: FileIdentity { device: 1, inode, born_ns: 0 }, is_linked })
}

#[test]
fn a_renamed_directory_takes_what_is_below_it_along_and_nothing_else() {
    let mut table = Table::new(ROOT);
    let numbers = ["d", "d/x", "d/x/y", "dx", "e"].map(|path| table.enter(&spot(path), None));
    table.renamed(&spot("d"), &spot("e/new"), false);
    let paths = numbers.map(|number| path(&table, number));
    assert_eq!(paths, ["e/new", "e/new/x", "e/new/x/y", "dx", "e"].map(|path| Some(path.to_owned())));
    assert_ne!(table.enter(&spot("d"), None), numbers[0], "a new one of the old name is another");
    table.renamed(&spot("dx"), &spot("e/new/x"), true);
    assert_eq!(path(&table, numbers[2]).as_deref(), Some("dx/y"));
    assert_eq!(table.number(&spot("dx")), Some(numbers[1]));
    assert_eq!(table.number(&spot("e/new/x")), Some(numbers[3]));
    assert_eq!(table.spot(ROOT).as_deref(), Some(&Spot::default()));
}

#[test]
fn a_removed_name_made_again_is_another_file_and_the_old_number_still_leads_somewhere() {
    let mut table = Table::new(ROOT);
    let old = table.enter(&spot("f"), None);
    table.removed(&spot("f"));
    let new = table.enter(&spot("f"), None);
    assert_ne!(old, new);
    assert_eq!((path(&table, old), path(&table, new)), (Some("f".into()), Some("f".into())));
    table.forget(old, 1);
    assert_eq!(table.number(&spot("f")), Some(new), "the name is the new one's");
}

/// Entries once stayed until the mount ended: some 200 bytes for each path ever seen.
#[test]
fn an_entry_goes_with_the_last_of_the_kernels_counts_and_not_before() {
    let mut table = Table::new(ROOT);
    let file = table.enter(&spot("d/f"), None);
    assert_eq!(table.enter(&spot("d/f"), None), file);
    table.forget(file, 1);
    assert_eq!(path(&table, file).as_deref(), Some("d/f"), "shown twice, forgotten once");
    table.forget(file, 1);
    assert_eq!((table.spot(file), table.number(&spot("d/f")), table.len()), (None, None, 1));
    table.forget(file, 7);
    table.forget(ROOT, 7);
    assert!(table.spot(ROOT).is_some(), "the root stays");
    assert_ne!(table.enter(&spot("d/f"), None), file, "a number is not used again");
}

#[test]
fn a_directory_moves_with_what_is_known_below_it_after_others_were_forgotten() {
    let mut table = Table::new(ROOT);
    let [d, x, y] = ["d", "d/x", "d/y"].map(|path| table.enter(&spot(path), None));
    table.forget(x, 1);
    table.renamed(&spot("d"), &spot("e"), false);
    assert_eq!(path(&table, y).as_deref(), Some("e/y"));
    table.forget(d, 1);
    assert_eq!(path(&table, y).as_deref(), Some("e/y"), "a child may be known longer than its directory");
    table.renamed(&spot("e"), &spot("f"), false);
    assert_eq!((path(&table, y).as_deref(), table.number(&spot("e/y"))), (Some("f/y"), None));
}

#[test]
fn names_of_one_file_have_one_number_until_it_is_forgotten() {
    let mut table = Table::new(ROOT);
    let a = table.enter(&spot("a"), seen(7, true));
    assert_eq!(table.enter(&spot("b"), seen(7, true)), a);
    table.removed(&spot("b"));
    assert_eq!(path(&table, a).as_deref(), Some("a"), "the other name leads there");
    assert_eq!(table.enter(&spot("b"), seen(7, true)), a);
    // `a` was replaced by another file on its node.
    let other = table.enter(&spot("a"), seen(8, false));
    assert_ne!(other, a);
    assert_eq!((path(&table, a).as_deref(), path(&table, other).as_deref()), (Some("b"), Some("a")));
    table.forget(a, 3);
    assert_eq!((table.number(&spot("b")), table.len()), (None, 2));
    assert_ne!(table.enter(&spot("b"), seen(7, true)), a);
}

#[test]
fn a_link_made_here_is_the_same_file_and_renaming_one_name_to_the_other_does_nothing() {
    let mut table = Table::new(ROOT);
    let a = table.enter(&spot("a"), seen(7, false));
    let identity = FileIdentity { device: 1, inode: 7, born_ns: 0 };
    assert_eq!(table.link(a, &spot("d/b"), identity), Some(a));
    table.renamed(&spot("a"), &spot("d/b"), false);
    assert_eq!((table.number(&spot("a")), table.number(&spot("d/b"))), (Some(a), Some(a)));
    table.renamed(&spot("d"), &spot("e"), false);
    assert_eq!((table.number(&spot("d/b")), table.number(&spot("e/b"))), (None, Some(a)));
    table.forget(a, 2);
    assert_eq!((table.number(&spot("a")), table.number(&spot("e/b")), table.len()), (None, None, 1));
    assert_eq!(table.link(a, &spot("x"), identity), None, "it is not known any more");
}

/// Against a map from paths to files: what the kernel holds resolves, what it let go of costs nothing.
#[test]
fn random_operations_agree_with_a_plain_map() {
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let mut table = Table::new(ROOT);
    // By number: the path as it is now, and how often it was shown.
    let mut model: BTreeMap<u64, (Option<String>, u64)> = BTreeMap::new();
    let name = |n: u64| format!("{}/{}", n % 3, n % 5);
    for _ in 0..20_000 {
        let (one, two) = (name(next(15)), name(next(15)));
        match next(4) {
            0 => {
                let number = table.enter(&spot(&one), None);
                let place = model.entry(number.0).or_insert((Some(one.clone()), 0));
                assert_eq!(place.0.as_deref(), Some(&*one));
                place.1 += 1;
            }
            1 => {
                table.removed(&spot(&one));
                let gone = model.values_mut().filter(|(path, _)| path.as_deref() == Some(&*one));
                gone.for_each(|(path, _)| *path = None);
            }
            2 if one != two => {
                table.renamed(&spot(&one), &spot(&two), false);
                let replaced = model.values_mut().filter(|(path, _)| path.as_deref() == Some(&*two));
                replaced.for_each(|(path, _)| *path = None);
                let moved = model.values_mut().filter(|(path, _)| path.as_deref() == Some(&*one));
                moved.for_each(|(path, _)| *path = Some(two.clone()));
            }
            _ => {
                let held: Vec<u64> = model.keys().copied().collect();
                let Some(&number) = held.get(next(held.len().max(1) as u64) as usize) else { continue };
                let shown = model[&number].1;
                let count = 1 + next(shown);
                table.forget(InodeId(number), count);
                match shown - count {
                    0 => drop(model.remove(&number)),
                    left => model.get_mut(&number).expect("is there").1 = left,
                }
            }
        }
        assert_eq!(table.len(), model.len() + 1);
        for (&number, (path, _)) in &model {
            let spot_now = table.spot(InodeId(number)).expect("the kernel knows it");
            if let Some(path) = path {
                assert_eq!((&*spot_now, table.number(&spot(path))), (&spot(path), Some(InodeId(number))));
            }
        }
    }
}
