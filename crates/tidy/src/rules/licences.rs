//! The licences of everything that is linked in allow what Apache-2.0 allows.

use crate::tree::{Finding, Tree};
use std::process::Command;

/// Licences that may be distributed with an Apache-2.0 binary. MPL-2.0 covers its own files only.
const ALLOWED: [&str; 13] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MPL-2.0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let lock = |message: String| vec![Finding { path: "Cargo.lock".into(), line: 0, message }];
    let metadata = match metadata(tree) {
        Ok(metadata) => metadata,
        Err(error) => return lock(format!("`cargo metadata` failed: {error}")),
    };
    let packages = metadata["packages"].as_array().cloned().unwrap_or_default();
    if packages.is_empty() {
        return lock("`cargo metadata` listed no packages".into());
    }
    packages.iter().filter_map(refusal).flat_map(lock).collect()
}

/// Packages that are built on this machine's kind of system.
#[allow(clippy::disallowed_methods, reason = "cargo ends by itself; the test has a limit")]
fn metadata(tree: &Tree) -> Result<serde_json::Value, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", &platform])
        .current_dir(&tree.root)
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_string());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
}

/// Why a package may not be used; `None` when it may.
fn refusal(package: &serde_json::Value) -> Option<String> {
    let name = package["name"].as_str().unwrap_or("?");
    let Some(expression) = package["license"].as_str() else {
        return Some(format!("{name} names no licence in its manifest"));
    };
    if is_allowed(expression) {
        return None;
    }
    Some(format!(
        "{name} is under {expression:?}, which is not in the list of allowed licences in crates/tidy"
    ))
}

/// Evaluates an SPDX expression: `OR` needs one side, `AND` both. A slash is the old way to write `OR`.
fn is_allowed(expression: &str) -> bool {
    let expression = expression.trim().replace('/', " OR ");
    let parts = split_outside_parentheses(&expression, " OR ");
    if parts.len() > 1 {
        return parts.iter().any(|part| is_allowed(part));
    }
    let parts = split_outside_parentheses(&expression, " AND ");
    if parts.len() > 1 {
        return parts.iter().all(|part| is_allowed(part));
    }
    match expression.trim().strip_prefix('(').and_then(|e| e.strip_suffix(')')) {
        Some(inner) => is_allowed(inner),
        None => {
            let name = expression.split_whitespace().collect::<Vec<_>>().join(" ");
            ALLOWED.contains(&name.as_str())
        }
    }
}

fn split_outside_parentheses<'t>(text: &'t str, separator: &str) -> Vec<&'t str> {
    let mut parts = Vec::new();
    let mut start = 0;
    for (at, _) in text.match_indices(separator) {
        let before = &text[..at];
        if before.matches('(').count() == before.matches(')').count() {
            parts.push(&text[start..at]);
            start = at + separator.len();
        }
    }
    parts.push(&text[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read_as_spdx_means_them() {
        for good in [
            "MIT",
            "MIT/Apache-2.0",
            "MIT OR GPL-3.0-only",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0-only",
        ] {
            assert!(is_allowed(good), "{good}");
        }
        for bad in ["GPL-3.0-only", "MIT AND GPL-3.0-only", "(MIT OR Apache-2.0) AND AGPL-3.0-only", ""] {
            assert!(!is_allowed(bad), "{bad}");
        }
    }

    #[test]
    fn a_package_without_a_licence_is_refused() {
        assert!(refusal(&serde_json::json!({"name": "a", "license": null})).is_some());
        assert!(refusal(&serde_json::json!({"name": "a", "license": "GPL-3.0"})).is_some());
        assert!(refusal(&serde_json::json!({"name": "a", "license": "MIT"})).is_none());
    }
}
