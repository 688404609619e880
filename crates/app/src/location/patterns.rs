//! `*` and `?` in paths of the volume and of areas, which no shell expands: what they stand for.
//!
//! A path that is there as it is written means itself, so that a file called `a*` can be named. A pattern that nothing
//! fits stays as it is: the message names it. As with a shell, a name that begins with a dot fits a pattern that does.

use super::place::Place;
use super::{Location, VOLUME_PREFIX};
use crate::context::Context;
use crate::failure::Outcome;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use vazao_client::Client;
use vazao_client::area::Reference;
use vazao_model::{FileKind, VolumePath};
use vazao_mover::Filter;

/// Replaces each pattern by what it stands for, sorted.
pub(crate) fn expand(client: &Client, places: Vec<Place>) -> Outcome<Vec<Place>> {
    let mut all = Vec::new();
    for place in places {
        let found = if has_pattern(&place.to_bytes()) { fitting(client, &place)? } else { Vec::new() };
        if found.is_empty() { all.push(place) } else { all.extend(found) }
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
        match found.is_empty() {
            true => all.push(argument.clone()),
            false => all.extend(found.iter().map(|place| OsString::from_vec(place.to_bytes()))),
        }
    }
    client.close()?;
    Ok(all)
}

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

/// What is there and fits, sorted; nothing when the path is there as it is written.
fn fitting(client: &Client, place: &Place) -> Outcome<Vec<Place>> {
    if place.stat(client, false).is_ok() {
        return Ok(Vec::new());
    }
    let (root, names) = parts(place);
    let mut found = vec![root];
    for (index, name) in names.iter().enumerate() {
        let is_last = index + 1 == names.len();
        let mut next = Vec::new();
        for directory in &found {
            match Pattern::parse(name) {
                Some(pattern) => next.extend(pattern.children(client, directory, is_last)?),
                None => next.push(directory.join(name)),
            }
        }
        found = next;
    }
    // A name without a pattern behind one with it may be missing in some of the directories.
    found.retain(|place| {
        has_pattern(names.last().map_or(b"", Vec::as_slice)) || place.stat(client, false).is_ok()
    });
    Ok(found)
}

/// A name with `*` or `?` in it.
struct Pattern {
    filter: Filter,
    takes_hidden: bool,
}

impl Pattern {
    /// `None`: a name that means itself.
    fn parse(name: &[u8]) -> Option<Pattern> {
        let text = std::str::from_utf8(name).ok().filter(|_| has_pattern(name))?;
        let filter = Filter::parse(&[format!("+{text}"), "-*".to_owned()]).ok()?;
        Some(Pattern { filter, takes_hidden: name.starts_with(b".") })
    }

    fn fits(&self, name: &[u8]) -> bool {
        (self.takes_hidden || !name.starts_with(b".")) && self.filter.takes_file(name)
    }

    /// What is in a directory and fits; where more names follow, only what they may be in.
    fn children(&self, client: &Client, directory: &Place, is_last: bool) -> Outcome<Vec<Place>> {
        let Ok(attributes) = directory.stat(client, true) else { return Ok(Vec::new()) };
        if attributes.kind != FileKind::Directory {
            return Ok(Vec::new());
        }
        let entries = directory.sorted(client, attributes.inode, false)?;
        let leads_on = |kind| is_last || matches!(kind, FileKind::Directory | FileKind::Symlink);
        let fits = entries.iter().filter(|entry| leads_on(entry.kind) && self.fits(&entry.name));
        Ok(fits.map(|entry| directory.join(&entry.name)).collect())
    }
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
        let fits = |pattern: &str, name: &str| {
            Pattern::parse(pattern.as_bytes()).is_some_and(|pattern| pattern.fits(name.as_bytes()))
        };
        assert!(fits("*.dat", "a.dat") && fits("a?", "ab") && fits("*", "-x") && fits(".*", ".a"));
        assert!(!fits("*.dat", "a.txt") && !fits("*", ".hidden") && !fits("a", "a"));
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
