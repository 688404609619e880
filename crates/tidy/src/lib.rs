//! The house rules, checked with the tests.
//!
//! A rule is a function from the source tree to what it found wrong, one file each under `rules/`, one line in
//! [`RULES`]. `cargo test` runs them all over the repository; `./x tidy` prints what they find. Formatting and what
//! clippy knows are not repeated here.

mod lexer;
mod rules;
mod tree;

pub use rules::formats::accept;
pub use tree::{Finding, SourceFile, Tree};

/// A house rule.
#[derive(Clone, Copy)]
pub struct Rule {
    /// What `./x tidy NAME` calls it.
    pub name: &'static str,
    /// Looks at the whole tree.
    pub check: fn(&Tree) -> Vec<Finding>,
}

impl std::fmt::Debug for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// All rules.
pub const RULES: &[Rule] = &[
    Rule { name: "layers", check: rules::layers::check },
    Rule { name: "leftovers", check: rules::leftovers::check },
    Rule { name: "sizes", check: rules::sizes::check },
    Rule { name: "modules", check: rules::modules::check },
    Rule { name: "exemptions", check: rules::exemptions::check },
    Rule { name: "dependencies", check: rules::dependencies::check },
    Rule { name: "licences", check: rules::licences::check },
    Rule { name: "documents", check: rules::documents::check },
    Rule { name: "formats", check: rules::formats::check },
    Rule { name: "links", check: rules::links::check },
    Rule { name: "structure", check: rules::structure::check },
    Rule { name: "words", check: rules::words::check },
];
