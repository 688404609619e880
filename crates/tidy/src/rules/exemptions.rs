//! An exemption from a lint has a reason, and `unsafe` is in one named module of a crate at most.

use crate::tree::{Finding, SourceFile, Tree};

/// The only files with unsafe code. The reason stands at the top of each.
const UNSAFE_FILES: &[&str] = &[
    "crates/capi/src/exports/connections.rs",
    "crates/capi/src/exports/copies.rs",
    "crates/capi/src/exports/files.rs",
    "crates/capi/src/exports/limits.rs",
    "crates/capi/src/exports/listings.rs",
    "crates/capi/src/exports/locks.rs",
    "crates/capi/src/exports/mod.rs",
    "crates/capi/src/exports/names.rs",
    "crates/capi/src/exports/ranges.rs",
    "crates/capi/src/exports/xattrs.rs",
    "crates/disk/src/write_back.rs",
    "crates/fuse/src/kernel/ring.rs",
    "crates/lab/src/nfs/libnfs.rs",
    "crates/meter/src/tcp_info.rs",
    "crates/python/src/interpreter.rs",
    "crates/wire/src/local/memory.rs",
    "crates/wire/src/tcp/pacing.rs",
];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    tree.rust_files()
        .flat_map(|file| {
            let code = file.code();
            let mut findings = check_reasons(file, &code);
            findings.extend(check_unsafe(file, &code));
            findings
        })
        .collect()
}

fn line_of(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}

fn check_reasons(file: &SourceFile, code: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for start in ["#[allow(", "#![allow(", "#[expect(", "#![expect("] {
        for (at, _) in code.match_indices(start) {
            let attribute = &code[at..code[at..].find(")]").map_or(code.len(), |end| at + end)];
            if !attribute.contains("reason") {
                findings
                    .push(file.finding(line_of(code, at), "an exemption from a lint needs `reason = \"…\"`"));
            }
        }
    }
    findings
}

fn check_unsafe(file: &SourceFile, code: &str) -> Vec<Finding> {
    if UNSAFE_FILES.contains(&file.path.as_str()) {
        return Vec::new();
    }
    let starts = ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern", "unsafe("];
    starts
        .iter()
        .flat_map(|start| code.match_indices(start))
        .filter(|(at, _)| !code[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
        .map(|(at, _)| {
            file.finding(line_of(code, at), "unsafe code outside the modules listed in crates/tidy")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> usize {
        check(&Tree::of(&[("crates/a/src/lib.rs", text)])).len()
    }

    #[test]
    fn an_exemption_without_a_reason_is_found() {
        assert_eq!(count("#[allow(dead_code)]\nfn a() {}"), 1);
        assert_eq!(count("#![allow(\n    dead_code,\n    clippy::all,\n)]"), 1);
        assert_eq!(count("#[expect(dead_code, reason = \"why\")]\nfn a() {}"), 0);
    }

    #[test]
    fn unsafe_code_is_found_but_not_the_word() {
        assert_eq!(count("fn a() { unsafe { b() } }"), 1);
        assert_eq!(count("// unsafe { }\nlet unsafe_name = \"unsafe {\"; check_unsafe(1);"), 0);
    }
}
