//! Links between documents and the paths that they name lead somewhere, and each decision is in the index and has its
//! four parts.

use crate::tree::{Finding, SourceFile, Tree};

const DECISIONS: &str = "docs/decisions/";
const INDEX: &str = "docs/decisions/README.md";
const PARTS: [&str; 4] = ["## Question", "## Known", "## Decision", "## Revisit when"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let documents = || tree.files.iter().filter(|file| file.path.ends_with(".md"));
    let mut findings: Vec<Finding> = documents().flat_map(|file| check_links(tree, file)).collect();
    for decision in documents().filter(|file| file.path.starts_with(DECISIONS) && file.path != INDEX) {
        findings.extend(check_decision(tree, decision));
    }
    findings
}

fn check_links(tree: &Tree, file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, content) in file.text.lines().enumerate() {
        for path in paths(content).filter(|path| !tree.has_path(path.trim_end_matches('/'))) {
            findings.push(file.finding(line + 1, format!("there is no {path}")));
        }
        for link in links(content) {
            let target = link.split('#').next().unwrap_or_default();
            let is_ours = !target.is_empty() && !target.contains(':');
            if is_ours && !tree.has_path(&resolve(&file.path, target)) {
                findings.push(file.finding(line + 1, format!("the link to {target} leads nowhere")));
            }
        }
    }
    findings
}

/// The targets of `[text](target)` in a line.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

/// Paths of the repository that a line names as code.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    let is_path = |code: &&str| {
        ["crates/", "scripts/", "docs/"].iter().any(|start| code.starts_with(start))
            && code.chars().all(|c| c.is_ascii_alphanumeric() || "/_-.".contains(c))
    };
    line.split('`').skip(1).step_by(2).filter(is_path)
}

/// `target` as seen from the document `from`, with `..` resolved.
fn resolve(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

fn check_decision(tree: &Tree, decision: &SourceFile) -> Vec<Finding> {
    let has = |part: &str| decision.text.lines().any(|line| line.trim_end() == part);
    let mut findings: Vec<Finding> = PARTS
        .iter()
        .filter(|part| !has(part))
        .map(|part| {
            decision.finding(0, format!("a decision has a part \"{part}\" (docs/decisions/README.md)"))
        })
        .collect();
    let name = decision.path.trim_start_matches(DECISIONS);
    if !tree.file(INDEX).is_some_and(|index| index.text.contains(&format!("]({name})"))) {
        findings.push(decision.finding(0, format!("is not in the index {INDEX}")));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECISION: &str = "# A\n\n## Question\n\n## Known\n\n## Decision\n\n## Revisit when\n";

    fn findings(readme: &str, index: &str, decision: &str) -> Vec<String> {
        let files = [("README.md", readme), (INDEX, index), ("docs/decisions/a.md", decision)];
        check(&Tree::of(&files)).into_iter().map(|f| f.to_string()).collect()
    }

    #[test]
    fn links_that_lead_somewhere_are_fine() {
        let readme = "[a](docs/decisions/a.md#question), [b](https://example.org/x), [c](#here), [d](docs/)";
        let found = findings(readme, "[a](a.md) [up](../../README.md)", DECISION);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn a_path_that_leads_nowhere_is_found() {
        let found =
            findings("see `docs/decisions/a.md`, `docs/decisions/`, `crates/*/src`", "[a](a.md)", DECISION);
        assert!(found.is_empty(), "{found:?}");
        assert_eq!(findings("see `crates/a/src/gone.rs`", "[a](a.md)", DECISION).len(), 1);
    }

    #[test]
    fn dead_links_unlisted_and_incomplete_decisions_are_found() {
        assert_eq!(findings("[a](docs/none.md)", "[a](a.md)", DECISION).len(), 1);
        assert_eq!(findings("", "", DECISION).len(), 1);
        assert_eq!(findings("", "[a](a.md)", "## Question\n## Known\n").len(), 2);
    }
}
