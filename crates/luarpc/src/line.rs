//! Values as lines, and lines as values.
//!
//! Written is one form: a string in double quotes with `\\`, `\"` and `\n`, a number as the shortest text that reads
//! back the same, `nil` for nothing, an error bare. A character is quoted like a string unless the peer has sent a bare
//! one. Read are all forms that implementations are known to write.

use crate::limits::ERROR_BYTES_MAX;
use crate::lines::without_return;
use crate::value::{Kind, Value};

/// What an error begins with, where a result would stand.
pub const ERROR: &[u8] = b"___ERRORPC: ";

/// How a character is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CharForm {
    /// Like a string of one byte.
    #[default]
    Quoted,
    /// The byte itself.
    Bare,
}

/// A line that is no value of its type.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unread {
    /// A string, or a quoted character, that does not begin and end with a double quote.
    #[error("{0} is no string: a string stands in double quotes")]
    Unquoted(String),
    /// A backslash with something after it that no implementation writes, or a quote within the string.
    #[error("{0} is no string: in it \\, \" and line ends are written as \\\\, \\\" and \\n")]
    Escape(String),
    /// More than one byte, or none.
    #[error("{0} is no char: that is one byte, bare or in double quotes")]
    Char(String),
    /// Not a decimal number: hexadecimal ones, infinities and what is no number are no dialect of the protocol.
    #[error("{0} is no double: that is a decimal number")]
    Double(String),
    /// A number that would be infinite.
    #[error("{0} is out of the range of a double")]
    Range(String),
    /// Something where nothing belongs.
    #[error("{0} is not nil, which a void is written as")]
    Void(String),
}

/// Writes `value` as a line, with its end. Numbers that are not finite have no form: callers refuse them before.
pub fn write(value: &Value, form: CharForm, out: &mut Vec<u8>) {
    match value {
        Value::Nil => out.extend_from_slice(b"nil"),
        Value::Double(number) => write_number(*number, out),
        Value::String(bytes) => write_quoted(bytes, out),
        // A bare line end would be read as the end of an empty line.
        Value::Char(byte) if form == CharForm::Bare && !matches!(byte, b'\n' | b'\r') => out.push(*byte),
        Value::Char(byte) => write_quoted(&[*byte], out),
    }
    out.push(b'\n');
}

