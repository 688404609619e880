//! `ftp`: a session with the FTP endpoint of the destination for each copy, GridFS's first method.
//!
//! One control and one data connection, a thread on both sides, bytes in order. Where blocks are there already or are
//! holes, the transfer ends and another one begins behind them (REST).

use super::{CopyMethod, Done};
use crate::ftp::{Reply, Session, Waits};
use crate::grid::zero_checksum;
use crate::outgoing::Outgoing;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use vazao_model::Code;
use vazao_model::checksum::{combine, crc32c};
use vazao_wire::service::Fault;

/// Blocks that are not confirmed yet: two for what is on its way, and two that the confirmations, which come on another
/// connection, may lag behind.
const UNCONFIRMED_MAX: usize = 4;

/// Bytes read at once.
const READ_BYTES: usize = 256 * 1024;

/// How long a confirmation is waited for before orders are looked at.
const LOOK_NS: u64 = 100_000_000;

/// A thread of one copy nests a few calls and keeps its buffers on the heap.
const STACK_BYTES: usize = 256 * 1024;

pub(super) struct Ftp;

impl CopyMethod for Ftp {
    fn name(&self) -> String {
        super::Method::Ftp.to_string()
    }

    fn start(&self, copy: Arc<Outgoing>, done: Done) {
        let fault = copy.fault(Code::Overloaded, "this node has no more threads; lower `copies_out_max`");
        // Called once: by the thread, or by this function when no thread can be started.
        let done = Arc::new(Mutex::new(Some(done)));
        let call = move |outcome| {
            let done = done.lock().take();
            if let Some(done) = done {
                done(outcome);
            }
        };
        let told = call.clone();
        let work = move || told(send(&copy));
        let builder = std::thread::Builder::new().name("copy".to_owned()).stack_size(STACK_BYTES);
        if builder.spawn(work).is_err() {
            call(Err(fault));
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn send(copy: &Outgoing) -> Result<(), Fault> {
    let around = &copy.around;
    let (port, name) = copy.ftp()?;
    let control = Arc::clone(&around.control);
    let waits = Waits {
        clock: Arc::clone(&around.clock),
        check: Arc::new(move |now_ns| control.check(now_ns)),
        connect_ms: around.control.timeouts.connect_ms,
        silent_ms: around.control.timeouts.block_ms,
        answers: Arc::default(),
    };
    let host = copy.data_address.rsplit_once(':').map_or("", |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let server = format!("node {} (FTP, {host}:{port})", copy.to.node);
    let mut session = Session::connect(&server, host, port, waits).map_err(of_stranger)?;
    copy.note_connect(session.connect_ns());
    session.login(&hex(&copy.id), &hex(&copy.token)).map_err(of_stranger)?;
    let mut sender = Sender {
        copy,
        session,
        name: name.into_bytes(),
        next: None,
        current: None,
        hole: None,
        unconfirmed: VecDeque::new(),
        buffer: Vec::new(),
    };
    let outcome = sender.run();
    sender.give_back();
    if outcome.is_ok() {
        sender.session.quit();
    }
    outcome
}

/// Translates a fault of a peer that is a node of ours, or was. A node that was restarted knows the copy under another
/// token, or not at all. Its port may belong to another server by now, whose answers mean nothing. The copy begins
/// again then.
fn of_stranger(fault: Fault) -> Fault {
    let code = match fault.code {
        Code::AccessDenied | Code::Unsupported | Code::BadRequest | Code::NotFound => Code::BadHandle,
        other => other,
    };
    Fault { code, ..fault }
}

struct Sender<'a> {
    copy: &'a Outgoing,
    session: Session,
    name: Vec<u8>,
    /// The block with which the transfer under way goes on.
    next: Option<usize>,
    /// The block being sent.
    current: Option<usize>,
    /// Blocks of a hole that have not been told: the first, and how many.
    hole: Option<(usize, usize)>,
    unconfirmed: VecDeque<(usize, u32)>,
    buffer: Vec<u8>,
}

impl Sender<'_> {
    fn run(&mut self) -> Result<(), Fault> {
        let (copy, clock) = (self.copy, &self.copy.around.clock);
        loop {
            copy.around.control.check(clock.now_ns())?;
            let taken = copy.work().take();
            let Some(block) = taken else { break };
            self.current = Some(block);
            match copy.is_hole(block)? {
                true => self.add_to_hole(block)?,
                false => self.send_block(block)?,
            }
        }
        self.end_transfer()?;
        self.tell_hole()
    }

    /// What was not confirmed goes again.
    fn give_back(&mut self) {
        let hole = self.hole.take().map_or(0..0, |(first, count)| first..first + count);
        let open = self.unconfirmed.drain(..).map(|(block, _)| block);
        let blocks: Vec<usize> = self.current.take().into_iter().chain(open).chain(hole).collect();
        let mut work = self.copy.work();
        blocks.into_iter().for_each(|block| work.give_back(block));
    }

    fn add_to_hole(&mut self, block: usize) -> Result<(), Fault> {
        if let Some((first, count)) = &mut self.hole
            && *first + *count == block
        {
            *count += 1;
            self.current = None;
            return Ok(());
        }
        self.end_transfer()?;
        self.tell_hole()?;
        self.hole = Some((block, 1));
        self.current = None;
        Ok(())
    }

    fn tell_hole(&mut self) -> Result<(), Fault> {
        let Some((first, count)) = self.hole else { return Ok(()) };
        let grid = self.copy.grid;
        let last = first + count - 1;
        let (start, end) = (grid.start(first), grid.start(last) + grid.length(last));
        self.session.site(&format!("ZEROS {start} {}", end - start)).map_err(of_stranger)?;
        self.hole = None;
        (first..=last).for_each(|block| self.copy.confirm(block, zero_checksum(grid.length(block))));
        Ok(())
    }

    fn send_block(&mut self, block: usize) -> Result<(), Fault> {
        let grid = self.copy.grid;
        if self.next != Some(block) || !self.session.is_moving() {
            self.end_transfer()?;
            self.tell_hole()?;
            self.session.store(&self.name, grid.start(block)).map_err(of_stranger)?;
        }
        self.wait_for_confirmations(UNCONFIRMED_MAX - 1)?;
        let (start, end) = (grid.start(block), grid.start(block) + grid.length(block));
        let (mut offset, mut sum) = (start, crc32c(&[]));
        while offset < end {
            let length = (end - offset).min(READ_BYTES as u64) as usize;
            self.copy.around.wait_for_limit(length as u64)?;
            self.buffer.resize(length, 0);
            self.copy.read(&mut self.buffer, offset)?;
            sum = combine(sum, crc32c(&self.buffer), length as u64);
            offset += length as u64;
            if offset == end {
                // In front of the last bytes: it is there when they are, and the confirmation may be so too.
                self.session.tell(&format!("SUM {start} {sum:08X}")).map_err(of_stranger)?;
                self.unconfirmed.push_back((block, sum));
                self.current = None;
            }
            self.session.send(&self.buffer).map_err(of_stranger)?;
            let counts = &self.copy.around.counts;
            counts.sent_bytes.add(length as u64);
            counts.send_ns.add(self.session.take_waited_ns());
            self.hear(0)?;
        }
        self.next = Some(block + 1);
        Ok(())
    }

    /// Hears what has been confirmed; waits up to `wait_ns` for the first.
    fn hear(&mut self, wait_ns: u64) -> Result<(), Fault> {
        let mut wait_ns = wait_ns;
        while let Some(reply) = self.session.mark(wait_ns).map_err(of_stranger)? {
            confirm(self.copy, &mut self.unconfirmed, &reply);
            wait_ns = 0;
        }
        Ok(())
    }

    /// Waits until at most `left` blocks are not confirmed.
    fn wait_for_confirmations(&mut self, left: usize) -> Result<(), Fault> {
        let around = &self.copy.around;
        let timeout_ns = u64::from(around.control.timeouts.block_ms) * 1_000_000;
        let mut until_ns = around.clock.now_ns() + timeout_ns;
        while self.unconfirmed.len() > left {
            let (before, started_ns) = (self.unconfirmed.len(), around.clock.now_ns());
            self.hear(LOOK_NS)?;
            let now_ns = around.clock.now_ns();
            around.counts.confirm_ns.add(now_ns.saturating_sub(started_ns));
            if self.unconfirmed.len() < before {
                until_ns = now_ns + timeout_ns;
            } else if now_ns >= until_ns {
                let why = format!("no block went on within {} ms", around.control.timeouts.block_ms);
                return Err(self.copy.fault(Code::Timeout, why));
            }
        }
        Ok(())
    }

    /// Ends the transfer under way and hears what became of its blocks.
    fn end_transfer(&mut self) -> Result<(), Fault> {
        self.next = None;
        if !self.session.is_moving() {
            return Ok(());
        }
        let started_ns = self.copy.around.clock.now_ns();
        let (copy, unconfirmed) = (self.copy, &mut self.unconfirmed);
        let finished = self.session.finish_with("sending", &mut |reply| confirm(copy, unconfirmed, reply));
        finished.map_err(of_stranger)?;
        let waited_ns = self.copy.around.clock.now_ns().saturating_sub(started_ns);
        self.copy.around.counts.confirm_ns.add(waited_ns);
        match self.unconfirmed.is_empty() {
            true => Ok(()),
            false => {
                Err(self.copy.fault(Code::Disconnected, "the end of the transfer came before all of it"))
            }
        }
    }
}

/// `111 Range Marker OFFSET`: the block that begins there has arrived as it was sent.
fn confirm(copy: &Outgoing, unconfirmed: &mut VecDeque<(usize, u32)>, reply: &Reply) {
    let offset = std::str::from_utf8(reply.text()).ok();
    let offset = offset.and_then(|text| text.strip_prefix("Range Marker ")?.trim().parse().ok());
    let Some(offset) = offset.filter(|_| reply.code == 111) else { return };
    let place = unconfirmed.iter().position(|&(block, _)| copy.grid.start(block) == offset);
    if let Some((block, sum)) = place.and_then(|place| unconfirmed.remove(place)) {
        copy.confirm(block, sum);
    }
}
