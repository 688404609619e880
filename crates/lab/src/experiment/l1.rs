//! L1: calls a second of every client against every server, connections kept and not (the fifth study's Linux table).

use super::calling::{self, Cell, Measurement, Pair, all_of, limit, mean, range};
use super::calls::{Language, Load, Profile};
use super::outcome::{Figure, Finding, Form, Series};
use super::{About, Experiment, Lab, Measured, Scale, shown};
use crate::Error;
use crate::report::size::significant;
use std::fs;

/// Remote calls on one machine.
pub(super) struct L1;

const ROUNDS: u32 = 5;
const CYCLES: &str = "cycles";
const CEILINGS: &str = "ceilings";
const RAW_CALLER: &str = "raw TCP → Rust";
/// The study's best pairs, and its least, calls a second.
const STUDY_KEEPALIVE: [f64; 2] = [18_328.0, 12_854.0];
const STUDY_CLOSE: [f64; 2] = [6533.0, 4846.0];
/// The study's machine, a Core 2 Duo E8400.
const STUDY_MHZ: f64 = 3000.0;
/// What the issue of these calls asks for: of the study's best by cycles, and of raw TCP.
const LUA_OF_STUDY_MIN: f64 = 1.5;
const RUST_OF_RAW_MIN: f64 = 0.9;
/// The study's pairs differ by no more.
const ALIKE: f64 = 1.5;

impl Experiment for L1 {
    fn about(&self) -> About {
        About {
            id: "L1",
            title: "Remote calls: every client against every server, connections kept or not",
            source: "Cross execution of LuaRPC, Linux table",
            needs: "lua5.4, lua-socket, python3; grpcio to compare with",
        }
    }

    fn measure(&self, lab: &Lab) -> Result<Measured, Error> {
        let (rounds, seconds) = match lab.scale {
            Scale::Tiny => (1, 0.05),
            Scale::Short => (ROUNDS, 0.5),
            Scale::Full => (ROUNDS, 5.0),
        };
        let rounds = rounds * lab.repeat.unwrap_or(1);
        let mut gaps = Vec::new();
        let measured = calling::measure(lab, None, &cells(seconds), rounds, &mut gaps)?;
        let mut figures: Vec<Figure> =
            Profile::ALL.iter().map(|&profile| rate_figure(&measured, profile)).collect();
        figures.push(ceilings_figure(&measured));
        match megahertz() {
            Some(mhz) => figures.push(cycles_figure(&measured, mhz)),
            None => {
                gaps.push("calls by cycles: /proc/cpuinfo does not tell the processor's clock".to_owned())
            }
        }
        figures.push(calling::errors_figure(&measured, &Pair::all()));
        figures.push(study_figure());
        Ok(Measured {
            scale: format!(
                "{rounds} rounds of {seconds} s a cell, in turns; of three and more the best and the worst are dropped"
            ),
            setup: vec![
                "One client calls one server, both processes of this machine, over loopback: boo(1), void result, \
                 one inout double."
                    .to_owned(),
                "raw TCP: the bytes of the same calls with nothing around them; raw TCP → Rust: sent in the same \
                 way to the Rust server. gRPC: grpcio of Python at both ends, these bytes as messages, for close \
                 a channel for each call."
                    .to_owned(),
                format!(
                    "By cycles: calls a second of processor time of both processes, divided by the clock (here \
                     {} MHz). The study tells no processor time; in it client and server take turns, so that one \
                     processor's {STUDY_MHZ} MHz stand against its best pair.",
                    megahertz().map_or("unknown".to_owned(), |mhz| format!("{mhz:.0}"))
                ),
            ],
            figures,
            gaps,
        })
    }

    fn findings(&self, figures: &[Figure]) -> Vec<Finding> {
        let (holds, errors) = calling::errors_of(figures, Pair::all().len() * Profile::ALL.len());
        vec![
            Finding::new(
                "Every pair works in both profiles without an error; in the study 6 of 9 broke",
                holds,
                errors,
            ),
            kept_is_faster(figures),
            alike(figures),
            against_the_study(figures),
            against_raw(figures),
        ]
    }
}

fn cells(seconds: f64) -> Vec<Cell> {
    let extra = [
        Pair::same(Language::Raw),
        Pair { client: Language::Raw, server: Language::Rust },
        Pair::same(Language::Grpc),
    ];
    let pairs: Vec<Pair> = Pair::all().into_iter().chain(extra).collect();
    let cell = |profile| {
        let load = Load { profile, method: "boo", seconds, is_timed: false };
        pairs.iter().map(move |&pair| Cell { pair, load })
    };
    Profile::ALL.into_iter().flat_map(cell).collect()
}

