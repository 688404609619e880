//! Blocks in which members may differ: the primary sends its own over those of the others.

use super::change::{Body, Change, Touched, WHOLE};
use super::lead::{FORWARD_NS, is_refusal};
use super::lost::Changed;
use super::missed::Missed;
use super::{Key, Led};
use crate::lease::View;
use crate::service::{DataService, fault};
use crate::targets::Target;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;
use vazao_model::limits::{ATTACHMENT_BYTES_MAX, BLOCK_BYTES};
use vazao_model::{Code, InodeId, ObjectId, TargetId};
use vazao_wire::op::CollectUnconfirmed;
use vazao_wire::proto;
use vazao_wire::service::Fault;
use vazao_wire::transport::call;

/// How long another member may take to say what it lists.
const COLLECT_NS: u64 = 1_000_000_000;

/// How long evening out may take that no request waits for; it is tried again.
const EVEN_NS: u64 = 5_000_000_000;

/// Changes after which members may differ, in one group; with more of them a member is given up.
const UNEVEN_MAX: usize = 1024;

impl DataService {
    /// Before a new primary does anything else, it evens out what its members list of the time before.
    pub(super) fn take_over(&self, key: Key, deadline_ns: u64) -> Result<(), Fault> {
        if self.replication.table.lock().led.get(&key).is_some_and(|led| led.is_ready) {
            return Ok(());
        }
        let view = self.leading(key)?;
        let mut led = Led::default();
        let mut take = |told: proto::CollectUnconfirmedResponse| {
            led.last = led.last.max(told.last);
            for listed in told.changes {
                led.enter(listed.number, touched(key, &listed));
            }
        };
        let record = self.record(key);
        let request = proto::CollectUnconfirmedRequest { group: key.1.0, epoch: view.epoch, record };
        take(self.unconfirmed(&request)?);
        for other in &view.others {
            let (transport, address) = self.ready_way_to(*other)?;
            let until_ns = transport.clock().now_ns() + COLLECT_NS;
            take(call::<CollectUnconfirmed>(transport, &address, &request, until_ns).map_err(later)?);
        }
        let missed_by_former = self.missed_by_former(key, view.epoch);
        // What is not here it may have lost, and others that lag have it.
        let may_lack = !view.lagging.is_empty() && self.leases.has_gone_on(key);
        {
            let mut table = self.replication.table.lock();
            let known = table.led.entry(key).or_default();
            // Another request may have been here at the same time.
            if !known.is_ready && known.open.is_empty() {
                known.last = known.last.max(led.last);
                led.uneven.into_iter().for_each(|(number, touched)| known.enter(number, touched));
            }
            if !known.is_ready && known.leads_since != view.epoch {
                known.end_leading();
                // What is uneven now enters it once it is evened out.
                (known.missed, known.leads_since) = (missed_by_former, view.epoch);
                known.changed = may_lack.then(Changed::new);
            }
        }
        self.even_out_known(key, deadline_ns)?;
        if self.view(key)?.epoch != view.epoch {
            return Err(later(Fault::new(Code::WrongEpoch, format!("placement group {}", key.1))));
        }
        let record = self.leases.record(key).filter(|record| record.epoch == view.epoch);
        let mut table = self.replication.table.lock();
        let led = table.led.entry(key).or_default();
        if !led.is_ready && led.leads_since == view.epoch {
            // Everything is the same at those that count.
            let current = record.iter().flat_map(|record| record.current());
            for member in current.filter(|member| member.target != key.0) {
                led.missed.entry(member.target).or_insert_with(|| Missed::new(member.run));
            }
        }
        led.is_ready = true;
        table.lists.remove(&key);
        tracing::info!(group = %key.1, target_id = key.0.0, epoch = view.epoch, "leads a placement group");
        Ok(())
    }

    /// What it knows of a group that it leads. What is sent is of this moment's epoch: that of another primary with a
    /// stream of this one's would have members refuse what the other one sends. Errors: it does not lead.
    pub(super) fn leading(&self, key: Key) -> Result<View, Fault> {
        let view = self.view(key)?;
        if view.is_primary { Ok(view) } else { Err(leads_not(key)) }
    }

