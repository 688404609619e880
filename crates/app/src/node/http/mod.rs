//! A small HTTP/1.1 server for what a daemon tells of itself: GET and HEAD, no bodies.
//!
//! Any peer that reaches the port may talk to it, so that everything about it is bounded: one thread, few connections,
//! short requests, little time. Where there are as many connections as there may be, the one that has been the longest
//! without finishing a request or taking an answer makes room: scrapers, which do both at once, always get in.

mod connection;
mod request;

use connection::{Connection, Now, Waits};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use vazao_meter::Clock;
use vazao_model::limits::HTTP_CONNECTIONS_MAX;

/// Connections taken before others have their turn.
const ACCEPTS: usize = 16;

/// Deadlines are looked at this often, and the listener again after an error of its own.
const LOOK_NS: i64 = 250_000_000;

/// What is answered with.
pub(super) struct Page {
    status: u16,
    content_type: &'static str,
    body: String,
}

impl Page {
    /// A page of plain text.
    pub(super) fn text(status: u16, body: &str) -> Page {
        Page { status, content_type: "text/plain; charset=utf-8", body: body.to_owned() }
    }

    /// A page of metrics in the text format of Prometheus.
    pub(super) fn metrics(body: String) -> Page {
        Page { status: 200, content_type: "text/plain; version=0.0.4; charset=utf-8", body }
    }
}

/// What there is to be read.
pub(super) trait Pages: Send + Sync + 'static {
    /// The page at a path.
    fn page(&self, path: &str) -> Page;
}

/// Answers on `listen` from a thread of its own until the process ends. Returns the address.
pub(super) fn serve(listen: &str, pages: Arc<dyn Pages>, clock: Arc<dyn Clock>) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(listen)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let server = Server { listener, pages, clock, connections: Vec::new(), is_accepting: true };
    std::thread::Builder::new().name("metrics".to_owned()).spawn(move || server.run())?;
    Ok(address)
}

/// The state of the thread.
struct Server {
    listener: TcpListener,
    pages: Arc<dyn Pages>,
    clock: Arc<dyn Clock>,
    connections: Vec<(Connection, Waits)>,
    /// False for a moment when no connection could be had: out of descriptors, most likely.
    is_accepting: bool,
}

impl Server {
    fn run(mut self) {
        loop {
            let ready = self.wait();
            self.round(&ready);
        }
    }

    /// Waits until there is something to do. Whether the listener is ready, and each connection.
    fn wait(&self) -> Vec<bool> {
        let accepts = if self.is_accepting { PollFlags::IN } else { PollFlags::empty() };
        let mut fds = vec![PollFd::new(&self.listener, accepts)];
        let mut has_more = false;
        for (connection, waits) in &self.connections {
            let flags = match waits {
                Waits::For(flags) => *flags,
                Waits::Nothing => PollFlags::empty(),
            };
            has_more |= *waits == Waits::Nothing;
            fds.push(PollFd::new(connection.stream(), flags));
        }
        let timeout = Timespec { tv_sec: 0, tv_nsec: if has_more { 0 } else { LOOK_NS } };
        // Interrupted or not: what is ready is ready.
        let _ = poll(&mut fds, Some(&timeout));
        fds.iter().map(|fd| !fd.revents().is_empty()).collect()
    }

    fn round(&mut self, ready: &[bool]) {
        let now = Now { ns: self.clock.now_ns(), wall_s: (self.clock.wall_ns() / 1_000_000_000) as i64 };
        let before = std::mem::take(&mut self.connections);
        for (number, (mut connection, waits)) in before.into_iter().enumerate() {
            let is_ready = waits == Waits::Nothing || ready.get(number + 1).copied().unwrap_or(false);
            let waits = if is_ready { connection.advance(&*self.pages, now) } else { Ok(waits) };
            if let Ok(waits) = waits
                && !connection.is_late(now.ns)
            {
                self.connections.push((connection, waits));
            }
        }
        if !self.is_accepting || ready.first().copied().unwrap_or(false) {
            self.accept(now.ns);
        }
    }

    fn accept(&mut self, now_ns: u64) {
        self.is_accepting = true;
        for _ in 0..ACCEPTS {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    if self.connections.len() >= HTTP_CONNECTIONS_MAX {
                        self.make_room();
                    }
                    self.connections.extend(
                        Connection::new(stream, now_ns).map(|connection| (connection, Waits::Nothing)),
                    );
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    // It is looked at again when the wait is over, so that the loop does not spin.
                    self.is_accepting = false;
                    return;
                }
            }
        }
    }

    /// Closes the connection that has been the longest without finishing anything.
    fn make_room(&mut self) {
        let oldest = (0..self.connections.len()).min_by_key(|&number| self.connections[number].0.since_ns());
        if let Some(number) = oldest {
            self.connections.swap_remove(number);
        }
    }
}

#[cfg(test)]
mod tests;
