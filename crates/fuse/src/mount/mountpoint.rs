//! What is at a mountpoint: from `stat` and `/proc/self/mountinfo` (proc_pid_mountinfo(5)).

use rustix::io::Errno;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Type of our mounts in `/proc/mounts`.
pub(crate) const FILE_SYSTEM_TYPE: &str = "fuse.vazao";

/// A mounted file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mounted {
    pub(crate) path: PathBuf,
    /// `major:minor` of its device, which names its read-ahead setting.
    pub(crate) device: String,
    pub(crate) file_system: String,
    pub(crate) source: String,
    /// The user it belongs to, where that is said.
    pub(crate) user: Option<u32>,
}

/// What a path is, as far as mounting there matters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Missing,
    NotDirectory,
    NotEmpty,
    /// A mount whose process is gone.
    Dead,
    /// Something is mounted there: its type and source.
    Mounted(Mounted),
    Free,
}

/// The path without links and dots. What is mounted there is not touched: its servers may be gone.
pub(crate) fn canonical(mountpoint: &Path) -> io::Result<PathBuf> {
    let absolute = std::path::absolute(mountpoint)?;
    match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) => {
            let straight = parent.canonicalize()?.join(name);
            if find(&straight)?.is_some() {
                return Ok(straight);
            }
            // A link to a live directory is followed as mount(8) does.
            Ok(straight.canonicalize().unwrap_or(straight))
        }
        _ => absolute.canonicalize(),
    }
}

/// Looks at `path`, which is canonical.
pub(crate) fn state(path: &Path) -> io::Result<State> {
    match rustix::fs::stat(path) {
        Err(Errno::NOENT) => return Ok(State::Missing),
        Err(Errno::NOTDIR) => return Ok(State::NotDirectory),
        Err(Errno::NOTCONN | Errno::CONNABORTED) => return Ok(State::Dead),
        Err(error) => return Err(error.into()),
        Ok(stat) if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir() => {
            return Ok(State::NotDirectory);
        }
        Ok(_) => {}
    }
    if let Some(mounted) = find(path)? {
        return Ok(State::Mounted(mounted));
    }
    let is_empty = std::fs::read_dir(path)?.next().is_none();
    Ok(if is_empty { State::Free } else { State::NotEmpty })
}

/// How long a look at a mount may take: one whose process is gone fails at once.
const LOOK: Duration = Duration::from_secs(2);

/// True for a mount whose process is gone. One that lives may answer only when its servers do.
pub(crate) fn is_dead(path: &Path) -> bool {
    let (path, (say, said)) = (path.to_owned(), channel());
    let look = move || {
        // The caller may have given up.
        let _ = say.send(matches!(state(&path), Ok(State::Dead)));
    };
    let looking = std::thread::Builder::new().name("look".to_owned()).spawn(look);
    looking.is_ok() && said.recv_timeout(LOOK).unwrap_or(false)
}

/// What is mounted on `path`: the topmost, if several are.
pub(crate) fn find(path: &Path) -> io::Result<Option<Mounted>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    Ok(table.split(|&b| b == b'\n').filter_map(parse).rfind(|mounted| mounted.path == path))
}

/// One line: `36 35 98:0 / /mnt rw,noatime master:1 - ext3 /dev/root rw`.
fn parse(line: &[u8]) -> Option<Mounted> {
    let mut fields = line.split(|&b| b == b' ');
    let device = fields.nth(2)?;
    let path = unescape(fields.nth(1)?);
    let mut after_separator = fields.skip_while(|field| *field != b"-").skip(1);
    let file_system = after_separator.next()?;
    let source = after_separator.next()?;
    let options = after_separator.next().unwrap_or_default();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some(Mounted {
        path: PathBuf::from(OsString::from_vec(path)),
        device: text(device),
        file_system: text(file_system),
        source: text(&unescape(source)),
        user: text(options).split(',').find_map(|option| option.strip_prefix("user_id=")?.parse().ok()),
    })
}

/// Undoes the kernel's `\040` for space, tab, newline and backslash.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let octal =
            tail.get(..3).filter(|digits| first == b'\\' && digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        match octal {
            Some(digits) => {
                bytes.push(digits.iter().fold(0u8, |value, d| value.wrapping_mul(8).wrapping_add(d - b'0')));
                rest = &tail[3..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_spaces_and_optional_fields_is_understood() {
        let line = br"36 35 0:52 / /mnt/my\040disk\134x rw,nosuid shared:1 master:2 - fuse.vazao vz:/a\040b rw,user_id=0";
        let mounted = parse(line).expect("valid");
        assert_eq!(mounted.path, Path::new(r"/mnt/my disk\x"));
        assert_eq!((mounted.device.as_str(), mounted.file_system.as_str()), ("0:52", FILE_SYSTEM_TYPE));
        assert_eq!((mounted.source.as_str(), mounted.user), ("vz:/a b", Some(0)));
    }

    #[test]
    fn a_line_cut_short_is_skipped() {
        for line in [&b""[..], b"36 35", b"36 35 98:0 / /mnt rw", b"36 35 98:0 / /mnt rw - ext4"] {
            assert_eq!(parse(line), None);
        }
        assert_eq!(unescape(br"a\04"), br"a\04");
    }

    #[test]
    fn directories_are_told_apart() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = canonical(directory.path()).expect("it exists");
        assert_eq!(state(&path).expect("readable"), State::Free);
        assert_eq!(state(&path.join("x")).expect("readable"), State::Missing);
        std::fs::write(path.join("f"), b"").expect("writable");
        assert_eq!(state(&path).expect("readable"), State::NotEmpty);
        assert_eq!(state(&path.join("f")).expect("readable"), State::NotDirectory);
        let State::Mounted(proc) = state(Path::new("/proc")).expect("readable") else {
            panic!("/proc is mounted")
        };
        assert_eq!(proc.file_system, "proc");
    }

    #[test]
    fn a_link_to_a_directory_is_followed_and_a_missing_name_is_kept() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let root = directory.path().canonicalize().expect("it exists");
        std::fs::create_dir(root.join("d")).expect("writable");
        std::os::unix::fs::symlink("d", root.join("l")).expect("writable");
        assert_eq!(canonical(&root.join("l")).expect("found"), root.join("d"));
        assert_eq!(canonical(&root.join("d/../missing")).expect("found"), root.join("missing"));
    }
}
