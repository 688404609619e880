//! Bytes on the wire and on disk change together with the documents that specify them.
//!
//! `docs/formats.lock` has a hash of each source file that defines such bytes, without comments, white space and tests,
//! and of the document. A changed hash fails the check until the document has been reviewed and `./x tidy --accept`
//! records the new state. The check cannot know whether bytes changed; it makes sure that the question is asked.

use crate::lexer::{Token, tokens};
use crate::tree::{Finding, SourceFile, Tree};
use std::fmt::Write;
use std::io;

const LOCK: &str = "docs/formats.lock";

/// Sources that define the same bytes, and where these are specified.
struct Format {
    /// As in "bytes {place} may have changed".
    place: &'static str,
    document: &'static str,
    sources: &'static [&'static str],
}

/// A source that moves or vanishes has to be changed here too.
const FORMATS: [Format; 2] = [
    Format {
        place: "on the wire",
        document: "docs/wire.md",
        sources: &[
            "crates/model/src/checksum.rs",
            "crates/model/src/error.rs",
            "crates/wire/proto/areas.proto",
            "crates/wire/proto/conversions.proto",
            "crates/wire/proto/copies.proto",
            "crates/wire/proto/integrity.proto",
            "crates/wire/proto/layouts.proto",
            "crates/wire/proto/lent.proto",
            "crates/wire/proto/measures.proto",
            "crates/wire/proto/members.proto",
            "crates/wire/proto/vazao.proto",
            "crates/mover/src/record.rs",
            "crates/wire/src/frame.rs",
            "crates/wire/src/hello.rs",
            "crates/wire/src/operation.rs",
        ],
    },
    Format {
        place: "on disk",
        document: "docs/on-disk.md",
        sources: &[
            "crates/meta/src/engine/embedded/blocks.rs",
            "crates/meta/src/engine/embedded/format.rs",
            "crates/meta/src/engine/embedded/record.rs",
            "crates/meta/src/schema/keys.rs",
            "crates/meta/src/schema/records.rs",
            "crates/model/src/checksum.rs",
            "crates/model/src/distribution.rs",
            "crates/mover/src/job/files.rs",
            "crates/mover/src/receive/journal.rs",
            "crates/store/src/targets/epochs.rs",
            "crates/store/src/targets/identity.rs",
            "crates/store/src/targets/incarnation.rs",
            "crates/store/src/object/names/mod.rs",
            "crates/model/src/sidecar.rs",
            "crates/store/src/object/sidecar.rs",
            "crates/wire/proto/members.proto",
        ],
    },
];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    check_formats(tree, &FORMATS)
}

/// Records the formats and documents as they are; returns what changed, for people.
pub fn accept(tree: &Tree) -> io::Result<String> {
    let (contents, summary) = accepted(tree, &FORMATS);
    std::fs::write(tree.root.join(LOCK), contents)?;
    Ok(summary)
}

fn check_formats(tree: &Tree, formats: &[Format]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for format in formats {
        for path in format.sources.iter().chain([&format.document]).filter(|path| tree.file(path).is_none()) {
            let message =
                format!("defines bytes {} and is missing: update the list in crates/tidy", format.place);
            findings.push(Finding { path: path.to_string(), line: 0, message });
        }
        let changed: Vec<&str> =
            sources(tree, format).filter(|s| !is_recorded(tree, s)).map(|s| &*s.path).collect();
        if !changed.is_empty() {
            let unchanged = tree.file(format.document).is_some_and(|document| is_recorded(tree, document));
            let hint = if unchanged { " (it has not changed so far)" } else { "" };
            let message = format!(
                "bytes {} may have changed ({}): review {}{hint}, then run ./x tidy --accept",
                format.place,
                changed.join(", "),
                format.document
            );
            findings.push(Finding { path: LOCK.into(), line: 0, message });
        }
    }
    findings
}

fn sources<'t>(tree: &'t Tree, format: &Format) -> impl Iterator<Item = &'t SourceFile> {
    format.sources.iter().filter_map(|path| tree.file(path))
}

fn is_recorded(tree: &Tree, file: &SourceFile) -> bool {
    let line = record(file);
    tree.file(LOCK).is_some_and(|lock| lock.text.lines().any(|recorded| recorded == line))
}

fn record(file: &SourceFile) -> String {
    format!("{:016x} {}", fnv1a(normal(file).as_bytes()), file.path)
}

fn accepted(tree: &Tree, formats: &[Format]) -> (String, String) {
    let mut contents =
        String::from("# Written by ./x tidy --accept, after a review of the documents. See crates/tidy.\n");
    let mut summary = String::new();
    for format in formats {
        for file in sources(tree, format).chain(tree.file(format.document)) {
            let changed = if is_recorded(tree, file) { "" } else { "accepted " };
            writeln!(contents, "{}", record(file)).expect("writing to a string cannot fail");
            if !changed.is_empty() {
                writeln!(summary, "{changed}{}", file.path).expect("writing to a string cannot fail");
            }
        }
    }
    (contents, summary)
}

/// The file without what cannot change a byte of its format: comments, white space, and tests at its end.
fn normal(file: &SourceFile) -> String {
    if file.path.ends_with(".md") {
        return file.text.clone();
    }
    let mut normal = String::new();
    for (token, range) in tokens(&file.text) {
        match token {
            Token::Comment => {}
            Token::Literal => normal.push_str(&file.text[range]),
            Token::Code => normal.extend(file.text[range].chars().filter(|c| !c.is_whitespace())),
        }
    }
    let end = ["#[cfg(test)]modtests{", "#[cfg(test)]modtests;"].iter().find_map(|tests| normal.find(tests));
    normal.truncate(end.unwrap_or(normal.len()));
    normal
}

/// FNV-1a, 64 bits (draft-eastlake-fnv): no defence against intent, and none is needed.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: [Format; 1] =
        [Format { place: "on the wire", document: "docs/wire.md", sources: &["frame.rs"] }];

    fn after_accepting(before: &str, after: &str) -> Vec<Finding> {
        let document = ("docs/wire.md", "text");
        let (lock, _) = accepted(&Tree::of(&[("frame.rs", before), document]), &SMALL);
        check_formats(&Tree::of(&[("frame.rs", after), document, (LOCK, &lock)]), &SMALL)
    }

    #[test]
    fn the_hash_is_fnv1a() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
    }

    #[test]
    fn comments_white_space_and_tests_change_no_bytes() {
        let before = "//! Frames.\nconst MAGIC: u32 = 1;\n#[cfg(test)]\nmod tests { }\n";
        let after =
            "//! The frames.\nconst MAGIC:\n    u32 = 1; // why\n#[cfg(test)]\nmod tests { fn a() {} }\n";
        assert!(after_accepting(before, after).is_empty());
    }

    #[test]
    fn a_changed_constant_or_string_is_found() {
        for (before, after) in [("const A: u32 = 1;", "const A: u32 = 2;"), ("f(\"a b\")", "f(\"a  b\")")] {
            let findings = after_accepting(before, after);
            assert_eq!(findings.len(), 1);
            assert!(findings[0].message.contains("review docs/wire.md (it has not changed so far)"));
        }
    }

    #[test]
    fn a_listed_file_that_vanishes_is_found() {
        let findings = check_formats(&Tree::of(&[("docs/wire.md", "text")]), &SMALL);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].path == "frame.rs");
    }
}
