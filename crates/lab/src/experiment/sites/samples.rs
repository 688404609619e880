//! Times of the operations, and the figures made of them.

use super::system::{Mounted, OURS, System};
use super::worker::{Extent, Order, Taken};
use super::workers::{Worker, times, together};
use super::{CLIENTS, PORT, RECORD_BYTES};
use super::{limit, peer};
use crate::experiment::outcome::{Figure, Finding, Form, Series};
use crate::experiment::testbed::Testbed;
use crate::experiment::{Lab, outcome, shown};
use crate::report::size::{MB, format_size};
use crate::{Error, content};
use std::path::PathBuf;
use vazao_sampler::Recorder;

/// An operation of IOzone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    Write,
    Rewrite,
    Read,
    Reread,
    /// Without a new mount before it.
    RereadFromMemory,
}

/// The four of the study's tables.
pub(super) const FOUR: [Operation; 4] =
    [Operation::Write, Operation::Rewrite, Operation::Read, Operation::Reread];

impl Operation {
    pub(super) fn name(self) -> &'static str {
        match self {
            Operation::Write => "write",
            Operation::Rewrite => "rewrite",
            Operation::Read => "read",
            Operation::Reread => "reread",
            Operation::RereadFromMemory => "reread-from-memory",
        }
    }
}

/// What one client did once.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Sample {
    pub(super) system: String,
    pub(super) operation: Operation,
    pub(super) bytes: u64,
    pub(super) record_bytes: u64,
    /// Counted from 0.
    pub(super) client: usize,
    pub(super) taken: Taken,
    pub(super) limit: String,
}

impl Sample {
    /// MB/s of all of it: open, calls, fsync and close.
    pub(super) fn rate(&self) -> f64 {
        self.bytes as f64 / self.taken.whole_s().max(1e-9) / MB
    }

    /// MB/s of the calls alone.
    fn rate_of_calls(&self) -> f64 {
        self.bytes as f64 / self.taken.calls_s.max(1e-9) / MB
    }
}

/// Where and by whom files are gone through.
pub(super) struct Bench<'a> {
    pub(super) lab: &'a Lab,
    pub(super) bed: &'a Testbed<'a>,
    pub(super) recorder: Recorder,
    pub(super) workers: Vec<Worker<'a>>,
}

impl<'a> Bench<'a> {
    pub(super) fn new(lab: &'a Lab, bed: &'a Testbed<'a>) -> Result<Bench<'a>, Error> {
        let recorder = Recorder::new(lab.clock.clone(), bed.watched());
        let workers = bed.clients().iter().map(|host| Worker::start(lab, host));
        Ok(Bench { lab, bed, recorder, workers: workers.collect::<Result<_, Error>>()? })
    }

    /// Makes a directory for each client's own files.
    pub(super) fn prepare(&mut self, system: &dyn System) -> Result<(), Error> {
        let _mounted = Mounted::new(system, CLIENTS)?;
        let orders: Vec<Order> = (0..CLIENTS).map(|client| Order::Mkdir(own(system, client))).collect();
        together(&mut self.workers, &orders).map(drop)
    }

    /// All operations on a file of each client, both at once.
    pub(super) fn go_through(
        &mut self,
        system: &dyn System,
        bytes: u64,
        record_bytes: u64,
        repetition: u32,
    ) -> Result<Vec<Sample>, Error> {
        let mounted = Mounted::new(system, CLIENTS)?;
        let extent = |client: usize, over: u64| Extent {
            path: own(system, client).join(format!("{bytes}-{record_bytes}-{repetition}")),
            bytes,
            record_bytes,
            stream: content::stream(
                self.lab.seed,
                &[bytes, record_bytes, u64::from(repetition), client as u64, over],
            ),
        };
        let first: Vec<Extent> = (0..CLIENTS).map(|client| extent(client, 0)).collect();
        let second: Vec<Extent> = (0..CLIENTS).map(|client| extent(client, 1)).collect();
        let mut samples = Vec::new();
        for (operation, make, extents) in [
            (Operation::Write, Order::Write as fn(Extent) -> Order, &first),
            (Operation::Rewrite, Order::Rewrite, &second),
            (Operation::Read, Order::Read, &second),
            (Operation::RereadFromMemory, Order::Read, &second),
            (Operation::Reread, Order::Read, &second),
        ] {
            if matches!(operation, Operation::Read | Operation::Reread) {
                mounted.again()?;
            }
            let orders: Vec<Order> = extents.iter().cloned().map(make).collect();
            let (taken, limit) = self.timed(&orders)?;
            samples.extend(taken.into_iter().enumerate().map(|(client, taken)| Sample {
                system: system.name().to_owned(),
                operation,
                bytes,
                record_bytes,
                client,
                taken,
                limit: limit.clone(),
            }));
        }
        let orders: Vec<Order> = second.into_iter().map(|extent| Order::Remove(extent.path)).collect();
        together(&mut self.workers, &orders)?;
        Ok(samples)
    }

    /// Orders carried out by both clients at once, and what limited them.
    pub(super) fn timed(&mut self, orders: &[Order]) -> Result<(Vec<Taken>, String), Error> {
        let workers = &mut self.workers;
        limit::during(self.bed, PORT, &self.recorder, || together(workers, orders).and_then(times))
    }
}

/// Systems that are measured in turns. One of other people's that fails is left out from then on, and is a gap.
pub(super) struct Systems<'a> {
    ours: Vec<&'a dyn System>,
    peers: Vec<&'a dyn System>,
    gaps: Vec<String>,
}

