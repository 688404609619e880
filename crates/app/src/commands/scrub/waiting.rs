//! What the commands that scrub have in common: their options, the wait with its progress, the words for states.

use crate::failure::Outcome;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;
use vazao_client::{ScrubOrder, ScrubState};
use vazao_meter::{Clock, SystemClock};

/// How often the servers are asked how far they are.
const POLL: Duration = Duration::from_millis(300);

/// Parts of the bar.
const BAR_PARTS: u64 = 10_000;

/// What is to be done.
#[derive(Debug, Args)]
pub(crate) struct Orders {
    /// Bytes a second from each directory, as 50M; 0: as fast as the disk is
    #[arg(long, value_name = "SIZE", value_parser = vazao_model::size::parse_size, default_value = "100M")]
    rate: u64,
    /// Start it and do not wait for its end
    #[arg(long, conflicts_with_all = ["stop", "report"])]
    background: bool,
    /// Only show how far it is, and what is known
    #[arg(long)]
    report: bool,
    /// End it
    #[arg(long, conflicts_with = "report")]
    stop: bool,
}

impl Orders {
    /// What to say to the servers.
    pub(crate) fn order(&self) -> ScrubOrder {
        match (self.report, self.stop) {
            (true, _) => ScrubOrder::Report,
            (_, true) => ScrubOrder::Stop,
            _ => ScrubOrder::Start(self.rate),
        }
    }

    /// Bytes a second; 0: no limit.
    pub(crate) fn rate_bytes(&self) -> u64 {
        self.rate
    }

    /// Whether the end is waited for.
    pub(crate) fn waits(&self) -> bool {
        !(self.report || self.stop || self.background)
    }
}

/// How far all that is waited for is.
pub(crate) struct Stand {
    /// 0 to 1.
    pub(crate) share: f64,
    pub(crate) message: String,
    pub(crate) is_running: bool,
}

/// Asks until nothing runs any more, with a bar on terminals; returns the last answer.
pub(crate) fn follow<R>(
    is_visible: bool,
    mut ask: impl FnMut() -> Outcome<R>,
    stand: impl Fn(&R) -> Stand,
) -> Outcome<R> {
    let draw = if is_visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(BAR_PARTS), draw);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent:>3}%  {msg}") {
        bar.set_style(style.progress_chars("=> "));
    }
    loop {
        let answer = ask()?;
        let Stand { share, message, is_running } = stand(&answer);
        bar.set_position((share * BAR_PARTS as f64) as u64);
        bar.set_message(message);
        if !is_running {
            bar.finish_and_clear();
            return Ok(answer);
        }
        SystemClock.sleep(POLL);
    }
}

/// A state in one word.
pub(crate) fn state_word(state: ScrubState) -> &'static str {
    match state {
        ScrubState::Never => "never",
        ScrubState::Running => "running",
        ScrubState::Done => "done",
        ScrubState::Stopped => "stopped",
        ScrubState::Failed => "failed",
    }
}
