//! What people read of an outcome: text for the terminal, Markdown for documents, one page of HTML with the plots.

use super::chart;
use super::outcome::{FORMAT, Figure, Outcome, Series};
use crate::Error;
use crate::report::Table;
use crate::report::size::significant;
use crate::report::statistics::Summary;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// The file of a figure's plot.
pub(super) fn image_name(outcome: &Outcome, figure: &Figure) -> String {
    format!("{}-{}.svg", outcome.id, figure.key)
}

/// The tables of an outcome, as aligned text or as Markdown.
pub(super) fn text(outcome: &Outcome, markdown: bool) -> String {
    let mut text = format!("{} {}\n({})\n\n", outcome.id, outcome.title, outcome.source);
    let _ = writeln!(text, "Machine: {}\nScale: {}", outcome.machine.describe(), outcome.scale);
    outcome.setup.iter().for_each(|line| _ = writeln!(text, "{line}"));
    let shown = |table: Table| if markdown { table.to_markdown() } else { table.to_text() };
    for figure in &outcome.figures {
        let _ = writeln!(text, "\n{} [{}]\n", figure.title, figure.y_label);
        text.push_str(&shown(values(figure)));
        for table in [limits(figure), marks(figure)].into_iter().flatten() {
            text.push('\n');
            text.push_str(&shown(table));
        }
    }
    text.push('\n');
    text.push_str(&shown(findings(outcome)));
    outcome.gaps.iter().for_each(|gap| _ = writeln!(text, "\nMissing: {gap}"));
    text
}

/// One row a place with a name, one column a series: mean, with the smallest and the largest of several repetitions
/// and of the places without a name that follow.
fn values(figure: &Figure) -> Table {
    let all: Vec<(&Series, &str)> = figure
        .series
        .iter()
        .map(|series| (series, ""))
        .chain(figure.published.iter().map(|series| (series, " (published)")))
        .collect();
    let names: Vec<String> = all.iter().map(|(series, mark)| format!("{}{mark}", series.name)).collect();
    let headers: Vec<&str> =
        std::iter::once(figure.x_label.as_str()).chain(names.iter().map(String::as_str)).collect();
    let mut table = Table::new(&headers);
    let named = |at: &usize| figure.x.get(*at).is_some_and(|place| !place.is_empty());
    for (at, place) in figure.x.iter().enumerate().filter(|(at, _)| named(at)) {
        let end = (at + 1..figure.x.len()).find(named).unwrap_or(figure.x.len());
        let cells = all.iter().map(|(series, _)| {
            let points = series.points.iter().filter(|point| (at..end).contains(&point.at));
            cell(&points.flat_map(|point| point.values.iter().copied()).collect::<Vec<f64>>())
        });
        table.row(std::iter::once(place.clone()).chain(cells).collect());
    }
    table
}

fn cell(values: &[f64]) -> String {
    let Some(summary) = Summary::of(values) else { return String::new() };
    if summary.count == 1 {
        return significant(summary.mean);
    }
    format!("{} ({}–{})", significant(summary.mean), significant(summary.min), significant(summary.max))
}

/// What happened meanwhile, where that was noted.
fn marks(figure: &Figure) -> Option<Table> {
    let mut table = Table::new(&["meanwhile"]);
    figure.marks.iter().for_each(|mark| table.row(vec![mark.name.clone()]));
    (!figure.marks.is_empty()).then_some(table)
}

/// What limited each place, where that was judged.
fn limits(figure: &Figure) -> Option<Table> {
    let mut table = Table::new(&[figure.x_label.as_str(), "series", "limited by"]);
    let mut any = false;
    for series in &figure.series {
        for point in &series.points {
            let (Some(limit), Some(place)) = (&point.limit, figure.x.get(point.at)) else { continue };
            table.row(vec![place.clone(), series.name.clone(), limit.clone()]);
            any = true;
        }
    }
    any.then_some(table)
}

fn findings(outcome: &Outcome) -> Table {
    let mut table = Table::new(&["seen", "shape to show", "measured"]);
    for finding in &outcome.findings {
        table.row(vec![finding.holds.word().to_owned(), finding.shape.clone(), finding.measured.clone()]);
    }
    table
}

/// Draws the plots of an outcome.
pub(super) fn draw(outcome: &Outcome, directory: &Path) -> Result<(), Error> {
    for figure in &outcome.figures {
        let path = directory.join(image_name(outcome, figure));
        let image = chart::svg(figure).map_err(Error::Failed)?;
        fs::write(&path, image).map_err(Error::at(path.display()))?;
    }
    Ok(())
}