    /// Since which epoch it leads. Errors: it does not, or has not taken over yet.
    pub(super) fn leadership(&self, key: Key) -> Result<u64, Fault> {
        let since = self.replication.table.lock().led.get(&key).map_or(0, |led| led.leads_since);
        self.check_leads(key, &self.view(key)?, since).map(|()| since)
    }

    /// Refuses to go on with what was begun under an earlier leadership, or none: another one may have led since.
    pub(super) fn check_leads(&self, key: Key, view: &View, since: u64) -> Result<(), Fault> {
        let now = self.replication.table.lock().led.get(&key).map_or(0, |led| led.leads_since);
        match view.is_primary && since != 0 && since == now {
            true => Ok(()),
            false => Err(leads_not(key)),
        }
    }

    /// The primary before this one, which misses what is done from now on: where it was ready, this one has whatever it
    /// has. It was if it numbered changes, or if its group has no third member.
    fn missed_by_former(&self, key: Key, epoch: u64) -> BTreeMap<TargetId, Missed> {
        let former = self.leases.former_primary(key, epoch);
        let numbered = self.replication.table.lock().lists.get(&key).map_or(0, |list| list.epoch);
        let known = former.filter(|former| former.is_pair || former.epoch == numbered);
        known.into_iter().map(|former| (former.target, Missed::new(former.run))).collect()
    }

    /// Evens out everything that is known to be uneven in a group.
    pub(super) fn even_out_known(&self, key: Key, deadline_ns: u64) -> Result<(), Fault> {
        let next = |after: u64| {
            let table = self.replication.table.lock();
            let uneven = table.led.get(&key)?.uneven.range(after..).next();
            uneven.map(|(number, touched)| (*number, touched.clone()))
        };
        let mut after = 0;
        while let Some((number, touched)) = next(after) {
            {
                // The whole: others are cut to the length that it has here.
                let _held = self.lock_blocks(touched.object, &[WHOLE])?;
                let target = self.target(key.0.0)?;
                self.even_out(key, target, &touched, deadline_ns)?;
            }
            let counting = self.view(key)?.others;
            if let Some(led) = self.replication.table.lock().led.get_mut(&key)
                && let Some(touched) = led.uneven.remove(&number)
            {
                led.missed_by_others(&touched, |target| counting.contains(&target));
            }
            after = number + 1;
        }
        Ok(())
    }

    /// Makes an object, which the caller has locked, the same at all who count, in the bytes `touched`.
    fn even_out(&self, key: Key, target: &Target, touched: &Touched, deadline_ns: u64) -> Result<(), Fault> {
        // One that catches up may have got what no other has.
        if let Some(walked) = self.walked(key) {
            self.leave_behind(key, walked);
        }
        // What is made anew here is not what the others are to have.
        target.restores.check_finished(touched.object)?;
        let exists = self.check_none_lost(key, target, touched.object, &self.all_uneven(key, touched))?;
        let object = Some(address(touched.object));
        let (objects, must_exist) = (vec![address(touched.object)], false);
        if exists {
            // Below it is seen whether that was in vain.
            let _ = self.get_end_back(key, target, touched.object);
        }
        let state = target.stat(touched.object).map_err(fault)?;
        target.restores.check_finished(touched.object)?;
        if state.exists != exists {
            // Lost since: nothing else comes and goes under the lock.
            let text = format!("object {}: its file has gone", touched.object);
            return Err(Fault::new(Code::Unavailable, text));
        }
        if !state.exists {
            let remove = Change::new(Body::Remove(proto::RemoveObjectsRequest { objects }));
            return self.push(key, &remove, deadline_ns);
        }
        // Where the end is damaged, others may have more of that block.
        let length = match Self::check_end(target, touched.object) {
            Ok(()) => state.length,
            Err(_) => state.length.next_multiple_of(BLOCK_BYTES as u64),
        };
        let cut = proto::TruncateObjectRequest { object: object.clone(), length, must_exist };
        self.push(key, &Change::new(Body::Truncate(cut)), deadline_ns)?;
        let mut is_pushed = false;
        for range in &touched.ranges {
            for piece in pieces(range, state.length) {
                self.push_bytes(key, target, touched.object, piece, deadline_ns)?;
                is_pushed = true;
            }
        }
        if !is_pushed {
            // It is there, also where it has no bytes.
            let empty = proto::WriteRequest { object, ..Default::default() };
            self.push(key, &Change::new(Body::Write(empty)), deadline_ns)?;
        }
        Ok(())
    }

