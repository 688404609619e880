//! psplit over local directories, and over a place that goes wrong; the volume is in `tests/volume.rs`.

use super::*;
use clap::Parser;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use vazao_client::Client;

#[derive(Parser)]
struct CommandLine {
    #[command(flatten)]
    args: Args,
}

fn parse(line: &str) -> Result<Args, clap::Error> {
    CommandLine::try_parse_from(std::iter::once("psplit").chain(line.split(' '))).map(|parsed| parsed.args)
}

fn with_context<T>(work: impl FnOnce(&mut Context<'_>) -> T) -> (T, String) {
    let connect = || Err("no cluster here".to_owned());
    let mut output = Vec::new();
    let mut context = Context {
        clock: vazao_meter::clock::system(),
        connect: &connect,
        stop: Default::default(),
        output: &mut output,
    };
    let result = work(&mut context);
    (result, String::from_utf8(output).unwrap())
}

#[test]
fn every_mode_measures_two_places_in_turns_and_cleans_up() {
    for mode in ["read", "split", "generate"] {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let places = format!("{} {}", a.path().display(), b.path().display());
        let line = format!("{mode} {places} --threads 1,3 --block 1000,4K --total 50001 --repeat 2 --sync");
        let args = parse(&line).unwrap();
        let results = with_context(|context| measure(&args, context)).0.unwrap();
        assert_eq!(results.runs.len(), 2 * 2 * 2 * 2, "threads × blocks × repetitions × places");
        for pair in results.runs.chunks(2) {
            assert_eq!(
                (pair[0].place.as_str(), pair[1].place.as_str()),
                (&*args.places[0], &*args.places[1])
            );
            assert_eq!(pair[0].repetition, pair[1].repetition);
        }
        for run in &results.runs {
            assert_eq!((run.bytes, run.errors.len()), (50_001, 0), "{mode}: {:?}", run.errors);
            assert!(run.seconds > 0.0 && run.rate() > 0.0);
        }
        for directory in [a, b] {
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "{mode} left something");
        }
    }
}

#[test]
fn results_survive_their_file_and_give_the_same_tables() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("runs.json").display().to_string();
    let csv = directory.path().join("runs.csv").display().to_string();
    let place = directory.path().display();
    let line = format!(
        "generate {place} --threads 2 --total 64K --repeat 3 --verify during --json {json} --csv {csv}"
    );
    let (ran, printed) = with_context(|context| run(parse(&line).unwrap(), context));
    ran.unwrap();
    let args = report::command::Args { file: json, markdown: false };
    let (again, reprinted) = with_context(|context| report::command::run(args, context));
    again.unwrap();
    assert_eq!(printed, reprinted);
    assert!(printed.contains("mean MB/s") && printed.contains("mean MiB/s"), "{printed}");
    let lines = std::fs::read_to_string(csv).unwrap();
    assert_eq!(lines.lines().count(), 1 + 3);
    let columns: Vec<usize> = lines.lines().map(|line| line.split(',').count()).collect();
    assert!(columns.iter().all(|&count| count == columns[0]), "{lines}");
}

#[test]
fn json_to_the_output_is_nothing_but_json() {
    let directory = tempfile::tempdir().unwrap();
    let line = format!("read {} --total 4K --repeat 1 --json -", directory.path().display());
    let (ran, printed) = with_context(|context| run(parse(&line).unwrap(), context));
    ran.unwrap();
    let results: Results = serde_json::from_str(&printed).unwrap();
    assert_eq!((results.format.as_str(), results.runs.len()), (FORMAT, 1));
}

#[test]
fn the_command_line_refuses_what_makes_no_sense() {
    for line in [
        "read",
        "shuffle /tmp",
        "read /tmp --threads 0",
        "read /tmp --block 0",
        "read /tmp --block 1G",
        "read /tmp --total 1X",
        "read /tmp --repeat 0",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
    let args = parse("read /tmp --threads 8 --total 7").unwrap();
    let error = with_context(|context| measure(&args, context)).0.unwrap_err();
    assert_eq!(error.exit_code(), 2, "{error}");
}

#[test]
fn parts_are_equal_and_the_last_takes_the_remainder() {
    assert_eq!(work::lengths(10, 3), [3, 3, 4]);
    assert_eq!(work::lengths(8, 1), [8]);
    assert_eq!(work::lengths(1 << 30, 32).iter().sum::<u64>(), 1 << 30);
}

/// A place whose files go wrong once, at one byte: what a broken file system would do.
struct Faulty {
    inside: place::Local,
    fault: fn(&mut Vec<u8>),
    writes_before: AtomicU64,
}

struct FaultyFile<'a> {
    inside: Box<dyn OpenFile>,
    place: &'a Faulty,
}

