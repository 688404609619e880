//! Carries frames between two tap devices in user space and lets each wait its time: a long cable.
//!
//! One thread a direction. A frame read at time t is written at t plus the delay, in the order of reading; frames wait
//! in a bounded queue, and what does not fit is lost as in a router. Frames keep the header by which the kernel hands
//! over up to 64 KiB at once, so that a fast link costs few system calls.

use super::Error;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use vazao_meter::{Clock, SystemClock};

/// What may be under way in one direction: 200 ms of 2.5 Gb/s.
pub(crate) const QUEUE_BYTES_MAX: usize = 64 << 20;
/// The largest frame the kernel hands over, with its header.
const FRAME_BYTES_MAX: usize = (64 << 10) + 1024;
/// Frames taken in one go, so that a flood does not hold up those whose time has come.
const FRAMES_A_TURN_MAX: usize = 64;
/// How long a direction without traffic takes to notice that it is to stop.
const NOTICE_MS: u64 = 50;
const MILLION: u32 = 1_000_000;

#[derive(Debug, Default)]
struct Settings {
    delay_ns: AtomicU64,
    loss_per_million: AtomicU32,
    stop: AtomicBool,
    overflowed: AtomicU64,
}

/// A running forwarder; stops when dropped.
#[derive(Debug)]
pub(crate) struct Forwarder {
    settings: Arc<Settings>,
    directions: Vec<JoinHandle<()>>,
}

impl Forwarder {
    /// Carries frames between two taps opened without blocking.
    pub(crate) fn start(one: File, other: File) -> Result<Forwarder, Error> {
        let cannot = || Error::at("cannot open a tap device a second time");
        let (one_out, other_out) = (one.try_clone().map_err(cannot())?, other.try_clone().map_err(cannot())?);
        let settings = Arc::new(Settings::default());
        let mut forwarder = Forwarder { settings, directions: Vec::new() };
        forwarder.spawn(one, other_out, 1)?;
        forwarder.spawn(other, one_out, 2)?;
        Ok(forwarder)
    }

    fn spawn(&mut self, from: File, to: File, seed: u64) -> Result<(), Error> {
        let settings = self.settings.clone();
        let line = Line {
            from,
            to,
            settings,
            clock: SystemClock,
            queue: Queue::new(QUEUE_BYTES_MAX),
            dice: Dice(seed),
        };
        let thread = std::thread::Builder::new().name("vazao-delay".into());
        let thread =
            thread.spawn(move || line.run()).map_err(Error::at("cannot start a forwarding thread"))?;
        self.directions.push(thread);
        Ok(())
    }

    /// Sets the delay of one direction and the share of frames lost, from the next frame on.
    pub(crate) fn set(&self, delay: Duration, loss_per_million: u32) {
        self.settings.delay_ns.store(delay.as_nanos() as u64, Ordering::Relaxed);
        self.settings.loss_per_million.store(loss_per_million, Ordering::Relaxed);
    }

    /// Frames lost because too much was under way.
    pub(crate) fn overflowed(&self) -> u64 {
        self.settings.overflowed.load(Ordering::Relaxed)
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.settings.stop.store(true, Ordering::Relaxed);
        for direction in self.directions.drain(..) {
            // A thread that panicked has nothing left to give back.
            let _ = direction.join();
        }
    }
}

/// One direction.
struct Line {
    from: File,
    to: File,
    settings: Arc<Settings>,
    clock: SystemClock,
    queue: Queue,
    dice: Dice,
}

impl Line {
    fn run(mut self) {
        // Late forwarding would be an unwanted delay. Without the right to raise the priority it is merely less exact.
        let _ = rustix::process::setpriority_process(None, -10);
        let mut buffer = vec![0; FRAME_BYTES_MAX];
        while !self.settings.stop.load(Ordering::Relaxed) {
            self.deliver();
            if let Err(error) = self.wait().and_then(|()| self.take(&mut buffer)) {
                // The tap is gone: the network is being removed.
                tracing::debug!("a delay line ends: {error}");
                return;
            }
        }
    }