    /// The bytes of an object that are uneven, with those `touched`.
    fn all_uneven(&self, key: Key, touched: &Touched) -> Vec<Range<u64>> {
        let table = self.replication.table.lock();
        let known = table.led.get(&key).into_iter().flat_map(|led| led.uneven.values());
        let of_object = known.filter(|known| known.object == touched.object);
        of_object.chain([touched]).flat_map(|known| known.ranges.iter().cloned()).collect()
    }

    fn push_bytes(
        &self,
        key: Key,
        target: &Target,
        id: ObjectId,
        piece: Range<u64>,
        deadline_ns: u64,
    ) -> Result<(), Fault> {
        let mut blocks = self.repaired_blocks(key, target, id, piece.clone(), None)?.into_iter();
        let mut offset = piece.start;
        loop {
            let (mut checksums, mut bytes) = (Vec::new(), Vec::new());
            for block in blocks.by_ref().map_while(|block| block) {
                checksums.push(block.checksum);
                bytes.extend(block.bytes);
            }
            let length = bytes.len() as u64;
            if length > 0 {
                let object = Some(address(id));
                let write = proto::WriteRequest { object, offset, checksums, ..Default::default() };
                self.push(key, &Change { body: Body::Write(write), bytes }, deadline_ns)?;
            }
            // No copy of the next block is good: there is nothing to send, and nothing that could differ unseen.
            offset += length + BLOCK_BYTES as u64;
            if offset >= piece.end {
                return Ok(());
            }
        }
    }

    /// Has all others who count carry out what is so here already.
    fn push(&self, key: Key, change: &Change, deadline_ns: u64) -> Result<(), Fault> {
        let mut has: Vec<TargetId> = Vec::new();
        loop {
            let view = self.leading(key)?;
            let missing: Vec<TargetId> =
                view.others.iter().copied().filter(|other| !has.contains(other)).collect();
            if missing.is_empty() {
                return Ok(());
            }
            let forward = self.replication.forward(key, view.epoch, 0, self.record(key));
            for (other, sent) in self.submit(change, &forward, &missing, &missing, FORWARD_NS) {
                let counts = || self.leading(key).is_ok_and(|view| view.others.contains(&other));
                match sent.and_then(|pending| self.await_while(pending, counts)) {
                    Ok(_) => has.push(other),
                    Err(fault) if is_refusal(fault.code) => return Err(fault),
                    Err(fault) => {
                        tracing::debug!(group = %key.1, target_id = other.0, %fault, "not even yet");
                        self.replication.note_failure(key, fault.code);
                    }
                }
            }
            let is_late = self.shell.clock().now_ns() > deadline_ns;
            if has.len() < view.others.len() && (is_late || !self.pause()) {
                break;
            }
        }
        Err(later(Fault::new(Code::Timeout, format!("placement group {}: members differ yet", key.1))))
    }

