//! docs/configuration.md names every key that the parsers know, and no other.

use crate::node::config::NodeConfig;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use vazao_client::{Config, Options};

/// Keys by the heading under which they stand.
type Keys = BTreeMap<String, BTreeSet<String>>;

/// A key without a meaning: the parsers answer with those that they know.
const UNKNOWN: &str = "zzz";

/// The keys in "unknown field `zzz`, expected one of `a`, `b`"; none where it is about something else.
fn expected(error: &str) -> Option<BTreeSet<String>> {
    let (_, known) = error.split_once(&format!("unknown field `{UNKNOWN}`, expected "))?;
    let known = known.lines().next().unwrap_or_default();
    Some(known.split('`').skip(1).step_by(2).map(str::to_owned).collect())
}

/// What a parser knows: its keys, and those of each that is a section or a list of them.
fn known(heading: &str, error: &dyn Fn(&str) -> String) -> Keys {
    let top = expected(&error(&format!("{UNKNOWN} = 1\n"))).expect("the parser tells its keys");
    let mut keys = Keys::new();
    for section in top.iter().flat_map(|key| [format!("[{key}]"), format!("[[{key}]]")]) {
        if let Some(below) = expected(&error(&format!("{section}\n{UNKNOWN} = 1\n"))) {
            keys.insert(section, below);
        }
    }
    keys.insert(heading.to_owned(), top);
    keys
}

fn known_to_parsers() -> Keys {
    let node = |text: &str| NodeConfig::parse(text).expect_err("an unknown key");
    let client =
        |text: &str| Config::parse(Path::new("client.toml"), text).expect_err("an unknown key").to_string();
    let mut keys = known("node.toml", &node);
    keys.extend(known("client.toml", &client));
    keys
}

fn document() -> String {
    std::fs::read_to_string(super::root().join("docs/configuration.md")).expect("readable")
}

/// Rows of tables of keys, by heading: key, type, default, meaning.
fn rows(document: &str) -> Vec<(String, Vec<String>)> {
    let (mut heading, mut is_of_keys, mut rows) = (String::new(), false, Vec::new());
    for line in document.lines() {
        if let Some(text) = line.strip_prefix("## ").or(line.strip_prefix("### ")) {
            text.clone_into(&mut heading);
        }
        is_of_keys = line.starts_with('|') && (is_of_keys || line.starts_with("| key |"));
        if is_of_keys && line.starts_with("| `") {
            let cells = line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned());
            rows.push((heading.clone(), cells.collect()));
        }
    }
    rows
}

#[test]
fn every_key_of_the_configurations_is_documented_and_no_other() {
    let mut documented = Keys::new();
    for (heading, cells) in rows(&document()) {
        assert!(cells.len() == 4 && cells.iter().all(|cell| !cell.is_empty()), "{heading}: {cells:?}");
        let key = cells[0].trim_matches('`').to_owned();
        assert!(documented.entry(heading.clone()).or_default().insert(key), "{heading}: {cells:?} twice");
    }
    let known = known_to_parsers();
    assert_eq!(documented, known);
    assert!(known["[copy]"].contains("listen") && known["[[area]]"].contains("owner"), "{known:?}");
}

#[test]
fn documented_defaults_of_clients_are_those_that_hold() {
    let options = Options::default();
    let rows = rows(&document());
    let of = |key: &str| {
        let cell = |(heading, cells): &(String, Vec<String>)| {
            (heading == "client.toml" && cells[0] == format!("`{key}`")).then(|| cells[2].clone())
        };
        rows.iter().find_map(cell).expect("documented")
    };
    assert_eq!(of("deadline_ms"), options.deadline_ms.to_string());
    assert_eq!(of("connections_max"), options.connections_max.to_string());
    assert_eq!(of("read_ahead_bytes_max"), options.read_ahead_bytes_max.to_string());
    assert_eq!(of("dirty_bytes_max"), options.dirty_bytes_max.to_string());
    assert_eq!(of("short_circuit"), options.short_circuit.to_string());
}
