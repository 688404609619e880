//! Draws a figure as SVG, in the manner of the papers: means with bars from the smallest to the largest repetition,
//! what was published beside it in grey and dashed.

use super::outcome::{Figure, Form, Mark, Series};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::series::DashedLineSeries;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::error::Error;

/// Width and height in pixels.
const SIZE: (u32, u32) = (980, 480);
/// Below the horizontal axis: a row for the places and one for its name.
const BELOW_PX: i32 = 52;
/// Colours that people who see red and green alike can still tell apart.
const COLORS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
    RGBColor(148, 103, 189),
];
/// What was published, one shade after the other.
const PUBLISHED: [RGBColor; 4] =
    [RGBColor(110, 110, 110), RGBColor(150, 150, 150), RGBColor(180, 180, 180), RGBColor(205, 205, 205)];
/// The share of a place that its bars take.
const BARS_SHARE: f64 = 0.8;
/// Room above the highest value.
const HEADROOM: f64 = 1.06;
/// Room above all for each mark, and the height of its name.
const MARK_HEADROOM: f64 = 0.055;
const MARK_ROW_PX: i32 = 20;
const MARK_COLOR: RGBColor = RGBColor(90, 90, 90);
/// Points that lie closer than this many to a figure are joined without a dot and a bar of its own each.
const DOTS_MAX: usize = 64;
/// The strip at the right that names the series, and the height of a name.
const LEGEND_PX: u32 = 210;
const LEGEND_ROW_PX: i32 = 20;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Plane<'a, 'b> = ChartContext<'b, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type Drawn = Result<(), Box<dyn Error>>;

/// The figure as the text of an SVG image. An error is the drawing library's, in words.
pub fn svg(figure: &Figure) -> Result<String, String> {
    let mut text = String::new();
    let drawn = draw(&SVGBackend::with_string(&mut text, SIZE).into_drawing_area(), figure);
    drawn.map_err(|error| format!("figure {}: {error}", figure.key))?;
    Ok(text)
}

fn draw(area: &Area<'_>, figure: &Figure) -> Drawn {
    area.fill(&WHITE)?;
    let places = figure.x.len().max(1) as f64;
    let headroom = HEADROOM + MARK_HEADROOM * figure.marks.len() as f64;
    let mut plane = ChartBuilder::on(area)
        .caption(&figure.title, ("sans-serif", 18))
        .margin(12)
        .margin_right(LEGEND_PX)
        .x_label_area_size(BELOW_PX)
        .y_label_area_size(78)
        .build_cartesian_2d(0.0..places, 0.0..highest(figure) * headroom)?;
    plane
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE)
        .bold_line_style(RGBColor(228, 228, 228))
        .x_labels(0)
        .y_label_formatter(&|value| tick(*value))
        .y_desc(&figure.y_label)
        .label_style(("sans-serif", 14))
        .axis_desc_style(("sans-serif", 14))
        .draw()?;
    name_places(area, &plane, figure)?;
    match figure.form {
        Form::Lines => draw_lines(&mut plane, figure)?,
        Form::Bars => draw_bars(&mut plane, figure)?,
    }
    for (row, mark) in figure.marks.iter().enumerate() {
        draw_mark(area, &plane, (row, mark), places)?;
    }
    name_series(area, figure)?;
    area.present()?;
    Ok(())
}

/// The library labels quantities; ours are places, each named in its middle, with the axis' name below.
fn name_places(area: &Area<'_>, plane: &Plane<'_, '_>, figure: &Figure) -> Drawn {
    let style = ("sans-serif", 14).into_text_style(area).pos(Pos::new(HPos::Center, VPos::Top));
    for (at, name) in figure.x.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
        let (x, y) = plane.backend_coord(&(middle(at), 0.0));
        area.draw_text(name, &style, (x, y + 6))?;
    }
    let (x, y) = plane.backend_coord(&(figure.x.len() as f64 / 2.0, 0.0));
    area.draw_text(&figure.x_label, &style, (x, y + BELOW_PX - 24))?;
    Ok(())
}

/// The names of the series in a strip of their own, where they cover nothing.
fn name_series(area: &Area<'_>, figure: &Figure) -> Drawn {
    let style = ("sans-serif", 13).into_text_style(area).pos(Pos::new(HPos::Left, VPos::Center));
    let left = (SIZE.0 - LEGEND_PX) as i32 + 14;
    for (row, (series, color)) in colored(figure).into_iter().enumerate() {
        let y = 50 + row as i32 * LEGEND_ROW_PX;
        let sample = [(left, y - 4), (left + 16, y + 4)];
        area.draw(&Rectangle::new(sample, color.filled()))?;
        area.draw_text(&series.name, &style, (left + 24, y))?;
    }
    Ok(())
}