    /// Takes over groups of which a member here has become the primary, and evens out what is uneven. It waits for
    /// nothing: a thread does.
    pub(crate) fn even_out_all(&self) {
        let due = self.uneven();
        if due.is_empty() || self.replication.is_turning.swap(true, Ordering::AcqRel) {
            return;
        }
        let even_out = |service: &DataService| {
            for key in due {
                let deadline_ns = service.shell.clock().now_ns() + EVEN_NS;
                let evened = service
                    .take_over(key, deadline_ns)
                    .and_then(|()| service.even_out_known(key, deadline_ns));
                if let Err(fault) = evened {
                    tracing::debug!(group = %key.1, target_id = key.0.0, %fault, "its members are not even yet");
                    service.give_up_uneven(key);
                }
            }
            service.replication.is_turning.store(false, Ordering::Release);
        };
        if self.options.inline {
            return even_out(self);
        }
        let service = self.replication.service.get().and_then(std::sync::Weak::upgrade);
        match (self.replication.pool.reserve(0), service) {
            (Some(place), Some(service)) => place.submit(move || even_out(&service)),
            _ => self.replication.is_turning.store(false, Ordering::Release),
        }
    }

    /// The groups that a member here leads, and in which it has something to even out.
    fn uneven(&self) -> Vec<Key> {
        let members = self.leases.members();
        let mut table = self.replication.table.lock();
        let is_due = |(key, is_primary): (Key, bool)| match table.led.get_mut(&key) {
            Some(led) => {
                // What another primary does since, this one knows nothing of.
                led.is_ready &= is_primary;
                if !is_primary {
                    led.end_leading();
                }
                (is_primary && (!led.is_ready || !led.uneven.is_empty())).then_some(key)
            }
            None => is_primary.then_some(key),
        };
        members.into_iter().filter_map(is_due).collect()
    }

    /// A member that takes nothing is not waited for without end.
    fn give_up_uneven(&self, key: Key) {
        let table = self.replication.table.lock();
        let count = table.led.get(&key).map_or(0, |led| led.uneven.len());
        drop(table);
        if count > UNEVEN_MAX
            && let Ok(view) = self.view(key)
        {
            view.others.iter().for_each(|other| self.leases.note_failing(key, *other, view.epoch));
        }
    }
}

fn leads_not(key: Key) -> Fault {
    later(Fault::new(Code::WrongEpoch, format!("placement group {}: it does not lead", key.1)))
}

/// As a caller hears it: it may try again.
fn later(fault: Fault) -> Fault {
    Fault::new(Code::Unavailable, fault.to_string())
}

fn touched((_, group): Key, listed: &proto::Unconfirmed) -> Touched {
    let (inode, generation, slot) = (InodeId(listed.inode), listed.generation, listed.slot);
    let object = ObjectId { inode, generation, slot, group };
    Touched { object, ranges: ranges(&listed.ranges).collect() }
}

fn ranges(told: &[proto::TouchedRange]) -> impl Iterator<Item = Range<u64>> {
    told.iter().map(|range| range.start..range.end)
}

pub(super) fn address(object: ObjectId) -> proto::ObjectAddress {
    proto::ObjectAddress {
        inode: object.inode.0,
        generation: object.generation,
        slot: object.slot,
        group: object.group.0,
        ..Default::default()
    }
}

/// The blocks of `range`, up to the object's end, in pieces that fit into a request.
fn pieces(range: &Range<u64>, length: u64) -> impl Iterator<Item = Range<u64>> {
    let block = BLOCK_BYTES as u64;
    let end = range.end.checked_next_multiple_of(block).unwrap_or(u64::MAX).min(length);
    let mut at = range.start / block * block;
    std::iter::from_fn(move || {
        let piece = at..end.min(at.saturating_add(ATTACHMENT_BYTES_MAX as u64));
        at = piece.end;
        (piece.start < piece.end).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uneven_bytes_are_sent_in_whole_blocks_up_to_the_end() {
        let of = |range: Range<u64>, length| {
            pieces(&range, length).map(|piece| (piece.start, piece.end)).collect::<Vec<_>>()
        };
        assert_eq!(of(70_000..70_001, 1 << 20), [(65_536, 131_072)]);
        assert_eq!(of(70_000..u64::MAX, 100_000), [(65_536, 100_000)]);
        assert_eq!(of(200_000..300_000, 100_000), []);
        let max = ATTACHMENT_BYTES_MAX as u64;
        assert_eq!(of(0..max + 1, max + 10), [(0, max), (max, max + 10)]);
    }
}
