//! Throttles one resource on purpose, moves data, and compares what the verdict names with what was throttled.
//!
//! The cases are in [`cases`], what they do in [`stage`]. A wrong verdict is reported as it is: the table at the end
//! has every case with what was expected, the verdict, and its words.

mod cases;
mod stage;

use crate::experiment::Lab;
use crate::report::{self, Table};
use crate::{Context, Error};
use cases::{Case, cases};
use serde::Serialize;
use stage::Stage;
use std::path::PathBuf;
use vazao_meter::bottleneck::Verdict;

const EXAMPLES: &str = "Examples:
  vazao lab verdicts                      all cases, ten minutes; needs root
  vazao lab verdicts --only disk,cpu      those with one of these words in their names
  vazao lab verdicts --list               what there is";

/// `vazao lab verdicts`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only cases whose names are, or contain, one of these words
    #[arg(long, value_delimiter = ',', value_name = "WORD")]
    pub only: Vec<String>,
    /// List the cases and run none
    #[arg(long)]
    pub list: bool,
    /// Where disks and daemons are made
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    pub work: PathBuf,
    /// Fail when a case is missed
    #[arg(long)]
    pub strict: bool,
    /// Write the results to a file, or - for the output instead of the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<String>,
}

/// What came of one case.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Its name.
    pub case: String,
    /// What should be named: resource and places, any of which is right.
    pub expected: String,
    /// What was named; `None` when the case could not be run.
    pub verdict: Option<Verdict>,
    /// Whether they agree.
    pub hit: bool,
    /// Why it could not be run.
    pub trouble: String,
}

/// Runs the cases and prints the table of hits and misses.
pub fn run(args: &Args, context: &mut Context<'_>) -> Result<(), Error> {
    let all = cases();
    let names: Vec<String> = all.iter().map(|case| case.name.clone()).collect();
    let chosen: Vec<Case> = all.into_iter().filter(|it| is_wanted(&it.name, &args.only, &names)).collect();
    if chosen.is_empty() {
        return Err(Error::Usage(format!("--only {}: no case has such a word", args.only.join(","))));
    }
    if args.list {
        let names: Vec<String> = chosen.iter().map(|case| format!("{}\n", case.name)).collect();
        return report::print(&names.concat(), context);
    }
    crate::experiment::clear_away();
    let program = std::env::current_exe().map_err(Error::at("this program's own file"))?;
    let lab = Lab::new(context.clock.clone(), program, args.work.clone(), context.stop.clone());
    let mut outcomes = Vec::new();
    let mut stage: Option<Stage<'_>> = None;
    for case in &chosen {
        context.stop.check().map_err(Error::at("verdicts"))?;
        // Another number of servers needs another cluster.
        if stage.as_ref().is_none_or(|stage| stage.servers() != case.servers) {
            drop(stage.take());
            stage = Some(Stage::new(&lab, case.servers)?);
        }
        let verdict = match &mut stage {
            Some(stage) => stage.play(case),
            None => Err(Error::Failed("there is no cluster".to_owned())),
        };
        let outcome = judged(case, verdict);
        if args.json.as_deref() != Some("-") {
            report::print(&format!("{}\n", outcome.line()), context)?;
        }
        outcomes.push(outcome);
    }
    drop(stage);
    finish(args, &outcomes, context)
}

/// A word that is the whole name of a case means that case alone.
fn is_wanted(name: &str, only: &[String], names: &[String]) -> bool {
    let is_meant = |word: &String| name == word || (name.contains(word.as_str()) && !names.contains(word));
    only.is_empty() || only.iter().any(is_meant)
}

fn judged(case: &Case, verdict: Result<Verdict, Error>) -> Outcome {
    let (case_name, expected) = (case.name.clone(), case.expected.to_string());
    match verdict {
        Ok(verdict) => Outcome {
            case: case_name,
            expected,
            hit: case.expected.is_met_by(&verdict),
            verdict: Some(verdict),
            trouble: String::new(),
        },
        Err(error) => {
            Outcome { case: case_name, expected, verdict: None, hit: false, trouble: error.to_string() }
        }
    }
}

impl Outcome {
    fn said(&self) -> String {
        match &self.verdict {
            Some(verdict) => {
                let way = verdict.direction.map_or(String::new(), |way| format!("{} ", way.words()));
                format!("{} {way}{}", verdict.resource.name(), verdict.place)
            }
            None => "not run".to_owned(),
        }
    }

    fn line(&self) -> String {
        let mark = if self.hit { "hit " } else { "MISS" };
        let words = self.verdict.as_ref().map_or(self.trouble.clone(), Verdict::line);
        format!("{mark} {}: expected {}, {words}", self.case, self.expected)
    }
}

fn finish(args: &Args, outcomes: &[Outcome], context: &mut Context<'_>) -> Result<(), Error> {
    let hits = outcomes.iter().filter(|outcome| outcome.hit).count();
    if let Some(target) = &args.json {
        report::deliver(target, &report::to_json(&outcomes)?, context)?;
    }
    if args.json.as_deref() != Some("-") {
        let mut table = Table::new(&["case", "expected", "named", "share", ""]);
        for outcome in outcomes {
            let share = outcome.verdict.as_ref().and_then(|verdict| verdict.share);
            let share = share.map_or(String::new(), |share| format!("{:.0}%", share * 100.0));
            let mark = if outcome.hit { "hit" } else { "MISS" }.to_owned();
            table.row(vec![outcome.case.clone(), outcome.expected.clone(), outcome.said(), share, mark]);
        }
        report::print(&format!("\n{}\n{hits} of {} hit\n", table.to_text(), outcomes.len()), context)?;
    }
    if args.strict && hits < outcomes.len() {
        return Err(Error::Failed(format!(
            "{} of {} verdicts missed",
            outcomes.len() - hits,
            outcomes.len()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_name_means_one_case_and_a_word_all_that_contain_it() {
        let names: Vec<String> = cases().into_iter().map(|case| case.name).collect();
        let wanted = |word: &str| {
            let only = [word.to_owned()];
            names.iter().filter(|name| is_wanted(name, &only, &names)).count()
        };
        assert_eq!(wanted("1-library-read4-disk"), 1);
        assert!(wanted("read4-disk") > 1);
        assert_eq!(wanted("no-such-thing"), 0);
    }
}
