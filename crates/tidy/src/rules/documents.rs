//! Documents name what the code has: operations and error codes in docs/wire.md, key prefixes in docs/on-disk.md.

use crate::tree::{Finding, SourceFile, Tree};

const OPERATIONS: &str = "crates/wire/src/operation.rs";
const CODES: &str = "crates/model/src/error.rs";
const KEYS: &str = "crates/meta/src/schema/keys.rs";
const WIRE_DOCUMENT: &str = "docs/wire.md";
const DISK_DOCUMENT: &str = "docs/on-disk.md";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = compare(tree, OPERATIONS, WIRE_DOCUMENT, operations, row_has_all);
    findings.extend(compare(tree, CODES, WIRE_DOCUMENT, codes, row_has_all));
    findings.extend(compare(tree, KEYS, DISK_DOCUMENT, key_prefixes, quotes));
    findings
}

/// What a document has to say about one thing of the source: words that belong together.
type Words = Vec<String>;

fn compare(
    tree: &Tree,
    source: &str,
    document: &str,
    things: fn(&str) -> Vec<Words>,
    says: fn(&str, &Words) -> bool,
) -> Vec<Finding> {
    let gone = |path: &str| Finding { path: path.into(), line: 0, message: "is missing".into() };
    let (Some(source), Some(document)) = (tree.file(source), tree.file(document)) else {
        return [source, document].into_iter().filter(|p| tree.file(p).is_none()).map(gone).collect();
    };
    let things = things(&source.text);
    if things.is_empty() {
        return vec![
            source.finding(0, "nothing was recognised in it: has its form changed? See crates/tidy"),
        ];
    }
    things
        .iter()
        .filter(|words| !says(&document.text, words))
        .map(|words| missing(document, source, words))
        .collect()
}

fn missing(document: &SourceFile, source: &SourceFile, words: &Words) -> Finding {
    document.finding(0, format!("does not mention {}, which {} has", words.join(", "), source.path))
}

/// Rows like `Ping = 0x0001, PingRequest, PingResponse, Safe;`.
fn operations(text: &str) -> Vec<Words> {
    let row = |line: &str| {
        let (name, rest) = line.trim().strip_suffix(';')?.split_once(" = ")?;
        let fields: Vec<&str> = rest.split(", ").collect();
        let [number, _, _, repeat] = fields[..] else { return None };
        number.starts_with("0x").then(|| vec![number.to_string(), name.to_string(), repeat.to_lowercase()])
    };
    text.lines().filter_map(row).collect()
}

/// Rows like `NotFound = 1, ENOENT, GiveUp, "no such file or directory";`.
fn codes(text: &str) -> Vec<Words> {
    let row = |line: &str| {
        let (name, rest) = line.trim().strip_suffix("\";")?.split_once(" = ")?;
        let mut fields = rest.split(", ");
        let (number, errno) = (fields.next()?, fields.next()?);
        number.parse::<u16>().ok()?;
        Some(vec![number.to_string(), name.to_string(), errno.to_string()])
    };
    text.lines().filter_map(row).collect()
}

/// Constants like `const INODE: u8 = b'I';` or `const VOLUME: &[u8] = b"V";`.
fn key_prefixes(text: &str) -> Vec<Words> {
    let prefix = |line: &str| {
        let (left, right) = line.split_once(" = b")?;
        let value = right.trim().strip_suffix(';')?.trim_matches(['\'', '"']);
        left.contains("const ").then(|| vec![value.to_string()])
    };
    text.lines().filter_map(prefix).collect()
}

/// True when a row of a table has each of the words as a cell of its own.
fn row_has_all(document: &str, words: &Words) -> bool {
    let has_all = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        words.iter().all(|word| cells.contains(&word.as_str()))
    };
    document.lines().any(has_all)
}

/// True when the document has the word at the beginning of something between backticks.
fn quotes(document: &str, words: &Words) -> bool {
    let is_end = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    words.iter().all(|word| {
        let quoted = format!("`{word}");
        document.match_indices(&quoted).any(|(at, found)| is_end(&document[at + found.len()..]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "    /// At once.\n    Ping = 0x0001, PingRequest, PingResponse, Safe;\n";
    const CODE: &str = "    NotFound = 1, ENOENT, GiveUp, \"no such file or directory\";\n";
    const KEY: &str = "const INODE: u8 = b'I';\npub(crate) const BOOTS: &[u8] = b\"Cboots\";\n";

    fn findings(wire: &str, disk: &str) -> Vec<String> {
        let files =
            [(OPERATIONS, TABLE), (CODES, CODE), (KEYS, KEY), (WIRE_DOCUMENT, wire), (DISK_DOCUMENT, disk)];
        check(&Tree::of(&files)).into_iter().map(|f| f.message).collect()
    }

    const WIRE: &str = "| 0x0001 | Ping | safe | at once |\n| 1 | NotFound | ENOENT | give up |";
    const DISK: &str = "| `I` inode | record |\n| `Cboots` | number |";

    #[test]
    fn complete_documents_are_fine() {
        assert!(findings(WIRE, DISK).is_empty(), "{:?}", findings(WIRE, DISK));
    }

    #[test]
    fn what_is_not_written_down_is_found() {
        assert_eq!(findings("| 0x0002 | Ping | safe |\n| 1 | NotFound | ENOENT |", DISK).len(), 1);
        assert_eq!(findings("| 0x0001 | Ping | once |\n| 2 | NotFound | ENOENT |", DISK).len(), 2);
        assert_eq!(
            findings(WIRE, "`Inode` and `Cboots`"),
            ["does not mention I, which crates/meta/src/schema/keys.rs has"]
        );
    }

    #[test]
    fn a_source_in_which_nothing_is_recognised_is_found() {
        let files =
            [(OPERATIONS, ""), (CODES, CODE), (KEYS, KEY), (WIRE_DOCUMENT, WIRE), (DISK_DOCUMENT, DISK)];
        assert_eq!(check(&Tree::of(&files)).len(), 1);
        assert_eq!(check(&Tree::of(&files[..4])).len(), 2);
    }
}
