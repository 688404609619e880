//! References: names of remote files that cost their server nothing.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use vazao_model::Code;
use vazao_model::limits::{AREA_NAME_BYTES_MAX, PATH_BYTES_MAX};
use vazao_wire::proto;

/// What tells a file from another one of the same name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct FileIdentity {
    /// The file system, as its node numbers it.
    pub device: u64,
    /// The inode.
    pub inode: u64,
    /// When it was made; 0 where the file system does not know.
    pub born_ns: u64,
}

impl From<proto::FileIdentity> for FileIdentity {
    fn from(i: proto::FileIdentity) -> FileIdentity {
        FileIdentity { device: i.device, inode: i.inode, born_ns: i.born_ns }
    }
}

impl From<FileIdentity> for proto::FileIdentity {
    fn from(i: FileIdentity) -> proto::FileIdentity {
        proto::FileIdentity { device: i.device, inode: i.inode, born_ns: i.born_ns }
    }
}

/// A file or directory of an area: `n1:/data/run7/x`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Reference {
    /// The node's name.
    pub node: String,
    /// The area's name on that node.
    pub area: String,
    /// Below the area's root, names separated by `/`; empty for the root.
    pub path: Vec<u8>,
    /// The one file that is meant, whatever its name is given to later. Not part of the text.
    pub identity: Option<FileIdentity>,
}

fn is_name(name: &[u8]) -> bool {
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let starts = name.first().is_some_and(u8::is_ascii_alphanumeric);
    starts && name.len() <= AREA_NAME_BYTES_MAX && name.iter().all(fits)
}

impl Reference {
    /// A reference to `path` below the root of an area.
    pub fn new(node: &str, area: &str, path: &[u8]) -> Reference {
        Reference { node: node.to_owned(), area: area.to_owned(), path: path.to_vec(), identity: None }
    }

    /// True for text of the form `NODE:/…`, which [`Reference::parse`] then reads or refuses.
    pub fn looks_like(text: &[u8]) -> bool {
        let colon = text.iter().position(|&byte| byte == b':');
        colon.is_some_and(|colon| is_name(&text[..colon]) && text.get(colon + 1) == Some(&b'/'))
    }

    /// Reads `NODE:/AREA/path`. Nothing is decoded: `%2e` is three letters of a name.
    pub fn parse(text: &[u8]) -> Result<Reference> {
        let shown = String::from_utf8_lossy(&text[..text.len().min(PATH_BYTES_MAX)]).into_owned();
        let refuse = |why: &str| Err(Error::new(Code::Invalid, format!("{shown}: {why}")));
        let mut parts = text.splitn(2, |&byte| byte == b':');
        let (node, rest) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if !is_name(node) || !rest.starts_with(b"/") {
            return refuse("a reference is NODE:/AREA/path");
        }
        if rest.len() > PATH_BYTES_MAX {
            return Err(Error::new(Code::NameTooLong, shown));
        }
        let mut names = rest.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
        let Some(area) = names.next() else {
            return refuse("names no area; a reference is NODE:/AREA/path");
        };
        if !is_name(area) {
            return refuse("is no name of an area; a reference is NODE:/AREA/path");
        }
        let names: Vec<&[u8]> = names.collect();
        if names.contains(&&b".."[..]) {
            return refuse("`..` is refused in areas; name the place from the area's root");
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Reference { node: text(node), area: text(area), path: names.join(&b'/'), identity: None })
    }

    /// The text form, byte by byte.
    pub fn to_bytes(&self) -> Vec<u8> {
        let slash: &[u8] = if self.path.is_empty() { b"" } else { b"/" };
        [self.node.as_bytes(), b":/", self.area.as_bytes(), slash, &self.path].concat()
    }

    /// What lies under `name` in it.
    pub fn join(&self, name: &[u8]) -> Reference {
        let slash: &[u8] = if self.path.is_empty() { b"" } else { b"/" };
        Reference { path: [&self.path, slash, name].concat(), identity: None, ..self.clone() }
    }

    /// The last name; `None` for the root of the area.
    pub fn name(&self) -> Option<&[u8]> {
        self.path.rsplit(|&byte| byte == b'/').next().filter(|name| !name.is_empty())
    }
}

impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.to_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_form_is_read_as_it_was_written() {
        for text in ["n1:/data", "n1:/data/run7/x", "n-1.lab:/a_b/%2e%2e/c d"] {
            let reference = Reference::parse(text.as_bytes()).expect(text);
            assert_eq!(reference.to_string(), text);
            assert_eq!(Reference::parse(&reference.to_bytes()), Ok(reference));
        }
        let odd = Reference::parse(b"n1:/data//./x\xff/").expect("valid");
        assert_eq!(odd.to_bytes(), b"n1:/data/x\xff");
        assert_eq!(odd.name(), Some(&b"x\xff"[..]));
    }

    #[test]
    fn what_is_no_reference_is_refused_with_its_form() {
        for (text, word) in [
            ("n1:data/x", "NODE:/AREA/path"),
            ("n1:/", "no area"),
            ("n1:/-x/y", "no name of an area"),
            ("n1:/data/../x", "`..`"),
            (":/data", "NODE:/AREA/path"),
            ("a/b:/data", "NODE:/AREA/path"),
        ] {
            let error = Reference::parse(text.as_bytes()).expect_err(text).to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
        assert!(Reference::parse(format!("n1:/data/{}", "a/".repeat(2100)).as_bytes()).is_err());
    }

    #[test]
    fn a_local_path_does_not_look_like_a_reference() {
        for local in ["./n1:/x", "/n1:/x", "n1", "a/b", "c:x", ""] {
            assert!(!Reference::looks_like(local.as_bytes()), "{local}");
        }
        assert!(Reference::looks_like(b"n1:/x"));
    }
}
