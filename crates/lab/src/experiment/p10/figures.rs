//! Figures of P10, and what they are held to.

use super::bound::{Forwarding, even, of_write};
use super::cost::{AT_SERVERS, Moved, PLACES, SMALL_BYTES, Sample};
use super::outage::{CALL_BYTES, LINK, Outage, Phases, SERVER};
use super::timeline::{Call, longest, rates};
use super::{COPIES, SERVERS};
use crate::experiment::outcome::{Figure, Finding, Form, Mark};
use crate::experiment::{Lab, figure, shown};
use crate::report::size::{MB, format_size, significant};

/// Percent of what the narrowest link allows that a write has to reach.
const WRITE_SHARE_MIN: f64 = 90.0;
/// Percent of one copy that a read has to reach.
const READ_RATIO_MIN: f64 = 98.0;
/// Times what a star allows up to which a chain is not worth building.
const CHAIN_GAIN_MAX: f64 = 1.1;
/// Seconds that a read and a write may take while a server dies (docs/semantics.md, Files with several copies).
const READ_PAUSE_S_MAX: f64 = 1.0;
const WRITE_PAUSE_S_MAX: f64 = 3.0;

/// Rates over time are of steps of this length.
const STEP_NS: u64 = 100_000_000;

const MEASURED: &str = "measured";
const STAR: &str = "star allows";
const EVEN: &str = "star allows, spread evenly";
const CHAIN: &str = "chain allows (computed)";
const THIS_RUN: &str = "this run";
const AWAY: &str = "while the server was away";

type Rate = fn(&Sample) -> f64;

fn copies(count: usize) -> String {
    format!("{count} {}", if count == 1 { "copy" } else { "copies" })
}

fn bars(key: &str, title: &str, y_label: &str, x: Vec<String>) -> Figure {
    let x_label = if x.len() == PLACES.len() || x == bounded() { "links" } else { "" };
    Figure::new(key, title, (x_label, x), y_label, Form::Bars)
}

/// Places with a bound link: the first ones.
fn bounded() -> Vec<String> {
    let is_bounded = |place: &&super::cost::Place| place.links != Default::default();
    PLACES.iter().filter(is_bounded).map(|place| place.name.to_owned()).collect()
}

/// A figure with a bar for each number of copies at each place.
fn each(
    samples: &[Sample],
    (key, title, y_label): (&str, &str, &str),
    value: impl Fn(&Sample) -> f64,
) -> Figure {
    let mut figure = bars(key, title, y_label, PLACES.map(|place| place.name.to_owned()).to_vec());
    for sample in samples {
        figure.series_mut(&copies(COPIES[sample.copies])).record(sample.place, value(sample));
    }
    figure
}

/// All figures of what copies cost.
pub(super) fn of_cost(samples: &[Sample]) -> Vec<Figure> {
    let small =
        format!("Overwrites of {}, each with an fsync, one after the other", format_size(SMALL_BYTES));
    let mut figures = vec![
        each(samples, ("write", "A large new file, until its fsync has returned", "MB/s"), |it| {
            it.write.mb_per_s()
        }),
        share(samples),
        each(samples, ("read", "A large file, caches dropped", "MB/s"), |it| it.read.mb_per_s()),
        each(samples, ("small", &small, "a second"), |it| it.overwrites_per_s),
        ratio(samples),
        processors(samples, "write", |sample| &sample.write),
        processors(samples, "read", |sample| &sample.read),
        network(samples),
        fullest(samples),
        spread(samples),
        chain(samples),
    ];
    figures.iter_mut().for_each(|figure| figure.series.sort_by_key(|series| natural(&series.name)));
    figures
}

/// Turns begin with another number of copies each time; figures do not. What was measured is before what is computed.
fn natural(name: &str) -> (usize, String) {
    let operation =
        [MEASURED, "write", "read", "overwrite"].iter().position(|operation| name.starts_with(operation));
    (operation.unwrap_or(usize::MAX), name.to_owned())
}

