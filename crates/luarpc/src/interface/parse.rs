//! From words to tables, and from tables to an interface.

use super::tokens::{Token, Tokens};
use super::{Argument, Direction, Interface, Method, Wrong};
use crate::limits::{ARGUMENTS_MAX, INTERFACE_BYTES_MAX, INTERFACE_DEPTH_MAX, METHODS_MAX, NAME_BYTES_MAX};
use crate::line::shown;
use crate::value::Kind;

/// What every message about something that is no table ends with.
const IS_DATA: &str =
    "an interface file has one call, interface{ name = …, methods = { … } }, and is never run";

/// What stands in a field of a table.
#[derive(Debug)]
enum Item {
    String(Vec<u8>),
    /// A name without quotes: an undefined global of Lua, which is nil.
    Nil,
    Table(Vec<Field>),
}

/// A field of a table.
#[derive(Debug)]
struct Field {
    line: usize,
    /// `None` for those that are only counted.
    key: Option<Vec<u8>>,
    item: Item,
}

impl Field {
    fn wrong(&self, what: impl Into<String>) -> Wrong {
        Wrong { line: self.line, what: what.into() }
    }
}

/// Reads words one ahead.
struct Parser<'a> {
    tokens: Tokens<'a>,
    next: Token,
    line: usize,
}

pub(super) fn interface(text: &[u8]) -> Result<Interface, Wrong> {
    if text.len() > INTERFACE_BYTES_MAX {
        let what = format!(
            "the file has more than {INTERFACE_BYTES_MAX} bytes, the most that an interface may have"
        );
        return Err(Wrong { line: 1, what });
    }
    let mut tokens = Tokens::new(text);
    let next = tokens.next()?;
    let line = tokens.line;
    let fields = Parser { tokens, next, line }.file()?;
    to_interface(fields)
}

impl Parser<'_> {
    fn wrong(&self, what: impl Into<String>) -> Wrong {
        Wrong { line: self.line, what: what.into() }
    }

    fn advance(&mut self) -> Result<Token, Wrong> {
        let next = self.tokens.next()?;
        self.line = self.tokens.line;
        Ok(std::mem::replace(&mut self.next, next))
    }

    /// Takes the sign when it stands here.
    fn takes(&mut self, sign: u8) -> Result<bool, Wrong> {
        let is_here = self.next == Token::Sign(sign);
        if is_here {
            self.advance()?;
        }
        Ok(is_here)
    }

    fn expect(&mut self, sign: u8) -> Result<(), Wrong> {
        if self.takes(sign)? {
            return Ok(());
        }
        Err(self.wrong(format!("{} stands where `{}` is expected", self.next.shown(), char::from(sign))))
    }

    fn file(mut self) -> Result<Vec<Field>, Wrong> {
        if self.next != Token::Name("interface".to_owned()) {
            return Err(
                self.wrong(format!("{} stands where `interface` is expected: {IS_DATA}", self.next.shown()))
            );
        }
        self.advance()?;
        let has_brackets = self.takes(b'(')?;
        if self.next != Token::Sign(b'{') {
            return Err(
                self.wrong(format!("{} stands where a table is expected: {IS_DATA}", self.next.shown()))
            );
        }
        let fields = self.table(1)?;
        if has_brackets {
            self.expect(b')')?;
        }
        while self.takes(b';')? {}
        match self.next {
            Token::End => Ok(fields),
            _ => Err(self.wrong(format!("{} stands after the interface: {IS_DATA}", self.next.shown()))),
        }
    }

    fn table(&mut self, depth: usize) -> Result<Vec<Field>, Wrong> {
        if depth > INTERFACE_DEPTH_MAX {
            return Err(self.wrong(format!("tables lie in one another more than {INTERFACE_DEPTH_MAX} deep")));
        }
        self.expect(b'{')?;
        let mut fields = Vec::new();
        while self.next != Token::Sign(b'}') {
            fields.push(self.field(depth)?);
            if !self.takes(b',')? && !self.takes(b';')? {
                break;
            }
        }
        self.expect(b'}')?;
        Ok(fields)
    }

    fn field(&mut self, depth: usize) -> Result<Field, Wrong> {
        let line = self.line;
        if self.takes(b'[')? {
            let Token::String(key) = self.advance()? else {
                return Err(Wrong { line, what: "a key in brackets is no string".to_owned() });
            };
            self.expect(b']')?;
            self.expect(b'=')?;
            return Ok(Field { line, key: Some(key), item: self.item(depth)? });
        }
        if !matches!(self.next, Token::Name(_)) {
            return Ok(Field { line, key: None, item: self.item(depth)? });
        }
        // A name is a key when an equals sign follows, and a value otherwise.
        let Token::Name(name) = self.advance()? else { unreachable!("looked at above") };
        if self.takes(b'=')? {
            return Ok(Field { line, key: Some(name.into_bytes()), item: self.item(depth)? });
        }
        self.check_global(&name, line)?;
        Ok(Field { line, key: None, item: Item::Nil })
    }

    fn item(&mut self, depth: usize) -> Result<Item, Wrong> {
        let line = self.line;
        if self.next == Token::Sign(b'{') {
            return Ok(Item::Table(self.table(depth + 1)?));
        }
        match self.advance()? {
            Token::String(bytes) => Ok(Item::String(bytes)),
            Token::Name(name) => {
                self.check_global(&name, line)?;
                Ok(Item::Nil)
            }
            other => {
                let what = format!("{} stands where a string, a name or a table is expected", other.shown());
                Err(Wrong { line, what })
            }
        }
    }

    /// A name that begins code, or is called, is no undefined global.
    fn check_global(&self, name: &str, line: usize) -> Result<(), Wrong> {
        let is_code = matches!(
            name,
            "function" | "if" | "for" | "while" | "repeat" | "do" | "return" | "local" | "not"
        );
        let is_called = matches!(self.next, Token::Sign(b'(' | b'{' | b'[') | Token::String(_));
        if is_code || is_called {
            return Err(Wrong {
                line,
                what: format!("`{name}` stands where a value is expected: {IS_DATA}"),
            });
        }
        Ok(())
    }
}

