//! Names and paths. Both are bytes: nothing in the system assumes UTF-8.

use crate::error::Code;
use crate::limits::{NAME_BYTES_MAX, PATH_BYTES_MAX};

/// A checked file name: 1 to 255 bytes, no `/`, no NUL, neither `.` nor `..`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Name<'a>(&'a [u8]);

impl<'a> Name<'a> {
    /// Checks a name. Errors: `NameTooLong`, `Invalid`.
    pub fn new(bytes: &'a [u8]) -> Result<Name<'a>, Code> {
        if bytes.len() > NAME_BYTES_MAX {
            return Err(Code::NameTooLong);
        }
        let forbidden = bytes.is_empty() || bytes == b"." || bytes == b"..";
        if forbidden || bytes.iter().any(|&b| b == b'/' || b == 0) {
            return Err(Code::Invalid);
        }
        Ok(Name(bytes))
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.0
    }
}

/// A path in the volume: components from the root. `.` is dropped and `..` goes up, as nothing is above the root.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VolumePath {
    components: Vec<Vec<u8>>,
}

impl VolumePath {
    /// Parses `/a/b`, with or without its leading slash. Errors: `NameTooLong`, `Invalid` (a NUL byte).
    pub fn parse(path: &[u8]) -> Result<VolumePath, Code> {
        if path.len() > PATH_BYTES_MAX {
            return Err(Code::NameTooLong);
        }
        let mut components: Vec<Vec<u8>> = Vec::new();
        for part in path.split(|&b| b == b'/') {
            match part {
                b"" | b"." => {}
                b".." => {
                    components.pop();
                }
                name => components.push(Name::new(name)?.as_bytes().to_vec()),
            }
        }
        Ok(VolumePath { components })
    }

    /// Its components.
    pub fn components(&self) -> &[Vec<u8>] {
        &self.components
    }

    /// The directory it lies in and its last name; `None` for the root.
    pub fn split_last(&self) -> Option<(VolumePath, &[u8])> {
        let (last, parents) = self.components.split_last()?;
        Some((VolumePath { components: parents.to_vec() }, last))
    }

    /// The path of `name` below this one.
    pub fn join(&self, name: &[u8]) -> VolumePath {
        let mut components = self.components.clone();
        components.push(name.to_vec());
        VolumePath { components }
    }

    /// The path with a leading slash.
    pub fn to_bytes(&self) -> Vec<u8> {
        if self.components.is_empty() {
            return b"/".to_vec();
        }
        self.components.iter().flat_map(|c| [b"/", c.as_slice()].concat()).collect()
    }
}

impl std::fmt::Display for VolumePath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.to_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_255_bytes_is_accepted_and_256_refused() {
        assert!(Name::new(&[b'x'; 255]).is_ok());
        assert_eq!(Name::new(&[b'x'; 256]), Err(Code::NameTooLong));
    }

    #[test]
    fn names_that_would_confuse_paths_are_refused() {
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
            assert_eq!(Name::new(bad), Err(Code::Invalid));
        }
        assert!(Name::new(b"\xff\xfe not UTF-8").is_ok());
    }

    #[test]
    fn dots_are_resolved_and_never_leave_the_root() {
        let path = VolumePath::parse(b"//a/./b/../../../c/").expect("valid");
        assert_eq!(path.to_bytes(), b"/c");
    }

    #[test]
    fn a_path_of_4095_bytes_is_accepted_and_4096_refused() {
        let long = b"/a".repeat(2048);
        assert!(VolumePath::parse(&long[..4095]).is_ok());
        assert_eq!(VolumePath::parse(&long), Err(Code::NameTooLong));
    }
}
