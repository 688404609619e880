//! Writes that are answered before the node has them.

use super::{NODE, WRITE, World, config};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;
use vazao_client::area::Writer;
use vazao_model::Code;
use vazao_wire::Method;
use vazao_wire::inline::Fate;
use vazao_wire::service::{Fault, Request, Responder, Service};

fn writers(world: &World) -> [Arc<Writer>; 2] {
    let behind = world.client.writes_behind().file();
    ["f", "f"].map(|path| {
        let channel = world.area.open(path.as_bytes(), &WRITE).expect("opened");
        Writer::new(channel, Arc::clone(&behind))
    })
}

fn write(writer: &Arc<Writer>, bytes: &[u8], offset: u64) -> vazao_client::Result<()> {
    writer.write_later(bytes, offset).map(drop)
}

#[test]
fn writes_that_overlap_come_in_their_order_and_all_are_there_when_it_has_settled() {
    let world = World::new();
    let [one, other] = writers(&world);
    let mut model = vec![0; 3_000_000];
    for step in 0..40_usize {
        let (at, length) = (step * 611_953 % 2_000_000, 1 + step * 97_231 % 900_000);
        let bytes = vec![step as u8 + 1; length];
        write([&one, &other][step % 2], &bytes, at as u64).expect("taken over");
        model[at..at + length].copy_from_slice(&bytes);
    }
    one.settle_file().expect("written");
    assert!(one.is_idle() && other.is_idle());
    let written = std::fs::read(world.path("data/f")).expect("is there");
    assert!(written[..] == model[..written.len()] && model[written.len()..].iter().all(|&byte| byte == 0));
}

#[test]
fn a_write_that_failed_is_told_of_once_and_to_who_wrote() {
    let mut world = World::new();
    let [one, other] = writers(&world);
    write(&one, b"before", 0).expect("taken over");
    one.settle().expect("written");
    world.service.set_areas(vec![config("data", &world.path("data"), true)]).expect("valid");
    (0..5).for_each(|i| drop(write(&one, b"lost", i * 10)));
    // The close of an inherited descriptor returns the error, and does not keep it from the writer.
    assert_eq!(one.settle_closed().expect_err("not written").code, Code::ReadOnly);
    assert_eq!(one.settle().expect_err("not written").code, Code::ReadOnly);
    one.settle_closed().expect("told already");
    one.settle().expect("told once");
    other.settle().expect("not its own");
    // Told by the next write, which is not done.
    write(&one, b"lost", 0).expect("taken over");
    assert_eq!(write(&one, b"not done", 2).expect_err("the one before failed").code, Code::ReadOnly);
    world.restart();
    write(&one, b"after", 0).expect("taken over");
    one.settle().expect("goes on");
    assert_eq!(std::fs::read(world.path("data/f")).expect("is there"), b"aftere");
}

#[test]
fn what_is_not_sent_yet_is_waited_for() {
    let world = World::new();
    let [one, other] = writers(&world);
    let unsent = one.write_later(&[1; 1_000_000], 0).expect("taken over");
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            other.settle_file().expect("not its own");
            std::fs::read(world.path("data/f")).expect("is there").len()
        });
        assert!(!one.is_idle() && other.is_idle());
        drop(unsent);
        assert_eq!(reader.join().expect("ends"), 1_000_000);
    });
}

/// A node before whose work something else is done.
struct Before<F> {
    work: F,
    node: Arc<dyn Service>,
}

impl<F: Fn(Method) -> Result<(), Fault> + Send + Sync + 'static> Service for Before<F> {
    fn handle(&self, request: Request<'_>, responder: &mut dyn Responder) {
        match (self.work)(request.method) {
            Ok(()) => self.node.handle(request, responder),
            Err(fault) => responder.fail(&fault),
        }
    }
}

fn before(world: &World, work: impl Fn(Method) -> Result<(), Fault> + Send + Sync + 'static) {
    let node = Arc::clone(&world.service) as Arc<dyn Service>;
    world.transport.serve(NODE, Arc::new(Before { work, node }));
}

