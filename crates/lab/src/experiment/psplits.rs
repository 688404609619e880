//! psplit as the experiments use it: run on a client's host, its results sorted into figures.

use super::Lab;
use super::outcome::{Figure, Form};
use super::testbed::Testbed;
use crate::Error;
use crate::psplit::{Results, Run};
use crate::report::size::{MB, format_size};

/// One call of psplit on a host.
#[derive(Clone, Debug)]
pub(super) struct Call<'a> {
    /// `read`, `generate` or `split`.
    pub(super) mode: &'a str,
    /// Compared in turns.
    pub(super) places: &'a [String],
    pub(super) threads: &'a [u32],
    pub(super) block_bytes: &'a [u64],
    pub(super) total_bytes: &'a [u64],
    pub(super) drop_caches: bool,
    pub(super) sync: bool,
}

impl Call<'_> {
    /// Runs it on a client's host and returns what it measured. Wrong bytes and failed calls are errors.
    pub(super) fn run(&self, lab: &Lab, bed: &Testbed<'_>, client: usize) -> Result<Results, Error> {
        let list = |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        let threads: Vec<u64> = self.threads.iter().map(|&threads| u64::from(threads)).collect();
        let mut command = bed.vazao(client)?;
        command.args(["lab", "psplit", self.mode]).args(self.places);
        command.args(["--threads", &list(&threads), "--block", &list(self.block_bytes)]);
        command.args(["--total", &list(self.total_bytes), "--repeat", &lab.repetitions().to_string()]);
        command.args(["--seed", &lab.seed.to_string(), "--json", "-"]);
        for (wanted, option) in [(self.drop_caches, "--drop-caches"), (self.sync, "--sync")] {
            if wanted {
                command.arg(option);
            }
        }
        for watched in bed.watched() {
            if let Some(pid) = watched.pid {
                command.args(["--watch", &format!("{}={pid}", watched.name)]);
            }
        }
        let text = lab.text_of(&mut command)?;
        serde_json::from_str(&text).map_err(|error| Error::Failed(format!("psplit's results: {error}")))
    }
}

/// Megabytes a second of a run.
pub(super) fn rate(run: &Run) -> f64 {
    run.rate() / MB
}

/// A figure over threads: one series a place, named by `name`.
pub(super) fn over_threads(
    figure: (&str, &str, &str),
    threads: &[u32],
    runs: &[Run],
    name: impl Fn(&Run) -> Option<String>,
    value: impl Fn(&Run) -> Option<f64>,
) -> Figure {
    let (key, title, y_label) = figure;
    let x = threads.iter().map(u32::to_string).collect();
    let mut figure = Figure::new(key, title, ("threads", x), y_label, Form::Lines);
    for run in runs {
        let at = threads.iter().position(|&threads| threads == run.threads);
        if let (Some(at), Some(name), Some(value)) = (at, name(run), value(run)) {
            figure.series_mut(&name).record(at, value);
        }
    }
    figure
}

/// The same figure of rates, with the limit of each place named.
pub(super) fn rates_over_threads(
    figure: (&str, &str),
    threads: &[u32],
    runs: &[Run],
    name: impl Fn(&Run) -> Option<String>,
) -> Figure {
    let (key, title) = figure;
    let mut figure = over_threads((key, title, "MB/s"), threads, runs, &name, |run| Some(rate(run)));
    name_limits(&mut figure, runs, |run| {
        Some((name(run)?, threads.iter().position(|&threads| threads == run.threads)?))
    });
    figure
}

/// A figure over sizes: of blocks, or of all the bytes.
pub(super) fn over_sizes(
    figure: (&str, &str, &str, &str),
    sizes: &[u64],
    runs: &[Run],
    size: impl Fn(&Run) -> u64,
    name: impl Fn(&Run) -> Option<String>,
) -> Figure {
    let (key, title, x_label, y_label) = figure;
    let x = sizes.iter().map(|&bytes| format_size(bytes)).collect();
    let mut figure = Figure::new(key, title, (x_label, x), y_label, Form::Lines);
    let place = |run: &Run| Some((name(run)?, sizes.iter().position(|&bytes| bytes == size(run))?));
    for run in runs {
        if let Some((name, at)) = place(run) {
            figure.series_mut(&name).record(at, rate(run));
        }
    }
    name_limits(&mut figure, runs, place);
    figure
}

/// The limit of a place is the verdict on its repetition in the middle.
fn name_limits(figure: &mut Figure, runs: &[Run], place: impl Fn(&Run) -> Option<(String, usize)>) {
    let mut places: Vec<(String, usize)> = runs.iter().filter_map(&place).collect();
    places.sort();
    places.dedup();
    for (name, at) in places {
        let mut same: Vec<&Run> =
            runs.iter().filter(|run| place(run).as_ref() == Some(&(name.clone(), at))).collect();
        same.sort_by(|a, b| a.rate().total_cmp(&b.rate()));
        if let Some(middle) = same.get(same.len() / 2) {
            figure.series_mut(&name).limited_by(at, &middle.verdict.text);
        }
    }
}
