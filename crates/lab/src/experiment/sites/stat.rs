//! How long a stat takes over the line while a large file is written over it, by the same client.

use super::far::directory_of;
use super::samples::Bench;
use super::system::{Mounted, System};
use super::worker::{Answer, Extent, Order};
use super::workers::Worker;
use super::{CLIENTS, RECORD_BYTES};
use crate::experiment::outcome::{Figure, Finding, Form};
use crate::experiment::testbed::ZONES;
use crate::experiment::{figure, shown};
use crate::report::size::format_size;
use crate::{Error, content};
use std::path::{Path, PathBuf};
use std::time::Duration;

const KEY: &str = "stat";
const MEDIAN: &str = "median";
const P95: &str = "95th percentile";
const GOAL: &str = "goal: 3 round trips and 50 ms";
/// Without and with a file under way.
const PLACES: [&str; 2] = ["nothing else", "a file is written over the line"];
/// As many before, and as many between two looks at whether the file is written.
const BATCH: u64 = 10;
const IDLE_BATCHES: u64 = 3;
const EVERY_MS: u64 = 100;
/// What a stat may take: so many round trips of a line that is idle, and so much.
const ROUND_TRIPS_MAX: f64 = 3.0;
const BEYOND_MS: f64 = 50.0;

pub(super) fn figure_of(bytes: u64, round_trip: Duration) -> Figure {
    let title = format!("stat of another file while {} are written over the line", format_size(bytes));
    let places = PLACES.map(str::to_owned).to_vec();
    let mut figure = Figure::new(KEY, &title, ("meanwhile", places), "ms", Form::Bars);
    let goal = ROUND_TRIPS_MAX * round_trip.as_secs_f64() * 1e3 + BEYOND_MS;
    (0..PLACES.len()).for_each(|at| figure.series_mut(GOAL).record(at, goal));
    figure
}

/// Names are asked for once each: a mount remembers the answer. So many are made as a file of this size takes time for.
pub(super) fn names_of(bytes: u64, line_bytes_per_s: u64) -> u64 {
    let seconds = bytes / line_bytes_per_s.max(1) + 1;
    // Twice what is expected, for a line that is not full.
    (2 * seconds * 1000 / EVERY_MS).next_multiple_of(BATCH) + BATCH * IDLE_BATCHES
}

/// One file written by the first client, and the times of its stats.
pub(super) fn measure(
    bench: &mut Bench<'_>,
    system: &dyn System,
    bytes: u64,
    repetition: u32,
    figure: &mut Figure,
) -> Result<(), Error> {
    let Some(line) = bench.bed.line().map(|line| line.rate()) else { return Ok(()) };
    let mounted = Mounted::new(system, CLIENTS)?;
    let names = names_of(bytes, line.0 / 8);
    let name = format!("names-{repetition}");
    // The second client is beside the metadata service.
    let made = system.directory(1).join(&name);
    for order in [Order::Mkdir(made.clone()), Order::Names { directory: made, count: names }] {
        bench.workers[1].carry_out(&order)?;
    }
    mounted.again()?;
    let mut asked = Asked { directory: system.directory(0).join(&name), next: 0, names };
    let mut idle = Vec::new();
    for _ in 0..IDLE_BATCHES {
        idle.extend(asked.batch(&mut bench.workers[0])?);
    }
    let mut writer = Worker::start(bench.lab, &bench.bed.clients()[0])?;
    let path = directory_of(system, 0, ZONES[1]).join(&name);
    let stream = content::stream(bench.lab.seed, &[bytes, u64::from(repetition)]);
    let extent = Extent { path: path.clone(), bytes, record_bytes: RECORD_BYTES, stream };
    writer.order(&Order::Write(extent))?;
    let mut beside = Vec::new();
    while asked.next < names && writer.poll()?.is_none_or(|answer| !matches!(answer, Answer::Taken(_))) {
        beside.extend(asked.batch(&mut bench.workers[0])?);
    }
    if asked.next >= names {
        writer.answer()?;
    }
    writer.carry_out(&Order::Remove(path))?;
    record(figure, 0, idle);
    record(figure, 1, beside);
    Ok(())
}

struct Asked {
    directory: PathBuf,
    next: u64,
    names: u64,
}

impl Asked {
    /// Milliseconds of the next stats.
    fn batch(&mut self, worker: &mut Worker<'_>) -> Result<Vec<f64>, Error> {
        let (first, count) = (self.next, BATCH.min(self.names - self.next));
        self.next += count;
        worker.carry_out(&order(&self.directory, first, count)).and_then(|answer| match answer {
            Answer::Each(each) => Ok(each),
            other => Err(Error::Failed(format!("stat: an answer without times: {other:?}"))),
        })
    }
}

fn order(directory: &Path, first: u64, count: u64) -> Order {
    Order::Stat { directory: directory.to_owned(), first, count, every_ms: EVERY_MS }
}

fn record(figure: &mut Figure, at: usize, mut each: Vec<f64>) {
    each.sort_by(f64::total_cmp);
    for (series, share) in [(MEDIAN, 0.5), (P95, 0.95)] {
        if let Some(value) = percentile(&each, share) {
            figure.series_mut(series).record(at, value);
        }
    }
}

/// The least of sorted values that at least this share of them do not exceed.
fn percentile(sorted: &[f64], share: f64) -> Option<f64> {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

pub(super) fn findings(figures: &[Figure]) -> Vec<Finding> {
    let figure = figure(figures, KEY);
    let of = |series: &str, at| figure.and_then(|figure| figure.median(series, at));
    let goal = of(GOAL, 1);
    let taken = of(P95, 1);
    vec![Finding::new(
        "stat of another file while one is written over the line: 95 of 100 within 3 round trips and 50 ms",
        taken.zip(goal).map(|(taken, goal)| taken <= goal),
        format!("{} ms of {}; with nothing else {} ms", shown(taken), shown(goal), shown(of(P95, 0))),
    )]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::outcome::Holds;

    #[test]
    fn a_percentile_is_a_value_that_was_measured() {
        let twenty: Vec<f64> = (1..=20).map(f64::from).collect();
        assert_eq!(percentile(&twenty, 0.95), Some(19.0));
        assert_eq!(percentile(&twenty, 0.5), Some(10.0));
        assert_eq!(percentile(&[7.0], 0.95), Some(7.0));
        assert_eq!(percentile(&[], 0.95), None);
    }

    #[test]
    fn one_late_answer_of_ten_is_seen_and_one_of_a_hundred_is_not() {
        let judged = |each: Vec<f64>| {
            let mut figure = figure_of(1, Duration::from_millis(10));
            record(&mut figure, 1, each);
            findings(&[figure])[0].holds
        };
        let with_late = |count: usize| {
            let mut each = vec![20.0; count];
            each[0] = 500.0;
            each
        };
        assert_eq!(judged(with_late(10)), Holds::No);
        assert_eq!(judged(with_late(100)), Holds::Yes);
        assert_eq!(findings(&[figure_of(1, Duration::ZERO)])[0].holds, Holds::Unknown);
    }

    #[test]
    fn there_are_names_for_as_long_as_the_file_is_under_way() {
        assert!(names_of(100_000_000, 250_000) >= 4000, "400 s");
        assert_eq!(names_of(0, 250_000) % BATCH, 0);
    }
}
