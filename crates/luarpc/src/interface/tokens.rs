//! The words of an interface file: names, strings, signs. Comments and white space are left out.

use super::Wrong;

/// A word.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Token {
    Name(String),
    String(Vec<u8>),
    /// One of the signs of tables: `{ } ( ) [ ] = , ;`.
    Sign(u8),
    End,
}

impl Token {
    /// For messages.
    pub(super) fn shown(&self) -> String {
        match self {
            Token::Name(name) => format!("`{name}`"),
            Token::String(bytes) => format!("the string {}", crate::line::shown(bytes)),
            Token::Sign(sign) => format!("`{}`", char::from(*sign)),
            Token::End => "the end of the file".to_owned(),
        }
    }
}

/// A text that is taken apart.
pub(super) struct Tokens<'a> {
    text: &'a [u8],
    at: usize,
    /// Of the last token.
    pub(super) line: usize,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(text: &'a [u8]) -> Tokens<'a> {
        Tokens { text: text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text), at: 0, line: 1 }
    }

    pub(super) fn wrong(&self, what: impl Into<String>) -> Wrong {
        Wrong { line: self.line, what: what.into() }
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.get(self.at + ahead).copied()
    }

    /// Takes a byte, and counts the lines.
    fn take(&mut self) -> Option<u8> {
        let byte = self.peek(0)?;
        self.at += 1;
        self.line += usize::from(byte == b'\n');
        Some(byte)
    }

    /// The next word.
    pub(super) fn next(&mut self) -> Result<Token, Wrong> {
        self.skip_blanks()?;
        let Some(byte) = self.peek(0) else { return Ok(Token::End) };
        match byte {
            b'{' | b'}' | b'(' | b')' | b'=' | b',' | b';' | b']' => {
                self.at += 1;
                Ok(Token::Sign(byte))
            }
            b'[' => match self.long_level() {
                Some(level) => self.long_string(level).map(Token::String),
                None => {
                    self.at += 1;
                    Ok(Token::Sign(byte))
                }
            },
            b'"' | b'\'' => self.string(byte).map(Token::String),
            b'_' | b'a'..=b'z' | b'A'..=b'Z' => Ok(Token::Name(self.name())),
            _ => Err(self.wrong(format!(
                "{} has no place in an interface, which is a table of names and strings",
                crate::line::shown(&[byte])
            ))),
        }
    }

    fn name(&mut self) -> String {
        let start = self.at;
        while self.peek(0).is_some_and(|byte| byte == b'_' || byte.is_ascii_alphanumeric()) {
            self.at += 1;
        }
        String::from_utf8_lossy(&self.text[start..self.at]).into_owned()
    }

    fn skip_blanks(&mut self) -> Result<(), Wrong> {
        while let Some(byte) = self.peek(0) {
            if byte.is_ascii_whitespace() || byte == 0x0b {
                self.take();
            } else if byte == b'-' && self.peek(1) == Some(b'-') {
                self.at += 2;
                self.comment()?;
            } else {
                break;
            }
        }
        Ok(())
    }

    fn comment(&mut self) -> Result<(), Wrong> {
        if self.peek(0) == Some(b'[')
            && let Some(level) = self.long_level()
        {
            return self.long_string(level).map(|_| ());
        }
        while self.peek(0).is_some_and(|byte| byte != b'\n') {
            self.at += 1;
        }
        Ok(())
    }

    /// The number of `=` between two `[`, when a long string begins here.
    fn long_level(&self) -> Option<usize> {
        let level = self.text[self.at + 1..].iter().take_while(|&&byte| byte == b'=').count();
        (self.peek(1 + level) == Some(b'[')).then_some(level)
    }

    /// `[[ … ]]`, `[==[ … ]==]`; a line end at its very beginning does not count.
    fn long_string(&mut self, level: usize) -> Result<Vec<u8>, Wrong> {
        let begun = self.line;
        let mut end = vec![b'='; level + 2];
        (end[0], end[level + 1]) = (b']', b']');
        self.at += level + 2;
        let start = self.at;
        while !self.text[self.at..].starts_with(&end) {
            if self.take().is_none() {
                return Err(Wrong { line: begun, what: "what begins with `[[` here has no end".to_owned() });
            }
        }
        let inside = &self.text[start..self.at];
        self.at += end.len();
        Ok(inside.strip_prefix(b"\r\n").or(inside.strip_prefix(b"\n")).unwrap_or(inside).to_vec())
    }

    fn string(&mut self, quote: u8) -> Result<Vec<u8>, Wrong> {
        let mut bytes = Vec::new();
        self.at += 1;
        loop {
            match self.peek(0) {
                None | Some(b'\n') => return Err(self.wrong("a string has no end on its line")),
                Some(byte) if byte == quote => {
                    self.at += 1;
                    return Ok(bytes);
                }
                Some(b'\\') => {
                    let (byte, length) = crate::line::escape(&self.text[self.at + 1..]).ok_or_else(|| {
                        self.wrong("a string has a backslash before something else than n, \\ or a quote")
                    })?;
                    bytes.push(byte);
                    self.at += 1 + length;
                }
                Some(byte) => {
                    bytes.push(byte);
                    self.at += 1;
                }
            }
        }
    }
}
