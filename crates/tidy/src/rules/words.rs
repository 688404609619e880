//! Comments and names use the field's words: who reads them has read other storage systems, not this one.

use crate::lexer::{Token, tokens};
use crate::tree::{Finding, SourceFile, Tree};

/// Words of comments that hide who acts, and those of this project's former dialect, with what to write instead.
const WORDS: [(&str, &str); 9] = [
    ("somebody", "name the client, thread, program or server that acts"),
    ("anybody", "name the client, thread, program or server that acts"),
    ("nobody", "name the client, thread, program or server that does not act"),
    ("whoever", "name the client, thread, program or server that acts"),
    ("appetite", "readdirplus policy"),
    ("strays", "orphan objects"),
    ("silences", "unresponsive servers"),
    ("patience", "timeout"),
    ("doorkeeper", "local server"),
];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let product = |file: &&SourceFile| file.is_rust() && file.path.contains("/src/") && !is_test(&file.path);
    tree.files.iter().filter(product).flat_map(check_file).collect()
}

fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs") || path.ends_with("_tests.rs")
}

fn check_file(file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (token, range) in tokens(&file.text) {
        if token == Token::Literal {
            continue;
        }
        let first_line = file.text[..range.start].matches('\n').count() + 1;
        for (line, content) in file.text[range].lines().enumerate() {
            let content = content.to_ascii_lowercase();
            let has =
                |word: &str| content.split(|c: char| !c.is_ascii_alphanumeric()).any(|part| part == word);
            let is_comment = token == Token::Comment;
            // Identifiers of constants and types that may have the name of a user of the operating system.
            let found = WORDS.iter().find(|(word, _)| has(word) && (is_comment || !word.ends_with("body")));
            if let Some((word, instead)) = found {
                findings.push(file.finding(first_line + line, format!("\"{word}\": {instead}")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        check(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn comments_that_hide_who_acts_are_found() {
        assert_eq!(found("crates/a/src/a.rs", "/// Nobody waits for it.\nfn f() {}\n"), 1);
        assert_eq!(found("crates/a/src/a.rs", "//! One.\n//! Whoever asks.\n"), 1);
        assert_eq!(found("crates/a/src/a.rs", "/// A nobodyelse is another word.\nfn f() {}\n"), 0);
    }

    #[test]
    fn the_former_dialect_is_found_in_names_too() {
        assert_eq!(found("crates/a/src/a.rs", "fn f(patience: u32) {}\n"), 1);
        assert_eq!(found("crates/a/src/a.rs", "const NOBODY: u32 = 1;\n"), 0);
        assert_eq!(found("crates/a/src/a.rs", "const TEXT: &str = \"patience\";\n"), 0, "a message");
    }

    #[test]
    fn tests_may_tell_their_story_in_any_words() {
        assert_eq!(found("crates/a/tests/a.rs", "/// Nobody waits for it.\nfn f() {}\n"), 0);
    }
}
