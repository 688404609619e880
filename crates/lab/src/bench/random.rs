//! Random reads: every block of the file once, in an order that is the same in each run, by one thread or by eight.

use super::{Bench, Goal, Results};
use crate::Error;
use crate::content::stream;
use crate::crew::{self, Timed};
use crate::place::{Place, read_full};
use std::io;
use vazao_sampler::Record;

const KIB: u64 = 1024;

/// A kind of random read: how long each is, and by how many threads.
struct Kind {
    id: &'static str,
    title: &'static str,
    call_bytes: u64,
    threads: usize,
}

const KINDS: [Kind; 4] = [
    Kind { id: "32k.1", title: "32 KiB, 1 thread", call_bytes: 32 * KIB, threads: 1 },
    Kind { id: "32k.8", title: "32 KiB, 8 threads", call_bytes: 32 * KIB, threads: 8 },
    Kind { id: "512k.1", title: "512 KiB, 1 thread", call_bytes: 512 * KIB, threads: 1 },
    Kind { id: "512k.8", title: "512 KiB, 8 threads", call_bytes: 512 * KIB, threads: 8 },
];

/// Through the servers, and past them where they are on this machine.
const WAYS: [(&str, &str); 2] = [("random", "library"), ("random.short", "past the server")];

fn row(way: &str, kind: &Kind) -> String {
    format!("{way}.{}", kind.id)
}

pub(super) fn declare(results: &mut Results) {
    for (way, by) in WAYS {
        for kind in &KINDS {
            let title = format!("random reads, {by}, {}", kind.title);
            results.declare(&row(way, kind), &title, "1/s", None, Goal::None);
        }
    }
}

/// Reads the file called `name`, whose contents lie in the servers' page caches.
pub(super) fn measure(bench: &Bench<'_>, results: &mut Results, name: &str, past: bool) -> Result<(), Error> {
    let (way, _) = WAYS[usize::from(past)];
    for kind in &KINDS {
        let row = row(way, kind);
        let (timed, record) = read_all(bench, name, kind).map_err(Error::at(&row))?;
        if let Some(error) = timed.errors.first() {
            return Err(Error::Failed(format!("{row}: {error}")));
        }
        results.push(&row, timed.done as f64 / timed.seconds.max(1e-9), Some(record));
    }
    Ok(())
}

fn read_all(bench: &Bench<'_>, name: &str, kind: &Kind) -> io::Result<(Timed, Record)> {
    let file = bench.watched.open(name)?;
    let blocks = shuffled(bench.amounts.total_bytes / kind.call_bytes, bench.args.seed);
    let prepare = |_| vec![1u8; kind.call_bytes as usize];
    let work = |index: usize, buffer: &mut Vec<u8>, done: &mut u64| -> io::Result<()> {
        for block in blocks.iter().skip(index).step_by(kind.threads) {
            read_full(file.as_ref(), buffer, block * kind.call_bytes)?;
            *done += 1;
        }
        Ok(())
    };
    let finished = crew::run(kind.threads, bench.clock, bench.recorder, prepare, work);
    file.close()?;
    Ok(finished)
}

/// The numbers below `count`, each once (Fisher and Yates), in an order that depends on the seed alone.
fn shuffled(count: u64, seed: u64) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..count).collect();
    for last in (1..numbers.len()).rev() {
        let other = stream(seed, &[count, last as u64]) % (last as u64 + 1);
        numbers.swap(last, other as usize);
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_read_once_and_hardly_one_where_it_lies() {
        let mut numbers = shuffled(1000, 7);
        assert_eq!(numbers, shuffled(1000, 7));
        assert!(numbers.iter().zip(0..).filter(|(number, place)| *number == place).count() < 20);
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..1000));
        assert!(shuffled(0, 7).is_empty());
    }
}
