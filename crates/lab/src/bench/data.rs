//! Reading and writing: raw streams, one thread with large calls, eight threads with small ones, random reads, in
//! turns.

use super::{Bench, Goal, Results, random};
use crate::Error;
use crate::content::stream;
use crate::crew::Timed;
use crate::place::{Local, Place};
use crate::psplit::work::{Cell, Source};
use crate::psplit::{self, Mode, Verify};
use crate::report::size::MIB;
use vazao_sampler::{Record, loopback};

const LARGE_CALL_BYTES: u64 = MIB;
const SMALL_CALL_BYTES: u64 = 64 * 1024;
const THREADS: u32 = 8;

/// The best that one process can move through loopback is looked for with as many connections at once.
const CONNECTIONS: [u32; 2] = [4, 8];

/// All repetitions. Each reads what it has just written, so that the servers have it in their page caches.
pub(super) fn measure(bench: &Bench<'_>, results: &mut Results) -> Result<(), Error> {
    declare(results);
    let options = options(bench);
    let local = local_directory()?;
    let measured = repetitions(bench, results, &options, &local);
    bench.client.set_short_circuit(true);
    let finished = local.clear().and_then(|()| local.finish()).map_err(Error::at(local.name()));
    measured.and(finished)
}

/// A directory of this machine's own file system, to compare with.
fn local_directory() -> Result<Local, Error> {
    let parent = std::env::temp_dir();
    Local::new(&parent.display().to_string(), &format!("vazao-bench-{}", std::process::id()))
}

fn repetitions(
    bench: &Bench<'_>,
    results: &mut Results,
    options: &psplit::Args,
    local: &Local,
) -> Result<(), Error> {
    for repetition in 1..=bench.args.repeat {
        let clock = bench.clock;
        let total = bench.amounts.total_bytes;
        let probe = || loopback::tcp_stream_seconds(clock, total, LARGE_CALL_BYTES as usize);
        let (seconds, record) = bench.recorder.during(probe);
        let mut seconds = seconds.map_err(Error::at("raw TCP stream over loopback"))?;
        results.push("tcp.stream", total as f64 / seconds, Some(record));
        for connections in CONNECTIONS {
            let several = loopback::tcp_streams_seconds(clock, connections, total, LARGE_CALL_BYTES as usize);
            seconds = seconds.min(several.map_err(Error::at("raw TCP streams over loopback"))?);
        }
        results.push("tcp.best", total as f64 / seconds, None);

        let own = Source { name: "part-0", stream: stream(bench.args.seed, &[total, repetition.into(), 0]) };
        let cell = |mode, threads, block_bytes| Cell {
            mode,
            threads,
            block_bytes,
            total_bytes: total,
            source: own,
            options,
        };
        let large = cell(Mode::Generate, 1, LARGE_CALL_BYTES);
        let read = cell(Mode::Read, 1, LARGE_CALL_BYTES);
        // The figures of the network are those of servers elsewhere.
        bench.client.set_short_circuit(false);
        prepare_to_write(bench)?;
        time(bench, results, "write.large", &large, repetition)?;
        time(bench, results, "read.large", &read, repetition)?;
        time(bench, results, "read.small", &cell(Mode::Read, THREADS, SMALL_CALL_BYTES), repetition)?;
        random::measure(bench, results, own.name, false)?;
        if repetition == 1 {
            large.run(local, repetition, bench.clock, bench.recorder);
        }
        time_at(local, bench, results, "local.read", &read, repetition)?;
        bench.client.set_short_circuit(true);
        time(bench, results, "read.short", &read, repetition)?;
        random::measure(bench, results, own.name, true)?;
        check_and_remove(bench, &large, repetition)?;
        let small = cell(Mode::Generate, THREADS, SMALL_CALL_BYTES);
        prepare_to_write(bench)?;
        time(bench, results, "write.small", &small, repetition)?;
        check_and_remove(bench, &small, repetition)?;
    }
    Ok(())
}

/// Puts both kinds of writing into the same state: what was removed before is given back meanwhile, and memory has been
/// in use, so that no write waits for a host that has to find it first.
fn prepare_to_write(bench: &Bench<'_>) -> Result<(), Error> {
    bench.place.settle().map_err(Error::at(bench.place.name()))?;
    let touched = vec![1u8; usize::try_from(2 * bench.amounts.total_bytes).unwrap_or(0)];
    std::hint::black_box(&touched);
    Ok(())
}

fn declare(results: &mut Results) {
    let bytes = "MiB/s";
    results.declare("tcp.stream", "one raw TCP stream over loopback, 1 MiB calls", bytes, None, Goal::None);
    let title = "raw TCP streams over loopback, the best of 1, 4 and 8 at once";
    results.declare("tcp.best", title, bytes, None, Goal::None);
    let (stream, best) = (Some("tcp.stream"), Some("tcp.best"));
    results.declare("read.large", "library read, 1 thread, 1 MiB calls", bytes, best, Goal::AtLeast(0.8));
    results.declare("write.large", "library write, 1 thread, 1 MiB calls", bytes, stream, Goal::AtLeast(0.3));
    results.declare("local.read", "local file system, pread, 1 thread, 1 MiB calls", bytes, None, Goal::None);
    results.declare(
        "read.short",
        "library read past the server, 1 thread, 1 MiB calls",
        bytes,
        Some("local.read"),
        Goal::AtLeast(0.7),
    );
    let (read, write) = (Some("read.large"), Some("write.large"));
    results.declare("read.small", "library read, 8 threads, 64 KiB calls", bytes, read, Goal::AtLeast(1.0));
    results.declare(
        "write.small",
        "library write, 8 threads, 64 KiB calls",
        bytes,
        write,
        Goal::AtLeast(1.0),
    );
    random::declare(results);
}

fn options(bench: &Bench<'_>) -> psplit::Args {
    psplit::Args {
        mode: Mode::Generate,
        places: vec![bench.args.place.clone()],
        threads: vec![1, THREADS],
        block: vec![LARGE_CALL_BYTES, SMALL_CALL_BYTES],
        total: vec![bench.amounts.total_bytes],
        repeat: bench.args.repeat,
        drop_caches: false,
        sync: false,
        verify: Verify::After,
        seed: bench.args.seed,
        watch: Vec::new(),
        json: None,
        csv: None,
    }
}

fn time(
    bench: &Bench<'_>,
    results: &mut Results,
    row: &str,
    cell: &Cell<'_>,
    repetition: u32,
) -> Result<(), Error> {
    time_at(bench.watched, bench, results, row, cell, repetition)
}

fn time_at(
    place: &dyn Place,
    bench: &Bench<'_>,
    results: &mut Results,
    row: &str,
    cell: &Cell<'_>,
    repetition: u32,
) -> Result<(), Error> {
    let (timed, record): (Timed, Record) = cell.run(place, repetition, bench.clock, bench.recorder);
    if let Some(error) = timed.errors.first() {
        return Err(Error::Failed(format!("{row}, repetition {repetition}: {error}")));
    }
    results.push(row, timed.done as f64 / timed.seconds.max(1e-9), Some(record));
    Ok(())
}

fn check_and_remove(bench: &Bench<'_>, written: &Cell<'_>, repetition: u32) -> Result<(), Error> {
    let checked = written.verify_outputs(bench.watched, repetition).map_err(Error::at(bench.place.name()));
    let removed = written.remove_outputs(bench.place, false).map_err(Error::at(bench.place.name()));
    checked.and(removed)
}
