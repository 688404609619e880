//! Numbers that are never reused: inode ids, and the generations of files' lives.
//!
//! Data servers keep objects under these numbers. If power loss made the metadata forget that a number was given out,
//! a second file would find the first one's bytes. So a number leaves only when its reservation is durable: inode ids
//! come from batches reserved ahead, generations carry the count of starts of the service.

use crate::engine::{Commit, Engine};
use crate::schema::keys;
use crate::schema::records::NumberRecord;
use crate::service::backpressure;
use crate::service::context::Context;
use crate::service::fault::Outcome;
use parking_lot::Mutex;
use prost::Message;
use std::sync::Arc;
use vazao_model::{Code, InodeId, ids::ROOT};
use vazao_wire::service::Fault;

/// Ids in one reservation: at 100,000 creates a second it lasts for half a second, many times a sync's latency.
const BATCH: u64 = 65_536;

/// Lives of one file within one start of the service that need no wait for the disk.
const GENERATION_BITS: u32 = 12;

#[derive(Debug, Default)]
struct Range {
    next: u64,
    /// Ids below this are durably reserved.
    end: u64,
    reserving: bool,
}

/// Gives out inode ids.
#[derive(Debug, Default)]
pub(crate) struct InodeNumbers {
    range: Mutex<Range>,
}

impl InodeNumbers {
    /// Reserves the first batch and waits until it is durable.
    pub(crate) fn open(engine: &dyn Engine) -> Outcome<Arc<InodeNumbers>> {
        let (start, _) = add_to_counter(engine, keys::NEXT_INODE, ROOT.0 + 1, BATCH)?;
        engine.sync()?;
        let range = Range { next: start, end: start + BATCH, reserving: false };
        Ok(Arc::new(InodeNumbers { range: Mutex::new(range) }))
    }

    /// The next id. `Overloaded` when ids are used faster than the disk makes reservations durable.
    pub(crate) fn next(self: &Arc<Self>, engine: &dyn Engine) -> Outcome<InodeId> {
        let (id, must_reserve) = {
            let mut range = self.range.lock();
            let must_reserve = !range.reserving && range.end - range.next < BATCH / 2;
            range.reserving |= must_reserve;
            let id = (range.next < range.end).then_some(range.next);
            range.next += u64::from(id.is_some());
            (id, must_reserve)
        };
        if must_reserve {
            self.reserve(engine)?;
        }
        id.map(InodeId).ok_or_else(|| {
            Fault::new(Code::Overloaded, "inode numbers: the next batch is not on disk yet, try again")
        })
    }

    /// The first id that was not given out yet, nor may be before the next reservation.
    pub(crate) fn unused(&self) -> InodeId {
        InodeId(self.range.lock().end)
    }

    fn reserve(self: &Arc<Self>, engine: &dyn Engine) -> Outcome<()> {
        let reserved = add_to_counter(engine, keys::NEXT_INODE, ROOT.0 + 1, BATCH);
        let Ok((start, position)) = reserved else {
            self.range.lock().reserving = false;
            return reserved.map(|_| ());
        };
        let numbers = Arc::clone(self);
        let notice = move |durable: Result<(), _>| {
            let mut range = numbers.range.lock();
            range.reserving = false;
            if durable.is_ok() {
                // Race: another server of the same engine may have reserved in between. The rest of the old batch is
                // skipped.
                if start != range.end {
                    range.next = start;
                }
                range.end = start + BATCH;
            }
        };
        engine.when_durable(position, Box::new(notice));
        Ok(())
    }
}

/// Counts this start of the service, durably.
pub(crate) fn count_boot(engine: &dyn Engine) -> Outcome<u64> {
    let (boot, _) = add_to_counter(engine, keys::BOOTS, 1, 1)?;
    engine.sync()?;
    Ok(boot)
}

/// The start of the service that gave out a generation, or an earlier one.
pub(crate) fn boot_of(generation: u32) -> u64 {
    u64::from(generation) >> GENERATION_BITS
}

/// The generation after `last` of a file, and whether it may be sent only once it is durable.
pub(crate) fn next_generation(boot: u64, last: u32) -> Outcome<(u32, bool)> {
    let floor = boot << GENERATION_BITS;
    let ceiling = floor + (1 << GENERATION_BITS);
    let next = floor.max(u64::from(last) + 1);
    let generation = u32::try_from(next).map_err(|_| {
        Fault::new(Code::Unsupported, format!("generation {next}: copy the file to a new one"))
    })?;
    Ok((generation, next >= ceiling))
}

/// Has the next start of the service be at least number `start`, and the inode ids begin behind all that `lost` commits
/// can have given out.
pub(crate) fn skip(context: &mut Context<'_>, start: u64, lost: u64) -> Outcome<()> {
    let mut raise = |key: &[u8], least: &dyn Fn(u64) -> u64| -> Outcome<()> {
        let value: NumberRecord = context.read(key, "counter")?.unwrap_or_default();
        context.write(key.to_vec(), &NumberRecord { value: least(value.value) });
        Ok(())
    };
    raise(keys::BOOTS, &|value| value.max(start))?;
    // A commit creates one inode; ids that were reserved and not used are in the batches.
    raise(keys::NEXT_INODE, &|value| value.saturating_add(lost.saturating_mul(2)).saturating_add(4 * BATCH))
}

/// Adds to a persistent counter that starts at `first`; returns the value before, and the commit's position.
fn add_to_counter(engine: &dyn Engine, key: &[u8], first: u64, step: u64) -> Outcome<(u64, u64)> {
    loop {
        let mut transaction = engine.begin();
        let value = match transaction.get(key)? {
            Some(bytes) => decode_number(key, &bytes)?,
            None => first,
        };
        transaction.put(key.to_vec(), NumberRecord { value: value + step }.encode_to_vec());
        match transaction.commit_unless_behind()? {
            Some(Commit::Done(position)) => return Ok((value, position)),
            Some(Commit::Conflict) => {}
            None => backpressure::wait(engine)?,
        }
    }
}

/// A number record's value.
pub(crate) fn decode_number(key: &[u8], bytes: &[u8]) -> Outcome<u64> {
    let broken = |e| Fault::new(Code::Corrupt, format!("record {}: {e}", String::from_utf8_lossy(key)));
    NumberRecord::decode(bytes).map(|record| record.value).map_err(broken)
}