/// Makes plots and page of a directory of outcomes again, without measuring.
pub fn report(directory: &Path) -> Result<String, Error> {
    for outcome in read_all(directory)? {
        draw(&outcome, directory)?;
    }
    write(directory)?;
    Ok(format!("{}\n", directory.join(PAGE).display()))
}

const PAGE: &str = "index.html";

/// Writes the page of all outcomes in a directory.
pub(super) fn write(directory: &Path) -> Result<(), Error> {
    let path = directory.join(PAGE);
    fs::write(&path, html(&read_all(directory)?)).map_err(Error::at(path.display()))
}

/// The outcomes of a directory, in the order of the experiments' ids. Other files are left alone.
fn read_all(directory: &Path) -> Result<Vec<Outcome>, Error> {
    let mut outcomes = Vec::new();
    for entry in fs::read_dir(directory).map_err(Error::at(directory.display()))? {
        let path = entry.map_err(Error::at(directory.display()))?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(Error::at(path.display()))?;
        let is_outcome = serde_json::from_str::<serde_json::Value>(&text)
            .is_ok_and(|value| value.get("format").and_then(|format| format.as_str()) == Some(FORMAT));
        if is_outcome {
            let outcome: Outcome = serde_json::from_str(&text)
                .map_err(|error| Error::Failed(format!("{}: {error}", path.display())))?;
            outcomes.push(outcome);
        }
    }
    outcomes.sort_by_key(|outcome| order(&outcome.id));
    Ok(outcomes)
}

/// `P9` before `P10`.
fn order(id: &str) -> (String, u32) {
    let digits = id.find(|c: char| c.is_ascii_digit()).unwrap_or(id.len());
    (id[..digits].to_owned(), id[digits..].parse().unwrap_or(0))
}

const STYLE: &str = "body{font:16px/1.45 sans-serif;max-width:960px;margin:2em auto;padding:0 1em;color:#222}\
table{border-collapse:collapse;margin:1em 0;font-size:14px}th,td{border-bottom:1px solid #ddd;padding:.25em .7em;\
text-align:left;vertical-align:top}th{background:#f5f5f5}img{max-width:100%}.no{color:#b00020;font-weight:bold}\
.missing{color:#8a5a00}h2{margin-top:2.5em;border-top:2px solid #eee;padding-top:1em}";

/// One page of all outcomes; plots are files beside it.
fn html(outcomes: &[Outcome]) -> String {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Vazão: experiments</title><style>{STYLE}</style>\n\
         <h1>Experiments</h1>\n<p>Means of the repetitions with bars from the smallest to the largest. What was published \
         is grey and dashed: other hardware, to be compared in shape only.</p>\n<ul>\n"
    );
    for outcome in outcomes {
        let (id, title) = (escape(&outcome.id), escape(&outcome.title));
        let _ = writeln!(page, "<li><a href=\"#{id}\">{id}</a> {title}</li>");
    }
    page.push_str("</ul>\n");
    outcomes.iter().for_each(|outcome| section(&mut page, outcome));
    page.push_str("</html>\n");
    page
}

fn section(page: &mut String, outcome: &Outcome) {
    let id = escape(&outcome.id);
    let _ = writeln!(page, "<h2 id=\"{id}\">{id} {}</h2>", escape(&outcome.title));
    let lines = [
        format!("Published as: {}", outcome.source),
        format!("Machine: {}", outcome.machine.describe()),
        format!("Scale: {} ({:.0} s)", outcome.scale, outcome.seconds),
    ];
    let all: Vec<String> = lines.iter().chain(&outcome.setup).map(|line| escape(line)).collect();
    let _ = writeln!(page, "<p>{}</p>", all.join("<br>\n"));
    page.push_str(&table_html(&findings(outcome)));
    outcome.gaps.iter().for_each(|gap| {
        let _ = writeln!(page, "<p class=\"missing\">Missing: {}</p>", escape(gap));
    });
    for figure in &outcome.figures {
        let (image, title) = (escape(&image_name(outcome, figure)), escape(&figure.title));
        let _ = writeln!(page, "<h3>{title}</h3>\n<img src=\"{image}\" alt=\"{title}\">");
        page.push_str(&table_html(&values(figure)));
        for table in [limits(figure), marks(figure)].into_iter().flatten() {
            page.push_str(&table_html(&table));
        }
    }
}

