//! Draws a figure: times or rates by size, with a line for each contender. Both axes are logarithmic.

use std::ops::Range;

use plotters::backend::SVGBackend;
use plotters::chart::{ChartBuilder, SeriesLabelPosition};
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::drawing::IntoDrawingArea;
use plotters::element::{Circle, EmptyElement, PathElement};
use plotters::series::{DashedLineSeries, LineSeries};
use plotters::style::{Color, IntoFont, RGBColor, ShapeStyle, WHITE};

use super::figure::{Contender, Drawing, Figure, Role};
use crate::failure::CommandFailure;
use crate::size;

const WIDTH_PX: u32 = 820;
const HEIGHT_PX: u32 = 520;

const FONT: &str = "sans-serif";
const PADDING_PX: i32 = 10;
const TITLE_PX: u32 = 19;
const TEXT_PX: u32 = 14;
const LINE_PX: u32 = 2;
const POINT_PX: u32 = 3;
const DASH_PX: u32 = 7;
const GAP_PX: u32 = 4;
const LEGEND_LINE_PX: i32 = 26;
/// The end of the first dash in a legend, and the start of the second.
const LEGEND_DASH_PX: (i32, i32) = (10, 16);

const TEXT_COLOUR: RGBColor = RGBColor(40, 40, 40);
const GRID_COLOUR: RGBColor = RGBColor(222, 222, 222);

/// Colours that readers with colour vision deficiency can tell apart (Okabe and Ito).
const FLOOR_COLOUR: RGBColor = RGBColor(110, 110, 110);
const HOMESPUN_COLOUR: RGBColor = RGBColor(213, 94, 0);
const OTHER_COLOURS: [RGBColor; 5] = [
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(150, 120, 0),
];

/// The factor by which an axis extends beyond the smallest and the largest value.
const MARGIN: f64 = 1.25;

/// The ticks within a power of ten. An axis over more than `SPARSE_TICKS_POWERS` powers of ten has only
/// the first tick of each power.
const TICKS: [f64; 3] = [1.0, 2.0, 5.0];
const SPARSE_TICKS_POWERS: f64 = 3.5;

/// Draws a figure as SVG. `None` if no row has both a size and a time.
///
/// # Errors
///
/// [`CommandFailure::Draw`].
pub(super) fn draw_svg(figure: &Figure, drawing: Drawing) -> Result<Option<String>, CommandFailure> {
    let lines: Vec<Line> = contender_lines(figure, drawing);
    let points = || lines.iter().flat_map(|line| &line.points);
    if points().next().is_none() {
        return Ok(None);
    }
    let sizes = Axis::of_sizes(points().map(|(size_bytes, _)| *size_bytes));
    let values = Axis::of_values(points().map(|(_, value)| *value));
    let mut svg = String::new();
    draw_chart(&mut svg, figure, drawing, &lines, &sizes, &values).map_err(|error| CommandFailure::Draw {
        name: figure.drawing_file_name(drawing),
        reason: error.to_string(),
    })?;
    Ok(Some(svg))
}

/// The line of one contender.
struct Line<'a> {
    contender: &'a Contender,
    colour: RGBColor,
    /// Pairs of size in bytes and value, sorted by size.
    points: Vec<(f64, f64)>,
}

/// A logarithmic axis. `start`, `end` and `ticks` are logarithms: exponents of the axis's base.
#[derive(Debug, Clone)]
struct Axis {
    start: f64,
    end: f64,
    ticks: Vec<f64>,
}

impl Axis {
    /// An axis of sizes with base two, and a tick for each size.
    fn of_sizes(sizes: impl Iterator<Item = f64>) -> Axis {
        let mut ticks: Vec<f64> = sizes.map(f64::log2).collect();
        ticks.sort_by(f64::total_cmp);
        ticks.dedup();
        let margin = MARGIN.log2();
        Axis { start: ticks[0] - margin, end: ticks[ticks.len() - 1] + margin, ticks }
    }

    /// An axis of values with base ten, and ticks at round numbers.
    fn of_values(values: impl Iterator<Item = f64> + Clone) -> Axis {
        let start = (values.clone().fold(f64::INFINITY, f64::min) / MARGIN).log10();
        let end = (values.fold(0.0, f64::max) * MARGIN).log10();
        let shown = if end - start > SPARSE_TICKS_POWERS { &TICKS[..1] } else { &TICKS[..] };
        // Times and rates span few powers of ten, so the conversion to integers loses nothing.
        let powers = start.floor() as i32..=end.ceil() as i32;
        let all = powers.flat_map(|power| shown.iter().map(move |tick| tick.log10() + f64::from(power)));
        Axis { start, end, ticks: all.filter(|tick| (start..=end).contains(tick)).collect() }
    }
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, power: &f64, (first_px, last_px): (i32, i32)) -> i32 {
        let share = (power - self.start) / (self.end - self.start);
        // The number of pixels is small, so it fits into the integer.
        first_px + (share * f64::from(last_px - first_px)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.start..self.end
    }
}

fn contender_lines(figure: &Figure, drawing: Drawing) -> Vec<Line<'_>> {
    let mut others = OTHER_COLOURS.into_iter().cycle();
    let contenders = figure.contenders.iter().enumerate();
    contenders
        .map(|(index, contender)| {
            let colour = match contender.role {
                Role::Floor => FLOOR_COLOUR,
                Role::Homespun => HOMESPUN_COLOUR,
                Role::Other => others.next().unwrap_or(FLOOR_COLOUR),
            };
            let point = |row: &super::figure::CaseRow| {
                // A size of 0 has no place on a logarithmic axis.
                let size_bytes = row.case.size_bytes.filter(|size_bytes| *size_bytes > 0)? as f64;
                let time_us = row.cells[index].map(|cell| cell.median).filter(|time_us| *time_us > 0.0)?;
                Some((size_bytes, if drawing == Drawing::Latency { time_us } else { size_bytes / time_us }))
            };
            let mut points: Vec<(f64, f64)> = figure.rows.iter().filter_map(point).collect();
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            Line { contender, colour, points }
        })
        .collect()
}

