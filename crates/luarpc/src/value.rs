//! Values that travel, and the types that interface files give them.

use std::fmt;

/// A type of an argument or a result.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// One byte.
    Char,
    /// Bytes of any number and kind.
    String,
    /// A floating-point number of 64 bits.
    Double,
    /// Nothing.
    Void,
}

impl Kind {
    /// The type that interface files call `name`.
    pub fn of_name(name: &[u8]) -> Option<Kind> {
        Some(match name {
            b"char" => Kind::Char,
            b"string" => Kind::String,
            b"double" => Kind::Double,
            b"void" => Kind::Void,
            _ => return None,
        })
    }

    /// Its name in interface files.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Char => "char",
            Kind::String => "string",
            Kind::Double => "double",
            Kind::Void => "void",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A value.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// Nothing: the value of a `void`, and of a result that the other side has left out.
    Nil,
    /// One byte.
    Char(u8),
    /// Bytes; they need not be UTF-8.
    String(Vec<u8>),
    /// A number.
    Double(f64),
}

impl Value {
    /// True when it may stand where `kind` is called for.
    pub fn is(&self, kind: Kind) -> bool {
        self.kind() == kind
    }

    /// The type that it has.
    pub fn kind(&self) -> Kind {
        match self {
            Value::Nil => Kind::Void,
            Value::Char(_) => Kind::Char,
            Value::String(_) => Kind::String,
            Value::Double(_) => Kind::Double,
        }
    }

    /// The bytes of a string.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Value::String(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The number of a double.
    pub fn number(&self) -> Option<f64> {
        match self {
            Value::Double(number) => Some(*number),
            _ => None,
        }
    }
}

/// For people: a string and a char as text, bytes that are not UTF-8 as the replacement character; a double as it
/// travels, nothing as `nil`.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::String(bytes) => f.write_str(&String::from_utf8_lossy(bytes)),
            Value::Char(byte) => f.write_str(&String::from_utf8_lossy(&[*byte])),
            Value::Double(_) | Value::Nil => {
                let mut line = Vec::new();
                crate::line::write(self, crate::line::CharForm::Quoted, &mut line);
                f.write_str(String::from_utf8_lossy(&line).trim_end())
            }
        }
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Value {
        Value::Double(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::String(text.as_bytes().to_vec())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::String(text.into_bytes())
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Value {
        Value::String(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_as_a_person_would_write_them() {
        let values = [
            Value::Nil,
            Value::Double(3.0),
            Value::Char(b'w'),
            Value::from("a \"b\"\n"),
            Value::from(vec![0xff]),
        ];
        assert_eq!(values.map(|value| value.to_string()), ["nil", "3", "w", "a \"b\"\n", "\u{fffd}"]);
    }
}