fn write_quoted(bytes: &[u8], out: &mut Vec<u8>) {
    out.reserve(bytes.len() + 2);
    out.push(b'"');
    for &byte in bytes {
        match byte {
            b'\\' | b'"' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

/// Numbers up to this are written without an exponent, as Lua does.
const PLAIN_MAX: f64 = 1e15;

fn write_number(number: f64, out: &mut Vec<u8>) {
    let size = number.abs();
    let text = if number.is_finite() && size != 0.0 && !(1e-5..PLAIN_MAX).contains(&size) {
        format!("{number:e}")
    } else {
        format!("{number}")
    };
    out.extend_from_slice(text.as_bytes());
}

/// Writes an error as a line that stands in the place of a result. What is too long loses its middle: the beginning
/// names the thing, the end the remedy.
pub fn write_error(message: &str, out: &mut Vec<u8>) {
    let message = message.as_bytes();
    out.extend_from_slice(ERROR);
    let mut push = |part: &[u8]| {
        out.extend(part.iter().map(|&byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }));
    };
    if message.len() > ERROR_BYTES_MAX {
        push(&message[..ERROR_BYTES_MAX / 2]);
        push(" … ".as_bytes());
        push(&message[message.len() - ERROR_BYTES_MAX / 2..]);
    } else {
        push(message);
    }
    out.push(b'\n');
}

/// The text of an error, when the line is one, bare or quoted.
pub fn error_of(line: &[u8]) -> Option<Vec<u8>> {
    let line = without_return(line);
    if let Some(text) = line.strip_prefix(ERROR) {
        return Some(text.to_vec());
    }
    let begins = line.strip_prefix(b"\"").is_some_and(|rest| rest.starts_with(ERROR));
    if !begins {
        return None;
    }
    let inside = unquote(line).unwrap_or_else(|_| line[1..].to_vec());
    Some(inside.get(ERROR.len()..).unwrap_or_default().to_vec())
}

/// Reads a line as a value of a type. `nil` is read as [`Value::Nil`] whatever the type; whether that will do is for
/// the reader to say.
pub fn read(line: &[u8], kind: Kind) -> Result<(Value, Option<CharForm>), Unread> {
    if kind == Kind::Char {
        return read_char(line).map(|(value, form)| (value, Some(form)));
    }
    let line = without_return(line);
    if line == b"nil" {
        return Ok((Value::Nil, None));
    }
    let value = match kind {
        Kind::Void => return Err(Unread::Void(shown(line))),
        Kind::String => Value::String(unquote(line)?),
        Kind::Double => Value::Double(read_number(line)?),
        Kind::Char => unreachable!("read above"),
    };
    Ok((value, None))
}

/// One byte is the character itself, whatever it is: a quote, a backslash, a `\r`.
fn read_char(line: &[u8]) -> Result<(Value, CharForm), Unread> {
    let is_quoted = |line: &[u8]| line.len() >= 3 && line[0] == b'"' && line[line.len() - 1] == b'"';
    let ended = if line.len() > 1 { without_return(line) } else { line };
    match ended {
        [byte] => Ok((Value::Char(*byte), CharForm::Bare)),
        b"nil" => Ok((Value::Nil, CharForm::Quoted)),
        b"\\n" => Ok((Value::Char(b'\n'), CharForm::Bare)),
        b"\\\\" => Ok((Value::Char(b'\\'), CharForm::Bare)),
        b"\\\"" => Ok((Value::Char(b'"'), CharForm::Bare)),
        quoted if is_quoted(quoted) => match unquote(quoted).as_deref() {
            Ok([byte]) => Ok((Value::Char(*byte), CharForm::Quoted)),
            // A quote that its writer has not escaped.
            _ if quoted.len() == 3 => Ok((Value::Char(quoted[1]), CharForm::Quoted)),
            _ => Err(Unread::Char(shown(line))),
        },
        _ => Err(Unread::Char(shown(line))),
    }
}

/// The bytes of a quoted string.
fn unquote(line: &[u8]) -> Result<Vec<u8>, Unread> {
    let inside = line.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    let inside = inside.ok_or_else(|| Unread::Unquoted(shown(line)))?;
    let wrong = || Unread::Escape(shown(line));
    let mut bytes = Vec::with_capacity(inside.len());
    let mut at = 0;
    while let Some(&byte) = inside.get(at) {
        at += 1;
        match byte {
            b'"' => return Err(wrong()),
            b'\\' => {
                let (escaped, length) = escape(&inside[at..]).ok_or_else(wrong)?;
                bytes.push(escaped);
                at += length;
            }
            _ => bytes.push(byte),
        }
    }
    Ok(bytes)
}

/// The byte that stands after a backslash, and how many bytes it is written with: those of the protocol, and those of
/// Lua's `%q`, with which some implementations write strings.
pub(crate) fn escape(rest: &[u8]) -> Option<(u8, usize)> {
    let first = *rest.first()?;
    let byte = match first {
        b'\\' | b'"' | b'\'' => first,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'a' => 7,
        b'b' => 8,
        b'f' => 12,
        b'v' => 11,
        b'0'..=b'9' => return decimal(rest),
        _ => return None,
    };
    Some((byte, 1))
}

fn decimal(rest: &[u8]) -> Option<(u8, usize)> {
    let digits = rest.iter().take(3).take_while(|byte| byte.is_ascii_digit()).count();
    let number = rest[..digits].iter().fold(0u32, |number, digit| number * 10 + u32::from(digit - b'0'));
    Some((u8::try_from(number).ok()?, digits))
}

/// More than the largest double takes without an exponent.
const NUMBER_BYTES_MAX: usize = 400;

/// A decimal number as every version of Lua prints it.
fn read_number(line: &[u8]) -> Result<f64, Unread> {
    let wrong = || Unread::Double(shown(line));
    let text = std::str::from_utf8(line).map_err(|_| wrong())?.trim();
    // Rust reads "inf" and "nan", too.
    let is_decimal = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-');
    if text.len() > NUMBER_BYTES_MAX || !text.bytes().all(is_decimal) {
        return Err(wrong());
    }
    let number: f64 = text.parse().map_err(|_| wrong())?;
    if number.is_finite() { Ok(number) } else { Err(Unread::Range(shown(line))) }
}

/// Bytes of a line that a message shows.
const SHOWN_BYTES_MAX: usize = 40;

/// A line for a message: what is no text is escaped, what is long is cut.
pub fn shown(line: &[u8]) -> String {
    let part = line.get(..SHOWN_BYTES_MAX).unwrap_or(line);
    let more = if part.len() < line.len() { format!("… ({} bytes)", line.len()) } else { String::new() };
    if part.is_empty() { "an empty line".to_owned() } else { format!("`{}`{more}", part.escape_ascii()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(value: &Value, form: CharForm) -> Vec<u8> {
        let mut out = Vec::new();
        write(value, form, &mut out);
        out
    }

    fn value_of(line: &[u8], kind: Kind) -> Value {
        read(line, kind).unwrap_or_else(|error| panic!("{}: {error}", shown(line))).0
    }

    #[test]
    fn values_are_written_as_the_protocol_has_them() {
        let string = Value::from("a\"b\\c\nd");
        assert_eq!(written(&string, CharForm::Bare), b"\"a\\\"b\\\\c\\nd\"\n");
        assert_eq!(written(&Value::Nil, CharForm::Quoted), b"nil\n");
        assert_eq!(written(&Value::Char(b'x'), CharForm::Quoted), b"\"x\"\n");
        assert_eq!(written(&Value::Char(b'x'), CharForm::Bare), b"x\n");
        assert_eq!(
            written(&Value::Char(b'\n'), CharForm::Bare),
            b"\"\\n\"\n",
            "a bare one would end the line"
        );
        let numbers: [(f64, &[u8]); 9] = [
            (1.0, b"1\n"),
            (-0.5, b"-0.5\n"),
            (2.125, b"2.125\n"),
            (1e20, b"1e20\n"),
            (1e-7, b"1e-7\n"),
            (123_456_789_012.0, b"123456789012\n"),
            (-1e300, b"-1e300\n"),
            (5e-324, b"5e-324\n"),
            (-0.0, b"-0\n"),
        ];
        for (number, text) in numbers {
            assert_eq!(written(&Value::Double(number), CharForm::Quoted), text, "{number}");
        }
    }

    #[test]
    fn numbers_are_read_as_every_lua_prints_them() {
        let texts: [(&[u8], f64); 8] = [
            (b"1", 1.0),
            (b"1.0", 1.0),
            (b"1e+20", 1e20),
            (b" 7 \r", 7.0),
            (b".5", 0.5),
            (b"5.", 5.0),
            (b"-1E-2", -0.01),
            (b"+2.125", 2.125),
        ];
        for (text, number) in texts {
            assert_eq!(value_of(text, Kind::Double), Value::Double(number), "{}", shown(text));
        }
        let refused = [
            &b""[..],
            b"one",
            b"1 2",
            b"--1",
            b"0x10",
            b"1e",
            b"+",
            b"\xff",
            b"e5",
            b"inf",
            b"-nan",
            b"1.#INF",
            b".",
            &[b'1'; NUMBER_BYTES_MAX + 1],
        ];
        for text in refused {
            assert!(matches!(read(text, Kind::Double), Err(Unread::Double(_))), "{}", shown(text));
        }
        for text in [&b"1e999"[..], b"-1e309"] {
            assert!(matches!(read(text, Kind::Double), Err(Unread::Range(_))), "{}", shown(text));
        }
    }

    #[test]
    fn characters_are_read_quoted_and_bare_and_the_form_is_told() {
        let bare: [(&[u8], u8); 8] = [
            (b"x", b'x'),
            (b"\"", b'"'),
            (b"\\", b'\\'),
            (b"\0", 0),
            (b"\r", b'\r'),
            (b"\r\r", b'\r'),
            (b"x\r", b'x'),
            (b"\\n", b'\n'),
        ];
        for (line, byte) in bare {
            assert_eq!(
                read(line, Kind::Char),
                Ok((Value::Char(byte), Some(CharForm::Bare))),
                "{}",
                shown(line)
            );
        }
        let quoted: [(&[u8], u8); 5] = [
            (b"\"x\"", b'x'),
            (b"\"\\\"\"", b'"'),
            (b"\"\"\"", b'"'),
            (b"\"\\n\"\r", b'\n'),
            (b"\"\\\\\"", b'\\'),
        ];
        for (line, byte) in quoted {
            let expected = Ok((Value::Char(byte), Some(CharForm::Quoted)));
            assert_eq!(read(line, Kind::Char), expected, "{}", shown(line));
        }
        for line in [&b""[..], b"xy", b"\"\"", b"\"xy\"", b"\\x"] {
            assert!(matches!(read(line, Kind::Char), Err(Unread::Char(_))), "{}", shown(line));
        }
    }

    #[test]
    fn strings_have_quotes_and_known_escapes_only() {
        assert_eq!(value_of(b"\"\"", Kind::String), Value::from(""));
        assert_eq!(value_of(b"\"nil\"", Kind::String), Value::from("nil"));
        assert_eq!(value_of(b"nil", Kind::String), Value::Nil);
        assert_eq!(value_of(b"\"\\t\\13\\0001\\'\"\r", Kind::String), Value::from("\t\r\x001'"));
        assert_eq!(value_of(b"\"\xff\0\r\"", Kind::String), Value::String(vec![0xff, 0, b'\r']));
        for line in [&b""[..], b"x", b"\"", b"\"x", b"x\""] {
            assert!(matches!(read(line, Kind::String), Err(Unread::Unquoted(_))), "{}", shown(line));
        }
        for line in [&b"\"\\\""[..], b"\"a\"b\"", b"\"\\x41\"", b"\"\\256\""] {
            assert!(matches!(read(line, Kind::String), Err(Unread::Escape(_))), "{}", shown(line));
        }
    }

    #[test]
    fn errors_are_known_bare_and_quoted() {
        assert_eq!(error_of(b"___ERRORPC: no such file"), Some(b"no such file".to_vec()));
        assert_eq!(error_of(b"\"___ERRORPC: no \\\"x\\\"\"\r"), Some(b"no \"x\"".to_vec()));
        assert_eq!(error_of(b"\"___ERRORPC: torn"), Some(b"___ERRORPC: torn"[12..].to_vec()));
        assert_eq!(error_of(b"___ERRORPC"), None);
        assert_eq!(error_of(b"\"an ___ERRORPC: \""), None);
    }

    #[test]
    fn an_error_is_one_line_and_keeps_its_end_when_it_is_cut() {
        let mut out = Vec::new();
        write_error("two\nlines\r\n", &mut out);
        assert_eq!(out, b"___ERRORPC: two lines  \n");
        out.clear();
        write_error(&format!("{}; use fewer", "x".repeat(2 * ERROR_BYTES_MAX)), &mut out);
        assert!(out.ends_with(b"; use fewer\n") && out.len() < ERROR_BYTES_MAX + 64);
    }

    #[test]
    fn a_void_is_nil_and_nothing_else() {
        assert_eq!(value_of(b"nil\r", Kind::Void), Value::Nil);
        assert!(matches!(read(b"0", Kind::Void), Err(Unread::Void(_))));
    }
}
