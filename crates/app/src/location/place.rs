//! A place that user commands work on: in the volume (`vz:/a/b`) or in an area of a node (`n1:/data/a/b`).

use super::{Location, show, show_volume};
use crate::failure::{At, Failure, Outcome};
use std::ffi::{OsStr, OsString};
use vazao_client::area::{AreaClient, AreaEntry, Reference};
use vazao_client::{Client, Entry};
use vazao_model::limits::LIST_ENTRIES_MAX;
use vazao_model::{Attributes, FileKind, InodeId, VolumePath};

/// A path in the volume or in an area.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// In the volume.
    Volume(VolumePath),
    /// In an area.
    Area(Reference),
}

/// Reads a path that must not be on this machine.
pub(crate) fn place(argument: &OsStr) -> Outcome<Place> {
    match Location::parse(argument)? {
        Location::Volume(path) => Ok(Place::Volume(path)),
        Location::Area(reference) => Ok(Place::Area(reference)),
        // Says how a path in the volume looks.
        Location::Local(_) | Location::Ftp(_) => crate::location::volume_path(argument).map(Place::Volume),
    }
}

/// Reads several of them.
pub(crate) fn places(arguments: &[OsString]) -> Outcome<Vec<Place>> {
    arguments.iter().map(|argument| place(argument)).collect()
}

impl Place {
    /// As messages show it.
    pub(crate) fn show(&self) -> String {
        match self {
            Place::Volume(path) => show_volume(path),
            Place::Area(reference) => show(&reference.to_bytes()),
        }
    }

    /// As it is written on a command line, byte by byte.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Place::Volume(path) => [b"vz:", path.to_bytes().as_slice()].concat(),
            Place::Area(reference) => reference.to_bytes(),
        }
    }

    /// What lies under `name` in it.
    pub(crate) fn join(&self, name: &[u8]) -> Place {
        match self {
            Place::Volume(path) => Place::Volume(path.join(name)),
            Place::Area(reference) => Place::Area(reference.join(name)),
        }
    }

    /// The last name; `/` for a root.
    pub(crate) fn name(&self) -> &[u8] {
        match self {
            Place::Volume(path) => path.components().last().map_or(b"/", Vec::as_slice),
            Place::Area(reference) => reference.name().unwrap_or(b"/"),
        }
    }

    /// Which numbers of inodes it shares.
    pub(crate) fn root(&self) -> String {
        match self {
            Place::Volume(_) => "vz:".to_owned(),
            Place::Area(reference) => format!("{}:/{}", reference.node, reference.area),
        }
    }

    /// The attributes; of what a link points to where `follow` says so.
    pub(crate) fn stat(&self, client: &Client, follow: bool) -> Outcome<Attributes> {
        match self {
            Place::Volume(path) => client.resolve(path, follow).at(self.show()),
            Place::Area(reference) => at(reference, area(client, reference).stat(&reference.path, follow)),
        }
    }

    /// Where a link points.
    pub(crate) fn read_link(&self, client: &Client, inode: InodeId) -> Outcome<Vec<u8>> {
        match self {
            Place::Volume(_) => client.read_link(inode).at(self.show()),
            Place::Area(reference) => at(reference, area(client, reference).read_link(&reference.path)),
        }
    }

    /// Calls `each` with every page of the directory that this is, until it fails or the directory ends. `inode` is
    /// the directory's.
    pub(crate) fn pages(
        &self,
        client: &Client,
        inode: InodeId,
        with_attributes: bool,
        mut each: impl FnMut(Vec<Entry>) -> Outcome,
    ) -> Outcome {
        let reference = match self {
            Place::Volume(path) => return super::walk::pages(client, inode, path, with_attributes, each),
            Place::Area(reference) => reference,
        };
        let area = area(client, reference);
        let mut cookie = 0;
        loop {
            let page = area.list(&reference.path, cookie, LIST_ENTRIES_MAX, with_attributes);
            let page = at(reference, page)?;
            let (end, last) = (page.end, page.entries.last().map(|entry| entry.cookie));
            each(page.entries.into_iter().map(entry).collect())?;
            match last {
                Some(last) if !end => cookie = last,
                _ => return Ok(()),
            }
        }
    }

    /// All entries of the directory, sorted by the bytes of their names.
    pub(crate) fn sorted(
        &self,
        client: &Client,
        inode: InodeId,
        with_attributes: bool,
    ) -> Outcome<Vec<Entry>> {
        let mut entries = Vec::new();
        self.pages(client, inode, with_attributes, |page| {
            entries.extend(page);
            Ok(())
        })?;
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }
}

/// An entry of an area as one of the volume.
pub(crate) fn entry(e: AreaEntry) -> Entry {
    let AreaEntry { name, inode, kind, cookie, attributes, .. } = e;
    Entry { name, inode: InodeId(inode), kind, cookie, attributes }
}

