//! What `vazao lab mounts` measured: a rate for each place, operation and number of processes, and its ratio to the
//! first place's in the same repetition.

use super::Operation;
use super::cpu::Seconds;
use crate::machine::Machine;
use crate::report::Table;
use crate::report::size::{MIB, significant};
use crate::report::statistics::Summary;
use serde::{Deserialize, Serialize};

/// Names the kind and version of a result file.
pub const FORMAT: &str = "vazao-lab-mounts-2";

/// One place's rates of one operation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The place's name.
    pub place: String,
    /// What was done.
    pub operation: Operation,
    /// By how many processes at once.
    pub processes: u32,
    /// Operations a second, or bytes a second, one value a repetition.
    pub rates: Vec<f64>,
    /// Processor seconds for 1 GiB of data, one value a repetition; empty where no data are moved.
    #[serde(default)]
    pub processor: Vec<Seconds>,
}

/// All that one run measured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Results {
    /// [`FORMAT`].
    pub format: String,
    /// Nanoseconds since the Unix epoch when it began.
    pub started_ns: u64,
    /// Where.
    pub machine: Machine,
    /// The places in order; ratios are to the first.
    pub places: Vec<String>,
    /// Files of all processes together.
    pub files: u64,
    /// Bytes of data of all processes together.
    pub data_bytes: u64,
    /// Caches were dropped before what is called cold.
    pub dropped_caches: bool,
    /// The rows, in order.
    pub rows: Vec<Row>,
}

impl Results {
    /// Adds a repetition: place, operation and number of processes, rate, and processor seconds where they are known.
    pub(super) fn push(&mut self, key: (&str, Operation, u32), rate: f64, processor: Option<Seconds>) {
        let (place, operation, processes) = key;
        let same = |row: &Row| row.place == place && row.operation == operation && row.processes == processes;
        let at = self.rows.iter().position(same).unwrap_or_else(|| {
            let (rates, processor) = (Vec::new(), Vec::new());
            self.rows.push(Row { place: place.to_owned(), operation, processes, rates, processor });
            self.rows.len() - 1
        });
        if let Some(row) = self.rows.get_mut(at) {
            row.rates.push(rate);
            row.processor.extend(processor);
        }
    }

    fn row(&self, place: &str, operation: Operation, processes: u32) -> Option<&Row> {
        let same =
            |row: &&Row| row.place == place && row.operation == operation && row.processes == processes;
        self.rows.iter().find(same)
    }

    /// Medians of each place, and of its ratios to the first in the same repetitions.
    fn cell(&self, place: &str, operation: Operation, processes: u32) -> String {
        let Some(row) = self.row(place, operation, processes) else { return String::new() };
        let scale = if operation.is_in_bytes() { MIB as f64 } else { 1.0 };
        let Some(summary) = Summary::of(&row.rates) else { return String::new() };
        let shown = match summary.median / scale {
            rate if rate >= 1e4 => format!("{rate:.0}"),
            rate => significant(rate),
        };
        let first = self.places.first().filter(|first| *first != place);
        let reference = first.and_then(|first| self.row(first, operation, processes));
        let ratios = |reference: &Row| {
            let ratios: Vec<f64> = row.rates.iter().zip(&reference.rates).map(|(a, b)| a / b).collect();
            Summary::of(&ratios)
        };
        match reference.and_then(ratios) {
            Some(ratio) => format!("{shown} ({:.2}x)", ratio.median),
            None => shown,
        }
    }

    /// Medians of processor seconds for 1 GiB: of the mounts, of the servers, of the whole machine.
    fn processor_cell(&self, place: &str, operation: Operation, processes: u32) -> String {
        let Some(row) = self.row(place, operation, processes) else { return String::new() };
        let median = |part: fn(&Seconds) -> f64| {
            let values: Vec<f64> = row.processor.iter().map(part).collect();
            Summary::of(&values).map_or(String::new(), |summary| format!("{:.2}", summary.median))
        };
        format!("{} + {}, {}", median(|s| s.mounts), median(|s| s.servers), median(|s| s.machine))
    }

    /// A table with a row for each operation and number of processes.
    fn table(
        &self,
        is_in: impl Fn(&Row) -> bool,
        unit: impl Fn(Operation) -> &'static str,
        cell: impl Fn(&str, Operation, u32) -> String,
    ) -> Table {
        let mut headers = vec!["operation", "processes", "unit"];
        headers.extend(self.places.iter().map(String::as_str));
        let mut table = Table::new(&headers);
        let mut done: Vec<(Operation, u32)> = Vec::new();
        for row in self.rows.iter().filter(|row| is_in(row)) {
            let (operation, processes) = (row.operation, row.processes);
            if done.contains(&(operation, processes)) {
                continue;
            }
            done.push((operation, processes));
            let mut cells =
                vec![operation.name().to_owned(), processes.to_string(), unit(operation).to_owned()];
            cells.extend(self.places.iter().map(|place| cell(place, operation, processes)));
            table.row(cells);
        }
        table
    }

    /// The tables, as Markdown or as aligned text.
    pub fn report(&self, markdown: bool) -> String {
        let unit = |operation: Operation| if operation.is_in_bytes() { "MiB/s" } else { "1/s" };
        let rates = self.table(|_| true, unit, |place, operation, n| self.cell(place, operation, n));
        let processor = self.table(
            |row| !row.processor.is_empty(),
            |_| "s/GiB",
            |place, operation, n| self.processor_cell(place, operation, n),
        );
        let repetitions = self.rows.iter().map(|row| row.rates.len()).max().unwrap_or(0);
        let first = self.places.first().map_or("", String::as_str);
        let cold = if self.dropped_caches { "" } else { "; no names were cold: only root can drop caches" };
        let introduction = format!(
            "Machine: {}\n\nMedians of {repetitions} repetitions in turns, in brackets the ratio to {first}; \
             {} files, {} MiB{cold}\n",
            self.machine.describe(),
            self.files,
            self.data_bytes / MIB
        );
        let text = |table: &Table| if markdown { table.to_markdown() } else { table.to_text() };
        let mut report = format!("{introduction}\n{}", text(&rates));
        if self.rows.iter().any(|row| !row.processor.is_empty()) {
            report += "\nProcessor seconds: the mounts' + the servers', the whole machine's\n\n";
            report += &text(&processor);
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_within_repetitions_and_bytes_are_shown_in_mib() {
        let mut results = Results {
            format: FORMAT.to_owned(),
            started_ns: 0,
            machine: Machine::here(),
            places: vec!["null".to_owned(), "vazao".to_owned()],
            files: 10,
            data_bytes: MIB,
            dropped_caches: true,
            rows: Vec::new(),
        };
        for (null, vazao) in [(100.0, 50.0), (1000.0, 500.0), (10.0, 1.0)] {
            results.push(("null", Operation::Create, 8), null, None);
            results.push(("vazao", Operation::Create, 8), vazao, None);
        }
        let seconds = Seconds { mounts: 0.25, servers: 0.5, machine: 1.0 };
        results.push(("vazao", Operation::ReadLarge, 1), 3.0 * MIB as f64, Some(seconds));
        let text = results.report(false);
        assert!(text.contains("50.0 (0.50x)"), "{text}");
        assert!(text.contains("read-1m") && text.contains(" 3.0"), "{text}");
        assert!(text.contains("0.25 + 0.50, 1.00"), "{text}");
        let again: Results = serde_json::from_str(&serde_json::to_string(&results).unwrap()).unwrap();
        assert_eq!(again, results);
    }
}
