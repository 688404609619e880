//! Each module says at its top what it is.

use crate::tree::{Finding, Tree};

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    tree.rust_files()
        .filter(|file| !file.text.starts_with("//!"))
        .map(|file| file.finding(1, "does not open with `//!`: say what the module is, and what it is not"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_without_its_sentence_is_found() {
        assert!(check(&Tree::of(&[("crates/a/src/lib.rs", "//! What it is.\nuse b;")])).is_empty());
        assert_eq!(check(&Tree::of(&[("crates/a/src/lib.rs", "// What it is.\nuse b;")])).len(), 1);
    }
}