/// The area that a reference is in.
pub(crate) fn area(client: &Client, reference: &Reference) -> AreaClient {
    client.area(&reference.node, &reference.area)
}

/// Names the reference in an error. The node's own words end with its name of the same thing.
pub(crate) fn at<T>(reference: &Reference, outcome: vazao_client::Result<T>) -> Outcome<T> {
    let local = &reference.to_bytes()[reference.node.len() + 1..];
    outcome.map_err(|error| {
        let said = error.detail.strip_prefix(&*String::from_utf8_lossy(local)).map(str::to_owned);
        let detail = match said {
            Some(rest) => rest.trim_start_matches([':', ' ']).to_owned(),
            None => error.detail.clone(),
        };
        let named = vazao_client::Error::new(error.code, detail);
        Failure::from(named.about(show(&reference.to_bytes())))
    })
}

/// Removes what lies there; a directory with all that is in it where `recursive` says so.
pub(crate) fn remove(client: &Client, reference: &Reference, recursive: bool, force: bool) -> Outcome {
    let shown = show(&reference.to_bytes());
    if reference.path.is_empty() {
        return Err(Failure::new(format!("{shown}: the root of an area is not removed; name what is in it")));
    }
    let area = area(client, reference);
    let attributes = match area.stat(&reference.path, false) {
        Err(error) if force && error.code == vazao_model::Code::NotFound => return Ok(()),
        other => at(reference, other)?,
    };
    if attributes.kind != FileKind::Directory {
        return at(reference, area.remove(&reference.path));
    }
    if !recursive {
        return Err(Failure::new(format!(
            "{shown}: is a directory; give -r to remove it with all that is in it"
        )));
    }
    let mut waiting = vec![reference.clone()];
    let mut directories = Vec::new();
    while let Some(directory) = waiting.pop() {
        Place::Area(directory.clone()).pages(client, InodeId(0), false, |page| {
            let (below, files): (Vec<Entry>, Vec<Entry>) =
                page.into_iter().partition(|entry| entry.kind == FileKind::Directory);
            waiting.extend(below.iter().map(|entry| directory.join(&entry.name)));
            crate::parallel::for_each(&files, |entry| {
                let file = directory.join(&entry.name);
                at(&file, area.remove(&file.path))
            })
        })?;
        directories.push(directory);
    }
    let mut deepest_first = directories.iter().rev();
    deepest_first.try_for_each(|directory| at(directory, area.remove_directory(&directory.path)))
}

/// Makes a directory; with `parents` those above it as well, and none of them has to be new.
pub(crate) fn make_directory(client: &Client, reference: &Reference, mode: u32, parents: bool) -> Outcome {
    let area = area(client, reference);
    if !parents {
        return at(reference, area.make_directory(&reference.path, mode)).map(drop);
    }
    let mut here = Reference { path: Vec::new(), ..reference.clone() };
    for name in reference.path.split(|&byte| byte == b'/') {
        here = here.join(name);
        match area.make_directory(&here.path, mode) {
            Err(error) if error.code == vazao_model::Code::Exists => {
                let there = at(&here, area.stat(&here.path, true))?;
                if there.kind != FileKind::Directory {
                    let code = vazao_model::Code::NotDirectory;
                    return at(&here, Err(vazao_client::Error::new(code, "")));
                }
            }
            other => at(&here, other).map(drop)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_a_volume_path_and_a_local_path_are_told_apart() {
        let area = place(OsStr::new("n1:/data/x")).expect("a reference");
        assert_eq!(
            (area.show().as_str(), area.root().as_str(), area.name()),
            ("n1:/data/x", "n1:/data", &b"x"[..])
        );
        assert_eq!(place(OsStr::new("vz:/x")).expect("of the volume").show(), "vz:/x");
        assert_eq!(place(OsStr::new("./n1:/data")).expect_err("is here").exit_code(), 2);
        let failure = place(OsStr::new("n1:/data/../x")).expect_err("leads up");
        assert!(failure.message().is_some_and(|m| m.contains("`..`")), "{failure:?}");
    }

    #[test]
    fn an_error_names_the_reference_once() {
        let reference = Reference::new("n1", "data", b"x");
        let error = vazao_client::Error::new(vazao_model::Code::NotFound, "/data/x");
        let failure = at::<()>(&reference, Err(error)).expect_err("failed");
        assert_eq!(failure.message(), Some("n1:/data/x: no such file or directory"));
        let error =
            vazao_client::Error::new(vazao_model::Code::ReadOnly, "/data/x: the area is exported read-only");
        let failure = at::<()>(&reference, Err(error)).expect_err("failed");
        let said = failure.message().unwrap_or_default();
        assert!(said.starts_with("n1:/data/x: the area is exported read-only"), "{said}");
    }
}