impl<'a> Systems<'a> {
    /// Makes the directories of each.
    pub(super) fn prepare(
        bench: &mut Bench<'_>,
        ours: Vec<&'a dyn System>,
        peers: &'a [Box<dyn System + 'a>],
        gaps: Vec<String>,
    ) -> Result<Systems<'a>, Error> {
        ours.iter().try_for_each(|system| bench.prepare(*system))?;
        let mut systems = Systems { ours, peers: peers.iter().map(|peer| &**peer).collect(), gaps };
        systems.each_peer(bench.lab, |peer| bench.prepare(peer))?;
        Ok(systems)
    }

    /// All operations on a file of each system, one system after the other. A file that lies on both sides of a line
    /// is left out when it has more than `spread_bytes_max`.
    pub(super) fn go_through(
        &mut self,
        bench: &mut Bench<'_>,
        (bytes, spread_bytes_max): (u64, u64),
        repetition: u32,
        samples: &mut Vec<Sample>,
    ) -> Result<(), Error> {
        let fits = |system: &dyn System| !system.is_spread() || bytes <= spread_bytes_max;
        for &system in self.ours.iter().filter(|system| fits(**system)) {
            samples.extend(bench.go_through(system, bytes, RECORD_BYTES, repetition)?);
        }
        self.each_peer(bench.lab, |peer| {
            if fits(peer) {
                samples.extend(bench.go_through(peer, bytes, RECORD_BYTES, repetition)?);
            }
            Ok(())
        })
    }

    fn each_peer(
        &mut self,
        lab: &Lab,
        mut work: impl FnMut(&dyn System) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (mut working, mut failed) = (Vec::new(), Vec::new());
        for &peer in &self.peers {
            match work(peer) {
                Ok(()) => working.push(peer),
                Err(error) => failed.push(format!("{}, from then on: {error}", peer.name())),
            }
            lab.check()?;
        }
        self.peers = working;
        self.gaps.extend(failed);
        Ok(())
    }

    /// What could not be measured, and why.
    pub(super) fn into_gaps(self) -> Vec<String> {
        self.gaps
    }
}

/// The directory of a client's own files.
pub(super) fn own(system: &dyn System, client: usize) -> PathBuf {
    system.directory(client).join(format!("of-client{}", client + 1))
}

