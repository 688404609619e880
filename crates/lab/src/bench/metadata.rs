//! Names: created, looked up, listed and removed by eight threads of one process in one directory.

use super::{Bench, Goal, Results};
use crate::Error;
use crate::crew::{self, Timed};
use crate::place::{Place, owner};
use std::io;
use vazao_client::NewInode;
use vazao_meter::cpu::process_use;
use vazao_model::limits::LIST_ENTRIES_MAX;
use vazao_model::{FileKind, InodeId};
use vazao_sampler::Record;

const THREADS: u64 = 8;

/// Every so many pages of a listing the client's memory is read: often enough to see it grow.
const PAGES_A_LOOK: usize = 16;

fn name(number: u64) -> Vec<u8> {
    format!("file-{number:08}").into_bytes()
}

/// Creates, lookups and removals a second.
pub(super) fn measure_operations(bench: &Bench<'_>, results: &mut Results) -> Result<(), Error> {
    let unit = "1/s";
    results.declare(
        "create",
        "creates, opened and closed, 8 threads, one directory",
        unit,
        None,
        Goal::AtLeast(10e3),
    );
    results.declare("lookup", "lookups, 8 threads", unit, None, Goal::AtLeast(25e3));
    results.declare("lookup.one", "lookups, 1 thread", unit, None, Goal::None);
    results.declare("unlink", "removals, 8 threads", unit, None, Goal::None);
    for _ in 0..bench.args.repeat {
        let directory = make_directory(bench)?;
        let (client, files) = (bench.client, bench.amounts.files);
        time(bench, results, "create", THREADS, files, |number| {
            client.create_file(directory, &name(number), &owner(), true)?.1.close()
        })?;
        // Each thread asks for names that another one has made.
        time(bench, results, "lookup", THREADS, files, |number| {
            client.lookup(directory, &name((number + 1) % files)).map(drop)
        })?;
        time(bench, results, "lookup.one", 1, files / 4, |number| {
            client.lookup(directory, &name(number)).map(drop)
        })?;
        time(bench, results, "unlink", THREADS, files, |number| client.unlink(directory, &name(number)))?;
        remove_directory(bench)?;
    }
    Ok(())
}

/// A very large directory: how long it takes to list, and what that costs the client in memory.
pub(super) fn measure_listing(bench: &Bench<'_>, results: &mut Results) -> Result<(), Error> {
    let files = bench.amounts.listed_files;
    let growth = Goal::AtMost(16.0);
    results.declare(
        "create.many",
        "creates, not opened, 8 threads, the large directory",
        "1/s",
        None,
        Goal::AtLeast(10e3),
    );
    results.declare("list.names", "listing the large directory, names", "s", None, Goal::AtMost(10.0));
    results.declare("list.attributes", "listing the large directory, with attributes", "s", None, Goal::None);
    results.declare("list.memory", "growth of the client while listing", "MiB", None, growth);
    results.declare("unlink.many", "removals, 8 threads, the large directory", "1/s", None, Goal::None);
    let directory = make_directory(bench)?;
    let client = bench.client;
    time(bench, results, "create.many", THREADS, files, |number| {
        client.create(directory, &name(number), &owner()).map(drop)
    })?;
    for _ in 0..bench.args.repeat {
        for (row, with_attributes) in [("list.names", false), ("list.attributes", true)] {
            let (listed, record) = bench.recorder.during(|| list(bench, directory, files, with_attributes));
            let (seconds, growth_bytes) = listed.map_err(Error::at(bench.place.name()))?;
            results.push(row, seconds, Some(record));
            if !with_attributes {
                results.push("list.memory", growth_bytes as f64, None);
            }
        }
    }
    bench.measure_memory(results);
    time(bench, results, "unlink.many", THREADS, files, |number| client.unlink(directory, &name(number)))?;
    remove_directory(bench)
}

/// Lists the directory to its end; seconds, and how much this process grew at most.
fn list(bench: &Bench<'_>, directory: InodeId, files: u64, with_attributes: bool) -> io::Result<(f64, u64)> {
    let clock = bench.clock;
    let before_bytes = process_use(None)?.resident_bytes;
    let start_ns = clock.now_ns();
    let (mut seen, mut cookie, mut highest_bytes) = (0, 0, before_bytes);
    for page_number in 0usize.. {
        bench.stop.check()?;
        let page = bench.client.list(directory, cookie, LIST_ENTRIES_MAX, with_attributes)?;
        seen += page.entries.len() as u64;
        if page_number.is_multiple_of(PAGES_A_LOOK) {
            highest_bytes = highest_bytes.max(process_use(None)?.resident_bytes);
        }
        match page.entries.last() {
            Some(last) if !page.end => cookie = last.cookie,
            _ => break,
        }
    }
    if seen != files {
        return Err(io::Error::other(format!("the listing shows {seen} of {files} files")));
    }
    let seconds = clock.now_ns().saturating_sub(start_ns) as f64 / 1e9;
    Ok((seconds, highest_bytes - before_bytes))
}

const DIRECTORY: &[u8] = b"names";

fn make_directory(bench: &Bench<'_>) -> Result<InodeId, Error> {
    let new = NewInode { kind: FileKind::Directory, mode: 0o755, ..owner() };
    let made = bench.client.create(bench.place.directory(), DIRECTORY, &new);
    made.map(|attributes| attributes.inode)
        .map_err(|error| Error::Failed(error.about("the directory").to_string()))
}

fn remove_directory(bench: &Bench<'_>) -> Result<(), Error> {
    let removed = bench.client.remove_directory(bench.place.directory(), DIRECTORY);
    removed.map_err(|error| Error::Failed(error.about("the emptied directory").to_string()))
}

/// Times `operation` on the numbers below `count`, dealt to the threads in turn.
fn time(
    bench: &Bench<'_>,
    results: &mut Results,
    row: &str,
    threads: u64,
    count: u64,
    operation: impl Fn(u64) -> vazao_client::Result<()> + Sync,
) -> Result<(), Error> {
    let work = |index: usize, (): &mut (), done: &mut u64| -> io::Result<()> {
        for number in (index as u64..count).step_by(threads as usize) {
            bench.stop.check()?;
            operation(number)?;
            *done += 1;
        }
        Ok(())
    };
    let (timed, record): (Timed, Record) =
        crew::run(threads as usize, bench.clock, bench.recorder, |_| (), work);
    match timed.errors.first() {
        Some(error) => Err(Error::Failed(format!("{row}: {error}"))),
        None => {
            results.push(row, timed.done as f64 / timed.seconds.max(1e-9), Some(record));
            Ok(())
        }
    }
}