fn draw_chart(
    svg: &mut String,
    figure: &Figure,
    drawing: Drawing,
    lines: &[Line<'_>],
    sizes: &Axis,
    values: &Axis,
) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(svg, (WIDTH_PX, HEIGHT_PX)).into_drawing_area();
    root.fill(&WHITE)?;
    let text = |size_px: u32| (FONT, size_px).into_font().color(&TEXT_COLOUR);
    let padded = root.margin(PADDING_PX, 0, 0, 0);
    let area = padded.titled(&figure.title, text(TITLE_PX))?.titled(&figure.place, text(TEXT_PX))?;
    let mut chart = ChartBuilder::on(&area)
        .margin(10)
        .margin_right(24)
        .x_label_area_size(48)
        .y_label_area_size(76)
        .build_cartesian_2d(sizes.clone(), values.clone())?;
    let value_name = match drawing {
        Drawing::Latency => figure.quantity.description(),
        Drawing::Bandwidth => "10⁶ bytes a second",
    };
    chart
        .configure_mesh()
        .x_desc("bytes (K = 1024, M = 1024²)")
        .y_desc(value_name)
        // Powers of two up to the largest message fit into the integer.
        .x_label_formatter(&|power| size::format(power.exp2().round() as u64))
        .y_label_formatter(&|power| format_tick(10_f64.powf(*power)))
        .label_style(text(TEXT_PX))
        .axis_desc_style(text(TEXT_PX))
        .axis_style(TEXT_COLOUR)
        .bold_line_style(GRID_COLOUR)
        .light_line_style(WHITE)
        .max_light_lines(0)
        .draw()?;
    for line in lines {
        let style = ShapeStyle { color: line.colour.to_rgba(), filled: true, stroke_width: LINE_PX };
        let points: Vec<(f64, f64)> =
            line.points.iter().map(|(size_bytes, value)| (size_bytes.log2(), value.log10())).collect();
        let is_floor = line.contender.role == Role::Floor;
        let series = if is_floor {
            chart.draw_series(DashedLineSeries::new(points.iter().copied(), DASH_PX, GAP_PX, style))?
        } else {
            chart.draw_series(LineSeries::new(points.iter().copied(), style))?
        };
        series.label(&line.contender.name).legend(move |(x, y)| {
            // A line in the legend consists of two pieces. If the line is dashed, there is a gap between
            // the pieces.
            let (first_end, second_start) = if is_floor { LEGEND_DASH_PX } else { (0, 0) };
            EmptyElement::at((x, y))
                + PathElement::new(vec![(0, 0), (first_end, 0)], style)
                + PathElement::new(vec![(second_start, 0), (LEGEND_LINE_PX, 0)], style)
        });
        chart.draw_series(points.iter().map(|point| Circle::new(*point, POINT_PX, style)))?;
    }
    let position = match drawing {
        Drawing::Latency => SeriesLabelPosition::UpperLeft,
        Drawing::Bandwidth => SeriesLabelPosition::LowerRight,
    };
    chart
        .configure_series_labels()
        .position(position)
        .margin(12)
        .legend_area_size(LEGEND_LINE_PX + 8)
        .label_font(text(TEXT_PX))
        .background_style(WHITE)
        .border_style(GRID_COLOUR)
        .draw()?;
    root.present()?;
    Ok(())
}

/// Writes a round number without unnecessary digits.
fn format_tick(number: f64) -> String {
    let decimals = (-number.log10().floor()).max(0.0) as usize;
    format!("{number:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::super::figure::tests::{make_figure, make_row};
    use super::*;

    #[test]
    fn drawing_has_title_place_and_a_line_for_each_contender() {
        for drawing in [Drawing::Latency, Drawing::Bandwidth] {
            let svg = draw_svg(&make_figure(), drawing).unwrap().expect("a drawing");
            assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{svg}");
            for text in
                ["messages back &amp; forth", "cores 0 and 1", "homespun", "bare loop", "shm", "4K", "1M"]
            {
                assert!(svg.contains(text), "{text}: {svg}");
            }
        }
    }

    #[test]
    fn figure_without_sizes_has_no_drawing() {
        let mut figure = make_figure();
        figure.rows = vec![make_row(0, [Some(0.1), Some(0.2), Some(0.3)]), make_row(8, [None, None, None])];
        assert_eq!(draw_svg(&figure, Drawing::Latency).unwrap(), None);
    }

    #[test]
    fn single_size_is_drawn() {
        let mut figure = make_figure();
        figure.rows = vec![make_row(8, [Some(0.1), Some(0.1), Some(0.1)])];
        assert!(draw_svg(&figure, Drawing::Latency).unwrap().is_some());
    }

    #[test]
    fn ticks_are_round_numbers_within_the_axis() {
        let ticks = |values: &[f64]| -> Vec<String> {
            let axis = Axis::of_values(values.iter().copied());
            axis.ticks.iter().map(|tick| format_tick(10_f64.powf(*tick))).collect()
        };
        assert_eq!(ticks(&[0.15, 4.0]), ["0.2", "0.5", "1", "2", "5"]);
        assert_eq!(ticks(&[0.02, 150.0]), ["0.1", "1", "10", "100"]);
        let sizes = Axis::of_sizes([4096.0, 8.0, 4096.0].into_iter());
        assert_eq!(sizes.ticks, [3.0, 12.0]);
    }
}
