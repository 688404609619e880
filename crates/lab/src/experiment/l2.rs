//! L2: the time of a call between two hosts over 100 Mb/s (the fifth study's Windows table).

use super::calling::{self, Cell, Ends, Measurement, Pair, all_of, limit, mean, range};
use super::calls::{Language, Load, Profile};
use super::outcome::{Figure, Finding, Form, Series};
use super::{About, Experiment, Lab, Measured, Scale, shown};
use crate::Error;
use crate::hosts::{self, BitsPerSecond, Host, Network};
use std::sync::Arc;

/// Remote calls over a network.
pub(super) struct L2;

const LINK: BitsPerSecond = BitsPerSecond(100_000_000);
const METHODS: [&str; 2] = ["boo", "foo"];
const PERCENTILES: [&str; 3] = ["p50", "p95", "p99"];
/// The least and the longest of the study's times, ms.
const STUDY_KEEPALIVE_MS: [f64; 2] = [1.221, 1.476];
const STUDY_CLOSE_MS: [f64; 2] = [2.297, 3.228];
/// The study's pairs differ by no more.
const ALIKE: f64 = 1.25;

impl Experiment for L2 {
    fn about(&self) -> About {
        About {
            id: "L2",
            title: "Remote calls between two hosts over 100 Mb/s: latency by language",
            source: "Cross execution of LuaRPC, Windows table",
            needs: "lua5.4, lua-socket, python3; root for the hosts",
        }
    }

    fn measure(&self, lab: &Lab) -> Result<Measured, Error> {
        let seconds = match lab.scale {
            Scale::Tiny => 0.05,
            Scale::Short => 0.5,
            Scale::Full => 5.0,
        };
        let mut gaps = Vec::new();
        let hosts = two_hosts(&mut gaps)?;
        let ends: Ends<'_> = hosts.as_ref().map(|hosts| (&*hosts.client, &*hosts.server));
        let measured = calling::measure(lab, ends, &cells(seconds), lab.repetitions(), &mut gaps)?;
        let mut figures = Vec::new();
        for method in METHODS {
            figures.extend(Profile::ALL.map(|profile| latency_figure(&measured, method, profile)));
        }
        figures.push(calling::errors_figure(&measured, &Pair::all()));
        let link = match &hosts {
            Some(hosts) => format!(
                "Client and server on hosts (network namespaces) behind {} Mb/s each; their round trip without a \
                 program is {:.3} ms. The study had a switch and network cards, which add their own time.",
                LINK.0 / 1_000_000,
                hosts.client.measured_rtt_to(&hosts.server)?.as_secs_f64() * 1000.0
            ),
            None => "Client and server on this machine over loopback, without a rate.".to_owned(),
        };
        Ok(Measured {
            scale: format!("{seconds} s of calls a cell, in turns, {} repetitions", lab.repetitions()),
            setup: vec![
                link,
                "boo: void result, one inout double. foo, which the study calls and does not show: here two doubles \
                 in, a double and a string of 4 bytes out. raw TCP: the bytes of boo with nothing around them."
                    .to_owned(),
            ],
            figures,
            gaps,
        })
    }

    fn findings(&self, figures: &[Figure]) -> Vec<Finding> {
        let cells = Pair::all().len() * Profile::ALL.len() * METHODS.len();
        let (holds, errors) = calling::errors_of(figures, cells);
        vec![
            Finding::new("Every pair works in both profiles without an error", holds, errors),
            close_takes_longer(figures),
            alike(figures),
            below_the_study(figures),
        ]
    }
}

struct TwoHosts {
    client: Arc<Host>,
    server: Arc<Host>,
    // Keeps the hosts.
    _network: Network,
}