/// What of the narrowest link is used; which one that is, of the last turn.
fn share(samples: &[Sample]) -> Figure {
    let title = "Writing: share of what the narrowest link allows for all copies, of where each file lies";
    let mut figure = bars("share", title, "%", bounded());
    for sample in samples {
        let Some(star) = &sample.star else { continue };
        let series = figure.series_mut(&copies(COPIES[sample.copies]));
        series.record(sample.place, sample.write.mb_per_s() * MB / star.bytes_per_s * 100.0);
        series.limited_by(sample.place, &star.link);
    }
    figure
}

/// Each number of copies against one copy of the same turn.
fn ratio(samples: &[Sample]) -> Figure {
    let rates: [(&str, Rate); 3] = [
        ("write", |sample| sample.write.mb_per_s()),
        ("read", |sample| sample.read.mb_per_s()),
        ("overwrite", |sample| sample.overwrites_per_s),
    ];
    let x = PLACES.map(|place| place.name.to_owned()).to_vec();
    let mut figure = bars("ratio", "Rate against one copy in the same turn", "%", x);
    for sample in samples.iter().filter(|sample| COPIES[sample.copies] > 1) {
        let same_turn = |other: &&Sample| {
            (other.place, other.repetition, COPIES[other.copies]) == (sample.place, sample.repetition, 1)
        };
        let Some(one) = samples.iter().find(same_turn) else { continue };
        for (operation, rate) in rates {
            let name = format!("{operation}, {}", copies(COPIES[sample.copies]));
            figure.series_mut(&name).record(sample.place, rate(sample) / rate(one).max(1e-9) * 100.0);
        }
    }
    figure
}

fn processors(samples: &[Sample], operation: &str, of: impl Fn(&Sample) -> &Moved) -> Figure {
    let title =
        format!("Processor time of a {operation}; making and comparing the bytes is within the client's");
    let x = PLACES.map(|place| place.name.to_owned()).to_vec();
    let mut figure = bars(&format!("cpu-{operation}"), &title, "s/GiB", x);
    for sample in samples {
        let (moved, copies) = (of(sample), copies(COPIES[sample.copies]));
        for (whose, cpu_s) in [("client", moved.client_cpu_s), ("servers", moved.servers_cpu_s)] {
            figure.series_mut(&format!("{copies}, {whose}")).record(sample.place, moved.per_gib(cpu_s));
        }
    }
    figure
}

fn network(samples: &[Sample]) -> Figure {
    let x = PLACES.map(|place| place.name.to_owned()).to_vec();
    let title = "Bytes that all hosts received for each byte of the file, whole frames";
    let mut figure = bars("network", title, "times", x);
    for sample in samples {
        for (operation, moved) in [("write", &sample.write), ("read", &sample.read)] {
            let name = format!("{operation}, {}", copies(COPIES[sample.copies]));
            figure
                .series_mut(&name)
                .record(sample.place, moved.received_bytes as f64 / moved.bytes.max(1) as f64);
        }
    }
    figure
}

/// Without bounds the narrowest resource is the machine itself, on which others may work as well.
fn fullest(samples: &[Sample]) -> Figure {
    let x = ["write", "read"].map(str::to_owned).to_vec();
    let title = "No bound: share of the fuller one of this machine's processors and disk, with what others took of it";
    let mut figure = bars("machine", title, "%", x);
    for sample in samples.iter().filter(|sample| sample.place == PLACES.len() - 1) {
        let series = figure.series_mut(&copies(COPIES[sample.copies]));
        for (at, moved) in [&sample.write, &sample.read].into_iter().enumerate() {
            series.record(at, moved.fullest.0 * 100.0);
            series.limited_by(at, moved.fullest.1);
        }
    }
    figure
}

/// Three copies: what was measured, what a star allows, what a chain would.
fn chain(samples: &[Sample]) -> Figure {
    let title = "Writing three copies: star, which is built, against a chain, which is computed from the links' rates";
    let mut figure = bars("chain", title, "MB/s", bounded());
    for sample in samples.iter().filter(|sample| COPIES[sample.copies] == 3) {
        let (Some(star), Some(chain)) = (&sample.star, &sample.chain) else { continue };
        let values = [
            (MEASURED, sample.write.mb_per_s()),
            (STAR, star.bytes_per_s / MB),
            (CHAIN, chain.bytes_per_s / MB),
        ];
        for (name, value) in values {
            figure.series_mut(name).record(sample.place, value);
        }
    }
    figure
}

