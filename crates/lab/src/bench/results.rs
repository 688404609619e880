//! What the benchmark measured: rows with their repetitions, goals, and the table of goals and what was reached.

use crate::machine::Machine;
use crate::report::Table;
use crate::report::size::{MIB, format_size, significant};
use crate::report::statistics::Summary;
use serde::{Deserialize, Serialize};
use vazao_meter::bottleneck::Verdict;
use vazao_sampler::Record;

/// Names the kind and version of a result file.
pub const FORMAT: &str = "vazao-lab-bench-2";

/// How much each part does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Amounts {
    pub(crate) total_bytes: u64,
    pub(crate) files: u64,
    pub(crate) listed_files: u64,
}

/// What a row has to reach: its ratio to another row where it has one, its own value otherwise.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// Nothing; for comparison.
    None,
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

/// One measured quantity.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Its name in result files.
    pub id: String,
    /// Its name for people.
    pub title: String,
    /// Unit of its values as shown; `MiB/s` and `MiB` are kept in bytes.
    pub unit: String,
    /// The row it is a ratio of.
    pub reference: Option<String>,
    /// What it has to reach.
    pub goal: Goal,
    /// One value a repetition.
    pub values: Vec<f64>,
    /// What limited each repetition.
    pub verdicts: Vec<Verdict>,
    /// What the machine did in each repetition.
    pub records: Vec<Record>,
}

impl Row {
    /// Values in the row's unit.
    fn shown(&self) -> Vec<f64> {
        let divisor = if self.unit.starts_with("MiB") { MIB as f64 } else { 1.0 };
        self.values.iter().map(|value| value / divisor).collect()
    }
}

/// All that one run of the benchmark measured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Results {
    /// [`FORMAT`].
    pub format: String,
    /// Nanoseconds since the Unix epoch when it began.
    pub started_ns: u64,
    /// Where.
    pub machine: Machine,
    /// Bytes read and written in each repetition.
    pub total_bytes: u64,
    /// Files created in each repetition.
    pub files: u64,
    /// Files of the large directory.
    pub listed_files: u64,
    /// Repetitions.
    pub repeat: u32,
    /// The rows, in order.
    pub rows: Vec<Row>,
}

impl Results {
    pub(super) fn new(machine: Machine, amounts: Amounts, repeat: u32, started_ns: u64) -> Results {
        Results {
            format: FORMAT.to_owned(),
            started_ns,
            machine,
            total_bytes: amounts.total_bytes,
            files: amounts.files,
            listed_files: amounts.listed_files,
            repeat,
            rows: Vec::new(),
        }
    }

    /// Adds an empty row.
    pub(super) fn declare(&mut self, id: &str, title: &str, unit: &str, reference: Option<&str>, goal: Goal) {
        self.rows.push(Row {
            id: id.to_owned(),
            title: title.to_owned(),
            unit: unit.to_owned(),
            reference: reference.map(str::to_owned),
            goal,
            values: Vec::new(),
            verdicts: Vec::new(),
            records: Vec::new(),
        });
    }

    /// Adds a repetition to a declared row.
    pub(super) fn push(&mut self, id: &str, value: f64, record: Option<Record>) {
        let row = self
            .rows
            .iter_mut()
            .find(|row| row.id == id)
            .expect("rows are declared before they are measured");
        row.values.push(value);
        if let Some(record) = record {
            row.verdicts.push(record.verdict.clone());
            row.records.push(record);
        }
    }

    /// Adds resident memory of servers, where any can be watched.
    pub(super) fn push_memory(&mut self, id: &str, title: &str, goal: Goal, bytes: Option<f64>) {
        self.declare(id, title, "MiB", None, goal);
        if let Some(bytes) = bytes {
            self.push(id, bytes, None);
        }
    }

    /// What is compared with a row's goal: the ratios to its reference in the same repetition, or its own values.
    fn compared(&self, row: &Row) -> Vec<f64> {
        let reference = row.reference.as_ref().and_then(|id| self.rows.iter().find(|other| other.id == *id));
        match reference {
            Some(reference) => {
                row.values.iter().zip(&reference.values).map(|(value, other)| value / other).collect()
            }
            None => row.shown(),
        }
    }

