//! The thread that waits for all connections.

use super::connection::{Connection, Over, Step};
use super::options::{Options, Statistics};
use super::service::Service;
use super::workers::{Job, Workers};
use crate::interface::Interface;
use crate::line;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::process::{getpriority_process, setpriority_process};
use std::collections::HashMap;
use std::io::{self, ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tracing::warn;
use vazao_meter::Clock;

/// Bytes that are read at once of one connection, before others have their turn.
const READ_BYTES: usize = 64 * 1024;

/// Connections taken before others have their turn.
const ACCEPTS: usize = 64;

/// The times of connections are looked at this often.
const LOOK_NS: u64 = 250_000_000;

/// Pause after a connection could not be had, for want of descriptors most likely: the loop must not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

const LISTENER: u64 = 0;
const WORKERS: u64 = 1;
const FIRST_CONNECTION: u64 = 2;

/// What a server is made of.
pub(super) struct Parts {
    pub(super) interface: Arc<Interface>,
    pub(super) service: Arc<dyn Service>,
    pub(super) options: Options,
    pub(super) clock: Arc<dyn Clock>,
}

/// The state of the thread.
pub(super) struct EventLoop {
    parts: Parts,
    listener: TcpListener,
    epoll: OwnedFd,
    workers: Arc<Workers>,
    statistics: Arc<Statistics>,
    connections: HashMap<u64, Connection>,
    next_id: u64,
    scratch: Vec<u8>,
    looked_ns: u64,
}

impl EventLoop {
    pub(super) fn new(
        listener: TcpListener,
        parts: Parts,
        workers: Arc<Workers>,
        statistics: Arc<Statistics>,
    ) -> io::Result<EventLoop> {
        listener.set_nonblocking(true)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64;
        epoll::add(&epoll, &listener, data(LISTENER), epoll::EventFlags::IN)?;
        epoll::add(&epoll, &*workers, data(WORKERS), epoll::EventFlags::IN)?;
        let looked_ns = parts.clock.now_ns();
        let (connections, scratch) = (HashMap::new(), vec![0; READ_BYTES]);
        let next_id = FIRST_CONNECTION;
        Ok(EventLoop {
            parts,
            listener,
            epoll,
            workers,
            statistics,
            connections,
            next_id,
            scratch,
            looked_ns,
        })
    }

    /// Serves until the server stops.
    pub(super) fn run(mut self) {
        give_way(self.parts.options.niceness);
        let workers = Arc::clone(&self.workers);
        let mut events = Vec::with_capacity(256);
        let timeout = Timespec { tv_sec: 0, tv_nsec: LOOK_NS as i64 };
        while !workers.is_stopping() {
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => {
                    warn!(%error, "remote calls are answered no longer: epoll failed");
                    break;
                }
            }
            let now_ns = self.parts.clock.now_ns();
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept(now_ns),
                    WORKERS => self.take_done(now_ns),
                    id => self.serve(id, event.flags, now_ns),
                }
            }
            if now_ns.saturating_sub(self.looked_ns) >= LOOK_NS {
                self.look_at_times(now_ns);
            }
        }
        drop(self);
        workers.tell_ended();
    }

    fn accept(&mut self, now_ns: u64) {
        for _ in 0..ACCEPTS {
            match self.listener.accept() {
                Ok((stream, peer)) => {
                    if self.connections.len() >= self.parts.options.connections_max.max(1)
                        && !self.make_room()
                    {
                        refuse(&stream, self.parts.options.connections_max);
                        continue;
                    }
                    let session = self.parts.service.connected(peer);
                    match Connection::new(stream, peer, session, now_ns) {
                        Ok(connection) => self.adopt(connection),
                        Err(error) => warn!(%error, %peer, "cannot serve a connection"),
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error)
                    if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(error) => {
                    warn!(%error, "cannot accept a connection; is the limit of open files too low?");
                    self.parts.clock.sleep(ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    fn adopt(&mut self, connection: Connection) {
        let id = self.next_id;
        if let Err(error) =
            epoll::add(&self.epoll, &connection, epoll::EventData::new_u64(id), connection.interest)
        {
            warn!(%error, peer = %connection.peer, "cannot serve a connection");
            return;
        }
        self.next_id += 1;
        self.connections.insert(id, connection);
        self.count_connections();
    }

    /// Closes a connection in favour of a new one. False when all have calls under way.
    fn make_room(&mut self) -> bool {
        let ranked = self.connections.iter().filter_map(|(&id, connection)| Some((connection.rank()?, id)));
        let mut ranked: Vec<_> = ranked.collect();
        ranked.sort_unstable();
        // One with a request in its socket would leave its peer in doubt; it goes only when there is no other.
        let quiet =
            ranked.iter().find(|(_, id)| self.connections.get(id).is_some_and(|one| !one.has_unread()));
        let Some(&(_, id)) = quiet.or(ranked.first()) else { return false };
        self.remove(id);
        self.statistics.evicted.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn remove(&mut self, id: u64) {
        if let Some(connection) = self.connections.remove(&id) {
            self.statistics.memory_bytes.fetch_sub(connection.counted_bytes as u64, Ordering::Relaxed);
            self.count_connections();
        }
    }

    fn count_connections(&self) {
        self.statistics.connections.store(self.connections.len() as u64, Ordering::Relaxed);
    }

    fn serve(&mut self, id: u64, happened: epoll::EventFlags, now_ns: u64) {
        let EventLoop { parts, connections, scratch, statistics, .. } = self;
        let Some(connection) = connections.get_mut(&id) else { return };
        let ended = epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        let step = if connection.is_calling() {
            // Only its end is told of, and would be again and again. It keeps its place until its call has returned:
            // otherwise peers that call and leave would queue any number of calls.
            let _ = epoll::delete(&self.epoll, &*connection);
            connection.is_gone = true;
            return;
        } else if happened.contains(epoll::EventFlags::OUT) {
            connection.send(now_ns).and_then(|()| connection.advance(parts, statistics, now_ns))
        } else if happened.intersects(epoll::EventFlags::IN | ended) {
            connection.read(scratch, parts, statistics, now_ns)
        } else {
            Ok(Step::Rest)
        };
        self.settle(id, step);
    }

    /// Has done what a step of a connection came to.
    fn settle(&mut self, id: u64, step: Result<Step, Over>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        match step {
            Err(Over) => return self.remove(id),
            Ok(Step::Rest) => {}
            Ok(Step::Call { method, arguments }) => match connection.lend_session() {
                Some(session) => self.workers.queue(Job { connection: id, session, method, arguments }),
                None => return self.remove(id),
            },
        }
        let held = connection.held_bytes();
        if held != connection.counted_bytes {
            let memory = &self.statistics.memory_bytes;
            memory.fetch_add(held as u64, Ordering::Relaxed);
            memory.fetch_sub(connection.counted_bytes as u64, Ordering::Relaxed);
            connection.counted_bytes = held;
        }
        let wants = connection.wants();
        if wants != connection.interest {
            connection.interest = wants;
            if epoll::modify(&self.epoll, &*connection, epoll::EventData::new_u64(id), wants).is_err() {
                self.remove(id);
            }
        }
    }

    fn take_done(&mut self, now_ns: u64) {
        for done in self.workers.take_done() {
            let EventLoop { parts, connections, statistics, .. } = self;
            let Some(connection) = connections.get_mut(&done.connection) else { continue };
            let Some(method) = parts.interface.methods.get(done.method) else { continue };
            let step = match connection.is_gone {
                true => Err(Over),
                false => connection.done(done.session, method, &done.outcome, parts, statistics, now_ns),
            };
            self.settle(done.connection, step);
        }
    }

    fn look_at_times(&mut self, now_ns: u64) {
        self.looked_ns = now_ns;
        let ids: Vec<u64> = self.connections.keys().copied().collect();
        for id in ids {
            let EventLoop { parts, connections, statistics, .. } = self;
            let Some(connection) = connections.get_mut(&id) else { continue };
            let step = connection.look_at_time(parts, statistics, now_ns).map(|()| Step::Rest);
            self.settle(id, step);
        }
    }
}

/// Lowers the priority of this thread: on Linux each has its own (setpriority(2), "C library/kernel differences").
fn give_way(niceness: u8) {
    if niceness == 0 {
        return;
    }
    let lowered = getpriority_process(None)
        .and_then(|present| setpriority_process(None, present.saturating_add(i32::from(niceness)).min(19)));
    if let Err(error) = lowered {
        warn!(%error, "remote calls are read with the priority of everything else");
    }
}

/// A peer that cannot be served is told so; whether it reads that is its own matter.
fn refuse(mut stream: &TcpStream, connections_max: usize) {
    let mut answer = Vec::new();
    line::write_error(
        &format!("the server carries out {connections_max} calls, the most that it may; try again later"),
        &mut answer,
    );
    let _ = stream.set_nonblocking(true);
    let _ = stream.write(&answer);
}
