//! `vazao scrub`: has the servers compare everything on their disks with its checksums, or all copies of files with one
//! another.

mod compare;
pub(super) mod waiting;

use super::metadata::check;
use crate::cli::Results;
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::format::{self, Lean};
use crate::output::Output;
use clap::Args;
use serde_json::{Value, json};
use std::ffi::OsString;
use vazao_client::{Client, MetadataReport, ScrubOrder, ScrubReport, ScrubState};
use vazao_model::TargetId;
use waiting::{Orders, Stand, state_word};

/// What is behind the options in `--help`.
const AFTER_HELP: &str = "\
Examples:
  vazao scrub
  vazao scrub t3 --rate 50M
  vazao scrub --background && vazao scrub --report --json | jq .targets
  vazao scrub --compare vz:/data --rate 200M
  vazao scrub --compare --repair vz:/data/file

What it does:
  The servers read every block from their disks, at most RATE bytes a second on each target,
  and compare it with its checksum; reading and writing go on meanwhile. Without targets
  named the metadata is checked as well, as by `vazao metadata check`.

With --compare:
  The servers compare all copies of each file below the paths (default: the whole volume),
  block by block, while programs go on; it proves that they are equal, as readers get them.
  A damaged block is repaired from a good copy. Where checksums match and contents differ,
  --repair replaces them by the copy that leads its placement group; without it they are
  only reported. Servers that have not caught up are not compared. RATE is that of each copy.

When it is interrupted:
  The servers go on: --stop ends it, --report shows how far they are. --compare ends at once.

What it finds:
  A damaged block of a file with several copies is repaired from a good one, and counts as
  repaired. Other damage counts in `vazao status` until it is written anew or removed. Exit
  code 1: there is some that was not repaired, or with --compare copies that are not equal.";

/// Arguments of `vazao scrub`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Targets, as `vazao status` names them [default: all]; with --compare vz:/PATHs [default: vz:/]
    #[arg(value_name = "TARGET|vz:/PATH")]
    names: Vec<OsString>,
    /// Compare all copies of files with one another
    #[arg(long, conflicts_with_all = ["background", "report", "stop"])]
    compare: bool,
    /// Where copies differ, make them as the one that leads
    #[arg(long, requires = "compare")]
    repair: bool,
    #[command(flatten)]
    orders: Orders,
    #[command(flatten)]
    results: Results,
}

/// Does it.
pub(crate) fn run(context: &Context, arguments: Arguments) -> Outcome {
    let client = context.client()?;
    if arguments.compare {
        let mut output = Output::new(arguments.results.json);
        let compared = compare::run(&client, &mut output, &arguments);
        output.finish()?;
        client.close()?;
        return compared;
    }
    let targets = targets(&client, &arguments.names)?;
    let with_metadata = arguments.names.is_empty();
    let ask = |order| Found::ask(&client, &targets, with_metadata, order);
    let mut found = ask(arguments.orders.order())?;
    if arguments.orders.waits() {
        found = waiting::follow(!arguments.results.json, || ask(ScrubOrder::Report), Found::stand)?;
    }
    client.close()?;
    let mut output = Output::new(arguments.results.json);
    if output.json {
        output.value(&json!({
            "targets": found.targets.iter().map(to_json).collect::<Vec<_>>(),
            "metadata": found.metadata.as_ref().map(check::to_json),
        }))?;
    } else {
        show(&mut output, &found.targets)?;
        found.metadata.iter().try_for_each(|report| check::show(&mut output, report))?;
    }
    output.finish()?;
    if found.is_bad() { Err(Failure::Reported) } else { Ok(()) }
}

/// What the servers say.
struct Found {
    targets: Vec<ScrubReport>,
    /// Absent where targets were named.
    metadata: Option<MetadataReport>,
}

impl Found {
    fn ask(client: &Client, targets: &[TargetId], with_metadata: bool, order: ScrubOrder) -> Outcome<Found> {
        let metadata = with_metadata.then(|| client.administration().check_metadata(order)).transpose()?;
        let ask = |target: &TargetId| Ok(client.administration().scrub(*target, order)?);
        Ok(Found { targets: targets.iter().map(ask).collect::<Outcome<_>>()?, metadata })
    }

