//! Paths below an area's root, checked by their words before the kernel checks where they lead.

use vazao_model::Code;
use vazao_model::limits::{NAME_BYTES_MAX, PATH_BYTES_MAX};
use vazao_wire::service::Fault;

/// Bytes of a path that a message repeats.
const SHOWN_BYTES_MAX: usize = 200;

/// A path below an area's root: names separated by single slashes, empty for the root. No name is `.` or `..`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AreaPath {
    bytes: Box<[u8]>,
}

impl AreaPath {
    /// Checks a path of a request.
    pub(crate) fn parse(area: &str, path: &[u8]) -> Result<AreaPath, Fault> {
        let refuse = |code, why: String| Err(Fault::new(code, format!("{}: {why}", show(area, path))));
        if path.len() > PATH_BYTES_MAX {
            return refuse(Code::NameTooLong, format!("a path has at most {PATH_BYTES_MAX} bytes"));
        }
        if path.contains(&0) {
            return refuse(Code::Invalid, "a path has no NUL bytes".to_owned());
        }
        if path.starts_with(b"/") {
            return refuse(
                Code::Invalid,
                "a path in an area begins with a name, not with a slash".to_owned(),
            );
        }
        let mut bytes = Vec::with_capacity(path.len());
        for name in path.split(|&byte| byte == b'/') {
            match name {
                b"" | b"." => continue,
                b".." => {
                    let why = "`..` is refused in areas; name the place from the area's root".to_owned();
                    return refuse(Code::AccessDenied, why);
                }
                long if long.len() > NAME_BYTES_MAX => {
                    return refuse(Code::NameTooLong, format!("a name has at most {NAME_BYTES_MAX} bytes"));
                }
                name => {
                    if !bytes.is_empty() {
                        bytes.push(b'/');
                    }
                    bytes.extend_from_slice(name);
                }
            }
        }
        Ok(AreaPath { bytes: bytes.into() })
    }

    /// What the kernel is asked to open beneath the root.
    pub(crate) fn relative(&self) -> &[u8] {
        if self.bytes.is_empty() { b"." } else { &self.bytes }
    }

    /// The directory and the last name in it; `None` for the root.
    pub(crate) fn split(&self) -> Option<(&[u8], &[u8])> {
        if self.bytes.is_empty() {
            return None;
        }
        match self.bytes.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => Some((&self.bytes[..slash], &self.bytes[slash + 1..])),
            None => Some((b".", &self.bytes)),
        }
    }

    /// Its names, from the root down.
    pub(crate) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.split(|&byte| byte == b'/').filter(|name| !name.is_empty())
    }

    /// The path as messages show it.
    pub(crate) fn show(&self, area: &str) -> String {
        show(area, &self.bytes)
    }
}

/// `area data, run7/x`.
pub(crate) fn show(area: &str, path: &[u8]) -> String {
    let area: String = area.chars().take(SHOWN_BYTES_MAX).collect();
    let shown = &path[..path.len().min(SHOWN_BYTES_MAX)];
    let more = if shown.len() < path.len() { "…" } else { "" };
    let text = shown.escape_ascii();
    match std::str::from_utf8(shown) {
        Ok(utf8) if !utf8.chars().any(char::is_control) => format!("/{area}/{utf8}{more}"),
        _ => format!("/{area}/{text}{more}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_as_they_are_and_nothing_is_decoded() {
        let path = AreaPath::parse("a", b"x//./%2e%2e/y/").expect("valid");
        assert_eq!(path.relative(), b"x/%2e%2e/y");
        assert_eq!(path.split(), Some((&b"x/%2e%2e"[..], &b"y"[..])));
        let root = AreaPath::parse("a", b".").expect("valid");
        assert_eq!((root.relative(), root.split()), (&b"."[..], None));
    }

    #[test]
    fn what_could_lead_elsewhere_is_refused_with_its_reason() {
        let long = "x".repeat(256);
        let deep = "a/".repeat(2048);
        for (path, code, word) in [
            ("..", Code::AccessDenied, "`..`"),
            ("a/../b", Code::AccessDenied, "`..`"),
            ("a/..", Code::AccessDenied, "`..`"),
            ("/etc/passwd", Code::Invalid, "slash"),
            ("a\0b", Code::Invalid, "NUL"),
            (&long, Code::NameTooLong, "255"),
            (&deep, Code::NameTooLong, "4095"),
        ] {
            let fault = AreaPath::parse("a", path.as_bytes()).expect_err(path);
            assert_eq!(fault.code, code, "{path}");
            assert!(fault.detail.contains(word), "{}", fault.detail);
        }
    }
}