fn to_interface(fields: Vec<Field>) -> Result<Interface, Wrong> {
    let (mut name, mut methods) = (None, None);
    let line = fields.last().map_or(1, |field| field.line);
    for field in fields {
        match field.key.as_deref() {
            Some(b"name") => name = to_name(&field)?,
            Some(b"methods") if methods.is_some() => {
                return Err(field.wrong("methods stands here a second time"));
            }
            Some(b"methods") => methods = Some(to_methods(&field)?),
            _ => return Err(unknown(&field, "an interface", "name and methods")),
        }
    }
    let methods = methods.ok_or_else(|| Wrong { line, what: format!("there are no methods: {IS_DATA}") })?;
    Ok(Interface { name, methods })
}

fn unknown(field: &Field, table: &str, known: &str) -> Wrong {
    let key = field.key.as_deref().map_or_else(|| "a value without a name".to_owned(), shown);
    field.wrong(format!("{key} is no field of {table}, which has {known}"))
}

fn to_name(field: &Field) -> Result<Option<String>, Wrong> {
    match &field.item {
        Item::Nil => Ok(None),
        Item::String(bytes) => checked_name(field, bytes).map(Some),
        Item::Table(_) => Err(field.wrong("the name of the interface is no string")),
    }
}

/// A name becomes a line of its own, and a part of messages.
fn checked_name(field: &Field, bytes: &[u8]) -> Result<String, Wrong> {
    let text = std::str::from_utf8(bytes)
        .map_err(|_| field.wrong(format!("the name {} is not UTF-8", shown(bytes))))?;
    if text.is_empty() || text.len() > NAME_BYTES_MAX || text.chars().any(char::is_control) {
        let rule = format!("a name has 1 to {NAME_BYTES_MAX} bytes and no control characters");
        return Err(field.wrong(format!("{} is no name: {rule}", shown(bytes))));
    }
    Ok(text.to_owned())
}

fn table_of<'a>(field: &'a Field, what: &str) -> Result<&'a [Field], Wrong> {
    match &field.item {
        Item::Table(fields) => Ok(fields),
        _ => Err(field.wrong(format!("{what} is no table"))),
    }
}

