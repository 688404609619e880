//! `*` and `?` in paths of the volume and of areas, which no shell expands: what they stand for.
//!
//! As in a shell: a pattern means all that fits, also where a file is called as the pattern is written; a backslash in
//! front of `*`, `?` or a backslash takes their meaning away. A path without `*` and `?` means itself, backslashes and
//! all. A pattern that nothing fits means its own name, which the message then names. A name that begins with a dot
//! fits only a pattern that does.

use super::place::Place;
use super::{Location, VOLUME_PREFIX};
use crate::context::Context;
use crate::failure::Outcome;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use vazao_client::Client;
use vazao_client::area::Reference;
use vazao_model::{FileKind, VolumePath};

/// Replaces each pattern by what it stands for, sorted.
pub(crate) fn expand(client: &Client, places: Vec<Place>) -> Outcome<Vec<Place>> {
    let mut all = Vec::new();
    for place in places {
        match has_pattern(&place.to_bytes()) {
            true => all.extend(fitting(client, &place)?),
            false => all.push(place),
        }
    }
    Ok(all)
}

/// The same for arguments; those of this machine are left to the shell, and a client is only made where it is needed.
pub(crate) fn expand_arguments(context: &Context, arguments: &[OsString]) -> Outcome<Vec<OsString>> {
    let is_pattern = |argument: &OsString| {
        let bytes = argument.as_bytes();
        has_pattern(bytes) && (bytes.starts_with(VOLUME_PREFIX) || Reference::looks_like(bytes))
    };
    if !arguments.iter().any(is_pattern) {
        return Ok(arguments.to_vec());
    }
    let client = context.client()?;
    let mut all = Vec::new();
    for argument in arguments {
        let place = match Location::parse(argument)? {
            Location::Volume(path) if is_pattern(argument) => Place::Volume(path),
            Location::Area(reference) if is_pattern(argument) => Place::Area(reference),
            _ => {
                all.push(argument.clone());
                continue;
            }
        };
        let found = fitting(&client, &place)?;
        all.extend(found.iter().map(|place| OsString::from_vec(place.to_bytes())));
    }
    client.close()?;
    Ok(all)
}

/// A path to be made, of which a pattern is nothing but a name. A slash at its end stays.
pub(crate) fn named(argument: &OsStr) -> OsString {
    let bytes = argument.as_bytes();
    match has_pattern(bytes) && (bytes.starts_with(VOLUME_PREFIX) || Reference::looks_like(bytes)) {
        true => OsString::from_vec(literal(&parse(bytes))),
        false => argument.to_owned(),
    }
}

/// Whether backslashes have a meaning, too.
fn has_pattern(bytes: &[u8]) -> bool {
    bytes.iter().any(|byte| b"*?".contains(byte))
}

/// The names of a path, and the place above all of them.
fn parts(place: &Place) -> (Place, Vec<Vec<u8>>) {
    match place {
        Place::Volume(path) => (Place::Volume(VolumePath::default()), path.components().to_vec()),
        Place::Area(reference) => {
            let names = reference.path.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
            let root = Reference { path: Vec::new(), ..reference.clone() };
            (Place::Area(root), names.map(<[u8]>::to_vec).collect())
        }
    }
}

/// What is there and fits, sorted; where nothing does, the name that the pattern is.
fn fitting(client: &Client, place: &Place) -> Outcome<Vec<Place>> {
    let (root, names) = parts(place);
    let patterns: Vec<Vec<Token>> = names.iter().map(|name| parse(name)).collect();
    let itself = patterns.iter().fold(root.clone(), |path, name| path.join(&literal(name)));
    if !patterns.iter().any(|name| is_pattern(name)) {
        return Ok(vec![itself]);
    }
    let mut found = vec![root];
    for (index, name) in patterns.iter().enumerate() {
        let is_last = index + 1 == names.len();
        let mut next = Vec::new();
        for directory in &found {
            match is_pattern(name) {
                true => next.extend(children(client, directory, name, is_last)?),
                false => next.push(directory.join(&literal(name))),
            }
        }
        found = next;
    }
    // A name without a pattern behind one with it may be missing in some of the directories.
    let ends_in_pattern = patterns.last().is_some_and(|name| is_pattern(name));
    found.retain(|place| ends_in_pattern || place.stat(client, false).is_ok());
    Ok(if found.is_empty() { vec![itself] } else { found })
}

/// A piece of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Token {
    /// `*`: anything.
    Any,
    /// `?`: one letter.
    One,
    /// This byte.
    Byte(u8),
}

/// Reads a name.
fn parse(name: &[u8]) -> Vec<Token> {
    let mut rest = name.iter().copied().peekable();
    let mut tokens = Vec::with_capacity(name.len());
    while let Some(byte) = rest.next() {
        let quoted = rest.peek().copied().filter(|next| byte == b'\\' && b"*?\\".contains(next));
        tokens.push(match (quoted, byte) {
            (Some(next), _) => {
                rest.next();
                Token::Byte(next)
            }
            (None, b'*') => Token::Any,
            (None, b'?') => Token::One,
            (None, byte) => Token::Byte(byte),
        });
    }
    tokens
}