/// Narrow links at the servers: what was measured, what is allowed where each file lies, and what would be if the
/// members of its groups were spread evenly.
fn spread(samples: &[Sample]) -> Figure {
    let place = &PLACES[AT_SERVERS];
    let title = format!("{}: writing, where files lie and were they spread evenly", place.name);
    let mut figure = bars("spread", &title, "MB/s", COPIES.map(copies).to_vec());
    for sample in samples.iter().filter(|sample| sample.place == AT_SERVERS) {
        let even = even(COPIES[sample.copies], place.width, SERVERS);
        let even = of_write(&even, place.links, Forwarding::Star);
        let (Some(star), Some(even)) = (&sample.star, even) else { continue };
        let values = [
            (MEASURED, sample.write.mb_per_s()),
            (STAR, star.bytes_per_s / MB),
            (EVEN, even.bytes_per_s / MB),
        ];
        for (name, value) in values {
            figure.series_mut(name).record(sample.copies, value);
        }
    }
    figure
}

/// All figures of the server that is killed.
pub(super) fn of_outage(outage: &Outage) -> Vec<Figure> {
    let moments = outage.moments;
    let all = |calls: &[Call]| longest(calls, moments.start_ns, moments.end_ns);
    let (read, write) = (all(&outage.reads), all(&outage.writes));
    let mut figures = vec![over_time(outage, read, write)];
    let x = ["read", "write with fsync"].map(str::to_owned).to_vec();
    let mut pauses = bars("pauses", "The longest call", "s", x);
    // Also those that began before, or ended after: a pause does.
    let is_during = |call: &&Call| call.end_ns >= moments.killed_ns && call.start_ns < moments.started_ns;
    let away = |calls: &[Call]| {
        let during = calls.iter().filter(is_during);
        during.max_by_key(|call| call.end_ns - call.start_ns).copied()
    };
    let calls = [
        (0, AWAY, away(&outage.reads)),
        (1, AWAY, away(&outage.writes)),
        (0, THIS_RUN, read),
        (1, THIS_RUN, write),
    ];
    for (at, when, call) in calls {
        if let Some(Call { start_ns, end_ns, .. }) = call {
            pauses.series_mut(when).record(at, (end_ns - start_ns) as f64 / 1e9);
        }
    }
    let x = ["calls that failed", "blocks that are not as acknowledged"].map(str::to_owned).to_vec();
    let mut failures = bars("failures", "What went wrong", "number", x);
    for (at, count) in [outage.failed_calls, outage.lost_blocks].into_iter().enumerate() {
        failures.series_mut(THIS_RUN).record(at, count as f64);
    }
    figures.extend([pauses, failures]);
    if let Some(whole_ns) = moments.whole_ns {
        let title =
            "From the start of the server until all copies are whole again, while readers and writers go on";
        let mut whole = bars("whole", title, "s", vec!["all copies".to_owned()]);
        whole.series_mut(THIS_RUN).record(0, (whole_ns - moments.started_ns) as f64 / 1e9);
        figures.push(whole);
    }
    figures
}

