//! `vazao jobs`: copies that daemons do for us, listed, watched, paused, resumed, cancelled.

use crate::cli::Results;
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::format::{self, Lean};
use crate::jobs::{self, Watched};
use crate::location::show;
use crate::output::Output;
use crate::signals::{self, Stop};
use clap::{Args, Subcommand};
use vazao_client::Client;
use vazao_mover::JobState;
use vazao_mover::remote::Action;
use vazao_wire::proto;

/// Arguments of `vazao jobs`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  vazao jobs                      all jobs of all nodes\n  vazao jobs watch n1-17          until it is over; from any machine\n  vazao jobs errors n1-17         files that failed, and why\n  vazao jobs pause n1-17\n  vazao jobs resume n1-17\n\nA job is kept on the disk of the node that does it, whose name its ID begins with, and goes on after restarts."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    results: Results,
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List all jobs of all nodes, as `vazao jobs` alone does
    List {
        #[command(flatten)]
        results: Results,
    },
    /// Show how a job goes, until it is over
    Watch {
        #[command(flatten)]
        results: Results,
        /// As `vazao jobs` lists it
        id: String,
    },
    /// Show which files of a job failed, and why
    Errors {
        #[command(flatten)]
        results: Results,
        /// As `vazao jobs` lists it
        id: String,
    },
    /// Stop a job until it is resumed
    Pause {
        /// As `vazao jobs` lists them
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Let a paused job go on
    Resume {
        /// As `vazao jobs` lists them
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Stop a job for good; what has arrived whole stays
    Cancel {
        /// As `vazao jobs` lists them
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Take jobs that are over off the list
    Forget {
        /// As `vazao jobs` lists them
        #[arg(required = true)]
        ids: Vec<String>,
    },
}

/// Does it.
pub(crate) fn run(context: &Context, arguments: Arguments) -> Outcome {
    let client = context.client()?;
    let outcome = match arguments.what {
        None => list(&client, arguments.results),
        Some(What::List { results }) => list(&client, results),
        Some(What::Watch { results, id }) => watch(&client, results, &id),
        Some(What::Errors { results, id }) => errors(&client, results, &id),
        Some(What::Pause { ids }) => control(&client, &ids, Action::Pause),
        Some(What::Resume { ids }) => control(&client, &ids, Action::Resume),
        Some(What::Cancel { ids }) => control(&client, &ids, Action::Cancel),
        Some(What::Forget { ids }) => control(&client, &ids, Action::Forget),
    };
    client.close()?;
    outcome
}

fn list(client: &Client, results: Results) -> Outcome {
    let mut output = Output::new(results.json);
    let mut rows = Vec::new();
    let mut failed = false;
    for node in &client.refresh_map()?.nodes {
        match jobs::of_node(client, &node.name) {
            Ok(found) => rows.extend(found),
            Err(failure) => {
                crate::failure::report(&failure);
                failed = true;
            }
        }
    }
    if output.json {
        rows.iter().try_for_each(|job| output.value(&jobs::to_json(job)))?;
    } else if rows.is_empty() && !failed {
        output.line("no jobs; `vazao cp --detach NODE:/AREA/… NODE:/AREA/…` makes one")?;
    } else {
        output.text(&table(&rows))?;
    }
    output.finish()?;
    if failed { Err(Failure::Reported) } else { Ok(()) }
}

fn table(jobs: &[proto::JobStatus]) -> String {
    let head = [
        ("ID", Lean::Left),
        ("STATE", Lean::Left),
        ("FILES", Lean::Right),
        ("BYTES", Lean::Right),
        ("%", Lean::Right),
        ("RATE", Lean::Right),
        ("LEFT", Lean::Right),
        ("METHOD", Lean::Left),
        ("WHAT", Lean::Left),
    ];
    let row = |job: &proto::JobStatus| {
        let spec = job.spec.clone().unwrap_or_default();
        let first = spec.sources.first().map_or_else(String::new, |source| show(source));
        let more = if spec.sources.len() > 1 { " …" } else { "" };
        let state = JobState::from_number(job.state);
        let moves = state == Some(JobState::Running);
        let trouble = if job.trouble.is_empty() { String::new() } else { format!(" ({})", job.trouble) };
        vec![
            job.id.clone(),
            state.map_or("unknown", JobState::text).to_owned(),
            format!("{}/{}", job.files_done + job.files_skipped, job.files),
            format::size(job.bytes),
            jobs::percent(job).to_string(),
            if moves { format::rate(job.rate_bytes as f64) } else { String::new() },
            if moves { jobs::left(job) } else { String::new() },
            job.method.clone(),
            format!("{first}{more} → {}{trouble}", show(&spec.destination)),
        ]
    };
    format::table(&head, &jobs.iter().map(row).collect::<Vec<_>>())
}

fn watch(client: &Client, results: Results, id: &str) -> Outcome {
    let stop = Stop::on_signals(signals::OF_COMMANDS)?;
    stop.hangs_up(client);
    let shown = jobs::Shown { json: results.json, is_quiet: false };
    match jobs::watch(client, id, shown, &stop)? {
        Watched::Over(job) => jobs::report(client, &job, shown),
        Watched::Left(_) => Ok(()),
    }
}

fn errors(client: &Client, results: Results, id: &str) -> Outcome {
    let mut output = Output::new(results.json);
    jobs::failures(client, id, &mut |failure| match output.json {
        true => output.value(&serde_json::json!({ "error": failure.detail })),
        false => output.line(&failure.detail),
    })?;
    output.finish()
}

fn control(client: &Client, ids: &[String], action: Action) -> Outcome {
    let mut failed = false;
    let mut output = Output::new(false);
    for id in ids {
        match order(client, id, action) {
            Ok(answer) => output.line(&format!("{id}: {answer}"))?,
            Err(failure) => {
                crate::failure::report(&failure);
                failed = true;
            }
        }
    }
    output.finish()?;
    if failed { Err(Failure::Reported) } else { Ok(()) }
}

/// Gives a job an order; returns what it does then.
fn order(client: &Client, id: &str, action: Action) -> Outcome<String> {
    let answer = match action {
        Action::Pause => "pauses",
        Action::Resume => "goes on",
        Action::Cancel => return jobs::cancel(client, id),
        Action::Forget => "is forgotten",
    };
    jobs::control(client, id, action)?;
    Ok(answer.to_owned())
}
