//! Where a path given on the command line points: into the volume (`vz:/a/b`), into an area of a node (`n1:/data/a`),
//! to an FTP server (`ftp://host/a`) or to this machine. Bytes, never UTF-8. `place` is what commands do at one.

pub(crate) mod patterns;
pub(crate) mod place;
pub(crate) mod walk;

use crate::failure::{Failure, Outcome};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use vazao_client::area::Reference;
use vazao_model::{Code, VolumePath};
use vazao_mover::ftp::Url;

/// The prefix of a path in the volume.
pub(crate) const VOLUME_PREFIX: &[u8] = b"vz:";

/// Characters of a path that an error message repeats, so that a message about a path too long stays readable.
const SHOWN_BYTES_MAX: usize = 200;

/// A path on any side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Location {
    /// In the volume.
    Volume(VolumePath),
    /// In an area of a node.
    Area(Reference),
    /// On an FTP server.
    Ftp(Url),
    /// On this machine.
    Local(PathBuf),
}

impl Location {
    /// Reads a path of the command line. Errors: a volume path too long or with a byte that no path can have.
    pub(crate) fn parse(argument: &OsStr) -> Outcome<Location> {
        match argument.as_bytes().strip_prefix(VOLUME_PREFIX) {
            Some(path) => parse_volume(path, argument).map(Location::Volume),
            None if argument.is_empty() => Err(Failure::usage("an empty path names nothing")),
            None if Url::looks_like(argument.as_bytes()) => {
                let url = Url::parse(argument.as_bytes());
                url.map(Location::Ftp).map_err(|fault| Failure::usage(fault.detail))
            }
            None if foreign_scheme(argument).is_some() => Err(foreign(argument)),
            None if Reference::looks_like(argument.as_bytes()) => {
                let reference = Reference::parse(argument.as_bytes());
                reference.map(Location::Area).map_err(|error| Failure::usage(error.to_string()))
            }
            None => Ok(Location::Local(PathBuf::from(argument))),
        }
    }
}

/// The scheme of an address of something that is not reached: `s3` of `s3://bucket/x`.
fn foreign_scheme(argument: &OsStr) -> Option<&str> {
    let end = argument.as_bytes().windows(3).position(|part| part == b"://")?;
    let scheme = std::str::from_utf8(&argument.as_bytes()[..end]).ok()?;
    let is_letter = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    (scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(is_letter)).then_some(scheme)
}

fn foreign(argument: &OsStr) -> Failure {
    let scheme = foreign_scheme(argument).unwrap_or_default();
    let shown = show(argument.as_bytes());
    let what = match scheme.to_ascii_lowercase().as_str() {
        "s3" | "gs" | "az" | "swift" => "object stores are not reached",
        "ftps" => "FTP over TLS is not spoken; ftp:// is, without encryption",
        "sftp" | "scp" | "ssh" => "SSH is not spoken",
        "http" | "https" | "webdav" | "dav" | "davs" => "HTTP is not spoken",
        _ => "this kind of address is not known",
    };
    Failure::usage(format!(
        "{shown}: {what}; a path is vz:/PATH, NODE:/AREA/PATH, ftp://HOST/PATH (for cp), or one of this machine \
         (./{shown} where that is a file's name)"
    ))
}

/// Reads a path that has to be in the volume.
pub(crate) fn volume_path(argument: &OsStr) -> Outcome<VolumePath> {
    match argument.as_bytes().strip_prefix(VOLUME_PREFIX) {
        Some(path) => parse_volume(path, argument),
        None if Url::looks_like(argument.as_bytes()) => {
            Err(Failure::usage("a path on an FTP server; only `vazao cp` reaches those"))
        }
        None if foreign_scheme(argument).is_some() => Err(foreign(argument)),
        None if Reference::looks_like(argument.as_bytes()) => Err(Failure::usage(format!(
            "{} is in an area of a node; this command works in the volume: vz:/PATH",
            show(argument.as_bytes())
        ))),
        None if argument.as_bytes().windows(4).any(|part| part == b":vz:") => Err(Failure::usage(format!(
            "{}: a path in the volume begins with vz: and names no host; which cluster it is in is said by \
             VAZAO_CLUSTER=FILE, the cluster's client.toml",
            show(argument.as_bytes())
        ))),
        None => {
            let shown = show(argument.as_bytes());
            let slash = if argument.as_bytes().starts_with(b"/") { "" } else { "/" };
            Err(Failure::usage(format!(
                "{shown} is a path on this machine; a path in the volume begins with vz:, as in vz:{slash}{shown}"
            )))
        }
    }
}

fn parse_volume(path: &[u8], argument: &OsStr) -> Outcome<VolumePath> {
    VolumePath::parse(path).map_err(|code| {
        let shown = show(argument.as_bytes());
        match code {
            Code::NameTooLong => Failure::new(format!(
                "{shown}: {code}; a name has at most {} bytes, a path {}",
                vazao_model::limits::NAME_BYTES_MAX,
                vazao_model::limits::PATH_BYTES_MAX
            )),
            other => Failure::new(format!("{shown}: {other}")),
        }
    })
}