fn over_time(outage: &Outage, read: Option<Call>, write: Option<Call>) -> Figure {
    let moments = outage.moments;
    let title = format!(
        "{0} writers (calls of {1} with fsync) and {0} readers, two copies on {SERVERS} servers of {2} Mb/s each",
        outage.workers,
        format_size(CALL_BYTES),
        LINK.0 / 1_000_000
    );
    let rates = |calls: &[Call]| rates(calls, moments.start_ns, moments.end_ns, STEP_NS);
    let series = [("read", rates(&outage.reads)), ("written", rates(&outage.writes))];
    let steps = series[0].1.len();
    let mut figure =
        Figure::new("outage", &title, ("seconds", seconds_of(steps)), "MB/s in 0.1 s", Form::Lines);
    for (name, rates) in series {
        rates.into_iter().enumerate().for_each(|(at, rate)| figure.series_mut(name).record(at, rate));
    }
    let place = |at_ns: u64| at_ns.saturating_sub(moments.start_ns) as f64 / STEP_NS as f64;
    let mut mark = |name: String, from_ns: u64, to_ns: u64| {
        figure.marks.push(Mark { name, from: place(from_ns), to: place(to_ns) });
    };
    let seconds = |from_ns: u64, to_ns: u64| significant(to_ns.saturating_sub(from_ns) as f64 / 1e9);
    mark(format!("{SERVER} is killed"), moments.killed_ns, moments.killed_ns);
    for (call, what) in [(read, "read"), (write, "write")] {
        if let Some(Call { start_ns, end_ns, .. }) = call {
            let name = format!("the longest {what}: {} s", seconds(start_ns, end_ns));
            mark(name, start_ns.max(moments.start_ns), end_ns);
        }
    }
    mark(format!("{SERVER} is started again"), moments.started_ns, moments.started_ns);
    if let Some(whole_ns) = moments.whole_ns {
        let name =
            format!("all copies are whole, {} s after the start", seconds(moments.started_ns, whole_ns));
        mark(name, whole_ns, whole_ns);
    }
    figure
}

/// Steps of a tenth of a second, each fifth second named; in a short row each second, in a long one each twentieth.
fn seconds_of(steps: usize) -> Vec<String> {
    let every = match steps {
        0..=300 => 10,
        301..=1000 => 50,
        _ => 200,
    };
    (0..steps).map(|step| if step % every == 0 { (step / 10).to_string() } else { String::new() }).collect()
}

/// What was arranged.
pub(super) fn setup(outage: &Outage) -> Vec<String> {
    vec![
        format!(
            "{SERVERS} data servers, a metadata service and a client, each a host of its own (network namespace) on this machine; \
             all data servers write to the same disk of it."
        ),
        "1, 2 and 3 copies take turns; a turn writes a new file, reads it by a new client with all caches dropped, and \
         overwrites small parts; all bytes are compared."
            .to_owned(),
        "What a link allows is computed from where each file lies: the client sends each byte once, the primary of its group \
         receives it and sends it to each other member (star)."
            .to_owned(),
        format!(
            "Over time: {SERVER} gets SIGKILL and is started again with what is on its disk; the rate is of what ended in each \
             tenth of a second; {} reads and {} writes in all.",
            outage.reads.len(),
            outage.writes.len()
        ),
    ]
}

/// What could not be done.
pub(super) fn gaps(lab: &Lab, outage: &Outage) -> Vec<String> {
    let mut gaps = outage.said.clone();
    if outage.moments.whole_ns.is_none() {
        let seconds = Phases::of(lab).catching_up_max.as_secs();
        gaps.push(format!("within {seconds} s of the server's start its copies did not become whole again"));
    }
    gaps
}

/// What the figures are held to.
pub(super) fn findings(figures: &[Figure]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = (0..bounded().len()).map(|place| writes(figures, place)).collect();
    findings.push(spreads(figures));
    findings.push(machine(figures));
    findings.extend((0..PLACES.len()).map(|place| reads(figures, place)));
    findings.extend((0..bounded().len()).map(|place| chains(figures, place)));
    findings.extend(of_server(figures));
    findings
}

/// The medians of series at a place; `None` where one was not measured.
fn medians(figures: &[Figure], key: &str, series: &[String], at: usize) -> Vec<Option<f64>> {
    series.iter().map(|name| figure(figures, key)?.median(name, at)).collect()
}

fn least(values: &[Option<f64>]) -> Option<f64> {
    let values: Option<Vec<f64>> = values.iter().copied().collect();
    values?.into_iter().min_by(f64::total_cmp)
}

fn list(values: &[Option<f64>]) -> String {
    values.iter().map(|value| shown(*value)).collect::<Vec<_>>().join(", ")
}

