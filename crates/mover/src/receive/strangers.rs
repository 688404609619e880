//! Connections that have not sent a request yet. Every host that reaches a port can open one, so their number is small,
//! and a new one evicts the oldest: a peer with a request sends it at once.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

#[derive(Debug, Default)]
struct Table {
    sockets: BTreeMap<u64, TcpStream>,
    last: u64,
}

/// The strangers of one port.
#[derive(Debug)]
pub(super) struct Strangers {
    table: Mutex<Table>,
    count_max: usize,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct Stranger {
    strangers: Arc<Strangers>,
    number: u64,
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let left = self.strangers.table().sockets.remove(&self.number);
        // Closed outside the lock.
        drop(left);
    }
}

impl Strangers {
    pub(super) fn new(count_max: usize) -> Arc<Strangers> {
        Arc::new(Strangers { table: Mutex::default(), count_max })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }

    /// Adds a connection. At the limit the oldest is shut down, and the thread that serves it finds it ended. Errors:
    /// no descriptors are left.
    pub(super) fn enter(self: &Arc<Strangers>, socket: &TcpStream) -> std::io::Result<Stranger> {
        let socket = socket.try_clone()?;
        let mut table = self.table();
        while table.sockets.len() >= self.count_max
            && let Some((_, oldest)) = table.sockets.pop_first()
        {
            // It may have ended by itself.
            let _ = oldest.shutdown(Shutdown::Both);
        }
        table.last += 1;
        let number = table.last;
        table.sockets.insert(number, socket);
        Ok(Stranger { strangers: Arc::clone(self), number })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    #[test]
    fn the_oldest_makes_room_and_a_connection_that_has_become_known_stays() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let pair = || {
            let near = TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
            (near, listener.accept().expect("accepted").0)
        };
        let strangers = Strangers::new(2);
        let (known, mut first, second, third) = (pair(), pair(), pair(), pair());
        drop(strangers.enter(&known.1).expect("entered"));
        let _one = strangers.enter(&first.1).expect("entered");
        let _two = strangers.enter(&second.1).expect("entered");
        let _three = strangers.enter(&third.1).expect("entered");
        assert_eq!(first.0.read(&mut [0]).expect("ended"), 0);
        for (near, _) in [&known, &second, &third] {
            near.set_nonblocking(true).expect("set");
            assert!((&mut &*near).read(&mut [0]).is_err(), "nothing has happened to it");
        }
    }
}
