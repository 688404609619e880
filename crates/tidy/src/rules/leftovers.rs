//! Nothing is left lying about: notes to oneself, debugging, code that was commented out.

use crate::lexer::{Token, tokens};
use crate::tree::{Finding, SourceFile, Tree};

/// Notes to oneself. What is missing is written into CHANGELOG.md, under "Known gaps".
const NOTES: [&str; 4] = ["TODO", "FIXME", "XXX", "HACK"];

/// Macros that are for the author, not for the product.
const MACROS: [&str; 3] = ["dbg!", "todo!", "unimplemented!"];

/// Other languages of the project in which the words above are looked for in the whole text.
const SCRIPTS: [&str; 4] = [".sh", ".py", ".proto", ".toml"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        if file.is_rust() {
            findings.extend(check_comments(file));
            findings.extend(check_macros(file));
        } else if SCRIPTS.iter().any(|end| file.path.ends_with(end)) {
            findings.extend(check_notes(file, &file.text, 1));
        }
    }
    findings
}

/// True when `text` has `word` between characters that are not part of a word.
fn has_word(text: &str, word: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        !text[..at].chars().next_back().is_some_and(is_word)
            && !text[at + word.len()..].chars().next().is_some_and(is_word)
    })
}

fn check_notes(file: &SourceFile, text: &str, first_line: usize) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, content) in text.lines().enumerate() {
        if let Some(note) = NOTES.iter().find(|note| has_word(content, note)) {
            let message = format!("{note}: do it, or write it under \"Known gaps\" in CHANGELOG.md");
            findings.push(file.finding(first_line + line, message));
        }
    }
    findings
}

fn check_comments(file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (token, range) in tokens(&file.text) {
        if token != Token::Comment {
            continue;
        }
        let line = file.text[..range.start].matches('\n').count() + 1;
        let comment = &file.text[range];
        findings.extend(check_notes(file, comment, line));
        let is_doc = comment.starts_with("///") || comment.starts_with("//!");
        if !is_doc && comment.trim_start_matches("//").lines().any(looks_like_code) {
            findings.push(file.finding(line, "code in a comment: delete it, the history keeps it"));
        }
    }
    findings
}

/// Guesses; prose may end with a semicolon, but then it has no call or assignment and does not begin with a keyword.
fn looks_like_code(line: &str) -> bool {
    let line = line.trim();
    if matches!(line, "}" | "{" | "};" | "});" | "})" | "})?;") {
        return true;
    }
    let keywords = ["let ", "fn ", "use ", "pub ", "impl ", "return ", "match ", "if ", "for ", "#["];
    let begins = keywords.iter().any(|keyword| line.starts_with(keyword));
    let statement =
        line.ends_with(';') && (line.contains(" = ") || line.contains("();") || line.contains(");"));
    (begins && [';', '{', ']'].iter().any(|end| line.ends_with(*end))) || statement
}

fn check_macros(file: &SourceFile) -> Vec<Finding> {
    let code = file.code();
    let mut findings = Vec::new();
    for (line, content) in code.lines().enumerate() {
        if let Some(name) = MACROS.iter().find(|name| has_macro(content, name)) {
            findings.push(file.finding(line + 1, format!("{name} is for the author only: remove it")));
        }
    }
    findings
}

fn has_macro(line: &str, name: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(name).any(|(at, _)| !line[..at].chars().next_back().is_some_and(is_word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> usize {
        check(&Tree::of(&[("crates/a/src/lib.rs", text)])).len()
    }

    #[test]
    fn notes_and_debugging_are_found() {
        assert_eq!(count("// TODO: later\n"), 1);
        assert_eq!(count("/* one\n FIXME two */"), 1);
        assert_eq!(count("fn a() { dbg!(1); todo!() }"), 1);
        assert_eq!(check(&Tree::of(&[("scripts/a.sh", "# XXX why\n")])).len(), 1);
    }

    #[test]
    fn words_in_strings_and_in_other_words_are_fine() {
        assert_eq!(count("let a = \"TODO dbg!\"; // mastodon TODOS\nfn x() { my_dbg!(1) }"), 0);
        assert_eq!(check(&Tree::of(&[("scripts/a.sh", "mktemp -d /tmp/a.XXXXXX\n")])).len(), 0);
    }

    #[test]
    fn commented_out_code_is_found() {
        for code in ["// let a = 1;", "// }", "//     send(&frame);", "// if a {", "/*\nfn a() {\n*/"] {
            assert_eq!(count(code), 1, "{code}");
        }
    }

    #[test]
    fn prose_and_examples_are_fine() {
        for prose in
            ["// Reads come first;", "// if it fails, the caller knows", "/// let a = f();", "// a = b"]
        {
            assert_eq!(count(prose), 0, "{prose}");
        }
    }
}