fn writes(figures: &[Figure], place: usize) -> Finding {
    let shares = medians(figures, "share", &COPIES.map(copies), place);
    let limit = || {
        let series = figure(figures, "share")?.find(&copies(3))?;
        series.points.iter().find(|point| point.at == place)?.limit.clone()
    };
    Finding::new(
        &format!(
            "{}: writes get {WRITE_SHARE_MIN} % of what the narrowest link allows, the copies' bytes counted",
            PLACES[place].name
        ),
        least(&shares).map(|share| share >= WRITE_SHARE_MIN),
        format!("1, 2, 3 copies: {} %; with 3 it is {}", list(&shares), limit().unwrap_or_default()),
    )
}

fn spreads(figures: &[Figure]) -> Finding {
    let share = |at: usize| {
        let of = |name: &str| figure(figures, "spread")?.median(name, at);
        Some(of(STAR)? / of(EVEN)? * 100.0)
    };
    let shares: Vec<Option<f64>> = (0..COPIES.len()).map(share).collect();
    Finding::new(
        &format!(
            "{}: files lie so that {WRITE_SHARE_MIN} % of an even spread's rate are allowed",
            PLACES[AT_SERVERS].name
        ),
        least(&shares).map(|share| share >= WRITE_SHARE_MIN),
        format!("1, 2, 3 copies: {} %", list(&shares)),
    )
}

fn machine(figures: &[Figure]) -> Finding {
    let shares = medians(figures, "machine", &COPIES.map(copies), 0);
    Finding::new(
        &format!(
            "No bound: writes take {WRITE_SHARE_MIN} % of this machine's processors or of its disk's time"
        ),
        least(&shares).map(|share| share >= WRITE_SHARE_MIN),
        format!("1, 2, 3 copies: {} %, with what others took of it", list(&shares)),
    )
}

fn reads(figures: &[Figure], place: usize) -> Finding {
    let series = [2, 3].map(|count| format!("read, {}", copies(count)));
    let ratios = medians(figures, "ratio", &series, place);
    Finding::new(
        &format!("{}: reads of 2 and 3 copies lose less than 2 % against one", PLACES[place].name),
        least(&ratios).map(|ratio| ratio >= READ_RATIO_MIN),
        format!("{} % of one copy, medians of the turns", list(&ratios)),
    )
}

fn chains(figures: &[Figure], place: usize) -> Finding {
    let of = |name: &str| figure(figures, "chain")?.median(name, place);
    let gain = of(STAR).zip(of(CHAIN)).map(|(star, chain)| chain / star);
    Finding::new(
        &format!(
            "{}: a chain would not let 3 copies be written faster than the star (computed)",
            PLACES[place].name
        ),
        gain.map(|gain| gain <= CHAIN_GAIN_MAX),
        format!(
            "a chain would allow {} MB/s, {} times what the star does; measured {} MB/s",
            shown(of(CHAIN)),
            shown(gain),
            shown(of(MEASURED))
        ),
    )
}

fn of_server(figures: &[Figure]) -> Vec<Finding> {
    let of = |key: &str, at: usize| figure(figures, key)?.median(THIS_RUN, at);
    let at_most = |shape: &str, value: Option<f64>, most: f64, unit: &str| {
        Finding::new(shape, value.map(|value| value <= most), format!("{}{unit}", shown(value)))
    };
    let pause = |shape: &str, at: usize, most: f64| {
        let (all, away) = (of("pauses", at), figure(figures, "pauses").and_then(|it| it.median(AWAY, at)));
        let text = format!("{} s; {} s while the server was away", shown(all), shown(away));
        Finding::new(shape, all.map(|seconds| seconds <= most), text)
    };
    let whole = of("whole", 0);
    vec![
        at_most(
            "A data server is killed and started again: no call fails",
            of("failures", 0),
            0.0,
            " failed",
        ),
        at_most("All that was acknowledged is there afterwards", of("failures", 1), 0.0, " blocks differ"),
        pause("No read takes longer than 1 s while a data server dies and returns", 0, READ_PAUSE_S_MAX),
        pause("No write takes longer than 3 s while a data server dies and returns", 1, WRITE_PAUSE_S_MAX),
        Finding::new(
            "All copies are whole again by themselves",
            Some(whole.is_some()),
            whole.map_or("not within the time".to_owned(), |s| {
                format!("{} s after the start", significant(s))
            }),
        ),
    ]
}
