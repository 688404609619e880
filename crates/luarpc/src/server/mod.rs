//! Answers calls: one thread that waits for all connections, and a few that carry out calls that may take time.
//!
//! Any peer that reaches the port may talk to it, so that everything about a connection is bounded: bytes of a line, of
//! a request, of all connections together, and the time for each step. Where there are as many connections as there may
//! be, one that has never finished a request makes room, or else the one that rests the longest.

mod answer;
mod connection;
mod event_loop;
mod options;
mod service;
mod workers;

use crate::interface::Interface;
use event_loop::EventLoop;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use vazao_meter::Clock;
use workers::Workers;

pub use options::{Options, Statistics};
pub use service::{Function, Service, Session};

/// How long the end of the waiting thread is waited for. Calls that go on are left behind.
const STOP_WAIT: Duration = Duration::from_secs(5);

/// A server that runs until it is stopped or dropped.
pub struct Running {
    address: SocketAddr,
    workers: Arc<Workers>,
    statistics: Arc<Statistics>,
}

impl Running {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it counts.
    pub fn statistics(&self) -> &Arc<Statistics> {
        &self.statistics
    }

    /// Stops it and waits until it holds neither port nor connections. False when it did not end in time.
    pub fn stop(self) -> bool {
        self.workers.stop();
        self.workers.wait_for_end(STOP_WAIT)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.workers.stop();
    }
}

/// Serves `service` by `interface` on `listener`.
pub fn serve(
    listener: TcpListener,
    interface: Arc<Interface>,
    service: Arc<dyn Service>,
    options: Options,
    clock: Arc<dyn Clock>,
) -> io::Result<Running> {
    let address = listener.local_addr()?;
    let statistics = Arc::new(Statistics::default());
    let workers = Workers::start(&interface, options.workers)?;
    let parts = event_loop::Parts { interface, service, options, clock };
    let running = Running { address, workers: Arc::clone(&workers), statistics: Arc::clone(&statistics) };
    let event_loop = EventLoop::new(listener, parts, Arc::clone(&workers), statistics)?;
    std::thread::Builder::new().name("luarpc".to_owned()).spawn(move || event_loop.run())?;
    Ok(running)
}

#[cfg(test)]
mod tests;