fn table_html(table: &Table) -> String {
    let mut html = String::from("<table>\n");
    for (index, line) in table.lines().enumerate() {
        let tag = if index == 0 { "th" } else { "td" };
        let cells = line.iter().map(|cell| {
            let class = if cell == "NO" { " class=\"no\"" } else { "" };
            format!("<{tag}{class}>{}</{tag}>", escape(cell))
        });
        let _ = writeln!(html, "<tr>{}</tr>", cells.collect::<String>());
    }
    html + "</table>\n"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::outcome::{Finding, Form, Mark};
    use super::*;
    use crate::machine::Machine;

    fn outcome(id: &str) -> Outcome {
        let mut figure = Figure::new(
            "rate",
            "Rate",
            ("threads", vec!["1".to_owned(), "2".to_owned()]),
            "MB/s",
            Form::Lines,
        );
        figure.series_mut("a<b").record(0, 10.0);
        figure.series_mut("a<b").record(0, 20.0);
        figure.series_mut("a<b").limited_by(0, "disk of data1");
        figure.published = vec![Series::published("theirs", &[5.0, 6.0])];
        Outcome {
            format: FORMAT.to_owned(),
            id: id.to_owned(),
            title: "t".to_owned(),
            source: "s".to_owned(),
            scale: "short".to_owned(),
            started_ns: 1,
            seconds: 2.0,
            machine: Machine::default(),
            setup: vec!["two hosts".to_owned()],
            figures: vec![figure],
            findings: vec![Finding::new("rises", Some(false), "10 to 9".to_owned())],
            gaps: vec!["no root".to_owned()],
        }
    }

    #[test]
    fn text_has_every_value_limit_finding_and_gap() {
        let text = text(&outcome("P4"), false);
        for part in
            ["15.0 (10.0–20.0)", "disk of data1", "theirs (published)", "NO", "Missing: no root", "two hosts"]
        {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
    }

    /// A figure over a minute has six hundred places: a row for each would bury everything else.
    #[test]
    fn places_without_a_name_are_in_the_row_of_the_last_one_that_has_one() {
        let x = ["0", "", "", "5", ""].map(str::to_owned).to_vec();
        let mut figure = Figure::new("k", "t", ("s", x), "MB/s", Form::Lines);
        for (at, value) in [10.0, 20.0, 30.0, 1.0, 3.0].into_iter().enumerate() {
            figure.series_mut("a").record(at, value);
        }
        figure.marks = vec![Mark { name: "killed".to_owned(), from: 1.5, to: 1.5 }];
        let outcome = Outcome { figures: vec![figure], ..outcome("P10") };
        let text = text(&outcome, false);
        let rows: Vec<&str> = text.lines().filter(|line| line.contains('–')).map(str::trim).collect();
        assert_eq!(rows, ["0  20.0 (10.0–30.0)", "5  2.00 (1.00–3.00)"], "{text}");
        assert!(text.contains("killed") && html(&[outcome]).contains("<td>killed</td>"), "{text}");
    }

    #[test]
    fn the_page_is_made_from_the_files_in_the_order_of_ids_and_other_files_are_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        for id in ["P10", "P9", "G1"] {
            let path = directory.path().join(format!("{id}.json"));
            fs::write(path, serde_json::to_string(&outcome(id)).unwrap()).unwrap();
        }
        fs::write(directory.path().join("other.json"), "{}").unwrap();
        report(directory.path()).unwrap();
        let page = fs::read_to_string(directory.path().join(PAGE)).unwrap();
        let places: Vec<usize> = ["G1", "P9", "P10"]
            .iter()
            .map(|id| page.find(&format!("<h2 id=\"{id}\"")).expect("a section"))
            .collect();
        assert!(places.is_sorted(), "{page}");
        assert!(page.contains("a&lt;b") && !page.contains("a<b"));
        assert!(page.contains("<td class=\"no\">NO</td>"));
        assert!(directory.path().join("P9-rate.svg").exists());
    }

    #[test]
    fn a_damaged_outcome_is_named() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("P4.json"), format!("{{\"format\": \"{FORMAT}\"}}")).unwrap();
        let error = report(directory.path()).unwrap_err();
        assert!(error.to_string().contains("P4.json"), "{error}");
    }
}