/// Two hosts behind the study's rate; none, and a gap, without root.
fn two_hosts(gaps: &mut Vec<String>) -> Result<Option<TwoHosts>, Error> {
    let mut network = match Network::new() {
        Ok(network) => network,
        Err(error @ hosts::Error::NotRoot { .. }) => {
            gaps.push(format!("the two hosts, so that this ran over loopback: {error}"));
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    let (client, server) = (network.add_host("client")?, network.add_host("server")?);
    client.set_rate(Some(LINK))?;
    server.set_rate(Some(LINK))?;
    Ok(Some(TwoHosts { client, server, _network: network }))
}

/// The pairs of a figure: raw TCP has the bytes of boo only.
fn pairs(method: &str) -> Vec<Pair> {
    let raw = (method == METHODS[0]).then_some(Pair::same(Language::Raw));
    Pair::all().into_iter().chain(raw).collect()
}

fn cells(seconds: f64) -> Vec<Cell> {
    let mut cells = Vec::new();
    for method in METHODS {
        for profile in Profile::ALL {
            let load = Load { profile, method, seconds, is_timed: true };
            cells.extend(pairs(method).into_iter().map(|pair| Cell { pair, load }));
        }
    }
    cells
}

fn key(method: &str, profile: Profile) -> String {
    format!("{method}-{}", profile.name())
}

fn latency_figure(measured: &[Measurement], method: &str, profile: Profile) -> Figure {
    let pairs = pairs(method);
    let x: Vec<String> = pairs.iter().map(|pair| pair.name()).collect();
    let title = format!("The time of {method}, {}", profile.name());
    let axis = ("client → server", x);
    let mut figure = Figure::new(&key(method, profile), &title, axis, "ms", Form::Bars);
    let study = if profile == Profile::Close { STUDY_CLOSE_MS } else { STUDY_KEEPALIVE_MS };
    for (name, value) in ["least of 2014", "longest of 2014"].into_iter().zip(study) {
        figure.published.push(Series::published(name, &vec![value; pairs.len()]));
    }
    for Measurement { cell, rounds } in measured {
        if (cell.load.method, cell.load.profile) != (method, profile) || rounds.is_empty() {
            continue;
        }
        let Some(at) = pairs.iter().position(|&pair| pair == cell.pair) else { continue };
        for (which, name) in PERCENTILES.into_iter().enumerate() {
            let series = figure.series_mut(name);
            rounds.iter().for_each(|round| series.record(at, round.latency_ms[which]));
        }
        figure.series_mut(PERCENTILES[0]).limited_by(at, &limit(&rounds.iter().collect::<Vec<_>>()));
    }
    figure
}

/// The median calls of all pairs of languages, ms.
fn medians(figures: &[Figure], method: &str, profile: Profile) -> Option<Vec<f64>> {
    let key = key(method, profile);
    all_of((0..Pair::all().len()).map(|at| mean(figures, &key, PERCENTILES[0], at)))
}

fn close_takes_longer(figures: &[Figure]) -> Finding {
    let (kept, close) =
        (medians(figures, "foo", Profile::Keepalive), medians(figures, "foo", Profile::Close));
    let ratios = close
        .zip(kept)
        .map(|(close, kept)| close.iter().zip(&kept).map(|(c, k)| c / k).collect::<Vec<f64>>());
    let range = ratios.as_deref().and_then(range);
    Finding::new(
        "A connection for each call takes longer, in every pair (1.7 to 2.5 times in the study)",
        range.map(|(least, _)| least > 1.0),
        format!("{} to {} times", shown(range.map(|(least, _)| least)), shown(range.map(|(_, most)| most))),
    )
}

fn alike(figures: &[Figure]) -> Finding {
    let medians = medians(figures, "foo", Profile::Keepalive);
    let ratio = medians.as_deref().and_then(range).map(|(least, most)| most / least);
    Finding::new(
        "With keepalive all pairs are alike: the longest at most 1.25 times the least (1.21 in the study, all in Lua)",
        ratio.map(|ratio| ratio <= ALIKE),
        format!("{} times; without a real network's own time the languages show", shown(ratio)),
    )
}

fn below_the_study(figures: &[Figure]) -> Finding {
    let most = medians(figures, "foo", Profile::Keepalive).as_deref().and_then(range).map(|(_, most)| most);
    Finding::new(
        "With keepalive every pair's median is below the study's least, 1.221 ms",
        most.map(|most| most < STUDY_KEEPALIVE_MS[0]),
        format!("the longest: {} ms", shown(most)),
    )
}

#[cfg(test)]
mod tests {
    use super::super::calling::{measurement, round};
    use super::super::outcome::Holds;
    use super::*;

    /// Each pair's median: of boo as much as of foo.
    fn figures(kept_ms: f64, close_ms: f64) -> Vec<Figure> {
        let mut measured = Vec::new();
        for cell in cells(1.0) {
            let mut round = round(9, 0.2, 0.2);
            let ms = if cell.load.profile == Profile::Close { close_ms } else { kept_ms };
            round.latency_ms = [ms, 2.0 * ms, 3.0 * ms];
            let mut measurement = measurement(cell.pair, cell.load.profile, vec![round]);
            measurement.cell = cell;
            measured.push(measurement);
        }
        let mut figures = Vec::new();
        for method in METHODS {
            figures.extend(Profile::ALL.map(|profile| latency_figure(&measured, method, profile)));
        }
        figures.push(calling::errors_figure(&measured, &Pair::all()));
        figures
    }

    fn judged(figures: &[Figure]) -> Vec<Holds> {
        L2.findings(figures).iter().map(|finding| finding.holds).collect()
    }

    #[test]
    fn the_shapes_of_the_study_s_network_are_judged_on_medians() {
        assert_eq!(judged(&figures(0.2, 0.5)), [Holds::Yes; 4]);
        assert_eq!(judged(&figures(1.3, 1.2)), [Holds::Yes, Holds::No, Holds::Yes, Holds::No]);
        let mut figures = figures(0.2, 0.5);
        figures[2].series_mut("p50").points[4].values = vec![0.3];
        assert_eq!(judged(&figures)[2], Holds::No);
    }
}
