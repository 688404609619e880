//! The header, the versions of symbols and the manual page say what the library has.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Sources that the header is made of, in its order.
const SOURCES: [&str; 15] = [
    "types",
    "error",
    "connection",
    "directory",
    "file",
    "watch",
    "exports/connections",
    "exports/names",
    "exports/xattrs",
    "exports/listings",
    "exports/files",
    "exports/ranges",
    "exports/locks",
    "exports/limits",
    "exports/copies",
];

fn own(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn text(path: &str) -> String {
    std::fs::read_to_string(own(path)).expect("a file of this crate")
}

fn generated_header() -> String {
    let config = cbindgen::Config::from_file(own("cbindgen.toml")).expect("a configuration of cbindgen");
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in SOURCES {
        builder = builder.with_src(own(&format!("src/{source}.rs")));
    }
    let mut header = Vec::new();
    builder.generate().expect("sources that cbindgen understands").write(&mut header);
    String::from_utf8(header).expect("text")
}

/// The words of a text that are names of functions: `vazao_open(`.
fn functions_called(text: &str) -> BTreeSet<String> {
    let ends = text.match_indices('(').map(|(at, _)| &text[..at]);
    let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = ends.map(|before| before.rsplit(|c| !is_letter(c)).next().unwrap_or_default());
    words.filter(|word| word.starts_with("vazao_")).map(str::to_owned).collect()
}

/// The functions that the sources export.
fn exported() -> BTreeSet<String> {
    let sources = SOURCES.iter().map(|source| text(&format!("src/{source}.rs")));
    let names = |source: String| {
        let starts = source.split("extern \"C\" fn ").skip(1);
        starts.filter_map(|rest| rest.split('(').next().map(str::to_owned)).collect::<Vec<_>>()
    };
    sources.flat_map(names).collect()
}

#[test]
fn the_header_is_made_from_the_sources() {
    let (generated, kept) = (generated_header(), text("include/vazao.h"));
    if generated != kept {
        let place = std::env::temp_dir().join("vazao.h");
        std::fs::write(&place, &generated).expect("a place for the new header");
        panic!("include/vazao.h is not what cbindgen makes; look at the difference to {}", place.display());
    }
}

/// The header without its preface and comments.
fn declarations() -> String {
    let header = text("include/vazao.h");
    let (_, header) = header.split_once("#include").expect("lines after the preface");
    header.lines().filter(|line| !line.trim().starts_with("//")).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_function_is_declared_and_has_a_version() {
    let exported = exported();
    assert!(exported.len() > 30, "{exported:?}");
    let declared = functions_called(&declarations());
    assert_eq!(declared, exported);
    let map = text("vazao.map");
    let versioned = map.lines().filter_map(|line| line.trim().strip_suffix(';'));
    let versioned: BTreeSet<String> =
        versioned.filter(|name| name.starts_with("vazao_")).map(str::to_owned).collect();
    assert_eq!(versioned, exported);
}

/// A text with one blank where there were blanks and ends of lines.
fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace("( ", "(")
}

#[test]
fn the_manual_page_has_every_declaration_of_the_header() {
    let (header, page) = (in_one_line(&declarations()), in_one_line(&text("man/vazao.3")));
    for name in exported() {
        let at = header.find(&format!("{name}(")).expect("declared");
        let declaration = header[at..].split(';').next().unwrap_or_default();
        assert!(page.contains(declaration), "man/vazao.3 does not have {declaration}");
    }
    assert_eq!(functions_called(&page), exported());
}
