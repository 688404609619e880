//! A dependency is a decision: declared once with a reason, with chosen features only, and used.

use crate::tree::{Finding, SourceFile, Tree};

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    match tree.file("Cargo.toml") {
        Some(workspace) => findings.extend(check_workspace(workspace)),
        None => return findings,
    }
    for (name, manifest) in tree.manifests() {
        findings.extend(check_crate(tree, name, manifest));
    }
    findings.extend(check_declared(tree));
    findings
}

/// Every line of `[workspace.dependencies]` that names a foreign crate has a comment above it, or above the lines
/// directly before it. Where default features stay on, the comment says why.
fn check_workspace(workspace: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut comment = String::new();
    let mut in_section = false;
    let mut last_was_comment = false;
    for (line, content) in workspace.text.lines().enumerate() {
        if content.starts_with('[') {
            in_section = content == "[workspace.dependencies]";
            comment.clear();
        } else if let Some(text) = content.strip_prefix('#') {
            if !last_was_comment {
                comment.clear();
            }
            comment.push_str(text);
        } else if content.is_empty() {
            comment.clear();
        } else if in_section && !content.contains("path =") {
            if comment.is_empty() {
                findings.push(
                    workspace.finding(line + 1, "a dependency needs a comment above it: why is it here?"),
                );
            }
            if !content.contains("default-features = false") && !comment.contains("default") {
                let message =
                    "default features are on: turn them off, or say in the comment why they are needed";
                findings.push(workspace.finding(line + 1, message));
            }
        }
        last_was_comment = content.starts_with('#');
    }
    findings
}

/// What the workspace declares, some crate uses.
fn check_declared(tree: &Tree) -> Vec<Finding> {
    let Some(workspace) = tree.file("Cargo.toml") else { return Vec::new() };
    let table: toml::Table = workspace.text.parse().unwrap_or_default();
    let declared = table.get("workspace").and_then(|w| w.get("dependencies")).and_then(|d| d.as_table());
    let is_named = |name: &str| {
        let start = format!("{name}.workspace");
        tree.manifests().any(|(_, manifest)| manifest.text.lines().any(|line| line.starts_with(&start)))
    };
    declared
        .into_iter()
        .flat_map(|table| table.keys())
        .filter(|name| !is_named(name))
        .map(|name| workspace.finding(0, format!("{name} is declared, and no crate uses it: remove it")))
        .collect()
}

fn check_crate(tree: &Tree, name: &str, manifest: &SourceFile) -> Vec<Finding> {
    let Ok(table) = manifest.text.parse::<toml::Table>() else {
        return vec![manifest.finding(0, "is not TOML")];
    };
    let mut findings = Vec::new();
    for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
        for (dependency, value) in table.get(section).and_then(|s| s.as_table()).into_iter().flatten() {
            if value.get("workspace").and_then(|w| w.as_bool()) != Some(true) {
                let message =
                    format!("{dependency}: declare it in the workspace and write `.workspace = true` here");
                findings.push(manifest.finding(0, message));
            }
            if !is_used(tree, name, dependency) {
                findings
                    .push(manifest.finding(0, format!("{dependency} in [{section}] is not used: remove it")));
            }
        }
    }
    findings
}

/// Whether any source of the crate names the dependency.
fn is_used(tree: &Tree, crate_name: &str, dependency: &str) -> bool {
    let folder = format!("crates/{crate_name}/");
    let identifier = dependency.replace('-', "_");
    // A message type derived by the build script names its runtime only in generated code.
    let generated = dependency == "prost" && tree.file(&format!("{folder}build.rs")).is_some();
    generated
        || tree.rust_files().filter(|file| file.path.starts_with(&folder)).any(|file| {
            let code = file.code();
            ["::", ";", " as", ",", "}"].iter().any(|end| code.contains(&format!("{identifier}{end}")))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace(dependencies: &str) -> Vec<String> {
        let text = format!("[workspace]\nmembers = []\n\n[workspace.dependencies]\n{dependencies}\n");
        let user = "[dependencies]\na.workspace = true\nb.workspace = true\nours.workspace = true\n";
        let files = [
            ("Cargo.toml", &*text),
            ("crates/u/Cargo.toml", user),
            ("crates/u/src/lib.rs", "use {a, b, ours};"),
        ];
        check(&Tree::of(&files)).into_iter().map(|f| f.message).collect()
    }

    fn member(manifest: &str, source: &str) -> usize {
        let files = [("Cargo.toml", ""), ("crates/a/Cargo.toml", manifest), ("crates/a/src/lib.rs", source)];
        check(&Tree::of(&files)).len()
    }

    #[test]
    fn a_dependency_without_a_reason_is_found() {
        assert!(workspace("# Why.\na = { version = \"1\", default-features = false }").is_empty());
        assert_eq!(workspace("a = { version = \"1\", default-features = false }").len(), 1);
        assert!(workspace("ours = { path = \"crates/ours\" }").is_empty());
    }

    #[test]
    fn default_features_need_a_reason() {
        assert_eq!(workspace("# Why.\na = \"1\"").len(), 1);
        assert!(workspace("# Why; its default feature is std.\na = \"1\"\nb = \"2\"").is_empty());
    }

    #[test]
    fn a_dependency_that_is_declared_for_nobody_is_found() {
        assert_eq!(workspace("# Why.\nc = { version = \"1\", default-features = false }").len(), 1);
    }

    #[test]
    fn a_dependency_that_nobody_uses_or_that_has_its_own_version_is_found() {
        assert_eq!(member("[dependencies]\nb-c.workspace = true", "use b_c::D;"), 0);
        assert_eq!(member("[dependencies]\nb-c.workspace = true", "// b_c::D"), 1);
        assert_eq!(member("[dependencies]\nb = \"1\"", "use b::D;"), 1);
    }
}
