//! Properties: what is written is read back, and what peers and files contain is refused or read, but never more.

use proptest::prelude::*;
use vazao_luarpc::interface::{Argument, Direction, Interface, Method};
use vazao_luarpc::line::{self, CharForm};
use vazao_luarpc::lines::Lines;
use vazao_luarpc::{Kind, Value};

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::Char), Just(Kind::String), Just(Kind::Double), Just(Kind::Void)]
}

fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Nil),
        any::<u8>().prop_map(Value::Char),
        proptest::collection::vec(any::<u8>(), 0..200).prop_map(Value::String),
        any::<f64>()
            .prop_filter("only finite numbers travel", |number| number.is_finite())
            .prop_map(Value::Double),
        (-1_000_000i64..1_000_000).prop_map(|number| Value::Double(number as f64)),
    ]
}

fn arguments() -> impl Strategy<Value = Argument> {
    let directions = prop_oneof![Just(Direction::In), Just(Direction::Out), Just(Direction::InOut)];
    (directions, kinds()).prop_map(|(direction, kind)| Argument { direction, kind })
}

fn methods() -> impl Strategy<Value = Method> {
    let arguments = proptest::collection::vec(arguments(), 0..6);
    ("[a-z_][a-z0-9_]{0,12}", kinds(), arguments).prop_map(|(name, result, arguments)| Method {
        name,
        result,
        arguments,
    })
}

fn interfaces() -> impl Strategy<Value = Interface> {
    let methods = proptest::collection::vec(methods(), 0..8);
    (proptest::option::of("[a-z.]{1,12}"), methods).prop_map(|(name, mut methods)| {
        methods.sort_by(|one, other| one.name.cmp(&other.name));
        methods.dedup_by(|one, other| one.name == other.name);
        Interface { name, methods }
    })
}

/// As a program would write the file.
fn text_of(interface: &Interface) -> String {
    let name = interface.name.as_ref().map_or("nothing".to_owned(), |name| format!("'{name}'"));
    let mut text = format!("interface{{ name = {name}, methods = {{\n");
    for method in &interface.methods {
        text.push_str(&format!(" ['{}'] = {{ resulttype = \"{}\", args = {{", method.name, method.result));
        for argument in &method.arguments {
            text.push_str(&format!(
                " {{type=\"{}\"; direction='{}'}},",
                argument.kind,
                argument.direction.name()
            ));
        }
        text.push_str(" } }, -- next\n");
    }
    text + "} }\n"
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(values in proptest::collection::vec(values(), 1..8), step in 1usize..50) {
        for form in [CharForm::Quoted, CharForm::Bare] {
            let mut bytes = Vec::new();
            values.iter().for_each(|value| line::write(value, form, &mut bytes));
            let (mut lines, mut read) = (Lines::default(), Vec::new());
            for part in bytes.chunks(step) {
                lines.push(part);
                while let Some(place) = lines.next(1 << 20).expect("short lines") {
                    let kind = values[read.len()].kind();
                    read.push(line::read(lines.line(place), kind).expect("a value").0);
                }
            }
            prop_assert_eq!(&read, &values);
            prop_assert_eq!(lines.kept(), 0);
        }
    }

    #[test]
    fn any_line_is_a_value_or_refused_with_a_message_of_one_line(
        bytes in proptest::collection::vec(any::<u8>(), 0..100),
        kind in kinds(),
    ) {
        match line::read(&bytes, kind) {
            Ok((value, _)) => prop_assert!(value.is(kind) || value == Value::Nil),
            Err(unread) => prop_assert!(!unread.to_string().contains('\n')),
        }
        let _ = line::error_of(&bytes);
    }

    #[test]
    fn an_error_is_one_line_that_is_known_as_one(text in "\\PC{0,300}|[\\n\\r\\x00\"\\\\]{0,20}") {
        let mut bytes = Vec::new();
        line::write_error(&text, &mut bytes);
        prop_assert_eq!(bytes.iter().filter(|&&byte| byte == b'\n').count(), 1);
        prop_assert!(line::error_of(&bytes[..bytes.len() - 1]).is_some());
    }

    #[test]
    fn an_interface_that_is_written_as_lua_is_read_back(interface in interfaces()) {
        prop_assert_eq!(Interface::parse(text_of(&interface).as_bytes()), Ok(interface));
    }

    #[test]
    fn any_bytes_are_an_interface_or_refused_with_a_line_of_the_file(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        words in proptest::collection::vec(
            prop_oneof![
                Just("interface"), Just("{"), Just("}"), Just("methods"), Just("="), Just("'x'"), Just(","), Just("\n"),
                Just("args"), Just("["), Just("]"), Just("--"), Just("[["), Just("(")
            ],
            0..40,
        ),
    ) {
        for text in [bytes, words.join(" ").into_bytes()] {
            if let Err(wrong) = Interface::parse(&text) {
                let lines = 1 + text.iter().filter(|&&byte| byte == b'\n').count();
                prop_assert!((1..=lines).contains(&wrong.line), "{wrong}");
            }
        }
    }

    #[test]
    fn an_interface_that_lost_a_byte_or_has_another_one_never_panics(
        interface in interfaces(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let mut text = text_of(&interface).into_bytes();
        let at = at.index(text.len());
        text[at] = byte;
        let _ = Interface::parse(&text);
        text.remove(at);
        let _ = Interface::parse(&text);
    }
}
