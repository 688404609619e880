//! How results are written: aligned text for people, Markdown for documents, CSV and JSON for programs; and the command
//! that makes tables from a result file again at any time.

use crate::{Context, Error, bench, experiment, mounts, psplit};
use serde::Serialize;
use std::fs;
use std::path::Path;

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

/// `vazao lab report`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vazao lab report --markdown results.json\n  vazao lab report lab-results"
)]
pub struct Args {
    /// Result file of `vazao lab psplit`, `bench` or `mounts` with `--json`, or a directory of `vazao lab run`
    #[arg(value_name = "FILE")]
    pub file: String,
    /// Markdown instead of aligned text
    #[arg(long)]
    pub markdown: bool,
}

/// Prints the tables of a result file.
pub fn run(args: Args, context: &mut Context<'_>) -> Result<(), Error> {
    if Path::new(&args.file).is_dir() {
        let page = experiment::report(Path::new(&args.file))?;
        return print(&page, context);
    }
    let text = fs::read_to_string(&args.file).map_err(Error::at(&args.file))?;
    let wrong =
        |error: serde_json::Error| Error::Failed(format!("{}: not a result file: {error}", args.file));
    let value: serde_json::Value = serde_json::from_str(&text).map_err(wrong)?;
    let report = match value.get("format").and_then(|format| format.as_str()) {
        Some(psplit::FORMAT) => {
            let results: psplit::Results = serde_json::from_value(value).map_err(wrong)?;
            results.report(args.markdown)
        }
        Some(bench::FORMAT) => {
            let results: bench::Results = serde_json::from_value(value).map_err(wrong)?;
            results.report(args.markdown)
        }
        Some(mounts::FORMAT) => {
            let results: mounts::Results = serde_json::from_value(value).map_err(wrong)?;
            results.report(args.markdown)
        }
        _ => {
            let known = [psplit::FORMAT, bench::FORMAT, mounts::FORMAT].join(", ");
            return Err(Error::Failed(format!("{}: no format known here ({known})", args.file)));
        }
    };
    print(&report, context)
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

    #[test]
    fn a_file_that_is_no_result_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let mut output = Vec::new();
        for text in ["not json", "{}", "{\"format\": \"vazao-lab-psplit-2\"}", "[]"] {
            let path = directory.path().join("result.json");
            fs::write(&path, text).unwrap();
            let connect = || Err("not needed".to_owned());
            let clock = vazao_meter::clock::system();
            let mut context =
                Context { clock, connect: &connect, stop: Default::default(), output: &mut output };
            let file = path.display().to_string();
            let error = run(Args { file: file.clone(), markdown: false }, &mut context).unwrap_err();
            assert!(error.to_string().starts_with(&file), "{error}");
        }
        assert!(output.is_empty());
    }
}
