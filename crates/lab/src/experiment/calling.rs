//! The pairs of L1 and L2: every client of remote calls against every server, and what came of it.

use super::calls::{Language, Load, Profile, Programs, Round, Server};
use super::outcome::{Figure, Form};
use super::{Lab, figure, shown};
use crate::Error;
use crate::hosts::Host;

/// A client and the server that it calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pair {
    pub(super) client: Language,
    pub(super) server: Language,
}

impl Pair {
    pub(super) fn same(language: Language) -> Pair {
        Pair { client: language, server: language }
    }

    /// Every client with every server, client by client.
    pub(super) fn all() -> Vec<Pair> {
        let of = |client| Language::OF_CALLS.map(|server| Pair { client, server });
        Language::OF_CALLS.into_iter().flat_map(of).collect()
    }

    pub(super) fn name(self) -> String {
        if self.client == self.server && !Language::OF_CALLS.contains(&self.client) {
            return self.client.name().to_owned();
        }
        format!("{} → {}", self.client.name(), self.server.name())
    }
}

/// One place of the plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    pub(super) pair: Pair,
    pub(super) load: Load,
}

/// All rounds of one cell.
#[derive(Clone, Debug)]
pub(super) struct Measurement {
    pub(super) cell: Cell,
    pub(super) rounds: Vec<Round>,
}

/// Beyond the time of calling: what starting a client may take on a busy machine.
const START_SECONDS: f64 = 10.0;

/// Where clients and servers run; without hosts on this one, over loopback.
pub(super) type Ends<'a> = Option<(&'a Host, &'a Host)>;

/// Calls cell after cell, round after round, so that all see the same machine. What cannot be run is a gap.
pub(super) fn measure(
    lab: &Lab,
    ends: Ends<'_>,
    cells: &[Cell],
    rounds: u32,
    gaps: &mut Vec<String>,
) -> Result<Vec<Measurement>, Error> {
    let programs = Programs::unpack(lab)?;
    let cells = possible(&programs, cells, gaps);
    let a_round: f64 = cells.iter().map(|cell| cell.load.seconds + START_SECONDS).sum();
    let lifetime = a_round * f64::from(rounds) + START_SECONDS * cells.len() as f64;
    let mut servers: Vec<(Language, Profile, Server)> = Vec::new();
    for cell in &cells {
        let (language, profile) = (cell.pair.server, cell.load.profile);
        if !servers.iter().any(|(of, kept, _)| (*of, *kept) == (language, profile)) {
            let server = programs.serve(language, profile, ends.map(|(_, server)| server), lifetime)?;
            servers.push((language, profile, server));
        }
    }
    let mut measured: Vec<Measurement> =
        cells.iter().map(|&cell| Measurement { cell, rounds: Vec::new() }).collect();
    for _ in 0..rounds {
        for Measurement { cell, rounds } in &mut measured {
            lab.check()?;
            let key = (cell.pair.server, cell.load.profile);
            let server = servers.iter().find(|(of, kept, _)| (*of, *kept) == key);
            let (_, _, server) = server.expect("one was started for each cell");
            match programs.call(cell.pair.client, ends.map(|(client, _)| client), server, &cell.load) {
                Ok(round) => rounds.push(round),
                Err(error) => gaps.push(format!("{}: {error}", cell.name())),
            }
        }
    }
    gaps.extend(measured.iter().filter_map(Measurement::failures));
    Ok(measured)
}

/// The cells whose programs can be run here; for each language that cannot, a gap says what helps.
fn possible(programs: &Programs<'_>, cells: &[Cell], gaps: &mut Vec<String>) -> Vec<Cell> {
    let all = [Language::Rust, Language::Lua, Language::Python, Language::Raw, Language::Grpc];
    let takes = |cell: &Cell, language| cell.pair.client == language || cell.pair.server == language;
    let mut cells = cells.to_vec();
    for language in all {
        if !cells.iter().any(|cell| takes(cell, language)) {
            continue;
        }
        if let Some(why) = programs.why_missing(language) {
            gaps.push(why);
            cells.retain(|cell| !takes(cell, language));
        }
    }
    cells
}

impl Cell {
    fn name(&self) -> String {
        format!("{}, {}, {}", self.pair.name(), self.load.profile.name(), self.load.method)
    }
}

impl Measurement {
    /// Failed calls of all rounds.
    pub(super) fn errors(&self) -> u64 {
        self.rounds.iter().map(|round| round.errors).sum()
    }

    fn failures(&self) -> Option<String> {
        let failed = self.rounds.iter().rfind(|round| round.errors > 0)?;
        let calls: u64 = self.rounds.iter().map(|round| round.calls).sum();
        let (name, errors) = (self.cell.name(), self.errors());
        Some(format!("{name}: {errors} calls failed beside {calls} that did not; the last: {}", failed.error))
    }

    /// The rounds without those with the most and the fewest calls, as the study has it.
    pub(super) fn kept(&self) -> Vec<&Round> {
        let mut rounds: Vec<&Round> = self.rounds.iter().collect();
        rounds.sort_by_key(|round| round.calls);
        if rounds.len() > 2 {
            rounds.pop();
            rounds.remove(0);
        }
        rounds
    }
}