fn is_pattern(name: &[Token]) -> bool {
    name.iter().any(|token| matches!(token, Token::Any | Token::One))
}

/// The name that a pattern is where nothing fits it.
fn literal(name: &[Token]) -> Vec<u8> {
    let byte = |token: &Token| match *token {
        Token::Any => b'*',
        Token::One => b'?',
        Token::Byte(byte) => byte,
    };
    name.iter().map(byte).collect()
}

/// Whether a name of a directory is among those that a pattern stands for.
fn fits(pattern: &[Token], name: &[u8]) -> bool {
    let takes_hidden = pattern.first() == Some(&Token::Byte(b'.'));
    (takes_hidden || !name.starts_with(b".")) && stands_for(pattern, name)
}

/// In time proportional to the product of their lengths: only the last `*` is tried again.
fn stands_for(pattern: &[Token], name: &[u8]) -> bool {
    let (mut token, mut at, mut star) = (0, 0, None);
    while at < name.len() {
        match pattern.get(token) {
            Some(Token::Any) => {
                star = Some((token, at));
                token += 1;
            }
            Some(Token::One) => (token, at) = (token + 1, at + letter_bytes(&name[at..])),
            Some(Token::Byte(byte)) if *byte == name[at] => (token, at) = (token + 1, at + 1),
            _ => {
                let Some((any, from)) = star else { return false };
                // It stands for one letter more.
                let next = from + letter_bytes(&name[from..]);
                (token, at, star) = (any + 1, next, Some((any, next)));
            }
        }
    }
    pattern[token..].iter().all(|token| *token == Token::Any)
}

/// Bytes of the first letter; of what is no UTF-8 each byte is one.
fn letter_bytes(bytes: &[u8]) -> usize {
    let first = bytes.utf8_chunks().next().and_then(|chunk| chunk.valid().chars().next());
    first.map_or(1, char::len_utf8)
}

/// What is in a directory and fits; where more names follow, only what they may be in.
fn children(client: &Client, directory: &Place, pattern: &[Token], is_last: bool) -> Outcome<Vec<Place>> {
    let Ok(attributes) = directory.stat(client, true) else { return Ok(Vec::new()) };
    if attributes.kind != FileKind::Directory {
        return Ok(Vec::new());
    }
    let entries = directory.sorted(client, attributes.inode, false)?;
    let leads_on = |kind| is_last || matches!(kind, FileKind::Directory | FileKind::Symlink);
    let fitting = entries.iter().filter(|entry| leads_on(entry.kind) && fits(pattern, &entry.name));
    Ok(fitting.map(|entry| directory.join(&entry.name)).collect())
}

/// True where an argument is the node alone: `n2:` or `n2:/`.
pub(crate) fn node_of(argument: &OsStr) -> Option<&str> {
    let text = argument.to_str()?;
    let name = text.strip_suffix(":/").or_else(|| text.strip_suffix(':'))?;
    (name != "vz" && Reference::looks_like(format!("{name}:/").as_bytes())).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_as_in_a_shell() {
        let fits = |pattern: &str, name: &str| fits(&parse(pattern.as_bytes()), name.as_bytes());
        for (pattern, name) in [
            ("*.dat", "a.dat"),
            ("a?", "ab"),
            ("*", "-x"),
            ("*", "*"),
            (".*", ".a"),
            ("?", "ä"),
            ("*b*c", "abcbc"),
            ("a**", "a"),
            (r"\*", "*"),
            (r"\?*", "?x"),
            (r"a\\*", r"a\b"),
            (r"a\b*", r"a\bc"),
        ] {
            assert!(fits(pattern, name), "{pattern} for {name}");
        }
        for (pattern, name) in [
            ("*.dat", "a.txt"),
            ("*", ".hidden"),
            ("?x", ".x"),
            ("a", "aa"),
            ("a?", "a"),
            (r"\*", "a"),
            (r"\?", "a"),
            ("*a", "ab"),
        ] {
            assert!(!fits(pattern, name), "{pattern} for {name}");
        }
        assert!(fits(&"*a".repeat(100), &"a".repeat(250)) && !fits(&"*a".repeat(100), &"b".repeat(250)));
    }

    #[test]
    fn a_path_to_be_made_loses_the_backslashes_that_quote_and_no_others() {
        for (argument, name) in [
            (r"vz:/d/\*", "vz:/d/*"),
            ("vz:/d/*", "vz:/d/*"),
            (r"n1:/a/what\?/", "n1:/a/what?/"),
            (r"vz:/d/a\b", r"vz:/d/a\b"),
            (r"/here/\*", r"/here/\*"),
        ] {
            assert_eq!(named(OsStr::new(argument)), OsString::from(name), "{argument}");
        }
    }

    #[test]
    fn a_node_alone_is_told_from_paths() {
        assert_eq!(node_of(OsStr::new("n2:")), Some("n2"));
        assert_eq!(node_of(OsStr::new("n2:/")), Some("n2"));
        for other in ["vz:", "vz:/", "n2:/a", "a", ":", "a b:", "/a:"] {
            assert_eq!(node_of(OsStr::new(other)), None, "{other}");
        }
    }
}
