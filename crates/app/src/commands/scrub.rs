//! `vazao scrub`: has the data servers compare everything on their disks with its checksums.

use crate::cli::Results;
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::format::{self, Lean};
use crate::output::Output;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use std::time::Duration;
use vazao_client::{Client, ScrubOrder, ScrubReport, ScrubState};
use vazao_meter::Clock;
use vazao_model::{TargetId, TargetState};

/// How often the servers are asked how far they are.
const POLL: Duration = Duration::from_millis(300);

/// Parts of the bar.
const BAR_PARTS: u64 = 10_000;

/// Arguments of `vazao scrub`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  vazao scrub\n  vazao scrub t3 --rate 50M\n  vazao scrub --background && vazao scrub --report --json | jq .targets\n\nThe servers read every block from their disks, at most RATE bytes a second on each target, and compare it with its checksum; reading\nand writing go on meanwhile. They go on when this command is interrupted: --stop ends it, --report shows how far they are.\nDamage also counts in `vazao status` until it is written anew or removed. Exit code 1: there is some."
)]
pub(crate) struct Arguments {
    /// Targets, as `vazao status` names them [default: all]
    targets: Vec<String>,
    /// Bytes a second on each target, as 50M; 0: as fast as the disk is
    #[arg(long, value_name = "SIZE", value_parser = format::parse_size, default_value = "100M")]
    rate: u64,
    /// Start it and do not wait for its end
    #[arg(long, conflicts_with_all = ["stop", "report"])]
    background: bool,
    /// Only show how far it is, or what the last one found
    #[arg(long)]
    report: bool,
    /// End it
    #[arg(long, conflicts_with = "report")]
    stop: bool,
    #[command(flatten)]
    results: Results,
}

/// Does it.
pub(crate) fn run(context: &Context, arguments: Arguments) -> Outcome {
    let client = context.client()?;
    let targets = targets(&client, &arguments.targets)?;
    let order = match (arguments.report, arguments.stop) {
        (true, _) => ScrubOrder::Report,
        (_, true) => ScrubOrder::Stop,
        _ => ScrubOrder::Start(arguments.rate),
    };
    let mut reports = ask(&client, &targets, order)?;
    if matches!(order, ScrubOrder::Start(_)) && !arguments.background {
        reports = follow(&client, &targets, !arguments.results.json)?;
    }
    client.close()?;
    let mut output = Output::new(arguments.results.json);
    if output.json {
        output.value(&json!({ "targets": reports.iter().map(to_json).collect::<Vec<_>>() }))?;
    } else {
        show(&mut output, &reports)?;
    }
    output.finish()?;
    let is_bad =
        |report: &ScrubReport| report.damaged + report.unreadable > 0 || report.state == ScrubState::Failed;
    if reports.iter().any(is_bad) { Err(Failure::Reported) } else { Ok(()) }
}

/// Those named; else all that can be read.
fn targets(client: &Client, named: &[String]) -> Outcome<Vec<TargetId>> {
    if !named.is_empty() {
        return named.iter().map(|name| Ok(client.find_target(name)?)).collect();
    }
    let map = client.refresh_map()?;
    let readable = map.targets.iter().filter(|target| target.state != TargetState::Failed);
    let all: Vec<TargetId> = readable.map(|target| target.id).collect();
    if all.is_empty() {
        return Err(Failure::new("the volume has no targets that could be read; see `vazao status`"));
    }
    Ok(all)
}

fn ask(client: &Client, targets: &[TargetId], order: ScrubOrder) -> Outcome<Vec<ScrubReport>> {
    targets.iter().map(|target| Ok(client.scrub(*target, order)?)).collect()
}

/// Waits until none runs any more.
fn follow(client: &Client, targets: &[TargetId], visible: bool) -> Outcome<Vec<ScrubReport>> {
    let clock = vazao_meter::SystemClock;
    let draw = if visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(BAR_PARTS), draw);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent:>3}%  {msg}") {
        bar.set_style(style.progress_chars("=> "));
    }
    loop {
        let reports = ask(client, targets, ScrubOrder::Report)?;
        let sum = |of: fn(&ScrubReport) -> u64| reports.iter().map(of).sum::<u64>();
        let share = reports.iter().map(|report| report.share).sum::<f64>() / reports.len().max(1) as f64;
        bar.set_position((share * BAR_PARTS as f64) as u64);
        let (bytes, bad) = (sum(|r| r.bytes), sum(|r| r.damaged + r.unreadable));
        bar.set_message(format!("{} checked, {bad} damaged", format::size(bytes)));
        if !reports.iter().any(|report| report.state == ScrubState::Running) {
            bar.finish_and_clear();
            return Ok(reports);
        }
        clock.sleep(POLL);
    }
}

fn state(report: &ScrubReport) -> &'static str {
    match report.state {
        ScrubState::Never => "never",
        ScrubState::Running => "running",
        ScrubState::Done => "done",
        ScrubState::Stopped => "stopped",
        ScrubState::Failed => "failed",
    }
}

fn show(output: &mut Output, reports: &[ScrubReport]) -> Outcome {
    let head = [
        ("TARGET", Lean::Left),
        ("SCRUB", Lean::Left),
        ("DONE", Lean::Right),
        ("OBJECTS", Lean::Right),
        ("CHECKED", Lean::Right),
        ("DAMAGED", Lean::Right),
        ("UNREADABLE", Lean::Right),
        ("TIME", Lean::Right),
    ];
    let row = |report: &ScrubReport| {
        vec![
            report.target.to_string(),
            state(report).to_owned(),
            format!("{:.0}%", report.share * 100.0),
            report.objects.to_string(),
            format::size(report.bytes),
            report.damaged.to_string(),
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
        "state": state(report),
        "share": report.share,
        "objects": report.objects,
        "bytes": report.bytes,
        "damaged": report.damaged,
        "unreadable": report.unreadable,
        "elapsed_ms": report.elapsed_ms,
        "rate_bytes": report.rate_bytes,
        "trouble": report.trouble,
        "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
    })
}