/// What the time of a call is spent on: the largest part is its limit.
pub(super) fn limit(rounds: &[&Round]) -> String {
    let sum = |of: fn(&Round) -> f64| rounds.iter().map(|round| of(round)).sum::<f64>();
    let seconds = sum(|round| round.seconds).max(f64::MIN_POSITIVE);
    let (client, server) = (sum(|round| round.client_s) / seconds, sum(|round| round.server_s) / seconds);
    let rest = (1.0 - client - server).max(0.0);
    let name = if client >= server && client >= rest {
        "processor of the client"
    } else if server >= rest {
        "processor of the server"
    } else {
        "round trip"
    };
    let [client, server, rest] = [client, server, rest].map(|share| share * 100.0);
    format!("{name} (client computes {client:.0} % of the time, server {server:.0} %, neither {rest:.0} %)")
}

/// Failed calls, by profile and pair.
pub(super) fn errors_figure(measured: &[Measurement], pairs: &[Pair]) -> Figure {
    let x: Vec<String> = pairs.iter().map(|pair| pair.name()).collect();
    let title = "Failed calls, in all rounds";
    let mut errors = Figure::new("errors", title, ("client → server", x), "calls", Form::Bars);
    for measurement in measured.iter().filter(|measurement| !measurement.rounds.is_empty()) {
        let Some(at) = pairs.iter().position(|&pair| pair == measurement.cell.pair) else { continue };
        let Load { profile, method, .. } = measurement.cell.load;
        let name = format!("{method}, {}", profile.name());
        errors.series_mut(&name).record(at, measurement.errors() as f64);
    }
    errors
}

/// Failed calls of all cells of [`errors_figure`]; none when one of its `cells` is missing. And in words.
pub(super) fn errors_of(figures: &[Figure], cells: usize) -> (Option<bool>, String) {
    let Some(errors) = figure(figures, "errors") else { return (None, shown(None)) };
    let values: Vec<f64> = errors
        .series
        .iter()
        .flat_map(|series| &series.points)
        .flat_map(|point| &point.values)
        .copied()
        .collect();
    let failed: f64 = values.iter().sum();
    let text = format!("{} of {cells} cells measured, {failed} calls failed", values.len());
    // A failed call says no, whatever else is missing.
    let holds = (failed > 0.0).then_some(false).or((values.len() == cells).then_some(true));
    (holds, text)
}

/// The mean of a point.
pub(super) fn mean(figures: &[Figure], key: &str, series: &str, at: usize) -> Option<f64> {
    let point = figure(figures, key)?.find(series)?.points.iter().find(|point| point.at == at)?;
    point.summary().map(|summary| summary.mean)
}

/// All of them, or none.
pub(super) fn all_of(values: impl IntoIterator<Item = Option<f64>>) -> Option<Vec<f64>> {
    values.into_iter().collect()
}

/// The smallest and the largest.
pub(super) fn range(values: &[f64]) -> Option<(f64, f64)> {
    let least = values.iter().copied().min_by(f64::total_cmp)?;
    let most = values.iter().copied().max_by(f64::total_cmp)?;
    Some((least, most))
}

/// A round of a second, for tests.
#[cfg(test)]
pub(super) fn round(calls: u64, client_s: f64, server_s: f64) -> Round {
    let (errors, seconds, latency_ms, error) = (0, 1.0, [0.1, 0.2, 0.3], String::new());
    Round { calls, errors, seconds, client_s, server_s, latency_ms, error }
}

/// Rounds of `boo`, for tests.
#[cfg(test)]
pub(super) fn measurement(pair: Pair, profile: Profile, rounds: Vec<Round>) -> Measurement {
    let load = Load { profile, method: "boo", seconds: 1.0, is_timed: false };
    Measurement { cell: Cell { pair, load }, rounds }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rounds_with_the_most_and_the_fewest_calls_are_dropped() {
        let rounds = [5, 1, 9, 3, 4].map(|calls| round(calls, 0.5, 0.5)).to_vec();
        let measurement = measurement(Pair::same(Language::Lua), Profile::Close, rounds);
        let kept: Vec<u64> = measurement.kept().iter().map(|round| round.calls).collect();
        assert_eq!(kept, [3, 4, 5]);
    }

    #[test]
    fn the_largest_part_of_a_call_s_time_is_its_limit() {
        let limit_of = |client_s, server_s| limit(&[&round(1, client_s, server_s)]);
        assert!(limit_of(0.5, 0.3).starts_with("processor of the client"));
        assert!(limit_of(0.3, 0.5).starts_with("processor of the server"));
        let limit = limit_of(0.2, 0.3);
        assert!(limit.starts_with("round trip") && limit.contains("neither 50 %"), "{limit}");
    }

    #[test]
    fn a_missing_cell_is_not_measured_and_a_failed_call_says_no() {
        let pairs = Pair::all();
        let of = |pair: &Pair| measurement(*pair, Profile::Close, vec![round(3, 0.5, 0.5)]);
        let mut measured: Vec<Measurement> = pairs.iter().map(of).collect();
        let holds = |measured: &[Measurement]| errors_of(&[errors_figure(measured, &pairs)], 9).0;
        assert_eq!(holds(&measured), Some(true));
        assert_eq!(holds(&measured[1..]), None);
        measured[4].rounds[0].errors = 1;
        assert_eq!(holds(&measured[1..]), Some(false));
        assert!(
            measured[4].failures().unwrap().starts_with("Lua → Lua, close, boo: 1 calls failed beside 3")
        );
    }
}
