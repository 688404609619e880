//! A connection as C holds it.

/// A session with the volume of one cluster. Usable from any number of threads.
pub struct Connection {
    pub(crate) handle: vazao_handles::Connection,
}

impl Connection {
    /// What it stands for.
    pub(crate) fn shared(&self) -> &vazao_handles::Connection {
        &self.handle
    }
}
