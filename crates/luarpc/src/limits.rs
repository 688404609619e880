//! What the protocol does not bound, and this crate does.

/// Bytes of an interface file. The largest known has 1 KiB.
pub const INTERFACE_BYTES_MAX: usize = 64 * 1024;

/// Tables within tables of an interface file. The format needs five: the interface, its methods, a method, its
/// arguments, an argument.
pub const INTERFACE_DEPTH_MAX: usize = 8;

/// Methods of an interface.
pub const METHODS_MAX: usize = 256;

/// Arguments of a method, and with them the lines of a request and of an answer.
pub const ARGUMENTS_MAX: usize = 32;

/// Bytes of a method's name, and of an interface's.
pub const NAME_BYTES_MAX: usize = 128;

/// Bytes of one line, its end included: a string of 1 MiB whose every byte has to be escaped, and more.
pub const LINE_BYTES_MAX: usize = 4 << 20;

/// Bytes of one request or answer, over all its lines.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// Bytes that a connection may keep without regard to what others keep: a small request always gets in.
pub const CONNECTION_BYTES_FREE: usize = 4 * 1024;

/// Bytes of an error's text. The remedy stands at its end, so that it must not be too few.
pub const ERROR_BYTES_MAX: usize = 4 * 1024;

/// A connection whose last answer was an error about its bytes is read for so long, and for so many bytes, before it is
/// closed: a peer that is still sending would otherwise not see the answer.
pub const DRAINED_MS_MAX: u32 = 1_000;
/// The bytes that are thrown away meanwhile: the longest request.
pub const DRAINED_BYTES_MAX: usize = MESSAGE_BYTES_MAX;