impl Place for &'static Faulty {
    fn name(&self) -> &str {
        self.inside.name()
    }
    fn create(&self, name: &str) -> io::Result<Box<dyn OpenFile>> {
        Ok(Box::new(FaultyFile { inside: self.inside.create(name)?, place: self }))
    }
    fn open(&self, name: &str) -> io::Result<Box<dyn OpenFile>> {
        self.inside.open(name)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.inside.remove(name)
    }
    fn settle(&self) -> io::Result<()> {
        Ok(())
    }
    fn clear(&self) -> io::Result<()> {
        self.inside.clear()
    }
    fn finish(&self) -> io::Result<()> {
        self.inside.finish()
    }
    fn client(&self) -> Option<&Client> {
        None
    }
}

impl OpenFile for FaultyFile<'_> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inside.read_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut bytes = bytes.to_vec();
        if self.place.writes_before.fetch_sub(1, Ordering::SeqCst) == 0 {
            (self.place.fault)(&mut bytes);
        }
        self.inside.write_at(&bytes, offset)
    }
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
    fn close(self: Box<Self>) -> io::Result<()> {
        self.inside.close()
    }
}

/// The errors of a run whose write after `writes_before` others goes wrong.
fn errors_with(
    mode: Mode,
    writes_before: u64,
    fault: fn(&mut Vec<u8>),
) -> (tempfile::TempDir, Result<Results, Error>) {
    let directory = tempfile::tempdir().unwrap();
    let name = directory.path().display().to_string();
    let inside = place::Local::new(&name, "work").unwrap();
    let faulty: &'static Faulty =
        Box::leak(Box::new(Faulty { inside, fault, writes_before: AtomicU64::new(writes_before) }));
    let args = Args {
        mode,
        ..parse(&format!("read {name} --total 4M --block 64K --threads 2 --repeat 2")).unwrap()
    };
    let places: Vec<Box<dyn Place>> = vec![Box::new(faulty)];
    let (results, _) = with_context(|context| measure_in(&args, &places, context));
    (directory, results)
}

#[test]
fn a_flipped_byte_in_a_written_file_fails_that_repetition() {
    let (_directory, results) = errors_with(Mode::Generate, 5, |bytes| bytes[777] ^= 4);
    let runs = results.unwrap().runs;
    assert!(runs[0].errors[0].contains("was written as"), "{:?}", runs[0].errors);
    assert!(runs[1].errors.is_empty(), "the second repetition was sound: {:?}", runs[1].errors);
}

#[test]
fn a_lost_end_of_a_write_is_found() {
    // The 64th write is the end of one of the two files.
    let (_directory, results) = errors_with(Mode::Generate, 63, |bytes| bytes.truncate(1000));
    let runs = results.unwrap().runs;
    assert!(runs[0].errors[0].contains("file ends at byte"), "{:?}", runs[0].errors);
}

#[test]
fn a_file_longer_than_written_is_found() {
    let (_directory, results) = errors_with(Mode::Generate, 63, |bytes| bytes.push(0));
    let runs = results.unwrap().runs;
    assert!(runs[0].errors[0].contains("longer than"), "{:?}", runs[0].errors);
}

#[test]
fn a_flipped_byte_in_the_source_is_found_before_anything_is_timed() {
    let (_directory, results) = errors_with(Mode::Read, 2, |bytes| bytes[0] ^= 1);
    let error = results.unwrap_err();
    assert!(error.to_string().contains("byte 2097152 is"), "{error}");
}

#[test]
fn split_carries_a_flipped_byte_into_its_parts_and_finds_it_there() {
    let (_directory, results) = errors_with(Mode::Split, 2, |bytes| bytes[0] ^= 1);
    let runs = results.unwrap().runs;
    assert!(runs.iter().all(|run| run.errors[0].contains("part-1: byte 2097152")), "{:?}", runs[0].errors);
}

#[test]
fn a_failed_run_fails_the_command_after_its_report() {
    let results = errors_with(Mode::Generate, 5, |bytes| bytes[0] ^= 1).1.unwrap();
    assert!(results.report(false).contains("\nFAILED "), "{}", results.report(false));
}
