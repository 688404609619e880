//! Files, functions and lines stay short enough to be read.

use crate::lexer::{Token, tokens};
use crate::tree::{Finding, SourceFile, Tree};

/// Long tests go to their own file well before this.
const FILE_LINES_MAX: usize = 800;

/// From `fn` to the closing brace. Most should have less than half of it.
const FUNCTION_LINES_MAX: usize = 70;

/// The formatter breaks code earlier; this is for comments. A message may be longer than a line: it is kept whole, so
/// that it can be searched for.
const LINE_CHARACTERS_MAX: usize = 120;

/// A comment with this word right above a function, or at its beginning, gives the reason why it is longer.
const REASON: &str = "Long because";

/// Lines above a function, with its attributes and documentation, in which a reason is looked for.
const REASON_LINES_ABOVE: usize = 10;

/// Files whose lines are counted; tables in documents and manifests may be wide.
const NARROW: [&str; 4] = [".rs", ".proto", ".sh", ".py"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| NARROW.iter().any(|end| file.path.ends_with(end))) {
        findings.extend(check_lines(file));
        if file.is_rust() {
            findings.extend(check_functions(file));
        }
    }
    findings
}

fn check_lines(file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    let count = file.text.lines().count();
    if count > FILE_LINES_MAX {
        findings
            .push(file.finding(count, format!("{count} lines; {FILE_LINES_MAX} are the limit: split it")));
    }
    for (line, content) in without_literals(file).lines().enumerate() {
        let width = content.chars().count();
        // An address cannot be broken.
        if width > LINE_CHARACTERS_MAX && !content.contains("https://") {
            let message = format!("{width} characters wide; {LINE_CHARACTERS_MAX} are the limit");
            findings.push(file.finding(line + 1, message));
        }
    }
    findings
}

/// The text with literals cut out; the lines stay.
fn without_literals(file: &SourceFile) -> String {
    let keep = |(token, range): (Token, std::ops::Range<usize>)| match token {
        Token::Literal => "\n".repeat(file.text[range].matches('\n').count()),
        Token::Code | Token::Comment => file.text[range].to_string(),
    };
    tokens(&file.text).into_iter().map(keep).collect()
}

/// A function with a body.
struct Function {
    name: String,
    /// Lines of its `fn` and of its closing brace, from 0.
    first_line: usize,
    last_line: usize,
}

fn check_functions(file: &SourceFile) -> Vec<Finding> {
    let lines: Vec<&str> = file.text.lines().collect();
    let mut findings = Vec::new();
    for function in functions(&file.code()) {
        let length = function.last_line - function.first_line + 1;
        let above = function.first_line.saturating_sub(REASON_LINES_ABOVE);
        let near = lines.get(above..=function.first_line + 1).unwrap_or_default();
        if length > FUNCTION_LINES_MAX && !near.iter().any(|line| line.contains(REASON)) {
            let message = format!(
                "fn {} has {length} lines; {FUNCTION_LINES_MAX} are the limit: split it, or say \"{REASON} …\" above it",
                function.name
            );
            findings.push(file.finding(function.first_line + 1, message));
        }
    }
    findings
}

/// All functions in masked code, nested ones too.
fn functions(code: &str) -> Vec<Function> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        if code[..at].chars().next_back().is_some_and(is_word) {
            continue;
        }
        let after = &code[at + 3..];
        let name: String = after.chars().take_while(|&c| is_word(c) || c == '$').collect();
        if name.is_empty() {
            continue;
        }
        if let Some(length) = body_end(after) {
            let first_line = code[..at].matches('\n').count();
            let last_line = first_line + after[..length].matches('\n').count();
            found.push(Function { name, first_line, last_line });
        }
    }
    found
}

/// The end of the body of a function whose signature `after` begins with; `None` when it has no body.
fn body_end(after: &str) -> Option<usize> {
    let (mut brackets, mut braces) = (0i32, 0i32);
    for (at, c) in after.char_indices() {
        match c {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets -= 1,
            ';' if brackets == 0 && braces == 0 => return None,
            '{' => braces += 1,
            '}' => {
                braces -= 1;
                if braces == 0 && brackets == 0 {
                    return Some(at + 1);
                }
                if braces < 0 {
                    return None;
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(text: &str) -> Vec<String> {
        check(&Tree::of(&[("crates/a/src/lib.rs", text)])).into_iter().map(|f| f.to_string()).collect()
    }

    fn function(lines: usize) -> String {
        format!("fn a(b: [u8; 3]) -> u8 {{\n{}}}\n", "    b();\n".repeat(lines - 2))
    }

    #[test]
    fn a_function_of_70_lines_is_fine_and_71_need_a_reason() {
        assert!(messages(&function(70)).is_empty());
        assert_eq!(messages(&function(71)).len(), 1);
        assert!(messages(&format!("// Long because: one table.\n{}", function(71))).is_empty());
    }

    #[test]
    fn braces_in_strings_and_bodiless_functions_do_not_confuse() {
        let text = format!("trait T {{ fn a(); }}\nfn b() {{ \"}}\"; '{{'; }}\n{}", "// x\n".repeat(80));
        assert!(messages(&text).is_empty(), "{:?}", messages(&text));
        let nested = format!("mod m {{\n{}}}\n", function(71));
        assert!(messages(&nested)[0].starts_with("crates/a/src/lib.rs:2: fn a has 71 lines"));
    }

    #[test]
    fn long_files_and_wide_lines_are_found() {
        assert!(messages(&"//\n".repeat(800)).is_empty());
        assert_eq!(messages(&"//\n".repeat(801)).len(), 1);
        assert!(messages(&format!("// {}", "ã".repeat(117))).is_empty());
        assert_eq!(messages(&format!("// {}", "ã".repeat(118))).len(), 1);
        assert!(messages(&format!("f(\"{}\");", "x".repeat(200))).is_empty());
    }
}