    fn stand(&self) -> Stand {
        let sum = |of: fn(&ScrubReport) -> u64| self.targets.iter().map(of).sum::<u64>();
        let shares = self.targets.iter().map(|report| report.share);
        let shares: Vec<f64> = shares.chain(self.metadata.as_ref().map(|report| report.share)).collect();
        let (bytes, bad) = (sum(|r| r.bytes), sum(|r| r.damaged + r.unreadable));
        Stand {
            share: shares.iter().sum::<f64>() / shares.len().max(1) as f64,
            message: format!("{} checked, {bad} damaged", format::size(bytes)),
            is_running: self.is_running(),
        }
    }

    fn is_running(&self) -> bool {
        self.targets.iter().any(|report| report.state == ScrubState::Running)
            || self.metadata.as_ref().is_some_and(|report| report.state == ScrubState::Running)
    }

    fn is_bad(&self) -> bool {
        let is_bad = |report: &ScrubReport| {
            report.damaged.saturating_sub(report.repaired) + report.unreadable > 0
                || report.state == ScrubState::Failed
        };
        self.targets.iter().any(is_bad) || self.metadata.as_ref().is_some_and(check::is_bad)
    }
}

/// Those named; else all that can be read.
fn targets(client: &Client, named: &[OsString]) -> Outcome<Vec<TargetId>> {
    if let Some(path) = named.iter().find(|name| name.as_encoded_bytes().starts_with(b"vz:")) {
        let path = path.to_string_lossy();
        return Err(Failure::usage(format!("{path} is no target; --compare compares the copies of files")));
    }
    if !named.is_empty() {
        let find = |name: &OsString| client.administration().find_target(&name.to_string_lossy());
        return named.iter().map(|name| Ok(find(name)?)).collect();
    }
    let map = client.refresh_map()?;
    let readable = map.targets.iter().filter(|target| target.state.is_readable());
    let all: Vec<TargetId> = readable.map(|target| target.id).collect();
    if all.is_empty() {
        return Err(Failure::new("the volume has no targets that could be read; see `vazao status`"));
    }
    Ok(all)
}

fn show(output: &mut Output, reports: &[ScrubReport]) -> Outcome {
    let head = [
        ("TARGET", Lean::Left),
        ("SCRUB", Lean::Left),
        ("DONE", Lean::Right),
        ("OBJECTS", Lean::Right),
        ("CHECKED", Lean::Right),
        ("DAMAGED", Lean::Right),
        ("REPAIRED", Lean::Right),
        ("UNREADABLE", Lean::Right),
        ("TIME", Lean::Right),
    ];
    let row = |report: &ScrubReport| {
        vec![
            report.target.to_string(),
            state_word(report.state).to_owned(),
            format!("{:.0}%", report.share * 100.0),
            report.objects.to_string(),
            format::size(report.bytes),
            report.damaged.to_string(),
            report.repaired.to_string(),
            report.unreadable.to_string(),
            format::duration(report.elapsed_ms * 1_000_000),
        ]
    };
    output.text(&format::table(&head, &reports.iter().map(row).collect::<Vec<_>>()))?;
    for report in reports {
        if !report.trouble.is_empty() {
            output.line(&format!("{}: {}", report.target, report.trouble))?;
        }
        for found in &report.findings {
            let (object, offset) = (found.object, found.offset);
            output.line(&format!(
                "{}: inode {}, object {object}, byte {offset}: {}",
                report.target, object.inode.0, found.what
            ))?;
        }
    }
    Ok(())
}

fn to_json(report: &ScrubReport) -> Value {
    let finding = |found: &vazao_client::ScrubFinding| {
        json!({
            "inode": found.object.inode.0,
            "generation": found.object.generation,
            "slot": found.object.slot,
            "offset": found.offset,
            "what": found.what,
        })
    };
    json!({
        "target": report.target.0,
        "state": state_word(report.state),
        "share": report.share,
        "objects": report.objects,
        "bytes": report.bytes,
        "damaged": report.damaged,
        "repaired": report.repaired,
        "unreadable": report.unreadable,
        "elapsed_ms": report.elapsed_ms,
        "rate_bytes": report.rate_bytes,
        "trouble": report.trouble,
        "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
    })
}