    /// The table of goals and what was reached, as Markdown or as aligned text.
    pub fn report(&self, markdown: bool) -> String {
        let mut table = Table::new(&[
            "measured",
            "unit",
            "median",
            "min",
            "max",
            "ratio",
            "goal",
            "reached",
            "limited by",
        ]);
        for row in &self.rows {
            if let Some(cells) = self.cells(row) {
                table.row(cells);
            }
        }
        let written = |table: Table| if markdown { table.to_markdown() } else { table.to_text() };
        let (table, cost) = (written(table), written(self.cost()));
        let introduction = [
            format!("Machine: {}", self.machine.describe()),
            format!(
                "Amounts: {} of data, {} files, a directory of {} files; {} repetitions, in turns",
                format_size(self.total_bytes),
                self.files,
                self.listed_files,
                self.repeat
            ),
            "Ratio: 8 threads to 1 thread; 1 thread reading to the best raw streams, writing to one; \
             past the server to pread; each within its repetition"
                .to_owned(),
        ];
        // Lines that follow each other directly are one paragraph in Markdown.
        let introduction = introduction.join(if markdown { "\n\n" } else { "\n" });
        format!("{introduction}\n\n{table}\n{cost}")
    }

    /// What each row costs in CPU time: a GiB, or one operation.
    fn cost(&self) -> Table {
        let mut table = Table::new(&["CPU time", "of", "unit", "client", "servers", "whole machine"]);
        for row in &self.rows {
            let (of, unit, factor) = match row.unit.as_str() {
                "MiB/s" => ("1 GiB", "s", 1024.0 * MIB as f64),
                "1/s" => ("1 operation", "µs", 1e6),
                _ => continue,
            };
            let amounts = row.values.iter().zip(&row.records).map(|(rate, record)| rate * record.seconds);
            let amount: f64 = amounts.sum();
            if amount > 0.0 {
                let spent = |of: fn(&Record) -> f64| {
                    significant(row.records.iter().map(of).sum::<f64>() / amount * factor)
                };
                let client = spent(|record| record.processes.iter().take(1).map(|p| p.cpu_s()).sum());
                let servers = spent(|record| record.processes.iter().skip(1).map(|p| p.cpu_s()).sum());
                let machine = spent(|record| record.machine_busy_s);
                table.row(vec![row.title.clone(), of.to_owned(), unit.to_owned(), client, servers, machine]);
            }
        }
        table
    }

    fn cells(&self, row: &Row) -> Option<Vec<String>> {
        let shown = Summary::of(&row.shown())?;
        let compared = Summary::of(&self.compared(row))?;
        let number = |value: f64| if value >= 1e4 { format!("{value:.0}") } else { significant(value) };
        let is_ratio = row.reference.is_some();
        let goal_text = |sign: &str, goal: f64| {
            if is_ratio { format!("{sign} {goal:.2}x") } else { format!("{sign} {}", number(goal)) }
        };
        let (goal, reached) = match row.goal {
            Goal::None => (String::new(), String::new()),
            Goal::AtLeast(goal) => (goal_text("≥", goal), yes_or_no(compared.median >= goal)),
            Goal::AtMost(goal) => (goal_text("≤", goal), yes_or_no(compared.median <= goal)),
        };
        let ratio = if is_ratio { format!("{:.2}x", compared.median) } else { String::new() };
        let verdict = row.verdicts.get(row.verdicts.len() / 2).map_or(String::new(), |v| v.text.clone());
        let (median, min, max) = (number(shown.median), number(shown.min), number(shown.max));
        Some(vec![row.title.clone(), row.unit.clone(), median, min, max, ratio, goal, reached, verdict])
    }
}

fn yes_or_no(yes: bool) -> String {
    if yes { "yes" } else { "NO" }.to_owned()
}