/// Every series with its colour: what was measured, then what was published.
fn colored(figure: &Figure) -> Vec<(&Series, RGBColor)> {
    let measured = figure.series.iter().zip(COLORS.iter().cycle());
    let published = figure.published.iter().zip(PUBLISHED.iter().cycle());
    measured.chain(published).map(|(series, color)| (series, *color)).collect()
}

/// A number of the vertical axis, without digits that say nothing.
fn tick(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn middle(at: usize) -> f64 {
    at as f64 + 0.5
}

fn highest(figure: &Figure) -> f64 {
    let values = figure.series.iter().chain(&figure.published).flat_map(|series| &series.points);
    let highest = values.flat_map(|point| &point.values).copied().fold(0.0, f64::max);
    if highest > 0.0 { highest } else { 1.0 }
}

/// The means of a series, with the smallest and the largest.
fn means(series: &Series) -> Vec<(usize, f64, f64, f64)> {
    let summary = |point: &super::outcome::Point| point.summary().map(|s| (point.at, s.mean, s.min, s.max));
    series.points.iter().filter_map(summary).collect()
}

fn draw_lines(plane: &mut Plane<'_, '_>, figure: &Figure) -> Drawn {
    for (series, color) in figure.published.iter().zip(PUBLISHED.iter().cycle()) {
        let points = means(series).into_iter().map(|(at, mean, ..)| (middle(at), mean));
        let line = DashedLineSeries::new(points, 6, 4, color.stroke_width(2));
        plane.draw_series(line)?;
    }
    for (series, color) in figure.series.iter().zip(COLORS.iter().cycle()) {
        let (points, color) = (means(series), *color);
        let line = points.iter().map(|&(at, mean, ..)| (middle(at), mean));
        plane.draw_series(LineSeries::new(line, color.stroke_width(2)))?;
        if points.len() > DOTS_MAX {
            continue;
        }
        let marks = points.iter().map(|&(at, mean, ..)| Circle::new((middle(at), mean), 3, color.filled()));
        plane.draw_series(marks)?;
        draw_spreads(
            plane,
            points.iter().map(|&(at, mean, low, high)| (middle(at), mean, low, high)),
            color,
        )?;
    }
    Ok(())
}

fn draw_bars(plane: &mut Plane<'_, '_>, figure: &Figure) -> Drawn {
    let colored = colored(figure);
    let width = BARS_SHARE / colored.len().max(1) as f64;
    for (index, (series, color)) in colored.into_iter().enumerate() {
        let points = means(series);
        let left = |at: usize| at as f64 + (1.0 - BARS_SHARE) / 2.0 + index as f64 * width;
        let bars = points.iter().map(|&(at, mean, ..)| {
            Rectangle::new([(left(at), 0.0), (left(at) + width * 0.92, mean)], color.filled())
        });
        plane.draw_series(bars)?;
        let spreads = points.iter().map(|&(at, mean, low, high)| (left(at) + width * 0.46, mean, low, high));
        draw_spreads(plane, spreads, BLACK)?;
    }
    Ok(())
}

/// A line from top to bottom for a moment, a bar in the mark's row for what went on; its name beside, in the half of
/// the plot that has more room.
fn draw_mark(area: &Area<'_>, plane: &Plane<'_, '_>, (row, mark): (usize, &Mark), places: f64) -> Drawn {
    let pixel = |place: f64, value: f64| plane.backend_coord(&(place.clamp(0.0, places), value));
    let ((from, bottom), (to, _)) = (pixel(mark.from, 0.0), pixel(mark.to, 0.0));
    let (_, top) = plane.backend_coord(&(0.0, plane.as_coord_spec().get_y_range().end));
    let y = top + 12 + row as i32 * MARK_ROW_PX;
    if mark.to > mark.from {
        area.draw(&Rectangle::new([(from, y - 3), (to, y + 3)], MARK_COLOR.filled()))?;
    } else {
        area.draw(&PathElement::new([(from, top), (from, bottom)], MARK_COLOR.stroke_width(1)))?;
    }
    let (anchor, x) =
        if mark.to > places * 0.6 { (HPos::Right, from - 6) } else { (HPos::Left, to.max(from) + 6) };
    let style = ("sans-serif", 13).into_text_style(area).pos(Pos::new(anchor, VPos::Center));
    area.draw_text(&mark.name, &style, (x, y))?;
    Ok(())
}

fn draw_spreads(
    plane: &mut Plane<'_, '_>,
    spreads: impl Iterator<Item = (f64, f64, f64, f64)>,
    color: RGBColor,
) -> Drawn {
    let several = spreads.filter(|&(_, _, low, high)| high > low);
    plane
        .draw_series(several.map(|(x, mean, low, high)| {
            ErrorBar::new_vertical(x, low, mean, high, color.stroke_width(1), 7)
        }))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(form: Form, places: usize) -> Figure {
        let x = (0..places).map(|n| (1 << n).to_string()).collect();
        let mut figure = Figure::new("k", "Rate & <threads>", ("threads", x), "MB/s", form);
        for at in 0..places {
            figure.series_mut("library").record(at, 10.0 + at as f64);
            figure.series_mut("library").record(at, 12.0 + at as f64);
            figure.series_mut("mount").record(at, 5.0);
        }
        figure.published = vec![Series::published("published", &vec![7.5; places])];
        figure
    }

    #[test]
    fn every_series_place_and_axis_is_in_the_image_and_texts_are_escaped() {
        for form in [Form::Lines, Form::Bars] {
            let image = svg(&figure(form, 4)).unwrap();
            for text in ["library", "mount", "published", "threads", "MB/s", "&lt;threads&gt;", "\n8\n"] {
                assert!(image.contains(text), "{form:?}: {text} is missing in {image}");
            }
        }
    }

    #[test]
    fn a_higher_value_is_drawn_higher() {
        let mut figure = Figure::new("k", "t", ("x", vec!["1".to_owned(), "2".to_owned()]), "y", Form::Lines);
        figure.series_mut("a").record(0, 1.0);
        figure.series_mut("a").record(1, 4.0);
        let image = svg(&figure).unwrap();
        let heights: Vec<i32> = image
            .lines()
            .filter(|line| line.starts_with("<circle"))
            .filter_map(|line| line.split("cy=\"").nth(1)?.split('"').next()?.parse().ok())
            .collect();
        assert_eq!(heights.len(), 2, "{image}");
        assert!(heights[0] > heights[1], "pixels count from the top: {heights:?}");
    }

    fn circles(image: &str) -> usize {
        image.lines().filter(|line| line.starts_with("<circle")).count()
    }

    #[test]
    fn what_happened_meanwhile_is_named_in_rows_and_long_lines_have_no_dots() {
        let x = (0..200).map(|at| if at % 50 == 0 { (at / 10).to_string() } else { String::new() }).collect();
        let mut figure = Figure::new("k", "t", ("s", x), "MB/s", Form::Lines);
        (0..200).for_each(|at| figure.series_mut("a").record(at, 3.0));
        let without = svg(&figure).unwrap();
        let mark = |name: &str, from: f64, to: f64| Mark { name: name.to_owned(), from, to };
        figure.marks =
            vec![mark("killed", 50.0, 50.0), mark("longest read", 51.0, 60.5), mark("late", 190.0, 190.0)];
        let image = svg(&figure).unwrap();
        for text in ["killed", "longest read", "late", "\n15\n"] {
            assert!(image.contains(text), "{text} is missing in {image}");
        }
        let tag = |name: &str| {
            let before = image.split(&format!("\n{name}\n")).next().unwrap();
            before.rsplit("<text ").next().unwrap().to_owned()
        };
        let row = |name: &str| -> i32 {
            tag(name).split(" y=\"").nth(1).and_then(|it| it.split('"').next()?.parse().ok()).unwrap()
        };
        assert!(row("killed") < row("longest read") && row("longest read") < row("late"), "{image}");
        let is_at_the_left = |name: &str| tag(name).contains("text-anchor=\"end\"");
        assert!(!is_at_the_left("killed") && is_at_the_left("late"), "it would leave the plot: {image}");
        let rectangles = |image: &str| image.matches("<rect").count();
        assert_eq!(rectangles(&image), rectangles(&without) + 1, "a bar for what went on");
        let short = svg(&self::figure(Form::Lines, 2)).unwrap();
        assert!(circles(&image) == 0 && circles(&short) > 0, "{image}");
    }

    #[test]
    fn figures_of_one_place_of_none_and_of_nothing_but_zeros_are_drawn_too() {
        svg(&figure(Form::Bars, 1)).unwrap();
        svg(&figure(Form::Lines, 1)).unwrap();
        svg(&Figure::new("k", "t", ("x", Vec::new()), "y", Form::Lines)).unwrap();
        let mut zeros = figure(Form::Lines, 2);
        zeros.series.iter_mut().flat_map(|s| &mut s.points).for_each(|point| point.values = vec![0.0]);
        zeros.published.clear();
        svg(&zeros).unwrap();
    }
}