    /// Waits for a frame, but not beyond the time of the next one to be delivered.
    fn wait(&self) -> std::io::Result<()> {
        let now_ns = self.clock.now_ns();
        let due_in_ns = self.queue.next_due_ns().map_or(u64::MAX, |due_ns| due_ns.saturating_sub(now_ns));
        let timeout_ns = due_in_ns.min(NOTICE_MS * 1_000_000);
        let timeout = Timespec { tv_sec: 0, tv_nsec: timeout_ns as _ };
        match poll(&mut [PollFd::new(&self.from, PollFlags::IN)], Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn take(&mut self, buffer: &mut [u8]) -> std::io::Result<()> {
        for _ in 0..FRAMES_A_TURN_MAX {
            let length = match (&self.from).read(buffer) {
                Ok(length) => length,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            if self.dice.below(MILLION) < self.settings.loss_per_million.load(Ordering::Relaxed) {
                continue;
            }
            let due_ns = self.clock.now_ns() + self.settings.delay_ns.load(Ordering::Relaxed);
            if !self.queue.push(due_ns, &buffer[..length]) {
                self.settings.overflowed.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn deliver(&mut self) {
        while let Some(frame) = self.queue.pop_due(self.clock.now_ns()) {
            // A link that is down or full loses the frame, as links do.
            let _ = (&self.to).write(&frame);
        }
    }
}

/// Frames under way, first in first out.
struct Queue {
    frames: VecDeque<(u64, Box<[u8]>)>,
    bytes: usize,
    bytes_max: usize,
}

impl Queue {
    fn new(bytes_max: usize) -> Queue {
        Queue { frames: VecDeque::new(), bytes: 0, bytes_max }
    }

    /// Whether there was room.
    fn push(&mut self, due_ns: u64, frame: &[u8]) -> bool {
        let fits = self.bytes + frame.len() <= self.bytes_max;
        if fits {
            self.bytes += frame.len();
            self.frames.push_back((due_ns, frame.into()));
        }
        fits
    }

    fn next_due_ns(&self) -> Option<u64> {
        self.frames.front().map(|(due_ns, _)| *due_ns)
    }

    fn pop_due(&mut self, now_ns: u64) -> Option<Box<[u8]>> {
        self.next_due_ns().filter(|due_ns| *due_ns <= now_ns)?;
        let (_, frame) = self.frames.pop_front()?;
        self.bytes -= frame.len();
        Some(frame)
    }
}

/// Which frames are lost: a xorshift generator (Marsaglia, 2003), so that a run can be repeated.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (((self.0 >> 32) * u64::from(bound)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_leaves_when_its_time_has_come_and_never_overtakes() {
        let mut queue = Queue::new(100);
        assert!(queue.push(50, b"first"));
        assert!(queue.push(20, b"second, its delay was shortened"));
        assert_eq!(queue.next_due_ns(), Some(50));
        assert_eq!(queue.pop_due(49), None);
        assert_eq!(queue.pop_due(50).as_deref(), Some(&b"first"[..]));
        assert!(queue.pop_due(50).is_some() && queue.pop_due(50).is_none());
    }

    #[test]
    fn what_does_not_fit_is_lost_and_room_comes_back_with_delivery() {
        let mut queue = Queue::new(10);
        assert!(queue.push(1, &[0; 6]));
        assert!(!queue.push(1, &[0; 6]));
        assert!(queue.pop_due(1).is_some());
        assert!(queue.push(1, &[0; 10]));
    }

    #[test]
    fn the_dice_lose_the_share_that_was_set() {
        let mut dice = Dice(1);
        let lost = (0..100_000).filter(|_| dice.below(MILLION) < 20_000).count();
        assert!((1_800..2_200).contains(&lost), "{lost} of 100000 frames lost, 2000 expected");
    }
}
