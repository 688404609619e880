//! Records, in which remote calls answer: lines of `key=value` with tabs between them, easy to take apart anywhere.

use serde_json::Value;

/// A record that is put together.
#[derive(Default)]
pub(crate) struct Record(Vec<u8>);

impl Record {
    /// Adds a field. Its value may be any bytes.
    pub(crate) fn field(mut self, key: &str, value: impl AsRef<[u8]>) -> Record {
        if !self.0.is_empty() {
            self.0.push(b'\t');
        }
        self.0.extend_from_slice(key.as_bytes());
        self.0.push(b'=');
        for &byte in value.as_ref() {
            match byte {
                b'\\' => self.0.extend_from_slice(b"\\\\"),
                b'\t' => self.0.extend_from_slice(b"\\t"),
                b'\n' => self.0.extend_from_slice(b"\\n"),
                _ => self.0.push(byte),
            }
        }
        self
    }

    /// Adds what `--json` shows: objects within objects as `outer.inner`, lists as `key.1`, what is not known as
    /// nothing.
    pub(crate) fn json(self, key: &str, value: &Value) -> Record {
        let below = |name: &str| if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") };
        match value {
            Value::Object(fields) => {
                fields.iter().fold(self, |record, (name, value)| record.json(&below(name), value))
            }
            Value::Array(values) => {
                let numbered = values.iter().enumerate();
                numbered.fold(self, |record, (at, value)| record.json(&below(&(at + 1).to_string()), value))
            }
            Value::String(text) => self.field(key, text),
            Value::Null => self.field(key, ""),
            other => self.field(key, other.to_string()),
        }
    }

    /// Itself, where there is no other.
    pub(crate) fn alone(self) -> Vec<u8> {
        self.0
    }

    /// A line among others, with its end.
    pub(crate) fn line(mut self) -> Vec<u8> {
        self.0.push(b'\n');
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn any_value_stays_in_its_field() {
        let record = Record::default().field("kind", "file").field("name", b"a\tb\\c\nd\xff=");
        assert_eq!(record.line(), b"kind=file\tname=a\\tb\\\\c\\nd\xff=\n");
    }

    #[test]
    fn json_becomes_fields() {
        let value = json!({"a": 1, "b": {"c": null, "d": "x\ty"}, "e": ["p", 2.5]});
        let line = Record::default().json("", &value).line();
        assert_eq!(line, b"a=1\tb.c=\tb.d=x\\ty\te.1=p\te.2=2.5\n");
    }
}
