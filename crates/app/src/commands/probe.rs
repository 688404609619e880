//! `vazao probe`: what a pair of nodes can do for copies between them, and what limits it.

use crate::cli::Results;
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::format::{self, Lean};
use crate::output::Output;
use clap::Args;
use serde_json::json;
use vazao_client::Client;
use vazao_client::area::Reference;
use vazao_meter::SystemClock;
use vazao_mover::probing::{BYTES_MAX, Course, MILLISECONDS_MAX, Measured, Rates, STREAMS_MAX, probe};

/// Arguments of `vazao probe`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  vazao probe n1 n9\n  vazao probe n1:/data n9:/incoming        the disks of these areas\n  vazao probe n1 n9 --streams 1,16 --seconds 5 --json\n\nFrom memory to memory by each number of streams, then from disk to memory and from memory to disk by the best of\nthem. Nothing is copied; for a disk up to 256 MiB are written to a file without a name."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    results: Results,
    /// Connections at once
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 2, 4, 8])]
    streams: Vec<u32>,
    /// How long each measurement sends
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    seconds: f64,
    /// How much each measurement sends at most
    #[arg(long, value_name = "SIZE", default_value = "4GiB")]
    bytes: String,
    /// Leave out the disks
    #[arg(long)]
    no_disks: bool,
    /// The node that sends, or an area of it
    #[arg(value_name = "NODE[:/AREA]")]
    from: String,
    /// The node that receives, or an area of it
    #[arg(value_name = "NODE[:/AREA]")]
    to: String,
}

/// A node, and the area whose disk is meant; empty for the daemon's own directory.
struct End {
    node: String,
    area: String,
}

fn end(text: &str) -> Outcome<End> {
    if !text.contains(':') {
        return Ok(End { node: text.to_owned(), area: String::new() });
    }
    let Reference { node, area, path, .. } = Reference::parse(text.as_bytes())?;
    match path.is_empty() {
        true => Ok(End { node, area }),
        false => Err(Failure::usage(format!("{text}: a node or an area, as n1 or n1:/data"))),
    }
}

struct Probing<'a> {
    client: &'a Client,
    from: End,
    to: End,
    milliseconds: u32,
    bytes_max: u64,
    done: Vec<(Course, Measured)>,
}

impl Probing<'_> {
    fn measure(&mut self, streams: u32, from_disk: bool, to_disk: bool) -> Outcome<f64> {
        let course = Course {
            from_disk: from_disk.then(|| self.from.area.clone()),
            to_disk: to_disk.then(|| self.to.area.clone()),
            streams,
            milliseconds: self.milliseconds,
            bytes_max: self.bytes_max,
        };
        let addresses =
            (self.client.node_address(&self.from.node)?, self.client.node_address(&self.to.node)?);
        let transport = self.client.transport();
        let measured = probe(&*transport, &SystemClock, &addresses.0, &addresses.1, &course);
        let measured = measured.map_err(|fault| vazao_client::Error::new(fault.code, fault.detail))?;
        self.done.push((course, measured));
        Ok(measured.rate())
    }

    fn all(&mut self, streams: &[u32], with_disks: bool) -> Outcome<Rates> {
        let mut rates = Rates::default();
        for &count in streams {
            rates.memory.push((count, self.measure(count, false, false)?));
        }
        if with_disks {
            let best = rates.best().0;
            rates.source_disk = Some(self.measure(best, true, false)?);
            rates.destination_disk = Some(self.measure(best, false, true)?);
        }
        let trips = self.done.iter().map(|(_, measured)| measured.round_trip_ns);
        rates.round_trip_ns = trips.min().unwrap_or(0);
        Ok(rates)
    }
}

/// Measures and shows.
pub(crate) fn run(context: &Context, arguments: Arguments) -> Outcome {
    let (from, to) = (end(&arguments.from)?, end(&arguments.to)?);
    let most = f64::from(MILLISECONDS_MAX) / 1e3;
    if !(arguments.seconds > 0.0 && arguments.seconds <= most) {
        return Err(Failure::usage(format!("--seconds: more than 0, at most {most}")));
    }
    let bytes_max =
        vazao_model::size::parse_size(&arguments.bytes).map_err(Failure::usage)?.clamp(1, BYTES_MAX);
    if arguments.streams.is_empty() || arguments.streams.iter().any(|n| !(1..=STREAMS_MAX).contains(n)) {
        return Err(Failure::usage(format!("--streams: numbers from 1 to {STREAMS_MAX}")));
    }
    let client = context.client()?;
    let milliseconds = ((arguments.seconds * 1e3) as u32).max(1);
    let mut probing = Probing { client: &client, from, to, milliseconds, bytes_max, done: Vec::new() };
    let rates = probing.all(&arguments.streams, !arguments.no_disks);
    let shown = rates.and_then(|rates| show(&probing, &rates, arguments.results.json));
    client.close()?;
    shown
}

fn show(probing: &Probing<'_>, rates: &Rates, json: bool) -> Outcome {
    let mut output = Output::new(json);
    let (from, to) = (&probing.from.node, &probing.to.node);
    let limit = rates.limit(from, to);
    let (streams, _) = rates.best();
    if output.json {
        for (course, measured) in &probing.done {
            output.value(&json!({
                "course": course.name(),
                "streams": course.streams,
                "bytes": measured.bytes,
                "seconds": measured.elapsed_ns as f64 / 1e9,
                "bytes_per_second": measured.rate() as u64,
                "round_trip_ms": measured.round_trip_ns as f64 / 1e6,
            }))?;
        }
        let trip = rates.round_trip_ns as f64 / 1e6;
        output.value(&json!({
            "from": from, "to": to, "limit": limit, "streams": streams, "round_trip_ms": trip,
        }))?;
        return output.finish();
    }
    let head = [("COURSE", Lean::Left), ("STREAMS", Lean::Right), ("MB/S", Lean::Right), ("MB", Lean::Right)];
    let row = |(course, measured): &(Course, Measured)| {
        let megabytes = measured.bytes as f64 / 1e6;
        let rate = format!("{:.1}", measured.rate() / 1e6);
        vec![course.name(), course.streams.to_string(), rate, format!("{megabytes:.1}")]
    };
    let rows: Vec<Vec<String>> = probing.done.iter().map(row).collect();
    output.text(&format::table(&head, &rows))?;
    output.line(&format!("round trip {:.2} ms", rates.round_trip_ns as f64 / 1e6))?;
    output.line(&format!("limit: {limit}"))?;
    output.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_a_node_or_an_area_of_it() {
        let parts = |text: &str| end(text).map(|end| (end.node, end.area));
        assert_eq!(parts("n1"), Ok(("n1".into(), String::new())));
        assert_eq!(parts("n1:/data"), Ok(("n1".into(), "data".into())));
        assert!(parts("n1:/data/x").is_err() && parts("n1:data").is_err());
    }
}
