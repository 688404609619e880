//! `rpc[:block=SIZE,window=N]`: a call for each block, with a window of calls in flight.
//!
//! Without `block` its size is found while running: it is doubled as long as that makes the copy faster, and halved
//! when it made it slower.

use super::{CopyMethod, Done, RPC_BLOCK_BYTES};
use crate::grid::zero_checksum;
use crate::outgoing::Outgoing;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use vazao_model::Code;
use vazao_model::checksum::{combine, crc32c, piece_checksums, piece_lengths};
use vazao_wire::op::CopyBlock;
use vazao_wire::proto;
use vazao_wire::service::Fault;
use vazao_wire::transport::{PendingCall, submit};

/// Calls in flight unless the user says otherwise.
const WINDOW: usize = 16;

/// Bytes in flight where the block is adapted: what one connection of the wire allows.
const WINDOW_BYTES: u32 = 16 << 20;

/// The first block where it is adapted.
const FIRST_BYTES: u32 = 64 * 1024;

/// Bytes over which one size is judged.
const TRIAL_BYTES: u64 = 16 << 20;

/// A size is faster than the last one only by at least this factor; less is noise.
const FASTER: f64 = 1.05;

/// A thread of one copy nests a few calls and keeps its buffers on the heap.
const STACK_BYTES: usize = 512 * 1024;

pub(super) struct Rpc {
    pub(super) block: Option<u32>,
    pub(super) window: Option<u32>,
}

impl CopyMethod for Rpc {
    fn name(&self) -> String {
        super::Method::Rpc { block: self.block, window: self.window }.to_string()
    }

    fn start(&self, copy: Arc<Outgoing>, done: Done) {
        let (block, window) = (self.block, self.window);
        let fault = copy.fault(Code::Overloaded, "this node has no more threads; lower `copies_out_max`");
        let done = Arc::new(parking_lot::Mutex::new(Some(done)));
        let call = move |outcome| {
            let done = done.lock().take();
            if let Some(done) = done {
                done(outcome);
            }
        };
        let told = call.clone();
        let work = move || told(Calls::new(&copy, block, window).run());
        let builder = std::thread::Builder::new().name("copy".to_owned()).stack_size(STACK_BYTES);
        if builder.spawn(work).is_err() {
            call(Err(fault));
        }
    }
}

/// The size of the next calls, found by trying.
#[derive(Debug)]
struct Adapted {
    bytes: u32,
    is_fixed: bool,
    grows: bool,
    /// Bytes a second with the size before.
    last: f64,
    since_ns: u64,
    moved: u64,
}

impl Adapted {
    fn new(block: Option<u32>, now_ns: u64) -> Adapted {
        let bytes = block.unwrap_or(FIRST_BYTES);
        Adapted { bytes, is_fixed: block.is_some(), grows: true, last: 0.0, since_ns: now_ns, moved: 0 }
    }

    /// `bytes` have been answered.
    fn note(&mut self, bytes: u64, now_ns: u64) {
        self.moved += bytes;
        if self.is_fixed || self.moved < TRIAL_BYTES {
            return;
        }
        let seconds = (now_ns.saturating_sub(self.since_ns)).max(1) as f64 / 1e9;
        let rate = self.moved as f64 / seconds;
        (self.moved, self.since_ns) = (0, now_ns);
        if rate < self.last * FASTER && self.last > 0.0 {
            // No better: back, and stay there unless it becomes much worse.
            if self.grows && self.bytes < *RPC_BLOCK_BYTES.end() {
                self.bytes = (self.bytes / 2).max(*RPC_BLOCK_BYTES.start());
            }
            self.grows = rate < self.last / 2.0;
        } else if self.grows {
            self.bytes = (self.bytes * 2).min(*RPC_BLOCK_BYTES.end());
        }
        self.last = rate;
    }
}

/// One call in flight.
struct Flying {
    block: usize,
    bytes: u64,
    pending: PendingCall<CopyBlock>,
}

/// A block of which calls are in flight.
struct Open {
    calls: usize,
    is_read: bool,
    checksum: u32,
}

struct Calls<'a> {
    copy: &'a Outgoing,
    window: Option<u32>,
    adapted: Adapted,
    flying: VecDeque<Flying>,
    open: HashMap<usize, Open>,
    /// The block being read and how far.
    current: Option<(usize, u64)>,
    buffer: Vec<u8>,
}