fn client(language: Language) -> String {
    format!("{} client", language.name())
}

fn servers() -> Vec<String> {
    Language::OF_CALLS.map(|language| format!("{} server", language.name())).to_vec()
}

/// The measurements between languages in one profile, each with the place of its server.
fn of_profile(measured: &[Measurement], profile: Profile) -> impl Iterator<Item = (usize, &Measurement)> {
    measured.iter().filter_map(move |measurement| {
        let Cell { pair, load } = measurement.cell;
        let at = Language::OF_CALLS.iter().position(|&language| language == pair.server)?;
        let is_ours = Language::OF_CALLS.contains(&pair.client) && load.profile == profile;
        (is_ours && !measurement.rounds.is_empty()).then_some((at, measurement))
    })
}

fn rate_figure(measured: &[Measurement], profile: Profile) -> Figure {
    let title = format!("Calls a second on one connection, {}", profile.name());
    let mut figure = Figure::new(profile.name(), &title, ("server", servers()), "calls/s", Form::Bars);
    let [best, least] = if profile == Profile::Close { STUDY_CLOSE } else { STUDY_KEEPALIVE };
    figure.published.push(Series::published("best pair of 2014", &[best; 3]));
    figure.published.push(Series::published("least pair of 2014", &[least; 3]));
    for (at, measurement) in of_profile(measured, profile) {
        let kept = measurement.kept();
        let series = figure.series_mut(&client(measurement.cell.pair.client));
        kept.iter().for_each(|round| series.record(at, round.calls as f64 / round.seconds));
        series.limited_by(at, &limit(&kept));
    }
    figure
}

fn ceilings_figure(measured: &[Measurement]) -> Figure {
    let x = Profile::ALL.map(|profile| profile.name().to_owned()).to_vec();
    let title = "Beside raw TCP with the same bytes, and gRPC";
    let mut figure = Figure::new(CEILINGS, title, ("profile", x), "calls/s", Form::Bars);
    for measurement in measured {
        let pair = measurement.cell.pair;
        if pair.client != pair.server && pair.client != Language::Raw {
            continue;
        }
        let at = usize::from(measurement.cell.load.profile == Profile::Close);
        let kept = measurement.kept();
        let series = figure.series_mut(&pair.name());
        kept.iter().for_each(|round| series.record(at, round.calls as f64 / round.seconds));
        series.limited_by(at, &limit(&kept));
    }
    figure
}

fn cycles_figure(measured: &[Measurement], mhz: f64) -> Figure {
    let title = "Calls by cycles of client and server, keepalive";
    let mut figure = Figure::new(CYCLES, title, ("server", servers()), "calls in 10⁶ cycles", Form::Bars);
    figure.published.push(Series::published("best pair of 2014", &[study_by_cycles(); 3]));
    for (at, measurement) in of_profile(measured, Profile::Keepalive) {
        let series = figure.series_mut(&client(measurement.cell.pair.client));
        for round in measurement.kept() {
            // The server's time comes in ticks of 10 ms: less than one was not seen.
            let processor_s = (round.client_s + round.server_s).max(0.01);
            series.record(at, round.calls as f64 / processor_s / mhz);
        }
    }
    figure
}

fn study_by_cycles() -> f64 {
    STUDY_KEEPALIVE[0] / STUDY_MHZ
}

/// The study's whole table; it has no rate where its client broke.
fn study_figure() -> Figure {
    let x = ["juarez server", "marcelo server", "rogerio server"].map(str::to_owned).to_vec();
    let title = "The study's table: keepalive, and close where it did not break";
    let mut figure = Figure::new("study", title, ("server", x), "calls/s", Form::Bars);
    figure.published = vec![
        Series::published("juarez client", &[18_173.0, 12_854.0, 13_380.0]),
        Series::published("marcelo client", &[18_328.0, 15_131.0, 13_282.0]),
        Series::published("rogerio client", &[17_094.0, 14_436.0, 14_663.0]),
        Series::published("rogerio client, close", &[6533.0, 6253.0, 4846.0]),
    ];
    figure
}

/// The clock of the first processor at this moment.
fn megahertz() -> Option<f64> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("cpu MHz"))?;
    line.split_once(':')?.1.trim().parse().ok().filter(|&mhz| mhz > 0.0)
}

/// Calls a second of all pairs, client by client.
fn rates(figures: &[Figure], profile: Profile) -> Option<Vec<f64>> {
    let of = |of: Language| (0..3).map(move |at| mean(figures, profile.name(), &client(of), at));
    all_of(Language::OF_CALLS.into_iter().flat_map(of))
}

