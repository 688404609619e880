//! What an experiment measured, in the one form that every experiment is kept in: figures of series of points, each
//! point with all its repetitions. Tables, plots and pages are made from it and never measure anew.

use crate::machine::Machine;
use crate::report::size::significant;
use crate::report::statistics::Summary;
use serde::{Deserialize, Serialize};

/// Names the kind and version of an outcome's file.
pub const FORMAT: &str = "vazao-lab-experiment-1";

/// One experiment, run once at one scale.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// [`FORMAT`].
    pub format: String,
    /// The experiment's id, such as `P4`.
    pub id: String,
    /// What it asks, in one line.
    pub title: String,
    /// The paper's table or figure.
    pub source: String,
    /// How much was done, in words.
    pub scale: String,
    /// Nanoseconds since the Unix epoch when it began.
    pub started_ns: u64,
    /// How long it took.
    pub seconds: f64,
    /// Where.
    pub machine: Machine,
    /// What was arranged for it, a sentence each: hosts, rates, disks, servers.
    pub setup: Vec<String>,
    /// What was measured.
    pub figures: Vec<Figure>,
    /// What the paper shows, and whether this run shows it too.
    pub findings: Vec<Finding>,
    /// What could not be done, and why. Never empty when something of the plan is missing.
    pub gaps: Vec<String>,
}

/// One plot: several series over the same places of the horizontal axis.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// Short name, unique in the outcome, fit for a file name.
    pub key: String,
    /// What it shows.
    pub title: String,
    /// Name and unit of the horizontal axis.
    pub x_label: String,
    /// The places of the horizontal axis, evenly spaced. One without a name belongs to the last one before that has
    /// one: so long rows are labelled now and then.
    pub x: Vec<String>,
    /// Name and unit of the vertical axis.
    pub y_label: String,
    /// Lines where the horizontal axis is a quantity, bars where it is a list of things.
    pub form: Form,
    /// What was measured.
    pub series: Vec<Series>,
    /// What the paper has, where it gives numbers for the same places: drawn beside, never compared as equal.
    pub published: Vec<Series>,
    /// What happened meanwhile, where the horizontal axis is time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<Mark>,
}

/// Something that happened at a place of the horizontal axis, or went on over some of them.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Mark {
    /// What it was, with its figure.
    pub name: String,
    /// Where it began, in places: 2.5 is the middle of the third one.
    pub from: f64,
    /// Where it ended; the same for a moment.
    pub to: f64,
}

/// How a figure is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// Points joined by lines.
    Lines,
    /// Bars beside one another.
    Bars,
}

/// One line, or the bars of one colour.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Series {
    /// What it is.
    pub name: String,
    /// In the order of the horizontal axis; places without a measurement are left out.
    pub points: Vec<Point>,
}

/// All repetitions at one place.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Point {
    /// Index into the figure's places.
    pub at: usize,
    /// One value a repetition, in the unit of the vertical axis.
    pub values: Vec<f64>,
    /// What limited the repetition in the middle, where it was judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
}

impl Point {
    /// Its summary; none when nothing was measured.
    pub fn summary(&self) -> Option<Summary> {
        Summary::of(&self.values)
    }
}

impl Series {
    /// An empty one.
    pub fn new(name: impl Into<String>) -> Series {
        Series { name: name.into(), points: Vec::new() }
    }

    /// Numbers of a paper, one for each place.
    pub fn published(name: &str, values: &[f64]) -> Series {
        let point = |(at, &value): (usize, &f64)| Point { at, values: vec![value], limit: None };
        Series { name: name.to_owned(), points: values.iter().enumerate().map(point).collect() }
    }

    /// The median at a place.
    pub fn median(&self, at: usize) -> Option<f64> {
        let point = self.points.iter().find(|point| point.at == at)?;
        point.summary().map(|summary| summary.median)
    }

    /// The largest of all medians.
    pub fn best(&self) -> Option<f64> {
        self.points.iter().filter_map(Point::summary).map(|summary| summary.median).max_by(f64::total_cmp)
    }

