//! A connection: a client, the process that made it, and whether it is closed.

use crate::Area;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vazao_client::{Client, Config, Error, Options, Result};
use vazao_model::{Code, VolumePath, zone};

/// A session with the volume of one cluster. Usable from any number of threads, and cheap to clone: the session ends
/// with the last clone, and with the last file or listing of it.
#[derive(Clone)]
pub struct Connection {
    shared: Arc<Shared>,
}

/// What clones of a connection have in common.
///
/// After fork(2) the child has the client's memory without the threads that serve it, and locks of it that another
/// thread held stay locked for ever: in another process than the one that connected nothing of it is touched, and
/// nothing is dropped.
struct Shared {
    process: u32,
    is_closed: AtomicBool,
    /// `None` only while it is dropped.
    client: Option<Client>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Connection({:?})", self.shared.client)
    }
}

impl Connection {
    /// Connects to the cluster of a client.toml; `None`: the one that the command would take.
    pub fn open(cluster_file: Option<&Path>, change: impl FnOnce(&mut Options)) -> Result<Connection> {
        let file = cluster_file.map_or_else(Config::default_path, Path::to_path_buf);
        let config = Config::load(&file)?;
        let mut options = config.options();
        change(&mut options);
        let client = Some(Client::connect_with(&config, options)?);
        let process = std::process::id();
        Ok(Connection { shared: Arc::new(Shared { process, is_closed: AtomicBool::new(false), client }) })
    }

    /// Ends the session: all files of it are flushed and closed.
    pub fn close(&self) -> Result<()> {
        let client = self.client()?.clone();
        self.shared.is_closed.store(true, Ordering::SeqCst);
        client.close()
    }

    /// Ends all waits for servers, now and from now on.
    pub fn hang_up(&self) -> Result<()> {
        self.client().map(Client::hang_up)
    }

    /// The client. Errors: closed, or of another process.
    pub fn client(&self) -> Result<&Client> {
        self.check_process()?;
        match (self.is_closed(), &self.shared.client) {
            (false, Some(client)) => Ok(client),
            _ => Err(Error::new(Code::BadHandle, "the connection is closed")),
        }
    }

    /// True once it was closed.
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed.load(Ordering::SeqCst)
    }

    /// True where nothing may be touched.
    pub fn is_foreign(&self) -> bool {
        self.shared.is_foreign()
    }

    /// Errors: this is a child of the process that connected.
    pub fn check_process(&self) -> Result<()> {
        if !self.is_foreign() {
            return Ok(());
        }
        let detail = format!(
            "the connection belongs to process {}, and this is process {}, a child of it; connect again in the child",
            self.shared.process,
            std::process::id()
        );
        Err(Error::new(Code::BadHandle, detail))
    }

    /// The area `area` of the node `node`. Sends no request: an area that is not there fails when it is used.
    pub fn area(&self, node: &str, area: &str) -> Result<Area> {
        Ok(Area::new(self, self.client()?.area(node, area)))
    }
}

/// The name of a zone that a program gives. Errors: it is none.
pub fn zone_name(name: &str) -> Result<String> {
    zone::check_name(name).map(|()| name.to_owned()).map_err(|why| Error::new(Code::Invalid, why))
}

impl Shared {
    fn is_foreign(&self) -> bool {
        std::process::id() != self.process
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let client = self.client.take();
        if self.is_foreign() {
            std::mem::forget(client);
        } else if !self.is_closed.load(Ordering::SeqCst)
            && let Some(Err(error)) = client.map(Client::close)
        {
            tracing::warn!(%error, "a connection was dropped with data that could not be written");
        }
    }
}

/// Reads a path in the volume: `/a/b` or `vz:/a/b`.
pub(crate) fn volume_path(text: &[u8]) -> Result<VolumePath> {
    let path = text.strip_prefix(b"vz:").unwrap_or(text);
    let shown = || String::from_utf8_lossy(&text[..text.len().min(SHOWN_BYTES_MAX)]).into_owned();
    if !path.starts_with(b"/") {
        let detail = format!("\"{}\" is no path in the volume; write it from the root on: /a/b", shown());
        return Err(Error::new(Code::Invalid, detail));
    }
    VolumePath::parse(path).map_err(|code| Error::new(code, shown()))
}

/// Bytes of a path that a message repeats where it cannot be one.
const SHOWN_BYTES_MAX: usize = 200;
