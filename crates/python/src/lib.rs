//! The extension module `vazao._vazao`: connections, files and listings for the package `vazao` beside it (`python/`).
//!
//! A door over [`vazao_handles`]: it turns what Python gives into calls, and their errors into `OSError`. It decides
//! nothing. The interpreter is free for other threads during every call that can wait. What Python can say as well,
//! such as that a file is an `io.RawIOBase`, is said there.
//!
//! `interpreter` has all that is unsafe: memory of Python objects that calls fill without a copy, and the look for
//! Ctrl-C.

mod area;
mod connection;
mod detached;
mod error;
mod file;
mod interpreter;
mod job;
mod listing;
mod signals;
mod types;
mod watch;

/// The connection, the files and the listings of `vazao`; its users import that package.
#[pyo3::pymodule]
mod _vazao {
    #[pymodule_export]
    use crate::area::Area;
    #[pymodule_export]
    use crate::connection::Connection;
    #[pymodule_export]
    use crate::file::File;
    #[pymodule_export]
    use crate::job::Job;
    #[pymodule_export]
    use crate::listing::{AreaListing, Listing};
    #[pymodule_export]
    use crate::types::{Attributes, Entry};
    #[pymodule_export]
    use crate::watch::Watch;
}
