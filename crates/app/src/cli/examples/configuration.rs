//! Reads examples of node.toml and client.toml, whole ones and parts, with the parsers that read the files.

use crate::node::config::NodeConfig;
use std::path::Path;
use toml::Table;
use vazao_client::Config;

/// What is wrong with an example: as it stands, or with its commented settings in effect.
pub(super) fn wrong(text: &str) -> Option<String> {
    let table: Table = match text.parse() {
        Ok(table) => table,
        Err(error) => return Some(format!("not TOML: {error}\n{text}")),
    };
    let uncommented = uncommented(text);
    if is_of_client(&table) {
        let parse = |text: &str| Config::parse(Path::new("client.toml"), text).err();
        return parse(text).or_else(|| parse(&uncommented)).map(|error| format!("{error}\n{text}"));
    }
    let whole = completed(table);
    if let Err(problem) = NodeConfig::parse(&whole.to_string()) {
        return Some(format!("{problem}\n{text}"));
    }
    // Its commented sections may be those of other roles.
    let read = uncommented.parse().map(|table| completed(table).to_string());
    let read = read.and_then(|whole| toml::from_str::<NodeConfig>(&whole));
    read.err().map(|error| format!("without its comment signs: {error}\n{uncommented}"))
}

/// A client's has the addresses under `meta`; a node's has a section of that name.
fn is_of_client(table: &Table) -> bool {
    table.get("meta").is_some_and(toml::Value::is_array)
}

/// The text with the comment signs taken away in front of settings and sections.
fn uncommented(text: &str) -> String {
    let line = |line: &str| {
        let bare = line.trim_start().trim_start_matches(['#', ' ']);
        let key = bare.split_once(" = ").map_or("", |(key, _)| key);
        let is_setting = !key.is_empty() && key.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        if is_setting || bare.starts_with('[') { bare.to_owned() } else { line.to_owned() }
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// A part of node.toml together with what every node has.
fn completed(mut table: Table) -> Table {
    let is_meta = table.contains_key("meta");
    let role = if is_meta {
        "meta"
    } else if table.contains_key("data") {
        "data"
    } else {
        "area"
    };
    let mut add = |key: &str, value: toml::Value| {
        table.entry(key).or_insert(value);
    };
    add("name", "n1".into());
    add("listen", "127.0.0.1:7000".into());
    add("roles", vec![role].into());
    let has_meta = table["roles"].as_array().is_some_and(|roles| roles.contains(&"meta".into()));
    if !has_meta {
        table.entry("metadata").or_insert(vec!["host1:7000"].into());
    }
    table
}

#[test]
fn commented_settings_have_to_be_right_too() {
    let base = "name = \"d\"\nroles = [\"data\"]\nlisten = \"h:1\"\nmetadata = [\"h:2\"]\n[data]\ntargets = [\"/t\"]\n";
    assert_eq!(wrong(base), None);
    assert_eq!(wrong("[copy]\nlisten = \"h:1\"\n"), None);
    assert_eq!(wrong(&format!("{base}# said about it\n# reserve = \"1GiB\"\n")), None);
    for mistake in ["# reserv = \"1GiB\"\n", "# [log] level = \"info\"\n", "# [[area]]\n# name = 1\n"] {
        assert!(wrong(&format!("{base}{mistake}")).is_some(), "{mistake}");
    }
    assert!(wrong("meta = [\"h:1\"]\nkey_file = \"k\"\n# deadline = 5\n").is_some());
}