impl<'a> Calls<'a> {
    fn new(copy: &'a Outgoing, block: Option<u32>, window: Option<u32>) -> Calls<'a> {
        let adapted = Adapted::new(block, copy.around.clock.now_ns());
        Calls {
            copy,
            window,
            adapted,
            flying: VecDeque::new(),
            open: HashMap::new(),
            current: None,
            buffer: Vec::new(),
        }
    }

    fn run(mut self) -> Result<(), Fault> {
        let outcome = self.send_all();
        let mut work = self.copy.work();
        self.open.keys().for_each(|&block| work.give_back(block));
        outcome
    }

    fn window(&self) -> usize {
        match self.window {
            Some(window) => window as usize,
            None => (WINDOW_BYTES / self.adapted.bytes).min(WINDOW as u32 * 4) as usize,
        }
    }

    fn send_all(&mut self) -> Result<(), Fault> {
        let clock = Arc::clone(&self.copy.around.clock);
        loop {
            self.copy.around.control.check(clock.now_ns())?;
            let mut is_all_sent = false;
            while self.flying.len() < self.window() {
                self.copy.around.wait_for_limit(u64::from(self.adapted.bytes))?;
                if !self.send_one()? {
                    is_all_sent = true;
                    break;
                }
            }
            let Some(flying) = self.flying.pop_front() else {
                debug_assert!(is_all_sent);
                return Ok(());
            };
            let started_ns = clock.now_ns();
            let answer = flying.pending.wait().map_err(|fault| self.copy.fault(fault.code, fault.detail))?;
            let now_ns = clock.now_ns();
            let counts = &self.copy.around.counts;
            counts.confirm_ns.add(now_ns.saturating_sub(started_ns));
            self.copy.note_disk(answer.0.disk_ns);
            self.adapted.note(flying.bytes, now_ns);
            self.answered(flying.block);
        }
    }

    fn answered(&mut self, block: usize) {
        let Some(open) = self.open.get_mut(&block) else { return };
        open.calls -= 1;
        if open.calls == 0 && open.is_read {
            let checksum = open.checksum;
            self.open.remove(&block);
            self.copy.confirm(block, checksum);
        }
    }

    /// Sends the next call; false where there is nothing left to send.
    fn send_one(&mut self) -> Result<bool, Fault> {
        if self.current.is_none() {
            let taken = self.copy.work().take();
            let Some(block) = taken else { return Ok(false) };
            self.open.insert(block, Open { calls: 0, is_read: false, checksum: crc32c(&[]) });
            let (start, length) = (self.copy.grid.start(block), self.copy.grid.length(block));
            if self.copy.is_hole(block)? {
                let request = self.request(start, length, Vec::new(), true);
                self.submit(block, 0, &request, &[]);
                self.note_sent(block, zero_checksum(length), length, true);
                return Ok(true);
            }
            self.current = Some((block, start));
        }
        let Some((block, offset)) = self.current else { return Ok(false) };
        let end = self.copy.grid.start(block) + self.copy.grid.length(block);
        let length = (end - offset).min(u64::from(self.adapted.bytes)) as usize;
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(length, 0);
        self.copy.read(&mut buffer, offset)?;
        let sums = piece_checksums(offset, &buffer);
        let lengths = piece_lengths(offset, length);
        let checksum =
            sums.iter().zip(lengths).fold(crc32c(&[]), |all, (&sum, n)| combine(all, sum, n as u64));
        let request = self.request(offset, length as u64, sums, false);
        self.submit(block, length as u64, &request, &buffer);
        self.buffer = buffer;
        self.copy.around.counts.sent_bytes.add(length as u64);
        let is_read = offset + length as u64 == end;
        self.note_sent(block, checksum, length as u64, is_read);
        self.current = (!is_read).then_some((block, offset + length as u64));
        Ok(true)
    }

    fn note_sent(&mut self, block: usize, checksum: u32, length: u64, is_read: bool) {
        if let Some(open) = self.open.get_mut(&block) {
            open.calls += 1;
            open.checksum = combine(open.checksum, checksum, length);
            open.is_read = is_read;
        }
    }

    fn request(&self, offset: u64, length: u64, checksums: Vec<u32>, zeros: bool) -> proto::CopyBlockRequest {
        let (copy, token) = (self.copy.id.to_vec(), self.copy.token.to_vec());
        proto::CopyBlockRequest { copy, token, offset, length, checksums, zeros }
    }

    fn submit(&mut self, block: usize, bytes: u64, request: &proto::CopyBlockRequest, attachment: &[u8]) {
        let around = &self.copy.around;
        let timeout_ns = u64::from(around.control.timeouts.block_ms) * 1_000_000;
        let deadline_ns = around.clock.now_ns() + timeout_ns;
        let pending =
            submit::<CopyBlock>(&*around.transport, &self.copy.to.address, request, attachment, deadline_ns);
        self.flying.push_back(Flying { block, bytes, pending });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the adaptation against a link on which a call costs `call_ns` and a byte `byte_ns`.
    fn settle(call_ns: f64, byte_ns: f64) -> u32 {
        let mut adapted = Adapted::new(None, 0);
        let mut now_ns = 0.0;
        for _ in 0..20_000 {
            now_ns += call_ns + byte_ns * f64::from(adapted.bytes);
            adapted.note(u64::from(adapted.bytes), now_ns as u64);
        }
        adapted.bytes
    }

    #[test]
    fn a_dear_call_makes_blocks_large_and_a_cheap_one_leaves_them_small() {
        assert!(settle(10_000_000.0, 1.0) >= RPC_BLOCK_BYTES.end() / 2);
        assert!(settle(1.0, 10.0) <= 2 * FIRST_BYTES, "{}", settle(1.0, 10.0));
    }

    #[test]
    fn a_size_that_was_given_stays() {
        let mut adapted = Adapted::new(Some(4096), 0);
        (1..100_000u64).for_each(|i| adapted.note(4096, i * 1000));
        assert_eq!(adapted.bytes, 4096);
    }
}