fn to_methods(field: &Field) -> Result<Vec<Method>, Wrong> {
    let mut methods: Vec<Method> = Vec::new();
    for field in table_of(field, "methods")? {
        let Some(key) = &field.key else {
            return Err(field.wrong("a method has no name; write name = { resulttype = …, args = { … } }"));
        };
        let name = checked_name(field, key)?;
        if methods.iter().any(|method| method.name == name) {
            return Err(field.wrong(format!("the method {name} stands here a second time")));
        }
        if methods.len() == METHODS_MAX {
            return Err(field.wrong(format!("there are more than {METHODS_MAX} methods")));
        }
        methods.push(to_method(field, name)?);
    }
    Ok(methods)
}

fn to_method(field: &Field, name: String) -> Result<Method, Wrong> {
    let mut method = Method { name, result: Kind::Void, arguments: Vec::new() };
    for part in table_of(field, &format!("the method {}", method.name))? {
        match part.key.as_deref() {
            Some(b"resulttype") => method.result = to_kind(part)?.unwrap_or(Kind::Void),
            Some(b"args") => method.arguments = to_arguments(part)?,
            _ => return Err(unknown(part, "a method", "resulttype and args")),
        }
    }
    Ok(method)
}

fn to_arguments(field: &Field) -> Result<Vec<Argument>, Wrong> {
    if let Item::Nil = field.item {
        return Ok(Vec::new());
    }
    let fields = table_of(field, "args")?;
    if let Some(beyond) = fields.get(ARGUMENTS_MAX) {
        return Err(beyond.wrong(format!("there are more than {ARGUMENTS_MAX} arguments")));
    }
    fields.iter().map(to_argument).collect()
}

fn to_argument(field: &Field) -> Result<Argument, Wrong> {
    if field.key.is_some() {
        return Err(unknown(field, "args", "arguments without names: { direction = …, type = … }"));
    }
    let (mut direction, mut kind) = (None, None);
    for part in table_of(field, "an argument")? {
        match part.key.as_deref() {
            Some(b"direction") => direction = Some(to_direction(part)?),
            Some(b"type") => kind = to_kind(part)?,
            _ => return Err(unknown(part, "an argument", "direction and type")),
        }
    }
    let missing = |what: &str| field.wrong(format!("an argument has no {what}"));
    let direction = direction.ok_or_else(|| missing("direction: \"in\", \"out\" or \"inout\""))?;
    let kind = kind.ok_or_else(|| missing("type: \"char\", \"string\", \"double\" or \"void\""))?;
    Ok(Argument { direction, kind })
}

fn to_kind(field: &Field) -> Result<Option<Kind>, Wrong> {
    let unknown =
        |shown: String| field.wrong(format!("{shown} is no type; there are char, string, double and void"));
    match &field.item {
        Item::Nil => Ok(None),
        Item::String(bytes) => Kind::of_name(bytes).map(Some).ok_or_else(|| unknown(shown(bytes))),
        Item::Table(_) => Err(unknown("a table".to_owned())),
    }
}

