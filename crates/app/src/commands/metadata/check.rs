//! `vazao metadata check`: has the metadata service compare everything that it keeps with its checksums.

use crate::cli::Results;
use crate::commands::scrub::waiting::{self, Orders, Stand};
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::format;
use crate::output::Output;
use clap::Args;
use serde_json::{Value, json};
use vazao_client::{MetadataFinding, MetadataReport, ScrubOrder, ScrubState};

/// What to do about damage. `vazao status` says the same.
pub(crate) const REMEDY: &str = "check the disk of the metadata directory (dmesg, smartctl); `vazao metadata check` names the \
                                 files: restore them from copies under other names, or the whole metadata directory \
                                 from a backup. A checkpoint of which records were lost is kept in that directory as \
                                 checkpoint.damaged";

/// What is behind the options in `--help`.
const AFTER_HELP: &str = "\
Examples:
  vazao metadata check
  vazao metadata check --json | jq .findings
  vazao metadata check --rate 20M --background

What it does:
  The service reads its whole directory, at most RATE bytes a second; everything goes on
  meanwhile. `vazao scrub` does the same beside the targets. Exit code 1: there is damage.

When it is interrupted:
  The service goes on: --stop ends it, --report shows how far it is, and what is known
  without a check.";

/// Arguments of `vazao metadata check`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    orders: Orders,
    #[command(flatten)]
    results: Results,
}

/// Does it.
pub(crate) fn run(context: &Context, arguments: Arguments) -> Outcome {
    let client = context.client()?;
    let mut report = client.administration().check_metadata(arguments.orders.order())?;
    if arguments.orders.waits() {
        let ask = || Ok(client.administration().check_metadata(ScrubOrder::Report)?);
        report = waiting::follow(!arguments.results.json, ask, stand)?;
    }
    client.close()?;
    let mut output = Output::new(arguments.results.json);
    if output.json {
        output.value(&to_json(&report))?;
    } else {
        show(&mut output, &report)?;
    }
    output.finish()?;
    if is_bad(&report) { Err(Failure::Reported) } else { Ok(()) }
}

fn stand(report: &MetadataReport) -> Stand {
    let message = format!("{} checked, {} damaged", format::size(report.bytes), report.damaged);
    Stand { share: report.share, message, is_running: report.state == ScrubState::Running }
}

/// Whether an operator has to act.
pub(crate) fn is_bad(report: &MetadataReport) -> bool {
    report.has_damage() || !report.mended.is_empty() || report.state == ScrubState::Failed
}

fn state(report: &MetadataReport) -> &'static str {
    match report.state {
        ScrubState::Never => "never checked",
        ScrubState::Running => "being checked",
        ScrubState::Done => "checked",
        ScrubState::Stopped => "check stopped",
        ScrubState::Failed => "check failed",
    }
}

/// Prints it for people.
pub(crate) fn show(output: &mut Output, report: &MetadataReport) -> Outcome {
    output.line(&format!(
        "metadata: {} ({:.0}%), {} records, {} read in {}",
        state(report),
        report.share * 100.0,
        report.records,
        format::size(report.bytes),
        format::duration(report.elapsed_ms * 1_000_000)
    ))?;
    if !report.trouble.is_empty() {
        output.line(&format!("  the check failed: {}", report.trouble))?;
    }
    report.mended.iter().try_for_each(|what| output.line(&format!("  mended: {what}")))?;
    report.places.iter().try_for_each(|place| output.line(&format!("  damaged: {place}")))?;
    if report.lost_ranges > 0 {
        let ranges = format::count(report.lost_ranges, "range of records was", "ranges of records were");
        output.line(&format!("  {ranges} lost with damaged places; reading there is an error"))?;
    }
    report.findings.iter().try_for_each(|found| output.line(&format!("  {}", named(found))))?;
    let shown = report.findings.len() as u64;
    if report.damaged > shown {
        output.line(&format!("  and {} more", report.damaged - shown))?;
    }
    match (report.has_damage(), report.state) {
        (true, _) => output.line(&format!("  -> {REMEDY}")),
        (false, ScrubState::Done) if report.mended.is_empty() => output.line("  no damage"),
        (false, _) if !report.mended.is_empty() => {
            output.line("  -> check the disk of the metadata directory (dmesg, smartctl)")
        }
        (false, _) => Ok(()),
    }
}

fn named(found: &MetadataFinding) -> String {
    match (found.path.as_str(), found.inode) {
        ("", 0) => found.what.clone(),
        ("", inode) => format!("inode {inode}: {}", found.what),
        (path, inode) => format!("vz:{path} (inode {inode}): {}", found.what),
    }
}

/// The same for programs.
pub(crate) fn to_json(report: &MetadataReport) -> Value {
    let finding =
        |found: &MetadataFinding| json!({"path": found.path, "inode": found.inode, "what": found.what});
    json!({
        "state": waiting::state_word(report.state),
        "share": report.share,
        "bytes": report.bytes,
        "records": report.records,
        "elapsed_ms": report.elapsed_ms,
        "rate_bytes": report.rate_bytes,
        "damaged": report.damaged,
        "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
        "places": report.places,
        "mended": report.mended,
        "lost_ranges": report.lost_ranges,
        "trouble": report.trouble,
    })
}