fn kept_is_faster(figures: &[Figure]) -> Finding {
    let gains = rates(figures, Profile::Keepalive).zip(rates(figures, Profile::Close));
    let gains = gains.map(|(kept, close)| kept.iter().zip(&close).map(|(k, c)| k / c).collect::<Vec<f64>>());
    let range = gains.as_deref().and_then(range);
    Finding::new(
        "A connection that is kept carries more calls, in every pair (2.3 to 3.0 times in the study)",
        range.map(|(least, _)| least > 1.0),
        format!("{} to {} times", shown(range.map(|(least, _)| least)), shown(range.map(|(_, most)| most))),
    )
}

fn alike(figures: &[Figure]) -> Finding {
    let rates = rates(figures, Profile::Keepalive);
    let ratio = rates.as_deref().and_then(range).map(|(least, most)| most / least);
    // One language cannot differ from itself: the study's three implementations were all in Lua.
    let lua = mean(figures, Profile::Keepalive.name(), &client(Language::Lua), 1);
    Finding::new(
        "With keepalive all pairs are alike: the best at most 1.5 times the least (1.43 in the study, all in Lua)",
        ratio.map(|ratio| ratio <= ALIKE),
        format!(
            "{} times, by language: Lua → Lua {} calls/s; who computes longest is under \"limited by\"",
            shown(ratio),
            shown(lua)
        ),
    )
}

fn against_the_study(figures: &[Figure]) -> Finding {
    let lua = mean(figures, CYCLES, &client(Language::Lua), 1).map(|calls| calls / study_by_cycles());
    Finding::new(
        "Lua → Lua, keepalive: at least 1.5 times the study's best pair by cycles",
        lua.map(|times| times >= LUA_OF_STUDY_MIN),
        format!("{} times", shown(lua)),
    )
}

fn against_raw(figures: &[Figure]) -> Finding {
    let (server, raw) =
        (mean(figures, CEILINGS, RAW_CALLER, 0), mean(figures, CEILINGS, Language::Raw.name(), 0));
    let share = server.zip(raw).map(|(server, raw)| server / raw);
    Finding::new(
        "The Rust server answers at least 90 % of raw TCP's round trips on one connection",
        share.map(|share| share >= RUST_OF_RAW_MIN),
        format!(
            "{} of {} a second: {} %",
            server.map_or(shown(None), significant),
            shown(raw),
            shown(share.map(|share| share * 100.0))
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::super::calling::{measurement, round};
    use super::super::outcome::Holds;
    use super::*;

    /// `kept` and `close` calls a second of each pair, half the time computed by the client.
    fn figures(kept: u64, close: u64, raw: u64) -> Vec<Figure> {
        let rounds = |calls| [calls, calls, calls].map(|calls| round(calls, 0.5, 0.4)).to_vec();
        let mut measured = Vec::new();
        for pair in Pair::all() {
            measured.push(measurement(pair, Profile::Keepalive, rounds(kept)));
            measured.push(measurement(pair, Profile::Close, rounds(close)));
        }
        for (client, calls) in [(Language::Raw, raw), (Language::Rust, kept)] {
            let server = if client == Language::Raw { client } else { Language::Rust };
            measured.push(measurement(
                Pair { client: Language::Raw, server },
                Profile::Keepalive,
                rounds(calls),
            ));
        }
        let mut figures: Vec<Figure> = Profile::ALL.map(|profile| rate_figure(&measured, profile)).to_vec();
        figures.extend([ceilings_figure(&measured), cycles_figure(&measured, 3000.0)]);
        figures.push(calling::errors_figure(&measured, &Pair::all()));
        figures
    }

    fn judged(figures: &[Figure]) -> Vec<Holds> {
        L1.findings(figures).iter().map(|finding| finding.holds).collect()
    }

    #[test]
    fn the_shapes_of_the_study_are_judged_on_all_pairs() {
        assert_eq!(judged(&figures(30_000, 10_000, 33_000)), [Holds::Yes; 5]);
        // Slower kept than not, half the study's best by cycles, half of raw TCP.
        let holds = judged(&figures(9_000, 10_000, 18_000));
        assert_eq!(holds, [Holds::Yes, Holds::No, Holds::Yes, Holds::No, Holds::No]);
    }

    #[test]
    fn a_pair_that_was_not_measured_is_told_and_not_judged() {
        let mut figures = figures(30_000, 10_000, 33_000);
        for figure in &mut figures {
            figure.series.retain(|series| series.name != "Lua client");
        }
        let unknown = Holds::Unknown;
        assert_eq!(judged(&figures)[1..], [unknown, unknown, unknown, Holds::Yes]);
    }
}