fn to_direction(field: &Field) -> Result<Direction, Wrong> {
    let unknown =
        |shown: String| field.wrong(format!("{shown} is no direction; there are in, out and inout"));
    match &field.item {
        Item::String(bytes) => match bytes.as_slice() {
            b"in" => Ok(Direction::In),
            b"out" => Ok(Direction::Out),
            b"inout" => Ok(Direction::InOut),
            other => Err(unknown(shown(other))),
        },
        _ => Err(unknown("what stands here".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINE: &str = r#"-- The interface of the course.
interface { name = minhaInt,
  methods = {
    foo = { resulttype = "double",
      args = { { direction = "in", type = "double" }, { direction = "out", type = 'string' }; },
    },
    ["boo"] = { args = { {direction = "inout", type = "double"} } }, --[[ no
      result ]]
    bar = {},
  }
}"#;

    #[test]
    fn the_interface_of_the_course_is_read() {
        let interface = Interface::parse(MINE.as_bytes()).expect("an interface");
        assert_eq!(interface.name, None, "an undefined global is nil");
        let signatures: Vec<String> = interface.methods.iter().map(Method::signature).collect();
        let expected = ["foo(in double, out string) -> double", "boo(inout double) -> void", "bar() -> void"];
        assert_eq!(signatures, expected);
        let foo = interface.method(b"foo").expect("a method");
        assert_eq!(foo.sent().collect::<Vec<_>>(), [Kind::Double]);
        assert_eq!(foo.answered().collect::<Vec<_>>(), [Kind::Double, Kind::String]);
    }

    #[test]
    fn brackets_long_strings_and_a_byte_order_mark_are_read() {
        let text = "\u{feff}interface({ name = [==[\nx]==], methods = { } });\n";
        assert_eq!(Interface::parse(text.as_bytes()).expect("an interface").name.as_deref(), Some("x"));
    }

    #[test]
    fn a_file_that_is_a_program_is_refused_with_its_line() {
        let programs = [
            ("os.execute('touch /tmp/x')", 1, "`os` stands where `interface`"),
            ("interface{ name = os.execute('x') }", 1, "no place in an interface"),
            ("interface{\n name = f('x'), methods = {} }", 2, "never run"),
            ("interface{ methods = { a = function() end } }", 1, "`function` stands where a value"),
            ("interface{ methods = {} }\n\nwhile true do end", 3, "after the interface"),
            ("interface{ methods = {} }()", 1, "after the interface"),
            ("interface{ name = 'a' .. 'b' }", 1, "no place"),
            ("interface{ name = \"x\\\n", 1, "backslash"),
            ("interface{ methods = require 'x' }", 1, "`require` stands where a value"),
            ("interface", 1, "the end of the file"),
            ("", 1, "the end of the file"),
            ("interface{ methods = { [1] = {} } }", 1, "no place"),
            ("\n--[[", 2, "no end"),
        ];
        for (text, line, part) in programs {
            let wrong = Interface::parse(text.as_bytes()).expect_err(text);
            assert_eq!(wrong.line, line, "{text}: {wrong}");
            assert!(wrong.what.contains(part), "{text}: {wrong}");
        }
    }

    #[test]
    fn tables_that_are_no_interface_are_refused_with_their_line() {
        let tables = [
            ("interface{\nname = 'x' }", 2, "no methods"),
            ("interface{ methods = { a = { resulttype = 'int' } } }", 1, "`int` is no type"),
            (
                "interface{ methods = {\n\na = { result = 'double' } } }",
                3,
                "`result` is no field of a method",
            ),
            ("interface{ methods = { a = { args = { { type = 'char' } } } } }", 1, "no direction"),
            ("interface{ methods = { a = { args = { { direction = 'in' } } } } }", 1, "no type"),
            (
                "interface{ methods = { a = { args = { { direction = 'both', type = 'char' } } } } }",
                1,
                "`both`",
            ),
            ("interface{ methods = { a = {},\na = {} } }", 2, "a second time"),
            ("interface{ methods = {}, methods = {} }", 1, "a second time"),
            ("interface{ methods = { {} } }", 1, "has no name"),
            ("interface{ methods = { ['a\\nb'] = {} } }", 1, "is no name"),
            ("interface{ methods = { ['\\255'] = {} } }", 1, "not UTF-8"),
            ("interface{ methods = 'x' }", 1, "is no table"),
        ];
        for (text, line, part) in tables {
            let wrong = Interface::parse(text.as_bytes()).expect_err(text);
            assert_eq!(wrong.line, line, "{text}: {wrong}");
            assert!(wrong.what.contains(part), "{text}: {wrong}");
        }
    }

    #[test]
    fn depth_size_and_counts_are_bounded() {
        let deep = format!("interface{}", "{".repeat(100_000).get(..60_000).expect("long"));
        assert!(Interface::parse(deep.as_bytes()).expect_err("deep").what.contains("deep"));
        let long = format!("interface{{ methods = {{}} }}{}", " ".repeat(INTERFACE_BYTES_MAX));
        assert!(Interface::parse(long.as_bytes()).expect_err("long").what.contains("bytes"));
        let many: String = (0..=METHODS_MAX).map(|number| format!("m{number}={{}},")).collect();
        let many = format!("interface{{ methods = {{ {many} }} }}");
        assert!(Interface::parse(many.as_bytes()).expect_err("many").what.contains("more than 256 methods"));
        let argument = "{direction='in',type='char'},".repeat(ARGUMENTS_MAX + 1);
        let wide = format!("interface{{ methods = {{ a = {{ args = {{ {argument} }} }} }} }}");
        assert!(Interface::parse(wide.as_bytes()).expect_err("wide").what.contains("more than 32 arguments"));
    }
}
