//! What the system says about a file, as a fault that names the file and the remedy.

use rustix::io::Errno;
use vazao_model::Code;
use vazao_wire::service::Fault;

/// The code that stands for an error of the system.
fn code(error: Errno) -> Code {
    match error {
        Errno::NOENT => Code::NotFound,
        Errno::EXIST => Code::Exists,
        Errno::NOTDIR => Code::NotDirectory,
        Errno::ISDIR => Code::IsDirectory,
        Errno::NOTEMPTY => Code::NotEmpty,
        Errno::INVAL | Errno::NXIO => Code::Invalid,
        Errno::NAMETOOLONG => Code::NameTooLong,
        Errno::ACCESS => Code::AccessDenied,
        Errno::PERM => Code::NotPermitted,
        Errno::NOSPC | Errno::DQUOT => Code::NoSpace,
        Errno::FBIG | Errno::OVERFLOW => Code::TooLarge,
        Errno::MLINK => Code::TooManyLinks,
        Errno::LOOP => Code::Loop,
        Errno::XDEV => Code::CrossDevice,
        Errno::ROFS => Code::ReadOnly,
        Errno::BUSY | Errno::TXTBSY => Code::InUse,
        Errno::STALE => Code::Stale,
        Errno::NODATA => Code::NoAttribute,
        Errno::RANGE => Code::Range,
        Errno::OPNOTSUPP | Errno::NOSYS => Code::Unsupported,
        // A network file system that does not wait for ever.
        Errno::TIMEDOUT => Code::Hung,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => Code::Overloaded,
        _ => Code::Io,
    }
}

/// A fault of an operation on `thing`.
pub(crate) fn of(error: Errno, thing: &str) -> Fault {
    let code = code(error);
    match error {
        Errno::MFILE | Errno::NFILE => Fault::new(
            code,
            format!(
                "{thing}: the daemon has too many files open; raise its RLIMIT_NOFILE or lower descriptors_max"
            ),
        ),
        _ if code == Code::Io => {
            let text = std::io::Error::from(error).to_string();
            Fault::new(code, format!("{thing}: {text}"))
        }
        _ => Fault::new(code, thing),
    }
}

/// A fault of opening a path beneath an area's root.
pub(crate) fn of_path(error: Errno, thing: &str) -> Fault {
    match error {
        Errno::XDEV => Fault::new(
            Code::AccessDenied,
            format!("{thing}: a symbolic link on the way leads out of the area"),
        ),
        Errno::AGAIN => Fault::new(
            Code::Overloaded,
            format!("{thing}: directories on the way are being moved all the time"),
        ),
        other => of(other, thing),
    }
}
