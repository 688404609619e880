//! Tells code, comments and literals of Rust source apart. Not a parser: that is all it knows.

use std::ops::Range;

/// What a stretch of source is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Token {
    /// Everything else, with white space.
    Code,
    /// `//` to the end of the line, or `/* */`.
    Comment,
    /// A string, byte string or character with its quotes.
    Literal,
}

/// Cuts source into stretches; together they are the whole text, in order.
pub(crate) fn tokens(text: &str) -> Vec<(Token, Range<usize>)> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let (mut at, mut code_start) = (0, 0);
    while at < bytes.len() {
        match next_special(bytes, at) {
            Some((token, end)) => {
                if code_start < at {
                    found.push((Token::Code, code_start..at));
                }
                found.push((token, at..end));
                (at, code_start) = (end, end);
            }
            None => at += 1,
        }
    }
    if code_start < bytes.len() {
        found.push((Token::Code, code_start..bytes.len()));
    }
    found
}

/// The comment or literal that starts at `at`, with its end.
fn next_special(bytes: &[u8], at: usize) -> Option<(Token, usize)> {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        let length = rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
        return Some((Token::Comment, at + length));
    }
    if rest.starts_with(b"/*") {
        return Some((Token::Comment, at + block_comment_length(rest)));
    }
    match rest[0] {
        b'"' => Some((Token::Literal, at + quoted_length(rest))),
        b'r' if !follows_identifier(bytes, at) => raw_length(rest).map(|n| (Token::Literal, at + n)),
        b'\'' => character_length(rest).map(|n| (Token::Literal, at + n)),
        _ => None,
    }
}

/// True when the byte before `at` belongs to an identifier other than the `b` or `c` that may stand before a raw
/// string.
fn follows_identifier(bytes: &[u8], at: usize) -> bool {
    let is_word = |&b: &u8| b.is_ascii_alphanumeric() || b == b'_';
    let word = bytes[..at].iter().rev().take_while(|b| is_word(b)).count();
    match word {
        0 => false,
        1 => !matches!(bytes[at - 1], b'b' | b'c'),
        _ => true,
    }
}

fn block_comment_length(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// Length of a string that begins at its quote.
fn quoted_length(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Length of a raw string that begins at its `r`.
fn raw_length(rest: &[u8]) -> Option<usize> {
    let hashes = rest[1..].iter().take_while(|&&b| b == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return None;
    }
    let mut end = vec![b'"'];
    end.resize(1 + hashes, b'#');
    let body = 2 + hashes;
    let found = rest[body..].windows(end.len()).position(|window| window == end);
    Some(found.map_or(rest.len(), |at| body + at + end.len()))
}

/// Length of a character literal that begins at its quote; `None` for a lifetime.
fn character_length(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b'\\') {
        let close = rest.iter().skip(3).position(|&b| b == b'\'')?;
        return Some(close + 4);
    }
    let text = std::str::from_utf8(&rest[1..rest.len().min(6)])
        .or_else(|e| std::str::from_utf8(&rest[1..1 + e.valid_up_to()]));
    let length = text.ok()?.chars().next()?.len_utf8();
    (rest.get(1 + length) == Some(&b'\'')).then_some(length + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<(Token, &str)> {
        tokens(text).into_iter().map(|(token, range)| (token, &text[range])).collect()
    }

    #[test]
    fn comments_strings_and_code_are_told_apart() {
        use Token::*;
        assert_eq!(
            kinds("let a = \"// no\"; // yes \"no\"\nb"),
            [
                (Code, "let a = "),
                (Literal, "\"// no\""),
                (Code, "; "),
                (Comment, "// yes \"no\""),
                (Code, "\nb")
            ]
        );
        assert_eq!(kinds("/* a /* b */ c */d"), [(Comment, "/* a /* b */ c */"), (Code, "d")]);
    }

    #[test]
    fn raw_strings_and_escapes_end_where_they_should() {
        use Token::*;
        assert_eq!(kinds(r##"r#"a"b"# x"##), [(Literal, r##"r#"a"b"#"##), (Code, " x")]);
        assert_eq!(kinds(r#"br"\" + 1"#), [(Code, "b"), (Literal, r#"r"\""#), (Code, " + 1")]);
        assert_eq!(kinds(r#""\"" y"#), [(Literal, r#""\"""#), (Code, " y")]);
        assert_eq!(kinds("for\"x\""), [(Code, "for"), (Literal, "\"x\"")]);
    }

    #[test]
    fn characters_are_not_lifetimes() {
        use Token::*;
        assert_eq!(kinds("'\"' a"), [(Literal, "'\"'"), (Code, " a")]);
        assert_eq!(kinds(r"'\'' a"), [(Literal, r"'\''"), (Code, " a")]);
        assert_eq!(kinds(r"'\\' a"), [(Literal, r"'\\'"), (Code, " a")]);
        assert_eq!(kinds("'ã' a"), [(Literal, "'ã'"), (Code, " a")]);
        assert_eq!(kinds("&'a str, 'b'"), [(Code, "&'a str, "), (Literal, "'b'")]);
    }
}
