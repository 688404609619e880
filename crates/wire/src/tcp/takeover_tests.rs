//! A handler that a disk holds up, and what goes on without it.

use super::{Server, ServerOptions, TcpTransport, TransportOptions};
use crate::key::ClusterKey;
use crate::operation::{Method, op};
use crate::proto;
use crate::service::{Request, Responder, Service};
use crate::transport::{Transport, call, submit};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use vazao_meter::{Clock, SystemClock};

/// Writes hang until they are let go; as a data server does, it defers them once that was noticed.
#[derive(Default)]
struct Hanging {
    held: Mutex<()>,
    within: AtomicUsize,
    is_known: AtomicBool,
}

impl Service for Hanging {
    fn handle(&self, request: Request<'_>, responder: &mut dyn Responder) {
        if request.method != Method::Write {
            return responder.reply(&[]);
        }
        if self.is_known.load(Ordering::SeqCst) {
            return std::mem::forget(responder.defer());
        }
        responder.enter_disk();
        self.within.fetch_add(1, Ordering::SeqCst);
        drop(self.held.lock());
        self.within.fetch_sub(1, Ordering::SeqCst);
        responder.leave_disk();
        responder.reply(&[]);
    }

    fn may_hang(&self) -> bool {
        true
    }

    fn look(&self) {
        let is_within = self.within.load(Ordering::SeqCst) > 0;
        self.is_known.store(is_within, Ordering::SeqCst);
    }
}

const SECOND_NS: u64 = 1_000_000_000;

fn serve(service: &Arc<Hanging>, threads: usize) -> Server {
    let options = ServerOptions { threads, key: ClusterKey::insecure(), name: "hanging".to_owned() };
    let service = Arc::clone(service) as Arc<dyn Service>;
    Server::start("127.0.0.1:0", service, options, Arc::new(SystemClock)).expect("loopback")
}

fn client() -> Arc<TcpTransport> {
    TcpTransport::new(ClusterKey::insecure(), TransportOptions::default(), Arc::new(SystemClock))
}

fn ping(transport: &dyn Transport, address: &str) -> Result<(), crate::service::Fault> {
    let deadline_ns = SystemClock.now_ns() + 10 * SECOND_NS;
    call::<op::Ping>(transport, address, &proto::PingRequest::default(), deadline_ns).map(drop)
}

/// One write to a disk that hung held up every connection of the loop thread that it had come to, for good.
#[test]
fn a_loop_whose_thread_is_stuck_in_a_disk_is_taken_over_and_continues() {
    for threads in [1, 2] {
        let service = Arc::new(Hanging::default());
        let mut server = serve(&service, threads);
        let address = server.address().to_string();
        // Connections that are there before, on all loops.
        let others: Vec<_> = (0..4).map(|_| client()).collect();
        others.iter().for_each(|other| ping(&**other, &address).expect("answers"));
        let held = service.held.lock();
        let writer = client();
        let deadline_ns = SystemClock.now_ns() + 60 * SECOND_NS;
        let write = proto::WriteRequest::default();
        let stuck = submit::<op::Write>(&*writer, &address, &write, b"bytes", deadline_ns);
        while service.within.load(Ordering::SeqCst) == 0 {
            SystemClock.sleep(Duration::from_millis(1));
        }
        let begun_ns = SystemClock.now_ns();
        others.iter().for_each(|other| ping(&**other, &address).expect("goes on"));
        ping(&*client(), &address).expect("new connections are taken");
        let took_ns = SystemClock.now_ns() - begun_ns;
        assert!(took_ns < 3 * SECOND_NS, "{} ms", took_ns / 1_000_000);
        stuck.wait().expect_err("its connection is ended, so that it can be sent again");
        // Known by now, it holds up nobody.
        let deferred = submit::<op::Write>(&*writer, &address, &write, b"bytes", deadline_ns);
        ping(&*writer, &address).expect("answers beside it");
        drop(held);
        while service.within.load(Ordering::SeqCst) > 0 {
            SystemClock.sleep(Duration::from_millis(1));
        }
        others.iter().for_each(|other| ping(&**other, &address).expect("answers afterwards"));
        server.stop();
        drop(deferred);
    }
}

#[test]
fn a_server_ends_though_one_of_its_threads_is_held_up() {
    let service = Arc::new(Hanging::default());
    let mut server = serve(&service, 2);
    let address = server.address().to_string();
    let held = service.held.lock();
    let writer = client();
    let deadline_ns = SystemClock.now_ns() + 60 * SECOND_NS;
    let stuck =
        submit::<op::Write>(&*writer, &address, &proto::WriteRequest::default(), b"bytes", deadline_ns);
    while service.within.load(Ordering::SeqCst) == 0 {
        SystemClock.sleep(Duration::from_millis(1));
    }
    let begun_ns = SystemClock.now_ns();
    server.stop();
    assert!(SystemClock.now_ns() - begun_ns < 5 * SECOND_NS);
    drop((held, stuck));
}