    /// Adds one repetition at a place.
    pub fn record(&mut self, at: usize, value: f64) {
        match self.points.iter_mut().find(|point| point.at == at) {
            Some(point) => point.values.push(value),
            None => {
                self.points.push(Point { at, values: vec![value], limit: None });
                self.points.sort_by_key(|point| point.at);
            }
        }
    }

    /// Says what limited a place.
    pub fn limited_by(&mut self, at: usize, limit: &str) {
        if let Some(point) = self.points.iter_mut().find(|point| point.at == at) {
            point.limit = Some(limit.to_owned());
        }
    }
}

impl Figure {
    /// An empty figure.
    pub fn new(key: &str, title: &str, x: (&str, Vec<String>), y_label: &str, form: Form) -> Figure {
        Figure {
            key: key.to_owned(),
            title: title.to_owned(),
            x_label: x.0.to_owned(),
            x: x.1,
            y_label: y_label.to_owned(),
            form,
            series: Vec::new(),
            published: Vec::new(),
            marks: Vec::new(),
        }
    }

    /// The series of that name, made if it is not there yet.
    pub fn series_mut(&mut self, name: &str) -> &mut Series {
        let index = self.series.iter().position(|series| series.name == name).unwrap_or_else(|| {
            self.series.push(Series::new(name));
            self.series.len() - 1
        });
        &mut self.series[index]
    }

    /// The series of that name.
    pub fn find(&self, name: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.name == name)
    }

    /// The median of a series at a place.
    pub fn median(&self, series: &str, at: usize) -> Option<f64> {
        self.find(series)?.median(at)
    }
}

/// A shape that the paper shows, and whether this run has it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Finding {
    /// What should be seen.
    pub shape: String,
    /// Whether it was.
    pub holds: Holds,
    /// The figures that say so; where it differs, also why.
    pub measured: String,
}

/// Whether a shape was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holds {
    /// It was.
    Yes,
    /// It was not.
    No,
    /// This run cannot tell: a place was not measured.
    Unknown,
}

impl Finding {
    /// From a comparison that may lack its figures.
    pub fn new(shape: &str, holds: Option<bool>, measured: String) -> Finding {
        let holds = match holds {
            Some(true) => Holds::Yes,
            Some(false) => Holds::No,
            None => Holds::Unknown,
        };
        Finding { shape: shape.to_owned(), holds, measured }
    }
}

impl Holds {
    /// One word for a table.
    pub(super) fn word(self) -> &'static str {
        match self {
            Holds::Yes => "yes",
            Holds::No => "NO",
            Holds::Unknown => "not measured",
        }
    }
}

impl Outcome {
    /// The file it is kept in, in the directory of results.
    pub(super) fn file_name(&self) -> String {
        format!("{}.json", self.id)
    }
}

/// A figure by its key.
pub(crate) fn figure<'a>(figures: &'a [Figure], key: &str) -> Option<&'a Figure> {
    figures.iter().find(|figure| figure.key == key)
}

/// A figure for a text, which may lack it.
pub(crate) fn shown(value: Option<f64>) -> String {
    value.map_or("not measured".to_owned(), significant)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_of_one_place_come_together_in_the_order_of_the_places() {
        let mut series = Series::new("a");
        for (at, value) in [(2, 5.0), (0, 1.0), (2, 7.0), (0, 3.0), (0, 2.0)] {
            series.record(at, value);
        }
        let places: Vec<(usize, usize)> = series.points.iter().map(|p| (p.at, p.values.len())).collect();
        assert_eq!(places, [(0, 3), (2, 2)]);
        assert_eq!((series.median(0), series.median(1), series.median(2)), (Some(2.0), None, Some(6.0)));
        assert_eq!(series.best(), Some(6.0));
    }

    #[test]
    fn a_series_is_made_once() {
        let mut figure = Figure::new("k", "t", ("x", vec!["1".to_owned()]), "y", Form::Lines);
        figure.series_mut("a").record(0, 1.0);
        figure.series_mut("b").record(0, 2.0);
        figure.series_mut("a").record(0, 3.0);
        assert_eq!(figure.series.len(), 2);
        assert_eq!((figure.median("a", 0), figure.median("c", 0)), (Some(2.0), None));
    }
}
