//! Files of the other site: read over the line, read again, and written there; by both clients at once.

use super::carried_mb_per_s;
use super::samples::{Bench, own, series_name};
use super::system::{Mounted, OURS, System, directory_placed};
use super::worker::{Extent, Order, Taken};
use super::{CLIENTS, RECORD_BYTES};
use crate::experiment::outcome::{Figure, Finding, Form};
use crate::experiment::testbed::ZONES;
use crate::experiment::{figure, shown};
use crate::report::size::{MB, format_size};
use crate::{Error, content};

const SHARE: &str = "far";
const AGAIN: &str = "far-again";
const OVER_THE_LINE: [&str; 2] = ["read", "write"];
/// Percent of what the line carries.
const SHARE_MIN: f64 = 95.0;

/// The directory of the volume whose files lie in a zone.
fn of_zone(zone: &str) -> String {
    format!("zone-{zone}")
}

/// Makes the directories that files are written into over the line.
pub(super) fn prepare(bench: &Bench<'_>) -> Result<(), Error> {
    ZONES
        .iter()
        .try_for_each(|zone| directory_placed(bench.lab, bench.bed, &of_zone(zone), &format!("zone={zone}")))
}

/// The directory in a client's mount whose files lie in a zone.
pub(super) fn directory_of(system: &dyn System, client: usize, zone: &str) -> std::path::PathBuf {
    let mut directory = system.directory(client);
    directory.set_file_name(of_zone(zone));
    directory
}

pub(super) fn figures(bytes: u64) -> [Figure; 2] {
    let size = format_size(bytes);
    [
        Figure::new(
            SHARE,
            &format!("Files of the other site, {size}, both directions at once: share of the line"),
            ("operation", OVER_THE_LINE.map(str::to_owned).to_vec()),
            "% of the payload that the line carries",
            Form::Bars,
        ),
        Figure::new(
            AGAIN,
            &format!("Files of the other site, {size}: read a second time"),
            ("operation", vec!["read again".to_owned()]),
            "MB/s",
            Form::Bars,
        ),
    ]
}

/// One sample of each client.
pub(super) fn measure(
    bench: &mut Bench<'_>,
    system: &dyn System,
    bytes: u64,
    repetition: u32,
    figures: &mut [Figure; 2],
) -> Result<(), Error> {
    let Some(line) = bench.bed.line().map(|line| carried_mb_per_s(line.rate())) else { return Ok(()) };
    let mounted = Mounted::new(system, CLIENTS)?;
    let name = format!("far-{repetition}");
    let extent = |directory: std::path::PathBuf, writer: usize| Extent {
        path: directory.join(&name),
        bytes,
        record_bytes: RECORD_BYTES,
        stream: content::stream(bench.lab.seed, &[bytes, u64::from(repetition), writer as u64]),
    };
    // Each in the mount of the client that goes through it.
    let mine: Vec<Extent> = (0..CLIENTS).map(|client| extent(own(system, client), client)).collect();
    let theirs: Vec<Extent> = (0..CLIENTS)
        .map(|client| {
            let writer = CLIENTS - 1 - client;
            let directory = own(system, client).with_file_name(format!("of-client{}", writer + 1));
            extent(directory, writer)
        })
        .collect();
    let there: Vec<Extent> = (0..CLIENTS)
        .map(|client| extent(directory_of(system, client, ZONES[CLIENTS - 1 - client]), client))
        .collect();
    let orders = |make: fn(Extent) -> Order, extents: &[Extent]| -> Vec<Order> {
        extents.iter().cloned().map(make).collect()
    };
    bench.timed(&orders(Order::Write, &mine))?;
    mounted.again()?;
    let [share, again] = figures;
    let rate = |taken: &Taken| bytes as f64 / taken.whole_s().max(1e-9) / MB;
    let (read, limit) = bench.timed(&orders(Order::Read, &theirs))?;
    record(share, 0, &read, |taken| rate(taken) / line * 100.0, &limit);
    let (read, limit) = bench.timed(&orders(Order::Read, &theirs))?;
    record(again, 0, &read, rate, &limit);
    let (written, limit) = bench.timed(&orders(Order::Write, &there))?;
    record(share, 1, &written, |taken| rate(taken) / line * 100.0, &limit);
    let remove =
        |extents: Vec<Extent>| extents.into_iter().map(|extent| Order::Remove(extent.path)).collect();
    let removed: [Vec<Order>; 2] = [remove(mine), remove(there)];
    removed.iter().try_for_each(|orders| super::workers::together(&mut bench.workers, orders).map(drop))
}

fn record(figure: &mut Figure, at: usize, taken: &[Taken], value: impl Fn(&Taken) -> f64, limit: &str) {
    for (client, taken) in taken.iter().enumerate() {
        let series = figure.series_mut(&series_name(OURS, client));
        series.record(at, value(taken));
        series.limited_by(at, limit);
    }
}

fn lowest(figures: &[Figure], key: &str, at: usize) -> Option<f64> {
    let figure = figure(figures, key)?;
    let medians = (0..CLIENTS).map(|client| figure.median(&series_name(OURS, client), at));
    medians.collect::<Option<Vec<f64>>>()?.into_iter().min_by(f64::total_cmp)
}

pub(super) fn findings(figures: &[Figure], again_min: f64) -> Vec<Finding> {
    let mut findings: Vec<Finding> = OVER_THE_LINE
        .iter()
        .enumerate()
        .map(|(at, name)| {
            let share = lowest(figures, SHARE, at);
            Finding::new(
                &format!("Files of the other site, {name}: {SHARE_MIN}% of what the line carries, both clients at once"),
                share.map(|share| share >= SHARE_MIN),
                format!("the lower client: {} %", shown(share)),
            )
        })
        .collect();
    let again = lowest(figures, AGAIN, 0);
    findings.push(Finding::new(
        "Files of the other site, read a second time: the rate of the own network at least",
        again.map(|again| again >= again_min),
        format!("the lower client: {} MB/s, of {again_min}", shown(again)),
    ));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::outcome::Holds;

    #[test]
    fn both_directions_have_to_fill_the_line() {
        let mut figures = figures(1 << 20);
        let judged = |figures: &[Figure]| -> Vec<Holds> {
            findings(figures, 10.0).iter().map(|finding| finding.holds).collect()
        };
        assert_eq!(judged(&figures), [Holds::Unknown; 3]);
        let taken = |mb_per_s: f64| Taken { calls_s: 1.0 / mb_per_s, ..Taken::default() };
        let percent = |taken: &Taken| 1.0 / taken.calls_s;
        record(&mut figures[0], 0, &[taken(96.0), taken(97.0)], percent, "the line");
        record(&mut figures[0], 1, &[taken(99.0), taken(94.0)], percent, "the line");
        record(&mut figures[1], 0, &[taken(800.0), taken(900.0)], percent, "memory");
        assert_eq!(judged(&figures), [Holds::Yes, Holds::No, Holds::Yes]);
    }
}