/// The request was gone for a moment before its error was there: a sync, or a close, of that moment found nothing.
#[test]
fn a_write_that_failed_is_at_no_moment_taken_for_one_that_is_done() {
    let world = World::new();
    let [one, other] = writers(&world);
    before(&world, |method| match method {
        Method::ChannelWrite => Err(Fault::from(Code::NoSpace)),
        _ => Ok(()),
    });
    std::thread::scope(|scope| {
        let busy = Arc::new(());
        let is_busy = Arc::downgrade(&busy);
        let other = &other;
        // Acts as the receiver thread, which receives answers that no caller waits for.
        scope.spawn(move || {
            while is_busy.strong_count() > 0 {
                other.settle_file().expect("not its own");
            }
        });
        let mut unseen = 0;
        for _ in 0..500 {
            write(&one, b"lost", 0).expect("taken over");
            while !one.has_failed() {
                unseen += usize::from(one.is_idle());
            }
            one.settle().expect_err("not written");
        }
        drop(busy);
        assert_eq!(unseen, 0);
    });
}

/// `ls -l` beside a program that writes without a pause came back when that had ended.
#[test]
fn who_waits_for_writes_does_not_wait_for_those_that_come_meanwhile() {
    const MANY: usize = 50;
    let world = World::new();
    let [one, other] = writers(&world);
    // The first attempt at each write fails; with the second comes another write.
    let attempts = AtomicUsize::new(0);
    world.transport.set_fates(Some(Box::new(move |_, method| match method {
        Method::ChannelWrite if attempts.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) => {
            Fate::BreakBefore
        }
        _ => Fate::Deliver,
    })));
    let written = Arc::new(AtomicUsize::new(0));
    let (writer, count) = (Arc::clone(&one), Arc::clone(&written));
    before(&world, move |method| {
        if method == Method::ChannelWrite && count.load(Ordering::Relaxed) < MANY {
            let at = count.fetch_add(1, Ordering::Relaxed) + 1;
            write(&writer, b"more", at as u64 * 4).expect("taken over");
        }
        Ok(())
    });
    write(&one, b"more", 0).expect("taken over");
    other.settle_file().expect("not its own");
    assert_eq!(written.load(Ordering::Relaxed), 1);
    assert!(!one.is_idle());
    while !one.is_idle() {
        one.settle().expect("written");
    }
    assert_eq!(std::fs::read(world.path("data/f")).expect("is there").len(), (MANY + 1) * 4);
}

/// Regression: a thread closed a file while another received its last answer. It closed the channel, and all other
/// users of the file blocked on the node with it.
#[test]
fn nobody_waits_for_the_end_of_anothers_channel() {
    let world = World::new();
    let [one, other] = writers(&world);
    let (kept, waits) = (Arc::new(Mutex::new(None)), Arc::new(AtomicBool::new(false)));
    let (last, observer, waited) = (Arc::clone(&kept), Arc::clone(&other), Arc::clone(&waits));
    before(&world, move |method| {
        match method {
            Method::ChannelWrite => drop(last.lock().take()),
            Method::CloseChannel => {
                let (done, is_done) = channel();
                let observer = Arc::clone(&observer);
                std::thread::spawn(move || done.send(observer.is_idle()));
                waited.store(is_done.recv_timeout(Duration::from_secs(2)).is_err(), Ordering::Relaxed);
            }
            _ => {}
        }
        Ok(())
    });
    // Sent by who settles, when its first attempt has failed.
    let mut is_first = true;
    world.transport.set_fates(Some(Box::new(move |_, method| match method {
        Method::ChannelWrite if std::mem::take(&mut is_first) => Fate::BreakBefore,
        _ => Fate::Deliver,
    })));
    write(&one, b"bytes", 0).expect("taken over");
    *kept.lock() = Some(one);
    other.settle_file().expect("not its own");
    assert!(kept.lock().is_none() && !waits.load(Ordering::Relaxed));
}
