//! Imports go down only, as the table in ARCHITECTURE.md has it; crates of one layer do not know one another.

use crate::tree::{Finding, SourceFile, Tree};
use std::collections::BTreeMap;

/// A crate of ours in a manifest.
const OUR_PREFIX: &str = "vazao-";

/// Where a crate stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Layer(u32),
    /// Test code: may import everything, and nothing imports it.
    Above,
}

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(map) = tree.file("ARCHITECTURE.md") else {
        let message = "is missing, and with it the table of layers".to_string();
        return vec![Finding { path: "ARCHITECTURE.md".into(), line: 0, message }];
    };
    let places = places(map);
    let mut findings = Vec::new();
    for (name, manifest) in tree.manifests() {
        match places.get(name) {
            Some(place) => findings.extend(check_crate(name, *place, manifest, &places)),
            None => {
                findings.push(map.finding(0, format!("the table of layers has no row for crate `{name}`")))
            }
        }
    }
    for name in places.keys().filter(|name| tree.manifests().all(|(there, _)| there != name.as_str())) {
        findings.push(map.finding(0, format!("the table of layers names `{name}`, which is no crate")));
    }
    findings
}

/// Reads rows like ``| 1 | `wire` | …``.
fn places(map: &SourceFile) -> BTreeMap<String, Place> {
    let mut places = BTreeMap::new();
    for line in map.text.lines() {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let (Some(layer), Some(name)) = (cells.next(), cells.next()) else { continue };
        let Some(name) = name.strip_prefix('`').and_then(|n| n.strip_suffix('`')) else { continue };
        match layer.parse() {
            Ok(number) => places.insert(name.to_string(), Place::Layer(number)),
            Err(_) if layer == "–" => places.insert(name.to_string(), Place::Above),
            Err(_) => None,
        };
    }
    places
}

fn check_crate(
    name: &str,
    place: Place,
    manifest: &SourceFile,
    places: &BTreeMap<String, Place>,
) -> Vec<Finding> {
    let table: toml::Table = match manifest.text.parse() {
        Ok(table) => table,
        Err(error) => return vec![manifest.finding(0, format!("is not TOML: {error}"))],
    };
    let sections = ["dependencies", "build-dependencies"].map(|section| table.get(section));
    let names =
        sections.into_iter().flatten().filter_map(|section| section.as_table()).flat_map(|t| t.keys());
    let mut findings = Vec::new();
    for import in names.filter_map(|key| key.strip_prefix(OUR_PREFIX)) {
        let allowed = match (place, places.get(import)) {
            (_, None | Some(Place::Above)) => false,
            (Place::Above, Some(Place::Layer(_))) => true,
            (Place::Layer(own), Some(Place::Layer(other))) => *other < own,
        };
        if !allowed {
            let message =
                format!("`{name}` may not import `{import}`: imports point down only (ARCHITECTURE.md)");
            findings.push(manifest.finding(0, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str =
        "| layer | crate | what |\n|---|---|---|\n| 0 | `model` | nouns |\n| 1 | `wire` | frames |
| 1 | `disk` | files |\n| – | `sim` | tests |\n";

    fn findings(crates: &[(&str, &str)]) -> Vec<String> {
        let mut files = vec![("ARCHITECTURE.md", MAP)];
        files.extend(crates);
        check(&Tree::of(&files)).into_iter().map(|f| f.message).collect()
    }

    const ALL: [(&str, &str); 4] = [
        ("crates/model/Cargo.toml", ""),
        ("crates/wire/Cargo.toml", "[dependencies]\nvazao-model.workspace = true"),
        ("crates/disk/Cargo.toml", "[dev-dependencies]\nvazao-wire.workspace = true"),
        ("crates/sim/Cargo.toml", "[dependencies]\nvazao-wire.workspace = true\nvazao-disk.workspace = true"),
    ];

    #[test]
    fn imports_that_point_down_are_fine() {
        assert!(findings(&ALL).is_empty(), "{:?}", findings(&ALL));
    }

    #[test]
    fn siblings_upward_imports_and_imports_of_tests_are_found() {
        for (at, import) in [(2, "vazao-wire"), (0, "vazao-disk"), (1, "vazao-sim")] {
            let manifest = format!("[dependencies]\n{import}.workspace = true");
            let mut crates = ALL;
            crates[at].1 = &manifest;
            assert_eq!(findings(&crates).len(), 1, "{import}");
        }
        let build = [ALL[0], ALL[1], (ALL[2].0, "[build-dependencies]\nvazao-wire.workspace = true"), ALL[3]];
        assert_eq!(findings(&build).len(), 1);
    }

    #[test]
    fn table_and_crates_name_one_another() {
        assert!(findings(&ALL[..3])[0].contains("`sim`, which is no crate"));
        let mut more = ALL.to_vec();
        more.push(("crates/utils/Cargo.toml", ""));
        assert!(findings(&more)[0].contains("no row for crate `utils`"));
    }
}