/// A volume path as messages show it.
pub(crate) fn show_volume(path: &VolumePath) -> String {
    format!("vz:{}", show(&path.to_bytes()))
}

/// Bytes of a path as a terminal may show them: what would move its cursor or is not UTF-8 appears as `\xNN`.
pub(crate) fn show(bytes: &[u8]) -> String {
    if bytes.len() <= SHOWN_BYTES_MAX {
        return printable(bytes);
    }
    format!("{}…({} bytes)", printable(&bytes[..SHOWN_BYTES_MAX]), bytes.len())
}

/// All bytes of a name, those that are no printable UTF-8 as `\xNN`.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            if letter.is_control() {
                let mut buffer = [0; 4];
                letter.encode_utf8(&mut buffer).bytes().for_each(|b| text.push_str(&format!("\\x{b:02x}")));
            } else {
                text.push(letter);
            }
        }
        chunk.invalid().iter().for_each(|b| text.push_str(&format!("\\x{b:02x}")));
    }
    text
}

/// A path's last name, as `basename` has it; `None` for `/`, `.` and `..`.
pub(crate) fn last_name(path: &OsStr) -> Option<OsString> {
    let name = path.as_bytes().split(|&b| b == b'/').rfind(|part| !part.is_empty())?;
    (name != b"." && name != b"..").then(|| OsString::from_vec(name.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_the_prefix_is_in_the_volume_and_any_other_is_here() {
        let in_volume = Location::parse(OsStr::new("vz:/a//b/../c")).expect("valid");
        assert_eq!(in_volume, Location::Volume(VolumePath::parse(b"/a/c").expect("valid")));
        let here = Location::parse(OsStr::new("./vz:/a")).expect("valid");
        assert_eq!(here, Location::Local(PathBuf::from("./vz:/a")));
        assert_eq!(Location::parse(OsStr::new("vz:")), Ok(Location::Volume(VolumePath::default())));
    }

    #[test]
    fn a_bare_path_where_one_of_the_volume_is_needed_is_explained() {
        let failure = volume_path(OsStr::new("a/b")).expect_err("no prefix");
        assert!(failure.message().is_some_and(|m| m.contains("vz:/a/b")), "{failure:?}");
        assert_eq!(failure.exit_code(), 2);
        let failure = volume_path(OsStr::new("host:vz:/a")).expect_err("a host");
        assert!(failure.message().is_some_and(|m| m.contains("VAZAO_CLUSTER")), "{failure:?}");
    }

    /// `s3://bucket/x` was an area without a name on a node called s3.
    #[test]
    fn addresses_of_what_is_not_reached_are_refused_as_what_they_are() {
        for (address, words) in [
            ("s3://bucket/x", "object stores"),
            ("ftps://host/x", "FTP over TLS"),
            ("sftp://host/x", "SSH"),
            ("https://host/x", "HTTP"),
            ("foo+bar://x", "not known"),
        ] {
            for failure in [
                Location::parse(OsStr::new(address)).map(drop).expect_err(address),
                volume_path(OsStr::new(address)).map(drop).expect_err(address),
            ] {
                let said = failure.message().unwrap_or_default();
                assert!(said.contains(words) && said.contains(address), "{said}");
                assert_eq!(failure.exit_code(), 2);
            }
        }
        assert!(matches!(Location::parse(OsStr::new("ftp://host/x")), Ok(Location::Ftp(_))));
        assert!(matches!(Location::parse(OsStr::new("./s3://x")), Ok(Location::Local(_))));
    }

    #[test]
    fn names_of_256_bytes_and_paths_of_4096_are_refused_with_a_short_message() {
        let long_name = format!("vz:/{}", "x".repeat(256));
        let long_path = format!("vz:{}", "/a".repeat(2048));
        for long in [long_name, long_path] {
            let failure = volume_path(OsStr::new(&long)).expect_err("too long");
            let message = failure.message().expect("has a message");
            assert!(message.contains("name too long") && message.len() < 400, "{message}");
        }
        assert!(volume_path(OsStr::new(&format!("vz:/{}", "x".repeat(255)))).is_ok());
    }

    #[test]
    fn bytes_that_are_not_utf8_survive_and_are_shown_escaped() {
        let path = volume_path(OsStr::from_bytes(b"vz:/\xff\n")).expect("valid");
        assert_eq!(path.to_bytes(), b"/\xff\n");
        assert_eq!(show_volume(&path), "vz:/\\xff\\x0a");
    }

    #[test]
    fn the_last_name_ignores_trailing_slashes() {
        assert_eq!(last_name(OsStr::new("/a/b//")), Some(OsString::from("b")));
        assert_eq!(last_name(OsStr::new("/")), None);
        assert_eq!(last_name(OsStr::new("a/..")), None);
    }
}
