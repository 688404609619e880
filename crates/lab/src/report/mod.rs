//! How results are written: aligned text for people, Markdown for documents, CSV and JSON for programs.
//! `statistics` sums repetitions up, `size` writes figures.

pub mod command;
pub mod size;
pub mod statistics;

use crate::{Context, Error};
use serde::Serialize;
use std::fs;

/// A table of text.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Table {
    headers: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table with these columns.
    pub fn new(headers: &[&str]) -> Table {
        Table { headers: headers.iter().map(|&h| h.to_owned()).collect(), rows: Vec::new() }
    }

    /// Adds a row; missing cells are empty.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The headers, then the rows.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &Vec<String>> {
        std::iter::once(&self.headers).chain(&self.rows)
    }

    /// Columns aligned with spaces: numbers to the right, words to the left.
    pub fn to_text(&self) -> String {
        let columns: Vec<(usize, bool)> = (0..self.headers.len())
            .map(|column| {
                let cells =
                    || self.rows.iter().filter_map(|row| row.get(column)).filter(|cell| !cell.is_empty());
                let widths =
                    self.lines().filter_map(|line| line.get(column)).map(|cell| cell.chars().count());
                (widths.max().unwrap_or(0), cells().all(|cell| cell.starts_with(is_numeric)))
            })
            .collect();
        let mut text = String::new();
        for line in self.lines() {
            let cells = columns.iter().enumerate().map(|(column, &(width, right))| {
                let value = line.get(column).map_or("", String::as_str);
                if right { format!("{value:>width$}") } else { format!("{value:<width$}") }
            });
            text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            text.push('\n');
        }
        text
    }

    /// A Markdown table.
    pub fn to_markdown(&self) -> String {
        let line = |cells: &[String]| {
            let escaped: Vec<String> = cells.iter().map(|c| c.replace('|', "\\|")).collect();
            format!("| {} |\n", escaped.join(" | "))
        };
        let rule = format!("|{}\n", "---|".repeat(self.headers.len()));
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("{}{rule}{rows}", line(&self.headers))
    }

    /// Comma-separated values (RFC 4180, with bare line feeds).
    pub fn to_csv(&self) -> String {
        let quoted = |cell: &String| {
            if cell.contains([',', '"', '\n', '\r']) {
                format!("\"{}\"", cell.replace('"', "\"\""))
            } else {
                cell.clone()
            }
        };
        self.lines().map(|line| line.iter().map(quoted).collect::<Vec<_>>().join(",") + "\n").collect()
    }
}

fn is_numeric(first: char) -> bool {
    first.is_ascii_digit() || ['-', '≥', '≤'].contains(&first)
}

/// Writes `text` to the file `target`, or to the context's output when it is `-`.
pub(crate) fn deliver(target: &str, text: &str, context: &mut Context<'_>) -> Result<(), Error> {
    if target == "-" {
        return print(text, context);
    }
    fs::write(target, text).map_err(Error::at(target))
}

/// Writes `text` to the context's output.
pub(crate) fn print(text: &str, context: &mut Context<'_>) -> Result<(), Error> {
    context.output.write_all(text.as_bytes()).map_err(Error::at("writing the report"))
}

/// Progress of something long, for people: not to where results go. There may be no reader.
pub(crate) fn say(text: &str) {
    let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("{text}\n").as_bytes());
}

/// A result file's text.
pub(crate) fn to_json(results: &impl Serialize) -> Result<String, Error> {
    let text = serde_json::to_string_pretty(results);
    text.map(|text| text + "\n").map_err(|error| Error::Failed(format!("writing JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["place", "MB/s"]);
        table.row(vec!["vz:/a".to_owned(), "7".to_owned()]);
        table.row(vec!["a|b, \"c\"".to_owned(), "1049".to_owned()]);
        table
    }

    #[test]
    fn text_is_aligned() {
        assert_eq!(table().to_text(), "place     MB/s\nvz:/a        7\na|b, \"c\"  1049\n");
    }

    #[test]
    fn markdown_escapes_its_bars() {
        let expected = "| place | MB/s |\n|---|---|\n| vz:/a | 7 |\n| a\\|b, \"c\" | 1049 |\n";
        assert_eq!(table().to_markdown(), expected);
    }

    #[test]
    fn csv_quotes_what_would_break_it() {
        assert_eq!(table().to_csv(), "place,MB/s\nvz:/a,7\n\"a|b, \"\"c\"\"\",1049\n");
    }
}