/// What a study has of each system: its mean for each of [`FOUR`].
pub(super) type Published = [(&'static str, [f64; 4]); 4];

/// A figure of one operation over the sizes of files: a series for each system and client. What was published is the
/// mean of all sizes, at each of them.
pub(super) fn over_sizes(
    (operation, title): (Operation, &str),
    sizes: &[u64],
    record_bytes: u64,
    samples: &[Sample],
    published: &Published,
) -> Figure {
    let x = sizes.iter().map(|&bytes| format_size(bytes)).collect();
    let mut figure = Figure::new(operation.name(), title, ("file size", x), "MB/s", Form::Lines);
    let of_this = |s: &&Sample| s.operation == operation && s.record_bytes == record_bytes;
    let place = |s: &Sample| {
        let at = sizes.iter().position(|&bytes| bytes == s.bytes)?;
        Some((series_name(&s.system, s.client), at))
    };
    let chosen: Vec<&Sample> = samples.iter().filter(of_this).collect();
    fill(&mut figure, &chosen, place);
    if let Some(at) = FOUR.iter().position(|&of_four| of_four == operation) {
        let mean = |(name, rates): &(&str, [f64; 4])| {
            Series::published(&format!("{name}, mean"), &vec![rates[at]; sizes.len()])
        };
        figure.published = published.iter().map(mean).collect();
    }
    figure
}

/// A figure of the four operations over the bytes of a call, for one system.
pub(super) fn over_records(
    title: &str,
    records: &[u64],
    bytes: u64,
    system: &str,
    samples: &[Sample],
) -> Figure {
    let x = records.iter().map(|&record| format_size(record)).collect();
    let mut figure = Figure::new("records", title, ("bytes of a call", x), "MB/s", Form::Lines);
    let of_this =
        |s: &&Sample| s.system == system && s.bytes == bytes && s.operation != Operation::RereadFromMemory;
    let place = |s: &Sample| {
        let at = records.iter().position(|&record| record == s.record_bytes)?;
        Some((s.operation.name().to_owned(), at))
    };
    let chosen: Vec<&Sample> = samples.iter().filter(of_this).collect();
    fill(&mut figure, &chosen, place);
    figure
}

/// The table of a scenario: means of all sizes and both clients, beside those that were published; and the same of the
/// calls alone.
pub(super) fn tables(
    (key, title): (&str, &str),
    record_bytes: u64,
    samples: &[Sample],
    published: &Published,
) -> [Figure; 2] {
    let table = |key: &str, title: &str, rate: fn(&Sample) -> f64| {
        let x = FOUR.map(|operation| operation.name().to_owned()).to_vec();
        let mut figure = Figure::new(key, title, ("operation", x), "MB/s", Form::Bars);
        for sample in samples.iter().filter(|sample| sample.record_bytes == record_bytes) {
            let Some(at) = FOUR.iter().position(|&operation| operation == sample.operation) else { continue };
            figure.series_mut(&sample.system).record(at, rate(sample));
        }
        figure.published = published.iter().map(|(name, rates)| Series::published(name, rates)).collect();
        figure
    };
    let calls = format!("{title}, of the calls alone: without open, fsync and close");
    [table(key, title, Sample::rate), table(&format!("{key}-calls"), &calls, Sample::rate_of_calls)]
}

pub(super) fn series_name(system: &str, client: usize) -> String {
    format!("{system}, client {}", client + 1)
}

/// Records samples at their places, each place with the limit of the sample in its middle.
fn fill(figure: &mut Figure, samples: &[&Sample], place: impl Fn(&Sample) -> Option<(String, usize)>) {
    let mut places: Vec<(String, usize)> = Vec::new();
    for sample in samples {
        let Some((name, at)) = place(sample) else { continue };
        figure.series_mut(&name).record(at, sample.rate());
        if !places.contains(&(name.clone(), at)) {
            places.push((name, at));
        }
    }
    for (name, at) in places {
        let mut same: Vec<&&Sample> =
            samples.iter().filter(|sample| place(sample).as_ref() == Some(&(name.clone(), at))).collect();
        same.sort_by(|a, b| a.rate().total_cmp(&b.rate()));
        if let Some(middle) = same.get(same.len() / 2) {
            figure.series_mut(&name).limited_by(at, &middle.limit);
        }
    }
}

/// The lower of both clients' medians at the largest size of an operation.
pub(super) fn lower_client(figures: &[Figure], operation: Operation, system: &str) -> Option<f64> {
    let figure = outcome::figure(figures, operation.name())?;
    let last = figure.x.len().checked_sub(1)?;
    let medians = (0..CLIENTS).map(|client| figure.median(&series_name(system, client), last));
    medians.collect::<Option<Vec<f64>>>()?.into_iter().min_by(f64::total_cmp)
}

/// Whether ours is ahead of every published mean, operation by operation.
pub(super) fn ahead_of_published(figures: &[Figure], table: &str) -> Finding {
    let ratio = |table: &Figure, at: usize| {
        let ours = table.find(OURS)?.points.iter().find(|point| point.at == at)?.summary()?.mean;
        let best = table.published.iter().filter_map(|series| series.median(at)).max_by(f64::total_cmp)?;
        Some(ours / best)
    };
    let ratios = outcome::figure(figures, table)
        .and_then(|table| (0..FOUR.len()).map(|at| ratio(table, at)).collect::<Option<Vec<f64>>>());
    let text = match &ratios {
        Some(ratios) => {
            let each = FOUR
                .iter()
                .zip(ratios)
                .map(|(operation, ratio)| format!("{} {} times", operation.name(), shown(Some(*ratio))));
            format!(
                "{} the best published mean of 2011, small files included",
                each.collect::<Vec<_>>().join(", ")
            )
        }
        None => shown(None),
    };
    Finding::new(
        "The mean is ahead of the best published one in every operation",
        ratios.map(|ratios| ratios.iter().all(|&ratio| ratio > 1.0)),
        text,
    )
}

/// Whether ours is ahead of each peer at each place where both were measured. `None` without peers.
pub(super) fn ahead_of_peers(figures: &[Figure]) -> Option<Finding> {
    let places = FOUR.iter().filter_map(|operation| outcome::figure(figures, operation.name()));
    let (mut compared, mut behind) = (0, 0);
    let mut worst: Option<(f64, String)> = None;
    for (figure, (peer, client)) in places.flat_map(|figure| peers_and_clients().map(move |it| (figure, it)))
    {
        for (at, size) in figure.x.iter().enumerate() {
            let of = |system: &str| figure.median(&series_name(system, client), at);
            let Some(ratio) = of(OURS).zip(of(peer)).map(|(ours, theirs)| theirs / ours) else { continue };
            compared += 1;
            behind += u32::from(ratio >= 1.0);
            if worst.as_ref().is_none_or(|(most, _)| ratio > *most) {
                let key = &figure.key;
                worst = Some((ratio, format!("{}, {key}, {size}", series_name(peer, client))));
            }
        }
    }
    let (ratio, place) = worst?;
    Some(Finding::new(
        "Ahead of each peer with each operation, size and client",
        Some(behind == 0),
        format!("behind in {behind} of {compared}; at worst {} times ours: {place}", shown(Some(ratio))),
    ))
}

fn peers_and_clients() -> impl Iterator<Item = (&'static str, usize)> {
    peer::NAMES.into_iter().flat_map(|peer| (0..CLIENTS).map(move |client| (peer, client)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::outcome::Holds;

    const PUBLISHED: Published =
        [("a", [1.0; 4]), ("b", [2.0, 2.0, 1.0, 1.0]), ("c", [0.0; 4]), ("d", [0.0, 3.0, 3.0, 3.0])];

    fn sample(system: &str, operation: Operation, bytes: u64, client: usize, mb_per_s: f64) -> Sample {
        let whole_s = bytes as f64 / MB / mb_per_s;
        let taken = Taken {
            open_s: whole_s / 4.0,
            calls_s: whole_s / 2.0,
            sync_s: whole_s / 8.0,
            close_s: whole_s / 8.0,
        };
        Sample {
            system: system.to_owned(),
            operation,
            bytes,
            record_bytes: 64,
            client,
            taken,
            limit: format!("limit of {mb_per_s}"),
        }
    }

    #[test]
    fn clients_are_series_of_their_own_and_the_sample_in_the_middle_says_the_limit() {
        let samples: Vec<Sample> = [(0, 9.0), (0, 11.0), (0, 10.0), (1, 5.0)]
            .map(|(client, rate)| sample("a", Operation::Read, 100, client, rate))
            .into();
        let figure = over_sizes((Operation::Read, "t"), &[50, 100], 64, &samples, &PUBLISHED);
        assert_eq!(figure.series.len(), 2);
        assert_eq!((figure.published[1].median(0), figure.published[1].median(1)), (Some(1.0), Some(1.0)));
        assert!((figure.median("a, client 1", 1).expect("measured") - 10.0).abs() < 1e-6);
        assert_eq!(figure.series[0].points[0].limit.as_deref(), Some("limit of 10"));
        let lower = lower_client(&[figure], Operation::Read, "a").expect("both were measured");
        assert!((lower - 5.0).abs() < 1e-6, "{lower}");
    }

    #[test]
    fn a_client_that_was_not_measured_is_not_taken_for_the_other_one() {
        let samples = [sample("a", Operation::Read, 100, 0, 9.0)];
        let figure = over_sizes((Operation::Read, "t"), &[100], 64, &samples, &PUBLISHED);
        assert_eq!(lower_client(&[figure], Operation::Read, "a"), None);
    }

    #[test]
    fn the_table_has_the_whole_time_and_that_of_the_calls_and_leaves_memory_out() {
        let samples = [
            sample("a", Operation::Rewrite, 100, 0, 8.0),
            sample("a", Operation::Rewrite, 200, 1, 4.0),
            sample("a", Operation::RereadFromMemory, 100, 0, 1000.0),
        ];
        let [whole, calls] = tables(("table1", "t"), 64, &samples, &PUBLISHED);
        let mean = |figure: &Figure| {
            assert_eq!((figure.series.len(), figure.series[0].points.len()), (1, 1));
            figure.series[0].points[0].summary().map(|summary| summary.mean)
        };
        assert!((mean(&whole).expect("measured") - 6.0).abs() < 1e-6);
        assert!((mean(&calls).expect("measured") - 12.0).abs() < 1e-6, "half of the time");
        assert_eq!(whole.published[3].median(1), Some(3.0));
        let [other, _] = tables(("t", "t"), 65, &samples, &PUBLISHED);
        assert!(other.series.is_empty(), "another record");
    }

    #[test]
    fn a_peer_that_is_ahead_at_one_place_is_named_and_without_peers_nothing_is_said() {
        let figure = |theirs: f64| {
            let of = |system: &str, rate| sample(system, Operation::Read, 100, 1, rate);
            let samples = [of(OURS, 9.0), of(peer::NAMES[0], theirs)];
            over_sizes((Operation::Read, "t"), &[100], 64, &samples, &PUBLISHED)
        };
        assert_eq!(ahead_of_peers(&[figure(8.0)]).map(|finding| finding.holds), Some(Holds::Yes));
        let behind = ahead_of_peers(&[figure(18.0)]).expect("both were measured");
        assert_eq!(behind.holds, Holds::No);
        let text =
            format!("behind in 1 of 1; at worst 2.00 times ours: {}, client 2, read, 100 B", peer::NAMES[0]);
        assert_eq!(behind.measured, text);
        assert!(ahead_of_peers(&[over_sizes((Operation::Read, "t"), &[100], 64, &[], &PUBLISHED)]).is_none());
    }

    #[test]
    fn one_operation_behind_the_best_published_mean_is_enough_to_be_behind() {
        let judged = |rates: [f64; 4]| {
            let of_each = FOUR.iter().zip(rates);
            let samples: Vec<Sample> =
                of_each.map(|(&operation, rate)| sample(OURS, operation, 100, 0, rate)).collect();
            ahead_of_published(&tables(("t", "t"), 64, &samples, &PUBLISHED), "t").holds
        };
        assert_eq!(judged([2.1, 3.1, 3.1, 3.1]), Holds::Yes);
        assert_eq!(judged([2.1, 3.1, 2.9, 3.1]), Holds::No);
        assert_eq!(ahead_of_published(&[], "t").holds, Holds::Unknown);
    }
}
